//! Fusion must not change what is computed: values, gradients, statistics and updated parameters of random small graphs,
//! with fusion and without.

mod common;

use common::{Choices, agree, stream};
use neurona::nn::{Buffer, Parameter};
use neurona::optim::{Optimizer, Sgd};
use neurona::{Conv2dOptions, DType, PoolOptions, Result, RunningStats, Tensor, manual_seed, set_fusion, stats};
use std::sync::Mutex;

/// Everything that a run of a graph lets one see: a name, the shape, the numbers.
type Seen = Vec<(String, Vec<usize>, Vec<f64>)>;

/// A random graph while it is built. The structure depends on the seed alone, the numbers also on `data`.
struct Graph {
    choices: Choices,
    data: u64,
    dtype: DType,
    /// Leaves are cells (and an optimizer moves them) or variables.
    cells: bool,
    parameters: Vec<Parameter>,
    variables: Vec<Tensor>,
    buffers: Vec<Buffer>,
    /// New running statistics that nobody stores.
    loose: Vec<Tensor>,
    /// Values that later ops may use, again and again.
    values: Vec<Tensor>,
    /// Intermediate values that the user keeps.
    held: Vec<Tensor>,
    text: Vec<String>,
}

impl Graph {
    fn new(seed: u64, data: u64, dtype: DType) -> Self {
        let mut choices = Choices::new(seed);
        let cells = choices.one_in(2);
        Graph {
            choices,
            data: data * 1_000_000 + seed * 1000,
            dtype,
            cells,
            parameters: vec![],
            variables: vec![],
            buffers: vec![],
            loose: vec![],
            values: vec![],
            held: vec![],
            text: vec![],
        }
    }

    /// Numbers that no other tensor of the graph has.
    fn fresh(&mut self, shape: &[usize], low: f64, high: f64) -> Result<Tensor> {
        self.data += 1;
        stream(self.data, shape, self.dtype, low, high)
    }

    fn leaf(&mut self, shape: &[usize]) -> Result<Tensor> {
        let value = self.fresh(shape, -1.0, 1.0)?;
        if !self.cells {
            self.variables.push(value.requires_grad()?);
            return Ok(self.variables[self.variables.len() - 1].clone());
        }
        let parameter = Parameter::new(&value)?;
        let leaf = parameter.get();
        self.parameters.push(parameter);
        leaf
    }

    fn pick(&mut self) -> Tensor {
        // Recent values are likelier, so that chains grow.
        let n = self.values.len();
        let back = self.choices.below(n).min(self.choices.below(n));
        self.values[n - 1 - back].clone()
    }

    /// Another value that broadcasts with `x`, or a new leaf that does.
    fn partner(&mut self, x: &Tensor) -> Result<Tensor> {
        let fits: Vec<Tensor> = self
            .values
            .iter()
            .filter(|v| x.shape().broadcast(v.shape()).is_some_and(|s| s.numel() <= 4 * x.numel().max(8)))
            .cloned()
            .collect();
        if !self.choices.one_in(3) {
            let i = self.choices.below(fits.len());
            return Ok(fits[i].clone());
        }
        let mut shape = x.shape().to_vec();
        for size in &mut shape {
            if self.choices.one_in(2) {
                *size = 1;
            }
        }
        let cut = if self.choices.one_in(3) { self.choices.below(shape.len() + 1) } else { 0 };
        self.leaf(&shape[cut..])
    }

