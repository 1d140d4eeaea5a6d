//! Matrix products: `matmul`, `linear`.

pub(crate) mod cuda;
mod hopper;
mod vendor;

use super::{At, Op, Operation, one};
use crate::cpu::gemm::{Activation, MatLayout, MatMul as Kernel32, MatMulReference};
use crate::cpu::kernel::Kernel;
use crate::cuda::choice::choose;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::Metas;
use crate::tensor::{DType, Meta, Shape, Tensor, called_at, here};
use crate::{Error, Result};
use std::panic::Location;

/// A product of matrices `[rows, columns]`, or of batches of them `[batch, rows, columns]`, either of which may
/// be stored transposed; a batch of 1 serves all. A third operand is a bias added to each row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatMul {
    pub transpose_a: bool,
    pub transpose_b: bool,
    /// Set by the lowering pass.
    pub activation: Activation,
    /// Set by the lowering pass: f32 results from 16-bit operands.
    pub wide: bool,
    /// Set by the lowering pass: the third operand is no bias but a relu's result, of the product's shape and
    /// type. Where it is not above zero the product becomes zero: the gradient by what relu was applied to.
    pub masked: bool,
}

/// Sizes of the product.
#[derive(Debug)]
struct Sizes {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
}

impl MatMul {
    /// A product of two stored so.
    pub fn new(transpose_a: bool, transpose_b: bool) -> Self {
        MatMul { transpose_a, transpose_b, activation: Activation::None, wide: false, masked: false }
    }

    /// What is added to each row.
    fn bias<'a, T>(&self, inputs: &'a [T]) -> Option<&'a T> {
        inputs.get(2).filter(|_| !self.masked)
    }

    /// The type of the relu's result.
    fn mask(&self, inputs: &[Operand]) -> Option<DType> {
        inputs.get(2).filter(|_| self.masked).map(|mask| mask.meta.dtype)
    }

    /// The product as the gradient by what a relu was applied to, whose result is one more operand.
    pub fn with_mask(&self, operands: usize) -> Option<Op> {
        let plain = operands == 2 && self.activation == Activation::None && !self.masked;
        plain.then(|| MatMul { masked: true, ..self.clone() }.into())
    }

    fn sizes(&self, a: &Meta, b: &Meta) -> Option<Sizes> {
        let ((batch_a, ra, ca), (batch_b, rb, cb)) = match (&a.shape[..], &b.shape[..]) {
            (&[ra, ca], &[rb, cb]) => ((1, ra, ca), (1, rb, cb)),
            (&[batch_a, ra, ca], &[batch_b, rb, cb]) => ((batch_a, ra, ca), (batch_b, rb, cb)),
            _ => return None,
        };
        let (m, k) = if self.transpose_a { (ca, ra) } else { (ra, ca) };
        let (k2, n) = if self.transpose_b { (cb, rb) } else { (rb, cb) };
        let fits = k == k2 && (batch_a == batch_b || batch_a == 1 || batch_b == 1);
        fits.then_some(Sizes { batch: if batch_a == 1 { batch_b } else { batch_a }, m, n, k })
    }
}

