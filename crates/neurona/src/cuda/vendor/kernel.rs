//! A vendor's plan as a step of ours.

use super::{ALIGNMENT, Address};
use crate::Result;
use crate::cuda::choice::Candidate;
use crate::cuda::gpu::Stream;
use crate::cuda::kernel::{Io, Kernel, Launch, Slot};

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
pub(crate) struct VendorStep<P> {
    pub before: Vec<Launch>,
    pub plan: P,
    pub operands: Operands<Slot>,
    pub after: Vec<Launch>,
    /// Bytes at the start of the workspace that the launches use; the plan's own come behind them.
    pub workspace: usize,
    pub flops: u64,
}

/// A step for each of a library's plans, with these launches before and after it, which use `workspace` bytes.
pub(crate) fn candidates<P: Plan + 'static>(
    plans: Vec<P>,
    operands: Operands<Slot>,
    (before, after): (Vec<Launch>, Vec<Launch>),
    workspace: usize,
    flops: u64,
) -> Vec<Candidate> {
    let step = |plan: P| {
        let (before, after) = (before.clone(), after.clone());
        let name = plan.name().to_string();
        Candidate { name, kernel: Box::new(VendorStep { before, plan, operands, after, workspace, flops }) }
    };
    plans.into_iter().map(step).collect()
}

impl<P: Plan> VendorStep<P> {
    /// Where the plan's own workspace begins.
    fn offset(&self) -> usize {
        self.workspace.next_multiple_of(ALIGNMENT)
    }
}

impl<P: Plan> Kernel for VendorStep<P> {
    fn workspace(&self) -> usize {
        self.offset() + self.plan.workspace()
    }

    fn launch(&self, io: &Io<'_>, stream: Stream) -> Result<()> {
        self.before.iter().try_for_each(|launch| launch.launch(io, stream))?;
        let Operands { x, w, y, bias } = self.operands;
        let [x, w, y, bias] = [x, w, y, bias].map(|slot| slot.address(io));
        let workspace = io.workspace + self.offset() as Address;
        // SAFETY: the op's launcher has named the operands of the problem that the plan was made for, and the runner
        // gives every step its workspace and enters the GPU before it launches.
        unsafe { self.plan.execute(Operands { x, w, y, bias }, workspace, stream)? };
        self.after.iter().try_for_each(|launch| launch.launch(io, stream))
    }

    fn flops(&self) -> u64 {
        self.flops
    }
}
