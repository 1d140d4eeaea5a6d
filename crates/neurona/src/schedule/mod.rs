//! Learning rates that change from step to step, with PyTorch's numbering: step 0 is before the first update.
//!
//! A schedule is a plain function of the step, so that a run that was interrupted goes on with the right rate:
//!
//! ```
//! use neurona::{Tensor, nn::Parameter, optim::{Optimizer, Sgd}};
//! use neurona::schedule::{Cosine, Schedule, WarmUp};
//! let w = Parameter::new(&Tensor::from([1.0f32]))?;
//! let mut optimizer = Sgd::new(vec![w.clone()], 0.1);
//! let schedule = WarmUp::new(Cosine::new(0.1, 90), 10);
//! for step in 0..100 {
//!     optimizer.set_lr(schedule.lr(step)); // an input of the plan: it costs nothing
//!     optimizer.zero_grad();
//!     w.get()?.sum()?.backward()?;
//!     optimizer.step()?;
//! }
//! # Ok::<(), neurona::Error>(())
//! ```

mod chained;
mod cosine;
mod cosine_restarts;
mod exponential;
mod linear;
mod multi_step;
mod one_cycle;
mod plateau;
mod polynomial;
mod sequential;
mod step;
mod warm_up;

pub use chained::Chained;
pub use cosine::Cosine;
pub use cosine_restarts::CosineRestarts;
pub use exponential::Exponential;
pub use linear::Linear;
pub use multi_step::MultiStep;
pub use one_cycle::OneCycle;
pub use plateau::Plateau;
pub use polynomial::Polynomial;
pub use sequential::Sequential;
pub use step::Step;
pub use warm_up::WarmUp;

/// A learning rate for every step.
pub trait Schedule: Send + Sync {
    /// The learning rate of this step (or epoch); the first is 0.
    fn lr(&self, step: u64) -> f64;
}

/// A learning rate that does not change.
impl Schedule for f64 {
    fn lr(&self, _step: u64) -> f64 {
        *self
    }
}

impl<S: Schedule + ?Sized> Schedule for Box<S> {
    fn lr(&self, step: u64) -> f64 {
        (**self).lr(step)
    }
}

/// A place on half a cosine from `start` to `end`, where `part` goes from 0 to 1.
fn cosine(start: f64, end: f64, part: f64) -> f64 {
    end + (start - end) * (1.0 + (std::f64::consts::PI * part).cos()) / 2.0
}

/// How far `step` is on the way to `total`, from 0 to 1.
fn part(step: u64, total: u64) -> f64 {
    if step >= total { 1.0 } else { step as f64 / total as f64 }
}
