//! Layers with PyTorch's names, defaults and initialisers, and what makes a struct of them a model.
//!
//! A layer of your own is a struct: its fields are its parts, its `forward` is any expression of tensors. Gradients,
//! names, files and optimizers work as for the layers here.
//!
//! ```
//! use neurona::nn::{Forward, Linear, Module, Parameter, Sequential};
//! use neurona::optim::{Optimizer, Sgd};
//! use neurona::{Result, Tensor};
//!
//! /// x · sigmoid(βx), where β is trained.
//! #[derive(Module)]
//! struct Swish {
//!     beta: Parameter,
//! }
//!
//! impl Forward for Swish {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         x.mul(&x.mul(&self.beta.get()?)?.sigmoid()?)
//!     }
//! }
//!
//! let swish = Swish { beta: Parameter::new(&Tensor::from([1.0f32]))? };
//! let net = Sequential::new().add(Linear::new(3, 4)?).add_named("swish", swish).add(Linear::new(4, 1)?);
//! // An initialiser of your own: any tensor of the right shape.
//! net.apply(&mut |name, parameter| match name.ends_with("weight") {
//!     true => parameter.set(&Tensor::randn(parameter.shape())?.mul_scalar(0.1)?),
//!     false => Ok(()),
//! })?;
//! // A regulariser of your own: one more term of the loss.
//! let mut loss = net.forward(&Tensor::randn([8, 3])?)?.mse_loss(&Tensor::randn([8, 1])?)?;
//! for weight in net.parameters() {
//!     loss = (&loss + weight.get()?.abs()?.sum()?.mul_scalar(1e-3)?)?;
//! }
//! loss.backward()?;
//! Sgd::new(net.parameters(), 0.1).step()?;
//! assert_eq!(net.named_parameters()[2].0, "swish.beta");
//! # Ok::<(), neurona::Error>(())
//! ```

mod activation;
mod adaptive_pool;
mod attention;
mod batch_norm;
mod conv;
mod dropout;
mod embedding;
mod flatten;
mod identity;
pub mod init;
mod layer_norm;
mod linear;
mod module;
mod parameter;
mod pool;
mod sequential;
mod softmax;
mod state;
mod summary;
mod upsample;

pub use crate::io::StateDict;
pub use activation::{ELU, GELU, Hardsigmoid, Hardswish, LeakyReLU, ReLU, ReLU6, SiLU, Sigmoid, Softplus, Tanh};
pub use adaptive_pool::AdaptiveAvgPool2d;
pub use attention::MultiheadAttention;
pub use batch_norm::{BatchNorm1d, BatchNorm2d};
pub use conv::Conv2d;
pub use dropout::{Dropout, Dropout2d};
pub use embedding::Embedding;
pub use flatten::Flatten;
pub use identity::Identity;
pub use layer_norm::{GroupNorm, LayerNorm};
pub use linear::Linear;
pub use module::{Forward, Item, Module, Visitor};
pub(crate) use module::{InEvaluation, walk};
pub use neurona_derive::Module;
pub use parameter::{Buffer, Mode, ModulePath, Parameter};
pub use pool::{AvgPool2d, MaxPool2d};
pub use sequential::Sequential;
pub use softmax::{LogSoftmax, Softmax};
pub use state::LoadReport;
pub use summary::{Row, Summary, summary};
pub use upsample::Upsample;
