//! `neurona export`: a trained model for other programs.

use crate::failure::{Failure, Outcome, say};
use crate::model_file;
use neurona::io::onnx::{self, Export};
use std::path::PathBuf;

/// Writes a model as ONNX, which onnxruntime and many other programs run.
///
/// The file's notes say the names of the classes, the size of the images, and their mean and deviation.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  neurona export runs/cats-1 cats.onnx
  neurona export model.safetensors cats.onnx --fold-batch-norm")]
pub struct Args {
    /// A model file, or the folder of a run.
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// The file to write.
    #[arg(value_name = "OUT.onnx")]
    out: PathBuf,
    /// Multiply batch norms into the layers before them: fewer operators, but no more training.
    #[arg(long)]
    fold_batch_norm: bool,
    /// Images in a batch: a number, or `dynamic` for any.
    #[arg(long, value_name = "N", default_value = "dynamic", value_parser = batch)]
    batch: Batch,
    /// The version of ONNX's operators, 17 to 21.
    #[arg(long, value_name = "V", default_value_t = *Export::OPSETS.start(), value_parser = clap::value_parser!(i64).range(Export::OPSETS))]
    opset: i64,
}

#[derive(Clone, Copy, Debug)]
struct Batch(Option<usize>);

fn batch(text: &str) -> Result<Batch, String> {
    match (text, text.parse()) {
        ("dynamic", _) => Ok(Batch(None)),
        (_, Ok(n @ 1..=1_000_000)) => Ok(Batch(Some(n))),
        _ => Err("it is `dynamic` or a whole number from 1 to 1000000".into()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    if args.out.extension().is_none_or(|extension| extension != "onnx") {
        return Err(Failure::Told(format!(
            "{} does not end in .onnx; other forms: neurona convert",
            args.out.display()
        )));
    }
    let (net, card) = model_file::open(&args.model)?;
    let options = card.to_onnx().batch(args.batch.0).fold_batch_norm(args.fold_batch_norm).opset(args.opset);
    onnx::export(&net, &options, &args.out)?;
    let size = std::fs::metadata(&args.out).map_err(|e| Failure::file("read", &args.out, e))?.len();
    let batch = args.batch.0.map_or("batch".to_string(), |n| n.to_string());
    let (input, output) = (&options.input_name, &options.output_name);
    let shape = options.input.iter().map(|n| format!(", {n}")).collect::<String>();
    say(format!(
        "{}: {} with {} classes, {input} [{batch}{shape}], {output} [{batch}, {}], {:.1} MB",
        args.out.display(),
        card.spec.name,
        card.classes.len(),
        card.classes.len(),
        size as f64 / 1e6
    ))
}
