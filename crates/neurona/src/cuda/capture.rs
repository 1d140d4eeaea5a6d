//! A list of launches that the driver has taken down as one graph: replaying it is one call.

use super::driver::check;
use super::gpu::Stream;
use crate::Result;
use cudarc::driver::sys;

/// A captured graph, ready to be replayed.
pub(super) struct Graph(sys::CUgraphExec);

// SAFETY: a handle; it is launched under the stream's lock.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Graph {
    /// Takes down what `work` adds to the stream, without running it.
    pub fn capture(stream: Stream, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let what = || "capture a plan".to_string();
        // Other threads may go on allocating; this thread's own calls are known to be harmless.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is alive and the caller holds its lock.
        check(unsafe { sys::cuStreamBeginCapture_v2(stream.0, mode) }, what)?;
        let outcome = work();
        let mut graph = std::ptr::null_mut();
        // SAFETY: ends the capture begun above, also when the work has failed; writes one handle.
        let ended = check(unsafe { sys::cuStreamEndCapture(stream.0, &mut graph) }, what);
        outcome.and(ended)?;
        let mut ready = std::ptr::null_mut();
        // SAFETY: the graph is valid; writes one handle. The graph itself is not needed afterwards.
        let made = unsafe {
            let code = sys::cuGraphInstantiateWithFlags(&mut ready, graph, 0);
            let _ = sys::cuGraphDestroy(graph);
            code
        };
        check(made, what)?;
        Ok(Graph(ready))
    }

    /// Adds the whole graph to the stream.
    pub fn launch(&self, stream: Stream) -> Result<()> {
        // SAFETY: both handles are alive.
        check(unsafe { sys::cuGraphLaunch(self.0, stream.0) }, || "run a captured plan".into())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `capture`, destroyed once; the driver lets a running replay end first.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}
