//! The gradients. Each window's gradient passes through its largest element, so that of a convolution's outputs only a
//! quarter has any: what that one saw of the input is gathered for the filter, and the filter is scattered over it.

use super::copies::Copies;
use super::micro::{Gather, Scatter, Shape, run_lanes, shapes};
use super::{Geometry, NEAR, pooled, windows_abreast};
use crate::cpu::gemm::task_count;
use crate::cpu::kernel::{Buf, Io, Kernel, Plain, Strand, Strands, share};
use crate::cpu::simd::vectorized;
use crate::cpu::storage::GAP;
use crate::cpu::stream::{OWN, prefetch_part};
use crate::ops::conv2d::cpu::pad_image;
use crate::ops::permute::cpu::interleave;
use crate::ops::sgd_step::Options;
use crate::ops::sgd_step::tile::{Along, Gradients};
use std::ops::Range;

/// Parts of the batch that are summed apart, at most, and bytes of their sums; fewer parts where these would be more.
const PARTS: usize = 64;
const SUMS: usize = 1 << 20;
const FEW_PARTS: usize = 16;

/// What comes by rows, and not with channels last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ByRows {
    /// The gradient by the pooled images.
    pub slopes: bool,
    pub images: bool,
}

/// Inputs: the gradient by the pooled images, their places, images, weight.
/// Outputs: the gradient by weight; if asked by bias; if asked by the images.
/// With a step, operands and results of [`Along`] follow.
pub(crate) struct Backward {
    g: Geometry,
    bias: bool,
    input: bool,
    by_rows: ByRows,
    step: Option<Options>,
    /// Where each window's first element looks in a padded image, and how much further each of its elements does.
    pixels: Vec<usize>,
    further: [usize; 5],
    /// Where each run of a window begins, and floats of a run: a filter row, or a filter value where rows have gaps.
    runs: Vec<usize>,
    length: usize,
    /// Floats of a run with those that fill the last register.
    wide: usize,
    /// Where each value of a filter `[c][r][s]` lies among its runs.
    order: Vec<usize>,
    /// How runs and registers are cut: their shape, the first run, the first float.
    tiles: Vec<(&'static Shape, usize, usize)>,
    /// Parts of the batch and of the filters: a task each for the gradients by weight.
    parts: usize,
    blocks: usize,
    /// Tasks that add some filters' parts up, and spread the gradients by some images.
    finishes: usize,
    /// Packed filters, for gradients by the images.
    filters: Copies,
}

impl Backward {
    /// The gradients of a convolution of these sizes.
    pub fn new(g: Geometry, bias: bool, input: bool, by_rows: ByRows, step: Option<Options>) -> Self {
        let [down, across] = pooled(&g);
        let line = g.padded_w() * g.c;
        let [lower, right] = [g.stride[0] * line, g.stride[1] * g.c];
        let pixels = (0..down * across).map(|p| p / across * 2 * lower + p % across * 2 * right).collect();
        let whole_rows = g.dilation[1] == 1;
        let (of_row, length) = if whole_rows { (1, g.s * g.c) } else { (g.s, g.c) };
        let run = |i: usize| i / of_row * g.dilation[0] * line + i % of_row * g.dilation[1] * g.c;
        let runs: Vec<usize> = (0..g.r * of_row).map(run).collect();
        let wide = length.next_multiple_of(run_lanes());
        let (taps, of_run) = (g.r * g.s, g.s / of_row);
        let order = |i: usize| i % taps / of_run * wide + i % taps % of_run * g.c + i / taps;
        let [parts, blocks] = cut(&g);
        let adds = (parts * g.k * runs.len() * wide / 16_384).clamp(1, g.k.max(1));
        let finishes = adds.max(if input { g.n.min(64) } else { 0 });
        let filters = Copies::new(g.k * runs.len() * wide * size_of::<f32>(), finishes);
        let empty = g.k == 0 || length == 0;
        Backward {
            g,
            bias,
            input,
            by_rows,
            step,
            pixels,
            further: [0, right, lower, lower + right, 0],
            tiles: if empty { Vec::new() } else { tiles(runs.len(), wide) },
            finishes,
            filters,
            order: (0..g.c * taps).map(order).collect(),
            runs,
            length,
            wide,
            parts,
            blocks,
        }
    }

