//! Every gradient rule against central differences in f64, where nothing but the rule can be wrong.
//!
//! `gradient_check!(name, |x| expression, shapes…)` differentiates sum(expression · fixed numbers) by every element of
//! every input. Inputs are at least 0.1 away from 0, so that kinks there are not met.

mod common;

use common::{splitmix64, uniform};
use neurona::loss::{BCELoss, BCEWithLogitsLoss, NLLLoss};
use neurona::{
    Conv2dOptions, CrossEntropyOptions, DType, Device, PadMode, PoolOptions, Reduction, Result, RunningStats, Shape,
    Tensor, no_grad,
};

/// Wide enough that rounding (1e-16 / STEP) and curvature (STEP²) both stay near 1e-11.
const STEP: f64 = 1e-5;
const TOLERANCE: f64 = 1e-7;

macro_rules! gradient_check {
    ($name:ident, |$x:ident| $body:expr, $($shape:expr),+ $(,)?) => {
        mod $name {
            use super::*;

            fn on(device: Device) -> Result<()> {
                let shapes: &[&[usize]] = &[$(&$shape),+];
                check(shapes, device, &|$x: &[Tensor]| -> Result<Tensor> { $body })
            }

            #[test]
            fn cpu() -> Result<()> {
                on(Device::Cpu)
            }

            #[test]
            fn cuda() -> Result<()> {
                common::gpu().map_or(Ok(()), on)
            }
        }
    };
}

thread_local! {
    /// Where the present check runs: constants of its expression must be there too.
    static HERE: core::cell::Cell<Device> = const { core::cell::Cell::new(Device::Cpu) };
}

fn stream(seed: u64, shape: impl Into<Shape>, dtype: DType, low: f64, high: f64) -> Result<Tensor> {
    common::stream(seed, shape, dtype, low, high)?.to(HERE.get())
}

fn constant(values: impl Into<Tensor>) -> Result<Tensor> {
    values.into().to(HERE.get())
}

/// A number between 0.1 and 1, or between −1 and −0.1.
fn away_from_zero(seed: u64, i: u64) -> f64 {
    let u = uniform(seed, i);
    u.signum() * (0.1 + 0.9 * u.abs())
}

/// Compiled once: a copy for each expression would take the compiler longer than all checks take to run.
fn check(shapes: &[&[usize]], device: Device, f: &dyn Fn(&[Tensor]) -> Result<Tensor>) -> Result<()> {
    HERE.set(device);
    let values: Vec<Vec<f64>> = shapes
        .iter()
        .enumerate()
        .map(|(k, shape)| {
            (0..shape.iter().product::<usize>() as u64).map(|i| away_from_zero(k as u64 + 7, i)).collect()
        })
        .collect();
    let tensors = |values: &[Vec<f64>]| -> Result<Vec<Tensor>> {
        values.iter().zip(shapes).map(|(v, s)| Tensor::from_slice(v, *s)?.to(device)).collect()
    };
    let leaves = tensors(&values)?.iter().map(Tensor::requires_grad).collect::<Result<Vec<_>>>()?;
    let y = f(&leaves)?;
    let dy = stream(99, y.shape(), DType::F64, -1.0, 1.0)?;
    y.mul(&dy)?.sum()?.backward()?;
    let loss = |values: &[Vec<f64>]| -> Result<f64> { f(&tensors(values)?)?.mul(&dy)?.sum()?.item::<f64>() };
    let mut moved = values.clone();
    for (k, leaf) in leaves.iter().enumerate() {
        let gradient = leaf.grad().unwrap_or_else(|| panic!("input {k} has no gradient"));
        assert_eq!((gradient.shape(), gradient.dtype()), (leaf.shape(), DType::F64), "input {k}");
        for (i, got) in gradient.to_vec::<f64>()?.into_iter().enumerate() {
            let mut at = |x: f64| {
                moved[k][i] = x;
                loss(&moved)
            };
            let x = values[k][i];
            let want = (at(x + STEP)? - at(x - STEP)?) / (2.0 * STEP);
            moved[k][i] = x;
            assert!(
                (got - want).abs() <= TOLERANCE * want.abs().max(1.0),
                "input {k} {:?}, element {i}: the rule gives {got}, differences give {want}",
                shapes[k]
            );
        }
    }
    Ok(())
}

// Arithmetic, with broadcasting on either side and on both.
gradient_check!(add, |x| &x[0] + &x[1], [3, 5], [3, 5]);
gradient_check!(add_row, |x| &x[0] + &x[1], [4, 3], [3]);
gradient_check!(add_left_row, |x| &x[0] + &x[1], [3], [4, 3]);
gradient_check!(add_both_sides, |x| &x[0] + &x[1], [3, 1, 5], [2, 1]);
gradient_check!(add_empty, |x| &x[0] + &x[1], [0, 3], [3]);
gradient_check!(add_zero_dim, |x| &x[0] + &x[1], [], [2, 3]);
gradient_check!(add_to_itself, |x| &x[0] + &x[0], [3]);
gradient_check!(sub, |x| &x[0] - &x[1], [3, 5], [3, 5]);
gradient_check!(sub_column, |x| &x[0] - &x[1], [4, 3], [4, 1]);
gradient_check!(sub_both_sides, |x| &x[0] - &x[1], [1, 3], [2, 1]);
gradient_check!(mul, |x| &x[0] * &x[1], [3, 5], [3, 5]);
gradient_check!(mul_channels, |x| &x[0] * &x[1], [2, 3, 2, 3], [1, 3, 1, 1]);
gradient_check!(mul_both_sides, |x| &x[0] * &x[1], [3, 1], [1, 4]);
gradient_check!(mul_size1, |x| &x[0] * &x[1], [1], [1]);
gradient_check!(mul_by_itself, |x| &x[0] * &x[0], [5]);
gradient_check!(div, |x| &x[0] / &x[1], [3, 5], [3, 5]);
gradient_check!(div_both_sides, |x| &x[0] / &x[1], [3, 1, 2], [2, 1]);
gradient_check!(div_empty, |x| &x[0] / &x[1], [0, 3], [1, 3]);
gradient_check!(numbers_right, |x| (&x[0] * 3.0)?.sub_scalar(0.5)?.div_scalar(2), [2, 3]);
gradient_check!(numbers_left, |x| 2.0 / &(1.5 - &x[0])?, [2, 3]);
gradient_check!(used_three_times, |x| (&x[0] * &x[0])?.exp()?.add(&x[0]), [4]);

