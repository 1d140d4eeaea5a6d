//! What laziness means, exactly: one adversarial test for each promise of the engine.
//!
//! Plans, runs and random keys are counted process-wide, so the tests take turns.

use neurona::nn::{Buffer, Forward, Linear, Module, Parameter};
use neurona::optim::{Adam, Composite, Optimizer, Sgd};
use neurona::{CrossEntropyOptions, DType, Error, Result, RunningStats, Tensor, no_grad, stats};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

fn parameter(values: &[f32]) -> Parameter {
    Parameter::new(&Tensor::from_slice(values, [values.len()]).expect("shape fits")).expect("computes")
}

fn values(x: &Tensor) -> Vec<f32> {
    x.to_vec().expect("computes")
}

/// A batch-norm layer by hand: the least that has statistics to commit.
#[derive(Module)]
struct Norm {
    mean: Buffer,
    var: Buffer,
    batches: Buffer,
    weight: Parameter,
    bias: Parameter,
}

impl Norm {
    fn new(channels: usize) -> Result<Norm> {
        let fill = |v: f64| Tensor::full([channels], v, DType::F32);
        Ok(Norm {
            mean: Buffer::new(&fill(0.0)?)?,
            var: Buffer::new(&fill(1.0)?)?,
            batches: Buffer::new(&Tensor::scalar(0i64))?,
            weight: Parameter::new(&fill(1.0)?)?,
            bias: Parameter::new(&fill(0.0)?)?,
        })
    }
}

impl Forward for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (mean, var, batches) = (self.mean.get()?, self.var.get()?, self.batches.get()?);
        let (weight, bias) = (self.weight.get()?, self.bias.get()?);
        let running = RunningStats { mean: &mean, var: &var, batches: &batches };
        let normalized = x.batch_norm_train(Some((&weight, &bias)), Some(running), Some(0.1), 1e-5)?;
        if let Some([mean, var, batches]) = normalized.stats {
            self.mean.cell().stage(mean)?;
            self.var.cell().stage(var)?;
            self.batches.cell().stage(batches)?;
        }
        Ok(normalized.output)
    }
}

#[test]
fn a_value_may_be_read_before_backward() -> Result<()> {
    let _turn = turn();
    let norm = Norm::new(2)?;
    let x = Tensor::from([[1.0f32, 5.0], [3.0, 9.0]]);
    let again = stats().again;
    let loss = norm.forward(&x)?.dropout(0.5)?.mul_scalar(2.0)?.sum()?;
    let first = loss.item::<f32>()?;
    assert_eq!(values(&norm.mean.get()?), [0.2, 0.7], "reading the loss commits the statistics");
    loss.backward()?;
    let gradient = values(&norm.bias.grad().expect("backward gives a gradient"));
    assert_eq!(stats().again, again + 1, "the forward ran twice, and was counted");
    // The second forward had the same random key: the loss it kept and the mask in the gradient belong together.
    assert_eq!(loss.item::<f32>()?, first);
    assert!(gradient.iter().all(|g| [0.0, 4.0, 8.0].contains(g)), "{gradient:?}");
    let y = values(&no_grad(|| loss.mul_scalar(1.0))?)[0];
    assert_eq!(y, first);
    assert_eq!(norm.batches.get()?.item::<i64>()?, 1, "statistics were committed once");
    assert_eq!(values(&norm.mean.get()?), [0.2, 0.7]);
    Ok(())
}

#[test]
fn dropout_of_a_forward_that_runs_twice_is_the_same() -> Result<()> {
    let _turn = turn();
    let w = parameter(&[1.0; 64]);
    let y = w.get()?.dropout(0.5)?;
    let loss = (&y * &y)?.sum()?;
    let seen = values(&y);
    loss.backward()?;
    // d/dw of (mask·w)² is 2·mask²·w: twice the square of what was seen.
    let expected: Vec<f32> = seen.iter().map(|v| 2.0 * v * v).collect();
    assert_eq!(values(&w.grad().expect("gradient")), expected);
    Ok(())
}

