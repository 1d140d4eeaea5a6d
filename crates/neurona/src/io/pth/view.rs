//! A tensor as a checkpoint's pickle describes it: a view of a storage that lies in an entry of its own.

use crate::DType;
use crate::io::pickle::{Object, Value};

/// PyTorch itself has at most 64.
const MOST_DIMENSIONS: usize = 64;
/// Storages are numbered.
const LONGEST_KEY: usize = 100;

/// The type of a storage's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One that tensors here have.
    Own(DType),
    /// Other integers, which become i64: name, bytes, whether signed.
    Integer(&'static str, usize, bool),
}

impl Kind {
    fn named(name: &str) -> Option<Kind> {
        Some(match name {
            "float32" | "Float" => Kind::Own(DType::F32),
            "float64" | "Double" => Kind::Own(DType::F64),
            "float16" | "Half" => Kind::Own(DType::F16),
            "bfloat16" | "BFloat16" => Kind::Own(DType::BF16),
            "int64" | "Long" => Kind::Own(DType::I64),
            "uint8" | "Byte" => Kind::Own(DType::U8),
            "bool" | "Bool" => Kind::Own(DType::Bool),
            "int32" | "Int" => Kind::Integer("i32", 4, true),
            "int16" | "Short" => Kind::Integer("i16", 2, true),
            "int8" | "Char" => Kind::Integer("i8", 1, true),
            "uint16" => Kind::Integer("u16", 2, false),
            "uint32" => Kind::Integer("u32", 4, false),
            _ => return None,
        })
    }

    /// Bytes of an element in the file.
    pub fn size(self) -> usize {
        match self {
            Kind::Own(dtype) => dtype.size(),
            Kind::Integer(_, size, _) => size,
        }
    }

    /// The type it has once loaded.
    pub fn dtype(self) -> DType {
        match self {
            Kind::Own(dtype) => dtype,
            Kind::Integer(..) => DType::I64,
        }
    }

    pub fn name(self) -> String {
        match self {
            Kind::Own(dtype) => dtype.to_string(),
            Kind::Integer(name, ..) => name.into(),
        }
    }
}

/// Which elements of which storage a tensor has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// The storage's name: its bytes are the entry `data/<key>`.
    pub key: String,
    /// Elements of the storage.
    pub elements: usize,
    pub kind: Kind,
    pub offset: usize,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
}

impl View {
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes once loaded.
    pub fn bytes(&self) -> usize {
        self.numel() * self.kind.dtype().size()
    }

    /// Whether its elements lie in the storage one after the other.
    pub fn contiguous(&self) -> bool {
        let mut step = 1;
        self.shape.iter().zip(&self.strides).rev().all(|(size, stride)| {
            let fits = *size == 1 || *stride == step;
            step *= size;
            fits
        }) || self.numel() == 0
    }

    /// Whether every element lies within the storage, and numbers of elements do not overflow.
    fn sound(&self) -> bool {
        let total = self.shape.iter().try_fold(self.kind.dtype().size(), |n, d| n.checked_mul((*d).max(1)));
        let last =
            self.shape.iter().zip(&self.strides).try_fold(self.offset, |at, (size, stride)| {
                at.checked_add(size.saturating_sub(1).checked_mul(*stride)?)
            });
        self.shape.len() == self.strides.len()
            && total.is_some_and(|n| n <= isize::MAX as usize)
            && last.is_some_and(|last| self.numel() == 0 || last < self.elements)
            && self.elements.checked_mul(self.kind.size()).is_some()
    }
}

/// The view that a value stands for; none when it is no tensor, an error when it is one that cannot be read.
pub fn view(value: &Value) -> Option<Result<View, String>> {
    let Value::Object(object) = value else { return None };
    let global = object.global()?;
    let args = object.args.items().unwrap_or_default();
    match (global.module.as_str(), global.name.as_str()) {
        ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => view(args.first()?),
        // A subclass of Tensor: what would rebuild it, its class, and the arguments.
        ("torch._tensor", "_rebuild_from_type_v2") => match args {
            [Value::Global(callable), _, inner, ..] if callable.module == "torch._utils" => {
                let inner = Object {
                    callable: Value::Global(callable.clone()),
                    args: inner.clone(),
                    keywords: None,
                    state: None,
                    items: Vec::new(),
                    entries: Vec::new(),
                };
                view(&Value::Object(inner.into()))
            }
            _ => Some(Err("is of a subclass of Tensor that is not known".into())),
        },
        ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => Some(described(args, None)),
        ("torch._utils", "_rebuild_tensor_v3") => Some(match args.get(6) {
            Some(Value::Global(dtype)) if dtype.module == "torch" => described(args, Some(&dtype.name)),
            _ => Err("does not say what type its elements are".into()),
        }),
        ("torch._utils", name) if name.starts_with("_rebuild_") => {
            let what = name.trim_start_matches("_rebuild_");
            Some(Err(format!("is a {what}; plain tensors are read: save it as x.to_dense() or x.dequantize()")))
        }
        _ => None,
    }
}

fn described(args: &[Value], dtype: Option<&str>) -> Result<View, String> {
    let broken = || "is not described as PyTorch does".to_string();
    let [Value::Persistent(id), offset, shape, strides, ..] = args else { return Err(broken()) };
    let Some([tag, Value::Global(storage), key, _location, elements, ..]) = id.items() else { return Err(broken()) };
    if tag.text() != Some("storage") {
        return Err(broken());
    }
    let stored = storage.name.strip_suffix("Storage").filter(|_| storage.module.starts_with("torch"));
    let name = match (dtype, stored) {
        (Some(dtype), _) => dtype,
        (None, Some(stored)) => stored,
        (None, None) => return Err(broken()),
    };
    let kind = Kind::named(name).ok_or_else(|| {
        format!("has elements of type {name}; known are f64 f32 f16 bf16, i64 i32 i16 i8, u32 u16 u8 and bool")
    })?;
    // Parts that a hostile pickle shares are copied here for every tensor: they must be short.
    let sizes = |value: &Value| {
        let items = value.items().filter(|items| items.len() <= MOST_DIMENSIONS)?;
        items.iter().map(Value::size).collect::<Option<Vec<usize>>>()
    };
    let mut view = View {
        key: key.text().filter(|key| key.len() <= LONGEST_KEY).ok_or_else(broken)?.into(),
        elements: elements.size().ok_or_else(broken)?,
        kind,
        offset: offset.size().ok_or_else(broken)?,
        shape: sizes(shape).ok_or_else(broken)?,
        strides: sizes(strides).ok_or_else(broken)?,
    };
    // Untyped storages count bytes.
    if stored == Some("Untyped") {
        view.elements /= kind.size();
    }
    if view.sound() { Ok(view) } else { Err(format!("of shape {:?} reaches beyond its storage", view.shape)) }
}
