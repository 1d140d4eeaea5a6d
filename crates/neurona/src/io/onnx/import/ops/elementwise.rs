//! Operators that are applied element by element.

use super::super::attributes::Options;
use super::super::tensor;
use super::{Built, Call, costly, one};
use crate::{DType, Result, Tensor};

type Unary = fn(&Tensor) -> Result<Tensor>;
type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;

pub(super) fn build(op: &str, o: &Options<'_>) -> Result<Option<Built>, String> {
    if let Some(f) = unary(op) {
        return Ok(Some(one(move |c| f(c.x(0)?))));
    }
    if let Some(f) = binary(op) {
        return Ok(Some(one(move |c| f(c.x(0)?, c.x(1)?))));
    }
    Ok(Some(match op {
        "LeakyRelu" => {
            let alpha = o.float("alpha", 0.01);
            one(move |c| c.x(0)?.leaky_relu(alpha))
        }
        "Elu" => {
            let alpha = o.float("alpha", 1.0);
            one(move |c| c.x(0)?.elu(alpha))
        }
        "Celu" => {
            let alpha = o.float("alpha", 1.0);
            one(move |c| {
                c.x(0)?.div_scalar(alpha)?.elu(1.0)?.mul_scalar(alpha).and_then(|low| {
                    let x = c.x(0)?;
                    x.gt_scalar(0)?.where_(x, &low)
                })
            })
        }
        "Selu" => {
            let (alpha, gamma) = (o.float("alpha", 1.673_263_2), o.float("gamma", 1.050_701));
            one(move |c| c.x(0)?.elu(alpha)?.mul_scalar(gamma))
        }
        "HardSigmoid" => {
            let (alpha, beta) = (o.float("alpha", 0.2), o.float("beta", 0.5));
            one(move |c| c.x(0)?.mul_scalar(alpha)?.add_scalar(beta)?.clamp(0.0, 1.0))
        }
        "Swish" => {
            let alpha = o.float("alpha", 1.0);
            one(move |c| c.x(0)?.mul(&c.x(0)?.mul_scalar(alpha)?.sigmoid()?))
        }
        "Gelu" => match o.text("approximate", "none") {
            "tanh" => one(|c| c.x(0)?.gelu_tanh()),
            _ => one(|c| c.x(0)?.gelu()),
        },
        "Clip" => clip(o),
        "Pow" => one(|c| c.x(0)?.pow(c.number(1)?)),
        "Where" => one(|c| c.x(0)?.where_(c.x(1)?, c.x(2)?)),
        "Max" => one(|c| folded(c, Tensor::maximum)),
        "Min" => one(|c| folded(c, Tensor::minimum)),
        "Sum" => one(|c| folded(c, Tensor::add)),
        "Mean" => one(|c| folded(c, Tensor::add)?.div_scalar(c.inputs.len())),
        "Cast" => {
            let to = o.int("to", 0);
            let to = tensor::dtype(to).ok_or_else(|| format!("elements of type {to} are not known here"))?;
            one(move |c| c.x(0)?.to_dtype(to))
        }
        "CastLike" => one(|c| c.x(0)?.to_dtype(c.x(1)?.dtype())),
        "Identity" => one(|c| c.x(0).cloned()),
        "Dropout" => {
            let ratio = o.float("ratio", 0.5);
            costly(move |c| {
                let ratio = match c.option(1) {
                    Some(ratio) => ratio.item::<f64>()?,
                    None => ratio,
                };
                if c.training { c.x(0)?.dropout(ratio) } else { c.x(0).cloned() }
            })
        }
        _ => return Ok(None),
    }))
}

fn unary(op: &str) -> Option<Unary> {
    Some(match op {
        "Relu" => Tensor::relu,
        "Sigmoid" => Tensor::sigmoid,
        "Tanh" => Tensor::tanh,
        "HardSwish" => Tensor::hardswish,
        "Softplus" => |x| x.softplus(1.0, 20.0),
        "Softsign" => |x| x.div(&x.abs()?.add_scalar(1)?),
        "Mish" => |x| x.mul(&x.softplus(1.0, 20.0)?.tanh()?),
        "Erf" => Tensor::erf,
        "Exp" => Tensor::exp,
        "Log" => Tensor::log,
        "Sqrt" => Tensor::sqrt,
        "Reciprocal" => Tensor::reciprocal,
        "Abs" => Tensor::abs,
        "Neg" => Tensor::neg,
        "Sign" => Tensor::sign,
        "Floor" => Tensor::floor,
        "Ceil" => Tensor::ceil,
        "Round" => Tensor::round,
        "Sin" => Tensor::sin,
        "Cos" => Tensor::cos,
        "Not" => Tensor::logical_not,
        "IsNaN" => Tensor::isnan,
        _ => return None,
    })
}

fn binary(op: &str) -> Option<Binary> {
    Some(match op {
        "Add" => Tensor::add,
        "Sub" => Tensor::sub,
        "Mul" => Tensor::mul,
        "Div" => divide,
        "Mod" => remainder,
        "PRelu" => |x, slope| x.lt_scalar(0)?.where_(&x.mul(slope)?, x),
        "Equal" => Tensor::eq,
        "Less" => Tensor::lt,
        "LessOrEqual" => Tensor::le,
        "Greater" => Tensor::gt,
        "GreaterOrEqual" => Tensor::ge,
        "And" => Tensor::logical_and,
        "Or" => Tensor::logical_or,
        "Xor" => Tensor::logical_xor,
        _ => return None,
    })
}

/// Whole numbers give whole numbers, cut off, unlike in PyTorch.
fn divide(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.dtype().is_float() || b.dtype().is_float() {
        return a.div(b);
    }
    a.to_dtype(DType::F64)?.div(&b.to_dtype(DType::F64)?)?.to_dtype(DType::I64)
}

/// With the sign of the divisor.
fn remainder(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (x, y) = (a.to_dtype(DType::F64)?, b.to_dtype(DType::F64)?);
    x.sub(&x.div(&y)?.floor()?.mul(&y)?)?.to_dtype(a.dtype())
}

fn folded(c: &Call<'_>, join: Binary) -> Result<Tensor> {
    (1..c.inputs.len()).try_fold(c.x(0)?.clone(), |sum, i| join(&sum, c.x(i)?))
}

fn clip(o: &Options<'_>) -> Built {
    // Attributes until version 10, operands since.
    let (low, high) = (o.float("min", f64::NEG_INFINITY), o.float("max", f64::INFINITY));
    one(move |c| {
        let mut x = c.x(0)?.clone();
        match c.option(1) {
            Some(_) => x = x.clamp_min(c.number(1)?)?,
            None if low > f64::NEG_INFINITY => x = x.clamp_min(low)?,
            None => {}
        }
        match c.option(2) {
            Some(_) => x.clamp_max(c.number(2)?),
            None if high < f64::INFINITY => x.clamp_max(high),
            None => Ok(x),
        }
    })
}
