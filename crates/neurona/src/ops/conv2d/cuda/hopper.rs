//! Convolutions on Hopper's tensor cores, f16 and bf16: launches of the kernels whose files begin with `conv2d_hopper`.

use super::Epilogue;
use super::parts::{self, Part};
use crate::Result;
use crate::cuda::choice::Candidate;
use crate::cuda::cut::Module;
use crate::cuda::hopper::{Tile, integers};
use crate::cuda::kernel::{Argument, Grid, Launch, Launches, Slot};
use crate::cuda::tensor_map::{Piece, TensorMap};
use crate::cuda::{Gpu, Source};
use crate::ops::conv2d::cpu::Geometry;
use crate::tensor::DType;

static PLAIN: Source = Source::embedded("conv2d_hopper.cu", include_str!("../conv2d_hopper.cu"));
static PACK: Source = Source::embedded("conv2d_hopper_pack.cu", include_str!("../conv2d_hopper_pack.cu"));
static SLAB: Source = Source::embedded("conv2d_hopper_slab.cu", include_str!("../conv2d_hopper_slab.cu"));

/// Parts that one launch takes.
const PARTS: usize = 4;

/// Whether these kernels can do it: the copy engine wants rows of 16 bytes and counts pixels and offsets in few bits.
pub(super) fn applies(g: &Geometry, dtype: DType, gpu: &Gpu) -> bool {
    let pixels = (g.n * g.h * g.w).max(g.n * g.oh() * g.ow());
    let reach = [(g.r - 1) * g.dilation[0], (g.s - 1) * g.dilation[1]];
    let images = [[g.n, g.h, g.w, g.c], [g.n, g.oh(), g.ow(), g.k]];
    let parts = |all: &[Part], [from, to]: [[usize; 4]; 2]| {
        all.iter().all(|p| {
            Piece::pixels_fit(from, p.low, p.count, p.step, 256)
                && Piece::pixels_fit(to, p.out.map(|x| x as i32), p.count, p.out_step, 64)
        })
    };
    gpu.is_hopper()
        && matches!(dtype, DType::F16 | DType::BF16)
        && g.groups == 1
        && g.c.is_multiple_of(8)
        && g.k.is_multiple_of(8)
        && (1..1 << 30).contains(&pixels)
        && reach.iter().all(|reach| *reach < 256)
        && parts(&[parts::forward(g)], images)
        && parts(&parts::input_gradient(g), [images[1], images[0]])
}

/// Candidates for the forward pass, none where they do not apply; inputs: images, filters, and those of the epilogue.
pub(super) fn forward(
    g: &Geometry,
    image: DType,
    weight: DType,
    epilogue: &Epilogue,
    gpu: &Gpu,
) -> Result<Vec<Candidate>> {
    let images = [[g.n, g.h, g.w, g.c], [g.n, g.oh(), g.ow(), g.k]];
    let (parts, taps) = (&[parts::forward(g)], g.r * g.s);
    convolutions(g, Job { images, parts, transposed: false, dtype: image, taps, epilogue, gpu }, weight)
}

/// Candidates for the input gradient; inputs: gradient, filters.
pub(super) fn input_grad(g: &Geometry, image: DType, weight: DType, gpu: &Gpu) -> Result<Vec<Candidate>> {
    let images = [[g.n, g.oh(), g.ow(), g.k], [g.n, g.h, g.w, g.c]];
    let (parts, taps) = (&parts::input_gradient(g), g.r * g.s);
    let epilogue = &Epilogue { bias: None, scale: None, relu: false };
    convolutions(g, Job { images, parts, transposed: true, dtype: image, taps, epilogue, gpu }, weight)
}

fn convolutions(g: &Geometry, job: Job<'_>, weight: DType) -> Result<Vec<Candidate>> {
    if !applies(g, job.dtype, job.gpu) {
        return Ok(Vec::new());
    }
    let [[_, height, width, channels], [.., columns]] = job.images;
    let pack = pack(g, &job, weight)?;
    let mut candidates = Vec::new();
    let mut add = |name: String, launches: Vec<Launch>| {
        let launches = [vec![pack.clone()], launches].concat();
        let kernel = Box::new(Launches { launches, workspace: 2 * g.k * g.c * g.r * g.s, flops: g.flops() });
        candidates.push(Candidate { name, kernel });
    };
    let chunk = chunk(channels);
    if let [part] = job.parts {
        let tiles = slab_tiles(columns).map(|tile| Tile { chunk: [chunk; 2], ..tile });
        let part = parts::padded(part, [height, width]);
        if let Some((tile, launch)) = part.and_then(|part| tiles.filter_map(|t| Some((t, job.slab(&part, t)?))).next())
        {
            add(format!("own hopper slab {}", tile.name()), vec![launch?]);
        }
    }
    let rows = job.parts.iter().map(|part| job.images[1][0] * part.count[0] * part.count[1]).sum();
    for tile in tiles(rows, columns, job.gpu).map(|tile| Tile { chunk: [chunk; 2], ..tile }) {
        add(format!("own hopper {}", tile.name()), job.plain(tile)?);
    }
    Ok(candidates)
}