#[test]
fn a_prediction_held_across_step_is_the_old_one() -> Result<()> {
    let _turn = turn();
    let w = parameter(&[2.0, 3.0]);
    let mut sgd = Sgd::new(vec![w.clone()], 1.0);
    let inside = w.get()?.mul_scalar(10.0)?; // part of the loss
    let outside = w.get()?.mul_scalar(100.0)?; // reads the same weights, and nothing the step computes
    let old = w.get()?;
    inside.sum()?.backward()?;
    sgd.step()?;
    assert_eq!(values(&w.get()?), [-8.0, -7.0]);
    assert_eq!(values(&outside), [200.0, 300.0]);
    assert_eq!(values(&inside), [20.0, 30.0]);
    assert_eq!(values(&old), [2.0, 3.0], "a value that was read keeps its version");
    // And the same again, when nothing is held: the step then writes in place.
    w.zero_grad();
    w.get()?.sum()?.backward()?;
    sgd.step()?;
    assert_eq!(values(&w.get()?), [-9.0, -8.0]);
    assert_eq!(values(&old), [2.0, 3.0]);
    Ok(())
}

#[test]
fn a_view_of_a_parameter_is_not_overwritten() -> Result<()> {
    let _turn = turn();
    let w = parameter(&[2.0, 3.0]);
    let view = w.get()?.detach().reshape([2, 1])?;
    assert_eq!(values(&view), [2.0, 3.0]);
    let mut sgd = Sgd::new(vec![w.clone()], 1.0);
    w.get()?.sum()?.backward()?;
    sgd.step()?;
    assert_eq!(values(&view), [2.0, 3.0], "the view shares the storage that the step would have written");
    assert_eq!(values(&w.get()?), [1.0, 2.0]);
    Ok(())
}

#[test]
fn two_backwards_before_a_step_add_up() -> Result<()> {
    let _turn = turn();
    let w = parameter(&[1.0, 2.0]);
    let mut sgd = Sgd::new(vec![w.clone()], 0.5);
    w.get()?.mul_scalar(2.0)?.sum()?.backward()?;
    w.get()?.mul_scalar(3.0)?.sum()?.backward()?;
    sgd.step()?;
    assert_eq!(values(&w.grad().expect("gradients stay readable")), [5.0, 5.0]);
    assert_eq!(values(&w.get()?), [-1.5, -0.5]);
    sgd.zero_grad();
    assert!(w.grad().is_none());
    let loss = w.get()?.sum()?;
    loss.backward()?;
    let error = loss.backward().expect_err("one graph, one backward").to_string();
    assert!(error.contains("already"), "{error}");
    Ok(())
}

#[test]
fn accumulation_over_many_backwards_keeps_no_graphs() -> Result<()> {
    let _turn = turn();
    let w = parameter(&[1.0]);
    for _ in 0..50 {
        w.get()?.exp()?.sum()?.backward()?;
    }
    let total = values(&w.grad().expect("gradient"))[0];
    assert!((total - 50.0 * 1f32.exp()).abs() < 1e-3, "{total}");
    Ok(())
}

#[test]
fn several_optimizers_are_one_plan() -> Result<()> {
    let _turn = turn();
    let (a, b) = (parameter(&[1.0, 1.0]), parameter(&[2.0, 2.0]));
    let sgd = Sgd::new(vec![a.clone()], 0.01).momentum(0.9).nesterov(true);
    let adam = Adam::new(vec![b.clone()], 0.01);
    let mut both = Composite::new(vec![Box::new(sgd), Box::new(adam)]);
    let mut runs = Vec::new();
    for _ in 0..3 {
        both.zero_grad();
        let before = stats().runs;
        let loss = (&a.get()? * &b.get()?)?.sum()?;
        loss.backward()?;
        both.step()?;
        loss.item::<f32>()?;
        runs.push(stats().runs - before);
    }
    assert_eq!(runs[1..], [1, 1], "loss, gradients and both updates are one run");
    assert!((values(&b.get()?)[0] - 1.97).abs() < 1e-3);
    Ok(())
}