    /// Floats of a filter's runs.
    fn filter(&self) -> usize {
        self.runs.len() * self.wide
    }

    /// Floats of a part's sums: filters', then the biases', and a distance to the next part's.
    fn partial(&self) -> usize {
        (self.g.k * (self.filter() + 1) + GAP / size_of::<f32>()).next_multiple_of(16)
    }

    /// Floats of an image with its margins, and of so many rows of windows of it.
    fn image(&self) -> usize {
        (self.g.h + 2 * self.g.padding[0]) * self.g.padded_w() * self.g.c
    }

    /// Windows of a row of windows.
    fn across(&self) -> usize {
        pooled(&self.g)[1]
    }

    /// The images of a part that are looked at together, and for large ones the rows of windows.
    fn near(&self) -> (usize, usize) {
        let g = &self.g;
        let down = pooled(g)[0];
        let near = NEAR / size_of::<f32>();
        let line = g.padded_w() * g.c;
        let rows = (near / line.max(1)).saturating_sub(g.rows_under(2)) / (2 * g.stride[0]) + 1;
        if rows >= down { ((near / self.image().max(1)).clamp(1, 8), down) } else { (1, rows) }
    }

    /// A part's sums for some filters.
    fn weigh(&self, task: usize, io: &Io<'_>) {
        let g = &self.g;
        let (part, block) = (task / self.blocks, task % self.blocks);
        let (images, filters) = (share(g.n, self.parts, part), share(g.k, self.blocks, block));
        let sums = part * self.partial();
        let totals = sums + g.k * self.filter();
        // SAFETY: these filters' sums of this part belong to this task.
        unsafe {
            io.workspace
                .slice_mut::<f32>(sums + filters.start * self.filter()..sums + filters.end * self.filter())
                .fill(0.0);
            io.workspace.slice_mut::<f32>(totals + filters.start..totals + filters.end).fill(0.0);
        }
        let (together, rows) = self.near();
        let down = pooled(g)[0];
        let mut image = images.start;
        while image < images.end {
            let count = together.min(images.end - image);
            for first in (0..down).step_by(rows) {
                let windows = first * self.across()..(first + rows).min(down) * self.across();
                let x = self.look(image..image + count, &windows, io);
                let next = self.next(image + count..images.end, io);
                for filter in filters.clone() {
                    prefetch_part(next, filters.len(), filter - filters.start);
                    self.add_up(image, count, windows.clone(), filter, x, sums, io);
                }
            }
            image += count;
        }
    }

    /// The images to ask for while others are looked at: whole ones, of more than cores' own caches hold. They are too short
    /// for the core to foresee what follows.
    fn next<'a>(&self, rest: Range<usize>, io: &'a Io<'_>) -> &'a [f32] {
        let (g, (together, rows)) = (&self.g, self.near());
        let image = g.h * g.w * g.c;
        if rest.is_empty() || rows < pooled(g)[0] || g.n * image * size_of::<f32>() <= 4 * OWN {
            return &[];
        }
        // SAFETY: nobody writes an input.
        let x = unsafe { io.inputs[2].slice::<f32>() };
        &x[rest.start * image..rest.end.min(rest.start + together) * image]
    }

    /// Whether images are laid out anew in scratch.
    fn laid_anew(&self) -> bool {
        self.g.padded() || self.by_rows.images
    }

    /// Where images begin: in scratch, if they have margins or come by rows.
    fn look(&self, images: Range<usize>, windows: &Range<usize>, io: &Io<'_>) -> *const f32 {
        let g = &self.g;
        if !self.laid_anew() {
            return io.inputs[2].ptr::<f32>().wrapping_add(images.start * self.image());
        }
        let line = g.padded_w() * g.c;
        let top = windows.start / self.across() * 2 * g.stride[0];
        let rows = top..top + g.rows_under(2 * windows.len() / self.across());
        // SAFETY: nobody writes an input.
        let x = unsafe { io.inputs[2].slice::<f32>() };
        for (i, image) in images.enumerate() {
            // Only one image at a time has other rows than all.
            let at = i * self.image();
            // SAFETY: scratch belongs to this thread.
            let out = unsafe { io.scratch.slice_mut::<f32>(at..at + rows.len() * line) };
            let image = &x[image * g.h * g.w * g.c..][..g.h * g.w * g.c];
            pad_image(out, image, g, rows.clone(), self.by_rows.images);
        }
        io.scratch.ptr::<f32>().wrapping_sub(top * line)
    }

