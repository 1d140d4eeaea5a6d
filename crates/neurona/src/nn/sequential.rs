//! Layers in a row.

use super::{Forward, Module, ModulePath, Visitor};
use crate::{Error, Result, Tensor};
use std::fmt;
use std::panic::Location;

/// Layers in a row, each given the output of the one before. Their names are `0`, `1`, …, or chosen.
///
/// ```
/// use neurona::{DType, Tensor, nn::{Forward, Linear, Module, ReLU, Sequential}};
/// let net = Sequential::new().add(Linear::new(4, 8)?).add(ReLU::new()).add_named("head", Linear::new(8, 2)?);
/// let y = net.forward(&Tensor::zeros([3, 4], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[3, 2]");
/// assert_eq!(net.named_parameters()[2].0, "head.weight");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Default)]
pub struct Sequential {
    layers: Vec<(String, Box<dyn Forward>)>,
    path: ModulePath,
}

impl Sequential {
    /// No layers yet: the output is the input.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more layer, named by its place. Where that name was chosen for another layer, the next free
    /// number is taken.
    ///
    /// Named for the chain it builds; it does not add numbers.
    #[expect(clippy::should_implement_trait)]
    pub fn add(self, layer: impl Forward + 'static) -> Self {
        let mut place = self.layers.len();
        while self.layers.iter().any(|(name, _)| *name == place.to_string()) {
            place += 1;
        }
        self.add_named(&place.to_string(), layer)
    }

    /// With one more layer of this name. A layer that has the name already is replaced, as in PyTorch.
    pub fn add_named(mut self, name: &str, layer: impl Forward + 'static) -> Self {
        let layer: Box<dyn Forward> = Box::new(layer);
        match self.layers.iter_mut().find(|(known, _)| known == name) {
            Some(place) => place.1 = layer,
            None => self.layers.push((name.to_string(), layer)),
        }
        self
    }

    /// The number of layers.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether there are no layers.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// A layer by its place.
    pub fn get(&self, place: usize) -> Option<&dyn Forward> {
        self.layers.get(place).map(|(_, layer)| &**layer)
    }

    /// The layers with their names, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &dyn Forward)> {
        self.layers.iter().map(|(name, layer)| (name.as_str(), &**layer))
    }
}

impl From<Vec<Box<dyn Forward>>> for Sequential {
    fn from(layers: Vec<Box<dyn Forward>>) -> Self {
        let layers = layers.into_iter().enumerate().map(|(i, layer)| (i.to_string(), layer)).collect();
        Sequential { layers, path: ModulePath::default() }
    }
}

impl Module for Sequential {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("path", &self.path);
        for (name, layer) in &self.layers {
            visitor.child(name, &**layer);
        }
    }
}

impl Forward for Sequential {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let caller = Location::caller();
        let _scope = self.path.enter();
        let mut x = x.clone();
        for (_, layer) in &self.layers {
            x = layer.forward(&x).map_err(|error| called_at(error, caller))?;
        }
        Ok(x)
    }
}

/// The caller's line does not pass through a trait object: an error would name a line in here.
fn called_at(mut error: Error, caller: &'static Location<'static>) -> Error {
    if let Error::Op(op) = &mut error {
        op.place.caller = Some(caller);
    }
    error
}

impl fmt::Debug for Sequential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.layers.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::nn::{Linear, ReLU};

    fn names(net: &Sequential) -> Vec<String> {
        net.iter().map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn names_and_places() -> Result<()> {
        let net = Sequential::new().add_named("1", Linear::new(2, 3)?).add(ReLU::new()).add(ReLU::new());
        assert_eq!(names(&net), ["1", "2", "3"]);
        let net = net.add_named("2", Linear::new(3, 1)?);
        assert_eq!((net.len(), net.get(1).map(|l| l.parameters().len())), (3, Some(2)));
        assert!(net.get(3).is_none() && !net.is_empty());
        let layers: Vec<Box<dyn Forward>> = vec![Box::new(ReLU::new()), Box::new(Linear::new(1, 1)?)];
        assert_eq!(names(&layers.into()), ["0", "1"]);
        Ok(())
    }

    #[test]
    fn errors_name_the_nested_layer_and_the_callers_line() -> Result<()> {
        let net = Sequential::new().add_named("body", Sequential::new().add(ReLU::new()).add(Linear::new(3, 1)?));
        net.parameters();
        let error = net.forward(&Tensor::zeros([2, 4], DType::F32)?).unwrap_err().to_string();
        assert!(error.contains(" at body.1: ") && error.contains(file!()), "{error}");
        Ok(())
    }
}
