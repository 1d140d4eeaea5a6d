//! From a file's graph to a module: names become places, weights become parameters, and what does not depend on the
//! input is computed once.

use super::attributes::Options;
use super::module::{OnnxModule, Step, Weight, WeightCell};
use super::ops::{self, Built, Call};
use super::{proto, tensor};
use crate::graph::engine;
use crate::nn::{Buffer, Mode, Parameter};
use crate::{DType, ModuleName, Tensor};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Elements that constants may have which a file computes instead of holding them.
const MOST_COMPUTED: usize = 1 << 24;

struct Loader<'a> {
    places: HashMap<&'a str, usize>,
    constants: HashMap<usize, Tensor>,
    weights: Vec<Weight>,
    taken: HashSet<String>,
    steps: Vec<Step>,
    computed: usize,
}

pub(super) fn load(model: proto::Model, folder: Option<&Path>) -> Result<OnnxModule, String> {
    let graph = model.graph.as_ref().ok_or("has no graph: it is not an ONNX file")?;
    let own = |set: &&proto::OperatorSet| is_standard(&set.domain);
    let opset = model.opset_import.iter().find(own).ok_or("does not say which operators it uses")?.version;
    if opset < 7 {
        return Err(format!("uses operators of version {opset}; export it with version 17 or newer"));
    }
    let initial: HashMap<&str, &proto::Tensor> = graph.initializer.iter().map(|t| (t.name.as_str(), t)).collect();
    let inputs: Vec<&proto::ValueInfo> =
        graph.input.iter().filter(|i| !initial.contains_key(i.name.as_str())).collect();
    let ([input], [output]) = (&inputs[..], &graph.output[..]) else {
        let (i, o) = (inputs.len(), graph.output.len());
        return Err(format!("has {i} inputs and {o} outputs; a classifier has one of each"));
    };
    let mut loader = Loader {
        places: HashMap::new(),
        constants: HashMap::new(),
        weights: Vec::new(),
        taken: HashSet::new(),
        steps: Vec::new(),
        computed: 0,
    };
    let place_of_input = loader.place(&input.name)?;
    loader.initializers(graph, folder)?;
    for (i, node) in graph.node.iter().enumerate() {
        let label = label(node, i);
        loader.node(node, opset, &label).map_err(|problem| format!("node {label} ({}): {problem}", node.op_type))?;
    }
    let output = loader.find(&output.name)?;
    let notes = model.metadata_props.iter().map(|e| (e.key.clone(), e.value.clone())).collect();
    let Loader { places, constants, weights, steps, .. } = loader;
    Ok(OnnxModule {
        weights,
        values: places.len(),
        constants: needed(constants, &steps, output),
        steps,
        input: place_of_input,
        output,
        input_shape: shape_of(input),
        notes,
        mode: Mode::default(),
    })
}

/// Only constants that a step reads are carried along.
fn needed(constants: HashMap<usize, Tensor>, steps: &[Step], output: usize) -> Vec<(usize, Tensor)> {
    let read: HashSet<usize> = steps.iter().flat_map(|s| s.inputs.iter().flatten().copied()).chain([output]).collect();
    constants.into_iter().filter(|(place, _)| read.contains(place)).collect()
}

fn is_standard(domain: &str) -> bool {
    matches!(domain, "" | "ai.onnx")
}

fn label(node: &proto::Node, place: usize) -> String {
    [&node.name].into_iter().chain(&node.output).find(|n| !n.is_empty()).cloned().unwrap_or(format!("{place}"))
}

fn shape_of(input: &proto::ValueInfo) -> Vec<Option<usize>> {
    let shape = input.of.as_ref().and_then(|t| t.tensor.as_ref()).and_then(|t| t.shape.as_ref());
    let size = |d: &proto::Dimension| d.size.filter(|n| *n > 0).and_then(|n| usize::try_from(n).ok());
    shape.map_or_else(Vec::new, |shape| shape.dim.iter().map(size).collect())
}

/// What becomes of an initializer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Constant,
    Weight,
    Statistic,
}

/// By the operators that use it: running statistics are not trained, and neither are limits, sizes and factors.
fn role(node: &proto::Node, operand: usize, elements: usize) -> Role {
    let weight = match node.op_type.as_str() {
        "BatchNormalization" if operand >= 3 => return Role::Statistic,
        "Conv"
        | "Gemm"
        | "MatMul"
        | "BatchNormalization"
        | "LayerNormalization"
        | "GroupNormalization"
        | "InstanceNormalization"
        | "PRelu" => true,
        "Add" | "Sub" | "Mul" | "Div" | "Sum" | "Concat" => elements > 1,
        "Gather" | "Expand" | "Reshape" | "Transpose" | "Unsqueeze" | "Squeeze" | "Slice" | "Split" | "Tile"
        | "Identity" => operand == 0 && elements > 1,
        "Where" => operand > 0 && elements > 1,
        _ => false,
    };
    if weight { Role::Weight } else { Role::Constant }
}

impl<'a> Loader<'a> {
    /// A place for a value that is new.
    fn place(&mut self, name: &'a str) -> Result<usize, String> {
        let place = self.places.len();
        match self.places.insert(name, place) {
            None => Ok(place),
            Some(_) => Err(format!("the value '{name}' is made twice")),
        }
    }