    /// Adds one op (with what belongs to it).
    fn grow(&mut self) -> Result<()> {
        let x = self.pick();
        let rank = x.rank();
        let image = rank == 4;
        let (name, y) = match self.choices.below(20) {
            0..=3 => self.binary(&x)?,
            4..=6 => self.unary(&x)?,
            7 => ("relu", x.relu()?),
            // Residual: a value meets what was computed from it.
            8 => {
                let (_, inner) = self.unary(&x)?;
                ("residual", if self.choices.one_in(2) { (&inner + &x)?.relu()? } else { (&x + &inner)? })
            }
            9 | 10 if rank >= 1 => self.linear(&x)?,
            9..=12 if image => self.conv(&x)?,
            11 if rank == 2 => {
                let weight = self.leaf(&[x.shape()[1], 3])?;
                ("matmul", x.matmul(&weight)?)
            }
            13 | 14 if rank >= 2 && x.numel() > x.shape()[1] => self.norm(&x)?,
            15 if image && x.shape()[2] >= 2 && x.shape()[3] >= 2 => {
                let options = if self.choices.one_in(2) {
                    PoolOptions::square(2)
                } else {
                    PoolOptions { kernel: [2, 2], stride: [1, 2], padding: [1, 0], ceil_mode: self.choices.one_in(2) }
                };
                if self.choices.one_in(2) {
                    ("max_pool2d", x.max_pool2d(options)?)
                } else {
                    ("avg_pool2d", x.avg_pool2d(options)?)
                }
            }
            16 if rank >= 2 => {
                let dim = self.choices.below(rank) as isize;
                let keep = self.choices.one_in(2);
                match self.choices.below(4) {
                    0 => ("sum", x.sum_dims(&[dim], keep)?.mul_scalar(0.5)?),
                    1 => ("mean", x.mean_dims(&[dim], keep)?),
                    2 => ("amax", x.amax(&[dim], keep)?),
                    _ => ("max_dim", x.max_dim(dim, keep)?.0),
                }
            }
            17 if rank >= 2 => match self.choices.below(4) {
                0 => ("flatten", x.flatten(1, -1)?),
                1 => ("transpose", x.transpose(0, -1)?),
                2 if image => ("permute", x.permute(&[0, 2, 3, 1])?),
                _ => ("unsqueeze", x.sum_dims(&[0], false)?.unsqueeze(0)?),
            },
            18 if rank >= 1 => {
                if self.choices.one_in(2) {
                    ("softmax", x.softmax(-1)?)
                } else {
                    ("log_softmax", x.log_softmax(0)?)
                }
            }
            19 => ("dropout", x.dropout(0.25)?),
            _ => self.unary(&x)?,
        };
        self.text.push(format!("{name} {} -> {}", x.shape(), y.shape()));
        if self.choices.one_in(4) {
            self.text.push("held".into());
            self.held.push(y.clone());
        }
        self.values.push(y);
        Ok(())
    }

    fn binary(&mut self, x: &Tensor) -> Result<(&'static str, Tensor)> {
        let other = self.partner(x)?;
        let (a, b) = if self.choices.one_in(2) { (x, &other) } else { (&other, x) };
        Ok(match self.choices.below(8) {
            0 | 1 => ("add", (a + b)?),
            2 => ("sub", (a - b)?),
            3 | 4 => ("mul", (a * b)?),
            5 => ("div", (a / &(b * b)?.add_scalar(0.5)?)?),
            6 => ("maximum", a.maximum(b)?),
            _ => ("where", a.gt(b)?.where_(&a.tanh()?, b)?),
        })
    }

    fn unary(&mut self, x: &Tensor) -> Result<(&'static str, Tensor)> {
        Ok(match self.choices.below(9) {
            0 => ("sigmoid", x.sigmoid()?),
            1 => ("tanh", x.tanh()?),
            2 => ("exp", x.tanh()?.exp()?),
            3 => ("neg", x.neg()?),
            4 => ("abs", x.abs()?),
            5 => ("scaled", (x * 0.75)?.sub_scalar(0.125)?),
            6 => ("sqrt", x.pow(2)?.add_scalar(0.5)?.sqrt()?),
            7 => ("clamp", x.clamp(-0.5, 0.75)?),
            _ => ("number - x", (1.0 - x)?),
        })
    }

    /// Mostly with relu or relu6, which fusion would like to join to the op before: unless somebody else wants the value before
    /// it, or a view stands between.
    fn maybe_relu(&mut self, x: Tensor) -> Result<Tensor> {
        if self.choices.one_in(4) {
            self.values.push(x.clone());
        }
        if self.choices.one_in(6) {
            self.held.push(x.clone());
        }
        Ok(match self.choices.below(8) {
            0 | 1 => x,
            2 => x.flatten(0, -1)?.relu()?.reshape(x.shape())?,
            3 if x.rank() > 1 => x.flatten(1, -1)?.relu()?,
            4 => x.relu()?.relu()?,
            5 => x.relu6()?,
            _ => x.relu()?,
        })
    }

    fn linear(&mut self, x: &Tensor) -> Result<(&'static str, Tensor)> {
        let out = [1, 3, 8, 17][self.choices.below(4)];
        let weight = self.leaf(&[out, x.shape()[x.rank() - 1]])?;
        let bias = if self.choices.one_in(3) { None } else { Some(self.leaf(&[out])?) };
        let y = x.linear(&weight, bias.as_ref())?;
        Ok(("linear", self.maybe_relu(y)?))
    }

