//! Learning rates against PyTorch's schedulers, step by step; and that changing them makes no plan.

mod common;

use common::{Case, cases};
use neurona::nn::Parameter;
use neurona::optim::{Adam, Composite, Group, Muon, Optimizer, RmsProp, Sgd};
use neurona::schedule::{
    Chained, Cosine, CosineRestarts, Exponential, Linear, MultiStep, OneCycle, Plateau, Polynomial, Schedule,
    Sequential, Step, WarmUp,
};
use neurona::{Result, Tensor, stats};
use serde_json::Value;
use std::sync::{Mutex, MutexGuard};

/// Plans are counted process-wide, so the tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

/// The schedule of a scheduler's attributes, for this base rate.
fn schedule(op: &str, lr: f64, attr: &dyn Fn(&str) -> Value) -> Box<dyn Schedule> {
    let float = |name: &str| attr(name).as_f64().expect("a number");
    let int = |name: &str| attr(name).as_u64().expect("a whole number");
    let ints = |name: &str| -> Vec<u64> {
        attr(name).as_array().expect("a list").iter().map(|v| v.as_u64().expect("a whole number")).collect()
    };
    let part = |value: &Value, lr: f64| {
        let value = value.clone();
        let op = value["op"].as_str().expect("a part names its op").to_string();
        schedule(&op, lr, &move |name| value[name].clone())
    };
    match op {
        "step" => Box::new(Step::new(lr, int("step_size"), float("gamma"))),
        "multi_step" => Box::new(MultiStep::new(lr, &ints("milestones"), float("gamma"))),
        "exponential" => Box::new(Exponential::new(lr, float("gamma"))),
        "linear" => Box::new(Linear::new(lr, float("start_factor"), float("end_factor"), int("total_iters"))),
        "cosine" => Box::new(Cosine::new(lr, int("T_max")).down_to(float("eta_min"))),
        "cosine_restarts" => {
            Box::new(CosineRestarts::new(lr, int("T_0")).times(int("T_mult")).down_to(float("eta_min")))
        }
        "polynomial" => Box::new(Polynomial::new(lr, int("total_iters"), float("power"))),
        "one_cycle" => {
            let mut cycle = OneCycle::new(lr, int("total_steps")).rise(float("pct_start"));
            cycle = cycle.div_factor(float("div_factor")).final_div_factor(float("final_div_factor"));
            if attr("anneal_strategy") == "linear" {
                cycle = cycle.linear();
            }
            Box::new(if attr("three_phase") == true { cycle.three_phase() } else { cycle })
        }
        "chained" => {
            let parts = attr("parts");
            let parts = parts.as_array().expect("parts").iter().enumerate();
            Box::new(Chained::new(parts.map(|(i, p)| part(p, if i == 0 { lr } else { 1.0 })).collect()))
        }
        "sequential" => {
            let parts = attr("parts");
            let parts = parts.as_array().expect("parts");
            let mut whole = Sequential::new(part(&parts[0], lr));
            for (p, begin) in parts[1..].iter().zip(ints("milestones")) {
                whole = whole.then(begin, part(p, lr));
            }
            Box::new(whole)
        }
        other => panic!("no schedule is called {other}"),
    }
}

fn plateau(case: &Case) -> Plateau {
    let it = Plateau::new(case.float("lr")).factor(case.float("factor")).patience(case.int("patience") as u64);
    let it = it.cooldown(case.int("cooldown") as u64).min_lr(case.float("min_lr"));
    let threshold = case.float("threshold");
    let it =
        if case.text("threshold_mode") == "abs" { it.absolute_threshold(threshold) } else { it.threshold(threshold) };
    if case.text("mode") == "max" { it.for_highest() } else { it }
}

#[test]
fn every_step_is_pytorchs() -> Result<()> {
    let _turn = turn();
    let all = cases("schedules");
    let mut steps = 0;
    for case in &all {
        let want = case.tensor("out0").to_vec::<f64>()?;
        let got: Vec<f64> = if case.op == "plateau" {
            let mut plateau = plateau(case);
            case.tensor("in0").to_vec::<f64>()?.into_iter().map(|measure| plateau.step(measure)).collect()
        } else {
            let schedule = schedule(&case.op, case.float("lr"), &|name| case.attr(name).clone());
            (0..want.len() as u64).map(|step| schedule.lr(step)).collect()
        };
        for (step, (got, want)) in got.iter().zip(&want).enumerate() {
            // PyTorch multiplies step by step and so rounds as often; at the bottom of a cosine that is all there is.
            let allowed = case.tol * want.abs() + 1e-15;
            assert!((got - want).abs() <= allowed, "{} at step {step}: {got:e} instead of {want:e}", case.name);
        }
        if case.op == "plateau" || case.op == "step" {
            assert!(want.windows(2).any(|w| w[0] != w[1]), "{} shows nothing", case.name);
        }
        steps += want.len();
    }
    println!("{} cases, {steps} steps", all.len());
    Ok(())
}

