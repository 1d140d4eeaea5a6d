//! Stretches of a plan that each part of the batch can walk on its own.
//!
//! Kernels that work image by image, one behind the other, need no barrier between them: what an image becomes in the second
//! follows from what it became in the first. Such phases make a stretch, and threads take parts of the batch through all of
//! it, instead of phases one after the other. Where cores have no cache in common a barrier takes half a microsecond, and a
//! part of the batch stays in the caches of the core that has begun with it.

use super::plan::{Entry, Home, Kept, Plan, Step};
use crate::cpu::kernel::{Strand, Strands, common};
use std::collections::{HashMap, HashSet};

/// Phases that follow each other, and of how many parts of the batch each of them can be made.
#[derive(Debug, Default)]
pub(crate) struct Stretch {
    pub links: Vec<Link>,
}

/// One phase of a stretch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub step: usize,
    pub phase: usize,
    pub tasks: usize,
    /// Equal runs of neighbouring tasks that each keep to their part of the batch.
    parts: usize,
}

impl Stretch {
    /// The phases that are not done yet.
    pub fn due<'a>(&'a self, steps: &'a [Step]) -> impl Iterator<Item = &'a Link> {
        self.links.iter().filter(|link| link.phase >= steps[link.step].begin)
    }

    /// The parts of the batch that so many threads should take through it; 1 when they should walk it phase by phase.
    pub fn parts(&self, steps: &[Step], threads: usize) -> usize {
        if self.links.len() < 2 || threads < 2 {
            return 1;
        }
        let parts = self.due(steps).map(|link| link.parts).reduce(common).unwrap_or(1);
        // Threads that had no part, or one part less than others, would wait for as long as a part takes.
        if parts.is_multiple_of(threads) { parts } else { 1 }
    }
}

/// Cuts all phases of a plan whose values share no memory into stretches; in others values could be overwritten by a thread
/// that is ahead.
pub(super) fn stretches(plan: &Plan, apart: bool) -> Vec<Stretch> {
    let mut all = Vec::new();
    let mut open = Open::default();
    for (index, step) in plan.steps.iter().enumerate() {
        let strands = step.kernel.strands().filter(|_| apart);
        let spared = plan.preparations.iter().map(|p| p.spares(index)).max().unwrap_or(0);
        for (phase, &tasks) in step.phases.iter().enumerate() {
            let strand = strands.as_ref().map_or(Strand::NONE, |strands| strands.phases[phase]);
            let mut link = Link { step: index, phase, tasks, parts: strand.parts };
            if apart && phase < spared {
                // Done already as a rule. Where a whole step is not, others may read any part of what it makes: the stretch
                // is then walked phase by phase.
                link.parts = if spared < step.phases.len() { strand.parts } else { 1 };
                open.stretch.links.push(link);
                continue;
            }
            let strands = strands.as_ref().filter(|_| strand.parts > 1);
            let follows = |strands: &Strands| open.last == Some(index) || open.takes(step, strands, plan);
            if strand.waits || !strands.is_some_and(follows) {
                all.push(std::mem::take(&mut open).stretch);
            }
            open.stretch.links.push(link);
            match strands {
                Some(strands) => open.note(index, strands, plan),
                None => all.push(std::mem::take(&mut open).stretch),
            }
        }
    }
    all.push(open.stretch);
    all.retain(|stretch| !stretch.links.is_empty());
    all
}

/// A stretch that may go on.
#[derive(Default)]
struct Open {
    stretch: Stretch,
    /// The last step of which more than what is prepared belongs to it.
    last: Option<usize>,
    read: HashSet<Home>,
    /// What has been written, and whether part by part.
    written: HashMap<Home, bool>,
}

impl Open {
    /// Whether a step can follow: it reads only its own part of what was written, and writes nothing that others may still
    /// read.
    fn takes(&self, step: &Step, strands: &Strands, plan: &Plan) -> bool {
        let own = |(i, entry): (usize, &Entry)| match self.written.get(&entry.home) {
            Some(by_part) => *by_part && strands.inputs.contains(&i),
            None => true,
        };
        plan.entries[step.inputs.clone()].iter().enumerate().all(own)
            && homes(step, plan).all(|home| !self.read.contains(&home) && !self.written.contains_key(&home))
    }

    /// Notes what a step reads and writes.
    fn note(&mut self, index: usize, strands: &Strands, plan: &Plan) {
        let step = &plan.steps[index];
        self.last = Some(index);
        self.read.extend(plan.entries[step.inputs.clone()].iter().map(|entry| entry.home));
        self.written.extend(homes(step, plan).map(|home| (home, false)));
        let by_part = strands.outputs.iter().map(|&out| (plan.entries[step.outputs.start + out].home, true));
        self.written.extend(by_part);
    }
}

/// The memory that a step writes. What is kept may be written over a leaf.
fn homes<'a>(step: &Step, plan: &'a Plan) -> impl Iterator<Item = Home> + 'a {
    plan.entries[step.outputs.clone()].iter().flat_map(|entry| {
        let leaf = match entry.home {
            Home::Kept(k) => match plan.kept[k] {
                Kept::Fresh { instead, .. } => instead.map(Home::Leaf),
                _ => None,
            },
            _ => None,
        };
        std::iter::once(entry.home).chain(leaf)
    })
}
