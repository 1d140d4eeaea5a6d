//! Augmentation on CPU cores.

use super::draw::{Change, Draw, partner, source};
use super::{Augment, Settings};
use crate::cpu::kernel::{Io, Kernel, Plain, share};
use crate::cpu::simd::vectorized;
use crate::cpu::tasks::pieces;
use crate::tensor::DType;
use half::{bf16, f16};
use std::marker::PhantomData;

/// The kernel for images `[n, c, h, w]`.
pub(super) fn kernel(op: &Augment, shape: &[usize]) -> Box<dyn Kernel> {
    match op.to {
        DType::F64 => Box::new(Forward::<f64>::new(op, shape)),
        DType::F16 => Box::new(Forward::<f16>::new(op, shape)),
        DType::BF16 => Box::new(Forward::<bf16>::new(op, shape)),
        _ => Box::new(Forward::<f32>::new(op, shape)),
    }
}

/// What a result is stored as.
pub(super) trait Stored: Plain {
    fn of(value: f32) -> Self;
}
macro_rules! stored { ($($t:ty: $of:expr),*) => { $( impl Stored for $t {
    #[inline(always)]
    fn of(value: f32) -> Self { $of(value) }
} )* } }
stored!(f32: |v| v, f64: f64::from, f16: f16::from_f32, bf16: bf16::from_f32);

/// A column that shows black.
const BLACK: u32 = u32::MAX;

pub(super) struct Forward<T> {
    op: Augment,
    n: usize,
    c: usize,
    h: usize,
    w: usize,
    stored: PhantomData<T>,
}

/// An image and what is done to it.
struct Picture<'a> {
    bytes: &'a [u8],
    draw: Draw,
    /// The mean grey that contrast is changed about.
    grey: f32,
    /// The source of each column of the result.
    columns: &'a [u32],
}

