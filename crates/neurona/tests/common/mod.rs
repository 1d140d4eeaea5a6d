//! What the proof tests share: PyTorch's vectors (format: `tools/oracle.py`), the portable number stream, and the
//! rule by which two tensors agree.

#![allow(dead_code)] // every test binary uses its own part of this

use half::{bf16, f16};
use neurona::{DType, Device, Element, Number, Result, Shape, Tensor};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Once;

/// The GPU that tests run on; without one it says so once, and they skip themselves.
pub fn gpu() -> Option<Device> {
    static SAID: Once = Once::new();
    let gpu = Device::all().into_iter().find(|device| *device != Device::Cpu);
    if gpu.is_none() {
        SAID.call_once(|| eprintln!("no GPU here: tests on CUDA are skipped"));
    }
    gpu
}

/// One case of a vector file.
pub struct Case {
    pub name: String,
    pub op: String,
    pub tol: f64,
    attrs: Value,
    tensors: BTreeMap<String, Tensor>,
}

/// The cases of `oracle/<group>.safetensors`, by name. A missing file or a file without cases is a failure.
pub fn cases(group: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle").join(format!("{group}.safetensors"));
    let bytes =
        std::fs::read(&path).unwrap_or_else(|e| panic!("{} is needed ({e}); tools/oracle.py makes it", path.display()));
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a safetensors header");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let mut tensors: BTreeMap<String, BTreeMap<String, Tensor>> = BTreeMap::new();
    for (key, view) in file.iter() {
        let (case, role) = key.split_once('/').expect("tensors are named <case>/<role>");
        tensors.entry(case.into()).or_default().insert(role.into(), tensor(&view));
    }
    let descriptions: BTreeMap<&String, &String> = header.metadata().iter().flatten().collect();
    assert!(!descriptions.is_empty(), "{} has no cases", path.display());
    descriptions
        .into_iter()
        .map(|(name, json)| {
            let about: Value = serde_json::from_str(json).expect("a description is JSON");
            Case {
                name: name.clone(),
                op: about["op"].as_str().expect("every case names its op").into(),
                tol: about["tol"].as_f64().expect("every case has a tolerance"),
                attrs: about["attrs"].clone(),
                tensors: tensors.remove(name).unwrap_or_default(),
            }
        })
        .collect()
}

fn tensor(view: &TensorView<'_>) -> Tensor {
    fn of<T: Element, const N: usize>(view: &TensorView<'_>, read: fn([u8; N]) -> T) -> Tensor {
        let (chunks, _) = view.data().as_chunks::<N>();
        Tensor::from_vec(chunks.iter().map(|b| read(*b)).collect(), view.shape()).expect("data fills the shape")
    }
    match view.dtype() {
        Dtype::F32 => of(view, f32::from_le_bytes),
        Dtype::F64 => of(view, f64::from_le_bytes),
        Dtype::F16 => of(view, f16::from_le_bytes),
        Dtype::BF16 => of(view, bf16::from_le_bytes),
        Dtype::I64 => of(view, i64::from_le_bytes),
        Dtype::U8 => of(view, u8::from_le_bytes),
        Dtype::BOOL => of(view, |[b]: [u8; 1]| b != 0),
        other => panic!("no vectors have type {other:?}"),
    }
}

impl Case {
    /// The case with its tensors on a device.
    pub fn on(mut self, device: Device) -> Result<Case> {
        for tensor in self.tensors.values_mut() {
            *tensor = tensor.to(device)?;
        }
        Ok(self)
    }

    /// The tensor of a role, where the case has one.
    pub fn get(&self, role: &str) -> Option<&Tensor> {
        self.tensors.get(role)
    }

    /// The tensor of a role that the case must have.
    pub fn tensor(&self, role: &str) -> &Tensor {
        self.get(role).unwrap_or_else(|| panic!("{} has no {role}", self.name))
    }

    /// Tensors `<role>0`, `<role>1`, … as far as there are any.
    pub fn all(&self, role: &str) -> Vec<&Tensor> {
        (0..).map_while(|i| self.get(&format!("{role}{i}"))).collect()
    }

    /// The roles that begin with this prefix, without it.
    pub fn roles(&self, prefix: &str) -> Vec<String> {
        self.tensors.keys().filter_map(|r| r.strip_prefix(prefix)).map(Into::into).collect()
    }

    /// An attribute; the vectors write every default out, so a missing one is a mistake.
    pub fn attr(&self, name: &str) -> &Value {
        self.attrs.get(name).unwrap_or_else(|| panic!("{} has no attribute {name}", self.name))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.attr(name).as_bool().expect("a truth value")
    }

