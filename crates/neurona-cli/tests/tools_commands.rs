//! `data`, `doctor`, `summary` and `completions` as a user calls them.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::sync::mpsc;

/// The command with nothing in its environment that would change what it does.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neurona"));
    command.args(arguments);
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command
}

fn neurona(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn told(arguments: &[&str]) -> String {
    let output = neurona(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&told(arguments)).unwrap()
}

#[test]
fn help_shows_examples() {
    for arguments in [
        &["data"][..],
        &["data", "get"],
        &["data", "list"],
        &["data", "path"],
        &["doctor"],
        &["summary"],
        &["completions"],
    ] {
        let help = told(&[arguments, &["--help"]].concat());
        assert!(help.contains("Example:"), "{arguments:?}: {help}");
    }
}

#[test]
fn mistakes_on_the_command_line_end_with_status_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["data", "get"], "NAME"),
        (&["data", "get", "cifar"], "cifar10"),
        (&["data", "get", "imagenet"], "fashion-mnist"),
        (&["data", "gett"], "get"),
        (&["data", "get", "mnist", "--form", "x"], "--from"),
        (&["completions", "bsh"], "bash"),
        (&["summary", "--input", "3x32x32"], "MODEL"),
        (&["summary", "resnet-18"], "did you mean resnet18?"),
        (&["summary", "no/such.safetensors"], "there is no such file"),
        (&["summary", "lenet", "--input", "32x32"], "as in 3x224x224"),
        (&["summary", "lenet", "--classes", "0"], "from 1 to"),
        (&["doctor", "--jsn"], "--json"),
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
fn summary_of_a_network_and_of_a_model_file() {
    let table = told(&["summary", "lenet"]);
    assert!(table.contains("Parameters 62,006") && table.contains("Multiply-adds 651,720"), "{table}");
    assert!(table.lines().any(|line| line.starts_with("fc1 ") && line.ends_with("48,000")), "{table}");

    let list = told(&["summary"]);
    let row = |name: &str| list.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap_or_default();
    assert!(row("lenet").contains(" 62,006 ") && row("resnet18").contains(" 11,689,512 "), "{list}");
    assert!(row("resnet18").contains("3x224x224"), "{list}");
    assert_eq!(list.lines().count(), 1 + neurona::models::Spec::NAMES.len(), "{list}");
    let same = json(&["summary", "--json"]);
    assert_eq!(same.as_array().unwrap().len(), neurona::models::Spec::NAMES.len());

    let large = json(&["summary", "resnet18", "--json", "--batch-size", "2"]);
    assert_eq!((large["parameters"].as_u64(), large["classes"].as_u64()), (Some(11_689_512), Some(1000)));
    assert_eq!(large["multiply_adds"].as_u64(), Some(2 * 1_814_073_344));
    assert_eq!(large["input"], serde_json::json!([2, 3, 224, 224]));
    assert_eq!(large["layers"][0]["output"], serde_json::json!([2, 64, 112, 112]));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let spec = neurona::models::Spec::new("small_cnn", 3).unwrap().images([1, 28, 28]);
    let net = spec.build().unwrap();
    neurona::models::Card::new(spec, ["a", "b", "c"]).save(&path, &*net).unwrap();
    let file = json(&["summary", path.to_str().unwrap(), "--json"]);
    assert_eq!((file["model"].as_str(), file["classes"].as_u64()), (Some("small_cnn"), Some(3)));
    assert_eq!(file["parameters"].as_u64(), Some(net.num_parameters() as u64));
    assert_eq!(file["input"], serde_json::json!([1, 1, 28, 28]));
    assert_eq!(json(&["summary", folder.path().to_str().unwrap(), "--json"]), file, "the folder of a run");

    fs::write(&path, "not a model").unwrap();
    let broken = neurona(&["summary", path.to_str().unwrap()]);
    assert_eq!(broken.status.code(), Some(1), "{}", text(&broken.stderr));
    let small = neurona(&["summary", "vgg16", "--input", "3x28x28"]);
    assert_eq!(small.status.code(), Some(1), "{}", text(&small.stderr));
}

