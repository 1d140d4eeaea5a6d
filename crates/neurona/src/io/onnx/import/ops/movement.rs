//! Operators that move, choose and repeat elements.

use super::super::attributes::Options;
use super::shapes::{listed, sizes};
use super::{Built, Call, costly, is_known, one};
use crate::{DType, Error, Number, PadMode, Result, Shape, Tensor};

pub(super) fn build(op: &str, o: &Options<'_>) -> Result<Option<Built>, String> {
    let axis = o.int("axis", 0) as isize;
    Ok(Some(match op {
        "Transpose" => {
            let order = o.ints("perm");
            one(move |c| {
                let x = c.x(0)?;
                match &order {
                    Some(order) => x.permute(&order.iter().map(|&d| d as isize).collect::<Vec<_>>()),
                    None => x.permute(&(0..x.rank() as isize).rev().collect::<Vec<_>>()),
                }
            })
        }
        "Concat" => one(move |c| {
            let parts = (0..c.inputs.len()).map(|i| c.x(i)).collect::<Result<Vec<_>>>()?;
            Tensor::cat(&parts, axis)
        }),
        "Split" => split(o, axis),
        "Slice" => {
            let (starts, ends, axes) = (o.ints("starts"), o.ints("ends"), o.ints("axes"));
            one(move |c| {
                let (starts, ends) = (listed(c, 1, &starts)?, listed(c, 2, &ends)?);
                let axes = listed(c, 3, &axes)?;
                slice(c.x(0)?, starts, ends, axes, listed(c, 4, &None)?)
            })
        }
        "Gather" => one(move |c| {
            let (x, places) = (c.x(0)?, c.x(1)?);
            let dim = x.dim("gather", axis)?;
            let line = counted(places, x.shape()[dim], [places.numel()].into())?;
            let (before, after) = (&x.shape()[..dim], &x.shape()[dim + 1..]);
            let shape: Shape = before.iter().chain(&places.shape()[..]).chain(after).copied().collect();
            x.index_select(dim as isize, &line)?.reshape(shape)
        }),
        "GatherElements" => one(move |c| {
            let x = c.x(0)?;
            x.gather(axis, &counted(c.x(1)?, x.shape()[x.dim("gather", axis)?], c.x(1)?.shape().clone())?)
        }),
        "GatherND" if o.int("batch_dims", 0) == 0 => one(gather_nd),
        "Expand" => one(|c| {
            let (x, wanted) = (c.x(0)?, sizes(&c.ints(1)?)?);
            let shape = x.shape().broadcast(&wanted);
            x.broadcast_to(shape.ok_or_else(|| x.error("expand", format!("does not fit {wanted}")))?)
        }),
        "Tile" => one(|c| tile(c.x(0)?, &sizes(&c.ints(1)?)?)),
        "Pad" => pad(o)?,
        "Resize" => resize(o)?,
        _ => return Ok(None),
    }))
}

fn split(o: &Options<'_>, axis: isize) -> Built {
    let (given, parts) = (o.ints("split"), o.node.output.len().max(1));
    let run = move |c: &Call<'_>| {
        let x = c.x(0)?;
        match listed(c, 1, &given)? {
            Some(lengths) => x.split_sizes(&sizes(&lengths)?, axis),
            None => x.chunk(parts, axis),
        }
    };
    Built { run: Box::new(run), outputs: parts, cheap: true }
}

fn slice(
    x: &Tensor,
    starts: Option<Vec<i64>>,
    ends: Option<Vec<i64>>,
    axes: Option<Vec<i64>>,
    steps: Option<Vec<i64>>,
) -> Result<Tensor> {
    let (starts, ends) = (starts.unwrap_or_default(), ends.unwrap_or_default());
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
        return Err(x.error("slice", "has not as many starts as ends, axes and steps"));
    }
    let mut x = x.clone();
    for (((&start, &end), &axis), &step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let axis = axis as isize;
        let size = x.size(axis)? as i64;
        let place = |at: i64| if at < 0 { at.saturating_add(size) } else { at };
        x = if step > 0 {
            x.slice(axis, place(start).clamp(0, size) as isize, place(end).clamp(0, size) as isize, step as usize)?
        } else if step < 0 {
            // Backwards: the same places counted from the other end.
            let (first, last) = (place(start).clamp(-1, size - 1), place(end).clamp(-1, size - 1));
            let (first, behind) = ((size - 1 - first) as isize, (size - 1 - last) as isize);
            x.flip(&[axis])?.slice(axis, first, behind, step.unsigned_abs() as usize)?
        } else {
            return Err(x.error("slice", "the step must not be 0"));
        };
    }
    Ok(x)
}

/// Places counted from the end become places counted from the start, under another shape. Those that are known stay
/// so: they are checked.
fn counted(places: &Tensor, size: usize, shape: Shape) -> Result<Tensor> {
    let places = places.to_dtype(DType::I64)?;
    if is_known(&places) {
        let from_start = |place: i64| if place < 0 { place.saturating_add(size as i64) } else { place };
        return Tensor::from_vec(places.to_vec::<i64>()?.into_iter().map(from_start).collect(), shape);
    }
    places.lt_scalar(0)?.where_(&places.add_scalar(size)?, &places)?.reshape(shape)
}

