//! Checks of flag values that several commands share; what they say, clap shows with the usage.

use neurona::Device;

/// More threads than this help nobody, and the system may refuse them.
const MOST_THREADS: usize = 256;

/// A number of threads.
pub fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=MOST_THREADS) => Ok(n),
        _ => Err(format!("it is a whole number from 1 to {MOST_THREADS}")),
    }
}

/// A whole number above zero.
pub fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=1_000_000) => Ok(n),
        _ => Err("it is a whole number from 1 to 1000000".to_string()),
    }
}

/// A number above zero.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(x) if x > 0.0 && x <= 1e6 => Ok(x),
        _ => Err("it is a number above 0, and at most 1000000".to_string()),
    }
}

/// A device that this machine has.
pub fn device(text: &str) -> Result<Device, String> {
    text.parse::<Device>().and_then(Device::available).map_err(|e| e.to_string())
}