#[test]
fn a_running_loss_may_stay_a_tensor() -> Result<()> {
    let _turn = turn();
    let w = parameter(&[4.0]);
    let mut sgd = Sgd::new(vec![w.clone()], 0.25);
    let mut running = Tensor::scalar(0f32);
    let mut expected = 0.0;
    for _ in 0..5 {
        sgd.zero_grad();
        let w = w.get()?;
        let loss = (&w * &w)?.sum()?;
        running = (&running + &loss)?;
        loss.backward()?;
        sgd.step()?;
        expected += loss.item::<f32>()?;
    }
    assert_eq!(running.item::<f32>()?, expected);
    assert_eq!(expected, 16.0 + 4.0 + 1.0 + 0.25 + 0.0625);
    Ok(())
}

#[test]
fn a_train_mode_forward_without_a_step_commits_its_statistics() -> Result<()> {
    let _turn = turn();
    let norm = Norm::new(1)?;
    let x = Tensor::from([[0.0f32], [2.0]]);
    let y = norm.forward(&x)?;
    values(&y);
    assert_eq!(values(&norm.mean.get()?), [0.1]);
    // Forwards whose output nobody reads: the statistics of all of them count, in order.
    for _ in 0..30 {
        norm.forward(&x)?;
    }
    assert_eq!(norm.batches.get()?.item::<i64>()?, 31);
    let mean = values(&norm.mean.get()?)[0];
    assert!((mean - (1.0 - 0.9f32.powi(31))).abs() < 1e-5, "{mean}");
    Ok(())
}

#[test]
fn one_layer_used_twice_before_backward() -> Result<()> {
    let _turn = turn();
    let norm = Norm::new(1)?;
    let (a, b) = (Tensor::from([[0.0f32], [2.0]]), Tensor::from([[0.0f32], [6.0]]));
    let loss = (norm.forward(&a)?.sum()? + &norm.forward(&b)?.mul_scalar(3.0)?.sum()?)?;
    loss.backward()?;
    assert_eq!(values(&norm.bias.grad().expect("gradient")), [8.0]);
    assert_eq!(norm.batches.get()?.item::<i64>()?, 2);
    assert!((values(&norm.mean.get()?)[0] - (0.9 * 0.1 + 0.3)).abs() < 1e-6);
    Ok(())
}

#[test]
fn a_chain_of_a_hundred_thousand_nodes() -> Result<()> {
    let _turn = turn();
    let w = parameter(&[0.0]);
    let mut x = w.get()?;
    for _ in 0..100_000 {
        x = x.add_scalar(1.0)?;
    }
    let loss = x.sum()?;
    loss.backward()?;
    assert_eq!(values(&w.grad().expect("gradient")), [1.0]);
    assert_eq!(loss.item::<f32>()?, 100_000.0);
    // Dropped without ever having been computed.
    let mut y = w.get()?;
    for _ in 0..100_000 {
        y = y.neg()?;
    }
    drop(y);
    Ok(())
}

#[test]
fn two_models_on_two_threads() -> Result<()> {
    let _turn = turn();
    let train = |scale: f32| -> Result<Vec<f32>> {
        let w = parameter(&[scale; 300]);
        let mut sgd = Sgd::new(vec![w.clone()], 0.01).momentum(0.9);
        for _ in 0..200 {
            sgd.zero_grad();
            let w = w.get()?;
            (&w * &w)?.sum()?.backward()?;
            sgd.step()?;
        }
        Ok(values(&w.get()?))
    };
    let alone = (train(1.0)?, train(2.0)?);
    let together = std::thread::scope(|s| {
        let (a, b) = (s.spawn(|| train(1.0)), s.spawn(|| train(2.0)));
        (a.join().expect("no panic"), b.join().expect("no panic"))
    });
    assert_eq!((together.0?, together.1?), alone);
    Ok(())
}

