//! Every op, loss, optimizer and layer against what PyTorch computes: values, gradients, trajectories.
//!
//! Each op is a test of its own and runs all of its cases. What the engine does not have yet stands on the lists at
//! the end, and the lists are kept honest: see [`every_case_is_run_or_listed`].

mod common;

use common::{Case, cases, dtype, same};
use neurona::loss::{BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, NLLLoss};
use neurona::nn::{
    BatchNorm1d, BatchNorm2d, Conv2d, Dropout, Embedding, Forward, Linear, MaxPool2d, Module, MultiheadAttention,
    Parameter,
};
use neurona::optim::{Adam, Optimizer, RmsProp, Sgd};
use neurona::{Conv2dOptions, Device, Error, PadMode, PoolOptions, Reduction, Result, RunningStats, Tensor};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Computes a case's outputs from its inputs.
type Runner = fn(&Case, &[Tensor]) -> Result<Vec<Tensor>>;

/// One test an op.
macro_rules! oracle { ($($group:literal { $($op:ident => $runner:expr,)* })*) => {
    $($( #[test] fn $op() { check($group, stringify!($op), Device::Cpu) } )*)*

    /// The same on a GPU.
    mod cuda {
        $($( #[test] fn $op() {
            if let Some(gpu) = super::common::gpu() {
                super::check($group, stringify!($op), gpu)
            }
        } )*)*
    }

    fn runner(group: &str, op: &str) -> Option<Runner> {
        match (group, op) {
            $($( ($group, stringify!($op)) => Some($runner), )*)*
            _ => None,
        }
    }
} }

oracle! {
    "ops" {
        add => |c, x| binary(c, x, Tensor::add, |s, x| s + x),
        sub => |c, x| binary(c, x, Tensor::sub, |s, x| s - x),
        mul => |c, x| binary(c, x, Tensor::mul, |s, x| s * x),
        div => |c, x| binary(c, x, Tensor::div, |s, x| s / x),
        eq => |c, x| compare(c, x, Tensor::eq, Tensor::eq_scalar),
        ne => |c, x| compare(c, x, Tensor::ne, Tensor::ne_scalar),
        lt => |c, x| compare(c, x, Tensor::lt, Tensor::lt_scalar),
        le => |c, x| compare(c, x, Tensor::le, Tensor::le_scalar),
        gt => |c, x| compare(c, x, Tensor::gt, Tensor::gt_scalar),
        ge => |c, x| compare(c, x, Tensor::ge, Tensor::ge_scalar),
        neg => |_, x| one(x[0].neg()),
        exp => |_, x| one(x[0].exp()),
        log => |_, x| one(x[0].log()),
        sqrt => |_, x| one(x[0].sqrt()),
        abs => |_, x| one(x[0].abs()),
        relu => |_, x| one(x[0].relu()),
        sigmoid => |_, x| one(x[0].sigmoid()),
        tanh => |_, x| one(x[0].tanh()),
        pow => |c, x| one(x[0].pow(c.number("exponent").expect("an exponent"))),
        maximum => |_, x| one(x[0].maximum(&x[1])),
        minimum => |_, x| one(x[0].minimum(&x[1])),
        clamp => |c, x| one(match (c.number("min"), c.number("max")) {
            (Some(low), Some(high)) => x[0].clamp(low, high),
            (Some(low), None) => x[0].clamp_min(low),
            (None, Some(high)) => x[0].clamp_max(high),
            (None, None) => Ok(x[0].clone()),
        }),
        r#where => |_, x| one(x[0].where_(&x[1], &x[2])),
        cast => |c, x| one(x[0].to_dtype(dtype(c.text("to")))),
        reshape => |c, x| one(view(&x[0], &c.ints("shape").expect("a shape"))),
        permute => |c, x| one(x[0].permute(&c.ints("dims").expect("dims"))),
        transpose => |c, x| one(x[0].transpose(c.int("dim0") as isize, c.int("dim1") as isize)),
        permute_reshape => |c, x| {
            let turned = x[0].permute(&c.ints("dims").expect("dims"))?;
            one(view(&turned, &c.ints("shape").expect("a shape")))
        },
        flatten => |c, x| one(x[0].flatten(c.int("start_dim") as isize, c.int("end_dim") as isize)),
        expand => |c, x| one(x[0].expand(&c.ints("shape").expect("a shape"))),
        broadcast_to => |c, x| {
            let shape = c.ints("shape").expect("a shape").iter().map(|&n| n as usize).collect::<Vec<_>>();
            one(x[0].broadcast_to(shape))
        },
        // Evaluation is the identity, and the layer's business.
        dropout => |c, x| one(if c.flag("training") { x[0].dropout(c.float("p")) } else { Ok(x[0].clone()) }),
        sum => |c, x| one(x[0].sum_dims(&dims(c, &x[0]), c.flag("keepdim"))),
        mean => |c, x| one(x[0].mean_dims(&dims(c, &x[0]), c.flag("keepdim"))),
        max => |c, x| extreme(c, x, Tensor::max, Tensor::max_dim),
        min => |c, x| extreme(c, x, Tensor::min, Tensor::min_dim),
        argmax => |c, x| arg(c, &x[0], Tensor::argmax),
        argmin => |c, x| arg(c, &x[0], Tensor::argmin),
        var => |c, x| one(x[0].var(&dims(c, &x[0]), c.int("correction") as usize, c.flag("keepdim"))),
        std => |c, x| one(x[0].std(&dims(c, &x[0]), c.int("correction") as usize, c.flag("keepdim"))),
        softmax => |c, x| one(x[0].softmax(c.int("dim") as isize)),
        log_softmax => |c, x| one(x[0].log_softmax(c.int("dim") as isize)),
        matmul => |c, x| {
            let turned = |x: &Tensor, turn: &str| if c.flag(turn) { x.transpose(-2, -1) } else { Ok(x.clone()) };
            one(turned(&x[0], "transpose_a")?.matmul(&turned(&x[1], "transpose_b")?))
        },
        linear => |_, x| one(x[0].linear(&x[1], x.get(2))),
        conv2d => |c, x| {
            let options = Conv2dOptions {
                stride: c.pair("stride"),
                padding: c.pair("padding"),
                dilation: c.pair("dilation"),
                groups: c.int("groups") as usize,
            };
            one(x[0].conv2d(&x[1], x.get(2), options))
        },
        max_pool2d => |c, x| {
            one(x[0].max_pool2d_dilated(pool(c), c.pair("dilation")))
        },
        avg_pool2d => |c, x| one(x[0].avg_pool2d_with(pool(c), c.flag("count_include_pad"))),
        adaptive_avg_pool2d => |c, x| {
            one(x[0].adaptive_avg_pool2d(c.pair("output_size")))
        },
        batch_norm => |c, x| {
            let (affine, rest) = x[1..].split_at(if c.flag("affine") { 2 } else { 0 });
            let affine = affine.first().zip(affine.get(1));
            let (mean, var, batches) = (&rest[0], &rest[1], &rest[2]);
            if !c.flag("training") {
                let y = x[0].batch_norm_eval(mean, var, affine, c.float("eps"))?;
                return Ok(vec![y, mean.clone(), var.clone(), batches.clone()]);
            }
            let running = RunningStats { mean, var, batches };
            let done = x[0].batch_norm_train(affine, Some(running), Some(c.float("momentum")), c.float("eps"))?;
            Ok([done.output].into_iter().chain(done.stats.into_iter().flatten()).collect())
        },
        promotion => promotion_table,
        cat => |c, x| one(Tensor::cat(&x.iter().collect::<Vec<_>>(), c.int("dim") as isize)),
        stack => |c, x| one(Tensor::stack(&x.iter().collect::<Vec<_>>(), c.int("dim") as isize)),
        narrow => |c, x| one(x[0].narrow(c.int("dim") as isize, c.int("start") as usize, c.int("length") as usize)),
    }
    "tensors" {
        slice => |c, x| {
            let at = |name: &str| c.int(name) as isize;
            one(x[0].slice(at("dim"), at("start"), at("end"), c.int("step") as usize))
        },
        select => |c, x| one(x[0].select(c.int("dim") as isize, c.int("index") as isize)),
        split => |c, x| x[0].split(c.int("size") as usize, c.int("dim") as isize),
        chunk => |c, x| x[0].chunk(c.int("chunks") as usize, c.int("dim") as isize),
        index_select => |c, x| one(x[0].index_select(c.int("dim") as isize, &x[1])),
        gather => |c, x| one(x[0].gather(c.int("dim") as isize, &x[1])),
        flip => |c, x| one(x[0].flip(&c.ints("dims").expect("dims"))),
        roll => |c, x| one(x[0].roll(&c.ints("shifts").expect("shifts"), &c.ints("dims").expect("dims"))),
        pad => |c, x| {
            let margins: Vec<usize> = c.ints("margins").expect("margins").iter().map(|m| *m as usize).collect();
            let mode = match c.text("mode") {
                "constant" => PadMode::Constant(c.float("value")),
                "reflect" => PadMode::Reflect,
                _ => PadMode::Replicate,
            };
            one(x[0].pad(&margins, mode))
        },
        rsqrt => |_, x| one(x[0].rsqrt()),
        reciprocal => |_, x| one(x[0].reciprocal()),
        square => |_, x| one(x[0].square()),
        sin => |_, x| one(x[0].sin()),
        cos => |_, x| one(x[0].cos()),
        erf => |c, x| tiny(c, x[0].erf()?),
        log1p => |c, x| tiny(c, x[0].log1p()?),
        expm1 => |c, x| tiny(c, x[0].expm1()?),
        sign => |_, x| one(x[0].sign()),
        floor => |_, x| one(x[0].floor()),
        ceil => |_, x| one(x[0].ceil()),
        round => |_, x| one(x[0].round()),
        logical_and => |_, x| one(x[0].logical_and(&x[1])),
        logical_or => |_, x| one(x[0].logical_or(&x[1])),
        logical_xor => |_, x| one(x[0].logical_xor(&x[1])),
        logical_not => |_, x| one(x[0].logical_not()),
        any => |c, x| one(x[0].any(&dims(c, &x[0]), c.flag("keepdim"))),
        all => |c, x| one(x[0].all(&dims(c, &x[0]), c.flag("keepdim"))),
        linspace => |c, _| one(Tensor::linspace(c.float("start"), c.float("end"), c.int("steps") as usize)),
        eye => |c, _| one(Tensor::eye(c.int("rows") as usize, c.int("columns") as usize, dtype(c.text("dtype")))),
        arange => |c, _| {
            let at = |name: &str| c.number(name).expect("a number");
            one(Tensor::arange_step(at("start"), at("end"), at("step")))
        },
        one_hot => |c, x| one(x[0].one_hot(c.int("classes") as usize)),
        full_like => |c, x| one(Tensor::full_like(&x[0], c.number("value").expect("a value"))),
        expand_as => |_, x| one(x[0].expand_as(&x[1])),
        bmm => |_, x| one(x[0].matmul(&x[1])),
        prod => |c, x| one(x[0].prod_dims(&dims(c, &x[0]), c.flag("keepdim"))),
        norm => |c, x| {
            let p = c.text("p").parse().expect("1, 2 or inf");
            one(x[0].norm(p, &dims(c, &x[0]), c.flag("keepdim")))
        },
        logsumexp => |c, x| one(x[0].logsumexp(&dims(c, &x[0]), c.flag("keepdim"))),
        cumsum => |c, x| one(x[0].cumsum(c.int("dim") as isize)),
        sort => |c, x| both(x[0].sort(c.int("dim") as isize, c.flag("descending"))),
        argsort => |c, x| one(x[0].argsort(c.int("dim") as isize, c.flag("descending"))),
        topk => |c, x| both(x[0].topk(c.int("k") as usize, c.int("dim") as isize, c.flag("largest"))),
    }
    "losses" {
        cross_entropy => |c, x| {
            let loss = CrossEntropyLoss::new().reduction(reduction(c)).ignore_index(c.int("ignore_index"));
            let loss = loss.label_smoothing(c.float("label_smoothing"));
            one(if c.flag("weight") { loss.weight(&x[2]) } else { loss }.forward(&x[0], &x[1]))
        },
        nll => |c, x| {
            let loss = NLLLoss::new().reduction(reduction(c)).ignore_index(c.int("ignore_index"));
            one(if c.flag("weight") { loss.weight(&x[2]) } else { loss }.forward(&x[0], &x[1]))
        },
        binary_cross_entropy => |c, x| {
            let loss = BCELoss::new().reduction(reduction(c));
            one(if c.flag("weight") { loss.weight(&x[2]) } else { loss }.forward(&x[0], &x[1]))
        },
        binary_cross_entropy_with_logits => |c, x| {
            let loss = BCEWithLogitsLoss::new().reduction(reduction(c));
            let loss = if c.flag("weight") { loss.weight(&x[2]) } else { loss };
            let last = &x[x.len() - 1];
            one(if c.flag("pos_weight") { loss.pos_weight(last) } else { loss }.forward(&x[0], &x[1]))
        },
        smooth_l1 => |c, x| one(x[0].smooth_l1_loss_with(&x[1], c.float("beta"), reduction(c))),
        huber => |c, x| one(x[0].huber_loss_with(&x[1], c.float("delta"), reduction(c))),
        mse => |c, x| one(x[0].mse_loss_with(&x[1], reduction(c))),
        l1 => |c, x| one(x[0].l1_loss_with(&x[1], reduction(c))),
    }
    "nn" {
        leaky_relu => |c, x| one(x[0].leaky_relu(c.float("slope"))),
        elu => |c, x| one(x[0].elu(c.float("alpha"))),
        gelu => |c, x| one(if c.text("approximate") == "tanh" { x[0].gelu_tanh() } else { x[0].gelu() }),
        silu => |_, x| one(x[0].silu()),
        hardswish => |_, x| one(x[0].hardswish()),
        relu6 => |_, x| one(x[0].relu6()),
        hardsigmoid => |_, x| one(x[0].hardsigmoid()),
        softplus => |c, x| one(x[0].softplus(c.float("beta"), c.float("threshold"))),
        layer_norm => |c, x| {
            let shape: Vec<usize> = c.ints("shape").expect("a shape").iter().map(|&n| n as usize).collect();
            one(x[0].layer_norm(shape, x.get(1), x.get(2), c.float("eps")))
        },
        group_norm => |c, x| one(x[0].group_norm(c.int("groups") as usize, x.get(1).zip(x.get(2)), c.float("eps"))),
        batch_norm1d => |_, x| Ok(vec![x[0].batch_norm_train(Some((&x[1], &x[2])), None, None, 1e-5)?.output]),
        conv2d_same => |c, x| {
            let (dilation, groups) = (c.pair("dilation"), c.int("groups") as usize);
            one(x[0].conv2d_same(&x[1], x.get(2), Conv2dOptions { dilation, groups, ..Default::default() }))
        },
        upsample_nearest2d => |c, x| one(x[0].upsample_nearest2d(c.pair("size"))),
        adaptive_bins => |c, x| one(x[0].adaptive_avg_pool2d(c.pair("output_size"))),
        max_pool2d_dilated => |c, x| one(x[0].max_pool2d_dilated(pool(c), c.pair("dilation"))),
        embedding => |c, x| {
            let mut layer = Embedding::new(x[0].shape()[0], x[0].shape()[1])?;
            layer.weight = Parameter::new(&x[0].detach())?;
            layer.padding_idx = c.attr("padding_idx").as_u64().map(|i| i as usize);
            give(&layer, &x[..1])?;
            one(layer.forward(&x[1]))
        },
        multihead_attention => |c, x| {
            let mut layer = MultiheadAttention::new(c.int("dim") as usize, c.int("heads") as usize)?;
            layer.batch_first = c.flag("batch_first");
            let layer = if c.flag("bias") { layer } else { layer.without_bias() };
            let (inputs, parameters) = x.split_at(if c.flag("keys") { 3 } else { 1 });
            let (parameters, mask) = parameters.split_at(if c.flag("bias") { 4 } else { 2 });
            give(&layer, parameters)?;
            one(match inputs {
                [x] => layer.forward(x),
                _ => layer.attend(&inputs[0], &inputs[1], &inputs[2], mask.first()),
            })
        },
    }
    "optimizers" {
        sgd => |c, x| {
            let make = |p| {
                let sgd = Sgd::new(p, c.float("lr")).momentum(c.float("momentum")).dampening(c.float("dampening"));
                sgd.weight_decay(c.float("weight_decay")).nesterov(c.flag("nesterov"))
            };
            trajectory(c, x, make)
        },
        adam => |c, x| trajectory(c, x, |p| adam_of(c, p)),
        adamw => |c, x| trajectory(c, x, |p| adam_of(c, p).decoupled()),
        rmsprop => |c, x| {
            let make = |p| {
                let it = RmsProp::new(p, c.float("lr")).alpha(c.float("alpha")).eps(c.float("eps"));
                let it = it.weight_decay(c.float("weight_decay")).momentum(c.float("momentum"));
                if c.flag("centered") { it.centered() } else { it }
            };
            trajectory(c, x, make)
        },
    }
    "layers" {
        init => layer_defaults,
    }
}

fn one(result: Result<Tensor>) -> Result<Vec<Tensor>> {
    Ok(vec![result?])
}

/// Values and places.
fn both(result: Result<Pair>) -> Result<Vec<Tensor>> {
    result.map(|(values, places)| vec![values, places])
}

/// Results near 0 are compared a million times larger.
fn tiny(case: &Case, y: Tensor) -> Result<Vec<Tensor>> {
    one(if case.name.ends_with("_tiny") { y.mul_scalar(1e6) } else { Ok(y) })
}

/// Gives a layer these parameters: staged, not set, so that gradients reach the tensors themselves.
fn give(layer: &impl Module, values: &[Tensor]) -> Result<()> {
    let parameters = layer.parameters();
    assert_eq!(parameters.len(), values.len());
    parameters.iter().zip(values).try_for_each(|(parameter, value)| parameter.cell().stage(value.clone()))
}

/// What a runner says of a case that the engine cannot express.
fn absent(what: &str) -> Error {
    Error::Argument(format!("{what} is not there yet"))
}

fn binary(
    case: &Case,
    x: &[Tensor],
    op: fn(&Tensor, &Tensor) -> Result<Tensor>,
    left: fn(f64, &Tensor) -> Result<Tensor>,
) -> Result<Vec<Tensor>> {
    use neurona::Number;
    let Some(scalar) = case.number("scalar") else { return one(op(&x[0], &x[1])) };
    if case.flag("scalar_left") {
        return one(left(scalar.as_f64(), &x[0]));
    }
    let with: fn(&Tensor, Number) -> Result<Tensor> = match case.op.as_str() {
        "add" => Tensor::add_scalar,
        "sub" => Tensor::sub_scalar,
        "mul" => Tensor::mul_scalar,
        _ => Tensor::div_scalar,
    };
    one(with(&x[0], scalar))
}

fn compare(
    case: &Case,
    x: &[Tensor],
    op: fn(&Tensor, &Tensor) -> Result<Tensor>,
    with: fn(&Tensor, neurona::Number) -> Result<Tensor>,
) -> Result<Vec<Tensor>> {
    one(match case.number("scalar") {
        Some(scalar) => with(&x[0], scalar),
        None => op(&x[0], &x[1]),
    })
}

/// `view` takes arrays; the vectors have lists.
fn view(x: &Tensor, sizes: &[isize]) -> Result<Tensor> {
    match *sizes {
        [] => x.view([]),
        [a] => x.view([a]),
        [a, b] => x.view([a, b]),
        [a, b, c] => x.view([a, b, c]),
        _ => panic!("no case has the shape {sizes:?}"),
    }
}

/// The dimensions of a reduction; null means all.
fn dims(case: &Case, x: &Tensor) -> Vec<isize> {
    case.ints("dims").unwrap_or_else(|| (0..x.rank() as isize).collect())
}

type Pair = (Tensor, Tensor);

fn extreme(
    case: &Case,
    x: &[Tensor],
    all: fn(&Tensor) -> Result<Tensor>,
    along: fn(&Tensor, isize, bool) -> Result<Pair>,
) -> Result<Vec<Tensor>> {
    match case.attr("dim").as_i64() {
        Some(dim) => along(&x[0], dim as isize, case.flag("keepdim")).map(|(values, places)| vec![values, places]),
        None => one(all(&x[0])),
    }
}

fn arg(case: &Case, x: &Tensor, op: fn(&Tensor, isize) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    one(match case.attr("dim").as_i64() {
        None => op(&x.flatten(0, -1)?, 0),
        Some(dim) if case.flag("keepdim") => op(x, dim as isize)?.unsqueeze(dim as isize),
        Some(dim) => op(x, dim as isize),
    })
}

fn pool(case: &Case) -> PoolOptions {
    PoolOptions {
        kernel: case.pair("kernel"),
        stride: case.pair("stride"),
        padding: case.pair("padding"),
        ceil_mode: case.flag("ceil_mode"),
    }
}

fn reduction(case: &Case) -> Reduction {
    match case.text("reduction") {
        "mean" => Reduction::Mean,
        "sum" => Reduction::Sum,
        _ => Reduction::None,
    }
}

fn adam_of(case: &Case, parameters: Vec<Parameter>) -> Adam {
    let betas = case.attr("betas");
    let beta = |i: usize| betas[i].as_f64().expect("a number");
    let adam = Adam::new(parameters, case.float("lr")).betas(beta(0), beta(1)).eps(case.float("eps"));
    let adam = adam.weight_decay(case.float("weight_decay"));
    if case.flag("amsgrad") { adam.amsgrad() } else { adam }
}

/// 50 steps with given gradients; the parameters after every tenth.
fn trajectory<O: Optimizer>(case: &Case, x: &[Tensor], make: impl Fn(Vec<Parameter>) -> O) -> Result<Vec<Tensor>> {
    let parameters = x[..2].iter().map(Parameter::new).collect::<Result<Vec<_>>>()?;
    let gradients = x[2..4].iter().map(|g| g.to_vec::<f32>()).collect::<Result<Vec<_>>>()?;
    let mut optimizer = make(parameters.clone());
    let mut seen: [Vec<f32>; 2] = Default::default();
    for step in 0..50 {
        if let Some(lr) = case.attr("lrs").get(step).and_then(|lr| lr.as_f64()) {
            optimizer.set_lr(lr);
        }
        optimizer.zero_grad();
        // The gradient of sum(p · g) by p is g.
        let mut loss = Tensor::scalar(0.0f32);
        for (p, g) in parameters.iter().zip(&gradients) {
            let size = p.shape().numel();
            let gradient = Tensor::from_slice(&g[step * size..][..size], p.shape())?.to(x[0].device())?;
            loss = (&loss + (&p.get()? * &gradient)?.sum()?)?;
        }
        loss.backward()?;
        optimizer.step()?;
        if step % 10 == 9 {
            for (seen, p) in seen.iter_mut().zip(&parameters) {
                seen.extend(p.get()?.to_vec::<f32>()?);
            }
        }
    }
    let stacked = |(seen, p): (Vec<f32>, &Parameter)| {
        let shape: Vec<usize> = [5].into_iter().chain(p.shape().iter().copied()).collect();
        Tensor::from_vec(seen, shape)
    };
    seen.into_iter().zip(&parameters).map(stacked).collect()
}

/// A layer's parameters and buffers: names, shapes, types, and what they start with.
fn layer_defaults(case: &Case, _: &[Tensor]) -> Result<Vec<Tensor>> {
    let argument = |name: &str| case.attr("arguments").get(name).cloned();
    let size = |name: &str| argument(name).and_then(|v| v.as_u64()).expect("an argument") as usize;
    let option = |name: &str, default: usize| argument(name).and_then(|v| v.as_u64()).map_or(default, |v| v as usize);
    let off = |name: &str| argument(name).is_some_and(|v| v == false);
    let make = || -> Result<Box<dyn Module>> {
        Ok(match case.text("layer") {
            "Conv2d" => {
                let options = Conv2dOptions {
                    stride: [option("stride", 1); 2],
                    padding: [option("padding", 0); 2],
                    dilation: [option("dilation", 1); 2],
                    groups: option("groups", 1),
                };
                let kernel = [size("kernel_size"); 2];
                let layer = Conv2d::with(size("in_channels"), size("out_channels"), kernel, options)?;
                Box::new(if off("bias") { layer.without_bias() } else { layer })
            }
            "Linear" => {
                let layer = Linear::new(size("in_features"), size("out_features"))?;
                Box::new(if off("bias") { layer.without_bias() } else { layer })
            }
            "BatchNorm1d" => Box::new(BatchNorm1d::new(size("num_features"))?),
            "BatchNorm2d" => {
                let layer = BatchNorm2d::new(size("num_features"))?;
                Box::new(if off("affine") { layer.without_affine() } else { layer })
            }
            "MaxPool2d" => Box::new(MaxPool2d::new(size("kernel_size"))),
            "Dropout" => Box::new(Dropout::default()),
            other => return Err(absent(other)),
        })
    };
    defaults_of_options(case)?;
    // Many layers, so that small ones show their spread too.
    let layers = (0..200).map(|_| make()).collect::<Result<Vec<_>>>()?;
    let parameters = |m: &dyn Module| -> Result<Vec<(String, Tensor)>> {
        m.named_parameters().into_iter().map(|(n, p)| Ok((n, p.get()?))).collect()
    };
    let buffers = |m: &dyn Module| -> Result<Vec<(String, Tensor)>> {
        m.named_buffers().into_iter().map(|(n, b)| Ok((n, b.get()?))).collect()
    };
    for (kind, read) in
        [("parameters", &parameters as &dyn Fn(&dyn Module) -> Result<Vec<(String, Tensor)>>), ("buffers", &buffers)]
    {
        let wanted = case.attr(kind).as_object().expect("a table");
        let all = layers.iter().map(|l| read(&**l)).collect::<Result<Vec<_>>>()?;
        let names: BTreeSet<&str> = all[0].iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, wanted.keys().map(String::as_str).collect(), "{kind} of {}", case.name);
        for (i, (name, first)) in all[0].iter().enumerate() {
            let want = &wanted[name];
            let shape: Vec<u64> = first.shape().iter().map(|n| *n as u64).collect();
            assert_eq!(serde_json::json!(shape), want["shape"], "{name}");
            assert_eq!(first.dtype().to_string(), want["dtype"], "{name}");
            let values = all.iter().map(|l| l[i].1.to_vec::<f64>()).collect::<Result<Vec<_>>>()?.concat();
            begins(name, &values, want, case.tol);
        }
    }
    Ok(vec![])
}

