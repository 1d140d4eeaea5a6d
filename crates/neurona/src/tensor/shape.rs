//! Sizes of a tensor, and how two broadcast.

use smallvec::SmallVec;
use std::fmt;
use std::ops::Deref;

use super::DType;

/// The size of a tensor along each dimension.
///
/// ```
/// use neurona::Shape;
/// let s = Shape::from([2, 3]);
/// assert_eq!((s.len(), s.numel(), s.to_string().as_str()), (2, 6, "[2, 3]"));
/// ```
#[derive(PartialEq, Eq, Hash, Default)]
pub struct Shape(SmallVec<[usize; 4]>);

/// Every op that is traced copies shapes: as one block of memory, which the derived way (number by number) would not.
impl Clone for Shape {
    fn clone(&self) -> Self {
        Shape(SmallVec::from_slice(&self.0))
    }
}

/// What is known of a tensor before anything is computed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Meta {
    /// Sizes.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl Meta {
    /// A shape with an element type.
    pub fn new(shape: impl Into<Shape>, dtype: DType) -> Self {
        Meta { shape: shape.into(), dtype }
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> usize {
        self.shape.numel().saturating_mul(self.dtype.size())
    }
}

impl Shape {
    /// The number of elements.
    pub fn numel(&self) -> usize {
        // Sizes that no memory has are refused where a tensor is made; until then they may be asked about.
        self.iter().fold(1, |n: usize, &size| n.saturating_mul(size))
    }

    /// The shape without dimension `dim`.
    pub(crate) fn without(&self, dim: usize) -> Shape {
        self.iter().enumerate().filter(|(i, _)| *i != dim).map(|(_, n)| *n).collect()
    }

    /// Sizes of two operands broadcast against each other, or `None` when they do not fit.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let rank = self.len().max(other.len());
        let at = |s: &Shape, i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
        (0..rank)
            .map(|i| match (at(self, i), at(other, i)) {
                (a, b) if a == b => Some(a),
                (1, b) => Some(b),
                (a, 1) => Some(a),
                _ => None,
            })
            .collect()
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> SmallVec<[usize; 4]> {
        let mut strides: SmallVec<[usize; 4]> = SmallVec::from_elem(1, self.len());
        for i in (1..self.len()).rev() {
            strides[i - 1] = strides[i] * self[i].max(1);
        }
        strides
    }

    /// A dimension counted from the end when negative, or `None` when out of range.
    pub fn dim(&self, dim: isize) -> Option<usize> {
        let rank = self.len() as isize;
        let d = if dim < 0 { dim + rank } else { dim };
        (0..rank).contains(&d).then_some(d as usize)
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0[..])
    }
}
impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Self {
        Shape(iter.into_iter().collect())
    }
}
impl<const N: usize> From<[usize; N]> for Shape {
    fn from(s: [usize; N]) -> Self {
        Shape(SmallVec::from_slice(&s))
    }
}
impl From<&[usize]> for Shape {
    fn from(s: &[usize]) -> Self {
        Shape(SmallVec::from_slice(s))
    }
}
impl From<Vec<usize>> for Shape {
    fn from(s: Vec<usize>) -> Self {
        Shape(s.into())
    }
}
impl From<&Shape> for Shape {
    fn from(s: &Shape) -> Self {
        s.clone()
    }
}
impl From<usize> for Shape {
    fn from(n: usize) -> Self {
        Shape::from([n])
    }
}
impl From<()> for Shape {
    fn from(_: ()) -> Self {
        Shape::default()
    }
}
