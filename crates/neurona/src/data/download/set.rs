//! The sets: their official files, where they are published, and their digests.

use super::check;
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// A data set that can be fetched.
#[derive(Debug)]
pub struct Set {
    /// What it is asked for by, as in `cifar10`.
    pub name: &'static str,
    /// What people call it, as in `CIFAR-10`.
    pub title: &'static str,
    /// The folder it has among the data sets, with the name that its publishers gave it.
    pub folder: &'static str,
    /// How many training images and how many test images.
    pub images: [usize; 2],
    /// What the addresses begin with; the first that works is taken.
    pub(super) mirrors: &'static [&'static str],
    /// What is published instead of the files themselves.
    pub(super) archive: Option<Piece>,
    /// What must be there in the end. A file without a digest is taken along when it is there.
    pub(super) files: &'static [Piece],
}

/// A published file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub name: &'static str,
    /// Bytes as published; for a file without a digest, the most that it may have.
    pub size: u64,
    /// MD5 as published.
    pub md5: Option<&'static str>,
    /// MD5 of what a gzip file holds: others pack it in their own way, or not at all.
    pub unpacked: Option<&'static str>,
}

impl Piece {
    const fn plain(name: &'static str, size: u64, md5: &'static str) -> Piece {
        Piece { name, size, md5: Some(md5), unpacked: None }
    }

    const fn gzip(name: &'static str, size: u64, md5: &'static str, unpacked: &'static str) -> Piece {
        Piece { name, size, md5: Some(md5), unpacked: Some(unpacked) }
    }

    const fn aside(name: &'static str) -> Piece {
        Piece { name, size: 64 << 10, md5: None, unpacked: None }
    }

    /// The names it may have: gzip files are often kept unpacked.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let unpacked = self.unpacked.and(self.name.strip_suffix(".gz"));
        [Some(self.name), unpacked].into_iter().flatten()
    }

    /// Where it is in a folder, if it is.
    pub fn find(&self, folder: &Path) -> Option<PathBuf> {
        self.names().map(|name| folder.join(name)).find(|path| path.is_file())
    }
}

/// How much of a set is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// All of it.
    Complete,
    /// These files are missing or damaged.
    Incomplete(Vec<&'static str>),
    /// Nothing.
    Absent,
}

/// All sets that can be fetched.
pub fn sets() -> &'static [Set] {
    &SETS
}

/// A set by its name; hyphens, underscores and capitals do not matter.
///
/// ```
/// use neurona::data::download;
/// assert_eq!(download::find("Fashion_MNIST")?.name, "fashion-mnist");
/// assert!(download::find("imagenet").unwrap_err().to_string().contains("cifar10, cifar100, mnist, fashion-mnist"));
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn find(name: &str) -> Result<&'static Set> {
    let plain = |text: &str| text.replace(['-', '_'], "").to_lowercase();
    SETS.iter().find(|set| plain(set.name) == plain(name)).ok_or_else(|| {
        let known: Vec<&str> = SETS.iter().map(|set| set.name).collect();
        Error::Argument(format!("there is no data set called '{name}' to download; known are {}", known.join(", ")))
    })
}

impl Set {
    /// How much of it is in a folder of data sets, by its files' names and sizes: quick, and blind to damage inside.
    ///
    /// ```
    /// use neurona::data::download::{State, find};
    /// assert_eq!(find("mnist")?.state("no/such/folder".as_ref()), State::Absent);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn state(&self, data: &Path) -> State {
        self.judge(data, |piece, path| Ok(check::size_fits(piece, path))).unwrap_or(State::Absent)
    }

    /// The same with every byte read and compared with the published digests.
    pub fn verify(&self, data: &Path) -> Result<State> {
        self.judge(data, check::is_right)
    }

    /// Bytes that its files take up.
    pub fn bytes(&self, data: &Path) -> u64 {
        let folder = data.join(self.folder);
        let size = |piece: &Piece| piece.find(&folder).and_then(|path| path.metadata().ok()).map_or(0, |m| m.len());
        self.files.iter().map(size).sum()
    }

    /// What must be downloaded for it, in bytes.
    pub fn download_bytes(&self) -> u64 {
        match &self.archive {
            Some(archive) => archive.size,
            None => self.files.iter().map(|file| file.size).sum(),
        }
    }

    fn judge(&self, data: &Path, right: impl Fn(&Piece, &Path) -> Result<bool>) -> Result<State> {
        let folder = data.join(self.folder);
        let needed: Vec<&Piece> = self.files.iter().filter(|piece| piece.md5.is_some()).collect();
        let mut wrong = Vec::new();
        for piece in &needed {
            let whole = match piece.find(&folder) {
                Some(path) => right(piece, &path)?,
                None => false,
            };
            if !whole {
                wrong.push(piece.name);
            }
        }
        Ok(match wrong.len() {
            0 => State::Complete,
            _ if needed.iter().all(|piece| piece.find(&folder).is_none()) => State::Absent,
            _ => State::Incomplete(wrong),
        })
    }
}

