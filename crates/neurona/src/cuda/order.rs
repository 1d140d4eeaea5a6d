//! Which parts of a plan must wait for which others. A plan's steps stand in an order that is right; most of them need
//! not wait for all that stand before them. What shares no memory may run side by side: a weight gradient beside the
//! input gradient of the same layer, and filters are packed while the layers before are still at work.

use std::ops::Range;

/// Device memory that one part of a plan reads and writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    pub reads: Vec<Range<u64>>,
    pub writes: Vec<Range<u64>>,
}

impl Touched {
    /// Whether the two give the same only in the order they stand in.
    fn conflicts(&self, other: &Touched) -> bool {
        let meet =
            |a: &[Range<u64>], b: &[Range<u64>]| a.iter().any(|a| b.iter().any(|b| a.start < b.end && b.start < a.end));
        meet(&self.writes, &other.writes) || meet(&self.writes, &other.reads) || meet(&self.reads, &other.writes)
    }
}

/// For each part those before it that it waits for, without the ones that another of them waits for already.
pub(super) fn order(parts: &[Touched]) -> Vec<Vec<usize>> {
    // For each part everything that has ended when it starts, one bit each.
    let words = parts.len().div_ceil(64);
    let mut before: Vec<Vec<u64>> = Vec::with_capacity(parts.len());
    let mut all = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let mut ended = vec![0u64; words];
        let mut waits = Vec::new();
        // The nearest first: it has waited for most of the others.
        for earlier in (0..index).rev() {
            if ended[earlier / 64] >> (earlier % 64) & 1 == 0 && part.conflicts(&parts[earlier]) {
                waits.push(earlier);
                ended.iter_mut().zip(&before[earlier]).for_each(|(mine, theirs)| *mine |= theirs);
                ended[earlier / 64] |= 1 << (earlier % 64);
            }
        }
        before.push(ended);
        all.push(waits);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(reads: &[u64], writes: &[u64]) -> Touched {
        let ranges = |starts: &[u64]| starts.iter().map(|s| *s..*s + 2).collect();
        Touched { reads: ranges(reads), writes: ranges(writes) }
    }

    /// Everything that a part waits for, by way of others too.
    fn reached(waits: &[Vec<usize>], from: usize) -> Vec<bool> {
        let mut seen = vec![false; waits.len()];
        let mut open = waits[from].clone();
        while let Some(next) = open.pop() {
            if !std::mem::replace(&mut seen[next], true) {
                open.extend(&waits[next]);
            }
        }
        seen
    }

    #[test]
    fn side_branches_wait_for_what_they_read_alone() {
        // Forward, then two gradients that read what it wrote, then a step that reads both.
        let parts = [part(&[0], &[10]), part(&[10], &[20]), part(&[10], &[30]), part(&[20, 30], &[40])];
        assert_eq!(order(&parts), [vec![], vec![0], vec![0], vec![2, 1]]);
    }

    #[test]
    fn what_is_overwritten_has_been_read() {
        let parts = [part(&[0], &[10]), part(&[10], &[20]), part(&[], &[11])];
        assert_eq!(order(&parts), [vec![], vec![0], vec![1]]);
    }

    #[test]
    fn every_conflict_is_ordered_and_nothing_else_waits() {
        let mut state = 1u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..200 {
            let mut some = |most: u64| (0..below(most)).map(|_| below(40)).collect::<Vec<u64>>();
            let parts: Vec<Touched> = (0..80).map(|_| part(&some(3), &some(2))).collect();
            let waits = order(&parts);
            for (i, part) in parts.iter().enumerate() {
                let before = reached(&waits, i);
                assert!(
                    (0..i).all(|j| before[j] || !part.conflicts(&parts[j])),
                    "{i} must wait for more than {waits:?}"
                );
                for &j in &waits[i] {
                    assert!(j < i && part.conflicts(&parts[j]), "{i} need not wait for {j}");
                    let twice = waits[i].iter().any(|k| *k != j && reached(&waits, *k)[j]);
                    assert!(!twice, "{i} waits for {j} by way of another too");
                }
            }
        }
    }
}
