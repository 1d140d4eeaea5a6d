//! What the passes join, most of them for GPUs, and what they leave alone because something else needs it. Whether the
//! results are the same is for `tests/cuda_fusion.rs`, `tests/fusion.rs` and `tests/statistics.rs`.

use super::lower;
use crate::cpu::gemm::Activation;
use crate::graph::ir::{Ir, Kind, Leaf, Value};
use crate::ops::Op;
use crate::ops::arithmetic::{Add, Mul};
use crate::ops::batch_norm::{BatchNormTrain, BatchNormTrainGrad, Mask};
use crate::ops::cast::Cast;
use crate::ops::conv2d::cpu::winograd_on;
use crate::ops::conv2d::{Conv2d, Conv2dInputGrad, Conv2dWeightGrad};
use crate::ops::cross_entropy::{CrossEntropy, CrossEntropyGrad, Reduction};
use crate::ops::matmul::MatMul;
use crate::ops::max_pool2d::MaxPool2d;
use crate::ops::reduce::{Reduce, cpu::Op as How};
use crate::ops::relu::{Relu, ReluGrad};
use crate::ops::relu6::{Relu6, Relu6Grad};
use crate::ops::sgd_step::{Options, SgdStep};
use crate::tensor::Meta;
use crate::{Conv2dOptions, DType, Device, PoolOptions, Result};
use smallvec::{SmallVec, smallvec};

/// A graph that is written down by hand.
#[derive(Default)]
struct Graph(Ir);

impl Graph {
    fn leaf(&mut self, shape: &[usize], dtype: DType) -> Value {
        let meta = Meta::new(shape.iter().copied().collect::<crate::Shape>(), dtype);
        let leaf = Kind::Leaf(Leaf::Trace(self.0.nodes.len()));
        Value { node: self.0.push(leaf, SmallVec::new(), smallvec![meta], Default::default()), out: 0 }
    }

    fn op(&mut self, op: impl Into<Op>, inputs: &[Value]) -> Result<Value> {
        Ok(Value { node: self.0.add(op.into(), inputs, Default::default())?, out: 0 })
    }

    /// What a plan of a GPU that gives these values does, step by step.
    fn steps(self, roots: &[Value], mixed: Option<DType>) -> Result<Vec<String>> {
        self.steps_on(Device::Cuda(0), roots, mixed)
    }

    fn steps_on(mut self, device: Device, roots: &[Value], mixed: Option<DType>) -> Result<Vec<String>> {
        self.0.roots = roots.to_vec();
        let lowered = lower(self.0, true, device, mixed)?;
        let op = |kind: Kind| if let Kind::Op(op) = kind { Some(op.describe()) } else { None };
        Ok(lowered.nodes.into_iter().filter_map(|node| op(node.kind)).collect())
    }
}

fn convolution() -> Conv2d {
    Conv2d { options: Conv2dOptions::default(), activation: Activation::None, scaled: false, statistics: false }
}

#[test]
fn images_change_layout_and_type_at_once() -> Result<()> {
    let mut graph = Graph::default();
    let (x, w) = (graph.leaf(&[2, 3, 8, 8], DType::F32), graph.leaf(&[16, 3, 3, 3], DType::F32));
    let y = graph.op(convolution(), &[x, w])?;
    let steps = graph.steps(&[y], Some(DType::BF16))?;
    assert_eq!(steps, ["to_nhwc·to_bf16", "conv2d", "to_nchw·to_f32"]);
    Ok(())
}

#[test]
fn a_rounded_image_that_others_read_stays() -> Result<()> {
    let mut graph = Graph::default();
    let (x, w) = (graph.leaf(&[2, 3, 8, 8], DType::F32), graph.leaf(&[16, 3, 3, 3], DType::BF16));
    let rounded = graph.op(Cast { to: DType::BF16 }, &[x])?;
    let y = graph.op(convolution(), &[rounded, w])?;
    assert_eq!(graph.steps(&[y, rounded], None)?, ["to_dtype", "to_nhwc", "conv2d", "to_nchw"]);
    Ok(())
}

#[test]
fn a_cast_stays_in_a_pass_that_is_there_anyway() -> Result<()> {
    let mut graph = Graph::default();
    let (x, w) = (graph.leaf(&[2, 3, 8, 8], DType::F32), graph.leaf(&[16, 3, 3, 3], DType::BF16));
    let kept = graph.op(Relu, &[x])?;
    let rounded = graph.op(Cast { to: DType::BF16 }, &[kept])?;
    let y = graph.op(convolution(), &[rounded, w])?;
    assert_eq!(graph.steps(&[y], None)?, ["relu·to_dtype", "to_nhwc", "conv2d", "to_nchw"]);
    Ok(())
}

