//! The ONNX graph while it is built: nodes, constants and names.

use super::super::{proto, to_file};
use super::trace::{At, Scalar, Size, Trace};
use super::{Export, fold, ops};
use crate::cpu::storage::Storage;
use crate::graph::cell::CellInner;
use crate::graph::engine;
use crate::graph::node::Source;
use crate::tensor::{DType, Meta, Tensor};
use crate::{Error, Result};
use prost::bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A constant with its name; its elements stay where they are until the file is written.
pub(super) struct Initializer {
    pub name: String,
    pub meta: Meta,
    pub value: Arc<Storage>,
}

/// A finished graph.
pub(super) struct Graph {
    pub nodes: Vec<proto::Node>,
    pub initializers: Vec<Initializer>,
    pub input: proto::ValueInfo,
    pub output: proto::ValueInfo,
}

/// A graph that is being built.
pub(super) struct Builder<'t> {
    pub trace: &'t Trace<'t>,
    pub options: &'t Export,
    /// How often each node is used.
    pub uses: Vec<usize>,
    nodes: Vec<proto::Node>,
    initializers: Vec<Initializer>,
    cells: HashMap<*const CellInner, String>,
    names: HashMap<At, String>,
    taken: HashSet<String>,
    constants: HashMap<(Meta, Bytes), String>,
    batch: Option<String>,
    /// The node of the line that is being converted, for names.
    now: usize,
}

impl Graph {
    pub fn new(trace: &Trace<'_>, cells: HashMap<*const CellInner, String>, options: &Export) -> Result<Graph> {
        let line = trace.first();
        let mut uses = vec![0; line.nodes.len()];
        line.inputs.iter().flatten().chain([&line.output]).for_each(|at| uses[at.node] += 1);
        let mut b = Builder {
            trace,
            options,
            uses,
            nodes: Vec::new(),
            initializers: Vec::new(),
            cells,
            names: HashMap::new(),
            taken: [options.input_name.clone(), options.output_name.clone()].into(),
            constants: HashMap::new(),
            batch: None,
            now: 0,
        };
        let input = At { node: line.input.unwrap_or_default(), out: 0 };
        b.names.insert(input, options.input_name.clone());
        for node in 0..line.nodes.len() {
            b.now = node;
            // Leaves are written when an operator wants them; a layer that is folded away, never.
            if !line.inputs[node].is_empty() && !fold::waits(&b, node) {
                let result = ops::convert(&mut b, node)?;
                b.names.insert(At { node, out: 0 }, result);
            }
        }
        let made = b.value(line.output)?;
        let input = info(&options.input_name, trace.dtype(input), &trace.shape(input)?);
        let output = info(&options.output_name, trace.dtype(line.output), &trace.shape(line.output)?);
        let (nodes, initializers) = b.finish(made);
        Ok(Graph { nodes, initializers, input, output })
    }
}

fn info(name: &str, dtype: DType, shape: &[Size]) -> proto::ValueInfo {
    let dim = |size: &Size| proto::Dimension {
        size: size.known(),
        name: (*size == Size::BATCH).then(|| "batch".to_string()),
    };
    let shape = proto::TensorShape { dim: shape.iter().map(dim).collect() };
    let tensor = proto::TensorType { element: to_file(dtype), shape: Some(shape) };
    proto::ValueInfo { name: name.into(), of: Some(proto::Type { tensor: Some(tensor) }) }
}

