//! `upsample_nearest2d`: images enlarged by repeating pixels.

use crate::Result;
use crate::tensor::Tensor;

impl Tensor {
    /// Images `[n, c, h, w]` at another size, each pixel that of the nearest one before, as PyTorch's `nearest`.
    ///
    /// ```
    /// let x = neurona::Tensor::from([[1.0f32, 2.0]]).reshape([1, 1, 1, 2])?;
    /// assert_eq!(x.upsample_nearest2d([1, 4])?.to_vec::<f32>()?, [1.0, 1.0, 2.0, 2.0]);
    /// assert_eq!(x.upsample_nearest2d([1, 3])?.to_vec::<f32>()?, [1.0, 1.0, 2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn upsample_nearest2d(&self, size: [usize; 2]) -> Result<Tensor> {
        let &[n, c, h, w] = &self.shape()[..] else {
            return Err(self.error("upsample_nearest2d", "needs images [n, c, h, w]"));
        };
        let [oh, ow] = size;
        if [h, w, oh, ow].contains(&0) {
            let problem = format!("images of {h} x {w} cannot become {oh} x {ow}");
            return Err(self.error("upsample_nearest2d", problem));
        }
        if oh % h == 0 && ow % w == 0 {
            let cells = self.reshape([n, c, h, 1, w, 1])?;
            return cells.broadcast_to([n, c, h, oh / h, w, ow / w])?.reshape([n, c, oh, ow]);
        }
        let rows = if oh == h { self.clone() } else { self.index_select(2, &nearest(h, oh)?.to(self.device())?)? };
        if ow == w { Ok(rows) } else { rows.index_select(3, &nearest(w, ow)?.to(self.device())?) }
    }
}

/// In single precision, as PyTorch computes it: the places must be the same.
fn nearest(from: usize, to: usize) -> Result<Tensor> {
    let scale = from as f32 / to as f32;
    let places = (0..to).map(|i| ((i as f32 * scale) as i64).min(from as i64 - 1)).collect();
    Tensor::from_vec::<i64>(places, [to])
}