/// Channels of a row in shared memory: as few zeros as possible beside the real ones.
pub(super) fn chunk(channels: usize) -> usize {
    match channels {
        0..=16 => 16,
        c if c.next_multiple_of(32) < c.next_multiple_of(64) => 32,
        _ => 64,
    }
}

/// Tiles worth trying for so many pixels and output channels, the likely best first.
fn tiles(rows: usize, columns: usize, gpu: &Gpu) -> impl Iterator<Item = Tile> {
    const NARROW: &[Tile] = &[Tile::new(128, 32, 4, 2)];
    const SMALL: &[Tile] = &[Tile::new(128, 64, 4, 2), Tile { groups: [3, 1], buffers: 2, ..Tile::new(192, 64, 5, 1) }];
    const MIDDLE: &[Tile] = &[Tile::new(128, 128, 3, 2)];
    const WIDE: &[Tile] = &[Tile::new(128, 256, 4, 1), Tile::new(128, 128, 3, 2)];
    // Where there are no two blocks for each multiprocessor one may have all its shared memory: more is on its way from
    // memory at a time.
    const FEW: &[Tile] = &[Tile::new(128, 128, 6, 1), Tile::new(128, 64, 8, 1)];
    let most = match columns {
        0..=32 => NARROW,
        33..=64 => SMALL,
        65..=128 => MIDDLE,
        _ => WIDE,
    };
    let few = columns > 64 && rows.div_ceil(128) * columns.div_ceil(128) <= gpu.multiprocessors();
    most.iter().chain(if few { FEW } else { &[] }).copied()
}

/// The same where pixels come in slabs: the first that has room is the best. More channels use what comes tap by tap.
fn slab_tiles(columns: usize) -> impl Iterator<Item = Tile> {
    let three = Tile { groups: [3, 1], ..Tile::new(384, if columns <= 32 { 32 } else { 64 }, 2, 1) };
    let tiles = [three, Tile { stages: 1, ..three }, Tile { groups: [2, 1], m: 256, ..three }];
    tiles.into_iter().filter(move |_| columns <= 64)
}

/// Filters in the order that the copies want them, at the start of the workspace.
fn pack(g: &Geometry, job: &Job<'_>, weight: DType) -> Result<Launch> {
    let module = Module::new(job.gpu, &PACK).of("ELEMENT", job.dtype).of("WEIGHT_ELEMENT", weight);
    let (name, grid, sizes) = if job.transposed {
        let columns = g.c * g.r * g.s;
        let blocks = [columns.div_ceil(32) as u32, g.k.div_ceil(32) as u32, 1];
        ("conv2d_hopper_transpose", Grid { blocks, threads: [32, 8, 1], shared: 0 }, vec![g.k, columns])
    } else {
        let grid = Grid::line((g.k * g.c).div_ceil(128).clamp(1, 4096), 128);
        ("conv2d_hopper_pack", grid, vec![g.k, g.c, g.r * g.s])
    };
    let mut arguments = vec![Argument::Input(1), Argument::Workspace(0)];
    arguments.extend(sizes.iter().map(|size| Argument::I32(*size as i32)));
    module.launch(name, grid, arguments)
}

/// One convolution: images, the parts of the work, what else it reads.
struct Job<'a> {
    images: [[usize; 4]; 2],
    parts: &'a [Part],
    /// Sums over output channels, as the input gradient does.
    transposed: bool,
    dtype: DType,
    taps: usize,
    epilogue: &'a Epilogue,
    gpu: &'a Gpu,
}

