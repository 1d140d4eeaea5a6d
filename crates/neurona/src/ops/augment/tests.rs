use super::cpu::{Forward, Stored};
use super::draw::{Change, Draw, partner, source};
use super::reference::{Operands, augment};
use super::*;
use crate::cpu::kernel::Buf;
use crate::cpu::math::Real;
use crate::cpu::tasks::testing::{Rng, close, run};
use crate::tensor::Element;

fn jitter(strength: [f32; 3]) -> Jitter {
    Jitter { low: strength.map(|s| Fixed::new(1.0 - s)), span: strength.map(|s| Fixed::new(2.0 * s)) }
}

/// Settings of every kind, and some at random.
fn settings() -> Vec<Settings> {
    let flip = |p| Flip::Random(Fixed::new(p));
    let mut all = vec![
        Settings::NONE,
        Settings { padding: 2, ..Settings::NONE },
        Settings { padding: 2, reflect: true, ..Settings::NONE },
        Settings { flip: flip(1.0), ..Settings::NONE },
        Settings { flip: Flip::Given, ..Settings::NONE },
        Settings { cutout: 3, ..Settings::NONE },
        Settings { cutout: usize::MAX / 4, ..Settings::NONE },
        Settings { jitter: Some(jitter([0.4, 0.4, 0.4])), ..Settings::NONE },
        Settings { jitter: Some(jitter([0.9, 0.0, 0.0])), ..Settings::NONE },
    ];
    let mut rng = Rng(5);
    for _ in 0..40 {
        let mut one = |strengths: f64| if rng.below(2) == 1 { (strengths * rng.unit().abs()) as f32 } else { 0.0 };
        let strengths = [one(1.0), one(1.0), one(1.0)];
        all.push(Settings {
            padding: rng.below(4),
            reflect: rng.below(2) == 1,
            flip: if rng.below(3) == 0 { Flip::Given } else { flip(0.5) },
            jitter: (rng.below(2) == 1).then(|| jitter(strengths)),
            cutout: rng.below(5),
        });
    }
    all
}

fn check<T: Stored + Real + Element>(tolerance: f64) {
    let mut rng = Rng(1);
    for (case, settings) in settings().into_iter().enumerate() {
        let least = settings.padding + 1;
        let c = if settings.jitter.is_some() { [1, 3][case % 2] } else { 1 + rng.below(5) };
        let shape = [1 + rng.below(5), c, least + rng.below(9), least + rng.below(9)];
        let classes = 1 + rng.below(4);
        let op = Augment { settings, mix: (case % 3 == 1).then_some(classes), to: T::DTYPE };
        let mut images: Vec<u8> = (0..shape.iter().product()).map(|_| rng.below(256) as u8).collect();
        let mut statistics: Vec<f32> = (0..2 * c).map(|i| rng.unit() as f32 + if i < c { 0.0 } else { 1.5 }).collect();
        let mut flips: Vec<u8> = (0..shape[0]).map(|_| rng.below(2) as u8).collect();
        // One label that is none of the classes.
        let mut labels: Vec<i64> = (0..shape[0]).map(|_| rng.below(classes + 1) as i64).collect();
        let (mut key, mut own) = ([rng.below(1 << 30) as i64 - (1 << 29)], [rng.unit().abs() as f32]);
        let (mean, deviation) = statistics.split_at(c);
        let operands = Operands {
            images: &images,
            shape,
            key: key[0] as u64,
            mean,
            deviation,
            flips: (settings.flip == Flip::Given).then_some(&flips),
            own: own[0],
            labels: &labels,
        };
        let (want, want_probabilities) = augment(&op, &operands);

        let mut result = vec![T::nan(); images.len()];
        let mut probabilities = vec![f32::NAN; want_probabilities.len()];
        let mut inputs = vec![Buf::over(&mut images), Buf::over(&mut key), Buf::over(&mut statistics)];
        if settings.flip == Flip::Given {
            inputs.push(Buf::over(&mut flips));
        }
        inputs.extend([Buf::over(&mut own), Buf::over(&mut labels)]);
        let outputs = [Buf::over(&mut result), Buf::over(&mut probabilities)];
        run(&Forward::<T>::new(&op, &shape), &inputs, &outputs);
        close(&result, &want, tolerance);
        close(&probabilities, &want_probabilities, 1e-6);
    }
}

#[test]
fn agrees_with_one_value_at_a_time() {
    check::<f32>(3e-6);
    check::<f64>(3e-6);
}

#[test]
fn without_jitter_bytes_become_pytorchs_values_to_the_bit() {
    let op = Augment { settings: Settings::NONE, mix: None, to: DType::F32 };
    let mut images: Vec<u8> = (0..=255).collect();
    let (mut key, mut statistics, mut result) = ([1i64], [0.4914f32, 0.2470], vec![0f32; 256]);
    let inputs = [Buf::over(&mut images), Buf::over(&mut key), Buf::over(&mut statistics)];
    run(&Forward::<f32>::new(&op, &[1, 1, 16, 16]), &inputs, &[Buf::over(&mut result)]);
    for (byte, v) in result.iter().enumerate() {
        assert_eq!(*v, (byte as f32 / 255.0 - 0.4914) / 0.2470);
    }
}

