//! Images and data files that are wrong, or only unusual.

mod common;

use common::{QUICK, command, images, neurona, png, quick_run, refused, str, text, told};
use std::fs;
use std::path::Path;

fn train(data: &Path, output: &Path, more: &[&str]) -> Vec<String> {
    let fixed = ["train", str(data), "--output", str(output)];
    [&fixed, &QUICK[..], more].concat().into_iter().map(String::from).collect()
}

fn train_refused(data: &Path, output: &Path, more: &[&str]) -> String {
    let arguments = train(data, output, more);
    refused(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), 1)
}

#[test]
fn folders_without_classes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let make = |name: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let empty = make("empty");
    assert!(train_refused(&empty, &runs, &[]).contains("empty"));
    let hollow = make("hollow");
    make("hollow/a");
    make("hollow/b");
    train_refused(&hollow, &runs, &[]);
    let flat = make("flat");
    png(&flat.join("a.png"), [8, 8], [1, 2, 3], 0);
    train_refused(&flat, &runs, &[]);
    let single = images(&folder.path().join("single"), &["red"], 9);
    let error = train_refused(&single, &runs, &[]);
    assert!(error.contains("two or more"), "{error}");
    let few = images(&folder.path().join("few"), &["red", "green"], 1);
    let error = train_refused(&few, &runs, &[]);
    assert!(error.contains("too few"), "{error}");
    assert!(!runs.exists(), "no run was begun");
}

#[test]
fn a_bad_image_stops_the_run_or_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 20);
    let whole = fs::read(data.join("red/000.png")).unwrap();
    let mut enormous = whole.clone();
    // The header claims four thousand million pixels.
    enormous[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let cases: [(&str, &[u8]); 5] = [
        ("zero.jpg", b""),
        ("text.jpg", b"this is not an image\n"),
        ("truncated.png", &whole[..whole.len() / 2]),
        ("enormous.png", &enormous),
        ("other.gif", b"GIF89a"),
    ];
    for (name, bytes) in cases {
        let file = data.join("red").join(name);
        fs::write(&file, bytes).unwrap();
        let runs = folder.path().join("runs");
        let error = train_refused(&data, &runs, &[]);
        assert!(error.contains(name), "{name}: {error}");
        let arguments = train(&data, &runs, &["--skip-bad-images"]);
        let told = told(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(told.contains(name) && told.contains("left out"), "{name}: {told}");
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn predict_reports_bad_images_and_answers_for_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 12);
    let run = quick_run(&data, &folder.path().join("runs"), &[]);
    fs::write(data.join("green/zero.jpg"), "").unwrap();
    fs::write(data.join("green/text.png"), "hello").unwrap();
    let output = neurona(&["predict", str(&run), str(&data), "no/such.jpg", "--format", "csv", "--top-k", "1"]);
    let (told, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), told.lines().count()), (Some(1), 25), "{error}");
    assert!(
        ["zero.jpg", "text.png", "no/such.jpg", "3 images could not be read"].iter().all(|s| error.contains(s)),
        "{error}"
    );
    let nothing = folder.path().join("nothing");
    fs::create_dir(&nothing).unwrap();
    assert!(refused(&["predict", str(&run), str(&nothing)], 1).contains("no images"));
    let error = refused(&["eval", str(&run), str(&data)], 1);
    assert!(error.contains("text.png") || error.contains("zero.jpg"), "{error}");
    assert!(told_eval(&run, &data).contains("2 images could not be read"));
}

fn told_eval(run: &Path, data: &Path) -> String {
    told(&["eval", str(run), str(data), "--skip-bad-images"])
}

#[test]
fn grey_alpha_and_deep_images_train_beside_colours() {
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 10);
    let kinds = [
        (png::ColorType::Grayscale, png::BitDepth::Eight, 1),
        (png::ColorType::GrayscaleAlpha, png::BitDepth::Eight, 2),
        (png::ColorType::Rgba, png::BitDepth::Eight, 4),
        (png::ColorType::Rgb, png::BitDepth::Sixteen, 6),
        (png::ColorType::Grayscale, png::BitDepth::One, 0),
    ];
    for (i, (colour, depth, bytes)) in kinds.into_iter().enumerate() {
        let file = fs::File::create(data.join(format!("green/kind{i}.png"))).unwrap();
        let mut encoder = png::Encoder::new(file, 9, 7);
        encoder.set_color(colour);
        encoder.set_depth(depth);
        let size = if bytes == 0 { 2 * 7 } else { 9 * 7 * bytes };
        encoder.write_header().unwrap().write_image_data(&vec![90; size]).unwrap();
    }
    let run = quick_run(&data, &folder.path().join("runs"), &[]);
    let told = told(&["predict", str(&run), str(&data.join("green")), "--top-k", "1"]);
    assert_eq!(told.lines().count(), 15, "{told}");
}

#[cfg(unix)]
#[test]
fn names_that_are_not_utf8_are_no_trouble() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let data = images(&folder.path().join("data"), &["red", "green"], 10);
    let odd = data.join("red").join(OsStr::from_bytes(b"odd\xff\xfe.png"));
    fs::copy(data.join("red/000.png"), &odd).unwrap();
    let run = quick_run(&data, &folder.path().join("runs"), &[]);
    let answer = command(&["predict", str(&run)]).arg(&odd).output().unwrap();
    assert!(answer.status.success() && text(&answer.stdout).contains("odd"), "{}", text(&answer.stderr));
    // A class's name goes into files that are UTF-8; what is not is shown as well as it can be.
    fs::rename(data.join("red"), data.join(OsStr::from_bytes(b"r\xffd"))).unwrap();
    let arguments = train(&data, &folder.path().join("odd"), &[]);
    let done = neurona(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(
        matches!(done.status.code(), Some(0 | 1)) && !text(&done.stderr).contains("panicked"),
        "{}",
        text(&done.stderr)
    );
}

#[test]
fn broken_batch_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("cifar-10-batches-bin");
    fs::create_dir(&data).unwrap();
    let names = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"];
    let record = |label: u8| [vec![label], vec![7; 3072]].concat();
    let whole: Vec<u8> = (0..10).flat_map(record).collect();
    let write = |batch_2: &[u8]| {
        for name in names {
            let bytes = if name == "data_batch_2" { batch_2 } else { &whole };
            fs::write(data.join(format!("{name}.bin")), bytes).unwrap();
        }
    };
    for bad in [&whole[..whole.len() - 1], b"", &record(10)] {
        write(bad);
        let error = refused(&["train", str(&data), "--output", str(folder.path()), "--epochs", "1"], 1);
        assert!(error.contains("data_batch_2"), "{error}");
    }
}
