//! What a network consists of: its layers, their outputs, parameters and work.

use super::{Forward, InEvaluation};
use crate::graph::outline::{Step, outline};
use crate::{DType, Result, Shape, Tensor, no_grad};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// A layer, or an op that stands in a network's own `forward`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where it stands, as in `layer1.0.conv1`; of an op between layers, the part whose `forward` has it.
    pub path: String,
    /// What it does, as in `conv2d`.
    pub kind: &'static str,
    /// The shape of its output.
    pub output: Shape,
    /// How many numbers are trained in it; those that an earlier row has shown are not counted again.
    pub parameters: usize,
    /// Products that are summed up, in convolutions and matrix products.
    pub multiply_adds: u64,
}

/// What a network consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The shape of the input, batch first.
    pub input: Shape,
    /// Layers and ops in the order they run.
    pub rows: Vec<Row>,
    /// How many numbers are trained.
    pub parameters: usize,
    /// How many of them are not frozen.
    pub trainable_parameters: usize,
    /// Products that are summed up in one pass forward.
    pub multiply_adds: u64,
    /// Bytes of parameters and running statistics.
    pub parameter_bytes: usize,
    /// Bytes of all outputs together: what training keeps, at most, for the pass backward.
    pub activation_bytes: usize,
}

/// Layers, output shapes, parameters and multiply-adds of any network, for an input of this shape, batch first. The
/// network is traced in evaluation mode but not run, so that it costs next to nothing whatever its size.
///
/// ```
/// use neurona::{models::Lab, nn};
/// let summary = nn::summary(&Lab::new()?, [1, 3, 32, 32])?;
/// assert_eq!((summary.parameters, summary.multiply_adds), (62_006, 651_720));
/// assert_eq!((summary.rows[0].path.as_str(), summary.rows[0].kind), ("conv1", "conv2d"));
/// println!("{summary}");
/// # Ok::<(), neurona::Error>(())
/// ```
#[track_caller]
pub fn summary(net: &dyn Forward, input: impl Into<Shape>) -> Result<Summary> {
    let input = input.into();
    let parameters = net.named_parameters();
    // Nodes are looked up by address; held here, none is freed and its address used again.
    let mut held = parameters.iter().map(|(_, parameter)| parameter.get()).collect::<Result<Vec<_>>>()?;
    let mut bytes: usize = parameters.iter().map(|(_, p)| p.cell().meta().bytes()).sum();
    for (_, buffer) in net.named_buffers() {
        bytes += buffer.cell().meta().bytes();
        held.push(buffer.get()?);
    }
    // The input is not computed either: its zeros are a pending op of their own, which is no part of the network.
    let x = Tensor::zeros(&input, DType::F32)?;
    held.push(x.clone());
    let known: HashMap<_, _> = held.iter().enumerate().map(|(i, tensor)| (Arc::as_ptr(&tensor.node), i)).collect();

    // Dropout drops nothing and statistics stay as they are.
    let _evaluation = InEvaluation::new(net);
    let output = no_grad(|| net.forward(&x))?;
    let steps = outline(&output, &known);
    let sizes: Vec<usize> = parameters.iter().map(|(_, p)| p.shape().numel()).collect();
    let owners = parameters.iter().map(|(path, _)| path.rsplit_once('.').map_or("", |(owner, _)| owner));
    let activation_bytes = steps.iter().filter(|s| !s.view).map(|s| s.output.bytes()).sum();
    Ok(Summary {
        rows: rows(&steps, &sizes, owners.collect()),
        parameters: net.num_parameters(),
        trainable_parameters: net.num_trainable_parameters(),
        multiply_adds: steps.iter().map(|step| step.multiply_adds).sum(),
        parameter_bytes: bytes,
        activation_bytes,
        input,
    })
}

