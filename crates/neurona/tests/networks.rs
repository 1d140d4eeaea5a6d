//! Whole networks trained from the same weights on the same data as PyTorch's (`tools/oracle_cases/networks.py`
//! has the stream, the roles and the rule): curves, first gradients, outputs, final weights and statistics.

mod common;

use common::{Case, cases, splitmix64, uniform};
use neurona::models::{Lab, course_cnn, mlp, resnet18_cifar};
use neurona::nn::{
    BatchNorm2d, Buffer, Conv2d, Flatten, Forward, Linear, MaxPool2d, Parameter, ReLU, Sequential, Sigmoid,
};
use neurona::optim::{Optimizer, Sgd};
use neurona::{DType, Device, Result, Tensor, no_grad};

/// How far an f64 run may be from PyTorch's: it meets no flips of ReLU signs, so only rounding is left.
const WIDE: f64 = 1e-11;

#[test]
fn generator_is_the_oracles() {
    let all = cases("networks");
    let case = all.iter().find(|c| c.name == "generator").expect("the generator's case");
    let seed = case.int("seed") as u64;
    for (name, seed) in [("z", seed), ("z_of_seed_0", 0)] {
        for (i, want) in case.attr(name).as_array().expect("a list").iter().enumerate() {
            assert_eq!(want.as_str(), Some(splitmix64(seed, i as u64).to_string().as_str()), "{name} {i}");
        }
    }
    let want = case.tensor("out0").to_vec::<f64>().expect("numbers");
    assert_eq!(want, (0..16).map(|i| uniform(seed, i)).collect::<Vec<_>>());
}

#[test]
fn every_network_is_trained() {
    let known = ["generator", "bnnet", "lab", "lab_fast", "mlp500", "mlp_2_8_1", "mlp_2_8_8_1", "resnet18"];
    let names: Vec<String> = cases("networks").into_iter().map(|c| c.name).collect();
    assert!(names.iter().all(|n| known.contains(&n.as_str())) && names.len() == known.len(), "{names:?}");
}

/// Each network on the CPU and, where there is one, on a GPU: the test's name, the oracle's, and how it is made.
macro_rules! on_both { ($($test:ident: $case:literal $dtype:ident $make:expr;)*) => {
    $( #[test] fn $test() -> Result<()> {
        follow($case, &$make?, DType::$dtype, usize::MAX)
    } )*
    mod cuda {
        use super::*;
        $( #[test] fn $test() -> Result<()> {
            common::gpu().map_or(Ok(()), |gpu| follow_on(gpu, $case, &$make?, DType::$dtype, usize::MAX))
        } )*
    }
} }
on_both! {
    mlp500_f32: "mlp500" F32 mlp(&[500, 256, 10]);
    mlp_2_8_1_f32: "mlp_2_8_1" F32 sigmoid(mlp(&[2, 8, 1]));
    mlp_2_8_8_1_f32: "mlp_2_8_8_1" F32 sigmoid(mlp(&[2, 8, 8, 1]));
    lab_f32: "lab" F32 Lab::new();
    lab_fast_f32: "lab_fast" F32 Lab::new();
    bnnet_f32: "bnnet" F32 course_cnn();
    resnet18_f32: "resnet18" F32 resnet18_cifar(10);
    lab_f64: "lab" F64 wide_lab();
}

fn sigmoid(net: Result<Sequential>) -> Result<Sequential> {
    Ok(net?.add(Sigmoid::new()))
}

