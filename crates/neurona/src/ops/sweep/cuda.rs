//! One launch over all parameters of a model, shared by the optimizers' kernels; `sweep.cuh` is its other half. Large
//! models take several: the last layers' parameters change while the first layers' gradients are still on their way.

use crate::Result;
use crate::cuda::kernel::{ARGUMENT_BYTES, Argument, Grid, Kernel, Launch, Launches, Slot};
use crate::cuda::{Gpu, Source, cuda_type};
use crate::graph::ir::Operand;
use crate::tensor::DType;

/// Threads of a block. Each has one 16-byte access a parameter, gradient and state.
const THREADS: usize = 256;

/// Elements of a launch, beside those of its last parameter: enough to fill any GPU.
const ELEMENTS: usize = 4 << 20;

/// An optimizer's kernel: where it is, and which of its options are on.
pub(crate) struct Step {
    pub source: Source,
    pub function: &'static str,
    pub flags: Vec<(&'static str, bool)>,
}

impl Step {
    /// Launches for parameters that have this many operands each (parameter, gradient, state), and the scalars last.
    /// A launch has parameters of one element type with gradients of one.
    pub fn kernel(self, inputs: &[Operand], operands: usize, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
        let dtypes = |i: usize| (inputs[i * operands].meta.dtype, inputs[i * operands + 1].meta.dtype);
        let mut groups: Vec<((DType, DType), Vec<usize>)> = Vec::new();
        for i in (0..inputs.len() / operands).filter(|i| inputs[i * operands].meta.shape.numel() > 0) {
            match groups.iter_mut().find(|(of, _)| *of == dtypes(i)) {
                Some((_, parameters)) => parameters.push(i),
                None => groups.push((dtypes(i), vec![i])),
            }
        }
        let mut launches = Vec::new();
        for ((dtype, gradient), parameters) in groups {
            let sizes: Vec<usize> = parameters.iter().map(|i| inputs[i * operands].meta.shape.numel()).collect();
            let mut rest = &parameters[..];
            for count in counts(&sizes, most(operands)) {
                let (now, later) = rest.split_at(count);
                launches.push(self.launch(inputs, operands, (dtype, gradient), now, gpu)?);
                rest = later;
            }
        }
        Ok(Box::new(Launches { launches, ..Launches::default() }))
    }

    fn launch(
        &self,
        inputs: &[Operand],
        operands: usize,
        (dtype, gradient): (DType, DType),
        parameters: &[usize],
        gpu: &Gpu,
    ) -> Result<Launch> {
        // Few capacities, so that few kernels are compiled.
        let capacity = parameters.len().next_power_of_two().min(most(operands));
        let piece = THREADS * 16 / dtype.size().max(gradient.size());
        let mut slots = vec![Slot::Null; capacity * addresses(operands)];
        let (mut sizes, mut first) = (vec![0i64; capacity], vec![0u32]);
        for (n, &i) in parameters.iter().enumerate() {
            let slots = &mut slots[n * addresses(operands)..];
            (0..operands).for_each(|k| slots[k] = Slot::Input(i * operands + k));
            (0..operands - 1).for_each(|k| slots[operands + k] = Slot::Output(i * (operands - 1) + k));
            let size = inputs[i * operands].meta.shape.numel();
            sizes[n] = size as i64;
            first.push(first[n] + size.div_ceil(piece) as u32);
        }
        let blocks = first[parameters.len()];
        first.resize(capacity + 1, blocks);
        first.push(parameters.len() as u32);
        let mut pieces: Vec<u8> = sizes.iter().flat_map(|n| n.to_ne_bytes()).collect();
        pieces.extend(first.iter().flat_map(|n| n.to_ne_bytes()));
        // The struct's own alignment.
        pieces.resize(pieces.len().next_multiple_of(8), 0);
        let mut macros = vec![
            ("ELEMENT", cuda_type(dtype).into()),
            ("GRADIENT", cuda_type(gradient).into()),
            ("CAPACITY", capacity.to_string()),
            ("OPERANDS", operands.to_string()),
        ];
        macros.extend(self.flags.iter().map(|(name, on)| (*name, u8::from(*on).to_string())));
        Ok(Launch {
            function: gpu.function(&self.source, self.function, &macros)?,
            grid: Grid::line(blocks as usize, THREADS as u32),
            arguments: vec![Argument::Addresses(slots), Argument::Bytes(pieces), Argument::Input(inputs.len() - 1)],
        })
    }
}

/// How many parameters each launch has, given their sizes and how many it has room for.
fn counts(sizes: &[usize], most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = Vec::new();
    let mut elements = usize::MAX;
    for size in sizes {
        match counts.last_mut() {
            Some(count) if *count < most && elements < ELEMENTS => *count += 1,
            _ => {
                counts.push(1);
                elements = 0;
            }
        }
        elements += size;
    }
    counts
}

/// Addresses of one parameter: its operands, and all but the gradient again as results.
fn addresses(operands: usize) -> usize {
    2 * operands - 1
}

/// Parameters whose addresses, sizes and first blocks fit the arguments of one launch.
fn most(operands: usize) -> usize {
    (ARGUMENT_BYTES - 32) / (addresses(operands) * 8 + 8 + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_models_take_several_launches() {
        assert_eq!(counts(&[], 3), [0; 0]);
        assert_eq!(counts(&[5; 7], 3), [3, 3, 1]);
        assert_eq!(counts(&[10, ELEMENTS - 10, 1, ELEMENTS, 1], 9), [2, 2, 1]);
    }

    #[test]
    fn a_launch_has_room_for_many_parameters() {
        assert_eq!((most(2), most(3), most(4), most(5)), (112, 78, 59, 48));
        for operands in 2..=5 {
            let bytes = most(operands) * (addresses(operands) * 8 + 12) + 8 + 8 + 8;
            assert!(bytes <= ARGUMENT_BYTES);
        }
    }
}
