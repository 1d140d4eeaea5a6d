//! A network's first convolution in training, before batch-norm, relu and a max-pool of 2 by 2, on CPU cores: it gives the
//! windows' winners, and what is convolved is never stored, because nobody but the filters needs a gradient through it.

use super::super::ir::{Ir, Value};
use super::conv_pool::in_rows;
use super::sites::Sites;
use crate::Result;
use crate::cpu::gemm::Activation;
use crate::ops::Op;
use crate::ops::batch_norm::BatchNormTrain;
use crate::ops::conv2d::cpu::{Bands, Winners};
use crate::ops::conv2d_norm_pool::cpu::Options;
use crate::ops::conv2d_norm_pool::{Conv2dNormPoolGrad, Conv2dWinners};
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;

/// What becomes of a node.
enum Part {
    /// The convolution: there where its winners are normalised, whose scales it needs.
    Conv,
    /// The normalisation: of the winners of this convolution.
    Norm(usize, Conv2dWinners, BatchNormTrain),
    /// Its gradient: becomes that of all, for this normalisation.
    Gradient(usize, Conv2dNormPoolGrad),
    /// The filters' gradient: results of this node.
    Filters(usize),
}

/// Joins what can be joined around each first convolution.
pub(super) fn join(ir: Ir) -> Result<Ir> {
    let parts: HashMap<usize, Part> = {
        let sites = Sites::new(&ir);
        (0..ir.nodes.len()).filter_map(|norm| around(&sites, norm)).flatten().collect()
    };
    if parts.is_empty() {
        return Ok(ir);
    }
    // Operands of the convolutions, winners when they are normalised and their places, and the filters' gradients, by node.
    let mut operands: HashMap<usize, SmallVec<[Value; 4]>> = HashMap::new();
    let mut normal: HashMap<usize, [Value; 2]> = HashMap::new();
    let mut filters: HashMap<usize, SmallVec<[Value; 2]>> = HashMap::new();
    ir.rewrite(|new, index, mut node| {
        Ok(match parts.get(&index) {
            None => new.take(node),
            Some(Part::Conv) => {
                // Who reads its results reads others instead.
                let nothing = node.inputs[0];
                operands.insert(index, node.inputs);
                smallvec![nothing; 2]
            }
            Some(Part::Norm(conv, op, norm)) => {
                let mut inputs = operands[conv].clone();
                inputs.extend(norm.affine.then(|| node.inputs[1]));
                let given = new.add(op.clone().into(), &inputs, node.place)?;
                let given = new.results(given);
                let last = node.inputs.len() - 1;
                (node.inputs[0], node.inputs[last]) = (given[0], given[1]);
                let norm = new.add(norm.clone().into(), &node.inputs, node.place)?;
                normal.insert(index, [Value { node: norm, out: 0 }, given[2]]);
                new.results(norm)
            }
            Some(Part::Gradient(norm, op)) => {
                let ([pooled, places], inputs) = (normal[norm], node.inputs);
                let conv = &new.nodes[places.node].inputs;
                // Slopes, pooled images and places; deviation; images and filters; scales.
                let mut all = vec![inputs[0], pooled, places, inputs[3], conv[0], conv[1]];
                all.extend(op.options.affine.then(|| inputs[4]));
                let joined = new.add(op.clone().into(), &all, node.place)?;
                let mut results = new.results(joined);
                let affine = if op.options.affine { 2 } else { 0 };
                filters.insert(index, results.drain(affine..).collect());
                // The gradient that is not made any more had one reader, which goes.
                results.insert(0, inputs[0]);
                results
            }
            Some(Part::Filters(gradient)) => filters[gradient].clone(),
        })
    })
}

/// What to do with each node around this normalisation with a pool.
fn around(sites: &Sites<'_>, norm: usize) -> Option<Vec<(usize, Part)>> {
    let ir = sites.ir;
    let Op::BatchNormPool(op) = sites.op(norm)? else { return None };
    let x = ir.nodes[norm].inputs[0];
    let conv = x.node;
    let Op::Conv2d(convolution) = sites.op(conv)? else { return None };
    let [images, weight] = [0, 1].map(|i| ir.nodes[conv].inputs[i]);
    let affine = op.norm.affine;
    let biased = ir.nodes[conv].inputs.len() > 2;
    let from_rows = in_rows(ir, images, 4);
    let winners = Winners { scales: affine, from_rows };
    let g = convolution.options.check(ir.meta(images), ir.meta(weight)).ok()?;
    let halving = op.pool.check(ir.meta(x)).is_ok_and(|pool| pool.is_halving());
    if !convolution.statistics || !op.norm.measured || !halving || Bands::new(g, biased, Some(winners)).is_none() {
        return None;
    }
    let given = Conv2dWinners { options: convolution.options, winners };
    let norm_op = BatchNormTrain { activation: Activation::Relu, ..op.norm.clone() };
    let mut parts = vec![(conv, Part::Conv), (norm, Part::Norm(conv, given, norm_op))];
    match *sites.readers(conv, 0) {
        [only] if only == norm => {}
        [a, b] if a == norm || b == norm => {
            let gradient = if a == norm { b } else { a };
            let Op::BatchNormPoolGrad(_) = sites.op(gradient)? else { return None };
            let last = sites.reader(gradient)?;
            let Op::Conv2dWeightGrad(filters) = sites.op(last)? else { return None };
            let fits = ir.nodes[last].inputs[..] == [images, Value { node: gradient, out: 0 }]
                && ir.nodes[gradient].inputs[1] == x
                && filters.options == convolution.options
                && ir.meta(ir.nodes[gradient].inputs[0]).dtype == ir.meta(x).dtype;
            if !fits {
                return None;
            }
            let options = Options { from_rows, bias: filters.bias, affine };
            let joined = Conv2dNormPoolGrad { conv: convolution.options, options };
            parts.extend([(gradient, Part::Gradient(norm, joined)), (last, Part::Filters(gradient))]);
        }
        _ => return None,
    }
    Some(parts)
}
