//! The workloads: a network and a batch size each.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use neurona::Result;
use neurona::models::{self, lab::Lab};
use neurona::nn::Forward;

/// A network and a batch size.
#[derive(Clone, Copy)]
pub struct Work {
    name: &'static str,
    network: Network,
    batch: usize,
}

#[derive(Clone, Copy)]
enum Network {
    Lab,
    CourseCnn,
    Mlp(&'static [usize]),
    ResNet18,
}

impl Work {
    /// All there are, in the order of the peers' scripts.
    pub const ALL: &'static [Work] = &[
        Work { name: "lab_b1", network: Network::Lab, batch: 1 },
        Work { name: "lab_b4", network: Network::Lab, batch: 4 },
        Work { name: "lab_b128", network: Network::Lab, batch: 128 },
        Work { name: "bn_b64", network: Network::CourseCnn, batch: 64 },
        Work { name: "mlp500_b32", network: Network::Mlp(&[500, 256, 10]), batch: 32 },
        Work { name: "mlp784_b128", network: Network::Mlp(&[784, 512, 256, 10]), batch: 128 },
        Work { name: "r18_b1", network: Network::ResNet18, batch: 1 },
        Work { name: "r18_b32", network: Network::ResNet18, batch: 32 },
    ];

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How many images or rows a step takes.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// The shape of a batch.
    pub fn input(&self) -> Vec<usize> {
        match self.network {
            Network::Mlp(sizes) => vec![self.batch, sizes[0]],
            _ => vec![self.batch, 3, 32, 32],
        }
    }

    /// The network with fresh weights.
    pub fn network(&self) -> Result<Box<dyn Forward>> {
        Ok(match self.network {
            Network::Lab => Box::new(Lab::new()?),
            Network::CourseCnn => Box::new(models::course_cnn()?),
            Network::Mlp(sizes) => Box::new(models::mlp(sizes)?),
            Network::ResNet18 => Box::new(models::resnet18_cifar(10)?),
        })
    }
}

impl ValueEnum for Work {
    fn value_variants<'a>() -> &'a [Self] {
        Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name))
    }
}
