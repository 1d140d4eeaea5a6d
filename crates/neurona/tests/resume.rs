//! A run that was interrupted, killed or that could not save goes on to the bits of one that never was.

use neurona::data::{Batch, Batches, TensorBatches};
use neurona::loss::CrossEntropyLoss;
use neurona::nn::{BatchNorm2d, Conv2d, Dropout, Flatten, Linear, MaxPool2d, Module, ReLU, Sequential};
use neurona::optim::{Adam, Sgd};
use neurona::schedule::Plateau;
use neurona::train::{
    BatchEnd, Callback, Checkpoint, Checkpoints, Context, CsvLog, EarlyStopping, Fit, JsonLines, Outcome, StopFlag,
    TensorBoard, Trainer,
};
use neurona::{Error, Result, Tensor, manual_seed};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

mod common;
use common::Choices;

const EPOCHS: usize = 5;
const BATCHES: usize = 12;

/// Random numbers belong to the process: one run at a time draws them.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(|e| e.into_inner())
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("neurona-resume-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What happens to a run on its way.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Undisturbed,
    /// Asked to stop after so many batches.
    Asked(usize),
    /// Lost after so many batches, with nothing saved since the last time.
    Lost(usize),
}

struct Hand {
    fate: Fate,
    batches: usize,
    flag: StopFlag,
    pause: Duration,
}

impl Callback for Hand {
    fn on_batch_end(&mut self, _at: &mut Context<'_>, _batch: &BatchEnd) -> Result<()> {
        self.batches += 1;
        std::thread::sleep(self.pause);
        match self.fate {
            Fate::Asked(after) if after == self.batches => self.flag.raise(),
            Fate::Lost(after) if after == self.batches => return Err(Error::Argument("lost".into())),
            _ => {}
        }
        Ok(())
    }
}

fn network() -> Result<Sequential> {
    Ok(Sequential::new()
        .add(Conv2d::new(1, 4, 3)?)
        .add(BatchNorm2d::new(4)?)
        .add(ReLU::new())
        .add(MaxPool2d::new(2))
        .add(Flatten::new())
        .add(Dropout::new(0.3))
        .add(Linear::new(4 * 16, 3)?))
}

/// Trains in a folder, from its last checkpoint when there is one: as many kinds of state as there are.
fn train(folder: &Path, epochs: usize, fate: Fate, pause: Duration) -> Result<(Sequential, Fit)> {
    manual_seed(7);
    let x = Tensor::randn([BATCHES * 16, 1, 10, 10])?;
    // Whether an image is dark, neither or bright.
    let means = x.mean_dims(&[1, 2, 3], false)?.to_vec::<f32>()?;
    let y = means.iter().map(|m| 1 + (m.abs() > 0.05) as i64 * m.signum() as i64);
    let y = Tensor::from_vec(y.collect(), [BATCHES * 16])?;
    let batches = TensorBatches::new(&x, &y)?.batch_size(16).shuffle(1);
    let validation = TensorBatches::new(&x.narrow(0, 0, 48)?, &y.narrow(0, 0, 48)?)?.batch_size(24);
    let net = network()?;
    let flag = StopFlag::new();
    let hand = Hand { fate, batches: 0, flag: flag.clone(), pause };
    let checkpoints =
        Checkpoints::new(folder.join("checkpoints")).best("val_accuracy").every_steps(3).note("who", "test");
    let mut trainer = Trainer::new(&net, Adam::new(net.parameters(), 0.01))
        .loss(CrossEntropyLoss::new().label_smoothing(0.1))
        .plateau(Plateau::new(0.01).patience(0).threshold(0.05).factor(0.5), "train_loss")
        .accumulate(2)
        .clip_norm(1.0)
        .ema_warm_up(0.95)
        .epochs(epochs)
        .validation(&validation)
        .callback(CsvLog::new(folder.join("metrics.csv")))
        .callback(JsonLines::new(folder.join("metrics.jsonl")))
        .callback(TensorBoard::new(folder.join("tensorboard")).every_steps(2))
        .callback(EarlyStopping::new("val_loss").patience(100).restore_best())
        .callback(hand)
        .checkpoints(checkpoints)
        .stop_flag(&flag);
    let last = folder.join("checkpoints/last.safetensors");
    if last.exists() {
        trainer = trainer.resume(last)?;
    }
    let fit = trainer.run(&batches)?;
    Ok((net, fit))
}

/// The columns that do not depend on the clock.
fn table(path: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path).unwrap();
    let timeless = |line: &str| line.split(',').take(6).map(String::from).collect();
    text.lines().map(timeless).collect()
}

