//! The table of networks: all that is known of each by name.

use super::resnet::{BasicBlock, Bottleneck, ResNet, Stem};
use super::vgg::{Depth, Vgg};
use super::vit::{VisionTransformer, VitOptions};
use super::{AlexNet, Lab, MobileNetV2, SmallCnn, Spec, course_cnn_with};
use crate::nn::Forward;
use crate::{Error, Result};
use std::fmt;

/// A network that has a name.
pub(super) struct Network {
    pub name: &'static str,
    /// Channels, height and width of the images it was made for.
    pub images: [usize; 3],
    /// The smallest height and width it can take.
    pub least: usize,
    /// The path of its first layer.
    pub stem: &'static str,
    /// The path of its last layer.
    pub head: &'static str,
    pub arguments: &'static [Argument],
    pub build: fn(&Spec) -> Result<Box<dyn Forward>>,
}

/// A number that a network can be built with.
pub(super) struct Argument {
    pub name: &'static str,
    pub default: f64,
    pub kind: Kind,
}

/// What an argument can be.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Share,
    Count,
    Factor,
}

impl Kind {
    pub fn allows(self, value: f64) -> bool {
        match self {
            Kind::Share => (0.0..=1.0).contains(&value),
            // Whole numbers beyond this are not exact.
            Kind::Count => (1.0..=9e15).contains(&value) && value.fract() == 0.0,
            Kind::Factor => value > 0.0 && value <= 1e6,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Share => "from 0 to 1",
            Kind::Count => "a whole number above 0",
            Kind::Factor => "above 0",
        })
    }
}

const fn argument(name: &'static str, default: f64, kind: Kind) -> Argument {
    Argument { name, default, kind }
}

const HALF: &[Argument] = &[argument("dropout", 0.5, Kind::Share)];
const MOBILE: &[Argument] = &[argument("width_mult", 1.0, Kind::Factor), argument("dropout", 0.2, Kind::Share)];
const VIT: &[Argument] = &[
    argument("patch_size", 16.0, Kind::Count),
    argument("num_layers", 12.0, Kind::Count),
    argument("num_heads", 12.0, Kind::Count),
    argument("hidden_dim", 768.0, Kind::Count),
    argument("mlp_dim", 3072.0, Kind::Count),
    argument("dropout", 0.0, Kind::Share),
    argument("attention_dropout", 0.0, Kind::Share),
];

