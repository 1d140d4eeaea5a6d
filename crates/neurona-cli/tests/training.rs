//! A run from beginning to end: what it learns, what it writes, and that it can be repeated.

mod common;

use common::{QUICK, figures, images, neurona, quick_run, str, text, told};
use serde_json::Value;
use std::fs;

#[test]
fn the_embedded_set_is_learned_and_everything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let output = neurona(&["train", "--epochs", "1", "--output", str(folder.path())]);
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "no bars without a terminal");
    assert_eq!(told.lines().filter(|line| line.starts_with("epoch 1/1")).count(), 1, "{told}");
    assert!(told.contains("--batch-size") && told.contains("4000 training images"), "choices are told: {told}");

    let run = folder.path().join("embedded-1");
    let there = [
        "config.toml",
        "environment.json",
        "metrics.csv",
        "metrics.jsonl",
        "model.safetensors",
        "results.json",
        "confusion.csv",
        "report.html",
        "checkpoints/best.safetensors",
        "checkpoints/last.safetensors",
        "pictures/curves.png",
        "pictures/confusion.png",
        "pictures/classes.png",
        "pictures/mistakes.png",
        "pictures/filters.png",
        "pictures/result.png",
    ];
    there.iter().for_each(|name| assert!(run.join(name).is_file(), "{name}"));
    let events = fs::read_dir(run.join("tensorboard")).unwrap().map(|e| e.unwrap().file_name());
    assert!(events.map(|name| text(name.as_encoded_bytes())).all(|name| name.starts_with("events.out.tfevents.")));

    let metrics = fs::read_to_string(run.join("metrics.csv")).unwrap();
    let head = "epoch,lr,train_loss,train_accuracy,val_loss,val_accuracy,images_per_s,seconds,waiting,memory_bytes";
    assert_eq!((metrics.lines().next(), metrics.lines().count()), (Some(head), 2));
    let lines = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((lines.lines().count(), line["epoch"].as_u64()), (1, Some(1)));

    let results: Value = serde_json::from_str(&fs::read_to_string(run.join("results.json")).unwrap()).unwrap();
    let accuracy = results["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.6 && results["images"] == 1000 && results["split"] == "test", "{told}");
    assert!(told.contains(&format!("Test accuracy {:.1} %", 100.0 * accuracy)), "{told}");
    assert!(told.contains("ankle boot") && told.contains("taken for"), "{told}");
    let counts = results["confusion"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
    assert_eq!(counts.map(|n| n.as_u64().unwrap()).sum::<u64>(), 1000);
    assert_eq!(
        (results["per_class"][9]["count"].as_u64(), results["mistakes"].as_array().unwrap().len()),
        (Some(100), 24)
    );

    let (net, card) = neurona::models::open(run.join("model.safetensors")).unwrap();
    assert_eq!(
        (card.classes[9].as_str(), card.spec.name.as_str(), net.num_parameters()),
        ("ankle boot", "small_cnn", 50_282)
    );
}

#[test]
fn a_folder_of_images_is_learned_and_its_settings_repeat_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green", "blue"], 20);
    let run = quick_run(&data, &folder.path().join("runs"), &["--epochs", "6", "--lr", "0.02"]);
    let results: Value = serde_json::from_str(&fs::read_to_string(run.join("results.json")).unwrap()).unwrap();
    assert!(results["accuracy"].as_f64().unwrap() > 0.9 && results["split"] == "val", "{results}");

    // The resolved settings, in another folder: the same bits.
    let config = run.join("config.toml");
    let again = folder.path().join("again");
    told(&["train", "--config", str(&config), "--output", str(&again), "--threads", "1", "--workers", "2"]);
    let again = again.join("run-1");
    assert_eq!(figures(&run), figures(&again));
    let bytes = |run: &std::path::Path| fs::read(run.join("model.safetensors")).unwrap();
    assert!(bytes(&run) == bytes(&again), "the same settings give the same model");
    assert!(fs::read_to_string(&config).unwrap().contains("augment = "), "what was chosen is written down");

    let other = quick_run(&data, &folder.path().join("seed"), &["--epochs", "6", "--lr", "0.02", "--seed", "7"]);
    assert!(bytes(&run) != bytes(&other), "another seed gives another model");
}

