//! Networks that PyTorch exported (see `tools/onnx_fixtures.py`), and our own exports, as modules.

use neurona::io::onnx::{Export, OnnxModule, export_bytes, import, import_bytes};
use neurona::io::{StateDict, safetensors};
use neurona::models::{Lab, resnet18_cifar};
use neurona::nn::{Forward, Module};
use neurona::optim::{Optimizer, Sgd};
use neurona::{Result, Tensor, manual_seed};
use std::path::PathBuf;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/files/onnx").join(name)
}

fn difference(a: &Tensor, b: &Tensor) -> Result<f32> {
    assert_eq!(a.shape(), b.shape());
    Ok(a.to_vec::<f32>()?.iter().zip(b.to_vec::<f32>()?).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max))
}

fn close(a: &Tensor, b: &Tensor, tolerance: f32, what: &str) -> Result<()> {
    let difference = difference(a, b)?;
    assert!(difference <= tolerance, "{what}: {difference}");
    Ok(())
}

fn cases(name: &str) -> Result<StateDict> {
    safetensors::load(file(&format!("{name}.safetensors")))
}

fn case<'a>(cases: &'a StateDict, name: &str) -> &'a Tensor {
    cases.get(name).unwrap_or_else(|| panic!("the file has no {name}"))
}

/// The state dict that PyTorch's outputs are of.
fn state(cases: &StateDict) -> StateDict {
    cases.iter().filter_map(|(n, t)| Some((n.strip_prefix("state.")?, t.clone()))).collect()
}

#[test]
fn pytorchs_networks_give_its_logits() -> Result<()> {
    for (network, exporters) in [
        ("cnn", &["script", "dynamo", "training"][..]),
        ("vit", &["script", "dynamo"]),
        ("layers", &["script", "dynamo"]),
    ] {
        let cases = cases(network)?;
        for exporter in exporters {
            let net = import(file(&format!("{network}_{exporter}.onnx")))?;
            if *exporter == "training" {
                // PyTorch counts the exporter's own pass in its statistics.
                net.load_state_dict(&state(&cases), true)?;
            }
            net.eval();
            for batch in [1, 4] {
                let y = net.forward(case(&cases, &format!("input.{batch}")))?;
                close(&y, case(&cases, &format!("output.{batch}")), 1e-5, &format!("{network} by {exporter}"))?;
            }
        }
    }
    Ok(())
}

#[test]
fn weights_keep_their_names() -> Result<()> {
    let cases = cases("cnn")?;
    let mut names: Vec<String> = cases.names().filter_map(|n| n.strip_prefix("state.")).map(String::from).collect();
    let net = import(file("cnn_training.onnx"))?;
    let mut ours: Vec<String> = net.state_dict()?.names().map(String::from).collect();
    names.sort();
    ours.sort();
    assert_eq!(ours, names);
    let net = import(file("vit_dynamo.onnx"))?;
    let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
    for name in ["token", "position", "patches.weight", "head.weight", "norm.bias", "layer.norm1.weight"] {
        assert!(names.iter().any(|n| n == name), "{name} is missing from {names:?}");
    }
    assert_eq!(net.input_shape(), [None, Some(3), Some(8), Some(12)]);
    Ok(())
}

#[test]
fn a_step_in_training_is_pytorchs() -> Result<()> {
    let cases = cases("cnn")?;
    let net = import(file("cnn_training.onnx"))?;
    let (x, labels) = (case(&cases, "input.4"), case(&cases, "train.labels"));
    net.train();
    // Dropout acts: two passes differ.
    assert!(difference(&net.forward(x)?, &net.forward(x)?)? > 0.0);
    let quiet = without_dropout()?;
    quiet.load_state_dict(&state(&cases), true)?;
    quiet.train();
    let loss = quiet.forward(x)?.cross_entropy(labels)?;
    loss.backward()?;
    close(&loss, case(&cases, "train.loss"), 1e-5, "loss")?;
    for (name, parameter) in quiet.named_parameters() {
        let gradient = parameter.grad().unwrap_or_else(|| panic!("{name} has no gradient"));
        close(&gradient, case(&cases, &format!("train.grad.{name}")), 1e-5, &name)?;
    }
    for (name, buffer) in quiet.named_buffers() {
        close(&buffer.get()?, case(&cases, &format!("train.after.{name}")), 1e-6, &name)?;
    }
    Ok(())
}

