//! Matrix products by cuBLASLt.
//!
//! cuBLASLt thinks in columns and Neurona in rows. A matrix by rows is, read by columns, its transpose; so the library
//! is asked for yᵀ = wᵀ·xᵀ, which is y by rows, and nothing is ever rearranged.

use super::kernel::{Operands, Plan};
use super::library::{Library, failure, functions, message, runnable, version_text};
use super::{ALIGNMENT, Address, FoundLibrary, Limits, PerGpu};
use crate::Result;
use crate::cuda::Gpu;
use crate::cuda::gpu::Stream;
use crate::tensor::DType;
use cudarc::cublaslt::sys;
use cudarc::driver::sys::CUstream;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, OnceLock};
use sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
use sys::cublasLtEpilogue_t::*;
use sys::cublasLtMatmulAlgoConfigAttributes_t::{self as Setting, *};
use sys::cublasLtMatmulDescAttributes_t::{self as OperationAttribute, *};
use sys::cublasLtMatmulPreferenceAttributes_t::{self as PreferenceAttribute, *};
use sys::cublasLtMatrixLayoutAttribute_t::{self as LayoutAttribute, *};
use sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
use sys::cudaDataType_t::{self as DataType, *};

functions! {
    /// The functions of cuBLASLt that are used.
    Functions {
        fn cublasLtGetVersion() -> usize;
        fn cublasLtGetStatusString(i32) -> *const c_char;
        fn cublasLtCreate(*mut Raw) -> i32;
        fn cublasLtDestroy(Raw) -> i32;
        fn cublasLtMatmulDescCreate(*mut Raw, sys::cublasComputeType_t, DataType) -> i32;
        fn cublasLtMatmulDescDestroy(Raw) -> i32;
        fn cublasLtMatmulDescSetAttribute(Raw, OperationAttribute, *const c_void, usize) -> i32;
        fn cublasLtMatrixLayoutCreate(*mut Raw, DataType, u64, u64, i64) -> i32;
        fn cublasLtMatrixLayoutDestroy(Raw) -> i32;
        fn cublasLtMatrixLayoutSetAttribute(Raw, LayoutAttribute, *const c_void, usize) -> i32;
        fn cublasLtMatmulPreferenceCreate(*mut Raw) -> i32;
        fn cublasLtMatmulPreferenceDestroy(Raw) -> i32;
        fn cublasLtMatmulPreferenceSetAttribute(Raw, PreferenceAttribute, *const c_void, usize) -> i32;
        fn cublasLtMatmulAlgoGetHeuristic(Raw, Raw, Raw, Raw, Raw, Raw, Raw, i32, *mut Choice, *mut i32) -> i32;
        fn cublasLtMatmulAlgoConfigGetAttribute(*const Algorithm, Setting, *mut c_void, usize, *mut usize) -> i32;
        fn cublasLtMatmul(
            Raw, Raw, *const f32, Address, Raw, Address, Raw, *const f32, Address, Raw, Address, Raw,
            *const Algorithm, Address, usize, CUstream
        ) -> i32;
    }
}

type Raw = *mut c_void;

/// What cuBLASLt keeps of an algorithm; only it knows the meaning.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Algorithm([u64; 8]);

/// One of the heuristics' results, as `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Choice {
    algorithm: Algorithm,
    workspace: usize,
    status: i32,
    waves: f32,
    reserved: [i32; 4],
}

/// cuBLASLt's functions, or why there are none.
fn functions() -> Result<&'static Functions, &'static String> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| Functions::load(Library::open("cublasLt", &runnable(&[13, 12]))?)).as_ref()
}

/// What was found of cuBLASLt, or why nothing was.
pub(super) fn available() -> Result<FoundLibrary, String> {
    let functions = functions()?;
    // SAFETY: it returns a number.
    let version = unsafe { (functions.cublasLtGetVersion)() };
    Ok(FoundLibrary {
        version: version_text(version),
        path: functions.library.path(functions.cublasLtGetVersion as usize),
    })
}

/// How a matrix lies in memory: by rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatrixView {
    /// Its transpose lies there.
    pub transposed: bool,
    /// Elements from one row of what lies there to the next.
    pub leading: usize,
    /// Elements from one matrix of the batch to the next; 0 where all use the same.
    pub step: usize,
}

