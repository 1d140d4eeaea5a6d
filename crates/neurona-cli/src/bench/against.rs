//! Neurona's own kernels against the vendor's: convolutions against cuDNN, matrix products against cuBLASLt.

use crate::device::describe;
use crate::failure::{Failure, Outcome, say};
use neurona::bench_support::{Pass, Problem, times};
use neurona::{DType, Device, Kernels};
use serde_json::{Value, json};

/// Images, channels, size, filters, kernel, stride and padding of a convolution.
type Convolution = [usize; 7];

/// The convolutions of the peers' table: the lab, the CIFAR-10 record network, ResNet-18 and ResNet-50.
const CONVOLUTIONS: [(&str, Convolution); 14] = [
    ("lab_conv1", [128, 3, 32, 6, 5, 1, 0]),
    ("lab_conv2", [128, 6, 14, 16, 5, 1, 0]),
    ("air_1a", [2000, 24, 31, 64, 3, 1, 1]),
    ("air_1b", [2000, 64, 15, 64, 3, 1, 1]),
    ("air_2a", [2000, 64, 15, 256, 3, 1, 1]),
    ("air_2b", [2000, 256, 7, 256, 3, 1, 1]),
    ("air_3b", [2000, 256, 3, 256, 3, 1, 1]),
    ("r18_64", [512, 64, 32, 64, 3, 1, 1]),
    ("r18_128s2", [512, 64, 32, 128, 3, 2, 1]),
    ("r18_256", [512, 256, 8, 256, 3, 1, 1]),
    ("r18_512", [512, 512, 4, 512, 3, 1, 1]),
    ("r50_7x7", [128, 3, 224, 64, 7, 2, 3]),
    ("r50_1x1", [128, 256, 56, 64, 1, 1, 0]),
    ("r50_3x3", [128, 128, 28, 128, 3, 1, 1]),
];

/// Rows, columns, the size summed over, and which operands are stored the other way round: large squares, and the
/// layers of mlp784 with their gradients by the weights.
const PRODUCTS: [(&str, [usize; 3], [bool; 2]); 8] = [
    ("square_8192", [8192, 8192, 8192], [false, false]),
    ("square_4096", [4096, 4096, 4096], [false, false]),
    ("mlp784_1_b128", [128, 512, 784], [false, true]),
    ("mlp784_1_b4096", [4096, 512, 784], [false, true]),
    ("mlp784_2_b4096", [4096, 256, 512], [false, true]),
    ("mlp784_3_b4096", [4096, 10, 256], [false, true]),
    ("mlp784_1_weights", [512, 784, 4096], [true, false]),
    ("mlp784_2_weights", [256, 512, 4096], [true, false]),
];

const TYPES: [(DType, &str); 3] = [(DType::F16, "float16"), (DType::BF16, "bfloat16"), (DType::F32, "float32")];
const PASSES: [(Pass, &str); 3] =
    [(Pass::Forward, "forward"), (Pass::InputGradient, "input_gradient"), (Pass::WeightGradient, "weight_gradient")];

/// One problem, by whoever could do it, in seconds.
struct Row {
    name: &'static str,
    kind: &'static str,
    dtype: &'static str,
    flops: f64,
    own: f64,
    vendor: Option<f64>,
    auto: f64,
}

impl Row {
    /// Above 1 where the own kernel is faster.
    fn own_over_vendor(&self) -> Option<f64> {
        self.vendor.map(|vendor| vendor / self.own)
    }

    /// 1 where `auto` is as fast as the faster of both.
    fn auto_over_better(&self) -> f64 {
        self.own.min(self.vendor.unwrap_or(f64::INFINITY)) / self.auto
    }

    fn json(&self) -> Value {
        let milliseconds = |seconds: f64| (seconds * 1e7).round() / 1e4;
        let tflops = |seconds: f64| (self.flops / seconds / 1e11).round() / 10.0;
        let ratio = |x: f64| (x * 1e3).round() / 1e3;
        json!({
            "name": self.name, "kind": self.kind, "dtype": self.dtype,
            "own_ms": milliseconds(self.own), "vendor_ms": self.vendor.map(milliseconds),
            "auto_ms": milliseconds(self.auto), "own_tflops": tflops(self.own),
            "vendor_tflops": self.vendor.map(tflops), "own_over_vendor": self.own_over_vendor().map(ratio),
            "auto_over_better": ratio(self.auto_over_better()),
        })
    }

    fn words(&self) -> String {
        let micro = |seconds: f64| format!("{:.1}", seconds * 1e6);
        let tflops = |seconds: f64| format!("{:.1}", self.flops / seconds / 1e12);
        let (vendor, vendor_tflops) = (self.vendor.map(micro), self.vendor.map(tflops));
        let dash = || "–".to_string();
        format!(
            "{:<17} {:<15} {:<9} {:>10} {:>10} {:>10} {:>9} {:>9} {:>7} {:>7}",
            self.name,
            self.kind,
            self.dtype,
            micro(self.own),
            vendor.unwrap_or_else(dash),
            micro(self.auto),
            tflops(self.own),
            vendor_tflops.unwrap_or_else(dash),
            self.own_over_vendor().map_or_else(dash, |x| format!("{x:.2}×")),
            format!("{:.2}×", self.auto_over_better()),
        )
    }
}

