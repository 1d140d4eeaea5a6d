//! What the random transforms draw, against the distributions that torchvision documents; and what must hold for
//! every image.

use neurona::Result;
use neurona::data::transforms::*;
use neurona::data::{Draws, Image};

const N: u64 = 20_000;

fn grey(width: usize, height: usize) -> Image {
    let bytes = (0..width * height).map(|i| i as u8).collect();
    Image::new(width, height, 1, bytes).expect("an image")
}

fn apply(transform: &dyn Transform, mut image: Image, n: u64) -> Image {
    transform.apply(&mut image, &mut Draws::new(11, 0, n)).expect("it can be done");
    image
}

/// Pearson's test that counts are alike: false alarms once in ten thousand, and the seeds are fixed.
fn alike(counts: &[usize], what: &str) {
    let total: usize = counts.iter().sum();
    let expected = total as f64 / counts.len() as f64;
    let chi2: f64 = counts.iter().map(|c| (*c as f64 - expected).powi(2) / expected).sum();
    let freedom = counts.len() as f64 - 1.0;
    // Wilson and Hilferty's approximation of the quantile at 3.72 deviations.
    let limit = freedom * (1.0 - 2.0 / (9.0 * freedom) + 3.72 * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
    assert!(total > 50 * counts.len() && chi2 < limit, "{what}: {counts:?} has chi-square {chi2:.1} over {limit:.1}");
}

/// The same for numbers that should be uniform from `low` to `high`.
fn uniform(values: impl Iterator<Item = f64>, [low, high]: [f64; 2], what: &str) {
    let mut counts = [0; 10];
    for v in values {
        assert!((low..=high).contains(&v), "{what}: {v} is not between {low} and {high}");
        counts[(((v - low) / (high - low) * 10.0) as usize).min(9)] += 1;
    }
    alike(&counts, what);
}

/// That something happens with a probability.
fn share(count: usize, p: f64, what: &str) {
    let deviation = (N as f64 * p * (1.0 - p)).sqrt();
    assert!((count as f64 - N as f64 * p).abs() < 4.0 * deviation, "{what}: {count} of {N} times, p = {p}");
}

#[test]
fn crops_stand_anywhere_alike() -> Result<()> {
    let mut counts = [0; 12];
    let crop = RandomCrop::new((4, 3))?;
    for n in 0..N {
        let corner = apply(&crop, grey(6, 6), n).pixel(0, 0)[0] as usize;
        counts[corner / 6 * 4 + corner % 6] += 1;
    }
    alike(&counts, "corners of RandomCrop");

    // With a border the mark in the middle lands on every place of the result.
    let mut counts = [0; 9];
    let mut marked = vec![0; 9];
    marked[4] = 1;
    let crop = RandomCrop::new(3)?.padding(1);
    for n in 0..N {
        let image = apply(&crop, Image::new(3, 3, 1, marked.clone())?, n);
        counts[image.bytes().iter().position(|v| *v == 1).expect("the mark stays inside")] += 1;
    }
    alike(&counts, "places after a border");
    Ok(())
}

#[test]
fn a_crop_over_the_edge_is_the_crop_of_the_padded_image() -> Result<()> {
    for mode in [PaddingMode::Constant, PaddingMode::Edge, PaddingMode::Reflect, PaddingMode::Symmetric] {
        let whole = apply(&Pad::new([1, 2, 3, 4]).fill(9u8).padding_mode(mode), grey(7, 6), 0);
        for n in 0..200 {
            let crop = RandomCrop::new((5, 6))?.padding([1, 2, 3, 4]).fill(9u8).padding_mode(mode);
            assert_eq!(apply(&crop, grey(7, 6), n), apply(&RandomCrop::new((5, 6))?, whole.clone(), n), "{mode:?}");
        }
    }
    let small = apply(&RandomCrop::new(8)?.pad_if_needed(true), grey(3, 5), 1);
    assert_eq!((small.width(), small.height()), (8, 8));
    Ok(())
}

#[test]
fn resized_crops_have_uniform_area_log_ratio_and_place() -> Result<()> {
    let crop = RandomResizedCrop::new(8)?.scale(0.1, 0.3)?;
    let drawn: Vec<[f64; 4]> =
        (0..N).map(|n| crop.params(4000, 4000, &mut Draws::new(5, 1, n)).map(|v| v as f64)).collect();
    let logs = [0.75f64.ln(), (4.0f64 / 3.0).ln()];
    uniform(drawn.iter().map(|[_, _, h, w]| (h * w / 16e6).clamp(0.1, 0.3)), [0.1, 0.3], "area");
    uniform(drawn.iter().map(|[_, _, h, w]| (w / h).ln().clamp(logs[0], logs[1])), logs, "ratio");
    uniform(drawn.iter().map(|[top, _, h, _]| top / (4000.0 - h)), [0.0, 1.0], "top");
    uniform(drawn.iter().map(|[_, left, _, w]| left / (4000.0 - w)), [0.0, 1.0], "left");

    // Where nothing fits: the largest middle part of an allowed shape.
    let (standard, draws) = (RandomResizedCrop::new(8)?, &mut Draws::new(0, 0, 0));
    assert_eq!(standard.params(10, 1000, draws), [0, 493, 10, 13]);
    assert_eq!(standard.params(1000, 10, draws), [493, 0, 13, 10]);
    assert_eq!(standard.params(1, 1, draws), [0, 0, 1, 1]);
    Ok(())
}

#[test]
fn chances_are_as_asked() -> Result<()> {
    let changed = |transform: &dyn Transform, image: &Image| {
        (0..N).filter(|n| apply(transform, image.clone(), *n) != *image).count()
    };
    let colour = Image::new(2, 2, 3, (0..12).map(|i| i * 20).collect())?;
    share(changed(&RandomHorizontalFlip::default(), &colour), 0.5, "RandomHorizontalFlip");
    share(changed(&RandomVerticalFlip::new(0.2)?, &colour), 0.2, "RandomVerticalFlip");
    share(changed(&RandomGrayscale::default(), &colour), 0.1, "RandomGrayscale");
    let floats = apply(&ToTensor, Image::new(20, 20, 1, vec![200; 400])?, 0);
    share(changed(&RandomErasing::new(0.3)?, &floats), 0.3, "RandomErasing");
    Ok(())
}

#[test]
fn erased_rectangles_have_uniform_area_log_ratio_and_place() -> Result<()> {
    let erasing = RandomErasing::new(1.0)?.scale(0.05, 0.25)?.ratio(0.5, 2.0)?;
    let drawn: Vec<[f64; 4]> = (0..N)
        .map(|n| erasing.params(4000, 4000, &mut Draws::new(6, 0, n)).expect("it fits").map(|v| v as f64))
        .collect();
    let logs = [0.5f64.ln(), 2f64.ln()];
    uniform(drawn.iter().map(|[_, _, h, w]| (h * w / 16e6).clamp(0.05, 0.25)), [0.05, 0.25], "area");
    uniform(drawn.iter().map(|[_, _, h, w]| (h / w).ln().clamp(logs[0], logs[1])), logs, "ratio");
    uniform(drawn.iter().map(|[top, _, h, _]| top / (4000.0 - h)), [0.0, 1.0], "top");
    uniform(drawn.iter().map(|[_, left, _, w]| left / (4000.0 - w)), [0.0, 1.0], "left");

    let noise = RandomErasing::new(1.0)?.scale(0.5, 0.6)?.ratio(0.9, 1.1)?.random_values();
    let image = apply(&noise, apply(&ToTensor, Image::new(200, 200, 3, vec![255; 120_000])?, 0), 3);
    let values: Vec<f64> = image.to_planes().into_iter().filter(|v| *v != 1.0).map(f64::from).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
    assert!(values.len() > 50_000 && mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    Ok(())
}

#[test]
fn cut_out_squares_are_clipped_at_the_edge() -> Result<()> {
    let mut counts = [0; 64];
    for n in 0..N {
        let image = apply(&Cutout::new(4)?, Image::new(8, 8, 1, vec![1; 64])?, n);
        image.bytes().iter().zip(&mut counts).for_each(|(v, count)| *count += usize::from(*v == 0));
    }
    share(counts[0], 9.0 / 64.0, "a corner");
    share(counts[3 * 8 + 4], 16.0 / 64.0, "the middle");
    Ok(())
}

#[test]
fn affine_parameters_are_uniform() -> Result<()> {
    let change = RandomAffine::new((-10.0, 30.0))?.translate(0.1, 0.25)?.scale(0.8, 1.4)?.shear(5.0)?;
    let change = change.shear_y((1.0, 2.0))?;
    let drawn: Vec<AffineParams> = (0..N).map(|n| change.params(400, 2000, &mut Draws::new(4, 0, n))).collect();
    uniform(drawn.iter().map(|p| p.angle), [-10.0, 30.0], "angle");
    uniform(drawn.iter().map(|p| p.scale), [0.8, 1.4], "scale");
    uniform(drawn.iter().map(|p| p.shear[0]), [-5.0, 5.0], "shear x");
    uniform(drawn.iter().map(|p| p.shear[1]), [1.0, 2.0], "shear y");
    assert!(drawn.iter().all(|p| p.translate.iter().all(|t| t.fract() == 0.0)), "whole pixels");
    assert!(drawn.iter().all(|p| p.translate[0].abs() <= 200.0 && p.translate[1].abs() <= 100.0));
    let mean = |axis: usize| drawn.iter().map(|p| p.translate[axis].abs()).sum::<f64>() / N as f64;
    assert!((mean(0) - 100.0).abs() < 2.0 && (mean(1) - 50.0).abs() < 1.0, "{} {}", mean(0), mean(1));
    Ok(())
}

#[test]
fn colours_jitter_in_both_orders_and_uniformly() -> Result<()> {
    let jitter = ColorJitter::new().brightness(0.4)?;
    let level = |n| f64::from(apply(&jitter, Image::new(1, 1, 1, vec![100]).expect("an image"), n).bytes()[0]);
    uniform((0..N).map(|n| level(n) + 0.5), [60.0, 140.0], "brightness");

    // Half as bright and then twice the contrast, or the other way round.
    let jitter = ColorJitter::new().brightness((0.5, 0.5))?.contrast((2.0, 2.0))?;
    let image = Image::new(2, 1, 1, vec![100, 250])?;
    let results: Vec<Vec<u8>> = (0..N).map(|n| apply(&jitter, image.clone(), n).bytes().to_vec()).collect();
    let first = results.iter().filter(|r| **r == results[0]).count();
    let other: std::collections::BTreeSet<_> = results.iter().collect();
    assert_eq!(other.len(), 2);
    share(first, 0.5, "one of two orders");
    Ok(())
}

/// Those that take bytes, with arguments that make something happen.
fn on_bytes() -> Result<Vec<Box<dyn Transform>>> {
    Ok(vec![
        Box::new(Resize::new(7)?),
        Box::new(Resize::new((3, 11))?.interpolation(Interpolation::Bicubic)),
        Box::new(Resize::new(5)?.interpolation(Interpolation::Nearest)),
        Box::new(RandomResizedCrop::new((6, 5))?),
        Box::new(RandomRotation::new(180.0)?.expand(true)),
        Box::new(RandomRotation::new(45.0)?.interpolation(Interpolation::Bilinear)?.center(0.0, 1.0)),
        Box::new(RandomAffine::new(30.0)?.translate(0.5, 0.5)?.scale(0.3, 3.0)?.shear(40.0)?.shear_y(40.0)?),
        Box::new(RandomAffine::new(30.0)?.interpolation(Interpolation::Bilinear)?.fill([1u8, 2, 3])),
        Box::new(ColorJitter::new().brightness(0.9)?.contrast(0.9)?.saturation(0.9)?.hue(0.5)?),
        Box::new(GaussianBlur::new(5)?),
        Box::new(TrivialAugmentWide::default()),
        Box::new(TrivialAugmentWide::default().interpolation(Interpolation::Bilinear).fill(128u8)),
        Box::new(RandAugment::new(3, 20)?),
        Box::new(RandomGrayscale::new(0.5)?),
        Box::new(Grayscale::default()),
        Box::new(Grayscale::new(3)?),
    ])
}

/// Those that take whatever there is.
fn on_anything() -> Result<Vec<Box<dyn Transform>>> {
    Ok(vec![
        Box::new(RandomHorizontalFlip::default()),
        Box::new(RandomVerticalFlip::default()),
        Box::new(CenterCrop::new((4, 9))?),
        Box::new(Pad::new((2, 3)).padding_mode(PaddingMode::Reflect)),
        Box::new(RandomCrop::new(6)?.padding(3).pad_if_needed(true)),
        Box::new(RandomCrop::new(6)?.pad_if_needed(true).padding_mode(PaddingMode::Symmetric)),
        Box::new(Cutout::new(3)?.holes(2)),
    ])
}

#[test]
fn no_size_panics_and_the_same_draws_give_the_same_pixels() -> Result<()> {
    let (normalize, erasing) = (Normalize::new(&[0.5], &[0.25])?, RandomErasing::new(1.0)?.random_values());
    let (on_bytes, on_anything) = (on_bytes()?, on_anything()?);
    for (width, height) in [(1, 1), (1, 9), (9, 1), (2, 3), (17, 5), (32, 32)] {
        for channels in [1, 3] {
            let bytes: Vec<u8> = (0..width * height * channels).map(|i| (i * 37) as u8).collect();
            let image = Image::new(width, height, channels, bytes)?;
            let floats = apply(&normalize, apply(&ToTensor, image.clone(), 0), 0);
            for n in 0..40 {
                for transform in on_bytes.iter().chain(&on_anything) {
                    let once = apply(transform, image.clone(), n);
                    assert_eq!(once, apply(transform, image.clone(), n), "{transform:?}");
                    assert_eq!(once.bytes().len(), once.width() * once.height() * once.channels());
                }
                for transform in on_anything.iter() {
                    let once = apply(transform, apply(&erasing, floats.clone(), n), n);
                    assert_eq!(once, apply(transform, apply(&erasing, floats.clone(), n), n), "{transform:?}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn moving_pixels_and_making_floats_commute() -> Result<()> {
    let normalize = Normalize::new(&[0.4, 0.5, 0.6], &[0.2, 0.25, 0.3])?;
    let image = Image::new(5, 4, 3, (0..60).map(|i| i * 4).collect())?;
    for transform in [&RandomHorizontalFlip::new(1.0)? as &dyn Transform, &RandomCrop::new(3)?, &CenterCrop::new(2)?] {
        let late = apply(transform, apply(&normalize, apply(&ToTensor, image.clone(), 0), 0), 5);
        let early = apply(&normalize, apply(&ToTensor, apply(transform, image.clone(), 5), 0), 0);
        assert_eq!(late, early, "{transform:?}");
    }
    // A border after Normalize is 0 in its units, not black.
    let padded = apply(&Pad::new(1), apply(&normalize, apply(&ToTensor, image.clone(), 0), 0), 0);
    assert_eq!(padded.to_planes()[0], 0.0);
    let twice = apply(&normalize, apply(&normalize, apply(&ToTensor, image, 0), 0), 0);
    assert_eq!(twice.to_planes()[0], ((0.0 - 0.4) / 0.2 - 0.4) / 0.2);
    Ok(())
}

#[test]
fn arguments_are_checked_where_they_are_given() {
    let problem = |r: Result<()>| r.expect_err("this must be refused").to_string();
    let p = problem(RandomHorizontalFlip::new(1.5).map(|_| ()));
    assert_eq!(p, "the probability of RandomHorizontalFlip is between 0 and 1, not 1.5");
    assert_eq!(problem(Resize::new(0).map(|_| ())), "Resize cannot make images of size 0");
    let p = problem(RandomResizedCrop::new(8).and_then(|t| t.scale(0.9, 0.1)).map(|_| ()));
    assert_eq!(p, "the scale of RandomResizedCrop is a range from low to high of 0 or more, not 0.9 to 0.1");
    let p = problem(ColorJitter::new().hue(0.7).map(|_| ()));
    assert_eq!(p, "the hue of ColorJitter is a range from low to high between -0.5 and 0.5, not -0.7 to 0.7");
    assert!(problem(ColorJitter::new().brightness(-1.0).map(|_| ())).contains("0 or more, not -1"));
    assert!(problem(RandomRotation::new(f64::NAN).map(|_| ())).contains("0 or more, not NaN"));
    assert!(problem(Normalize::new(&[0.5], &[0.0]).map(|_| ())).contains("deviation of 0"));
    assert!(problem(Normalize::new(&[0.5, 0.5], &[0.5]).map(|_| ())).contains("not 2 and 1"));
    assert!(problem(RandAugment::new(2, 31).map(|_| ())).contains("magnitude 31"));
    assert!(problem(GaussianBlur::new(4).map(|_| ())).contains("odd"));
    assert!(problem(RandomErasing::new(0.5).and_then(|t| t.ratio(0.0, 1.0)).map(|_| ())).contains("above 0"));
    assert!(problem(Resize::new(8).and_then(|t| t.max_size(8)).map(|_| ())).contains("max_size"));
}

#[test]
fn an_order_that_cannot_be_is_said() -> Result<()> {
    let draws = &mut Draws::new(0, 0, 0);
    let problem = |t: &dyn Transform, mut i: Image, draws: &mut Draws| {
        t.apply(&mut i, draws).expect_err("this must be refused").to_string()
    };
    assert_eq!(problem(&Normalize::new(&[0.5], &[0.5])?, grey(2, 2), draws), "Normalize goes after ToTensor");
    assert_eq!(problem(&RandomErasing::default(), grey(2, 2), draws), "RandomErasing goes after ToTensor");
    let late = apply(&ToTensor, grey(2, 2), 0);
    let jitter = ColorJitter::new().brightness(0.5)?;
    let p = problem(&jitter, late.clone(), draws);
    assert_eq!(p, "adjust_brightness works on bytes: put it before ToTensor");
    let p = problem(&Normalize::new(&[0.5; 3], &[0.5; 3])?, late, draws);
    assert_eq!(p, "Normalize has 3 channels, the image 1");
    let p = problem(&RandomCrop::new(4)?, grey(2, 2), draws);
    assert!(p.starts_with("RandomCrop(4, 4) needs an image of that size at least, not 2 x 2"), "{p}");
    Ok(())
}

#[test]
fn they_print_as_in_torchvision() -> Result<()> {
    let chain = Compose::new()
        .add(RandomResizedCrop::new(224)?)
        .add(RandomHorizontalFlip::default())
        .add(ToTensor)
        .add(RandomErasing::default());
    let text = "Compose(
    RandomResizedCrop(size=(224, 224), scale=(0.08, 1), ratio=(0.7500, 1.3333), interpolation=bilinear, antialias=True)
    RandomHorizontalFlip(p=0.5)
    ToTensor()
    RandomErasing(p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0, inplace=True)
)";
    assert_eq!(format!("{chain:?}"), text);
    Ok(())
}
