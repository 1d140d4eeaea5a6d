//! The batches of one epoch, in order.

use super::crew::{Crew, Made};
use super::source::Source;
use crate::data::{Batch, Image};
use crate::{Error, Result};

/// What the batches of an epoch are made of.
pub(super) struct Job {
    pub source: Source,
    pub epoch: u64,
    pub order: Vec<usize>,
    pub batches: usize,
}

impl Job {
    pub fn new(source: Source, epoch: u64) -> Self {
        let (order, batches) = (source.order(epoch), source.batches());
        Job { source, epoch, order, batches }
    }

    pub fn make(&self, number: usize, image: &mut Image, stop: &dyn Fn() -> bool) -> Made {
        let size = self.source.batch_size;
        let places = &self.order[number * size..((number + 1) * size).min(self.order.len())];
        self.source.batch(self.epoch, number, places, image, stop)
    }
}

/// The batches of an epoch. Dropping it ends its workers.
pub struct Epoch {
    maker: Maker,
    /// Nothing comes after an error.
    over: bool,
    /// None of its batches had an image that could be read.
    barren: bool,
}

enum Maker {
    Here { job: Job, next: usize, image: Image },
    Crew(Crew),
    Failed(Option<Error>),
}

impl Epoch {
    pub(super) fn start(job: Job, first: usize, workers: usize, prefetch: usize) -> Epoch {
        let barren = first < job.batches;
        let maker = if job.batches == 0 {
            let (n, size) = (job.order.len(), job.source.batch_size);
            let problem = format!("{n} images do not fill a batch of {size}, and drop_last leaves out the rest");
            Maker::Failed(Some(Error::Argument(problem)))
        } else if workers == 0 {
            Maker::Here { job, next: first, image: Image::default() }
        } else {
            match Crew::start(job, first, workers, prefetch) {
                Ok(crew) => Maker::Crew(crew),
                Err(e) => Maker::Failed(Some(e)),
            }
        };
        Epoch { maker, over: false, barren }
    }

    /// What was made next; None at the end.
    fn made(&mut self) -> Option<Made> {
        match &mut self.maker {
            Maker::Here { job, next, .. } if *next >= job.batches => None,
            Maker::Here { job, next, image } => {
                *next += 1;
                Some(job.make(*next - 1, image, &|| false))
            }
            Maker::Crew(crew) => crew.next(),
            Maker::Failed(error) => error.take().map(Err),
        }
    }

    fn source(&self) -> Option<&Source> {
        match &self.maker {
            Maker::Here { job, .. } => Some(&job.source),
            Maker::Crew(crew) => Some(&crew.job().source),
            Maker::Failed(_) => None,
        }
    }

    /// An epoch that skipped everything would look like one that was learnt from.
    fn end(&mut self) -> Option<Result<Batch>> {
        self.over = true;
        let bad = self.source().filter(|_| self.barren)?.bad();
        let (count, first) = (bad.len(), bad.values().next()?);
        Some(Err(Error::Argument(format!("none of {count} images can be read; the first: {}", first.problem))))
    }
}

impl Iterator for Epoch {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        while !self.over {
            match self.made() {
                Some(Ok(Some(batch))) => {
                    self.barren = false;
                    return Some(Ok(batch));
                }
                Some(Ok(None)) => {}
                Some(Err(e)) => {
                    self.over = true;
                    return Some(Err(e));
                }
                None => return self.end(),
            }
        }
        None
    }
}

impl std::fmt::Debug for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Epoch of {:?}", self.source())
    }
}