    fn conv(&mut self, x: &Tensor) -> Result<(&'static str, Tensor)> {
        let &[_, c, h, w] = &x.shape()[..] else { return self.unary(x) };
        let kernel = if h.min(w) >= 2 && self.choices.one_in(2) { 2 } else { [1, 3][self.choices.below(2)] };
        let out = [1, 2, 6][self.choices.below(3)];
        let groups = if self.choices.one_in(4) { c } else { 1 };
        let options = Conv2dOptions {
            stride: [1 + self.choices.below(2), 1 + self.choices.below(2)],
            padding: if kernel == 3 { [1, 1] } else { [0, self.choices.below(2)] },
            groups,
            ..Default::default()
        };
        let weight = self.leaf(&[out * groups, c / groups, kernel, kernel])?;
        let bias = if self.choices.one_in(2) { Some(self.leaf(&[out * groups])?) } else { None };
        let y = x.conv2d(&weight, bias.as_ref(), options)?;
        Ok(("conv2d", self.maybe_relu(y)?))
    }

    fn norm(&mut self, x: &Tensor) -> Result<(&'static str, Tensor)> {
        let c = x.shape()[1];
        let affine = if self.choices.one_in(4) { None } else { Some((self.leaf(&[c])?, self.leaf(&[c])?)) };
        let affine = affine.as_ref().map(|(w, b)| (w, b));
        let (mean, var) = (self.fresh(&[c], -1.0, 1.0)?, self.fresh(&[c], 0.5, 2.0)?);
        let (mean, var, batches) = (Buffer::new(&mean)?, Buffer::new(&var)?, Buffer::new(&Tensor::scalar(2i64))?);
        let (m, v, n) = (mean.get()?, var.get()?, batches.get()?);
        let y = match self.choices.below(4) {
            0 => x.batch_norm_eval(&m, &v, affine, 1e-3)?,
            1 => x.batch_norm_train(affine, None, Some(0.1), 1e-3)?.output,
            _ => {
                let momentum = if self.choices.one_in(3) { None } else { Some(0.3) };
                let running = RunningStats { mean: &m, var: &v, batches: &n };
                let done = x.batch_norm_train(affine, Some(running), momentum, 1e-3)?;
                let results = done.stats.into_iter().flatten();
                if self.choices.one_in(3) {
                    self.loose.extend(results);
                } else {
                    for (buffer, value) in [&mean, &var, &batches].into_iter().zip(results) {
                        buffer.cell().stage(value)?;
                        self.buffers.push(buffer.clone());
                    }
                }
                done.output
            }
        };
        Ok(("batch_norm", self.maybe_relu(y)?))
    }

    /// The loss is made of everything that nothing else uses, and of some of the rest.
    fn loss(&mut self) -> Result<Tensor> {
        let mut total: Option<Tensor> = None;
        for i in 0..self.values.len() {
            let last = i + 1 == self.values.len();
            if !last && !self.choices.one_in(3) {
                continue;
            }
            let value = self.values[i].clone();
            let weights = self.fresh(value.shape(), -1.0, 1.0)?;
            let part = value.mul(&weights)?.mean()?;
            total = Some(match total {
                Some(sum) => (&sum + &part)?,
                None => part,
            });
        }
        Ok(total.expect("there are values"))
    }
}

/// Builds the graph of a seed, runs it, and reads everything.
fn run(seed: u64, data: u64, dtype: DType) -> Result<(Seen, String)> {
    // Dropout's keys come from the process's generator.
    manual_seed(seed + data);
    let mut graph = Graph::new(seed, data, dtype);
    let shapes: [&[usize]; 8] =
        [&[2, 3, 4, 5], &[1, 2, 3, 3], &[3, 1, 5, 2], &[2, 5, 1, 1], &[4, 7], &[1, 3], &[2, 3, 4], &[3, 8, 6, 6]];
    let shape = shapes[graph.choices.below(8)];
    for _ in 0..1 + graph.choices.below(2) {
        let leaf = graph.leaf(shape)?;
        graph.values.push(leaf);
    }
    let data_leaf = graph.fresh(shape, -1.0, 1.0)?;
    graph.values.push(data_leaf);
    for _ in 0..3 + graph.choices.below(13) {
        graph.grow()?;
    }
    let loss = graph.loss()?;
    // A leaf that nothing uses would have no gradient in either run; values that only the user holds must live.
    graph.values.clear();
    let read_first = graph.choices.one_in(4);
    let mut seen: Seen = Vec::new();
    let mut see = |name: String, t: &Tensor| -> Result<()> {
        seen.push((name, t.shape().to_vec(), t.to_vec::<f64>()?));
        Ok(())
    };
    if read_first {
        for (i, held) in graph.held.iter().enumerate() {
            see(format!("held {i}, read first"), held)?;
        }
    }
    if loss.backward().is_err() {
        // Nothing that the loss is made of depends on a leaf.
        see("loss without leaves".into(), &loss)?;
        return Ok((seen, graph.text.join("; ")));
    }
    if graph.cells {
        let mut optimizer = Sgd::new(graph.parameters.clone(), 0.1).momentum(0.9);
        optimizer.step()?;
    }
    see("loss".into(), &loss)?;
    for (i, held) in graph.held.iter().enumerate() {
        see(format!("held {i}"), held)?;
    }
    for (i, x) in graph.variables.iter().enumerate() {
        if let Some(gradient) = x.grad() {
            see(format!("gradient of variable {i}"), &gradient)?;
        }
    }
    for (i, p) in graph.parameters.iter().enumerate() {
        if let Some(gradient) = p.grad() {
            see(format!("gradient of parameter {i}"), &gradient)?;
        }
        see(format!("parameter {i} after the step"), &p.get()?)?;
    }
    for (i, b) in graph.buffers.iter().enumerate() {
        see(format!("statistic {i}"), &b.get()?)?;
    }
    for (i, t) in graph.loose.iter().enumerate() {
        see(format!("loose statistic {i}"), t)?;
    }
    Ok((seen, graph.text.join("; ")))
}

