//! Fine-tuning: weights that were trained for other classes, a new head, and a backbone that learns slowly or not.
//!
//! ```
//! use neurona::models::{Spec, transfer::{self, Stem}};
//! use neurona::optim::Sgd;
//! let trained = Spec::new("resnet18_cifar", 100)?.build()?.state_dict()?;
//! let spec = Spec::new("resnet18_cifar", 2)?;
//! let net = spec.build()?;
//! let report = transfer::load(&spec, &net, &trained, Stem::Same)?;
//! assert_eq!(report.fresh, ["fc.weight", "fc.bias"]);
//! transfer::freeze_backbone(&spec, &net, true)?;
//! assert_eq!(net.num_trainable_parameters(), 2 * 512 + 2);
//! // Or all of it learns, the backbone ten times as slowly as the head.
//! transfer::unfreeze(&net);
//! let optimizer = Sgd::with_groups(transfer::groups(&spec, &net, 0.001)?, 0.01);
//! # Ok::<(), neurona::Error>(())
//! ```

use super::Spec;
use crate::io::StateDict;
use crate::nn::{Forward, Item, Parameter, walk};
use crate::optim::Group;
use crate::{Error, Result, Shape, Tensor};

/// What happens to the first layer when weights are for images of other channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stem {
    /// They are refused.
    Same,
    /// Each filter is averaged over its channels and scaled such that an image whose channels are all alike gives
    /// what it gave before: grey images can use weights made for colour ones.
    Average,
}

/// What [`load`] did with each tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Taken from the weights.
    pub taken: Vec<String>,
    /// In the network only, or made for other classes: as they were before, to be trained.
    pub fresh: Vec<String>,
    /// In the weights only: not used.
    pub unused: Vec<String>,
}

/// Loads weights into a network that may have another head: all of the backbone, and the head where its shape fits
/// (else it keeps its fresh parameters). Weights of another network are refused, and then nothing has changed.
pub fn load(spec: &Spec, net: &dyn Forward, weights: &StateDict, stem: Stem) -> Result<Report> {
    let weights = current(weights);
    let (head, stem_weight) = (format!("{}.", spec.head_path()?), format!("{}.weight", spec.stem_path()?));
    let (mut report, mut missing, mut other) = (Report::default(), Vec::new(), Vec::new());
    let mut state = net.state_dict()?;
    let names: Vec<(String, Shape)> = state.iter().map(|(n, t)| (n.into(), t.shape().clone())).collect();
    for (name, want) in &names {
        match weights.get(name) {
            Some(value) if value.shape() == want => {
                state.insert(name, value.clone());
                report.taken.push(name.clone());
            }
            _ if name.starts_with(&head) => report.fresh.push(name.clone()),
            // Files from before PyTorch 0.4.1 do not have it, and it only matters to cumulative averages.
            None if name.ends_with(".num_batches_tracked") => {}
            None => missing.push(name.clone()),
            Some(value) if *name == stem_weight && differs_in_channels(value.shape(), want) => {
                if stem == Stem::Same {
                    return Err(other_channels(spec, value.shape()[1]));
                }
                state.insert(name, averaged(value, want[1])?);
                report.taken.push(name.clone());
            }
            Some(value) => other.push(format!("{name} (network {want}, weights {})", value.shape())),
        }
    }
    report.unused = weights.names().filter(|name| !names.iter().any(|(n, _)| n == name)).map(String::from).collect();
    let backbone = report.taken.iter().any(|name| !name.starts_with(&head));
    // A head of several layers has names below its path; anything else belongs to another network.
    let foreign = report.unused.iter().any(|name| !name.starts_with(&head));
    if !backbone || !missing.is_empty() || !other.is_empty() || foreign {
        return Err(refusal(spec, &report, &missing, &other));
    }
    net.load_state_dict(&state, true)?;
    Ok(report)
}