/// A thread's memory: what each byte becomes in each channel, a row of the result for an image and one for its
/// partner, and their columns.
struct Room<'a> {
    tables: &'a mut [f32],
    rows: [&'a mut [f32]; 2],
    columns: [&'a mut [u32]; 2],
}

impl<T: Stored> Forward<T> {
    pub fn new(op: &Augment, shape: &[usize]) -> Self {
        let [n, c, h, w] = std::array::from_fn(|i| shape[i]);
        Forward { op: op.clone(), n, c, h, w, stored: PhantomData }
    }

    fn tasks(&self) -> usize {
        pieces(self.n * self.c * self.h * self.w).min(self.n)
    }

    fn room<'a>(&self, io: &'a Io<'_>) -> Room<'a> {
        let (tables, row) = (256 * self.c, self.w * self.c);
        // SAFETY: scratch belongs to the running thread, and the parts do not overlap.
        unsafe {
            let floats = |start: usize, count: usize| io.scratch.slice_mut::<f32>(start..start + count);
            let numbers = |start: usize, count: usize| io.scratch.slice_mut::<u32>(start..start + count);
            let after = tables + 2 * row;
            Room {
                tables: floats(0, tables),
                rows: [floats(tables, row), floats(tables + row, row)],
                columns: [numbers(after, self.w), numbers(after + self.w, self.w)],
            }
        }
    }

    fn picture<'a>(
        &self,
        bytes: &'a [u8],
        image: usize,
        key: u64,
        flips: Option<&[u8]>,
        room: &'a mut [u32],
    ) -> Picture<'a> {
        let Settings { padding, reflect, jitter, .. } = self.op.settings;
        let draw = Draw::new(&self.op.settings, key, image, [self.h, self.w], flips);
        for (x, column) in room.iter_mut().enumerate() {
            let x = if draw.flipped { self.w - 1 - x } else { x };
            *column = source(draw.left + x, padding, self.w, reflect).map_or(BLACK, |x| x as u32);
        }
        let mut picture = Picture { bytes, draw, grey: 0.0, columns: room };
        if jitter.is_some_and(|jitter| jitter.contrast()) {
            picture.grey = match self.c {
                3 => self.mean_grey::<3>(&picture),
                _ => self.mean_grey::<1>(&picture),
            };
        }
        picture
    }

    /// The source row of a row of the result, if it is not black.
    fn source_row(&self, picture: &Picture<'_>, y: usize) -> Option<usize> {
        source(picture.draw.top + y, self.op.settings.padding, self.h, self.op.settings.reflect)
    }

    /// A pixel of the source, each channel from 0 to 1.
    #[inline(always)]
    fn pixel<const C: usize>(&self, bytes: &[u8], row: Option<usize>, column: u32) -> [f32; C] {
        match row {
            Some(row) if column != BLACK => {
                let at = row * self.w + column as usize;
                std::array::from_fn(|c| f32::from(bytes[c * self.h * self.w + at]) / 255.0)
            }
            _ => [0.0; C],
        }
    }

    /// The mean grey of the image as it is when its contrast is changed. The sum is one of whole numbers: any order
    /// gives the same bits, on a GPU too.
    fn mean_grey<const C: usize>(&self, picture: &Picture<'_>) -> f32 {
        let before = picture.draw.before_contrast();
        let mut sum = 0u64;
        for y in 0..self.h {
            let row = self.source_row(picture, y);
            for column in picture.columns {
                let pixel = recolored::<C>(self.pixel(picture.bytes, row, *column), before, 0.0);
                sum += u64::from((luminance(&pixel) * UNIT) as u32);
            }
        }
        (sum as f64 / ((self.h * self.w) as f64 * f64::from(UNIT))) as f32
    }

    /// A row of the result, channels side by side.
    fn row(&self, picture: &Picture<'_>, y: usize, tables: &[f32], statistics: &[f32], out: &mut [f32]) {
        let (c, plane) = (self.c, self.h * self.w);
        let row = self.source_row(picture, y);
        match (self.op.settings.jitter, c) {
            (None, _) => {
                for channel in 0..c {
                    let table: &[f32; 256] = tables[channel * 256..][..256].try_into().expect("256 values");
                    let out = out[channel..].iter_mut().step_by(c);
                    let Some(row) = row else {
                        out.for_each(|v| *v = table[0]);
                        continue;
                    };
                    let line = &picture.bytes[channel * plane + row * self.w..][..self.w];
                    for (v, &column) in out.zip(picture.columns) {
                        *v = table[usize::from(line.get(column as usize).copied().unwrap_or(0))];
                    }
                }
            }
            (Some(_), 3) => self.colored_row::<3>(picture, row, statistics, out),
            (Some(_), _) => self.colored_row::<1>(picture, row, statistics, out),
        }
        let [rows, columns] = &picture.draw.hole;
        if rows.contains(&y) {
            out[columns.start * c..columns.end * c].fill(0.0);
        }
    }

    fn colored_row<const C: usize>(&self, of: &Picture<'_>, row: Option<usize>, statistics: &[f32], out: &mut [f32]) {
        let (mean, deviation) = statistics.split_at(C);
        vectorized(
            #[inline(always)]
            || {
                for (out, column) in out.as_chunks_mut::<C>().0.iter_mut().zip(of.columns) {
                    let pixel = recolored::<C>(self.pixel(of.bytes, row, *column), &of.draw.changes, of.grey);
                    *out = std::array::from_fn(|c| (pixel[c] - mean[c]) / deviation[c]);
                }
            },
        );
    }
}

impl<T: Stored> Kernel for Forward<T> {
    fn phases(&self) -> Vec<usize> {
        vec![self.tasks()]
    }

    fn scratch(&self) -> usize {
        4 * (256 * self.c + 2 * self.w * self.c + 2 * self.w)
    }

