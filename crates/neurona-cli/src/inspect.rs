//! `neurona inspect`: what a weights file holds.

use crate::failure::{Failure, Outcome, say};
use neurona::io::inspect::{Inspection, TensorInfo, inspect};
use std::path::PathBuf;

/// Lists the tensors of a weights file without loading them.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  neurona inspect model.safetensors    names, types, shapes and sizes, and the notes that travel with them
  neurona inspect checkpoint.pth --json | jq '.tensors[].name'")]
pub struct Args {
    /// A .safetensors, .pth, .pt or .onnx file
    file: PathBuf,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let found = inspect(&args.file)?;
    let size = std::fs::metadata(&args.file).map_err(|e| Failure::file("read", &args.file, e))?.len();
    if args.json { say(json(&found, size)) } else { table(&found, size, args) }
}

fn json(found: &Inspection, size: u64) -> serde_json::Value {
    let tensors: Vec<_> = found
        .tensors
        .iter()
        .map(|t| serde_json::json!({ "name": t.name, "dtype": t.dtype, "shape": t.shape, "bytes": t.bytes }))
        .collect();
    let metadata: serde_json::Map<_, _> =
        found.metadata.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    serde_json::json!({
        "format": found.format.name(),
        "file_bytes": size,
        "elements": found.tensors.iter().map(elements).sum::<u64>(),
        "tensors": tensors,
        "metadata": metadata,
        "notes": found.notes,
    })
}

fn table(found: &Inspection, size: u64, args: &Args) -> Outcome {
    say(format!("{}: {}, {}", args.file.display(), found.format.name(), bytes(size)))?;
    found.notes.iter().try_for_each(|note| say(printable(note)))?;
    found.metadata.iter().try_for_each(|(key, value)| say(printable(&format!("{key}: {}", shortened(value)))))?;
    let rows: Vec<[String; 4]> = found
        .tensors
        .iter()
        .map(|t| [printable(&t.name), t.dtype.clone(), format!("{:?}", t.shape), bytes(t.bytes)])
        .collect();
    let wide = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let [name, dtype, shape] = [wide(0), wide(1), wide(2)];
    for row in &rows {
        say(format!("  {:name$}  {:dtype$}  {:shape$}  {:>10}", row[0], row[1], row[2], row[3]))?;
    }
    let total: u64 = found.tensors.iter().map(elements).sum();
    say(format!("{} tensors, {total} elements", rows.len()))
}

fn elements(tensor: &TensorInfo) -> u64 {
    tensor.shape.iter().fold(1, |n, size| n.saturating_mul(*size as u64))
}

/// Names come from the file: nothing in them may move the cursor or colour the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn shortened(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_string(),
    }
}

fn bytes(n: u64) -> String {
    match n {
        0..1000 => format!("{n} B"),
        1000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.2} GB", n as f64 / 1e9),
    }
}
