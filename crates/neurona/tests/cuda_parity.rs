//! Element-wise chains, moves and optimizer steps give on a GPU what they give on CPU cores: moves, casts and
//! arithmetic to the last bit, functions to the rounding of the type. Shapes and types are those that kernels treat
//! apart: vectors that end early, rows that are no whole vectors, squares that are not full, several launches.
//!
//! Without a GPU every test here skips itself.

mod common;

use neurona::nn::Parameter;
use neurona::optim::{Adam, Optimizer, RmsProp, Sgd};
use neurona::{DType, Device, PadMode, Result, Tensor, manual_seed};
use std::sync::{Mutex, MutexGuard};

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];
const NUMBERS: [DType; 6] = [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64, DType::U8];
/// One of each size.
const SIZES: [DType; 4] = [DType::U8, DType::BF16, DType::F32, DType::I64];

type Unary = fn(&Tensor) -> Result<Tensor>;
type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// Random keys are the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Numbers from −4 to 4 with NaN, infinity and both zeros among them; of whole types from −80 to 80.
fn data(seed: u64, shape: &[usize], dtype: DType) -> Result<Tensor> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
    let values = (0..shape.iter().product()).map(|i: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match i {
            _ if i % 37 == 5 => f32::NAN,
            _ if i % 41 == 3 => f32::INFINITY,
            _ if i % 43 == 7 => 0.0,
            _ if i % 47 == 9 => -0.0,
            _ => ((state >> 40) as f32 / (1u32 << 24) as f32 - 0.5) * if dtype.is_float() { 8.0 } else { 160.0 },
        }
    });
    Tensor::from_vec(values.collect(), shape)?.to_dtype(dtype)
}

/// Relative errors of a function: those of two libraries that are good to a few units in the last place.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        _ => 2e-6,
    }
}

fn values(x: &Tensor) -> Result<Vec<f64>> {
    x.to(Device::Cpu)?.to_dtype(DType::F64)?.to_vec::<f64>()
}

/// Whether `f` gives the same on the GPU, within a relative error.
#[track_caller]
fn same(about: &str, gpu: Device, tolerance: f64, inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let on_gpu = || -> Result<Vec<f64>> {
        let inputs: Vec<Tensor> = inputs.iter().map(|x| x.to(gpu)).collect::<Result<_>>()?;
        values(&f(&inputs)?)
    };
    let want = f(inputs).and_then(|y| values(&y)).unwrap_or_else(|e| panic!("{about}, on CPU cores: {e}"));
    let got = on_gpu().unwrap_or_else(|e| panic!("{about}: {e}"));
    assert_eq!(got.len(), want.len(), "{about}");
    for (i, (want, got)) in want.iter().zip(&got).enumerate() {
        let near = (want - got).abs() <= tolerance * want.abs().max(1.0);
        assert!(near || want == got || (want.is_nan() && got.is_nan()), "{about}: element {i}: {got}, not {want}");
    }
}

/// The gradient by the first input of a sum of `f`.
fn gradient(x: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let x = x.requires_grad()?;
    f(&x)?.sum()?.backward()?;
    Ok(x.grad().expect("the sum depends on it"))
}

macro_rules! on_gpu {
    ($gpu:ident) => {
        let _alone = alone();
        let Some($gpu) = common::gpu() else { return Ok(()) };
    };
}

