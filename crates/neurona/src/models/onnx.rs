//! What an ONNX file says of a model.

use super::Card;
use crate::io::onnx::Export;
use serde_json::json;

impl Card {
    /// How a model with this card becomes an ONNX file: its images' size, and as notes the card itself, its
    /// `classes`, `mean`, `std` and `image_size` (channels, height, width), each as JSON.
    ///
    /// ```
    /// use neurona::{io::onnx, models::{Card, Spec}};
    /// let spec = Spec::new("lenet", 2)?;
    /// let net = spec.build()?;
    /// let options = Card::new(spec, ["cat", "dog"]).to_onnx().fold_batch_norm(true);
    /// let again = onnx::import_bytes(&onnx::export_bytes(&net, &options)?)?;
    /// assert_eq!(again.notes()["classes"], r#"["cat","dog"]"#);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn to_onnx(&self) -> Export {
        let size = [self.spec.channels, self.spec.height, self.spec.width];
        let mut options = Export::new(size)
            .note("classes", &json!(self.classes).to_string())
            .note("mean", &json!(self.mean).to_string())
            .note("std", &json!(self.std).to_string())
            .note("image_size", &json!(size).to_string());
        // Said for PyTorch's sake in other files.
        options.notes.extend(self.to_metadata().into_iter().filter(|(key, _)| key != "format"));
        options
    }
}
