//! Image files of every kind against what Pillow reads (`tools/image_fixtures.py`), and files that are not what they
//! say.

use neurona::data::{Image, MAX_PIXELS};
use safetensors::SafeTensors;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images")
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).expect("tools/image_fixtures.py makes it")
}

fn problem(bytes: &[u8], name: &str) -> String {
    Image::decode(bytes, name).expect_err("this must be refused").to_string()
}

#[test]
fn every_kind_is_read_as_pillow_reads_it() {
    let bytes = file("expected.safetensors");
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
    let levels = header.metadata().as_ref().expect("tolerances");
    let expected = SafeTensors::deserialize(&bytes).expect("the pixels");
    let mut wrong = Vec::new();
    for (name, want) in expected.iter() {
        let allowed: u8 = levels[name].parse().expect("a number");
        let image = Image::open(folder().join(name)).unwrap_or_else(|e| panic!("{e}"));
        let size = [image.height(), image.width(), image.channels()];
        let far = image.bytes().iter().zip(want.data()).map(|(a, b)| a.abs_diff(*b)).max();
        if size != want.shape() || far > Some(allowed) {
            wrong.push(format!("{name}: {size:?} instead of {:?}, {far:?} levels, {allowed} allowed", want.shape()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(expected.len(), 35);
}

#[test]
fn content_decides_and_not_the_name() {
    let image = Image::decode(&file("rgb.png"), "really.jpg").expect("a png is a png");
    assert_eq!(image, Image::open(folder().join("rgb.png")).expect("the same"));
}

#[test]
fn grey_is_one_channel() {
    let grey = Image::open_grey(folder().join("grey.png")).expect("an image");
    let spread = Image::open(folder().join("grey.png")).expect("an image");
    assert_eq!((grey.channels(), spread.channels()), (1, 3));
    assert!(grey.bytes().iter().zip(spread.bytes().chunks(3)).all(|(g, rgb)| rgb == [*g; 3]));
}

#[test]
fn memory_is_used_again_and_holds_nothing_of_before() {
    let mut image = Image::open(folder().join("turned6.png")).expect("an image");
    for name in ["grey.jpg", "rgb.jpg", "rgba.png", "turned5.png"] {
        Image::open_into(folder().join(name), &mut image).expect("an image");
        assert_eq!(image, Image::open(folder().join(name)).expect("an image"), "{name}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = Image::open("no/such/image.jpg").expect_err("it is not there").to_string();
    assert!(error.starts_with("cannot read no/such/image.jpg: "), "{error}");
}

#[test]
fn empty_and_text_files_are_named() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty.jpg");
    std::fs::write(&path, []).expect("written");
    let error = Image::open(&path).expect_err("nothing in it").to_string();
    assert_eq!(error, format!("{}: the file is empty", path.display()));
    let error = problem(b"Hello, this is not a picture", "notes.jpg");
    assert_eq!(error, "notes.jpg: not a jpg, png, webp, bmp or gif image (it begins with \"Hello, this is n\")");
}

/// Cut at any place, a file is refused and not half shown; only what follows the last pixel may go.
#[test]
fn truncated_files_are_refused() {
    for name in ["rgb.jpg", "progressive.jpg", "turned.jpg", "rgb.png", "lossless.webp", "rgb.bmp", "still.gif"] {
        let whole = file(name);
        for tenths in 0..10 {
            let error = problem(&whole[..whole.len() * tenths / 10], name);
            assert!(error.starts_with(name), "{error}");
        }
    }
    let whole = file("rgb.jpg");
    let error = problem(&whole[..whole.len() * 9 / 10], "cut.jpg");
    assert_eq!(error, "cut.jpg: the jpeg image is truncated: its end is missing");
}

/// A PNG whose header says this size; the data are those of a small image.
fn claiming(width: u32, height: u32) -> Vec<u8> {
    let mut png = file("rgb.png");
    png[16..20].copy_from_slice(&width.to_be_bytes());
    png[20..24].copy_from_slice(&height.to_be_bytes());
    let mut crc = flate2::Crc::new();
    crc.update(&png[12..29]);
    png[29..33].copy_from_slice(&crc.sum().to_be_bytes());
    png
}

#[test]
fn enormous_images_are_refused_before_memory_is_asked_for() {
    let error = problem(&claiming(100_000, 100_000), "bomb.png");
    assert_eq!(error, format!("bomb.png: an image of 100000 x 100000 pixels; at most {MAX_PIXELS} pixels are read"));
    let error = problem(&claiming(12_000, 12_000), "liar.png");
    assert!(error.starts_with("liar.png: claims 12000 x 12000 pixels, more than a file of "), "{error}");
    assert!(problem(&claiming(0, 10), "nothing.png").starts_with("nothing.png: "));

    let mut jpeg = file("rgb.jpg");
    let frame = jpeg.windows(2).position(|w| w == [0xFF, 0xC0]).expect("a frame header");
    jpeg[frame + 5..frame + 9].fill(0xFF);
    let error = problem(&jpeg, "bomb.jpg");
    assert_eq!(error, format!("bomb.jpg: an image of 65535 x 65535 pixels; at most {MAX_PIXELS} pixels are read"));
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0x20, 0, 0x20, 0]);
    assert!(problem(&jpeg, "liar.jpg").starts_with("liar.jpg: claims 8192 x 8192 pixels, more than "));
}

/// Bytes changed anywhere give an image or an error that names the file, and never a panic.
#[test]
fn damaged_files_never_panic() {
    let names = ["rgb.jpg", "subsampled.jpg", "progressive.jpg", "cmyk.jpg", "turned.jpg", "palette.png", "rgb16.png"];
    let more = ["one_bit.png", "palette.bmp", "rgb.bmp", "lossless.webp", "lossy.webp", "alpha.webp", "moving.gif"];
    let mut state = 12345u64;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    for name in names.into_iter().chain(more) {
        let whole = file(name);
        for _ in 0..400 {
            let mut damaged = whole.clone();
            for _ in 0..=random(4) {
                let at = random(damaged.len());
                damaged[at] = random(256) as u8;
            }
            if let Err(error) = Image::decode(&damaged, name) {
                assert!(error.to_string().starts_with(name), "{error}");
            }
        }
    }
}
