//! Elements by their places: `index_select`, `gather`.

mod cpu;
mod cuda;

use super::movement::{Origin, places};
use super::slice::resized;
use super::{At, Operation, one};
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Device, Meta, Shape, Tensor, here, with_storage_type};
use crate::{Error, Result};

/// Operands: x and the places along a dimension (i64), which are one line for all (`lines`), or one place for each
/// element of the result and then of x's shape but for that dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gather {
    pub dim: usize,
    pub lines: bool,
}

/// The gradient of [`Gather`]: each element is added to the place it was taken from, in the order of the places.
/// Operands: dy and the places.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScatterAdd {
    pub dim: usize,
    pub size: usize,
    pub lines: bool,
}

impl Operation for Gather {
    fn name(&self) -> &'static str {
        if self.lines { "index_select" } else { "gather" }
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let (x, index) = (inputs[0], inputs[1]);
        let wrong = |problem: &str| Err(Error::operands(self.name(), problem, &[("input", x), ("index", index)]));
        if index.dtype != DType::I64 {
            return wrong("the places must be i64");
        }
        if self.lines {
            if index.shape.len() != 1 {
                return wrong("the places must be one line");
            }
            return one(Meta { shape: resized(&x.shape, self.dim, index.shape[0]), dtype: x.dtype });
        }
        let fits = index.shape.len() == x.shape.len();
        if !fits || resized(&index.shape, self.dim, x.shape[self.dim]) != x.shape {
            return wrong(&format!("the sizes may differ in dimension {} only", self.dim));
        }
        one(Meta { shape: index.shape.clone(), dtype: x.dtype })
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let op = ScatterAdd { dim: self.dim, size: at.inputs[0].shape()[self.dim], lines: self.lines };
        Ok(vec![Some(Tensor::apply(op, &[&at.dy()?, &at.inputs[1]])?), None])
    }
    fn moves_only(&self) -> bool {
        true
    }
    fn cpu(&self, inputs: &[Operand], outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let (x, y) = (&inputs[0].meta, &outputs[0].meta);
        let sizes = cpu::Sizes::new(&x.shape, self.dim, y.shape[self.dim], self.lines);
        Ok(with_storage_type!(x.dtype, T => Box::new(cpu::Gather::<T>::new(sizes))))
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let (x, y) = (&inputs[0].meta, &outputs[0].meta);
        let origin = if self.lines { Origin::Lines } else { Origin::Each };
        places(x.dtype, &x.shape, &y.shape, self.dim, origin, gpu)
    }
}

impl Operation for ScatterAdd {
    fn name(&self) -> &'static str {
        "scatter_add"
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        one(Meta { shape: resized(&inputs[0].shape, self.dim, self.size), dtype: inputs[0].dtype })
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let op = Gather { dim: self.dim, lines: self.lines };
        Ok(vec![Some(Tensor::apply(op, &[&at.dy()?, &at.inputs[1]])?), None])
    }
    fn cpu(&self, inputs: &[Operand], outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let (dy, x) = (&inputs[0].meta, &outputs[0].meta);
        let sizes = cpu::Sizes::new(&x.shape, self.dim, dy.shape[self.dim], self.lines);
        Ok(match dy.dtype {
            DType::F64 => Box::new(cpu::ScatterAdd::<f64>::new(sizes)),
            _ => Box::new(cpu::ScatterAdd::<f32>::new(sizes)),
        })
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let (dy, dx) = (&inputs[0].meta, &outputs[0].meta);
        cuda::scatter_add(dy.dtype, (&dy.shape, &dx.shape), self.dim, self.lines, gpu)
    }
}

impl Tensor {
    /// The places (i64) `index` along a dimension, in their order, however often each occurs.
    ///
    /// Places outside the dimension are an error where they are known already; where they are still to be computed
    /// such places give NaN, or 0 for whole numbers.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    /// assert_eq!(x.index_select(0, &Tensor::from([2i64, 0]))?.to_vec::<f32>()?, [5.0, 6.0, 1.0, 2.0]);
    /// assert!(x.index_select(0, &Tensor::from([3i64])).is_err());
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn index_select(&self, dim: isize, index: &Tensor) -> Result<Tensor> {
        let dim = self.dim("index_select", dim)?;
        let y = Tensor::apply(Gather { dim, lines: true }, &[self, index])?;
        self.places_exist("index_select", dim, index)?;
        Ok(y)
    }

    /// For each place of `index` (i64) the element that stands there along a dimension, and otherwise where the
    /// place stands: `y[i][j] = x[i][index[i][j]]` for dimension 1. Places outside are treated as by
    /// [`Tensor::index_select`].
    ///
    /// ```
    /// use neurona::Tensor;
    /// let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.gather(1, &Tensor::from([[1i64], [0]]))?.to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn gather(&self, dim: isize, index: &Tensor) -> Result<Tensor> {
        let d = self.dim("gather", dim)?;
        let wrong = |problem: &str| {
            Error::operands("gather", problem, &[("input", self.meta()), ("index", index.meta())]).at(here())
        };
        if index.rank() != self.rank() {
            return Err(wrong("both need the same number of dimensions"));
        }
        // Where there are fewer places than elements, the first elements have them.
        let mut x = self.clone();
        for (other, &size) in index.shape().iter().enumerate() {
            if other != d && size < x.shape()[other] {
                x = x.narrow(other as isize, 0, size)?;
            }
        }
        let y = Tensor::apply(Gather { dim: d, lines: false }, &[&x, index])?;
        self.places_exist("gather", d, index)?;
        Ok(y)
    }

    /// An error when an index that is there already names places that are not.
    #[track_caller]
    pub(crate) fn places_exist(&self, op: &'static str, dim: usize, index: &Tensor) -> Result<()> {
        let size = self.shape()[dim];
        // On a GPU it would mean waiting for the GPU: there such places give NaN, as they do when they are computed.
        let Some(places) = index.node.value(index.out).filter(|s| s.device() == Device::Cpu) else {
            return Ok(());
        };
        let outside = |place: &&i64| !(0..size as i64).contains(*place);
        match places.read::<i64>()[..index.numel()].iter().find(outside) {
            Some(place) => Err(self.error(op, format!("dimension {dim} of size {size} has no place {place}"))),
            None => Ok(()),
        }
    }

    /// One more dimension at the end, with 1 at the place that each element (i64) names and 0 elsewhere; all 0
    /// where there is no such class.
    ///
    /// ```
    /// let y = neurona::Tensor::from([2i64, 0]).one_hot(3)?;
    /// assert_eq!(y.to_vec::<i64>()?, [0, 0, 1, 1, 0, 0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn one_hot(&self, classes: usize) -> Result<Tensor> {
        if self.dtype() != DType::I64 {
            return Err(self.error("one_hot", "the classes must be i64"));
        }
        let wide: Shape = self.shape().iter().copied().chain([classes]).collect();
        let hit = self.unsqueeze(-1)?.eq(&Tensor::arange_step(0, classes, 1)?.to(self.device())?)?;
        hit.to_dtype(DType::I64)?.broadcast_to(wide)
    }
}
