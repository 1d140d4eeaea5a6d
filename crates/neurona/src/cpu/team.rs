//! The thread team: all threads walk a plan together, with cheap barriers between phases.

use super::gate::Gate;
use super::rounds::{Progress, Rounds, Walk};
use super::seat;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a waiting thread looks before it sleeps, so that loader threads and other processes get the cores: longer
/// than most phases, and than what a program does between two steps; far shorter than a scheduler's time slice.
const PATIENCE: Duration = Duration::from_micros(100);

/// The work of one run: called on every thread that comes in time.
type Job<'a> = &'a (dyn Fn(&mut Walk<'_>) + Sync);

/// A run: what is done, and how far the threads had come before.
#[derive(Clone, Copy)]
struct Order {
    job: Job<'static>,
    from: Progress,
}

struct Shared {
    rounds: Rounds,
    /// The number of the run in the upper half; below it whether it is open to workers, how many have left it and how many
    /// have entered it. Beside it what is to be done, written by the leader before the run opens.
    crew: Gate<Mutex<Option<Order>>>,
    stop: AtomicBool,
    patience: Duration,
    /// The workers, for the system.
    workers: Box<[OnceLock<seat::Thread>]>,
}

const RUN: u64 = 1 << 32;
const OPEN: u64 = 1 << 31;
const LEFT: u64 = 1 << 16;
const ENTERED: u64 = 1;

/// Workers that have entered a run.
fn entered(run: u64) -> u64 {
    run % LEFT
}

/// Whether all that have entered a run have left it.
fn empty(run: u64) -> bool {
    run % OPEN / LEFT == entered(run)
}

/// The next run after this one, open and empty.
fn next(run: u64) -> u64 {
    (run - run % RUN).wrapping_add(RUN) | OPEN
}

impl Shared {
    /// Waits until no worker is inside a run, and none can enter it.
    fn left(&self) {
        // Where all have come nobody has to be kept out: writing the number would take its line from those who leave.
        if entered(self.crew.get()) < self.workers.len() as u64 {
            self.crew.change(|run| run & !OPEN);
        }
        self.crew.wait(self.patience, empty);
    }

    fn order(&self) -> MutexGuard<'_, Option<Order>> {
        self.crew.beside().lock().unwrap_or_else(|e| e.into_inner())
    }
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
    /// The core that workers keep off.
    core: Option<usize>,
    /// Each thread can have a core of its own.
    roomy: bool,
    /// How far the threads have come.
    progress: Progress,
}

impl Team {
    /// A team of this many threads, the caller's counted in.
    pub fn new(threads: usize) -> Self {
        let threads = threads.max(1);
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        // With more threads than cores a spinning thread only keeps the one it waits for from running.
        let roomy = threads <= cores;
        let patience = if roomy { PATIENCE } else { Duration::ZERO };
        let shared = Arc::new(Shared {
            rounds: Rounds::new(threads, patience),
            // All workers begin inside run 0, and leave it when they stand ready.
            crew: Gate::new(threads as u64 - 1, Mutex::new(None)),
            stop: AtomicBool::new(false),
            patience,
            workers: (1..threads).map(|_| OnceLock::new()).collect(),
        });
        let workers = (1..threads)
            .map_while(|number| {
                let shared = shared.clone();
                std::thread::Builder::new().name(format!("neurona-{number}")).spawn(move || work(number, &shared)).ok()
            })
            .collect::<Vec<_>>();
        if workers.len() + 1 < threads {
            // The system refused a thread: the others could do with fewer, but it will hardly have memory for work.
            drop(Team { shared, workers, core: None, roomy, progress: Progress::default() });
            return Team::new(1);
        }
        // What the system does to start a thread, taking memory among it, must not fall into a run.
        shared.left();
        Team { shared, workers, core: None, roomy, progress: Progress::default() }
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job` on the calling thread alone; the others sleep on.
    pub fn run_alone(&mut self, job: Job<'_>) {
        job(&mut Walk::alone());
    }

    /// Runs `job` on all threads and returns when all that have begun it have ended. A worker that does not get to it
    /// in time is not waited for: the others take its tasks.
    pub fn run(&mut self, job: Job<'_>) {
        if self.workers.is_empty() {
            return self.run_alone(job);
        }
        self.spread();
        let Shared { rounds, crew, .. } = &*self.shared;
        // SAFETY: the job outlives this call, which ends when the run is closed and no worker is inside.
        let job: Job<'static> = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(job) };
        let from = rounds.after(self.progress);
        *self.shared.order() = Some(Order { job, from });
        crew.change(next);
        crew.rouse();
        let guard = EndOnPanic;
        let mut walk = Walk::new(rounds, 0, from);
        job(&mut walk);
        self.progress = walk.end();
        self.shared.left();
        drop(guard);
    }

    /// Keeps workers off the calling thread's core, if it runs on another than last time.
    fn spread(&mut self) {
        let core = seat::core().filter(|_| self.roomy);
        if let Some(core) = core.filter(|_| core != self.core) {
            self.core = Some(core);
            self.shared.workers.iter().filter_map(OnceLock::get).for_each(|worker| seat::keep_off(*worker, core));
        }
    }
}

fn work(number: usize, shared: &Shared) {
    let Shared { rounds, crew, patience, .. } = shared;
    let _ = shared.workers[number - 1].set(seat::thread());
    let mut last = 0;
    loop {
        // The leader waits for the last one to leave.
        if empty(crew.add(LEFT)) {
            crew.rouse();
        }
        last = loop {
            let run = crew.wait(*patience, |run| run & OPEN != 0 && run / RUN != last);
            if shared.stop.load(Ordering::Acquire) {
                return;
            }
            if crew.replace(run, run + ENTERED) {
                break run / RUN;
            }
        };
        let order = *shared.order();
        let _guard = EndOnPanic;
        if let Some(Order { job, from }) = order {
            job(&mut Walk::new(rounds, number, from));
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.crew.change(next);
        self.shared.crew.rouse();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_task_runs_once_and_after_the_phase_before() {
        for threads in [1, 2, 5, 16] {
            let mut team = Team::new(threads);
            let many = 33 + threads * (usize::from(u16::MAX) + 1);
            for phases in [vec![2, 1, 7, 64, 2], vec![1, 1, 300, 3], vec![0, 16, 17, 1, 0], vec![5, 1, 1, many, 15]] {
                for _ in 0..if phases.contains(&many) { 2 } else { 50 } {
                    let counts: Vec<Vec<AtomicUsize>> =
                        phases.iter().map(|&tasks| (0..tasks).map(|_| AtomicUsize::new(0)).collect()).collect();
                    let ended: Vec<_> = phases.iter().map(|_| AtomicUsize::new(0)).collect();
                    team.run(&|walk| {
                        for (phase, &tasks) in phases.iter().enumerate() {
                            walk.phase(tasks, |task| {
                                for before in 0..phase {
                                    // Relaxed: it is the team that must make these visible.
                                    assert_eq!(ended[before].load(Ordering::Relaxed), phases[before]);
                                }
                                counts[phase][task].fetch_add(1, Ordering::Relaxed);
                                ended[phase].fetch_add(1, Ordering::Relaxed);
                            });
                        }
                    });
                    assert!(counts.iter().flatten().all(|count| count.load(Ordering::Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn rounds_are_counted_anew_before_their_number_outgrows_its_bits() {
        let mut team = Team::new(3);
        let run = |team: &mut Team| {
            let count = AtomicUsize::new(0);
            let add = |_| _ = count.fetch_add(1, Ordering::Relaxed);
            team.run(&|walk| (0..5).for_each(|_| walk.phase(7, add)));
            assert_eq!(count.load(Ordering::Relaxed), 35);
        };
        (0..3).for_each(|_| run(&mut team));
        team.progress = team.progress.further(u64::from(u32::MAX) / 2 - 20);
        (0..9).for_each(|_| run(&mut team));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn workers_keep_off_their_leaders_core() {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let mut team = Team::new(cores);
        team.run(&|walk| walk.phase(64, |_| ()));
        for worker in &team.shared.workers {
            let allowed = worker.get().and_then(|worker| seat::allowed(*worker)).unwrap();
            // SAFETY: the core is one of the set's bits.
            assert!(!unsafe { libc::CPU_ISSET(team.core.unwrap(), &allowed) });
        }
    }

    #[test]
    fn tasks_of_a_thread_that_is_held_up_are_run_by_others() {
        let mut team = Team::new(2);
        let (runner, last) = (AtomicUsize::new(0), AtomicUsize::new(0));
        team.run(&|walk| {
            let thread = walk.thread();
            walk.phase(20, |task| match task {
                // Whoever comes first is held up until all others have run.
                0 | 10 if runner.swap(thread + 1, Ordering::Relaxed) == 0 => {
                    while last.load(Ordering::Acquire) < 19 {
                        std::thread::yield_now();
                    }
                }
                _ => {
                    last.fetch_add(1, Ordering::Release);
                }
            });
        });
        assert_eq!(last.load(Ordering::Relaxed), 19);
    }
}
