//! Which phases of a plan parts of the batch go through on their own.

use neurona::models::lab::Lab;
use neurona::nn::{Forward, Module};
use neurona::optim::{Optimizer, Sgd};
use neurona::{Result, Tensor, latest_stretches, no_grad};
use std::sync::{Mutex, MutexGuard};

/// Plans belong to the process: these tests run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(|e| e.into_inner())
}

/// Those of more than one step.
fn joined() -> Vec<Vec<String>> {
    latest_stretches().into_iter().filter(|steps| steps.len() > 1).collect()
}

fn train(net: &Lab, batch: usize) -> Result<Vec<Vec<String>>> {
    let mut sgd = Sgd::new(net.parameters(), 0.01).momentum(0.9);
    let x = Tensor::randn([batch, 3, 32, 32])?;
    let y = Tensor::from_vec(vec![1i64; batch], [batch])?;
    net.forward(&x)?.cross_entropy(&y)?.backward()?;
    sgd.step()?;
    Ok(joined())
}

const CONV: &str = "conv2d·relu·max_pool2d";
const GRAD: &str = "conv2d·relu·max_pool2d_grad·sgd_step";

#[test]
fn a_training_step_goes_by_parts_of_the_batch_where_it_can() -> Result<()> {
    let _alone = alone();
    // Linear layers read what all images became, so each convolutional part is a stretch of its own; a weight's gradient
    // waits for the sums of all images before the filters take their step.
    let stretches = train(&Lab::new()?, 4)?;
    assert_eq!(stretches, [vec![CONV, CONV], vec!["linear_grad·sgd_step", GRAD], vec![GRAD, "to_nhwc", GRAD]]);
    assert_eq!(train(&Lab::new()?, 1)?, Vec::<Vec<String>>::new(), "one image has no parts");
    Ok(())
}

#[test]
fn inference_goes_by_parts_of_the_batch_too() -> Result<()> {
    let _alone = alone();
    let (net, x) = (Lab::new()?, Tensor::randn([4, 3, 32, 32])?);
    net.eval();
    let y = no_grad(|| net.forward(&x))?.to_vec::<f32>()?;
    // What the linear layer packs goes along: in later runs it is there already. Its product reads what all images became.
    let stretches = latest_stretches();
    assert_eq!(stretches[..2], [vec![CONV, CONV, "matmul abᵀ·relu"], vec!["matmul abᵀ·relu"]]);
    // The second run makes what lasts, the third leaves it out.
    for _ in 0..2 {
        assert_eq!(no_grad(|| net.forward(&x))?.to_vec::<f32>()?, y);
    }
    Ok(())
}

#[test]
fn who_reads_all_images_begins_another() -> Result<()> {
    let _alone = alone();
    let net = Lab::new()?;
    let x = Tensor::randn([4, 3, 32, 32])?;
    let half = no_grad(|| net.pool.forward(&net.conv1.forward(&x)?.relu()?))?;
    // The order of images is turned round between two kernels that go image by image.
    let turned = half.flip(&[0])?;
    no_grad(|| net.pool.forward(&net.conv2.forward(&turned)?.relu()?))?.to_vec::<f32>()?;
    for stretch in joined() {
        assert!(stretch.iter().filter(|step| step.as_str() == CONV).count() < 2, "{stretch:?}");
    }
    Ok(())
}
