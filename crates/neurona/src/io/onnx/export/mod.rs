//! Models as ONNX files: a walk over the graph that a forward pass traces.

mod fold;
mod graph;
mod layers;
mod movement;
mod ops;
mod trace;
mod write;

use super::proto;
use crate::nn::{Forward, InEvaluation};
use crate::{DType, Error, Result, Shape, Tensor, no_grad};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// How a model becomes an ONNX file.
///
/// ```
/// use neurona::io::onnx::Export;
/// let options = Export::new([3, 32, 32]).batch(1).fold_batch_norm(true).note("classes", "cat,dog");
/// assert_eq!(options.batch, Some(1));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Export {
    /// The sizes of one input, without the batch.
    pub input: Shape,
    /// The element type of the input.
    pub dtype: DType,
    /// How many inputs a batch has; `None` leaves it open.
    pub batch: Option<usize>,
    /// Whether batch norms are multiplied into the convolutions and linear layers before them.
    pub fold_batch_norm: bool,
    /// The version of ONNX's operators, one of [`Export::OPSETS`].
    pub opset: i64,
    /// The name of the input.
    pub input_name: String,
    /// The name of the output.
    pub output_name: String,
    /// What else the file says about the model: its class names, how its images were normalised.
    pub notes: BTreeMap<String, String>,
}

impl Export {
    /// The versions of ONNX's operators that can be written.
    pub const OPSETS: std::ops::RangeInclusive<i64> = 17..=21;

    /// For inputs of this shape, batches of any size, and operators of version 17.
    pub fn new(input: impl Into<Shape>) -> Self {
        Export {
            input: input.into(),
            dtype: DType::F32,
            batch: None,
            fold_batch_norm: false,
            opset: *Export::OPSETS.start(),
            input_name: "input".into(),
            output_name: "logits".into(),
            notes: BTreeMap::new(),
        }
    }

    /// The same for batches of this size only; `None` for batches of any size.
    pub fn batch(mut self, batch: impl Into<Option<usize>>) -> Self {
        self.batch = batch.into();
        self
    }

    /// The same with batch norms multiplied into what comes before them, or not.
    pub fn fold_batch_norm(mut self, fold: bool) -> Self {
        self.fold_batch_norm = fold;
        self
    }

    /// The same with operators of this version.
    pub fn opset(mut self, opset: i64) -> Self {
        self.opset = opset;
        self
    }

    /// The same for inputs of another element type.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// The same with other names for input and output.
    pub fn names(mut self, input: &str, output: &str) -> Self {
        (self.input_name, self.output_name) = (input.into(), output.into());
        self
    }

    /// The same with something else said about the model.
    pub fn note(mut self, key: &str, value: &str) -> Self {
        self.notes.insert(key.into(), value.into());
        self
    }

    fn check(&self) -> Result<()> {
        let wrong = |problem: String| Err(Error::Argument(problem));
        if !Export::OPSETS.contains(&self.opset) {
            let (first, last) = (Export::OPSETS.start(), Export::OPSETS.end());
            return wrong(format!("operators of version {first} to {last} can be written, not {}", self.opset));
        }
        if self.input_name.is_empty() || self.output_name.is_empty() || self.input_name == self.output_name {
            return wrong("input and output need names, and not the same".into());
        }
        if self.batch == Some(0) {
            return wrong("a batch needs at least one input".into());
        }
        Ok(())
    }
}

/// Writes a model to an ONNX file, as it computes in evaluation. Parameters keep their names.
///
/// ```
/// use neurona::{io::onnx, models::mlp};
/// # let path = std::env::temp_dir().join(format!("neurona-doc-export-{}.onnx", std::process::id()));
/// onnx::export(&mlp(&[784, 32, 10])?, &onnx::Export::new([784]).note("data", "fashion_mnist"), &path)?;
/// # std::fs::remove_file(path).ok();
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn export<F: Forward + ?Sized>(net: &F, options: &Export, path: impl AsRef<Path>) -> Result<()> {
    let graph = build(net, options)?;
    let parts = write::Parts::new(graph, options)?;
    crate::io::atomic::write(path.as_ref(), |file| parts.write(file))
}

/// The bytes of an ONNX file.
pub fn export_bytes<F: Forward + ?Sized>(net: &F, options: &Export) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let written = write::Parts::new(build(net, options)?, options)?.write(&mut bytes);
    written.map_err(|e| Error::Argument(format!("cannot write the model: {e}")))?;
    Ok(bytes)
}

fn build<F: Forward + ?Sized>(net: &F, options: &Export) -> Result<graph::Graph> {
    options.check()?;
    // Values that are still staged, of parameters after a step for instance, are computed first.
    net.state_dict()?;
    let _evaluation = InEvaluation::new(net);
    // Batches of several sizes show which sizes of the graph follow the batch's. None is 1: ones broadcast.
    let batches: &[usize] = match &options.batch {
        Some(batch) => std::slice::from_ref(batch),
        None => &[2, 3, 5],
    };
    let mut lines = Vec::with_capacity(batches.len());
    for &batch in batches {
        let shape: Shape = std::iter::once(batch).chain(options.input.iter().copied()).collect();
        // Other values each time: what the network reads of its input and makes a constant shows.
        let input = Tensor::full(shape, batch as i64 % 5, options.dtype)?;
        let output = no_grad(|| net.forward(&input))?;
        lines.push(trace::Line::new(&input, &output));
    }
    let trace = trace::Trace::new(lines, batches)?;
    let mut names = HashMap::new();
    for (name, parameter) in net.named_parameters() {
        names.entry(Arc::as_ptr(&parameter.cell().0)).or_insert(name);
    }
    for (name, buffer) in net.named_buffers() {
        names.entry(Arc::as_ptr(&buffer.cell().0)).or_insert(name);
    }
    graph::Graph::new(&trace, names, options)
}
