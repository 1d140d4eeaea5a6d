//! How the table of `oracle.rs` runs its cases: what several ops share.

use crate::common::{Case, dtype};
use neurona::nn::{BatchNorm1d, BatchNorm2d, Conv2d, Dropout, Linear, MaxPool2d, Module, Parameter};
use neurona::optim::{Adam, Optimizer};
use neurona::{Conv2dOptions, Error, PoolOptions, Reduction, Result, Tensor};
use std::collections::BTreeSet;

pub fn one(result: Result<Tensor>) -> Result<Vec<Tensor>> {
    Ok(vec![result?])
}

/// Values and places.
pub fn both(result: Result<Pair>) -> Result<Vec<Tensor>> {
    result.map(|(values, places)| vec![values, places])
}

/// Results near 0 are compared a million times larger.
pub fn tiny(case: &Case, y: Tensor) -> Result<Vec<Tensor>> {
    one(if case.name.ends_with("_tiny") { y.mul_scalar(1e6) } else { Ok(y) })
}

/// Gives a layer these parameters: staged, not set, so that gradients reach the tensors themselves.
pub fn give(layer: &impl Module, values: &[Tensor]) -> Result<()> {
    let parameters = layer.parameters();
    assert_eq!(parameters.len(), values.len());
    parameters.iter().zip(values).try_for_each(|(parameter, value)| parameter.cell().stage(value.clone()))
}

/// What a runner says of a case that the engine cannot express.
pub fn absent(what: &str) -> Error {
    Error::Argument(format!("{what} is not there yet"))
}

pub fn binary(
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

pub fn compare(
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
pub fn view(x: &Tensor, sizes: &[isize]) -> Result<Tensor> {
    match *sizes {
        [] => x.view([]),
        [a] => x.view([a]),
        [a, b] => x.view([a, b]),
        [a, b, c] => x.view([a, b, c]),
        _ => panic!("no case has the shape {sizes:?}"),
    }
}

/// The dimensions of a reduction; null means all.
pub fn dims(case: &Case, x: &Tensor) -> Vec<isize> {
    case.ints("dims").unwrap_or_else(|| (0..x.rank() as isize).collect())
}

pub type Pair = (Tensor, Tensor);

pub fn extreme(
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

pub fn arg(case: &Case, x: &Tensor, op: fn(&Tensor, isize) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    one(match case.attr("dim").as_i64() {
        None => op(&x.flatten(0, -1)?, 0),
        Some(dim) if case.flag("keepdim") => op(x, dim as isize)?.unsqueeze(dim as isize),
        Some(dim) => op(x, dim as isize),
    })
}

pub fn pool(case: &Case) -> PoolOptions {
    PoolOptions {
        kernel: case.pair("kernel"),
        stride: case.pair("stride"),
        padding: case.pair("padding"),
        ceil_mode: case.flag("ceil_mode"),
    }
}

pub fn reduction(case: &Case) -> Reduction {
    match case.text("reduction") {
        "mean" => Reduction::Mean,
        "sum" => Reduction::Sum,
        _ => Reduction::None,
    }
}

pub fn adam_of(case: &Case, parameters: Vec<Parameter>) -> Adam {
    let betas = case.attr("betas");
    let beta = |i: usize| betas[i].as_f64().expect("a number");
    let adam = Adam::new(parameters, case.float("lr")).betas(beta(0), beta(1)).eps(case.float("eps"));
    let adam = adam.weight_decay(case.float("weight_decay"));
    if case.flag("amsgrad") { adam.amsgrad() } else { adam }
}

/// 50 steps with given gradients; the parameters after every tenth.
pub fn trajectory<O: Optimizer>(case: &Case, x: &[Tensor], make: impl Fn(Vec<Parameter>) -> O) -> Result<Vec<Tensor>> {
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
pub fn layer_defaults(case: &Case, _: &[Tensor]) -> Result<Vec<Tensor>> {
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
pub fn begins(name: &str, values: &[f64], want: &serde_json::Value, tol: f64) {
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
pub fn defaults_of_options(case: &Case) -> Result<()> {
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
pub fn promotion_table(case: &Case, _: &[Tensor]) -> Result<Vec<Tensor>> {
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
