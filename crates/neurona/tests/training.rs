//! The trainer beside loops written by hand, and its parts one by one.

use neurona::data::{Batch, Batches, TensorBatches};
use neurona::loss::{CrossEntropyLoss, MSELoss};
use neurona::metrics::{Confusion, TopK};
use neurona::nn::{Dropout, Forward, Linear, Module, ReLU, Sequential};
use neurona::optim::{Adam, Optimizer, Sgd, clip_grad_norm};
use neurona::schedule::{Cosine, Plateau, Schedule};
use neurona::train::{
    BatchEnd, Callback, Compile, Context, EarlyStopping, Outcome, Row, StopFlag, Trainer, class_weights, evaluate,
};
use neurona::{Error, Result, Tensor, manual_seed};
use std::sync::{Mutex, MutexGuard};

/// Random numbers belong to the process: one test at a time draws them.
fn seeded(seed: u64) -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    let guard = LOCK.lock().unwrap_or_else(|e| e.into_inner());
    manual_seed(seed);
    guard
}

/// Points of two clouds.
fn clouds(points: usize) -> Result<(Tensor, Tensor)> {
    let y: Vec<i64> = (0..points as i64).map(|i| i % 2).collect();
    let far: Vec<f32> = y.iter().flat_map(|c| [*c as f32 * 2.0; 3]).collect();
    let x = (Tensor::randn([points, 3])? + Tensor::from_vec(far, [points, 3])?)?;
    Ok((x, Tensor::from_vec(y, [points])?))
}

fn net() -> Result<Sequential> {
    Ok(Sequential::new().add(Linear::new(3, 8)?).add(ReLU::new()).add(Linear::new(8, 2)?))
}

fn bits(net: &impl Module) -> Result<Vec<u32>> {
    let state = net.state_dict()?;
    let all: Result<Vec<Vec<f32>>> = state.iter().map(|(_, t)| t.to_vec()).collect();
    Ok(all?.concat().into_iter().map(f32::to_bits).collect())
}

#[test]
fn it_is_the_loop_by_hand() -> Result<()> {
    let _seeded = seeded(1);
    let (x, y) = clouds(50)?;
    let batches = TensorBatches::new(&x, &y)?.batch_size(16).shuffle(3);
    let (one, two) = (net()?, net()?);
    two.load_state_dict(&one.state_dict()?, true)?;
    let schedule = Cosine::new(0.3, 12);

    let mut sgd = Sgd::new(one.parameters(), 0.3).momentum(0.9);
    let (mut losses, mut step) = (Vec::new(), 0);
    for epoch in 0..3 {
        let mut sum = 0.0;
        for batch in batches.epoch(epoch, 0)? {
            let Batch { images, labels, .. } = batch?;
            sgd.set_lr(schedule.lr(step));
            sgd.zero_grad();
            let loss = one.forward(&images)?.cross_entropy(&labels)?;
            loss.backward()?;
            clip_grad_norm(sgd.parameters(), 0.5)?;
            sgd.step()?;
            sum += loss.item::<f64>()? * labels.numel() as f64;
            step += 1;
        }
        losses.push(sum / 50.0);
    }

    let fit = Trainer::new(&two, Sgd::new(two.parameters(), 0.3).momentum(0.9))
        .schedule(schedule)
        .clip_norm(0.5)
        .epochs(3)
        .validation(&batches)
        .run(&batches)?;
    assert_eq!(bits(&one)?, bits(&two)?);
    assert_eq!(fit.history.column("train_loss"), losses);
    assert_eq!(fit.outcome, Outcome::Finished);
    let row = &fit.history.rows[2];
    assert_eq!((row.epoch, row.lr), (3, schedule.lr(11)));
    assert!(row.images_per_s > 0.0 && row.seconds > 0.0 && (0.0..=1.0).contains(&row.waiting));
    let judged = evaluate(&two, &batches)?;
    assert_eq!(row.val_accuracy, Some(judged.accuracy()));
    assert!((row.val_loss.unwrap() - judged.loss).abs() < 1e-9);
    Ok(())
}