/// CIFAR's page has moved once; the old address leads to the new one.
const TORONTO: &[&str] = &["https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"];

const BATCH: u64 = 10_000 * (1 + 3 * 32 * 32);

static SETS: [Set; 4] = [
    Set {
        name: "cifar10",
        title: "CIFAR-10",
        folder: "cifar-10-batches-bin",
        images: [50_000, 10_000],
        mirrors: TORONTO,
        archive: Some(Piece::plain("cifar-10-binary.tar.gz", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530")),
        files: &[
            Piece::plain("data_batch_1.bin", BATCH, "5dd7e06a14cb22eb9f671a540d1b7c25"),
            Piece::plain("data_batch_2.bin", BATCH, "5ea93a67294ea407fff1d09f752e9692"),
            Piece::plain("data_batch_3.bin", BATCH, "942cd6a4bcdd0dd3c604fbe906cb4421"),
            Piece::plain("data_batch_4.bin", BATCH, "ae636b3ba5c66a11e91e8cb52e771fcb"),
            Piece::plain("data_batch_5.bin", BATCH, "53f37980c15c3d472c316c40844f3f0d"),
            Piece::plain("test_batch.bin", BATCH, "803d5f7f4d78ea53de84dbe85f74fb6d"),
            Piece::aside("batches.meta.txt"),
            Piece::aside("readme.html"),
        ],
    },
    Set {
        name: "cifar100",
        title: "CIFAR-100",
        folder: "cifar-100-binary",
        images: [50_000, 10_000],
        mirrors: TORONTO,
        archive: Some(Piece::plain("cifar-100-binary.tar.gz", 168_513_733, "03b5dce01913d631647c71ecec9e9cb8")),
        files: &[
            Piece::plain("train.bin", 50_000 * (2 + 3 * 32 * 32), "6172c7755cfe09b2fe270c85cebc1b15"),
            Piece::plain("test.bin", 10_000 * (2 + 3 * 32 * 32), "4499cfba6c016c1be1438163640a0898"),
            Piece::aside("fine_label_names.txt"),
            Piece::aside("coarse_label_names.txt"),
        ],
    },
    Set {
        name: "mnist",
        title: "MNIST",
        folder: "mnist",
        images: [60_000, 10_000],
        mirrors: &["https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"],
        archive: None,
        files: &[
            Piece::gzip(
                "train-images-idx3-ubyte.gz",
                9_912_422,
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "6bbc9ace898e44ae57da46a324031adb",
            ),
            Piece::gzip(
                "train-labels-idx1-ubyte.gz",
                28_881,
                "d53e105ee54ea40749a09fcbcd1e9432",
                "a25bea736e30d166cdddb491f175f624",
            ),
            Piece::gzip(
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "9fb629c4189551a2d022fa330f9573f3",
                "2646ac647ad5339dbf082846283269ea",
            ),
            Piece::gzip(
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "ec29112dd5afa0611ce80d1b7f02629c",
                "27ae3e4e09519cfbb04c329615203637",
            ),
        ],
    },
    Set {
        name: "fashion-mnist",
        title: "Fashion-MNIST",
        folder: "fashion-mnist",
        images: [60_000, 10_000],
        // Many proxies refuse the first, which has no TLS; the second holds the same files.
        mirrors: &[
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        ],
        archive: None,
        files: &[
            Piece::gzip(
                "train-images-idx3-ubyte.gz",
                26_421_880,
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            ),
            Piece::gzip(
                "train-labels-idx1-ubyte.gz",
                29_515,
                "25c81989df183df01b3e8a0aad5dffbe",
                "9018921c3c673c538a1fc5bad174d6f9",
            ),
            Piece::gzip(
                "t10k-images-idx3-ubyte.gz",
                4_422_102,
                "bef4ecab320f06d8554ea6380940ec79",
                "8181f5470baa50b63fa0f6fddb340f0a",
            ),
            Piece::gzip(
                "t10k-labels-idx1-ubyte.gz",
                5_148,
                "bb300cfdad3c16e7a12a480ee83cd310",
                "15d484375f8d13e6eb1aabb0c3f46965",
            ),
        ],
    },
];
