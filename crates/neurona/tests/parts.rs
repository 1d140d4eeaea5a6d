//! Ops on parts and places: other offsets need no new plan, running allocates nothing, and the number of threads
//! changes no bit.

use neurona::{PadMode, Result, Tensor, set_num_threads, stats};

#[path = "common/counting.rs"]
mod counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// A value and a gradient that come from every op that moves, adds up or orders along a dimension.
fn pass(x: &Tensor, index: &Tensor, at: usize) -> Result<(Vec<f32>, Vec<f32>)> {
    let x = x.requires_grad()?;
    let part = x.narrow(1, at, 40)?.slice(0, at as isize, at as isize + 100, 2)?;
    let other = x.index_select(0, index)?.select(1, at as isize)?.sum()?;
    let turned = x.roll(&[at as isize, -1], &[1, 0])?.flip(&[1])?;
    let framed = turned.pad(&[3, 2, 1, 4], PadMode::Reflect)?.pad(&[1, 1], PadMode::Constant(at as f64))?;
    let (top, _) = framed.topk(7, 1, true)?;
    let (sorted, _) = part.sort(1, false)?;
    let joined = Tensor::cat(&[&top, &framed.cumsum(0)?.mul_scalar(1e-3)?], 1)?;
    let norms = [joined.norm(2.0, &[1], false)?.sum()?, x.logsumexp(&[1], false)?.sum()?, sorted.select(1, 3)?.sum()?];
    let product = x.narrow(1, at, 5)?.prod_dims(&[1], false)?.sum()?;
    let loss = norms.iter().try_fold((other + product)?, |sum, part| sum + part)?;
    loss.backward()?;
    Ok((loss.to_vec()?, x.grad().expect("a gradient").to_vec()?))
}

// The only test of this file: the allocator and the counters are the process's.
#[test]
fn other_offsets_need_no_new_plan_and_threads_change_no_bit() -> Result<()> {
    counting::watch();
    let x = Tensor::randn([500, 90])?;
    let index = Tensor::randint(0, 500, [3000])?;
    let mut first = None;
    for threads in [1, 2, 3, 5] {
        set_num_threads(threads);
        let got = pass(&x, &index, 7)?;
        let (compiled, allocated) = (stats().compiled, counting::count());
        let other = pass(&x, &index, 31)?;
        assert_eq!(stats().compiled, compiled, "another offset made a new plan");
        assert_eq!(counting::count(), allocated, "running a plan allocated");
        assert_ne!(got, other);
        let both = (got, other);
        match &first {
            None => first = Some(both),
            Some(first) => assert!(*first == both, "{threads} threads gave other bits"),
        }
    }
    Ok(())
}
