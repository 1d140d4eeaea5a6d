//! Commands on weights files, as a user calls them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn neurona(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_neurona")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../neurona/tests/files/pth").join(name)
}

fn json(path: &str) -> Value {
    let output = neurona(&["inspect", path, "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn inspect_lists_tensors_and_what_else_is_there() {
    let path = file("checkpoint.pth");
    let found = json(path.to_str().unwrap());
    assert_eq!((&found["format"], &found["elements"]), (&"PyTorch checkpoint".into(), &56.into()));
    let first = serde_json::json!({ "name": "0.weight", "dtype": "f32", "shape": [2, 1, 3, 3], "bytes": 72 });
    assert_eq!((&found["tensors"][0], found["tensors"].as_array().unwrap().len()), (&first, 9));
    let notes: Vec<&str> = found["notes"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    assert_eq!(notes[..2], ["tensors are under the key model_state_dict", "also holds epoch: 3"]);
    let table = text(&neurona(&["inspect", path.to_str().unwrap()]).stdout);
    assert!(table.contains("1.num_batches_tracked") && table.ends_with("9 tensors, 56 elements\n"), "{table}");
}

#[test]
fn convert_goes_both_ways_and_tells_what_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (first, back) = (at("a.safetensors"), at("b.pth"));
    let output = neurona(&["convert", file("checkpoint.pth").to_str().unwrap(), &first]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("tensors are under the key model_state_dict"));
    assert!(text(&output.stderr).contains("left out: epoch (3), lr (0.1), losses (a list of 2)"));
    let output = neurona(&["convert", &first, &back]);
    assert!(output.status.success() && text(&output.stderr).contains("lost: format"), "{}", text(&output.stderr));
    let mut tensors = [json(&first), json(&back)].map(|j| j["tensors"].as_array().unwrap().clone());
    tensors.iter_mut().for_each(|list| list.sort_by_key(|t| t["name"].to_string()));
    assert_eq!(tensors[0], tensors[1]);
    let again = neurona(&["convert", &first, &back]);
    assert!(!again.status.success() && text(&again.stderr).contains("--force writes over it"));
    assert!(neurona(&["convert", &first, &back, "--force"]).status.success());
}

/// Commands that use a model say what a file is that is none, and advise only what can be done.
#[test]
fn files_that_are_no_models_are_named() {
    use neurona::{Tensor, io, models};
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let state: io::StateDict = [("w", Tensor::from([1.0f32, 2.0]))].into_iter().collect();
    io::pth::save(at("a.pth"), &state).unwrap();
    io::safetensors::save(at("a.safetensors"), &state, &Default::default()).unwrap();
    let spec = models::Spec::new("small_cnn", 2).unwrap().images([1, 8, 8]);
    let net = spec.build().unwrap();
    io::onnx::export(&net, &models::Card::new(spec, ["a", "b"]).to_onnx(), at("a.onnx")).unwrap();
    for (name, kind, advice) in [
        ("a.pth", "a PyTorch checkpoint", "neurona train DATA --model NAME --weights FILE"),
        ("a.safetensors", "without a model card", "neurona train DATA --model NAME --weights FILE"),
        ("a.onnx", "is an ONNX file", "io::onnx::import"),
    ] {
        let (file, out) = (at(name), at("out.onnx"));
        for arguments in [
            &["predict", &file, "x.png"][..],
            &["eval", &file, "embedded"],
            &["export", &file, &out],
            &["summary", &file],
        ] {
            let output = neurona(arguments);
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
            assert!(error.contains(name) && error.contains(kind) && error.contains(advice), "{arguments:?}: {error}");
        }
    }
}

#[test]
fn mistakes_are_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let refused = |name: &str| file("refused").join(name).to_str().unwrap().to_string();
    std::fs::write(at("text.pth"), "hello").unwrap();
    let out = at("out.safetensors");
    let cases: [(&[&str], &str); 7] = [
        (&["inspect", "no/such/file"], "cannot read no/such/file"),
        (&["inspect", &at("text.pth")], "not a weights file"),
        (&["inspect", &refused("old_format.pth")], "before version 1.6"),
        (&["convert", &refused("several.pth"), &out], "say which is meant: generator, critic"),
        (&["convert", &refused("several.pth"), &out, "--key", "nobody"], "it has: generator, critic"),
        (&["convert", &refused("torchscript.pt"), &out], "TorchScript"),
        (&["convert", &refused("several.pth"), &at("out.bin")], "its ending is not"),
    ];
    for (arguments, want) in cases {
        let output = neurona(arguments);
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.starts_with("error: ") && error.contains(want), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(!Path::new(&out).exists());
    assert!(neurona(&["convert", &refused("several.pth"), &out, "--key", "critic"]).status.success());
}
