//! The classic networks against torchvision's (`tools/oracle_cases/classics.py` has the stream, the roles and the
//! rules): names, starting values, outputs, and loss and gradients of a training step.

mod common;

use common::{Case, cases, uniform};
use neurona::models::Spec;
use neurona::nn::{Forward, StateDict};
use neurona::{DType, Result, Shape, Tensor};

fn case(name: &str) -> Case {
    let all = cases("classics");
    all.into_iter().find(|c| c.name == name).unwrap_or_else(|| panic!("there is no case {name}"))
}

/// The network as the oracle built it: 10 classes, no dropout.
fn spec(name: &str, side: usize) -> Result<Spec> {
    let spec = Spec::new(name, 10)?.images([3, side, side]);
    let dropout = spec.known_arguments()?.iter().any(|(name, _)| *name == "dropout");
    Ok(if dropout { spec.with("dropout", 0.0) } else { spec })
}

/// The state dict's entries in PyTorch's order: name and shape.
fn entries(case: &Case) -> Vec<(String, Shape)> {
    let rows = case.attr("entries").as_array().expect("a list");
    let shape = |row: &serde_json::Value| -> Vec<usize> {
        row.as_array().expect("a shape").iter().map(|n| n.as_u64().expect("a size") as usize).collect()
    };
    rows.iter().map(|row| (row[0].as_str().expect("a name").into(), shape(&row[1]).into())).collect()
}

#[test]
fn names_and_shapes_are_torchvisions() -> Result<()> {
    let all = cases("classics");
    let classics = Spec::NAMES.iter().filter(|n| !["small_cnn", "lenet", "course_cnn"].contains(n));
    assert_eq!(all.len(), classics.count());
    for case in all {
        let side = if case.name == "vit_b_16" { 32 } else { 224 };
        let state = spec(&case.name, side)?.build_empty()?.state_dict()?;
        let have: Vec<_> = state.iter().map(|(name, tensor)| (name.to_string(), tensor.shape().clone())).collect();
        assert_eq!(have, entries(&case), "{}", case.name);
    }
    Ok(())
}

/// Entry `j` of the state dict, by the oracle's rules.
fn start(id: u64, j: usize, name: &str, shape: &Shape) -> Result<Tensor> {
    let last = name.rsplit('.').next().unwrap_or(name);
    if last == "num_batches_tracked" {
        return Ok(Tensor::scalar(0i64));
    }
    let scale = (3.0 / shape.iter().skip(1).product::<usize>() as f64).sqrt();
    let value = |i: u64| {
        let u = uniform(1000 * id + j as u64, i);
        (match last {
            _ if shape.len() > 1 => u * scale,
            "running_var" => 1.0 + u / 2.0,
            "running_mean" => u / 10.0,
            "weight" => 1.0 + u / 4.0,
            _ => u / 4.0,
        }) as f32
    };
    Tensor::from_vec((0..shape.numel() as u64).map(value).collect(), shape.clone())
}

/// Loads the stream's weights as one would load torchvision's file, then compares all that torchvision gave.
fn follow(name: &str) -> Result<()> {
    let case = case(name);
    let (id, side, batch) = (case.int("id") as u64, case.int("side") as usize, case.int("batch") as usize);
    let net = spec(name, side)?.build_empty()?;
    let state: StateDict = entries(&case)
        .into_iter()
        .enumerate()
        .map(|(j, (name, shape))| start(id, j, &name, &shape).map(|tensor| (name, tensor)))
        .collect::<Result<_>>()?;
    net.load_state_dict(&state, true)?;
    drop(state);
    let count = (batch * 3 * side * side) as u64;
    let x: Vec<f32> = (0..count).map(|i| uniform(1000 * id + 900, i) as f32).collect();
    let x = Tensor::from_vec(x, [batch, 3, side, side])?;
    let labels = Tensor::from_vec((0..batch as i64).map(|r| (r * 7 + 3) % 10).collect(), [batch])?;

    let spread = |what: &str| case.attr("spread")[what].as_f64().expect("a number");
    net.eval();
    let logits = net.forward(&x)?;
    if case.get("eval_norms").is_some() {
        logits.cross_entropy(&labels)?.backward()?;
        compare_gradients(&case, &*net, "eval_")?;
        net.zero_grad();
    }
    let logits = logits.to_vec::<f64>()?;
    let wanted = case.tensor("logits").to_vec::<f64>()?;
    let largest = wanted.iter().fold(0.0f64, |m, w| m.max(w.abs()));
    close("logits", &logits, &wanted, 1e-5 * largest + 3.0 * spread("logits"));
    assert!(3.0 * spread("logits") < 9e-5 * largest, "PyTorch's own runs differ too much to tell");

    net.train();
    let loss = net.forward(&x)?.cross_entropy(&labels)?;
    loss.backward()?;
    let wanted = case.tensor("loss").to_vec::<f64>()?;
    close("loss", &[loss.item::<f64>()?], &wanted, 1e-5 * wanted[0] + 3.0 * spread("loss"));
    compare_gradients(&case, &*net, "")
}

