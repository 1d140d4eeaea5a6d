//! Models as ONNX files. What onnx.checker and onnxruntime say of them: see `files_for_the_checker`.

use neurona::io::onnx::{Export, OnnxModule, export, export_bytes, import_bytes};
use neurona::io::{StateDict, safetensors};
use neurona::models::{Lab, SmallCnn, Spec, course_cnn, mlp, resnet18_cifar};
use neurona::nn::{
    AdaptiveAvgPool2d, AvgPool2d, BatchNorm1d, BatchNorm2d, Conv2d, Dropout, ELU, Embedding, Flatten, Forward, GELU,
    GroupNorm, Hardsigmoid, Hardswish, LayerNorm, LeakyReLU, Linear, MaxPool2d, Module, MultiheadAttention, Parameter,
    ReLU6, Sequential, SiLU, Sigmoid, Softmax, Softplus, Tanh, Upsample,
};
use neurona::{Conv2dOptions, DType, PadMode, Result, Tensor, manual_seed};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

/// Every activation, normalisation and pooling, and convolutions of all kinds.
fn layers() -> Result<Sequential> {
    Ok(Sequential::new()
        .add(Conv2d::with(3, 8, [3, 2], Conv2dOptions::default())?.padding_same())
        .add(BatchNorm2d::new(8)?)
        .add(Hardswish::new())
        .add(ReLU6::new())
        .add(Conv2d::new(8, 8, 3)?.groups(4)?.padding(1).dilation(2))
        .add(BatchNorm2d::new(8)?.without_affine())
        .add(LeakyReLU::new())
        .add(MaxPool2d::new(3).stride(2).padding(1).ceil_mode(true))
        .add(GroupNorm::new(4, 8)?)
        .add(SiLU::new())
        .add(AvgPool2d::new(3).stride(2).padding(1).ceil_mode(true))
        .add(ELU::new())
        .add(AvgPool2d::new(2).stride(1).padding(1).count_include_pad(false))
        .add(GELU::new())
        .add(MaxPool2d::new(2).stride(1).dilation(2))
        .add(Upsample::new(2))
        .add(Softplus::new())
        .add(Upsample::to([7, 5]))
        .add(AdaptiveAvgPool2d::with([3, 2]))
        .add(Tanh::new())
        .add(Flatten::new())
        .add(Linear::new(48, 20)?)
        .add(BatchNorm1d::new(20)?)
        .add(Hardsigmoid::new())
        .add(Dropout::new(0.5))
        .add(LayerNorm::new([20])?)
        .add(Linear::new(20, 10)?.without_bias())
        .add(Sigmoid::new())
        .add(LayerNorm::new([10])?.without_affine())
        .add(Softmax::new(1)))
}

/// Patches with a class token, as in a vision transformer.
#[derive(Module)]
struct Attention {
    patches: Conv2d,
    token: Parameter,
    norm: LayerNorm,
    attention: MultiheadAttention,
    hidden: Linear,
    head: Linear,
}

impl Attention {
    fn new() -> Result<Self> {
        Ok(Attention {
            patches: Conv2d::new(3, 16, 4)?.stride(4),
            token: Parameter::new(&Tensor::randn([1, 1, 16])?)?,
            norm: LayerNorm::new([16])?,
            attention: MultiheadAttention::new(16, 4)?.batch_first().dropout(0.1),
            hidden: Linear::new(16, 32)?,
            head: Linear::new(32, 5)?,
        })
    }
}

impl Forward for Attention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let n = x.shape()[0];
        let x = self.patches.forward(x)?.flatten(2, -1)?.transpose(1, 2)?;
        let x = Tensor::cat(&[&self.token.get()?.broadcast_to([n, 1, 16])?, &x], 1)?;
        let x = x.add(&self.attention.forward(&self.norm.forward(&x)?)?)?;
        let keys = self.attention.attend(&x, &x, &x, None)?;
        self.head.forward(&self.hidden.forward(&keys)?.gelu_tanh()?.select(1, 0)?)
    }
}

/// What layers do not use: the ops of tensors.
#[derive(Module)]
struct Ops {
    weight: Parameter,
}

