//! Ops that move, repeat or join elements, as ONNX operators.

use super::graph::{Builder, int, ints, string};
use super::trace::{At, Scalar, Size};
use crate::Result;
use crate::graph::node::Source;
use crate::ops::Op;
use crate::ops::pad::{Fill, Pad};
use crate::ops::reduce::{Reduce, cpu};
use crate::ops::slice::Slice;
use crate::tensor::DType;

/// Of several reshapes in a row the last one counts; one to the shape that is there already is left out.
pub(super) fn reshape(b: &mut Builder<'_>, result: At) -> Result<String> {
    let is_reshape = |at: At| matches!(b.trace.node(at.node).source, Source::Op(Op::Reshape(_)));
    let mut x = result;
    while is_reshape(x) && !b.inputs(x.node).is_empty() {
        x = b.inputs(x.node)[0];
    }
    let (to, name) = (b.sizes_of(result)?, b.value(x)?);
    if b.sizes_of(x)? == to {
        return Ok(name);
    }
    let (follow, none) = (to.iter().filter(|s| s.each != 0).count(), to.contains(&Size::fixed(0)));
    let shape = match follow {
        1 if !none => {
            let sizes: Vec<i64> = to.iter().map(|size| size.known().unwrap_or(-1)).collect();
            b.ints(&sizes)?
        }
        _ => b.sizes(&to)?,
    };
    let attributes = if none { vec![int("allowzero", 1)] } else { vec![] };
    Ok(b.emit("Reshape", &[&name, &shape], attributes))
}

pub(super) fn expand(b: &mut Builder<'_>, x: &str, from: At, result: At) -> Result<String> {
    let (from, to) = (b.sizes_of(from)?, b.sizes_of(result)?);
    let new = to.len() - from.len();
    // A size of 1 leaves the operand's own.
    let wanted = |(d, size): (usize, &Size)| match d.checked_sub(new) {
        Some(own) if from[own] == *size => Size::fixed(1),
        _ => *size,
    };
    let wanted: Vec<Size> = to.iter().enumerate().map(wanted).collect();
    let shape = b.sizes(&wanted)?;
    Ok(b.emit("Expand", &[x, &shape], vec![]))
}

pub(super) fn slice(b: &mut Builder<'_>, inputs: &[At], op: &Slice, result: At) -> Result<String> {
    let x = b.value(inputs[0])?;
    let start = match b.trace.number(result.node, inputs[1])? {
        Scalar::Fixed(number) => Size::fixed(number.as_i64()),
        Scalar::Follows(size) => size,
    };
    let (length, step) = (b.sizes_of(result)?[op.dim], op.step as i64);
    // Just behind the last place.
    let last = (length.start - 1).saturating_mul(step).saturating_add(1);
    let end = Size { each: start.each + length.each * step, start: start.start.saturating_add(last) };
    let (start, end, dim, step) = (b.sizes(&[start])?, b.sizes(&[end])?, b.ints(&[op.dim as i64])?, b.ints(&[step])?);
    Ok(b.emit("Slice", &[&x, &start, &end, &dim, &step], vec![]))
}

pub(super) fn roll(b: &mut Builder<'_>, inputs: &[At], dim: usize) -> Result<String> {
    let (x, size, shift) = (b.value(inputs[0])?, b.fixed(inputs[0], dim)?, b.number(inputs[1])?);
    let shift = (shift as i64).rem_euclid(size.max(1));
    if shift == 0 {
        return Ok(x);
    }
    let axis = b.ints(&[dim as i64])?;
    let (zero, cut, all) = (b.ints(&[0])?, b.ints(&[size - shift])?, b.ints(&[size])?);
    let back = b.emit("Slice", &[&x, &cut, &all, &axis], vec![]);
    let front = b.emit("Slice", &[&x, &zero, &cut, &axis], vec![]);
    Ok(b.emit("Concat", &[&back, &front], vec![int("axis", dim as i64)]))
}

pub(super) fn flip(b: &mut Builder<'_>, x: &str, flipped: &[bool]) -> Result<String> {
    let dims: Vec<i64> = (0..flipped.len()).filter(|&d| flipped[d]).map(|d| d as i64).collect();
    let starts = b.ints(&vec![-1; dims.len()])?;
    // Before the first place, however many there are.
    let ends = b.ints(&vec![i64::MIN; dims.len()])?;
    let (steps, dims) = (starts.clone(), b.ints(&dims)?);
    Ok(b.emit("Slice", &[x, &starts, &ends, &dims, &steps], vec![]))
}

pub(super) fn pad(b: &mut Builder<'_>, operands: &[&str], op: &Pad) -> Result<String> {
    let before = op.margins.iter().map(|m| m.0 as i64);
    let margins: Vec<i64> = before.chain(op.margins.iter().map(|m| m.1 as i64)).collect();
    let margins = b.ints(&margins)?;
    let mode = match op.fill {
        Fill::Constant => return Ok(b.emit("Pad", &[operands[0], &margins, operands[1]], vec![])),
        Fill::Reflect => "reflect",
        Fill::Replicate => "edge",
    };
    Ok(b.emit("Pad", &[operands[0], &margins], vec![string("mode", mode)]))
}

pub(super) fn reduce(b: &mut Builder<'_>, x: &str, op: &Reduce, dtype: DType) -> Result<String> {
    let (operator, extreme) = match op.how {
        cpu::Op::Sum => ("ReduceSum", false),
        cpu::Op::Mean => ("ReduceMean", false),
        cpu::Op::Prod => ("ReduceProd", false),
        cpu::Op::Max => ("ReduceMax", true),
        cpu::Op::Min => ("ReduceMin", true),
    };
    let dims: Vec<usize> = (0..op.reduced.len()).filter(|&d| op.reduced[d]).collect();
    // Bytes and truth values are added up as i64; ONNX has no extremes of truth values.
    let (x, back) = match dtype {
        DType::U8 | DType::Bool if !extreme => (b.cast(x, DType::I64), None),
        DType::Bool => (b.cast(x, DType::I64), Some(dtype)),
        _ => (x.to_string(), None),
    };
    if dims.is_empty() {
        return Ok(x);
    }
    let mut attributes = vec![int("keepdims", 0)];
    // The dimensions became an operand: of sums in version 13, of the others in 18.
    let y = if operator == "ReduceSum" || b.options.opset >= 18 {
        let dims: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
        let dims = b.ints(&dims)?;
        b.emit(operator, &[&x, &dims], attributes)
    } else {
        attributes.push(ints("axes", dims));
        b.emit(operator, &[&x], attributes)
    };
    Ok(match back {
        Some(dtype) => b.cast(&y, dtype),
        None => y,
    })
}
