//! Networks by name.

use super::nearest::nearest;
use super::networks::{self, Network};
use crate::nn::{Forward, init};
use crate::{Error, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A network by its name and what it is made for: enough to build it again.
///
/// ```
/// use neurona::models::Spec;
/// let spec = Spec::new("mobilenet_v2", 10)?.images([3, 64, 64]).with("dropout", 0.1);
/// assert_eq!(spec.build()?.num_parameters(), 2_236_682);
/// let error = Spec::new("resnet-18", 10).unwrap_err().to_string();
/// assert!(error.starts_with("there is no network called 'resnet-18'; did you mean resnet18?"), "{error}");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// One of [`Spec::NAMES`].
    pub name: String,
    /// What it tells apart.
    pub classes: usize,
    /// Channels of its images.
    pub channels: usize,
    /// Rows of its images.
    pub height: usize,
    /// Pixels in a row.
    pub width: usize,
    /// Arguments with torchvision's names, such as `dropout`; what is not here has its default.
    pub arguments: BTreeMap<String, f64>,
}

impl Spec {
    /// The names that [`Spec::build`] knows.
    pub const NAMES: &[&str] = &networks::NAMES;

    /// The network of this name for this many classes, with images of the size it was made for.
    pub fn new(name: &str, classes: usize) -> Result<Self> {
        let [channels, height, width] = find(name)?.images;
        Ok(Spec { name: name.into(), classes, channels, height, width, arguments: BTreeMap::new() })
    }

    /// For images of this size (channels, height, width).
    pub fn images(mut self, [channels, height, width]: [usize; 3]) -> Self {
        (self.channels, self.height, self.width) = (channels, height, width);
        self
    }

    /// With this argument; those that a network has are in [`Spec::known_arguments`].
    pub fn with(mut self, argument: &str, value: f64) -> Self {
        self.arguments.insert(argument.into(), value);
        self
    }

    /// Names and defaults of the network's arguments.
    ///
    /// ```
    /// use neurona::models::Spec;
    /// assert_eq!(Spec::new("vgg16", 10)?.known_arguments()?, [("dropout", 0.5)]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn known_arguments(&self) -> Result<Vec<(&'static str, f64)>> {
        Ok(find(&self.name)?.arguments.iter().map(|a| (a.name, a.default)).collect())
    }

    /// The value of an argument: the one given, or the default.
    pub fn argument(&self, name: &str) -> Result<f64> {
        let network = find(&self.name)?;
        let known = network.arguments.iter().find(|a| a.name == name);
        let known = known.ok_or_else(|| self.unknown_argument(network, name))?;
        let value = self.arguments.get(name).copied().unwrap_or(known.default);
        match known.kind.allows(value) {
            true => Ok(value),
            false => {
                let (network, kind) = (&self.name, known.kind);
                Err(Error::Argument(format!("{network}: {name} must be {kind}, not {value}")))
            }
        }
    }

    /// The path of its last layer, whose outputs are the classes.
    ///
    /// ```
    /// assert_eq!(neurona::models::Spec::new("vit_b_16", 10)?.head_path()?, "heads.head");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn head_path(&self) -> Result<&'static str> {
        Ok(find(&self.name)?.head)
    }

    /// The path of its first layer, whose inputs are the images' channels.
    pub fn stem_path(&self) -> Result<&'static str> {
        Ok(find(&self.name)?.stem)
    }

    /// Whether the network can be built: an error says what it cannot be.
    pub fn check(&self) -> Result<()> {
        let network = find(&self.name)?;
        let Spec { name, classes, channels, height, width, .. } = self;
        let (least, wrong) = (network.least, |problem| Err(Error::Argument(problem)));
        if *classes == 0 || *channels == 0 {
            return wrong(format!("{name} cannot have {classes} classes and images of {channels} channels"));
        }
        if *height < least || *width < least {
            return wrong(format!(
                "{name} needs images of {least} x {least} pixels or more, not {width} x {height}: use larger images, \
                 or a network made for small ones ({})",
                networks::small().join(", ")
            ));
        }
        self.arguments.keys().try_for_each(|name| self.argument(name).map(|_| ()))
    }

    /// The network, with fresh parameters.
    pub fn build(&self) -> Result<Box<dyn Forward>> {
        self.check()?;
        (find(&self.name)?.build)(self)
    }

    /// The network with zeros where parameters would be drawn, for weights that are about to be loaded. No random
    /// numbers are used up, and large networks are there at once.
    ///
    /// ```
    /// use neurona::models::Spec;
    /// let (trained, net) = (Spec::new("lenet", 10)?.build()?, Spec::new("lenet", 10)?.build_empty()?);
    /// net.load_state_dict(&trained.state_dict()?, true)?;
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn build_empty(&self) -> Result<Box<dyn Forward>> {
        init::left_empty(usize::MAX, || self.build())
    }

    /// As JSON, for a model file or a configuration.
    pub fn to_json(&self) -> Value {
        let Spec { name, classes, channels, height, width, arguments } = self;
        json!({ "name": name, "classes": classes, "channels": channels, "height": height, "width": width,
                "arguments": arguments })
    }

    /// What [`Spec::to_json`] wrote. The network must be known and its arguments sound.
    ///
    /// ```
    /// use neurona::models::Spec;
    /// let spec = Spec::new("alexnet", 5)?.with("dropout", 0.25);
    /// assert_eq!(Spec::from_json(&spec.to_json())?, spec);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn from_json(value: &Value) -> Result<Self> {
        let wrong = |key: &str, what: &str| Error::Argument(format!("the network's \"{key}\" is not {what}"));
        let count = |key: &str| {
            let count = value[key].as_u64().and_then(|n| usize::try_from(n).ok());
            count.ok_or_else(|| wrong(key, "a whole number"))
        };
        let name = value["name"].as_str().ok_or_else(|| wrong("name", "a text"))?;
        let mut spec = Spec::new(name, count("classes")?)?;
        spec = spec.images([count("channels")?, count("height")?, count("width")?]);
        let none = Map::new();
        let arguments = match &value["arguments"] {
            Value::Null => &none,
            other => other.as_object().ok_or_else(|| wrong("arguments", "an object"))?,
        };
        for (name, value) in arguments {
            spec = spec.with(name, value.as_f64().ok_or_else(|| wrong(name, "a number"))?);
        }
        spec.check()?;
        Ok(spec)
    }

    fn unknown_argument(&self, network: &Network, name: &str) -> Error {
        let known: Vec<&str> = network.arguments.iter().map(|a| a.name).collect();
        let listed = if known.is_empty() { "none".into() } else { known.join(", ") };
        let meant = nearest(name, &known).map_or(String::new(), |n| format!(" did you mean {n}?"));
        Error::Argument(format!("{} has no argument '{name}';{meant} known are {listed}", self.name))
    }
}

