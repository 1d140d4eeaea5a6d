//! A convolution whose result goes through relu into a max-pool of 2 by 2 and nowhere else: on CPU cores the three become
//! one op, and so do their gradients.

use super::super::ir::{Ir, Kind, Value};
use super::sites::Sites;
use crate::Result;
use crate::cpu::gemm::Activation;
use crate::ops::conv2d::Conv2d;
use crate::ops::conv2d_pool::{Conv2dPool, Conv2dPoolGrad, cpu};
use crate::ops::{Op, Run};
use crate::tensor::DType;
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;

/// What becomes of a node.
#[derive(Clone)]
enum Part {
    /// The convolution: becomes the op for all.
    Conv(Conv2dPool),
    /// Relu: its result is that of the op for all.
    Relu,
    /// The pool: likewise, with places as its second result.
    Pool,
    /// The gradient of pool or relu: what comes from behind passes on.
    Through,
    /// The first of the convolution's gradients: becomes the gradient of all, of this convolution and this pool.
    Gradient(Conv2dPoolGrad, usize, usize),
    /// The other one: a result of the first, which stands there.
    Other(usize),
}

/// Joins convolution, relu and max-pool, and their gradients.
pub(super) fn join(ir: Ir) -> Result<Ir> {
    let parts = parts(&ir);
    if parts.is_empty() {
        return Ok(ir);
    }
    let mut placed: Vec<SmallVec<[Value; 2]>> = Vec::with_capacity(ir.nodes.len());
    let inputs: Vec<SmallVec<[Value; 4]>> = ir.nodes.iter().map(|node| node.inputs.clone()).collect();
    ir.rewrite(|new, index, node| {
        let place = node.place;
        let by_weight = matches!(&node.kind, Kind::Op(Op::Conv2dWeightGrad(_)));
        // The results of the gradient of all, as those of one of the two.
        let of = |op: &Conv2dPoolGrad, joined: usize, by_weight: bool| -> SmallVec<[Value; 2]> {
            let weights = 1 + usize::from(op.bias);
            let outs = if by_weight { 0..weights } else { weights..weights + 1 };
            outs.map(|out| Value { node: joined, out }).collect()
        };
        let results = match parts.get(&index) {
            None => new.take(node),
            Some(Part::Conv(op)) => {
                let joined = new.add(op.clone().into(), &node.inputs, place)?;
                new.results(joined)
            }
            Some(Part::Relu) => smallvec![node.inputs[0]],
            Some(Part::Pool) => {
                let joined = node.inputs[0].node;
                smallvec![Value { node: joined, out: 0 }, Value { node: joined, out: 1 }]
            }
            Some(Part::Through) => smallvec![node.inputs[0]],
            Some(Part::Gradient(op, conv, pool)) => {
                let slopes = node.inputs[usize::from(by_weight)];
                let operand = |i: usize| {
                    let v = inputs[*conv][i];
                    placed[v.node][v.out]
                };
                let operands = [slopes, placed[*pool][1], operand(0), operand(1)];
                let joined = new.add(op.clone().into(), &operands, place)?;
                of(op, joined, by_weight)
            }
            Some(Part::Other(first)) => {
                let joined = placed[*first][0].node;
                let Kind::Op(Op::Conv2dPoolGrad(op)) = &new.nodes[joined].kind else { return Ok(new.take(node)) };
                of(op, joined, by_weight)
            }
        };
        placed.push(results.clone());
        Ok(results)
    })
}

/// The nodes of all sites where it can be done.
fn parts(ir: &Ir) -> HashMap<usize, Part> {
    let sites = Sites::new(ir);
    let pools = (0..ir.nodes.len()).filter(|&i| matches!(sites.op(i), Some(Op::MaxPool2d(_))));
    pools.filter_map(|pool| around(&sites, pool)).flatten().collect()
}