/// The wrapper is the same as the sequence that PyTorch's users write.
#[test]
fn a_warm_up_is_a_line_and_then_the_schedule() {
    let case = cases("schedules").into_iter().find(|c| c.name == "sequential_warm_up_cosine").expect("the case");
    let want = case.tensor("out0").to_vec::<f64>().expect("values");
    let schedule = WarmUp::new(Cosine::new(0.1, 260), 40);
    for (step, want) in want.iter().enumerate() {
        let got = schedule.lr(step as u64);
        assert!((got - want).abs() <= 1e-12 * want + 1e-15, "step {step}: {got} instead of {want}");
    }
}

#[test]
fn odd_arguments_give_numbers() {
    let all: Vec<Box<dyn Schedule>> = vec![
        Box::new(Step::new(1.0, 0, 0.5)),
        Box::new(MultiStep::new(1.0, &[], 0.5)),
        Box::new(Linear::new(1.0, 0.0, 1.0, 0)),
        Box::new(Cosine::new(1.0, 0)),
        Box::new(CosineRestarts::new(1.0, 0).times(0)),
        Box::new(CosineRestarts::new(1.0, 1).times(3)),
        Box::new(WarmUp::new(1.0, 0)),
        Box::new(OneCycle::new(1.0, 0)),
        Box::new(OneCycle::new(1.0, 1)),
        Box::new(OneCycle::new(1.0, 2).rise(0.0)),
        Box::new(OneCycle::new(1.0, 10).rise(1.0).three_phase()),
        Box::new(Polynomial::new(1.0, 0, 2.0)),
        Box::new(Chained::new(vec![])),
        Box::new(Sequential::new(1.0).then(0, 0.5)),
    ];
    for (i, schedule) in all.iter().enumerate() {
        for step in [0, 1, 2, 9, 1000, u64::MAX / 2, u64::MAX] {
            let lr = schedule.lr(step);
            assert!((0.0..=1.0).contains(&lr), "schedule {i} at step {step}: {lr}");
        }
    }
}

/// Rates are inputs of the plan: for every optimizer, with groups, and for several as one.
#[test]
fn a_new_rate_makes_no_plan() -> Result<()> {
    let _turn = turn();
    let matrix = |seed: u64| Parameter::new(&common::stream(seed, [3, 4], neurona::DType::F32, -1.0, 1.0)?);
    type Make = fn(Vec<Group>) -> Box<dyn Optimizer>;
    let make: [Make; 6] = [
        |g| Box::new(Sgd::with_groups(g, 0.1).momentum(0.9)),
        |g| Box::new(Adam::with_groups(g, 0.1)),
        |g| Box::new(Adam::with_groups(g, 0.1).decoupled().weight_decay(0.1)),
        |g| Box::new(RmsProp::with_groups(g, 0.1)),
        |g| Box::new(Muon::with_groups(g, 0.1)),
        |mut g| {
            let last = g.pop().expect("two groups");
            let muon = Muon::with_groups(vec![last], 0.1).renormalise(1);
            Box::new(Composite::new(vec![Box::new(muon), Box::new(Sgd::with_groups(g, 0.4))]))
        },
    ];
    for (kind, make) in make.into_iter().enumerate() {
        let (a, b) = (matrix(1)?, matrix(2)?);
        let groups = vec![Group::new(vec![a.clone()]), Group::new(vec![b.clone()]).lr(0.3).weight_decay(0.01)];
        let mut optimizer = make(groups);
        let schedule = OneCycle::new(0.1, 30);
        let mut before = stats();
        for step in 0..30 {
            optimizer.set_lr(schedule.lr(step));
            assert_eq!(optimizer.lr(), schedule.lr(step));
            optimizer.zero_grad();
            let loss = (&a.get()? * &b.get()?)?.sum()?;
            loss.backward()?;
            optimizer.step()?;
            if step == 0 {
                before = stats();
            }
        }
        assert_eq!(stats().compiled, before.compiled, "optimizer {kind} made plans");
        assert_eq!(stats().runs, before.runs + 29, "optimizer {kind}: one run a step");
    }
    Ok(())
}

/// A rate of zero on the way does not lose the proportion between parts and between groups.
#[test]
fn proportions_survive_a_rate_of_zero() -> Result<()> {
    let _turn = turn();
    let p = |v: f64| Parameter::new(&Tensor::from([v]));
    let (a, b, c) = (p(1.0)?, p(1.0)?, p(1.0)?);
    let groups = vec![Group::new(vec![a.clone()]), Group::new(vec![b.clone()]).lr(0.2)];
    let first = Sgd::with_groups(groups, 0.1);
    let mut both = Composite::new(vec![Box::new(first), Box::new(Sgd::new(vec![c.clone()], 0.4))]);
    for lr in [0.0, 0.5, 0.0, 0.05] {
        both.set_lr(lr);
    }
    ((a.get()? + &b.get()?)? + &c.get()?)?.sum()?.backward()?;
    both.step()?;
    for (p, want) in [(a, 0.95), (b, 0.9), (c, 0.8)] {
        assert!((p.get()?.item::<f64>()? - want).abs() < 1e-12);
    }
    Ok(())
}
