//! Chooses the order of images in memory. Kernels on images want channels last: the values that a
//! convolution multiplies with one filter then lie side by side, for any stride and padding.

use crate::Result;
use crate::graph::ir::{Ir, Kind, Layout, Value};
use crate::ops::{Op, Run, layout::ToLayout};
use crate::tensor::Meta;
use smallvec::smallvec;
use std::collections::HashMap;

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
        let node = ir.add(Op::ToLayout(ToLayout { to }), &[v], ir.nodes[v.node].place.clone())?;
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