// Functions of one element.
gradient_check!(neg, |x| x[0].neg(), [3, 5]);
gradient_check!(exp, |x| x[0].exp(), [3, 5]);
gradient_check!(log, |x| x[0].add_scalar(1.5)?.log(), [3, 5]);
gradient_check!(sqrt, |x| x[0].add_scalar(1.5)?.sqrt(), [3, 5]);
gradient_check!(abs, |x| x[0].abs(), [3, 5]);
gradient_check!(relu, |x| x[0].relu(), [3, 7]);
gradient_check!(relu_empty, |x| x[0].relu(), [0, 7]);
gradient_check!(relu_of_relu, |x| x[0].relu()?.sub_scalar(0.3)?.relu(), [9]);
gradient_check!(sigmoid, |x| x[0].mul_scalar(4)?.sigmoid(), [3, 5]);
gradient_check!(tanh, |x| x[0].mul_scalar(2)?.tanh(), [1, 11]);
gradient_check!(pow_square, |x| x[0].pow(2), [7]);
gradient_check!(pow_cube, |x| x[0].pow(3.0), [7]);
gradient_check!(pow_zero, |x| x[0].pow(0), [7]);
gradient_check!(pow_inverse, |x| x[0].pow(-1.0), [7]);
gradient_check!(pow_fraction, |x| x[0].abs()?.pow(2.7), [7]);

gradient_check!(square, |x| x[0].square(), [3, 5]);
gradient_check!(reciprocal, |x| x[0].reciprocal(), [3, 5]);
gradient_check!(rsqrt, |x| x[0].add_scalar(1.5)?.rsqrt(), [3, 5]);
gradient_check!(sin, |x| x[0].mul_scalar(3)?.sin(), [3, 5]);
gradient_check!(cos, |x| x[0].mul_scalar(3)?.cos(), [1, 7]);
gradient_check!(erf, |x| x[0].mul_scalar(2)?.erf(), [3, 5]);
gradient_check!(erf_empty, |x| x[0].erf(), [0, 5]);
gradient_check!(log1p, |x| x[0].mul_scalar(0.9)?.log1p(), [3, 5]);
gradient_check!(expm1, |x| x[0].expm1(), [3, 5]);
gradient_check!(steps, |x| x[0].sign()?.add(&x[0].floor()?)?.add(&x[0].ceil()?)?.add(&x[0].round()?), [3, 5]);

// Activations; scaled so that both sides of every bend are met.
gradient_check!(leaky_relu, |x| x[0].leaky_relu(0.1), [3, 5]);
gradient_check!(leaky_relu_zero_dim, |x| x[0].leaky_relu(-0.5), []);
gradient_check!(elu, |x| x[0].mul_scalar(3)?.elu(0.7), [3, 5]);
gradient_check!(elu_empty, |x| x[0].elu(1.0), [0, 5]);
gradient_check!(gelu, |x| x[0].mul_scalar(3)?.gelu(), [3, 11]);
gradient_check!(gelu_tanh, |x| x[0].mul_scalar(3)?.gelu_tanh(), [3, 11]);
gradient_check!(silu, |x| x[0].mul_scalar(4)?.silu(), [1, 13]);
gradient_check!(hardswish, |x| x[0].mul_scalar(4.1)?.hardswish(), [3, 11]);
gradient_check!(relu6, |x| x[0].mul_scalar(8.3)?.relu6(), [3, 11]);
gradient_check!(hardsigmoid, |x| x[0].mul_scalar(4.1)?.hardsigmoid(), [3, 11]);
gradient_check!(softplus, |x| x[0].mul_scalar(3)?.softplus(1.0, 20.0), [3, 5]);
gradient_check!(softplus_sharp, |x| x[0].softplus(3.0, 2.0), [3, 5]);
gradient_check!(activations_in_a_row, |x| x[0].gelu()?.silu()?.leaky_relu(0.2)?.elu(0.5), [2, 3, 4]);

// Choice.
gradient_check!(where_, |x| x[0].gt_scalar(0)?.where_(&x[1], &x[2]), [3, 5], [3, 5], [3, 5]);
gradient_check!(where_broadcast, |x| x[0].gt_scalar(0)?.where_(&x[1], &x[2]), [2, 1, 1], [3, 1], [4]);
gradient_check!(maximum, |x| x[0].maximum(&x[1]), [3, 5], [3, 5]);
gradient_check!(minimum_both_sides, |x| x[0].minimum(&x[1]), [3, 1], [4]);
gradient_check!(clamp, |x| x[0].clamp(-0.5, 0.6), [3, 7]);
gradient_check!(clamp_min, |x| x[0].clamp_min(0.05), [9]);
gradient_check!(clamp_max, |x| x[0].clamp_max(-0.05), [9]);

// Movement.
gradient_check!(reshape, |x| x[0].reshape([5, 6]), [2, 3, 5]);
gradient_check!(view, |x| x[0].view([-1, 3]), [2, 3, 5]);
gradient_check!(flatten, |x| x[0].flatten(1, -1), [2, 3, 2]);
gradient_check!(squeeze_unsqueeze, |x| x[0].squeeze(1)?.unsqueeze(0), [3, 1, 2]);
gradient_check!(permute, |x| x[0].permute(&[2, 0, 1]), [2, 3, 5]);
gradient_check!(permute_nhwc_and_back, |x| x[0].permute(&[0, 2, 3, 1])?.exp()?.permute(&[0, 3, 1, 2]), [2, 3, 2, 3]);
gradient_check!(transpose, |x| x[0].transpose(-1, 0), [3, 1, 4]);
gradient_check!(permute_empty, |x| x[0].permute(&[1, 0]), [0, 3]);
gradient_check!(broadcast_to, |x| x[0].broadcast_to([2, 3, 4]), [3, 1]);
gradient_check!(expand, |x| x[0].expand(&[-1, 5]), [3, 1]);
gradient_check!(expand_to_nothing, |x| x[0].broadcast_to([0, 3]), [1, 3]);

gradient_check!(expand_as, |x| x[0].expand_as(&x[1])?.mul(&x[1]), [3, 1], [2, 3, 4]);

