//! Batch-norm whose result is added to something else, as at the end of a residual block: the sum is taken while the
//! result is in registers. A relu that follows joins them as it joins any batch-norm.

use super::prune;
use crate::Result;
use crate::cpu::gemm::Activation;
use crate::graph::ir::{Ir, Kind, Value};
use crate::ops::Op;
use crate::ops::batch_norm::BatchNormTrain;
use std::collections::HashSet;

/// Joins batch-norms and sums, for GPUs.
pub(super) fn join(mut ir: Ir) -> Result<Ir> {
    let uses = ir.uses();
    let kept: HashSet<Value> = ir.kept().collect();
    for index in 0..ir.nodes.len() {
        let Kind::Op(Op::Add(_)) = &ir.nodes[index].kind else { continue };
        let &[a, b] = &ir.nodes[index].inputs[..] else { continue };
        // Of two normalisations the later one: what it adds is there by then.
        let (norm, other) = if a.node > b.node { (a, b) } else { (b, a) };
        let alone = norm.out == 0 && uses.get(&norm) == Some(&1) && !kept.contains(&norm);
        let Kind::Op(Op::BatchNormTrain(op)) = &ir.nodes[norm.node].kind else { continue };
        if !alone || op.added || op.activation != Activation::None || ir.meta(norm) != ir.meta(other) {
            continue;
        }
        let joined = BatchNormTrain { added: true, ..op.clone() };
        ir.nodes[norm.node].kind = Kind::Op(joined.into());
        ir.nodes[norm.node].inputs.push(other);
        ir.replace(Value { node: index, out: 0 }, norm);
        // Nobody needs it any more.
        ir.nodes[index].inputs.clear();
    }
    prune(ir)
}
