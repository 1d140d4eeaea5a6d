//! Chains of element-wise ops as generated kernels.
//!
//! The text says which ops and types there are and how operands are read; sizes and strides are arguments. So a
//! network's chains are compiled once, whatever its sizes and the batch.

use super::index::Numbers;
use super::kernel::{Argument, Grid, Kernel, Launch, Launches};
use super::{Gpu, Source, cuda_type};
use crate::Result;
use crate::cpu::elementwise::{Access, Program};
use crate::tensor::DType;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt::Write;

/// Threads of a block.
const THREADS: usize = 256;

/// The kernel of a program whose ops are called `name`.
pub(crate) fn kernel(program: &Program, name: &str, gpu: &Gpu) -> Result<Box<dyn Kernel>> {
    if program.numel() == 0 {
        return Ok(Box::new(Launches::default()));
    }
    let generated = generate(program, name);
    let source = Source { name: Cow::Borrowed("elementwise.cu"), text: Cow::Owned(generated.text) };
    let function = gpu.function(&source, &generated.name, &[])?;
    let blocks = program.numel().div_ceil(generated.vector * THREADS);
    // Enough blocks that the last to finish are a small part; beyond that threads take several vectors each.
    let blocks = blocks.min(64 * gpu.multiprocessors());
    let mut arguments: Vec<Argument> = (0..program.operands.len()).map(Argument::Input).collect();
    arguments.extend((0..program.results.len()).map(Argument::Output));
    arguments.push(Argument::I64(program.numel() as i64));
    arguments.extend(generated.walk.map(Argument::Bytes));
    let grid = Grid::line(blocks, THREADS as u32);
    Ok(Box::new(Launches { launches: vec![Launch { function, grid, arguments }], ..Launches::default() }))
}

/// A kernel's source and what its launch needs.
struct Generated {
    name: String,
    text: String,
    /// Elements that a thread handles at once.
    vector: usize,
    /// Sizes and strides, where an operand is broadcast.
    walk: Option<Vec<u8>>,
}

/// How an operand is read by a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    /// A vector where the result's vector is.
    Full,
    /// One element for all, before anything else.
    Scalar,
    /// By strides, the n-th operand of this kind.
    Strided(usize),
}

/// The dimensions that broadcast operands are read over, neighbours that none of them tells apart joined.
struct Walk {
    sizes: SmallVec<[usize; 4]>,
    /// Of each broadcast operand.
    strides: Vec<SmallVec<[usize; 4]>>,
}

impl Walk {
    fn new(program: &Program) -> Walk {
        let strided: Vec<&[usize]> = (program.operands.iter())
            .filter_map(|o| if let Access::Strided(strides) = &o.access { Some(&strides[..]) } else { None })
            .collect();
        let mut walk = Walk { sizes: SmallVec::new(), strides: vec![SmallVec::new(); strided.len()] };
        for (d, &size) in program.shape.iter().enumerate().filter(|(_, size)| **size != 1) {
            let joins = !walk.sizes.is_empty()
                && walk.strides.iter().zip(&strided).all(|(kept, own)| kept.last() == Some(&(own[d] * size)));
            if let Some(last) = walk.sizes.last_mut().filter(|_| joins) {
                *last *= size;
            } else {
                walk.sizes.push(size);
            }
            for (kept, own) in walk.strides.iter_mut().zip(&strided) {
                match kept.last_mut().filter(|_| joins) {
                    Some(last) => *last = own[d],
                    None => kept.push(own[d]),
                }
            }
        }
        walk
    }

    fn last(&self) -> usize {
        self.sizes.len() - 1
    }
}

fn compute_type(dtype: DType) -> &'static str {
    cuda_type(dtype.compute())
}

fn generate(program: &Program, ops: &str) -> Generated {
    let walk = Walk::new(program);
    let mut strided = 0;
    let reads: Vec<Read> = (program.operands.iter())
        .map(|operand| match &operand.access {
            Access::Full => Read::Full,
            Access::Scalar => Read::Scalar,
            Access::Strided(_) => {
                strided += 1;
                // Only dimensions of size 1 set its shape apart from the result's.
                let same = walk.sizes.len() == 1 && walk.strides[strided - 1][0] == 1;
                if same { Read::Full } else { Read::Strided(strided - 1) }
            }
        })
        .collect();
    let widest = (program.operands.iter().zip(&reads))
        .filter(|(_, read)| **read != Read::Scalar)
        .map(|(operand, _)| operand.dtype.size())
        .chain(program.results.iter().map(|r| program.dtype(*r).size()))
        .max();
    // 16 bytes are the widest access a thread has; elements of other sizes go in step with it.
    let vector = 16 / widest.unwrap_or(16);
    let mut numbers = Numbers::up_to(program.numel());
    let broadcast = reads.iter().any(|r| matches!(r, Read::Strided(_)));
    let text = Text { program, reads: &reads, walk: &walk, vector, index: numbers.cuda_type() };
    let name = function_name(ops);
    let text = text.write(&name).expect("a String takes any text");
    let walk = broadcast.then(|| {
        walk.sizes.iter().for_each(|size| numbers.divisor(*size));
        walk.strides.iter().flatten().for_each(|stride| numbers.number(*stride as isize));
        numbers.bytes()
    });
    Generated { name, text, vector, walk }
}

