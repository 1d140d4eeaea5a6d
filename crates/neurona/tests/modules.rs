//! Models as a user meets them: names, modes, statistics, files, errors.

use neurona::models::{Lab, course_cnn, mlp, resnet18_cifar};
use neurona::nn::{
    BatchNorm2d, Dropout, Embedding, Forward, LayerNorm, Linear, Module, MultiheadAttention, Parameter, ReLU,
    Sequential, StateDict,
};
use neurona::{DType, Error, Result, Tensor, stats};
use std::path::PathBuf;

fn names(net: &impl Module) -> Vec<String> {
    net.named_parameters().into_iter().map(|(name, _)| name).collect()
}

struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Temporary(std::env::temp_dir().join(format!("neurona-modules-{name}-{}.safetensors", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn same(a: &StateDict, b: &StateDict) -> Result<bool> {
    let mut equal = a.len() == b.len();
    for (name, tensor) in a.iter() {
        let Some(other) = b.get(name) else { return Ok(false) };
        equal &= tensor.shape() == other.shape() && tensor.dtype() == other.dtype();
        let bits = |t: &Tensor| Ok::<_, Error>(t.to_vec::<f64>()?.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
        equal &= bits(tensor)? == bits(other)?;
    }
    Ok(equal)
}

#[test]
fn names_are_pytorchs() -> Result<()> {
    let both = |layers: &[&str]| -> Vec<String> {
        layers.iter().flat_map(|l| [format!("{l}.weight"), format!("{l}.bias")]).collect()
    };
    assert_eq!(names(&Lab::new()?), both(&["conv1", "conv2", "fc1", "fc2", "fc3"]));
    assert_eq!(names(&mlp(&[784, 512, 256, 10])?), both(&["0", "2", "4"]));
    assert_eq!(names(&course_cnn()?), both(&["0", "1", "4", "5", "8", "9", "13"]));

    let mut resnet = vec!["conv1.weight".to_string(), "bn1.weight".into(), "bn1.bias".into()];
    for layer in 1..=4 {
        for block in 0..2 {
            for part in ["conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight", "bn2.bias"] {
                resnet.push(format!("layer{layer}.{block}.{part}"));
            }
            if layer > 1 && block == 0 {
                for part in ["0.weight", "1.weight", "1.bias"] {
                    resnet.push(format!("layer{layer}.0.downsample.{part}"));
                }
            }
        }
    }
    resnet.extend(both(&["fc"]));
    let net = resnet18_cifar(10)?;
    assert_eq!(names(&net), resnet);
    assert_eq!((net.num_parameters(), net.named_buffers().len()), (11_173_962, 60));
    let state = net.state_dict()?;
    let order: Vec<&str> = state.names().take(6).collect();
    let want =
        ["conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked"];
    assert_eq!((state.len(), order), (122, want.to_vec()));
    Ok(())
}

#[test]
fn the_switch_reaches_nested_layers() -> Result<()> {
    let inner = Sequential::new().add(Dropout::new(1.0)).add_named("more", Sequential::new().add(BatchNorm2d::new(1)?));
    let net = Sequential::new().add(ReLU::new()).add(inner);
    let x = Tensor::from([1.0f32, 3.0]).reshape([2, 1, 1, 1])?;
    assert_eq!(net.forward(&x)?.to_vec::<f32>()?, [0.0, 0.0]);
    let seen = |net: &Sequential| net.named_buffers()[2].1.get()?.item::<i64>();
    assert_eq!(seen(&net)?, 1);
    net.eval();
    let y = net.forward(&x)?.to_vec::<f32>()?;
    assert!(y[0] > 0.9 && y[1] > 2.9, "{y:?}");
    assert_eq!(seen(&net)?, 1);
    net.train();
    assert_eq!(net.forward(&x)?.to_vec::<f32>()?, [0.0, 0.0]);
    assert_eq!(seen(&net)?, 2);
    Ok(())
}

#[test]
fn statistics_are_committed_once_per_forward_when_the_output_is_read() -> Result<()> {
    let layer = BatchNorm2d::new(2)?;
    let buffer = |i: usize| layer.named_buffers()[i].1.cell().clone();
    let x = Tensor::randn([4, 2, 3, 3])?;
    let y = layer.forward(&x)?;
    assert_eq!(buffer(0).version(), 0, "nothing runs before a value is needed");
    y.to_vec::<f32>()?;
    assert_eq!([buffer(0).version(), buffer(1).version(), buffer(2).version()], [1; 3]);
    y.sum()?.item::<f32>()?;
    y.to_vec::<f32>()?;
    assert_eq!((buffer(0).version(), buffer(2).get()?.item::<i64>()?), (1, 1), "reading again changes nothing");

    let values = x.to_vec::<f32>()?;
    for channel in 0..2 {
        let of: Vec<f64> =
            (0..4).flat_map(|n| values[(n * 2 + channel) * 9..][..9].iter().map(|v| *v as f64)).collect();
        let mean = of.iter().sum::<f64>() / 36.0;
        let var = of.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 35.0;
        let at = |i: usize| Ok::<_, Error>(buffer(i).get()?.to_vec::<f64>()?[channel]);
        assert!((at(0)? - 0.1 * mean).abs() < 1e-6 && (at(1)? - (0.9 + 0.1 * var)).abs() < 1e-6);
    }

    // An output that nobody reads: its statistics are there when they are asked for.
    layer.forward(&x)?;
    assert_eq!(buffer(2).get()?.item::<i64>()?, 2);
    layer.forward(&x)?;
    assert_eq!(layer.state_dict()?.get("num_batches_tracked").map(|t| t.item::<i64>()).transpose()?, Some(3));
    Ok(())
}

#[test]
fn a_step_trains_and_counts_once() -> Result<()> {
    use neurona::optim::{Optimizer, Sgd};
    let net = course_cnn()?;
    let mut sgd = Sgd::new(net.parameters(), 0.01).momentum(0.9);
    let (x, t) = (Tensor::randn([8, 3, 32, 32])?, Tensor::from([0i64, 1, 2, 3, 4, 5, 6, 7]));
    let mut losses = Vec::new();
    for _ in 0..6 {
        sgd.zero_grad();
        let loss = net.forward(&x)?.cross_entropy(&t)?;
        loss.backward()?;
        let before = stats().runs;
        sgd.step()?;
        losses.push(loss.item::<f32>()?);
        assert!(stats().runs > before);
    }
    assert!(losses[5] < losses[0] * 0.7, "{losses:?}");
    assert_eq!(net.state_dict()?.get("1.num_batches_tracked").map(|t| t.item::<i64>()).transpose()?, Some(6));
    Ok(())
}

#[test]
fn a_saved_model_comes_back_bit_for_bit() -> Result<()> {
    let (file, net) = (Temporary::new("round"), course_cnn()?);
    net.forward(&Tensor::randn([4, 3, 32, 32])?)?.to_vec::<f32>()?;
    net.save(&file.0)?;
    let other = course_cnn()?;
    assert!(!same(&net.state_dict()?, &other.state_dict()?)?);
    other.load(&file.0)?;
    assert!(same(&net.state_dict()?, &other.state_dict()?)?);
    net.eval();
    other.eval();
    let x = Tensor::randn([2, 3, 32, 32])?;
    assert_eq!(net.forward(&x)?.to_vec::<f32>()?, other.forward(&x)?.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn a_state_dict_is_a_snapshot() -> Result<()> {
    use neurona::optim::{Optimizer, Sgd};
    let (net, x) = (mlp(&[3, 4, 2])?, Tensor::ones([5, 3], DType::F32)?);
    let before = net.state_dict()?;
    let copy: Vec<Vec<f32>> = before.iter().map(|(_, t)| t.to_vec()).collect::<Result<_>>()?;
    let other = mlp(&[3, 4, 2])?;
    other.load_state_dict(&before, true)?;
    let mut sgd = Sgd::new(net.parameters(), 0.1);
    for _ in 0..3 {
        sgd.zero_grad();
        net.forward(&x)?.sum()?.backward()?;
        sgd.step()?;
    }
    let after: Vec<Vec<f32>> = before.iter().map(|(_, t)| t.to_vec()).collect::<Result<_>>()?;
    assert_eq!(copy, after);
    assert!(!same(&before, &net.state_dict()?)?);
    assert!(
        same(&before, &other.state_dict()?)?,
        "training one model must not change another loaded from the same state"
    );
    Ok(())
}

#[test]
fn strict_loading_lists_everything_and_changes_nothing() -> Result<()> {
    let net = Sequential::new().add_named("a", Linear::new(2, 3)?).add_named("bn", BatchNorm2d::new(3)?);
    let before = net.state_dict()?;
    let mut state = before.clone();
    state.remove("a.bias");
    state.remove("bn.num_batches_tracked");
    state.insert("a.weight", Tensor::zeros([3, 5], DType::F32)?);
    state.insert("bn.running_var", Tensor::full([3], 9.0, DType::F32)?);
    state.insert("c.weight", Tensor::zeros([1], DType::F32)?);
    match net.load_state_dict(&state, true) {
        Err(Error::StateDict { missing, unexpected, mismatched }) => {
            assert_eq!(missing, ["a.bias", "bn.num_batches_tracked"]);
            assert_eq!(unexpected, ["c.weight"]);
            assert_eq!(mismatched, [("a.weight".to_string(), [3, 2].into(), [3, 5].into())]);
        }
        other => panic!("{other:?}"),
    }
    assert!(same(&before, &net.state_dict()?)?);
    let error = net.load_state_dict(&state, false).unwrap_err().to_string();
    assert!(error.contains("a.weight (model [3, 2], file [3, 5])") && !error.contains("missing"), "{error}");
    assert!(same(&before, &net.state_dict()?)?);

    state.remove("a.weight");
    let report = net.load_state_dict(&state, false)?;
    assert_eq!(
        (report.missing, report.unexpected),
        (vec!["a.weight".into(), "a.bias".into()], vec!["c.weight".into()])
    );
    assert_eq!(net.state_dict()?.get("bn.running_var").map(|t| t.to_vec::<f32>()).transpose()?, Some(vec![9.0; 3]));
    Ok(())
}

#[test]
fn loading_converts_to_the_models_types() -> Result<()> {
    let layer = Linear::new(2, 1)?;
    let state: StateDict =
        [("weight", Tensor::from([[1.5f64, -2.0]])), ("bias", Tensor::from([3i64]))].into_iter().collect();
    layer.load_state_dict(&state, true)?;
    assert_eq!(layer.weight.get()?.dtype(), DType::F32);
    assert_eq!(layer.forward(&Tensor::from([[2.0f32, 1.0]]))?.to_vec::<f32>()?, [4.0]);
    Ok(())
}

#[test]
fn loading_forgets_statistics_that_were_staged() -> Result<()> {
    let layer = BatchNorm2d::new(1)?;
    let fresh = layer.state_dict()?;
    let pending = layer.forward(&Tensor::from([1.0f32, 3.0]).reshape([2, 1, 1, 1])?)?;
    layer.load_state_dict(&fresh, true)?;
    pending.to_vec::<f32>()?;
    assert!(same(&fresh, &layer.state_dict()?)?);
    Ok(())
}

#[test]
fn broken_files_are_errors() -> Result<()> {
    let (file, net) = (Temporary::new("broken"), Lab::new()?);
    let before = net.state_dict()?;
    assert!(matches!(net.load("no/such/file"), Err(Error::File { .. })));
    assert!(matches!(net.save("no/such/folder/file"), Err(Error::File { .. })));
    net.save(&file.0)?;
    let whole = std::fs::read(&file.0).unwrap();
    for bytes in [&whole[..0], &whole[..5], &whole[..whole.len() / 2], b"garbage garbage garbage"] {
        std::fs::write(&file.0, bytes).unwrap();
        let error = net.load(&file.0).unwrap_err();
        assert!(
            matches!(error, Error::Format { .. }) && error.to_string().contains("neurona-modules-broken"),
            "{error}"
        );
    }
    mlp(&[2, 1])?.save(&file.0)?;
    assert!(matches!(net.load(&file.0), Err(Error::StateDict { .. })));
    assert!(same(&before, &net.state_dict()?)?);
    Ok(())
}

#[test]
fn a_shape_error_names_op_path_and_shapes() -> Result<()> {
    let net = Lab::new()?;
    net.parameters();
    let error = net.conv2.forward(&Tensor::zeros([4, 3, 14, 14], DType::F32)?).unwrap_err().to_string();
    let start = "conv2d at conv2: input has 3 channels but the weight expects 6 \
                 (input [4, 3, 14, 14], weight [16, 6, 5, 5], bias [16])";
    assert!(error.starts_with(start), "{error}");

    let net = resnet18_cifar(10)?;
    net.parameters();
    let error = net.layer2[0].bn1.forward(&Tensor::zeros([2, 128], DType::F32)?).unwrap_err().to_string();
    assert!(error.starts_with("batch_norm at layer2.0.bn1: needs an input [n, c, h, w]"), "{error}");
    let error = net.forward(&Tensor::zeros([2, 1, 8, 8], DType::F32)?).unwrap_err().to_string();
    assert!(error.starts_with("conv2d at conv1: input has 1 channels"), "{error}");
    assert!(mlp(&[3]).is_err());
    Ok(())
}

#[test]
fn a_shape_error_names_the_callers_line() -> Result<()> {
    let error = Linear::new(2, 1)?.forward(&Tensor::zeros([1, 3], DType::F32)?).unwrap_err().to_string();
    assert!(error.contains("tests/modules.rs"), "{error}");
    Ok(())
}

#[test]
fn a_shared_weight_is_one_parameter() -> Result<()> {
    let (a, mut b) = (Linear::new(2, 2)?.without_bias(), Linear::new(2, 2)?.without_bias());
    b.weight = a.weight.clone();
    let net = Sequential::new().add(a).add(b);
    assert_eq!((names(&net), net.num_parameters()), (vec!["0.weight".to_string()], 4));
    assert_eq!(net.state_dict()?.names().collect::<Vec<_>>(), ["0.weight", "1.weight"]);
    Ok(())
}

#[test]
fn a_state_dict_between_forward_and_backward_counts_once() -> Result<()> {
    use neurona::optim::{Optimizer, Sgd};
    let net = course_cnn()?;
    let mut sgd = Sgd::new(net.parameters(), 0.01);
    let loss = net.forward(&Tensor::randn([2, 3, 32, 32])?)?.cross_entropy(&Tensor::from([0i64, 1]))?;
    let seen = |net: &Sequential| net.state_dict()?.get("5.num_batches_tracked").map(|t| t.item::<i64>()).transpose();
    assert_eq!(seen(&net)?, Some(1));
    loss.backward()?;
    sgd.step()?;
    loss.item::<f32>()?;
    assert_eq!(seen(&net)?, Some(1));
    Ok(())
}

#[test]
fn loading_does_not_change_the_past() -> Result<()> {
    use neurona::optim::{Optimizer, Sgd};
    let (layer, x) = (Linear::new(2, 1)?, Tensor::ones([1, 2], DType::F32)?);
    let mut sgd = Sgd::new(layer.parameters(), 1.0);
    let want = layer.forward(&x)?.to_vec::<f32>()?;
    let pending = layer.forward(&x)?;
    layer.forward(&x)?.sum()?.backward()?;
    let state: StateDict =
        [("weight", Tensor::from([[5.0f32, 7.0]])), ("bias", Tensor::from([1.0f32]))].into_iter().collect();
    layer.load_state_dict(&state, true)?;
    assert_eq!(pending.to_vec::<f32>()?, want);
    // The gradient is the old weights', the update is of the new ones.
    sgd.step()?;
    assert_eq!(layer.weight.get()?.to_vec::<f32>()?, [4.0, 6.0]);
    Ok(())
}

#[test]
fn two_forwards_in_one_loss_add_their_gradients() -> Result<()> {
    let net = course_cnn()?;
    let (a, b) = (Tensor::randn([2, 3, 32, 32])?, Tensor::randn([2, 3, 32, 32])?);
    let loss = |x: &Tensor| net.forward(x)?.cross_entropy(&Tensor::from([3i64, 4]));
    let gradients = || net.parameters().iter().map(|p| p.grad().unwrap().to_vec::<f64>()).collect::<Result<Vec<_>>>();
    (loss(&a)? + loss(&b)?)?.backward()?;
    let joint = gradients()?;
    net.zero_grad();
    loss(&a)?.backward()?;
    loss(&b)?.backward()?;
    for (one, other) in joint.iter().zip(gradients()?) {
        let scale = one.iter().fold(1e-3f64, |m, v| m.max(v.abs()));
        assert!(one.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-4 * scale));
    }
    Ok(())
}

/// A user's activation with a trained parameter, as a ten-line struct.
#[derive(Module)]
struct Swish {
    beta: Parameter,
}

impl Forward for Swish {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.mul(&x.mul(&self.beta.get()?)?.sigmoid()?)
    }
}

#[test]
fn a_users_own_activation_initialiser_and_regulariser() -> Result<()> {
    use neurona::optim::{Optimizer, Sgd};
    neurona::manual_seed(5);
    let swish = Swish { beta: Parameter::new(&Tensor::from([1.0f32]))? };
    let net = Sequential::new().add(Linear::new(4, 16)?).add_named("swish", swish).add(Linear::new(16, 1)?);
    let mut seen = Vec::new();
    net.apply(&mut |name, parameter| {
        seen.push(name.to_string());
        let start = if name.ends_with("bias") { 0.25 } else { 1.0 };
        let spread = if name.ends_with("weight") { 0.3 } else { 0.0 };
        parameter.set(&Tensor::randn(parameter.shape())?.mul_scalar(spread)?.add_scalar(start - spread / 0.3)?)
    })?;
    assert_eq!(seen, ["0.weight", "0.bias", "swish.beta", "2.weight", "2.bias"]);
    assert_eq!(net.named_parameters()[1].1.get()?.to_vec::<f32>()?, [0.25; 16]);
    assert_eq!(net.named_parameters()[2].1.get()?.to_vec::<f32>()?, [1.0]);

    let x = Tensor::randn([64, 4])?;
    // Only the first two inputs matter; the penalty pushes the weights of the others to 0.
    let y = x.narrow(1, 0, 2)?.sum_dims(&[1], true)?;
    let trained = |penalty: f64| -> Result<(f32, f32, f32)> {
        neurona::manual_seed(6);
        let swish = Swish { beta: Parameter::new(&Tensor::from([1.0f32]))? };
        let net = Sequential::new().add(Linear::new(4, 16)?).add_named("swish", swish).add(Linear::new(16, 1)?);
        let mut sgd = Sgd::new(net.parameters(), 0.05);
        let mut fit = f32::NAN;
        for _ in 0..300 {
            sgd.zero_grad();
            let error = net.forward(&x)?.mse_loss(&y)?;
            let mut loss = error.clone();
            for (_, weight) in net.named_parameters().iter().filter(|(name, _)| name.ends_with("weight")) {
                loss = (&loss + weight.get()?.abs()?.sum()?.mul_scalar(penalty)?)?;
            }
            loss.backward()?;
            sgd.step()?;
            fit = error.item::<f32>()?;
        }
        let first = net.named_parameters()[0].1.get()?.to_vec::<f32>()?;
        let unused = first.chunks(4).map(|row| row[2].abs() + row[3].abs()).sum();
        let beta = net.named_parameters()[2].1.get()?.item::<f32>()?;
        Ok((fit, unused, beta))
    };
    let (plain, penalised) = (trained(0.0)?, trained(0.03)?);
    assert!(plain.0 < 0.05 && penalised.0 < 0.3, "{plain:?} {penalised:?}");
    assert!(penalised.1 < 0.5 * plain.1, "{plain:?} {penalised:?}");
    assert!((plain.2 - 1.0).abs() > 1e-3, "beta is trained: {plain:?}");
    Ok(())
}

#[test]
fn frozen_parameters_stay_and_thaw() -> Result<()> {
    use neurona::optim::{Optimizer, Sgd};
    let net = Sequential::new().add(Linear::new(3, 4)?).add(ReLU::new()).add_named("head", Linear::new(4, 2)?);
    net.freeze();
    assert_eq!((net.num_parameters(), net.num_trainable_parameters()), (26, 0));
    let x = Tensor::randn([5, 3])?;
    assert!(net.forward(&x)?.sum()?.backward().is_err());
    net.get(2).expect("the head").unfreeze();
    assert_eq!(net.num_trainable_parameters(), 10);
    let mut sgd = Sgd::new(net.parameters(), 0.1);
    let before = net.state_dict()?;
    let step = |sgd: &mut Sgd| -> Result<()> {
        sgd.zero_grad();
        net.forward(&x)?.sum()?.backward()?;
        sgd.step()
    };
    step(&mut sgd)?;
    let after = net.state_dict()?;
    let kept = |name: &str, a: &StateDict, b: &StateDict| -> Result<bool> {
        let read = |s: &StateDict| s.get(name).expect("a name").to_vec::<f32>();
        Ok(read(a)? == read(b)?)
    };
    assert!(kept("0.weight", &before, &after)? && kept("0.bias", &before, &after)?);
    assert!(!kept("head.bias", &before, &after)?);
    assert!(net.parameters()[0].grad().is_none() && net.parameters()[2].grad().is_some());
    net.unfreeze();
    step(&mut sgd)?;
    assert!(!kept("0.bias", &after, &net.state_dict()?)? || !kept("0.weight", &after, &net.state_dict()?)?);
    Ok(())
}

/// The vector that stands for nothing stays as it is; the others' gradients add up where a number is repeated.
#[test]
fn embeddings_train_all_but_the_padding() -> Result<()> {
    use neurona::optim::{Optimizer, Sgd};
    let layer = Embedding::new(4, 2)?.padding_idx(1)?;
    let before = layer.weight.get()?.to_vec::<f32>()?;
    assert_eq!(before[2..4], [0.0, 0.0]);
    let mut sgd = Sgd::new(layer.parameters(), 1.0);
    layer.forward(&Tensor::from([[2i64, 1, 2], [0, 2, 1]]))?.sum()?.backward()?;
    assert_eq!(layer.weight.grad().expect("a gradient").to_vec::<f32>()?, [1.0, 1.0, 0.0, 0.0, 3.0, 3.0, 0.0, 0.0]);
    sgd.step()?;
    let after = layer.weight.get()?.to_vec::<f32>()?;
    assert_eq!((after[2..4].to_vec(), after[6..].to_vec()), (vec![0.0; 2], before[6..].to_vec()));

    // The same sums in the same order, however many threads there are.
    let gradient = || -> Result<Vec<u32>> {
        let layer = Embedding::new(10, 33)?;
        layer.weight.set(&Tensor::zeros([10, 33], DType::F32)?)?;
        let numbers: Vec<i64> = (0..5000).map(|i| (i * i) % 10).collect();
        let factors: Vec<f32> = (0..5000 * 33).map(|i| 1.0 / (1 + i) as f32).collect();
        let y = layer.forward(&Tensor::from_vec(numbers, [5000])?)?;
        (&y * &Tensor::from_vec(factors, [5000, 33])?)?.sum()?.backward()?;
        Ok(layer.weight.grad().expect("a gradient").to_vec::<f32>()?.iter().map(|v| v.to_bits()).collect())
    };
    assert_eq!(gradient()?, gradient()?);
    Ok(())
}

/// Blocks of a vision transformer learn which of two patches is brighter.
#[test]
fn a_small_transformer_trains() -> Result<()> {
    use neurona::optim::{Adam, Optimizer};
    #[derive(Module)]
    struct Block {
        norm1: LayerNorm,
        attention: MultiheadAttention,
        norm2: LayerNorm,
        mlp: Sequential,
    }
    impl Forward for Block {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let x = (x + self.attention.forward(&self.norm1.forward(x)?)?)?;
            &x + self.mlp.forward(&self.norm2.forward(&x)?)?
        }
    }
    neurona::manual_seed(4);
    let mlp = Sequential::new().add(Linear::new(8, 16)?).add(neurona::nn::GELU::new()).add(Linear::new(16, 8)?);
    let attention = MultiheadAttention::new(8, 2)?.batch_first().dropout(0.1);
    let block = Block { norm1: LayerNorm::new([8])?, attention, norm2: LayerNorm::new([8])?, mlp };
    let net = Sequential::new().add(Linear::new(3, 8)?).add_named("block", block).add(LayerNorm::new([8])?);
    let head = Linear::new(8, 2)?;
    let x = Tensor::randn([64, 2, 3])?;
    let sums = x.sum_dims(&[2], false)?;
    let target = sums.argmax(1)?;
    let mut adam = Adam::new(net.parameters().into_iter().chain(head.parameters()).collect(), 0.01);
    let mut losses = Vec::new();
    // Which patch is which must be known: a position is added to the first.
    let place = Tensor::from([[[1.0f32], [0.0]]]);
    for _ in 0..120 {
        adam.zero_grad();
        let seen = net.forward(&(&x + &place)?)?;
        let loss = head.forward(&seen.mean_dims(&[1], false)?)?.cross_entropy(&target)?;
        loss.backward()?;
        adam.step()?;
        losses.push(loss.item::<f32>()?);
    }
    assert!(losses[119] < 0.6 * losses[0], "{} {}", losses[0], losses[119]);
    Ok(())
}