fn compare(dtype: DType, seed: u64, text: &str, fused: &Seen, plain: &Seen, tol: f64) {
    assert_eq!(fused.len(), plain.len(), "seed {seed}: {text}");
    for ((name, shape, got), (other, other_shape, want)) in fused.iter().zip(plain) {
        assert_eq!((name, shape), (other, other_shape), "seed {seed}: {text}");
        if let Err(problem) = agree(got, want, tol) {
            panic!("{dtype} seed {seed}, {name} {shape:?}: with fusion {problem}\n{text}");
        }
    }
}

/// One test, because the switch is the process's.
/// Fusion is the process's setting: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The gradient of a relu that only a max-pool reads, where windows overlap and many elements are equal.
#[test]
fn masks_are_the_same_before_and_behind_a_pool() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let pools = [PoolOptions::square(2), PoolOptions { stride: [2, 1], padding: [1, 1], ..PoolOptions::square(3) }];
    for (seed, options) in pools.into_iter().enumerate() {
        let gradient = |fuse: bool| -> Result<Vec<f64>> {
            set_fusion(fuse);
            let x = stream(seed as u64, [2, 3, 7, 6], DType::F32, -2.0, 2.0)?.round()?.requires_grad()?;
            let y = x.mul_scalar(1.5)?.relu()?.max_pool2d(options)?;
            y.mul(&stream(9, y.shape(), DType::F32, 0.5, 1.0)?)?.sum()?.backward()?;
            x.grad().expect("a gradient").to_vec::<f64>()
        };
        let (plain, fused) = (gradient(false), gradient(true));
        set_fusion(true);
        let (plain, fused) = (plain?, fused?);
        assert_eq!(plain, fused);
        assert!(plain.iter().any(|g| *g != 0.0) && plain.contains(&0.0));
    }
    Ok(())
}

/// Weights so large, and images so small, that a step follows each gradient at once: parameters, gradients and whatever
/// else one may see are the same to the bit, also when somebody still holds the weights as they were.
#[test]
fn large_weights_step_along_their_gradients_as_in_one_sweep() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let ways = [(0.0, false, false), (0.9, false, false), (0.9, true, true)];
    for (momentum, nesterov, held) in ways {
        let run = |fuse: bool| -> Result<Vec<Vec<f32>>> {
            set_fusion(fuse);
            let weight = |seed, shape: [usize; 4]| Parameter::new(&stream(seed, shape, DType::F32, -0.05, 0.05)?);
            let weights = [weight(1, [160, 96, 3, 3])?, weight(2, [130, 160, 3, 3])?];
            let bias = Parameter::new(&stream(3, [130], DType::F32, -1.0, 1.0)?)?;
            let all = vec![weights[0].clone(), weights[1].clone(), bias.clone()];
            let mut sgd = Sgd::new(all.clone(), 0.1).momentum(momentum).nesterov(nesterov).weight_decay(1e-3);
            let options = Conv2dOptions { padding: [1, 1], ..Default::default() };
            let mut seen = vec![];
            for step in 0..3 {
                sgd.zero_grad();
                let x = stream(10 + step, [1, 96, 5, 4], DType::F32, -1.0, 1.0)?;
                let before = weights[1].get()?;
                let y = x.conv2d(&weights[0].get()?, None, options)?.relu()?;
                let y = y.conv2d(&weights[1].get()?, Some(&bias.get()?), options)?;
                let loss = y.mul(&y)?.mean()?;
                loss.backward()?;
                sgd.step()?;
                for parameter in &all {
                    seen.push(parameter.get()?.to_vec()?);
                    seen.push(parameter.grad().expect("a gradient").to_vec()?);
                }
                if held {
                    seen.push(before.to_vec()?);
                }
            }
            Ok(seen)
        };
        let (plain, fused) = (run(false), run(true));
        set_fusion(true);
        assert!(plain? == fused?, "momentum {momentum}, held {held}");
    }
    Ok(())
}