/// The network for training with a dropout that drops nothing: its probability stands in the file as one number.
fn without_dropout() -> Result<OnnxModule> {
    let mut bytes = std::fs::read(file("cnn_training.onnx")).expect("the file is there");
    let quarter = 0.25f32.to_le_bytes();
    let places: Vec<usize> = (0..bytes.len() - 4).filter(|&i| bytes[i..i + 4] == quarter).collect();
    assert_eq!(places.len(), 1);
    bytes[places[0]..places[0] + 4].copy_from_slice(&0.0f32.to_le_bytes());
    import_bytes(&bytes)
}

#[test]
fn every_pytorch_export_can_be_trained_on() -> Result<()> {
    for name in
        ["cnn_script", "cnn_dynamo", "cnn_training", "vit_script", "vit_dynamo", "layers_script", "layers_dynamo"]
    {
        let net = import(file(&format!("{name}.onnx")))?;
        let cases = cases(name.split('_').next().unwrap_or_default())?;
        let (x, labels) = (case(&cases, "input.4"), Tensor::from([1i64, 0, 4, 2]));
        let mut optimizer = Sgd::new(net.parameters(), 0.005);
        net.eval();
        let mut losses = Vec::new();
        for _ in 0..6 {
            optimizer.zero_grad();
            let loss = net.forward(x)?.cross_entropy(&labels)?;
            loss.backward()?;
            optimizer.step()?;
            losses.push(loss.item::<f32>()?);
        }
        assert!(losses[5] < losses[0], "{name}: {losses:?}");
    }
    Ok(())
}

#[test]
fn our_own_exports_come_back() -> Result<()> {
    manual_seed(3);
    let networks: Vec<(&str, Box<dyn Forward>)> =
        vec![("lab", Box::new(Lab::new()?)), ("resnet18", Box::new(resnet18_cifar(10)?))];
    for (name, net) in networks {
        let again = import_bytes(&export_bytes(&net, &Export::new([3, 32, 32]).note("data", "cifar10"))?)?;
        assert_eq!(again.notes()["data"], "cifar10");
        let (x, labels) = (Tensor::randn([3, 3, 32, 32])?, Tensor::from([1i64, 0, 4]));
        net.eval();
        again.eval();
        assert_eq!(net.forward(&x)?.to_vec::<f32>()?, again.forward(&x)?.to_vec::<f32>()?, "{name}");
        // What it learned elsewhere goes back by name.
        net.load_state_dict(&again.state_dict()?, true)?;
        net.train();
        again.train();
        let (a, b) = (net.forward(&x)?.cross_entropy(&labels)?, again.forward(&x)?.cross_entropy(&labels)?);
        a.backward()?;
        b.backward()?;
        assert_eq!(a.item::<f32>()?, b.item::<f32>()?);
        let ours = net.named_parameters();
        for (path, parameter) in again.named_parameters() {
            let same = ours.iter().find(|(name, _)| *name == path).and_then(|(_, p)| p.grad());
            let (same, gradient) = (same.expect("a gradient"), parameter.grad().expect("a gradient"));
            assert_eq!(gradient.to_vec::<f32>()?, same.to_vec::<f32>()?, "{name} {path}");
        }
    }
    Ok(())
}

/// Compares a model with inputs and outputs in files: `NEURONA_ONNX=a.onnx:b.onnx cargo test --test onnx -- --ignored`.
/// Beside each stands a .safetensors file with input.N and output.N.
#[test]
#[ignore = "reads large files that are not part of the repository"]
fn models_of_the_user() -> Result<()> {
    for path in std::env::var("NEURONA_ONNX").expect("NEURONA_ONNX must name models").split(':') {
        let start = std::time::Instant::now();
        let net = import(path)?;
        let loading = start.elapsed();
        net.eval();
        let cases = safetensors::load(PathBuf::from(path).with_extension("safetensors"))?;
        for (name, x) in cases.iter() {
            if let Some(batch) = name.strip_prefix("input.") {
                let start = std::time::Instant::now();
                let difference = difference(&net.forward(x)?, case(&cases, &format!("output.{batch}")))?;
                println!("{path} {name}: {difference:.1e}, read in {loading:?}, run in {:?}", start.elapsed());
                assert!(difference < 1e-4, "{path}: {difference}");
            }
        }
        println!("{path}: {} parameters", net.num_parameters());
    }
    Ok(())
}