// The same in f64, where nothing is left to chance. The kernels for f64 are plain loops, so the larger networks take
// only a few steps.
#[test]
fn mlp500_f64() -> Result<()> {
    let net = Sequential::new().add(wide_linear(500, 256)?).add(ReLU::new()).add(wide_linear(256, 10)?);
    follow("mlp500", &net, DType::F64, usize::MAX)
}
#[test]
fn mlp_2_8_1_f64() -> Result<()> {
    let net = Sequential::new().add(wide_linear(2, 8)?).add(ReLU::new()).add(wide_linear(8, 1)?).add(Sigmoid::new());
    follow("mlp_2_8_1", &net, DType::F64, usize::MAX)
}
#[test]
fn mlp_2_8_8_1_f64() -> Result<()> {
    let net = Sequential::new().add(wide_linear(2, 8)?).add(ReLU::new()).add(wide_linear(8, 8)?).add(ReLU::new());
    follow("mlp_2_8_8_1", &net.add(wide_linear(8, 1)?).add(Sigmoid::new()), DType::F64, usize::MAX)
}
#[test]
fn lab_fast_f64() -> Result<()> {
    follow("lab_fast", &wide_lab()?, DType::F64, usize::MAX)
}
#[test]
fn bnnet_f64() -> Result<()> {
    let mut net = Sequential::new();
    for (inputs, outputs) in [(3, 32), (32, 64), (64, 128)] {
        let (mut conv, mut norm) = (Conv2d::new(inputs, outputs, 3)?.padding(1), BatchNorm2d::new(outputs)?);
        widen_conv(&mut conv)?;
        widen_norm(&mut norm)?;
        net = net.add(conv).add(norm).add(ReLU::new()).add(MaxPool2d::new(2));
    }
    follow("bnnet", &net.add(Flatten::new()).add(wide_linear(2048, 10)?), DType::F64, 8)
}
#[test]
fn resnet18_f64() -> Result<()> {
    let mut net = resnet18_cifar(10)?;
    widen_conv(&mut net.conv1)?;
    widen_norm(&mut net.bn1)?;
    let (mut inputs, mut outputs) = (64, 64);
    for layer in [&mut net.layer1, &mut net.layer2, &mut net.layer3, &mut net.layer4] {
        for block in layer {
            widen_conv(&mut block.conv1)?;
            widen_norm(&mut block.bn1)?;
            widen_conv(&mut block.conv2)?;
            widen_norm(&mut block.bn2)?;
            if block.downsample.is_some() {
                let (mut conv, mut norm) = (Conv2d::new(inputs, outputs, 1)?, BatchNorm2d::new(outputs)?);
                conv = conv.stride(2).without_bias();
                widen_conv(&mut conv)?;
                widen_norm(&mut norm)?;
                block.downsample = Some(Sequential::new().add(conv).add(norm));
            }
        }
        (inputs, outputs) = (outputs, outputs * 2);
    }
    widen(&mut net.fc.weight)?;
    net.fc.bias.as_mut().map_or(Ok(()), widen)?;
    follow("resnet18", &net, DType::F64, 1)
}

fn widen(parameter: &mut Parameter) -> Result<()> {
    *parameter = Parameter::new(&parameter.get()?.to_dtype(DType::F64)?)?;
    Ok(())
}

fn widen_conv(layer: &mut Conv2d) -> Result<()> {
    widen(&mut layer.weight)?;
    layer.bias.as_mut().map_or(Ok(()), widen)
}

fn widen_norm(layer: &mut BatchNorm2d) -> Result<()> {
    layer.weight.as_mut().map_or(Ok(()), widen)?;
    layer.bias.as_mut().map_or(Ok(()), widen)?;
    for buffer in [&mut layer.running_mean, &mut layer.running_var].into_iter().flatten() {
        *buffer = Buffer::new(&buffer.get()?.to_dtype(DType::F64)?)?;
    }
    Ok(())
}

fn wide_linear(inputs: usize, outputs: usize) -> Result<Linear> {
    let mut layer = Linear::new(inputs, outputs)?;
    widen(&mut layer.weight)?;
    layer.bias.as_mut().map_or(Ok(()), widen)?;
    Ok(layer)
}

fn wide_lab() -> Result<Lab> {
    let mut net = Lab::new()?;
    widen_conv(&mut net.conv1)?;
    widen_conv(&mut net.conv2)?;
    for layer in [&mut net.fc1, &mut net.fc2, &mut net.fc3] {
        widen(&mut layer.weight)?;
        layer.bias.as_mut().map_or(Ok(()), widen)?;
    }
    Ok(net)
}

/// What a run is compared with, and how closely.
struct Judge<'a> {
    case: &'a Case,
    dtype: DType,
}

