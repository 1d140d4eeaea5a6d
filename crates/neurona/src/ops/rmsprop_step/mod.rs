//! A step of RMSprop for all parameters in one sweep. Made by [`crate::optim`].

pub(crate) mod cpu;
mod cuda;

pub(crate) use cpu::Options;

super::sweep::step_op! {
    /// A step of RMSprop.
    RmsPropStep "rmsprop_step" |options| 3 + options.centered as usize + options.momentum as usize
}
