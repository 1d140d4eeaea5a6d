//! What travels with a model's weights, so that a model file needs nothing else.

use super::Spec;
use crate::io::safetensors;
use crate::nn::{Forward, init};
use crate::{Error, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The note of a model file that holds the card.
const KEY: &str = "neurona.model";
/// Cards with a higher number are from a newer Neurona.
const VERSION: u64 = 1;

/// How an image of any size is brought to the network's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// To exactly the network's height and width, whatever becomes of its proportions.
    Exact,
    /// The shorter side to this many pixels, then the middle is cut out.
    ShorterSide(usize),
}

/// What a model file says of its model: the network, its classes, and what its images must look like.
///
/// ```
/// use neurona::models::{self, Card, Spec};
/// # let path = std::env::temp_dir().join(format!("neurona-doc-card-{}.safetensors", std::process::id()));
/// let spec = Spec::new("lenet", 2)?;
/// let net = spec.build()?;
/// let card = Card::new(spec, ["cat", "dog"]).normalize(vec![0.5; 3], vec![0.5; 3]).note("epochs", "2");
/// card.save(&path, &net)?;
/// let (net, card) = models::open(&path)?;
/// assert_eq!((card.classes[1].as_str(), net.num_parameters()), ("dog", 61_326));
/// # std::fs::remove_file(path).ok();
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// The network and the size of its images.
    pub spec: Spec,
    /// Names of the classes, in the order of the network's outputs.
    pub classes: Vec<String>,
    /// Taken off each channel of an image from 0 to 1.
    pub mean: Vec<f64>,
    /// What each channel is divided by then.
    pub std: Vec<f64>,
    /// How images are brought to the network's size.
    pub resize: Resize,
    /// Anything else worth knowing: how it was trained, how good it is.
    pub notes: BTreeMap<String, String>,
}

impl Card {
    /// For these classes, with images from 0 to 1 that are brought to exactly the network's size.
    pub fn new<S: Into<String>>(spec: Spec, classes: impl IntoIterator<Item = S>) -> Self {
        Card {
            classes: classes.into_iter().map(Into::into).collect(),
            mean: vec![0.0; spec.channels],
            std: vec![1.0; spec.channels],
            resize: Resize::Exact,
            notes: BTreeMap::new(),
            spec,
        }
    }

    /// With this mean and standard deviation of each channel.
    pub fn normalize(mut self, mean: impl Into<Vec<f64>>, std: impl Into<Vec<f64>>) -> Self {
        (self.mean, self.std) = (mean.into(), std.into());
        self
    }

    /// With this way to bring images to the network's size.
    pub fn resize(mut self, resize: Resize) -> Self {
        self.resize = resize;
        self
    }

    /// With one more note.
    pub fn note(mut self, name: &str, text: impl Into<String>) -> Self {
        self.notes.insert(name.into(), text.into());
        self
    }

    /// Whether its parts fit together.
    pub fn check(&self) -> Result<()> {
        self.spec.check()?;
        let Card { spec, classes, mean, std, .. } = self;
        let wrong = |problem| Err(Error::Argument(problem));
        if classes.len() != spec.classes {
            return wrong(format!("{} names for {} classes", classes.len(), spec.classes));
        }
        if mean.len() != spec.channels || std.len() != spec.channels {
            let (means, stds) = (mean.len(), std.len());
            return wrong(format!("{means} means and {stds} deviations for {} channels", spec.channels));
        }
        if !mean.iter().all(|m| m.is_finite()) || !std.iter().all(|s| s.is_finite() && *s > 0.0) {
            return wrong(format!("images cannot be normalised by mean {mean:?} and deviation {std:?}"));
        }
        match self.resize {
            Resize::ShorterSide(side) if side < spec.height.max(spec.width) => {
                let (height, width) = (spec.height, spec.width);
                wrong(format!("no {width} x {height} pixels can be cut out of images whose shorter side has {side}"))
            }
            _ => Ok(()),
        }
    }

    /// As the notes of a model file.
    pub fn to_metadata(&self) -> BTreeMap<String, String> {
        // Libraries that load a file into PyTorch look for the format.
        [("format".into(), "pt".into()), (KEY.into(), self.to_json().to_string())].into()
    }