#[test]
fn doctor_reports_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let mut doctor = command(&["doctor", "--json"]);
    doctor.env("NEURONA_DATA", folder.path().join("sets")).env("NEURONA_THREADS", "1").env("NEURONA_ISA", "portable");
    doctor.env("NEURONA_WINOGRAD", "0");
    let output = doctor.current_dir(folder.path()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["threads"].as_u64(), report["kernels"].as_str()), (Some(1), Some("portable")), "{report}");
    assert!(report["settings"].to_string().contains("NEURONA_WINOGRAD=0"), "{report}");
    assert!(report["cores"].as_u64().unwrap() >= 1);
    assert_eq!((&report["data_folder_writable"], &report["current_folder_writable"]), (&true.into(), &true.into()));
    assert_eq!(report["sets"][0]["state"], "absent");
    let advice = report["advice"].to_string();
    assert!(advice.contains("neurona data get"), "{advice}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing behind");

    let words = told(&["doctor"]);
    for title in [
        "CPU",
        "kernels",
        "cores",
        "memory",
        "GPU",
        "driver",
        "NVRTC",
        "compiled kernels",
        "data folder",
        "current folder",
    ] {
        assert!(words.lines().any(|line| line.starts_with(title)), "{title}: {words}");
    }
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = told(&["completions", shell]);
        for word in ["doctor", "summary", "batch-size"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn lists_and_paths() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    assert_eq!(told(&["data", "path", "--to", data]).trim(), data);
    let path = command(&["data", "path"]).env("NEURONA_DATA", "here").output().unwrap();
    assert_eq!(text(&path.stdout).trim(), "here");

    let batches = folder.path().join("cifar-10-batches-bin");
    fs::create_dir(&batches).unwrap();
    fs::write(batches.join("test_batch.bin"), [0; 30]).unwrap();
    let list = told(&["data", "list", "--to", data]);
    let row = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap().to_string();
    assert!(row("cifar10 ").contains("incomplete") && row("mnist ").contains("absent"), "{list}");
    assert!(row("cifar10 ").contains("neurona data get cifar10 completes it"), "{list}");
    let first = told(&["data", "list", "--to", data, "--json"]);
    let first: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["name"], &first["state"], &first["bytes"]),
        (&"cifar10".into(), &"incomplete".into(), &30.into())
    );
}

#[test]
fn what_cannot_be_fetched_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let get = |from: &str| neurona(&["data", "get", "mnist", "--to", data.to_str().unwrap(), "--from", from]);
    let empty = get(folder.path().to_str().unwrap());
    assert_eq!(empty.status.code(), Some(1));
    assert!(text(&empty.stderr).contains("MNIST is not all there: no train-images"), "{}", text(&empty.stderr));
    assert!(text(&get("/no/such/place").stderr).contains("there is no such folder"));
    fs::write(folder.path().join("file"), "").unwrap();
    let below = folder.path().join("file");
    let refused = neurona(&["data", "get", "mnist", "--to", below.to_str().unwrap(), "--from", "http://127.0.0.1:1"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).starts_with("error: cannot make the folder"), "{}", text(&refused.stderr));
}

/// Answers two requests of one connection, the first of which asks for a way through.
fn proxy() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (lines, received) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for answer in
            ["HTTP/1.1 200 Connection established\r\n\r\n", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"]
        {
            let request = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let request: Vec<String> = request.take_while(|line| !line.is_empty()).collect();
            lines.send(request[0].clone()).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (address, received)
}

#[test]
fn proxies_of_the_environment_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["data", "get", "mnist", "--to", folder.path().to_str().unwrap(), "--from", "http://far.invalid/sets"];
    let (address, received) = proxy();
    let output = command(&arguments).env("http_proxy", &address).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(received.recv().unwrap(), "CONNECT far.invalid:80 HTTP/1.1");
    assert_eq!(received.recv().unwrap(), "GET /sets/train-images-idx3-ubyte.gz HTTP/1.1");
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("cannot download http://far.invalid/sets/train-images-idx3-ubyte.gz"), "{error}");
    assert!(error.contains("404 Not Found"), "{error}");

    let wrong = command(&arguments).env("HTTP_PROXY", "ftp://x").output().unwrap();
    assert!(text(&wrong.stderr).contains("HTTP_PROXY=ftp://x names no usable proxy"), "{}", text(&wrong.stderr));
}
