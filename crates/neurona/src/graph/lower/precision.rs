//! Mixed precision: matrix work in 16 bits, everything that sums or decides in f32.
//!
//! Convolutions and matrix products take 16-bit operands and sum in f32. What lies between them (batch-norm, relu,
//! pooling, residual sums) passes 16-bit images on, so that half as many bytes move; its own sums, and the statistics
//! and parameters it reads, stay f32, as do sums over 16-bit values, such as a bias's gradient. Parameters are f32 for the optimizer and are rounded where they are used, and
//! their gradients leave the matrix products as f32.

use super::super::ir::{Ir, IrNode, Kind, Value};
use super::convert;
use crate::ops::{Op, Run, reduce};
use crate::{DType, Result};
use std::collections::{HashMap, HashSet};

/// What the pass does with an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Takes 16 bits: operands below this number are rounded, the rest (weights, bias) stay f32.
    Matrix(usize),
    /// Passes images on in the type they come in; these operands are the images.
    Images(&'static [usize]),
    /// Element by element: 16 bits when all its full-size operands have them.
    Elementwise,
    /// Reads 16 bits where they come, and sums them to f32.
    Sums,
    /// Another shape of the same memory, or elements moved about.
    Moves,
    /// Needs f32.
    Wide,
}

fn class(op: &Op) -> Class {
    match op {
        // The filters are rounded while they are packed.
        Op::Conv2d(_) | Op::Conv2dInputGrad(_) => Class::Matrix(1),
        Op::Conv2dWeightGrad(_) | Op::MatMul(_) => Class::Matrix(2),
        // Makes images for what follows, of bytes.
        Op::Augment(_) => Class::Matrix(0),
        Op::BatchNormTrain(norm) if norm.affine || norm.track => Class::Images(&[0]),
        Op::BatchNormTrainGrad(norm) if norm.affine => Class::Images(&[0, 1]),
        Op::BatchNormEval(_) => Class::Images(&[0]),
        Op::MaxPool2d(_) | Op::AvgPool2d(_) | Op::AvgPool2dGrad(_) | Op::MaxPool2dGrad(_) | Op::Dropout(_) => {
            Class::Images(&[0])
        }
        Op::Add(_) | Op::Mul(_) | Op::Relu(_) | Op::ReluGrad(_) | Op::Relu6(_) | Op::Relu6Grad(_) => Class::Elementwise,
        Op::Gelu(_) | Op::GeluGrad(_) | Op::Silu(_) | Op::SiluGrad(_) => Class::Elementwise,
        Op::Hardswish(_) | Op::HardswishGrad(_) | Op::LeakyRelu(_) | Op::LeakyReluGrad(_) => Class::Elementwise,
        Op::Reduce(reduce) if matches!(reduce.how, reduce::cpu::Op::Sum | reduce::cpu::Op::Mean) => Class::Sums,
        Op::Reshape(_) | Op::Permute(_) => Class::Moves,
        _ => Class::Wide,
    }
}

