//! Convolutions by cuDNN, through its backend (graph) interface: a graph of operations is described, cuDNN's
//! heuristics list the engines that can run it, and an engine with its settings becomes an execution plan.

mod descriptor;
mod graph;

use super::kernel::{Operands, Plan};
use super::library::version_text;
use super::{Address, FoundLibrary, Limits, PerGpu};
use crate::Result;
use crate::cuda::Gpu;
use crate::cuda::gpu::Stream;
use crate::ops::conv2d::cpu::Geometry;
use crate::tensor::DType;
use descriptor::{Descriptor, Functions, Handle, Knob, Note, Pointer, functions};
use graph::{Graph, Role};
use std::collections::HashSet;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::cudnn::sys::cudnnBackendAttributeName_t::*;
use cudarc::cudnn::sys::cudnnBackendDescriptorType_t::*;
use cudarc::cudnn::sys::cudnnBackendHeurMode_t::{self as Mode, *};
use cudarc::cudnn::sys::cudnnBackendNumericalNote_t::*;

/// What of a convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    /// The output, from input and filters.
    Forward,
    /// The gradient by the input, from the output's gradient and the filters.
    InputGradient,
    /// The gradient by the filters, from the input and the output's gradient.
    WeightGradient,
}

/// A convolution to find plans for. Images lie in memory as NHWC, filters as KRSC, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConvolutionProblem {
    pub direction: Direction,
    /// Of all operands: f16, bf16 or f32. Sums are in f32.
    pub dtype: DType,
    pub geometry: Geometry,
    /// Forward only: a value for each output channel is added.
    pub bias: bool,
    /// Forward only: negative results become zero.
    pub relu: bool,
    /// Only plans that give the same bits every run.
    pub deterministic: bool,
}

/// cuDNN on one GPU.
pub(crate) struct Cudnn {
    functions: &'static Functions,
    /// A handle holds its stream, so that one thread at a time may use it.
    handle: Mutex<Handle>,
}

// SAFETY: a handle may be used by any thread, one at a time, which the mutex sees to.
unsafe impl Send for Cudnn {}
// SAFETY: as above.
unsafe impl Sync for Cudnn {}

/// One way to compute a convolution.
pub(crate) struct CudnnPlan {
    library: Arc<Cudnn>,
    /// The plan refers to it.
    _graph: Arc<Graph>,
    plan: Descriptor,
    operands: Vec<Role>,
    name: String,
    workspace: usize,
}

/// An engine with its settings, before it is built.
struct Candidate {
    config: Descriptor,
    name: String,
}

/// What was found of cuDNN, or why nothing was.
pub(super) fn available() -> Result<FoundLibrary, String> {
    let functions = functions()?;
    // SAFETY: it returns a number.
    let version = unsafe { (functions.cudnnGetVersion)() };
    Ok(FoundLibrary { version: version_text(version), path: functions.path() })
}

impl Cudnn {
    /// cuDNN on a GPU, started on first use.
    pub(crate) fn of(gpu: &Gpu) -> Result<Arc<Self>> {
        static STARTED: PerGpu<Cudnn> = PerGpu::new("cuDNN");
        gpu.enter()?;
        STARTED.get(gpu.index, || {
            let functions = functions()?;
            let mut handle = Handle(std::ptr::null_mut());
            // SAFETY: it writes one pointer; the GPU is the calling thread's.
            let status = unsafe { (functions.cudnnCreate)(&mut handle) };
            functions.check("cudnnCreate", status).map_err(|e| e.to_string())?;
            Ok(Cudnn { functions, handle: Mutex::new(handle) })
        })
    }

    /// Plans for a convolution, those first that cuDNN expects to be fastest; none where it has no engine for it.
    /// The GPU must be the calling thread's.
    pub(crate) fn plans(self: &Arc<Self>, problem: &ConvolutionProblem, limits: Limits) -> Result<Vec<CudnnPlan>> {
        let mut plans = Vec::new();
        self.search(problem, |graph, candidate, handle| {
            // An engine that the heuristics name may still refuse the shape; then the next has its turn.
            if let Ok(plan) = self.build(graph, candidate, handle)
                && plan.workspace <= limits.workspace
            {
                plans.push(plan);
            }
            plans.len() >= limits.plans
        })?;
        Ok(plans)
    }

    /// The plan of that name, built alone; none where this cuDNN does not offer it.
    pub(crate) fn plan(self: &Arc<Self>, problem: &ConvolutionProblem, name: &str) -> Result<Option<CudnnPlan>> {
        let mut found = Ok(None);
        self.search(problem, |graph, candidate, handle| {
            let same = candidate.name == name;
            if same {
                found = self.build(graph, candidate, handle).map(Some);
            }
            same
        })?;
        found
    }

