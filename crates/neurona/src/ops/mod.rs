//! One folder (or file) an op: all that Neurona knows about it.
//!
//! To add one: write `ops/<name>/mod.rs` with a struct for its options that implements [`Operation`]
//! (the shape rule, the gradient rule, how it runs on each device), the user's method on
//! [`Tensor`] with a doc example, and its tests; then add one line to the table below.

use crate::cpu::gemm::Activation;
use crate::cpu::kernel::Kernel;
use crate::cuda::{Gpu, GpuKernel};
use crate::graph::ir::Operand;
use crate::graph::node::{self, Metas};
use crate::tensor::{DType, Meta, Tensor};
use crate::{Error, Result};
use std::fmt::Debug;

/// What the engine asks of an op.
pub(crate) trait Operation: Debug {
    /// The name that errors and plans show.
    fn name(&self) -> &'static str;

    /// The op with its options, for plans.
    fn describe(&self) -> String {
        self.name().to_string()
    }

    /// The shape rule: results from operands, or what does not fit.
    fn outputs(&self, inputs: &[&Meta]) -> Result<Metas>;

    /// The gradient rule: one gradient an operand, `None` where there is none.
    ///
    /// It may refer to operands, results and incoming gradients. A result that only a fused forward
    /// would not write must not be used: the derivative of relu refers to its output.
    fn gradient(&self, _at: &At<'_>) -> Result<Vec<Option<Tensor>>> {
        Err(Error::op(self.name(), "has no gradient"))
    }

    /// How it is computed.
    fn run(&self) -> Run {
        Run::Kernel
    }

    /// Which operands and results are images that kernels take with channels last.
    fn spatial(&self) -> Spatial {
        Spatial::NONE
    }

    /// (result, operand) pairs that may share memory: the kernel reads each element before it writes it.
    fn in_place(&self, _inputs: usize) -> Vec<(usize, usize)> {
        Vec::new()
    }

    /// The kernel for CPU cores.
    fn cpu(&self, _inputs: &[Operand], _outputs: &[Operand]) -> Result<Box<dyn Kernel>> {
        Err(Error::op(self.name(), "has no kernel for CPU cores"))
    }

    /// The kernel for a GPU.
    fn cuda(&self, _inputs: &[Operand], _outputs: &[Operand], _gpu: &Gpu) -> Result<GpuKernel> {
        Err(Error::op(self.name(), "has no kernel for GPUs"))
    }

    /// Products that are summed up, for summaries: what people count when they compare networks.
    fn multiply_adds(&self, _inputs: &[&Meta], _outputs: &[Meta]) -> u64 {
        0
    }

    /// Whether it only moves elements and so takes any element type.
    fn moves_only(&self) -> bool {
        false
    }

    /// The same op with an activation applied to its first result, where a kernel can do both at once. Kernels for GPUs know
    /// relu alone.
    fn with_activation(&self, _activation: Activation) -> Option<Op> {
        None
    }
}

/// How an op is computed.
pub(crate) enum Run {
    /// By a kernel of its own.
    Kernel,
    /// Element by element; neighbours are fused into one pass.
    Elementwise(Elementwise),
    /// Not at all: the result is the operand's memory under another shape.
    View,
}

/// An op that is applied element by element.
pub(crate) struct Elementwise {
    /// The function on a tile for these (compute) element types of operands and result.
    pub tile: fn(&Op, &[DType], DType) -> Option<crate::cpu::elementwise::TileFn>,
    /// The same as a CUDA C++ expression of the operands `a`, `b`, `c`, whose (compute) type is `T`. It may call what
    /// `elementwise.cuh` has, and is there for the types that `tile` is there for.
    pub cuda: fn(&Op, &[DType], DType) -> &'static str,
}

/// Operands and results that are images `[n, c, h, w]`, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spatial {
    pub inputs: &'static [usize],
    pub outputs: &'static [usize],
    /// The kernel takes operands in any order in memory.
    pub indifferent: bool,
}

impl Spatial {
    pub const NONE: Spatial = Spatial::of(&[], &[]);
    pub const INDIFFERENT: Spatial = Spatial { indifferent: true, ..Spatial::NONE };

    pub const fn of(inputs: &'static [usize], outputs: &'static [usize]) -> Spatial {
        Spatial { inputs, outputs, indifferent: false }
    }
}

/// Where a gradient rule is applied.
pub(crate) struct At<'a> {
    /// The op's operands.
    pub inputs: &'a [Tensor],
    /// The op's results.
    pub outputs: &'a [Tensor],
    /// The gradient of the loss by each result; `None` where the loss does not depend on it.
    pub grads: &'a [Option<Tensor>],
    /// Which operands need a gradient.
    pub wants: &'a [bool],
}

impl At<'_> {
    /// The gradient by the first result.
    pub fn dy(&self) -> Result<Tensor> {
        match &self.grads[0] {
            Some(dy) => Ok(dy.clone()),
            None => Tensor::zeros_like(&self.outputs[0]),
        }
    }

    /// The gradient for operand `i`, computed only when it is needed.
    pub fn when(&self, i: usize, gradient: impl FnOnce() -> Result<Tensor>) -> Result<Option<Tensor>> {
        if self.wants[i] { gradient().map(Some) } else { Ok(None) }
    }
}

/// One result of this meta.
pub(crate) fn one(meta: Meta) -> Result<Metas> {
    Ok(node::one(meta))
}

