//! A convolution as a graph of cuDNN's operations.

use super::descriptor::{Descriptor, Functions, Handle};
use super::{ConvolutionProblem, Direction};
use crate::Result;
use crate::cuda::vendor::ALIGNMENT;
use crate::tensor::DType;
use cudarc::cudnn::sys;
use sys::cudnnBackendAttributeName_t::*;
use sys::cudnnBackendDescriptorType_t::*;
use sys::cudnnDataType_t::{self as DataType, *};
use sys::cudnnPointwiseMode_t::{self as Pointwise, *};

/// An operand's part; its number is the identifier by which its address is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub(super) enum Role {
    Input = 1,
    Filter = 2,
    Output = 3,
    Bias = 4,
}

/// Identifiers of values that are handed on inside a kernel: from 5.
const INNER: i64 = 5;

/// A finished graph.
pub(super) struct Graph {
    pub(super) descriptor: Descriptor,
    /// Those whose addresses an execution names.
    pub(super) operands: Vec<Role>,
    /// The graph refers to them.
    _parts: Vec<Descriptor>,
}

impl Graph {
    /// The graph of a convolution, or none where cuDNN has no such type of element or refuses the whole pattern.
    pub(super) fn new(
        functions: &'static Functions,
        problem: &ConvolutionProblem,
        handle: Handle,
    ) -> Result<Option<Self>> {
        let Some(dtype) = data_type(problem.dtype) else { return Ok(None) };
        let builder = Builder { functions, problem, dtype };
        let mut operands = vec![Role::Input, Role::Filter, Role::Output];
        operands.extend(problem.bias.then_some(Role::Bias));
        let (operations, mut parts) = builder.operations()?;
        let descriptor = Descriptor::new(functions, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
            .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[handle])?
            .link(CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations.iter().collect::<Vec<_>>())?;
        // A pattern for which no engine exists is refused here: no plans, but no failure either.
        let Ok(descriptor) = descriptor.finish() else { return Ok(None) };
        parts.extend(operations);
        Ok(Some(Graph { descriptor, operands, _parts: parts }))
    }
}

fn data_type(dtype: DType) -> Option<DataType> {
    match dtype {
        DType::F16 => Some(CUDNN_DATA_HALF),
        DType::BF16 => Some(CUDNN_DATA_BFLOAT16),
        DType::F32 => Some(CUDNN_DATA_FLOAT),
        _ => None,
    }
}

struct Builder<'a> {
    functions: &'static Functions,
    problem: &'a ConvolutionProblem,
    dtype: DataType,
}

