//! Seed 004: backpropagation by hand, neuron by neuron, as the thesis derives it, and equal to the engine's.
//!
//! Fully connected networks with one and with two hidden layers: ReLU inside, a sigmoid at the end, binary
//! cross-entropy (2.3). `w[j][k]` joins neuron j of a layer to neuron k of the next; `a` is a neuron before its
//! activation function, `z` after it. Numbers in brackets are the thesis's formulas. Where they were mended:
//!
//! - (3.11), (3.15), (3.16) keep the sum over the examples. The derivative by *one* prediction has no sum, only the
//!   1/N; the sum over the examples belongs to the weights, which all examples share: (3.18) and (3.25).
//! - (3.13) says sigmoid' = s / (1 - s). It is s (1 - s), as (3.14) has it.
//! - (3.17), (3.18): a weight's factor is the neuron *after* its activation, z, not a.
//! - (3.28), (3.29) sum to p = size; the last neuron is size - 1.
//! - Biases: (2.5) needs their gradient and no formula gives it. The derivative of a neuron by its bias is 1, so it
//!   is the neuron's own gradient, summed over the examples.
//! - Two hidden layers (3.1.2) have no text. A neuron of the first hidden layer reaches the output through every
//!   neuron of the second, so the sum over paths of (3.28) is needed there, with ReLU's derivative of (3.22).
//!
//!     cargo run --release -p neurona --example backprop_by_hand

#![allow(clippy::needless_range_loop)] // neurons go by their numbers, as in the formulas

use neurona::nn::Parameter;
use neurona::tensor::random;
use neurona::{Result, Tensor, manual_seed};

type Matrix = Vec<Vec<f64>>;

/// Weights and biases between two layers; or their gradients.
#[derive(Clone)]
struct Links {
    w: Matrix,
    b: Vec<f64>,
}

/// The gradients of every weight and bias, layer by layer, and of every input.
type Gradients = (Vec<Links>, Matrix);

fn relu(x: f64) -> f64 {
    x.max(0.0)
}

fn deriv_relu(x: f64) -> f64 {
    if x <= 0.0 { 0.0 } else { 1.0 } // (3.20)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp()) // (3.12)
}

/// The weighted sum of a neuron's inputs, and its bias.
fn neuron(z: &[f64], links: &Links, k: usize) -> f64 {
    (0..z.len()).map(|j| z[j] * links.w[j][k]).sum::<f64>() + links.b[k]
}

fn no_gradient(links: &[Links]) -> Vec<Links> {
    links.iter().map(|l| Links { w: vec![vec![0.0; l.b.len()]; l.w.len()], b: vec![0.0; l.b.len()] }).collect()
}

/// grad_output of one example: the derivative of the loss by the output neuron before its activation.
fn grad_output(a: f64, y: f64, examples: usize) -> f64 {
    let z = sigmoid(a);
    let by_z = -(y / z - (1.0 - y) / (1.0 - z)) / examples as f64; // (3.11), without the sum
    by_z * z * (1.0 - z) // (3.14); (3.16), without the sum
}

/// One hidden layer: input, h1, output.
fn one_hidden(links: &[Links], x: &Matrix, y: &[f64]) -> Gradients {
    let (mut grads, mut inputs) = (no_gradient(links), Vec::new());
    for (n0, label) in x.iter().zip(y) {
        let a1: Vec<f64> = (0..links[0].b.len()).map(|p| neuron(n0, &links[0], p)).collect();
        let z1: Vec<f64> = a1.iter().map(|a| relu(*a)).collect();
        let output = grad_output(neuron(&z1, &links[1], 0), *label, x.len());

        for p in 0..z1.len() {
            grads[1].w[p][0] += output * z1[p]; // (3.18), summed over the examples
        }
        grads[1].b[0] += output;

        // (3.22), (3.23): there is one path from a hidden neuron to the output.
        let n1: Vec<f64> = (0..a1.len()).map(|p| output * links[1].w[p][0] * deriv_relu(a1[p])).collect();
        for p in 0..n1.len() {
            for i in 0..n0.len() {
                grads[0].w[i][p] += n1[p] * n0[i]; // (3.25), summed over the examples
            }
            grads[0].b[p] += n1[p];
        }

        // (3.29), up to the last neuron; an input has no activation function (3.27).
        inputs.push((0..n0.len()).map(|i| (0..n1.len()).map(|p| n1[p] * links[0].w[i][p]).sum()).collect());
    }
    (grads, inputs)
}

