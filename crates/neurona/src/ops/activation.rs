//! What smooth and leaky activations share: the function and its gradient are two element-wise ops, each one
//! expression, so that a backward pass reads dy and x once.

/// Writes the op of a function and the op of its gradient. Operands: x, then options as plain numbers, which
/// are inputs of the plan; of the gradient dy, x, then the same. The file gives `tile` and `cuda` for both.
macro_rules! activation { ($(#[$doc:meta])* $Op:ident { $($field:ident: $t:ty),* } $name:literal, $Grad:ident $grad:literal) => {
    $(#[$doc])*
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub(crate) struct $Op { $(pub $field: $t),* }

    /// The gradient: dy times the derivative at x.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub(crate) struct $Grad { $(pub $field: $t),* }

    impl $crate::ops::Operation for $Op {
        fn name(&self) -> &'static str {
            $name
        }
        fn outputs(&self, inputs: &[&$crate::tensor::Meta]) -> $crate::Result<$crate::graph::node::Metas> {
            $crate::ops::one(inputs[0].clone())
        }
        fn gradient(&self, at: &$crate::ops::At<'_>) -> $crate::Result<Vec<Option<$crate::Tensor>>> {
            let dy = at.dy()?;
            let operands: smallvec::SmallVec<[&$crate::Tensor; 3]> = std::iter::once(&dy).chain(at.inputs).collect();
            let mut gradients = vec![None; at.inputs.len()];
            gradients[0] = Some($crate::Tensor::apply($Grad { $($field: self.$field),* }, &operands)?);
            Ok(gradients)
        }
        fn run(&self) -> $crate::ops::Run {
            $crate::ops::Run::Elementwise($crate::ops::Elementwise { tile, cuda })
        }
    }

    impl $crate::ops::Operation for $Grad {
        fn name(&self) -> &'static str {
            $grad
        }
        fn outputs(&self, inputs: &[&$crate::tensor::Meta]) -> $crate::Result<$crate::graph::node::Metas> {
            $crate::ops::one(inputs[1].clone())
        }
        fn run(&self) -> $crate::ops::Run {
            $crate::ops::Run::Elementwise($crate::ops::Elementwise { tile, cuda })
        }
    }
} }
pub(crate) use activation;
