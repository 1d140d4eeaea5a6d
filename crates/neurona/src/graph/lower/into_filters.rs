//! The gradient of batch-norm, relu and max-pool behind a convolution goes into the filters' image by image, on CPU cores. It
//! never goes through memory where nobody else needs it, as behind a network's first convolution; and where the gradient by
//! the images does, it goes there while the filters' products keep the cores busy.

use super::super::ir::{Ir, Kind, Value};
use super::sites::Sites;
use crate::Result;
use crate::ops::Op;
use crate::ops::batch_norm_pool::BatchNormPoolWeightGrad;
use smallvec::SmallVec;
use std::collections::HashMap;

/// Joins the two gradients.
pub(super) fn join(ir: Ir) -> Result<Ir> {
    let mut joins: HashMap<usize, (usize, BatchNormPoolWeightGrad)> = {
        let sites = Sites::new(&ir);
        (0..ir.nodes.len()).filter_map(|norm| sites.join(norm)).collect()
    };
    if joins.is_empty() {
        return Ok(ir);
    }
    // The results of the filters' gradients, by node.
    let mut filters: HashMap<usize, SmallVec<[Value; 2]>> = HashMap::new();
    ir.rewrite(|new, index, node| {
        if let Some(results) = filters.remove(&index) {
            return Ok(results);
        }
        let Some((last, op)) = joins.remove(&index) else { return Ok(new.take(node)) };
        let affine = node.outputs.len() - 1;
        let mut inputs = node.inputs;
        inputs.insert(0, new.nodes[inputs[1].node].inputs[0]);
        let keep = op.keep;
        let joined = new.add(op.into(), &inputs, node.place)?;
        let mut results = new.results(joined);
        if !keep {
            // The gradient that is not made any more had one reader, which goes.
            results.insert(0, inputs[2]);
        }
        filters.insert(last, results.drain(1 + affine..).collect());
        Ok(results)
    })
}

impl Sites<'_> {
    /// The normalisation's gradient at this node, if there is one that goes into filters, with those and the op for both.
    fn join(&self, norm: usize) -> Option<(usize, (usize, BatchNormPoolWeightGrad))> {
        let ir = self.ir;
        let Op::BatchNormPoolGrad(op) = self.op(norm)? else { return None };
        let readers = self.readers(norm, 0);
        let mut by_filters = readers.iter().filter(|&&i| matches!(self.op(i), Some(Op::Conv2dWeightGrad(_))));
        let last = *by_filters.next()?;
        let Op::Conv2dWeightGrad(filters) = self.op(last)? else { return None };
        let [images, dy] = ir.nodes[last].inputs[..] else { return None };
        let x = ir.nodes[norm].inputs[1];
        // The images are there before the gradient, as an operand of the convolution that gave x.
        let Kind::Op(Op::Conv2d(_)) = &ir.nodes[x.node].kind else { return None };
        if dy != (Value { node: norm, out: 0 }) || ir.nodes[x.node].inputs[0] != images {
            return None;
        }
        let op = BatchNormPoolWeightGrad { norm: op.clone(), filters: filters.clone(), keep: readers.len() > 1 };
        let metas: Vec<_> = std::iter::once(&images).chain(&ir.nodes[norm].inputs).map(|v| ir.meta(*v)).collect();
        op.fits(&metas).then_some((norm, (last, op)))
    }
}
