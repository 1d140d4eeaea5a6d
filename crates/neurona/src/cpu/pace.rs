//! Whether a plan runs on all threads or on one.
//!
//! A small plan can be faster on one thread: its barriers cost more than the other cores give, the more so when loader
//! workers or other programs keep these busy. What a plan computes does not depend on it, so the faster way is found by
//! trying; and tried again, since the load of a machine changes.

use std::time::Duration;

/// Runs before the other way is tried for the first time, and again after the load has changed.
const FIRST: u32 = 32;
/// As many at most: a way that keeps losing is tried ever more rarely.
const MOST: u32 = 1 << 11;
/// Runs of a trial. The first is not counted: threads that slept have to wake.
const TRIAL: u32 = 6;
/// Plans that run longer than this have enough to share.
const SMALL: Duration = Duration::from_millis(5);

/// How a plan has run so far.
#[derive(Debug)]
pub(crate) struct Pace {
    alone: bool,
    /// Runs until the next trial.
    round: u32,
    /// Runs of this round, those of a trial included.
    runs: u32,
    usual: Duration,
    tried: Duration,
    /// The mean of the last round.
    before: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let (usual, tried, before) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        Pace { alone: false, round: FIRST, runs: 0, usual, tried, before }
    }
}

impl Pace {
    /// Whether the next run is on one thread.
    pub fn alone(&self) -> bool {
        self.alone ^ self.trying()
    }

    fn trying(&self) -> bool {
        self.runs >= self.round
    }

    /// Tells how long that run took.
    pub fn ran(&mut self, time: Duration) {
        self.runs += 1;
        if self.runs <= self.round {
            self.usual += time;
            if self.runs == self.round {
                self.end_round();
            }
        } else {
            self.trial(time);
        }
    }

    fn end_round(&mut self) {
        let mean = self.usual / self.round;
        if mean > self.before * 3 / 2 || mean < self.before * 2 / 3 {
            self.round = FIRST;
            self.runs = self.round;
        }
        // A trial begins with the next run, unless there is nothing to win, or nothing to compare with: the first
        // runs of a plan find their memory cold.
        if mean > SMALL || self.before.is_zero() {
            self.restart();
        }
        if mean > SMALL {
            // Never tried again, so it must not stay on one thread because of a load that was.
            self.alone = false;
        }
        self.before = mean;
    }

    fn trial(&mut self, time: Duration) {
        let run = self.runs - self.round;
        if run > 1 {
            self.tried += time;
        }
        // Far behind: no need to see the rest.
        let lost = run > 1 && time > self.before * 2;
        if run < TRIAL && !lost {
            return;
        }
        let mean = self.tried / (run - 1);
        if !lost && mean < self.before * 19 / 20 {
            (self.alone, self.round, self.before) = (!self.alone, FIRST, mean);
        } else {
            self.round = (self.round * 2).min(MOST);
        }
        self.restart();
    }

    fn restart(&mut self) {
        (self.runs, self.usual, self.tried) = (0, Duration::ZERO, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of runs on one thread, when runs take so many microseconds.
    fn share(pace: &mut Pace, runs: u32, alone: u64, together: u64) -> f64 {
        let mut count = 0;
        for _ in 0..runs {
            let chosen = pace.alone();
            count += u32::from(chosen);
            pace.ran(Duration::from_micros(if chosen { alone } else { together }));
        }
        f64::from(count) / f64::from(runs)
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_hardly_tried() {
        assert!(share(&mut Pace::default(), 20_000, 100, 60) < 0.01);
        assert!(share(&mut Pace::default(), 20_000, 60, 100) > 0.99);
        assert!(share(&mut Pace::default(), 20_000, 800, 60) < 0.005);
    }

    #[test]
    fn a_change_of_load_is_noticed() {
        let mut pace = Pace::default();
        assert!(share(&mut pace, 3_000, 100, 60) < 0.05);
        assert!(share(&mut pace, 20_000, 110, 400) > 0.8);
        assert!(share(&mut pace, 60_000, 100, 60) < 0.6);
    }

    #[test]
    fn a_plan_that_became_large_goes_back_to_all_threads() {
        let mut pace = Pace::default();
        assert!(share(&mut pace, 5_000, 4_000, 4_800) > 0.9);
        assert!(share(&mut pace, 20_000, 9_000, 6_000) < 0.2);
    }

    #[test]
    fn large_plans_are_left_alone() {
        assert_eq!(share(&mut Pace::default(), 1_000, 9_000, 6_000), 0.0);
    }
}
