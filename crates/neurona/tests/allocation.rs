//! Running a plan allocates nothing: a counting allocator proves it.

use neurona::nn::{Conv2d, Forward, Linear, Module};
use neurona::optim::{Adam, Composite, Optimizer, Sgd};
use neurona::{DType, PoolOptions, Result, Tensor};

#[path = "common/counting.rs"]
mod counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

#[derive(Module)]
struct Net {
    conv1: Conv2d,
    conv2: Conv2d,
    fc: Linear,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv1.forward(x)?.relu()?.max_pool2d(PoolOptions::square(2))?;
        let x = self.conv2.forward(&x)?.batch_norm_train(None, None, None, 1e-5)?.output.relu()?;
        let x = x.global_avg_pool2d()?.flatten(1, -1)?.dropout(0.1)?;
        self.fc.forward(&x)?.sigmoid()?.mul_scalar(3.0)?.add_scalar(1.0)
    }
}

// The only test of this file: the allocator is the process's.
#[test]
fn a_plan_runs_without_allocating_and_without_new_plans() -> Result<()> {
    counting::watch();
    for threads in [1, 2, 3] {
        neurona::set_num_threads(threads);
        let net =
            Net { conv1: Conv2d::new(3, 8, 3)?, conv2: Conv2d::new(8, 16, 3)?.padding(1), fc: Linear::new(16, 10)? };
        let mut both = Composite::new(vec![
            Box::new(Sgd::new(net.conv1.parameters(), 0.01).momentum(0.9)),
            Box::new(Adam::new([net.conv2.parameters(), net.fc.parameters()].concat(), 0.01)),
        ]);
        let x = Tensor::randn([4, 3, 16, 16])?;
        let y = Tensor::zeros([4], DType::I64)?;
        let mut step = || -> Result<f32> {
            both.zero_grad();
            let loss = net.forward(&x)?.cross_entropy(&y)?;
            loss.backward()?;
            both.step()?;
            loss.item()
        };
        step()?;
        step()?;
        let (compiled, count) = (neurona::stats().compiled, counting::count());
        for _ in 0..20 {
            step()?;
        }
        assert_eq!(neurona::stats().compiled, compiled, "no new plan");
        assert_eq!(counting::count(), count, "no allocation while a plan runs ({threads} threads)");

        // The second inference takes memory for what it packs, and those after it find it there.
        let infer = || neurona::no_grad(|| net.conv2.forward(&net.conv1.forward(&x)?)?.relu())?.to_vec::<f32>();
        infer()?;
        infer()?;
        let count = counting::count();
        for _ in 0..20 {
            infer()?;
        }
        assert_eq!(counting::count(), count, "no allocation while an inference runs ({threads} threads)");
    }
    assert!(counting::count() > 0, "the first run of a plan sizes the arena: the counter works");
    Ok(())
}
