//! Every program in `examples/` does what it says.

use neurona::{Result, manual_seed};
use std::sync::{Mutex, MutexGuard};

#[path = "../../../examples/backprop_by_hand.rs"]
mod backprop_by_hand;
#[path = "../../../examples/compile_fit.rs"]
mod compile_fit;
#[path = "../../../examples/course_cnn.rs"]
mod course_cnn;
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
    assert!(accuracy > 0.75, "{accuracy}");
    Ok(())
}
