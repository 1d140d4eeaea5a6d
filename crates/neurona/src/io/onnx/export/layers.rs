//! Products, convolutions, pooling and normalisation as ONNX operators.

use super::graph::{Builder, float, int, ints};
use super::trace::At;
use crate::ops::avg_pool2d::AvgPool2d;
use crate::ops::conv2d::Conv2d;
use crate::ops::layer_norm::LayerNorm;
use crate::ops::matmul::MatMul;
use crate::ops::max_pool2d::MaxPool2d;
use crate::ops::pool::{Pool, PoolOptions};
use crate::tensor::Tensor;
use crate::{DType, Result};

pub(super) fn matmul(b: &mut Builder<'_>, operands: &[&str], op: &MatMul, rank: usize) -> String {
    if rank == 2 && (op.transpose_a || op.transpose_b || operands.len() > 2) {
        let turned = [int("transA", op.transpose_a as i64), int("transB", op.transpose_b as i64)];
        return b.emit("Gemm", operands, turned.into());
    }
    let mut turned = |x: &str, turn: bool| match turn {
        true => b.emit("Transpose", &[x], vec![ints("perm", [0, 2, 1])]),
        false => x.to_string(),
    };
    let (left, right) = (turned(operands[0], op.transpose_a), turned(operands[1], op.transpose_b));
    let product = b.emit("MatMul", &[&left, &right], vec![]);
    match operands.get(2) {
        Some(bias) => b.emit("Add", &[&product, bias], vec![]),
        None => product,
    }
}

pub(super) fn conv2d(b: &mut Builder<'_>, operands: &[&str], op: &Conv2d, weight: At) -> Result<String> {
    let kernel = [b.fixed(weight, 2)? as usize, b.fixed(weight, 3)? as usize];
    let options = op.options;
    let attributes = vec![
        ints("kernel_shape", kernel),
        ints("strides", options.stride),
        ints("pads", options.padding.into_iter().chain(options.padding)),
        ints("dilations", options.dilation),
        int("group", options.groups as i64),
    ];
    Ok(b.emit("Conv", operands, attributes))
}

/// A pooling's attributes. Where a last window that does not fit whole is kept, its missing rows and columns are
/// written as padding: runtimes do not agree on how many such windows there are.
fn window(b: &Builder<'_>, options: &PoolOptions, x: At, padding: [usize; 2]) -> Result<Vec<super::proto::Attribute>> {
    let (h, w) = (b.fixed(x, 2)? as usize, b.fixed(x, 3)? as usize);
    let PoolOptions { kernel, stride, padding: own, ceil_mode } = *options;
    let g = Pool { n: 1, c: 1, h, w, kernel, stride, padding: own, ceil_mode };
    let after = |axis: usize, size: usize, windows: usize| {
        let covered = (windows.saturating_sub(1) * stride[axis] + kernel[axis]).saturating_sub(size + own[axis]);
        covered.max(own[axis]) - (own[axis] - padding[axis])
    };
    let pads = [padding[0], padding[1], after(0, h, g.oh()), after(1, w, g.ow())];
    Ok(vec![ints("kernel_shape", kernel), ints("strides", stride), ints("pads", pads)])
}

pub(super) fn max_pool2d(b: &mut Builder<'_>, x: &str, op: &MaxPool2d, at: At) -> Result<String> {
    let attributes = window(b, &op.options, at, op.options.padding)?;
    Ok(b.emit("MaxPool", &[x], attributes))
}

pub(super) fn avg_pool2d(b: &mut Builder<'_>, x: &str, op: &AvgPool2d, at: At) -> Result<String> {
    let [top, left] = op.options.padding;
    if !(op.count_include_pad && op.options.ceil_mode && top + left > 0) {
        let mut attributes = window(b, &op.options, at, op.options.padding)?;
        // What a last window lacks is no padding, and does not count.
        attributes.push(int("count_include_pad", (op.count_include_pad && !op.options.ceil_mode) as i64));
        return Ok(b.emit("AveragePool", &[x], attributes));
    }
    // The padding counts, what a last window lacks does not: the padding is added apart.
    let margins = [0, 0, top, left, 0, 0, top, left].map(|n| n as i64);
    let (margins, zero) = (b.ints(&margins)?, b.one(0.0, b.trace.dtype(at))?);
    let padded = b.emit("Pad", &[x, &margins, &zero], vec![]);
    let mut attributes = window(b, &op.options, at, [0, 0])?;
    attributes.push(int("count_include_pad", 0));
    Ok(b.emit("AveragePool", &[&padded], attributes))
}

pub(super) fn layer_norm(b: &mut Builder<'_>, operands: &[&str], op: &LayerNorm, x: At) -> Result<String> {
    let shape = b.sizes_of(x)?;
    let first = shape.len() - op.dims;
    let ones = match op.weight {
        true => operands[1].to_string(),
        false => {
            let row = (first..shape.len()).map(|d| Ok(b.fixed(x, d)? as usize)).collect::<Result<Vec<_>>>()?;
            let ones = Tensor::ones(row, DType::F32)?.to_dtype(b.trace.dtype(x))?;
            b.constant(&ones)?
        }
    };
    let mut all = vec![operands[0], &ones];
    all.extend(operands.get(1 + op.weight as usize));
    let attributes = vec![int("axis", -(op.dims as i64)), float("epsilon", f64::from_bits(op.eps))];
    Ok(b.emit("LayerNormalization", &all, attributes))
}