#[test]
fn what_is_rounded_twice_is_rounded_twice() -> Result<()> {
    let mut graph = Graph::default();
    let (x, w) = (graph.leaf(&[2, 3, 8, 8], DType::F32), graph.leaf(&[16, 3, 3, 3], DType::F32));
    let rounded = graph.op(Cast { to: DType::F16 }, &[x])?;
    let wide = graph.op(Cast { to: DType::F32 }, &[rounded])?;
    let y = graph.op(convolution(), &[wide, w])?;
    assert_eq!(graph.steps(&[y], None)?, ["to_dtype·to_dtype", "to_nhwc", "conv2d", "to_nchw"]);
    Ok(())
}

/// A layer between two others, forth and back. Gives the graph, the layers' result and the gradients by the first
/// layer's weight and bias.
fn layers() -> Result<(Graph, [Value; 3])> {
    let mut graph = Graph::default();
    let [x, first, bias, second, dy] =
        [vec![8, 16], vec![24, 16], vec![24], vec![10, 24], vec![8, 10]].map(|shape| graph.leaf(&shape, DType::F32));
    let hidden = graph.op(MatMul::new(false, true), &[x, first, bias])?;
    let hidden = graph.op(Relu, &[hidden])?;
    let y = graph.op(MatMul::new(false, true), &[hidden, second])?;
    let back = graph.op(MatMul::new(false, false), &[dy, second])?;
    let back = graph.op(ReluGrad, &[back, hidden])?;
    let by_weight = graph.op(MatMul::new(true, false), &[back, x])?;
    let sum = Reduce { how: How::Sum, reduced: smallvec![true, false], wide: false };
    let by_bias = graph.op(sum, &[back])?;
    Ok((graph, [y, by_weight, by_bias]))
}

#[test]
fn products_write_16_bits_for_those_who_take_them() -> Result<()> {
    let (graph, roots) = layers()?;
    let steps = graph.steps(&roots, Some(DType::BF16))?;
    // What is rounded are the leaves: x, two weights, dy.
    assert_eq!(steps.iter().filter(|step| *step == "to_dtype").count(), 4, "{steps:?}");
    let products = ["matmul abᵀ·relu", "matmul abᵀ", "matmul ab·relu_grad", "matmul aᵀb", "sum"];
    assert_eq!(steps.iter().filter(|step| *step != "to_dtype").collect::<Vec<_>>(), products.each_ref());
    Ok(())
}

#[test]
fn a_product_that_others_need_is_masked_behind_it() -> Result<()> {
    let (graph, [y, by_weight, by_bias]) = layers()?;
    let back = graph.0.nodes.iter().position(|node| matches!(node.kind, Kind::Op(Op::ReluGrad(_))));
    let unmasked = graph.0.nodes[back.expect("the layers have one")].inputs[0];
    let steps = graph.steps(&[y, by_weight, by_bias, unmasked], None)?;
    assert_eq!(steps, ["matmul abᵀ·relu", "matmul abᵀ", "matmul ab", "relu_grad", "matmul aᵀb", "sum"]);
    Ok(())
}

/// A loss of logits and, back from a factor of it, their gradient. `backwards` gives the factor of the loss.
fn loss(backwards: impl Fn(&mut Graph, Value) -> Result<Value>) -> Result<(Graph, Value, Value)> {
    let mut graph = Graph::default();
    let (x, t) = (graph.leaf(&[8, 10], DType::F32), graph.leaf(&[8], DType::I64));
    let of = CrossEntropy { reduction: Reduction::Mean, label_smoothing: 0, ignore_index: -100 };
    let loss = graph.op(of.clone(), &[x, t])?;
    let dloss = backwards(&mut graph, loss)?;
    let gradient = graph.op(CrossEntropyGrad { of, to: None }, &[x, Value { out: 1, ..loss }, t, dloss])?;
    Ok((graph, loss, gradient))
}

#[test]
fn a_loss_and_its_gradient_are_one_pass() -> Result<()> {
    // The factor stands behind the loss, and is computed before it all the same.
    let (graph, loss, gradient) = loss(|graph, _| {
        let (scale, share) = (graph.leaf(&[], DType::F32), graph.leaf(&[], DType::F32));
        graph.op(Mul, &[scale, share])
    })?;
    for device in [Device::Cpu, Device::Cuda(0)] {
        let graph = Graph(graph.0.clone());
        assert_eq!(graph.steps_on(device, &[loss, gradient], None)?, ["mul", "cross_entropy·grad"]);
    }
    Ok(())
}

