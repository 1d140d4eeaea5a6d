//! Matrix products on Hopper's tensor cores: launches of `matmul_hopper.cu` for f16 and bf16.

use super::{MatMul, Sizes};
use crate::Result;
use crate::cuda::choice::Candidate;
use crate::cuda::cut::{Module, aligned};
use crate::cuda::hopper::{Tile, slices};
use crate::cuda::kernel::{Argument, Grid, Launch, Launches, Slot};
use crate::cuda::tensor_map::{Piece, TensorMap};
use crate::cuda::{Gpu, Source};
use crate::graph::ir::Operand;
use crate::tensor::DType;

static SOURCE: Source = Source::embedded("matmul_hopper.cu", include_str!("matmul_hopper.cu"));

/// `[m, n] = A B`, input 0 times input 1.
#[derive(Clone, Copy, Debug)]
struct Product {
    m: usize,
    n: usize,
    k: usize,
    /// A is `[k, m]` in memory, not `[m, k]`.
    a_transposed: bool,
    /// B is `[n, k]` in memory, not `[k, n]`.
    b_transposed: bool,
    dtype: DType,
    result: DType,
    /// The type of input 2, which is added to every row.
    bias: Option<DType>,
    relu: bool,
    /// Input 2 is a relu's result, which says where the product becomes zero.
    masked: bool,
}

/// Candidates, the likely best first; none where rows are not whole pieces of 16 bytes.
pub(super) fn candidates(
    op: &MatMul,
    s: &Sizes,
    inputs: &[Operand],
    output: &Operand,
    gpu: &Gpu,
) -> Result<Vec<Candidate>> {
    let product = Product {
        m: s.m,
        n: s.n,
        k: s.k,
        a_transposed: op.transpose_a,
        b_transposed: op.transpose_b,
        dtype: inputs[0].meta.dtype,
        result: output.meta.dtype,
        bias: op.bias(inputs).map(|bias| bias.meta.dtype),
        relu: op.activation.is_relu("matmul")?,
        masked: op.masked,
    };
    let Product { m, n, k, dtype, result, .. } = product;
    let inner = [if product.a_transposed { m } else { k }, if product.b_transposed { k } else { n }, n];
    let fits = gpu.is_hopper()
        && s.batch == 1
        && matches!(dtype, DType::F16 | DType::BF16)
        && inner.iter().all(|size| size.is_multiple_of(8))
        && [m, n, k].iter().all(|size| (1..1 << 30).contains(size));
    if !fits {
        return Ok(Vec::new());
    }
    let mut tiles = vec![Tile::new(128, 256, 4, 1), Tile::new(128, 128, 3, 2), Tile::new(128, 64, 4, 2)];
    if m.div_ceil(128) * n.div_ceil(64) < gpu.multiprocessors {
        let small = Tile { groups: [1, 1], ..Tile::new(64, 64, 6, 2) };
        tiles = vec![small, tiles[2], tiles[1]];
    }
    let mut candidates = Vec::new();
    for tile in tiles.into_iter().filter(|_| result == dtype) {
        let kernel = Launches { launches: vec![whole(&product, tile, gpu)?], workspace: 0, flops: product.flops() };
        let name = format!("own hopper {}", tile.name());
        candidates.push(Candidate { name, kernel: Box::new(kernel) });
    }
    // Long sums of few tiles leave multiprocessors without work, unless they share the steps.
    let few = m.div_ceil(128) * n.div_ceil(128) <= gpu.multiprocessors;
    if result != dtype || few && k >= 1024 {
        for tile in [Tile::new(128, 128, 3, 2), Tile::new(128, 64, 4, 2)] {
            let tile = Tile { buffers: 0, ..tile };
            let name = format!("own hopper shares {}", tile.name());
            candidates.push(Candidate { name, kernel: Box::new(shared(&product, tile, gpu)?) });
        }
    }
    Ok(candidates)
}

impl Product {
    fn flops(&self) -> u64 {
        2 * (self.m * self.n * self.k) as u64
    }

