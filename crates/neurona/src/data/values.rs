//! What the bytes of an image stand for.

use std::sync::{Arc, LazyLock};

/// What the values of an image are.
#[derive(Clone, Debug, Default)]
pub(crate) enum Values {
    /// Bytes, as decoded.
    #[default]
    Bytes,
    /// Bytes that stand for 0 to 1.
    Unit,
    /// Bytes that stand for what these tables say.
    Normalised(Arc<Tables>),
    /// Floats of their own.
    Floats,
}

/// The memory of an image, whatever it holds.
pub(crate) enum Pixels<'a> {
    Bytes(&'a mut [u8]),
    Floats(&'a mut [f32]),
}

/// What each byte becomes, by channel: looked up it costs nothing, and is PyTorch's value to the bit.
#[derive(Debug)]
pub(crate) struct Tables([[f32; 256]; 3]);

/// From 0 to 1.
pub(crate) static UNIT: LazyLock<Tables> = LazyLock::new(|| Tables::new([0.0; 3], [1.0; 3]));

impl Tables {
    /// `(byte / 255 - mean) / deviation`, rounded after each step as PyTorch does.
    pub(crate) fn new(mean: [f32; 3], deviation: [f32; 3]) -> Self {
        Tables(std::array::from_fn(|c| std::array::from_fn(|byte| (byte as f32 / 255.0 - mean[c]) / deviation[c])))
    }

    /// Plane by plane.
    pub(crate) fn write(&self, bytes: &[u8], channels: usize, out: &mut [f32]) {
        let [red, green, blue] = &self.0;
        if channels == 1 {
            out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = red[*byte as usize]);
            return;
        }
        // One walk over the pixels with three places to write is faster than three walks with a stride.
        let (first, rest) = out.split_at_mut(bytes.len() / 3);
        let (second, third) = rest.split_at_mut(bytes.len() / 3);
        let planes = first.iter_mut().zip(second).zip(third);
        for (pixel, ((r, g), b)) in bytes.as_chunks::<3>().0.iter().zip(planes) {
            *r = red[pixel[0] as usize];
            *g = green[pixel[1] as usize];
            *b = blue[pixel[2] as usize];
        }
    }

    /// Channels side by side, as the bytes are.
    pub(crate) fn spread(&self, bytes: &[u8], channels: usize, out: &mut Vec<f32>) {
        out.clear();
        let tables = self.0.iter().take(channels).cycle();
        out.extend(bytes.iter().zip(tables).map(|(byte, table)| table[*byte as usize]));
    }
}