impl Judge<'_> {
    /// PyTorch's f64 numbers under this role, such as `final.conv1.weight`.
    fn wanted(&self, role: &str) -> Vec<f64> {
        let (kind, name) = role.split_once('.').map_or((role, ""), |(kind, name)| (kind, name));
        let dot = if name.is_empty() { "" } else { "." };
        self.case.tensor(&format!("{kind}64{dot}{name}")).to_vec::<f64>().expect("numbers")
    }

    /// f32 runs may be three times as far from f64 as PyTorch's own f32 runs are.
    fn allowed(&self, role: &str) -> f64 {
        let kind = role.split('.').next().unwrap_or(role);
        let spread = self.case.attr("spread")[kind].as_f64().expect("a spread");
        if self.dtype == DType::F64 { WIDE } else { self.case.tol + 3.0 * spread }
    }

    /// Compares as many numbers as PyTorch's file keeps.
    fn compare(&self, role: &str, got: &[f64]) {
        let (want, allowed) = (self.wanted(role), self.allowed(role));
        let largest = want.iter().fold(1.0f64, |m, w| m.max(w.abs()));
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            let far = (g - w).abs();
            assert!(
                far <= allowed * largest,
                "{role}[{i}]: {g} instead of {w}, {far:.1e} apart, {allowed:.1e} allowed"
            );
        }
        assert!(got.len() >= want.len(), "{role}");
    }
}

fn follow(name: &str, net: &dyn Forward, dtype: DType, steps: usize) -> Result<()> {
    follow_on(Device::Cpu, name, net, dtype, steps)
}

/// Trains `net` as PyTorch trained it, for at most `steps` steps, and compares all that PyTorch's file has of it.
fn follow_on(device: Device, name: &str, net: &dyn Forward, dtype: DType, steps: usize) -> Result<()> {
    let all = cases("networks");
    let case = all.iter().find(|c| c.name == name).expect("the network's case");
    let judge = Judge { case, dtype };
    let (id, batch, total) = (case.int("id") as u64, case.int("batch") as usize, case.int("steps") as usize);
    let steps = steps.min(total);
    begin(case, net, dtype)?;
    net.to_device(device)?;

    let binary = case.text("loss") == "binary_cross_entropy";
    let batch_on = |k| -> Result<(Tensor, Tensor)> {
        let (x, target) = data(case, id, batch, k, dtype, binary)?;
        Ok((x.to(device)?, target.to(device)?))
    };
    let batches = (0..4).map(batch_on).collect::<Result<Vec<_>>>()?;
    let outputs = || -> Result<Vec<f64>> {
        net.eval();
        let y = no_grad(|| net.forward(&batches[0].0))?.to_vec::<f64>();
        net.train();
        y
    };
    judge.compare("logits_before", &outputs()?);

    let options = case.attr("optimizer");
    let number = |key: &str| options[key].as_f64().expect("a number");
    let mut optimizer = Sgd::new(net.parameters(), number("lr")).momentum(number("momentum"));
    let (mut losses, mut gradients) = (Vec::new(), Vec::new());
    for step in 0..steps {
        let (x, target) = &batches[step % 4];
        optimizer.zero_grad();
        let y = net.forward(x)?;
        let loss = if binary { y.binary_cross_entropy(target)? } else { y.cross_entropy(target)? };
        loss.backward()?;
        optimizer.step()?;
        losses.push(loss.item::<f64>()?);
        if step == 0 {
            for (name, p) in net.named_parameters() {
                let gradient = p.grad().unwrap_or_else(|| panic!("{name} has no gradient")).to_vec::<f64>()?;
                gradients.push((name, gradient));
            }
        }
    }
    compare_losses(&judge, &losses);
    let norms = case.tensor("grad_norms64").to_vec::<f64>()?;
    for ((name, gradient), want) in gradients.iter().zip(norms) {
        judge.compare(&format!("grad.{name}"), gradient);
        // Errors of the elements add up like a random walk at worst in one direction.
        let allowed = judge.allowed("grad") * (gradient.len() as f64).sqrt();
        let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        assert!((norm - want).abs() <= allowed, "gradient of {name}: norm {norm} instead of {want}");
    }
    if steps == total {
        judge.compare("logits_after", &outputs()?);
        for (name, p) in net.named_parameters() {
            judge.compare(&format!("final.{name}"), &p.get()?.to_vec::<f64>()?);
        }
        for (name, b) in net.named_buffers() {
            judge.compare(&format!("final.{name}"), &b.get()?.to_vec::<f64>()?);
        }
    }
    Ok(())
}

