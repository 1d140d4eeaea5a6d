//! The thread team: all threads walk a plan together, with cheap barriers between phases.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// How often a waiting thread looks before it sleeps: some tens of microseconds, longer than most phases
/// take and far shorter than a scheduler's time slice.
const SPINS: u32 = 4_000;

/// A point that all threads must reach before any goes on. Waiters spin briefly, then sleep, so that
/// loader threads and other processes get the cores.
pub struct Barrier {
    threads: usize,
    spins: u32,
    arrived: AtomicUsize,
    round: AtomicU32,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Barrier {
    fn new(threads: usize, spins: u32) -> Self {
        Barrier {
            threads,
            spins,
            arrived: AtomicUsize::new(0),
            round: AtomicU32::new(0),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Waits until all threads are here.
    pub fn wait(&self) {
        if self.threads == 1 {
            return;
        }
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::SeqCst);
            // SeqCst on both sides: either this sees the sleeper, or the sleeper sees the new round.
            if self.sleepers.load(Ordering::SeqCst) > 0 {
                let _guard = self.lock.lock().unwrap_or_else(|e| e.into_inner());
                self.wake.notify_all();
            }
            return;
        }
        for _ in 0..self.spins {
            if self.round.load(Ordering::Acquire) != round {
                return;
            }
            std::hint::spin_loop();
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(|e| e.into_inner());
        while self.round.load(Ordering::SeqCst) == round {
            guard = self.wake.wait(guard).unwrap_or_else(|e| e.into_inner());
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The work of one run: called once on every thread with the thread's number.
type Job<'a> = &'a (dyn Fn(usize, &Barrier) + Sync);

struct Shared {
    barrier: Barrier,
    /// The job of the current run; written by the leader before the starting barrier.
    job: Mutex<Option<Job<'static>>>,
    stop: AtomicBool,
}

/// Ends the process when a kernel panics: the other threads would wait for it for ever, and the memory it
/// left half-written is not to be trusted. Only a fault in a kernel gets here, never a user's input.
struct EndOnPanic;

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("neurona: a kernel panicked (message above); this is a bug, please report it");
            std::process::abort();
        }
    }
}

/// Threads that run jobs together; the calling thread is number 0.
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Team {
    /// A team of this many threads, the caller's counted in.
    pub fn new(threads: usize) -> Self {
        let threads = threads.max(1);
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        // With more threads than cores a spinning thread only keeps the one it waits for from running.
        let spins = if threads > cores { 0 } else { SPINS };
        let shared = Arc::new(Shared {
            barrier: Barrier::new(threads, spins),
            job: Mutex::new(None),
            stop: AtomicBool::new(false),
        });
        let workers = (1..threads)
            .map_while(|number| {
                let shared = shared.clone();
                std::thread::Builder::new().name(format!("neurona-{number}")).spawn(move || work(number, &shared)).ok()
            })
            .collect::<Vec<_>>();
        if workers.len() + 1 < threads {
            // The system refused a thread: the barrier counts on all of them, so start over with fewer.
            shared.stop.store(true, Ordering::Release);
            return Team::new(1);
        }
        Team { shared, workers }
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job` on the calling thread alone; the others sleep on.
    pub fn run_alone(&mut self, job: Job<'_>) {
        job(0, &Barrier::new(1, 0));
    }

    /// Runs `job` on all threads and returns when all have ended.
    pub fn run(&mut self, job: Job<'_>) {
        if self.workers.is_empty() {
            return self.run_alone(job);
        }
        // SAFETY: the job outlives this call, and the last barrier below holds it until no thread uses it.
        let job: Job<'static> = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(job) };
        *self.shared.job.lock().unwrap_or_else(|e| e.into_inner()) = Some(job);
        self.shared.barrier.wait();
        let guard = EndOnPanic;
        job(0, &self.shared.barrier);
        self.shared.barrier.wait();
        drop(guard);
    }
}

fn work(number: usize, shared: &Shared) {
    loop {
        shared.barrier.wait();
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let job = *shared.job.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(job) = job {
            let _guard = EndOnPanic;
            job(number, &shared.barrier);
        }
        shared.barrier.wait();
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.barrier.wait();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_meet_at_every_barrier() {
        for threads in [1, 2, 5] {
            let mut team = Team::new(threads);
            for _ in 0..200 {
                let count = AtomicUsize::new(0);
                team.run(&|_, barrier| {
                    for phase in 1..=3 {
                        count.fetch_add(1, Ordering::SeqCst);
                        barrier.wait();
                        assert_eq!(count.load(Ordering::SeqCst), phase * threads);
                        barrier.wait();
                    }
                });
            }
        }
    }
}