#[test]
fn draws_are_even() {
    let settings = Settings {
        padding: 4,
        flip: Flip::Random(Fixed::new(0.25)),
        jitter: Some(jitter([0.5, 0.25, 0.125])),
        cutout: 2,
        ..Settings::NONE
    };
    let count = 20_000;
    let (mut tops, mut lefts, mut holes) = ([0usize; 9], [0usize; 9], [0usize; 16]);
    let (mut flips, mut firsts, mut factors) = (0, [0usize; 3], [0.0; 3]);
    for image in 0..count {
        // Half of them from another key: batches must not repeat each other.
        let draw = Draw::new(&settings, 7 + (image % 2) as u64, image / 2, [16, 16], None);
        tops[draw.top] += 1;
        lefts[draw.left] += 1;
        flips += usize::from(draw.flipped);
        holes[draw.hole[0].start] += 1;
        assert!(draw.hole[1].len() <= 2 && draw.hole[1].end <= 16);
        firsts[draw.changes[0].0 as usize] += 1;
        for (change, factor) in draw.changes {
            let strength = [0.5, 0.25, 0.125][change as usize];
            assert!((factor - 1.0).abs() <= strength);
            factors[change as usize] += f64::from((factor - 1.0) / strength);
        }
    }
    // Five standard deviations of a count.
    let even = |seen: usize, share: f64| {
        let want = count as f64 * share;
        assert!((seen as f64 - want).abs() < 5.0 * (want * (1.0 - share)).sqrt(), "{seen} of {want}");
    };
    tops.iter().chain(&lefts).for_each(|seen| even(*seen, 1.0 / 9.0));
    firsts.iter().for_each(|seen| even(*seen, 1.0 / 3.0));
    // A hole about row 0 or 1 starts at row 0.
    even(holes[0], 2.0 / 16.0);
    holes[1..15].iter().for_each(|seen| even(*seen, 1.0 / 16.0));
    even(flips, 0.25);
    factors.iter().for_each(|sum| assert!((sum / count as f64).abs() < 5.0 / (3.0 * count as f64).sqrt()));
}

#[test]
fn partners_are_others_and_all_as_likely() {
    assert_eq!((partner(3, 0), partner(3, 1), partner(3, 2)), (0, 0, 1));
    let mut seen = [0; 5];
    (0..10_000).for_each(|key| seen[partner(key, 5)] += 1);
    assert_eq!(seen[0], 0);
    assert!(seen[1..].iter().all(|n| (2250..2750).contains(n)), "{seen:?}");
}

#[test]
fn contrast_waits_for_what_comes_before_it() {
    let settings = Settings { jitter: Some(jitter([0.1, 0.1, 0.1])), ..Settings::NONE };
    for image in 0..50 {
        let draw = Draw::new(&settings, 1, image, [4, 4], None);
        let before = draw.before_contrast().len();
        assert_eq!(draw.changes[before].0, Change::Contrast);
    }
}

#[test]
fn a_mirror_or_black_lies_outside() {
    let row = |reflect| (0..7).map(|at| source(at, 2, 3, reflect)).collect::<Vec<_>>();
    assert_eq!(row(true), [2, 1, 0, 1, 2, 1, 0].map(Some));
    assert_eq!(row(false), [None, None, Some(0), Some(1), Some(2), None, None]);
}

#[test]
fn what_cannot_be_augmented_is_refused() {
    let meta = |shape: &[usize], dtype| Meta::new(shape.to_vec(), dtype);
    let refused =
        |op: &Augment, inputs: &[Meta]| op.outputs(&inputs.iter().collect::<Vec<_>>()).unwrap_err().to_string();
    let with = |settings| Augment { settings, mix: None, to: DType::F32 };
    let (key, three) = (meta(&[], DType::I64), meta(&[2, 3], DType::F32));
    let of = |shape: &[usize], dtype| [meta(shape, dtype), key.clone(), three.clone()];
    let plain = with(Settings::NONE);
    assert!(refused(&plain, &of(&[3, 8, 8], DType::U8)).contains("[n, c, h, w]"));
    assert!(refused(&plain, &of(&[1, 3, 8, 8], DType::F32)).contains("u8"));
    assert!(refused(&plain, &of(&[1, 3, 0, 8], DType::U8)).contains("no pixels"));
    assert!(refused(&plain, &of(&[1, 1, 8, 8], DType::U8)).contains("for 3 channels"));
    assert!(refused(&plain, &of(&[1, 3, 1 << 20, 1 << 20], DType::U8)).contains("too large"));
    let far = with(Settings { padding: 8, ..Settings::NONE });
    assert!(refused(&far, &of(&[1, 3, 8, 8], DType::U8)).contains("by 8 pixels"));
    let colours = with(Settings { jitter: Some(jitter([0.1; 3])), ..Settings::NONE });
    let two = [meta(&[1, 2, 8, 8], DType::U8), key.clone(), meta(&[2, 2], DType::F32)];
    assert!(refused(&colours, &two).contains("1 or 3 channels"));
    let mix = Augment { mix: Some(10), ..with(Settings::NONE) };
    let mut inputs = of(&[2, 3, 8, 8], DType::U8).to_vec();
    inputs.extend([meta(&[], DType::F32), meta(&[3], DType::I64)]);
    assert!(refused(&mix, &inputs).contains("one i64 label"));
}
