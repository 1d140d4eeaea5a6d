//! Forward and the gradient by the input: products whose left matrix is gathered from images.

use super::{Epilogue, Workspace, depthwise, direct, flag, sizes};
use crate::cuda::choice::Candidate;
use crate::cuda::kernel::{Argument, Grid, Launch, Launches};
use crate::cuda::product::{ALIGNED, Products, Units};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::ops::conv2d::cpu::Geometry;
use crate::tensor::DType;
use crate::{Error, Result};

const PACK: Source = Source::embedded("conv2d_pack.cu", include_str!("../conv2d_pack.cu"));
const GATHER: Source = Source::embedded("conv2d_gather.cu", include_str!("../conv2d_gather.cu"));

/// The sizes that differ between the two passes.
struct Pass<'a> {
    g: &'a Geometry,
    input_grad: bool,
    image: DType,
    weight: DType,
    units: Units,
}

/// Operands: images, filters, and those of the epilogue.
pub(in crate::ops::conv2d) fn forward(
    g: &Geometry,
    image: DType,
    weight: DType,
    epilogue: &Epilogue,
    gpu: &Gpu,
) -> Result<Vec<Candidate>> {
    if let Some(kernel) = depthwise::pass(g, false, image, weight, epilogue, gpu)? {
        return Ok(vec![Candidate { name: "own".into(), kernel }]);
    }
    let pass = Pass { g, input_grad: false, image, weight, units: Units::of(gpu, image) };
    // A product shares a sum among blocks, which small batches gain from.
    let mut all = direct::forward(g, image, weight, epilogue, gpu)?;
    all.push(pass.candidate(epilogue, gpu)?);
    Ok(all)
}

/// Operands: the gradient by the output, filters.
pub(in crate::ops::conv2d) fn input_grad(
    g: &Geometry,
    image: DType,
    weight: DType,
    gpu: &Gpu,
) -> Result<Vec<Candidate>> {
    let none = Epilogue { bias: None, scale: None, relu: false };
    if let Some(kernel) = depthwise::pass(g, true, image, weight, &none, gpu)? {
        return Ok(vec![Candidate { name: "own".into(), kernel }]);
    }
    let pass = Pass { g, input_grad: true, image, weight, units: Units::of(gpu, image) };
    let mut all = direct::input_grad(g, image, weight, gpu)?;
    all.push(pass.candidate(&none, gpu)?);
    Ok(all)
}