#[test]
fn one_model_read_by_another_thread_while_it_trains() -> Result<()> {
    let _turn = turn();
    let w = parameter(&[1.0; 4096]);
    let mut sgd = Sgd::new(vec![w.clone()], 1e-3);
    let reads = AtomicUsize::new(0);
    std::thread::scope(|s| {
        let reader = s.spawn(|| -> Result<()> {
            while reads.fetch_add(1, Ordering::Relaxed) < 200 {
                // Every element takes the same steps, so a torn read would show as unequal elements.
                let seen = values(&w.get()?.mul_scalar(1.0)?);
                assert!(seen.iter().all(|v| *v == seen[0]));
            }
            Ok(())
        });
        let mut steps = 0;
        while reads.load(Ordering::Relaxed) < 200 {
            sgd.zero_grad();
            w.get()?.sum()?.backward()?;
            sgd.step()?;
            steps += 1;
        }
        reader.join().expect("no panic")?;
        // No step was lost and none taken twice.
        let expected = (0..steps).fold(1.0f32, |w, _| w - 1e-3);
        assert!((values(&w.get()?)[0] - expected).abs() < 1e-3 * steps as f32 * 1e-3 + 1e-4, "{steps} steps");
        Ok(())
    })
}

#[test]
fn a_smaller_last_batch_is_one_more_plan_once() -> Result<()> {
    let _turn = turn();
    let layer = Linear::new(7, 3)?;
    let mut sgd = Sgd::new(layer.parameters(), 0.1).momentum(0.9);
    let mut step = |batch: usize| -> Result<u64> {
        let before = stats().compiled;
        sgd.zero_grad();
        let x = Tensor::randn([batch, 7])?;
        let y = Tensor::zeros([batch], DType::I64)?;
        values(&y);
        let before = before.max(stats().compiled);
        let loss = layer.forward(&x)?.cross_entropy(&y)?;
        loss.backward()?;
        sgd.step()?;
        loss.item::<f32>()?;
        Ok(stats().compiled - before)
    };
    assert_eq!(step(8)?, 1);
    assert_eq!([step(8)?, step(8)?], [0, 0]);
    assert_eq!(step(5)?, 1);
    assert_eq!([step(8)?, step(5)?, step(8)?], [0, 0, 0]);
    Ok(())
}

#[test]
fn a_learning_rate_that_changes_every_step_makes_no_plan() -> Result<()> {
    let _turn = turn();
    let w = parameter(&[1.0]);
    let mut sgd = Sgd::new(vec![w.clone()], 1.0);
    let mut expected = 1.0f32;
    let mut compiled = 0;
    for step in 1..=20 {
        let lr = 1.0 / f64::from(step * step + 1);
        sgd.set_lr(lr);
        sgd.zero_grad();
        // A factor that changes is an input as well.
        w.get()?.mul_scalar(f64::from(step))?.sum()?.backward()?;
        sgd.step()?;
        expected -= lr as f32 * step as f32;
        if step == 1 {
            compiled = stats().compiled;
        }
    }
    assert_eq!(stats().compiled, compiled);
    assert!((values(&w.get()?)[0] - expected).abs() < 1e-5);
    Ok(())
}

#[test]
fn plans_that_differ_in_one_attribute_are_noticed() -> Result<()> {
    let _turn = turn();
    let (x, y) = (Tensor::randn([3, 7])?, Tensor::from([0i64, 1, 2]));
    let before = stats();
    for step in 1..=9 {
        let options = CrossEntropyOptions { label_smoothing: f64::from(step) / 100.0, ..Default::default() };
        x.cross_entropy_with(&y, options)?.item::<f32>()?;
    }
    assert_eq!(stats().compiled - before.compiled, 9, "label smoothing is structure");
    assert_eq!(stats().near_misses - before.near_misses, 8, "and each after the first is a near miss");
    Ok(())
}

#[test]
fn a_frozen_parameter_stays_and_a_thawed_one_moves() -> Result<()> {
    let _turn = turn();
    let (a, b) = (parameter(&[1.0]), parameter(&[1.0]));
    let mut adam = Adam::new(vec![a.clone(), b.clone()], 0.1);
    let mut step = || -> Result<()> {
        adam.zero_grad();
        (&a.get()? * &b.get()?)?.sum()?.backward()?;
        adam.step()
    };
    b.set_requires_grad(false);
    step()?;
    assert_eq!(values(&b.get()?), [1.0]);
    b.set_requires_grad(true);
    step()?;
    // The first step of Adam is the learning rate, whenever a parameter takes it.
    assert!((values(&b.get()?)[0] - 0.9).abs() < 1e-5);
    Ok(())
}

