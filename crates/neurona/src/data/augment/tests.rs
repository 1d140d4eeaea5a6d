use super::*;

fn images(n: usize, c: usize, h: usize, w: usize) -> Tensor {
    let bytes: Vec<u8> = (0..n * c * h * w).map(|i| (random::mix(i as u64) >> 56) as u8).collect();
    Tensor::from_vec(bytes, [n, c, h, w]).unwrap()
}

#[test]
fn rows_come_back_as_users_see_them() {
    // Channels lie side by side inside; a user reads planes.
    let x = images(2, 3, 4, 5);
    let (y, labels) = Augment::new().apply(&x, &Tensor::from([4i64, 2])).unwrap();
    let want: Vec<f32> = x.to_vec::<u8>().unwrap().iter().map(|v| f32::from(*v) / 255.0).collect();
    assert_eq!(y.to_vec::<f32>().unwrap(), want);
    assert_eq!(labels.to_vec::<i64>().unwrap(), [4, 2]);
}

#[test]
fn half_of_the_images_are_flipped() {
    let n = 4000;
    let x = Tensor::from_vec([0u8, 255].repeat(n), [n, 1, 1, 2]).unwrap();
    let augment = Augment::new().horizontal_flip(0.5).unwrap();
    let (y, _) = augment.apply(&x, &Tensor::zeros([n], DType::I64).unwrap()).unwrap();
    let flipped = y.to_vec::<f32>().unwrap().chunks(2).filter(|image| image[0] == 1.0).count();
    // Five standard deviations.
    assert!(flipped.abs_diff(n / 2) < 160, "{flipped}");
}

#[test]
fn crops_are_even_over_all_places() {
    // One white pixel in the middle says where the window was.
    let (n, side) = (10_000, 5);
    let mut image = vec![0u8; side * side];
    image[12] = 255;
    let x = Tensor::from_vec(image.repeat(n), [n, 1, side, side]).unwrap();
    let (y, _) = Augment::new().random_crop(2).apply(&x, &Tensor::zeros([n], DType::I64).unwrap()).unwrap();
    let mut seen = [0usize; 25];
    for image in y.to_vec::<f32>().unwrap().chunks(25) {
        seen[image.iter().position(|v| *v == 1.0).unwrap()] += 1;
    }
    assert!(seen.iter().all(|count| count.abs_diff(n / 25) < 100), "{seen:?}");
}

#[test]
fn labels_follow_the_pixels_when_mixed() {
    // Image i is white if it is of class 0: the mean of an image is the share that class 0 has in it.
    let (n, size) = (6, 16);
    let bytes: Vec<u8> = (0..n).flat_map(|i| vec![if i == 0 { 255 } else { 0 }; size]).collect();
    let x = Tensor::from_vec(bytes, [n, 1, 4, 4]).unwrap();
    let labels = Tensor::from_vec((0..n as i64).collect(), [n]).unwrap();
    let augment = Augment::new().mixup(1.0, n).unwrap();
    for _ in 0..20 {
        let (y, p) = augment.apply(&x, &labels).unwrap();
        let (y, p) = (y.to_vec::<f32>().unwrap(), p.to_vec::<f32>().unwrap());
        for i in 0..n {
            let white = y[i * size..][..size].iter().sum::<f32>() / size as f32;
            assert!((white - p[i * n]).abs() < 1e-6);
            assert!((p[i * n..][..n].iter().sum::<f32>() - 1.0).abs() < 1e-6);
        }
    }
}

#[test]
fn narrow_results_are_wide_ones_rounded() {
    let x = images(3, 3, 7, 5);
    let augment = Augment::new().normalize(&[0.4, 0.5, 0.6], &[0.2, 0.3, 0.25]).unwrap();
    let labels = Tensor::zeros([3], DType::I64).unwrap();
    let wide = augment.apply(&x, &labels).unwrap().0;
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        let (y, _) = augment.clone().dtype(dtype).unwrap().apply(&x, &labels).unwrap();
        assert_eq!(y.dtype(), dtype);
        let want = wide.to_dtype(dtype).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), want);
    }
}

#[test]
fn impossible_settings_are_refused() {
    let new = Augment::new;
    assert!(new().normalize(&[0.5], &[]).is_err() && new().normalize(&[0.5], &[0.0]).is_err());
    assert!(new().normalize(&[], &[]).is_err() && new().normalize(&[f32::NAN], &[1.0]).is_err());
    assert!(new().horizontal_flip(1.5).is_err() && new().color_jitter(-0.1, 0.0, 0.0).is_err());
    assert!(new().color_jitter(f64::NAN, 0.0, 0.0).is_err());
    assert!(new().mixup(0.0, 10).is_err() && new().mixup(1.0, 0).is_err() && new().dtype(DType::I64).is_err());
    let (x, labels) = (images(1, 3, 4, 4), Tensor::from([0i64]));
    let two_means = new().normalize(&[0.5, 0.5], &[1.0, 1.0]).unwrap();
    assert!(two_means.apply(&x, &labels).unwrap_err().to_string().contains("2 means"));
}

#[test]
fn an_empty_batch_stays_empty() {
    let x = Tensor::zeros([0, 3, 8, 8], DType::U8).unwrap();
    let labels = Tensor::zeros([0], DType::I64).unwrap();
    let (y, p) = Augment::new().random_crop(1).mixup(1.0, 4).unwrap().apply(&x, &labels).unwrap();
    assert_eq!((y.numel(), p.shape().to_string().as_str()), (0, "[0, 4]"));
    assert!(y.to_vec::<f32>().unwrap().is_empty());
}