    fn run(&self, _phase: usize, task: usize, io: &Io<'_>) {
        let (row_len, len) = (self.w * self.c, self.c * self.h * self.w);
        let range = share(self.n, self.tasks(), task);
        // SAFETY: operands are not written in this phase; tasks have ranges of images to themselves.
        let (images, key, statistics, flips, result) = unsafe {
            (
                io.inputs[0].slice::<u8>(),
                io.inputs[1].slice::<i64>()[0] as u64,
                io.inputs[2].slice::<f32>(),
                self.op.flips().map(|i| io.inputs[i].slice::<u8>()),
                io.outputs[0].slice_mut::<T>(range.start * len..range.end * len),
            )
        };
        // SAFETY: as above.
        let own = self.op.mixed().map(|[own, _]| unsafe { io.inputs[own].slice::<f32>()[0] });
        let Room { tables, rows: [first, second], columns: [here, there] } = self.room(io);
        if self.op.settings.jitter.is_none() {
            for (i, v) in tables.iter_mut().enumerate() {
                let (channel, byte) = (i / 256, i % 256);
                *v = (byte as f32 / 255.0 - statistics[channel]) / statistics[self.c + channel];
            }
        }
        let step = partner(key, self.n);
        for (image, result) in range.clone().zip(result.chunks_exact_mut(len)) {
            let bytes = |image: usize| &images[image * len..][..len];
            let picture = self.picture(bytes(image), image, key, flips, here);
            let mixed = own.map(|own| {
                let other = (image + step) % self.n;
                (own, self.picture(bytes(other), other, key, flips, there))
            });
            for (y, result) in result.chunks_exact_mut(row_len).enumerate() {
                self.row(&picture, y, tables, statistics, first);
                if let Some((own, other)) = &mixed {
                    self.row(other, y, tables, statistics, second);
                    first.iter_mut().zip(second.iter()).for_each(|(v, o)| *v = mix(*own, *v, *o));
                }
                result.iter_mut().zip(first.iter()).for_each(|(r, v)| *r = T::of(*v));
            }
        }
        if let (Some(own), Some([_, labels]), Some(classes)) = (own, self.op.mixed(), self.op.mix) {
            // SAFETY: as above; the rows of a task's images are its own.
            let (labels, probabilities) = unsafe {
                let rows = range.start * classes..range.end * classes;
                (io.inputs[labels].slice::<i64>(), io.outputs[1].slice_mut::<f32>(rows))
            };
            for (image, row) in range.zip(probabilities.chunks_exact_mut(classes)) {
                let (label, other) = (labels[image], labels[(image + step) % self.n]);
                for (class, p) in row.iter_mut().enumerate() {
                    let is = |label: i64| f32::from(u8::from(label == class as i64));
                    *p = mix(own, is(label), is(other));
                }
            }
        }
    }
}

/// Mean grey is summed in steps of 2⁻²⁴: finer than an f32 near 1.
const UNIT: f32 = (1 << 24) as f32;

#[inline(always)]
fn mix(own: f32, value: f32, other: f32) -> f32 {
    other * (1.0 - own) + value * own
}

/// torchvision's grey of a colour.
#[inline(always)]
fn luminance<const C: usize>(pixel: &[f32; C]) -> f32 {
    match pixel[..] {
        [r, g, b] => 0.2989 * r + 0.587 * g + 0.114 * b,
        _ => pixel[0],
    }
}

/// The changes of a pixel's colour, with torchvision's formulas: each goes from something (at 0) over the pixel (at 1)
/// and beyond.
#[inline(always)]
fn recolored<const C: usize>(mut pixel: [f32; C], changes: &[(Change, f32)], grey: f32) -> [f32; C] {
    for &(change, factor) in changes {
        let from = match change {
            Change::Brightness => 0.0,
            Change::Contrast => grey,
            Change::Saturation if C == 1 => continue,
            Change::Saturation => luminance(&pixel),
        };
        pixel = pixel.map(|v| (factor * v + (1.0 - factor) * from).clamp(0.0, 1.0));
    }
    pixel
}
