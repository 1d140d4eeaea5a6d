//! The deterministic changes against what torchvision makes of the same images (`tools/transforms_oracle.py`).

mod common;

use common::{Case, cases};
use neurona::data::transforms::functional as f;
use neurona::data::transforms::{
    AugmentOp, Interpolation, Normalize, PaddingMode, RandAugment, Resize, ToTensor, Transform, TrivialAugmentWide,
};
use neurona::data::{Draws, Image};
use neurona::{Result, Tensor};
use std::collections::BTreeMap;

fn image(tensor: &Tensor) -> Image {
    let shape = tensor.shape();
    let bytes = tensor.to_vec::<u8>().expect("bytes");
    Image::new(shape[1], shape[0], shape[2], bytes).expect("an image")
}

fn interpolation(case: &Case) -> Interpolation {
    match case.text("mode") {
        "nearest" => Interpolation::Nearest,
        "bilinear" => Interpolation::Bilinear,
        "bicubic" => Interpolation::Bicubic,
        other => panic!("no interpolation is called {other}"),
    }
}

fn floats(case: &Case, name: &str) -> Option<Vec<f64>> {
    let list = case.attr(name).as_array()?;
    Some(list.iter().map(|v| v.as_f64().expect("a number")).collect())
}

fn center(case: &Case) -> Option<[f64; 2]> {
    floats(case, "center").map(|c| [c[0], c[1]])
}

fn pair(case: &Case, name: &str) -> [f64; 2] {
    let list = floats(case, name).expect("a list");
    [list[0], list[1]]
}

/// Does to the image what the case says.
fn run(case: &Case, i: &mut Image) -> Result<()> {
    let draws = &mut Draws::new(0, 0, 0);
    let count = |name: &str| case.int(name) as usize;
    match case.op.as_str() {
        "crop" => f::crop(i, case.int("top") as isize, case.int("left") as isize, count("height"), count("width")),
        "pad" => {
            let sides: Vec<usize> = case.ints("padding").expect("sides").iter().map(|n| *n as usize).collect();
            let mode = match case.text("mode") {
                "constant" => PaddingMode::Constant,
                "edge" => PaddingMode::Edge,
                "reflect" => PaddingMode::Reflect,
                _ => PaddingMode::Symmetric,
            };
            f::pad(i, [sides[0], sides[1], sides[2], sides[3]], case.int("fill") as u8, mode)
        }
        "center_crop" => {
            let [height, width] = case.pair("size");
            f::center_crop(i, (height, width))
        }
        "hflip" => {
            f::hflip(i);
            Ok(())
        }
        "vflip" => {
            f::vflip(i);
            Ok(())
        }
        "resize" => {
            let [height, width] = case.pair("size");
            f::resize(i, height, width, interpolation(case))
        }
        "resize_side" => {
            let mut resize = Resize::new(count("size"))?;
            if let Some(most) = case.attr("max_size").as_u64() {
                resize = resize.max_size(most as usize)?;
            }
            resize.apply(i, draws)
        }
        "resized_crop" => {
            let part: Vec<usize> = case.ints("part").expect("a part").iter().map(|n| *n as usize).collect();
            f::resized_crop(i, [part[0], part[1], part[2], part[3]], case.pair("size"), interpolation(case))
        }
        "rotate" => {
            let fill = case.int("fill") as u8;
            f::rotate(i, case.float("angle"), interpolation(case), case.flag("expand"), center(case), fill)
        }
        "affine" => {
            let (translate, shear) = (pair(case, "translate"), pair(case, "shear"));
            let (angle, scale, fill) = (case.float("angle"), case.float("scale"), case.int("fill") as u8);
            f::affine(i, angle, translate, scale, shear, interpolation(case), fill, center(case))
        }
        "adjust_brightness" => f::adjust_brightness(i, case.float("factor")),
        "adjust_contrast" => f::adjust_contrast(i, case.float("factor")),
        "adjust_saturation" => f::adjust_saturation(i, case.float("factor")),
        "adjust_hue" => f::adjust_hue(i, case.float("factor")),
        "adjust_sharpness" => f::adjust_sharpness(i, case.float("factor")),
        "posterize" => f::posterize(i, case.int("bits") as u32),
        "solarize" => f::solarize(i, case.float("threshold")),
        "autocontrast" => f::autocontrast(i),
        "equalize" => f::equalize(i),
        "invert" => f::invert(i),
        "grayscale" => f::grayscale(i, count("channels")),
        "gaussian_blur" => f::gaussian_blur(i, count("kernel_size"), case.float("sigma")),
        "to_tensor" => ToTensor.apply(i, draws),
        "normalize" => {
            let numbers = |name| floats(case, name).expect("a list").iter().map(|v| *v as f32).collect::<Vec<_>>();
            ToTensor.apply(i, draws)?;
            Normalize::new(&numbers("mean"), &numbers("std"))?.apply(i, draws)
        }
        other => panic!("no change is called {other}"),
    }
}

