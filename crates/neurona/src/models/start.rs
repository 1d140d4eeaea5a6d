//! How the parameters of the classic networks start: as torchvision's do.

use crate::nn::init::{self, Fan, Nonlinearity};
use crate::nn::{Module, Parameter};
use crate::{Result, Tensor};

/// Builds a network and draws its parameters by a rule. Where the rule has none, zeros stay zeros and ones ones.
pub(super) fn by<M: Module>(
    build: impl FnOnce() -> Result<M>,
    rule: impl Fn(&str, &Parameter) -> Result<Option<Tensor>>,
) -> Result<M> {
    if init::leaves_empty() {
        return build();
    }
    let net = init::left_empty(usize::MAX, build)?;
    net.apply(&mut |name, parameter| match rule(name, parameter)? {
        Some(value) => parameter.set(&value),
        None => Ok(()),
    })?;
    Ok(net)
}

/// Filters by Kaiming for the backward pass, matrices normal with a deviation of 0.01, biases 0.
pub(super) fn kaiming(_name: &str, parameter: &Parameter) -> Result<Option<Tensor>> {
    let shape = parameter.shape();
    Ok(match shape.len() {
        4 => Some(init::kaiming_normal(shape, Fan::Out, Nonlinearity::Relu)?),
        2 => Some(init::normal(shape, 0.0, 0.01)?),
        _ => None,
    })
}