/// The same for linear layers that few rows meet, which make all their gradients and take their step in one sweep.
#[test]
fn linear_layers_step_along_their_gradients_as_in_one_sweep() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    for (rows, momentum, nesterov, held) in [(1, 0.0, false, false), (4, 0.9, false, true), (8, 0.9, true, false)] {
        let run = |fuse: bool, apart: bool| -> Result<Vec<Vec<f32>>> {
            set_fusion(fuse);
            let parameter = |seed, shape: &[usize]| Parameter::new(&stream(seed, shape, DType::F32, -0.1, 0.1)?);
            let sizes = [400, 120, 84, 10];
            let mut all = vec![];
            for (i, pair) in sizes.windows(2).enumerate() {
                all.push(parameter(i as u64, &[pair[1], pair[0]])?);
                all.push(parameter(10 + i as u64, &[pair[1]])?);
            }
            let mut sgd = Sgd::new(all.clone(), 0.1).momentum(momentum).nesterov(nesterov).weight_decay(1e-3);
            let mut seen = vec![];
            for step in 0..3 {
                sgd.zero_grad();
                let before = all[2].get()?;
                let mut y = stream(20 + step, [rows, 400], DType::F32, -1.0, 1.0)?;
                for layer in all.chunks(2) {
                    y = y.linear(&layer[0].get()?, Some(&layer[1].get()?))?.relu()?;
                }
                y.mul(&y)?.mean()?.backward()?;
                if apart {
                    // Gradients that were read are there before the step.
                    seen.push(all[0].grad().expect("a gradient").to_vec()?);
                }
                sgd.step()?;
                seen.truncate(seen.len() - usize::from(apart));
                for parameter in &all {
                    seen.push(parameter.get()?.to_vec()?);
                    seen.push(parameter.grad().expect("a gradient").to_vec()?);
                }
                if held {
                    seen.push(before.to_vec()?);
                }
            }
            Ok(seen)
        };
        let (plain, fused, apart) = (run(false, false), run(true, false), run(true, true));
        set_fusion(true);
        let plain = plain?;
        assert!(plain == fused?, "{rows} rows, momentum {momentum}, held {held}");
        assert!(plain == apart?, "{rows} rows, momentum {momentum}, held {held}, in two plans");
    }
    Ok(())
}

#[test]
fn random_graphs_compute_the_same_with_fusion_and_without() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let (mut numbers, mut gradients, mut statistics) = (0, 0, 0);
    for (dtype, tol, graphs) in [(DType::F32, 1e-5, 800), (DType::F64, 1e-12, 400)] {
        for seed in 0..graphs {
            set_fusion(true);
            run(seed, 1, dtype).unwrap_or_else(|e| panic!("{dtype} seed {seed}: {e}"));
            let before = stats();
            let (fused, text) = run(seed, 2, dtype)?;
            assert_eq!(stats().compiled, before.compiled, "seed {seed}: other numbers made another plan: {text}");
            set_fusion(false);
            let (plain, _) = run(seed, 2, dtype)?;
            assert!(stats().compiled > before.compiled || fused.is_empty(), "seed {seed}: the switch did nothing");
            compare(dtype, seed, &text, &fused, &plain, tol);
            numbers += plain.iter().map(|(_, _, v)| v.len()).sum::<usize>();
            gradients += plain.iter().filter(|(name, ..)| name.contains("gradient")).count();
            statistics += plain.iter().filter(|(name, ..)| name.contains("statistic")).count();
        }
    }
    set_fusion(true);
    println!("1200 graphs: {numbers} numbers, {gradients} gradients and {statistics} statistics compared");
    // Guards against a generator that has stopped making what it should.
    assert!(gradients > 3000 && statistics > 500, "{gradients} gradients, {statistics} statistics");
    Ok(())
}