#[test]
fn accumulated_batches_are_one_large_batch() -> Result<()> {
    let _seeded = seeded(2);
    let (x, y) = clouds(40)?;
    let (small, large) = (TensorBatches::new(&x, &y)?.batch_size(4), TensorBatches::new(&x, &y)?.batch_size(16));
    let (one, two) = (net()?, net()?);
    two.load_state_dict(&one.state_dict()?, true)?;
    struct Steps(u64);
    impl Callback for Steps {
        fn on_train_end(&mut self, at: &mut Context<'_>) -> Result<()> {
            self.0 = at.step;
            Ok(())
        }
    }
    let mut steps = Steps(0);
    // 10 batches: two updates of four and one of the two that are left.
    Trainer::new(&one, Sgd::new(one.parameters(), 0.5)).accumulate(4).epochs(2).callback(&mut steps).run(&small)?;
    Trainer::new(&two, Sgd::new(two.parameters(), 0.5)).epochs(2).run(&large)?;
    assert_eq!(steps.0, 6);
    for ((name, a), (_, b)) in one.state_dict()?.iter().zip(two.state_dict()?.iter()) {
        let (a, b) = (a.to_vec::<f32>()?, b.to_vec::<f32>()?);
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5), "{name}: {a:?} {b:?}");
    }
    Ok(())
}

/// Notes what is called, and may stop or fail.
#[derive(Default)]
struct Diary {
    lines: Vec<String>,
    stop_at: Option<(usize, usize)>,
    fail_at: Option<usize>,
}

impl Callback for Diary {
    fn on_train_begin(&mut self, at: &mut Context<'_>) -> Result<()> {
        self.lines.push(format!("begin {}x{}", at.epochs, at.batches));
        Ok(())
    }
    fn on_epoch_begin(&mut self, at: &mut Context<'_>) -> Result<()> {
        self.lines.push(format!("epoch {}", at.epoch));
        Ok(())
    }
    fn on_batch_end(&mut self, at: &mut Context<'_>, batch: &BatchEnd) -> Result<()> {
        self.lines.push(format!("batch {} of {}, step {}", batch.batch, batch.images, at.step));
        if self.stop_at == Some((at.epoch, batch.batch)) {
            at.stop("enough");
        }
        Ok(())
    }
    fn on_validation_batch_end(&mut self, _at: &mut Context<'_>, done: usize, of: usize) -> Result<()> {
        self.lines.push(format!("validation {done}/{of}"));
        Ok(())
    }
    fn on_epoch_end(&mut self, at: &mut Context<'_>, row: &Row) -> Result<()> {
        self.lines.push(format!("end of epoch {} {}", at.epoch, row.epoch));
        if self.fail_at == Some(row.epoch) {
            return Err(Error::Argument("no more paper".into()));
        }
        Ok(())
    }
    fn on_train_end(&mut self, _at: &mut Context<'_>) -> Result<()> {
        self.lines.push("end".into());
        Ok(())
    }
}

#[test]
fn callbacks_are_called_in_order_and_can_end_the_run() -> Result<()> {
    let _seeded = seeded(3);
    let (x, y) = clouds(10)?;
    let (net, batches) = (net()?, TensorBatches::new(&x, &y)?.batch_size(6));
    let trainer = || Trainer::new(&net, Sgd::new(net.parameters(), 0.1)).epochs(2).validation(&batches);
    let mut diary = Diary::default();
    trainer().epochs(1).callback(&mut diary).run(&batches)?;
    let expected = [
        "begin 1x2",
        "epoch 1",
        "batch 1 of 6, step 1",
        "batch 2 of 4, step 2",
        "validation 1/2",
        "validation 2/2",
        "end of epoch 1 1",
        "end",
    ];
    assert_eq!(diary.lines, expected);

    // Stopped within an epoch: what was begun is measured, then the run ends.
    let mut diary = Diary { stop_at: Some((2, 1)), ..Diary::default() };
    let fit = trainer().epochs(9).callback(&mut diary).run(&batches)?;
    assert_eq!((fit.outcome, fit.history.rows.len()), (Outcome::Stopped("enough".into()), 2));
    assert!(diary.lines.ends_with(&["end of epoch 2 2".into(), "end".into()]));

    let mut diary = Diary { fail_at: Some(1), ..Diary::default() };
    let mut after = Diary::default();
    let error = trainer().callback(&mut diary).callback(&mut after).run(&batches).unwrap_err();
    assert_eq!(error.to_string(), "no more paper");
    assert_eq!(after.lines.last().map(String::as_str), Some("validation 2/2"));

    let flag = StopFlag::new();
    flag.raise();
    let fit = trainer().stop_flag(&flag).run(&batches)?;
    assert_eq!((fit.outcome, fit.history.rows.len()), (Outcome::Interrupted, 0));
    Ok(())
}

