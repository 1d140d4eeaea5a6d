//! The command as a user calls it.

mod common;

use common::{neurona, text};
use std::process::Command;

#[test]
fn version_and_help() {
    let version = neurona(&["--version"]);
    assert!(version.status.success());
    assert_eq!(text(&version.stdout).trim(), concat!("neurona ", env!("CARGO_PKG_VERSION")));
    for command in ["train", "eval", "predict", "report", "bench"] {
        let help = neurona(&[command, "--help"]);
        assert!(help.status.success() && text(&help.stdout).contains("Example:"), "{command}");
    }
    let help = text(&neurona(&["--help"]).stdout);
    assert!(help.contains("Example:"));
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let listed: Vec<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    let order = "train eval predict report summary data export convert inspect bench doctor completions help";
    assert_eq!(listed.join(" "), order, "from what is needed first to what is needed seldom");
}

#[test]
fn mistakes_on_the_command_line_end_with_status_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["trian"], "train"),
        (&["train", "--epoch", "3"], "--epochs"),
        (&["train", "--epochs", "0"], "from 1 to"),
        (&["train", "--lr", "-1"], "--lr"),
        (&["train", "--lr", "nan"], "above 0"),
        (&["train", "--threads", "100000"], "from 1 to 256"),
        (&["train", "--opt", "adm"], "adam"),
        (&["train", "--augment", "basics"], "basic"),
        (&["train", "--lr-scheduler", "onecycle"], "one-cycle"),
        (&["train", "--model", "resnet-18"], "resnet18"),
        (&["train", "--model", "vgg16"], "32 x 32"),
        (&["train", "--device", "cuda:60"], "--device cpu"),
        (&["train", "--device", "tpu"], "cuda"),
        (&["train", "--device", "cpu", "--amp", "bf16"], "GPU"),
        (&["train", "--amp", "int8"], "bf16"),
        (&["train", "--device", "cpu", "--kernels", "own"], "GPU"),
        (&["eval", "model", "--device", "cuda:60"], "doctor"),
        (&["predict", "model", "x.jpg", "--device", "cpu", "--amp", "f16"], "GPU"),
        (&["train", "--val-split", "1"], "between 0 and 1"),
        (&["train", "--image-size", "0"], "from 4 to"),
        (&["train", "--freeze"], "--weights"),
        (&["train", "--name", "../up"], "folder's name"),
        (&["train", "--momentum", "1"], "without 1"),
        (&["train", "--momentum", "0.8", "--opt", "adamw"], "no effect on adamw"),
        (&["train", "a", "--data", "b"], "--data"),
        (&["train", "--config", "a.toml", "--resume", "b"], "--resume"),
        (&["train", "--config", "no/such.toml"], "no/such.toml"),
        (&["train", "--resume", "no/such/run"], "no/such/run"),
        (&["predict", "model"], "IMAGES"),
        (&["predict", "model", "x.jpg", "--format", "jsn"], "json"),
        (&["predict", "model", "x.jpg", "--top-k", "0"], "from 1 to"),
        (&["report", "no/such/run"], "results.json"),
        (&["eval"], "MODEL"),
        (&["eval", "x", "--split", "tset"], "test"),
        (&["bench", "lab_b5"], "lab_b4"),
        (&["bench", "resnet"], "mlp784_b128"),
        (&["bench", "--seconds", "soon"], "above 0"),
        (&["bench", "--device", "cuda:60"], "--device cpu"),
        (&[], "Usage"),
    ];
    for (arguments, hint) in cases {
        let output = neurona(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(hint), "{arguments:?} should mention {hint}: {error}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn bench_prints_a_json_line() {
    let output = neurona(&["bench", "--device", "cpu", "--threads", "1", "--seconds", "0.2", "--json", "lab_b4"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&line["peer"], &line["work"], &line["threads"]), (&"neurona".into(), &"lab_b4".into(), &1.into()));
    let number = |key: &str| line[key].as_f64().unwrap();
    assert!(number("train_per_s") > 0.0 && number("infer_per_s") > 0.0);
    assert!((4e6 / number("step_us") / number("train_per_s") - 1.0).abs() < 0.01, "{line}");
}

#[cfg(unix)]
#[test]
fn a_reader_that_stops_reading_is_no_crash() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_neurona"))
        .args(["bench", "--seconds", "0.05", "mlp500_b32", "lab_b1", "lab_b4"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), String::new()));
}

#[test]
fn debug_output_shows_the_fused_plan_and_every_kernels_time() {
    let output = Command::new(env!("CARGO_BIN_EXE_neurona"))
        .args(["bench", "--seconds", "0.01", "--json", "lab_b4"])
        .env("NEURONA_DEBUG", "2")
        .output()
        .unwrap();
    let shown = text(&output.stderr);
    assert!(output.status.success());
    assert!(shown.contains("plan: ") && shown.contains("arena"), "{shown}");
    let (forward, backward) = ("conv2d·relu·max_pool2d", "conv2d·relu·max_pool2d_grad");
    for (op, layer) in [(forward, "conv1"), (backward, "conv2"), ("cross_entropy·grad", ""), ("sgd_step", "")] {
        let timed = |line: &&str| line.contains(op) && line.contains(layer) && line.contains("GFLOP/s");
        assert!(shown.lines().any(|line| timed(&line)), "no time for {op} {layer}");
    }
    assert_eq!(shown.matches("plan: ").count(), 2, "a training step and inference: {shown}");
}
