//! Networks that are ready to train, with PyTorch's names for their parameters.

mod course;
pub mod lab;
mod mlp;
pub mod resnet;
mod small_cnn;
mod spec;

pub use course::course_cnn;
pub use lab::Lab;
pub use mlp::mlp;
pub use resnet::ResNet18Cifar;
pub use small_cnn::SmallCnn;
pub use spec::Spec;