/// Every gradient in four places and by its length. PyTorch's own runs in single precision show what rounding does.
fn compare_gradients(case: &Case, net: &dyn Forward, mode: &str) -> Result<()> {
    let read = |role: &str| case.tensor(&format!("{mode}{role}")).to_vec::<f64>();
    let (wanted, norms, largest) = (read("gradients")?, read("norms")?, read("largest")?);
    let (spread, norm_spread) = (read("spread")?, read("norm_spread")?);
    // Biases before a batch norm have no gradient at all; what rounding leaves of it is no better in PyTorch.
    let floor = 1e-7 * largest.iter().fold(0.0f64, |m, l| m.max(*l));
    // Batch norm over so few images lets one tipped ReLU move all gradients, by jumps of which some runs see only some.
    let mut apart: Vec<f64> = spread.iter().zip(&largest).map(|(s, l)| s / (l + floor)).collect();
    apart.sort_by(f64::total_cmp);
    // A run of other sums may tip one that none of theirs has tipped; more than their spread leaves room for it.
    const SPREADS: f64 = 4.0;
    let slack = if mode.is_empty() && apart[apart.len() / 2] > 1e-3 { 1e-2 } else { 1e-5 };
    let parameters = net.named_parameters();
    assert_eq!(parameters.len(), norms.len());
    let mut worst = 0.0f64;
    for (j, (name, parameter)) in parameters.iter().enumerate() {
        let gradient = parameter.grad().unwrap_or_else(|| panic!("{name} has no gradient")).to_vec::<f64>()?;
        let probes: Vec<f64> = (0..4).map(|k| gradient[gradient.len() * k / 4]).collect();
        let allowed = slack * largest[j] + SPREADS * spread[j] + floor;
        close(&format!("gradient of {name}"), &probes, &wanted[4 * j..4 * j + 4], allowed);
        let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        let allowed = slack * norms[j] + SPREADS * norm_spread[j] + floor * (gradient.len() as f64).sqrt();
        close(&format!("length of the gradient of {name}"), &[norm], &norms[j..=j], allowed);
        worst = worst.max((norm - norms[j]).abs() / (norms[j] + floor));
    }
    println!("{} {mode}: lengths of gradients at most {worst:.1e} from torchvision's f64", case.name);
    Ok(())
}

fn close(what: &str, got: &[f64], wanted: &[f64], allowed: f64) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let far = (got - wanted).abs();
        assert!(far <= allowed, "{what}[{i}]: {got} instead of {wanted}, {far:.1e} apart, {allowed:.1e} allowed");
    }
}

macro_rules! networks { ($($name:ident)*) => { $(
    #[test]
    fn $name() -> Result<()> {
        follow(stringify!($name))
    }
)* } }
networks!(alexnet vgg11 vgg16_bn resnet18 resnet50 resnet18_cifar resnet50_cifar mobilenet_v2 vit_b_16);

#[test]
fn parameters_start_as_torchvisions() -> Result<()> {
    for name in ["alexnet", "resnet50", "mobilenet_v2", "vit_b_16", "vgg16_bn"] {
        let case = case(name);
        let wanted = case.tensor("starts").to_vec::<f64>()?;
        let net = spec(name, case.int("side") as usize)?.build()?;
        for (j, (path, parameter)) in net.named_parameters().iter().enumerate() {
            let values = parameter.get()?.to_dtype(DType::F32)?.to_vec::<f32>()?;
            let n = values.len() as f64;
            let mean = values.iter().map(|v| *v as f64).sum::<f64>() / n;
            let std = (values.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>() / n).sqrt();
            let most = values.iter().fold(0.0f64, |m, v| m.max(v.abs() as f64));
            let [want_mean, want_std, want_most] = [0, 1, 2].map(|k| wanted[3 * j + k]);
            // Two draws of n numbers: six standard errors of a mean and of a deviation.
            let chance = 6.0 * want_std * (2.0 / n).sqrt();
            assert!((mean - want_mean).abs() <= chance + 1e-12, "{name} {path}: mean {mean}, not {want_mean}");
            assert!((std - want_std).abs() <= chance + 1e-12, "{name} {path}: deviation {std}, not {want_std}");
            // Uniform numbers end at √3 deviations, normal ones do not.
            if n > 1e3 && want_std > 0.0 {
                let uniform = |most: f64, std: f64| most < 1.8 * std;
                assert_eq!(uniform(most, std), uniform(want_most, want_std), "{name} {path}: {most} of {std}");
            }
        }
    }
    Ok(())
}