/// Whether the values of many layers are distributed as they should be.
fn begins(name: &str, values: &[f64], want: &serde_json::Value, tol: f64) {
    let number = |key: &str| want[key].as_f64().expect("a number");
    if want["init"] == "constant" {
        return assert!(values.iter().all(|v| *v == number("value")), "{name} does not start as {want}");
    }
    let (bound, std, count) = (number("bound"), number("std"), values.len() as f64);
    let largest = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let mean = values.iter().sum::<f64>() / count;
    let spread = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count).sqrt();
    assert!(largest <= bound * (1.0 + 1e-6) && largest > 0.98 * bound, "{name}: largest {largest}, bound {bound}");
    assert!((spread - std).abs() < tol * std, "{name}: deviation {spread} instead of {std}");
    assert!(mean.abs() < 4.0 * std / count.sqrt(), "{name}: mean {mean}");
}

/// The constructors' defaults, where the engine's layers show them.
fn defaults_of_options(case: &Case) -> Result<()> {
    let default = |name: &str| case.attr("defaults").get(name).cloned().unwrap_or_default();
    match case.text("layer") {
        "Conv2d" => {
            let options = Conv2d::new(1, 1, 1)?.options;
            assert_eq!(options.stride, [default("stride").as_u64().expect("a number") as usize; 2]);
            assert_eq!(options.padding, [default("padding").as_u64().expect("a number") as usize; 2]);
            assert_eq!(options.dilation, [default("dilation").as_u64().expect("a number") as usize; 2]);
            assert_eq!(options.groups as u64, default("groups"));
        }
        "BatchNorm1d" => {
            let layer = BatchNorm1d::new(1)?;
            assert_eq!((layer.eps.into(), layer.momentum.into()), (default("eps"), default("momentum")));
        }
        "BatchNorm2d" => {
            let layer = BatchNorm2d::new(1)?;
            assert_eq!((layer.eps.into(), layer.momentum.into()), (default("eps"), default("momentum")));
        }
        // A stride of null is the kernel's size.
        "MaxPool2d" => {
            let options = MaxPool2d::new(3).options;
            assert_eq!((options.stride, default("stride")), ([3, 3], serde_json::Value::Null));
            assert_eq!(options.padding[0] as u64, default("padding"));
            assert_eq!(options.ceil_mode, default("ceil_mode"));
        }
        "Dropout" => assert_eq!(Dropout::default().p, default("p")),
        _ => {}
    }
    Ok(())
}

