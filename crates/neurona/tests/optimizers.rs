//! Optimizers beyond the single trajectories of `oracle.rs`: parameter groups and clipping against PyTorch, Muon
//! against NumPy, averages of weights against their formulas, accumulation, and state that goes out and in.

mod common;

use common::{Case, agree, cases, same, stream};
use neurona::io::{StateDict, safetensors};
use neurona::nn::{Conv2d, Flatten, Forward, Linear, Module, Parameter, ReLU, Sequential};
use neurona::optim::{
    Adam, Composite, Ema, Group, Lookahead, Muon, Optimizer, RmsProp, Sgd, clip_grad_norm, clip_grad_norm_with,
    clip_grad_value,
};
use neurona::{DType, Error, Reduction, Result, Tensor, manual_seed, stats};
use std::sync::{Mutex, MutexGuard};

/// Plans and random keys are counted process-wide, so the tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

/// The gradient of step `step`, of the stacked gradients of all steps.
fn at(all: &[f64], step: usize, like: &Parameter) -> Result<Tensor> {
    let size = like.shape().numel();
    Tensor::from_slice(&all[step * size..][..size], like.shape())?.to_dtype(like.get()?.dtype())
}

/// 50 steps with given gradients; `each` stands between backward and step. The parameters after every tenth.
fn trajectory(
    starts: &[&Tensor],
    gradients: &[&Tensor],
    make: impl Fn(&[Parameter]) -> Box<dyn Optimizer>,
    mut each: impl FnMut(&mut dyn Optimizer) -> Result<()>,
) -> Result<Vec<Tensor>> {
    let parameters = starts.iter().map(|p| Parameter::new(p)).collect::<Result<Vec<_>>>()?;
    let gradients = gradients.iter().map(|g| g.to_vec::<f64>()).collect::<Result<Vec<_>>>()?;
    let mut optimizer = make(&parameters);
    let mut seen = vec![Vec::new(); parameters.len()];
    let mut after_the_first = stats();
    for step in 0..50 {
        optimizer.zero_grad();
        // The gradient of sum(p · g) by p is g.
        let mut loss: Option<Tensor> = None;
        for (p, g) in parameters.iter().zip(&gradients) {
            let part = (&p.get()? * &at(g, step, p)?)?.sum()?;
            loss = Some(match loss {
                Some(loss) => (loss + part)?,
                None => part,
            });
        }
        loss.expect("there are parameters").backward()?;
        each(&mut *optimizer)?;
        let runs = stats().runs;
        optimizer.step()?;
        assert_eq!(stats().runs, runs + 1, "loss, gradients and all groups' updates are one run");
        if step == 0 {
            after_the_first = stats();
        }
        if step % 10 == 9 {
            for (seen, p) in seen.iter_mut().zip(&parameters) {
                seen.extend(p.get()?.to_vec::<f64>()?);
            }
        }
    }
    assert!(stats().compiled <= after_the_first.compiled + 6, "plans are made once");
    let stacked = |(seen, p): (Vec<f64>, &Parameter)| {
        let shape: Vec<usize> = [5].into_iter().chain(p.shape().iter().copied()).collect();
        Tensor::from_vec(seen, shape)?.to_dtype(p.get()?.dtype())
    };
    seen.into_iter().zip(&parameters).map(stacked).collect()
}

/// The optimizer of a case, with one group a parameter.
fn with_groups(case: &Case, parameters: &[Parameter]) -> Box<dyn Optimizer> {
    let options = case.attr("groups").as_array().expect("groups");
    let group = |(p, own): (&Parameter, &serde_json::Value)| {
        let group = Group::new(vec![p.clone()]);
        let group = own["lr"].as_f64().map_or(group.clone(), |lr| group.lr(lr));
        own["weight_decay"].as_f64().map_or(group.clone(), |decay| group.weight_decay(decay))
    };
    let groups = parameters.iter().zip(options).map(group).collect();
    let (lr, decay) = (case.float("lr"), case.float("weight_decay"));
    match case.op.as_str() {
        "sgd" => {
            let it = Sgd::with_groups(groups, lr).weight_decay(decay).momentum(case.float("momentum"));
            Box::new(it.dampening(case.float("dampening")).nesterov(case.flag("nesterov")))
        }
        "rmsprop" => {
            let it = RmsProp::with_groups(groups, lr).weight_decay(decay).momentum(case.float("momentum"));
            let it = it.alpha(case.float("alpha")).eps(case.float("eps"));
            Box::new(if case.flag("centered") { it.centered() } else { it })
        }
        kind => {
            let beta = |i: usize| case.attr("betas")[i].as_f64().expect("a number");
            let it = Adam::with_groups(groups, lr).weight_decay(decay).betas(beta(0), beta(1)).eps(case.float("eps"));
            let it = if case.flag("amsgrad") { it.amsgrad() } else { it };
            Box::new(if kind == "adamw" { it.decoupled() } else { it })
        }
    }
}