impl Forward for Ops {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (n, w) = (x.shape()[0], self.weight.get()?);
        let y = x.mul(&w)?.add_scalar(0.5)?.sub(&x.flip(&[1])?)?.div_scalar(1.5)?;
        let z = y.abs()?.add_scalar(0.1)?.sqrt()?.add(&y.square()?.log1p()?)?.add(&y.exp()?.reciprocal()?)?;
        let z = z.add(&y.sin()?.mul(&y.cos()?)?)?.add(&y.erf()?)?.sub(&y.sign()?)?.add(&y.floor()?)?;
        let z = z.add(&y.ceil()?.sub(&y.round()?)?)?.add(&y.abs()?.add_scalar(1)?.rsqrt()?)?.add(&y.expm1()?)?;
        let z = z.add(&y.clamp(-0.5, 0.25)?)?.add(&y.clamp_min(0.1)?)?.add(&y.clamp_max(-0.2)?)?.add(&y.pow(3)?)?;
        let z = z.maximum(&y)?.add(&y.minimum(&x.neg()?)?)?;
        let z = y.gt_scalar(0)?.logical_and(&y.le(&z)?)?.where_(&z, &y.roll(&[2], &[1])?)?;
        let z = z.add(&y.ne_scalar(0.5)?.logical_or(&y.lt(&z)?)?.logical_not()?.to_dtype(DType::F32)?)?;
        let (largest, places) = z.max_dim(1, true)?;
        let z = z.sub(&largest)?.add(&places.to_dtype(DType::F32)?.mul_scalar(0.01)?)?;
        let z = z.add(&z.sort(1, true)?.0)?.add(&z.topk(1, 1, false)?.0)?.add(&z.cumsum(1)?.mul_scalar(0.1)?)?;
        let z = z.add(&z.mean_dims(&[1], true)?)?.add(&z.var(&[1], 1, true)?)?.add(&z.amin(&[1], true)?)?;
        let z = z.add(&z.logsumexp(&[1], true)?)?.add(&z.norm(2.0, &[1], true)?)?.add(&z.log_softmax(1)?)?;
        let z = z.add(&x.any(&[1], true)?.to_dtype(DType::F32)?)?.add(&x.prod_dims(&[1], true)?)?;
        // Sizes that follow the batch's, here and there.
        let pairs = Tensor::stack(&[&z, &x.detach()], 0)?.reshape([2 * n, 6])?.slice(0, 1, isize::MAX, 2)?;
        let ones = Tensor::ones([n, 6], DType::F32)?.div_scalar(n)?;
        let z = z.add(&pairs)?.add(&ones)?.add(&x.mean_dims(&[0], true)?.softmax(0)?)?;
        let z =
            z.pad(&[1, 2], PadMode::Constant(0.5))?.pad(&[2, 0], PadMode::Reflect)?.pad(&[0, 1], PadMode::Replicate)?;
        let z = Tensor::cat(&z.chunk(3, 1)?.iter().rev().collect::<Vec<_>>(), 1)?;
        z.index_select(1, &Tensor::from([3i64, 0, 7, 7, 11]))?.matmul(&w.unsqueeze(1)?.narrow(0, 1, 5)?)?.squeeze(1)
    }
}

fn tokens() -> Result<Sequential> {
    Ok(Sequential::new().add(Embedding::new(12, 4)?.padding_idx(3)?).add(Flatten::new()).add(Linear::new(24, 3)?))
}

/// Statistics and parameters as after training, not as they start.
fn worn(net: &dyn Forward) -> Result<()> {
    for (name, buffer) in net.named_buffers() {
        let fresh = Tensor::rand(buffer.shape())?;
        match name.rsplit('.').next() {
            Some("running_mean") => buffer.set(&fresh.sub_scalar(0.5)?)?,
            Some("running_var") => buffer.set(&fresh.add_scalar(0.5)?)?,
            _ => {}
        }
    }
    for parameter in net.parameters() {
        parameter.set(&parameter.get()?.add(&Tensor::randn(parameter.shape())?.mul_scalar(0.02)?)?)?;
    }
    Ok(())
}