#[test]
fn gradients_may_be_read_and_used_before_the_step() -> Result<()> {
    let _turn = turn();
    let w = parameter(&[3.0, 4.0]);
    let mut sgd = Sgd::new(vec![w.clone()], 1.0);
    (&w.get()? * &w.get()?)?.sum()?.backward()?;
    assert_eq!(values(&w.grad().expect("gradient")), [6.0, 8.0]);
    sgd.step()?;
    assert_eq!(values(&w.get()?), [-3.0, -4.0]);
    Ok(())
}

#[test]
fn a_graph_that_was_used_says_so() -> Result<()> {
    let _turn = turn();
    let w = parameter(&[3.0]);
    let y = w.get()?.exp()?;
    y.sum()?.backward()?;
    values(&w.grad().expect("gradient"));
    let error = y.sum()?.backward().expect_err("y's graph is gone");
    assert!(error.to_string().contains("used by an earlier backward"), "{error}");
    Ok(())
}

#[test]
fn nan_is_traced_to_the_op_that_made_it() -> Result<()> {
    let _turn = turn();
    neurona::set_check_finite(true);
    let x = Tensor::from([-1.0f32, 1.0]);
    let outcome = x.add_scalar(0.0).and_then(|y| y.log()?.mul_scalar(2.0)?.sum()?.item::<f32>());
    neurona::set_check_finite(false);
    match outcome {
        Err(Error::NotFinite { op, count: 1, first: 0, .. }) => assert_eq!(op, "log"),
        other => panic!("{other:?}"),
    }
    Ok(())
}

#[test]
fn nan_in_a_gradient_names_the_layer() -> Result<()> {
    let _turn = turn();
    #[derive(Module)]
    struct Net {
        first: Linear,
        second: Linear,
    }
    let net = Net { first: Linear::new(2, 2)?.without_bias(), second: Linear::new(2, 1)?.without_bias() };
    net.first.weight.set(&Tensor::from([[0.0f32, 0.0], [0.0, 0.0]]))?;
    let mut sgd = Sgd::new(net.parameters(), 0.1);
    neurona::set_check_finite(true);
    // The square root is finite at 0; its derivative is not.
    let loss = net.second.forward(&net.first.forward(&Tensor::from([[1.0f32, 1.0]]))?.sqrt()?)?.sum()?;
    let outcome = loss.backward().and_then(|()| sgd.step());
    neurona::set_check_finite(false);
    let error = outcome.expect_err("the gradient of sqrt at 0 is infinite").to_string();
    assert!(error.starts_with("div") && error.contains("tests/laziness.rs"), "{error}");
    assert_eq!(values(&net.first.weight.get()?), [0.0; 4], "a step that failed changed nothing, and can be read");
    let error = neurona::no_grad(|| net.second.forward(&Tensor::from([[1.0f32]]))).expect_err("shapes").to_string();
    assert!(error.starts_with("linear at second: "), "{error}");
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_bits_on_any_number_of_threads() -> Result<()> {
    let _turn = turn();
    let run = |threads: usize| -> Result<Vec<Vec<u32>>> {
        neurona::set_num_threads(threads);
        neurona::manual_seed(3);
        let (fc1, fc2) = (Linear::new(300, 200)?, Linear::new(200, 10)?);
        let mut sgd = Sgd::new([fc1.parameters(), fc2.parameters()].concat(), 0.05).momentum(0.9);
        let x = Tensor::randn([96, 300])?;
        let y = Tensor::arange(96)?.to_dtype(DType::F32)?.mul_scalar(0.1)?.to_dtype(DType::I64)?;
        for _ in 0..5 {
            sgd.zero_grad();
            let h = fc1.forward(&x)?.relu()?.dropout(0.3)?;
            fc2.forward(&h)?.cross_entropy(&y)?.backward()?;
            sgd.step()?;
        }
        let bits = |p: &Parameter| Ok(values(&p.get()?).iter().map(|v| v.to_bits()).collect());
        [fc1.parameters(), fc2.parameters()].concat().iter().map(bits).collect()
    };
    let one = run(1)?;
    for threads in [2, 5] {
        assert_eq!(run(threads)?, one, "{threads} threads");
    }
    neurona::set_num_threads(2);
    Ok(())
}
