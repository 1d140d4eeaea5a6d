//! What makes a struct a model: its parts can be visited by name.

use super::{Buffer, LoadReport, Mode, ModulePath, Parameter, StateDict, state};
use crate::io::{self, safetensors};
use crate::{Device, Error, Result, Tensor};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// A part of a model: a layer, or a struct of layers. `#[derive(Module)]` writes the one method needed.
///
/// ```
/// use neurona::nn::{Forward, Linear, Module};
/// use neurona::{Result, Tensor};
///
/// #[derive(Module)]
/// struct Net {
///     fc1: Linear,
///     fc2: Linear,
/// }
///
/// impl Forward for Net {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         self.fc2.forward(&self.fc1.forward(x)?.relu()?)
///     }
/// }
///
/// let net = Net { fc1: Linear::new(4, 8)?, fc2: Linear::new(8, 2)? };
/// let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]);
/// # Ok::<(), neurona::Error>(())
/// ```
pub trait Module {
    /// Shows the visitor every part by name.
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// Everything that is trained, with its path. What stands in several places is listed at its first.
    fn named_parameters(&self) -> Vec<(String, Parameter)> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        walk(self, &mut |path, item| {
            if let Item::Parameter(p) = item {
                // An optimizer that met a shared weight twice would step it twice.
                if seen.insert(Arc::as_ptr(&p.cell().0)) {
                    found.push((path.to_string(), p.clone()));
                }
            }
        });
        found
    }

    /// Everything that is trained.
    fn parameters(&self) -> Vec<Parameter> {
        self.named_parameters().into_iter().map(|(_, p)| p).collect()
    }

    /// Everything else that is saved with the model: running statistics.
    fn named_buffers(&self) -> Vec<(String, Buffer)> {
        let mut found = Vec::new();
        walk(self, &mut |path, item| {
            if let Item::Buffer(b) = item {
                found.push((path.to_string(), b.clone()));
            }
        });
        found
    }

    /// Puts every layer in training mode: dropout drops, batch-norm uses the batch's statistics.
    fn train(&self) {
        set_mode(self, true);
    }

    /// Puts every layer in evaluation mode.
    fn eval(&self) {
        set_mode(self, false);
    }

    /// Moves every parameter, its gradient and every buffer to a device: `net.to("cuda")?`. Optimizers' state follows
    /// with the next step.
    ///
    /// ```
    /// use neurona::{Device, nn::{Linear, Module}};
    /// let net = Linear::new(2, 1)?;
    /// net.to("cpu")?;
    /// assert_eq!(net.weight.get()?.device(), Device::Cpu);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    fn to<D: TryInto<Device>>(&self, device: D) -> Result<()>
    where
        Self: Sized,
        D::Error: Into<Error>,
    {
        self.to_device(device.try_into().map_err(Into::into)?)
    }

    /// The same for modules whose type is not known.
    fn to_device(&self, device: Device) -> Result<()> {
        let device = device.available()?;
        self.named_parameters().iter().try_for_each(|(_, p)| p.cell().to(device))?;
        self.named_buffers().iter().try_for_each(|(_, b)| b.cell().to(device))
    }

    /// Forgets all gradients.
    fn zero_grad(&self) {
        self.parameters().iter().for_each(|p| p.zero_grad());
    }

    /// How many numbers are trained.
    fn num_parameters(&self) -> usize {
        self.parameters().iter().map(|p| p.shape().numel()).sum()
    }

    /// How many of them get a gradient: all that are not frozen.
    fn num_trainable_parameters(&self) -> usize {
        self.parameters().iter().filter(|p| p.requires_grad()).map(|p| p.shape().numel()).sum()
    }

    /// Freezes every parameter: `backward` computes no gradient for it, and optimizers leave it as it is.
    ///
    /// ```
    /// use neurona::nn::{Linear, Module, Sequential};
    /// let net = Sequential::new().add(Linear::new(4, 3)?).add_named("head", Linear::new(3, 2)?);
    /// net.freeze();
    /// net.get(1).unwrap().unfreeze();
    /// assert_eq!((net.num_parameters(), net.num_trainable_parameters()), (23, 8));
    /// # Ok::<(), neurona::Error>(())
    /// ```
    fn freeze(&self) {
        self.parameters().iter().for_each(|p| p.set_requires_grad(false));
    }

    /// Thaws every parameter.
    fn unfreeze(&self) {
        self.parameters().iter().for_each(|p| p.set_requires_grad(true));
    }

    /// Shows every parameter with its path, to start it in another way for instance.
    ///
    /// ```
    /// use neurona::nn::{Linear, Module, init};
    /// let layer = Linear::new(4, 3)?;
    /// layer.apply(&mut |name, parameter| match name {
    ///     "bias" => parameter.set(&init::zeros(parameter.shape())?),
    ///     _ => parameter.set(&init::xavier_uniform(parameter.shape(), 1.0)?),
    /// })?;
    /// assert_eq!(layer.bias.as_ref().unwrap().get()?.to_vec::<f32>()?, [0.0; 3]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    fn apply(&self, change: &mut dyn FnMut(&str, &Parameter) -> Result<()>) -> Result<()> {
        self.named_parameters().iter().try_for_each(|(name, parameter)| change(name, parameter))
    }

    /// Parameters and buffers by name, as they are now; later training does not change what was taken.
    ///
    /// ```
    /// use neurona::nn::{BatchNorm1d, Module};
    /// let state = BatchNorm1d::new(3)?.state_dict()?;
    /// let names = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"];
    /// assert_eq!(state.names().collect::<Vec<_>>(), names);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    fn state_dict(&self) -> Result<StateDict> {
        state::read(self)
    }

    /// Takes parameters and buffers over from a state dict, converted to the model's element types.
    ///
    /// `strict` wants exactly the model's names and fails with all that differ; without it names that are
    /// missing or unexpected are only reported. Shapes must fit in any case. When it fails nothing has changed.
    ///
    /// ```
    /// use neurona::nn::{Linear, Module};
    /// let (a, b) = (Linear::new(2, 1)?, Linear::new(2, 1)?);
    /// b.load_state_dict(&a.state_dict()?, true)?;
    /// assert_eq!(a.weight.get()?.to_vec::<f32>()?, b.weight.get()?.to_vec::<f32>()?);
    /// let error = Linear::new(3, 1)?.load_state_dict(&a.state_dict()?, true).unwrap_err().to_string();
    /// assert!(error.ends_with("of another shape: weight (model [1, 3], file [1, 2])"), "{error}");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    fn load_state_dict(&self, state: &StateDict, strict: bool) -> Result<LoadReport> {
        state::write(self, state, strict)
    }

    /// Saves parameters and buffers to a safetensors file, which PyTorch reads too.
    ///
    /// ```
    /// use neurona::nn::{Linear, Module};
    /// # let path = std::env::temp_dir().join(format!("neurona-doc-module-{}.safetensors", std::process::id()));
    /// let (a, b) = (Linear::new(2, 1)?, Linear::new(2, 1)?);
    /// a.save(&path)?;
    /// b.load(&path)?;
    /// assert_eq!(a.weight.get()?.to_vec::<f32>()?, b.weight.get()?.to_vec::<f32>()?);
    /// # std::fs::remove_file(path).ok();
    /// # Ok::<(), neurona::Error>(())
    /// ```
    fn save(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        // Libraries that load a file into PyTorch look for this note.
        let notes = [("format".to_string(), "pt".to_string())].into();
        safetensors::save(path, &self.state_dict()?, &notes)
    }

    /// Loads parameters and buffers from a safetensors file or a PyTorch checkpoint; their names and shapes must be
    /// the model's.
    fn load(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        self.load_state_dict(&io::load(path)?, true).map(|_| ())
    }
}

