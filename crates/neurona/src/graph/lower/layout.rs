//! Chooses the order of images in memory. Kernels on images want channels last: the values that a
//! convolution multiplies with one filter then lie side by side, for any stride and padding.

use crate::Result;
use crate::graph::ir::{Ir, Kind, Layout, Value};
use crate::ops::{Op, Run, layout::ToLayout};
use crate::tensor::Meta;
use smallvec::smallvec;
use std::collections::{HashMap, HashSet};

/// Gives every value a layout, with as few conversions as the ops' wishes allow.
pub(super) fn choose(ir: Ir) -> Result<Ir> {
    let mut converted = Converted::default();
    let mut ir = ir.rewrite(|new, _, mut node| {
        let Kind::Op(op) = &node.kind else { return Ok(new.take(node)) };
        let spatial = op.spatial();
        let mut results = Layout::Rows;
        match op.run() {
            Run::Elementwise(_) => {
                let full = |new: &Ir, v: Value| new.meta(v).shape == node.outputs[0].shape;
                if node.inputs.iter().any(|v| full(new, *v) && new.layout(*v) == Layout::ChannelsLast) {
                    results = Layout::ChannelsLast;
                }
                for v in &mut node.inputs {
                    let wish = if full(new, *v) { results } else { Layout::Rows };
                    *v = converted.get(new, *v, wish)?;
                }
                node.layouts = smallvec![results; node.outputs.len()];
            }
            _ => {
                for (i, v) in node.inputs.iter_mut().enumerate() {
                    if spatial.indifferent {
                        break;
                    }
                    let wish = if spatial.inputs.contains(&i) { Layout::ChannelsLast } else { Layout::Rows };
                    *v = converted.get(new, *v, wish)?;
                }
                for (i, meta) in node.outputs.iter().enumerate() {
                    if spatial.outputs.contains(&i) && meta.shape.len() == 4 {
                        node.layouts[i] = Layout::ChannelsLast;
                    }
                }
            }
        }
        Ok(new.take(node))
    })?;
    // Whoever holds a result expects rows.
    for i in 0..ir.roots.len() {
        let v = ir.roots[i];
        ir.roots[i] = converted.get(&mut ir, v, Layout::Rows)?;
    }
    for i in 0..ir.writes.len() {
        let v = ir.writes[i].value;
        ir.writes[i].value = converted.get(&mut ir, v, Layout::Rows)?;
    }
    Ok(ir)
}

/// On a GPU a change of layout changes the element type as well, where one follows the other and nobody else wants what
/// lies between: a launch less, and one pass over memory instead of two.
pub(super) fn join_casts(ir: Ir) -> Result<Ir> {
    let users = ir.users();
    let kept: HashSet<Value> = ir.kept().collect();
    let op = |node: usize| match &ir.nodes[node].kind {
        Kind::Op(op) => Some(op),
        Kind::Leaf(_) => None,
    };
    let elementwise = |node: usize| op(node).is_some_and(|op| matches!(op.run(), Run::Elementwise(_)));
    let only_user = |v: Value| match users[v.node][..] {
        [user] if !kept.contains(&v) => Some(user),
        _ => None,
    };
    // For each node that does both: the layout and the type it gives.
    let mut joined: Vec<Option<ToLayout>> = Vec::with_capacity(ir.nodes.len());
    for (index, node) in ir.nodes.iter().enumerate() {
        let pair = || {
            let from = *node.inputs.first()?;
            only_user(from)?;
            let (layout, cast, source) = match (op(from.node)?, op(index)?) {
                (Op::Cast(cast), Op::ToLayout(layout)) => {
                    let source = ir.nodes[from.node].inputs[0];
                    // What its element-wise neighbour does in its own pass costs nothing there.
                    let free = elementwise(source.node) && only_user(source).is_some();
                    (!free).then_some((layout, cast, source))?
                }
                // One that rounded on the way has rounded: the second cast starts from there.
                (Op::ToLayout(layout), Op::Cast(cast)) if joined[from.node].is_none() => {
                    let free = !users[index].is_empty() && users[index].iter().all(|&user| elementwise(user));
                    (!free).then_some((layout, cast, from))?
                }
                _ => return None,
            };
            let floats = ir.meta(source).dtype.is_float() && cast.to.is_float();
            floats.then_some(ToLayout { to: layout.to, dtype: Some(cast.to) })
        };
        let pair = pair();
        joined.push(pair);
    }
    ir.rewrite(|new, index, mut node| {
        if let Some(both) = &joined[index] {
            // Its operand is the first of the two, which nobody needs any more.
            node.inputs[0] = new.nodes[node.inputs[0].node].inputs[0];
            node.layouts = smallvec![both.to];
            node.kind = Kind::Op(both.clone().into());
        }
        Ok(new.take(node))
    })
}

#[derive(Default)]
struct Converted(HashMap<(Value, Layout), Value>);

impl Converted {
    /// The value in this layout, converted once however many want it.
    fn get(&mut self, ir: &mut Ir, v: Value, to: Layout) -> Result<Value> {
        if ir.layout(v) == to || indifferent(ir.meta(v)) {
            return Ok(v);
        }
        if let Some(done) = self.0.get(&(v, to)) {
            return Ok(*done);
        }
        let node = ir.add(Op::ToLayout(ToLayout { to, dtype: None }), &[v], ir.nodes[v.node].place)?;
        ir.nodes[node].layouts = smallvec![to];
        let result = Value { node, out: 0 };
        self.0.insert((v, to), result);
        // Converting back gives the original.
        self.0.insert((result, ir.layout(v)), v);
        Ok(result)
    }
}

/// Whether both layouts are the same order of elements.
fn indifferent(meta: &Meta) -> bool {
    match &meta.shape[..] {
        &[_, c, h, w] => c == 1 || h * w == 1,
        _ => true,
    }
}