/// Puts the stream's numbers into the parameters, whose names and shapes must be PyTorch's.
fn begin(case: &Case, net: &dyn Forward, dtype: DType) -> Result<()> {
    let rows = case.attr("parameters").as_array().expect("a list");
    let parameters = net.named_parameters();
    let names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, rows.iter().map(|r| r["name"].as_str().expect("a name")).collect::<Vec<_>>());
    for (row, (name, parameter)) in rows.iter().zip(&parameters) {
        let shape: Vec<u64> = parameter.shape().iter().map(|n| *n as u64).collect();
        assert_eq!(serde_json::json!(shape), row["shape"], "{name}");
        let count = parameter.shape().numel() as u64;
        let values: Vec<f32> = match row["init"].as_str() {
            Some("uniform") => {
                let seed = row["seed"].as_u64().expect("a seed");
                let scale = 1.0 / row["fan_in"].as_f64().expect("a number").sqrt();
                (0..count).map(|i| (uniform(seed, i) * scale) as f32).collect()
            }
            Some("ones") => vec![1.0; count as usize],
            _ => vec![0.0; count as usize],
        };
        let first = case.tensor(&format!("init.{name}")).to_vec::<f32>()?;
        assert_eq!(first, values[..first.len()], "{name}");
        parameter.set(&Tensor::from_vec(values, parameter.shape())?.to_dtype(dtype)?)?;
    }
    let buffers: Vec<String> = net.named_buffers().into_iter().map(|(name, _)| name).collect();
    let wanted = case.attr("buffers").as_array().expect("a list");
    assert_eq!(buffers, wanted.iter().map(|r| r["name"].as_str().expect("a name")).collect::<Vec<_>>());
    Ok(())
}

/// Batch k of the inputs and its targets.
fn data(case: &Case, id: u64, batch: usize, k: usize, dtype: DType, binary: bool) -> Result<(Tensor, Tensor)> {
    let inner = case.ints("input_shape").expect("a shape");
    let shape: Vec<usize> = [batch].into_iter().chain(inner.iter().map(|n| *n as usize)).collect();
    let count = shape.iter().product::<usize>() as u64;
    let x: Vec<f32> = (0..count).map(|i| uniform(1000 * id + 900 + k as u64, i) as f32).collect();
    let x = Tensor::from_vec(x, shape)?.to_dtype(dtype)?;
    let labels = (k * batch..(k + 1) * batch).map(|n| (n as i64 * 7 + 3) % 10);
    let target = if binary {
        Tensor::from_vec(labels.map(|l| (l % 2) as f32).collect(), [batch, 1])?.to_dtype(dtype)?
    } else {
        Tensor::from_vec(labels.collect::<Vec<i64>>(), [batch])?
    };
    Ok((x, target))
}

/// |loss[t] − losses64[t]| ≤ tol + 3 · max(spread[..=t]).
fn compare_losses(judge: &Judge<'_>, losses: &[f64]) {
    let want = judge.case.tensor("losses64").to_vec::<f64>().expect("numbers");
    let spread = judge.case.tensor("spread").to_vec::<f64>().expect("numbers");
    let (mut widest, mut farthest) = (0.0f64, 0.0f64);
    for (t, loss) in losses.iter().enumerate() {
        widest = widest.max(spread[t]);
        let allowed = if judge.dtype == DType::F64 { WIDE } else { judge.case.tol + 3.0 * widest };
        let far = (loss - want[t]).abs();
        farthest = farthest.max(far);
        assert!(far <= allowed, "step {t}: loss {loss} instead of {}, {far:.1e} apart, {allowed:.1e} allowed", want[t]);
    }
    println!("{} {}: losses at most {farthest:.1e} from PyTorch's f64 curve", judge.case.name, judge.dtype);
}