    /// Maps of A and B: rows contiguous, or the summed values.
    fn maps(&self, tile: &Tile) -> [Argument; 2] {
        let Product { m, n, k, a_transposed, b_transposed, dtype, .. } = *self;
        let map = |input: usize, rows: usize, contiguous: bool, chunk: usize, tile_rows: usize| {
            let sizes = if contiguous { vec![rows, k] } else { vec![k, rows] };
            let piece = vec![chunk, if contiguous { tile.depth } else { tile_rows }];
            Argument::Map(Slot::Input(input), TensorMap { dtype, piece: Piece::Box { sizes, piece } })
        };
        [map(0, m, a_transposed, tile.chunk[0], tile.m), map(1, n, !b_transposed, tile.chunk[1], tile.n)]
    }

    fn bias(&self) -> Argument {
        self.bias.map_or(Argument::Null, |_| Argument::Input(2))
    }

    fn mask(&self) -> Argument {
        if self.masked { Argument::Input(2) } else { Argument::Null }
    }

    fn module<'a>(&self, tile: &Tile, gpu: &'a Gpu) -> Module<'a> {
        let module = tile.module(gpu, &SOURCE, self.dtype);
        let module = module.with("A_ROWS", u8::from(self.a_transposed)).with("B_ROWS", u8::from(!self.b_transposed));
        let module = module.of("BIAS_ELEMENT", self.bias.unwrap_or(DType::F32)).of("OUT_ELEMENT", self.result);
        module.with("MASKED", u8::from(self.masked))
    }
}

fn whole(product: &Product, tile: Tile, gpu: &Gpu) -> Result<Launch> {
    let Product { m, n, k, dtype, relu, .. } = *product;
    let [a, b] = product.maps(&tile);
    let piece = Piece::Box { sizes: vec![n, m], piece: vec![tile.out_chunk(), 64] };
    let out = Argument::Map(Slot::Output(0), TensorMap { dtype, piece });
    let sizes = [m, n, k, usize::from(relu)].map(|x| Argument::I32(x as i32));
    let arguments = [vec![a, b, out, product.bias(), product.mask()], sizes.to_vec()].concat();
    let tiles = m.div_ceil(tile.m) * n.div_ceil(tile.n);
    let blocks = tiles.min(gpu.multiprocessors * tile.blocks);
    let grid = Grid { shared: tile.shared() as u32, ..Grid::line(blocks, tile.threads()) };
    product.module(&tile, gpu).launch("matmul_hopper", grid, arguments)
}

fn shared(product: &Product, tile: Tile, gpu: &Gpu) -> Result<Launches> {
    let Product { m, n, k, relu, .. } = *product;
    let module = product.module(&tile, gpu);
    let [tiles_m, tiles_n, steps] = [m.div_ceil(tile.m), n.div_ceil(tile.n), k.div_ceil(tile.depth)];
    let tiles = tiles_m * tiles_n;
    // Four steps a share at least: less does not pay for its slot.
    let shares = (tiles * steps / 4).clamp(1, gpu.multiprocessors * tile.blocks);
    let numbers = |list: &[usize]| list.iter().map(|x| Argument::I32(*x as i32)).collect::<Vec<_>>();
    let [a, b] = product.maps(&tile);
    let arguments = [vec![a, b, Argument::Workspace(0)], numbers(&[tiles_m, tiles_n, steps])].concat();
    let grid = Grid { shared: tile.shared() as u32, ..Grid::line(shares, tile.threads()) };
    let multiply = module.launch("matmul_hopper_shares", grid, arguments)?;
    let sizes = numbers(&[m, n, tiles_m, tiles_n, steps, shares, usize::from(relu)]);
    let (bias, mask) = (product.bias(), product.mask());
    let arguments = [vec![Argument::Workspace(0), bias, mask, Argument::Output(0)], sizes].concat();
    let blocks = (m * n / 4).div_ceil(32) as u32;
    let grid = Grid { blocks: [blocks, 1, 1], threads: [32, slices(shares, tiles) as u32, 1], shared: 0 };
    let launches = vec![multiply, module.launch("matmul_hopper_sum", grid, arguments)?];
    Ok(Launches { launches, workspace: aligned((shares + tiles) * tile.m * tile.n * 4), flops: product.flops() })
}