#[test]
fn functions_of_one_element() -> Result<()> {
    on_gpu!(gpu);
    let functions: [(&str, Unary); 28] = [
        ("neg", Tensor::neg),
        ("exp", Tensor::exp),
        ("log", Tensor::log),
        ("sqrt", Tensor::sqrt),
        ("abs", Tensor::abs),
        ("square", Tensor::square),
        ("reciprocal", Tensor::reciprocal),
        ("rsqrt", Tensor::rsqrt),
        ("sin", Tensor::sin),
        ("cos", Tensor::cos),
        ("log1p", Tensor::log1p),
        ("expm1", Tensor::expm1),
        ("erf", Tensor::erf),
        ("sign", Tensor::sign),
        ("floor", Tensor::floor),
        ("ceil", Tensor::ceil),
        ("round", Tensor::round),
        ("relu", Tensor::relu),
        ("relu6", Tensor::relu6),
        ("sigmoid", Tensor::sigmoid),
        ("tanh", Tensor::tanh),
        ("gelu", Tensor::gelu),
        ("gelu_tanh", Tensor::gelu_tanh),
        ("silu", Tensor::silu),
        ("hardswish", Tensor::hardswish),
        ("leaky_relu", |x| x.leaky_relu(0.01)),
        ("elu", |x| x.elu(1.3)),
        ("softplus", |x| x.softplus(1.5, 3.0)),
    ];
    for dtype in FLOATS {
        let (x, dy) = (data(1, &[5, 33], dtype)?, data(2, &[5, 33], dtype)?);
        for (name, f) in functions {
            let about = format!("{name} {dtype}");
            same(&about, gpu, rounding(dtype), std::slice::from_ref(&x), |x| f(&x[0]));
            same(&format!("{about}, gradient"), gpu, rounding(dtype), &[x.clone(), dy.clone()], |x| {
                gradient(&x[0], |v| f(v)?.mul(&x[1]))
            });
        }
        for exponent in [3.0, 2.0, -0.5] {
            same(&format!("pow {exponent} {dtype}"), gpu, rounding(dtype), std::slice::from_ref(&x), |x| {
                x[0].pow(exponent)
            });
        }
    }
    for dtype in [DType::I64, DType::U8] {
        let x = data(1, &[5, 33], dtype)?;
        let whole: [(&str, Unary); 6] = [
            ("neg", Tensor::neg),
            ("abs", Tensor::abs),
            ("sign", Tensor::sign),
            ("square", Tensor::square),
            ("round", Tensor::round),
            ("pow", |x| x.pow(5)),
        ];
        whole
            .iter()
            .for_each(|(name, f)| same(&format!("{name} {dtype}"), gpu, 0.0, std::slice::from_ref(&x), |x| f(&x[0])));
    }
    Ok(())
}

#[test]
fn two_operands_casts_and_broadcasting() -> Result<()> {
    on_gpu!(gpu);
    let functions: [(&str, Binary); 11] = [
        ("add", Tensor::add),
        ("sub", Tensor::sub),
        ("mul", Tensor::mul),
        ("eq", Tensor::eq),
        ("ne", Tensor::ne),
        ("lt", Tensor::lt),
        ("le", Tensor::le),
        ("gt", Tensor::gt),
        ("ge", Tensor::ge),
        ("maximum", Tensor::maximum),
        ("div", Tensor::div),
    ];
    let shapes: [(&[usize], &[usize]); 9] = [
        (&[6, 5, 8], &[8]),
        (&[6, 5, 7], &[7]),
        (&[6, 5, 8], &[5, 1]),
        (&[6, 5, 8], &[6, 1, 1]),
        (&[6, 5, 8], &[6, 1, 8]),
        (&[1, 5, 1, 3], &[2, 1, 4, 1]),
        (&[2, 3, 4, 5, 6], &[3, 1, 5, 1]),
        (&[1, 3], &[3]),
        (&[7], &[1]),
    ];
    for dtype in NUMBERS {
        let (a, b) = (data(3, &[3, 29], dtype)?, data(4, &[3, 29], dtype)?);
        for (name, f) in functions {
            same(&format!("{name} {dtype}"), gpu, 0.0, &[a.clone(), b.clone()], |x| f(&x[0], &x[1]));
        }
        for to in NUMBERS.into_iter().chain([DType::Bool]) {
            same(&format!("{dtype} to {to}"), gpu, 0.0, std::slice::from_ref(&a), |x| x[0].to_dtype(to));
        }
        for (one, other) in shapes {
            let inputs = [data(1, one, dtype)?, data(2, other, dtype)?];
            same(&format!("{one:?} and {other:?} {dtype}"), gpu, 0.0, &inputs, |x| x[0].add(&x[1])?.mul(&x[1]));
        }
        let inputs = [data(1, &[4, 9], dtype)?, data(2, &[9], dtype)?];
        same(&format!("where {dtype}"), gpu, 0.0, &inputs, |x| x[0].gt(&x[1])?.where_(&x[0], &x[1]));
        // 16-bit results are rounded after every op, and no product is merged with a sum.
        same(&format!("chain {dtype}"), gpu, 0.0, &[a, b], |x| {
            x[0].mul(&x[1])?.sub(&x[0].mul(&x[1])?.add(&x[1])?)?.mul_scalar(3)?.add(&x[1])
        });
    }
    let edges = Tensor::from([1e30f32, -1e30, f32::NAN, 300.7, -1.5, 9.3e18]);
    same("casts at the edges", gpu, 0.0, &[edges], |x| x[0].to_dtype(DType::I64));
    Ok(())
}

#[test]
fn the_same_elements_are_dropped() -> Result<()> {
    on_gpu!(gpu);
    for dtype in FLOATS {
        same(&format!("dropout {dtype}"), gpu, 0.0, &[data(1, &[7, 33], dtype)?], |x| {
            manual_seed(3);
            x[0].dropout(0.3)
        });
    }
    Ok(())
}

