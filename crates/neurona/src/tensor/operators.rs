//! `+`, `-`, `*`, `/` between tensors, and between tensors and plain numbers. They can fail, so each gives
//! a `Result`; a failed operand may stand on either side, so that `(&a * &b + &c)?` needs one `?`.

use super::{Number, Tensor};
use crate::{Error, Result};
use std::ops::{Add, Div, Mul, Neg, Sub};

macro_rules! operator { ($($trait:ident $method:ident $number:ident),*) => { $(
    impl $trait<&Tensor> for &Tensor {
        type Output = Result<Tensor>;
        #[track_caller]
        fn $method(self, other: &Tensor) -> Result<Tensor> { Tensor::$method(self, other) }
    }
    impl $trait<Tensor> for Tensor {
        type Output = Result<Tensor>;
        #[track_caller]
        fn $method(self, other: Tensor) -> Result<Tensor> { Tensor::$method(&self, &other) }
    }
    impl $trait<Tensor> for &Tensor {
        type Output = Result<Tensor>;
        #[track_caller]
        fn $method(self, other: Tensor) -> Result<Tensor> { Tensor::$method(self, &other) }
    }
    impl $trait<&Tensor> for Tensor {
        type Output = Result<Tensor>;
        #[track_caller]
        fn $method(self, other: &Tensor) -> Result<Tensor> { Tensor::$method(&self, other) }
    }
    impl $trait<Result<Tensor>> for &Tensor {
        type Output = Result<Tensor>;
        #[track_caller]
        fn $method(self, other: Result<Tensor>) -> Result<Tensor> { Tensor::$method(self, &other?) }
    }
    impl $trait<&Tensor> for Result<Tensor, Error> {
        type Output = Result<Tensor>;
        #[track_caller]
        fn $method(self, other: &Tensor) -> Result<Tensor> { Tensor::$method(&self?, other) }
    }
    impl $trait<f64> for &Tensor {
        type Output = Result<Tensor>;
        #[track_caller]
        fn $method(self, other: f64) -> Result<Tensor> { self.$number(Number::Float(other)) }
    }
    impl $trait<i64> for &Tensor {
        type Output = Result<Tensor>;
        #[track_caller]
        fn $method(self, other: i64) -> Result<Tensor> { self.$number(Number::Int(other)) }
    }
    impl $trait<&Tensor> for f64 {
        type Output = Result<Tensor>;
        #[track_caller]
        fn $method(self, other: &Tensor) -> Result<Tensor> { Tensor::$method(&other.number(Number::Float(self)), other) }
    }
)* } }
operator!(Add add add_scalar, Sub sub sub_scalar, Mul mul mul_scalar, Div div div_scalar);

impl Neg for &Tensor {
    type Output = Result<Tensor>;
    #[track_caller]
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}
