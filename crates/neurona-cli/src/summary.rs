//! `neurona summary`: what a network consists of.

use crate::failure::{Outcome, say};
use crate::flags;
use neurona::models::{self, Spec};
use neurona::nn::{self, Forward, Summary};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Shows a network's layers with their output shapes, parameters and multiply-adds.
///
/// The network is given by its name, or by a model file. Nothing is run. Multiply-adds are those of convolutions and
/// matrix products, as in the tables of papers.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  neurona summary resnet18
  neurona summary small_cnn --input 1x28x28 --classes 10 --batch-size 64
  neurona summary runs/cifar10-1/model.safetensors")]
pub struct Args {
    /// A network's name, or a model file.
    #[arg(value_name = "MODEL|FILE", value_parser = subject)]
    subject: Subject,
    /// Channels, height and width of an image, as in 3x224x224 [default: those it was made for].
    #[arg(long, value_name = "CxHxW", value_parser = size)]
    input: Option<[usize; 3]>,
    /// What it tells apart [default: 1000 for networks of 224 pixels, else 10].
    #[arg(long, value_name = "N", value_parser = flags::count)]
    classes: Option<usize>,
    /// Images in a batch.
    #[arg(long, value_name = "N", default_value = "1", value_parser = flags::count)]
    batch_size: usize,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// What to show.
#[derive(Clone, Debug)]
enum Subject {
    Network(Spec),
    File(PathBuf),
}

/// ImageNet's classes and CIFAR-10's: what networks of these sizes are known for.
fn usual_classes(spec: &Spec) -> usize {
    if spec.height >= 224 { 1000 } else { 10 }
}

fn subject(text: &str) -> Result<Subject, String> {
    match Spec::new(text, 10) {
        Ok(spec) => Ok(Subject::Network(spec)),
        Err(_) if Path::new(text).is_file() => Ok(Subject::File(text.into())),
        // Whoever writes a path does not mean a name.
        Err(_) if text.contains(['/', '\\']) || Path::new(text).extension().is_some() => {
            Err("there is no such file".to_string())
        }
        Err(unknown) => Err(format!("{unknown}; and there is no such file")),
    }
}

fn size(text: &str) -> Result<[usize; 3], String> {
    let sizes: Option<Vec<usize>> = text.split(['x', 'X', '×']).map(|size| size.trim().parse().ok()).collect();
    match sizes.as_deref() {
        Some(&[c @ 1..=4096, h @ 1..=65_536, w @ 1..=65_536]) => Ok([c, h, w]),
        _ => Err("it is channels, height and width, as in 3x224x224".to_string()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let (spec, net) = network(args)?;
    let [c, h, w] = args.input.unwrap_or([spec.channels, spec.height, spec.width]);
    let summary = nn::summary(&*net, [args.batch_size, c, h, w])?;
    match args.json {
        true => say(report(&spec, &summary)),
        false => say(format!("{} for {} classes\n\n{summary}", spec.name, spec.classes)),
    }
}

fn network(args: &Args) -> neurona::Result<(Spec, Box<dyn Forward>)> {
    match &args.subject {
        Subject::File(path) => {
            let (net, card) = models::open(path)?;
            let wrong = |problem: &str| neurona::Error::Format { path: path.clone(), problem: problem.into() };
            match args.classes {
                Some(classes) if classes != card.spec.classes => {
                    Err(wrong(&format!("its classes are fixed: {}, not {classes}", card.spec.classes)))
                }
                _ => Ok((card.spec, net)),
            }
        }
        Subject::Network(spec) => {
            let size = args.input.unwrap_or([spec.channels, spec.height, spec.width]);
            let mut spec = spec.clone().images(size);
            spec.classes = args.classes.unwrap_or_else(|| usual_classes(&spec));
            let net = spec.build_empty()?;
            Ok((spec, net))
        }
    }
}

fn report(spec: &Spec, summary: &Summary) -> Value {
    let row = |row: &nn::Row| {
        json!({ "layer": row.path, "kind": row.kind, "output": row.output.to_vec(), "parameters": row.parameters,
                "multiply_adds": row.multiply_adds })
    };
    let rows: Vec<Value> = summary.rows.iter().map(row).collect();
    json!({ "model": spec.name, "classes": spec.classes, "input": summary.input.to_vec(), "layers": rows,
            "parameters": summary.parameters, "trainable_parameters": summary.trainable_parameters,
            "multiply_adds": summary.multiply_adds, "parameter_bytes": summary.parameter_bytes,
            "activation_bytes": summary.activation_bytes })
}