/// A product to find plans for: y = x·w with x of m×k, w of k×n and y of m×n, for each matrix of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatrixProblem {
    /// Of x and w: f16, bf16 or f32. Sums are in f32.
    pub dtype: DType,
    /// Of y and the bias: the same, or f32.
    pub output: DType,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub batch: usize,
    pub x: MatrixView,
    pub w: MatrixView,
    /// Never transposed.
    pub y: MatrixView,
    /// A value for each of the n columns is added.
    pub bias: bool,
    /// Negative results become zero. In some of cuBLASLt's algorithms a NaN does too.
    pub relu: bool,
}

impl MatrixProblem {
    /// Matrices without gaps, where `transposed` says whether x and w lie there as their transposes.
    pub(crate) fn dense(dtype: DType, [batch, m, n, k]: [usize; 4], transposed: [bool; 2]) -> Self {
        let view = |rows: usize, columns: usize, transposed| MatrixView {
            transposed,
            leading: if transposed { rows } else { columns },
            step: rows * columns,
        };
        let (x, w, y) = (view(m, k, transposed[0]), view(k, n, transposed[1]), view(m, n, false));
        MatrixProblem { dtype, output: dtype, m, n, k, batch, x, w, y, bias: false, relu: false }
    }
}

/// cuBLASLt on one GPU.
pub(crate) struct CublasLt {
    functions: &'static Functions,
    handle: Raw,
}

// SAFETY: cuBLASLt's handle holds no stream and may be used by several threads at once.
unsafe impl Send for CublasLt {}
// SAFETY: as above.
unsafe impl Sync for CublasLt {}

impl Drop for CublasLt {
    fn drop(&mut self) {
        // SAFETY: it was created and is destroyed once. There is nothing to do about a failure.
        unsafe { (self.functions.cublasLtDestroy)(self.handle) };
    }
}

/// One way to compute a product.
pub(crate) struct CublasPlan {
    product: Arc<Product>,
    algorithm: Algorithm,
    name: String,
    workspace: usize,
}

/// A problem in cuBLASLt's terms.
struct Product {
    library: Arc<CublasLt>,
    problem: MatrixProblem,
    x: Owned,
    w: Owned,
    y: Owned,
}

/// A descriptor, freed with this.
struct Owned {
    raw: Raw,
    destroy: unsafe extern "C" fn(Raw) -> i32,
}

// SAFETY: descriptors belong to no thread; those behind a shared reference are only read.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it was created and is destroyed once.
        unsafe { (self.destroy)(self.raw) };
    }
}

impl Functions {
    /// Makes a status a result.
    fn check(&self, call: &str, status: i32) -> Result<()> {
        match status {
            0 => Ok(()),
            // SAFETY: cuBLASLt's messages are constants.
            _ => Err(failure(call, status, &unsafe { message((self.cublasLtGetStatusString)(status)) })),
        }
    }
}

impl CublasLt {
    /// cuBLASLt on a GPU, started on first use.
    pub(crate) fn of(gpu: &Gpu) -> Result<Arc<Self>> {
        static STARTED: PerGpu<CublasLt> = PerGpu::new("cuBLASLt");
        gpu.enter()?;
        STARTED.get(gpu.index, || {
            let functions = functions()?;
            let mut handle = std::ptr::null_mut();
            // SAFETY: it writes one pointer; the GPU is the calling thread's.
            let status = unsafe { (functions.cublasLtCreate)(&mut handle) };
            functions.check("cublasLtCreate", status).map_err(|e| e.to_string())?;
            Ok(CublasLt { functions, handle })
        })
    }

    /// Plans for a product, those first that cuBLASLt expects to be fastest; none where it has no algorithm for it.
    /// The GPU must be the calling thread's.
    pub(crate) fn plans(self: &Arc<Self>, problem: &MatrixProblem, limits: Limits) -> Result<Vec<CublasPlan>> {
        let (Some(dtype), Some(output)) = (data_type(problem.dtype), data_type(problem.output)) else {
            return Ok(Vec::new());
        };
        let product = Arc::new(Product::new(self.clone(), problem, dtype, output)?);
        let mut choices = product.heuristics(limits)?;
        choices.retain(|choice| choice.status == 0 && choice.workspace <= limits.workspace);
        let plan = |choice: Choice| {
            let name = self.name(&choice.algorithm);
            CublasPlan { product: product.clone(), algorithm: choice.algorithm, name, workspace: choice.workspace }
        };
        Ok(choices.into_iter().map(plan).collect())
    }

