//! Parameters that are trained alike.

use crate::nn::Parameter;

/// Parameters with a learning rate or a weight decay of their own. What is not set is the optimizer's.
///
/// All groups are updated in one plan. When the optimizer's learning rate changes, a group's own changes in the
/// same proportion, as under PyTorch's schedulers.
///
/// ```
/// use neurona::nn::{Linear, Module, Parameter};
/// use neurona::optim::{Group, Optimizer, Sgd};
/// let net = Linear::new(4, 2)?;
/// let (weights, biases): (Vec<Parameter>, _) = net.parameters().into_iter().partition(|p| p.shape().len() > 1);
/// let groups = vec![Group::new(weights), Group::new(biases).lr(0.2).weight_decay(0.0)];
/// let sgd = Sgd::with_groups(groups, 0.1).momentum(0.9).weight_decay(5e-4);
/// assert_eq!(sgd.parameters().len(), 2);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) parameters: Vec<Parameter>,
    pub(super) lr: Option<f64>,
    pub(super) weight_decay: Option<f64>,
}

impl Group {
    /// These parameters, with nothing of their own yet.
    pub fn new(parameters: Vec<Parameter>) -> Self {
        Group { parameters, lr: None, weight_decay: None }
    }

    /// Whether it has no parameters.
    pub fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// With this learning rate.
    pub fn lr(mut self, lr: f64) -> Self {
        self.lr = Some(lr);
        self
    }

    /// With this weight decay.
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = Some(weight_decay);
        self
    }
}
