use super::*;
use crate::data::{Dataset, ImageSet};
use std::fs;

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("neurona-sets-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> &Folder {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files")
}

/// The rule of `tools/cifar_pickles.py`.
fn pixel(part: usize, image: usize, j: usize) -> u8 {
    ((31 * image + 7 * j + 101 * part) % 256) as u8
}

/// The two images of a part, channels last.
fn pixels(part: usize) -> Vec<u8> {
    let place = |k: usize| (k % 3) * 1024 + k / 3;
    (0..2).flat_map(|i| (0..3072).map(move |k| pixel(part, i, place(k)))).collect()
}

fn labels(part: usize, classes: usize) -> Vec<i64> {
    (0..2).map(|i| ((3 * i + part) % classes) as i64).collect()
}

fn binary(part: usize, labels: &[&[u8]]) -> Vec<u8> {
    (0..2).flat_map(|i| [labels[i].to_vec(), (0..3072).map(|j| pixel(part, i, j)).collect()].concat()).collect()
}

fn binary_cifar10(folder: &Folder) {
    for (part, name) in ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]
        .iter()
        .enumerate()
    {
        let labels: Vec<Vec<u8>> = labels(part, 10).iter().map(|l| vec![*l as u8]).collect();
        folder.put(&format!("cifar-10-batches-bin/{name}.bin"), &binary(part, &[&labels[0], &labels[1]]));
    }
}

fn problem<T>(result: Result<T>) -> String {
    result.err().unwrap().to_string()
}

#[test]
fn cifar10_is_the_same_in_both_forms() {
    let folder = Folder::new("both-forms");
    binary_cifar10(&folder);
    let both = [Cifar10::train(&folder.0).unwrap(), Cifar10::train(files()).unwrap()];
    for set in &both {
        assert_eq!((set.len(), set.size()), (10, [3, 32, 32]));
        assert_eq!(set.images(), (0..5).flat_map(pixels).collect::<Vec<_>>());
        assert_eq!(set.labels(), (0..5).flat_map(|p| labels(p, 10)).collect::<Vec<_>>());
    }
    assert_eq!((&*both[0].classes()[3], &*both[1].classes()[3]), ("cat", "class 3"));
    let test = Cifar10::test(folder.0.join("cifar-10-batches-bin")).unwrap();
    assert_eq!((test.images(), test.labels()), (&pixels(5)[..], &labels(5, 10)[..]));
    assert_eq!(Cifar10::test(files()).unwrap().images(), test.images());
}

#[test]
fn cifar100_has_fine_and_coarse_labels_in_both_forms() {
    let folder = Folder::new("cifar100");
    folder.put("cifar-100-binary/train.bin", &binary(0, &[&[1, 0], &[4, 3]]));
    folder.put(
        "cifar-100-binary/coarse_label_names.txt",
        (0..20).map(|n| format!("c{n}\r\n")).collect::<String>().as_bytes(),
    );
    for root in [&folder.0, &files()] {
        let fine = Cifar100::train(root, CifarLabels::Fine).unwrap();
        assert_eq!((fine.labels(), fine.images()), (&[0, 3][..], &pixels(0)[..]));
        assert_eq!((fine.classes().len(), &*fine.classes()[99]), (100, "worm"));
        let coarse = Cifar100::train(root, CifarLabels::Coarse).unwrap();
        assert_eq!((coarse.labels(), coarse.classes().len()), (&[1, 4][..], 20));
    }
    assert_eq!(Cifar100::train(&folder.0, CifarLabels::Coarse).unwrap().classes()[7], "c7");
    let all: std::collections::HashSet<_> =
        Cifar100::test(files(), CifarLabels::Fine).unwrap().classes().to_vec().into_iter().collect();
    assert_eq!(all.len(), 100);
}

#[test]
fn torn_and_wrong_cifar_files_name_file_and_record() {
    let folder = Folder::new("torn");
    binary_cifar10(&folder);
    let whole = fs::read(folder.0.join("cifar-10-batches-bin/test_batch.bin")).unwrap();
    let with = |bytes: &[u8]| {
        folder.put("cifar-10-batches-bin/test_batch.bin", bytes);
        problem(Cifar10::test(&folder.0))
    };
    let error = with(&whole[..4000]);
    assert!(error.contains("test_batch.bin: it is cut short: record 1 has 927 of 3073 bytes"), "{error}");
    assert!(with(&[]).contains("test_batch.bin: it is empty"));
    let mut wrong = whole.clone();
    wrong[3073] = 10;
    assert!(with(&wrong).contains("label 10 of record 1 is not between 0 and 9"));

    fs::remove_file(folder.0.join("cifar-10-batches-bin/data_batch_4.bin")).unwrap();
    assert!(problem(Cifar10::train(&folder.0)).contains("data_batch_4.bin"));
    folder.put("cifar-10-batches-bin/batches.meta.txt", b"one\ntwo\n");
    assert!(problem(Cifar10::test(&folder.0)).contains("names 2 classes; CIFAR-10 has 10"));
}

