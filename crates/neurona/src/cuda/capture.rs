//! A list of launches that the driver has taken down as one graph: replaying it is one call.

use super::driver::{self, check};
use super::gpu::Stream;
use crate::Result;
use cudarc::driver::sys;

/// A captured graph, ready to be replayed.
pub(super) struct Graph(sys::CUgraphExec);

// SAFETY: a handle; it is launched under the stream's lock.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

/// A stream that takes work down instead of running it.
pub(super) struct Capture {
    stream: Stream,
    /// Whether the driver can be told what to wait for: since CUDA 12.3.
    told: bool,
    /// For each part taken down so far what must have ended for it to have ended.
    ends: Vec<Vec<sys::CUgraphNode>>,
}

impl Capture {
    /// Takes down what `work` adds to the stream, to run after these of the parts taken down before, and after nothing
    /// else. Drivers before CUDA 12.3 run it after all of them.
    pub fn part(&mut self, after: &[usize], work: impl FnOnce() -> Result<()>) -> Result<()> {
        let what = || "capture a part of a plan".to_string();
        if !self.told {
            return work();
        }
        let mut after: Vec<sys::CUgraphNode> = after.iter().flat_map(|part| self.ends[*part].iter().copied()).collect();
        let instead = sys::CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES as u32;
        // SAFETY: the stream is being captured, and the nodes are of this capture; their edges are plain ones.
        let set = unsafe {
            let (nodes, edges) = (after.as_mut_ptr(), std::ptr::null());
            sys::cuStreamUpdateCaptureDependencies_v2(self.stream.0, nodes, edges, after.len(), instead)
        };
        check(set, what)?;
        work()?;
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // What kinds of edges a library would have its next kernel use does not matter: plain ones wait for more.
        let (mut nodes, mut edges, mut count) = (std::ptr::null(), std::ptr::null(), 0);
        let (stream, id, graph) = (self.stream.0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: writes a status, a count and the addresses of arrays of the driver's that live until the next call.
        let asked = unsafe {
            sys::cuStreamGetCaptureInfo_v3(stream, &mut status, id, graph, &mut nodes, &mut edges, &mut count)
        };
        check(asked, what)?;
        let ends = match count {
            0 => Vec::new(),
            // SAFETY: as above.
            _ => unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec(),
        };
        self.ends.push(ends);
        Ok(())
    }
}

impl Graph {
    /// Takes down what `work` adds, without running it.
    pub fn capture(stream: Stream, work: impl FnOnce(&mut Capture) -> Result<()>) -> Result<Graph> {
        let what = || "capture a plan".to_string();
        // Other threads may go on allocating; this thread's own calls are known to be harmless.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is alive and the caller holds its lock.
        check(unsafe { sys::cuStreamBeginCapture_v2(stream.0, mode) }, what)?;
        let told = driver::version() >= Some((12, 3));
        let outcome = work(&mut Capture { stream, told, ends: Vec::new() });
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
