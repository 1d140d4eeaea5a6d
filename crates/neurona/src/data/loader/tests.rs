use crate::data::transforms::{Compose, ToTensor, Transform};
use crate::data::{Batch, Batches, CutMix, DataLoader, Dataset, Draws, Image, ImageSet, Mix, MixUp};
use crate::{DType, Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// `n` grey images of 4 x 4 whose pixels tell which image it is.
fn numbered(n: usize) -> ImageSet {
    let pixels = (0..n).flat_map(|i| [i as u8; 16]).collect();
    let classes = ["a", "b", "c"].map(String::from).to_vec();
    ImageSet::new(pixels, (0..n).map(|i| i as i64 % 3).collect(), classes, [1, 4, 4]).unwrap()
}

/// Adds noise that depends on the draws, and takes longer for some images than for others.
#[derive(Debug)]
struct Noise;

impl Transform for Noise {
    fn apply(&self, image: &mut Image, draws: &mut Draws) -> Result<()> {
        let size = [image.width(), image.height(), image.channels()];
        if draws.chance(0.05) {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        image.refill(size, |bytes| {
            bytes.iter_mut().for_each(|b| *b ^= draws.bits() as u8);
            Ok(())
        })
    }
}

fn plain(batch: Batch) -> (Vec<f32>, Vec<f32>, Vec<usize>) {
    (batch.images.to_vec().unwrap(), batch.labels.to_vec().unwrap(), batch.indices)
}

fn all(batches: impl Iterator<Item = Result<Batch>>) -> Vec<(Vec<f32>, Vec<f32>, Vec<usize>)> {
    batches.map(|b| plain(b.unwrap())).collect()
}

#[test]
fn any_number_of_workers_gives_the_same_bytes() {
    let mix = || Mix::from(MixUp::new(0.4).unwrap()).or(CutMix::new(1.0).unwrap()).probability(0.7).unwrap();
    for (batch, mixed) in [(1, false), (3, true), (50, true), (300, false)] {
        let loader = |workers| {
            let loader = DataLoader::new(numbered(203), batch).unwrap().shuffle(true).seed(5).workers(workers);
            let loader = loader.transform(Compose::new().add(Noise)).prefetch(workers % 3);
            if mixed { loader.mix(mix()) } else { loader }
        };
        let want = all(loader(0).epoch(2, 0).unwrap());
        assert_eq!(want.len(), 203usize.div_ceil(batch));
        for workers in [1, 2, 3, 8] {
            assert_eq!(all(loader(workers).epoch(2, 0).unwrap()), want, "batches of {batch}, {workers} workers");
        }
    }
}

#[test]
fn bytes_are_the_images_before_they_are_numbers() {
    let loader = |workers| DataLoader::new(numbered(10), 4).unwrap().shuffle(true).workers(workers).transform(Noise);
    let unit = |batches: Vec<(Vec<f32>, Vec<f32>, Vec<usize>)>| -> Vec<Vec<f32>> {
        batches.into_iter().map(|(pixels, _, _)| pixels.iter().map(|p| p / 255.0).collect()).collect()
    };
    let want: Vec<Vec<f32>> = all(loader(0).epoch(1, 0).unwrap()).into_iter().map(|(pixels, _, _)| pixels).collect();
    let first = loader(2).bytes().epoch(1, 0).unwrap().next().unwrap().unwrap();
    assert_eq!((first.images.dtype(), first.images.shape().to_vec()), (DType::U8, vec![4, 1, 4, 4]));
    for workers in [0, 2] {
        let got = unit(all(loader(workers).bytes().epoch(1, 0).unwrap()));
        assert!(got.concat().iter().zip(want.concat()).all(|(a, b)| (a - b).abs() < 1e-6));
    }
    let fails = |loader: DataLoader| loader.epoch(0, 0).unwrap().next().unwrap().unwrap_err().to_string();
    assert!(fails(loader(0).bytes().mix(MixUp::new(1.0).unwrap())).contains("Augment"));
    let numbers = DataLoader::new(numbered(4), 2).unwrap().transform(Compose::new().add(ToTensor)).bytes();
    assert!(fails(numbers).contains("leave ToTensor"));
}

#[test]
fn resuming_gives_what_would_have_come_and_reads_nothing_before() {
    let set = Arc::new(Counted { inner: numbered(100), reads: Mutex::default() });
    let loader = DataLoader::new(set.clone(), 7).unwrap().shuffle(true).transform(Noise).workers(2);
    let whole = all(loader.epoch(3, 0).unwrap());
    for first in [1, 8, 14, 15] {
        set.reads.lock().unwrap().clear();
        assert_eq!(all(loader.epoch(3, first).unwrap()), whole[first..], "from {first}");
        let mut reads = set.reads.lock().unwrap().clone();
        let mut want: Vec<usize> = whole[first..].iter().flat_map(|b| b.2.clone()).collect();
        reads.sort_unstable();
        want.sort_unstable();
        assert_eq!(reads, want);
    }
    assert!(loader.epoch(3, 16).is_err());
}

struct Counted {
    inner: ImageSet,
    reads: Mutex<Vec<usize>>,
}

impl Dataset for Counted {
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn classes(&self) -> &[String] {
        self.inner.classes()
    }
    fn labels(&self) -> &[i64] {
        self.inner.labels()
    }
    fn read(&self, index: usize, image: &mut Image) -> Result<()> {
        self.reads.lock().unwrap().push(index);
        self.inner.read(index, image)
    }
}

#[test]
fn every_image_comes_once_an_epoch_and_epochs_differ() {
    let loader = DataLoader::new(numbered(50), 8).unwrap().shuffle(true).workers(2);
    let places = |epoch: Vec<(Vec<f32>, Vec<f32>, Vec<usize>)>| epoch.into_iter().flat_map(|b| b.2).collect::<Vec<_>>();
    let (first, second) = (places(all(loader.iter())), places(all(loader.iter())));
    assert_eq!(places(all(loader.epoch(1, 0).unwrap())), second, "the loader counts its epochs");
    assert_ne!(first, second);
    for mut places in [first, second] {
        places.sort_unstable();
        assert_eq!(places, (0..50).collect::<Vec<_>>());
    }
    let in_order = DataLoader::new(numbered(5), 2).unwrap();
    assert_eq!(places(all(in_order.iter())), [0, 1, 2, 3, 4]);
}

#[test]
fn the_last_batch_may_be_dropped() {
    let loader = DataLoader::new(numbered(10), 4).unwrap();
    let sizes = |loader: &DataLoader| all(loader.iter()).iter().map(|b| b.2.len()).collect::<Vec<_>>();
    assert_eq!((sizes(&loader), loader.images(), loader.batches()), (vec![4, 4, 2], 10, 3));
    let loader = loader.drop_last(true).workers(2);
    assert_eq!((sizes(&loader), loader.images(), loader.batches()), (vec![4, 4], 8, 2));
}

#[test]
fn a_batch_may_be_larger_than_the_set() {
    let loader = DataLoader::new(numbered(3), 100).unwrap().workers(4);
    assert_eq!(all(loader.iter()).len(), 1);
    let none = loader.drop_last(true);
    assert_eq!((none.images(), none.batches()), (0, 0));
    let error = none.iter().next().unwrap().unwrap_err().to_string();
    assert_eq!(error, "3 images do not fill a batch of 100, and drop_last leaves out the rest");
}

#[test]
fn empty_sets_and_empty_batches_are_refused() {
    assert_eq!(DataLoader::new(numbered(0), 1).unwrap_err().to_string(), "the set has no images");
    assert!(DataLoader::new(numbered(2), 0).unwrap_err().to_string().contains("at least one image"));
}

/// Does what it is told for some of its images.
struct Trap {
    inner: ImageSet,
    bad: Vec<usize>,
    how: fn(usize) -> Result<()>,
}

fn trap(n: usize, bad: &[usize], how: fn(usize) -> Result<()>) -> Trap {
    Trap { inner: numbered(n), bad: bad.to_vec(), how }
}

fn torn(index: usize) -> Result<()> {
    Err(Error::Format { path: format!("{index}.jpg").into(), problem: "it is cut short".to_string() })
}

impl Dataset for Trap {
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn classes(&self) -> &[String] {
        self.inner.classes()
    }
    fn labels(&self) -> &[i64] {
        self.inner.labels()
    }
    fn read(&self, index: usize, image: &mut Image) -> Result<()> {
        if self.bad.contains(&index) { (self.how)(index) } else { self.inner.read(index, image) }
    }
    fn describe(&self, index: usize) -> String {
        format!("{index}.jpg")
    }
}

#[test]
fn a_bad_image_stops_the_run_and_is_named() {
    for workers in [0, 1, 3] {
        let loader = DataLoader::new(trap(40, &[13, 30], torn), 4).unwrap().workers(workers);
        let mut epoch = loader.iter();
        for _ in 0..3 {
            assert!(epoch.next().unwrap().is_ok(), "what comes before is given");
        }
        assert_eq!(epoch.next().unwrap().unwrap_err().to_string(), "13.jpg: it is cut short");
        assert!(epoch.next().is_none(), "{workers} workers");
    }
}

#[test]
fn bad_images_are_skipped_and_counted_once() {
    for workers in [0, 2] {
        let set = trap(20, &[1, 4, 5, 6, 7, 18], torn);
        let loader = DataLoader::new(set, 4).unwrap().workers(workers).skip_bad_images();
        for _ in 0..2 {
            let places: Vec<_> = all(loader.iter()).into_iter().map(|b| b.2).collect();
            assert_eq!(places, [vec![0, 2, 3], vec![8, 9, 10, 11], vec![12, 13, 14, 15], vec![16, 17, 19]]);
        }
        let skipped = loader.skipped();
        assert_eq!(skipped.len(), 6);
        assert_eq!((&*skipped[1].name, &*skipped[1].problem), ("4.jpg", "4.jpg: it is cut short"));
        let first = loader.iter().next().unwrap().unwrap();
        let levels = first.images.to_vec::<f32>().unwrap();
        assert_eq!(levels.iter().step_by(16).map(|l| l * 255.0).collect::<Vec<_>>(), [0.0, 2.0, 3.0]);
        assert_eq!(first.labels.to_vec::<i64>().unwrap(), [0, 2, 0]);
    }
}

#[test]
fn nothing_but_bad_images_is_an_error() {
    let loader = DataLoader::new(trap(3, &[0, 1, 2], torn), 2).unwrap().workers(2).skip_bad_images();
    let results: Vec<_> = loader.iter().collect();
    assert_eq!(results.len(), 1);
    let error = results[0].as_ref().unwrap_err().to_string();
    assert_eq!(error, "none of 3 images can be read; the first: 0.jpg: it is cut short");
}

#[test]
fn a_panic_is_an_error_even_where_bad_images_are_skipped() {
    for workers in [0, 2] {
        let set = trap(30, &[11], |i| panic!("no idea how to read {i}"));
        let loader = DataLoader::new(set, 2).unwrap().workers(workers).skip_bad_images();
        let error = loader.iter().find_map(|b| b.err()).unwrap().to_string();
        assert_eq!(error, "11.jpg: the code that reads it panicked: no idea how to read 11");
    }
}

#[test]
fn a_transform_that_fails_names_the_image() {
    #[derive(Debug)]
    struct Picky;
    impl Transform for Picky {
        fn apply(&self, image: &mut Image, _: &mut Draws) -> Result<()> {
            match image.bytes()[0] {
                7 => Err(Error::Argument("a crop of 8 x 8 does not fit".to_string())),
                9 => panic!("nine"),
                _ => Ok(()),
            }
        }
    }
    let loader = |skip: bool| {
        let loader = DataLoader::new(trap(10, &[], torn), 1).unwrap().workers(2).transform(Picky);
        if skip { loader.skip_bad_images() } else { loader }
    };
    let error = |loader: DataLoader| loader.iter().find_map(|b| b.err()).unwrap().to_string();
    assert_eq!(error(loader(false)), "7.jpg: a crop of 8 x 8 does not fit");
    assert_eq!(error(loader(true)), "9.jpg: the code that reads it panicked: nine");
}

#[test]
fn images_of_two_sizes_are_both_named() {
    #[derive(Debug)]
    struct Grow;
    impl Transform for Grow {
        fn apply(&self, image: &mut Image, _: &mut Draws) -> Result<()> {
            if image.bytes()[0] == 2 { image.refill([5, 4, 1], |_| Ok(())) } else { Ok(()) }
        }
    }
    let loader = DataLoader::new(trap(4, &[], torn), 4).unwrap().transform(Grow).skip_bad_images();
    let error = loader.iter().next().unwrap().unwrap_err().to_string();
    assert!(error.starts_with("0.jpg is 4 x 4 pixels grey, but 2.jpg is 5 x 4 pixels grey: "), "{error}");
    assert!(error.contains("add a Resize or a crop"), "{error}");
}

/// Takes its time.
struct Slow {
    inner: ImageSet,
    reads: AtomicUsize,
}

impl Dataset for Slow {
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn classes(&self) -> &[String] {
        self.inner.classes()
    }
    fn labels(&self) -> &[i64] {
        self.inner.labels()
    }
    fn read(&self, index: usize, image: &mut Image) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(1));
        self.inner.read(index, image)
    }
}

