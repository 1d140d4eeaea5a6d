//! Operators that make constants and shapes, and that change shapes.

use super::super::attributes::Options;
use super::{Built, Call, one};
use crate::{DType, Error, Number, Result, Shape, Tensor};

pub(super) fn build(op: &str, o: &Options<'_>) -> Result<Option<Built>, String> {
    Ok(Some(match op {
        "Constant" => constant(o)?,
        "ConstantOfShape" => {
            let value = o.tensor("value")?;
            one(move |c| {
                let shape = sizes(&c.ints(0)?)?;
                match &value {
                    Some(value) => value.reshape(())?.broadcast_to(shape),
                    None => Tensor::zeros(shape, DType::F32),
                }
            })
        }
        "Shape" => {
            let (start, end) = (o.int("start", 0), o.int("end", i64::MAX));
            one(move |c| {
                let shape: Vec<i64> = c.x(0)?.shape().iter().map(|&n| n as i64).collect();
                let rank = shape.len() as i64;
                let place = |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
                let part = shape.get(place(start)..place(end)).unwrap_or_default();
                Tensor::from_slice(part, [part.len()])
            })
        }
        "Size" => one(|c| Ok(Tensor::scalar(c.x(0)?.numel() as i64))),
        "Range" => one(|c| {
            let (start, end, step) = (c.number(0)?, c.number(1)?, c.number(2)?);
            if (end.as_f64() - start.as_f64()) / step.as_f64() > 1e7 {
                return Err(c.x(1)?.error("range", "has more than ten million elements"));
            }
            Tensor::arange_step(start, end, step)?.to_dtype(c.x(0)?.dtype())
        }),
        "Reshape" => {
            let allow_zero = o.flag("allowzero");
            one(move |c| c.x(0)?.reshape(target(c.x(0)?, &c.ints(1)?, allow_zero)?))
        }
        "Flatten" => {
            let axis = o.int("axis", 1) as isize;
            one(move |c| {
                let x = c.x(0)?;
                let first = if axis == x.rank() as isize { x.rank() } else { x.dim("flatten", axis)? };
                let (rows, row) = x.shape().split_at(first);
                x.reshape([Shape::from(rows).numel(), Shape::from(row).numel()])
            })
        }
        "Squeeze" => {
            let axes = o.ints("axes");
            one(move |c| squeeze(c.x(0)?, listed(c, 1, &axes)?))
        }
        "Unsqueeze" => {
            let axes = o.ints("axes");
            one(move |c| unsqueeze(c.x(0)?, &listed(c, 1, &axes)?.unwrap_or_default()))
        }
        _ => return Ok(None),
    }))
}

/// Numbers that newer versions have as an operand and older ones as an attribute.
pub(super) fn listed(c: &Call<'_>, operand: usize, attribute: &Option<Vec<i64>>) -> Result<Option<Vec<i64>>> {
    match c.option(operand) {
        Some(_) => c.ints(operand).map(Some),
        None => Ok(attribute.clone()),
    }
}

/// Sizes, none of them below 0.
pub(super) fn sizes(numbers: &[i64]) -> Result<Shape> {
    let sizes: Option<Shape> = numbers.iter().map(|&n| usize::try_from(n).ok()).collect();
    sizes.ok_or_else(|| Error::op("onnx", format!("{numbers:?} are no sizes")))
}

fn constant(o: &Options<'_>) -> Result<Built, String> {
    let line = |values: Vec<f32>| Tensor::from_slice(&values, [values.len()]).map_err(|e| e.to_string());
    let whole = |values: Vec<i64>| Tensor::from_slice(&values, [values.len()]).map_err(|e| e.to_string());
    let has = |name: &str| o.node.attribute.iter().any(|a| a.name == name);
    let value = if let Some(tensor) = o.tensor("value")? {
        tensor
    } else if has("value_float") {
        Tensor::scalar(o.float("value_float", 0.0) as f32)
    } else if has("value_int") {
        Tensor::scalar(o.int("value_int", 0))
    } else if let Some(values) = o.floats("value_floats") {
        line(values)?
    } else if let Some(values) = o.ints("value_ints") {
        whole(values)?
    } else {
        return Err("has no value of a kind that is known here".into());
    };
    Ok(one(move |_| Ok(value.clone())))
}

/// The shape that numbers stand for: 0 is the operand's own size, and one −1 follows from the rest.
fn target(x: &Tensor, numbers: &[i64], allow_zero: bool) -> Result<Shape> {
    let own = |(d, &n): (usize, &i64)| match n {
        0 if !allow_zero => x.shape().get(d).map(|&n| n as i64),
        n => Some(n),
    };
    let wrong = || x.error("reshape", format!("does not fit {numbers:?}"));
    let mut filled: Vec<i64> = numbers.iter().enumerate().map(own).collect::<Option<_>>().ok_or_else(wrong)?;
    if let Some(open) = filled.iter().position(|&n| n == -1) {
        filled[open] = 1;
        let rest = filled.iter().try_fold(1i64, |n, &d| n.checked_mul(d)).filter(|&n| n > 0).ok_or_else(wrong)?;
        filled[open] = x.numel() as i64 / rest;
    }
    sizes(&filled)
}

fn squeeze(x: &Tensor, axes: Option<Vec<i64>>) -> Result<Tensor> {
    let mut gone = vec![axes.is_none(); x.rank()];
    for axis in axes.iter().flatten() {
        gone[x.dim("squeeze", *axis as isize)?] = true;
    }
    let stays = |(d, n): (usize, &usize)| (!gone[d] || *n != 1).then_some(*n);
    let shape: Shape = x.shape().iter().enumerate().filter_map(stays).collect();
    x.reshape(shape)
}

fn unsqueeze(x: &Tensor, axes: &[i64]) -> Result<Tensor> {
    let rank = x.rank() + axes.len();
    let mut new = vec![false; rank];
    for &axis in axes {
        let place = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        let place = usize::try_from(place).ok().filter(|&p| p < rank && !new[p]);
        new[place.ok_or_else(|| x.error("unsqueeze", format!("cannot add the dimensions {axes:?}")))?] = true;
    }
    let mut own = x.shape().iter();
    x.reshape(new.iter().map(|new| if *new { 1 } else { own.next().copied().unwrap_or(1) }).collect::<Shape>())
}

/// A number as a size.
pub(super) fn size(number: Number) -> Result<usize> {
    usize::try_from(number.as_i64()).map_err(|_| Error::op("onnx", format!("{} is no size", number.as_i64())))
}