// Joining and cutting.
gradient_check!(cat, |x| Tensor::cat(&[&x[0], &x[1], &x[2]], 1), [2, 3, 2], [2, 1, 2], [2, 4, 2]);
gradient_check!(cat_rows, |x| Tensor::cat(&[&x[0], &x[1], &x[0]], 0), [2, 3], [1, 3]);
gradient_check!(cat_with_empty, |x| Tensor::cat(&[&x[0], &x[1]], -1), [3, 0], [3, 2]);
gradient_check!(cat_one_constant, |x| Tensor::cat(&[&stream(8, [2, 3], DType::F64, -1.0, 1.0)?, &x[0]], 0), [1, 3]);
gradient_check!(stack, |x| Tensor::stack(&[&x[0], &x[1]], 1), [3, 2], [3, 2]);
gradient_check!(stack_last, |x| Tensor::stack(&[&x[0], &x[0], &x[1]], -1), [3], [3]);
gradient_check!(narrow, |x| x[0].narrow(1, 2, 3), [3, 7]);
gradient_check!(narrow_rows, |x| x[0].narrow(0, 1, 2)?.mul(&x[0].narrow(0, 2, 2)?), [4, 3]);
gradient_check!(narrow_nothing, |x| x[0].narrow(0, 2, 0), [4, 3]);
gradient_check!(slice, |x| x[0].slice(1, 1, 9, 3), [2, 11, 3]);
gradient_check!(slice_negative, |x| x[0].slice(-1, -4, -1, 2), [3, 5]);
gradient_check!(slice_empty, |x| x[0].slice(1, 1, 3, 1), [0, 5]);
gradient_check!(select, |x| x[0].select(1, -2), [2, 5, 3]);
gradient_check!(split, |x| &x[0].split(3, 1)?[2] * &x[0].split(3, 1)?[0].narrow(1, 0, 1)?, [2, 7]);
gradient_check!(chunk, |x| x[0].chunk(2, 0)?[0].mul(&x[0].chunk(2, 0)?[1]), [4, 3]);
gradient_check!(index_select, |x| x[0].index_select(0, &constant([3i64, 0, 3, 3, 1])?), [4, 3]);
gradient_check!(index_select_last, |x| x[0].index_select(-1, &constant([1i64, 1])?), [2, 3, 2]);
gradient_check!(index_select_empty, |x| x[0].index_select(1, &constant([1i64, 1])?), [0, 3]);
gradient_check!(index_select_scalar_rows, |x| x[0].index_select(0, &constant([1i64, 0, 1, 4])?), [5]);
gradient_check!(gather, |x| x[0].gather(1, &constant([[1i64, 1, 0], [2, 0, 2]])?), [2, 3]);
gradient_check!(gather_fewer, |x| x[0].gather(0, &constant([[1i64, 1], [2, 0]])?), [3, 4]);
gradient_check!(gather_inner, |x| x[0].gather(0, &constant([[[1i64, 1]], [[2, 0]]])?), [3, 1, 2]);
gradient_check!(flip, |x| x[0].flip(&[0, -1]), [2, 3, 5]);
gradient_check!(flip_empty, |x| x[0].flip(&[0, 1]), [0, 3]);
gradient_check!(roll, |x| x[0].roll(&[2, -1], &[1, 0]), [3, 5]);
gradient_check!(roll_empty, |x| x[0].roll(&[1], &[0]), [0, 3]);
gradient_check!(pad_constant, |x| x[0].pad(&[1, 2, 0, 3], PadMode::Constant(0.5)), [2, 3, 2]);
gradient_check!(pad_reflect, |x| x[0].pad(&[3, 1, 2, 1], PadMode::Reflect), [2, 3, 4]);
gradient_check!(pad_replicate, |x| x[0].pad(&[1, 2, 3, 1], PadMode::Replicate), [2, 2, 3]);
gradient_check!(pad_replicate_size1, |x| x[0].pad(&[2, 2, 1, 0], PadMode::Replicate), [1, 1]);
gradient_check!(pad_empty, |x| x[0].pad(&[1, 1, 2, 0], PadMode::Constant(1.0)), [0, 3]);
gradient_check!(
    conv2d_of_parts,
    |x| {
        let y = x[0].pad(&[1, 1, 1, 1], PadMode::Reflect)?;
        let y = y.conv2d(&x[1], None, Conv2dOptions::default())?;
        Tensor::cat(&[&y.narrow(1, 1, 2)?.relu()?, &y.flip(&[3])?], 1)?.roll(&[1], &[2])
    },
    [2, 2, 3, 4],
    [3, 2, 3, 3]
);

// Reductions.
gradient_check!(prod, |x| x[0].prod(), [3, 4]);
gradient_check!(prod_rows, |x| x[0].prod_dims(&[0], false), [5, 3]);
gradient_check!(prod_outer, |x| x[0].prod_dims(&[0, 2], true), [2, 3, 4]);
gradient_check!(prod_one_zero, |x| x[0].mul(&constant([0.0f64, 1.0, 2.0])?)?.prod_dims(&[1], false), [2, 3]);
gradient_check!(prod_nothing, |x| x[0].prod_dims(&[0], false), [0, 3]);
gradient_check!(norm_1, |x| x[0].norm(1.0, &[1], false), [3, 5]);
gradient_check!(norm_2, |x| x[0].norm(2.0, &[0, 2], true), [2, 3, 5]);
gradient_check!(norm_inf, |x| x[0].norm(f64::INFINITY, &[1], false), [3, 5]);
gradient_check!(logsumexp, |x| x[0].logsumexp(&[1], false), [3, 5]);
gradient_check!(logsumexp_two_dims, |x| x[0].logsumexp(&[0, -1], true), [2, 3, 5]);
gradient_check!(cumsum, |x| x[0].cumsum(1), [2, 5, 3]);
gradient_check!(cumsum_last, |x| x[0].cumsum(-1), [3, 7]);
gradient_check!(cumsum_empty, |x| x[0].cumsum(0), [0, 3]);
gradient_check!(sort, |x| Ok(x[0].sort(1, false)?.0), [3, 7]);
gradient_check!(sort_down_rows, |x| Ok(x[0].sort(0, true)?.0), [5, 3]);
gradient_check!(topk, |x| Ok(x[0].topk(3, 1, true)?.0), [2, 7, 2]);
gradient_check!(topk_smallest, |x| Ok(x[0].topk(2, -1, false)?.0), [3, 5]);
gradient_check!(sum, |x| x[0].sum(), [3, 5]);
gradient_check!(sum_rows, |x| x[0].sum_dims(&[0], false), [3, 5]);
gradient_check!(sum_channels, |x| x[0].sum_dims(&[0, 2, 3], true), [2, 3, 2, 3]);
gradient_check!(sum_nothing, |x| x[0].sum_dims(&[0], false), [0, 3]);
gradient_check!(mean, |x| x[0].mean(), [3, 5]);
gradient_check!(mean_last, |x| x[0].mean_dims(&[-1], false), [2, 3, 5]);
gradient_check!(mean_empty_batch, |x| x[0].mean_dims(&[1], false), [0, 3]);
gradient_check!(amax, |x| x[0].amax(&[1], false), [3, 7]);
gradient_check!(amax_two_dims, |x| x[0].amax(&[0, 2], true), [2, 3, 5]);
gradient_check!(amin, |x| x[0].amin(&[0], false), [5, 3]);
gradient_check!(max, |x| x[0].max(), [3, 5]);
gradient_check!(min, |x| x[0].min(), [3, 5]);
gradient_check!(max_dim, |x| Ok(x[0].max_dim(1, false)?.0), [2, 5, 3]);
gradient_check!(min_dim_keep, |x| Ok(x[0].min_dim(-1, true)?.0), [2, 5, 3]);
gradient_check!(var, |x| x[0].var(&[1], 1, false), [3, 7]);
gradient_check!(var_channels, |x| x[0].var(&[0, 2, 3], 0, true), [2, 3, 2, 3]);
gradient_check!(std, |x| x[0].std(&[0], 1, false), [5, 2]);

