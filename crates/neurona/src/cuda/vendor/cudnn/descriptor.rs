//! cuDNN's backend descriptors: typed sets of attributes, filled in and then finished.

use crate::Result;
use crate::cuda::vendor::library::{Library, failure, functions, message};
use cudarc::cudnn::sys;
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;
use sys::cudnnBackendAttributeName_t as Attribute;
use sys::cudnnBackendAttributeType_t as Type;
use sys::cudnnBackendDescriptorType_t as Kind;

functions! {
    /// The functions of cuDNN that are used.
    Functions {
        fn cudnnGetVersion() -> usize;
        fn cudnnGetErrorString(i32) -> *const c_char;
        fn cudnnGetLastErrorString(*mut c_char, usize) -> ();
        fn cudnnCreate(*mut Handle) -> i32;
        fn cudnnDestroy(Handle) -> i32;
        fn cudnnSetStream(Handle, *mut c_void) -> i32;
        fn cudnnBackendCreateDescriptor(Kind, *mut Raw) -> i32;
        fn cudnnBackendDestroyDescriptor(Raw) -> i32;
        fn cudnnBackendSetAttribute(Raw, Attribute, Type, i64, *const c_void) -> i32;
        fn cudnnBackendGetAttribute(Raw, Attribute, Type, i64, *mut i64, *mut c_void) -> i32;
        fn cudnnBackendFinalize(Raw) -> i32;
        fn cudnnBackendExecute(Handle, Raw, Raw) -> i32;
    }
}

/// cuDNN's functions, or why there are none.
pub(super) fn functions() -> Result<&'static Functions, &'static String> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| Functions::load(Library::open("cudnn", &[9])?)).as_ref()
}

impl Functions {
    /// The file that cuDNN came from.
    pub(super) fn path(&self) -> std::path::PathBuf {
        self.library.path(self.cudnnGetVersion as usize)
    }

    /// Makes a status a result.
    pub(super) fn check(&self, call: &str, status: i32) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let mut text = [0 as c_char; 512];
        // SAFETY: cuDNN writes at most the given number of characters, with the zero; its messages are constants.
        let (general, detail) = unsafe {
            (self.cudnnGetLastErrorString)(text.as_mut_ptr(), text.len());
            text[text.len() - 1] = 0;
            (message((self.cudnnGetErrorString)(status)), CStr::from_ptr(text.as_ptr()).to_string_lossy())
        };
        let problem = if detail.is_empty() { general } else { format!("{general}: {}", detail.trim_end()) };
        Err(failure(call, status, &problem))
    }
}

/// A cuDNN handle.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Handle(pub *mut c_void);

/// A descriptor as the library knows it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Raw(*mut c_void);

/// An address that a graph reads from or writes to.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Pointer(pub u64);

/// A remark of cuDNN's on an engine's numerics. An integer: newer versions have more of them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Note(pub u32);

/// A tuning parameter of an engine.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(super) struct Knob(pub u32);

/// What an attribute can hold.
///
/// # Safety
/// The type must have the size and meaning that cuDNN gives to `TYPE`.
pub(super) unsafe trait Value: Copy {
    const TYPE: Type;
}

macro_rules! values {
    ($($value:ty => $variant:ident,)*) => {
        // SAFETY: the pairs are those of cuDNN's header; the newtypes are transparent.
        $(unsafe impl Value for $value {
            const TYPE: Type = Type::$variant;
        })*
    };
}

values! {
    i64 => CUDNN_TYPE_INT64,
    f32 => CUDNN_TYPE_FLOAT,
    bool => CUDNN_TYPE_BOOLEAN,
    Handle => CUDNN_TYPE_HANDLE,
    Raw => CUDNN_TYPE_BACKEND_DESCRIPTOR,
    Pointer => CUDNN_TYPE_VOID_PTR,
    Note => CUDNN_TYPE_NUMERICAL_NOTE,
    Knob => CUDNN_TYPE_KNOB_TYPE,
    sys::cudnnDataType_t => CUDNN_TYPE_DATA_TYPE,
    sys::cudnnConvolutionMode_t => CUDNN_TYPE_CONVOLUTION_MODE,
    sys::cudnnPointwiseMode_t => CUDNN_TYPE_POINTWISE_MODE,
    sys::cudnnNanPropagation_t => CUDNN_TYPE_NAN_PROPOGATION,
    sys::cudnnBackendHeurMode_t => CUDNN_TYPE_HEUR_MODE,
}

