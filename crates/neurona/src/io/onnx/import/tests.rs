//! Files that are damaged or made to do harm.

use super::*;
use crate::io::onnx::{Export, export_bytes};
use crate::models::{Lab, mlp};
use crate::nn::{Forward, Module};
use crate::{DType, Tensor};

fn value(name: &str) -> proto::ValueInfo {
    proto::ValueInfo { name: name.into(), of: None }
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> proto::Node {
    let own = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
    proto::Node {
        input: own(inputs),
        output: own(outputs),
        name: format!("the_{op}"),
        op_type: op.into(),
        ..Default::default()
    }
}

fn floats(name: &str, dims: &[i64], bytes: usize) -> proto::Tensor {
    proto::Tensor {
        dims: dims.to_vec(),
        data_type: 1,
        name: name.into(),
        raw_data: vec![0; bytes].into(),
        ..Default::default()
    }
}

fn ints(name: &str, values: &[i64]) -> proto::Tensor {
    let dims = vec![values.len() as i64];
    proto::Tensor { dims, data_type: 7, name: name.into(), int64_data: values.to_vec(), ..Default::default() }
}

fn model(nodes: Vec<proto::Node>, tensors: Vec<proto::Tensor>) -> proto::Model {
    proto::Model {
        ir_version: 8,
        graph: Some(proto::Graph {
            node: nodes,
            initializer: tensors,
            input: vec![value("x")],
            output: vec![value("y")],
            ..Default::default()
        }),
        opset_import: vec![proto::OperatorSet { domain: String::new(), version: 17 }],
        ..Default::default()
    }
}

fn complaint(model: &proto::Model) -> String {
    match import_bytes(&model.encode_to_vec()) {
        Ok(net) => match net.forward(&Tensor::ones([1, 2], DType::F32).unwrap()).and_then(|y| y.to_vec::<f32>()) {
            Ok(_) => panic!("nothing was wrong"),
            Err(e) => e.to_string(),
        },
        Err(e) => e.to_string(),
    }
}

#[test]
fn errors_name_the_node_or_tensor() {
    let add = |a: &str| node("Add", &["x", a], &["y"]);
    let cases = [
        (model(vec![node("Frobnicate", &["x"], &["y"])], vec![]), "node the_Frobnicate (Frobnicate): this operator"),
        (
            model(vec![proto::Node { domain: "com.microsoft".into(), ..node("Gelu", &["x"], &["y"]) }], vec![]),
            "(Gelu): operators of the domain 'com.microsoft'",
        ),
        (model(vec![add("nowhere")], vec![]), "node the_Add (Add): the value 'nowhere' is used, but nothing before"),
        (model(vec![node("Add", &["x"], &["y"])], vec![]), "node the_Add (Add): operand 1 is missing"),
        // A circle: each needs the other first.
        (model(vec![node("Relu", &["b"], &["a"]), node("Relu", &["a"], &["b"])], vec![]), "the value 'b' is used"),
        (model(vec![node("Relu", &["x"], &["x"])], vec![]), "the value 'x' is made twice"),
        (model(vec![], vec![]), "the value 'y' is used"),
        (model(vec![add("w")], vec![floats("w", &[2], 7)]), "tensor w: has 7 bytes for the shape [2]"),
        (model(vec![add("w")], vec![floats("w", &[1 << 40, 1 << 40], 8)]), "tensor w: claims the shape"),
        (model(vec![add("w")], vec![floats("w", &[1 << 31], 8)]), "tensor w: has 8 bytes"),
        (model(vec![add("w")], vec![floats("w", &[-1], 4)]), "tensor w: claims the shape [-1]"),
        (model(vec![add("w")], vec![floats("w", &[1; 100], 4)]), "tensor w: has 100 dimensions"),
        (model(vec![add("w")], vec![floats("w", &[0, 1 << 50], 0)]), "tensor w:"),
        (
            model(vec![add("w")], vec![proto::Tensor { data_type: 8, ..floats("w", &[1], 4) }]),
            "tensor w: has elements of type 8",
        ),
        (
            model(vec![node("ConstantOfShape", &["s"], &["c"]), add("c")], vec![ints("s", &[1 << 15, 1 << 15])]),
            "node the_ConstantOfShape (ConstantOfShape): computes constants of more than",
        ),
        (
            model(vec![node("ConstantOfShape", &["s"], &["c"]), add("c")], vec![ints("s", &[i64::MAX, i64::MAX])]),
            "node the_ConstantOfShape",
        ),
        (model(vec![node("Reshape", &["x", "s"], &["y"])], vec![ints("s", &[-1, i64::MAX])]), "reshape at the_Reshape"),
        (
            model(vec![node("Reshape", &["x", "s"], &["y"])], vec![ints("s", &[-7])]),
            "at the_Reshape: [-7] are no sizes",
        ),
        (model(vec![node("Pad", &["x", "s"], &["y"])], vec![ints("s", &[0, -1, 0, 0])]), "pad at the_Pad"),
        (model(vec![node("Pad", &["x", "s"], &["y"])], vec![ints("s", &[0, i64::MAX, 0, i64::MAX])]), "the_Pad"),
        (model(vec![node("Expand", &["x", "s"], &["y"])], vec![ints("s", &[1 << 40, 1 << 40, 2])]), "at the_Expand"),
        (model(vec![node("Tile", &["x", "s"], &["y"])], vec![ints("s", &[i64::MAX, i64::MAX])]), "at the_Tile"),
        (model(vec![node("Gather", &["x", "s"], &["y"])], vec![ints("s", &[99])]), "at the_Gather"),
        (
            model(vec![node("Slice", &["x", "s", "s", "s", "z"], &["y"])], vec![ints("s", &[0]), ints("z", &[0])]),
            "at the_Slice: the step must not be 0",
        ),
        (model(vec![node("Transpose", &["x"], &["t"]), node("Conv", &["t", "t"], &["y"])], vec![]), "conv at the_Conv"),
        (proto::Model { graph: None, ..model(vec![], vec![]) }, "has no graph"),
        (proto::Model { opset_import: vec![], ..model(vec![], vec![]) }, "does not say which operators"),
    ];
    for (model, wanted) in cases {
        let text = complaint(&model);
        assert!(text.contains(wanted), "{text} should contain {wanted}");
    }
    let mut two = model(vec![node("Relu", &["x"], &["y"])], vec![]);
    two.graph.as_mut().unwrap().input.push(value("z"));
    assert!(complaint(&two).contains("has 2 inputs and 1 outputs"));
}

#[test]
fn other_files_are_those_of_the_folder_only() {
    let folder = std::env::temp_dir().join(format!("neurona-onnx-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("inside")).unwrap();
    std::fs::write(folder.join("secret"), [0; 64]).unwrap();
    std::fs::write(folder.join("inside/weights"), [0; 64]).unwrap();
    let entry = |key: &str, value: &str| proto::Entry { key: key.into(), value: value.into() };
    let read = |location: &str, offset: &str, length: &str| {
        let external = vec![entry("location", location), entry("offset", offset), entry("length", length)];
        let tensor = proto::Tensor { external_data: external, data_location: 1, ..floats("w", &[2], 0) };
        let path = folder.join("inside/model.onnx");
        std::fs::write(&path, model(vec![node("Add", &["x", "w"], &["y"])], vec![tensor]).encode_to_vec()).unwrap();
        import(path).map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(read("weights", "8", "8"), Ok(()));
    assert_eq!(read("./weights", "56", "8"), Ok(()));
    let outside = "which is not in the model's folder";
    let absolute = folder.join("secret").display().to_string();
    for (location, offset, length, wanted) in [
        ("../secret", "0", "8", outside),
        ("../inside/weights", "0", "8", outside),
        (absolute.as_str(), "0", "8", outside),
        ("", "0", "8", outside),
        ("weights", "60", "8", "takes 8 bytes from 60 on, but weights has only 64"),
        ("weights", "18446744073709551615", "8", "takes 8 bytes from"),
        ("weights", "0", "2000000000", "has 2000000000 bytes in weights, but its shape takes 8"),
        ("weights", "-4", "8", "has the offset '-4' in weights"),
        ("missing", "0", "8", "cannot be read from missing"),
        (".", "0", "8", ""),
    ] {
        let text = read(location, offset, length).unwrap_err();
        assert!(text.contains("tensor w: ") && text.contains(wanted), "{location}: {text}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../secret", folder.join("inside/link")).unwrap();
        assert!(read("link", "0", "8").unwrap_err().contains(outside));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn claims_cost_no_memory() {
    // A graph of two-byte nodes.
    let count = 3_000_000;
    let mut bytes = vec![0x3a];
    prost::encoding::encode_varint(2 * count, &mut bytes);
    bytes.extend([0x0a, 0].repeat(count as usize));
    assert!(import_bytes(&bytes).unwrap_err().to_string().contains("more than 2000000 parts"));
    // A length of two gigabytes, and one beyond every machine.
    for length in [2_000_000_000, u64::MAX] {
        let mut bytes = vec![0x3a];
        prost::encoding::encode_varint(length, &mut bytes);
        assert!(import_bytes(&bytes).unwrap_err().to_string().contains("was damaged"));
    }
    // Groups within groups, and graphs within graphs of attributes.
    assert!(import_bytes(&[0x0b; 100_000]).is_err());
    let mut nested = Vec::new();
    for _ in 0..2000 {
        let mut outer = vec![0x32];
        prost::encoding::encode_varint(nested.len() as u64, &mut outer);
        outer.extend(&nested);
        nested = outer;
    }
    assert!(import_bytes(&nested).is_err());
}

#[test]
fn cut_and_flipped_files_do_not_panic() {
    let bytes = export_bytes(&mlp(&[4, 3, 2]).unwrap(), &Export::new([4])).unwrap();
    let x = Tensor::ones([2, 4], DType::F32).unwrap();
    let mut damaged = 0;
    for length in 0..bytes.len() {
        damaged += import_bytes(&bytes[..length]).is_err() as usize;
    }
    assert!(damaged > bytes.len() / 2);
    let mut copy = bytes.clone();
    for place in 0..bytes.len() {
        for bit in 0..8 {
            copy[place] ^= 1 << bit;
            if let Ok(net) = import_bytes(&copy) {
                // What is still a network runs, or says why not.
                let _ = net.forward(&x).and_then(|y| y.to_vec::<f32>());
            }
            copy[place] ^= 1 << bit;
        }
    }
    let big = export_bytes(&Lab::new().unwrap(), &Export::new([3, 32, 32])).unwrap();
    for seed in 0..200u64 {
        let place = crate::tensor::random::mix(seed) as usize % big.len();
        let mut copy = big.clone();
        copy[place] ^= 1 << (seed % 8);
        let _ = import_bytes(&copy).map(|net| net.num_parameters());
    }
}
