//! Several parts of a data set as one.

use neurona::Result;
use neurona::data::{Dataset, Image};
use std::sync::Arc;

/// The images of several sets with the same classes, one set after the other.
pub struct Together {
    parts: Vec<Arc<dyn Dataset>>,
    labels: Vec<i64>,
}

impl Together {
    /// All of these.
    pub fn new(parts: Vec<Arc<dyn Dataset>>) -> Self {
        let labels = parts.iter().flat_map(|part| part.labels()).copied().collect();
        Together { parts, labels }
    }

    /// The set that an image is in, and its place there.
    fn find(&self, mut index: usize) -> Option<(&dyn Dataset, usize)> {
        for part in &self.parts {
            match index.checked_sub(part.len()) {
                Some(beyond) => index = beyond,
                None => return Some((part.as_ref(), index)),
            }
        }
        None
    }
}

impl Dataset for Together {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn classes(&self) -> &[String] {
        self.parts.first().map_or(&[], |part| part.classes())
    }

    fn labels(&self) -> &[i64] {
        &self.labels
    }

    fn read(&self, index: usize, image: &mut Image) -> Result<()> {
        match self.find(index) {
            Some((part, place)) => part.read(place, image),
            None => Err(neurona::Error::Argument(format!("there is no image {index} of {}", self.len()))),
        }
    }

    fn describe(&self, index: usize) -> String {
        self.find(index).map_or_else(|| format!("image {index}"), |(part, place)| part.describe(place))
    }
}
