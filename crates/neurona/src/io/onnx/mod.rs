//! ONNX files: networks as graphs of operators, which onnxruntime and many other programs run.
//!
//! ```
//! use neurona::{DType, Tensor, io::onnx, models::Lab, nn::{Forward, Module}};
//! # let path = std::env::temp_dir().join(format!("neurona-doc-onnx-{}.onnx", std::process::id()));
//! let net = Lab::new()?;
//! onnx::export(&net, &onnx::Export::new([3, 32, 32]), &path)?;
//! let same = onnx::import(&path)?;
//! net.eval();
//! same.eval();
//! let x = Tensor::randn([2, 3, 32, 32])?;
//! assert_eq!(net.forward(&x)?.to_vec::<f32>()?, same.forward(&x)?.to_vec::<f32>()?);
//! # std::fs::remove_file(path).ok();
//! # Ok::<(), neurona::Error>(())
//! ```

mod export;
mod import;
mod proto;

pub use export::{Export, export, export_bytes};
pub use import::{OnnxModule, import, import_bytes};

use crate::DType;

/// The numbers that the format has for element types.
fn to_file(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::BF16 => 16,
    }
}