/// Each row of places names an element, or a part, by its first dimensions.
fn gather_nd(c: &Call<'_>) -> Result<Tensor> {
    let (x, places) = (c.x(0)?, c.x(1)?);
    let depth = places.shape().last().copied().unwrap_or(0);
    if depth == 0 || depth > x.rank() || places.numel() > 1 << 24 {
        let operands = [("input", x.meta()), ("indices", places.meta())];
        return Err(Error::operands("gather_nd", "the indices do not fit", &operands));
    }
    let (lead, rest) = x.shape().split_at(depth);
    let mut line = Vec::with_capacity(places.numel() / depth);
    for row in places.to_vec::<i64>()?.chunks(depth) {
        let mut at = 0i64;
        for (&place, &size) in row.iter().zip(lead) {
            let place = if place < 0 { place.saturating_add(size as i64) } else { place };
            if !(0..size as i64).contains(&place) {
                return Err(x.error("gather_nd", format!("there is no place {row:?}")));
            }
            at = at.saturating_mul(size as i64).saturating_add(place);
        }
        line.push(at);
    }
    let rows: Shape = [Shape::from(lead).numel()].iter().chain(rest).copied().collect();
    let found = x.reshape(rows)?.index_select(0, &Tensor::from_vec(line.clone(), [line.len()])?)?;
    let shape: Shape = places.shape()[..places.rank() - 1].iter().chain(rest).copied().collect();
    found.reshape(shape)
}

fn tile(x: &Tensor, repeats: &Shape) -> Result<Tensor> {
    if repeats.len() != x.rank() {
        return Err(x.error("tile", format!("does not fit the repeats {repeats}")));
    }
    let pairs = |f: fn(usize, usize) -> [usize; 2]| -> Shape {
        repeats.iter().zip(&x.shape()[..]).flat_map(|(&r, &n)| f(r, n)).collect()
    };
    let whole: Shape = repeats.iter().zip(&x.shape()[..]).map(|(&r, &n)| r.saturating_mul(n)).collect();
    x.reshape(pairs(|_, n| [1, n]))?.broadcast_to(pairs(|r, n| [r, n]))?.reshape(whole)
}

fn pad(o: &Options<'_>) -> Result<Built, String> {
    let (given, value) = (o.ints("pads"), o.float("value", 0.0));
    let mode = match o.text("mode", "constant") {
        "constant" => None,
        "reflect" => Some(PadMode::Reflect),
        "edge" => Some(PadMode::Replicate),
        other => return Err(format!("the mode {other} is not known here")),
    };
    Ok(one(move |c| {
        let x = c.x(0)?;
        let pads = listed(c, 1, &given)?.unwrap_or_default();
        let axes = match c.option(3) {
            Some(_) => c.ints(3)?,
            None => (0..x.rank() as i64).collect(),
        };
        let wrong = || x.error("pad", format!("does not fit the margins {pads:?}"));
        if pads.len() != 2 * axes.len() {
            return Err(wrong());
        }
        // The tensor's own pad begins with the last dimension.
        let mut margins = vec![0; 2 * x.rank()];
        for (i, &axis) in axes.iter().enumerate() {
            let from_last = x.rank() - 1 - x.dim("pad", axis as isize)?;
            for (side, margin) in [pads[i], pads[i + axes.len()]].into_iter().enumerate() {
                margins[2 * from_last + side] = usize::try_from(margin).map_err(|_| wrong())?;
            }
        }
        let value = match c.option(2) {
            Some(_) => c.number(2)?,
            None => Number::Float(value),
        };
        x.pad(&margins, mode.unwrap_or(PadMode::Constant(value.as_f64())))
    }))
}

/// Images enlarged by repeating pixels, which is what PyTorch's `nearest` is.
fn resize(o: &Options<'_>) -> Result<Built, String> {
    let (mode, coordinates) = (o.text("mode", "nearest"), o.text("coordinate_transformation_mode", "half_pixel"));
    if mode != "nearest" || coordinates != "asymmetric" || o.text("nearest_mode", "round_prefer_floor") != "floor" {
        return Err(format!("resizing by {mode} with {coordinates} coordinates is not there, only PyTorch's nearest"));
    }
    Ok(costly(|c| {
        let x = c.x(0)?;
        let &[n, channels, h, w] = &x.shape()[..] else { return Err(x.error("resize", "needs images [n, c, h, w]")) };
        let wanted: Vec<i64> = match (c.option(3), c.option(2)) {
            (Some(_), _) => c.ints(3)?,
            (None, Some(scales)) if scales.numel() == 4 => {
                let scales = scales.to_vec::<f64>()?;
                [n, channels, h, w].iter().zip(scales).map(|(&n, scale)| (n as f64 * scale).floor() as i64).collect()
            }
            _ => return Err(x.error("resize", "needs four sizes or scales")),
        };
        match wanted[..] {
            [a, b, oh, ow] if a == n as i64 && b == channels as i64 && oh > 0 && ow > 0 => {
                x.upsample_nearest2d([oh as usize, ow as usize])
            }
            _ => Err(x.error("resize", format!("cannot become {wanted:?}"))),
        }
    }))
}