#[test]
fn torn_and_wrong_pickles_are_errors() {
    let folder = Folder::new("pickles");
    let whole = fs::read(files().join("cifar-10-batches-py/test_batch")).unwrap();
    let with = |bytes: &[u8]| {
        folder.put("cifar-10-batches-py/test_batch", bytes);
        problem(Cifar10::test(&folder.0))
    };
    for n in (0..whole.len()).step_by(97) {
        assert!(with(&whole[..n]).contains("test_batch"), "{n}");
    }
    assert!(with(b"(dS'data'\nI1\ns.").contains("'data' must be an array of bytes [n, 3072]; it is 1"));
    assert!(with(b"(d.").contains("there is no 'data' in it"));
    let mut wrong = whole.clone();
    // The labels are the only bytes 5 and 8 in a row of one-byte integers.
    let at = wrong.windows(4).position(|w| w == b"K\x05K\x08").unwrap();
    wrong[at + 3] = 77;
    assert!(with(&wrong).contains("label 77 of record 1 is not between 0 and 9"));
}

#[test]
fn mnist_is_found_plain_or_gzipped_and_in_torchvisions_folders() {
    use std::io::Write;
    let images = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2][..], &[1, 2, 3, 4]].concat();
    let labels = [0, 0, 8, 1, 0, 0, 0, 2, 9, 0];
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&images).unwrap();
    let packed = packed.finish().unwrap();
    for place in ["mnist/", "MNIST/raw/", ""] {
        let folder = Folder::new("mnist");
        folder.put(&format!("{place}train-images-idx3-ubyte.gz"), &packed);
        folder.put(&format!("{place}train-labels-idx1-ubyte"), &labels);
        let set = Mnist::train(&folder.0).unwrap();
        assert_eq!((set.images(), set.labels(), &*set.classes()[9]), (&[1, 2, 3, 4][..], &[9, 0][..], "9"));
        assert!(problem(Mnist::test(&folder.0)).contains("`neurona data get mnist`"));
    }
    let folder = Folder::new("fashion");
    folder.put("FashionMNIST/raw/t10k-images.idx3-ubyte", &images);
    assert!(problem(FashionMnist::test(&folder.0)).contains("t10k-labels-idx1-ubyte"));
    folder.put("FashionMNIST/raw/t10k-labels-idx1-ubyte", &[0, 0, 8, 1, 0, 0, 0, 2, 9, 10]);
    assert!(problem(FashionMnist::test(&folder.0)).contains("label 10 of image 1"));
    folder.put("FashionMNIST/raw/t10k-labels-idx1-ubyte", &labels);
    assert_eq!(FashionMnist::test(&folder.0).unwrap().classes()[9], "ankle boot");
}

#[test]
fn what_is_not_there_says_how_to_get_it() {
    let folder = Folder::new("nothing");
    for name in ["cifar10", "cifar100", "mnist", "fashion-mnist"] {
        let error = problem(open(name, Some(&folder.0)));
        assert!(error.contains(&format!("`neurona data get {name}`")), "{error}");
    }
    assert!(problem(open("fashon_mnist", None)).contains("did you mean fashion-mnist?"));
    let far = problem(open("no/such/folder", None));
    assert!(far.contains("'no/such/folder' is no folder and no known set") && !far.contains("did you mean"), "{far}");
}

#[test]
fn a_known_set_is_opened_by_name_and_by_its_folder() {
    let set = open("CIFAR10", Some(&files())).unwrap();
    assert_eq!((&*set.name, set.kind, set.size), ("cifar10", Kind::Cifar10, Some([3, 32, 32])));
    assert_eq!((set.train.len(), set.test.as_ref().unwrap().len(), set.val.is_none()), (10, 2, true));
    assert_eq!(set.mean, Cifar10::MEAN);
    let set = set.with_validation(0.2, 0).unwrap();
    assert!(set.val.is_none(), "it has something to be judged by");
    assert_eq!(open(files().join("cifar-100-python"), None).unwrap().kind, Kind::Cifar100);
    let embedded = open("embedded", None).unwrap();
    assert_eq!((embedded.train.len(), embedded.kind), (5000, Kind::Embedded));
}

