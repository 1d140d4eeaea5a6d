//! Every plan that the libraries offer, against plain sums in f64. Without a GPU or a library there is nothing to test.

use super::cublaslt::{CublasLt, MatrixProblem, MatrixView};
use super::cudnn::{ConvolutionProblem, Cudnn, Direction};
use super::kernel::{Operands, Plan};
use super::{Address, Limits};
use crate::Result;
use crate::cuda::capture::Graph;
use crate::cuda::driver;
use crate::cuda::gpu::Gpu;
use crate::cuda::memory::Block;
use crate::ops::conv2d::cpu::Geometry;
use crate::tensor::DType;
use cudarc::driver::sys;
use half::{bf16, f16};

const TYPES: [DType; 3] = [DType::F16, DType::BF16, DType::F32];
const EPILOGUES: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];
const LIMITS: Limits = Limits { plans: 12, workspace: 1 << 30 };

/// What rounding explains: of the results for 16 bits, of the sums for f32. TF32 would be wrong by 3e-4.
fn bound(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1e-3,
        DType::BF16 => 6e-3,
        _ => 1e-5,
    }
}

fn gpu() -> Option<&'static Gpu> {
    let gpu = Gpu::get(0).ok();
    if gpu.is_none() {
        println!("skipped: no GPU ({})", driver::ready().err().unwrap_or("the driver lists none"));
    }
    gpu
}

fn encode(values: &[f64], dtype: DType) -> Vec<u8> {
    let each = |f: &dyn Fn(f64) -> Vec<u8>| values.iter().flat_map(|&v| f(v)).collect();
    match dtype {
        DType::F16 => each(&|v| f16::from_f64(v).to_ne_bytes().to_vec()),
        DType::BF16 => each(&|v| bf16::from_f64(v).to_ne_bytes().to_vec()),
        _ => each(&|v| (v as f32).to_ne_bytes().to_vec()),
    }
}

fn decode(bytes: &[u8], dtype: DType) -> Vec<f64> {
    let half = |bytes: &[u8]| [bytes[0], bytes[1]];
    match dtype {
        DType::F16 => bytes.chunks(2).map(|b| f16::from_ne_bytes(half(b)).to_f64()).collect(),
        DType::BF16 => bytes.chunks(2).map(|b| bf16::from_ne_bytes(half(b)).to_f64()).collect(),
        _ => bytes.chunks(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]).into()).collect(),
    }
}

/// Numbers between -1 and 1 that the type holds exactly.
fn random(count: usize, dtype: DType, seed: &mut u64) -> Vec<f64> {
    let mut next = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 40) as f64 / (1_u64 << 23) as f64 - 1.0
    };
    decode(&encode(&(0..count).map(|_| next()).collect::<Vec<_>>(), dtype), dtype)
}

/// The length of the difference over the length of what should have come; NaN is never close.
fn error(got: &[f64], want: &[f64]) -> f64 {
    let difference: f64 = got.iter().zip(want).map(|(a, b)| (a - b).powi(2)).sum();
    (difference / want.iter().map(|b| b * b).sum::<f64>().max(1e-30)).sqrt()
}

/// Values on the GPU.
struct Values(Block, DType);

impl Values {
    fn new(gpu: &Gpu, values: &[f64], dtype: DType) -> Result<Self> {
        let memory = Values(gpu.allocate(values.len() * dtype.size())?, dtype);
        memory.put(values)?;
        Ok(memory)
    }

    fn put(&self, values: &[f64]) -> Result<()> {
        let bytes = encode(values, self.1);
        assert!(bytes.len() <= self.0.bytes());
        // SAFETY: the block has room for the bytes.
        let code = unsafe { sys::cuMemcpyHtoD_v2(self.0.address(), bytes.as_ptr().cast(), bytes.len()) };
        driver::check(code, || "copy".into())
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.0.bytes()];
        // SAFETY: the block has as many bytes.
        let code = unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), self.0.address(), bytes.len()) };
        driver::check(code, || "copy".into())?;
        Ok(bytes)
    }

    fn get(&self) -> Result<Vec<f64>> {
        Ok(decode(&self.bytes()?, self.1))
    }

    fn spoil(&self) -> Result<()> {
        // SAFETY: the block has as many bytes; these are NaNs in every type.
        driver::check(unsafe { sys::cuMemsetD8_v2(self.0.address(), 0xff, self.0.bytes()) }, || "fill".into())
    }
}

/// Executes a plan through a captured graph, as training does, and gives the bits of the result.
fn run(gpu: &Gpu, plan: &dyn Plan, operands: Operands<Address>, result: &Values) -> Result<Vec<u8>> {
    result.spoil()?;
    let workspace = gpu.allocate(plan.workspace())?;
    gpu.synchronize()?;
    let stream = gpu.stream()?;
    // SAFETY: the tests give operands of the problem's sizes, and wait below.
    let graph = Graph::capture(*stream, |_| unsafe { plan.execute(operands, workspace.address(), *stream) })?;
    graph.launch(*stream)?;
    drop(stream);
    gpu.synchronize()?;
    result.bytes()
}