    /// Adds some windows of some images to a filter's sums.
    #[allow(clippy::too_many_arguments)]
    fn add_up(
        &self,
        image: usize,
        count: usize,
        windows: Range<usize>,
        filter: usize,
        x: *const f32,
        sums: usize,
        io: &Io<'_>,
    ) {
        let g = &self.g;
        let all = self.pixels.len();
        // Where the first window's value is, and how far the next one's.
        let lie = |by_filter: bool| {
            let (at, step) =
                if by_filter { (filter * all + windows.start, 1) } else { (windows.start * g.k + filter, g.k) };
            (image * all * g.k + at, step)
        };
        let ((slopes, slope_step), (places, place_step)) = (lie(self.by_rows.slopes), lie(windows_abreast(g)));
        let workspace = io.workspace.ptr::<f32>();
        let mut total = workspace.wrapping_add(sums + g.k * self.filter() + filter);
        for &(shape, run, float) in &self.tiles {
            let registers = shape.registers * run_lanes();
            let gather = Gather {
                x: x.wrapping_add(float),
                images: (count, self.image()),
                pixels: &self.pixels[windows.clone()],
                further: self.further,
                runs: self.runs[run..].as_ptr(),
                last: run_lanes().min(self.length + run_lanes() - registers - float),
                slopes: io.inputs[0].ptr::<f32>().wrapping_add(slopes),
                slope_steps: [slope_step, all * g.k],
                places: io.inputs[1].ptr::<u8>().wrapping_add(places),
                place_steps: [place_step, all * g.k],
                out: workspace.wrapping_add(sums + filter * self.filter() + run * self.wide + float),
                wide: self.wide,
                total,
            };
            // SAFETY: windows lie inside the (padded) images; nobody writes the inputs, and the sums belong to this task.
            unsafe { (shape.gather)(&gather) };
            total = std::ptr::null_mut();
        }
    }

    /// Where the packed filters begin.
    fn packed(&self) -> usize {
        (self.parts * self.partial()).next_multiple_of(16)
    }

    /// A copy of them.
    fn filters(&self, copy: usize, io: &Io<'_>) -> Buf {
        let all = io.workspace.part::<u8>(self.packed() * size_of::<f32>(), self.filters.bytes());
        self.filters.part(copy, all)
    }

    /// A copy of the filters as runs with zeros behind each.
    fn pack(&self, copy: usize, io: &Io<'_>) {
        let g = &self.g;
        let packed = self.filters(copy, io);
        // SAFETY: nobody writes an input; the only task that writes this copy.
        let (weight, packed) =
            unsafe { (io.inputs[3].slice::<f32>(), packed.slice_mut::<f32>(0..g.k * self.filter())) };
        packed.fill(0.0);
        for (packed, weight) in
            packed.chunks_exact_mut(self.filter().max(1)).zip(weight.chunks_exact((g.c * g.r * g.s).max(1)))
        {
            for (value, at) in weight.iter().zip(&self.order) {
                packed[*at] = *value;
            }
        }
    }

