//! How threads share the tasks of a run's phases.
//!
//! A phase is a *round*. Every thread begins with its own range of the tasks, the same from step to step, so that what
//! one step has left in a core's cache the next finds there; who is done takes tasks from the end of the others' ranges.
//! A round ends when its tasks have ended, whoever ran them: no thread that sleeps, or that something else keeps from
//! its core, is waited for unless it holds a task.

use super::gate::{Apart, Gate};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a thread that is done leaves the tasks of others to them. A task's memory moves with it from core to core,
/// which costs more than a wait of this length saves.
const COURTESY: Duration = Duration::from_micros(2);

/// What the threads of a run share.
pub(super) struct Rounds {
    /// Tasks of all rounds so far that have ended. One number that is counted up and looked at: whoever ends a round has
    /// nobody else to tell, which would be one more way from core to core.
    ended: Gate,
    /// For each thread's range, what has been taken of it.
    taken: Box<[Apart<AtomicU64>]>,
    /// How long a thread looks before it sleeps.
    patience: Duration,
}

/// How far threads have come: rounds, and the tasks of these. It goes on from run to run, because what would have to be set
/// back lies in other cores' caches.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    round: u64,
    tasks: u64,
}

#[cfg(test)]
impl Progress {
    /// As far as if so many more rounds had been.
    pub fn further(self, rounds: u64) -> Self {
        Progress { round: self.round + rounds, ..self }
    }
}

/// What has been taken of a range, as one word: the number of the round (from 1 on), how much from the front, how much from
/// the back. A word of an earlier round means nothing yet, so nobody has to clear it between rounds; and
/// who comes late to a round that has ended finds later words, and nothing to take.
fn word(round: u64, front: u64, back: u64) -> u64 {
    round << 32 | front << 16 | back
}

/// The longest range a word can count.
const LONGEST: usize = u16::MAX as usize;

impl Rounds {
    pub fn new(threads: usize, patience: Duration) -> Self {
        let taken = (0..threads).map(|_| Apart(AtomicU64::new(0))).collect();
        Rounds { ended: Gate::new(0, ()), taken, patience }
    }

    /// Where a run begins that comes after this; no thread may be inside one. Words have room for the number of a round in
    /// half of their bits, so now and then all begins from zero.
    pub fn after(&self, progress: Progress) -> Progress {
        if progress.round < u64::from(u32::MAX) / 2 {
            return progress;
        }
        self.ended.set(0);
        self.taken.iter().for_each(|word| word.0.store(0, Ordering::Relaxed));
        Progress::default()
    }

    /// Takes one of the range of this thread in this round: its owner the first, others the last.
    fn take(&self, of: usize, round: u64, range: Range<usize>, own: bool) -> Option<usize> {
        let taken = &self.taken[of].0;
        let mut now = taken.load(Ordering::Relaxed);
        loop {
            let (stamp, front, back) = (now >> 32, now >> 16 & 0xFFFF, now & 0xFFFF);
            let (front, back) = if stamp < round { (0, 0) } else { (front, back) };
            if stamp > round || (front + back) as usize >= range.len() {
                return None;
            }
            let next = if own { word(round, front + 1, back) } else { word(round, front, back + 1) };
            // Relaxed: the words only say who runs what; what tasks write is passed on by the end of the round.
            match taken.compare_exchange_weak(now, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) if own => return Some(range.start + front as usize),
                Ok(_) => return Some(range.end - 1 - back as usize),
                Err(changed) => now = changed,
            }
        }
    }

    /// Whether the owner of this range has begun with it in this round.
    fn begun(&self, of: usize, round: u64) -> bool {
        let now = self.taken[of].0.load(Ordering::Relaxed);
        now >> 32 == round && now >> 16 & 0xFFFF > 0
    }

    /// Counts tasks that have ended; the last of these `tasks` end their round.
    fn count(&self, done: usize, tasks: u64) {
        if done > 0 && self.ended.add(done as u64) == tasks {
            self.ended.rouse();
        }
    }
}

/// The tasks of a phase as ranges, one a thread. Very many tasks are taken `grain` at a time.
struct Ranges {
    tasks: usize,
    threads: usize,
    grain: usize,
}