/// The plain sums of a convolution, in the order of `x` (NHWC), `w` (KRSC) or `y` (NHWC).
fn convolution(p: &ConvolutionProblem, [x, w, y, bias]: [&[f64]; 4]) -> Vec<f64> {
    let g = p.geometry;
    let (oh, ow, group_c, group_k) = (g.oh(), g.ow(), g.c / g.groups, g.k / g.groups);
    let mut result = match p.direction {
        Direction::Forward => vec![0.0; y.len()],
        Direction::InputGradient => vec![0.0; x.len()],
        Direction::WeightGradient => vec![0.0; w.len()],
    };
    let under = |out: usize, tap: usize, axis: usize, size: usize| {
        let at = out * g.stride[axis] + tap * g.dilation[axis];
        at.checked_sub(g.padding[axis]).filter(|&at| at < size)
    };
    for (to, at) in (0..y.len()).map(|to| (to, to / g.k)) {
        let (k, n, i, j) = (to % g.k, at / (oh * ow), at / ow % oh, at % ow);
        for (r, s) in (0..g.r).flat_map(|r| (0..g.s).map(move |s| (r, s))) {
            let (Some(a), Some(b)) = (under(i, r, 0, g.h), under(j, s, 1, g.w)) else { continue };
            for c in 0..group_c {
                let from = ((n * g.h + a) * g.w + b) * g.c + k / group_k * group_c + c;
                let tap = ((k * g.r + r) * g.s + s) * group_c + c;
                match p.direction {
                    Direction::Forward => result[to] += x[from] * w[tap],
                    Direction::InputGradient => result[from] += y[to] * w[tap],
                    Direction::WeightGradient => result[tap] += x[from] * y[to],
                }
            }
        }
        if p.direction == Direction::Forward {
            result[to] += if p.bias { bias[k] } else { 0.0 };
            result[to] = if p.relu { result[to].max(0.0) } else { result[to] };
        }
    }
    result
}

fn geometries() -> Vec<Geometry> {
    let plain = Geometry {
        n: 8,
        c: 16,
        h: 13,
        w: 11,
        k: 24,
        r: 3,
        s: 3,
        stride: [1, 1],
        padding: [1, 1],
        dilation: [1, 1],
        groups: 1,
    };
    vec![
        plain,
        Geometry { n: 16, c: 64, h: 14, w: 14, k: 64, ..plain },
        Geometry { c: 3, k: 6, r: 5, s: 5, padding: [0, 0], ..plain },
        Geometry { c: 8, k: 16, s: 5, stride: [2, 1], padding: [1, 2], ..plain },
        Geometry { c: 8, k: 8, padding: [2, 2], dilation: [2, 2], ..plain },
        Geometry { c: 32, k: 32, groups: 4, ..plain },
        Geometry { c: 24, k: 24, groups: 24, ..plain },
        Geometry { c: 64, k: 32, r: 1, s: 1, padding: [0, 0], ..plain },
        Geometry { n: 1, c: 5, h: 6, w: 7, k: 3, r: 2, stride: [1, 2], padding: [0, 1], ..plain },
    ]
}

