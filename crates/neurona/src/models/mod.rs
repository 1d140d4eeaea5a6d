//! Networks that are ready to train, with PyTorch's names for their parameters.

mod alexnet;
mod card;
mod course;
pub mod lab;
mod mlp;
pub mod mobilenet;
mod nearest;
mod networks;
mod onnx;
pub mod resnet;
mod small_cnn;
mod spec;
mod start;
pub mod transfer;
pub mod vgg;
pub mod vit;

pub use alexnet::AlexNet;
pub use card::{Card, Resize, open};
pub use course::{course_cnn, course_cnn_with};
pub use lab::Lab;
pub use mlp::mlp;
pub use mobilenet::MobileNetV2;
pub use resnet::{ResNet, resnet18, resnet18_cifar, resnet34, resnet34_cifar, resnet50, resnet50_cifar};
pub use small_cnn::SmallCnn;
pub use spec::Spec;
pub use vgg::Vgg;
pub use vit::VisionTransformer;

/// Inputs of the linear layer behind images of this size; a size that no machine has room for stays one.
fn features(channels: usize, height: usize, width: usize) -> usize {
    channels.saturating_mul(height).saturating_mul(width)
}