#[test]
fn a_gradient_that_needs_the_loss_waits_for_it() -> Result<()> {
    let (graph, loss, gradient) = loss(|graph, loss| graph.op(Mul, &[loss, loss]))?;
    assert_eq!(graph.steps(&[loss, gradient], None)?, ["cross_entropy", "mul", "cross_entropy_grad"]);
    Ok(())
}

#[test]
fn a_loss_for_several_gradients_is_computed_once() -> Result<()> {
    let (mut graph, loss, gradient) = loss(|graph, _| Ok(graph.leaf(&[], DType::F32)))?;
    let Kind::Op(op) = graph.0.nodes[gradient.node].kind.clone() else { return Ok(()) };
    let mut inputs = graph.0.nodes[gradient.node].inputs.clone();
    inputs[3] = graph.leaf(&[], DType::F32);
    let other = graph.op(op, &inputs)?;
    // Whoever holds a loss has all its results kept.
    let logs = Value { out: 1, ..loss };
    let steps = graph.steps(&[loss, logs, gradient, other], None)?;
    assert_eq!(steps, ["cross_entropy·grad", "cross_entropy_grad"]);
    Ok(())
}

#[test]
fn the_gradient_of_a_loss_has_16_bits_for_products() -> Result<()> {
    let (mut graph, loss, gradient) = loss(|graph, _| Ok(graph.leaf(&[], DType::F32)))?;
    let x = graph.leaf(&[8, 16], DType::F32);
    let by_weight = graph.op(MatMul::new(true, false), &[gradient, x])?;
    let steps = graph.steps(&[loss, by_weight], Some(DType::F16))?;
    assert_eq!(steps, ["cross_entropy·grad", "to_dtype", "matmul aᵀb"]);
    Ok(())
}

fn normalisation() -> BatchNormTrain {
    let (affine, track, cumulative) = (false, false, true);
    BatchNormTrain { eps: 0, affine, track, cumulative, added: false, measured: false, activation: Activation::None }
}

/// Two normalised images, the second of them later.
fn normalised(graph: &mut Graph) -> Result<[Value; 2]> {
    let norm = normalisation();
    let x = [graph.leaf(&[2, 8, 4, 4], DType::F32), graph.leaf(&[2, 8, 4, 4], DType::F32)];
    Ok([graph.op(norm.clone(), &x[..1])?, graph.op(norm, &x[1..])?])
}

#[test]
fn a_residual_block_ends_with_its_last_normalisation() -> Result<()> {
    for turned in [false, true] {
        let mut graph = Graph::default();
        let mut both = normalised(&mut graph)?;
        if turned {
            both.reverse();
        }
        let sum = graph.op(Add, &both)?;
        let y = graph.op(Relu, &[sum])?;
        let steps = graph.steps(&[y], None)?;
        let work: Vec<_> = steps.iter().filter(|step| !step.starts_with("to_")).collect();
        assert_eq!(work, ["batch_norm", "batch_norm·add·relu"]);
    }
    Ok(())
}

#[test]
fn a_normalised_image_that_others_read_is_added_apart() -> Result<()> {
    let mut graph = Graph::default();
    let [a, b] = normalised(&mut graph)?;
    let sum = graph.op(Add, &[a, b])?;
    let steps = graph.steps(&[sum, b], None)?;
    assert!(steps.iter().any(|step| step == "add") && !steps.iter().any(|step| step.contains("·add")), "{steps:?}");
    Ok(())
}

/// A normalised convolution on a device: the graph, the images and what is normalised.
fn measured(x: &[usize], dtype: DType) -> Result<(Graph, Value, Value)> {
    let mut graph = Graph::default();
    let (x, w) = (graph.leaf(x, dtype), graph.leaf(&[32, x[1], 3, 3], dtype));
    let images = graph.op(convolution(), &[x, w])?;
    let y = graph.op(normalisation(), &[images])?;
    Ok((graph, images, y))
}

/// Steps but for changes of layout.
fn work(graph: Graph, device: Device, roots: &[Value]) -> Result<Vec<String>> {
    let steps = graph.steps_on(device, roots, None)?;
    Ok(steps.into_iter().filter(|step| !step.starts_with("to_")).collect())
}

