//! Printing a tensor as PyTorch prints it.

use super::{DType, Device, Element, Number, Tensor, with_storage_type};
use crate::graph::engine;
use crate::graph::node::Source;
use std::fmt;

/// Tensors with more elements than this show only the ends of each dimension.
const THRESHOLD: usize = 1000;
/// Elements shown at each end.
const EDGE: usize = 3;
/// Characters to a line.
const WIDTH: usize = 80;

/// Prints the values as PyTorch does, computing them when that has not happened yet. When they cannot be
/// computed, the error stands in their place.
///
/// ```
/// use neurona::Tensor;
/// let x = Tensor::from([[1.0f32, 2.5], [-3.0, 4.0]]);
/// assert_eq!(x.to_string(), "tensor([[ 1.0000,  2.5000],\n        [-3.0000,  4.0000]])");
/// assert_eq!(Tensor::from([1.0f64, 2.0]).to_string(), "tensor([1., 2.], dtype=f64)");
/// ```
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let storage = match engine::value(self) {
            Ok(storage) => storage,
            Err(e) => return write!(f, "tensor(<{e}>)"),
        };
        let text = with_storage_type!(self.dtype(), S => {
            let values = storage.read::<S>();
            Printer::new(self, &|i| values[i].to_number()).text()
        });
        f.write_str(&with_notes(text, self.notes()))
    }
}

impl Tensor {
    /// What PyTorch writes after the values when it cannot be seen from them.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.device() != Device::Cpu {
            notes.push(format!("device='{}'", self.device()));
        }
        let empty = self.numel() == 0;
        if empty && self.rank() != 1 {
            let sizes: Vec<String> = self.shape().iter().map(usize::to_string).collect();
            notes.push(format!("size=({})", sizes.join(", ")));
        }
        // Digits tell i64 and words tell bool, but an empty tensor shows neither.
        let told = self.dtype() == DType::F32 || (!empty && matches!(self.dtype(), DType::I64 | DType::Bool));
        if !told {
            notes.push(format!("dtype={}", self.dtype()));
        }
        if self.node.requires_grad {
            notes.push(match self.node.source {
                Source::Op(_) => format!("grad_fn=<{}>", self.node.name()),
                _ => "requires_grad=True".to_string(),
            });
        }
        notes
    }
}

/// Closes the parenthesis after the notes, each on a new line when it would not fit.
fn with_notes(mut text: String, notes: Vec<String>) -> String {
    // PyTorch counts the last line two characters longer than it is; so do we, to break where it does.
    let mut line = text.len() - text.rfind('\n').map_or(0, |at| at + 1) + 2;
    for note in notes {
        if line + note.len() + 2 > WIDTH {
            text += ",\n       ";
            line = 7 + note.len();
        } else {
            text += ", ";
            line += note.len() + 2;
        }
        text += &note;
    }
    text + ")"
}

/// How numbers are written; one choice for a whole tensor, so that columns line up.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    Bool,
    Int,
    /// Floats that are all whole: `3.`
    Whole,
    Fixed,
    Scientific,
}

struct Printer<'a> {
    shape: &'a [usize],
    value: &'a dyn Fn(usize) -> Number,
    shorten: bool,
    style: Style,
    width: usize,
}

impl<'a> Printer<'a> {
    fn new(tensor: &'a Tensor, value: &'a dyn Fn(usize) -> Number) -> Self {
        let shape: &[usize] = tensor.shape();
        let shorten = tensor.numel() > THRESHOLD;
        let mut printer = Printer { shape, value, shorten, style: Style::Int, width: 1 };
        let mut shown = Vec::new();
        printer.visit(0, 0, &mut |i| shown.push(value(i)));
        if tensor.dtype().is_float() {
            // Zeros, NaN and infinities have no say in the style or the width.
            let telling: Vec<f64> = shown.iter().map(|v| v.as_f64()).filter(|v| v.is_finite() && *v != 0.0).collect();
            printer.style = float_style(&telling);
            shown = telling.into_iter().map(Number::Float).collect();
        } else if tensor.dtype() == DType::Bool {
            printer.style = Style::Bool;
        }
        printer.width = shown.iter().map(|v| printer.number(*v).len()).max().unwrap_or(1);
        printer
    }

    /// Calls `meet` with the flat index of every element that is shown.
    fn visit(&self, dim: usize, start: usize, meet: &mut dyn FnMut(usize)) {
        if dim == self.shape.len() {
            return meet(start);
        }
        let step: usize = self.shape[dim + 1..].iter().product();
        for i in self.indices(dim).into_iter().flatten() {
            self.visit(dim + 1, start + i * step, meet);
        }
    }

    /// The indices shown along a dimension; `None` stands for the dots.
    fn indices(&self, dim: usize) -> Vec<Option<usize>> {
        let n = self.shape[dim];
        if self.shorten && n > 2 * EDGE {
            (0..EDGE).map(Some).chain([None]).chain((n - EDGE..n).map(Some)).collect()
        } else {
            (0..n).map(Some).collect()
        }
    }

    fn text(&self) -> String {
        let mut text = "tensor(".to_string();
        if self.shape.contains(&0) {
            return text + "[]";
        }
        let indent = text.len();
        self.write(&mut text, 0, 0, indent);
        text
    }

