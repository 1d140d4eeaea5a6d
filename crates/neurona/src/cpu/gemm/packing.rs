//! Operands copied to where a product's tiles read them best.

use super::MatLayout;
use super::panel::{Panel, Transposed, pack, packed_width, panels};
use crate::cpu::kernel::{Io, Prepared, share};
use crate::cpu::stream::LINE;

/// An L1 cache has 4 KiB a way on all cores at hand, and eight ways or more: nine lines 4 KiB apart do not fit.
const SETS: usize = 64;
const WAYS: usize = 8;

/// How a product packs its operands: the right one as panels, the left one, where it must be, as rows a good distance
/// apart.
pub(super) struct Packing {
    m: usize,
    k: usize,
    a: MatLayout,
    b: MatLayout,
    panels: Vec<Panel>,
    /// Matrices of the left and of the right operand that differ.
    matrices: [usize; 2],
    /// Floats of a packed right matrix.
    right: usize,
    /// Tasks that share one panel.
    pieces: usize,
    /// From one row of a packed left matrix to the next; 0 when it is left where it is.
    row: usize,
    /// The left operand has a phase of its own, because the right one lasts from run to run.
    apart: bool,
}

impl Packing {
    /// For tiles of so many rows at most; the right operand may last from run to run.
    pub fn new(
        tallest: usize,
        batch: usize,
        m: usize,
        n: usize,
        k: usize,
        a: MatLayout,
        b: MatLayout,
        lasts: bool,
    ) -> Self {
        let panels = panels(n);
        let matrices = [a.batch, b.batch].map(|step| if step == 0 { batch.min(1) } else { batch });
        let right = packed_width(n) * k;
        let units = (matrices[1] * panels.len()).max(1);
        let pieces = (matrices[1] * right / 16_384).clamp(1, 64).div_ceil(units).min(k.max(1));
        let row = if a.col == 1 && m > WAYS && crowded(tallest, a.row) { spread(k) } else { 0 };
        Packing { m, k, a, b, panels, matrices, right, pieces, row, apart: lasts && row > 0 }
    }

    /// The number of phases.
    pub fn phases(&self) -> usize {
        1 + usize::from(self.apart)
    }

    /// The number of tasks of each.
    pub fn tasks(&self) -> usize {
        self.matrices[1] * self.panels.len() * self.pieces
    }

    /// Bytes of the packed operands.
    pub fn bytes(&self) -> usize {
        (self.matrices[0] * self.m * self.row + self.matrices[1] * self.right) * size_of::<f32>()
    }

    /// Packs a task's share of both operands, or of the phase's.
    pub fn run(&self, phase: usize, task: usize, io: &Io<'_>) {
        if phase == 0 {
            self.pack_right(task, io);
        }
        if self.row > 0 && (phase == 1 || !self.apart) {
            self.pack_left(task, io);
        }
    }

    /// The packed right operand, when it alone is packed first.
    pub fn prepared(&self) -> Option<Prepared> {
        let MatLayout { row, col, batch } = self.b;
        let form = ("matrix", vec![self.matrices[1], self.right, self.k, row, col, batch]);
        (self.row == 0 || self.apart).then(|| Prepared { inputs: vec![1], form })
    }

    fn pack_right(&self, task: usize, io: &Io<'_>) {
        let (unit, piece) = (task / self.pieces, task % self.pieces);
        let (matrix, panel) = (unit / self.panels.len(), &self.panels[unit % self.panels.len()]);
        let steps = share(self.k, self.pieces, piece);
        if steps.is_empty() {
            return;
        }
        let width = panel.width.columns;
        let at = self.right_at(matrix, panel);
        let from = matrix * self.b.batch + panel.start * self.b.col;
        if self.b.col == 1 {
            let from = from + steps.start * self.b.row;
            // SAFETY: no task writes an input, and each packs its own steps of its own panel.
            let (b, out) = unsafe {
                let steps = at + steps.start * width..at + steps.end * width;
                (io.inputs[1].slice::<f32>(), io.workspace.slice_mut(steps))
            };
            pack(out, width, panel.columns, &b[from..], self.b.row);
            return;
        }
        let transposed = Transposed {
            source: io.inputs[1].ptr::<f32>().wrapping_add(from),
            stride: self.b.col,
            columns: panel.columns,
            taps: 1,
            groups: self.k,
            step: width,
            width,
            range: steps,
        };
        // SAFETY: as above.
        unsafe { transposed.pack(io.workspace.ptr::<f32>().wrapping_add(at)) };
    }

    fn pack_left(&self, task: usize, io: &Io<'_>) {
        for row in share(self.matrices[0] * self.m, self.tasks(), task) {
            let (matrix, i) = (row / self.m, row % self.m);
            let from = matrix * self.a.batch + i * self.a.row;
            let at = self.left_at(matrix, i);
            // SAFETY: no task writes an input, and each packs its own rows.
            let (a, out) = unsafe { (io.inputs[0].slice::<f32>(), io.workspace.slice_mut::<f32>(at..at + self.k)) };
            out.copy_from_slice(&a[from..from + self.k]);
        }
    }

    /// A panel starts here: those before it in its matrix are full.
    fn right_at(&self, matrix: usize, panel: &Panel) -> usize {
        matrix * self.right + panel.start * self.k
    }

    fn left_at(&self, matrix: usize, row: usize) -> usize {
        self.matrices[1] * self.right + (matrix * self.m + row) * self.row
    }

    /// A panel of the right operand from this step on.
    pub fn right(&self, io: &Io<'_>, matrix: usize, panel: &Panel, step: usize) -> *mut f32 {
        let matrix = if self.b.batch == 0 { 0 } else { matrix };
        io.workspace.ptr::<f32>().wrapping_add(self.right_at(matrix, panel) + step * panel.width.columns)
    }

    /// The left operand from this step on, when it is packed.
    pub fn left(&self, io: &Io<'_>, matrix: usize, step: usize) -> Option<*mut f32> {
        let matrix = if self.a.batch == 0 { 0 } else { matrix };
        (self.row > 0).then(|| io.workspace.ptr::<f32>().wrapping_add(self.left_at(matrix, 0) + step))
    }

    /// From one row of the left operand to the next.
    pub fn left_row(&self) -> usize {
        if self.row > 0 { self.row } else { self.a.row }
    }
}

/// Whether so many rows, so many floats apart, push each other out of the L1 cache.
pub(crate) fn crowded(rows: usize, row: usize) -> bool {
    let mut lines = [0; SETS];
    (0..rows).for_each(|i| lines[i * row / LINE % SETS] += 1);
    lines.iter().any(|&lines| lines > WAYS)
}

/// The least distance of rows of `k` floats that puts neighbours five lines apart: those of the tallest tile then meet
/// nowhere.
fn spread(k: usize) -> usize {
    let lines = k.div_ceil(LINE);
    (lines + (SETS + 5 - lines % SETS) % SETS) * LINE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_rows_are_not_crowded() {
        for k in [1, 15, 16, 512, 1000, 1024, 4096, 5000] {
            let row = spread(k);
            assert!(row >= k && row < k + (SETS + 1) * LINE && !crowded(14, row), "{k}: {row}");
        }
    }
}
