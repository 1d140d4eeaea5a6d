//! What layers start with: PyTorch's initialisers, by their bounds, deviations and seeds.

use neurona::nn::init::{self, Fan, Nonlinearity};
use neurona::nn::{
    BatchNorm2d, Conv2d, Embedding, Forward, GroupNorm, LayerNorm, Linear, Module, MultiheadAttention, Parameter,
};
use neurona::{DType, Result, Tensor};

fn names(net: &impl Module) -> Vec<String> {
    net.named_parameters().into_iter().map(|(name, _)| name).collect()
}

/// Uniform within ±bound: nothing outside, close to the ends, and the standard deviation bound/√3.
fn uniform(parameter: &Parameter, bound: f64) -> Result<()> {
    let values = parameter.get()?.to_vec::<f64>()?;
    let largest = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    assert!(largest <= bound, "{largest} > {bound}");
    if values.len() >= 400 {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let std = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
        assert!(largest > 0.97 * bound && (std / (bound / 3f64.sqrt()) - 1.0).abs() < 0.1, "{largest} {std} {bound}");
        assert!(mean.abs() < 0.15 * bound);
    }
    Ok(())
}

#[test]
fn layers_start_as_pytorchs_do() -> Result<()> {
    neurona::manual_seed(7);
    for (weight, bias, fan_in) in [
        {
            let l = Conv2d::new(3, 6, 5)?;
            (l.weight, l.bias, 75.0f64)
        },
        {
            let l = Conv2d::new(3, 64, 3)?;
            (l.weight, l.bias, 27.0)
        },
        {
            let l = Linear::new(400, 120)?;
            (l.weight, l.bias, 400.0)
        },
        {
            let l = Linear::new(2, 8)?;
            (l.weight, l.bias, 2.0)
        },
    ] {
        uniform(&weight, 1.0 / fan_in.sqrt())?;
        bias.iter().try_for_each(|bias| uniform(bias, 1.0 / fan_in.sqrt()))?;
    }
    let state = BatchNorm2d::new(2)?.state_dict()?;
    let all: Vec<Vec<f64>> = state.iter().map(|(_, t)| t.to_vec()).collect::<Result<_>>()?;
    assert_eq!(all, [vec![1.0; 2], vec![0.0; 2], vec![0.0; 2], vec![1.0; 2], vec![0.0]]);
    Ok(())
}

/// Mean and standard deviation.
fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count).sqrt())
}

#[test]
fn initialisers_have_pytorchs_bounds_and_deviations() -> Result<()> {
    neurona::manual_seed(11);
    // fan_in 16 · 9 = 144, fan_out 64 · 9 = 576.
    let shape = [64, 16, 3, 3];
    let bounded = |t: Tensor, bound: f64| -> Result<()> {
        let values = t.to_vec::<f64>()?;
        let largest = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let (mean, std) = moments(&values);
        assert!(largest <= bound * (1.0 + 1e-6) && largest > 0.99 * bound, "{largest} {bound}");
        assert!((std * 3f64.sqrt() / bound - 1.0).abs() < 0.03 && mean.abs() < 0.05 * bound, "{mean} {std} {bound}");
        Ok(())
    };
    let spread = |t: Tensor, mean: f64, std: f64| -> Result<()> {
        let got = moments(&t.to_vec::<f64>()?);
        assert!((got.0 - mean).abs() < 0.05 * std && (got.1 / std - 1.0).abs() < 0.03, "{got:?} {mean} {std}");
        Ok(())
    };
    let leaky = Nonlinearity::LeakyRelu(5f64.sqrt());
    bounded(init::kaiming_uniform(shape, Fan::In, Nonlinearity::Relu)?, (6.0f64 / 144.0).sqrt())?;
    bounded(init::kaiming_uniform(shape, Fan::Out, Nonlinearity::Relu)?, (6.0f64 / 576.0).sqrt())?;
    bounded(init::kaiming_uniform(shape, Fan::In, leaky)?, 1.0 / 144f64.sqrt())?;
    bounded(init::kaiming_uniform(shape, Fan::In, Nonlinearity::Tanh)?, 5.0 / 3.0 * (3.0f64 / 144.0).sqrt())?;
    bounded(init::xavier_uniform(shape, 1.0)?, (6.0f64 / 720.0).sqrt())?;
    bounded(init::xavier_uniform([300, 100], 2.0)?, 2.0 * (6.0f64 / 400.0).sqrt())?;
    spread(init::kaiming_normal(shape, Fan::In, Nonlinearity::Relu)?, 0.0, (2.0f64 / 144.0).sqrt())?;
    spread(init::kaiming_normal(shape, Fan::Out, Nonlinearity::Linear)?, 0.0, 1.0 / 24.0)?;
    spread(init::xavier_normal(shape, 0.5)?, 0.0, 0.5 * (2.0f64 / 720.0).sqrt())?;
    spread(init::normal([9000], 3.0, 0.2)?, 3.0, 0.2)?;

    // Cut at two deviations: the deviation of what is left is 0.8796 of the whole.
    let cut = init::trunc_normal([20_000], 1.0, 0.5, 0.0, 2.0)?;
    let values = cut.to_vec::<f64>()?;
    assert!(values.iter().all(|v| (0.0..=2.0).contains(v)));
    let (mean, std) = moments(&values);
    assert!((mean - 1.0).abs() < 0.01 && (std / 0.5 - 0.8796).abs() < 0.01, "{mean} {std}");
    // One tail only: mean φ(1) / (1 − Φ(1)) = 1.5251.
    let (mean, _) = moments(&init::trunc_normal([20_000], 0.0, 1.0, 1.0, f64::INFINITY)?.to_vec::<f64>()?);
    assert!((mean - 1.5251).abs() < 0.01, "{mean}");

    for shape in [[4, 9], [9, 4], [5, 5]] {
        let w = init::orthogonal(shape, 2.0)?;
        let w = if shape[0] <= shape[1] { w } else { w.t()? };
        let product = w.matmul(&w.t()?)?.to_vec::<f64>()?;
        let size = shape[0].min(shape[1]);
        for (i, v) in product.iter().enumerate() {
            let want = if i / size == i % size { 4.0 } else { 0.0 };
            assert!((v - want).abs() < 1e-5, "{shape:?} {i}: {v}");
        }
    }
    assert_eq!(init::constant([2, 2], 1.5)?.to_vec::<f32>()?, [1.5; 4]);
    assert_eq!(init::ones([2])?.to_vec::<f32>()?, [1.0; 2]);
    Ok(())
}