/// The one case without tensors: which type the result of mixing two types has.
fn promotion_table(case: &Case, _: &[Tensor]) -> Result<Vec<Tensor>> {
    let of = |name: &str, shape: &[usize]| Tensor::ones(shape, dtype(name));
    let mut wrong = Vec::new();
    let mut expect = |row: &serde_json::Value, table: &str, got: Result<Tensor>| {
        let want = row.as_array().and_then(|r| r.last()).and_then(|w| w.as_str()).expect("a result type");
        let got = got.and_then(|t| t.to_vec::<f64>().map(|_| t.dtype().to_string())).unwrap_or_else(|_| "error".into());
        if got != want {
            wrong.push(format!("{table} {row}: {got}"));
        }
    };
    for (table, op) in [("tensors", Tensor::add as fn(&Tensor, &Tensor) -> Result<Tensor>), ("div", Tensor::div)] {
        for row in case.attr(table).as_array().expect("rows") {
            let (a, b) = (row[0].as_str().expect("a type"), row[1].as_str().expect("a type"));
            expect(row, table, op(&of(a, &[2])?, &of(b, &[2])?));
        }
    }
    for row in case.attr("zero_dim").as_array().expect("rows") {
        let (a, b) = (row[0].as_str().expect("a type"), row[1].as_str().expect("a type"));
        expect(row, "zero_dim", of(a, &[2])?.add(&of(b, &[])?));
        expect(row, "zero_dim, other side", of(b, &[])?.add(&of(a, &[2])?));
    }
    for (table, div) in [("scalars", false), ("div_scalars", true)] {
        for row in case.attr(table).as_array().expect("rows") {
            let x = of(row[0].as_str().expect("a type"), &[2])?;
            let number = match row[1].as_str().expect("a kind") {
                "int" => neurona::Number::Int(2),
                "float" => neurona::Number::Float(2.5),
                _ => continue, // Rust's `x + true` does not exist
            };
            expect(row, table, if div { x.div_scalar(number) } else { x.add_scalar(number) });
        }
    }
    for (table, op) in [
        ("sum", Tensor::sum as fn(&Tensor) -> Result<Tensor>),
        ("mean", Tensor::mean as fn(&Tensor) -> Result<Tensor>),
        ("exp", Tensor::exp as fn(&Tensor) -> Result<Tensor>),
    ] {
        for row in case.attr(table).as_array().expect("rows") {
            expect(row, table, op(&of(row[0].as_str().expect("a type"), &[2])?));
        }
    }
    if wrong.is_empty() { Ok(vec![]) } else { Err(Error::Argument(wrong.join("\n    "))) }
}

