//! `neurona data`: the well-known sets on this machine.

mod progress;

use crate::failure::{Outcome, say};
use clap::builder::PossibleValuesParser;
use neurona::data::download::{self, Done, Download, Set, State};
use progress::Progress;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Fetches well-known data sets, and shows which are there.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  neurona data get cifar10
  neurona data list")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Get(Get),
    List(List),
    Path(Show),
}

/// Fetches data sets in their official files and checks them.
///
/// They come from their publishers, a mirror or a folder. A download that breaks off goes on when the command is given
/// again. Proxies are taken from https_proxy, http_proxy, all_proxy and no_proxy, certificates from SSL_CERT_FILE.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  neurona data get cifar10 mnist
  neurona data get cifar10 --from https://mirror.example.org/datasets
  neurona data get fashion-mnist --from /media/stick")]
struct Get {
    /// cifar10, cifar100, mnist, fashion-mnist.
    #[arg(value_name = "NAME", required = true, value_parser = names(), ignore_case = true, hide_possible_values = true)]
    names: Vec<String>,
    /// A folder that has the official files or archives, or the address of a mirror.
    #[arg(long, value_name = "FOLDER|URL")]
    from: Option<String>,
    #[command(flatten)]
    place: Place,
    /// Fetches them even when they are there and right.
    #[arg(long)]
    force: bool,
}

/// Shows which data sets are there, where, and how large they are.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  neurona data list --json")]
struct List {
    #[command(flatten)]
    place: Place,
    /// One JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
}

/// Prints the folder that data sets are kept in.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  ls \"$(neurona data path)\"")]
struct Show {
    #[command(flatten)]
    place: Place,
}

// Not a doc comment: clap would show it as the help of the commands that have it.
#[derive(clap::Args)]
struct Place {
    /// The folder for data sets [default: NEURONA_DATA, or the system's place for a user's data].
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

impl Place {
    fn folder(&self) -> neurona::Result<PathBuf> {
        self.to.clone().map_or_else(download::data_folder, Ok)
    }
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(download::sets().iter().map(|set| set.name))
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Get(args) => get(args),
        Command::List(args) => list(args),
        Command::Path(args) => say(args.place.folder()?.display()),
    }
}

fn get(args: &Get) -> Outcome {
    let data = args.place.folder()?;
    for name in &args.names {
        let set = download::find(name)?;
        let mut download = Download::to(set, &data).force(args.force);
        if let Some(from) = &args.from {
            download = download.from(from);
        }
        let mut progress = Progress::new(set);
        let done = download.run(&mut |event| progress.show(&event));
        progress.finish();
        let folder = download.folder();
        let images = format!("{} training and {} test images", set.images[0], set.images[1]);
        match done? {
            Done::AlreadyThere => say(format!(
                "{} is already in {}, every file with the published digest (--force fetches it again)",
                set.title,
                folder.display()
            ))?,
            Done::Fetched => say(format!("{} is in {}: {images}", set.title, folder.display()))?,
        }
    }
    Ok(())
}

fn list(args: &List) -> Outcome {
    let data = args.place.folder()?;
    if !args.json {
        say(format!("Data sets in {}", data.display()))?;
        say(format!("{:<14} {:<10} {:>8} {:>7} {:>10}  {}", "name", "state", "training", "test", "size", "folder"))?;
    }
    for set in download::sets() {
        let (state, folder) = (set.state(&data), data.join(set.folder));
        let (word, bytes) = (word(&state), set.bytes(&data));
        let [training, test] = set.images;
        if args.json {
            let there = (state != State::Absent).then(|| folder.display().to_string());
            say(json!({ "name": set.name, "state": word, "training_images": training, "test_images": test,
                        "bytes": bytes, "folder": there }))?;
        } else {
            let size = if bytes == 0 { "-".to_string() } else { megabytes(bytes) };
            let place = advice(set, &state, &folder);
            say(format!("{:<14} {word:<10} {training:>8} {test:>7} {size:>10}  {place}", set.name))?;
        }
    }
    Ok(())
}

/// A set's state in a word.
pub fn word(state: &State) -> &'static str {
    match state {
        State::Complete => "complete",
        State::Incomplete(_) => "incomplete",
        State::Absent => "absent",
    }
}

fn advice(set: &Set, state: &State, folder: &Path) -> String {
    match state {
        State::Complete => folder.display().to_string(),
        State::Incomplete(_) => format!("{}; neurona data get {} completes it", folder.display(), set.name),
        State::Absent => format!("neurona data get {} ({})", set.name, megabytes(set.download_bytes())),
    }
}

/// Bytes of memory as people read them.
pub fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// Bytes as people read them.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
