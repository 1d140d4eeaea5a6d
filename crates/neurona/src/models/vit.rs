//! The vision transformer, as torchvision has it.

use super::start;
use crate::nn::{Conv2d, Dropout, Forward, GELU, LayerNorm, Linear, Module, ModulePath, MultiheadAttention, Parameter};
use crate::nn::{Sequential, init};
use crate::tensor::here;
use crate::{Error, Result, Tensor};

/// Sizes of a [`VisionTransformer`], with torchvision's names.
///
/// ```
/// use neurona::models::vit::VitOptions;
/// let options = VitOptions { image_size: 32, num_layers: 2, ..VitOptions::B16 };
/// assert_eq!((options.hidden_dim, options.patch_size), (768, 16));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VitOptions {
    /// Height and width of its images.
    pub image_size: usize,
    /// Height and width of the squares that an image is cut into.
    pub patch_size: usize,
    /// The number of blocks.
    pub num_layers: usize,
    /// The number of heads of each attention.
    pub num_heads: usize,
    /// Numbers for each square.
    pub hidden_dim: usize,
    /// Numbers inside each fully connected part.
    pub mlp_dim: usize,
    /// The probability of an element to be zeroed in training.
    pub dropout: f64,
    /// The probability of an attention weight to be zeroed in training.
    pub attention_dropout: f64,
}

impl VitOptions {
    /// ViT-B/16 for 224 x 224 pixels.
    pub const B16: VitOptions = VitOptions {
        image_size: 224,
        patch_size: 16,
        num_layers: 12,
        num_heads: 12,
        hidden_dim: 768,
        mlp_dim: 3072,
        dropout: 0.0,
        attention_dropout: 0.0,
    };
}

/// Cuts an image into squares and lets each look at all others, layer after layer.
///
/// ```
/// use neurona::{DType, Tensor, models::vit::{VisionTransformer, VitOptions}, nn::Forward};
/// let options = VitOptions { image_size: 32, num_layers: 1, hidden_dim: 48, mlp_dim: 96, ..VitOptions::B16 };
/// let net = VisionTransformer::new(options, 3, 10)?;
/// let y = net.forward(&Tensor::zeros([2, 3, 32, 32], DType::F32)?)?;
/// assert_eq!(y.shape().to_string(), "[2, 10]");
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct VisionTransformer {
    /// What collects the answer.
    pub class_token: Parameter,
    /// Each square to a vector.
    pub conv_proj: Conv2d,
    /// The blocks.
    pub encoder: Encoder,
    /// `head`: to the classes.
    pub heads: Sequential,
    /// Height and width of its images.
    pub image_size: usize,
    path: ModulePath,
}

impl VisionTransformer {
    /// With fresh parameters, for images of this many channels.
    #[track_caller]
    pub fn new(options: VitOptions, channels: usize, classes: usize) -> Result<Self> {
        let VitOptions { image_size, patch_size, hidden_dim: dim, .. } = options;
        if patch_size == 0 || image_size == 0 || !image_size.is_multiple_of(patch_size) {
            let problem = format!(
                "images of {image_size} x {image_size} pixels do not divide into squares of {patch_size} x {patch_size}"
            );
            return Err(Error::op("vision_transformer", problem).at(here()));
        }
        let length = (image_size / patch_size).saturating_mul(image_size / patch_size).saturating_add(1);
        let build = || -> Result<Self> {
            Ok(VisionTransformer {
                conv_proj: Conv2d::new(channels, dim, patch_size)?.stride(patch_size),
                class_token: Parameter::new(&init::uniform([1, 1, dim], 0.0)?)?,
                encoder: Encoder::new(options, length)?,
                heads: Sequential::new().add_named("head", Linear::new(dim, classes)?),
                image_size,
                path: ModulePath::default(),
            })
        };
        start::by(build, starting)
    }
}