/// The names of the ops as one that C++ takes, so that profiles show what a kernel does.
fn function_name(ops: &str) -> String {
    let plain = ops.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    std::iter::once("fused_".to_string()).chain(plain.map(String::from)).collect()
}

/// Writes the source.
struct Text<'a> {
    program: &'a Program,
    reads: &'a [Read],
    walk: &'a Walk,
    vector: usize,
    index: &'static str,
}

impl Text<'_> {
    fn write(&self, name: &str) -> Result<String, std::fmt::Error> {
        let mut text = String::from("#include \"elementwise.cuh\"\n");
        let t = &mut text;
        let (program, vector) = (self.program, self.vector);
        let broadcast = self.reads.iter().any(|r| matches!(r, Read::Strided(_)));
        if broadcast {
            let (rank, operands, index) = (self.walk.sizes.len(), self.walk.strides.len(), self.index);
            writeln!(t, "struct Walk {{ Divisor<{index}> sizes[{rank}]; {index} strides[{operands}][{rank}]; }};")?;
        }
        write!(t, "extern \"C\" __global__ void {name}(")?;
        for (i, operand) in program.operands.iter().enumerate() {
            write!(t, "const {} *__restrict__ x{i}, ", cuda_type(operand.dtype))?;
        }
        for (k, r) in program.results.iter().enumerate() {
            write!(t, "{} *__restrict__ y{k}, ", cuda_type(program.dtype(*r)))?;
        }
        writeln!(t, "u64 count{}) {{", if broadcast { ", Walk walk" } else { "" })?;
        for (i, operand) in self.operands(|r| r == Read::Scalar) {
            writeln!(t, "    const {} s{i} = widen(*x{i});", compute_type(operand.dtype))?;
        }
        writeln!(
            t,
            "    for (u64 at = (u64)first_element() * {vector}; at < count; at += (u64)element_stride() * {vector}) {{"
        )?;
        for (i, _) in self.operands(|r| r == Read::Full) {
            writeln!(t, "        const auto v{i} = load<{vector}>(x{i}, at, count);")?;
        }
        if broadcast {
            self.gather(t)?;
        }
        for (k, r) in program.results.iter().enumerate() {
            writeln!(t, "        Vector<{}, {vector}> w{k};", cuda_type(program.dtype(*r)))?;
        }
        writeln!(t, "#pragma unroll\n        for (int k = 0; k < {vector}; k++) {{")?;
        self.compute(t)?;
        writeln!(t, "        }}")?;
        for k in 0..program.results.len() {
            writeln!(t, "        store<{vector}>(y{k}, at, count, w{k});")?;
        }
        writeln!(t, "    }}\n}}")?;
        Ok(text)
    }

    fn operands(
        &self,
        which: impl Fn(Read) -> bool,
    ) -> impl Iterator<Item = (usize, &crate::cpu::elementwise::Operand)> {
        self.program.operands.iter().enumerate().filter(move |(i, _)| which(self.reads[*i]))
    }

    /// Reads broadcast operands into vectors.
    fn gather(&self, t: &mut String) -> std::fmt::Result {
        let (vector, last) = (self.vector, self.walk.last());
        let strided = || {
            let place = |i: usize| if let Read::Strided(n) = self.reads[i] { Some((i, n)) } else { None };
            (0..self.reads.len()).filter_map(place)
        };
        for (i, _) in strided() {
            writeln!(t, "        Vector<{}, {vector}> v{i};", cuda_type(self.program.operands[i].dtype))?;
        }
        // Where rows are whole vectors, one position serves all elements of a vector.
        let rows = self.walk.sizes[last].is_multiple_of(vector);
        if rows {
            writeln!(t, "        {{\n            {} rest = ({})at;", self.index, self.index)?;
        } else {
            let index = self.index;
            writeln!(t, "#pragma unroll\n        for (int k = 0; k < {vector}; k++) {{")?;
            // Behind the last element there is no position: the last stands in.
            writeln!(t, "            {index} rest = ({index})(at + k < count ? at + k : count - 1);")?;
        }
        let used = |d: usize| strided().any(|(_, n)| self.walk.strides[n][d] != 0);
        let first = (0..=last).find(|d| used(*d)).unwrap_or(last);
        for d in (first..=last).rev() {
            match d {
                0 => writeln!(t, "            const {} d0 = rest;", self.index)?,
                _ if used(d) => writeln!(t, "            const {} d{d} = digit(rest, walk.sizes[{d}]);", self.index)?,
                _ => writeln!(t, "            digit(rest, walk.sizes[{d}]);")?,
            }
        }
        for (i, n) in strided() {
            let strides = &self.walk.strides[n];
            let terms: Vec<String> = (0..=last)
                .filter(|d| strides[*d] != 0)
                .map(|d| match strides[d] {
                    1 => format!("d{d}"),
                    _ => format!("d{d} * walk.strides[{n}][{d}]"),
                })
                .collect();
            let place = terms.join(" + ");
            match strides[last] {
                _ if !rows => writeln!(t, "            v{i}.at[k] = x{i}[{place}];")?,
                0 => writeln!(t, "            fill(v{i}, x{i}[{place}]);")?,
                1 if strides[..last].iter().all(|s| s.is_multiple_of(vector)) => {
                    writeln!(t, "            v{i} = whole_vector<{vector}>(x{i}, {place});")?;
                }
                _ => {
                    let stride = format!("walk.strides[{n}][{last}]");
                    writeln!(
                        t,
                        "            for (int k = 0; k < {vector}; k++) v{i}.at[k] = x{i}[{place} + k * {stride}];"
                    )?;
                }
            }
        }
        writeln!(t, "        }}")
    }

    /// Computes one element of every result.
    fn compute(&self, t: &mut String) -> std::fmt::Result {
        let program = self.program;
        for (i, operand) in program.operands.iter().enumerate() {
            match self.reads[i] {
                Read::Scalar => writeln!(t, "            const {} r{i} = s{i};", compute_type(operand.dtype))?,
                _ => writeln!(t, "            const {} r{i} = widen(v{i}.at[k]);", compute_type(operand.dtype))?,
            }
        }
        for (j, instruction) in program.instructions.iter().enumerate() {
            let (r, wide) = (program.operands.len() + j, compute_type(instruction.dtype));
            let first = compute_type(program.dtype(instruction.args[0]));
            write!(t, "            {wide} r{r};\n            {{ typedef {first} T; ")?;
            for (name, arg) in ["a", "b", "c"].iter().zip(&instruction.args) {
                write!(t, "const {} {name} = r{arg}; ", compute_type(program.dtype(*arg)))?;
            }
            match instruction.dtype.compute() == instruction.dtype {
                true => writeln!(t, "r{r} = ({wide})({}); }}", instruction.cuda)?,
                // As if it had been stored and read again.
                false => writeln!(t, "r{r} = rounded<{}>({}); }}", cuda_type(instruction.dtype), instruction.cuda)?,
            }
        }
        for (k, r) in program.results.iter().enumerate() {
            writeln!(t, "            w{k}.at[k] = narrow<{}>(r{r});", cuda_type(program.dtype(*r)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::elementwise::{Instruction, Operand};
    use smallvec::smallvec;

    /// x · (an operand of these strides) + a number, over this shape.
    fn scaled(shape: &[usize], strides: &[usize]) -> Program {
        unsafe fn nothing(_: [*const u8; 3], _: *mut u8, _: usize) {}
        let instruction = |cuda, args| Instruction { tile: nothing, cuda, args, dtype: DType::F32 };
        let operand = |access| Operand { access, dtype: DType::F32 };
        Program {
            shape: shape.into(),
            operands: vec![operand(Access::Full), operand(Access::Strided(strides.into())), operand(Access::Scalar)],
            instructions: vec![instruction("product(a, b)", smallvec![0, 1]), instruction("a + b", smallvec![3, 2])],
            results: vec![4],
        }
    }

    #[test]
    fn dimensions_that_no_operand_tells_apart_are_joined() {
        let walk = Walk::new(&scaled(&[2, 3, 1, 5, 8], &[0, 0, 0, 0, 1]));
        assert_eq!((&walk.sizes[..], &walk.strides[0][..]), (&[30, 8][..], &[0, 1][..]));
        let walk = Walk::new(&scaled(&[2, 3, 4], &[12, 4, 1]));
        assert_eq!((&walk.sizes[..], &walk.strides[0][..]), (&[24][..], &[1][..]));
        let walk = Walk::new(&scaled(&[2, 3, 4], &[0, 1, 0]));
        assert_eq!(walk.sizes[..], [2, 3, 4]);
    }

    #[test]
    fn one_source_serves_all_sizes() {
        let text = |shape: &[usize]| generate(&scaled(shape, &[0, 1]), "mul·add");
        let (small, large) = (text(&[2, 8]), text(&[1000, 64]));
        assert_eq!((&small.name[..], small.vector), ("fused_mul_add", 4));
        assert_eq!(small.text, large.text);
        assert_ne!(small.walk, large.walk);
        // Rows that are no whole vectors are walked element by element.
        assert_ne!(small.text, text(&[2, 7]).text);
    }
}