    pub fn text(&self, name: &str) -> &str {
        self.attr(name).as_str().expect("a text")
    }

    pub fn float(&self, name: &str) -> f64 {
        self.attr(name).as_f64().expect("a number")
    }

    pub fn int(&self, name: &str) -> i64 {
        self.attr(name).as_i64().expect("a whole number")
    }

    pub fn pair(&self, name: &str) -> [usize; 2] {
        let list = self.ints(name).expect("a list");
        [list[0] as usize, list[1] as usize]
    }

    /// A list of whole numbers; `None` for null.
    pub fn ints(&self, name: &str) -> Option<Vec<isize>> {
        let list = self.attr(name).as_array()?;
        Some(list.iter().map(|v| v.as_i64().expect("a whole number") as isize).collect())
    }

    /// A plain number that keeps its kind; `None` for null.
    pub fn number(&self, name: &str) -> Option<Number> {
        let value = self.attr(name);
        value.as_i64().map(Number::Int).or_else(|| value.as_f64().map(Number::Float))
    }
}

/// The element type of this name.
pub fn dtype(name: &str) -> DType {
    let all = [DType::Bool, DType::U8, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];
    all.into_iter().find(|d| d.to_string() == name).unwrap_or_else(|| panic!("no type is called {name}"))
}

/// The vectors' rule: |v − w| ≤ tol · max(1, max |w|), NaN equal to NaN and infinity to itself.
pub fn agree(got: &[f64], want: &[f64], tol: f64) -> std::result::Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{} values instead of {}", got.len(), want.len()));
    }
    let largest = want.iter().filter(|w| w.is_finite()).fold(1.0f64, |m, w| m.max(w.abs()));
    let mut worst = (0.0, 0);
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let same = g == w || (g.is_nan() && w.is_nan());
        let far = if same { 0.0 } else { (g - w).abs() };
        // A NaN on one side only is infinitely far.
        let far = if far.is_nan() { f64::INFINITY } else { far };
        if far > worst.0 {
            worst = (far, i);
        }
    }
    if worst.0 <= tol * largest {
        return Ok(());
    }
    let (far, i) = worst;
    Err(format!("element {i} is {:e} instead of {:e}: {far:.1e} apart, {:.1e} allowed", got[i], want[i], tol * largest))
}

/// The rule for tensors, which must have one shape and type too. Whole numbers must be equal.
pub fn same(got: &Tensor, want: &Tensor, tol: f64) -> std::result::Result<(), String> {
    let (a, b) = ((got.shape(), got.dtype()), (want.shape(), want.dtype()));
    if a != b {
        return Err(format!("{} {} instead of {} {}", a.1, a.0, b.1, b.0));
    }
    if !got.dtype().is_float() {
        let read = |t: &Tensor| t.to_vec::<i64>().map_err(|e| e.to_string());
        let (a, b) = (read(got)?, read(want)?);
        return if a == b { Ok(()) } else { Err(format!("{a:?} instead of {b:?}")) };
    }
    let read = |t: &Tensor| t.to_vec::<f64>().map_err(|e| e.to_string());
    agree(&read(got)?, &read(want)?, tol)
}

/// The stream that PyTorch's vectors and these tests share: number `i` of `seed`.
pub fn splitmix64(seed: u64, i: u64) -> u64 {
    let s = seed.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (s ^ (s >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// From −1 (included) to 1 (excluded), exact in f32.
pub fn uniform(seed: u64, i: u64) -> f64 {
    (splitmix64(seed, i) >> 40) as f64 / (1u64 << 24) as f64 * 2.0 - 1.0
}

/// A tensor of the stream's numbers, scaled and shifted.
pub fn stream(seed: u64, shape: impl Into<Shape>, dtype: DType, low: f64, high: f64) -> Result<Tensor> {
    let shape = shape.into();
    let values = (0..shape.numel() as u64).map(|i| low + (uniform(seed, i) + 1.0) * ((high - low) / 2.0)).collect();
    Tensor::from_vec::<f64>(values, shape)?.to_dtype(dtype)
}

/// A stream of choices.
pub struct Choices {
    seed: u64,
    at: u64,
}

impl Choices {
    pub fn new(seed: u64) -> Self {
        Choices { seed, at: 0 }
    }

    /// A whole number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.at += 1;
        (splitmix64(self.seed, self.at) >> 11) as usize % n
    }

    /// True one time in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}
