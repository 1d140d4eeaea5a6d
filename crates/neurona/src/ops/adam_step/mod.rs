//! A step of Adam or AdamW for all parameters in one sweep. Made by [`crate::optim`].

pub(crate) mod cpu;
mod cuda;

pub(crate) use cpu::Options;

super::sweep::step_op! {
    /// A step of Adam or AdamW.
    AdamStep "adam_step" |options| 4 + options.amsgrad as usize
}
