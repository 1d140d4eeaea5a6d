//! Weights for unbalanced data.

use crate::{Error, Result, Tensor};

/// A weight for each class, so that all classes together count alike however many images they have: images of all
/// classes, divided by the classes and by the images of this one (scikit-learn's "balanced"). A class without images
/// gets 0. For [`CrossEntropyLoss::weight`](crate::loss::CrossEntropyLoss::weight).
///
/// ```
/// use neurona::train::class_weights;
/// assert_eq!(class_weights(&[0, 0, 0, 1], 2)?.to_vec::<f32>()?, [4.0 / 6.0, 2.0]);
/// assert!(class_weights(&[2], 2).is_err());
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn class_weights(labels: &[i64], classes: usize) -> Result<Tensor> {
    let mut counts = vec![0u64; classes];
    for (i, &label) in labels.iter().enumerate() {
        match usize::try_from(label).ok().and_then(|class| counts.get_mut(class)) {
            Some(count) => *count += 1,
            None => return Err(Error::Argument(format!("label {label} of image {i} is none of {classes} classes"))),
        }
    }
    let weight = |count: &u64| match count {
        0 => 0.0,
        n => (labels.len() as f64 / (classes as f64 * *n as f64)) as f32,
    };
    Tensor::from_vec(counts.iter().map(weight).collect(), [classes])
}