/// torchvision's starting values. The head starts at zero, as do the class token and most biases.
fn starting(name: &str, parameter: &Parameter) -> Result<Option<Tensor>> {
    let shape = parameter.shape();
    let ends = |end: &str| name.ends_with(end);
    Ok(if ends("conv_proj.weight") {
        let fan_in = shape[1] * shape[2] * shape[3];
        Some(init::trunc_normal(shape, 0.0, (1.0 / fan_in as f64).sqrt(), -2.0, 2.0)?)
    } else if ends("pos_embedding") {
        Some(init::normal(shape, 0.0, 0.02)?)
    } else if ends("in_proj_weight") || ends("mlp.0.weight") || ends("mlp.3.weight") {
        Some(init::xavier_uniform(shape, 1.0)?)
    } else if ends("mlp.0.bias") || ends("mlp.3.bias") {
        Some(init::normal(shape, 0.0, 1e-6)?)
    } else if ends("out_proj.weight") {
        let fan_in = shape[1];
        Some(init::default_uniform(shape, fan_in)?)
    } else {
        None
    })
}

impl Forward for VisionTransformer {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let (size, rank) = (self.image_size, x.rank());
        if rank != 4 || x.shape()[2..] != [size, size] {
            return Err(x.error("vision_transformer", format!("needs images [n, c, {size}, {size}]")));
        }
        let squares = self.conv_proj.forward(x)?.flatten(2, -1)?.permute(&[0, 2, 1])?;
        let (n, dim) = (squares.shape()[0], squares.shape()[2]);
        let token = self.class_token.get()?.broadcast_to([n, 1, dim])?;
        let y = self.encoder.forward(&Tensor::cat(&[&token, &squares], 1)?)?;
        self.heads.forward(&y.select(1, 0)?)
    }
}

/// The blocks of a [`VisionTransformer`], with what tells them where each square stands.
#[derive(Debug, Module)]
pub struct Encoder {
    /// Added to the squares: where each stands.
    pub pos_embedding: Parameter,
    /// After the sum.
    pub dropout: Dropout,
    /// `encoder_layer_0` and so on.
    pub layers: Sequential,
    /// After the last block.
    pub ln: LayerNorm,
    path: ModulePath,
}

impl Encoder {
    fn new(options: VitOptions, length: usize) -> Result<Self> {
        let mut layers = Sequential::new();
        let pos_embedding = Parameter::new(&init::uniform([1, length, options.hidden_dim], 0.0)?)?;
        for i in 0..options.num_layers {
            layers = layers.add_named(&format!("encoder_layer_{i}"), EncoderBlock::new(options)?);
        }
        Ok(Encoder {
            pos_embedding,
            dropout: Dropout::new(options.dropout),
            layers,
            ln: LayerNorm::new([options.hidden_dim])?.eps(1e-6),
            path: ModulePath::default(),
        })
    }
}

impl Forward for Encoder {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let x = self.dropout.forward(&x.add(&self.pos_embedding.get()?)?)?;
        self.ln.forward(&self.layers.forward(&x)?)
    }
}

/// Attention and a fully connected part, each on normalised input and added to it.
#[derive(Debug, Module)]
pub struct EncoderBlock {
    /// Before the attention.
    pub ln_1: LayerNorm,
    /// Each square looks at all.
    pub self_attention: MultiheadAttention,
    /// After the attention.
    pub dropout: Dropout,
    /// Before the fully connected part.
    pub ln_2: LayerNorm,
    /// To more numbers and back.
    pub mlp: Sequential,
    path: ModulePath,
}

impl EncoderBlock {
    fn new(options: VitOptions) -> Result<Self> {
        let VitOptions { hidden_dim: dim, mlp_dim, dropout, .. } = options;
        let attention = MultiheadAttention::new(dim, options.num_heads)?.batch_first();
        Ok(EncoderBlock {
            ln_1: LayerNorm::new([dim])?.eps(1e-6),
            self_attention: attention.dropout(options.attention_dropout),
            dropout: Dropout::new(dropout),
            ln_2: LayerNorm::new([dim])?.eps(1e-6),
            mlp: Sequential::new()
                .add(Linear::new(dim, mlp_dim)?)
                .add(GELU::new())
                .add(Dropout::new(dropout))
                .add(Linear::new(mlp_dim, dim)?)
                .add(Dropout::new(dropout)),
            path: ModulePath::default(),
        })
    }
}

impl Forward for EncoderBlock {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let _scope = self.path.enter();
        let x = self.self_attention.forward(&self.ln_1.forward(input)?)?;
        let x = self.dropout.forward(&x)?.add(input)?;
        x.add(&self.mlp.forward(&self.ln_2.forward(&x)?)?)
    }
}
