//! Whether a checkpoint belongs to a run.

use super::Trainer;
use crate::data::Batches;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a run and the one before it must have in common, by name and in words.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fingerprint(BTreeMap<String, String>);

impl Fingerprint {
    pub fn of(trainer: &Trainer<'_>, train: &dyn Batches) -> Self {
        let clip = format!("{:?}", trainer.clip);
        let ema = trainer
            .ema
            .map_or("none".into(), |(decay, warm_up)| format!("{decay}{}", if warm_up { " with warm-up" } else { "" }));
        let mixed = crate::autocast().map(|dtype| ("mixed precision", dtype.to_string()));
        let augment = trainer.augment.as_ref().map(|augment| ("augmentation", format!("{augment:?}")));
        let own = trainer.settings.iter().map(|(name, value)| (format!("setting {name}"), value.clone()));
        let seen = [
            ("optimizer", trainer.optimizer_name.to_string()),
            ("learning rate", trainer.rate.describe()),
            ("batches to an update", trainer.accumulate.to_string()),
            ("gradient clipping", clip),
            ("moving average", ema),
            ("training images", train.images().to_string()),
            ("training batches", train.batches().to_string()),
            ("validation images", trainer.validation.map_or(0, |v| v.images()).to_string()),
        ];
        let seen = seen.into_iter().chain(mixed).chain(augment).map(|(name, value)| (name.to_string(), value));
        Fingerprint(seen.chain(own).collect())
    }

    /// Whether the run keeps a moving average of the weights.
    pub fn averaged(&self) -> bool {
        self.0.get("moving average").is_some_and(|ema| ema != "none")
    }

    /// What differs: `batches to an update: 2 in the checkpoint, 1 now`.
    pub fn differences(&self, now: &Fingerprint) -> Vec<String> {
        let names: std::collections::BTreeSet<&String> = self.0.keys().chain(now.0.keys()).collect();
        let value = |of: &Fingerprint, name: &String| of.0.get(name).map_or("nothing".into(), String::clone);
        let differing = names.into_iter().filter(|name| self.0.get(*name) != now.0.get(*name));
        differing.map(|n| format!("{n}: {} in the checkpoint, {} now", value(self, n), value(now, n))).collect()
    }

    pub fn write(&self) -> Value {
        json!(self.0)
    }

    pub fn read(value: &Value) -> Self {
        let pairs = value.as_object().into_iter().flatten();
        Fingerprint(pairs.filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_string()))).collect())
    }
}
