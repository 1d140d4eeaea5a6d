//! How fast single convolutions and whole networks run on CPU cores; `bench/odd_torch.py` compares them with PyTorch.
//!
//!     echo net mobilenet_v2 224 8 | cargo run --release -p neurona --example bench_odd -- [--threads N] [--seconds S]
//!
//! Every line of the input is one piece of work, and so many numbers that say how large it is:
//! `conv IMAGES CHANNELS HEIGHT WIDTH FILTERS ROWS COLUMNS STRIDE PADDING_ROWS PADDING_COLUMNS DILATION GROUPS`,
//! `net NAME SIZE IMAGES` (a network that `models::Spec` knows),
//! `stack SIZE IMAGES CHANNELS…` (3×3 convolutions, each with relu and a pool of 2×2, and a linear layer),
//! `norms SIZE IMAGES CHANNELS…` (the same with batch norm behind each convolution),
//! `mlp IMAGES WIDTHS…`. Prints the seconds of a convolution's forward pass and of its three passes, or of a network's
//! inference and of its training step.

use neurona::conv2d_kernels::{Geometry, forward, input_grad, weight_grad};
use neurona::cpu::gemm::Activation;
use neurona::cpu::kernel::{Buf, Io, Kernel};
use neurona::cpu::team::Team;
use neurona::models::{self, Spec};
use neurona::nn::{BatchNorm2d, Conv2d, Flatten, Forward, Linear, MaxPool2d, ReLU, Sequential};
use neurona::optim::{Optimizer, Sgd};
use neurona::{Tensor, no_grad};
use std::error::Error;
use std::io::Write;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1));
    let threads = option("--threads").map_or(Ok(2), |n| n.parse())?;
    let seconds = option("--seconds").map_or(Ok(0.3), |s| s.parse())?;
    neurona::set_num_threads(threads);
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers = |from: usize| words[from..].iter().map(|w| w.parse()).collect::<Result<Vec<usize>, _>>();
        let [forward, all] = match words.first() {
            Some(&"conv") => convolution(&numbers(1)?, threads, seconds)?,
            Some(&"net") => {
                let [size, images] = numbers(2)?[..] else {
                    return Err(format!("{line:?}: no size and images").into());
                };
                network(&*Spec::new(words[1], 10)?.images([3, size, size]).build()?, &[images, 3, size, size], seconds)?
            }
            Some(&kind @ ("stack" | "norms")) => {
                let [size, images, ref channels @ ..] = numbers(1)?[..] else { return Err("no size".into()) };
                network(&stack(size, channels, kind == "norms")?, &[images, channels[0], size, size], seconds)?
            }
            Some(&"mlp") => {
                let [images, ref widths @ ..] = numbers(1)?[..] else { return Err("no images".into()) };
                network(&models::mlp(widths)?, &[images, widths[0]], seconds)?
            }
            _ => return Err(format!("{line:?} is no work").into()),
        };
        println!("{forward:.9} {all:.9}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// 3×3 convolutions of these channels, each with batch norm if asked, relu and a pool, and a linear layer.
fn stack(mut size: usize, channels: &[usize], norms: bool) -> neurona::Result<Sequential> {
    let mut net = Sequential::new();
    for pair in channels.windows(2) {
        net = net.add(Conv2d::new(pair[0], pair[1], 3)?.padding(1));
        if norms {
            net = net.add(BatchNorm2d::new(pair[1])?);
        }
        net = net.add(ReLU::new()).add(MaxPool2d::new(2));
        size /= 2;
    }
    let last = channels[channels.len() - 1];
    Ok(net.add(Flatten::default()).add(Linear::new(last * size * size, 10)?))
}

/// Seconds of inference and of a training step, through the calls that a program makes.
fn network(net: &dyn Forward, shape: &[usize], seconds: f64) -> neurona::Result<[f64; 2]> {
    neurona::manual_seed(0);
    let x = Tensor::randn(shape)?;
    let y = Tensor::from_vec((0..shape[0] as i64).map(|i| i % 10).collect(), [shape[0]])?;
    let mut optimizer = Sgd::new(net.parameters(), 1e-3).momentum(0.9);
    let step = best(seconds, || {
        optimizer.zero_grad();
        let loss = net.forward(&x)?.cross_entropy(&y)?;
        loss.backward()?;
        optimizer.step()?;
        loss.item::<f32>().map(drop)
    })?;
    net.eval();
    Ok([best(seconds, || no_grad(|| net.forward(&x))?.to_vec::<f32>().map(drop))?, step])
}

/// Seconds of the forward pass and of all three, on images with channels last, as plans have them.
fn convolution(numbers: &[usize], threads: usize, seconds: f64) -> Outcome<[f64; 2]> {
    let &[n, c, h, w, k, r, s, stride, top, left, dilation, groups] = numbers else {
        return Err("a convolution has twelve numbers".into());
    };
    let (stride, padding, dilation) = ([stride; 2], [top, left], [dilation; 2]);
    let g = Geometry { n, c, h, w, k, r, s, stride, padding, dilation, groups };
    let (image, output, filters) = (n * h * w * c, n * g.oh() * g.ow() * k, k * c / groups * r * s);
    let mut memory = [image, filters, k, output, output, image, filters, k].map(values);
    let mut team = Team::new(threads);
    let [x, weight, bias, y, dy, dx, dw, db] = memory.each_mut().map(buffer);
    let mut time =
        |kernel: &dyn Kernel, inputs: &[Buf], outputs: &[Buf]| pass(&mut team, kernel, inputs, outputs, seconds);
    let by_output = time(&*forward(g, true, false, Activation::None), &[x, weight, bias], &[y])?;
    let by_input = time(&*input_grad(g), &[dy, weight], &[dx])?;
    let by_weight = time(&*weight_grad(g, true), &[x, dy], &[dw, db])?;
    Ok([by_output, by_output + by_input + by_weight])
}

/// A line of the cache: where plans lay their buffers.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "kernels read it through pointers")] [f32; 16]);

/// So many numbers, and what fills the last line.
fn values(count: usize) -> Vec<Line> {
    let value = |i: usize| (i * 7919 % 1000) as f32 / 500.0 - 1.0;
    (0..count.div_ceil(16)).map(|line| Line(std::array::from_fn(|i| value(line * 16 + i)))).collect()
}

fn buffer(memory: &mut Vec<Line>) -> Buf {
    Buf::new(memory.as_mut_ptr().cast(), size_of_val(&memory[..]))
}

fn pass(team: &mut Team, kernel: &dyn Kernel, inputs: &[Buf], outputs: &[Buf], seconds: f64) -> neurona::Result<f64> {
    let mut workspace = values(kernel.workspace() / size_of::<f32>());
    let mut scratch: Vec<_> = (0..team.threads()).map(|_| values(kernel.scratch() / size_of::<f32>())).collect();
    let workspace = buffer(&mut workspace);
    let scratch: Vec<Buf> = scratch.iter_mut().map(buffer).collect();
    let phases = kernel.phases();
    best(seconds, || {
        team.run(&|walk| {
            let io = Io { inputs, outputs, workspace, scratch: scratch[walk.thread()] };
            for (phase, &tasks) in phases.iter().enumerate() {
                walk.phase(tasks, |task| kernel.run(phase, task, &io));
            }
        });
        Ok(())
    })
}

/// Seconds of one call: the best mean of five windows, after three calls and a window to warm up.
fn best(seconds: f64, mut call: impl FnMut() -> neurona::Result<()>) -> neurona::Result<f64> {
    let mut window = |least: u32| -> neurona::Result<f64> {
        let (start, mut calls) = (Instant::now(), 0);
        while calls < least || start.elapsed().as_secs_f64() < seconds / 5.0 {
            call()?;
            calls += 1;
        }
        Ok(start.elapsed().as_secs_f64() / f64::from(calls))
    };
    window(3)?;
    (0..5).map(|_| window(1)).try_fold(f64::INFINITY, |best, time| Ok(best.min(time?)))
}