fn bytes(net: &Sequential, folder: &Path) -> Vec<u8> {
    let path = folder.join("final.safetensors");
    net.save(&path).unwrap();
    fs::read(path).unwrap()
}

fn weights(path: &Path) -> Vec<(String, Vec<f32>)> {
    let state = Checkpoint::open(path).unwrap().weights();
    state.iter().map(|(name, value)| (name.to_string(), value.to_vec().unwrap())).collect()
}

/// Two folders of runs that ended alike.
fn same(one: &Path, two: &Path) {
    let read = |folder: &Path, name: &str| fs::read(folder.join(name)).unwrap();
    assert!(read(one, "final.safetensors") == read(two, "final.safetensors"), "the weights differ");
    assert_eq!(table(&one.join("metrics.csv")), table(&two.join("metrics.csv")));
    assert_eq!(
        table(&two.join("metrics.csv")).len(),
        1 + Checkpoint::open(one.join("checkpoints/last.safetensors")).unwrap().epochs_done()
    );
    assert_eq!(
        fs::read_to_string(two.join("metrics.jsonl")).unwrap().lines().count(),
        table(&one.join("metrics.csv")).len() - 1
    );
    for name in ["checkpoints/best.safetensors", "checkpoints/last.safetensors"] {
        assert_eq!(weights(&one.join(name)), weights(&two.join(name)), "{name}");
    }
}

#[test]
fn interrupted_at_any_step_it_ends_with_the_same_bits() -> Result<()> {
    let _alone = alone();
    let whole = Folder::new("whole");
    let (net, fit) = train(&whole.0, EPOCHS, Fate::Undisturbed, Duration::ZERO)?;
    bytes(&net, &whole.0);
    assert_eq!((fit.outcome, fit.history.rows.len()), (Outcome::Finished, EPOCHS));
    // The plateau has come, or its state was not tested.
    assert!(fit.history.rows.iter().any(|row| row.lr < 0.01), "{:?}", fit.history.column("train_loss"));
    let mut choices = Choices::new(11);
    for round in 0..6 {
        let folder = Folder::new(&format!("round{round}"));
        let mut parts = 0;
        let net = loop {
            parts += 1;
            let after = 1 + choices.below(2 * BATCHES);
            let fate = if choices.one_in(2) { Fate::Asked(after) } else { Fate::Lost(after) };
            match train(&folder.0, EPOCHS, fate, Duration::ZERO) {
                Ok((net, fit)) if fit.outcome == Outcome::Finished => break net,
                Ok((_, fit)) => assert_eq!(fit.outcome, Outcome::Interrupted),
                Err(error) => assert_eq!(error.to_string(), "lost"),
            }
            assert!(parts < 500, "it never ends");
        };
        bytes(&net, &folder.0);
        assert!(parts > 1, "nothing was interrupted");
        same(&whole.0, &folder.0);
    }
    Ok(())
}

#[test]
fn more_epochs_go_on_from_the_end() -> Result<()> {
    let _alone = alone();
    let (long, short) = (Folder::new("long"), Folder::new("short"));
    let (net, _) = train(&long.0, 4, Fate::Undisturbed, Duration::ZERO)?;
    bytes(&net, &long.0);
    train(&short.0, 2, Fate::Undisturbed, Duration::ZERO)?;
    let (net, fit) = train(&short.0, 4, Fate::Undisturbed, Duration::ZERO)?;
    assert_eq!(fit.history.rows.len(), 4);
    bytes(&net, &short.0);
    same(&long.0, &short.0);
    let checkpoint = Checkpoint::open(fit.checkpoint.unwrap())?;
    assert_eq!((checkpoint.epochs_done(), checkpoint.notes()["who"].as_str()), (4, "test"));
    let error = train(&short.0, 3, Fate::Undisturbed, Duration::ZERO).err().unwrap().to_string();
    assert!(error.ends_with("has 4 epochs done, more than the 3 asked for"), "{error}");
    Ok(())
}