impl Ranges {
    fn new(tasks: usize, threads: usize) -> Self {
        Ranges { tasks, threads, grain: tasks.div_ceil(threads * LONGEST) }
    }

    /// The range of a thread; thread 0 has the last one. Cores fetch ahead beyond the end of their range and take lines from
    /// the next one's owner, and thread 0, which also runs what cannot be shared, has more of what others need: so each of two
    /// threads bears one of these.
    fn of(&self, thread: usize) -> Range<usize> {
        let thread = self.threads - 1 - thread;
        let units = self.tasks.div_ceil(self.grain);
        (units * thread).div_ceil(self.threads)..(units * (thread + 1)).div_ceil(self.threads)
    }

    /// Runs the tasks of one unit; returns how many.
    fn run(&self, unit: usize, run: &mut impl FnMut(usize)) -> usize {
        let tasks = unit * self.grain..((unit + 1) * self.grain).min(self.tasks);
        tasks.clone().for_each(run);
        tasks.len()
    }
}

/// One thread's way through the phases of a run.
pub struct Walk<'a> {
    /// None when it is alone.
    rounds: Option<&'a Rounds>,
    thread: usize,
    at: Progress,
    /// Whether phases of one task have come since.
    lone: bool,
    /// Whether it has found a thread that had not begun with its tasks: there is no use in leaving them to it.
    absent: bool,
}

impl<'a> Walk<'a> {
    /// The way of a thread that shares nothing.
    pub(super) fn alone() -> Self {
        Walk { rounds: None, thread: 0, at: Progress::default(), lone: false, absent: false }
    }

    pub(super) fn new(rounds: &'a Rounds, thread: usize, at: Progress) -> Self {
        Walk { rounds: Some(rounds), thread, at, lone: false, absent: false }
    }

    /// Waits for the end of all rounds; says how far it has come. Phases of one task after them count for nobody.
    pub(super) fn end(&self) -> Progress {
        self.settle();
        self.at
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.rounds.map_or(1, |rounds| rounds.taken.len())
    }

    /// The thread's number.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// Runs this thread's share of a phase; every thread must call it for every phase. Returns when there is nothing
    /// left to take, and waits at its start for the end of the phase before.
    pub fn phase(&mut self, tasks: usize, mut run: impl FnMut(usize)) {
        let Some(rounds) = self.rounds else { return (0..tasks).for_each(run) };
        if tasks <= 1 {
            // Phases of a single task all run on thread 0, and end together: as one task, when the next round begins.
            if self.thread == 0 {
                self.settle();
                (0..tasks).for_each(run);
            }
            self.lone = true;
            return;
        }
        if std::mem::take(&mut self.lone) {
            self.at.tasks += 1;
            if self.thread == 0 {
                rounds.ended.set(self.at.tasks);
            }
        }
        self.settle();
        self.at.round += 1;
        self.at.tasks += tasks as u64;
        let ranges = Ranges::new(tasks, rounds.taken.len());
        let (own, mut done) = (ranges.of(self.thread), 0);
        while let Some(unit) = rounds.take(self.thread, self.at.round, own.clone(), true) {
            done += ranges.run(unit, &mut run);
        }
        rounds.count(done, self.at.tasks);
        // Nobody's word is looked at before it must be: its owner would have to fetch it back.
        if self.absent || rounds.ended.look(COURTESY, |ended| ended >= self.at.tasks).is_none() {
            self.help(rounds, &ranges, run);
        }
    }

    /// Takes tasks of other threads while there are any.
    fn help(&mut self, rounds: &Rounds, ranges: &Ranges, mut run: impl FnMut(usize)) {
        let mut done = 0;
        self.absent = false;
        for step in 1..ranges.threads {
            let of = (self.thread + step) % ranges.threads;
            while let Some(unit) = rounds.take(of, self.at.round, ranges.of(of), false) {
                self.absent |= !rounds.begun(of, self.at.round);
                done += ranges.run(unit, &mut run);
            }
        }
        rounds.count(done, self.at.tasks);
    }

    /// Waits for the end of all rounds so far.
    fn settle(&self) {
        if let Some(rounds) = self.rounds {
            rounds.ended.wait(rounds.patience, |ended| ended >= self.at.tasks);
        }
    }
}