// Products.
gradient_check!(matmul, |x| x[0].matmul(&x[1]), [3, 7], [7, 5]);
gradient_check!(matmul_size1, |x| x[0].matmul(&x[1]), [1, 1], [1, 1]);
gradient_check!(matmul_vectors, |x| x[0].matmul(&x[1]), [7], [7]);
gradient_check!(matmul_vector_matrix, |x| x[0].matmul(&x[1]), [5], [5, 3]);
gradient_check!(matmul_matrix_vector, |x| x[0].matmul(&x[1]), [3, 5], [5]);
gradient_check!(matmul_batched, |x| x[0].matmul(&x[1]), [2, 3, 5], [2, 5, 4]);
gradient_check!(matmul_batch_times_matrix, |x| x[0].matmul(&x[1]), [3, 2, 5], [5, 4]);
gradient_check!(matmul_matrix_times_batch, |x| x[0].matmul(&x[1]), [2, 5], [3, 5, 4]);
gradient_check!(matmul_broadcast_both, |x| x[0].matmul(&x[1]), [2, 1, 3, 4], [3, 4, 2]);
gradient_check!(matmul_batch_vector, |x| x[0].matmul(&x[1]), [3, 2, 5], [5]);
gradient_check!(matmul_transposed, |x| x[0].t()?.matmul(&x[1].t()?), [7, 3], [5, 7]);
gradient_check!(matmul_no_rows, |x| x[0].matmul(&x[1]), [0, 3], [3, 4]);
gradient_check!(matmul_no_inner, |x| x[0].matmul(&x[1]), [3, 0], [0, 4]);
gradient_check!(linear, |x| x[0].linear(&x[1], Some(&x[2])), [4, 7], [5, 7], [5]);
gradient_check!(linear_relu, |x| x[0].linear(&x[1], Some(&x[2]))?.relu(), [4, 7], [5, 7], [5]);
gradient_check!(linear_without_bias, |x| x[0].linear(&x[1], None), [2, 3, 5], [4, 5]);
gradient_check!(linear_vector, |x| x[0].linear(&x[1], Some(&x[2])), [6], [4, 6], [4]);
gradient_check!(linear_empty_batch, |x| x[0].linear(&x[1], Some(&x[2])), [0, 5], [3, 5], [3]);

// Convolution: (stride, padding, dilation, groups).
fn conv(x: &[Tensor], stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2], groups: usize) -> Result<Tensor> {
    x[0].conv2d(&x[1], x.get(2), Conv2dOptions { stride, padding, dilation, groups })
}
gradient_check!(conv2d, |x| conv(x, [1, 1], [0, 0], [1, 1], 1), [2, 2, 5, 4], [3, 2, 3, 3], [3]);
gradient_check!(conv2d_relu, |x| conv(x, [1, 1], [1, 1], [1, 1], 1)?.relu(), [2, 2, 4, 3], [3, 2, 3, 3], [3]);
gradient_check!(conv2d_without_bias, |x| conv(x, [1, 1], [1, 1], [1, 1], 1), [1, 3, 4, 3], [2, 3, 3, 3]);
gradient_check!(conv2d_1x1, |x| conv(x, [1, 1], [0, 0], [1, 1], 1), [2, 3, 3, 2], [4, 3, 1, 1], [4]);
gradient_check!(conv2d_1x1_strided, |x| conv(x, [2, 2], [0, 0], [1, 1], 1), [1, 3, 4, 5], [2, 3, 1, 1]);
gradient_check!(conv2d_kernel_above_stride, |x| conv(x, [2, 2], [1, 1], [1, 1], 1), [1, 2, 7, 6], [2, 2, 3, 3], [2]);
gradient_check!(conv2d_stride_above_kernel, |x| conv(x, [3, 3], [0, 0], [1, 1], 1), [1, 2, 8, 7], [3, 2, 2, 2], [3]);
gradient_check!(conv2d_uneven, |x| conv(x, [2, 1], [1, 2], [1, 1], 1), [2, 1, 5, 4], [2, 1, 3, 2], [2]);
gradient_check!(conv2d_dilated, |x| conv(x, [1, 2], [2, 0], [2, 1], 1), [1, 2, 5, 6], [2, 2, 3, 2], [2]);
gradient_check!(conv2d_groups, |x| conv(x, [1, 1], [1, 1], [1, 1], 2), [1, 4, 3, 4], [6, 2, 3, 3], [6]);
gradient_check!(conv2d_depthwise, |x| conv(x, [2, 2], [1, 1], [1, 1], 3), [2, 3, 4, 5], [3, 1, 3, 3], [3]);
gradient_check!(conv2d_whole_image, |x| conv(x, [1, 1], [0, 0], [1, 1], 1), [3, 2, 3, 3], [4, 2, 3, 3], [4]);
gradient_check!(conv2d_size1, |x| conv(x, [1, 1], [0, 0], [1, 1], 1), [1, 1, 1, 1], [1, 1, 1, 1], [1]);
gradient_check!(conv2d_padded_pixel, |x| conv(x, [1, 1], [1, 1], [1, 1], 1), [2, 2, 1, 1], [3, 2, 3, 3], [3]);
gradient_check!(conv2d_empty_batch, |x| conv(x, [1, 1], [1, 1], [1, 1], 1), [0, 2, 4, 4], [3, 2, 3, 3], [3]);
gradient_check!(
    conv2d_no_gradient_for_x,
    |x| {
        let image = stream(5, [2, 2, 4, 4], DType::F64, -1.0, 1.0)?;
        image.conv2d(&x[0], Some(&x[1]), Conv2dOptions::default())
    },
    [3, 2, 3, 3],
    [3]
);
gradient_check!(
    conv2d_gradient_for_bias_only,
    |x| {
        let image = stream(5, [2, 2, 4, 4], DType::F64, -1.0, 1.0)?;
        let filter = stream(6, [3, 2, 3, 3], DType::F64, -1.0, 1.0)?;
        image.conv2d(&filter, Some(&x[0]), Conv2dOptions::default())
    },
    [3]
);