impl Operation for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }
    fn describe(&self) -> String {
        let t = |t: bool| if t { "ᵀ" } else { "" };
        let after = if self.masked { "·relu_grad" } else { self.activation.suffix() };
        format!("matmul a{}b{}{after}", t(self.transpose_a), t(self.transpose_b))
    }
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas> {
        let (a, b) = (inputs[0], inputs[1]);
        let bad = |problem: &str| Error::operands("matmul", problem, &[("left", a), ("right", b)]);
        if a.dtype != b.dtype || !a.dtype.is_float() {
            return Err(bad("needs two floating-point tensors of one type"));
        }
        let s = self.sizes(a, b).ok_or_else(|| bad("the inner sizes differ"))?;
        // Mixed precision leaves the bias in f32.
        let fits = |m: &Meta| m.dtype == a.dtype || a.dtype.compute() != a.dtype && m.dtype == DType::F32;
        if self.bias(inputs).is_some_and(|bias| bias.shape[..] != [s.n] || !fits(bias)) {
            let operands = [("left", a), ("right", b), ("bias", inputs[2])];
            return Err(Error::operands("matmul", "the bias does not fit the columns", &operands));
        }
        let batch = (a.shape.len() == 3).then_some(s.batch);
        one(Meta::new(
            batch.into_iter().chain([s.m, s.n]).collect::<Shape>(),
            if self.wide { DType::F32 } else { a.dtype },
        ))
    }
    fn multiply_adds(&self, inputs: &[&Meta], _outputs: &[Meta]) -> u64 {
        let sizes = self.sizes(inputs[0], inputs[1]);
        sizes.map_or(0, |s| [s.batch, s.m, s.n, s.k].iter().fold(1, |n: u64, d| n.saturating_mul(*d as u64)))
    }
    fn gradient(&self, at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        let (a, b, dy) = (&at.inputs[0], &at.inputs[1], &at.dy()?);
        let product = |x: &Tensor, tx: bool, y: &Tensor, ty: bool| Tensor::apply(MatMul::new(tx, ty), &[x, y]);
        // y = A·B: dA = dy·Bᵀ, dB = Aᵀ·dy; with A or B stored transposed, the transposes of these.
        let by_a = at.when(0, || match self.transpose_a {
            false => product(dy, false, b, !self.transpose_b)?.sum_to(a.shape()),
            true => product(b, self.transpose_b, dy, true)?.sum_to(a.shape()),
        })?;
        let by_b = at.when(1, || match self.transpose_b {
            false => product(a, !self.transpose_a, dy, false)?.sum_to(b.shape()),
            true => product(dy, true, a, self.transpose_a)?.sum_to(b.shape()),
        })?;
        let mut gradients = vec![by_a, by_b];
        if let Some(bias) = at.inputs.get(2) {
            gradients.push(at.when(2, || dy.sum_to(bias.shape()))?);
        }
        Ok(gradients)
    }
    fn cpu(&self, inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        let (a, b) = (&inputs[0].meta, &inputs[1].meta);
        let s = self.sizes(a, b).ok_or_else(|| Error::op("matmul", "the sizes were checked when it was made"))?;
        let layout = |m: &Meta, transposed: bool| {
            let rank = m.shape.len();
            let (rows, columns) = (m.shape[rank - 2], m.shape[rank - 1]);
            let batch = if rank == 2 || m.shape[0] == 1 { 0 } else { rows * columns };
            if transposed {
                MatLayout { row: 1, col: columns, batch }
            } else {
                MatLayout { row: columns, col: 1, batch }
            }
        };
        let (la, lb) = (layout(a, self.transpose_a), layout(b, self.transpose_b));
        let bias = self.bias(inputs).is_some();
        Ok(match a.dtype {
            DType::F64 => Box::new(MatMulReference::<f64>::new(s.batch, s.m, s.n, s.k, la, lb, bias, self.activation)),
            _ => {
                let lasts = inputs[1].lasting;
                Box::new(Kernel32::of(s.batch, s.m, s.n, s.k, la, lb, bias, self.activation, lasts, self.masked))
            }
        })
    }
    fn cuda(&self, inputs: &[Operand], outputs: &[Operand], gpu: &Gpu) -> Result<GpuKernel> {
        let sizes = self.sizes(&inputs[0].meta, &inputs[1].meta);
        let sizes = sizes.ok_or_else(|| Error::op("matmul", "the sizes were checked when it was made"))?;
        let mut candidates = hopper::candidates(self, &sizes, inputs, &outputs[0], gpu)?;
        if candidates.is_empty() {
            candidates = cuda::candidates(self, &sizes, inputs, outputs[0].meta.dtype, gpu)?;
        }
        let vendor = |name: Option<&str>| vendor::candidates(self, &sizes, inputs, &outputs[0], name, gpu);
        let problem = format!("{self:?} {sizes:?} {} {}", inputs[0].meta.dtype, outputs[0].meta.dtype);
        choose(&problem, inputs, outputs, candidates, vendor, gpu)
    }
    fn with_activation(&self, activation: Activation) -> Option<Op> {
        (!self.masked).then(|| MatMul { activation, ..self.clone() }.into())
    }
}