/// What to do with each node around this pool.
fn around(sites: &Sites<'_>, pool: usize) -> Option<Vec<(usize, Part)>> {
    let ir = sites.ir;
    let Op::MaxPool2d(pooling) = sites.op(pool)? else { return None };
    let relu = ir.nodes[pool].inputs[0].node;
    let Op::Relu(_) = sites.op(relu)? else { return None };
    let conv = ir.nodes[relu].inputs[0].node;
    let Op::Conv2d(op) = sites.op(conv)? else { return None };
    let (x, weight) = (ir.nodes[conv].inputs[0], ir.nodes[conv].inputs[1]);
    let halving = pooling.options.check(&ir.nodes[conv].outputs[0]).is_ok_and(|pool| pool.is_halving());
    if !halving
        || ir.meta(x).dtype != DType::F32
        || op.activation != Activation::None
        || sites.reader(conv) != Some(relu)
    {
        return None;
    }
    let g = op.options.check(ir.meta(x), ir.meta(weight)).ok()?;
    let from_rows = cpu::windows_abreast(&g) && in_rows(ir, x, 4);
    let to_rows = sites.readers(pool, 0).iter().all(|&reader| wants_rows(sites, reader, Value { node: pool, out: 0 }));
    let trains = !sites.readers(pool, 1).is_empty();
    let conv_op = Conv2d { activation: Activation::Relu, ..op.clone() };
    let bias = ir.nodes[conv].inputs.len() > 2;
    let made = |to_rows: bool| {
        cpu::forward(g, cpu::Options { bias, scaled: op.scaled, places: trains, from_rows, to_rows }).is_some()
    };
    let to_rows = to_rows && made(true);
    if !to_rows && !made(false) {
        return None;
    }
    let joined = Part::Conv(Conv2dPool { conv: conv_op, places: trains, from_rows, to_rows });
    let mut parts = vec![(conv, joined), (relu, Part::Relu), (pool, Part::Pool)];
    match (sites.readers(relu, 0), sites.readers(pool, 1)) {
        ([only], []) if *only == pool => {}
        (&[a, b], &[spread]) if cpu::gradient_pays(&g) && !op.scaled => {
            let mask = if a == pool { b } else { a };
            if mask == pool || (a != pool && b != pool) {
                return None;
            }
            // An image that the forward pass takes as it is would be turned for the gradient alone.
            let images = from_rows && cpu::lays_anew_once(&g);
            let gradients = gradients(sites, [conv, relu, pool], spread, mask, images)?;
            parts.extend([(spread, Part::Through), (mask, Part::Through)]);
            parts.extend(gradients);
        }
        _ => return None,
    }
    Some(parts)
}

/// The convolution's gradients, when `spread` and `mask` are those of pool and relu and lead to these alone; its `images` may
/// come by rows.
fn gradients(
    sites: &Sites<'_>,
    [conv, relu, pool]: [usize; 3],
    spread: usize,
    mask: usize,
    images: bool,
) -> Option<Vec<(usize, Part)>> {
    let value = |node: usize, out: usize| Value { node, out };
    let inputs = |node: usize| &sites.ir.nodes[node].inputs[..];
    let (Op::MaxPool2dGrad(_), Op::ReluGrad(_)) = (sites.op(spread)?, sites.op(mask)?) else { return None };
    let fits = sites.reader(spread) == Some(mask)
        && inputs(spread)[1] == value(pool, 1)
        && inputs(mask) == [value(spread, 0), value(relu, 0)]
        && sites.ir.meta(inputs(spread)[0]).dtype == DType::F32;
    if !fits {
        return None;
    }
    let (x, weight) = (inputs(conv)[0], inputs(conv)[1]);
    let (mut by_weight, mut by_input) = (None, None);
    for &reader in sites.readers(mask, 0) {
        match sites.op(reader)? {
            Op::Conv2dWeightGrad(op) if inputs(reader) == [x, value(mask, 0)] && by_weight.is_none() => {
                by_weight = Some((reader, op.bias, op.options));
            }
            Op::Conv2dInputGrad(_) if inputs(reader) == [value(mask, 0), weight] && by_input.is_none() => {
                by_input = Some(reader);
            }
            _ => return None,
        }
    }
    let (by_weight, bias, options) = by_weight?;
    let by_rows = cpu::ByRows { slopes: in_rows(sites.ir, inputs(spread)[0], 4), images };
    let op = Conv2dPoolGrad { options, bias, input: by_input.is_some(), by_rows, step: None };
    let first = by_weight.min(by_input.unwrap_or(by_weight));
    let mut parts = vec![(first, Part::Gradient(op, conv, pool))];
    let other = by_input.map(|by_input| by_weight.max(by_input));
    parts.extend(other.map(|other| (other, Part::Other(first))));
    Some(parts)
}

/// Whether a value's elements are in row-major order before layouts are chosen and after: what the user gave, what ops
/// that know nothing of images give, and what is made of these element by element.
pub(super) fn in_rows(ir: &Ir, v: Value, depth: usize) -> bool {
    let node = &ir.nodes[v.node];
    match &node.kind {
        Kind::Leaf(_) => true,
        Kind::Op(op) => match op.run() {
            Run::Elementwise(_) => depth > 0 && node.inputs.iter().all(|v| in_rows(ir, *v, depth - 1)),
            _ => !op.spatial().outputs.contains(&v.out),
        },
    }
}

/// Whether a reader of a value, one outside too, wants it in row-major order.
fn wants_rows(sites: &Sites<'_>, reader: usize, v: Value) -> bool {
    let Some(op) = sites.op(reader) else { return true };
    let spatial = op.spatial();
    let inputs = &sites.ir.nodes[reader].inputs;
    let images = spatial.inputs.iter().any(|&i| inputs[i] == v);
    !matches!(op.run(), Run::Elementwise(_)) && !spatial.indifferent && !images
}