    /// Offers candidates, best guess first, until `accept` has seen enough.
    fn search(
        &self,
        problem: &ConvolutionProblem,
        mut accept: impl FnMut(&Arc<Graph>, Candidate, Handle) -> bool,
    ) -> Result<()> {
        let handle = self.lock();
        let Some(graph) = Graph::new(self.functions, problem, *handle)? else { return Ok(()) };
        let graph = Arc::new(graph);
        let mut seen = HashSet::new();
        for mode in [CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK] {
            for config in self.heuristics(&graph, mode).unwrap_or_default() {
                let candidate = self.candidate(config, problem)?;
                if let Some(candidate) = candidate
                    && seen.insert(candidate.name.clone())
                    && accept(&graph, candidate, *handle)
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The configurations that one of the heuristics lists.
    fn heuristics(&self, graph: &Graph, mode: Mode) -> Result<Vec<Descriptor>> {
        let heuristics = Descriptor::new(self.functions, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
            .link(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&graph.descriptor])?
            .set(CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?
            .finish()?;
        let count = heuristics.count(CUDNN_ATTR_ENGINEHEUR_RESULTS)?;
        heuristics.children(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count)
    }

    /// A configuration with its name, unless its engine breaks a promise.
    fn candidate(&self, config: Descriptor, problem: &ConvolutionProblem) -> Result<Option<Candidate>> {
        let engines = config.children(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1)?;
        let Some(engine) = engines.first() else { return Ok(None) };
        let notes: Vec<Note> = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 32)?;
        let (f32, g) = (problem.dtype == DType::F32, problem.geometry);
        // Tensor cores take f32 only as TF32, whose products have ten bits of mantissa. Winograd's transforms cost
        // little accuracy for filters of 3×3, but for larger ones three digits of an f32.
        let large = f32 && g.r.max(g.s) > 3;
        let unwanted = [
            (CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, true),
            (CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, true),
            (CUDNN_NUMERICAL_NOTE_TENSOR_CORE, f32),
            (CUDNN_NUMERICAL_NOTE_WINOGRAD, large),
            (CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13, large),
            (CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, problem.deterministic),
        ];
        if unwanted.iter().any(|&(note, applies)| applies && notes.contains(&Note(note as u32))) {
            return Ok(None);
        }
        // Engines are numbered anew in every version.
        // SAFETY: it returns a number.
        let version = version_text(unsafe { (self.functions.cudnnGetVersion)() });
        let mut name = format!("cuDNN {version} engine {}", engine.get_one::<i64>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?);
        let knobs = config.children(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, 64)?;
        for knob in knobs {
            let Knob(kind) = knob.get_one(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)?;
            let value: i64 = knob.get_one(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)?;
            // Writing to a string cannot fail.
            let _ = write!(name, " {kind}={value}");
        }
        Ok(Some(Candidate { config, name }))
    }

    fn build(self: &Arc<Self>, graph: &Arc<Graph>, candidate: Candidate, handle: Handle) -> Result<CudnnPlan> {
        let plan = Descriptor::new(self.functions, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
            .set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[handle])?
            .link(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[&candidate.config])?
            .finish()?;
        let workspace: i64 = plan.get_one(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
        Ok(CudnnPlan {
            library: self.clone(),
            _graph: graph.clone(),
            plan,
            operands: graph.operands.clone(),
            name: candidate.name,
            workspace: workspace.max(0) as usize,
        })
    }

    /// The handle, also after another thread's panic: cuDNN keeps no half-made state in it.
    fn lock(&self) -> MutexGuard<'_, Handle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cudnn {
    fn drop(&mut self) {
        // SAFETY: it was created and is destroyed once. There is nothing to do about a failure.
        unsafe { (self.functions.cudnnDestroy)(*self.lock()) };
    }
}

impl Plan for CudnnPlan {
    fn name(&self) -> &str {
        &self.name
    }

    fn workspace(&self) -> usize {
        self.workspace
    }

    unsafe fn execute(&self, operands: Operands<Address>, workspace: Address, stream: Stream) -> Result<()> {
        let identifiers: Vec<i64> = self.operands.iter().map(|&role| role as i64).collect();
        let addresses = self.operands.iter().map(|role| match role {
            Role::Input => operands.x,
            Role::Filter => operands.w,
            Role::Output => operands.y,
            Role::Bias => operands.bias,
        });
        let addresses: Vec<Pointer> = addresses.map(Pointer).collect();
        let functions = self.library.functions;
        let pack = Descriptor::new(functions, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &identifiers)?
            .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &addresses)?
            .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[Pointer(workspace)])?
            .finish()?;
        let handle = self.library.lock();
        // SAFETY: as this function asks of its caller.
        unsafe {
            functions.check("cudnnSetStream", (functions.cudnnSetStream)(*handle, stream.0.cast()))?;
            self.plan.execute(*handle, &pack)
        }
    }
}
