//! Augmentation on GPUs.

use super::{Augment, Flip, Jitter, Settings};
use crate::Result;
use crate::cuda::kernel::{Argument, Grid, Kernel, Launch, Launches};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::tensor::Shape;

const SOURCE: Source = Source::embedded("augment.cu", include_str!("augment.cu"));

/// Pixels of a strip: enough work for a block of threads to be worth its draws.
const STRIP: usize = 4096;

/// The launch for images `[n, c, h, w]`.
pub(super) fn kernel(op: &Augment, shape: &Shape, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    let [n, c, h, w] = std::array::from_fn(|i| shape[i]);
    let Settings { padding, reflect, flip, jitter, cutout } = op.settings;
    let contrast = jitter.is_some_and(|jitter| jitter.contrast());
    let whole = 16 / op.to.size();
    let pixels = if c <= 4 && (h * w).is_multiple_of(whole) { whole } else { 1 };
    let flag = |on: bool| u8::from(on).to_string();
    let macros = [
        ("ELEMENT", cuda_type(op.to).into()),
        ("CHANNELS", c.to_string()),
        ("PIXELS", pixels.to_string()),
        ("REFLECT", flag(reflect && padding > 0)),
        ("JITTER", flag(jitter.is_some())),
        ("CONTRAST", flag(contrast)),
        ("MIX", flag(op.mix.is_some())),
    ];
    // The mean of an image is the work of one block.
    let strips = if contrast { 1 } else { (h * w).div_ceil(STRIP).min(1 << 15) };
    let threads = (h * w).div_ceil(strips * pixels).next_multiple_of(32).clamp(32, 256) as u32;
    let threads = if contrast && h * w > STRIP { 512 } else { threads };

    // The fields of the kernel's struct, each of four bytes.
    let (flip, flips) = match (flip, op.flips()) {
        (Flip::Random(p), _) => (p.get(), Argument::Null),
        (Flip::Given, at) => (0.0, at.map_or(Argument::Null, Argument::Input)),
    };
    let [low, span] = match jitter {
        Some(Jitter { low, span }) => [low, span].map(|three| three.map(|v| v.get())),
        None => [[1.0; 3], [0.0; 3]],
    };
    // A hole past the image's size is no larger for being counted further.
    let numbers = [n, h, w, padding, cutout.min(2 * h.max(w)), op.mix.unwrap_or(0)];
    let mut settings: Vec<u8> = numbers.iter().flat_map(|v| (*v as i32).to_le_bytes()).collect();
    settings.extend([flip].iter().chain(&low).chain(&span).flat_map(|v| v.to_le_bytes()));

    let (own, labels, probabilities) = match op.mixed() {
        Some([own, labels]) => (Argument::Input(own), Argument::Input(labels), Argument::Output(1)),
        None => (Argument::Null, Argument::Null, Argument::Null),
    };
    let launch = Launch {
        function: gpu.function(&SOURCE, "augment", &macros)?,
        grid: Grid { blocks: [n as u32, strips as u32, 1], threads: [threads, 1, 1], shared: 0 },
        arguments: vec![
            Argument::Input(0),
            Argument::Input(1),
            Argument::Input(2),
            flips,
            own,
            labels,
            Argument::Output(0),
            probabilities,
            Argument::Bytes(settings),
        ],
    };
    Ok(Box::new(Launches { launches: vec![launch], ..Launches::default() }))
}
