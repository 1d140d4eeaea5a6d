//! Relu before a max-pool: what flows back goes to the largest element of each window, and that element is the pool's
//! result. So relu's mask can be taken from the small result, before the gradient is spread over the large input.

use super::super::ir::{Ir, Kind, Value};
use crate::Result;
use crate::ops::Op;
use crate::ops::max_pool2d::MaxPool2dGrad;
use crate::tensor::Device;
use smallvec::smallvec;

/// Moves the masks of relus from behind the gradients of max-pools to before them.
pub(super) fn mask_first(ir: Ir, device: Device) -> Result<Ir> {
    let uses = ir.uses();
    let op = |v: Value| match &ir.nodes[v.node].kind {
        Kind::Op(op) => Some(op),
        Kind::Leaf(_) => None,
    };
    // For each mask: the gradient by the pool's result, the result, where its elements stood.
    let moves: Vec<Option<(Value, Value, Value)>> = ir
        .nodes
        .iter()
        .map(|node| {
            let Kind::Op(Op::ReluGrad(_)) = &node.kind else { return None };
            let (spread, y) = (node.inputs[0], node.inputs[1]);
            let Some(Op::MaxPool2dGrad(_)) = op(spread).filter(|_| uses.get(&spread) == Some(&1)) else { return None };
            let (dp, places) = (ir.nodes[spread.node].inputs[0], ir.nodes[spread.node].inputs[1]);
            let pooled = Value { node: places.node, out: 0 };
            let same = matches!(op(places), Some(Op::MaxPool2d(_))) && ir.nodes[places.node].inputs[0] == y;
            (same && ir.meta(pooled).dtype == ir.meta(dp).dtype).then_some((dp, pooled, places))
        })
        .collect();
    let mut placed: Vec<smallvec::SmallVec<[Value; 2]>> = Vec::with_capacity(ir.nodes.len());
    ir.rewrite(|new, index, node| {
        let results = match moves[index] {
            None => new.take(node),
            Some((dp, pooled, places)) => {
                let [dp, pooled, places] = [dp, pooled, places].map(|v| placed[v.node][v.out]);
                let Kind::Op(spread) = new.nodes[node.inputs[0].node].kind.clone() else { return Ok(new.take(node)) };
                let place = node.place;
                // A GPU's kernel looks at the result itself: a launch less.
                if let (Op::MaxPool2dGrad(spread), true) = (&spread, device != Device::Cpu) {
                    let spread = MaxPool2dGrad { relu: true, ..spread.clone() };
                    let spread = new.add(spread.into(), &[dp, places, pooled], place)?;
                    placed.push(smallvec![Value { node: spread, out: 0 }]);
                    return Ok(smallvec![Value { node: spread, out: 0 }]);
                }
                let masked = new.add(crate::ops::relu::ReluGrad.into(), &[dp, pooled], place)?;
                let spread = new.add(spread, &[Value { node: masked, out: 0 }, places], place)?;
                smallvec![Value { node: spread, out: 0 }]
            }
        };
        placed.push(results.clone());
        Ok(results)
    })
}