// Pooling.
fn window(kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2], ceil_mode: bool) -> PoolOptions {
    PoolOptions { kernel, stride, padding, ceil_mode }
}
gradient_check!(max_pool2d, |x| x[0].max_pool2d(PoolOptions::square(2)), [2, 3, 4, 6]);
gradient_check!(max_pool2d_odd, |x| x[0].max_pool2d(PoolOptions::square(2)), [1, 3, 5, 7]);
gradient_check!(max_pool2d_ceil, |x| x[0].max_pool2d(window([2, 2], [2, 2], [0, 0], true)), [1, 2, 5, 3]);
gradient_check!(max_pool2d_overlapping, |x| x[0].max_pool2d(window([3, 3], [2, 2], [1, 1], false)), [1, 2, 7, 6]);
gradient_check!(max_pool2d_gaps, |x| x[0].max_pool2d(window([2, 2], [3, 3], [0, 0], false)), [1, 2, 8, 7]);
gradient_check!(max_pool2d_uneven, |x| x[0].max_pool2d(window([3, 2], [2, 1], [1, 0], false)), [2, 2, 6, 5]);
gradient_check!(max_pool2d_size1, |x| x[0].max_pool2d(PoolOptions::square(1)), [1, 1, 1, 1]);
gradient_check!(max_pool2d_empty_batch, |x| x[0].max_pool2d(PoolOptions::square(2)), [0, 2, 4, 4]);
gradient_check!(avg_pool2d, |x| x[0].avg_pool2d(PoolOptions::square(2)), [2, 3, 4, 6]);
gradient_check!(avg_pool2d_overlapping, |x| x[0].avg_pool2d(window([3, 3], [2, 2], [1, 1], false)), [1, 2, 7, 6]);
gradient_check!(avg_pool2d_gaps, |x| x[0].avg_pool2d(window([2, 2], [3, 3], [0, 0], false)), [1, 2, 7, 8]);
gradient_check!(
    avg_pool2d_inside_only,
    |x| x[0].avg_pool2d_with(window([2, 4], [2, 1], [1, 2], true), false),
    [2, 1, 5, 4]
);
gradient_check!(avg_pool2d_empty_batch, |x| x[0].avg_pool2d(PoolOptions::square(2)), [0, 2, 4, 4]);
gradient_check!(global_avg_pool2d, |x| x[0].global_avg_pool2d(), [2, 3, 3, 5]);
gradient_check!(global_avg_pool2d_empty_batch, |x| x[0].global_avg_pool2d(), [0, 3, 2, 2]);

// Batch normalisation; running statistics must not disturb the gradient.
fn batch_norm(x: &[Tensor], tracking: bool) -> Result<Tensor> {
    let channels = x[0].shape()[1];
    let mean = stream(21, [channels], DType::F64, -1.0, 1.0)?;
    let var = stream(22, [channels], DType::F64, 0.5, 2.0)?;
    let batches = Tensor::scalar(3i64);
    let running = tracking.then_some(RunningStats { mean: &mean, var: &var, batches: &batches });
    Ok(x[0].batch_norm_train(x.get(1).zip(x.get(2)), running, Some(0.1), 1e-3)?.output)
}
fn batch_norm_pool(x: &[Tensor], size: usize) -> Result<Tensor> {
    batch_norm(x, true)?.relu()?.max_pool2d(PoolOptions::square(size))?.flatten(1, -1)
}
fn batch_norm_eval(x: &[Tensor]) -> Result<Tensor> {
    let channels = x[0].shape()[1];
    let mean = stream(21, [channels], DType::F64, -1.0, 1.0)?;
    let var = stream(22, [channels], DType::F64, 0.5, 2.0)?;
    x[0].batch_norm_eval(&mean, &var, x.get(1).zip(x.get(2)), 1e-3)
}
gradient_check!(batch_norm_images, |x| batch_norm(x, true), [2, 3, 3, 5], [3], [3]);
gradient_check!(batch_norm_images_relu, |x| batch_norm(x, true)?.relu(), [2, 3, 3, 5], [3], [3]);
gradient_check!(batch_norm_pool, |x| batch_norm_pool(x, 2), [2, 16, 4, 5], [16], [16]);
gradient_check!(batch_norm_pool_odd, |x| batch_norm_pool(x, 3), [2, 3, 7, 4], [3], [3]);
gradient_check!(batch_norm_rows, |x| batch_norm(x, true), [7, 5], [5], [5]);
gradient_check!(batch_norm_lines, |x| batch_norm(x, false), [2, 3, 5], [3], [3]);
gradient_check!(batch_norm_lines_relu, |x| batch_norm(x, true)?.relu(), [2, 3, 5], [3], [3]);
gradient_check!(batch_norm_flatten_relu, |x| batch_norm(x, true)?.flatten(1, -1)?.relu(), [2, 3, 2, 3], [3], [3]);
gradient_check!(batch_norm_without_affine, |x| batch_norm(x, false), [3, 2, 2, 2]);
gradient_check!(batch_norm_one_channel, |x| batch_norm(x, false), [3, 1, 2, 1], [1], [1]);
gradient_check!(batch_norm_17_channels, |x| batch_norm(x, true), [3, 17], [17], [17]);
gradient_check!(batch_norm_eval_images, |x| batch_norm_eval(x), [2, 3, 3, 5], [3], [3]);
gradient_check!(batch_norm_eval_images_relu, |x| batch_norm_eval(x)?.relu(), [2, 3, 3, 5], [3], [3]);
gradient_check!(batch_norm_eval_rows, |x| batch_norm_eval(x), [1, 4], [4], [4]);
gradient_check!(batch_norm_eval_without_affine, |x| batch_norm_eval(x), [3, 2]);
gradient_check!(batch_norm_eval_empty_batch, |x| batch_norm_eval(x), [0, 3, 2, 2], [3], [3]);