#[test]
fn a_checkpoint_of_another_run_is_refused() -> Result<()> {
    let _alone = alone();
    let folder = Folder::new("other");
    let (x, y) = (Tensor::randn([8, 2])?, Tensor::from([0i64, 1, 0, 1, 0, 1, 0, 1]));
    let batches = TensorBatches::new(&x, &y)?;
    let small = Sequential::new().add(Linear::new(2, 2)?);
    let run = |net: &Sequential, rate: f64| -> Result<Fit> {
        let trainer = Trainer::new(net, Sgd::new(net.parameters(), rate)).setting("data", "eight points");
        trainer.checkpoints(Checkpoints::new(&folder.0).every_epochs(1).keep(2)).epochs(3).run(&batches)
    };
    let last = run(&small, 0.1)?.checkpoint.unwrap();
    let mut kept: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    kept.sort();
    assert_eq!(kept, ["epoch-0002.safetensors", "epoch-0003.safetensors", "last.safetensors"]);

    let sgd = |net: &Sequential| Sgd::new(net.parameters(), 0.1);
    let problem = |trainer: Trainer<'_>| {
        let error = trainer.epochs(4).resume(&last).unwrap().run(&batches).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: is a checkpoint of another ", last.display())), "{error}");
        error
    };
    let large = Sequential::new().add(Linear::new(2, 2)?).add_named("head", Linear::new(2, 2)?);
    let error = problem(Trainer::new(&large, sgd(&large)).setting("data", "eight points"));
    assert!(error.contains("another model") && error.contains("missing: head.weight, head.bias"), "{error}");
    let wide = Sequential::new().add(Linear::new(2, 3)?);
    let error = problem(Trainer::new(&wide, sgd(&wide)).setting("data", "eight points"));
    assert!(error.contains("of another shape: 0.weight (model [3, 2], file [2, 2])"), "{error}");
    let adam = Adam::new(small.parameters(), 0.1);
    let error = problem(Trainer::new(&small, adam).setting("data", "eight points"));
    assert!(
        error.contains("optimizer: ") && error.contains("Sgd in the checkpoint, ") && error.contains("Adam now"),
        "{error}"
    );
    let error = problem(Trainer::new(&small, sgd(&small)).setting("data", "nine points").accumulate(2));
    assert!(error.contains("batches to an update: 1 in the checkpoint, 2 now; "), "{error}");
    assert!(error.ends_with("setting data: eight points in the checkpoint, nine points now"), "{error}");
    let momentum = Sgd::new(small.parameters(), 0.1).momentum(0.9);
    let error = problem(Trainer::new(&small, momentum).setting("data", "eight points"));
    assert!(error.contains("another optimizer: ") && error.contains("missing: "), "{error}");

    // What is no checkpoint at all.
    let model = folder.0.join("model.safetensors");
    small.save(&model)?;
    let open = |path: &Path| Checkpoint::open(path).unwrap_err().to_string();
    assert!(open(&model).contains("is not a checkpoint of a run, though perhaps a model"));
    let whole = fs::read(&last).unwrap();
    fs::write(&model, &whole[..whole.len() - 1]).unwrap();
    assert!(open(&model).contains("was cut off"));
    let text = String::from_utf8_lossy(&whole).replace("version\\\":1", "version\\\":9");
    assert!(text.contains("version\\\":9"));
    let position = whole.windows(11).position(|w| w == b"version\\\":1").unwrap();
    let mut newer = whole.clone();
    newer[position + 10] = b'9';
    fs::write(&model, newer).unwrap();
    assert!(open(&model).ends_with("is a checkpoint of version 9; this program reads version 1"));
    Ok(())
}

/// Batches of which the second is left out, as when a loader can read none of its images.
struct Holes {
    whole: TensorBatches,
    seen: Mutex<Vec<(u64, usize)>>,
}

impl Batches for Holes {
    fn images(&self) -> usize {
        self.whole.images()
    }
    fn batches(&self) -> usize {
        self.whole.batches()
    }
    fn epoch(&self, epoch: u64, first: usize) -> Result<Box<dyn Iterator<Item = Result<Batch>> + '_>> {
        let there = self.whole.epoch(epoch, first)?.filter(|batch| batch.as_ref().is_ok_and(|b| b.number != 1));
        Ok(Box::new(there.inspect(move |batch| {
            let number = batch.as_ref().map_or(99, |b| b.number);
            self.seen.lock().unwrap().push((epoch, number));
        })))
    }
}