/// Freezes all but the head. With `hold` the rest also stays in evaluation mode while the network trains: batch
/// normalisation keeps its statistics (as Keras has it) and dropout is off. Without it, as in PyTorch, statistics
/// still follow the new images, which helps when those look different from what the weights were trained on.
pub fn freeze_backbone(spec: &Spec, net: &dyn Forward, hold: bool) -> Result<()> {
    let head = format!("{}.", spec.head_path()?);
    net.named_parameters().iter().for_each(|(name, p)| p.set_requires_grad(name.starts_with(&head)));
    walk(net, &mut |path, item| {
        if let Item::Mode(mode) = item {
            mode.hold(hold && !path.starts_with(&head));
        }
    });
    Ok(())
}

/// Takes back what [`freeze_backbone`] did.
pub fn unfreeze(net: &dyn Forward) {
    net.unfreeze();
    walk(net, &mut |_, item| {
        if let Item::Mode(mode) = item {
            mode.hold(false);
        }
    });
}

/// Backbone and head for an optimizer: the backbone with a learning rate of its own, the head with the optimizer's.
/// What is frozen is left out.
pub fn groups(spec: &Spec, net: &dyn Forward, backbone_lr: f64) -> Result<Vec<Group>> {
    let head = format!("{}.", spec.head_path()?);
    let trained = net.named_parameters().into_iter().filter(|(_, p)| p.requires_grad());
    let (head, backbone): (Vec<_>, Vec<_>) = trained.partition(|(name, _)| name.starts_with(&head));
    let only = |named: Vec<(String, Parameter)>| named.into_iter().map(|(_, p)| p).collect::<Vec<_>>();
    let groups = [Group::new(only(backbone)).lr(backbone_lr), Group::new(only(head))];
    Ok(groups.into_iter().filter(|group| !group.is_empty()).collect())
}

/// Under the names that torchvision has now: its own file of ViT-B/16 still has older ones.
fn current(weights: &StateDict) -> StateDict {
    let renamed = |name: &str| name.replace(".mlp.linear_1.", ".mlp.0.").replace(".mlp.linear_2.", ".mlp.3.");
    weights.iter().map(|(name, tensor)| (renamed(name), tensor.clone())).collect()
}

fn differs_in_channels(a: &[usize], b: &[usize]) -> bool {
    matches!((a, b), (&[o, c, h, w], &[p, d, i, j]) if c != d && c > 0 && [o, h, w] == [p, i, j])
}

/// Filters for this many channels.
fn averaged(filters: &Tensor, channels: usize) -> Result<Tensor> {
    let mut shape = filters.shape().to_vec();
    let scale = shape[1] as f64 / channels as f64;
    shape[1] = channels;
    filters.mean_dims(&[1], true)?.mul_scalar(scale)?.broadcast_to(shape)
}

fn other_channels(spec: &Spec, channels: usize) -> Error {
    Error::Argument(format!(
        "the weights are for images of {channels} channels, {} is built for {}: give it images of {channels} channels, \
         or have the filters of its first layer averaged",
        spec.name, spec.channels
    ))
}

fn refusal(spec: &Spec, report: &Report, missing: &[String], other: &[String]) -> Error {
    let list = |title: &str, items: &[String]| match items {
        [] => String::new(),
        items if items.len() <= 6 => format!("; {title}: {}", items.join(", ")),
        items => format!("; {title}: {} and {} more", items[..5].join(", "), items.len() - 5),
    };
    let (fit, all) = (report.taken.len(), report.taken.len() + report.fresh.len() + missing.len() + other.len());
    let size = match other.iter().any(|name| name.contains("pos_embedding")) {
        true => "; the position embedding depends on the image size: use the one that the weights were trained with",
        false => "",
    };
    let lists = list("missing", missing) + &list("of another shape", other) + &list("not used", &report.unused);
    Error::Argument(format!("these are not weights of {}: {fit} of its {all} tensors fit{lists}{size}", spec.name))
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