    fn write(&self, text: &mut String, dim: usize, start: usize, indent: usize) {
        if dim == self.shape.len() {
            *text += &self.cell(start);
            return;
        }
        text.push('[');
        let inner = self.shape.len() - dim - 1;
        let step: usize = self.shape[dim + 1..].iter().product();
        // The innermost dimension is filled into lines; the others put each part on a line of its own.
        let to_a_line = if inner == 0 { (WIDTH.saturating_sub(indent) / (self.width + 2)).max(1) } else { 1 };
        for (place, index) in self.indices(dim).into_iter().enumerate() {
            if place > 0 && place % to_a_line == 0 {
                *text += &format!(",{}{}", "\n".repeat(inner.max(1)), " ".repeat(indent + 1));
            } else if place > 0 {
                *text += ", ";
            }
            match index {
                Some(i) => self.write(text, dim + 1, start + i * step, indent + 1),
                None if inner == 0 => *text += " ...",
                None => *text += "...",
            }
        }
        text.push(']');
    }

    fn cell(&self, index: usize) -> String {
        format!("{:>width$}", self.number((self.value)(index)), width = self.width)
    }

    fn number(&self, value: Number) -> String {
        let x = value.as_f64();
        match self.style {
            Style::Bool => if value.as_i64() != 0 { "True" } else { "False" }.to_string(),
            Style::Int => value.as_i64().to_string(),
            _ if x.is_nan() => "nan".to_string(),
            _ if x.is_infinite() => x.to_string(),
            Style::Whole => format!("{x:.0}."),
            Style::Fixed => format!("{x:.4}"),
            Style::Scientific => scientific(x),
        }
    }
}

fn float_style(values: &[f64]) -> Style {
    let least = values.iter().fold(f64::INFINITY, |m, v| m.min(v.abs()));
    let most = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    if values.is_empty() {
        Style::Whole
    } else if most / least > 1000.0 || most > 1e8 || least < 1e-4 {
        Style::Scientific
    } else if values.iter().all(|v| v.fract() == 0.0) {
        Style::Whole
    } else {
        Style::Fixed
    }
}

/// `1.2346e+04`: Rust writes the exponent without sign and leading zero.
fn scientific(x: f64) -> String {
    let text = format!("{x:.4e}");
    match text.split_once('e') {
        Some((digits, power)) => {
            let (sign, power) = power.strip_prefix('-').map_or(('+', power), |p| ('-', p));
            format!("{digits}e{sign}{power:0>2}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn number(v: &Value) -> Number {
        match v {
            Value::Bool(b) => Number::Int(*b as i64),
            Value::String(s) => Number::Float(s.parse().unwrap()),
            v => v.as_i64().map_or_else(|| Number::Float(v.as_f64().unwrap()), Number::Int),
        }
    }

    fn tensor<T: Element>(row: &Value) -> Tensor {
        let values = row["values"].as_array().unwrap().iter().map(|v| T::from_number(number(v))).collect();
        let shape: Vec<usize> = row["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap() as usize).collect();
        Tensor::from_vec::<T>(values, shape).unwrap()
    }

    #[test]
    fn prints_as_pytorch_does() {
        let rows: Value = serde_json::from_str(include_str!("../../tests/oracle/printing.json")).unwrap();
        let rows = rows.as_array().unwrap();
        assert!(rows.len() > 30);
        for row in rows {
            let dtype = row["dtype"].as_str().unwrap();
            let x = match dtype {
                "f32" => tensor::<f32>(row),
                "f64" => tensor::<f64>(row),
                "f16" => tensor::<half::f16>(row),
                "bf16" => tensor::<half::bf16>(row),
                "i64" => tensor::<i64>(row),
                "u8" => tensor::<u8>(row),
                _ => tensor::<bool>(row),
            };
            let mut want = row["text"].as_str().unwrap().to_string();
            for (theirs, ours) in
                [("bfloat16", "bf16"), ("float16", "f16"), ("float64", "f64"), ("uint8", "u8"), ("int64", "i64")]
            {
                want = want.replace(&format!("torch.{theirs}"), ours);
            }
            assert_eq!(x.to_string(), want, "{dtype} {}", row["shape"]);
        }
    }

    #[test]
    fn says_what_wants_a_gradient() {
        let x = Tensor::from([2.0f32]).requires_grad().unwrap();
        assert_eq!(x.to_string(), "tensor([2.], requires_grad=True)");
        assert_eq!(x.relu().unwrap().to_string(), "tensor([2.], grad_fn=<relu>)");
    }

    #[test]
    fn breaks_before_a_note_that_does_not_fit() {
        let x = Tensor::from([[1.25f64; 7]; 2]);
        let line = ["1.2500"; 7].join(", ");
        assert_eq!(x.to_string(), format!("tensor([[{line}],\n        [{line}]], dtype=f64)"));
        let x = Tensor::from([1.25f64; 8]);
        let line = ["1.2500"; 8].join(", ");
        assert_eq!(x.to_string(), format!("tensor([{line}],\n       dtype=f64)"));
    }
}
