//! A vendor's plan as a step of ours.

use super::{ALIGNMENT, Address};
use crate::Result;
use crate::cuda::choice::Candidate;
use crate::cuda::gpu::Stream;
use crate::cuda::kernel::{Io, Kernel, Launch, Slot, Work};

/// The operands of a convolution or a matrix product: y from x and w, or their gradients in the same places.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Operands<T> {
    pub x: T,
    pub w: T,
    pub y: T,
    /// Looked at only where the problem has a bias.
    pub bias: T,
}

/// One of a library's ways to do it.
pub(crate) trait Plan: Send + Sync {
    /// The library with its version, and what it calls this way: the same from run to run.
    fn name(&self) -> &str;

    /// Bytes of workspace.
    fn workspace(&self) -> usize;

    /// Adds the work to the stream.
    ///
    /// # Safety
    /// The operands must have the problem's sizes, the workspace as many bytes as the plan asks for, and both must stay
    /// until the work is done. The stream must be of the plan's GPU, which must be the calling thread's.
    unsafe fn execute(&self, operands: Operands<Address>, workspace: Address, stream: Stream) -> Result<()>;
}

/// A step that executes a plan, with launches of ours before and after it: filters are packed for it, or gradients
/// unpacked.
struct VendorStep<P> {
    before: Vec<Launch>,
    execution: Execution<P>,
    after: Vec<Launch>,
    flops: u64,
}

/// A plan with its operands.
struct Execution<P> {
    plan: P,
    operands: Operands<Slot>,
    /// Where its own workspace begins: behind what the launches use.
    workspace: usize,
}

/// A step for each of a library's plans, with these launches before and after it, which use `workspace` bytes.
pub(crate) fn candidates<P: Plan + 'static>(
    plans: Vec<P>,
    operands: Operands<Slot>,
    (before, after): (Vec<Launch>, Vec<Launch>),
    workspace: usize,
    flops: u64,
) -> Vec<Candidate> {
    let workspace = workspace.next_multiple_of(ALIGNMENT);
    let step = |plan: P| {
        let (before, after) = (before.clone(), after.clone());
        let name = plan.name().to_string();
        let execution = Execution { plan, operands, workspace };
        Candidate { name, kernel: Box::new(VendorStep { before, execution, after, flops }) }
    };
    plans.into_iter().map(step).collect()
}

impl<P: Plan> Work for Execution<P> {
    fn add(&self, io: &Io<'_>, stream: Stream) -> Result<()> {
        let Operands { x, w, y, bias } = self.operands;
        let [x, w, y, bias] = [x, w, y, bias].map(|slot| slot.address(io));
        let workspace = io.workspace + self.workspace as Address;
        // SAFETY: the op's launcher has named the operands of the problem that the plan was made for, and the runner
        // gives every step its workspace and enters the GPU before it launches.
        unsafe { self.plan.execute(Operands { x, w, y, bias }, workspace, stream) }
    }

    fn touches(&self) -> Vec<Slot> {
        let Operands { x, w, y, bias } = self.operands;
        vec![x, w, y, bias, Slot::Workspace(self.workspace)]
    }
}

impl<P: Plan> Kernel for VendorStep<P> {
    fn workspace(&self) -> usize {
        self.execution.workspace + self.execution.plan.workspace()
    }

    fn parts(&self) -> Vec<&dyn Work> {
        let mut parts: Vec<&dyn Work> = Vec::new();
        self.before.iter().for_each(|launch| parts.push(launch));
        parts.push(&self.execution);
        self.after.iter().for_each(|launch| parts.push(launch));
        parts
    }

    fn flops(&self) -> u64 {
        self.flops
    }
}
