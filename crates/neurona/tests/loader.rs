//! The loader over files, and the threads of the process. One test, because another's threads would be counted too.

use neurona::Result;
use neurona::data::transforms::{CenterCrop, Compose, Resize, ToTensor};
use neurona::data::{DataLoader, Dataset, sets};
use std::fs;
use std::path::Path;

/// A bitmap of one colour.
fn bmp(width: u32, height: u32, [r, g, b]: [u8; 3]) -> Vec<u8> {
    let row = (width as usize * 3).next_multiple_of(4);
    let size = 54 + (row * height as usize) as u32;
    let mut bytes = b"BM".to_vec();
    for word in [size, 0, 54, 40, width, height, 1 | 24 << 16, 0, 0, 2835, 2835, 0, 0] {
        bytes.extend(word.to_le_bytes());
    }
    for _ in 0..height {
        let pixels = [b, g, r].repeat(width as usize);
        bytes.extend(&pixels);
        bytes.resize(bytes.len() + row - pixels.len(), 0);
    }
    bytes
}

fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("the folder can be made");
    fs::write(path, bytes).expect("the file can be written");
}

/// Workers that run now.
#[cfg(target_os = "linux")]
fn workers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux has it");
    tasks
        .filter(|t| {
            t.as_ref().is_ok_and(|t| fs::read_to_string(t.path().join("comm")).is_ok_and(|c| c == "neurona-loader\n"))
        })
        .count()
}

#[test]
fn a_folder_of_files_good_and_bad() -> Result<()> {
    let root = std::env::temp_dir().join(format!("neurona-loader-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    for i in 0..20 {
        put(&root.join(format!("red/{i:02}.bmp")), &bmp(9, 7, [250, i, 0]));
        put(&root.join(format!("blue/{i:02}.bmp")), &bmp(9, 7, [0, i, 250]));
    }
    let set = sets::open(&root, None)?.with_validation(0.2, 1)?;
    assert_eq!((set.train.len(), set.val.as_ref().map(|v| v.len())), (32, Some(8)));

    let loader = DataLoader::new(set.train.clone(), 5)?.shuffle(true).workers(2);
    for batch in &loader {
        let batch = batch?;
        let (pixels, labels) = (batch.images.to_vec::<f32>()?, batch.labels.to_vec::<i64>()?);
        for (image, label) in pixels.chunks(3 * 63).zip(labels) {
            // Classes are in the order of their names: blue is 0. Channels are red, green, blue.
            assert_eq!((image[0] > 0.9, image[2 * 63] > 0.9), (label == 1, label == 0));
        }
    }

    let all = |loader: &DataLoader| loader.iter().map(|b| Ok(b?.indices.len())).sum::<Result<usize>>();
    put(&root.join("red/05.bmp"), b"");
    put(&root.join("blue/06.bmp"), b"not an image at all");
    let whole = sets::open(&root, None)?.train;
    let stops = all(&DataLoader::new(whole.clone(), 4)?.workers(2)).expect_err("two files are bad").to_string();
    assert!(stops.contains("06.bmp"), "{stops}");
    let skips = DataLoader::new(whole.clone(), 4)?.workers(2).skip_bad_images();
    assert_eq!((all(&skips)?, skips.skipped().len()), (38, 2));
    assert!(skips.skipped()[1].name.ends_with("05.bmp"), "{:?}", skips.skipped());

    put(&root.join("red/05.bmp"), &bmp(30, 20, [250, 0, 0]));
    let unequal = all(&DataLoader::new(whole.clone(), 40)?.skip_bad_images()).expect_err("one is larger").to_string();
    assert!(unequal.contains("05.bmp is 30 x 20 pixels in colour") && unequal.contains("Resize"), "{unequal}");
    let same = Compose::new().add(Resize::new(8)?).add(CenterCrop::new(8)?).add(ToTensor);
    assert_eq!(all(&DataLoader::new(whole, 40)?.transform(same).skip_bad_images())?, 39);

    #[cfg(target_os = "linux")]
    {
        assert_eq!(workers(), 0, "they have ended");
        let loader = loader.workers(3);
        let mut epoch = loader.iter();
        assert!(epoch.next().is_some());
        drop(epoch);
        assert_eq!(workers(), 0, "they end with the iterator");
    }
    fs::remove_dir_all(root).ok();
    Ok(())
}