/// A network for photographs: 224 x 224 pixels in colour.
const fn large(
    name: &'static str,
    least: usize,
    [stem, head]: [&'static str; 2],
    arguments: &'static [Argument],
    build: fn(&Spec) -> Result<Box<dyn Forward>>,
) -> Network {
    Network { name, images: [3, 224, 224], least, stem, head, arguments, build }
}

/// A network for small images.
const fn little(
    name: &'static str,
    images: [usize; 3],
    least: usize,
    [stem, head]: [&'static str; 2],
    build: fn(&Spec) -> Result<Box<dyn Forward>>,
) -> Network {
    Network { name, images, least, stem, head, arguments: &[], build }
}

const CIFAR: [usize; 3] = [3, 32, 32];
const ENDS: [&str; 2] = ["conv1", "fc"];
const VGG_ENDS: [&str; 2] = ["features.0", "classifier.6"];

/// All of them.
pub(super) static ALL: [Network; 16] = TABLE;

const TABLE: [Network; 16] = [
    little("small_cnn", [1, 28, 28], 4, ENDS, |s| Ok(Box::new(SmallCnn::new(images(s), s.classes)?))),
    little("lenet", CIFAR, 16, ["conv1", "fc3"], |s| Ok(Box::new(Lab::with(images(s), s.classes)?))),
    little("course_cnn", CIFAR, 8, ["0", "13"], |s| Ok(Box::new(course_cnn_with(images(s), s.classes)?))),
    little("resnet18_cifar", CIFAR, 1, ENDS, |s| basic([2, 2, 2, 2], Stem::Small, s)),
    little("resnet34_cifar", CIFAR, 1, ENDS, |s| basic([3, 4, 6, 3], Stem::Small, s)),
    little("resnet50_cifar", CIFAR, 1, ENDS, |s| bottleneck([3, 4, 6, 3], Stem::Small, s)),
    large("alexnet", 63, VGG_ENDS, HALF, |s| {
        Ok(Box::new(AlexNet::new(s.channels, s.classes, s.argument("dropout")?)?))
    }),
    large("vgg11", 32, VGG_ENDS, HALF, |s| vgg(Depth::Eleven, false, s)),
    large("vgg11_bn", 32, VGG_ENDS, HALF, |s| vgg(Depth::Eleven, true, s)),
    large("vgg16", 32, VGG_ENDS, HALF, |s| vgg(Depth::Sixteen, false, s)),
    large("vgg16_bn", 32, VGG_ENDS, HALF, |s| vgg(Depth::Sixteen, true, s)),
    large("resnet18", 1, ENDS, &[], |s| basic([2, 2, 2, 2], Stem::Large, s)),
    large("resnet34", 1, ENDS, &[], |s| basic([3, 4, 6, 3], Stem::Large, s)),
    large("resnet50", 1, ENDS, &[], |s| bottleneck([3, 4, 6, 3], Stem::Large, s)),
    large("mobilenet_v2", 1, ["features.0.0", "classifier.1"], MOBILE, |s| {
        let (width, dropout) = (s.argument("width_mult")?, s.argument("dropout")?);
        Ok(Box::new(MobileNetV2::new(s.channels, s.classes, width, dropout)?))
    }),
    large("vit_b_16", 1, ["conv_proj", "heads.head"], VIT, vit),
];

/// Their names.
pub(super) const NAMES: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = TABLE[i].name;
        i += 1;
    }
    names
};

/// The names of those that were made for small images.
pub(super) fn small() -> Vec<&'static str> {
    ALL.iter().filter(|n| n.images[1] <= 32).map(|n| n.name).collect()
}

fn images(spec: &Spec) -> [usize; 3] {
    [spec.channels, spec.height, spec.width]
}

fn basic(blocks: [usize; 4], stem: Stem, spec: &Spec) -> Result<Box<dyn Forward>> {
    Ok(Box::new(ResNet::<BasicBlock>::new(blocks, stem, spec.channels, spec.classes)?))
}

fn bottleneck(blocks: [usize; 4], stem: Stem, spec: &Spec) -> Result<Box<dyn Forward>> {
    Ok(Box::new(ResNet::<Bottleneck>::new(blocks, stem, spec.channels, spec.classes)?))
}

fn vgg(depth: Depth, batch_norm: bool, spec: &Spec) -> Result<Box<dyn Forward>> {
    Ok(Box::new(Vgg::new(depth, batch_norm, spec.channels, spec.classes, spec.argument("dropout")?)?))
}

fn vit(spec: &Spec) -> Result<Box<dyn Forward>> {
    let count = |name: &str| spec.argument(name).map(|n| n as usize);
    let Spec { height, width, channels, classes, .. } = *spec;
    let patch_size = count("patch_size")?;
    if height != width || !height.is_multiple_of(patch_size) {
        return Err(Error::Argument(format!(
            "{} needs square images whose side is a multiple of {patch_size}, not {width} x {height}",
            spec.name
        )));
    }
    let options = VitOptions {
        image_size: height,
        patch_size,
        num_layers: count("num_layers")?,
        num_heads: count("num_heads")?,
        hidden_dim: count("hidden_dim")?,
        mlp_dim: count("mlp_dim")?,
        dropout: spec.argument("dropout")?,
        attention_dropout: spec.argument("attention_dropout")?,
    };
    Ok(Box::new(VisionTransformer::new(options, channels, classes)?))
}
