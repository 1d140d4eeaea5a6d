//! Checks of flag values that several commands share; what they say, clap shows with the usage.

use std::ops::RangeInclusive;

/// More threads than this help nobody, and the system may refuse them.
const MOST_THREADS: usize = 256;

/// A number of threads.
pub fn threads(text: &str) -> Result<usize, String> {
    whole(text, 1..=MOST_THREADS)
}

/// A number of threads that read images, or none.
pub fn workers(text: &str) -> Result<usize, String> {
    whole(text, 0..=MOST_THREADS)
}

/// A whole number above zero.
pub fn count(text: &str) -> Result<usize, String> {
    whole(text, 1..=1_000_000)
}

/// A whole number, or none.
pub fn count_or_zero(text: &str) -> Result<usize, String> {
    whole(text, 0..=1_000_000)
}

/// Pixels to a side of an image.
pub fn image_size(text: &str) -> Result<usize, String> {
    whole(text, 4..=4096)
}

fn whole(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    let problem = || format!("it is a whole number from {} to {}", range.start(), range.end());
    text.parse().ok().filter(|n| range.contains(n)).ok_or_else(problem)
}

/// A number above zero.
pub fn positive(text: &str) -> Result<f64, String> {
    number(text, |x| x > 0.0 && x <= 1e6, "above 0, and at most 1000000")
}

/// A number that is zero or above.
pub fn not_negative(text: &str) -> Result<f64, String> {
    number(text, |x| (0.0..=1e6).contains(&x), "from 0 to 1000000")
}

/// From zero up to but without one.
pub fn below_one(text: &str) -> Result<f64, String> {
    number(text, |x| (0.0..1.0).contains(&x), "from 0 up to but without 1")
}

/// A share that is neither nothing nor all.
pub fn part(text: &str) -> Result<f64, String> {
    number(text, |x| x > 0.0 && x < 1.0, "between 0 and 1, such as 0.2")
}

fn number(text: &str, fits: impl Fn(f64) -> bool, which: &str) -> Result<f64, String> {
    text.parse().ok().filter(|x| fits(*x)).ok_or_else(|| format!("it is a number {which}"))
}

/// A name for a folder.
pub fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_alphanumeric() || "-_.+=@ ".contains(c);
    match !text.is_empty() && text.len() <= 100 && text.chars().all(plain) && !text.starts_with('.') {
        true => Ok(text.to_string()),
        false => Err("it is a folder's name: letters, digits and - _ . and at most 100 of them".to_string()),
    }
}

/// The one of several names that was most likely meant.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let score = |other: &&str| strsim::jaro_winkler(name, other);
    known
        .iter()
        .copied()
        .map(|k| (score(&k), k))
        .filter(|(s, _)| *s > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|b| b.1)
}