    /// The plan of that name; none where this cuBLASLt does not offer it within the limits.
    pub(crate) fn plan(
        self: &Arc<Self>,
        problem: &MatrixProblem,
        limits: Limits,
        name: &str,
    ) -> Result<Option<CublasPlan>> {
        Ok(self.plans(problem, limits)?.into_iter().find(|plan| plan.name == name))
    }

    /// An algorithm's number and settings.
    fn name(&self, algorithm: &Algorithm) -> String {
        let read = |setting: Setting| {
            let (mut value, mut written) = (0_u32, 0);
            let size = match setting {
                CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID | CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID => 2,
                _ => 4,
            };
            // SAFETY: settings are integers of two or four bytes; those that this version does not have stay 0.
            unsafe {
                (self.functions.cublasLtMatmulAlgoConfigGetAttribute)(
                    algorithm,
                    setting,
                    (&raw mut value).cast(),
                    size,
                    &mut written,
                );
            }
            value
        };
        let settings = [
            CUBLASLT_ALGO_CONFIG_TILE_ID,
            CUBLASLT_ALGO_CONFIG_STAGES_ID,
            CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
            CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
            CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
            CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION,
            CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
            CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
        ];
        let settings: Vec<String> = settings.into_iter().map(|setting| read(setting).to_string()).collect();
        // Algorithms are numbered anew in every version.
        // SAFETY: it returns a number.
        let version = version_text(unsafe { (self.functions.cublasLtGetVersion)() });
        format!("cuBLASLt {version} algorithm {} {}", read(CUBLASLT_ALGO_CONFIG_ID), settings.join("."))
    }
}

fn data_type(dtype: DType) -> Option<DataType> {
    match dtype {
        DType::F16 => Some(CUDA_R_16F),
        DType::BF16 => Some(CUDA_R_16BF),
        DType::F32 => Some(CUDA_R_32F),
        _ => None,
    }
}