    /// The gradients by some images.
    fn spread(&self, task: usize, io: &Io<'_>) {
        let g = &self.g;
        let values = g.k * self.pixels.len();
        let floats = self.image() + self.wide;
        let output = &io.outputs[1 + usize::from(self.bias)];
        let filters = self.filters(self.filters.of(task, self.finishes), io).ptr::<f32>();
        for image in share(g.n, self.finishes, task) {
            // SAFETY: scratch belongs to this thread.
            let sums = unsafe { io.scratch.slice_mut::<f32>(0..floats) };
            sums.fill(0.0);
            let slopes =
                self.by_pixel(io.inputs[0].part::<f32>(image * values, values), self.by_rows.slopes, floats, io);
            let behind = floats + if self.by_rows.slopes { values } else { 0 };
            let places = io.inputs[1].part::<u8>(image * values, values);
            let places = self.by_pixel(places, windows_abreast(g), behind * size_of::<f32>(), io);
            for &(shape, run, float) in &self.tiles {
                let scatter = Scatter {
                    out: sums[float..].as_mut_ptr(),
                    pixels: &self.pixels,
                    further: self.further,
                    runs: self.runs[run..].as_ptr(),
                    slopes,
                    places,
                    filters: g.k,
                    weight: filters.wrapping_add(run * self.wide + float),
                    steps: [self.filter(), self.wide],
                };
                // SAFETY: windows lie inside the image with its margins, registers inside the room behind it; filters
                // were packed in the earlier phase; nobody writes the inputs.
                unsafe { (shape.scatter)(&scatter) };
            }
            let line = g.w * g.c;
            for y in 0..g.h {
                let at = ((y + g.padding[0]) * g.padded_w() + g.padding[1]) * g.c;
                let to = (image * g.h + y) * line;
                // SAFETY: this image belongs to this task.
                unsafe { output.slice_mut::<f32>(to..to + line) }.copy_from_slice(&sums[at..at + line]);
            }
        }
    }

    /// An image's values as `[pixel][filter]`: in scratch, behind so many others, if they come as `[filter][pixel]`.
    fn by_pixel<T: Plain>(&self, values: Buf, by_filter: bool, behind: usize, io: &Io<'_>) -> *const T {
        if !by_filter {
            return values.ptr::<T>();
        }
        let (all, k) = (self.pixels.len(), self.g.k);
        // SAFETY: nobody writes an input; scratch belongs to this thread.
        let (from, to) = unsafe { (values.slice::<T>(), io.scratch.slice_mut::<T>(behind..behind + all * k)) };
        if k > 0 {
            interleave(from, all, k, to);
        }
        to.as_ptr()
    }

    /// Adds the parts up, and takes the step.
    fn finish(&self, task: usize, io: &Io<'_>) {
        let g = &self.g;
        let filters = share(g.k, self.finishes, task);
        let taps = g.r * g.s;
        let own = filters.start * taps * g.c..filters.end * taps * g.c;
        let totals = [filters.start, filters.end].map(|filter| g.k * self.filter() + filter);
        // SAFETY: parts were summed in the earlier phase; these filters' sums and results belong to this task.
        let weight = unsafe { io.outputs[0].slice_mut::<f32>(own.clone()) };
        let sums = self.join(filters.start * self.filter()..filters.end * self.filter(), io);
        for (sums, weight) in sums.chunks_exact(self.filter().max(1)).zip(weight.chunks_exact_mut((taps * g.c).max(1)))
        {
            for (value, at) in weight.iter_mut().zip(&self.order) {
                *value = sums[*at];
            }
        }
        if self.step.is_some() {
            // Where they are made and not by one thread at the end: the next step needs them on all cores.
            let (tile, columns) = (weight.as_ptr(), weight.len());
            let gradients = Gradients { rows: 1, columns, tile, tile_row: 0, to: None, at: own.start, row: 0 };
            // SAFETY: these filters belong to this task. What is overwritten was packed in the earlier phase.
            unsafe { Along::new(self.step, io, g.k * g.c * taps).step(&gradients) };
        }
        if self.bias {
            // SAFETY: as above.
            let bias = unsafe { io.outputs[1].slice_mut::<f32>(filters) };
            bias.copy_from_slice(self.join(totals[0]..totals[1], io));
        }
    }

