//! Runs that are interrupted or killed, and go on.
#![cfg(unix)]

mod common;

use common::{command, figures, images, neurona, refused, str, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Small, but with everything that has a state: momentum, schedule, average, augmentation, mixing, workers.
fn arguments(data: &Path, output: &Path) -> Vec<String> {
    let settings = [
        "--epochs",
        "5",
        "--batch-size",
        "8",
        "--image-size",
        "8",
        "--workers",
        "1",
        "--save-steps",
        "2",
        "--model-ema",
        "0.9",
        "--mixup",
        "0.2",
        "--augment",
        "trivial",
        "--threads",
        "1",
        "--seed",
        "3",
        "--name",
        "run",
    ];
    [&["train", str(data), "--output", str(output)], &settings[..]].concat().into_iter().map(String::from).collect()
}

fn begin(arguments: &[String]) -> Child {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
}

struct Whole {
    _folder: tempfile::TempDir,
    data: PathBuf,
    base: PathBuf,
    run: PathBuf,
}

/// A run that nobody disturbed.
fn undisturbed(each: usize) -> Whole {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], each);
    let base = folder.path().to_path_buf();
    let output = begin(&arguments(&data, &base.join("whole"))).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Whole { _folder: folder, data, run: base.join("whole/run-1"), base }
}

fn same(whole: &Path, other: &Path) {
    assert_eq!(figures(whole), figures(other));
    let model = |run: &Path| fs::read(run.join("model.safetensors")).unwrap();
    assert!(model(whole) == model(other), "the same bits");
    let results = |run: &Path| fs::read_to_string(run.join("results.json")).unwrap();
    assert_eq!(results(whole), results(other));
}

#[test]
fn control_c_saves_and_says_how_to_go_on() {
    let whole = undisturbed(60);
    let output = whole.base.join("asked");
    let child = begin(&arguments(&whole.data, &output));
    let last = output.join("run-1/checkpoints/last.safetensors");
    let start = Instant::now();
    while !last.exists() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    signal(&child, "-INT");
    let done = child.wait_with_output().unwrap();
    let said = text(&done.stdout);
    assert_eq!(done.status.code(), Some(130), "{said}{}", text(&done.stderr));
    let resume = said.lines().last().unwrap().trim().strip_prefix("neurona ").unwrap().to_string();
    assert!(resume.starts_with("train --resume "), "{said}");
    assert!(!output.join("run-1/model.safetensors").exists());
    let done = neurona(&resume.split(' ').collect::<Vec<_>>());
    assert!(done.status.success(), "{}", text(&done.stderr));
    same(&whole.run, &output.join("run-1"));
}

#[test]
fn a_run_killed_twenty_times_ends_with_the_same_bits() {
    let whole = undisturbed(40);
    let output = whole.base.join("killed");
    let run = output.join("run-1");
    let mut dice: u64 = 0x9e37_79b9_7f4a_7c15;
    let (mut kills, mut attempt) = (0, arguments(&whole.data, &output));
    while kills < 20 {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut child = begin(&attempt);
        std::thread::sleep(Duration::from_millis(4 + (dice >> 33) % 60));
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            kills += 1;
        } else if run.join("report.html").exists() {
            // It came to its end between two kills: the next ones hit a run that only has to be judged again.
            fs::remove_file(run.join("report.html")).unwrap();
        }
        child.wait().unwrap();
        if run.join("config.toml").exists() {
            attempt = vec!["train".into(), "--resume".into(), str(&run).into()];
        } else {
            let _ = fs::remove_dir_all(&output);
        }
    }
    let attempt: Vec<&str> = attempt.iter().map(String::as_str).collect();
    let done = neurona(&attempt);
    assert!(done.status.success(), "{}", text(&done.stderr));
    same(&whole.run, &run);
    let leftovers = fs::read_dir(run.join("checkpoints")).unwrap().map(|e| e.unwrap().file_name());
    let odd: Vec<_> = leftovers.filter(|name| !text(name.as_encoded_bytes()).ends_with(".safetensors")).collect();
    assert!(odd.is_empty(), "{odd:?}");
}

#[test]
fn a_run_goes_on_with_its_own_settings_only() {
    let whole = undisturbed(10);
    let error = refused(&["train", "--resume", str(&whole.run), "--epochs", "9"], 2);
    assert!(error.contains("--epochs"), "{error}");
    let done = neurona(&["train", "--resume", str(&whole.run), "--workers", "0"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
}
