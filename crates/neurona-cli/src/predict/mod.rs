//! `neurona predict`: what images are of.

mod files;
mod print;

use crate::device::Computing;
use crate::failure::{Failure, Outcome};
use crate::{flags, model_file, pipeline};
use clap::ValueEnum;
use neurona::data::transforms::{Compose, Transform};
use neurona::data::{Draws, Image};
use neurona::models::Card;
use neurona::nn::Forward;
use neurona::{Device, Tensor, no_grad};
use print::Printer;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Images that go through the network together.
const BATCH: usize = 32;

/// Says what images are of.
///
/// IMAGES are files, folders (with all that is below them), or - for a list of files on standard input, one a line.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  neurona predict runs/pets-1 photo.jpg
  neurona predict model.safetensors holidays/ --top-k 1 --format csv
  find . -name '*.jpg' | neurona predict runs/pets-1 - --format json")]
pub struct Args {
    /// A model file, or the folder of a run.
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Files, folders, or - for a list on standard input.
    #[arg(value_name = "IMAGES", required = true)]
    images: Vec<PathBuf>,
    /// How many of the likeliest classes to name.
    #[arg(long, value_name = "K", default_value = "3", value_parser = flags::count)]
    top_k: usize,
    /// How to print them.
    #[arg(long, value_name = "NAME", default_value = "table")]
    format: Format,
    #[command(flatten)]
    computing: Computing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines to read.
    Table,
    /// A list of objects.
    Json,
    /// A line for each class of each image.
    Csv,
}

/// What an image is taken for.
pub struct Answer<'a> {
    file: &'a Path,
    /// Classes with their probabilities, the likeliest first.
    top: Vec<(&'a str, f64)>,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let device = args.computing.begin()?;
    let (net, card) = model_file::open(&args.model)?;
    net.to_device(device)?;
    let prepare = pipeline::prepare(&card)?;
    let mut printer = Printer::new(args.format);
    let mut bad = 0;
    printer.begin()?;
    let mut batch = Batch::new(&card, device);
    files::each(&args.images, &mut |file| {
        match batch.add(&file, &prepare) {
            Ok(()) => {}
            Err(problem) => {
                bad += 1;
                // Standard error may be closed; the count at the end still says that something went wrong.
                let _ = writeln!(std::io::stderr(), "error: {problem}");
            }
        }
        if batch.files.len() == BATCH { batch.answer(&net, args.top_k, &mut printer) } else { Ok(()) }
    })?;
    batch.answer(&net, args.top_k, &mut printer)?;
    printer.end()?;
    match bad {
        0 => Ok(()),
        1 => Err(Failure::Told("1 image could not be read".to_string())),
        n => Err(Failure::Told(format!("{n} images could not be read"))),
    }
}

/// Images on their way through the network.
struct Batch<'a> {
    card: &'a Card,
    device: Device,
    files: Vec<PathBuf>,
    pixels: Vec<f32>,
    image: Image,
}

impl<'a> Batch<'a> {
    fn new(card: &'a Card, device: Device) -> Self {
        Batch { card, device, files: Vec::new(), pixels: Vec::new(), image: Image::default() }
    }

    fn size(&self) -> usize {
        self.card.spec.channels * self.card.spec.height * self.card.spec.width
    }

    fn add(&mut self, file: &Path, prepare: &Compose) -> neurona::Result<()> {
        Image::open_into(file, &mut self.image)?;
        prepare.apply(&mut self.image, &mut Draws::new(0, 0, 0))?;
        let start = self.pixels.len();
        self.pixels.resize(start + self.size(), 0.0);
        let written = self.image.write_to(&mut self.pixels[start..]);
        match written {
            Ok(()) => self.files.push(file.to_path_buf()),
            Err(_) => self.pixels.truncate(start),
        }
        written
    }

    /// Prints what the images are taken for, and forgets them.
    fn answer(&mut self, net: &dyn Forward, top_k: usize, printer: &mut Printer) -> Outcome {
        if self.files.is_empty() {
            return Ok(());
        }
        let spec = &self.card.spec;
        let shape = [self.files.len(), spec.channels, spec.height, spec.width];
        let x = Tensor::from_vec(std::mem::take(&mut self.pixels), shape)?.to(self.device)?;
        let probabilities = no_grad(|| net.forward(&x)?.softmax(1))?.to_vec::<f32>()?;
        for (file, row) in self.files.iter().zip(probabilities.chunks_exact(spec.classes)) {
            let mut top: Vec<(&str, f64)> =
                self.card.classes.iter().map(String::as_str).zip(row.iter().map(|p| *p as f64)).collect();
            top.sort_by(|a, b| b.1.total_cmp(&a.1));
            top.truncate(top_k);
            printer.print(&Answer { file, top })?;
        }
        self.files.clear();
        Ok(())
    }
}