impl Builder<'_> {
    /// Sizes of the input: n, c, h, w.
    fn input(&self) -> [usize; 4] {
        let g = self.problem.geometry;
        [g.n, g.c, g.h, g.w]
    }

    /// Sizes of the output: n, k, p, q.
    fn output(&self) -> [usize; 4] {
        let g = self.problem.geometry;
        [g.n, g.k, g.oh(), g.ow()]
    }

    fn filter(&self) -> Result<Descriptor> {
        // cuDNN sees the number of groups from the filters' channels.
        let g = self.problem.geometry;
        self.image(Role::Filter as i64, [g.k, g.c / g.groups.max(1), g.r, g.s], self.dtype, false)
    }

    /// A tensor whose sizes are given in the order n, c, h, w, and which lies in memory channels last. A virtual one
    /// is never written to memory.
    fn image(&self, identifier: i64, sizes: [usize; 4], dtype: DataType, within: bool) -> Result<Descriptor> {
        let [n, c, h, w] = sizes.map(|size| size as i64);
        Descriptor::new(self.functions, CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
            .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, &[identifier])?
            .set(CUDNN_ATTR_TENSOR_DATA_TYPE, &[dtype])?
            .set(CUDNN_ATTR_TENSOR_DIMENSIONS, &[n, c, h, w])?
            .set(CUDNN_ATTR_TENSOR_STRIDES, &[h * w * c, 1, w * c, c])?
            .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT as i64])?
            .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[within])?
            .finish()
    }

    /// How the filter moves.
    fn movement(&self) -> Result<Descriptor> {
        let g = self.problem.geometry;
        let padding = g.padding.map(|size| size as i64);
        Descriptor::new(self.functions, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
            .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2_i64])?
            .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[CUDNN_DATA_FLOAT])?
            .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, &[sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION])?
            .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &padding)?
            .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &padding)?
            .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &g.stride.map(|size| size as i64))?
            .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, &g.dilation.map(|size| size as i64))?
            .finish()
    }

    fn convolution(&self, x: &Descriptor, w: &Descriptor, y: &Descriptor, movement: &Descriptor) -> Result<Descriptor> {
        let (kind, [a, b, c], [alpha, beta], how) = match self.problem.direction {
            Direction::Forward => (
                CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                [
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                ],
                [CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA],
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            ),
            Direction::InputGradient => (
                CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                [
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                ],
                [CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA],
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            ),
            Direction::WeightGradient => (
                CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                [
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                ],
                [CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA],
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            ),
        };
        Descriptor::new(self.functions, kind)?
            .link(a, &[x])?
            .link(b, &[w])?
            .link(c, &[y])?
            .link(how, &[movement])?
            .set(alpha, &[1.0_f32])?
            .set(beta, &[0.0_f32])?
            .finish()
    }

    /// The convolution and what follows it, and everything they refer to. What is handed from one to the next is f32
    /// and stays in registers.
    fn operations(&self) -> Result<(Vec<Descriptor>, Vec<Descriptor>)> {
        let x = self.image(Role::Input as i64, self.input(), self.dtype, false)?;
        let w = self.filter()?;
        let y = self.image(Role::Output as i64, self.output(), self.dtype, false)?;
        let movement = self.movement()?;
        let steps = self.steps()?;
        // What the operation before the step hands to it; the last operation writes to y.
        let handed = |step: usize| match step < steps.len() {
            true => self.image(INNER + step as i64, self.output(), CUDNN_DATA_FLOAT, true).map(Some),
            false => Ok(None),
        };
        let mut from = handed(0)?;
        let mut operations = vec![self.convolution(&x, &w, from.as_ref().unwrap_or(&y), &movement)?];
        let mut parts = Vec::new();
        for (i, (what, other)) in steps.iter().enumerate() {
            let to = handed(i + 1)?;
            let mut step = Descriptor::new(self.functions, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
                .link(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[what])?
                .link(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[from.as_ref().unwrap_or(&y)])?
                .link(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[to.as_ref().unwrap_or(&y)])?;
            if let Some(other) = other {
                step = step.link(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[other])?;
            }
            operations.push(step.finish()?);
            parts.extend(std::mem::replace(&mut from, to));
        }
        parts.extend([x, w, y, movement]);
        parts.extend(steps.into_iter().flat_map(|(what, other)| [Some(what), other]).flatten());
        Ok((operations, parts))
    }

    /// What is done to each result: the operation and its second operand.
    fn steps(&self) -> Result<Vec<(Descriptor, Option<Descriptor>)>> {
        let mut steps = Vec::new();
        if self.problem.bias {
            let bias = self.image(Role::Bias as i64, [1, self.problem.geometry.k, 1, 1], self.dtype, false)?;
            steps.push((self.pointwise(CUDNN_POINTWISE_ADD)?, Some(bias)));
        }
        if self.problem.relu {
            steps.push((self.pointwise(CUDNN_POINTWISE_RELU_FWD)?, None));
        }
        Ok(steps)
    }

    fn pointwise(&self, mode: Pointwise) -> Result<Descriptor> {
        Descriptor::new(self.functions, CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
            .set(CUDNN_ATTR_POINTWISE_MODE, &[mode])?
            .set(CUDNN_ATTR_POINTWISE_MATH_PREC, &[CUDNN_DATA_FLOAT])?
            // A NaN must stay one: a diverged network would go unnoticed otherwise.
            .set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, &[sys::cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN])?
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::descriptor::functions;
    use super::*;
    use crate::ops::conv2d::cpu::Geometry;

    /// Needs cuDNN, but no GPU: descriptors are checked when they are finished.
    #[test]
    fn every_direction_is_described_as_cudnn_wants_it() {
        let Ok(functions) = functions() else { return println!("skipped: cuDNN is not installed") };
        let plain = Geometry {
            n: 4,
            c: 8,
            h: 9,
            w: 7,
            k: 16,
            r: 3,
            s: 5,
            stride: [2, 1],
            padding: [1, 2],
            dilation: [1, 1],
            groups: 1,
        };
        let geometries = [plain, Geometry { dilation: [2, 1], ..plain }, Geometry { groups: 4, ..plain }];
        for geometry in geometries {
            for dtype in [DType::F16, DType::BF16, DType::F32] {
                for (direction, bias, relu, count) in [
                    (Direction::Forward, false, false, 1),
                    (Direction::Forward, true, false, 2),
                    (Direction::Forward, false, true, 2),
                    (Direction::Forward, true, true, 3),
                    (Direction::InputGradient, false, false, 1),
                    (Direction::WeightGradient, false, false, 1),
                ] {
                    let problem = ConvolutionProblem { direction, dtype, geometry, bias, relu, deterministic: true };
                    let builder = Builder { functions, problem: &problem, dtype: data_type(dtype).unwrap() };
                    let (operations, _) = builder.operations().unwrap_or_else(|e| panic!("{problem:?}: {e}"));
                    assert_eq!(operations.len(), count);
                }
            }
        }
    }
}