#[test]
fn early_stopping_gives_the_best_weights_back() -> Result<()> {
    let _seeded = seeded(4);
    let (x, y) = clouds(40)?;
    let (net, batches) = (net()?, TensorBatches::new(&x, &y)?.batch_size(8));
    /// Keeps the weights of every epoch.
    #[derive(Default)]
    struct Keep(Vec<Vec<f32>>);
    impl Callback for Keep {
        fn on_epoch_end(&mut self, at: &mut Context<'_>, _row: &Row) -> Result<()> {
            let weights = at.weights()?;
            self.0.push(weights.iter().map(|(_, t)| t.to_vec::<f32>()).collect::<Result<Vec<_>>>()?.concat());
            Ok(())
        }
    }
    let mut keep = Keep::default();
    // A rate that is too high to go on getting better.
    let fit = Trainer::new(&net, Sgd::new(net.parameters(), 3.0).momentum(0.9))
        .epochs(50)
        .validation(&batches)
        .ema(0.5)
        .callback(&mut keep)
        .callback(EarlyStopping::new("val_loss").patience(2).restore_best())
        .run(&batches)?;
    let best = fit.history.lowest("val_loss").unwrap();
    assert_eq!(fit.history.rows.len(), best.epoch + 3);
    assert_eq!(fit.outcome, Outcome::Stopped("val_loss has not improved for 3 epochs".into()));
    let now: Vec<f32> = net.state_dict()?.iter().map(|(_, t)| t.to_vec()).collect::<Result<Vec<_>>>()?.concat();
    assert_eq!(now, keep.0[best.epoch - 1]);
    assert!((evaluate(&net, &batches)?.loss - best.val_loss.unwrap()).abs() < 1e-9);
    Ok(())
}

#[test]
fn validation_and_the_end_have_the_average() -> Result<()> {
    let _seeded = seeded(5);
    let (x, y) = clouds(40)?;
    let (net, batches) = (net()?, TensorBatches::new(&x, &y)?.batch_size(8));
    let fit =
        Trainer::new(&net, Sgd::new(net.parameters(), 0.5)).ema(0.9).epochs(2).validation(&batches).run(&batches)?;
    let judged = evaluate(&net, &batches)?;
    assert!((judged.loss - fit.history.rows[1].val_loss.unwrap()).abs() < 1e-9);
    Ok(())
}

#[test]
fn plateau_lowers_the_rate() -> Result<()> {
    let _seeded = seeded(6);
    let (x, y) = clouds(16)?;
    let (net, batches) = (net()?, TensorBatches::new(&x, &y)?);
    // Nothing gets better by a share of one half each epoch.
    let fit = Trainer::new(&net, Sgd::new(net.parameters(), 0.1))
        .plateau(Plateau::new(0.1).patience(0).threshold(0.5).factor(0.5), "train_loss")
        .epochs(4)
        .run(&batches)?;
    assert_eq!(fit.history.column("lr"), [0.1, 0.1, 0.05, 0.025]);
    Ok(())
}

#[test]
fn a_loss_that_is_no_number_ends_the_run() -> Result<()> {
    let _seeded = seeded(7);
    let (x, y) = clouds(40)?;
    let net = Linear::new(3, 1)?;
    let y = y.to_dtype(neurona::DType::F32)?.reshape([40, 1])?;
    let batches = TensorBatches::new(&x, &y)?.batch_size(20);
    let error = Trainer::new(&net, Sgd::new(net.parameters(), 1e30)).loss(MSELoss::new()).epochs(5).run(&batches);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("in epoch 1, step 2; ") && error.ends_with("try a lower learning rate"), "{error}");
    Ok(())
}

#[test]
fn wrong_setups_are_refused_before_the_work() -> Result<()> {
    let _seeded = seeded(8);
    let (x, y) = clouds(10)?;
    let (net, batches) = (net()?, TensorBatches::new(&x, &y)?);
    let trainer = || Trainer::new(&net, Sgd::new(net.parameters(), 0.1));
    let problem = |trainer: Trainer<'_>, batches: &TensorBatches| trainer.run(batches).unwrap_err().to_string();
    let error = problem(trainer().callback(EarlyStopping::new("val_loss")), &batches);
    assert!(error.starts_with("'val_loss' is not measured in this run (there is no validation set)"), "{error}");
    let error = problem(trainer().plateau(Plateau::new(0.1), "val_top7").validation(&batches), &batches);
    assert!(error.starts_with("'val_top7' is not measured in this run; there are epoch, lr,"), "{error}");
    let none = TensorBatches::new(&x.narrow(0, 0, 0)?, &y.narrow(0, 0, 0)?)?;
    assert!(problem(trainer(), &none).starts_with("there are no training batches"));
    assert_eq!(problem(trainer().validation(&none), &batches), "the validation set is empty");
    let wrong = TensorBatches::new(&x, &y.add_scalar(1)?)?;
    let error = problem(trainer(), &wrong);
    assert_eq!(error, "label 2 of image 1 of a batch is not between 0 and 1");
    Ok(())
}