fn find(name: &str) -> Result<&'static Network> {
    networks::ALL.iter().find(|n| n.name == name).ok_or_else(|| {
        let meant = nearest(name, Spec::NAMES).map_or(String::new(), |n| format!(" did you mean {n}?"));
        let known = Spec::NAMES.join(", ");
        Error::Argument(format!("there is no network called '{name}';{meant} known are {known}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(spec: Result<Spec>) -> String {
        spec.and_then(|s| s.build().map(|_| ())).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_built_is_explained() {
        for (name, meant) in [
            ("ResNet18", "resnet18"),
            ("mobilenetv2", "mobilenet_v2"),
            ("vit-b/16", "vit_b_16"),
            ("vgg_16", "vgg16"),
            ("resnet18cifar", "resnet18_cifar"),
            ("lenett", "lenet"),
        ] {
            let error = error(Spec::new(name, 2));
            assert!(error.contains(&format!("did you mean {meant}?")), "{error}");
        }
        let known = error(Spec::new("transformer", 2));
        assert!(!known.contains("did you mean") && known.contains("alexnet"), "{known}");
        let small = error(Spec::new("vgg16", 2).map(|s| s.images([3, 28, 40])));
        assert!(small.starts_with("vgg16 needs images of 32 x 32 pixels or more, not 40 x 28"), "{small}");
        let none = error(Spec::new("resnet18", 0));
        assert!(none.contains("cannot have 0 classes"), "{none}");
        let unknown = error(Spec::new("vgg16", 2).map(|s| s.with("dropuot", 0.1)));
        assert!(unknown.contains("no argument 'dropuot'; did you mean dropout?"), "{unknown}");
        for value in [-0.1, 1.5, f64::NAN] {
            let wild = error(Spec::new("alexnet", 2).map(|s| s.with("dropout", value)));
            assert!(wild.contains("dropout must be from 0 to 1"), "{wild}");
        }
        let half = error(Spec::new("vit_b_16", 2).map(|s| s.with("num_layers", 1.5)));
        assert!(half.contains("num_layers must be a whole number above 0"), "{half}");
        let patches = error(Spec::new("vit_b_16", 2).map(|s| s.images([3, 40, 40])));
        assert!(patches.contains("40 x 40") && patches.contains("16"), "{patches}");
    }

    #[test]
    fn json_that_is_not_a_network_is_refused() {
        let good = Spec::new("lenet", 4).unwrap().to_json();
        for (key, value) in [
            ("name", json!(3)),
            ("name", json!("no")),
            ("classes", json!(-1)),
            ("classes", json!(0)),
            ("height", json!(1.5)),
            ("width", Value::Null),
            ("arguments", json!([1])),
            ("arguments", json!({ "dropout": 0.5 })),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            assert!(Spec::from_json(&bad).is_err(), "{bad}");
        }
        assert!(Spec::from_json(&json!("lenet")).is_err());
    }
}