/// Times everything whose name has `only` in it.
pub fn run(device: Device, only: Option<&str>, as_json: bool) -> Outcome {
    let Device::Cuda(gpu) = device else {
        return Err(Failure::Usage("--against compares kernels of a GPU: give --device cuda".to_string()));
    };
    let has =
        |library: &str| neurona::cuda_report().parts.into_iter().any(|part| part.name == library && part.found.is_ok());
    let (cudnn, cublaslt) = (has("cuDNN"), has("cuBLASLt"));
    if !as_json {
        say(describe(device))?;
        let heads = "own µs,vendor µs,auto µs,own TF/s,vendor TF/s,own,auto";
        let heads: Vec<&str> = heads.split(',').collect();
        say(format!(
            "{:<17} {:<15} {:<9} {:>10} {:>10} {:>10} {:>9} {:>9} {:>7} {:>7}",
            "problem", "what", "numbers", heads[0], heads[1], heads[2], heads[3], heads[4], heads[5], heads[6]
        ))?;
    }
    for (there, name) in [(cudnn, "cuDNN"), (cublaslt, "cuBLASLt")] {
        if !there && !as_json {
            say(format!("{name} was not found: its column stays empty"))?;
        }
    }
    let wanted = |name: &str| only.is_none_or(|part| name.contains(part));
    let mut rows = Vec::new();
    for (name, kind, dtype, problem) in problems().filter(|(name, ..)| wanted(name)) {
        let vendor = if matches!(problem, Problem::Product { .. }) { cublaslt } else { cudnn };
        let kernels: &[Kernels] = match vendor {
            true => &[Kernels::Own, Kernels::Auto, Kernels::Vendor],
            false => &[Kernels::Own, Kernels::Auto],
        };
        let seconds = times(&problem, kernels, gpu)?;
        let flops = problem.flops();
        let row = Row { name, kind, dtype, flops, own: seconds[0], auto: seconds[1], vendor: seconds.get(2).copied() };
        if as_json {
            say(row.json())?
        } else {
            say(row.words())?
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return Err(Failure::Usage("no convolution or product has this in its name".to_string()));
    }
    summary(&rows, as_json)
}

fn problems() -> impl Iterator<Item = (&'static str, &'static str, &'static str, Problem)> {
    let convolutions = TYPES.into_iter().flat_map(|(dtype, type_name)| {
        CONVOLUTIONS.into_iter().flat_map(move |(name, [images, channels, size, filters, kernel, stride, padding])| {
            PASSES.into_iter().map(move |(pass, kind)| {
                let problem =
                    Problem::Convolution { pass, dtype, images, channels, size, filters, kernel, stride, padding };
                (name, kind, type_name, problem)
            })
        })
    });
    let products = TYPES.into_iter().flat_map(|(dtype, type_name)| {
        PRODUCTS.into_iter().map(move |(name, [m, n, k], transposed)| {
            (name, "product", type_name, Problem::Product { dtype, m, n, k, transposed })
        })
    });
    convolutions.chain(products)
}

/// Geometric means of convolutions and of products in each type, and the worst choice of `auto`.
fn summary(rows: &[Row], as_json: bool) -> Outcome {
    for (products, title) in [(false, "convolutions over cuDNN"), (true, "products over cuBLASLt")] {
        for (_, dtype) in TYPES {
            let some = rows.iter().filter(|row| (row.kind == "product") == products && row.dtype == dtype);
            let ratios: Vec<f64> = some.filter_map(Row::own_over_vendor).collect();
            if ratios.is_empty() {
                continue;
            }
            let mean = geometric_mean(&ratios);
            match as_json {
                true => say(json!({ "geometric_mean": title, "dtype": dtype, "own_over_vendor": mean }))?,
                false => say(format!("own {title}, {dtype}: {mean:.2}× (geometric mean of {})", ratios.len()))?,
            }
        }
    }
    let worst = rows.iter().map(Row::auto_over_better).fold(f64::INFINITY, f64::min);
    match as_json {
        true => say(json!({ "auto_over_better_least": worst })),
        false => say(format!("auto over the better of both: {worst:.2}× at the least")),
    }
}

fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|x| x.ln()).sum::<f64>() / values.len().max(1) as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_and_ratios() {
        assert_eq!(problems().count(), 14 * 3 * 3 + 8 * 3);
        assert!((geometric_mean(&[2.0, 8.0]) - 4.0).abs() < 1e-12);
        let row =
            Row { name: "x", kind: "forward", dtype: "float32", flops: 1e9, own: 1e-3, vendor: Some(2e-3), auto: 1e-3 };
        assert_eq!((row.own_over_vendor(), row.auto_over_better()), (Some(2.0), 1.0));
        assert_eq!(row.json()["own_tflops"], 1.0);
        assert!(row.words().contains("2.00×"), "{}", row.words());
        assert!(Row { vendor: None, ..row }.words().contains('–'));
    }
}
