//! The command as a user calls it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn neurona(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_neurona")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn version_and_help() {
    let version = neurona(&["--version"]);
    assert!(version.status.success());
    assert_eq!(text(&version.stdout).trim(), concat!("neurona ", env!("CARGO_PKG_VERSION")));
    for arguments in [&["--help"][..], &["train", "--help"], &["bench", "--help"]] {
        let help = neurona(arguments);
        assert!(help.status.success() && text(&help.stdout).contains("Example:"), "{arguments:?}");
    }
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
        (&["bench", "lab_b5"], "lab_b4"),
        (&["bench", "resnet"], "mlp784_b128"),
        (&["bench", "--seconds", "soon"], "above 0"),
        (&["bench", "--device", "cuda:7"], "available: cpu"),
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

#[test]
fn train_writes_everything_and_learns() {
    let folder = tempfile::tempdir().unwrap();
    let output = neurona(&["train", "--epochs", "1", "--output", folder.path().to_str().unwrap()]);
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "no bar without a terminal");
    assert_eq!(told.lines().filter(|line| line.starts_with("epoch 1/1")).count(), 1, "{told}");

    let run = folder.path().join("fashion-mnist-1");
    let mut names: Vec<String> =
        fs::read_dir(&run).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["config.json", "metrics.csv", "model.safetensors", "result.png"]);
    let config: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(run.join("config.json")).unwrap()).unwrap();
    assert_eq!((config["epochs"].as_u64(), config["seed"].as_u64()), (Some(1), Some(0)));
    assert!(fs::read(run.join("result.png")).unwrap().starts_with(b"\x89PNG"));

    let metrics = fs::read_to_string(run.join("metrics.csv")).unwrap();
    let rows: Vec<Vec<&str>> = metrics.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((rows.len(), rows[0][5]), (2, "test_accuracy"));
    let accuracy: f64 = rows[1][5].parse().unwrap();
    assert!(accuracy > 0.6, "{told}");
    assert!(told.contains(&format!("Test accuracy {:.1} %", 100.0 * accuracy)), "{told}");

    let (state, notes) = neurona::io::safetensors::load_with_metadata(run.join("model.safetensors")).unwrap();
    assert_eq!(state.get("conv1.weight").unwrap().shape().to_string(), "[32, 1, 3, 3]");
    assert_eq!(state.get("bn2.num_batches_tracked").unwrap().item::<i64>().unwrap(), 79);
    assert!(notes["classes"].contains("ankle boot") && notes["image_size"] == "[1,28,28]");
}

#[test]
fn the_same_seed_gives_the_same_model_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let model = |threads: &str| {
        let output = folder.path().join(threads);
        let arguments = ["train", "--epochs", "1", "--seed", "5", "--threads", threads, "--output"];
        let done = neurona(&[&arguments[..], &[output.to_str().unwrap()]].concat());
        assert!(done.status.success(), "{}", text(&done.stderr));
        fs::read(output.join("fashion-mnist-1/model.safetensors")).unwrap()
    };
    assert!(model("1") == model("3"));
}

#[test]
fn a_learning_rate_that_breaks_training_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = neurona(&["train", "--epochs", "1", "--lr", "1e6", "--output", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("try a smaller --lr"), "{}", text(&output.stderr));
}

#[test]
fn an_output_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    refused(&file);
    refused(&file.join("below"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let locked = folder.path().join("locked");
        fs::create_dir(&locked).unwrap();
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
        // The superuser may write anywhere.
        if fs::write(locked.join("probe"), "").is_err() {
            refused(&locked);
        }
    }
}

fn refused(output: &Path) {
    let done = neurona(&["train", "--epochs", "1", "--output", output.to_str().unwrap()]);
    let error = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{error}");
    assert!(error.starts_with("error: cannot make the folder ") && error.contains(output.to_str().unwrap()), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
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
    for (op, layer) in
        [("conv2d·relu", "conv1"), ("conv2d_weight_grad", "conv2"), ("cross_entropy_grad", ""), ("sgd_step", "")]
    {
        let timed = |line: &&str| line.contains(op) && line.contains(layer) && line.contains("GFLOP/s");
        assert!(shown.lines().any(|line| timed(&line)), "no time for {op} {layer}");
    }
    assert_eq!(shown.matches("plan: ").count(), 2, "a training step and inference: {shown}");
}