/// How far a result is from torchvision's, in grey levels.
fn distance(case: &Case, got: &Image) -> Result<f64, String> {
    let want = case.tensor("out0");
    if !got.is_bytes() {
        let want = want.to_vec::<f32>().map_err(|e| e.to_string())?;
        return if got.to_planes() == want { Ok(0.0) } else { Err("floats differ".into()) };
    }
    let want = image(want);
    let size = |i: &Image| [i.width(), i.height(), i.channels()];
    if size(got) != size(&want) {
        return Err(format!("{:?} instead of {:?}", size(got), size(&want)));
    }
    Ok(got.bytes().iter().zip(want.bytes()).map(|(a, b)| f64::from(a.abs_diff(*b))).fold(0.0, f64::max))
}

#[test]
fn deterministic_changes_are_torchvisions() {
    let cases = cases("transforms");
    let inputs = cases.iter().find(|c| c.name == "images").expect("the images");
    let (mut wrong, mut ran) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for case in cases.iter().filter(|c| c.op != "images" && c.op != "magnitudes") {
        let mut i = image(inputs.tensor(case.text("image")));
        *ran.entry(&case.op).or_default() += 1;
        let far = run(case, &mut i).map_err(|e| e.to_string()).and_then(|()| distance(case, &i));
        if !far.as_ref().is_ok_and(|far| *far <= case.tol) {
            wrong.push(format!("{} of {}: {far:?} levels, {} allowed", case.name, case.text("image"), case.tol));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(ran.len(), 24, "every kind of change is there: {ran:?}");
}

/// An image's content does not matter here: what is drawn must come from the table, and all of the table be drawn.
#[test]
fn augmentations_draw_from_torchvisions_tables() {
    for case in cases("transforms").iter().filter(|c| c.op == "magnitudes") {
        let (kind, bins) = case.name.split_once('_').expect("kind and bins");
        let bins: usize = bins.parse().expect("a number");
        let table = case.tensor("out0").to_vec::<f32>().expect("a table");
        let names = case.attr("ops").as_array().expect("a list");
        let signed = case.attr("signed").as_array().expect("a list");
        let mut seen = BTreeMap::<(usize, usize, bool), usize>::new();
        let mut look = |(op, magnitude): (AugmentOp, f64), at: Option<usize>| {
            let row = names.iter().position(|n| n.as_str() == Some(&format!("{op:?}"))).expect("a known op");
            let strengths = &table[row * bins..][..bins];
            let bin = match at {
                Some(at) => (f64::from(strengths[at]) == magnitude.abs()).then_some(at),
                None => strengths.iter().position(|v| f64::from(*v) == magnitude.abs()),
            };
            let bin = bin.unwrap_or_else(|| panic!("{}: {op:?} by {magnitude} is not in the table", case.name));
            let negative = magnitude.is_sign_negative();
            assert!(!negative || signed[row].as_bool() == Some(true), "{op:?} has no sign");
            *seen.entry((row, bin, negative)).or_default() += 1;
        };
        for n in 0..40_000 {
            let draws = &mut Draws::new(3, 0, n);
            if kind == "wide" {
                look(TrivialAugmentWide::new(bins).expect("bins").params(draws), None);
            } else {
                let at = n as usize % bins;
                let rand = RandAugment::default().bins(at, bins).expect("bins");
                look(rand.params(case.int("height") as usize, case.int("width") as usize, draws), Some(at));
            }
        }
        let ops: std::collections::BTreeSet<usize> = seen.keys().map(|(row, ..)| *row).collect();
        assert_eq!(ops.len(), names.len(), "{}: every op is drawn", case.name);
        for (row, name) in names.iter().enumerate() {
            let drawn: usize = seen.iter().filter(|((r, ..), _)| *r == row).map(|(_, n)| n).sum();
            let expected = 40_000.0 / names.len() as f64;
            assert!((drawn as f64 - expected).abs() < 5.0 * expected.sqrt(), "{name} is drawn {drawn} times");
            if signed[row].as_bool() == Some(true) {
                let negative: usize = seen.iter().filter(|((r, _, n), _)| *r == row && *n).map(|(_, n)| n).sum();
                let half = drawn as f64 / 2.0;
                assert!((negative as f64 - half).abs() < 5.0 * half.sqrt(), "{name}: {negative} of {drawn} turned");
            }
        }
    }
}