#[test]
fn a_convolution_measures_for_the_normalisation_behind_it() -> Result<()> {
    let (mut graph, images, y) = measured(&[4, 8, 18, 18], DType::F32)?;
    let relu = graph.op(Relu, &[y])?;
    // Somebody else may read the images: they are the same.
    for roots in [vec![relu], vec![relu, images]] {
        let graph = Graph(graph.0.clone());
        assert_eq!(work(graph, Device::Cpu, &roots)?, ["conv2d·statistics", "batch_norm·relu"]);
    }
    assert_eq!(work(graph, Device::Cuda(0), &[relu])?, ["conv2d", "batch_norm·relu"]);
    Ok(())
}

#[test]
fn relu6_joins_what_is_before_it_on_cpu_cores() -> Result<()> {
    let (mut graph, images, y) = measured(&[4, 8, 18, 18], DType::F32)?;
    let limited = graph.op(Relu6, &[y])?;
    let slopes = graph.leaf(&[4, 32, 16, 16], DType::F32);
    let dy = graph.op(Relu6Grad, &[slopes, limited])?;
    let [mean, deviation] = [1, 2].map(|out| Value { node: y.node, out });
    let norm = BatchNormTrainGrad { affine: false, relu: Mask::None };
    let dx = graph.op(norm, &[dy, images, mean, deviation])?;
    let on = |device: Device| work(Graph(graph.0.clone()), device, &[dx]);
    assert_eq!(on(Device::Cpu)?, ["conv2d·statistics", "batch_norm·relu6", "batch_norm_grad·relu6"]);
    assert_eq!(on(Device::Cuda(0))?, ["conv2d", "batch_norm", "relu6·relu6_grad", "batch_norm_grad"]);

    let (mut graph, images, _) = measured(&[4, 8, 18, 18], DType::F32)?;
    let limited = graph.op(Relu6, &[images])?;
    assert_eq!(work(graph, Device::Cpu, &[limited])?, ["conv2d·relu6"]);
    Ok(())
}

#[test]
fn two_normalisations_share_one_measurement() -> Result<()> {
    let (mut graph, images, y) = measured(&[4, 8, 18, 18], DType::F32)?;
    let other = graph.op(normalisation(), &[images])?;
    let sum = graph.op(Add, &[y, other])?;
    assert_eq!(work(graph, Device::Cpu, &[sum])?, ["conv2d·statistics", "batch_norm", "batch_norm", "add"]);
    Ok(())
}

#[test]
fn a_normalisation_behind_a_pool_starts_with_the_measurement_too() -> Result<()> {
    let (mut graph, _, y) = measured(&[128, 8, 34, 34], DType::F32)?;
    let relu = graph.op(Relu, &[y])?;
    let pool = MaxPool2d { options: PoolOptions::square(2) };
    let pooled = graph.op(pool, &[relu])?;
    assert_eq!(work(graph, Device::Cpu, &[pooled])?, ["conv2d·statistics", "batch_norm·relu·max_pool2d"]);
    Ok(())
}

#[test]
fn a_pool_joins_a_convolution_in_tiles_that_nobody_trains() -> Result<()> {
    let mut graph = Graph::default();
    let (x, w) = (graph.leaf(&[4, 64, 18, 18], DType::F32), graph.leaf(&[128, 64, 3, 3], DType::F32));
    let images = graph.op(convolution(), &[x, w])?;
    let relu = graph.op(Relu, &[images])?;
    let pooled = graph.op(MaxPool2d { options: PoolOptions::square(2) }, &[relu])?;
    let joined: &[&str] = if winograd_on() { &["conv2d·relu·max_pool2d"] } else { &["conv2d·relu", "max_pool2d"] };
    assert_eq!(work(Graph(graph.0.clone()), Device::Cpu, &[pooled])?, joined);
    // Where the greatest stood is asked by a gradient.
    let places = Value { out: 1, ..pooled };
    assert_eq!(work(graph, Device::Cpu, &[pooled, places])?.last().map(String::as_str), Some("max_pool2d"));
    Ok(())
}

#[test]
fn what_does_not_pay_is_measured_afterwards() -> Result<()> {
    // Few pixels, and another type.
    for (x, dtype) in [([2, 8, 4, 4], DType::F32), ([4, 8, 18, 18], DType::F64), ([0, 8, 18, 18], DType::F32)] {
        let (graph, _, y) = measured(&x, dtype)?;
        assert_eq!(work(graph, Device::Cpu, &[y])?, ["conv2d", "batch_norm"], "{x:?} {dtype}");
    }
    // What is normalised is not what the convolution gives.
    let mut graph = Graph::default();
    let (x, w) = (graph.leaf(&[4, 8, 18, 18], DType::F32), graph.leaf(&[32, 8, 3, 3], DType::F32));
    let images = graph.op(convolution(), &[x, w])?;
    let relu = graph.op(Relu, &[images])?;
    let y = graph.op(normalisation(), &[relu])?;
    assert_eq!(work(graph, Device::Cpu, &[y])?, ["conv2d·relu", "batch_norm"]);
    Ok(())
}

