//! Every program in `examples/` does what it says.

use neurona::{Result, manual_seed};
use std::sync::{Mutex, MutexGuard};

#[path = "../../../examples/backprop_by_hand.rs"]
mod backprop_by_hand;
#[path = "../../../examples/compile_fit.rs"]
mod compile_fit;
#[path = "../../../examples/course_cnn.rs"]
mod course_cnn;
#[path = "../../../examples/lab_cifar10.rs"]
mod lab_cifar10;
#[path = "../../../examples/sequential_500_256.rs"]
mod sequential_500_256;
#[path = "../../../examples/training_loop.rs"]
mod training_loop;

/// They seed the process's generator, so they take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

#[test]
fn the_training_loop_learns() -> Result<()> {
    let _turn = turn();
    let (losses, accuracy) = training_loop::train(3, 1500)?;
    assert!(losses.windows(2).all(|w| w[1] < w[0]), "{losses:?}");
    assert!(accuracy > 0.7, "{accuracy}");
    // The same seed gives the same bits.
    assert_eq!(training_loop::train(1, 300)?, training_loop::train(1, 300)?);
    Ok(())
}

#[test]
fn the_sequential_model_has_500_256_10_and_learns() -> Result<()> {
    use neurona::nn::Module;
    let _turn = turn();
    let net = sequential_500_256::model()?;
    assert_eq!(net.num_parameters(), 500 * 256 + 256 + 256 * 10 + 10);
    assert!(sequential_500_256::train(100)? > 0.9);
    Ok(())
}

#[test]
fn the_course_network_shows_its_shapes_and_learns_with_each_optimizer() -> Result<()> {
    let _turn = turn();
    manual_seed(0);
    let lines = course_cnn::shapes()?;
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(&lines[0]), "input [4, 1, 28, 28] f32");
    assert_eq!(words(&lines[4]), "pool [4, 8, 14, 14] f32");
    assert_eq!(words(&lines[8]), "pool [4, 16, 7, 7] f32");
    assert_eq!(words(&lines[10]), "fc [4, 10] f32");
    let results = course_cnn::train(40)?;
    assert_eq!(results.len(), 3);
    for (name, losses) in &results {
        assert_eq!(losses[0], results[0].1[0], "they start alike");
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        assert!(mean(&losses[30..]) < 0.6 * mean(&losses[..3]), "{name}: {losses:?}");
    }
    Ok(())
}

#[test]
fn backpropagation_by_hand_is_the_engines() -> Result<()> {
    let _turn = turn();
    for sizes in [&[2, 3, 1][..], &[2, 3, 4, 1], &[5, 7, 1], &[4, 6, 5, 1]] {
        backprop_by_hand::compare(sizes)?;
    }
    Ok(())
}

#[test]
fn compile_and_fit_learn() -> Result<()> {
    let _turn = turn();
    let accuracy = compile_fit::train(1500, 3)?;
    assert!(accuracy > 0.7, "{accuracy}");
    Ok(())
}

#[test]
fn the_lab_learns_and_its_network_survives_saving() -> Result<()> {
    use neurona::data::ImageSet;
    use neurona::nn::Module;
    let _turn = turn();
    manual_seed(0);
    // Pictures of 32 x 32 whose colour is their class, as far as ten classes go.
    let image = |i: usize| (0..3 * 1024).map(move |p| ((i % 10) * 25 + (p / 1024) * ((i % 3) * 40) + p * i % 7) as u8);
    let classes = (0..10).map(|c| c.to_string()).collect();
    let labels = (0..1200).map(|i| i as i64 % 10).collect();
    let images = ImageSet::new((0..1200).flat_map(image).collect(), labels, classes, [3, 32, 32])?;
    let net = lab_cifar10::Net::new()?;
    assert_eq!(net.num_parameters(), 62_006);
    let losses = lab_cifar10::train(&net, &lab_cifar10::loader(images.clone(), true, 1)?, 3, 100)?;
    assert_eq!(losses.len(), 9);
    assert!(losses[8] < 0.75 * losses[0], "{losses:?}");

    let path = std::env::temp_dir().join(format!("neurona-lab-{}.safetensors", std::process::id()));
    net.save(&path)?;
    let fresh = lab_cifar10::Net::new()?;
    fresh.load(&path)?;
    std::fs::remove_file(path).ok();
    let batches = lab_cifar10::loader(images, false, 0)?;
    let results = lab_cifar10::test(&fresh, &batches)?;
    assert_eq!(results, lab_cifar10::test(&net, &batches)?);
    assert!(results.iter().all(|(_, total)| *total == 120));
    assert!(results.iter().map(|(correct, _)| correct).sum::<usize>() > 300, "{results:?}");
    Ok(())
}

#[test]
fn the_lab_without_its_data_says_how_to_get_it() {
    let error =
        neurona::data::sets::Cifar10::train("./no-such-folder").err().map(|e| e.to_string()).unwrap_or_default();
    assert_eq!(error, "./no-such-folder: there is no CIFAR-10 here; `neurona data get cifar10` downloads it");
}
