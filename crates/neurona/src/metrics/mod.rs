//! How well a classifier does: everything is gathered batch by batch, and read at any time.
//!
//! ```
//! use neurona::Tensor;
//! use neurona::metrics::{Confusion, Logits, TopK};
//! let (mut confusion, mut top2) = (Confusion::new(3), TopK::new(2));
//! let batches = [
//!     (Tensor::from([[2.0f32, 1.0, 0.0], [0.0, 3.0, 1.0]]), Tensor::from([0i64, 2])),
//!     (Tensor::from([[0.0f32, 0.0, 5.0]]), Tensor::from([2i64])),
//! ];
//! for (logits, labels) in &batches {
//!     let logits = Logits::read(logits)?;
//!     let labels = logits.labels(labels)?;
//!     confusion.add(&labels, &logits.guesses())?;
//!     top2.add(&logits, &labels)?;
//! }
//! assert_eq!(confusion.right(), 2);
//! assert_eq!(top2.share(), 1.0);
//! assert_eq!(confusion.report().class[2].recall, 0.5);
//! # Ok::<(), neurona::Error>(())
//! ```

mod calibration;
mod confusion;
pub(crate) mod logits;
mod mean;
mod metric;
mod report;
mod top_k;

pub use calibration::{Bin, Calibration};
pub use confusion::{Confused, Confusion};
pub use logits::Logits;
pub use mean::Mean;
pub use metric::Metric;
pub use report::{Report, Scores};
pub use top_k::TopK;
