//! Products, convolutions, pooling and normalisation.

use super::super::attributes::Options;
use super::{Built, Call, costly};
use crate::nn::Buffer;
use crate::{Conv2dOptions, Error, PadMode, PoolOptions, Result, RunningStats, Shape, Tensor};

pub(super) fn build(op: &str, o: &Options<'_>) -> Result<Option<Built>, String> {
    Ok(Some(match op {
        "Conv" => conv(o)?,
        "Gemm" => gemm(o),
        "MatMul" => costly(|c| c.x(0)?.matmul(c.x(1)?)),
        "MaxPool" | "AveragePool" => pool(o, op == "MaxPool")?,
        "GlobalAveragePool" => costly(|c| c.x(0)?.mean_dims(&spatial(c.x(0)?), true)),
        "GlobalMaxPool" => costly(|c| c.x(0)?.amax(&spatial(c.x(0)?), true)),
        "LayerNormalization" => {
            let (axis, eps) = (o.int("axis", -1) as isize, o.float("epsilon", 1e-5));
            costly(move |c| {
                let x = c.x(0)?;
                let row: Shape = x.shape()[x.dim("layer_norm", axis)?..].into();
                let shaped = |p: &Tensor| p.broadcast_to(&row);
                let (weight, bias) = (shaped(c.x(1)?)?, c.option(2).map(shaped).transpose()?);
                x.layer_norm(&row, Some(&weight), bias.as_ref(), eps)
            })
        }
        "GroupNormalization" => {
            let (groups, eps) = (o.int("num_groups", 1).max(0) as usize, o.float("epsilon", 1e-5));
            costly(move |c| {
                let (x, channels) = (c.x(0)?, c.x(0)?.size(1)?);
                // Until version 20 there was one factor a group.
                let each = |p: &Tensor| match p.numel() == channels || groups == 0 || channels % groups != 0 {
                    true => Ok(p.clone()),
                    false => {
                        p.reshape([p.numel(), 1])?.broadcast_to([p.numel(), channels / groups])?.reshape([channels])
                    }
                };
                x.group_norm(groups, Some((&each(c.x(1)?)?, &each(c.x(2)?)?)), eps)
            })
        }
        "InstanceNormalization" => {
            let eps = o.float("epsilon", 1e-5);
            costly(move |c| c.x(0)?.group_norm(c.x(0)?.size(1)?, Some((c.x(1)?, c.x(2)?)), eps))
        }
        "Softmax" | "LogSoftmax" => softmax(o, op == "Softmax"),
        _ => return Ok(None),
    }))
}

fn spatial(x: &Tensor) -> Vec<isize> {
    (2..x.rank() as isize).collect()
}

/// How rows and columns are added around an image.
#[derive(Clone, Copy)]
enum Padding {
    /// Above, to the left, below, to the right.
    Given([usize; 4]),
    /// As many as give ⌈size / stride⌉ results; an odd one stands at the end, or at the beginning.
    Same { at_end: bool },
}

impl Padding {
    fn of(o: &Options<'_>) -> Result<Padding, String> {
        match o.text("auto_pad", "NOTSET") {
            "NOTSET" | "" => Ok(Padding::Given(o.pads()?)),
            "VALID" => Ok(Padding::Given([0; 4])),
            "SAME_UPPER" => Ok(Padding::Same { at_end: true }),
            "SAME_LOWER" => Ok(Padding::Same { at_end: false }),
            other => Err(format!("auto_pad {other} is not known here")),
        }
    }

    fn pads(self, x: &Tensor, reach: [usize; 2], stride: [usize; 2]) -> Result<[usize; 4]> {
        let at_end = match self {
            Padding::Given(pads) => return Ok(pads),
            Padding::Same { at_end } => at_end,
        };
        let &[_, _, h, w] = &x.shape()[..] else { return Err(x.error("onnx", "needs images [n, c, h, w]")) };
        let mut pads = [0; 4];
        for (axis, size) in [h, w].into_iter().enumerate() {
            let windows = size.div_ceil(stride[axis].max(1));
            let total = (windows.saturating_sub(1) * stride[axis]).saturating_add(reach[axis]).saturating_sub(size);
            let (less, more) = (total / 2, total.div_ceil(2));
            (pads[axis], pads[axis + 2]) = if at_end { (less, more) } else { (more, less) };
        }
        Ok(pads)
    }
}

fn margins([top, left, bottom, right]: [usize; 4]) -> [usize; 4] {
    [left, right, top, bottom]
}

fn conv(o: &Options<'_>) -> Result<Built, String> {
    let padding = Padding::of(o)?;
    let (stride, dilation) = (o.pair("strides", 1, 1)?, o.pair("dilations", 1, 1)?);
    let groups = usize::try_from(o.int("group", 1)).map_err(|_| "group is below 0")?;
    Ok(costly(move |c| {
        let (x, weight) = (c.x(0)?, c.x(1)?);
        if x.rank() != 4 || weight.rank() != 4 {
            let operands = [("input", x.meta()), ("weight", weight.meta())];
            return Err(Error::operands("conv", "convolutions are there for images [n, c, h, w] only", &operands));
        }
        let reach =
            [0, 1].map(|i| weight.shape()[2 + i].saturating_sub(1).saturating_mul(dilation[i]).saturating_add(1));
        let pads = padding.pads(x, reach, stride)?;
        let options = Conv2dOptions { stride, padding: [pads[0], pads[1]], dilation, groups };
        if pads[..2] == pads[2..] {
            return x.conv2d(weight, c.option(2), options);
        }
        let x = x.pad(&margins(pads), PadMode::Constant(0.0))?;
        x.conv2d(weight, c.option(2), Conv2dOptions { padding: [0, 0], ..options })
    }))
}

