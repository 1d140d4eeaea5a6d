//! `neurona export` as a user calls it.

use neurona::Tensor;
use neurona::io::onnx;
use neurona::models::{Card, Spec};
use neurona::nn::{Forward, Module};
use std::path::Path;
use std::process::{Command, Output};

fn neurona(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_neurona")).args(arguments).current_dir(folder).output().unwrap()
}

#[test]
fn a_model_file_becomes_onnx() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec::new("small_cnn", 3).unwrap().images([1, 8, 8]);
    let net = spec.build().unwrap();
    net.forward(&Tensor::randn([16, 1, 8, 8]).unwrap()).unwrap().to_vec::<f32>().unwrap();
    let card = Card::new(spec, ["ant", "bee", "cat"]).normalize([0.25], [0.5]);
    card.save(folder.path().join("model.safetensors"), &net).unwrap();
    net.eval();
    let x = Tensor::randn([5, 1, 8, 8]).unwrap();
    let want = net.forward(&x).unwrap().to_vec::<f32>().unwrap();
    for (flags, parameters) in [(&[][..], 8), (&["--fold-batch-norm", "--batch", "5", "--opset", "20"], 6)] {
        let arguments = [&["export", "model.safetensors", "out.onnx"], flags].concat();
        let output = neurona(&arguments, folder.path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let batch = if flags.is_empty() { "batch" } else { "5" };
        let shapes = format!("out.onnx: small_cnn with 3 classes, input [{batch}, 1, 8, 8], logits [{batch}, 3], ");
        assert!(text.starts_with(&shapes), "{text}");
        let again = onnx::import(folder.path().join("out.onnx")).unwrap();
        again.eval();
        let got = again.forward(&x).unwrap().to_vec::<f32>().unwrap();
        assert!(want.iter().zip(&got).all(|(a, b)| (a - b).abs() < 1e-5), "{want:?} {got:?}");
        assert_eq!(again.notes()["classes"], r#"["ant","bee","cat"]"#);
        assert_eq!((again.notes()["mean"].as_str(), again.notes()["image_size"].as_str()), ("[0.25]", "[1,8,8]"));
        assert_eq!(Card::from_metadata(again.notes()).unwrap().as_ref(), Some(&card));
        assert_eq!(again.parameters().len(), parameters);
    }
}

#[test]
fn the_folder_of_a_run_is_exported() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec::new("small_cnn", 2).unwrap().images([1, 8, 8]);
    let net = spec.build().unwrap();
    std::fs::create_dir(folder.path().join("run-1")).unwrap();
    let card = Card::new(spec, ["ant", "bee"]);
    card.save(folder.path().join("run-1/model.safetensors"), &net).unwrap();
    let output = neurona(&["export", "run-1", "out.onnx"], folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let again = onnx::import(folder.path().join("out.onnx")).unwrap();
    assert_eq!(Card::from_metadata(again.notes()).unwrap().as_ref(), Some(&card));
    let none = neurona(&["export", ".", "other.onnx"], folder.path());
    let error = String::from_utf8(none.stderr).unwrap();
    assert!(none.status.code() == Some(2) && error.contains("has no model.safetensors"), "{error}");
}

#[test]
fn mistakes_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text.safetensors"), "no model").unwrap();
    for (arguments, code, hint) in [
        (&["export", "missing.safetensors", "out.onnx"][..], 1, "cannot read missing.safetensors"),
        (&["export", "text.safetensors", "out.onnx"], 1, "text.safetensors"),
        (&["export", "text.safetensors", "out.pt"], 1, "does not end in .onnx"),
        (&["export", "text.safetensors"], 2, "OUT.onnx"),
        (&["export", "a", "b.onnx", "--batch", "0"], 2, "`dynamic` or a whole number"),
        (&["export", "a", "b.onnx", "--opset", "16"], 2, "17..=21"),
    ] {
        let output = neurona(arguments, folder.path());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(hint), "{arguments:?} should mention {hint}: {error}");
    }
    assert!(!folder.path().join("out.onnx").exists());
}