/// Ops of one layer become one row. What is no layer but holds some shows the ops of its own `forward` one by one.
fn rows(steps: &[Step], sizes: &[usize], owners: Vec<&str>) -> Vec<Row> {
    let paths: HashSet<&str> = steps.iter().map(|step| step.module).chain(owners).collect();
    let is_layer = |path: &str| {
        let below = |other: &str| match path {
            "" => !other.is_empty(),
            _ => other.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')),
        };
        !paths.iter().any(|other| below(other))
    };
    let layers: HashSet<&str> = paths.iter().copied().filter(|path| is_layer(path)).collect();
    let mut counted = HashSet::new();
    let together = |a: &Step, b: &Step| a.module == b.module && layers.contains(a.module);
    steps
        .chunk_by(together)
        .filter_map(|group| {
            let last = group.last()?;
            let main = group.iter().rev().max_by_key(|step| (step.multiply_adds, !step.view))?;
            let parameters = group.iter().flat_map(|step| &step.reads).filter(|i| **i < sizes.len());
            let fresh: usize = parameters.clone().filter(|i| counted.insert(**i)).map(|i| sizes[*i]).sum();
            let weighted = parameters.count() > 0;
            Some(Row {
                path: last.module.to_string(),
                kind: if main.name == "matmul" && weighted { "linear" } else { main.name },
                output: last.output.shape.clone(),
                parameters: fresh,
                multiply_adds: group.iter().map(|step| step.multiply_adds).sum(),
            })
        })
        .collect()
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = |row: &Row| {
            let count = |n: u64| if n == 0 { "-".to_string() } else { grouped(n) };
            let numbers = [count(row.parameters as u64), count(row.multiply_adds)];
            let [parameters, work] = numbers;
            [row.path.clone(), row.kind.to_string(), row.output.to_string(), parameters, work]
        };
        let head = ["layer", "kind", "output", "parameters", "multiply-adds"].map(String::from);
        let table: Vec<[String; 5]> = std::iter::once(head).chain(self.rows.iter().map(cells)).collect();
        let mut widths = [0; 5];
        for (width, column) in widths.iter_mut().zip(0..) {
            *width = table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        }
        let [a, b, c, d, e] = widths;
        for [path, kind, output, parameters, work] in &table {
            writeln!(f, "{path:<a$}  {kind:<b$}  {output:<c$}  {parameters:>d$}  {work:>e$}")?;
        }
        let frozen = match self.parameters - self.trainable_parameters {
            0 => String::new(),
            frozen => format!(" ({} frozen)", grouped(frozen as u64)),
        };
        writeln!(f, "\nInput {}", self.input)?;
        writeln!(f, "Parameters {}{frozen}", grouped(self.parameters as u64))?;
        writeln!(f, "Multiply-adds {}", grouped(self.multiply_adds))?;
        let [parameters, activations] = [self.parameter_bytes, self.activation_bytes].map(mebibytes);
        write!(f, "Memory: {parameters} parameters and statistics, {activations} outputs of all layers")
    }
}

fn mebibytes(bytes: usize) -> String {
    format!("{:.2} MiB", bytes as f64 / (1 << 20) as f64)
}