#[test]
fn permutations_and_flips() -> Result<()> {
    on_gpu!(gpu);
    let orders: [(&[usize], &[isize]); 10] = [
        (&[6, 4, 8], &[1, 0, 2]),
        (&[64, 48], &[1, 0]),
        (&[2, 64, 7, 5], &[0, 2, 3, 1]),
        (&[2, 3, 8, 8], &[0, 2, 3, 1]),
        (&[2, 8, 8, 3], &[0, 3, 1, 2]),
        (&[17, 2, 33], &[2, 1, 0]),
        (&[20, 30, 2], &[1, 0, 2]),
        (&[3, 1, 5], &[1, 0, 2]),
        (&[33, 70, 2, 19], &[3, 2, 0, 1]),
        (&[2, 2, 2, 2, 2], &[4, 3, 2, 1, 0]),
    ];
    for dtype in SIZES {
        for (shape, order) in orders {
            let about = format!("{shape:?} as {order:?} {dtype}");
            same(&about, gpu, 0.0, &[data(1, shape, dtype)?], |x| x[0].permute(order));
        }
        for dims in [&[0isize][..], &[1], &[2], &[0, 2], &[0, 1, 2]] {
            same(&format!("flip {dims:?} {dtype}"), gpu, 0.0, &[data(1, &[4, 6, 8], dtype)?], |x| x[0].flip(dims));
        }
    }
    Ok(())
}

#[test]
fn parts_and_places() -> Result<()> {
    on_gpu!(gpu);
    let index = |n: usize, size: usize| (0..n).map(|i| ((i * 7 + i * i) % size) as i64).collect::<Vec<i64>>();
    for dtype in SIZES {
        for (a, b, dim) in [
            (&[2, 3][..], &[2, 4][..], 1),
            (&[2, 8], &[2, 8], 1),
            (&[3, 2, 4], &[5, 2, 4], 0),
            (&[2, 3, 5], &[2, 7, 5], 1),
            (&[2, 0], &[2, 3], 1),
        ] {
            let inputs = [data(1, a, dtype)?, data(2, b, dtype)?];
            let about = format!("cat {a:?} {b:?} {dtype}");
            same(&about, gpu, 0.0, &inputs, |x| Tensor::cat(&[&x[0], &x[1], &x[0]], dim));
        }
        for (shape, dim, start, end, step) in [
            (&[4, 10, 8][..], 1, 2, 9, 1),
            (&[4, 10, 8], 1, 1, 10, 3),
            (&[4, 10], 1, 3, 8, 2),
            (&[9], 0, 0, 9, 4),
            (&[7, 3], 0, 2, 5, 1),
        ] {
            let (about, x) = (format!("slice {shape:?} by {step} {dtype}"), data(1, shape, dtype)?);
            same(&about, gpu, 0.0, std::slice::from_ref(&x), |x| x[0].slice(dim, start, end, step));
            if dtype.is_float() {
                let about = format!("{about}, gradient");
                same(&about, gpu, 0.0, &[x], |x| gradient(&x[0], |v| v.slice(dim, start, end, step)?.square()));
            }
        }
        for shift in [1, -1, 13, 0, -25] {
            let inputs = [data(1, &[4, 6, 3], dtype)?];
            same(&format!("roll {shift} {dtype}"), gpu, 0.0, &inputs, |x| x[0].roll(&[shift, 1], &[1, 2]));
        }
        for (shape, dim, n) in
            [(&[10, 4][..], 0, 25), (&[3, 10, 5], 1, 7), (&[3, 10], 1, 40), (&[50, 40], 0, 100), (&[7, 200], 0, 70)]
        {
            let x = data(1, shape, dtype)?;
            let line = Tensor::from_vec(index(n, shape[dim]), [n])?;
            let mut wide = shape.to_vec();
            wide[dim] = n;
            let each = Tensor::from_vec(index(wide.iter().product(), shape[dim]), wide)?;
            let about = |what: &str| format!("{what} {n} of {shape:?} {dtype}");
            let d = dim as isize;
            same(&about("index_select"), gpu, 0.0, &[x.clone(), line.clone()], |x| x[0].index_select(d, &x[1]));
            same(&about("gather"), gpu, 0.0, &[x.clone(), each.clone()], |x| x[0].gather(d, &x[1]));
            if dtype.is_float() {
                let twice = |y: Tensor| y.mul_scalar(1.1);
                same(&about("index_select, gradient"), gpu, 0.0, &[x.clone(), line], |x| {
                    gradient(&x[0], |v| v.index_select(d, &x[1]).and_then(twice))
                });
                same(&about("gather, gradient"), gpu, 0.0, &[x, each], |x| {
                    gradient(&x[0], |v| v.gather(d, &x[1]).and_then(twice))
                });
            }
        }
        let inputs = [data(1, &[4, 3], dtype)?, Tensor::from([1i64, 5, -3])];
        // Computed places: those that do not exist give NaN.
        same(&format!("places outside {dtype}"), gpu, 0.0, &inputs, |x| x[0].index_select(0, &x[1].sub_scalar(0)?));
    }
    Ok(())
}