/// Rewrites a graph of f32 values so that matrix work is done in `narrow`.
pub(super) fn mix(ir: Ir, narrow: DType) -> Result<Ir> {
    let wide_results = wanted_wide(&ir);
    let (roots, writes): (Vec<DType>, Vec<DType>) = (
        ir.roots.iter().map(|v| ir.meta(*v).dtype).collect(),
        ir.writes.iter().map(|w| ir.meta(w.value).dtype).collect(),
    );
    let mut rounded = Conversions::default();
    let mut new = ir.rewrite(|new, index, mut node| {
        let Kind::Op(op) = &mut node.kind else { return Ok(new.take(node)) };
        let is = |new: &Ir, v: Value, dtype: DType| new.meta(v).dtype == dtype;
        let full = |new: &Ir, v: Value| new.meta(v).shape == node.outputs[0].shape;
        let mut class = class(op);
        if let (Class::Images(images), false) = (class, matches!(op.run(), Run::View)) {
            // What comes in f32, from something that needs f32, goes on in f32.
            if images.iter().all(|i| is(new, node.inputs[*i], DType::F32)) {
                class = Class::Wide;
            }
        }
        if class == Class::Elementwise {
            let mut images = node.inputs.iter().filter(|v| full(new, **v)).peekable();
            if images.peek().is_none() || !images.all(|v| is(new, *v, narrow)) {
                class = Class::Wide;
            }
        }
        match class {
            Class::Matrix(count) => {
                if node.outputs[0].dtype != DType::F32 {
                    return Ok(new.take(node));
                }
                match op {
                    Op::MatMul(op) => op.wide = wide_results[index],
                    Op::Conv2dWeightGrad(op) => op.wide = true,
                    Op::Augment(op) if !wide_results[index] => op.to = narrow,
                    _ => {}
                }
                for (i, v) in node.inputs.clone().into_iter().enumerate() {
                    let to = if i < count { narrow } else { DType::F32 };
                    node.inputs[i] = rounded.get(new, v, to, &node)?;
                }
            }
            Class::Images(images) => {
                for &i in images {
                    node.inputs[i] = rounded.get(new, node.inputs[i], narrow, &node)?;
                }
                // The relu of a batch-norm gradient, or a pool's saved input, comes in the images' type as it is.
            }
            Class::Elementwise => {
                for (i, v) in node.inputs.clone().into_iter().enumerate() {
                    if is(new, v, DType::F32) {
                        node.inputs[i] = rounded.get(new, v, narrow, &node)?;
                    }
                }
            }
            Class::Sums => {
                if let (Op::Reduce(op), true) = (op, rounded.made(node.inputs[0])) {
                    op.wide = true;
                }
            }
            Class::Moves => {}
            Class::Wide => {
                match op {
                    // A gradient that only matrix products and sums take.
                    Op::CrossEntropyGrad(op) if !wide_results[index] && node.outputs[0].dtype == DType::F32 => {
                        op.to = Some(narrow)
                    }
                    _ => {}
                }
                for (i, v) in node.inputs.clone().into_iter().enumerate() {
                    // Only what this pass has rounded: users' own 16-bit tensors stay what they are.
                    if is(new, v, narrow) && rounded.made(v) {
                        node.inputs[i] = rounded.get(new, v, DType::F32, &node)?;
                    }
                }
            }
        }
        let Kind::Op(op) = &node.kind else { return Ok(new.take(node)) };
        let was_wide = node.outputs[0].dtype == DType::F32;
        let added = new.add(op.clone(), &node.inputs, node.place)?;
        let results = new.results(added);
        if was_wide {
            results.iter().for_each(|v| rounded.note(new, *v, narrow));
        }
        Ok(results)
    })?;
    for (i, dtype) in roots.into_iter().enumerate() {
        let value = new.roots[i];
        new.roots[i] = back(&mut new, value, dtype)?;
    }
    for (i, dtype) in writes.into_iter().enumerate() {
        let value = new.writes[i].value;
        new.writes[i].value = back(&mut new, value, dtype)?;
    }
    Ok(new)
}

fn back(new: &mut Ir, v: Value, dtype: DType) -> Result<Value> {
    if new.meta(v).dtype == dtype {
        return Ok(v);
    }
    let node = new.nodes[v.node].clone();
    convert(new, v, dtype, &node)
}

/// For each node, whether somebody who needs f32 uses its first result: gradients of weights for the optimizer, logits
/// for the loss. A matrix product then writes its f32 sums as they are.
fn wanted_wide(ir: &Ir) -> Vec<bool> {
    let mut wide = vec![false; ir.nodes.len()];
    ir.kept().filter(|v| v.out == 0).for_each(|v| wide[v.node] = true);
    for index in (0..ir.nodes.len()).rev() {
        let node = &ir.nodes[index];
        let Kind::Op(op) = &node.kind else { continue };
        let wants = match class(op) {
            Class::Wide => true,
            Class::Matrix(_) | Class::Sums => false,
            _ => wide[index],
        };
        if wants {
            node.inputs.iter().filter(|v| v.out == 0).for_each(|v| wide[v.node] = true);
        }
    }
    wide
}

/// Values in the other type, converted once however many want them.
#[derive(Default)]
struct Conversions {
    done: HashMap<(Value, DType), Value>,
    /// Narrow values that were f32 before the pass.
    own: HashSet<Value>,
}

impl Conversions {
    fn get(&mut self, new: &mut Ir, v: Value, to: DType, node: &IrNode) -> Result<Value> {
        let dtype = new.meta(v).dtype;
        if dtype == to || !dtype.is_float() || dtype == DType::F64 {
            return Ok(v);
        }
        if let Some(done) = self.done.get(&(v, to)) {
            return Ok(*done);
        }
        let result = convert(new, v, to, node)?;
        self.done.insert((v, to), result);
        if to != DType::F32 {
            self.own.insert(result);
        }
        Ok(result)
    }

    fn note(&mut self, new: &Ir, v: Value, narrow: DType) {
        if new.meta(v).dtype == narrow {
            self.own.insert(v);
        }
    }

    fn made(&self, v: Value) -> bool {
        self.own.contains(&v)
    }
}
