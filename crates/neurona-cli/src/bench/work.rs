//! The workloads: a network and a batch size each.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use neurona::models::{self, lab::Lab};
use neurona::nn::Forward;
use neurona::{Device, Result};

/// A network, and how many images a step takes where the name says so.
#[derive(Clone, Copy)]
pub struct Work {
    name: &'static str,
    network: Network,
    batch: Option<usize>,
}

/// What is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The tutorial's network: two convolutions, three linear layers.
    Lab,
    /// The course's: three convolutions with batch-norm.
    CourseCnn,
    /// Linear layers of 500, 256 and 10 numbers.
    Mlp500,
    /// Linear layers of 784, 512, 256 and 10 numbers.
    Mlp784,
    /// ResNet-18 for 32 by 32 pixels.
    ResNet18,
}

impl Network {
    /// What workloads call it.
    pub fn name(self) -> &'static str {
        match self {
            Network::Lab => "lab",
            Network::CourseCnn => "bn",
            Network::Mlp500 => "mlp500",
            Network::Mlp784 => "mlp784",
            Network::ResNet18 => "r18",
        }
    }

    /// The batch sizes that peers are measured with on a GPU.
    fn gpu_batches(self) -> &'static [usize] {
        match self {
            Network::Lab => &[4, 128, 2048],
            Network::CourseCnn => &[64, 2048],
            Network::Mlp500 => &[32],
            Network::Mlp784 => &[128, 4096],
            Network::ResNet18 => &[128, 1024],
        }
    }

    /// The shape of a batch.
    pub fn input(self, batch: usize) -> Vec<usize> {
        match self {
            Network::Mlp500 => vec![batch, 500],
            Network::Mlp784 => vec![batch, 784],
            _ => vec![batch, 3, 32, 32],
        }
    }

    /// The network with fresh weights.
    pub fn build(self) -> Result<Box<dyn Forward>> {
        Ok(match self {
            Network::Lab => Box::new(Lab::new()?),
            Network::CourseCnn => Box::new(models::course_cnn()?),
            Network::Mlp500 => Box::new(models::mlp(&[500, 256, 10])?),
            Network::Mlp784 => Box::new(models::mlp(&[784, 512, 256, 10])?),
            Network::ResNet18 => Box::new(models::resnet18_cifar(10)?),
        })
    }
}

const fn of(name: &'static str, network: Network, batch: usize) -> Work {
    Work { name, network, batch: Some(batch) }
}

impl Work {
    /// All that have a name, in the order of the peers' scripts; those without a batch size come last.
    const ALL: &'static [Work] = &[
        of("lab_b1", Network::Lab, 1),
        of("lab_b4", Network::Lab, 4),
        of("lab_b128", Network::Lab, 128),
        of("bn_b64", Network::CourseCnn, 64),
        of("mlp500_b32", Network::Mlp500, 32),
        of("mlp784_b128", Network::Mlp784, 128),
        of("r18_b1", Network::ResNet18, 1),
        of("r18_b32", Network::ResNet18, 32),
        Work { name: "lab", network: Network::Lab, batch: None },
        Work { name: "bn", network: Network::CourseCnn, batch: None },
        Work { name: "mlp784", network: Network::Mlp784, batch: None },
        Work { name: "r18", network: Network::ResNet18, batch: None },
    ];

    /// What is measured when nobody says what.
    pub fn usual(device: Device) -> Vec<Work> {
        let fixed = device == Device::Cpu;
        Work::ALL.iter().copied().filter(|work| work.batch.is_some() == fixed).collect()
    }

    /// The network, and the batch sizes to measure: the one asked for, the one in its name, or those of the peers.
    pub fn sizes(&self, asked: Option<usize>, device: Device) -> (Network, Vec<usize>) {
        let of_name = || match (self.batch, device) {
            (Some(batch), _) => vec![batch],
            (None, Device::Cpu) => {
                Work::ALL.iter().filter(|w| w.network == self.network).filter_map(|w| w.batch).collect()
            }
            (None, _) => self.network.gpu_batches().to_vec(),
        };
        (self.network, asked.map_or_else(of_name, |batch| vec![batch]))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_sizes_by_flag_by_name_and_by_the_peers() {
        let find = |name: &str| *Work::ALL.iter().find(|work| work.name == name).unwrap();
        let sizes = |name: &str, asked, device| find(name).sizes(asked, device).1;
        assert_eq!(sizes("lab_b4", None, Device::cuda(0)), [4]);
        assert_eq!(sizes("lab_b4", Some(9), Device::Cpu), [9]);
        assert_eq!(sizes("lab", None, Device::Cpu), [1, 4, 128]);
        assert_eq!(sizes("r18", None, Device::cuda(0)), [128, 1024]);
        assert_eq!((Work::usual(Device::Cpu).len(), Work::usual(Device::cuda(0)).len()), (8, 4));
        for work in Work::ALL {
            assert!(work.name.starts_with(work.network.name()));
        }
    }
}
