//! `neurona summary`: what a network consists of.

use crate::failure::{Failure, Outcome, say};
use crate::{flags, model_file};
use neurona::models::Spec;
use neurona::nn::{self, Forward, Summary};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Shows a network's layers with their output shapes, parameters and multiply-adds.
///
/// The network is given by its name, by a model file, or by the folder of a run; without one, the networks there are
/// are listed. Nothing is run. Multiply-adds are those of convolutions and
/// matrix products, as in the tables of papers.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  neurona summary                    lists the networks
  neurona summary resnet18
  neurona summary small_cnn --input 1x28x28 --classes 10 --batch-size 64
  neurona summary runs/cifar10-1")]
pub struct Args {
    /// A network's name, a model file, or the folder of a run.
    #[arg(value_name = "MODEL", value_parser = subject)]
    subject: Option<Subject>,
    /// Channels, height and width of an image, as in 3x224x224 [default: those it was made for].
    #[arg(long, value_name = "CxHxW", value_parser = size, requires = "subject")]
    input: Option<[usize; 3]>,
    /// What it tells apart [default: 1000 for networks of 224 pixels, else 10].
    #[arg(long, value_name = "N", value_parser = flags::count, requires = "subject")]
    classes: Option<usize>,
    /// Images in a batch.
    #[arg(long, value_name = "N", default_value = "1", value_parser = flags::count, requires = "subject")]
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
        Err(_) if Path::new(text).exists() => Ok(Subject::File(text.into())),
        // Whoever writes a path does not mean a name.
        Err(_) if text.contains(['/', '\\']) || Path::new(text).extension().is_some() => {
            Err("there is no such file or folder".to_string())
        }
        Err(unknown) => Err(format!("{unknown}; and there is no such file or folder")),
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
    let Some(subject) = &args.subject else { return list(args.json) };
    let (spec, net) = network(subject, args)?;
    let [c, h, w] = args.input.unwrap_or([spec.channels, spec.height, spec.width]);
    let summary = nn::summary(&*net, [args.batch_size, c, h, w])?;
    match args.json {
        true => say(report(&spec, &summary)),
        false => say(format!("{} for {} classes\n\n{summary}", spec.name, spec.classes)),
    }
}

/// The networks there are, at the sizes they were made for.
fn list(as_json: bool) -> Outcome {
    let mut rows = Vec::new();
    for name in Spec::NAMES {
        let mut spec = Spec::new(name, 10)?;
        spec.classes = usual_classes(&spec);
        let parameters = spec.build_empty()?.num_parameters();
        rows.push((spec, parameters));
    }
    if as_json {
        let row = |(spec, parameters): &(Spec, usize)| {
            json!({ "model": spec.name, "parameters": parameters, "classes": spec.classes,
                    "input": [spec.channels, spec.height, spec.width] })
        };
        return say(Value::from(rows.iter().map(row).collect::<Vec<_>>()));
    }
    let width = Spec::NAMES.iter().map(|name| name.len()).max().unwrap_or(0);
    say(format!("{:<width$}  {:>11}  {:<11}  classes", "network", "parameters", "image"))?;
    for (spec, parameters) in &rows {
        let image = format!("{}x{}x{}", spec.channels, spec.height, spec.width);
        let parameters = thousands(*parameters);
        say(format!("{:<width$}  {parameters:>11}  {image:<11}  {}", spec.name, spec.classes))?;
    }
    Ok(())
}

/// A number with a comma before every three digits.
fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let comma = |i: usize| if i > 0 && (digits.len() - i).is_multiple_of(3) { "," } else { "" };
    digits.char_indices().map(|(i, digit)| format!("{}{digit}", comma(i))).collect()
}

fn network(subject: &Subject, args: &Args) -> Outcome<(Spec, Box<dyn Forward>)> {
    match subject {
        Subject::File(path) => {
            let (net, card) = model_file::open(path)?;
            match args.classes {
                Some(classes) if classes != card.spec.classes => Err(Failure::Told(format!(
                    "{}: its classes are fixed: {}, not {classes}",
                    path.display(),
                    card.spec.classes
                ))),
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