/// Names relative to the folder.
fn found(set: &ImageFolder, root: &Folder) -> Vec<String> {
    let relative = |file: &PathBuf| file.strip_prefix(&root.0).unwrap().to_string_lossy().into_owned();
    set.files().iter().map(relative).collect()
}

#[test]
fn a_folder_is_read_in_torchvisions_order() {
    let folder = Folder::new("order");
    for name in [
        "dog/b.JPG",
        "dog/a.png",
        "dog/sub/deep/0.webp",
        "dog/sub-2/1.gif",
        "Cat/x.jpeg",
        "cat/y.bmp",
        "cat/notes.txt",
        "cat/.hidden.jpg",
        ".git/z.jpg",
        "top.jpg",
    ] {
        folder.put(name, b"");
    }
    let set = ImageFolder::open(&folder.0).unwrap();
    assert_eq!(set.classes(), ["Cat", "cat", "dog"]);
    // Folders are compared as whole texts, in which a dash comes before a slash.
    let want = ["Cat/x.jpeg", "cat/y.bmp", "dog/a.png", "dog/b.JPG", "dog/sub-2/1.gif", "dog/sub/deep/0.webp"];
    assert_eq!(found(&set, &folder), want);
    assert_eq!((set.labels(), set.ignored()), (&[0, 1, 2, 2, 2, 2][..], 1));
    assert!(set.describe(1).ends_with("y.bmp"));
}

#[test]
fn folders_that_teach_nothing_are_refused() {
    let folder = Folder::new("refused");
    let error = || problem(open(&folder.0, None));
    assert!(error().contains("there are no folders in it"));
    folder.put("cat/1.jpg", b"");
    assert!(error().contains("only one class, 'cat'"));
    folder.put("dog/readme.txt", b"");
    let error = error();
    assert!(error.contains("dog: there are no images in it (1 other files are)"), "{error}");
}

#[test]
fn parts_are_told_from_classes() {
    let folder = Folder::new("parts");
    for name in ["train/cat/1.jpg", "train/dog/2.jpg", "valid/dog/3.jpg", "test/cat/4.jpg", "test/dog/x.txt"] {
        folder.put(name, b"");
    }
    let set = open(&folder.0, None).unwrap();
    assert_eq!(set.kind, Kind::Folder);
    assert_eq!((set.train.labels(), set.ignored), (&[0, 1][..], 1));
    assert_eq!((set.val.unwrap().labels(), set.test.unwrap().labels()), (&[1][..], &[0][..]));
    folder.put("val/zebra/5.jpg", b"");
    assert!(problem(open(&folder.0, None)).contains("zebra: there is no such class"));

    let vehicles = Folder::new("vehicles");
    for name in ["train/1.jpg", "train/2.jpg", "train/3.jpg", "bus/1.jpg", "bus/2.jpg"] {
        vehicles.put(name, b"");
    }
    let set = open(&vehicles.0, None).unwrap();
    assert_eq!((set.train.classes(), set.val.is_none()), (&["bus".to_string(), "train".to_string()][..], true));
    let set = set.with_validation(0.4, 7).unwrap();
    assert_eq!((set.train.len(), set.val.unwrap().labels()), (3, &[0, 1][..]));
}

#[cfg(unix)]
#[test]
fn links_in_circles_end_and_strange_names_work() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    let (folder, other) = (Folder::new("links"), Folder::new("links-other"));
    folder.put("a/1.jpg", b"").put("b/2.jpg", b"");
    other.put("far/3.jpg", b"");
    symlink(folder.0.join("a"), folder.0.join("a/self")).unwrap();
    symlink(&folder.0, folder.0.join("a/root")).unwrap();
    symlink(&other.0, folder.0.join("b/other")).unwrap();
    symlink(folder.0.join("b"), other.0.join("back")).unwrap();
    symlink("nowhere.jpg", folder.0.join("b/dangling.jpg")).unwrap();
    fs::write(folder.0.join("a").join(std::ffi::OsStr::from_bytes(b"\xff\xfe.jpg")), b"").unwrap();
    let set = ImageFolder::open(&folder.0).unwrap();
    assert_eq!(
        found(&set, &folder),
        ["a/1.jpg", "a/\u{fffd}\u{fffd}.jpg", "b/2.jpg", "b/dangling.jpg", "b/other/far/3.jpg"]
    );
    let mut image = crate::data::Image::default();
    let error = set.read(3, &mut image).unwrap_err().to_string();
    assert!(error.contains("dangling.jpg"), "{error}");
}

#[test]
fn sets_are_read_by_several_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<ImageSet>();
    shared::<ImageFolder>();
}
