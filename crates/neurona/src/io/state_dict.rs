//! The tensors of a model by name.

use crate::Tensor;

/// Tensors by name, in order: what is saved of a model.
///
/// ```
/// use neurona::{Tensor, io::StateDict};
/// let mut state = StateDict::new();
/// state.insert("fc.weight", Tensor::from([1.0f32, 2.0]));
/// assert_eq!(state.get("fc.weight").unwrap().to_vec::<f32>()?, [1.0, 2.0]);
/// assert_eq!(state.names().collect::<Vec<_>>(), ["fc.weight"]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct StateDict {
    entries: Vec<(String, Tensor)>,
    places: std::collections::HashMap<String, usize>,
}

impl StateDict {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a tensor under a name, in the place of one that has it already; gives that one back.
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) -> Option<Tensor> {
        let name = name.into();
        if let Some(&place) = self.places.get(&name) {
            return Some(std::mem::replace(&mut self.entries[place].1, tensor));
        }
        self.places.insert(name.clone(), self.entries.len());
        self.entries.push((name, tensor));
        None
    }

    /// Takes a tensor out; those behind it move up.
    pub fn remove(&mut self, name: &str) -> Option<Tensor> {
        let place = self.places.remove(name)?;
        self.places.values_mut().filter(|p| **p > place).for_each(|p| *p -= 1);
        Some(self.entries.remove(place).1)
    }

    /// The tensor of a name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.places.get(name).map(|&place| &self.entries[place].1)
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Names and tensors in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.entries.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }
}

impl<S: Into<String>> FromIterator<(S, Tensor)> for StateDict {
    fn from_iter<I: IntoIterator<Item = (S, Tensor)>>(entries: I) -> Self {
        let mut state = StateDict::new();
        entries.into_iter().for_each(|(name, tensor)| {
            state.insert(name, tensor);
        });
        state
    }
}

impl IntoIterator for StateDict {
    type Item = (String, Tensor);
    type IntoIter = std::vec::IntoIter<(String, Tensor)>;
    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_replacing_and_removing() {
        let mut state: StateDict = ["a", "b", "c"].into_iter().map(|n| (n, Tensor::scalar(0.0f32))).collect();
        assert!(state.insert("a", Tensor::scalar(1.0f32)).is_some());
        assert!(state.remove("b").is_some() && state.remove("b").is_none());
        state.insert("b", Tensor::scalar(2.0f32));
        assert_eq!(state.names().collect::<Vec<_>>(), ["a", "c", "b"]);
        assert!(state.get("c").is_some() && state.contains("b") && state.len() == 3);
    }
}
