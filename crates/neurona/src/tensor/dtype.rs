//! Element types and PyTorch's rules for mixing them.

use half::{bf16, f16};
use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// True or false, one byte each.
    Bool,
    /// Unsigned bytes: images before they are normalised.
    U8,
    /// Integers: labels and indices.
    I64,
    /// Half precision. On the CPU a storage type: arithmetic is done in f32.
    F16,
    /// Brain float. On the CPU a storage type: arithmetic is done in f32.
    BF16,
    /// The default.
    F32,
    /// Double precision: for checks.
    F64,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 => 1,
            DType::F16 | DType::BF16 => 2,
            DType::F32 => 4,
            DType::I64 | DType::F64 => 8,
        }
    }

    /// Whether it is one of the floating-point types.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// The type arithmetic is done in: f32 for the 16-bit floats, itself otherwise.
    pub(crate) fn compute(self) -> DType {
        if matches!(self, DType::F16 | DType::BF16) { DType::F32 } else { self }
    }

    /// The type of an op on operands of these two types, as in PyTorch.
    ///
    /// ```
    /// use neurona::DType;
    /// assert_eq!(DType::U8.promote(DType::F16), DType::F16);
    /// assert_eq!(DType::F16.promote(DType::BF16), DType::F32);
    /// ```
    pub fn promote(self, other: DType) -> DType {
        match (self.min(other), self.max(other)) {
            (DType::F16, DType::BF16) => DType::F32,
            (_, wider) => wider,
        }
    }

    /// The type of an op between a tensor of this type and a plain number.
    pub(crate) fn promote_number(self, number: Number) -> DType {
        match number {
            Number::Float(_) if !self.is_float() => DType::F32,
            Number::Int(_) if self == DType::Bool => DType::I64,
            _ => self,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::Bool => "bool",
            DType::U8 => "u8",
            DType::I64 => "i64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        })
    }
}

/// A plain number next to a tensor, as in `x * 2.0`. It does not change the tensor's type within its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A number with a fraction.
    Float(f64),
    /// A whole number.
    Int(i64),
}

impl Number {
    /// As f64.
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Float(x) => x,
            Number::Int(x) => x as f64,
        }
    }

    /// As i64, fractions cut off.
    pub fn as_i64(self) -> i64 {
        match self {
            Number::Float(x) => x as i64,
            Number::Int(x) => x,
        }
    }
}

macro_rules! number { ($($t:ty => $kind:ident as $as:ty),*) => { $(
    impl From<$t> for Number {
        fn from(x: $t) -> Self { Number::$kind(x as $as) }
    }
)* } }
number!(f32 => Float as f64, f64 => Float as f64, i32 => Int as i64, i64 => Int as i64, usize => Int as i64);

/// A Rust type that tensors can hold.
pub trait Element: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The tensor type.
    const DTYPE: DType;
    /// From any number; whole types cut fractions off, and out-of-range values are clamped.
    fn from_number(x: Number) -> Self;
    /// As any number.
    fn to_number(self) -> Number;
}

macro_rules! element { ($($t:ty, $d:ident, |$x:ident| $from:expr, |$y:ident| $to:expr;)*) => { $(
    impl Element for $t {
        const DTYPE: DType = DType::$d;
        #[inline(always)]
        fn from_number($x: Number) -> Self { $from }
        #[inline(always)]
        fn to_number(self) -> Number { let $y = self; $to }
    }
)* } }
element! {
    f32, F32, |x| x.as_f64() as f32, |y| Number::Float(y as f64);
    f64, F64, |x| x.as_f64(), |y| Number::Float(y);
    f16, F16, |x| f16::from_f64(x.as_f64()), |y| Number::Float(y.to_f64());
    bf16, BF16, |x| bf16::from_f64(x.as_f64()), |y| Number::Float(y.to_f64());
    u8, U8, |x| x.as_i64() as u8, |y| Number::Int(y as i64);
    i64, I64, |x| x.as_i64(), |y| Number::Int(y);
    bool, Bool, |x| x.as_f64() != 0.0, |y| Number::Int(y as i64);
}

/// Runs code with `$T` bound to the Rust type that stores `$dtype` (bool is stored as u8).
macro_rules! with_storage_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::tensor::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::tensor::DType::F64 => {
                type $T = f64;
                $body
            }
            $crate::tensor::DType::F16 => {
                type $T = half::f16;
                $body
            }
            $crate::tensor::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            $crate::tensor::DType::I64 => {
                type $T = i64;
                $body
            }
            $crate::tensor::DType::U8 => {
                type $T = u8;
                $body
            }
            $crate::tensor::DType::Bool => {
                type $T = u8;
                $body
            }
        }
    };
}
pub(crate) use with_storage_type;

/// Runs code with `$T` bound to a type of `$dtype`'s size: for code that only moves elements, and then is compiled once for
/// all types of a size.
macro_rules! with_sized_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::tensor::DType::F64 | $crate::tensor::DType::I64 => {
                type $T = u64;
                $body
            }
            $crate::tensor::DType::F32 => {
                type $T = u32;
                $body
            }
            $crate::tensor::DType::F16 | $crate::tensor::DType::BF16 => {
                type $T = u16;
                $body
            }
            $crate::tensor::DType::U8 | $crate::tensor::DType::Bool => {
                type $T = u8;
                $body
            }
        }
    };
}
pub(crate) use with_sized_type;