    fn find(&self, name: &str) -> Result<usize, String> {
        let missing = || format!("the value '{name}' is used, but nothing before makes it");
        self.places.get(name).copied().ok_or_else(missing)
    }

    fn initializers(&mut self, graph: &'a proto::Graph, folder: Option<&Path>) -> Result<(), String> {
        let mut roles: HashMap<&str, Role> = HashMap::new();
        let elements: HashMap<&str, usize> = graph
            .initializer
            .iter()
            .map(|t| (t.name.as_str(), t.dims.iter().fold(1usize, |n, &d| n.saturating_mul(d.max(0) as usize))))
            .collect();
        for node in &graph.node {
            for (operand, name) in node.input.iter().enumerate() {
                if let Some(&elements) = elements.get(name.as_str()) {
                    let role = role(node, operand, elements);
                    let known = roles.entry(name).or_insert(role);
                    *known = role.max(*known);
                }
            }
        }
        for initializer in &graph.initializer {
            let name = initializer.name.as_str();
            let wrong = |problem: String| format!("tensor {name}: {problem}");
            let place = self.place(name)?;
            let value = tensor::read(initializer, folder).map_err(wrong)?;
            let trainable = value.dtype().is_float() && value.rank() > 0;
            let cell = match roles.get(name) {
                Some(Role::Weight) if trainable => Parameter::new(&value).map(WeightCell::Parameter),
                Some(Role::Statistic) => Buffer::new(&value).map(WeightCell::Buffer),
                // What no node uses is not part of the network.
                Some(_) => {
                    self.constants.insert(place, value);
                    continue;
                }
                None => continue,
            };
            let cell = cell.map_err(|e| wrong(e.to_string()))?;
            self.taken.insert(name.into());
            self.weights.push(Weight { name: name.into(), cell, value: Some(place) });
        }
        Ok(())
    }

    fn node(&mut self, node: &'a proto::Node, opset: i64, label: &str) -> Result<(), String> {
        if !is_standard(&node.domain) {
            return Err(format!("operators of the domain '{}' are not known here", node.domain));
        }
        let find = |name: &String| if name.is_empty() { Ok(None) } else { self.find(name).map(Some) };
        let inputs = node.input.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let options = Options { node, opset };
        let Built { run, outputs: made, cheap } = match node.op_type.as_str() {
            "BatchNormalization" => self.batch_norm(&options, &inputs, label)?,
            _ => ops::build(&options)?,
        };
        let mut outputs = Vec::with_capacity(made);
        for name in node.output.iter().take(made) {
            outputs.push(if name.is_empty() { None } else { Some(self.place(name)?) });
        }
        let known = |i: &Option<usize>| i.is_none_or(|i| self.constants.contains_key(&i));
        if !cheap || !inputs.iter().all(known) {
            self.steps.push(Step { name: ModuleName::new(label), run, inputs, outputs });
            return Ok(());
        }
        let operands: Vec<Option<Tensor>> =
            inputs.iter().map(|i| i.and_then(|i| self.constants.get(&i).cloned())).collect();
        let results = run(&Call { inputs: &operands, training: false }).map_err(|e| e.to_string())?;
        for (place, result) in outputs.iter().zip(results) {
            if let Some(place) = *place {
                self.computed = self.computed.saturating_add(result.numel());
                if self.computed > MOST_COMPUTED {
                    return Err(format!("computes constants of more than {MOST_COMPUTED} elements"));
                }
                let value = engine::value(&result).map_err(|e| e.to_string())?;
                self.constants.insert(place, Tensor::of_storage(result.meta().clone(), value));
            }
        }
        Ok(())
    }

    /// Batch norm keeps its statistics itself, so that they can go on in training.
    fn batch_norm(&mut self, options: &Options<'_>, inputs: &[Option<usize>], label: &str) -> Result<Built, String> {
        let statistic = |operand: usize| -> Result<(Buffer, String), String> {
            let place = inputs.get(operand).copied().flatten().ok_or("running statistics are missing")?;
            let found = self.weights.iter().find(|w| w.value == Some(place));
            if let Some(Weight { cell: WeightCell::Buffer(buffer), name, .. }) = found {
                return Ok((buffer.clone(), name.clone()));
            }
            let value = self.constants.get(&place).ok_or("running statistics must be constants")?;
            let buffer = Buffer::new(value).map_err(|e| e.to_string())?;
            Ok((buffer, format!("{label}.running")))
        };
        let ((mean, name), (var, _)) = (statistic(3)?, statistic(4)?);
        let batches =
            Buffer::new(&Tensor::zeros((), DType::I64).map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
        let counter =
            format!("{}num_batches_tracked", name.strip_suffix("running_mean").unwrap_or(&format!("{name}.")));
        // Two layers may share their statistics.
        if self.taken.insert(counter.clone()) {
            self.weights.push(Weight { name: counter, cell: WeightCell::Buffer(batches.clone()), value: None });
        }
        ops::batch_norm(options, mean, var, batches)
    }
}