fn pool(o: &Options<'_>, max: bool) -> Result<Built, String> {
    let padding = Padding::of(o)?;
    let kernel = o.pair("kernel_shape", 0, 1)?;
    if kernel == [0, 0] {
        return Err("has no kernel_shape".into());
    }
    let (stride, dilation) = (o.pair("strides", 1, 1)?, o.pair("dilations", 1, 1)?);
    let (ceil_mode, count_pad) = (o.flag("ceil_mode"), o.flag("count_include_pad"));
    if !max && dilation != [1, 1] {
        return Err("means of windows with gaps are not there".into());
    }
    Ok(costly(move |c| {
        let x = c.x(0)?;
        let reach = [0, 1].map(|i| (kernel[i] - 1).saturating_mul(dilation[i]).saturating_add(1));
        let pads = padding.pads(x, reach, stride)?;
        let options = PoolOptions { kernel, stride, padding: [pads[0], pads[1]], ceil_mode };
        let apart = PoolOptions { padding: [0, 0], ..options };
        let fits = pads[..2] == pads[2..] && (0..2).all(|i| pads[i] <= kernel[i] / 2);
        let padded = |x: &Tensor, with: f64| x.pad(&margins(pads), PadMode::Constant(with));
        match (max, fits) {
            (true, true) => x.max_pool2d_dilated(options, dilation),
            (true, false) => padded(x, f64::NEG_INFINITY)?.max_pool2d_dilated(apart, dilation),
            (false, true) => x.avg_pool2d_with(options, count_pad),
            (false, false) if count_pad => padded(x, 0.0)?.avg_pool2d_with(apart, true),
            // The mean of the elements that are not padding: each window's sum over its share of them.
            (false, false) => {
                let here = Tensor::ones([1, 1, x.size(2)?, x.size(3)?], x.dtype())?;
                let share = padded(&here, 0.0)?.avg_pool2d_with(apart, true)?;
                padded(x, 0.0)?.avg_pool2d_with(apart, true)?.div(&share)
            }
        }
    }))
}

fn gemm(o: &Options<'_>) -> Built {
    let (alpha, beta) = (o.float("alpha", 1.0), o.float("beta", 1.0));
    let (turn_a, turn_b) = (o.flag("transA"), o.flag("transB"));
    costly(move |c| {
        let (a, b) = (c.x(0)?, c.x(1)?);
        let a = if turn_a { a.t()? } else { a.clone() };
        let plain = alpha == 1.0 && beta == 1.0 && c.option(2).is_none_or(|bias| bias.rank() == 1);
        if turn_b && plain && a.rank() == 2 && c.option(2).is_none_or(|bias| bias.shape().first() == b.shape().first())
        {
            return a.linear(b, c.option(2));
        }
        let mut y = a.matmul(&if turn_b { b.t()? } else { b.clone() })?;
        if alpha != 1.0 {
            y = y.mul_scalar(alpha)?;
        }
        match c.option(2) {
            Some(bias) if beta != 1.0 => y.add(&bias.mul_scalar(beta)?),
            Some(bias) => y.add(bias),
            None => Ok(y),
        }
    })
}

fn softmax(o: &Options<'_>, plain: bool) -> Built {
    let along = move |x: &Tensor, axis: isize| if plain { x.softmax(axis) } else { x.log_softmax(axis) };
    if o.opset >= 13 {
        let axis = o.int("axis", -1) as isize;
        return costly(move |c| along(c.x(0)?, axis));
    }
    // Until version 12 all dimensions from the axis on were one.
    let axis = o.int("axis", 1) as isize;
    costly(move |c| {
        let x = c.x(0)?;
        let first = x.dim("softmax", axis)?;
        let rows = Shape::from(&x.shape()[..first]).numel();
        along(&x.reshape([rows, x.numel() / rows.max(1)])?, 1)?.reshape(x.shape())
    })
}

/// Batch norm with its statistics, which training goes on with.
pub(in super::super) fn batch_norm(
    o: &Options<'_>,
    mean: Buffer,
    var: Buffer,
    batches: Buffer,
) -> Result<Built, String> {
    if !(0..3).all(|place| o.has_input(place)) {
        return Err("operands are missing".into());
    }
    // ONNX says how much of the old statistics stays, PyTorch how much is new.
    let (eps, momentum) = (o.float("epsilon", 1e-5), 1.0 - o.float("momentum", 0.9));
    Ok(costly(move |c: &Call<'_>| {
        let (x, affine) = (c.x(0)?, Some((c.x(1)?, c.x(2)?)));
        let (old_mean, old_var) = (mean.get()?, var.get()?);
        if !c.training {
            return x.batch_norm_eval(&old_mean, &old_var, affine, eps);
        }
        let old = RunningStats { mean: &old_mean, var: &old_var, batches: &batches.get()? };
        let done = x.batch_norm_train(affine, Some(old), Some(momentum), eps)?;
        for (buffer, value) in [&mean, &var, &batches].into_iter().zip(done.stats.into_iter().flatten()) {
            buffer.cell().stage(value)?;
        }
        Ok(done.output)
    }))
}