#[test]
fn parameter_groups_and_clipping_are_pytorchs() -> Result<()> {
    let _turn = turn();
    let all = cases("parameter_groups");
    for case in &all {
        let x = case.all("in");
        let (mut norms, mut step) = (Vec::new(), 0);
        let got = trajectory(
            &x[..2],
            &x[2..],
            |p| with_groups(case, p),
            |optimizer| {
                optimizer.set_lr(case.float("lr") * case.float("decay").powi(step));
                step += 1;
                if let Some(most) = case.attr("clip_norm").as_f64() {
                    let kind = case.attr("norm_type").as_f64().unwrap_or(f64::INFINITY);
                    norms.push(clip_grad_norm_with(optimizer.parameters(), most, kind)?);
                }
                case.attr("clip_value").as_f64().map_or(Ok(()), |most| clip_grad_value(optimizer.parameters(), most))
            },
        )?;
        let norms = norms.iter().map(|n| n.item::<f64>()).collect::<Result<Vec<_>>>()?;
        for (i, (got, want)) in got.iter().zip(case.all("out")).enumerate() {
            same(got, want, case.tol).unwrap_or_else(|e| panic!("{} out{i}: {e}", case.name));
        }
        if let Some(want) = case.get("out2") {
            agree(&norms, &want.to_vec::<f64>()?, case.tol).unwrap_or_else(|e| panic!("{} norms: {e}", case.name));
        }
    }
    println!("{} cases", all.len());
    Ok(())
}

#[test]
fn adamw_has_pytorchs_defaults() -> Result<()> {
    let _turn = turn();
    let case = cases("optimizers").into_iter().find(|c| c.name == "adamw_default").expect("the case");
    let (x, lr) = (case.all("in"), case.float("lr"));
    let got = trajectory(&x[..2], &x[2..], |p| Box::new(Adam::adamw(p.to_vec(), lr)), |_| Ok(()))?;
    for (got, want) in got.iter().zip(case.all("out")) {
        same(got, want, case.tol).unwrap_or_else(|e| panic!("{e}"));
    }
    Ok(())
}

fn muon_of(case: &Case, parameters: &[Parameter]) -> Muon {
    let number = |i: usize| case.attr("coefficients")[i].as_f64().expect("a number");
    Muon::new(parameters.to_vec(), case.float("lr"))
        .momentum(case.float("momentum"))
        .nesterov(case.flag("nesterov"))
        .iterations(case.int("iterations") as usize)
        .coefficients(number(0), number(1), number(2))
        .eps(case.float("eps"))
        .weight_decay(case.float("weight_decay"))
        .renormalise(case.int("renormalise") as u64)
        .match_shape(case.flag("match_shape"))
}

#[test]
fn muon_is_the_reference() -> Result<()> {
    let _turn = turn();
    let all = cases("muon");
    for case in &all {
        let x = case.all("in");
        let (starts, gradients) = x.split_at(x.len() / 2);
        let got = trajectory(starts, gradients, |p| Box::new(muon_of(case, p)), |_| Ok(()))?;
        let wanted = case.all("out");
        assert_eq!(got.len(), wanted.len());
        for (i, (got, want)) in got.iter().zip(wanted).enumerate() {
            same(got, want, case.tol).unwrap_or_else(|e| panic!("{} out{i}: {e}", case.name));
        }
    }
    println!("{} cases", all.len());
    Ok(())
}