impl Job<'_> {
    fn map(&self, slot: Slot, piece: Piece) -> Argument {
        Argument::Map(slot, TensorMap { dtype: self.dtype, piece })
    }

    fn module(&self, tile: &Tile, source: &'static Source) -> Module<'_> {
        let of = |operand: Option<(usize, DType)>| operand.map_or(DType::F32, |(_, dtype)| dtype);
        let module = tile.module(self.gpu, source, self.dtype);
        module.of("BIAS_ELEMENT", of(self.epilogue.bias)).of("SCALE_ELEMENT", of(self.epilogue.scale))
    }

    fn input(&self, part: &Part, channels: usize, pixels: usize) -> Argument {
        let Part { low, count, step, .. } = *part;
        self.map(Slot::Input(0), Piece::Pixels { sizes: self.images[0], low, count, step, channels, pixels })
    }

    fn output(&self, part: &Part, tile: &Tile) -> Argument {
        let (low, step) = (part.out.map(|x| x as i32), part.out_step);
        let (sizes, count, channels) = (self.images[1], part.count, tile.out_chunk());
        self.map(Slot::Output(0), Piece::Pixels { sizes, low, count, step, channels, pixels: 64 })
    }

    fn filters(&self, tile: &Tile) -> Argument {
        let sizes = vec![self.images[0][3], self.taps, self.images[1][3]];
        self.map(Slot::Workspace(0), Piece::Box { sizes, piece: vec![tile.chunk[0], 1, tile.n] })
    }

    /// Scale, bias.
    fn vectors(&self) -> [Argument; 2] {
        [self.epilogue.scale, self.epilogue.bias]
            .map(|operand| operand.map_or(Argument::Null, |(i, _)| Argument::Input(i)))
    }

    fn plain(&self, tile: Tile) -> Result<Vec<Launch>> {
        let [[n, _, _, channels], [.., columns]] = self.images;
        let module = self.module(&tile, &PLAIN);
        let across = columns.div_ceil(tile.n);
        let launch = |parts: &[Part]| {
            let (mut end, mut body) = (0, Vec::new());
            for part in parts {
                let Part { count, low, step, out, out_step, taps, offset, filter } = *part;
                end += (n * count[0] * count[1]).div_ceil(tile.m);
                body.push(end as i64);
                body.extend(count.map(|x| x as i64));
                body.extend(low.map(i64::from));
                body.extend([step, out, out_step, taps, offset].concat().iter().map(|x| *x as i64));
                body.extend(filter);
            }
            let mut plan =
                vec![parts.len() as i64, across as i64, channels as i64, columns as i64, i64::from(self.epilogue.relu)];
            plan.extend(body);
            plan.resize(5 + 18 * PARTS, 0);
            // Maps that no part uses repeat the first.
            let all = |f: &dyn Fn(&Part) -> Argument| {
                (0..PARTS).map(|i| f(parts.get(i).unwrap_or(&parts[0]))).collect::<Vec<_>>()
            };
            let mut arguments = all(&|part| self.input(part, tile.chunk[0], tile.m));
            arguments.push(self.filters(&tile));
            arguments.extend(all(&|part| self.output(part, &tile)));
            arguments.extend(self.vectors());
            arguments.push(Argument::Bytes(integers(&plan)));
            let blocks = (end * across).min(self.gpu.multiprocessors * tile.blocks);
            let grid = Grid { shared: tile.shared() as u32, ..Grid::line(blocks, tile.threads()) };
            module.launch("conv2d_hopper", grid, arguments)
        };
        self.parts.chunks(PARTS).map(launch).collect()
    }

    /// None where filters and slabs do not fit.
    fn slab(&self, part: &Part, tile: Tile) -> Option<Result<Launch>> {
        let [[n, _, _, channels], [_, out_height, out_width, columns]] = self.images;
        let Part { count, low, taps, offset, filter, .. } = *part;
        let (blocks, across) = (channels.div_ceil(tile.chunk[0]), columns.div_ceil(tile.n));
        let rows = parts::slab(tile.group_rows(), part, tile.chunk[0]);
        let row_bytes = 2 * tile.chunk[0];
        let filter_bytes = taps[0] * taps[1] * blocks * tile.n * row_bytes;
        let groups = tile.groups[0];
        let rings = groups * tile.stages;
        // Filters, slabs with their barriers, output, two more kinds of barriers, the places of two tiles' rows.
        let shared = filter_bytes + rings * (rows * row_bytes + 16) + tile.out_bytes() + 8 * (1 + groups) + 8 * tile.m;
        if !tile.has_room(shared) || !Piece::pixels_fit(self.images[0], low, count, [1, 1], rows) {
            return None;
        }
        let tiles = (n * count[0] * count[1]).div_ceil(tile.group_rows());
        let mut plan = [n, count[0], count[1], out_height, out_width].map(|x| x as i64).to_vec();
        plan.extend(low.map(i64::from));
        plan.extend([taps[0], taps[1], offset[0] * count[1], offset[1]].map(|x| x as i64));
        plan.extend(filter);
        plan.extend([blocks, columns, tiles, across, filter_bytes, rows * row_bytes].map(|x| x as i64));
        plan.push(i64::from(self.epilogue.relu));
        let mut arguments = vec![self.input(part, tile.chunk[0], rows), self.filters(&tile), Argument::Output(0)];
        arguments.extend(self.vectors());
        arguments.push(Argument::Bytes(integers(&plan)));
        let down = (self.gpu.multiprocessors * tile.blocks / across).clamp(1, tiles.div_ceil(groups));
        let grid = Grid { shared: shared as u32, ..Grid::line(down * across, tile.threads()) };
        Some(self.module(&tile, &SLAB).launch("conv2d_hopper_slab", grid, arguments))
    }
}