/// One descriptor, freed with this.
pub(super) struct Descriptor {
    functions: &'static Functions,
    raw: Raw,
}

// SAFETY: a descriptor belongs to no thread; those behind a shared reference are finished and only read.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it was created and is destroyed once. There is nothing to do about a failure.
        unsafe { (self.functions.cudnnBackendDestroyDescriptor)(self.raw) };
    }
}

impl Descriptor {
    /// An empty one.
    pub(super) fn new(functions: &'static Functions, kind: Kind) -> Result<Self> {
        let mut raw = Raw(std::ptr::null_mut());
        // SAFETY: it writes one pointer.
        let status = unsafe { (functions.cudnnBackendCreateDescriptor)(kind, &mut raw) };
        functions.check("cudnnBackendCreateDescriptor", status)?;
        Ok(Descriptor { functions, raw })
    }

    /// Fills in an attribute.
    pub(super) fn set<V: Value>(self, name: Attribute, values: &[V]) -> Result<Self> {
        // SAFETY: the values have the type that is named and are read during the call.
        let status = unsafe {
            (self.functions.cudnnBackendSetAttribute)(
                self.raw,
                name,
                V::TYPE,
                values.len() as i64,
                values.as_ptr().cast(),
            )
        };
        self.functions.check("cudnnBackendSetAttribute", status)?;
        Ok(self)
    }

    /// Fills in an attribute that is another descriptor, or several.
    pub(super) fn link(self, name: Attribute, others: &[&Descriptor]) -> Result<Self> {
        let raw: Vec<Raw> = others.iter().map(|other| other.raw).collect();
        self.set(name, &raw)
    }

    /// Checks the attributes and makes it usable.
    pub(super) fn finish(self) -> Result<Self> {
        // SAFETY: it was created.
        let status = unsafe { (self.functions.cudnnBackendFinalize)(self.raw) };
        self.functions.check("cudnnBackendFinalize", status)?;
        Ok(self)
    }

    /// At most `capacity` values of an attribute.
    pub(super) fn get<V: Value + Default>(&self, name: Attribute, capacity: usize) -> Result<Vec<V>> {
        let mut values = vec![V::default(); capacity];
        let count = self.read(name, &mut values)?;
        values.truncate(count);
        Ok(values)
    }

    /// The one value of an attribute.
    pub(super) fn get_one<V: Value + Default>(&self, name: Attribute) -> Result<V> {
        Ok(self.get(name, 1)?.first().copied().unwrap_or_default())
    }

    /// At most `capacity` descriptors that an attribute holds.
    pub(super) fn children(&self, name: Attribute, kind: Kind, capacity: usize) -> Result<Vec<Descriptor>> {
        let mut children = Vec::with_capacity(capacity);
        for _ in 0..capacity {
            children.push(Descriptor::new(self.functions, kind)?);
        }
        let mut raw: Vec<Raw> = children.iter().map(|child| child.raw).collect();
        let count = self.read(name, &mut raw)?;
        children.truncate(count);
        Ok(children)
    }

    /// How many descriptors an attribute holds.
    pub(super) fn count(&self, name: Attribute) -> Result<usize> {
        self.read::<Raw>(name, &mut [])
    }

    /// Reads an attribute's values and returns how many there are.
    fn read<V: Value>(&self, name: Attribute, values: &mut [V]) -> Result<usize> {
        let mut count = 0;
        let place = if values.is_empty() { std::ptr::null_mut() } else { values.as_mut_ptr().cast() };
        // SAFETY: the values have the type that is named, and at most as many are written as there is room for.
        let status = unsafe {
            (self.functions.cudnnBackendGetAttribute)(self.raw, name, V::TYPE, values.len() as i64, &mut count, place)
        };
        self.functions.check("cudnnBackendGetAttribute", status)?;
        Ok(count.max(0) as usize)
    }

    /// Enqueues a finished execution plan with the addresses in a finished variant pack.
    ///
    /// # Safety
    /// The addresses must hold what the plan's graph says, on the handle's GPU, until the work is done.
    pub(super) unsafe fn execute(&self, handle: Handle, pack: &Descriptor) -> Result<()> {
        // SAFETY: as this function asks of its caller.
        let status = unsafe { (self.functions.cudnnBackendExecute)(handle, self.raw, pack.raw) };
        self.functions.check("cudnnBackendExecute", status)
    }
}
