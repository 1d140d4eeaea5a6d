//! The lowering passes: from what the user wrote to what the machine does best.
//!
//! Each takes a graph and returns one that computes the same. They run after gradients, so what they
//! create needs no gradient rule.

mod conv_pool;
mod elementwise;
mod fold;
mod into_filters;
mod layout;
mod loss;
mod norm_pool;
mod order;
mod pool;
mod precision;
mod residual;
mod sites;
mod statistics;
#[cfg(test)]
mod tests;
mod updates;
mod winners;

use super::ir::{Ir, IrNode, Kind, Value};
use crate::Result;
use crate::cpu::gemm::Activation;
use crate::ops::{Op, Run, batch_norm::Mask, cast::Cast, matmul::MatMul};
use crate::tensor::{DType, Device};
use smallvec::{SmallVec, smallvec};
use std::collections::{HashMap, HashSet};

/// Runs all passes. Without `fuse`, every op stays a step of its own.
pub(crate) fn lower(ir: Ir, fuse: bool, device: Device, mixed: Option<DType>) -> Result<Ir> {
    let ir = match (device, mixed) {
        (Device::Cpu, _) => widen(ir)?,
        (_, Some(narrow)) => precision::mix(ir, narrow)?,
        _ => ir,
    };
    let gpu = fuse && device != Device::Cpu;
    let ir = if fuse { loss::join_gradients(ir)? } else { ir };
    let ir = if gpu { residual::join(ir)? } else { ir };
    let ir = if fuse {
        let ir = norm_pool::join(fold::batch_norm(ir)?, device)?;
        let ir = if device == Device::Cpu { conv_pool::join(ir)? } else { ir };
        let ir = fuse_relu(pool::mask_first(ir, device)?, device)?;
        if device == Device::Cpu { into_filters::join(winners::join(statistics::join(ir)?)?)? } else { ir }
    } else {
        ir
    };
    let ir = if fuse { fuse_relu_grad(ir, device)? } else { ir };
    let ir = layout::choose(ir)?;
    let ir = if gpu { layout::join_casts(ir)? } else { ir };
    let ir = if fuse && device == Device::Cpu { order::inputs_first(updates::join(ir)?)? } else { ir };
    let ir = elementwise::group(ir, fuse)?;
    prune(ir)
}

/// On CPU cores f16 and bf16 are storage types: kernels get their operands widened to f32.
/// Element-wise programs widen while they read.
fn widen(ir: Ir) -> Result<Ir> {
    ir.rewrite(|new, _, node| {
        let Kind::Op(op) = &node.kind else { return Ok(new.take(node)) };
        let narrow = |d: DType| d.compute() != d;
        let touches = node.inputs.iter().any(|v| narrow(new.meta(*v).dtype));
        if !matches!(op.run(), Run::Kernel) || op.moves_only() || !touches {
            return Ok(new.take(node));
        }
        let mut inputs: SmallVec<[Value; 4]> = smallvec![];
        for v in &node.inputs {
            let dtype = new.meta(*v).dtype;
            inputs.push(if narrow(dtype) { convert(new, *v, dtype.compute(), &node)? } else { *v });
        }
        let wide = new.add(op.clone(), &inputs, node.place)?;
        let mut results = new.results(wide);
        for (v, meta) in results.iter_mut().zip(&node.outputs) {
            if new.meta(*v).dtype != meta.dtype {
                *v = convert(new, *v, meta.dtype, &node)?;
            }
        }
        Ok(results)
    })
}

fn convert(new: &mut Ir, v: Value, to: DType, node: &IrNode) -> Result<Value> {
    Ok(Value { node: new.add(Op::Cast(Cast { to }), &[v], node.place)?, out: 0 })
}

