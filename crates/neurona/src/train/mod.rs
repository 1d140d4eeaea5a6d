//! Training: a [`Trainer`] with callbacks, checkpoints and logs; Keras's `compile`, `fit`, `evaluate` and `predict`
//! on the same engine; evaluation; the folder of a run.
//!
//! ```
//! use neurona::data::{TensorBatches, embedded};
//! use neurona::loss::CrossEntropyLoss;
//! use neurona::nn::{Flatten, Linear, Module, Sequential};
//! use neurona::optim::Sgd;
//! use neurona::schedule::Cosine;
//! use neurona::train::{EarlyStopping, Trainer};
//!
//! let set = embedded::fashion_mnist()?;
//! let (x, y) = set.train.batch(&(0..600).collect::<Vec<_>>())?;
//! let (vx, vy) = set.test.batch(&(0..200).collect::<Vec<_>>())?;
//! let train = TensorBatches::new(&x, &y)?.batch_size(50).shuffle(7);
//! let validation = TensorBatches::new(&vx, &vy)?.batch_size(100);
//!
//! let net = Sequential::new().add(Flatten::new()).add(Linear::new(784, 10)?);
//! let fit = Trainer::new(&net, Sgd::new(net.parameters(), 0.01).momentum(0.9))
//!     .loss(CrossEntropyLoss::new().label_smoothing(0.05))
//!     .schedule(Cosine::new(0.01, 36))
//!     .validation(&validation)
//!     .callback(EarlyStopping::new("val_loss").patience(2))
//!     .epochs(3)
//!     .run(&train)?;
//! let last = fit.history.last().unwrap();
//! assert!(last.val_accuracy > Some(0.5) && last.train_loss < 1.5);
//! # Ok::<(), neurona::Error>(())
//! ```

mod best;
mod callback;
mod checkpoint;
mod checkpoints;
mod class_weights;
mod compiled;
mod early_stopping;
mod epoch;
mod evaluate;
mod event_file;
mod fingerprint;
mod history;
mod logs;
mod memory;
mod place;
mod rate;
mod run;
mod run_dir;
mod stop;
mod tally;
mod tensorboard;
mod trainer;
mod validate;

pub use callback::{BatchEnd, Callback, Context};
pub use checkpoint::Checkpoint;
pub use checkpoints::Checkpoints;
pub use class_weights::class_weights;
pub use compiled::{Compile, Compiled, Data, Fitting};
pub use early_stopping::EarlyStopping;
pub use evaluate::{Evaluation, Prediction, evaluate, evaluate_with};
pub use event_file::EventFile;
pub use history::{History, Row};
pub use logs::{CsvLog, JsonLines};
pub use memory::peak_memory;
pub use run_dir::RunDir;
pub use stop::StopFlag;
pub use tensorboard::TensorBoard;
pub use trainer::{Fit, Outcome, Trainer};
pub use validate::Measures;