impl Tensor {
    /// The product of two matrices, of a matrix and a vector, of two vectors, or of batches of matrices whose
    /// leading dimensions broadcast, as `torch.matmul`.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let a = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(a.matmul(&Tensor::from([1.0f32, 1.0]))?.to_vec::<f32>()?, [3.0, 7.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 || other.rank() == 0 {
            return Err(self.error("matmul", "both operands need at least one dimension"));
        }
        let (vector_a, vector_b) = (self.rank() == 1, other.rank() == 1);
        let a = if vector_a { self.unsqueeze(0)? } else { self.clone() };
        let b = if vector_b { other.unsqueeze(1)? } else { other.clone() };
        let (lead_a, lead_b) = (lead(&a), lead(&b));
        let place = here();
        let wrong = |problem: &str| {
            Error::operands("matmul", problem, &[("left", self.meta()), ("right", other.meta())]).at(place)
        };
        let batch = lead_a.broadcast(&lead_b).ok_or_else(|| wrong("the leading sizes do not broadcast"))?;
        let canonical = |x: &Tensor, own: &Shape| -> Result<Tensor> {
            if batch.is_empty() {
                return Ok(x.clone());
            }
            let (rows, columns) = (x.shape()[x.rank() - 2], x.shape()[x.rank() - 1]);
            // A batch of 1 serves all products without being repeated in memory.
            if own.numel() == 1 && batch.numel() > 0 {
                return x.reshape([1, rows, columns]);
            }
            let full: Shape = batch.iter().copied().chain([rows, columns]).collect();
            x.broadcast_to(full)?.reshape([batch.numel(), rows, columns])
        };
        let op = MatMul::new(false, false);
        if a.shape()[a.rank() - 1] != b.shape()[b.rank() - 2] {
            return Err(wrong("the inner sizes differ"));
        }
        let y = Tensor::apply(op, &[&canonical(&a, &lead_a)?, &canonical(&b, &lead_b)?])?;
        if a.rank() == 2 && b.rank() == 2 && !vector_a && !vector_b {
            return Ok(y);
        }
        let (m, n) = (y.shape()[y.rank() - 2], y.shape()[y.rank() - 1]);
        let tail = [m, n].into_iter().zip([vector_a, vector_b]).filter(|(_, vector)| !vector).map(|(size, _)| size);
        y.reshape(batch.iter().copied().chain(tail).collect::<Shape>())
    }

    /// `x·Wᵀ + b` with `W` as `[out, in]`: a fully connected layer.
    ///
    /// ```
    /// use neurona::Tensor;
    /// let (x, w) = (Tensor::from([[1.0f32, 2.0]]), Tensor::from([[3.0f32, 4.0], [5.0, 6.0]]));
    /// assert_eq!(x.linear(&w, Some(&Tensor::from([0.0f32, 100.0])))?.to_vec::<f32>()?, [11.0, 117.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let caller = Location::caller();
        let wrong = |problem: String| {
            let operands = [("input", self.meta()), ("weight", weight.meta())];
            Error::operands("linear", problem, &operands).at(called_at(caller))
        };
        let &[out, inner] = &weight.shape()[..] else {
            return Err(wrong("the weight must be [out, in]".into()));
        };
        if self.rank() == 0 || self.shape()[self.rank() - 1] != inner {
            let got = self.shape().last().copied().unwrap_or(0);
            return Err(wrong(format!("input has {got} features but the weight expects {inner}")));
        }
        let lead: Shape = self.shape()[..self.rank() - 1].iter().copied().collect();
        let op = MatMul::new(false, true);
        let product = |x: &Tensor| match bias {
            Some(b) => Tensor::apply(op, &[x, weight, b]),
            None => Tensor::apply(op, &[x, weight]),
        };
        if lead.len() == 1 {
            return product(self);
        }
        product(&self.reshape([lead.numel(), inner])?)?.reshape(lead.iter().copied().chain([out]).collect::<Shape>())
    }
}

/// The sizes before the last two.
fn lead(x: &Tensor) -> Shape {
    x.shape()[..x.rank() - 2].iter().copied().collect()
}