// Softmax and losses.
gradient_check!(softmax, |x| x[0].softmax(-1), [4, 10]);
gradient_check!(softmax_channels, |x| x[0].softmax(1), [2, 3, 2, 2]);
gradient_check!(softmax_size1, |x| x[0].softmax(1), [3, 1]);
gradient_check!(softmax_empty_batch, |x| x[0].softmax(1), [0, 4]);
gradient_check!(log_softmax, |x| x[0].log_softmax(-1), [4, 10]);
gradient_check!(log_softmax_rows, |x| x[0].log_softmax(0), [5, 3]);

fn cross_entropy(x: &Tensor, reduction: Reduction, label_smoothing: f64, ignore_index: i64) -> Result<Tensor> {
    let (rows, classes) = (x.shape()[0], x.shape()[1]);
    let target = Tensor::from_vec((0..rows as i64).map(|i| (i * 7 + 3) % classes as i64).collect(), [rows])?;
    let target = constant(target)?;
    x.cross_entropy_with(&target, CrossEntropyOptions { reduction, label_smoothing, ignore_index })
}
gradient_check!(cross_entropy_mean, |x| cross_entropy(&x[0], Reduction::Mean, 0.0, -100), [4, 10]);
gradient_check!(cross_entropy_sum, |x| cross_entropy(&x[0], Reduction::Sum, 0.0, -100), [4, 10]);
gradient_check!(cross_entropy_none, |x| cross_entropy(&x[0], Reduction::None, 0.0, -100), [4, 10]);
gradient_check!(cross_entropy_smooth, |x| cross_entropy(&x[0], Reduction::Mean, 0.1, -100), [4, 5]);
gradient_check!(cross_entropy_smooth_none, |x| cross_entropy(&x[0], Reduction::None, 0.3, -100), [4, 5]);
gradient_check!(cross_entropy_ignore, |x| cross_entropy(&x[0], Reduction::Mean, 0.0, 2), [6, 3]);
gradient_check!(cross_entropy_ignore_smooth, |x| cross_entropy(&x[0], Reduction::Mean, 0.2, 2), [6, 3]);
gradient_check!(cross_entropy_one_row, |x| cross_entropy(&x[0], Reduction::Mean, 0.0, -100), [1, 10]);
gradient_check!(cross_entropy_one_class, |x| cross_entropy(&x[0], Reduction::Mean, 0.0, -100), [3, 1]);
gradient_check!(cross_entropy_no_rows, |x| cross_entropy(&x[0], Reduction::Sum, 0.0, -100), [0, 3]);

fn weighted(x: &[Tensor], reduction: Reduction, smooth: f64, ignore: i64) -> Result<Tensor> {
    let (rows, count) = (x[0].shape()[0], x[0].shape()[1]);
    let options = CrossEntropyOptions { reduction, label_smoothing: smooth, ignore_index: ignore };
    x[0].cross_entropy_weighted(&classes(rows, count)?, &x[1].abs()?, options)
}
fn soft(x: &[Tensor], reduction: Reduction, smooth: f64) -> Result<Tensor> {
    let options = CrossEntropyOptions { reduction, label_smoothing: smooth, ignore_index: -100 };
    let target = x[1].softmax(1)?;
    match x.get(2) {
        Some(weight) => x[0].cross_entropy_weighted(&target, &weight.abs()?, options),
        None => x[0].cross_entropy_with(&target, options),
    }
}
gradient_check!(cross_entropy_weights, |x| weighted(x, Reduction::Mean, 0.0, -100), [4, 5], [5]);
gradient_check!(cross_entropy_weights_smooth, |x| weighted(x, Reduction::Mean, 0.2, 3), [4, 5], [5]);
gradient_check!(cross_entropy_weights_none, |x| weighted(x, Reduction::None, 0.1, -100), [4, 3], [3]);
gradient_check!(cross_entropy_weights_no_rows, |x| weighted(x, Reduction::Sum, 0.0, -100), [0, 3], [3]);
gradient_check!(cross_entropy_soft, |x| soft(x, Reduction::Mean, 0.0), [4, 5], [4, 5]);
gradient_check!(cross_entropy_soft_smooth, |x| soft(x, Reduction::None, 0.2), [4, 5], [4, 5]);
gradient_check!(cross_entropy_soft_weights, |x| soft(x, Reduction::Mean, 0.1), [4, 5], [4, 5], [5]);
gradient_check!(cross_entropy_soft_one_class, |x| soft(x, Reduction::Sum, 0.0), [3, 1], [3, 1]);

fn probability(x: &Tensor) -> Result<Tensor> {
    x.mul_scalar(0.45)?.add_scalar(0.5)
}
fn soft_target(shape: &[usize]) -> Result<Tensor> {
    stream(31, shape, DType::F64, 0.0, 1.0)
}
fn classes(rows: usize, classes: usize) -> Result<Tensor> {
    constant(Tensor::from_vec((0..rows).map(|i| ((i * 7 + 3) % classes) as i64).collect(), [rows])?)
}
gradient_check!(bce, |x| probability(&x[0])?.binary_cross_entropy(&soft_target(&[5, 3])?), [5, 3]);
gradient_check!(bce_none, |x| probability(&x[0])?.binary_cross_entropy_with(&soft_target(&[7])?, Reduction::None), [7]);
gradient_check!(
    bce_no_rows,
    |x| probability(&x[0])?.binary_cross_entropy_with(&soft_target(&[0, 1])?, Reduction::Sum),
    [0, 1]
);
gradient_check!(bce_of_sigmoid, |x| x[0].sigmoid()?.binary_cross_entropy(&soft_target(&[4, 1])?), [4, 1]);
gradient_check!(
    bce_with_logits,
    |x| x[0].mul_scalar(5)?.binary_cross_entropy_with_logits(&soft_target(&[5, 3])?),
    [5, 3]
);
gradient_check!(
    bce_with_logits_sum,
    |x| x[0].binary_cross_entropy_with_logits_with(&soft_target(&[1, 1])?, Reduction::Sum),
    [1, 1]
);
gradient_check!(
    bce_weights,
    |x| {
        let loss = BCELoss::new().weight(&x[1].abs()?);
        loss.forward(&probability(&x[0])?, &soft_target(&[5, 3])?)
    },
    [5, 3],
    [3]
);
gradient_check!(
    bce_with_logits_weights,
    |x| {
        let factors = stream(41, [3], DType::F64, 0.2, 3.0)?;
        let loss = BCEWithLogitsLoss::new().pos_weight(&factors).weight(&x[1]);
        loss.forward(&x[0].mul_scalar(5)?, &soft_target(&[5, 3])?)
    },
    [5, 3],
    [5, 1]
);
gradient_check!(smooth_l1, |x| x[0].smooth_l1_loss(&x[1]), [4, 3], [4, 3]);
gradient_check!(smooth_l1_none, |x| x[0].smooth_l1_loss_with(&x[1], 0.4, Reduction::None), [4, 3], [4, 3]);
gradient_check!(huber, |x| x[0].huber_loss(&x[1]), [4, 3], [4, 3]);
gradient_check!(huber_none, |x| x[0].huber_loss_with(&x[1], 0.4, Reduction::None), [4, 3], [4, 3]);
gradient_check!(nll_weights, |x| NLLLoss::new().weight(&x[1].abs()?).forward(&x[0], &classes(4, 5)?), [4, 5], [5]);

