//! Multi-head attention.

use super::{Forward, Linear, Mode, Module, ModulePath, Parameter, init};
use crate::tensor::here;
use crate::{Error, Result, Tensor};

/// Attention in several heads: each position of the queries takes a mean of the values, weighted by how well its
/// query fits their keys. Names, shapes and starting values of parameters are PyTorch's.
///
/// ```
/// use neurona::{Tensor, nn::{Forward, MultiheadAttention}};
/// let layer = MultiheadAttention::new(8, 2)?.batch_first();
/// let y = layer.forward(&Tensor::randn([3, 5, 8])?)?;
/// assert_eq!(y.shape().to_string(), "[3, 5, 8]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct MultiheadAttention {
    /// `[3 dim, dim]`: what makes queries, keys and values.
    pub in_proj_weight: Parameter,
    /// `[3 dim]`.
    pub in_proj_bias: Option<Parameter>,
    /// What joins the heads.
    pub out_proj: Linear,
    /// The number of heads.
    pub heads: usize,
    /// Whether tensors are `[n, length, dim]` and not `[length, n, dim]`.
    pub batch_first: bool,
    /// The probability of a weight to be zeroed in training.
    pub dropout: f64,
    mode: Mode,
    path: ModulePath,
}

impl MultiheadAttention {
    /// For vectors of `dim` elements in this many heads, which must divide it.
    #[track_caller]
    pub fn new(dim: usize, heads: usize) -> Result<Self> {
        if heads == 0 || dim == 0 || !dim.is_multiple_of(heads) {
            let problem = format!("{dim} elements do not divide into {heads} heads");
            return Err(Error::op("multihead_attention", problem).at(here()));
        }
        let out_proj = Linear::new(dim, dim)?;
        if let Some(bias) = &out_proj.bias {
            bias.set(&init::zeros([dim])?)?;
        }
        Ok(MultiheadAttention {
            in_proj_weight: Parameter::new(&init::xavier_uniform([3 * dim, dim], 1.0)?)?,
            in_proj_bias: Some(Parameter::new(&init::zeros([3 * dim])?)?),
            out_proj,
            heads,
            batch_first: false,
            dropout: 0.0,
            mode: Mode::default(),
            path: ModulePath::default(),
        })
    }

    /// The same layer for tensors `[n, length, dim]`.
    pub fn batch_first(mut self) -> Self {
        self.batch_first = true;
        self
    }

    /// The same layer, which zeroes weights with this probability in training.
    pub fn dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// The same layer without biases.
    pub fn without_bias(mut self) -> Self {
        self.in_proj_bias = None;
        self.out_proj.bias = None;
        self
    }

    /// Attention of queries to other keys and values. A mask is added to how well each query `[…, queries, keys]`
    /// fits each key: −∞ forbids. It broadcasts to `[n, heads, queries, keys]`.
    ///
    /// ```
    /// use neurona::{Tensor, nn::MultiheadAttention};
    /// let layer = MultiheadAttention::new(8, 2)?.batch_first();
    /// let (queries, keys) = (Tensor::randn([3, 4, 8])?, Tensor::randn([3, 6, 8])?);
    /// let y = layer.attend(&queries, &keys, &keys, None)?;
    /// assert_eq!(y.shape().to_string(), "[3, 4, 8]");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    #[track_caller]
    pub fn attend(&self, queries: &Tensor, keys: &Tensor, values: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let _scope = self.path.enter();
        let (queries, keys, values) = (self.checked(queries)?, self.checked(keys)?, self.checked(values)?);
        let (weight, bias) = (self.in_proj_weight.get()?, self.in_proj_bias.as_ref().map(Parameter::get).transpose()?);
        let dim = weight.shape()[1];
        let part = |x: &Tensor, i: usize| -> Result<Tensor> {
            let bias = bias.as_ref().map(|b| b.narrow(0, i * dim, dim)).transpose()?;
            self.heads_of(&x.linear(&weight.narrow(0, i * dim, dim)?, bias.as_ref())?)
        };
        self.joined(&part(&queries, 0)?, &part(&keys, 1)?, &part(&values, 2)?, mask)
    }

    /// The tensor with the batch first.
    #[track_caller]
    fn checked(&self, x: &Tensor) -> Result<Tensor> {
        let dim = self.in_proj_weight.shape()[1];
        if x.rank() != 3 || x.shape()[2] != dim {
            let order = if self.batch_first { "n, length" } else { "length, n" };
            return Err(x.error("multihead_attention", format!("needs an input [{order}, {dim}]")));
        }
        if self.batch_first { Ok(x.clone()) } else { x.transpose(0, 1) }
    }

    /// `[n, length, dim]` as `[n, heads, length, dim / heads]`.
    fn heads_of(&self, x: &Tensor) -> Result<Tensor> {
        let (n, length, dim) = (x.shape()[0], x.shape()[1], x.shape()[2]);
        x.reshape([n, length, self.heads, dim / self.heads])?.permute(&[0, 2, 1, 3])
    }

    /// Attention of each head, and what joins them.
    #[track_caller]
    fn joined(&self, queries: &Tensor, keys: &Tensor, values: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let &[n, heads, length, size] = &queries.shape()[..] else {
            return Err(queries.error("multihead_attention", "needs heads"));
        };
        let mut fit = queries.mul_scalar(1.0 / (size as f64).sqrt())?.matmul(&keys.transpose(-2, -1)?)?;
        if let Some(mask) = mask {
            fit = fit.add(mask)?;
        }
        let mut weights = fit.softmax(-1)?;
        if self.mode.training() && self.dropout > 0.0 {
            weights = weights.dropout(self.dropout)?;
        }
        let y = weights.matmul(values)?.permute(&[0, 2, 1, 3])?.reshape([n, length, heads * size])?;
        let y = self.out_proj.forward(&y)?;
        if self.batch_first { Ok(y) } else { y.transpose(0, 1) }
    }
}

/// Self-attention: queries, keys and values come from one tensor, and from one matrix product.
impl Forward for MultiheadAttention {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let x = self.checked(x)?;
        let bias = self.in_proj_bias.as_ref().map(Parameter::get).transpose()?;
        let all = x.linear(&self.in_proj_weight.get()?, bias.as_ref())?;
        let dim = x.shape()[2];
        let part = |i: usize| self.heads_of(&all.narrow(2, i * dim, dim)?);
        self.joined(&part(0)?, &part(1)?, &part(2)?, None)
    }
}
