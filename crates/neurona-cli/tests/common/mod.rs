//! What the tests of the command have in common.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The command with nothing in its environment that would change what it does.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neurona"));
    command.args(arguments).env_remove("NEURONA_DEBUG").env_remove("NEURONA_THREADS");
    command
}

/// Runs it.
pub fn neurona(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// What it printed, when all went well.
pub fn told(arguments: &[&str]) -> String {
    let output = neurona(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What it said when it failed with this status: one line, and no panic.
pub fn refused(arguments: &[&str], status: i32) -> String {
    let output = neurona(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
    assert!(error.starts_with("error: ") && !error.contains("panicked"), "{arguments:?}: {error}");
    error
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn str(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A PNG file of one colour with some speckles, so that no two are the same.
pub fn png(path: &Path, [width, height]: [u32; 2], colour: [u8; 3], speckle: usize) {
    let mut rgb = colour.repeat((width * height) as usize);
    let n = rgb.len();
    (0..12).for_each(|i| rgb[(speckle * 31 + i * 7) % n] ^= 0x5f);
    let mut encoder = png::Encoder::new(fs::File::create(path).unwrap(), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&rgb).unwrap();
}

/// A folder of classes that differ in colour, with as many images each.
pub fn images(root: &Path, classes: &[&str], each: usize) -> PathBuf {
    const COLOURS: [[u8; 3]; 4] = [[200, 40, 40], [40, 200, 40], [40, 40, 200], [190, 190, 40]];
    for (class, colour) in classes.iter().zip(COLOURS) {
        let folder = root.join(class);
        fs::create_dir_all(&folder).unwrap();
        (0..each).for_each(|i| png(&folder.join(format!("{i:03}.png")), [12, 12], colour, i));
    }
    root.to_path_buf()
}

/// Settings that make a run as short as it can be.
pub const QUICK: [&str; 8] = ["--epochs", "1", "--batch-size", "8", "--image-size", "8", "--workers", "0"];

/// Trains shortly on this data; gives the folder of the run.
pub fn quick_run(data: &Path, output: &Path, more: &[&str]) -> PathBuf {
    let arguments = [&["train", str(data), "--output", str(output), "--name", "run"], &QUICK[..], more].concat();
    told(&arguments);
    let mut runs: Vec<_> = fs::read_dir(output).unwrap().map(|e| e.unwrap().path()).collect();
    runs.sort();
    runs.pop().unwrap()
}

/// The columns of metrics.csv that do not depend on the clock.
pub fn figures(run: &Path) -> Vec<Vec<String>> {
    let table = fs::read_to_string(run.join("metrics.csv")).unwrap();
    table.lines().map(|line| line.split(',').take(6).map(String::from).collect()).collect()
}