/// A step of two weights along their gradients, of which the second is read once more behind its own: the graph, the
/// gradients, and all that a plan gives.
fn step_of_weights() -> Result<(Graph, [Value; 2], Vec<Value>)> {
    let mut graph = Graph::default();
    let (x, dy) = (graph.leaf(&[1, 128, 4, 4], DType::F32), graph.leaf(&[1, 128, 4, 4], DType::F32));
    let options = Conv2dOptions { padding: [1, 1], ..Default::default() };
    let grad = Conv2dWeightGrad { options, kernel: [3, 3], bias: false, wide: false };
    let gradients = [graph.op(grad.clone(), &[x, dy])?, graph.op(grad, &[dy, x])?];
    let mut operands: Vec<Value> = Vec::new();
    for gradient in gradients {
        let mut weight = || graph.leaf(&[128, 128, 3, 3], DType::F32);
        operands.extend([weight(), gradient, weight()]);
    }
    let dx = graph.op(Conv2dInputGrad { options, size: [4, 4] }, &[dy, operands[3]])?;
    operands.push(graph.leaf(&[5], DType::F64));
    let step = SgdStep { options: Options { momentum: true, ..Default::default() } };
    let step = graph.op(step, &operands)?;
    let mut given = vec![dx, gradients[0]];
    given.extend((0..4).map(|out| Value { out, ..step }));
    Ok((graph, gradients, given))
}

#[test]
fn large_weights_step_along_their_gradients_at_once() -> Result<()> {
    let (graph, _, given) = step_of_weights()?;
    let joined = "conv2d_weight_grad·sgd_step";
    assert_eq!(work(graph, Device::Cpu, &given)?, [joined, "conv2d_input_grad", joined]);
    Ok(())
}

#[test]
fn a_gradient_that_others_read_is_there_before_the_step() -> Result<()> {
    let (mut graph, gradients, mut given) = step_of_weights()?;
    given.push(graph.op(Mul, &[gradients[0], gradients[0]])?);
    let steps = work(graph, Device::Cpu, &given)?;
    let expected = ["conv2d_weight_grad", "conv2d_input_grad", "conv2d_weight_grad·sgd_step", "sgd_step", "mul"];
    assert_eq!(steps, expected);
    Ok(())
}

/// The gradients of a linear layer of so many rows, and the steps of its weight and its bias along them.
fn step_of_linear(rows: usize) -> Result<(Graph, Value, Vec<Value>)> {
    let mut graph = Graph::default();
    let mut leaf = |shape: &[usize]| graph.leaf(shape, DType::F32);
    let (x, dy, weight, bias) = (leaf(&[rows, 400]), leaf(&[rows, 120]), leaf(&[120, 400]), leaf(&[120]));
    let numbers = graph.leaf(&[5], DType::F64);
    let y = graph.op(Relu, &[x])?;
    let by_weight = graph.op(MatMul::new(true, false), &[dy, y])?;
    let by_bias = graph.op(Reduce { how: How::Sum, reduced: smallvec![true, false], wide: false }, &[dy])?;
    let by_input = graph.op(MatMul::new(false, false), &[dy, weight])?;
    let dx = graph.op(ReluGrad, &[by_input, y])?;
    let step = graph.op(SgdStep { options: Options::default() }, &[weight, by_weight, bias, by_bias, numbers])?;
    Ok((graph, by_weight, vec![dx, by_weight, Value { out: 0, ..step }, Value { out: 1, ..step }]))
}

#[test]
fn few_rows_meet_the_weights_of_a_linear_layer_once() -> Result<()> {
    let (graph, _, given) = step_of_linear(8)?;
    assert_eq!(work(graph, Device::Cpu, &given)?, ["relu", "sum", "linear_grad·sgd_step", "sgd_step"]);
    // The weight first goes through the caches, and then its gradient.
    let apart = ["relu", "sum", "matmul ab·relu_grad", "matmul aᵀb", "sgd_step"];
    let (graph, _, given) = step_of_linear(9)?;
    assert_eq!(work(graph, Device::Cpu, &given)?, apart);
    let (mut graph, by_weight, mut given) = step_of_linear(8)?;
    given.push(graph.op(Mul, &[by_weight, by_weight])?);
    assert_eq!(work(graph, Device::Cpu, &given)?, [&apart[..], &["mul"]].concat());
    Ok(())
}
