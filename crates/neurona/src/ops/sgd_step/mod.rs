//! A step of stochastic gradient descent for all parameters in one sweep. Made by [`crate::optim`].

pub(crate) mod cpu;
mod cuda;
pub(crate) mod tile;

pub(crate) use cpu::{Element, ForRule, Options, Rule};

super::sweep::step_op! {
    /// A step of stochastic gradient descent.
    SgdStep "sgd_step" |options| options.operands()
}
