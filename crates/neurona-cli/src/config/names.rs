//! Settings that have a fixed list of values. Flags, files and messages use the same names.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! named {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $value:ident),* $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$doc])* $value),* }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // None of the values is hidden, so each has a name.
                f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
            }
        }
    };
}

named! {
    /// How the weights are changed.
    Opt {
        /// Gradient descent with Nesterov momentum.
        Sgd,
        /// Adam, with weight decay as part of the gradient.
        Adam,
        /// Adam, with weight decay apart from it.
        Adamw,
        /// RMSprop.
        Rmsprop,
        /// Muon on matrices and filters, AdamW on the rest.
        Muon,
    }
}

impl Opt {
    /// Whether `--momentum` changes what it does.
    pub fn has_momentum(self) -> bool {
        match self {
            Opt::Sgd | Opt::Rmsprop | Opt::Muon => true,
            Opt::Adam | Opt::Adamw => false,
        }
    }
}

named! {
    /// How the learning rate changes over the run.
    Scheduler {
        /// Up during the first part, then down along a cosine to nothing.
        OneCycle,
        /// Down along a cosine.
        Cosine,
        /// A tenth after every third of the run.
        Step,
        /// A tenth after the half and after three quarters of the run.
        MultiStep,
        /// Down in a straight line.
        Linear,
        /// Down by the same factor every epoch, to a hundredth.
        Exponential,
        /// As it is.
        Constant,
        /// A tenth whenever validation has not improved for five epochs.
        Plateau,
    }
}

named! {
    /// How training images are varied.
    Augment {
        /// As they are.
        None,
        /// Mirrored left to right, half of them.
        Flip,
        /// Moved by some pixels (small images), or a random part at a random scale (large ones).
        Crop,
        /// Both crop and flip.
        Basic,
        /// Basic, then one random change of colour or shape: TrivialAugment.
        Trivial,
        /// Basic, then two random changes of medium strength: RandAugment.
        Randaugment,
    }
}

named! {
    /// Whether rare classes count for more.
    ClassWeights {
        /// Every image counts the same.
        None,
        /// Every class counts the same: its images by how rare they are.
        Balanced,
    }
}
