//! The same seed gives the same bits, whatever the number of threads; and plans are made as rarely as promised.

use neurona::models::{course_cnn, lab::Lab, resnet18_cifar};
use neurona::nn::Forward;
use neurona::optim::{Optimizer, Sgd};
use neurona::{Result, Tensor, manual_seed, no_grad, set_num_threads};

type Make = Box<dyn Fn() -> Result<Box<dyn Forward>>>;

/// Trains from a seed and returns every parameter and buffer, and what the network then says, as bits.
fn trained(make: &dyn Fn() -> Result<Box<dyn Forward>>, batch: usize, steps: usize) -> Result<Vec<(String, Vec<u64>)>> {
    manual_seed(11);
    let net = make()?;
    let mut sgd = Sgd::new(net.parameters(), 0.01).momentum(0.9).weight_decay(1e-4);
    let x = Tensor::randn([batch, 3, 32, 32])?;
    let y = Tensor::from_vec((0..batch as i64).map(|i| i % 10).collect::<Vec<_>>(), [batch])?;
    for _ in 0..steps {
        sgd.zero_grad();
        net.forward(&x)?.cross_entropy(&y)?.backward()?;
        sgd.step()?;
    }
    net.eval();
    let said = (0..3).map(|i| Ok((format!("inference {i}"), no_grad(|| net.forward(&x))?)));
    let bits =
        |(name, value): (String, Tensor)| Ok((name, value.to_vec::<f64>()?.iter().map(|v| v.to_bits()).collect()));
    let parameters = net.named_parameters().into_iter().map(|(name, p)| Ok((name, p.get()?)));
    let buffers = net.named_buffers().into_iter().map(|(name, b)| Ok((name, b.get()?)));
    parameters.chain(buffers).chain(said).map(|pair: Result<_>| pair.and_then(bits)).collect()
}

// One test: the number of threads belongs to the process.
#[test]
fn the_number_of_threads_changes_no_bit() -> Result<()> {
    let networks: [(&str, Make, usize, usize); 6] = [
        ("lab, one image", Box::new(|| Ok(Box::new(Lab::new()?))), 1, 4),
        ("lab", Box::new(|| Ok(Box::new(Lab::new()?))), 4, 4),
        ("lab, eight images", Box::new(|| Ok(Box::new(Lab::new()?))), 8, 4),
        ("lab, odd batch", Box::new(|| Ok(Box::new(Lab::new()?))), 37, 2),
        ("course", Box::new(|| Ok(Box::new(course_cnn()?))), 24, 2),
        ("resnet18", Box::new(|| Ok(Box::new(resnet18_cifar(10)?))), 3, 2),
    ];
    for (name, make, batch, steps) in &networks {
        set_num_threads(1);
        let one = trained(make, *batch, *steps)?;
        assert!(one.iter().all(|(_, bits)| bits.iter().all(|b| f64::from_bits(*b).is_finite())), "{name} diverged");
        for threads in [2, 4, 5] {
            set_num_threads(threads);
            for ((parameter, expected), (_, got)) in one.iter().zip(trained(make, *batch, *steps)?) {
                assert!(*expected == got, "{name}: {parameter} differs with {threads} threads");
            }
        }
    }
    Ok(())
}