/// Runs all cases of an op that are not listed, and reports all that differ.
fn check(group: &str, op: &str, device: Device) {
    let op = op.trim_start_matches("r#");
    let mine: Vec<Case> =
        cases(group).into_iter().filter(|c| c.op == op).map(|c| c.on(device).expect("moves")).collect();
    assert!(!mine.is_empty(), "{group} has no cases of {op}");
    let run = runner(group, op).or_else(|| runner(group, &format!("r#{op}"))).expect("the macro wrote both");
    let (later, now): (Vec<&Case>, Vec<&Case>) = mine.iter().partition(|c| CASES_LATER.contains(&c.name.as_str()));
    let mut wrong: Vec<String> =
        now.iter().filter_map(|c| Some(format!("{}: {}", c.name, attempt(c, run).err()?))).collect();
    for case in &later {
        if attempt(case, run).is_ok() {
            wrong.push(format!("{} is listed as not there yet, but it is right: take it off the list", case.name));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases are wrong:\n  {}", wrong.len(), mine.len(), wrong.join("\n  "));
    println!("{op}: {} cases run, {} listed", now.len(), later.len());
}

fn attempt(case: &Case, run: Runner) -> std::result::Result<(), String> {
    // A panic must not hide which case it was.
    catch_unwind(AssertUnwindSafe(|| compare_case(case, run))).unwrap_or_else(|_| Err("panicked".into()))
}

/// Values, then gradients of sum(out · dout).
fn compare_case(case: &Case, run: Runner) -> std::result::Result<(), String> {
    let inputs = case.all("in").into_iter().enumerate().map(|(i, x)| match case.get(&format!("din{i}")) {
        Some(_) => x.requires_grad(),
        None => Ok(x.clone()),
    });
    let inputs = inputs.collect::<Result<Vec<_>>>().map_err(|e| e.to_string())?;
    let outputs = run(case, &inputs).map_err(|e| e.to_string())?;
    let wanted = case.all("out");
    if outputs.len() != wanted.len() {
        return Err(format!("{} outputs instead of {}", outputs.len(), wanted.len()));
    }
    // The loss first: a value that was read before `backward` would run the forward twice.
    let mut loss: Option<Tensor> = None;
    for (i, y) in outputs.iter().enumerate() {
        let Some(dy) = case.get(&format!("dout{i}")) else { continue };
        let part = y.mul(dy).and_then(|p| p.sum()).map_err(|e| e.to_string())?;
        loss = Some(match loss {
            Some(sum) => sum.add(&part).map_err(|e| e.to_string())?,
            None => part,
        });
    }
    if let Some(loss) = &loss {
        loss.backward().map_err(|e| format!("backward: {e}"))?;
    }
    for (i, (got, want)) in outputs.iter().zip(&wanted).enumerate() {
        same(got, want, case.tol).map_err(|e| format!("out{i}: {e}"))?;
    }
    for (i, x) in inputs.iter().enumerate() {
        let Some(want) = case.get(&format!("din{i}")) else { continue };
        let got = x.grad().ok_or(format!("din{i}: there is no gradient"))?;
        same(&got, want, case.tol).map_err(|e| format!("din{i}: {e}"))?;
    }
    Ok(())
}

/// Cases of ops that the engine has, which need an option that it does not have yet.
const CASES_LATER: &[&str] = &[];

/// Ops that the engine does not have. When one of these methods appears it hides the stand-in here, and this file
/// no longer compiles until the op has moved to the table above.
macro_rules! later { ($($op:ident)*) => {
    const OPS_LATER: &[&str] = &[$(stringify!($op)),*];

    #[allow(dead_code)]
    struct NotThereYet;

    #[allow(dead_code)]
    trait Later {
        $( fn $op(&self) -> NotThereYet { NotThereYet } )*
    }
    impl Later for Tensor {}

    #[test]
    fn listed_ops_are_not_there() {
        $( let _: fn(&Tensor) -> NotThereYet = Tensor::$op; )*
    }
} }
later! {}

#[test]
fn every_case_is_run_or_listed() {
    let (mut run, mut listed, mut unknown) = (0, BTreeSet::new(), Vec::new());
    for group in ["ops", "tensors", "nn", "losses", "optimizers", "layers"] {
        for case in cases(group) {
            let has = runner(group, &case.op).or_else(|| runner(group, &format!("r#{}", case.op))).is_some();
            let later = CASES_LATER.contains(&case.name.as_str());
            match (has, OPS_LATER.contains(&case.op.as_str())) {
                (true, true) => unknown.push(format!("{}: its op is run and listed", case.name)),
                (true, false) if later => assert!(listed.insert(case.name)),
                (true, false) => run += 1,
                (false, true) => assert!(listed.insert(case.name)),
                (false, false) => unknown.push(format!("{}: neither run nor listed", case.name)),
            }
        }
    }
    for name in CASES_LATER {
        if !listed.contains(*name) {
            unknown.push(format!("{name}: listed, but there is no such case"));
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    println!("{run} cases run, {} listed for later", listed.len());
}