// Normalisation of rows and groups.
gradient_check!(layer_norm, |x| x[0].layer_norm([5], Some(&x[1]), Some(&x[2]), 1e-3), [4, 5], [5], [5]);
gradient_check!(layer_norm_images, |x| x[0].layer_norm([3, 2, 4], Some(&x[1]), None, 1e-3), [2, 3, 2, 4], [3, 2, 4]);
gradient_check!(layer_norm_plain, |x| x[0].layer_norm([7], None, None, 1e-3), [2, 3, 7]);
gradient_check!(layer_norm_bias_only, |x| x[0].layer_norm([3], None, Some(&x[1]), 1e-3), [2, 3], [3]);
gradient_check!(layer_norm_one_element, |x| x[0].layer_norm([1], Some(&x[1]), Some(&x[2]), 0.1), [3, 1], [1], [1]);
gradient_check!(layer_norm_no_rows, |x| x[0].layer_norm([4], Some(&x[1]), Some(&x[2]), 1e-5), [0, 4], [4], [4]);
gradient_check!(group_norm, |x| x[0].group_norm(2, Some((&x[1], &x[2])), 1e-3), [2, 4, 2, 3], [4], [4]);
gradient_check!(group_norm_one_group, |x| x[0].group_norm(1, Some((&x[1], &x[2])), 1e-3), [2, 3, 2, 2], [3], [3]);
gradient_check!(group_norm_each_channel, |x| x[0].group_norm(3, None, 1e-3), [2, 3, 3]);
gradient_check!(
    batch_norm_sequence,
    |x| Ok(x[0].batch_norm_train(Some((&x[1], &x[2])), None, None, 1e-3)?.output),
    [2, 3, 4],
    [3],
    [3]
);

// Images at other sizes.
fn same_size(x: &[Tensor], dilation: [usize; 2], groups: usize) -> Result<Tensor> {
    x[0].conv2d_same(&x[1], x.get(2), Conv2dOptions { dilation, groups, ..Default::default() })
}
gradient_check!(conv2d_same, |x| same_size(x, [1, 1], 1), [2, 2, 4, 3], [3, 2, 5, 2], [3]);
gradient_check!(conv2d_same_even, |x| same_size(x, [3, 1], 1), [1, 2, 5, 3], [2, 2, 2, 4]);
gradient_check!(conv2d_same_depthwise, |x| same_size(x, [1, 2], 3), [1, 3, 3, 4], [3, 1, 2, 2], [3]);
gradient_check!(upsample_factors, |x| x[0].upsample_nearest2d([6, 4]), [2, 3, 3, 2]);
gradient_check!(upsample_size, |x| x[0].upsample_nearest2d([5, 3]), [2, 3, 3, 2]);
gradient_check!(downsample, |x| x[0].upsample_nearest2d([2, 3]), [1, 2, 5, 7]);
gradient_check!(adaptive_avg_pool2d, |x| x[0].adaptive_avg_pool2d([3, 2]), [2, 3, 7, 5]);
gradient_check!(adaptive_avg_pool2d_larger, |x| x[0].adaptive_avg_pool2d([4, 5]), [1, 2, 3, 3]);
gradient_check!(
    max_pool2d_dilated,
    |x| x[0].max_pool2d_dilated(PoolOptions { stride: [2, 1], padding: [1, 0], ..PoolOptions::square(2) }, [2, 3]),
    [2, 2, 6, 5]
);

gradient_check!(mse, |x| x[0].mse_loss(&x[1]), [4, 3], [4, 3]);
gradient_check!(mse_none, |x| x[0].mse_loss_with(&x[1], Reduction::None), [4, 3], [4, 3]);
gradient_check!(l1, |x| x[0].l1_loss(&x[1]), [4, 3], [4, 3]);
gradient_check!(l1_sum, |x| x[0].l1_loss_with(&x[1], Reduction::Sum), [1], [1]);
gradient_check!(nll, |x| x[0].nll_loss(&classes(4, 5)?), [4, 5]);
gradient_check!(nll_of_log_softmax, |x| x[0].log_softmax(1)?.nll_loss(&classes(4, 5)?), [4, 5]);

// Rules one after another, as a network has them.
gradient_check!(
    conv2d_scaled_by_channel,
    |x| {
        let y = conv(&x[..2], [1, 1], [1, 1], [1, 1], 1)?;
        y.mul(&x[2])?.add(&x[3])?.relu()?.add(&x[4])
    },
    [2, 2, 3, 4],
    [3, 2, 3, 3],
    [3, 1, 1],
    [1, 3, 1, 4],
    [2, 1, 3, 1]
);
gradient_check!(
    relu_and_what_was_before_it,
    |x| {
        let y = x[0].linear(&x[1], Some(&x[2]))?;
        (&y.relu()? + &y.tanh()?)?.mul(&y)
    },
    [4, 7],
    [5, 7],
    [5]
);
gradient_check!(
    small_network,
    |x| {
        let y = conv(&x[..3], [1, 1], [1, 1], [1, 1], 1)?.relu()?.max_pool2d(PoolOptions::square(2))?;
        y.flatten(1, -1)?.linear(&x[3], Some(&x[4]))?.relu()?.cross_entropy(&constant([1i64, 2])?)
    },
    [2, 2, 4, 4],
    [3, 2, 3, 3],
    [3],
    [4, 12],
    [4]
);
gradient_check!(
    residual_block,
    |x| {
        let y = conv(&[x[0].clone(), x[1].clone()], [1, 1], [1, 1], [1, 1], 1)?;
        let y = batch_norm(&[y, x[2].clone(), x[3].clone()], true)?;
        (&y + &x[0])?.relu()?.global_avg_pool2d()
    },
    [2, 3, 3, 3],
    [3, 3, 3, 3],
    [3],
    [3]
);