/// The update has singular values near 1, whatever the gradient's; and the weights keep their norm.
#[test]
fn muon_moves_by_an_orthogonal_matrix() -> Result<()> {
    let _turn = turn();
    let w = Parameter::new(&stream(3, [4, 2, 3], DType::F64, -1.0, 1.0)?)?;
    let mut muon = Muon::new(vec![w.clone()], 1.0).coefficients(2.0, -1.5, 0.5).iterations(30);
    let before = w.get()?;
    (&w.get()? * &stream(4, [4, 2, 3], DType::F64, -1.0, 1.0)?)?.sum()?.backward()?;
    muon.step()?;
    let moved = (before - w.get()?)?.reshape([4, 6])?;
    let square = moved.matmul(&moved.t()?)?.to_vec::<f64>()?;
    for (i, v) in square.iter().enumerate() {
        assert!((v - f64::from(u8::from(i % 5 == 0))).abs() < 1e-6, "{square:?}");
    }
    Ok(())
}

#[test]
fn muon_names_what_it_cannot_train() -> Result<()> {
    let net = Linear::new(3, 2)?;
    let mut muon = Muon::new(net.parameters(), 0.1);
    let error = muon.step().expect_err("a bias is no matrix").to_string();
    assert_eq!(error, "Muon is for matrices and filters; give bias [2] to another optimizer");
    Ok(())
}

fn small_net() -> Result<Sequential> {
    manual_seed(5);
    let net = Sequential::new().add(Conv2d::new(2, 4, 3)?).add(ReLU::new()).add(Flatten::new());
    Ok(net.add(Linear::new(4 * 4 * 4, 3)?))
}

fn batch(seed: u64, n: usize) -> Result<(Tensor, Tensor)> {
    let labels: Vec<i64> = (0..n as i64).map(|i| (i + seed as i64) % 3).collect();
    let x = stream(seed, [n, 2, 6, 6], DType::F32, -1.0, 1.0)?;
    // Computed now, so that it is no part of the first step's plan.
    Ok((Tensor::from_vec(x.to_vec::<f32>()?, x.shape())?, Tensor::from_vec(labels, [n])?))
}

fn values(net: &Sequential) -> Result<Vec<Vec<f32>>> {
    net.parameters().iter().map(|p| p.get()?.to_vec()).collect()
}

#[test]
fn accumulated_gradients_are_those_of_one_big_batch() -> Result<()> {
    let _turn = turn();
    let run = |parts: usize| -> Result<Vec<Vec<f32>>> {
        let net = small_net()?;
        let mut sgd = Sgd::new(net.parameters(), 0.1).momentum(0.9);
        for step in 0..5 {
            let (x, y) = batch(step, 12)?;
            let (x, y) = (x.to_vec::<f32>()?, y.to_vec::<i64>()?);
            sgd.zero_grad();
            let n = 12 / parts;
            for (x, y) in x.chunks(n * 72).zip(y.chunks(n)) {
                let (x, y) = (Tensor::from_slice(x, [n, 2, 6, 6])?, Tensor::from_slice(y, [n])?);
                net.forward(&x)?.cross_entropy(&y)?.mul_scalar(1.0 / parts as f64)?.backward()?;
            }
            clip_grad_norm(sgd.parameters(), 0.5)?;
            sgd.step()?;
        }
        values(&net)
    };
    let whole = run(1)?;
    for parts in [2, 3, 12] {
        for (got, want) in run(parts)?.iter().zip(&whole) {
            let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
            agree(&wide(got), &wide(want), 1e-5).unwrap_or_else(|e| panic!("{parts} parts: {e}"));
        }
    }
    Ok(())
}

#[test]
fn clipping_is_part_of_the_step() -> Result<()> {
    let _turn = turn();
    let net = small_net()?;
    let mut sgd = Sgd::new(net.parameters(), 0.1);
    let (x, y) = batch(0, 4)?;
    for step in 0..4 {
        sgd.zero_grad();
        let before = stats();
        let loss = net.forward(&x)?.cross_entropy(&y)?;
        loss.backward()?;
        let norm = clip_grad_norm(sgd.parameters(), 0.1 / f64::from(step + 1))?;
        assert_eq!(stats().runs, before.runs, "nothing runs before the step");
        sgd.step()?;
        assert!(norm.item::<f32>()? > 0.1 && loss.item::<f32>()? > 0.0);
        assert_eq!(stats().runs, before.runs + 1, "and norm and loss are there after it");
        assert_eq!(stats().compiled - before.compiled, u64::from(step == 0), "another limit is no other plan");
        let clipped = clip_grad_norm(sgd.parameters(), f64::INFINITY)?.item::<f64>()?;
        assert!((clipped - 0.1 / f64::from(step + 1)).abs() < 1e-5, "{clipped}");
    }
    // Without gradients there is nothing to do.
    sgd.zero_grad();
    assert_eq!(clip_grad_norm(sgd.parameters(), 1.0)?.item::<f32>()?, 0.0);
    clip_grad_value(sgd.parameters(), 1.0)?;
    Ok(())
}