/// Two hidden layers: input, h1, h2, output.
fn two_hidden(links: &[Links], x: &Matrix, y: &[f64]) -> Gradients {
    let (mut grads, mut inputs) = (no_gradient(links), Vec::new());
    for (n0, label) in x.iter().zip(y) {
        let a1: Vec<f64> = (0..links[0].b.len()).map(|p| neuron(n0, &links[0], p)).collect();
        let z1: Vec<f64> = a1.iter().map(|a| relu(*a)).collect();
        let a2: Vec<f64> = (0..links[1].b.len()).map(|q| neuron(&z1, &links[1], q)).collect();
        let z2: Vec<f64> = a2.iter().map(|a| relu(*a)).collect();
        let output = grad_output(neuron(&z2, &links[2], 0), *label, x.len());

        for q in 0..z2.len() {
            grads[2].w[q][0] += output * z2[q];
        }
        grads[2].b[0] += output;

        let n2: Vec<f64> = (0..a2.len()).map(|q| output * links[2].w[q][0] * deriv_relu(a2[q])).collect();
        for q in 0..n2.len() {
            for p in 0..z1.len() {
                grads[1].w[p][q] += n2[q] * z1[p];
            }
            grads[1].b[q] += n2[q];
        }

        // All paths from neuron p of h1, through every neuron q of h2.
        let paths = |p: usize| (0..n2.len()).map(|q| n2[q] * links[1].w[p][q]).sum::<f64>();
        let n1: Vec<f64> = (0..a1.len()).map(|p| paths(p) * deriv_relu(a1[p])).collect();
        for p in 0..n1.len() {
            for i in 0..n0.len() {
                grads[0].w[i][p] += n1[p] * n0[i];
            }
            grads[0].b[p] += n1[p];
        }
        inputs.push((0..n0.len()).map(|i| (0..n1.len()).map(|p| n1[p] * links[0].w[i][p]).sum()).collect());
    }
    (grads, inputs)
}

fn tensor(m: &Matrix) -> Result<Tensor> {
    Tensor::from_vec(m.concat(), [m.len(), m[0].len()])
}

/// The same gradients from the engine: weight, bias, weight, bias, …, input; each in row-major order.
fn engine(links: &[Links], x: &Matrix, y: &[f64]) -> Result<Vec<Vec<f64>>> {
    let x = tensor(x)?.requires_grad()?;
    let (mut z, mut parameters) = (x.clone(), Vec::new());
    for (i, l) in links.iter().enumerate() {
        let (w, b) = (Parameter::new(&tensor(&l.w)?)?, Parameter::new(&Tensor::from_slice(&l.b, [l.b.len()])?)?);
        let a = (z.matmul(&w.get()?)? + &b.get()?)?;
        z = if i + 1 < links.len() { a.relu()? } else { a.sigmoid()? };
        parameters.extend([w, b]);
    }
    z.binary_cross_entropy(&Tensor::from_slice(y, [y.len(), 1])?)?.backward()?;
    let gradients = parameters.iter().map(Parameter::grad).chain([x.grad()]);
    gradients.map(|g| g.expect("backward gives every leaf a gradient").to_vec()).collect()
}

/// Compares both for a network of these sizes and ten random examples; gives the greatest difference.
pub fn compare(sizes: &[usize]) -> Result<f64> {
    manual_seed(4);
    let random = |n: usize| random::normal(n).into_iter().map(f64::from).collect::<Vec<f64>>();
    let pairs = sizes.windows(2);
    let links: Vec<Links> =
        pairs.map(|s| Links { w: (0..s[0]).map(|_| random(s[1])).collect(), b: random(s[1]) }).collect();
    let x: Matrix = (0..10).map(|_| random(sizes[0])).collect();
    let y: Vec<f64> = (0..10).map(|i| f64::from(i % 2)).collect();

    let (grads, inputs) = if links.len() == 2 { one_hidden(&links, &x, &y) } else { two_hidden(&links, &x, &y) };
    let by_hand = grads.into_iter().flat_map(|l| [l.w.concat(), l.b]).chain([inputs.concat()]);
    let mut worst = 0.0f64;
    for (hand, engine) in by_hand.zip(engine(&links, &x, &y)?) {
        assert_eq!(hand.len(), engine.len());
        assert!(hand.iter().any(|g| *g != 0.0), "a gradient of nothing but zeros shows nothing");
        worst = hand.iter().zip(&engine).fold(worst, |worst, (a, b)| worst.max((a - b).abs()));
    }
    assert!(worst < 1e-12, "by hand and by the engine differ by {worst}");
    Ok(worst)
}

#[allow(dead_code)] // a test runs `compare` alone
fn main() -> Result<()> {
    println!("one hidden layer (2-3-1, figure 3.1): {:.1e} apart", compare(&[2, 3, 1])?);
    println!("two hidden layers (2-3-4-1, figure 3.7): {:.1e} apart", compare(&[2, 3, 4, 1])?);
    Ok(())
}