#[test]
fn margins() -> Result<()> {
    on_gpu!(gpu);
    for dtype in SIZES {
        for margins in [&[1usize, 2][..], &[2, 1, 1, 2], &[0, 0, 1, 2], &[0, 0, 0, 0, 1, 0], &[1, 1, 0, 0, 2, 1]] {
            for mode in [PadMode::Constant(3.0), PadMode::Reflect, PadMode::Replicate] {
                let (about, x) = (format!("pad {margins:?} {mode:?} {dtype}"), data(1, &[3, 4, 8], dtype)?);
                same(&about, gpu, 0.0, std::slice::from_ref(&x), |x| x[0].pad(margins, mode));
                if dtype.is_float() {
                    let dy = data(2, &x.pad(margins, mode)?.shape()[..], dtype)?;
                    same(&format!("{about}, gradient"), gpu, 0.0, &[x, dy], |x| {
                        gradient(&x[0], |v| v.pad(margins, mode)?.mul(&x[1]))
                    });
                }
            }
        }
    }
    Ok(())
}

#[test]
fn steps_of_optimizers() -> Result<()> {
    on_gpu!(gpu);
    type Make = fn(Vec<Parameter>) -> Box<dyn Optimizer>;
    let optimizers: [(&str, Make); 10] = [
        ("sgd", |p| Box::new(Sgd::new(p, 0.1).weight_decay(0.01))),
        ("momentum", |p| Box::new(Sgd::new(p, 0.1).momentum(0.9).dampening(0.2).maximize(true))),
        ("nesterov", |p| Box::new(Sgd::new(p, 0.1).momentum(0.9).nesterov(true).weight_decay(0.01))),
        ("adam", |p| Box::new(Adam::new(p, 0.01).weight_decay(0.01))),
        ("adamw", |p| Box::new(Adam::adamw(p, 0.01).amsgrad())),
        ("adam of a short memory", |p| Box::new(Adam::new(p, 0.01).betas(0.3, 0.9))),
        ("rmsprop", |p| Box::new(RmsProp::new(p, 0.01))),
        ("rmsprop centered", |p| Box::new(RmsProp::new(p, 0.01).centered().weight_decay(0.01))),
        ("rmsprop with momentum", |p| Box::new(RmsProp::new(p, 0.01).momentum(0.8))),
        ("rmsprop with both", |p| Box::new(RmsProp::new(p, 0.01).centered().momentum(0.8))),
    ];
    let sizes = [1, 150, 6, 5003, 33, 2048, 1024];
    let plain = |k: usize, n: usize, dtype: DType, device: Device| -> Result<Tensor> {
        let values = (0..n).map(|i| ((i * 7919 + k * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect();
        Tensor::from_vec(values, [n])?.to_dtype(dtype)?.to(device)
    };
    for dtype in FLOATS {
        for (name, make) in optimizers {
            // More than the arguments of one launch have room for, once.
            let count = if name == "sgd" || name == "adam" { 130 } else { 7 };
            same(&format!("{name} {dtype}"), gpu, 2.0 * rounding(dtype), &[plain(0, 1, dtype, Device::Cpu)?], |x| {
                let fresh = |i: usize| Parameter::new(&plain(i, sizes[i % 7], dtype, x[0].device())?);
                let parameters: Vec<Parameter> = (0..count).map(fresh).collect::<Result<_>>()?;
                let mut optimizer = make(parameters.clone());
                for step in 0..3 {
                    for (i, p) in parameters.iter().enumerate() {
                        p.set_grad(&plain(step * 31 + i + 5, p.shape().numel(), dtype, x[0].device())?)?;
                    }
                    optimizer.step()?;
                }
                let all: Vec<Tensor> = parameters.iter().map(Parameter::get).collect::<Result<_>>()?;
                Tensor::cat(&all.iter().collect::<Vec<_>>(), 0)
            });
        }
    }
    Ok(())
}
