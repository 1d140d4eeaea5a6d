//! Compares a network at full size with torchvision's; `tools/check_models.py` makes the files and runs this.
//!
//! `check_model NAME SIDE FOLDER` loads `weights.safetensors` strictly and compares with `reference.safetensors`;
//! `check_model NAME SIDE --time BATCH` prints the milliseconds of an inference and of a training step.

use neurona::io::{StateDict, safetensors};
use neurona::models::Spec;
use neurona::nn::Forward;
use neurona::optim::{Optimizer, Sgd};
use neurona::{Error, Result, Tensor, no_grad};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, side, folder, batch @ ..] = &arguments[..] else {
        return Err(Error::Argument("check_model NAME SIDE FOLDER, or check_model NAME SIDE --time BATCH".into()));
    };
    let number = |text: &str| text.parse().map_err(|_| Error::Argument(format!("'{text}' is not a number")));
    let side = number(side)?;
    let mut spec = Spec::new(name, 1000)?.images([3, side, side]);
    if spec.known_arguments()?.iter().any(|(name, _)| *name == "dropout") {
        spec = spec.with("dropout", 0.0);
    }
    if folder == "--time" {
        return time(&spec, number(batch.first().map_or("1", |b| b))?);
    }
    let net = spec.build_empty()?;
    net.load_state_dict(&safetensors::load(Path::new(folder).join("weights.safetensors"))?, true)?;
    compare(name, &*net, &safetensors::load(Path::new(folder).join("reference.safetensors"))?)
}

/// Outputs, loss and every gradient against PyTorch's in f64.
fn compare(name: &str, net: &dyn Forward, reference: &StateDict) -> Result<ExitCode> {
    let get = |role: &str| reference.get(role).ok_or_else(|| Error::Argument(format!("no {role} in the reference")));
    let (x, labels) = (get("images")?, get("labels")?);
    net.eval();
    let logits = net.forward(x)?;
    logits.cross_entropy(labels)?.backward()?;
    let in_evaluation = gradients(net, reference, "eval_grad.")?;
    let (logits, wanted) = (logits.to_vec::<f64>()?, get("logits")?.to_vec::<f64>()?);
    let far = logits.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let most = wanted.iter().fold(0.0f64, |m, w| m.max(w.abs()));
    net.zero_grad();
    net.train();
    let loss = net.forward(x)?.cross_entropy(labels)?;
    loss.backward()?;
    let loss_far = (loss.item::<f64>()? - get("loss")?.item::<f64>()?).abs();
    let in_training = gradients(net, reference, "grad.")?;
    println!(
        "  Neurona:       logits {far:.1e} (of {most:.2}), loss {loss_far:.1e}, \
         gradients {in_evaluation:.1e} in evaluation, {in_training:.1e} in training"
    );
    // Rounding moves PyTorch's own gradients too; no more than three times as far is allowed.
    let own = get("own")?.to_vec::<f64>()?;
    let near = |far: f64, own: f64| far <= 1e-4 + 3.0 * own;
    let good = far <= 1e-4 * most.max(1.0) && near(loss_far, 0.0);
    let good = good && near(in_evaluation, own[0]) && near(in_training, own[1]);
    println!("  {name}: {}", if good { "agrees" } else { "DOES NOT AGREE" });
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How far all gradients together are from the reference's, as a share of their length.
fn gradients(net: &dyn Forward, reference: &StateDict, prefix: &str) -> Result<f64> {
    let (mut apart, mut length) = (0.0, 0.0);
    for (name, parameter) in net.named_parameters() {
        let lacks = |what: &str| Error::Argument(format!("{name} has no gradient in {what}"));
        let wanted = reference.get(&format!("{prefix}{name}")).ok_or_else(|| lacks("the reference"))?;
        let (got, wanted) = (parameter.grad().ok_or_else(|| lacks("Neurona"))?, wanted.to_vec::<f64>()?);
        apart += got.to_vec::<f64>()?.iter().zip(&wanted).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        length += wanted.iter().map(|w| w * w).sum::<f64>();
    }
    Ok((apart / length).sqrt())
}

fn time(spec: &Spec, batch: usize) -> Result<ExitCode> {
    neurona::set_num_threads(2);
    let net = spec.build()?;
    let x = Tensor::randn([batch, spec.channels, spec.height, spec.width])?;
    let labels = Tensor::from_vec((0..batch as i64).collect(), [batch])?;
    net.eval();
    let inference = milliseconds(|| no_grad(|| net.forward(&x))?.to_vec::<f32>().map(|_| ()))?;
    net.train();
    let mut optimizer = Sgd::new(net.parameters(), 1e-3).momentum(0.9);
    let training = milliseconds(|| {
        optimizer.zero_grad();
        net.forward(&x)?.cross_entropy(&labels)?.backward()?;
        optimizer.step()
    })?;
    println!("{inference:.0}, {training:.0}");
    Ok(ExitCode::SUCCESS)
}

/// The mean of some runs, after one that builds the plan.
fn milliseconds(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    work()?;
    let (start, mut runs) = (Instant::now(), 0);
    while runs < 3 || start.elapsed().as_secs_f64() < 2.0 && runs < 20 {
        work()?;
        runs += 1;
    }
    Ok(1000.0 * start.elapsed().as_secs_f64() / runs as f64)
}
