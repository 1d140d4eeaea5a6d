//! From an evaluation to results, and results in words.

use crate::results::{Bin, Calibration, ClassScores, Mistake, Results, Scores};
use neurona::data::Dataset;
use neurona::metrics;
use neurona::train::{Evaluation, Prediction};

/// Mistakes that are kept, pictures and all.
const MISTAKES: usize = 24;
/// More classes than this are not listed one by one on the terminal.
const LISTED: usize = 30;

/// The evaluation with the names of classes and files.
pub fn results(evaluation: &Evaluation, data: &dyn Dataset, split: &str) -> Results {
    let report = evaluation.confusion.report();
    let scores = |s: &metrics::Scores| Scores { precision: s.precision, recall: s.recall, f1: s.f1 };
    let mistake = |p: &&Prediction| Mistake {
        index: p.index,
        file: data.describe(p.index),
        truth: p.label,
        guess: p.guess(),
        confidence: p.confidence(),
        probabilities: p.top.clone(),
    };
    let bin = |b: &metrics::Bin| Bin { count: b.count as usize, confidence: b.confidence, accuracy: b.accuracy };
    let classes = data.classes().to_vec();
    Results {
        split: split.to_string(),
        images: evaluation.predictions.len(),
        accuracy: evaluation.accuracy(),
        top5: evaluation.top5,
        loss: evaluation.loss,
        mean: scores(&report.macro_average),
        per_class: classes
            .iter()
            .zip(&report.class)
            .map(|(name, s)| ClassScores { name: name.clone(), count: s.count as usize, scores: scores(s) })
            .collect(),
        confusion: evaluation.confusion.counts().iter().map(|r| r.iter().map(|n| *n as usize).collect()).collect(),
        calibration: Calibration {
            error: evaluation.calibration.error(),
            bins: evaluation.calibration.bins().iter().map(bin).collect(),
        },
        mistakes: evaluation.worst_mistakes(MISTAKES).iter().map(mistake).collect(),
        classes,
    }
}

/// How well it went: over all, by class, and the worst mistakes.
pub fn summary(results: &Results) -> String {
    let (right, all) = (results.right(), results.images);
    let split = match results.split.as_str() {
        "train" => "Training",
        "val" => "Validation",
        "all" => "Overall",
        _ => "Test",
    };
    let width = results.classes.iter().map(|c| c.chars().count()).max().unwrap_or(0);
    let mut text = format!("{split} accuracy {:.1} % ({right} of {all})\n", 100.0 * results.accuracy);
    let mut classes: Vec<&ClassScores> = results.per_class.iter().collect();
    if classes.len() > LISTED {
        classes.sort_by(|a, b| a.scores.recall.total_cmp(&b.scores.recall));
        classes.truncate(10);
        text += "The ten hardest classes\n";
    }
    for class in classes {
        let accuracy = match class.count {
            0 => "no images".to_string(),
            _ => format!("{:>5.1} %", 100.0 * class.scores.recall),
        };
        text += &format!("  {:<width$}  {accuracy}\n", class.name);
    }
    let worst = results.worst(3);
    if !worst.is_empty() {
        text += "Most often confused\n";
    }
    for confused in worst {
        let of: usize = results.confusion[confused.truth].iter().sum();
        let (truth, guess) = (&results.classes[confused.truth], &results.classes[confused.guess]);
        text += &format!("  {truth} taken for {guess}: {} of {of}\n", confused.times);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn many_classes_are_not_listed_one_by_one() {
        let few = summary(&sample(10));
        assert!(few.contains("class 9") && few.starts_with("Test accuracy 93.0 %"), "{few}");
        let many = summary(&sample(100));
        assert!(many.contains("ten hardest") && many.lines().count() < 20, "{many}");
    }
}