/// Held by every test that draws numbers: the generator is the process's, and others' draws would make other numbers of a
/// seed's. One input in a hundred has the sums of `Ops` cancel to beyond the tolerance.
fn seeded() -> MutexGuard<'static, ()> {
    static DRAWING: Mutex<()> = Mutex::new(());
    let drawing = DRAWING.lock().unwrap_or_else(|e| e.into_inner());
    manual_seed(5);
    drawing
}

/// A network under its name, and how it is exported.
type Named = (&'static str, Box<dyn Forward>, Export);

fn networks() -> Result<Vec<Named>> {
    let ops = Ops { weight: Parameter::new(&Tensor::randn([6])?)? };
    let networks: Vec<(&str, Box<dyn Forward>, Export)> = vec![
        ("lab", Box::new(Lab::new()?), Export::new([3, 32, 32])),
        ("course_cnn", Box::new(course_cnn()?), Export::new([3, 32, 32])),
        ("small_cnn", Box::new(SmallCnn::new([1, 28, 28], 10)?), Export::new([1, 28, 28])),
        ("mlp", Box::new(mlp(&[20, 16, 10])?), Export::new([20])),
        ("resnet18_cifar", Box::new(resnet18_cifar(10)?), Export::new([3, 32, 32])),
        ("layers", Box::new(layers()?), Export::new([3, 13, 14])),
        ("attention", Box::new(Attention::new()?), Export::new([3, 8, 12])),
        ("ops", Box::new(ops), Export::new([6])),
        ("tokens", Box::new(tokens()?), Export::new([6]).dtype(DType::I64)),
    ];
    networks.iter().try_for_each(|(_, net, _)| worn(net))?;
    Ok(networks)
}

fn input(options: &Export, batch: usize) -> Result<Tensor> {
    let shape: Vec<usize> = std::iter::once(batch).chain(options.input.iter().copied()).collect();
    if options.dtype == DType::I64 { Tensor::randint(0, 12, shape) } else { Tensor::randn(shape) }
}

/// Writes each network as ONNX files, with inputs and outputs for `tools/check_onnx.py`:
/// `NEURONA_ONNX=folder cargo test --test onnx_export -- --ignored`; with `NEURONA_ONNX_CLASSICS=1` the large ones too.
#[test]
#[ignore = "writes files for a check with Python"]
fn files_for_the_checker() -> Result<()> {
    let _drawing = seeded();
    let folder = std::env::var("NEURONA_ONNX").expect("NEURONA_ONNX must name a folder");
    let mut all = networks()?;
    let classics = [("alexnet", 224), ("vgg11_bn", 224), ("resnet50", 96), ("mobilenet_v2", 96), ("vit_b_16", 224)];
    // Gigabytes, so only when asked for.
    let wanted = if std::env::var_os("NEURONA_ONNX_CLASSICS").is_some() { &classics[..] } else { &[] };
    for &(name, size) in wanted {
        let net = Spec::new(name, 10)?.images([3, size, size]).build()?;
        worn(&net)?;
        all.push((name, net, Export::new([3, size, size])));
    }
    for (name, net, options) in all {
        let variants = [
            (name.to_string(), options.clone()),
            (format!("{name}_folded"), options.clone().fold_batch_norm(true).opset(21)),
            (format!("{name}_fixed"), options.clone().batch(3).opset(18)),
        ];
        for (name, options) in variants {
            let batches: &[usize] = match (options.batch, name.as_str()) {
                (Some(_), _) => &[3],
                (None, "resnet18_cifar") => &[1, 3, 8, 1000],
                _ => &[1, 3, 8],
            };
            let path = Path::new(&folder).join(format!("{name}.onnx"));
            export(&net, &options, &path)?;
            net.eval();
            let mut cases = StateDict::new();
            for &batch in batches {
                let x = input(&options, batch)?;
                cases.insert(format!("output.{batch}"), net.forward(&x)?);
                cases.insert(format!("input.{batch}"), x);
            }
            safetensors::save(path.with_extension("safetensors"), &cases, &Default::default())?;
        }
    }
    Ok(())
}

/// A model as its importer sees it: what can be seen of a file without Python.
fn again(net: &dyn Forward, options: &Export) -> Result<OnnxModule> {
    let again = import_bytes(&export_bytes(net, options)?)?;
    again.eval();
    Ok(again)
}

#[test]
fn every_network_comes_back_for_all_sizes_of_the_batch() -> Result<()> {
    let _drawing = seeded();
    for (name, net, options) in networks()? {
        net.train();
        let variants = [
            options.clone(),
            options.clone().opset(21),
            options.clone().fold_batch_norm(true),
            options.clone().batch(3),
        ];
        for (i, options) in variants.iter().enumerate() {
            let again = again(&net, options)?;
            net.eval();
            for batch in if options.batch.is_some() { vec![3] } else { vec![1, 4] } {
                let x = input(options, batch)?;
                let (a, b) = (net.forward(&x)?.to_vec::<f32>()?, again.forward(&x)?.to_vec::<f32>()?);
                assert_eq!(a.len(), b.len(), "{name} {i}");
                let scale = a.iter().fold(1.0f32, |m, v| m.max(v.abs()));
                let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / scale;
                // Folding rounds the weights anew.
                let tolerance = if options.fold_batch_norm { 1e-5 } else { 1e-6 };
                assert!(worst <= tolerance, "{name} {i} for {batch}: {worst}");
            }
        }
    }
    Ok(())
}

#[test]
fn parameters_keep_their_names_and_layers_their_mode() -> Result<()> {
    let _drawing = seeded();
    let net = course_cnn()?;
    let x = Tensor::randn([8, 3, 32, 32])?;
    let mean = |net: &dyn Forward| net.named_buffers()[0].1.get()?.to_vec::<f32>();
    net.forward(&x)?.to_vec::<f32>()?;
    let before = mean(&net)?;
    let names = |net: &dyn Forward| net.named_parameters().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(&again(&net, &Export::new([3, 32, 32]))?), names(&net));
    // It is still training: its statistics go on, and exporting has not changed them.
    assert_eq!(mean(&net)?, before);
    net.forward(&x)?.to_vec::<f32>()?;
    assert_ne!(mean(&net)?, before);
    let folded = names(&again(&net, &Export::new([3, 32, 32]).fold_batch_norm(true))?);
    assert_eq!(folded, ["0.weight", "0.bias", "4.weight", "4.bias", "8.weight", "8.bias", "13.weight", "13.bias"]);
    Ok(())
}

