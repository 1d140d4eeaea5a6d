//! Operators that join elements along dimensions.

use super::super::attributes::Options;
use super::shapes::{listed, size};
use super::{Built, costly, one};
use crate::{Result, Tensor};

type Reduction = fn(&Tensor, &[isize], bool) -> Result<Tensor>;

pub(super) fn build(op: &str, o: &Options<'_>) -> Result<Option<Built>, String> {
    if let Some(reduction) = reduction(op) {
        let (axes, keep) = (o.ints("axes"), o.int("keepdims", 1) != 0);
        let none_is_none = o.flag("noop_with_empty_axes");
        return Ok(Some(one(move |c| {
            let x = c.x(0)?;
            let axes = listed(c, 1, &axes)?.unwrap_or_default();
            if axes.is_empty() && none_is_none {
                return Ok(x.clone());
            }
            let all = 0..x.rank() as isize;
            let dims: Vec<isize> =
                if axes.is_empty() { all.collect() } else { axes.iter().map(|&d| d as isize).collect() };
            reduction(x, &dims, keep)
        })));
    }
    let axis = |default| o.int("axis", default) as isize;
    Ok(Some(match op {
        "ArgMax" | "ArgMin" => {
            if o.flag("select_last_index") {
                return Err("the last of equal elements cannot be asked for".into());
            }
            let (axis, keep, greatest) = (axis(0), o.int("keepdims", 1) != 0, op == "ArgMax");
            one(move |c| {
                let x = c.x(0)?;
                let places = if greatest { x.argmax(axis)? } else { x.argmin(axis)? };
                if keep { places.unsqueeze(x.dim("argmax", axis)? as isize) } else { Ok(places) }
            })
        }
        "TopK" => {
            let (axis, largest) = (axis(-1), o.int("largest", 1) != 0);
            let run = move |c: &super::Call<'_>| {
                let keep = c.x(1)?.item::<i64>()?;
                let (values, places) = c.x(0)?.topk(size(keep.into())?, axis, largest)?;
                Ok(vec![values, places])
            };
            Built { run: Box::new(run), outputs: 2, cheap: false }
        }
        "CumSum" => {
            if o.flag("exclusive") {
                return Err("sums without the element itself are not there".into());
            }
            let reverse = o.flag("reverse");
            costly(move |c| {
                let (x, axis) = (c.x(0)?, c.x(1)?.item::<i64>()? as isize);
                if reverse { x.flip(&[axis])?.cumsum(axis)?.flip(&[axis]) } else { x.cumsum(axis) }
            })
        }
        _ => return Ok(None),
    }))
}

fn reduction(op: &str) -> Option<Reduction> {
    Some(match op {
        "ReduceSum" => Tensor::sum_dims,
        "ReduceMean" => Tensor::mean_dims,
        "ReduceMax" => Tensor::amax,
        "ReduceMin" => Tensor::amin,
        "ReduceProd" => Tensor::prod_dims,
        "ReduceL1" => |x, dims, keep| x.norm(1.0, dims, keep),
        "ReduceL2" => |x, dims, keep| x.norm(2.0, dims, keep),
        "ReduceSumSquare" => |x, dims, keep| x.square()?.sum_dims(dims, keep),
        "ReduceLogSumExp" => Tensor::logsumexp,
        _ => return None,
    })
}
