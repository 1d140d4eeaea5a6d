//! A network that was read from an ONNX file.

use super::ops::{Call, Run};
use crate::nn::{Buffer, Forward, Mode, Module, Parameter, Visitor};
use crate::tensor::{Scope, here};
use crate::{Error, ModuleName, Result, Tensor};
use std::collections::BTreeMap;
use std::fmt;

/// A value with so many times the input's elements is a file's attempt to use up memory, unless it is small.
const GROWTH: usize = 1024;
const SMALL: usize = 1 << 24;

/// A network from an ONNX file, which predicts, and can be trained further like any other module.
///
/// ```
/// use neurona::{Tensor, io::onnx, models::mlp, nn::{Forward, Module}, optim::{Optimizer, Sgd}};
/// let bytes = onnx::export_bytes(&mlp(&[4, 8, 2])?, &onnx::Export::new([4]))?;
/// let net = onnx::import_bytes(&bytes)?;
/// let mut optimizer = Sgd::new(net.parameters(), 0.1);
/// let (x, labels) = (Tensor::randn([6, 4])?, Tensor::from([0i64, 1, 0, 1, 1, 0]));
/// let before = net.forward(&x)?.cross_entropy(&labels)?;
/// before.backward()?;
/// optimizer.step()?;
/// let after = net.forward(&x)?.cross_entropy(&labels)?;
/// assert!(after.item::<f32>()? < before.item::<f32>()?);
/// # Ok::<(), neurona::Error>(())
/// ```
pub struct OnnxModule {
    pub(super) weights: Vec<Weight>,
    pub(super) constants: Vec<(usize, Tensor)>,
    pub(super) steps: Vec<Step>,
    /// How many values there are.
    pub(super) values: usize,
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) input_shape: Vec<Option<usize>>,
    pub(super) notes: BTreeMap<String, String>,
    pub(super) mode: Mode,
}

/// A tensor of the file that is saved with the module, and the value it is.
pub(super) struct Weight {
    pub name: String,
    pub cell: WeightCell,
    /// `None` for a count of batches, which ONNX does not have.
    pub value: Option<usize>,
}

pub(super) enum WeightCell {
    Parameter(Parameter),
    Buffer(Buffer),
}

/// An operator applied to values; operands that are left out are `None`.
pub(super) struct Step {
    pub name: Option<ModuleName>,
    pub run: Run,
    pub inputs: Vec<Option<usize>>,
    pub outputs: Vec<Option<usize>>,
}

impl OnnxModule {
    /// The sizes that the file gives for the input; `None` where it leaves them open, as for the batch.
    pub fn input_shape(&self) -> &[Option<usize>] {
        &self.input_shape
    }

    /// What else the file says about the network.
    pub fn notes(&self) -> &BTreeMap<String, String> {
        &self.notes
    }
}

impl Module for OnnxModule {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("mode", &self.mode);
        for weight in &self.weights {
            match &weight.cell {
                WeightCell::Parameter(parameter) => visitor.child(&weight.name, parameter),
                WeightCell::Buffer(buffer) => visitor.child(&weight.name, buffer),
            }
        }
    }
}

impl Forward for OnnxModule {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut values: Vec<Option<Tensor>> = vec![None; self.values];
        for (place, tensor) in &self.constants {
            values[*place] = Some(tensor.clone());
        }
        for weight in &self.weights {
            if let Some(place) = weight.value {
                values[place] = Some(match &weight.cell {
                    WeightCell::Parameter(parameter) => parameter.get()?,
                    WeightCell::Buffer(buffer) => buffer.get()?,
                });
            }
        }
        values[self.input] = Some(x.clone());
        let most = x.numel().saturating_mul(GROWTH).max(SMALL);
        for step in &self.steps {
            let _scope = Scope::enter(step.name);
            let inputs: Vec<Option<Tensor>> = step.inputs.iter().map(|i| i.and_then(|i| values[i].clone())).collect();
            let call = Call { inputs: &inputs, training: self.mode.training() };
            let results = (step.run)(&call).map_err(|e| e.at(here()))?;
            for (place, result) in step.outputs.iter().zip(results) {
                if result.numel() > most {
                    let problem = format!("makes more than {most} elements, {GROWTH} times what the network was given");
                    return Err(result.error("onnx", problem));
                }
                if let Some(place) = *place {
                    values[place] = Some(result);
                }
            }
        }
        values[self.output].take().ok_or_else(|| Error::op("onnx", "the output was not computed").at(here()))
    }
}

impl fmt::Debug for OnnxModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.steps.iter().map(|step| step.name.as_deref().unwrap_or_default())).finish()
    }
}