impl<'t> Builder<'t> {
    /// The operands of a node.
    pub fn inputs(&self, node: usize) -> &'t [At] {
        &self.trace.first().inputs[node]
    }

    pub fn error(&self, problem: impl Into<String>) -> Error {
        self.trace.error(self.now, problem)
    }

    /// The sizes of a value; all must be known but for the first.
    pub fn sizes_of(&self, at: At) -> Result<Vec<Size>> {
        self.trace.shape(at)
    }

    /// A size along one dimension that must be the same for all batches.
    pub fn fixed(&self, at: At, dim: usize) -> Result<i64> {
        let size = self.trace.shape(at)?.get(dim).and_then(|size| size.known());
        size.ok_or_else(|| self.error(format!("needs a dimension {dim} that does not follow the batch's size")))
    }

    /// The number that an operand is.
    pub fn number(&self, at: At) -> Result<f64> {
        match self.trace.number(self.now, at)? {
            Scalar::Fixed(number) => Ok(number.as_f64()),
            Scalar::Follows(_) => Err(self.error("has an option that follows the batch's size")),
        }
    }

    /// The name of a value; leaves become constants of the file when first asked for.
    pub fn value(&mut self, at: At) -> Result<String> {
        if let Some(name) = self.names.get(&at) {
            return Ok(name.clone());
        }
        let node = self.trace.node(at.node).clone();
        let name = match &node.source {
            Source::Numbers(_) => self.scalar(at)?,
            _ => {
                let value = self.trace.constant(at.node)?;
                let meta = node.outputs[at.out].clone();
                match self.name_of(at) {
                    Some(wanted) => {
                        let name = self.claim(&wanted);
                        self.initializers.push(Initializer { name: name.clone(), meta, value });
                        name
                    }
                    None => self.constant(&Tensor::of_storage(meta, value))?,
                }
            }
        };
        self.names.insert(at, name.clone());
        Ok(name)
    }

    /// The name that a parameter or buffer has in the model.
    pub fn name_of(&self, at: At) -> Option<String> {
        match &self.trace.node(at.node).source {
            Source::Cell(version) => self.cells.get(&version.cell.as_ptr()).cloned(),
            _ => None,
        }
    }

    fn scalar(&mut self, at: At) -> Result<String> {
        let dtype = self.trace.dtype(at);
        match self.trace.number(at.node, at)? {
            Scalar::Fixed(number) => self.constant(&Tensor::numbers([number], Meta::new((), dtype))),
            Scalar::Follows(size) => {
                let (size, first) = (self.size(size)?, self.ints(&[0])?);
                let scalar = self.emit("Squeeze", &[&size, &first], vec![]);
                Ok(self.cast(&scalar, dtype))
            }
        }
    }

    /// A name that nothing else has.
    pub fn claim(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_string();
        let mut count = 0;
        while !self.taken.insert(name.clone()) {
            count += 1;
            name = format!("{wanted}_{count}");
        }
        name
    }

    /// A weight under its name.
    pub fn initializer(&mut self, wanted: &str, value: &Tensor) -> Result<String> {
        let name = self.claim(wanted);
        let (meta, value) = (value.meta().clone(), engine::value(value)?);
        self.initializers.push(Initializer { name: name.clone(), meta, value });
        Ok(name)
    }

    /// A constant that may be shared with whoever needs the same. It is a node of its own and not an initializer,
    /// so that readers can tell it from what is trained.
    pub fn constant(&mut self, value: &Tensor) -> Result<String> {
        let meta = value.meta();
        let raw_data = Bytes::copy_from_slice(&engine::value(value)?.read::<u8>()[..meta.bytes()]);
        let key = (meta.clone(), raw_data.clone());
        if let Some(name) = self.constants.get(&key) {
            return Ok(name.clone());
        }
        let dims = meta.shape.iter().map(|&n| n as i64).collect();
        let tensor = proto::Tensor { dims, data_type: to_file(meta.dtype), raw_data, ..Default::default() };
        let t = Some(Box::new(tensor));
        let attribute = proto::Attribute { name: "value".into(), t, kind: 4, ..Default::default() };
        let name = self.emit("Constant", &[], vec![attribute]);
        self.constants.insert(key, name.clone());
        Ok(name)
    }

    /// One number of an element type.
    pub fn one(&mut self, number: f64, dtype: DType) -> Result<String> {
        self.constant(&Tensor::numbers([number.into()], Meta::new((), dtype)))
    }

    /// A line of whole numbers.
    pub fn ints(&mut self, values: &[i64]) -> Result<String> {
        self.constant(&Tensor::from_slice(values, [values.len()])?)
    }

    /// A line of sizes, computed from the input's where they follow it.
    pub fn sizes(&mut self, sizes: &[Size]) -> Result<String> {
        let known: Option<Vec<i64>> = sizes.iter().map(|size| size.known()).collect();
        if let Some(known) = known {
            return self.ints(&known);
        }
        let parts = sizes.iter().map(|&size| self.size(size)).collect::<Result<Vec<_>>>()?;
        if let [one] = &parts[..] {
            return Ok(one.clone());
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Ok(self.emit("Concat", &parts, vec![int("axis", 0)]))
    }

    fn size(&mut self, size: Size) -> Result<String> {
        if let Some(known) = size.known() {
            return self.ints(&[known]);
        }
        let mut name = match &self.batch {
            Some(batch) => batch.clone(),
            None => {
                let input = self.options.input_name.clone();
                self.emit("Shape", &[&input], vec![int("start", 0), int("end", 1)])
            }
        };
        self.batch = Some(name.clone());
        for (op, by, neutral) in [("Mul", size.each, 1), ("Add", size.start, 0)] {
            if by != neutral {
                let by = self.ints(&[by])?;
                name = self.emit(op, &[&name, &by], vec![]);
            }
        }
        Ok(name)
    }

    pub fn cast(&mut self, x: &str, to: DType) -> String {
        self.emit("Cast", &[x], vec![int("to", to_file(to).into())])
    }

    /// Adds a node with one result; gives its name.
    pub fn emit(&mut self, op: &str, inputs: &[&str], attribute: Vec<proto::Attribute>) -> String {
        self.emit_at(op, inputs, attribute, 0)
    }

    /// Adds a node; gives the name of its last result, which `before` others precede.
    pub fn emit_at(&mut self, op: &str, inputs: &[&str], attribute: Vec<proto::Attribute>, before: usize) -> String {
        let place = &self.trace.node(self.now).place;
        let name = match &place.module {
            Some(path) if !path.is_empty() => format!("{path}/{op}"),
            _ => op.to_string(),
        };
        let name = self.claim(&name);
        let output: Vec<String> = (0..=before).map(|_| self.claim(&op.to_lowercase())).collect();
        let result = output.last().cloned().unwrap_or_default();
        let input = inputs.iter().map(|name| name.to_string()).collect();
        let op_type = op.to_string();
        self.nodes.push(proto::Node { input, output, name, op_type, attribute, domain: String::new() });
        result
    }

    /// What the result needs, in order, with the result under the output's name.
    fn finish(mut self, result: String) -> (Vec<proto::Node>, Vec<Initializer>) {
        let mut result = result;
        if !self.nodes.iter().any(|node| node.output.contains(&result)) {
            // The input itself, or a weight.
            result = self.emit("Identity", &[&result], vec![]);
        }
        let mut needed: HashSet<String> = [result.clone()].into();
        for node in self.nodes.iter().rev() {
            if node.output.iter().any(|name| needed.contains(name)) {
                needed.extend(node.input.iter().cloned());
            }
        }
        self.nodes.retain(|node| node.output.iter().any(|name| needed.contains(name)));
        self.initializers.retain(|initializer| needed.contains(&initializer.name));
        for name in self.nodes.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output)) {
            if *name == result {
                *name = self.options.output_name.clone();
            }
        }
        (self.nodes, self.initializers)
    }
}

pub(super) fn int(name: &str, value: i64) -> proto::Attribute {
    proto::Attribute { name: name.into(), i: Some(value), kind: 2, ..Default::default() }
}

pub(super) fn float(name: &str, value: f64) -> proto::Attribute {
    proto::Attribute { name: name.into(), f: Some(value as f32), kind: 1, ..Default::default() }
}

pub(super) fn string(name: &str, value: &'static str) -> proto::Attribute {
    let s = Some(Bytes::from_static(value.as_bytes()));
    proto::Attribute { name: name.into(), s, kind: 3, ..Default::default() }
}

pub(super) fn ints(name: &str, values: impl IntoIterator<Item = usize>) -> proto::Attribute {
    let ints = values.into_iter().map(|v| v as i64).collect();
    proto::Attribute { name: name.into(), ints, kind: 7, ..Default::default() }
}