#[test]
fn what_cannot_be_exported_says_so() -> Result<()> {
    let _drawing = seeded();
    let complaint = |net: &dyn Forward, options: &Export| export_bytes(net, options).unwrap_err().to_string();
    let net = mlp(&[4, 2])?;
    let plain = Export::new([4]);
    for (options, wanted) in [
        (plain.clone().opset(16), "version 17 to 21 can be written, not 16"),
        (plain.clone().names("x", "x"), "need names"),
        (plain.clone().batch(0), "at least one input"),
        (Export::new([5]), "expects 4"),
    ] {
        assert!(complaint(&net, &options).contains(wanted), "{}", complaint(&net, &options));
    }
    let net = Sequential::new().add(BatchNorm1d::new(4)?.without_running_stats());
    assert!(complaint(&net, &plain).contains("batch_norm at 0: keeps no running statistics"));

    /// Looks at its input's values.
    #[derive(Module)]
    struct Peeks;
    impl Forward for Peeks {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x.mul(&Tensor::scalar(x.mean()?.item::<f32>()?))
        }
    }
    let text = complaint(&Peeks, &plain);
    assert!(text.contains("follows the batch's size") || text.contains("computed from the input"), "{text}");

    /// Ends in another way for large batches.
    #[derive(Module)]
    struct Turns;
    impl Forward for Turns {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            if x.shape()[0] > 4 { x.relu() } else { x.tanh() }
        }
    }
    /// Adds its own loss.
    #[derive(Module)]
    struct Judges;
    impl Forward for Judges {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x.add(&x.cross_entropy(&Tensor::from([0i64, 1]))?)
        }
    }
    let text = complaint(&Judges, &plain.clone().batch(2));
    assert!(text.contains("cross_entropy") && text.contains("has no ONNX form here"), "{text}");
    assert!(complaint(&Turns, &plain).contains("export it for one size"));
    assert!(export_bytes(&Turns, &plain.batch(8)).is_ok());
    Ok(())
}
