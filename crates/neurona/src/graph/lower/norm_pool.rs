//! Batch-norm in training whose result goes through relu into a max-pool and nowhere else: the three become one op, and so
//! do their gradients. What is normalised is then never stored.

use super::super::ir::{Ir, Value};
use super::sites::Sites;
use crate::Result;
use crate::cpu::simd::{Isa, isa};
use crate::ops::Op;
use crate::ops::batch_norm_pool::{BatchNormPool, BatchNormPoolGrad, joins};
use crate::tensor::{Device, Meta};
use smallvec::smallvec;
use std::collections::HashMap;

/// What becomes of a node.
#[derive(Clone)]
enum Part {
    /// The normalisation: becomes the op for all.
    Norm(BatchNormPool),
    /// Relu or pool: its results are those of the op for all.
    Inside,
    /// The gradient of pool or relu: what comes from behind passes on.
    Through,
    /// The normalisation's gradient: becomes the gradient of all.
    NormGrad(BatchNormPoolGrad),
}

/// Joins batch-norm, relu and max-pool, and their gradients.
pub(super) fn join(ir: Ir, device: Device) -> Result<Ir> {
    let parts = parts(&ir, device);
    if parts.is_empty() {
        return Ok(ir);
    }
    ir.rewrite(|new, index, node| {
        let place = node.place;
        Ok(match parts.get(&index) {
            None => new.take(node),
            Some(Part::Norm(op)) => {
                let joined = new.add(op.clone().into(), &node.inputs, place)?;
                new.results(joined)
            }
            // Where the greatest stood is nobody's second result: only the gradient asked, which is joined too.
            Some(Part::Inside) => smallvec![node.inputs[0]; node.outputs.len()],
            Some(Part::Through) => smallvec![node.inputs[0]],
            Some(Part::NormGrad(op)) => {
                let mut inputs = node.inputs;
                if op.affine {
                    inputs.push(new.nodes[inputs[2].node].inputs[2]);
                }
                let joined = new.add(op.clone().into(), &inputs, place)?;
                new.results(joined)
            }
        })
    })
}

/// The nodes of all sites where it can be done.
fn parts(ir: &Ir, device: Device) -> HashMap<usize, Part> {
    let sites = Sites::new(ir);
    let pools = (0..ir.nodes.len()).filter(|&i| matches!(sites.op(i), Some(Op::MaxPool2d(_))));
    pools.filter_map(|pool| sites.around(pool, device)).flatten().collect()
}

impl Sites<'_> {
    /// What to do with each node around this pool.
    fn around(&self, pool: usize, device: Device) -> Option<Vec<(usize, Part)>> {
        let Op::MaxPool2d(pooling) = self.op(pool)? else { return None };
        let y = self.ir.nodes[pool].inputs[0];
        let relu = y.node;
        let Op::Relu(_) = self.op(relu)? else { return None };
        let from = self.ir.nodes[relu].inputs[0];
        let norm = from.node;
        let Op::BatchNormTrain(op) = self.op(norm)? else { return None };
        let options = pooling.options;
        if from.out != 0
            || !joins(&options)
            || !worthwhile(self.ir.meta(self.ir.nodes[norm].inputs[0]), device)
            || self.reader(norm) != Some(relu)
        {
            return None;
        }
        let joined = BatchNormPool { norm: op.clone(), pool: options };
        let mut parts = vec![(norm, Part::Norm(joined)), (relu, Part::Inside), (pool, Part::Inside)];
        match (self.readers(relu, 0), self.readers(pool, 1)) {
            ([only], []) if *only == pool && (1..3).all(|out| self.readers(norm, out).is_empty()) => {}
            (&[a, b], &[spread]) => {
                let mask = if a == pool { b } else { a };
                if mask == pool || (a != pool && b != pool) {
                    return None;
                }
                let gradient = self.gradient([norm, relu, pool], spread, mask)?;
                let op = BatchNormPoolGrad { affine: op.affine, pool: options };
                parts.extend([(spread, Part::Through), (mask, Part::Through), (gradient, Part::NormGrad(op))]);
            }
            _ => return None,
        }
        Some(parts)
    }

    /// The normalisation's gradient, when `spread` and `mask` are those of pool and relu and lead to it alone. Nobody else
    /// may read the statistics, whose type may change.
    fn gradient(&self, [norm, relu, pool]: [usize; 3], spread: usize, mask: usize) -> Option<usize> {
        let value = |node: usize, out: usize| Value { node, out };
        let inputs = |node: usize| &self.ir.nodes[node].inputs[..];
        let (Op::MaxPool2dGrad(_), Op::ReluGrad(_)) = (self.op(spread)?, self.op(mask)?) else { return None };
        let last = self.reader(mask)?;
        let Op::BatchNormTrainGrad(_) = self.op(last)? else { return None };
        let mut wanted = vec![value(mask, 0), inputs(norm)[0], value(norm, 1), value(norm, 2)];
        let Op::BatchNormTrain(op) = self.op(norm)? else { return None };
        wanted.extend(op.affine.then(|| inputs(norm)[1]));
        let fits = self.reader(spread) == Some(mask)
            && inputs(spread)[1] == value(pool, 1)
            && inputs(mask) == [value(spread, 0), value(relu, 0)]
            && inputs(last) == wanted
            && self.readers(norm, 1) == [last]
            && self.readers(norm, 2) == [last]
            && self.ir.meta(inputs(spread)[0]).dtype == self.ir.meta(inputs(norm)[0]).dtype;
        fits.then_some(last)
    }
}

/// Whether one op is faster than three. On a GPU it always is: less memory is moved. CPU cores find the winners a second and
/// a third time, in blocks of 16 channels: that is cheap where registers are wide, and elsewhere cheaper than memory if the
/// images are too large for a core's own cache.
fn worthwhile(x: &Meta, device: Device) -> bool {
    device != Device::Cpu || x.shape[1].is_multiple_of(16) && (isa() == Isa::Avx512 || x.bytes() > 4 << 20)
}
