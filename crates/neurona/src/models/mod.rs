//! Networks that are ready to train, with PyTorch's names for their parameters.

mod course;
pub mod lab;
mod mlp;
pub mod resnet;

pub use course::course_cnn;
pub use lab::Lab;
pub use mlp::mlp;
pub use resnet::ResNet18Cifar;
