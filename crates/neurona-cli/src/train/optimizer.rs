//! The optimizer and the learning rate of a run.

use crate::config::{Config, Opt, Scheduler};
use crate::failure::Outcome;
use neurona::models::{Spec, transfer};
use neurona::nn::{Forward, Parameter};
use neurona::optim::{Adam, Composite, Group, Muon, Optimizer, RmsProp, Sgd};
use neurona::schedule::{Cosine, Exponential, Linear, MultiStep, OneCycle, Schedule, Step, WarmUp};

/// Muon's learning rate is this many times the one that AdamW has beside it.
const MUON_TO_ADAM: f64 = 10.0;

/// The highest learning rate: the head's, when it has one of its own.
pub fn peak(config: &Config) -> f64 {
    config.head_lr.unwrap_or(config.lr)
}

/// The optimizer of what is to be trained.
pub fn optimizer(config: &Config, spec: &Spec, net: &dyn Forward) -> Outcome<Box<dyn Optimizer>> {
    let groups = match config.head_lr {
        Some(_) => transfer::groups(spec, net, config.lr)?,
        None => vec![Group::new(trained(net))],
    };
    let (lr, decay, momentum) = (peak(config), config.weight_decay, config.momentum);
    Ok(match config.opt {
        Opt::Sgd => {
            let sgd = Sgd::with_groups(groups, lr).momentum(momentum).weight_decay(decay);
            Box::new(sgd.nesterov(momentum > 0.0))
        }
        Opt::Adam => Box::new(Adam::with_groups(groups, lr).weight_decay(decay)),
        Opt::Adamw => Box::new(Adam::with_groups(groups, lr).weight_decay(decay).decoupled()),
        Opt::Rmsprop => Box::new(RmsProp::with_groups(groups, lr).momentum(momentum).weight_decay(decay)),
        Opt::Muon => Box::new(muon(config, spec, net)?),
    })
}

/// Muon's step makes a matrix orthogonal: it is for filters and layers. Biases, norms and the head have AdamW.
fn muon(config: &Config, spec: &Spec, net: &dyn Forward) -> Outcome<Composite> {
    let Config { lr, momentum, weight_decay: decay, head_lr, .. } = *config;
    let head_path = format!("{}.", spec.head_path()?);
    let named = net.named_parameters().into_iter().filter(|(_, p)| p.requires_grad());
    let (head, backbone): (Vec<_>, Vec<_>) = named.partition(|(name, _)| name.starts_with(&head_path));
    let (matrices, mut rest): (Vec<_>, Vec<_>) = backbone.into_iter().partition(|(_, p)| Muon::suits(p));
    let only = |named: Vec<(String, Parameter)>| named.into_iter().map(|(_, p)| p).collect::<Vec<_>>();
    let muon = Muon::new(only(matrices), lr).momentum(momentum).weight_decay(decay);
    let adam = |named, lr| Adam::new(only(named), lr).weight_decay(decay).decoupled();
    Ok(match head_lr {
        // First the head: the schedule sets the rate of the first, and the others' in proportion.
        Some(head_lr) => {
            Composite::new(vec![Box::new(adam(head, head_lr)), Box::new(muon), Box::new(adam(rest, lr / MUON_TO_ADAM))])
        }
        None => {
            rest.extend(head);
            Composite::new(vec![Box::new(muon), Box::new(adam(rest, lr / MUON_TO_ADAM))])
        }
    })
}

fn trained(net: &dyn Forward) -> Vec<Parameter> {
    net.parameters().into_iter().filter(Parameter::requires_grad).collect()
}

/// The learning rate of every step; none for the schedule that looks at validation.
pub fn schedule(config: &Config, steps_an_epoch: u64) -> Option<Box<dyn Schedule>> {
    let lr = peak(config);
    let warm_up = (config.warmup_epochs * steps_an_epoch as f64).round() as u64;
    let steps = (steps_an_epoch * config.epochs as u64).saturating_sub(warm_up).max(1);
    let schedule: Box<dyn Schedule> = match config.lr_scheduler {
        Scheduler::OneCycle => Box::new(OneCycle::new(lr, steps)),
        Scheduler::Cosine => Box::new(Cosine::new(lr, steps)),
        Scheduler::Step => Box::new(Step::new(lr, steps.div_ceil(3), 0.1)),
        Scheduler::MultiStep => Box::new(MultiStep::new(lr, &[steps / 2, steps * 3 / 4], 0.1)),
        Scheduler::Linear => Box::new(Linear::new(lr, 1.0, 0.0, steps)),
        Scheduler::Exponential => Box::new(Exponential::new(lr, 0.01f64.powf(1.0 / steps as f64))),
        Scheduler::Constant => Box::new(lr),
        Scheduler::Plateau => return None,
    };
    Some(if warm_up > 0 { Box::new(WarmUp::new(schedule, warm_up)) } else { schedule })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Facts, Settings, choose};

    #[test]
    fn with_muon_the_head_has_its_own_rate_and_the_schedule_moves_all() {
        let asked = Settings { opt: Some(Opt::Muon), lr: Some(0.02), head_lr: Some(0.5), ..Settings::default() };
        let (size, name) = ([1, 8, 8], "digits".to_string());
        let facts = Facts { name, images: 100, has_val: true, size, one_size: true, imbalance: 1.0, has_sides: false };
        let config = choose(asked, &facts).unwrap().0;
        let spec = Spec::new("small_cnn", 3).unwrap().images([1, 8, 8]);
        let net = spec.build().unwrap();
        let mut optimizer = muon(&config, &spec, &net).unwrap();
        assert_eq!(optimizer.parameters().len(), net.parameters().len(), "nothing is forgotten");
        let near = |optimizer: &mut Composite, want: [f64; 3]| {
            let rates: Vec<f64> = optimizer.parts().iter().map(|part| part.lr()).collect();
            assert!(rates.len() == 3 && rates.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12), "{rates:?}");
        };
        near(&mut optimizer, [0.5, 0.02, 0.002]);
        optimizer.set_lr(peak(&config) / 2.0);
        near(&mut optimizer, [0.25, 0.01, 0.001]);
        assert_eq!(optimizer.parts()[0].parameters().len(), 2, "the head's weight and bias");
    }
}