impl Pass<'_> {
    /// Classes of pixels that meet the same filter taps: one for each remainder of the stride backward.
    fn classes(&self) -> usize {
        if self.input_grad { self.g.stride[0] * self.g.stride[1] } else { 1 }
    }

    /// Summed and wanted channels of a group.
    fn channels(&self) -> (usize, usize) {
        let (inner, outer) = (self.g.c / self.g.groups, self.g.k / self.g.groups);
        if self.input_grad { (outer, inner) } else { (inner, outer) }
    }

    /// Depth of the deepest class, and the mean over classes.
    fn depths(&self) -> (usize, usize) {
        let (g, channels) = (self.g, self.channels().0);
        let all = g.r * g.s * channels;
        if !self.input_grad {
            return (all, all);
        }
        // Taps that meet one class are `stride / gcd(stride, dilation)` apart.
        let taps = |size: usize, axis: usize| {
            let step = (1..).find(|step| (step * g.dilation[axis]).is_multiple_of(g.stride[axis])).unwrap_or(1);
            size.div_ceil(step)
        };
        (taps(g.r, 0) * taps(g.s, 1) * channels, all.div_ceil(self.classes()))
    }

    /// Pixels of the result, and of its largest class.
    fn pixels(&self) -> (usize, usize) {
        let g = self.g;
        if self.input_grad {
            (g.n * g.h * g.w, g.n * g.h.div_ceil(g.stride[0]) * g.w.div_ceil(g.stride[1]))
        } else {
            (g.n * g.oh() * g.ow(), g.n * g.oh() * g.ow())
        }
    }

    fn candidate(&self, epilogue: &Epilogue, gpu: &Gpu) -> Result<Candidate> {
        let (g, classes) = (self.g, self.classes());
        let ((channels, wanted), (deepest, depth), (pixels, rows)) = (self.channels(), self.depths(), self.pixels());
        let products = Products { rows, columns: wanted, depth, count: g.groups * classes, always_finished: false };
        // Packed filters are padded to whole runs.
        let cut = products.cut(self.units, [channels, 0]);
        // Classes differ in depth: each is cut into as many parts.
        let part = deepest.div_ceil(cut.parts).next_multiple_of(ALIGNED).max(ALIGNED);
        let (tile, parts) = (cut.tile, deepest.div_ceil(part).max(1));
        let columns = wanted.next_multiple_of(tile.run());
        let row_tiles = rows.div_ceil(tile.m);
        let blocks = u32::try_from(classes * row_tiles * columns.div_ceil(tile.n))
            .map_err(|_| Error::op("conv2d", "needs more blocks than a GPU can count"))?;
        let piece = tile.piece(channels);
        // A step looks at the windows of the next three or four, which may be past the end.
        let room = deepest.next_multiple_of(ALIGNED) + 3 * ALIGNED;
        let packed_type = tile.packed(self.image);
        let sum_bytes = if self.image == DType::F64 { 8 } else { 4 };

        let mut workspace = Workspace::default();
        let packed = workspace.take(classes * g.groups * room * columns * packed_type.size());
        let windows = workspace.take(classes * room / piece * 16);
        let elements = pixels * wanted * g.groups;
        let sums = if parts > 1 { workspace.take(parts * elements * sum_bytes) } else { Argument::Null };
        let geometry = sizes(g)?;
        let number = |x: usize| Argument::I32(x as i32);

        let direction = flag("INPUT_GRAD", self.input_grad);
        let pack_macros = [
            ("WEIGHT_ELEMENT", cuda_type(self.weight).into()),
            ("SCALE_ELEMENT", cuda_type(epilogue.scale.map_or(self.weight, |(_, dtype)| dtype)).into()),
            ("PACKED_ELEMENT", cuda_type(packed_type).into()),
            ("PIECE", piece.to_string()),
            direction.clone(),
        ];
        let bias_type = epilogue.bias.map_or(self.image, |(_, dtype)| dtype);
        let mut macros = tile.macros();
        macros.extend([
            ("ELEMENT", cuda_type(self.image).into()),
            ("BIAS_ELEMENT", cuda_type(bias_type).into()),
            direction,
            ("PIECE", piece.to_string()),
        ]);
        let operand = |position: Option<usize>| position.map_or(Argument::Null, Argument::Input);
        let (bias, relu) = (operand(epilogue.bias.map(|(i, _)| i)), Argument::I32(i32::from(epilogue.relu)));
        let blocks_of = |elements: usize| elements.div_ceil(256).clamp(1, 1024) as u32;

        let mut launches = vec![
            Launch {
                function: gpu.function(&PACK, "conv2d_pack", &pack_macros)?,
                grid: Grid {
                    blocks: [blocks_of(deepest * columns), classes as u32, g.groups as u32 + 1],
                    threads: [256, 1, 1],
                    shared: 0,
                },
                arguments: vec![
                    Argument::Input(1),
                    operand(epilogue.scale.map(|(i, _)| i)),
                    packed.clone(),
                    windows.clone(),
                    geometry.clone(),
                    number(room),
                    number(columns),
                ],
            },
            Launch {
                function: gpu.function(&GATHER, "conv2d_gather", &macros)?,
                grid: Grid {
                    blocks: [blocks, parts as u32, g.groups as u32],
                    threads: [tile.threads(), 1, 1],
                    shared: 0,
                },
                arguments: vec![
                    Argument::Input(0),
                    packed,
                    windows,
                    bias.clone(),
                    Argument::Output(0),
                    sums.clone(),
                    geometry,
                    number(row_tiles),
                    number(room),
                    number(columns),
                    number(part),
                    relu.clone(),
                ],
            },
        ];
        if parts > 1 {
            launches.push(Launch {
                function: gpu.function(&GATHER, "conv2d_finish", &macros)?,
                grid: Grid::over(elements),
                arguments: vec![
                    sums,
                    bias,
                    Argument::Output(0),
                    Argument::I64(elements as i64),
                    number(wanted * g.groups),
                    number(parts),
                    relu,
                ],
            });
        }
        let kernel = Launches { launches, workspace: workspace.bytes, flops: g.flops() };
        Ok(Candidate { name: tile.candidate(), kernel: Box::new(kernel) })
    }
}