/// A module that turns one tensor into another.
pub trait Forward: Module + Send + Sync {
    /// The output for an input.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;
}

/// While it lives a model is in evaluation mode; then each of its layers is in the mode it was in.
pub(crate) struct InEvaluation<'a, M: Module + ?Sized> {
    model: &'a M,
    modes: Vec<bool>,
}

impl<'a, M: Module + ?Sized> InEvaluation<'a, M> {
    pub fn new(model: &'a M) -> Self {
        let mut modes = Vec::new();
        walk(model, &mut |_, item| {
            if let Item::Mode(mode) = item {
                modes.push(mode.training());
                mode.set(false);
            }
        });
        InEvaluation { model, modes }
    }
}

impl<M: Module + ?Sized> Drop for InEvaluation<'_, M> {
    fn drop(&mut self) {
        let mut modes = self.modes.iter();
        walk(self.model, &mut |_, item| {
            if let Item::Mode(mode) = item
                && let Some(&training) = modes.next()
            {
                mode.set(training);
            }
        });
    }
}

fn set_mode<M: Module + ?Sized>(module: &M, training: bool) {
    walk(module, &mut |_, item| {
        if let Item::Mode(mode) = item {
            mode.set(training);
        }
    });
}

/// Something a visitor meets.
pub enum Item<'a> {
    /// Trained.
    Parameter(&'a Parameter),
    /// Saved, not trained.
    Buffer(&'a Buffer),
    /// The switch between training and evaluation.
    Mode(&'a Mode),
}

/// Walks a model and keeps the path to where it is. Whatever it meets learns its path on the way, so that
/// errors and plans can name it.
pub struct Visitor<'a> {
    path: String,
    meet: &'a mut dyn FnMut(&str, Item<'_>),
}

pub(crate) fn walk<M: Module + ?Sized>(module: &M, meet: &mut dyn FnMut(&str, Item<'_>)) {
    module.visit(&mut Visitor { path: String::new(), meet });
}

impl Visitor<'_> {
    /// Visits a part under its name.
    pub fn child<M: Module + ?Sized>(&mut self, name: &str, part: &M) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        part.visit(self);
        self.path.truncate(length);
    }

    /// Meets a leaf at the present path.
    pub fn item(&mut self, item: Item<'_>) {
        match &item {
            Item::Parameter(p) => p.cell().set_name(self.path.as_str().into()),
            Item::Buffer(b) => b.cell().set_name(self.path.as_str().into()),
            Item::Mode(_) => {}
        }
        (self.meet)(&self.path, item);
    }

    /// Tells a layer the path it stands at; its marker field is one step below.
    pub(super) fn place(&mut self, marker: &ModulePath) {
        let path = self.path.rsplit_once('.').map_or("", |(layer, _)| layer);
        marker.set(path);
    }
}

macro_rules! plain_values { ($($t:ty),*) => { $(
    /// A plain value: nothing to train or save.
    impl Module for $t {
        fn visit(&self, _visitor: &mut Visitor<'_>) {}
    }
)* } }
plain_values!(bool, usize, isize, i32, i64, f32, f64, String, &'static str);

impl<M: Module> Module for Option<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        if let Some(part) = self {
            part.visit(visitor);
        }
    }
}

impl<M: Module> Module for Vec<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (i, part) in self.iter().enumerate() {
            visitor.child(&i.to_string(), part);
        }
    }
}

impl<M: Module, const N: usize> Module for [M; N] {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (i, part) in self.iter().enumerate() {
            visitor.child(&i.to_string(), part);
        }
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (**self).visit(visitor);
    }
}

impl Forward for Box<dyn Forward> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (**self).forward(x)
    }
}
