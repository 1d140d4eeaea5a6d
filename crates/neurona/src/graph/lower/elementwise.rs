//! Joins element-wise ops into programs, so that a chain of them is one pass over memory.

use crate::cpu::elementwise::{Access, Instruction, Operand, Program};
use crate::error::Error;
use crate::graph::ir::{Ir, IrNode, Kind, Value};
use crate::ops::{Op, Run, fused::Fused};
use crate::{DType, Result};
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;
use std::sync::Arc;

/// More ops than this would need more registers than L1 has room for.
const LONGEST: usize = 12;

/// Replaces every group of element-wise ops by one fused op.
pub(super) fn group(ir: Ir, fuse: bool) -> Result<Ir> {
    let sinks = sinks(&ir, fuse);
    let mut members: HashMap<usize, Vec<usize>> = HashMap::new();
    sinks.iter().enumerate().filter_map(|(i, s)| s.map(|s| (s, i))).for_each(|(s, i)| {
        members.entry(s).or_default().push(i);
    });
    let old: Vec<IrNode> = ir.nodes.clone();
    let mut moved: HashMap<Value, Value> = HashMap::new();
    let mut new = Ir::default();
    for (index, mut node) in ir.nodes.into_iter().enumerate() {
        match sinks[index] {
            Some(sink) if sink != index => continue,
            Some(_) => {
                let result = emit(&mut new, &old, &members[&index], &moved)?;
                moved.insert(Value { node: index, out: 0 }, result);
            }
            None => {
                node.inputs.iter_mut().for_each(|v| *v = moved[v]);
                for (out, v) in new.take(node).into_iter().enumerate() {
                    moved.insert(Value { node: index, out }, v);
                }
            }
        }
    }
    new.roots = ir.roots.iter().map(|v| moved[v]).collect();
    new.writes = ir
        .writes
        .into_iter()
        .map(|mut w| {
            w.value = moved[&w.value];
            w
        })
        .collect();
    Ok(new)
}

/// For each element-wise node, the node whose program it becomes part of: the one that alone uses it.
fn sinks(ir: &Ir, fuse: bool) -> Vec<Option<usize>> {
    let users = ir.users();
    let mut kept = vec![false; ir.nodes.len()];
    ir.kept().for_each(|v| kept[v.node] = true);
    let mut sinks: Vec<Option<usize>> = vec![None; ir.nodes.len()];
    let mut size = vec![0; ir.nodes.len()];
    for index in (0..ir.nodes.len()).rev() {
        let node = &ir.nodes[index];
        let elementwise = matches!(&node.kind, Kind::Op(op) if matches!(op.run(), Run::Elementwise(_)));
        if !elementwise {
            continue;
        }
        let joined = users[index].first().and_then(|&u| sinks[u]).filter(|&sink| {
            fuse && !kept[index]
                && size[sink] < LONGEST
                && users[index].iter().all(|&u| sinks[u] == Some(sink))
                && ir.nodes[sink].outputs[0].shape == node.outputs[0].shape
                && ir.nodes[sink].layouts[0] == node.layouts[0]
        });
        let sink = joined.unwrap_or(index);
        size[sink] += 1;
        sinks[index] = Some(sink);
    }
    sinks
}

/// Writes the program of a group; its last member gives the result.
fn emit(new: &mut Ir, old: &[IrNode], members: &[usize], moved: &HashMap<Value, Value>) -> Result<Value> {
    let last = &old[*members.last().expect("a group has its sink")];
    let shape: SmallVec<[usize; 4]> =
        super::super::ir::Operand { meta: last.outputs[0].clone(), layout: last.layouts[0], lasting: false }
            .physical()
            .iter()
            .copied()
            .collect();
    let mut operands: Vec<Value> = Vec::new();
    for v in members.iter().flat_map(|m| &old[*m].inputs) {
        if !members.contains(&v.node) && !operands.contains(v) {
            operands.push(*v);
        }
    }
    let register = |v: &Value| -> u16 {
        let place = operands.iter().position(|o| o == v);
        place.unwrap_or_else(|| operands.len() + members.iter().position(|m| *m == v.node).unwrap_or(0)) as u16
    };
    let mut instructions = Vec::with_capacity(members.len());
    let mut names = Vec::with_capacity(members.len());
    for m in members {
        let node = &old[*m];
        let Kind::Op(op) = &node.kind else { continue };
        let Run::Elementwise(elementwise) = op.run() else { continue };
        let types: SmallVec<[DType; 3]> =
            node.inputs.iter().map(|v| old[v.node].outputs[v.out].dtype.compute()).collect();
        let dtype = node.outputs[0].dtype;
        let tile = (elementwise.tile)(op, &types, dtype.compute())
            .ok_or_else(|| Error::op(op.name(), format!("is not there for {}", types[0])).at(node.place))?;
        let cuda = (elementwise.cuda)(op, &types, dtype.compute());
        instructions.push(Instruction { tile, cuda, args: node.inputs.iter().map(register).collect(), dtype });
        names.push(op.name());
    }
    let inputs: SmallVec<[Value; 4]> = operands.iter().map(|v| moved[v]).collect();
    let program = Program {
        operands: inputs.iter().map(|v| access(new, *v, last)).collect(),
        shape,
        instructions,
        results: vec![(operands.len() + members.len() - 1) as u16],
    };
    let op = Op::Fused(Fused { program: Arc::new(program), name: names.join("·") });
    let node = new.push(Kind::Op(op), inputs, smallvec![last.outputs[0].clone()], last.place);
    new.nodes[node].layouts = last.layouts.clone();
    Ok(Value { node, out: 0 })
}

/// How an operand is read while the program runs over the result in memory order.
fn access(ir: &Ir, v: Value, result: &IrNode) -> Operand {
    let operand = ir.operand(v);
    let shape = &result.outputs[0].shape;
    let dtype = operand.meta.dtype;
    if operand.meta.shape == *shape {
        return Operand { access: Access::Full, dtype };
    }
    if operand.meta.shape.numel() == 1 {
        return Operand { access: Access::Scalar, dtype };
    }
    let own = operand.meta.shape.strides();
    let skipped = shape.len() - operand.meta.shape.len();
    let mut strides: SmallVec<[usize; 4]> = (0..shape.len())
        .map(|d| match d.checked_sub(skipped) {
            Some(e) if operand.meta.shape[e] != 1 => own[e],
            _ => 0,
        })
        .collect();
    if result.layouts[0] == crate::graph::ir::Layout::ChannelsLast {
        strides = smallvec![strides[0], strides[2], strides[3], strides[1]];
    }
    Operand { access: Access::Strided(strides), dtype }
}