#[test]
fn a_model_is_judged_and_used_from_its_file_alone() {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 12);
    let run = quick_run(&data, &folder.path().join("runs"), &["--epochs", "5", "--lr", "0.02"]);
    let results: Value = serde_json::from_str(&fs::read_to_string(run.join("results.json")).unwrap()).unwrap();
    let judged: Value = serde_json::from_str(&told(&["eval", str(&run), "--json"])).unwrap();
    assert_eq!((&judged["accuracy"], &judged["loss"]), (&results["accuracy"], &results["loss"]));

    let model = folder.path().join("apart.safetensors");
    fs::rename(run.join("model.safetensors"), &model).unwrap();
    let output = folder.path().join("judged");
    let words = told(&["eval", str(&model), str(&data), "--output", str(&output)]);
    assert!(words.contains("accuracy") && words.contains("red") && output.join("report.html").is_file(), "{words}");

    let one = told(&["predict", str(&model), str(&data.join("red/003.png"))]);
    assert!(one.contains("003.png: red "), "{one}");
    let csv = told(&["predict", str(&model), str(&data), "--format", "csv", "--top-k", "1"]);
    assert_eq!((csv.lines().next(), csv.lines().count()), (Some("file,rank,class,probability"), 25));
    let list = format!("{}\n\n{}\r\n", data.join("red/000.png").display(), data.join("green/001.png").display());
    let json = piped(&["predict", str(&model), "-", "--format", "json"], &list);
    let answers: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&answers[0]["classes"][0]["class"], &answers[1]["classes"][0]["class"]),
        (&"red".into(), &"green".into())
    );
    let sum: f64 = answers[0]["classes"].as_array().unwrap().iter().map(|c| c["probability"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-5);
    assert_eq!(piped(&["predict", str(&model), "-", "--format", "json"], "").trim(), "[]");
}

fn piped(arguments: &[&str], input: &str) -> String {
    use std::io::Write;
    let mut child = common::command(arguments)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    text(&output.stdout)
}

#[test]
fn a_report_is_made_again_without_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 12);
    let run = quick_run(&data, &folder.path().join("runs"), &[]);
    let page = fs::read(run.join("report.html")).unwrap();
    let picture = fs::read(run.join("pictures/mistakes.png")).unwrap();
    fs::remove_dir_all(&data).unwrap();
    fs::remove_file(run.join("report.html")).unwrap();
    fs::remove_file(run.join("pictures/mistakes.png")).unwrap();
    told(&["report", str(&run)]);
    assert!(fs::read(run.join("report.html")).unwrap() == page, "the same page");
    assert!(fs::read(run.join("pictures/mistakes.png")).unwrap() == picture, "the same picture");
}

#[test]
fn every_optimizer_schedule_and_variation_trains() {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 10);
    let output = folder.path().join("runs");
    for more in [
        &["--opt", "adam", "--lr-scheduler", "cosine", "--augment", "trivial"][..],
        &["--opt", "adamw", "--lr-scheduler", "plateau", "--augment", "randaugment", "--warmup-epochs", "0.5"],
        &["--opt", "rmsprop", "--lr-scheduler", "step", "--augment", "none", "--mixup", "0.2", "--cutmix", "1"],
        &["--opt", "muon", "--lr-scheduler", "multi-step", "--augment", "flip", "--model-ema", "0.9"],
        &["--opt", "muon", "--head-lr", "0.01"],
        &["--lr-scheduler", "linear", "--label-smoothing", "0.1", "--class-weights", "balanced", "--clip-grad", "1"],
        &["--lr-scheduler", "exponential", "--accumulate", "2", "--early-stopping", "1", "--checkpoint-every", "1"],
        &["--lr-scheduler", "constant", "--model", "resnet18", "--image-size", "16", "--momentum", "0"],
    ] {
        let arguments = [&["train", str(&data), "--output", str(&output)], &QUICK[..], more].concat();
        let told = neurona(&arguments);
        assert!(told.status.success(), "{more:?}: {}", text(&told.stderr));
    }
    assert!(output.join("data-7/checkpoints/epoch-0001.safetensors").is_file());
    assert!(fs::read_to_string(output.join("data-8/config.toml")).unwrap().contains("model = \"resnet18_cifar\""));
}