    /// Adds some sums of all parts to those of the first.
    fn join<'a>(&self, range: Range<usize>, io: &'a Io<'_>) -> &'a [f32] {
        let of = |part: usize| {
            let at = part * self.partial();
            // SAFETY: these sums of all parts belong to the running task, and parts do not overlap.
            unsafe { io.workspace.slice_mut::<f32>(at + range.start..at + range.end) }
        };
        let sums = of(0);
        vectorized(
            #[inline(always)]
            || {
                for part in 1..self.parts {
                    sums.iter_mut().zip(&*of(part)).for_each(|(sum, more)| *sum += more);
                }
            },
        );
        sums
    }
}

/// Parts of the batch, and of the filters: a task each. How a sum is cut must not depend on whose registers make it.
fn cut(g: &Geometry) -> [usize; 2] {
    let filter = g.r * (g.s * g.c).next_multiple_of(8);
    let tasks = task_count(4 * g.n * pooled(g).iter().product::<usize>() * g.k * filter);
    let sums = g.k * filter * size_of::<f32>();
    let most = if PARTS * sums > SUMS { FEW_PARTS } else { PARTS };
    let parts = g.n.min(tasks).min(most);
    [parts, tasks.checked_div(parts).unwrap_or(0).min(g.k)]
}

/// Whether images may come by rows: each is then laid anew by every task that looks at it, which should be one.
pub(crate) fn lays_anew_once(g: &Geometry) -> bool {
    cut(g)[1] == 1
}

/// Cuts runs of so many floats into shapes that there are: the fewest registers at once that hold a run go first, as
/// gradients and places are read again for each shape.
fn tiles(runs: usize, wide: usize) -> Vec<(&'static Shape, usize, usize)> {
    let mut tiles = Vec::new();
    let mut float = 0;
    while float < wide {
        let rest = (wide - float) / run_lanes();
        let registers = shapes().iter().map(|s| s.registers).find(|r| *r <= rest).unwrap_or(1);
        let mut run = 0;
        while run < runs {
            let fits = |s: &&Shape| s.registers == registers && s.runs <= runs - run;
            let Some(shape) = shapes().iter().find(fits) else { break };
            tiles.push((shape, run, float));
            run += shape.runs;
        }
        float += registers * run_lanes();
    }
    tiles
}

impl Kernel for Backward {
    fn phases(&self) -> Vec<usize> {
        // Filters are packed beside the first phase, and used in the second. By the first tasks and by the last ones, so that
        // threads share the others as they share those of the other phases, image by image.
        vec![self.parts * self.blocks + if self.input { self.filters.count() } else { 0 }, self.finishes]
    }

    fn workspace(&self) -> usize {
        self.packed() * size_of::<f32>() + if self.input { self.filters.bytes() } else { 0 }
    }

    fn strands(&self) -> Option<Strands> {
        let images = Strand::sharing(self.g.n, self.parts);
        if !self.input {
            return Some(Strands { phases: vec![images, Strand::NONE], inputs: vec![0, 1, 2], outputs: Vec::new() });
        }
        // A copy of the filters for each half of the images.
        let halves = self.filters.count() == 2 && images.parts.is_multiple_of(2);
        let weigh = if halves { Strand::of(2) } else { Strand::NONE };
        let spread = Strand { waits: true, ..Strand::sharing(self.g.n, self.finishes) };
        let outputs = vec![1 + usize::from(self.bias)];
        Some(Strands { phases: vec![weigh, spread], inputs: vec![0, 1, 2], outputs })
    }

    fn scratch(&self) -> usize {
        let looked = if self.laid_anew() { self.near().0 * self.image() * size_of::<f32>() } else { 0 };
        let values = self.pixels.len() * self.g.k;
        let slopes = if self.by_rows.slopes { values } else { 0 };
        let places = if windows_abreast(&self.g) { values } else { 0 };
        let spread = if self.input { (self.image() + self.wide + slopes) * size_of::<f32>() + places } else { 0 };
        looked.max(spread)
    }

    fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        match (phase, task) {
            (0, 0) if self.input => self.pack(0, io),
            (0, task) if task > self.parts * self.blocks => self.pack(1, io),
            (0, task) => self.weigh(task - usize::from(self.input), io),
            _ => {
                self.finish(task, io);
                if self.input {
                    self.spread(task, io);
                }
            }
        }
    }

    fn flops(&self) -> u64 {
        self.g.flops() / 4 * (1 + u64::from(self.input))
    }
}