#[test]
fn every_convolution_plan_is_right_and_gives_the_same_bits_twice() -> Result<()> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let cudnn = match Cudnn::of(gpu) {
        Ok(cudnn) => cudnn,
        Err(e) => {
            println!("skipped: {e}");
            return Ok(());
        }
    };
    let (mut seed, mut wrong, mut count) = (7, Vec::new(), 0);
    let directions = [Direction::Forward, Direction::InputGradient, Direction::WeightGradient];
    for (index, geometry) in geometries().into_iter().enumerate() {
        for (dtype, direction, (bias, relu)) in TYPES
            .iter()
            .flat_map(|t| directions.map(|d| (*t, d)))
            .flat_map(|(t, d)| EPILOGUES.map(|e| (t, d, e)))
            // One shape is enough for epilogues, which cuDNN compiles.
            .filter(|(_, d, e)| *e == (false, false) || (*d == Direction::Forward && index == 0))
        {
            let problem = ConvolutionProblem { direction, dtype, geometry, bias, relu, deterministic: true };
            let g = geometry;
            let sizes = [g.n * g.c * g.h * g.w, g.k * g.r * g.s * (g.c / g.groups), g.n * g.k * g.oh() * g.ow(), g.k];
            let values = sizes.map(|size| random(size, dtype, &mut seed));
            let [x, w, y, b] = &values;
            let want = convolution(&problem, [x, w, y, b]);
            let memory = values.iter().map(|v| Values::new(gpu, v, dtype)).collect::<Result<Vec<_>>>()?;
            let at = |i: usize| memory[i].0.address();
            let operands = Operands { x: at(0), w: at(1), y: at(2), bias: at(3) };
            let result = match direction {
                Direction::InputGradient => &memory[0],
                Direction::WeightGradient => &memory[1],
                Direction::Forward => &memory[2],
            };
            let plans = cudnn.plans(&problem, LIMITS)?;
            count += plans.len();
            if let Some(first) = plans.first() {
                let again = cudnn.plan(&problem, first.name())?.expect("it was offered a moment ago");
                assert_eq!(again.name(), first.name());
            } else if !relu {
                wrong.push(format!("{problem:?}: no plans"));
            }
            for plan in &plans {
                let bits = run(gpu, plan, operands, result)?;
                let error = error(&decode(&bits, dtype), &want);
                if error.is_nan() || error > bound(dtype) {
                    wrong.push(format!("{problem:?} {}: wrong by {error:.1e}", plan.name()));
                }
                if run(gpu, plan, operands, result)? != bits {
                    wrong.push(format!("{problem:?} {}: other bits", plan.name()));
                }
                if relu {
                    memory[0].put(&[&[f64::NAN], &x[1..]].concat())?;
                    run(gpu, plan, operands, result)?;
                    if !result.get()?.iter().any(|v| v.is_nan()) {
                        wrong.push(format!("{problem:?} {}: a NaN is gone", plan.name()));
                    }
                    memory[0].put(x)?;
                }
            }
        }
    }
    println!("{count} plans");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn every_product_plan_is_right_and_gives_the_same_bits_twice() -> Result<()> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let library = match CublasLt::of(gpu) {
        Ok(library) => library,
        Err(e) => {
            println!("skipped: {e}");
            return Ok(());
        }
    };
    let (mut seed, mut wrong, mut count) = (11, Vec::new(), 0);
    let sizes = [[1, 64, 48, 80], [3, 33, 17, 29], [1, 1, 10, 84], [4, 128, 128, 1024], [2, 16, 8, 1]];
    let turned = [[false, false], [false, true], [true, false], [true, true]];
    for (dtype, [batch, m, n, k], turned, (bias, relu), gaps) in TYPES
        .iter()
        .flat_map(|t| sizes.map(|s| (*t, s)))
        .flat_map(|(t, s)| turned.map(|v| (t, s, v)))
        .flat_map(|(t, s, v)| EPILOGUES.map(|e| (t, s, v, e)))
        .flat_map(|(t, s, v, e)| [false, true].map(|gaps| (t, s, v, e, gaps)))
    {
        let mut p = MatrixProblem { bias, relu, ..MatrixProblem::dense(dtype, [batch, m, n, k], turned) };
        let rows = [if turned[0] { k } else { m }, if turned[1] { n } else { k }, m];
        if gaps {
            // Rows with a gap behind them, and one w for all.
            for (view, rows) in [&mut p.x, &mut p.w, &mut p.y].into_iter().zip(rows) {
                view.leading += 8;
                view.step = view.leading * rows + 8;
            }
            p.w.step = 0;
        }
        let views = [p.x, p.w, p.y];
        let length = |i: usize| views[i].step * (batch - 1) + views[i].leading * rows[i];
        let values = [length(0), length(1), length(2), n].map(|size| random(size, dtype, &mut seed));
        let [x, w, _, b] = &values;
        let at = |view: MatrixView, q: usize, row: usize, column: usize| {
            let (row, column) = if view.transposed { (column, row) } else { (row, column) };
            q * view.step + row * view.leading + column
        };
        let places = || (0..batch * m * n).map(|i| (i / (m * n), i / n % m, i % n));
        let product = |(q, i, j): (usize, usize, usize)| {
            let sum: f64 = (0..k).map(|l| x[at(p.x, q, i, l)] * w[at(p.w, q, l, j)]).sum();
            let sum = if bias { sum + b[j] } else { sum };
            if relu { sum.max(0.0) } else { sum }
        };
        let want: Vec<f64> = places().map(product).collect();
        let memory = values.iter().map(|v| Values::new(gpu, v, dtype)).collect::<Result<Vec<_>>>()?;
        let address = |i: usize| memory[i].0.address();
        let operands = Operands { x: address(0), w: address(1), y: address(2), bias: address(3) };
        let limits = Limits { plans: 8, workspace: 32 << 20 };
        let plans = library.plans(&p, limits)?;
        count += plans.len();
        match plans.last() {
            Some(last) => assert!(library.plan(&p, limits, last.name())?.is_some()),
            None => wrong.push(format!("{p:?}: no plans")),
        }
        for plan in &plans {
            let bits = run(gpu, plan, operands, &memory[2])?;
            let all = decode(&bits, dtype);
            let got: Vec<f64> = places().map(|(q, i, j)| all[at(p.y, q, i, j)]).collect();
            let error = error(&got, &want);
            if error.is_nan() || error > bound(dtype) {
                wrong.push(format!("{p:?} {}: wrong by {error:.1e}", plan.name()));
            }
            if run(gpu, plan, operands, &memory[2])? != bits {
                wrong.push(format!("{p:?} {}: other bits", plan.name()));
            }
        }
    }
    println!("{count} plans");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