/// The weights, their average and the lookahead, by their formulas in f64.
#[test]
fn averages_follow_their_formulas() -> Result<()> {
    let _turn = turn();
    let start = [1.0f64, -2.0, 0.5];
    let gradient = |w: &[f64; 3], step: usize| [w[0], 2.0 * w[1] + step as f64, -1.0];
    let train = |w: &Parameter, optimizer: &mut dyn Optimizer, step: usize| -> Result<u64> {
        optimizer.zero_grad();
        let now = w.get()?.to_vec::<f64>()?;
        let g = gradient(&[now[0], now[1], now[2]], step);
        (&w.get()? * &Tensor::from(g))?.sum()?.backward()?;
        let runs = stats().runs;
        optimizer.step()?;
        Ok(stats().runs - runs)
    };
    for warm_up in [false, true] {
        let w = Parameter::new(&Tensor::from(start))?;
        let ema = Ema::new(Sgd::new(vec![w.clone()], 0.1), 0.9)?;
        let mut ema = if warm_up { ema.warm_up() } else { ema };
        let (mut plain, mut average) = (start, start);
        for step in 0..20 {
            assert_eq!(train(&w, &mut ema, step)?, 1, "the average is part of the step's plan");
            let g = gradient(&plain, step);
            let t = step as f64 + 1.0;
            let decay = if warm_up { f64::min(0.9, (1.0 + t) / (10.0 + t)) } else { 0.9 };
            for i in 0..3 {
                plain[i] -= 0.1 * g[i];
                average[i] = decay * average[i] + (1.0 - decay) * plain[i];
            }
            if step % 6 == 5 {
                ema.apply()?;
                agree(&w.get()?.to_vec::<f64>()?, &average, 1e-12).expect("the average");
                assert!(ema.apply().is_err() && ema.step().is_err());
                ema.restore()?;
                assert!(ema.restore().is_err());
            }
            agree(&w.get()?.to_vec::<f64>()?, &plain, 1e-12).expect("the weights");
        }
        let (name, value) = ema.average()?.into_iter().next().expect("one parameter");
        assert_eq!(name, "parameter0");
        agree(&value.to_vec::<f64>()?, &average, 1e-12).expect("the average");
    }

    let w = Parameter::new(&Tensor::from(start))?;
    let mut lookahead = Lookahead::new(Sgd::new(vec![w.clone()], 0.1), 5, 0.25)?;
    let (mut fast, mut slow) = (start, start);
    for step in 0..23 {
        if step == 10 {
            lookahead.set_alpha(0.75);
        }
        assert_eq!(train(&w, &mut lookahead, step)?, 1, "the slow weights are part of the step's plan");
        let g = gradient(&fast, step);
        for i in 0..3 {
            fast[i] -= 0.1 * g[i];
            if step % 5 == 4 {
                slow[i] += if step >= 10 { 0.75 } else { 0.25 } * (fast[i] - slow[i]);
                fast[i] = slow[i];
            }
        }
        agree(&w.get()?.to_vec::<f64>()?, &fast, 1e-12).unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
    Ok(())
}

type Make = fn(&Sequential) -> Result<Box<dyn Optimizer>>;

/// Every optimizer, with all the state it can have.
const ALL: [(&str, Make); 11] = [
    ("sgd", |n| Ok(Box::new(Sgd::new(n.parameters(), 0.05)))),
    ("momentum", |n| Ok(Box::new(Sgd::new(n.parameters(), 0.05).momentum(0.9).dampening(0.1)))),
    ("adam", |n| Ok(Box::new(Adam::new(n.parameters(), 0.01)))),
    ("amsgrad", |n| Ok(Box::new(Adam::new(n.parameters(), 0.01).amsgrad()))),
    ("adamw", |n| Ok(Box::new(Adam::adamw(n.parameters(), 0.01)))),
    ("rmsprop", |n| Ok(Box::new(RmsProp::new(n.parameters(), 0.01)))),
    ("rmsprop, all", |n| Ok(Box::new(RmsProp::new(n.parameters(), 0.01).centered().momentum(0.9)))),
    ("groups", |n| {
        let (a, b): (Vec<_>, Vec<_>) = n.parameters().into_iter().partition(|p| p.shape().len() > 1);
        Ok(Box::new(Adam::with_groups(vec![Group::new(a), Group::new(b).lr(0.1).weight_decay(0.0)], 0.01)))
    }),
    ("composite", |n| {
        let (a, b): (Vec<_>, Vec<_>) = n.parameters().into_iter().partition(Muon::suits);
        let muon = Muon::new(a, 0.02).weight_decay(0.01).renormalise(3);
        Ok(Box::new(Composite::new(vec![Box::new(muon), Box::new(Sgd::new(b, 0.1).momentum(0.9).nesterov(true))])))
    }),
    ("ema", |n| Ok(Box::new(Ema::new(Adam::new(n.parameters(), 0.01), 0.9)?.warm_up()))),
    ("lookahead", |n| Ok(Box::new(Lookahead::new(Sgd::new(n.parameters(), 0.05).momentum(0.9), 3, 0.5)?))),
];

fn train(net: &Sequential, optimizer: &mut dyn Optimizer, steps: std::ops::Range<u64>) -> Result<()> {
    for step in steps {
        optimizer.set_lr(0.02 / (1.0 + step as f64));
        let (x, y) = batch(step, 6)?;
        optimizer.zero_grad();
        net.forward(&x)?.cross_entropy(&y)?.backward()?;
        optimizer.step()?;
    }
    Ok(())
}

#[test]
fn a_resumed_run_is_the_same_bits_as_one_that_was_not_interrupted() -> Result<()> {
    let _turn = turn();
    for (name, make) in ALL {
        let net = small_net()?;
        let mut optimizer = make(&net)?;
        train(&net, &mut *optimizer, 0..4)?;
        let path = std::env::temp_dir().join(format!("neurona-optimizer-{}.safetensors", std::process::id()));
        let model = net.state_dict()?;
        safetensors::save(&path, &optimizer.state_dict()?, &Default::default())?;
        train(&net, &mut *optimizer, 4..10)?;
        let want = (values(&net)?, state(&optimizer.state_dict()?)?);

        let other = small_net()?;
        let mut resumed = make(&other)?;
        other.load_state_dict(&model, true)?;
        resumed.load_state_dict(&safetensors::load(&path)?)?;
        std::fs::remove_file(path).ok();
        train(&other, &mut *resumed, 4..10)?;
        assert_eq!((values(&other)?, state(&resumed.state_dict()?)?), want, "{name}");
        assert_eq!(resumed.lr(), optimizer.lr(), "{name}");

        // An optimizer that starts anew goes another way, unless it has nothing to remember.
        let fresh = small_net()?;
        let mut anew = make(&fresh)?;
        fresh.load_state_dict(&model, true)?;
        train(&fresh, &mut *anew, 4..10)?;
        assert_eq!(values(&fresh)? == want.0, name == "sgd", "{name}: what is loaded makes no difference");
    }
    Ok(())
}

fn state(state: &StateDict) -> Result<Vec<(String, Vec<f64>)>> {
    state.iter().map(|(name, value)| Ok((name.to_string(), value.to_vec()?))).collect()
}

#[test]
fn a_state_that_does_not_fit_changes_nothing() -> Result<()> {
    let _turn = turn();
    for (name, make) in ALL {
        let net = small_net()?;
        let mut optimizer = make(&net)?;
        train(&net, &mut *optimizer, 0..4)?;
        let good = optimizer.state_dict()?;
        train(&net, &mut *optimizer, 4..5)?;
        let before = state(&optimizer.state_dict()?)?;
        let last = good.names().last().expect("entries").to_string();
        let mut lacking = good.clone();
        lacking.remove(&last);
        let mut more = good.clone();
        more.insert("nobody.asked", Tensor::scalar(1.0f32));
        let mut misshapen = good.clone();
        misshapen.insert(last.clone(), Tensor::from([1.0f32; 77]));
        for (bad, says) in [(lacking, &*last), (more, "nobody.asked"), (misshapen, "[77]")] {
            let error = optimizer.load_state_dict(&bad).expect_err("does not fit");
            assert!(matches!(error, Error::StateDict { .. }), "{name}: {error}");
            assert!(error.to_string().contains(says), "{name}: {error}");
            assert_eq!(state(&optimizer.state_dict()?)?, before, "{name}");
        }
        optimizer.load_state_dict(&good)?;
        assert_eq!(state(&optimizer.state_dict()?)?, state(&good)?, "{name}");
    }
    Ok(())
}

/// What was taken out stays as it was while training goes on in place.
#[test]
fn a_state_that_was_taken_does_not_change() -> Result<()> {
    let _turn = turn();
    for (name, make) in ALL {
        let net = small_net()?;
        let mut optimizer = make(&net)?;
        train(&net, &mut *optimizer, 0..3)?;
        let taken = optimizer.state_dict()?;
        let then = state(&taken)?;
        train(&net, &mut *optimizer, 3..6)?;
        assert_eq!(state(&taken)?, then, "{name}");
        // And what was loaded is not written through.
        optimizer.load_state_dict(&taken)?;
        train(&net, &mut *optimizer, 3..6)?;
        assert_eq!(state(&taken)?, then, "{name}");
    }
    Ok(())
}

#[test]
fn several_of_everything_are_still_one_plan() -> Result<()> {
    let _turn = turn();
    let net = small_net()?;
    let (filters, rest): (Vec<_>, Vec<_>) = net.parameters().into_iter().partition(Muon::suits);
    let groups = vec![Group::new(rest[..1].to_vec()), Group::new(rest[1..].to_vec()).lr(0.3)];
    let parts: Vec<Box<dyn Optimizer>> =
        vec![Box::new(Muon::new(filters, 0.1).renormalise(1)), Box::new(Sgd::with_groups(groups, 0.1).momentum(0.85))];
    let boxed: Box<dyn Optimizer> = Box::new(Composite::new(parts));
    let mut optimizer = Ema::new(Lookahead::new(boxed, 2, 0.5)?, 0.99)?;
    let (x, y) = batch(1, 6)?;
    let (mut first, mut last) = (0.0, 0.0);
    for step in 0..30 {
        optimizer.set_lr(0.1 * (1.0 - f64::from(step) / 30.0));
        optimizer.zero_grad();
        let before = stats();
        let loss = net.forward(&x)?.cross_entropy(&y)?;
        loss.backward()?;
        let norm = clip_grad_norm(optimizer.parameters(), 1.0)?;
        optimizer.step()?;
        last = loss.item::<f64>()?;
        assert!(norm.item::<f64>()?.is_finite());
        assert_eq!(stats().runs, before.runs + 1, "step {step}");
        assert_eq!(stats().compiled - before.compiled, u64::from(step < 2), "step {step}");
        if step == 0 {
            first = last;
        }
    }
    assert!(last < 0.5 * first, "{first} to {last}");
    Ok(())
}

/// A frozen parameter takes no steps, in whatever group it is.
#[test]
fn a_group_may_be_frozen_for_a_while() -> Result<()> {
    let _turn = turn();
    let (a, b) = (Parameter::new(&Tensor::from([1.0f64]))?, Parameter::new(&Tensor::from([1.0f64]))?);
    let mut adam = Adam::with_groups(vec![Group::new(vec![a.clone()]), Group::new(vec![b.clone()]).lr(0.01)], 0.1);
    let mut step = || -> Result<()> {
        adam.zero_grad();
        let target = Tensor::from([-9.0f64]);
        (a.get()? + &b.get()?)?.mse_loss_with(&target, Reduction::Sum)?.backward()?;
        adam.step()
    };
    b.set_requires_grad(false);
    step()?;
    assert_eq!(b.get()?.item::<f64>()?, 1.0);
    b.set_requires_grad(true);
    step()?;
    assert!((b.get()?.item::<f64>()? - 0.99).abs() < 1e-9, "its first step is its own rate");
    assert!((a.get()?.item::<f64>()? - 0.8).abs() < 1e-2);
    Ok(())
}