#[test]
fn weights_of_other_classes_are_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 12);
    let first = quick_run(&data, &folder.path().join("runs"), &["--model", "resnet18", "--image-size", "16"]);
    let other = images(&folder.path().join("other"), &["dog", "cat", "cow"], 12);
    let weights = first.join("model.safetensors");
    let more =
        ["--model", "resnet18_cifar", "--image-size", "16", "--weights", str(&weights), "--freeze", "--head-lr", "0.1"];
    let second = quick_run(&other, &folder.path().join("tuned"), &more);
    let load = |run: &std::path::Path| neurona::io::safetensors::load(run.join("model.safetensors")).unwrap();
    let conv = |run: &std::path::Path| load(run).get("conv1.weight").unwrap().to_vec::<f32>().unwrap();
    assert_eq!(conv(&first), conv(&second), "frozen");
    assert_eq!(load(&second).get("fc.weight").unwrap().shape()[0], 3);

    // PyTorch's file for the network as it is named, whatever the size of the images.
    let file = folder.path().join("r18.pth");
    let made = neurona::models::Spec::new("resnet18", 5).unwrap().build().unwrap();
    neurona::io::pth::save(&file, &made.state_dict().unwrap()).unwrap();
    let more = ["--model", "resnet18", "--image-size", "32", "--weights", str(&file), "--freeze"];
    let third = quick_run(&other, &folder.path().join("named"), &more);
    assert!(fs::read_to_string(third.join("config.toml")).unwrap().contains("model = \"resnet18\""));
    assert_eq!(load(&third).get("conv1.weight").unwrap().shape()[2], 7);
}

#[test]
fn a_run_goes_on_from_another_folder_without_its_weights_file() {
    let folder = tempfile::tempdir().unwrap();
    images(&folder.path().join("data"), &["red", "green"], 12);
    let first = quick_run(&folder.path().join("data"), &folder.path().join("first"), &[]);
    fs::rename(first.join("model.safetensors"), folder.path().join("w.safetensors")).unwrap();
    let arguments = [&["train", "data", "--weights", "w.safetensors", "--name", "run"], &QUICK[..]].concat();
    let done = common::command(&arguments).current_dir(folder.path()).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    fs::remove_file(folder.path().join("w.safetensors")).unwrap();
    let run = folder.path().join("runs/run-1");
    let model = fs::read(run.join("model.safetensors")).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let go_on = ["train", "--resume", str(&run)];
    let done = common::command(&go_on).current_dir(elsewhere.path()).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(fs::read(run.join("model.safetensors")).unwrap() == model, "the same bits");
    let judged = common::command(&["eval", str(&run)]).current_dir(elsewhere.path()).output().unwrap();
    assert!(judged.status.success(), "{}", text(&judged.stderr));
}

#[test]
fn all_of_the_data_is_every_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for (part, each) in [("train", 12), ("val", 5), ("test", 3)] {
        images(&data.join(part), &["red", "green"], each);
    }
    let run = quick_run(&data, &folder.path().join("runs"), &[]);
    for (part, count) in [("train", 24), ("val", 10), ("test", 6), ("all", 40)] {
        let judged: Value = serde_json::from_str(&told(&["eval", str(&run), "--split", part, "--json"])).unwrap();
        assert_eq!((judged["images"].as_u64(), judged["split"].as_str()), (Some(count), Some(part)));
    }
    let words = told(&["eval", str(&run), str(&data), "--split", "all"]);
    assert!(words.starts_with("Overall accuracy") && words.contains("of 40)"), "{words}");
}