#[test]
fn an_early_break_ends_the_workers_and_lets_everything_go() {
    let set = Arc::new(Slow { inner: numbered(255), reads: AtomicUsize::new(0) });
    let loader = DataLoader::new(set.clone(), 2).unwrap().shuffle(true).workers(4);
    for taken in [0, 1, 5] {
        let before = set.reads.load(Ordering::Relaxed);
        let start = std::time::Instant::now();
        let mut epoch = loader.iter();
        (0..taken).for_each(|_| drop(epoch.next().unwrap().unwrap()));
        drop(epoch);
        assert!(start.elapsed().as_millis() < 500, "it did not wait for the rest");
        // A worker that still ran would hold it too.
        assert_eq!(Arc::strong_count(loader.dataset()), 1);
        let after = set.reads.load(Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(set.reads.load(Ordering::Relaxed), after, "nobody reads any more");
        assert!(after - before < 100, "{} images were read for {taken} batches", after - before);
    }
}

#[test]
fn workers_wait_when_the_reader_is_slow() {
    let set = Arc::new(Counted { inner: big(64), reads: Mutex::default() });
    let loader = DataLoader::new(set.clone(), 1).unwrap().workers(2).prefetch(3);
    let mut epoch = loader.iter();
    epoch.next().unwrap().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let read = set.reads.lock().unwrap().len();
    assert!(read <= 2 * 3 + 2, "{read} images were read ahead");
    assert_eq!(epoch.count(), 63);
}

/// Images so large that each is a run of its own.
fn big(n: usize) -> ImageSet {
    ImageSet::new(vec![0; n * 512 * 512], vec![0; n], vec!["a".to_string()], [1, 512, 512]).unwrap()
}

#[test]
fn many_loaders_at_once_do_not_get_in_each_others_way() {
    let loader = DataLoader::new(numbered(60), 4).unwrap().shuffle(true).workers(2).transform(Noise);
    let want = all(loader.epoch(0, 0).unwrap());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| all(loader.epoch(0, 0).unwrap()))).collect();
        threads.into_iter().for_each(|t| assert_eq!(t.join().unwrap(), want));
    });
}