/// Convolution, matrix product and batch-norm apply a relu that follows, on CPU cores a relu6 too, while the result is in
/// registers; batch-norm's gradient applies its mask while it reads.
fn fuse_relu(ir: Ir, device: Device) -> Result<Ir> {
    let uses = ir.uses();
    let kept: HashSet<Value> = ir.kept().collect();
    let once = |v: &Value| uses.get(v) == Some(&1) && !kept.contains(v);
    // The op that made a value, seen through views, when nothing else uses it.
    let producer = |mut v: Value| loop {
        match &ir.nodes[v.node].kind {
            Kind::Op(op) if v.out == 0 && once(&v) => match op.run() {
                Run::View => v = ir.nodes[v.node].inputs[0],
                _ => return Some((v.node, op)),
            },
            _ => return None,
        }
    };
    let mut joins = HashSet::new();
    let mut with_activation = HashMap::new();
    let cores = device == Device::Cpu;
    for (index, node) in ir.nodes.iter().enumerate() {
        match &node.kind {
            Kind::Op(op @ (Op::Relu(_) | Op::Relu6(_))) => {
                let activation = match op {
                    Op::Relu(_) => Activation::Relu,
                    _ if cores => Activation::Relu6,
                    _ => continue,
                };
                let fused = |(node, op): (usize, &Op)| Some((node, op.with_activation(activation)?));
                if let Some((source, fused)) = producer(node.inputs[0]).and_then(fused) {
                    with_activation.insert(source, fused);
                    joins.insert(index);
                }
            }
            // Not through a view: the mask must have the shape of what it masks.
            Kind::Op(Op::BatchNormTrainGrad(_)) => {
                let dy = node.inputs[0];
                let masked = match &ir.nodes[dy.node].kind {
                    Kind::Op(Op::ReluGrad(_)) => true,
                    Kind::Op(Op::Relu6Grad(_)) => cores,
                    _ => false,
                };
                if masked && once(&dy) {
                    joins.insert(index);
                }
            }
            _ => {}
        }
    }
    ir.rewrite(|new, index, mut node| {
        if let Some(fused) = with_activation.remove(&index) {
            node.kind = Kind::Op(fused);
        }
        if !joins.contains(&index) {
            return Ok(new.take(node));
        }
        let source = node.inputs[0];
        match &mut node.kind {
            Kind::Op(Op::BatchNormTrainGrad(op)) => {
                let mask = new.nodes[source.node].inputs.clone();
                let y = mask[1];
                // Rounded statistics would not give the same sign near 0.
                let exact = |v: Value| new.meta(v).dtype.compute() == new.meta(v).dtype;
                let bias = match &new.nodes[y.node].kind {
                    Kind::Op(Op::BatchNormTrain(forward)) => {
                        let same = new.nodes[y.node].inputs[0] == node.inputs[1] && y.out == 0;
                        (!cores && forward.affine && op.affine && !forward.added && same && exact(node.inputs[2]))
                            .then(|| new.nodes[y.node].inputs[2])
                    }
                    _ => None,
                };
                op.relu = match new.nodes[source.node].kind {
                    Kind::Op(Op::Relu6Grad(_)) => Mask::Limited,
                    _ if bias.is_some() => Mask::Bias,
                    _ => Mask::Output,
                };
                node.inputs[0] = mask[0];
                node.inputs.push(bias.unwrap_or(y));
                Ok(new.take(node))
            }
            _ => Ok(smallvec![source]),
        }
    })
}

/// A matrix product takes the mask of a relu's gradient along while its result is in registers, or in the first cache.
fn fuse_relu_grad(ir: Ir, device: Device) -> Result<Ir> {
    let uses = ir.uses();
    // On CPU cores a few rows by a transposed matrix go a way of their own, which has no mask; nor has f64.
    let masks =
        |product: &MatMul, y: Value| device != Device::Cpu || !product.transpose_b && ir.meta(y).dtype == DType::F32;
    let fused: Vec<Option<Op>> = (ir.nodes.iter())
        .map(|node| {
            let Kind::Op(Op::ReluGrad(_)) = &node.kind else { return None };
            let (dy, y) = (node.inputs[0], node.inputs[1]);
            let Kind::Op(Op::MatMul(product)) = &ir.nodes[dy.node].kind else { return None };
            let fits = uses.get(&dy) == Some(&1) && ir.meta(dy) == ir.meta(y) && masks(product, y);
            product.with_mask(ir.nodes[dy.node].inputs.len()).filter(|_| fits)
        })
        .collect();
    ir.rewrite(|new, index, mut node| {
        if let Some(fused) = &fused[index] {
            let y = node.inputs[1];
            // The product without the mask is needed no more.
            node.inputs = new.nodes[node.inputs[0].node].inputs.clone();
            node.inputs.push(y);
            node.kind = Kind::Op(fused.clone());
        }
        Ok(new.take(node))
    })
}

/// Removes nodes that nothing needs.
fn prune(ir: Ir) -> Result<Ir> {
    let mut needed = vec![false; ir.nodes.len()];
    ir.kept().for_each(|v| needed[v.node] = true);
    for index in (0..ir.nodes.len()).rev() {
        if needed[index] {
            ir.nodes[index].inputs.iter().for_each(|v| needed[v.node] = true);
        }
    }
    // A node that is not needed is not an operand either: its results are never looked up.
    ir.rewrite(|new, index, node| Ok(if needed[index] { new.take(node) } else { smallvec![] }))
}
