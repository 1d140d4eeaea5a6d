//! Behind a network's first convolution nobody but its filters needs the gradient by what it gave: on CPU cores that of
//! batch-norm, relu and max-pool then goes into the filters' image by image, and never through memory.

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
        let joined = new.add(op.into(), &inputs, node.place)?;
        let mut results = new.results(joined);
        filters.insert(last, results.drain(affine..).collect());
        // The gradient that is not made any more had one reader, which goes.
        results.insert(0, inputs[2]);
        Ok(results)
    })
}

impl Sites<'_> {
    /// The normalisation's gradient at this node, if there is one that goes into filters alone, with those and the op for both.
    fn join(&self, norm: usize) -> Option<(usize, (usize, BatchNormPoolWeightGrad))> {
        let ir = self.ir;
        let Op::BatchNormPoolGrad(op) = self.op(norm)? else { return None };
        let last = self.reader(norm)?;
        let Op::Conv2dWeightGrad(filters) = self.op(last)? else { return None };
        let [images, dy] = ir.nodes[last].inputs[..] else { return None };
        let x = ir.nodes[norm].inputs[1];
        // The images are there before the gradient, as an operand of the convolution that gave x.
        let Kind::Op(Op::Conv2d(_)) = &ir.nodes[x.node].kind else { return None };
        if dy != (Value { node: norm, out: 0 }) || ir.nodes[x.node].inputs[0] != images {
            return None;
        }
        let op = BatchNormPoolWeightGrad { norm: op.clone(), filters: filters.clone() };
        let metas: Vec<_> = std::iter::once(&images).chain(&ir.nodes[norm].inputs).map(|v| ir.meta(*v)).collect();
        op.fits(&metas).then_some((norm, (last, op)))
    }
}
