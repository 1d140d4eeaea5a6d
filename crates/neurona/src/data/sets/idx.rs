//! The idx files of MNIST and its relatives, plain or gzipped.

use crate::data::ImageSet;
use crate::{Error, Result};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// What an idx file of bytes holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// The bytes in row-major order.
    pub data: Vec<u8>,
}

/// Reads an idx file, gzipped or not: the first two bytes tell.
///
/// ```
/// use neurona::data::idx;
/// let path = std::env::temp_dir().join("neurona-idx-example");
/// std::fs::write(&path, [0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9])?;
/// let file = idx::read(&path)?;
/// assert_eq!((file.shape, file.data), (vec![3], vec![7, 8, 9]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read(path: impl AsRef<Path>) -> Result<Idx> {
    let path = path.as_ref();
    let fail = |source| Error::File { action: "read", path: path.into(), source };
    let mut file = BufReader::new(File::open(path).map_err(fail)?);
    let start = std::io::BufRead::fill_buf(&mut file).map_err(fail)?;
    if start.starts_with(&[0x1f, 0x8b]) { decode(MultiGzDecoder::new(file), path) } else { decode(file, path) }
}

/// Reads an idx file that is in memory; `name` is for error messages.
///
/// ```
/// use neurona::data::idx;
/// let cut_short = idx::parse(&[0, 0, 8, 1, 0, 0, 0, 3, 7], "labels".as_ref());
/// assert_eq!(cut_short.unwrap_err().to_string(), "labels: it is cut short: [3] needs 3 bytes, and there are 1");
/// ```
pub fn parse(bytes: &[u8], name: &Path) -> Result<Idx> {
    if bytes.starts_with(&[0x1f, 0x8b]) { decode(MultiGzDecoder::new(bytes), name) } else { decode(bytes, name) }
}

/// Reads a file of images and the file of their labels.
pub fn image_set(images: impl AsRef<Path>, labels: impl AsRef<Path>, classes: Vec<String>) -> Result<ImageSet> {
    assemble(read(&images)?, read(&labels)?, classes, images.as_ref(), labels.as_ref())
}

pub(super) fn assemble(
    images: Idx,
    labels: Idx,
    classes: Vec<String>,
    images_name: &Path,
    labels_name: &Path,
) -> Result<ImageSet> {
    let wrong = |path: &Path, problem: String| Error::Format { path: path.into(), problem };
    let size = match images.shape[..] {
        [_, height, width] => [1, height, width],
        [_, channels, height, width] => [channels, height, width],
        _ => return Err(wrong(images_name, format!("images have 3 or 4 dimensions, not {:?}", images.shape))),
    };
    if labels.shape.len() != 1 {
        return Err(wrong(labels_name, format!("labels have 1 dimension, not {:?}", labels.shape)));
    }
    if images.shape[0] != labels.shape[0] {
        let problem =
            format!("{} labels for the {} images of {}", labels.shape[0], images.shape[0], images_name.display());
        return Err(wrong(labels_name, problem));
    }
    let labels: Vec<i64> = labels.data.into_iter().map(i64::from).collect();
    ImageSet::new(images.data, labels, classes, size).map_err(|e| wrong(labels_name, e.to_string()))
}

fn decode(mut from: impl Read, name: &Path) -> Result<Idx> {
    let wrong = |problem: String| Error::Format { path: name.into(), problem };
    // Whatever a decoder says about bytes it cannot read is about the contents, not about the disk.
    let broken = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => wrong("it is cut short".to_string()),
        _ => wrong(format!("it cannot be decoded: {e}")),
    };
    let mut head = [0; 4];
    from.read_exact(&mut head).map_err(broken)?;
    let [0, 0, kind, dims] = head else {
        return Err(wrong("it is not an idx file: the first two bytes are not zero".to_string()));
    };
    if kind != 8 {
        return Err(wrong(format!("it holds elements of type {kind:#04x}; only bytes (0x08) are read")));
    }
    let mut shape = Vec::with_capacity(dims.into());
    for _ in 0..dims {
        let mut size = [0; 4];
        from.read_exact(&mut size).map_err(broken)?;
        shape.push(u32::from_be_bytes(size) as usize);
    }
    let need = shape
        .iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d))
        .filter(|&n| n < 1 << 40)
        .ok_or_else(|| wrong(format!("its sizes {shape:?} are too large to be true")))?;
    // Grows as bytes arrive: a header that promises too much costs nothing. One byte more shows a longer file.
    let mut data = Vec::new();
    from.take(need as u64 + 1).read_to_end(&mut data).map_err(broken)?;
    if data.len() < need {
        return Err(wrong(format!("it is cut short: {shape:?} needs {need} bytes, and there are {}", data.len())));
    }
    if data.len() > need {
        return Err(wrong(format!("it is longer than its sizes {shape:?} say")));
    }
    Ok(Idx { shape, data })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    const GOOD: [u8; 16] = [0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4];

    fn problem(bytes: &[u8]) -> String {
        parse(bytes, "x".as_ref()).unwrap_err().to_string()
    }

    fn gzipped(bytes: &[u8]) -> Vec<u8> {
        let mut to = GzEncoder::new(Vec::new(), Compression::fast());
        to.write_all(bytes).unwrap();
        to.finish().unwrap()
    }

    #[test]
    fn reads_plain_and_gzipped() {
        let want = Idx { shape: vec![2, 2], data: vec![1, 2, 3, 4] };
        assert_eq!(parse(&GOOD, "x".as_ref()).unwrap(), want);
        assert_eq!(parse(&gzipped(&GOOD), "x".as_ref()).unwrap(), want);
    }

    #[test]
    fn every_cut_is_an_error_that_says_so() {
        for n in 0..GOOD.len() {
            assert!(problem(&GOOD[..n]).contains("cut short"), "{n}");
        }
        let packed = gzipped(&GOOD);
        for n in 2..packed.len() {
            assert!(parse(&packed[..n], "x".as_ref()).is_err(), "{n}");
        }
    }

    #[test]
    fn garbage_is_named() {
        assert!(problem(b"PNG and so on").contains("not an idx file"));
        assert!(problem(&[0, 0, 13, 1, 0, 0, 0, 0]).contains("0x0d"));
        assert!(
            problem(&[0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255]).contains("too large")
        );
        assert!(problem(&[&GOOD[..], &[5]].concat()).contains("longer"));
        assert!(problem(&[0x1f, 0x8b, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]).contains("cannot be decoded"));
    }

    #[test]
    fn a_missing_file_is_named() {
        assert!(read("/no/such/file").unwrap_err().to_string().starts_with("cannot read /no/such/file: "));
    }

    #[test]
    fn images_and_labels_must_fit() {
        let images = || Idx { shape: vec![2, 1, 1], data: vec![1, 2] };
        let labels = |data: &[u8]| Idx { shape: vec![data.len()], data: data.to_vec() };
        let classes = || vec!["a".to_string(), "b".to_string()];
        let put = |images, labels| assemble(images, labels, classes(), "i".as_ref(), "l".as_ref());
        assert_eq!(put(images(), labels(&[1, 0])).unwrap().labels(), [1, 0]);
        assert_eq!(put(images(), labels(&[1])).unwrap_err().to_string(), "l: 1 labels for the 2 images of i");
        let beyond = put(images(), labels(&[1, 2])).unwrap_err().to_string();
        assert_eq!(beyond, "l: label 2 of image 1 is not between 0 and 1");
        assert!(put(labels(&[1, 2]), labels(&[1, 2])).is_err());
    }
}