/// 1234567 as `1,234,567`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{Lab, SmallCnn, Spec};
    use crate::nn::Item;
    use crate::nn::module::walk;
    use crate::nn::{BatchNorm1d, Dropout, Linear, Module, Sequential};

    fn line(row: &Row) -> (&str, &str, String, usize, u64) {
        (&row.path, row.kind, row.output.to_string(), row.parameters, row.multiply_adds)
    }

    #[test]
    fn the_labs_network_by_hand() -> Result<()> {
        let summary = summary(&Lab::new()?, [1, 3, 32, 32])?;
        let want = [
            ("conv1", "conv2d", "[1, 6, 28, 28]", 6 * 75 + 6, 28 * 28 * 6 * 75),
            ("", "relu", "[1, 6, 28, 28]", 0, 0),
            ("pool", "max_pool2d", "[1, 6, 14, 14]", 0, 0),
            ("conv2", "conv2d", "[1, 16, 10, 10]", 16 * 150 + 16, 10 * 10 * 16 * 150),
            ("", "relu", "[1, 16, 10, 10]", 0, 0),
            ("pool", "max_pool2d", "[1, 16, 5, 5]", 0, 0),
            ("", "reshape", "[1, 400]", 0, 0),
            ("fc1", "linear", "[1, 120]", 48_120, 48_000),
            ("", "relu", "[1, 120]", 0, 0),
            ("fc2", "linear", "[1, 84]", 10_164, 10_080),
            ("", "relu", "[1, 84]", 0, 0),
            ("fc3", "linear", "[1, 10]", 850, 840),
        ];
        let rows: Vec<_> = summary.rows.iter().map(line).collect();
        assert_eq!(rows, want.map(|(path, kind, shape, p, m)| (path, kind, shape.to_string(), p, m)));
        assert_eq!((summary.parameters, summary.multiply_adds), (62_006, 651_720));
        // Every output but the reshaped one, which is the same memory.
        let floats = 2 * (6 * 784 + 1600 + 120 + 84) + 1176 + 400 + 10;
        assert_eq!((summary.parameter_bytes, summary.activation_bytes), (4 * 62_006, 4 * floats));
        Ok(())
    }

    #[test]
    fn resnet_and_batches() -> Result<()> {
        let net = Spec::new("resnet18_cifar", 10)?.build_empty()?;
        let one = summary(&*net, [1, 3, 32, 32])?;
        assert_eq!(one.parameters, 11_173_962);
        assert_eq!(one.rows.iter().map(|row| row.parameters).sum::<usize>(), 11_173_962);
        // Counted layer by layer: 1,769,472 in the stem, 150,994,944 in layer1, 134,217,728 in each of the other
        // three, 5,120 in the head.
        assert_eq!(one.multiply_adds, 555_422_720);
        let four = summary(&*net, [4, 3, 32, 32])?;
        assert_eq!((four.multiply_adds, four.activation_bytes), (4 * one.multiply_adds, 4 * one.activation_bytes));
        let downsample = one.rows.iter().find(|row| row.path == "layer2.0.downsample.0").unwrap();
        assert_eq!(line(downsample).2, "[1, 128, 16, 16]");
        Ok(())
    }

    /// Parameters and multiply-adds as torchvision's page of models has them.
    #[test]
    fn classics_at_224_pixels() -> Result<()> {
        for (name, parameters, millions) in
            [("resnet18", 11_689_512, 1_814), ("resnet50", 25_557_032, 4_089), ("mobilenet_v2", 3_504_872, 301)]
        {
            let net = Spec::new(name, 1000)?.build_empty()?;
            let summary = summary(&*net, [1, 3, 224, 224])?;
            let found = (summary.parameters, (summary.multiply_adds + 500_000) / 1_000_000);
            assert_eq!(found, (parameters, millions), "{name}");
            assert_eq!(summary.rows.iter().map(|row| row.parameters).sum::<usize>(), parameters, "{name}");
        }
        Ok(())
    }

    #[test]
    fn nothing_changes_and_nothing_runs() -> Result<()> {
        let net = Sequential::new().add(BatchNorm1d::new(4)?).add(Dropout::new(0.5)).add(Linear::new(4, 2)?);
        net.get(1).unwrap().eval();
        // A pending forward in training mode has staged statistics, whose graph is none of ours.
        let pending = net.forward(&Tensor::ones([8, 4], DType::F32)?)?;
        let summary = summary(&net, [1, 4])?;
        assert!(net.named_buffers().iter().all(|(_, buffer)| buffer.cell().version() == 0), "still pending");
        assert_eq!(summary.rows.iter().map(|row| row.kind).collect::<Vec<_>>(), ["batch_norm", "linear"]);
        assert_eq!(pending.to_vec::<f32>()?.len(), 16);
        let mut modes = Vec::new();
        walk(&net, &mut |_, item| modes.extend(matches!(item, Item::Mode(mode) if mode.training()).then_some(true)));
        assert_eq!(modes.len(), 1, "batch norm trains again, dropout does not");
        Ok(())
    }

    #[test]
    fn one_layer_alone_and_what_does_not_fit() -> Result<()> {
        let layer = Linear::new(3, 2)?;
        layer.freeze();
        let alone = summary(&layer, [5, 3])?;
        assert_eq!(alone.rows.iter().map(line).collect::<Vec<_>>(), [("", "linear", "[5, 2]".to_string(), 8, 30)]);
        assert!(alone.to_string().contains("Parameters 8 (8 frozen)"), "{alone}");
        let error = summary(&SmallCnn::new([1, 28, 28], 10)?, [1, 3, 28, 28]).unwrap_err().to_string();
        assert!(error.contains("channels"), "{error}");
        assert_eq!((grouped(1_234_567), grouped(12)), ("1,234,567".to_string(), "12".to_string()));
        Ok(())
    }
}
