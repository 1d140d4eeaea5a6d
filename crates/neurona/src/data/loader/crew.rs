//! Worker threads that make batches ahead of the reader.
//!
//! A small batch takes a few microseconds to make, less than it takes to wake a thread. So a worker claims a *run* of
//! batches at a time, the reader takes a run at a time, and a sleeping worker is woken when there is room for a good
//! part of what may be ahead. How batches are cut into runs decides who makes them and when, never what is in them.

use super::epoch::Job;
use crate::data::{Batch, Image};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A batch; none when all its images were bad.
pub(super) type Made = Result<Option<Batch>>;

/// A run is at most as many bytes as stay in a core's own cache, and as much work as the reader can wait for.
const RUN_BYTES: usize = 512 << 10;
const RUN_TIME: Duration = Duration::from_millis(1);

pub(super) struct Crew {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The rest of the run that the reader has taken.
    run: std::vec::IntoIter<Made>,
}

struct Shared {
    job: Job,
    workers: usize,
    prefetch: usize,
    queue: Mutex<Queue>,
    /// The run that the reader waits for is there.
    ready: Condvar,
    /// There is room for more.
    room: Condvar,
    stop: AtomicBool,
}

struct Queue {
    /// The first batch that no worker has claimed.
    claimed: usize,
    /// The first batch that the reader has not taken.
    wanted: usize,
    /// Finished runs by their first batch.
    done: BTreeMap<usize, Vec<Made>>,
    /// Batches of a run; 1 until one batch has shown how large they are.
    run: usize,
    /// Workers that have not ended.
    working: usize,
    /// Workers that sleep.
    asleep: usize,
    reader_waits: bool,
}

impl Crew {
    pub fn start(job: Job, first: usize, workers: usize, prefetch: usize) -> Result<Crew> {
        let workers = workers.min((job.batches - first.min(job.batches)).max(1));
        let queue = Queue {
            claimed: first,
            wanted: first,
            done: BTreeMap::new(),
            run: 1,
            working: workers,
            asleep: 0,
            reader_waits: false,
        };
        let shared = Arc::new(Shared {
            job,
            workers,
            prefetch,
            queue: Mutex::new(queue),
            ready: Condvar::new(),
            room: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        // Started one by one: when the system refuses a thread, dropping the crew ends those that run.
        let mut crew = Crew { shared: shared.clone(), threads: Vec::new(), run: Vec::new().into_iter() };
        for _ in 0..workers {
            let shared = shared.clone();
            let thread = Builder::new().name("neurona-loader".to_string()).spawn(move || shared.work());
            crew.threads.push(thread.map_err(|e| Error::Argument(format!("cannot start {workers} workers: {e}")))?);
        }
        Ok(crew)
    }

    pub fn job(&self) -> &Job {
        &self.shared.job
    }

    /// The next batch; waits for it.
    pub fn next(&mut self) -> Option<Made> {
        if let Some(made) = self.run.next() {
            return Some(made);
        }
        self.run = self.shared.take()?.into_iter();
        self.run.next()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // With the lock, or a worker that is about to sleep would miss it.
        drop(self.shared.lock());
        self.shared.room.notify_all();
        for thread in self.threads.drain(..) {
            // What a worker had to say has been said through the queue.
            let _ = thread.join();
        }
    }
}

/// Says that a worker has ended, however it ended.
struct Leaving<'a>(&'a Shared);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.lock().working -= 1;
        self.0.ready.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// How many batches may be claimed and not taken yet.
    fn ahead(&self, queue: &Queue) -> usize {
        (self.prefetch.max(1) * self.workers).max(queue.run * (self.workers + 1))
    }

    fn work(&self) {
        let _leaving = Leaving(self);
        let mut image = Image::default();
        let stop = || self.stop.load(Ordering::Relaxed);
        while let Some((first, count)) = self.claim() {
            let start = Instant::now();
            let mut run = Vec::with_capacity(count);
            for number in first..first + count {
                let made = self.job.make(number, &mut image, &stop);
                let failed = made.is_err();
                run.push(made);
                if failed || stop() {
                    break;
                }
            }
            self.give(first, run, start.elapsed());
        }
    }

    /// The next run to make; waits for room. None when there is nothing left to do.
    fn claim(&self) -> Option<(usize, usize)> {
        let mut queue = self.lock();
        loop {
            let left = self.job.batches.saturating_sub(queue.claimed);
            if left == 0 || self.stop.load(Ordering::Relaxed) {
                return None;
            }
            if queue.claimed - queue.wanted + queue.run <= self.ahead(&queue) {
                // Towards the end the rest is shared.
                let count = queue.run.min(left.div_ceil(self.workers));
                queue.claimed += count;
                return Some((queue.claimed - count, count));
            }
            queue.asleep += 1;
            queue = self.room.wait(queue).unwrap_or_else(|e| e.into_inner());
            queue.asleep -= 1;
        }
    }

    /// Hands a run to the reader.
    fn give(&self, first: usize, run: Vec<Made>, took: Duration) {
        let mut queue = self.lock();
        if run.last().is_some_and(|made| made.is_err()) {
            // The reader stops there, so that nobody needs what follows.
            queue.claimed = self.job.batches;
        }
        if let Some(Ok(Some(batch))) = run.last() {
            let by_bytes = RUN_BYTES / (batch.images.numel() * size_of::<f32>()).max(1);
            let by_time = RUN_TIME.as_nanos() / (took.as_nanos() / run.len() as u128).max(1);
            queue.run = by_bytes.min(by_time as usize).max(1);
        }
        queue.done.insert(first, run);
        if queue.reader_waits && first == queue.wanted {
            queue.reader_waits = false;
            drop(queue);
            self.ready.notify_one();
        }
    }

    /// The run that the reader wants next. None at the end.
    fn take(&self) -> Option<Vec<Made>> {
        let mut queue = self.lock();
        if queue.wanted >= self.job.batches {
            return None;
        }
        loop {
            let wanted = queue.wanted;
            if let Some(run) = queue.done.remove(&wanted) {
                queue.wanted += run.len();
                let (ahead, open) = (self.ahead(&queue), queue.claimed.saturating_sub(queue.wanted));
                let wake = queue.asleep > 0 && (ahead - open.min(ahead)) * 2 >= ahead;
                let starving = queue.done.is_empty();
                drop(queue);
                match wake {
                    true if starving => self.room.notify_all(),
                    true => self.room.notify_one(),
                    false => {}
                }
                return Some(run);
            }
            if queue.working == 0 {
                let problem = format!("the loader's workers ended before batch {wanted} was made");
                queue.wanted = self.job.batches;
                return Some(vec![Err(Error::Argument(problem))]);
            }
            queue.reader_waits = true;
            queue = self.ready.wait(queue).unwrap_or_else(|e| e.into_inner());
        }
    }
}
