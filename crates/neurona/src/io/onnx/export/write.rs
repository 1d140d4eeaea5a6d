//! Bytes of an ONNX file. Tensors go from where they are to the file, without a copy of the model in between.

use super::super::{proto, to_file};
use super::Export;
use super::graph::{Graph, Initializer};
use crate::{Error, Result};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::io::{self, Write};

/// Protobuf refuses longer messages.
const LONGEST: usize = i32::MAX as usize;

/// A file in the order it is written.
pub(super) struct Parts {
    /// Everything but the graph's tensors.
    head: Vec<u8>,
    /// Each tensor with what stands before its elements.
    tensors: Vec<(Vec<u8>, Initializer)>,
}

impl Parts {
    pub fn new(graph: Graph, options: &Export) -> Result<Parts> {
        let Graph { nodes, initializers, input, output } = graph;
        let graph = proto::Graph {
            node: nodes,
            name: "neurona".into(),
            initializer: Vec::new(),
            input: vec![input],
            output: vec![output],
        };
        let tensors: Vec<(Vec<u8>, Initializer)> = initializers.into_iter().map(|i| (before_elements(&i), i)).collect();
        let elements = |(head, i): &(Vec<u8>, Initializer)| head.len() + i.meta.bytes();
        let length = graph.encoded_len() + tensors.iter().map(elements).sum::<usize>();
        if length > LONGEST {
            return Err(Error::Argument(format!("the model has {length} bytes; an ONNX file holds at most {LONGEST}")));
        }
        let notes = options.notes.iter().map(|(k, v)| proto::Entry { key: k.clone(), value: v.clone() });
        let model = proto::Model {
            // The oldest version that knows the operators is the one that most programs read.
            ir_version: if options.opset < 19 {
                8
            } else if options.opset < 21 {
                9
            } else {
                10
            },
            producer_name: "neurona".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            graph: None,
            opset_import: vec![proto::OperatorSet { domain: String::new(), version: options.opset }],
            metadata_props: notes.collect(),
        };
        let mut head = model.encode_to_vec();
        encode_key(proto::GRAPH, WireType::LengthDelimited, &mut head);
        encode_varint(length as u64, &mut head);
        head.extend(graph.encode_to_vec());
        Ok(Parts { head, tensors })
    }

    pub fn write(&self, file: &mut dyn Write) -> io::Result<()> {
        file.write_all(&self.head)?;
        self.tensors.iter().try_for_each(|(head, tensor)| {
            file.write_all(head)?;
            file.write_all(&tensor.value.read::<u8>()[..tensor.meta.bytes()])
        })
    }
}

/// A tensor's message up to its elements, as a field of the graph.
fn before_elements(initializer: &Initializer) -> Vec<u8> {
    let message = proto::Tensor {
        dims: initializer.meta.shape.iter().map(|&n| n as i64).collect(),
        data_type: to_file(initializer.meta.dtype),
        name: initializer.name.clone(),
        ..Default::default()
    };
    let mut inside = message.encode_to_vec();
    encode_key(proto::RAW_DATA, WireType::LengthDelimited, &mut inside);
    encode_varint(initializer.meta.bytes() as u64, &mut inside);
    let mut head = Vec::with_capacity(inside.len() + 8);
    encode_key(proto::INITIALIZER, WireType::LengthDelimited, &mut head);
    encode_varint((inside.len() + initializer.meta.bytes()) as u64, &mut head);
    head.extend(inside);
    head
}