#[test]
fn a_batch_that_is_left_out_is_not_made_up_for() -> Result<()> {
    let _alone = alone();
    let folder = Folder::new("holes");
    let (x, y) = (Tensor::randn([8, 2])?, Tensor::from([0i64, 1, 0, 1, 0, 1, 0, 1]));
    let whole = TensorBatches::new(&x, &y)?.batch_size(2);
    let batches = Holes { whole, seen: Mutex::default() };
    let net = Sequential::new().add(Linear::new(2, 2)?);
    for round in 0.. {
        let flag = StopFlag::new();
        let hand = Hand { fate: Fate::Asked(1), batches: 0, flag: flag.clone(), pause: Duration::ZERO };
        let trainer = Trainer::new(&net, Sgd::new(net.parameters(), 0.1)).epochs(2).callback(hand).stop_flag(&flag);
        let mut trainer = trainer.checkpoints(Checkpoints::new(&folder.0));
        if round > 0 {
            trainer = trainer.resume(folder.0.join("last.safetensors"))?;
        }
        if trainer.run(&batches)?.outcome == Outcome::Finished {
            break;
        }
    }
    assert_eq!(*batches.seen.lock().unwrap(), [(0, 0), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3)]);
    Ok(())
}

#[test]
fn lost_weights_do_not_replace_the_last_good_checkpoint() -> Result<()> {
    let _alone = alone();
    let folder = Folder::new("diverged");
    let (x, y) = (Tensor::randn([8, 2])?.mul_scalar(1e20)?, Tensor::from([0i64, 1, 0, 1, 0, 1, 0, 1]));
    let batches = TensorBatches::new(&x, &y)?.batch_size(2);
    let net = Sequential::new().add(Linear::new(2, 2)?);
    let trainer = Trainer::new(&net, Sgd::new(net.parameters(), 1e30));
    let error = trainer.checkpoints(Checkpoints::new(&folder.0).every_steps(1)).epochs(3).run(&batches).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("in epoch 1, step ") && error.ends_with("; try a lower learning rate"), "{error}");
    for (name, values) in weights(&folder.0.join("last.safetensors")) {
        assert!(values.iter().all(|v| v.is_finite()), "{name}: {values:?}");
    }
    Ok(())
}

/// This test again, as a process that trains in a folder.
fn child(folder: &Path, limit: Option<&str>) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut command = match limit {
        Some(limit) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("{limit}; exec \"$0\" \"$@\"")).arg(program);
            shell
        }
        None => Command::new(program),
    };
    command.args(["--ignored", "--exact", "a_process_that_trains", "--nocapture"]).env("NEURONA_TEST_FOLDER", folder);
    command.env("NEURONA_THREADS", "1").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
#[ignore = "other tests run it as a process of its own"]
fn a_process_that_trains() {
    let folder = PathBuf::from(std::env::var_os("NEURONA_TEST_FOLDER").expect("the folder to train in"));
    let (net, _) =
        train(&folder, 40, Fate::Undisturbed, Duration::from_millis(5)).unwrap_or_else(|error| panic!("{error}"));
    bytes(&net, &folder);
}

#[test]
fn killed_at_twenty_moments_it_ends_with_the_same_bits() {
    let (whole, folder) = (Folder::new("unharmed"), Folder::new("killed"));
    let unharmed = child(&whole.0, None);
    let mut choices = Choices::new(13);
    let mut kills = 0;
    while kills < 20 {
        let mut process = child(&folder.0, None);
        std::thread::sleep(Duration::from_millis(20 + choices.below(180) as u64));
        assert!(process.try_wait().unwrap().is_none(), "it ended after {kills} kills: make the run longer");
        process.kill().unwrap();
        process.wait().unwrap();
        kills += 1;
    }
    for process in [child(&folder.0, None), unharmed] {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    same(&whole.0, &folder.0);
    // Nothing half-written is left.
    for folder in [folder.0.clone(), folder.0.join("checkpoints")] {
        let names = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| name.ends_with(".tmp")).collect::<Vec<_>>(), Vec::<String>::new());
    }
}

#[cfg(unix)]
#[test]
fn a_full_disk_stops_it_and_leaves_the_last_checkpoint() {
    let _alone = alone();
    let folder = Folder::new("full");
    let _ = train(&folder.0, 40, Fate::Asked(20), Duration::ZERO).unwrap();
    let last = folder.0.join("checkpoints/last.safetensors");
    let before = fs::read(&last).unwrap();
    // No file may grow beyond 4 KB, and whoever tries gets an error: as on a full disk.
    let output = child(&folder.0, Some("trap '' XFSZ; ulimit -f 8")).wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(told.contains(&format!("cannot write {}: ", last.display())), "{told}");
    assert!(told.contains("the checkpoints saved before are whole, make room and resume from the last"), "{told}");
    assert!(before.len() > 8 * 1024 && fs::read(&last).unwrap() == before, "the checkpoint has changed");
    let left = fs::read_dir(folder.0.join("checkpoints")).unwrap().count();
    assert_eq!(left, 2, "last and best, and nothing half-written");
    assert!(Checkpoint::open(&last).is_ok());
}