#[test]
fn dirac_passes_its_input_on() -> Result<()> {
    let x = Tensor::randn([2, 4, 5, 6])?;
    for groups in [1, 2, 4] {
        let layer = Conv2d::new(4, 8, 3)?.without_bias().padding(1).groups(groups)?;
        layer.weight.set(&init::dirac(layer.weight.shape(), groups)?)?;
        let y = layer.forward(&x)?;
        // Filters beyond the channels of their group are 0.
        let (per_group, inputs) = (8 / groups, 4 / groups);
        for group in 0..groups {
            let got = y.narrow(1, group * per_group, inputs)?.to_vec::<f32>()?;
            assert_eq!(got, x.narrow(1, group * inputs, inputs)?.to_vec::<f32>()?, "{groups} groups");
            let rest = y.narrow(1, group * per_group + inputs, per_group - inputs)?.to_vec::<f32>()?;
            assert!(rest.iter().all(|v| *v == 0.0));
        }
    }
    assert_eq!(init::dirac([2, 1, 2, 3], 2)?.to_vec::<f32>()?, [0., 0., 0., 0., 1., 0., 0., 0., 0., 0., 1., 0.]);
    Ok(())
}

#[test]
fn the_same_seed_starts_the_same() -> Result<()> {
    let draw = || -> Result<Vec<Vec<f32>>> {
        neurona::manual_seed(3);
        let all = [
            init::kaiming_normal([4, 3], Fan::In, Nonlinearity::Relu)?,
            init::trunc_normal([7], 0.0, 0.02, -0.04, 0.04)?,
            init::orthogonal([3, 4], 1.0)?,
            MultiheadAttention::new(4, 2)?.in_proj_weight.get()?,
            Embedding::new(3, 2)?.weight.get()?,
        ];
        all.iter().map(|t| t.to_vec()).collect()
    };
    // Other tests draw numbers too: one undisturbed pair is enough.
    let pairs = (0..20).map(|_| Ok(draw()? == draw()?)).collect::<Result<Vec<bool>>>()?;
    assert!(pairs.contains(&true));
    Ok(())
}

#[test]
fn norms_attention_and_embedding_start_as_pytorchs_do() -> Result<()> {
    neurona::manual_seed(8);
    let layer = MultiheadAttention::new(64, 4)?;
    assert_eq!(names(&layer), ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]);
    let shapes: Vec<String> = layer.parameters().iter().map(|p| p.shape().to_string()).collect();
    assert_eq!(shapes, ["[192, 64]", "[192]", "[64, 64]", "[64]"]);
    uniform(&layer.in_proj_weight, (6.0f64 / 256.0).sqrt())?;
    uniform(&layer.out_proj.weight, 1.0 / 8.0)?;
    for bias in [layer.in_proj_bias.as_ref(), layer.out_proj.bias.as_ref()].into_iter().flatten() {
        assert!(bias.get()?.to_vec::<f32>()?.iter().all(|v| *v == 0.0));
    }
    assert_eq!(names(&layer.without_bias()), ["in_proj_weight", "out_proj.weight"]);
    assert!(MultiheadAttention::new(6, 4).is_err() && MultiheadAttention::new(6, 0).is_err());

    for (net, want) in [
        (Box::new(LayerNorm::new([3, 2])?) as Box<dyn Module>, vec![1.0; 6]),
        (Box::new(GroupNorm::new(2, 6)?), vec![1.0; 6]),
    ] {
        let state = net.state_dict()?;
        assert_eq!(state.names().collect::<Vec<_>>(), ["weight", "bias"]);
        assert_eq!(state.get("weight").map(|t| t.to_vec::<f64>()).transpose()?, Some(want));
        assert_eq!(state.get("bias").map(|t| t.to_vec::<f64>()).transpose()?, Some(vec![0.0; 6]));
    }
    assert_eq!(names(&LayerNorm::new([3])?.without_bias()), ["weight"]);
    assert!(names(&LayerNorm::new([3])?.without_affine()).is_empty());
    assert!(GroupNorm::new(4, 6).is_err() && GroupNorm::new(0, 6).is_err());
    assert!(LayerNorm::new([3])?.forward(&Tensor::zeros([2, 4], DType::F32)?).is_err());

    let layer = Embedding::new(500, 8)?;
    let (mean, std) = moments(&layer.weight.get()?.to_vec::<f64>()?);
    assert!(mean.abs() < 0.08 && (std - 1.0).abs() < 0.05, "{mean} {std}");
    assert!(layer.forward(&Tensor::from([1.0f32])).is_err() && layer.forward(&Tensor::from([500i64])).is_err());
    assert!(Embedding::new(3, 2)?.padding_idx(3).is_err());
    Ok(())
}
