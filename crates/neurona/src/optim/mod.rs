//! Optimizers, with PyTorch's names, formulas and defaults.

mod adam;
mod clip;
mod composite;
mod ema;
mod finite;
mod grad_scaler;
mod group;
mod lookahead;
mod muon;
mod rmsprop;
mod sgd;
mod shadow;
mod slots;

pub use adam::Adam;
pub use clip::{clip_grad_norm, clip_grad_norm_with, clip_grad_value};
pub use composite::Composite;
pub use ema::Ema;
pub(crate) use finite::all_finite;
pub use grad_scaler::GradScaler;
pub use group::Group;
pub use lookahead::Lookahead;
pub use muon::Muon;
pub use rmsprop::RmsProp;
pub use sgd::Sgd;

use crate::Result;
use crate::graph::cell::Cell;
use crate::graph::engine;
use crate::io::StateDict;
use crate::nn::Parameter;
use slots::Slots;

/// Changes parameters by their gradients.
pub trait Optimizer: Send {
    /// Adds the update to the graph of each parameter that has a gradient, and returns the cells it will
    /// write. [`Optimizer::step`] runs them; [`Composite`] runs those of several optimizers together.
    fn stage(&mut self) -> Result<Vec<Cell>>;

    /// The parameters it changes.
    fn parameters(&self) -> &[Parameter];

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate. It is an input of the plan: changing it every step costs nothing.
    fn set_lr(&mut self, lr: f64);

    /// Its state by the parameters' names: moments, counts of steps, the learning rate. Later steps do not change
    /// what was taken. The other settings are those that the optimizer is made with.
    ///
    /// ```
    /// use neurona::{Tensor, nn::{Linear, Module}, optim::{Adam, Optimizer}};
    /// let net = Linear::new(2, 1)?;
    /// let mut adam = Adam::new(net.parameters(), 0.1);
    /// net.weight.get()?.sum()?.backward()?;
    /// adam.step()?;
    /// let state = adam.state_dict()?;
    /// let names = ["lr", "weight.step", "weight.exp_avg", "weight.exp_avg_sq", "bias.step"];
    /// assert_eq!(state.names().collect::<Vec<_>>(), names);
    /// let mut other = Adam::new(net.parameters(), 0.2);
    /// other.load_state_dict(&state)?;
    /// assert_eq!(other.lr(), 0.1);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    fn state_dict(&self) -> Result<StateDict>;

    /// Takes over what [`Optimizer::state_dict`] gave, so that training goes on as if it had not been interrupted.
    /// Names and shapes must be this optimizer's. When it fails nothing has changed.
    fn load_state_dict(&mut self, state: &StateDict) -> Result<()>;

    /// Updates the parameters. Loss, gradients, new parameters and statistics are computed together here.
    #[track_caller]
    fn step(&mut self) -> Result<()> {
        let cells = self.stage()?;
        engine::force(&[], &cells)
    }

    /// Forgets the gradients, so that the next `backward` starts from zero.
    fn zero_grad(&mut self) {
        self.parameters().iter().for_each(Parameter::zero_grad);
    }
}

/// The methods of something that hands them on to the optimizer it points to.
macro_rules! by_pointer {
    () => {
        fn stage(&mut self) -> Result<Vec<Cell>> {
            (**self).stage()
        }
        fn parameters(&self) -> &[Parameter] {
            (**self).parameters()
        }
        fn lr(&self) -> f64 {
            (**self).lr()
        }
        fn set_lr(&mut self, lr: f64) {
            (**self).set_lr(lr);
        }
        fn state_dict(&self) -> Result<StateDict> {
            (**self).state_dict()
        }
        fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
            (**self).load_state_dict(state)
        }
    };
}

impl<O: Optimizer + ?Sized> Optimizer for Box<O> {
    by_pointer!();
}

impl<O: Optimizer + ?Sized> Optimizer for &mut O {
    by_pointer!();
}