/// Differences across f32 would see its rounding; the rule itself is exact.
#[test]
fn cast_passes_the_gradient() -> Result<()> {
    for narrow in [DType::F32, DType::F16, DType::BF16] {
        let x = stream(1, [3, 5], DType::F64, -1.0, 1.0)?.requires_grad()?;
        let dy = stream(2, [3, 5], narrow, -1.0, 1.0)?;
        x.to_dtype(narrow)?.mul(&dy)?.sum()?.backward()?;
        let gradient = x.grad().expect("a gradient");
        assert_eq!(gradient.dtype(), DType::F64);
        assert_eq!(gradient.to_vec::<f64>()?, dy.to_vec::<f64>()?, "{narrow}");
    }
    // Through whole numbers nothing flows.
    let x = stream(1, [3], DType::F64, -9.0, 9.0)?.requires_grad()?;
    (x.to_dtype(DType::I64)?.to_dtype(DType::F64)? + &x)?.sum()?.backward()?;
    assert_eq!(x.grad().expect("a gradient").to_vec::<f64>()?, [1.0; 3]);
    Ok(())
}

/// Backward drops what forward dropped, also when the output was read in between and forward runs again.
#[test]
fn dropout_backward_has_the_forward_mask() -> Result<()> {
    for (p, read_first) in [(0.5, false), (0.5, true), (0.9, false), (0.1, true), (1.0, false)] {
        let x = stream(3, [40, 25], DType::F64, 1.0, 2.0)?.requires_grad()?;
        let dy = stream(4, [40, 25], DType::F64, -1.0, 1.0)?;
        let y = x.dropout(p)?;
        let first = if read_first { Some(y.to_vec::<f64>()?) } else { None };
        y.mul(&dy)?.sum()?.backward()?;
        let (y, x64, dy) = (y.to_vec::<f64>()?, x.to_vec::<f64>()?, dy.to_vec::<f64>()?);
        assert!(first.is_none_or(|f| f == y), "the second forward dropped other elements");
        let dropped = y.iter().filter(|v| **v == 0.0).count() as f64 / 1000.0;
        assert!((dropped - p).abs() < 0.06, "{dropped} dropped instead of {p}");
        let gradient = x.grad().expect("a gradient").to_vec::<f64>()?;
        for i in 0..1000 {
            let scale = if y[i] == 0.0 { 0.0 } else { 1.0 / (1.0 - p) };
            assert!((y[i] - x64[i] * scale).abs() < 1e-12);
            assert!((gradient[i] - dy[i] * scale).abs() < 1e-12, "element {i}: {} {}", gradient[i], dy[i] * scale);
        }
    }
    Ok(())
}

/// Two dropouts in one graph drop different elements.
#[test]
fn dropout_keys_differ() -> Result<()> {
    let x = Tensor::ones([1000], DType::F32)?;
    let (a, b) = (x.dropout(0.5)?, x.dropout(0.5)?);
    let both = (&a * &b)?.to_vec::<f32>()?.iter().filter(|v| **v != 0.0).count();
    assert!((150..350).contains(&both), "{both} of 1000 survive both");
    Ok(())
}

/// Of equal elements PyTorch's rules differ: halves for maximum, equal shares for amax, all to the first for max_dim.
#[test]
fn ties() -> Result<()> {
    let gradient = |f: &dyn Fn(&Tensor) -> Result<Tensor>| -> Result<Vec<f64>> {
        let x = Tensor::from([2.0f64, 1.0, 2.0, 0.0]).requires_grad()?;
        f(&x)?.sum()?.backward()?;
        x.grad().expect("a gradient").to_vec::<f64>()
    };
    assert_eq!(gradient(&|x| x.maximum(&Tensor::from([2.0f64, 2.0, 1.0, -0.0])))?, [0.5, 0.0, 1.0, 0.5]);
    assert_eq!(gradient(&|x| x.amax(&[0], false))?, [0.5, 0.0, 0.5, 0.0]);
    assert_eq!(gradient(&|x| Ok(x.max_dim(0, false)?.0))?, [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(gradient(&|x| x.reshape([1, 1, 2, 2])?.max_pool2d(PoolOptions::square(2)))?, [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(gradient(&|x| x.relu())?, [1.0, 1.0, 1.0, 0.0]);
    assert_eq!(gradient(&|x| x.abs())?, [1.0, 1.0, 1.0, 0.0]);
    assert_eq!(gradient(&|x| x.clamp(0.0, 2.0))?, [0.0, 1.0, 0.0, 0.0]);
    Ok(())
}

/// What does not depend on a leaf through gradients gives it none, or zeros.
#[test]
fn nothing_flows_where_nothing_should() -> Result<()> {
    let x = Tensor::from([1.0f64, -2.0]).requires_grad()?;
    (x.detach() * &x)?.sum()?.backward()?;
    assert_eq!(x.grad().expect("a gradient").to_vec::<f64>()?, [1.0, -2.0]);
    assert!(no_grad(|| x.exp()?.sum())?.backward().is_err());
    assert!(x.gt_scalar(0)?.to_dtype(DType::F64)?.sum()?.backward().is_err() || x.grad().is_some());
    // Twice into the same leaf adds.
    (&x * 3.0)?.sum()?.backward()?;
    assert_eq!(x.grad().expect("a gradient").to_vec::<f64>()?, [4.0, 1.0]);
    Ok(())
}

/// The stream behind all inputs is the one that PyTorch's vectors use.
#[test]
fn stream_is_splitmix64() {
    assert_eq!(splitmix64(0, 0), 16294208416658607535);
}

/// The check itself must see a wrong rule: here half of the gradient of x² is cut off.
#[test]
#[should_panic(expected = "differences give")]
fn a_wrong_gradient_is_seen() {
    check(&[&[3]], Device::Cpu, &|x| x[0].detach().mul(&x[0])).expect("no error but a wrong gradient");
}