impl Product {
    fn new(library: Arc<CublasLt>, problem: &MatrixProblem, dtype: DataType, output: DataType) -> Result<Self> {
        let MatrixProblem { m, n, k, batch, .. } = *problem;
        let layout = |view: &MatrixView, dtype: DataType, rows: usize, columns: usize| -> Result<Owned> {
            let functions = library.functions;
            let (rows, columns) = if view.transposed { (columns, rows) } else { (rows, columns) };
            let mut raw = std::ptr::null_mut();
            // SAFETY: it writes one pointer. Rows and columns change places: cuBLASLt reads by columns.
            let status = unsafe {
                (functions.cublasLtMatrixLayoutCreate)(
                    &mut raw,
                    dtype,
                    columns as u64,
                    rows as u64,
                    view.leading as i64,
                )
            };
            functions.check("cublasLtMatrixLayoutCreate", status)?;
            let owned = Owned { raw, destroy: functions.cublasLtMatrixLayoutDestroy };
            let set = |attribute: LayoutAttribute, value: *const c_void, size: usize| {
                // SAFETY: the value has the attribute's size and is read during the call.
                let status = unsafe { (functions.cublasLtMatrixLayoutSetAttribute)(raw, attribute, value, size) };
                functions.check("cublasLtMatrixLayoutSetAttribute", status)
            };
            let (count, step) = (batch as i32, view.step as i64);
            set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (&raw const count).cast(), 4)?;
            set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, (&raw const step).cast(), 8)?;
            Ok(owned)
        };
        let (x, w, y) =
            (layout(&problem.x, dtype, m, k)?, layout(&problem.w, dtype, k, n)?, layout(&problem.y, output, m, n)?);
        Ok(Product { library, problem: *problem, x, w, y })
    }

    /// The operation, with the bias at an address.
    fn operation(&self, bias: Address) -> Result<Owned> {
        let functions = self.library.functions;
        let mut raw = std::ptr::null_mut();
        // SAFETY: it writes one pointer. This type of computation is f32 for f32: TF32 has to be asked for.
        let status = unsafe { (functions.cublasLtMatmulDescCreate)(&mut raw, CUBLAS_COMPUTE_32F, CUDA_R_32F) };
        functions.check("cublasLtMatmulDescCreate", status)?;
        let owned = Owned { raw, destroy: functions.cublasLtMatmulDescDestroy };
        let set = |attribute: OperationAttribute, value: *const c_void, size: usize| {
            // SAFETY: the value has the attribute's size and is read during the call.
            let status = unsafe { (functions.cublasLtMatmulDescSetAttribute)(raw, attribute, value, size) };
            functions.check("cublasLtMatmulDescSetAttribute", status)
        };
        let epilogue = match (self.problem.bias, self.problem.relu) {
            (false, false) => CUBLASLT_EPILOGUE_DEFAULT,
            (false, true) => CUBLASLT_EPILOGUE_RELU,
            (true, false) => CUBLASLT_EPILOGUE_BIAS,
            (true, true) => CUBLASLT_EPILOGUE_RELU_BIAS,
        } as u32;
        // The library's first operand is our w, its second our x.
        let (first, second) = (self.problem.w.transposed as i32, self.problem.x.transposed as i32);
        set(CUBLASLT_MATMUL_DESC_TRANSA, (&raw const first).cast(), 4)?;
        set(CUBLASLT_MATMUL_DESC_TRANSB, (&raw const second).cast(), 4)?;
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, (&raw const epilogue).cast(), 4)?;
        if self.problem.bias {
            set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, (&raw const bias).cast(), 8)?;
        }
        Ok(owned)
    }

    /// The heuristics' choices, best guess first.
    fn heuristics(&self, limits: Limits) -> Result<Vec<Choice>> {
        let functions = self.library.functions;
        // Only the alignment of the bias is looked at here.
        let operation = self.operation(ALIGNMENT as Address)?;
        let preference = self.preference(limits)?;
        let empty = Choice { algorithm: Algorithm([0; 8]), workspace: 0, status: -1, waves: 0.0, reserved: [0; 4] };
        let mut choices = vec![empty; limits.plans];
        let mut count = 0;
        // SAFETY: all descriptors are alive, and there is room for as many choices as are asked for.
        let status = unsafe {
            (functions.cublasLtMatmulAlgoGetHeuristic)(
                self.library.handle,
                operation.raw,
                self.w.raw,
                self.x.raw,
                self.y.raw,
                self.y.raw,
                preference.raw,
                choices.len() as i32,
                choices.as_mut_ptr(),
                &mut count,
            )
        };
        // No algorithm for such a problem: no plans, but no failure either.
        if status == sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED as i32 {
            return Ok(Vec::new());
        }
        functions.check("cublasLtMatmulAlgoGetHeuristic", status)?;
        choices.truncate(count.max(0) as usize);
        Ok(choices)
    }

    fn preference(&self, limits: Limits) -> Result<Owned> {
        let functions = self.library.functions;
        let mut raw = std::ptr::null_mut();
        // SAFETY: it writes one pointer.
        let status = unsafe { (functions.cublasLtMatmulPreferenceCreate)(&mut raw) };
        functions.check("cublasLtMatmulPreferenceCreate", status)?;
        let owned = Owned { raw, destroy: functions.cublasLtMatmulPreferenceDestroy };
        let set = |attribute: PreferenceAttribute, value: *const c_void, size: usize| {
            // SAFETY: the value has the attribute's size and is read during the call.
            let status = unsafe { (functions.cublasLtMatmulPreferenceSetAttribute)(raw, attribute, value, size) };
            functions.check("cublasLtMatmulPreferenceSetAttribute", status)
        };
        let workspace = limits.workspace as u64;
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const workspace).cast(), 8)?;
        // Parts of a sum that several blocks share meet in the workspace, in f32 and in fixed order; the other ways add
        // them up in the output's type.
        let reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, (&raw const reduction).cast(), 4)?;
        let alignment = ALIGNMENT as u32;
        for operand in [
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            set(operand, (&raw const alignment).cast(), 4)?;
        }
        Ok(owned)
    }
}

impl Plan for CublasPlan {
    fn name(&self) -> &str {
        &self.name
    }

    fn workspace(&self) -> usize {
        self.workspace
    }

    unsafe fn execute(&self, operands: Operands<Address>, workspace: Address, stream: Stream) -> Result<()> {
        let Product { library, x, w, y, .. } = &*self.product;
        let operation = self.product.operation(operands.bias)?;
        let (one, zero) = (1.0_f32, 0.0_f32);
        // SAFETY: as this function asks of its caller; the factors are read during the call.
        let status = unsafe {
            (library.functions.cublasLtMatmul)(
                library.handle,
                operation.raw,
                &one,
                operands.w,
                w.raw,
                operands.x,
                x.raw,
                &zero,
                operands.y,
                y.raw,
                operands.y,
                y.raw,
                &self.algorithm,
                workspace,
                self.workspace,
                stream.0,
            )
        };
        library.functions.check("cublasLtMatmul", status)
    }
}
