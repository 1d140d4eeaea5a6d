//! Settings, files and folders that are wrong: each has a clear message and the right exit status.

mod common;

use common::{QUICK, command, images, neurona, quick_run, refused, str, text};
use std::fs;
use std::path::Path;

#[test]
fn a_config_with_a_typo_names_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.toml");
    for (content, hints) in [
        ("epochs = 1\nbatchsize = 4\n", &["run.toml", "line 2", "batchsize", "'batch-size'"][..]),
        ("epochs = \"many\"", &["line 1", "epochs", "from 1 to"]),
        ("opt = \"sdg\"", &["line 1", "opt", "sgd"]),
        ("[train]\nepochs = 1", &["train"]),
        ("epochs 1", &["line 1"]),
        ("data = \"no/such/folder\"", &[]),
    ] {
        fs::write(&file, content).unwrap();
        let status = if hints.is_empty() { 1 } else { 2 };
        let error = refused(&["train", "--config", str(&file), "--output", str(folder.path())], status);
        assert!(hints.iter().all(|hint| error.contains(hint)), "{content}: {error}");
    }
    fs::write(&file, [0xff, 0xfe, b'=']).unwrap();
    refused(&["train", "--config", str(&file)], 2);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no run was begun");
}

#[test]
fn data_that_is_not_there_is_named_with_what_is() {
    let folder = tempfile::tempdir().unwrap();
    let output = str(folder.path());
    let error = refused(&["train", "no/such/folder", "--output", output], 1);
    assert!(error.contains("no/such/folder") && error.contains("cifar10"), "{error}");
    let error = refused(&["train", "cifar11", "--output", output], 1);
    assert!(error.contains("did you mean cifar10"), "{error}");
    let mut missing = command(&["train", "cifar10", "--output", output]);
    let done = missing.env("XDG_DATA_HOME", folder.path()).env("NEURONA_DATA", folder.path()).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("neurona data get cifar10"), "{}", text(&done.stderr));
}

#[test]
fn a_learning_rate_that_breaks_training_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 12);
    let runs = folder.path().join("runs");
    let arguments =
        [&["train", str(&data), "--output", str(&runs)], &QUICK[..], &["--lr", "1e6", "--epochs", "30"]].concat();
    let error = refused(&arguments, 1);
    assert!(error.contains("--lr"), "{error}");
}

#[test]
fn a_checkpoint_of_another_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 12);
    let a = quick_run(&data, &folder.path().join("a"), &[]);
    let b = quick_run(&data, &folder.path().join("b"), &["--model", "resnet18", "--image-size", "16"]);
    let last = b.join("checkpoints/last.safetensors");
    let kept = fs::read(&last).unwrap();
    fs::copy(a.join("checkpoints/last.safetensors"), &last).unwrap();
    let error = refused(&["train", "--resume", str(&b)], 1);
    assert!(error.contains("checkpoint"), "{error}");

    fs::write(&last, &kept[..kept.len() / 2]).unwrap();
    let error = refused(&["train", "--resume", str(&last)], 1);
    assert!(error.contains("last.safetensors"), "{error}");
    let error = refused(&["train", "--resume", str(&b.join("model.safetensors"))], 2);
    assert!(error.contains("config.toml"), "{error}");
    fs::copy(b.join("model.safetensors"), &last).unwrap();
    let error = refused(&["train", "--resume", str(&b)], 1);
    assert!(error.contains("not a checkpoint"), "{error}");
    fs::write(&last, kept).unwrap();
    let error = refused(&["train", "--resume", str(&b), "--lr", "3"], 2);
    assert!(error.contains("--lr") && error.contains("--config"), "{error}");
    let error = refused(&["train", "--resume", str(folder.path())], 2);
    assert!(error.contains("config.toml"), "{error}");
    assert!(neurona(&["train", "--resume", str(&b), "--threads", "1"]).status.success());
}

