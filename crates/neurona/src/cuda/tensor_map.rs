//! What Hopper's copy engine must know of a tensor in memory: its place and sizes, and the piece that one copy moves.

use super::driver::check;
use crate::Result;
use crate::tensor::DType;
use cudarc::driver::sys;

/// Bytes of an encoded map.
pub(crate) const MAP_BYTES: usize = 128;

/// A tensor of 16-bit values and the piece that one copy moves. Pieces lie swizzled in shared memory, in rows of 128, 64
/// or 32 bytes: as long as the piece's innermost size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TensorMap {
    pub dtype: DType,
    pub piece: Piece,
}

/// What one copy moves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    /// A box of a dense tensor; innermost sizes first.
    Box { sizes: Vec<usize>, piece: Vec<usize> },
    /// A run of pixels of images in NHWC, moved by a filter tap. Pixels are counted along rows of a grid of base pixels.
    Pixels {
        /// Images, height, width, channels.
        sizes: [usize; 4],
        /// Place of the first base pixel of an image: row, column.
        low: [i32; 2],
        /// Base pixels of an image, down and across.
        count: [usize; 2],
        /// From one base pixel to the next.
        step: [usize; 2],
        channels: usize,
        pixels: usize,
    },
}

impl Piece {
    /// Whether the copy engine can count so.
    pub fn pixels_fit(sizes: [usize; 4], low: [i32; 2], count: [usize; 2], step: [usize; 2], pixels: usize) -> bool {
        let corners = [0, 1].map(|i| (low[i], high(sizes[1 + i], low[i], count[i], step[i])));
        let small = |x: i64| (-128..128).contains(&x);
        corners.iter().all(|(low, high)| small(i64::from(*low)) && small(*high))
            && step.iter().all(|s| (1..=8).contains(s))
            && pixels <= 1024
    }
}

/// The last base pixel's distance from the last pixel.
fn high(size: usize, low: i32, count: usize, step: usize) -> i64 {
    i64::from(low) + ((count as i64) - 1) * step as i64 + 1 - size as i64
}

impl TensorMap {
    /// The map for a tensor at this address, as kernels get it.
    pub fn encode(&self, address: u64) -> Result<[u8; MAP_BYTES]> {
        use sys::CUtensorMapDataType_enum as Type;
        let element = match self.dtype {
            DType::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            _ => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        };
        let plain = sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE;
        let zeros = sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
        let promote = sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        let place = address as *mut std::ffi::c_void;
        let code = match &self.piece {
            Piece::Box { sizes, piece } => {
                let steps = vec![1u32; sizes.len()];
                let (sizes, strides) = dense(sizes);
                let piece: Vec<u32> = piece.iter().map(|size| *size as u32).collect();
                // SAFETY: writes the map; all lists have as many elements as the tensor has axes, the strides one less.
                unsafe {
                    sys::cuTensorMapEncodeTiled(
                        &mut map,
                        element,
                        sizes.len() as u32,
                        place,
                        sizes.as_ptr(),
                        strides.as_ptr(),
                        piece.as_ptr(),
                        steps.as_ptr(),
                        plain,
                        swizzle(piece[0] as usize),
                        promote,
                        zeros,
                    )
                }
            }
            Piece::Pixels { sizes: [n, h, w, c], low, count, step, channels, pixels } => {
                let (sizes, strides) = dense(&[*c, *w, *h, *n]);
                let lowest = [low[1], low[0]];
                let highest = [high(*w, low[1], count[1], step[1]) as i32, high(*h, low[0], count[0], step[0]) as i32];
                let steps = [1, step[1] as u32, step[0] as u32, 1];
                // SAFETY: writes the map; the lists have four elements, strides three, corners two.
                unsafe {
                    sys::cuTensorMapEncodeIm2col(
                        &mut map,
                        element,
                        4,
                        place,
                        sizes.as_ptr(),
                        strides.as_ptr(),
                        lowest.as_ptr(),
                        highest.as_ptr(),
                        *channels as u32,
                        *pixels as u32,
                        steps.as_ptr(),
                        plain,
                        swizzle(*channels),
                        promote,
                        zeros,
                    )
                }
            }
        };
        check(code, || format!("describe a tensor to the copy engine: {:?}", self.piece))?;
        let mut bytes = [0; MAP_BYTES];
        for (to, from) in bytes.chunks_exact_mut(8).zip(map.opaque) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        Ok(bytes)
    }
}

/// Sizes, and the bytes from one element to the next along every axis but the innermost.
fn dense(sizes: &[usize]) -> (Vec<u64>, Vec<u64>) {
    let strides = sizes.iter().scan(2u64, |stride, size| {
        *stride *= *size as u64;
        Some(*stride)
    });
    (sizes.iter().map(|size| *size as u64).collect(), strides.take(sizes.len() - 1).collect())
}

/// The swizzle for rows of this many values.
fn swizzle(values: usize) -> sys::CUtensorMapSwizzle_enum {
    use sys::CUtensorMapSwizzle_enum as Swizzle;
    match values {
        64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        _ => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
    }
}