#[test]
fn mixed_labels_smoothing_and_class_weights() -> Result<()> {
    let _seeded = seeded(9);
    let (x, y) = clouds(60)?;
    let mixed = y.one_hot(2)?.to_dtype(neurona::DType::F32)?.mul_scalar(0.8)?.add_scalar(0.1)?;
    let (net, batches) = (net()?, TensorBatches::new(&x, &mixed)?.batch_size(10).shuffle(1));
    let weights = class_weights(&y.to_vec::<i64>()?, 2)?;
    let fit = Trainer::new(&net, Adam::new(net.parameters(), 0.02))
        .loss(CrossEntropyLoss::new().label_smoothing(0.1).weight(&weights))
        .validation_loss(CrossEntropyLoss::new())
        .epochs(8)
        .validation(&batches)
        .metric(TopK::new(2))
        .metric(Confusion::new(2))
        .run(&batches)?;
    let last = fit.history.last().unwrap();
    assert!(last.train_accuracy > Some(0.8) && last.val_accuracy > Some(0.8), "{last:?}");
    assert_eq!(last.get("val_top2"), Some(1.0));
    assert!(last.get("val_macro_f1") > Some(0.8));
    assert!(fit.history.csv().starts_with("epoch,lr,train_loss,train_accuracy,val_loss,val_accuracy,images_per_s,seconds,waiting,memory_bytes,val_top2,val_macro_f1\n"));
    Ok(())
}

#[test]
fn keras_fits_tensors_and_loaders() -> Result<()> {
    let _seeded = seeded(10);
    let (x, y) = clouds(80)?;
    let mut model = net()?.add(Dropout::new(0.0)).compile(|p| Sgd::new(p, 0.1).momentum(0.9), CrossEntropyLoss::new());
    let fit = model.fit((&x, &y)).epochs(5).batch_size(16).validation((&x, &y)).run()?;
    assert_eq!(fit.history.rows.len(), 5);
    let batches = TensorBatches::new(&x, &y)?.batch_size(16).shuffle(2);
    let again = model.fit(&batches).epochs(5).with(|trainer| trainer.clip_norm(1.0)).run()?;
    // It goes on from where it was.
    assert!(again.history.rows[0].train_loss < fit.history.rows[0].train_loss);
    let measures = model.evaluate((&x, &y))?;
    assert!(measures.accuracy > Some(0.85));
    let guesses = model.predict(&x)?.argmax(1)?;
    let right = guesses.to_vec::<i64>()?.iter().zip(y.to_vec::<i64>()?).filter(|(a, b)| *a == b).count();
    assert_eq!(Some(right as f64 / 80.0), measures.accuracy);
    // A regression has a loss, and no accuracy.
    let target = x.sum_dims(&[1], true)?;
    let mut line = Linear::new(3, 1)?.compile(|p| Adam::new(p, 0.05), MSELoss::new());
    let fit = line.fit((&x, &target)).epochs(100).run()?;
    let last = fit.history.last().unwrap();
    assert!(last.train_loss < 0.01 && last.train_accuracy.is_none(), "{last:?}");
    assert_eq!(line.evaluate((&x, &target))?.accuracy, None);
    Ok(())
}

#[test]
fn evaluation_lists_the_most_confident_mistakes() -> Result<()> {
    let net = Linear::new(3, 3)?;
    net.load_state_dict(
        &[("weight", Tensor::eye(3, 3, neurona::DType::F32)?), ("bias", Tensor::from([0.0f32; 3]))]
            .into_iter()
            .collect(),
        true,
    )?;
    let x = Tensor::from([[4.0f32, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 9.0], [1.0, 0.0, 0.0]]);
    let batches = TensorBatches::new(&x, &Tensor::from([0i64, 0, 1, 2]))?.batch_size(3);
    let judged = evaluate(&net, &batches)?;
    assert_eq!(judged.confusion.counts(), [[1, 1, 0], [0, 0, 1], [1, 0, 0]]);
    let worst: Vec<(usize, usize, usize)> =
        judged.worst_mistakes(2).iter().map(|p| (p.index, p.label, p.guess())).collect();
    assert_eq!(worst, [(2, 1, 2), (1, 0, 1)]);
    let e = f64::exp;
    assert!((judged.predictions[1].confidence() - e(2.0) / (e(2.0) + 2.0)).abs() < 1e-6);
    let rows = [e(4.0) / (e(4.0) + 2.0), 1.0 / (e(2.0) + 2.0), 1.0 / (e(9.0) + 2.0), 1.0 / (e(1.0) + 2.0)];
    let loss = rows.iter().map(|p| -p.ln()).sum::<f64>() / 4.0;
    assert!((judged.loss - loss).abs() < 1e-6 && judged.top5 == 1.0);
    Ok(())
}
