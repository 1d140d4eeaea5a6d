//! How long a kernel takes on a GPU, measured as plans run it: launches replayed from a graph, on numbers like real ones.
//! Launches one by one would add the time between them, which weighs differently on candidates of one launch and of
//! two.

use super::capture::Graph;
use super::driver;
use super::gpu::{Gpu, Stream};
use super::kernel::{Io, Kernel};
use super::memory::Block;
use super::transfer::Event;
use crate::Result;
use crate::graph::ir::Operand;
use crate::tensor::{DType, Meta};
use cudarc::driver::sys;
use half::{bf16, f16};
use std::time::Duration;

/// Launches in a graph at most, and how long it should take: long enough for the clocks to rise.
const LAUNCHES: usize = 20;
const LENGTH: Duration = Duration::from_millis(2);

/// Memory that kernels for one problem are timed on.
pub(super) struct Bench<'a> {
    inputs: Vec<Block>,
    outputs: Vec<Block>,
    workspace: Block,
    gpu: &'a Gpu,
}

impl<'a> Bench<'a> {
    pub(super) fn new(inputs: &[Operand], outputs: &[Operand], workspace: usize, gpu: &'a Gpu) -> Result<Self> {
        let filled = |list: &[Operand]| list.iter().map(|o| numbers(&o.meta, gpu)).collect::<Result<Vec<Block>>>();
        Ok(Self { inputs: filled(inputs)?, outputs: filled(outputs)?, workspace: gpu.allocate(workspace)?, gpu })
    }

    /// Seconds of one launch of each kernel, the middle of so many rounds. The kernels take turns: a GPU that gets hot
    /// lowers its clocks, for all of them then.
    pub(super) fn race(&self, kernels: &[&dyn Kernel], rounds: usize) -> Result<Vec<Result<f64>>> {
        let addresses = |blocks: &[Block]| blocks.iter().map(Block::address).collect::<Vec<u64>>();
        let (inputs, outputs) = (addresses(&self.inputs), addresses(&self.outputs));
        let io = Io { inputs: &inputs, outputs: &outputs, workspace: self.workspace.address() };
        let stream = self.gpu.stream()?;
        let clock = Clock { stream: *stream, start: Event::timed()?, end: Event::timed()? };
        let mut racers: Vec<Result<Racer>> = kernels.iter().map(|kernel| Racer::new(*kernel, &io, &clock)).collect();
        for _ in 0..rounds {
            for racer in &mut racers {
                if let Ok(Racer { graph, launches, times }) = racer {
                    match clock.seconds(|| graph.launch(*stream)) {
                        Ok(seconds) => times.push(seconds / *launches as f64),
                        Err(e) => *racer = Err(e),
                    }
                }
            }
        }
        let middle = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        Ok(racers.into_iter().map(|racer| racer.map(|racer| middle(racer.times))).collect())
    }
}

/// A kernel captured some times in a row.
struct Racer {
    graph: Graph,
    launches: usize,
    times: Vec<f64>,
}

impl Racer {
    fn new(kernel: &dyn Kernel, io: &Io<'_>, clock: &Clock) -> Result<Self> {
        let stream = clock.stream;
        // Libraries load their kernels at the first launch, which cannot be captured.
        kernel.launch(io, stream)?;
        let once = clock.seconds(|| kernel.launch(io, stream))?;
        let launches = (LENGTH.as_secs_f64() / once.max(1e-6)).clamp(1.0, LAUNCHES as f64) as usize;
        let graph = Graph::capture(stream, |_| (0..launches).try_for_each(|_| kernel.launch(io, stream)))?;
        graph.launch(stream)?;
        Ok(Self { graph, launches, times: Vec::new() })
    }
}

struct Clock {
    stream: Stream,
    start: Event,
    end: Event,
}

impl Clock {
    /// How long the GPU takes for what `work` adds to the stream.
    fn seconds(&self, work: impl FnOnce() -> Result<()>) -> Result<f64> {
        self.start.record(self.stream)?;
        work()?;
        self.end.record(self.stream)?;
        self.end.wait()?;
        self.end.since(&self.start)
    }
}

/// Elements that are made on the host; the rest of a large tensor repeats them.
const PATTERN: usize = 1 << 18;

/// Device memory with numbers between −½ and ½: a GPU computes faster with zeros than with real data, since fewer bits
/// change.
fn numbers(meta: &Meta, gpu: &Gpu) -> Result<Block> {
    let bytes = meta.bytes();
    let block = gpu.allocate(bytes)?;
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let count = meta.shape.numel().min(PATTERN);
    let pattern: Vec<u8> = match meta.dtype {
        DType::F32 => (0..count).flat_map(|_| next().to_ne_bytes()).collect(),
        DType::F64 => (0..count).flat_map(|_| f64::from(next()).to_ne_bytes()).collect(),
        DType::F16 => (0..count).flat_map(|_| f16::from_f32(next()).to_ne_bytes()).collect(),
        DType::BF16 => (0..count).flat_map(|_| bf16::from_f32(next()).to_ne_bytes()).collect(),
        _ => {
            // SAFETY: the block has this many bytes; the call is on the stream all others wait for.
            let code = unsafe { sys::cuMemsetD8_v2(block.address(), 0, bytes.max(1)) };
            driver::check(code, || "fill memory".into())?;
            return Ok(block);
        }
    };
    let host = gpu.upload(&pattern)?;
    let stream = gpu.stream()?;
    for start in (0..bytes).step_by(pattern.len().max(1)) {
        let part = pattern.len().min(bytes - start);
        gpu.copy(host.address(), block.address() + start as u64, part, *stream)?;
    }
    drop(stream);
    gpu.synchronize()?;
    Ok(block)
}