    /// The card among the notes of a file, when there is one.
    ///
    /// ```
    /// use neurona::models::{Card, Spec};
    /// let card = Card::new(Spec::new("lenet", 2)?, ["cat", "dog"]);
    /// assert_eq!(Card::from_metadata(&card.to_metadata())?, Some(card));
    /// assert_eq!(Card::from_metadata(&Default::default())?, None);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn from_metadata(notes: &BTreeMap<String, String>) -> Result<Option<Self>> {
        let Some(text) = notes.get(KEY) else { return Ok(None) };
        let value = serde_json::from_str(text).map_err(|e| Error::Argument(format!("the card is not JSON: {e}")))?;
        Card::from_json(&value).map(Some)
    }

    /// Writes the model file: the network's weights under PyTorch's names, and this card.
    pub fn save(&self, path: impl AsRef<Path>, net: &dyn Forward) -> Result<()> {
        self.check()?;
        safetensors::save(path, &net.state_dict()?, &self.to_metadata())
    }

    fn to_json(&self) -> Value {
        let resize = match self.resize {
            Resize::Exact => json!("exact"),
            Resize::ShorterSide(side) => json!({ "shorter_side": side }),
        };
        json!({ "version": VERSION, "network": self.spec.to_json(), "classes": self.classes, "mean": self.mean,
                "std": self.std, "resize": resize, "notes": self.notes })
    }

    fn from_json(value: &Value) -> Result<Self> {
        let wrong = |key: &str, what: &str| Error::Argument(format!("the card's \"{key}\" is not {what}"));
        match value["version"].as_u64() {
            Some(VERSION) => {}
            Some(newer) => {
                let problem = format!("the card has version {newer}, this Neurona knows {VERSION}: use a newer one");
                return Err(Error::Argument(problem));
            }
            None => return Err(wrong("version", "a whole number")),
        }
        let texts = |key: &str| -> Option<Vec<String>> {
            value[key].as_array()?.iter().map(|v| v.as_str().map(String::from)).collect()
        };
        let numbers = |key: &str| -> Result<Vec<f64>> {
            let numbers = value[key].as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
            numbers.ok_or_else(|| wrong(key, "a list of numbers"))
        };
        let side = || usize::try_from(value["resize"]["shorter_side"].as_u64()?).ok();
        let resize = match value["resize"].as_str() {
            Some("exact") => Resize::Exact,
            _ => Resize::ShorterSide(side().ok_or_else(|| wrong("resize", "\"exact\" or {\"shorter_side\": n}"))?),
        };
        let notes = value["notes"].as_object().into_iter().flatten();
        let card = Card {
            spec: Spec::from_json(&value["network"])?,
            classes: texts("classes").ok_or_else(|| wrong("classes", "a list of names"))?,
            mean: numbers("mean")?,
            std: numbers("std")?,
            resize,
            notes: notes.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_string()))).collect(),
        };
        card.check()?;
        Ok(card)
    }
}

/// Opens a model file: the network with its weights, in evaluation mode, and its card.
///
/// ```
/// let error = neurona::models::open("no/such/model.safetensors").err().map(|e| e.to_string()).unwrap_or_default();
/// assert!(error.starts_with("cannot read no/such/model.safetensors: "), "{error}");
/// ```
pub fn open(path: impl AsRef<Path>) -> Result<(Box<dyn Forward>, Card)> {
    let path = path.as_ref();
    let wrong = |problem: String| Error::Format { path: path.into(), problem };
    if let Some(kind) = other_kind(path)? {
        return Err(wrong(format!(
            "is {kind}, not a Neurona model file: it does not say which network its weights belong to; \
             name the network with --model and give this file with --weights"
        )));
    }
    let (state, notes) = safetensors::load_with_metadata(path)?;
    let card = Card::from_metadata(&notes).map_err(|e| wrong(format!("has a broken model card: {e}")))?;
    let card = card.ok_or_else(|| {
        wrong(format!(
            "is a safetensors file with {} tensors but no model card: it does not say which network its weights \
             belong to; name the network with --model and give this file with --weights",
            state.len()
        ))
    })?;
    let unfit = |e: Error| wrong(format!("its weights do not fit its card, which says {}: {e}", card.spec.name));
    // A card may claim any size; its network gets no more room than the file's own tensors take.
    let room = state.iter().map(|(_, tensor)| tensor.shape().numel()).sum();
    let net = init::left_empty(room, || card.spec.build()).map_err(unfit)?;
    net.load_state_dict(&state, true).map_err(unfit)?;
    net.eval();
    Ok((net, card))
}

/// What a file that is not safetensors is, where its first bytes tell.
fn other_kind(path: &Path) -> Result<Option<&'static str>> {
    use std::io::Read;
    let failed = |source| Error::File { action: "read", path: path.into(), source };
    let mut start = Vec::new();
    std::fs::File::open(path).map_err(failed)?.take(16).read_to_end(&mut start).map_err(failed)?;
    if start.get(8) == Some(&b'{') {
        // Behind the length of a safetensors header stands the header.
        return Ok(None);
    }
    Ok(match &start[..] {
        [b'P', b'K', 3 | 5, 4 | 6, ..] => Some("a PyTorch (.pth) or other zip file"),
        [0x80, 2..=5, ..] => Some("a pickle, as old PyTorch versions wrote"),
        [8, 1..=20, 0x12, ..] => Some("an ONNX file"),
        _ => None,
    })
}

#[cfg(test)]
#[path = "card_tests.rs"]
mod tests;
