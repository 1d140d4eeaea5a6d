//! The options of a node.

use super::proto;
use super::tensor;
use crate::Tensor;

/// Windows, steps and margins beyond this are mistakes.
const LARGEST: i64 = 1 << 12;

/// A node's options by name, with the version of the operators it is written in.
pub(super) struct Options<'a> {
    pub node: &'a proto::Node,
    pub opset: i64,
}

impl<'a> Options<'a> {
    fn find(&self, name: &str) -> Option<&'a proto::Attribute> {
        self.node.attribute.iter().find(|a| a.name == name)
    }

    /// Whether an operand is there; those left out have empty names.
    pub fn has_input(&self, place: usize) -> bool {
        self.node.input.get(place).is_some_and(|name| !name.is_empty())
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.find(name).and_then(|a| a.i).unwrap_or(default)
    }

    pub fn flag(&self, name: &str) -> bool {
        self.int(name, 0) != 0
    }

    /// The file has it in single precision; its shortest decimal is what was meant: 0.00001, not 0.00000999999974738.
    pub fn float(&self, name: &str, default: f64) -> f64 {
        let meant = |f: f32| f.to_string().parse().unwrap_or(f64::from(f));
        self.find(name).and_then(|a| a.f).map_or(default, meant)
    }

    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.find(name).map(|a| a.ints.clone())
    }

    pub fn floats(&self, name: &str) -> Option<Vec<f32>> {
        self.find(name).map(|a| a.floats.clone())
    }

    pub fn text(&self, name: &str, default: &'a str) -> &'a str {
        self.find(name).and_then(|a| a.s.as_ref()).and_then(|s| std::str::from_utf8(s).ok()).unwrap_or(default)
    }

    pub fn tensor(&self, name: &str) -> Result<Option<Tensor>, String> {
        match self.find(name).and_then(|a| a.t.as_ref()) {
            Some(t) => tensor::read(t, None).map(Some).map_err(|problem| format!("its {name} {problem}")),
            None => Ok(None),
        }
    }

    /// Two numbers, down and across, none below `least`.
    pub fn pair(&self, name: &str, default: i64, least: i64) -> Result<[usize; 2], String> {
        match self.ints(name).as_deref() {
            None => Ok([default as usize; 2]),
            Some(&[a, b]) if [a, b].iter().all(|n| (least..LARGEST).contains(n)) => Ok([a as usize, b as usize]),
            Some(other) => Err(format!("{name} {other:?} is not there for two dimensions")),
        }
    }

    /// Rows above, columns to the left, rows below, columns to the right.
    pub fn pads(&self) -> Result<[usize; 4], String> {
        match self.ints("pads").as_deref() {
            None => Ok([0; 4]),
            Some(&[a, b, c, d]) if [a, b, c, d].iter().all(|n| (0..LARGEST).contains(n)) => {
                Ok([a, b, c, d].map(|n| n as usize))
            }
            Some(other) => Err(format!("pads {other:?} are not there for two dimensions")),
        }
    }
}