/// A kernel that is generic over f32 and f64, for the element type at hand (16-bit floats come as f32).
macro_rules! float_kernel {
    ($dtype:expr, $T:ident => $new:expr) => {
        match $dtype {
            $crate::tensor::DType::F64 => {
                type $T = f64;
                Box::new($new) as Box<dyn $crate::cpu::kernel::Kernel>
            }
            _ => {
                type $T = f32;
                Box::new($new) as Box<dyn $crate::cpu::kernel::Kernel>
            }
        }
    };
}
pub(crate) use float_kernel;

macro_rules! op_table { ($($module:ident :: $op:ident),* $(,)?) => {

    /// Every op there is.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub(crate) enum Op { $( $op($module::$op), )* }

    impl std::ops::Deref for Op {
        type Target = dyn Operation;
        fn deref(&self) -> &Self::Target {
            match self { $( Op::$op(op) => op, )* }
        }
    }

    $( impl From<$module::$op> for Op {
        fn from(op: $module::$op) -> Op { Op::$op(op) }
    } )*
} }

op_table! {
    backward::Backward,
    arithmetic::Add, arithmetic::Sub, arithmetic::Mul, arithmetic::Div,
    unary::Neg, unary::Exp, unary::Log, unary::Sqrt, unary::Abs, unary::Square, unary::Reciprocal, unary::Rsqrt,
    unary::Sin, unary::Cos, unary::Log1p, unary::Expm1, unary::Erf, unary::Sign, unary::Floor, unary::Ceil, unary::Round,
    relu::Relu, relu::ReluGrad,
    relu6::Relu6, relu6::Relu6Grad,
    sigmoid::Sigmoid,
    tanh::Tanh,
    leaky_relu::LeakyRelu, leaky_relu::LeakyReluGrad,
    elu::Elu, elu::EluGrad,
    gelu::Gelu, gelu::GeluGrad,
    silu::Silu, silu::SiluGrad,
    hardswish::Hardswish, hardswish::HardswishGrad,
    softplus::Softplus, softplus::SoftplusGrad,
    pow::Pow,
    compare::Compare,
    select::Where,
    cast::Cast,
    reshape::Reshape,
    permute::Permute,
    cat::Cat,
    slice::Slice, slice::Unslice,
    gather::Gather, gather::ScatterAdd,
    flip::Flip,
    roll::Roll,
    pad::Pad, pad::PadGrad,
    expand::Expand,
    layout::ToLayout,
    fused::Fused,
    reduce::Reduce, reduce::ArgReduce,
    prod::ProdOthers,
    cumsum::CumSum,
    sort::ArgSort,
    matmul::MatMul,
    linear_step::LinearStep,
    conv2d::Conv2d, conv2d::Conv2dInputGrad, conv2d::Conv2dWeightGrad, conv2d::Conv2dWeightGradStep,
    conv2d_pool::Conv2dPool, conv2d_pool::Conv2dPoolGrad,
    conv2d_norm_pool::Conv2dWinners, conv2d_norm_pool::Conv2dNormPoolGrad,
    max_pool2d::MaxPool2d, max_pool2d::MaxPool2dGrad,
    avg_pool2d::AvgPool2d, avg_pool2d::AvgPool2dGrad,
    batch_norm::BatchNormTrain, batch_norm::BatchNormTrainGrad, batch_norm::BatchNormEval, batch_norm::BatchNormEvalGrad,
    batch_norm::BatchNormFold,
    batch_norm_pool::BatchNormPool, batch_norm_pool::BatchNormPoolGrad,
    batch_norm_pool::BatchNormPoolWeightGrad,
    layer_norm::LayerNorm, layer_norm::LayerNormGrad,
    softmax::Softmax, softmax::SoftmaxGrad,
    cross_entropy::CrossEntropy, cross_entropy::CrossEntropyGrad, cross_entropy::CrossEntropyBoth,
    dropout::Dropout,
    augment::Augment,
    sgd_step::SgdStep,
    adam_step::AdamStep,
    rmsprop_step::RmsPropStep,
}

pub(crate) mod activation;
pub(crate) mod adam_step;
pub(crate) mod arithmetic;
pub(crate) mod augment;
pub(crate) mod avg_pool2d;
pub(crate) mod backward;
pub(crate) mod batch_norm;
pub(crate) mod batch_norm_pool;
pub(crate) mod cast;
pub(crate) mod cat;
pub(crate) mod compare;
pub(crate) mod conv2d;
pub(crate) mod conv2d_norm_pool;
pub(crate) mod conv2d_pool;
pub(crate) mod cross_entropy;
pub(crate) mod cumsum;
pub(crate) mod dropout;
pub(crate) mod elu;
pub(crate) mod expand;
mod extreme;
pub(crate) mod flip;
pub(crate) mod fused;
pub(crate) mod gather;
pub(crate) mod gelu;
pub(crate) mod hardswish;
pub(crate) mod layer_norm;
pub(crate) mod layout;
pub(crate) mod leaky_relu;
pub(crate) mod linear_step;
mod logical;
pub(crate) mod matmul;
pub(crate) mod max_pool2d;
pub(crate) mod movement;
mod norm;
pub(crate) mod pad;
pub(crate) mod permute;
pub(crate) mod pool;
pub(crate) mod pow;
pub(crate) mod prod;
pub(crate) mod reduce;
pub(crate) mod relu;
pub(crate) mod relu6;
pub(crate) mod reshape;
pub(crate) mod rmsprop_step;
pub(crate) mod roll;
pub(crate) mod select;
pub(crate) mod sgd_step;
pub(crate) mod sigmoid;
pub(crate) mod silu;
pub(crate) mod slice;
pub(crate) mod softmax;
pub(crate) mod softplus;
pub(crate) mod sort;
pub(crate) mod sweep;
pub(crate) mod tanh;
pub(crate) mod unary;
mod upsample;
mod variance;
