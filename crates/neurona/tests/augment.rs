//! Augmentation from one seed: the same again, alternating with the epochs, and with the same bits on a GPU.

mod common;

use neurona::data::Augment;
use neurona::{DType, Device, Result, Tensor, manual_seed};
use std::sync::{Mutex, MutexGuard};

/// The generator is the process's: one test at a time may seed it.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Images and labels of one batch, augmented on a device from one seed.
fn on(device: Device, augment: &Augment, shape: [usize; 4]) -> Result<(Vec<f64>, Vec<f32>)> {
    let [n, ..] = shape;
    let bytes = (0..shape.iter().product::<usize>()).map(|i| (i * i * 31 + i * 7 + i / 97) as u8).collect();
    let images = Tensor::from_vec::<u8>(bytes, shape)?.to(device)?;
    let labels = Tensor::from_vec((0..n as i64).map(|i| i % 4).collect(), [n])?.to(device)?;
    let indices: Vec<usize> = (0..n).map(|i| 3 * i + 1).collect();
    let (x, targets) = augment.apply_in_epoch(&images, &labels, 1, &indices)?;
    Ok((x.to_vec::<f64>()?, targets.to_vec::<f32>()?))
}

#[test]
fn every_device_gives_the_same_bits() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let _alone = alone();
    let new = || Augment::new().normalize(&[0.49, 0.48, 0.45], &[0.25, 0.24, 0.26]);
    let all = || new()?.random_crop(4).horizontal_flip(0.5)?.cutout(8).color_jitter(0.4, 0.4, 0.4)?.mixup(0.4, 4);
    let gray = |side: usize| Augment::new().random_crop(side).color_jitter(0.1, 0.5, 0.5);
    let cases = [
        (Augment::new(), [3, 3, 32, 32]),
        (new()?.random_crop_reflect(2).alternating_flip(), [64, 3, 32, 32]),
        (new()?.random_crop(4).horizontal_flip(0.5)?.cutout(12), [64, 3, 32, 32]),
        (new()?.color_jitter(0.2, 0.0, 0.3)?, [5, 3, 9, 7]),
        (all()?, [33, 3, 32, 32]),
        (all()?, [2, 3, 224, 200]),
        (new()?.random_crop(3).mixup(1.0, 4)?, [2, 3, 150, 131]),
        (gray(2)?, [7, 1, 28, 28]),
        (gray(0)?.mixup(1.0, 4)?, [1, 1, 5, 5]),
        (Augment::new().horizontal_flip(0.5)?.cutout(3), [4, 6, 11, 10]),
        (Augment::new().random_crop(1).horizontal_flip(0.5)?, [4, 2, 6, 6]),
    ];
    for (case, (augment, shape)) in cases.into_iter().enumerate() {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let augment = augment.clone().dtype(dtype)?;
            manual_seed(case as u64);
            let cpu = on(Device::Cpu, &augment, shape)?;
            manual_seed(case as u64);
            let cuda = on(gpu, &augment, shape)?;
            assert!(cpu == cuda, "case {case} in {dtype} differs");
        }
    }
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_images() -> Result<()> {
    let _alone = alone();
    let augment = Augment::new().random_crop_reflect(2).horizontal_flip(0.5)?.cutout(3).color_jitter(0.3, 0.3, 0.3)?;
    let make = || on(Device::Cpu, &augment, [4, 3, 9, 8]);
    manual_seed(3);
    let (first, next) = (make()?, make()?);
    assert_ne!(first, next);
    manual_seed(3);
    assert_eq!(first, make()?);
    assert_eq!(next, make()?);
    Ok(())
}

#[test]
fn alternating_flips_show_every_image_both_ways() -> Result<()> {
    let _alone = alone();
    let n = 1000;
    let x = Tensor::from_vec([0u8, 255].repeat(n), [n, 1, 1, 2])?;
    let (augment, labels) = (Augment::new().alternating_flip(), Tensor::zeros([n], DType::I64)?);
    let indices: Vec<usize> = (0..n).collect();
    let flips = |epoch| -> Result<Vec<bool>> {
        let (y, _) = augment.apply_in_epoch(&x, &labels, epoch, &indices)?;
        Ok(y.to_vec::<f32>()?.chunks(2).map(|image| image[0] == 1.0).collect())
    };
    let (first, second) = (flips(0)?, flips(1)?);
    assert!(first.iter().zip(&second).all(|(a, b)| a != b));
    assert_eq!(first, flips(2)?);
    assert!(first.iter().filter(|flipped| **flipped).count().abs_diff(n / 2) < 80);
    assert!(augment.apply(&x, &labels).is_err());
    Ok(())
}