#[test]
fn models_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 12);
    let image = data.join("red/000.png");
    let file = folder.path().join("model.safetensors");
    for bytes in [&b""[..], b"hello", &[0x80, 2, b'}', b'.'], &u64::MAX.to_le_bytes(), b"\x02\0\0\0\0\0\0\0{}"] {
        fs::write(&file, bytes).unwrap();
        refused(&["predict", str(&file), str(&image)], 1);
        refused(&["eval", str(&file), str(&data)], 1);
    }
    refused(&["predict", "no/such/model.safetensors", str(&image)], 1);
    refused(&["predict", str(folder.path().join("data").as_path()), str(&image)], 2);
    let run = quick_run(&data, &folder.path().join("runs"), &[]);
    let other = images(&folder.path().join("other"), &["dog", "cat"], 4);
    let error = refused(&["eval", str(&run), str(&other)], 1);
    assert!(error.contains("dog") && error.contains("green"), "{error}");
    let error = refused(&["eval", str(&run), str(&data), "--split", "test"], 2);
    assert!(error.contains("no test images"), "{error}");
    let error = refused(&["eval", str(&run.join("model.safetensors"))], 2);
    assert!(error.contains("which images"), "{error}");
    let error = refused(&["train", str(&data), "--weights", str(&file)], 1);
    assert!(error.contains("model.safetensors"), "{error}");
}

#[test]
fn broken_results_are_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 12);
    let run = quick_run(&data, &folder.path().join("runs"), &[]);
    let page = fs::read(run.join("report.html")).unwrap();
    for content in ["", "{}", "[1]", "{\"split\": 3}"] {
        fs::write(run.join("results.json"), content).unwrap();
        let error = refused(&["report", str(&run)], 1);
        assert!(error.contains("results.json"), "{error}");
    }
    assert!(fs::read(run.join("report.html")).unwrap() == page, "what was there is there");
}

fn no_folder(output: &Path) {
    let error = refused(&["train", "--epochs", "1", "--output", str(output)], 1);
    assert!(error.starts_with("error: cannot make the folder ") && error.contains(str(output)), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn an_output_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    no_folder(&file);
    no_folder(&file.join("below"));
}

#[cfg(unix)]
#[test]
fn folders_that_may_not_be_written_are_named() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 12);
    let run = quick_run(&data, &folder.path().join("runs"), &[]);
    let lock = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let locked = folder.path().join("locked");
    fs::create_dir(&locked).unwrap();
    for path in [&locked, &run, &run.join("checkpoints"), &run.join("pictures")] {
        lock(path, 0o555);
    }
    // The superuser may write anywhere.
    if fs::write(locked.join("probe"), "").is_err() {
        no_folder(&locked);
        let model = fs::read(run.join("model.safetensors")).unwrap();
        let error = refused(&["report", str(&run)], 1);
        assert!(error.contains("cannot write"), "{error}");
        let error = refused(&["train", "--resume", str(&run)], 1);
        assert!(error.contains("cannot write"), "{error}");
        assert!(fs::read(run.join("model.safetensors")).unwrap() == model);
    }
    for path in [&run, &run.join("checkpoints"), &run.join("pictures")] {
        lock(path, 0o755);
    }
}

/// A limit on the size of files stands for a full disk: writing fails in the same place.
#[cfg(unix)]
#[test]
fn a_full_disk_stops_the_run_and_keeps_what_was_saved() {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 12);
    let run = quick_run(&data, &folder.path().join("runs"), &["--epochs", "2", "--save-steps", "1"]);
    let before = fs::read(run.join("checkpoints/best.safetensors")).unwrap();
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
    let arguments = ["train", "--resume", str(&run)];
    let done = std::process::Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_neurona")])
        .args(arguments)
        .output()
        .unwrap();
    let error = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot write"), "{error}");
    assert!(fs::read(run.join("checkpoints/best.safetensors")).unwrap() == before);
    assert!(neurona(&arguments).status.success(), "it goes on when there is room again");
}
