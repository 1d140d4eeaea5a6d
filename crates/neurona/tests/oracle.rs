//! Every op, loss, optimizer and layer against what PyTorch computes: values, gradients, trajectories.
//!
//! Each op is a test of its own and runs all of its cases.

mod common;
#[path = "oracle/runners.rs"]
mod runners;

use common::{Case, cases, dtype, same};
use neurona::loss::{BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, NLLLoss};
use neurona::nn::{Embedding, Forward, MultiheadAttention, Parameter};
use neurona::optim::{RmsProp, Sgd};
use neurona::{Conv2dOptions, Device, PadMode, Result, RunningStats, Tensor};
use runners::*;
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

/// The runner of an op, whose name may be a word of the language's own.
fn runner_of(group: &str, op: &str) -> Option<Runner> {
    runner(group, op).or_else(|| runner(group, &format!("r#{op}")))
}

/// Runs all cases of an op, and reports all that differ.
fn check(group: &str, op: &str, device: Device) {
    let op = op.trim_start_matches("r#");
    let mine: Vec<Case> =
        cases(group).into_iter().filter(|c| c.op == op).map(|c| c.on(device).expect("moves")).collect();
    assert!(!mine.is_empty(), "{group} has no cases of {op}");
    let run = runner_of(group, op).expect("the macro wrote it");
    let wrong: Vec<String> =
        mine.iter().filter_map(|c| Some(format!("{}: {}", c.name, attempt(c, run).err()?))).collect();
    assert!(wrong.is_empty(), "{} of {} cases are wrong:\n  {}", wrong.len(), mine.len(), wrong.join("\n  "));
    println!("{op}: {} cases run", mine.len());
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

#[test]
fn every_case_is_run() {
    let (mut run, mut unknown) = (0, Vec::new());
    for group in ["ops", "tensors", "nn", "losses", "optimizers", "layers"] {
        for case in cases(group) {
            match runner_of(group, &case.op) {
                Some(_) => run += 1,
                None => unknown.push(case.name),
            }
        }
    }
    assert!(unknown.is_empty(), "not run: {}", unknown.join("\n"));
    println!("{run} cases run");
}
