//! All losses against PyTorch's values and gradients.

use super::*;
use crate::io::safetensors;
use serde_json::Value;

const ORACLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/losses.safetensors");

fn agree(what: &str, got: &Tensor, want: &Tensor, tol: f64) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    let (got, want) = (got.to_vec::<f64>().unwrap(), want.to_vec::<f64>().unwrap());
    let scale = want.iter().filter(|w| w.is_finite()).fold(1.0, |m: f64, w| m.max(w.abs()));
    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
        let same = g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= tol * scale;
        assert!(same, "{what}[{i}]: {g} but PyTorch has {w}");
    }
}

fn loss(case: &Value, x: &Tensor, target: &Tensor, more: &[&Tensor]) -> Result<Tensor> {
    let attrs = &case["attrs"];
    let reduction = match attrs["reduction"].as_str().unwrap() {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        _ => Reduction::Mean,
    };
    let ignore = attrs["ignore_index"].as_i64().unwrap_or(-100);
    let weighted = attrs["weight"] == true;
    match case["op"].as_str().unwrap() {
        "cross_entropy" => {
            let smoothing = attrs["label_smoothing"].as_f64().unwrap();
            let loss = CrossEntropyLoss::new().reduction(reduction).label_smoothing(smoothing).ignore_index(ignore);
            if weighted { loss.weight(more[0]) } else { loss }.forward(x, target)
        }
        "nll" => {
            let loss = NLLLoss::new().reduction(reduction).ignore_index(ignore);
            if weighted { loss.weight(more[0]) } else { loss }.forward(x, target)
        }
        "binary_cross_entropy" => {
            let loss = BCELoss::new().reduction(reduction);
            if weighted { loss.weight(more[0]) } else { loss }.forward(x, target)
        }
        "binary_cross_entropy_with_logits" => {
            let loss = BCEWithLogitsLoss::new().reduction(reduction);
            let loss = if weighted { loss.weight(more[0]) } else { loss };
            if attrs["pos_weight"] == true { loss.pos_weight(more[more.len() - 1]) } else { loss }.forward(x, target)
        }
        "mse" => MSELoss::new().reduction(reduction).forward(x, target),
        "l1" => L1Loss::new().reduction(reduction).forward(x, target),
        "smooth_l1" => {
            SmoothL1Loss::new().reduction(reduction).beta(attrs["beta"].as_f64().unwrap()).forward(x, target)
        }
        "huber" => HuberLoss::new().reduction(reduction).delta(attrs["delta"].as_f64().unwrap()).forward(x, target),
        other => panic!("{other}"),
    }
}

#[test]
fn values_and_gradients_are_pytorchs() -> Result<()> {
    let (tensors, cases) = safetensors::load_with_metadata(ORACLE)?;
    let mut checked = 0;
    for (name, case) in &cases {
        let case: Value = serde_json::from_str(case).unwrap();
        let part = |role: &str| tensors.get(&format!("{name}/{role}"));
        let x = part("in0").unwrap().requires_grad()?;
        let more: Vec<&Tensor> = (2..).map_while(|i| part(&format!("in{i}"))).collect();
        let y = loss(&case, &x, part("in1").unwrap(), &more)?;
        let tol = case["tol"].as_f64().unwrap();
        agree(&format!("{name} loss"), &y, part("out0").unwrap(), tol);
        if let (Some(dout), Some(din)) = (part("dout0"), part("din0")) {
            let y = loss(&case, &x, part("in1").unwrap(), &more)?;
            (&y * dout)?.sum()?.backward()?;
            agree(&format!("{name} gradient"), &x.grad().unwrap(), din, tol);
        }
        checked += 1;
    }
    assert!(checked > 120, "{checked}");
    Ok(())
}

#[test]
fn shapes_must_be_equal() {
    let (x, t) = (Tensor::from([[0.5f32], [0.5]]), Tensor::from([1.0f32, 0.0]));
    let losses = [
        x.mse_loss(&t),
        x.l1_loss(&t),
        x.smooth_l1_loss(&t),
        x.huber_loss(&t),
        x.binary_cross_entropy(&t),
        x.binary_cross_entropy_with_logits(&t),
    ];
    for error in losses {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("must have the same shape (input [2, 1], target [2])"), "{error}");
        assert!(error.contains(file!()), "{error}");
    }
    assert!(x.nll_loss(&t).is_err());
}

#[test]
fn small_tails_keep_their_precision() -> Result<()> {
    let loss = Tensor::from([20.0f32]).binary_cross_entropy_with_logits(&Tensor::from([1.0f32]))?.item::<f32>()?;
    assert!((loss / 2.0611537e-9 - 1.0).abs() < 1e-5, "{loss}");
    Ok(())
}

#[test]
fn a_target_that_is_no_class_is_an_error_or_gives_nan() -> Result<()> {
    let x = Tensor::from([[-1.0f32, -2.0], [-1.0, -2.0], [-1.0, -2.0]]);
    let loss = NLLLoss::new().reduction(Reduction::None);
    assert!(loss.forward(&x, &Tensor::from([2i64, -1, 1])).is_err());
    // Not computed yet: nobody can know.
    let targets = Tensor::from([1i64, -2, 0]).add_scalar(1)?;
    let y = loss.forward(&x, &targets)?.to_vec::<f32>()?;
    assert!(y[0].is_nan() && y[1].is_nan() && y[2] == 2.0, "{y:?}");
    Ok(())
}

#[test]
fn weights_must_fit() -> Result<()> {
    let (x, t, w) = (Tensor::from([[0.5f32, 0.1], [0.2, 0.9]]), Tensor::from([1i64, 0]), Tensor::from([1.0f32; 3]));
    assert!(CrossEntropyLoss::new().weight(&w).forward(&x, &t).is_err());
    assert!(NLLLoss::new().weight(&w).forward(&x, &t).is_err());
    let soft = Tensor::from([[0.5f32, 0.5], [0.0, 1.0]]);
    assert!(CrossEntropyLoss::new().weight(&w).forward(&x, &soft).is_err());
    assert!(CrossEntropyLoss::new().ignore_index(1).forward(&x, &soft).is_err());
    assert!(CrossEntropyLoss::new().forward(&x, &soft.reshape([4])?).is_err());
    assert!(BCELoss::new().weight(&w).forward(&x, &soft).is_err());
    assert!(BCEWithLogitsLoss::new().pos_weight(&w).forward(&x, &soft).is_err());
    assert!(x.smooth_l1_loss_with(&soft, -1.0, Reduction::Mean).is_err());
    assert!(x.huber_loss_with(&soft, 0.0, Reduction::Mean).is_err());
    // A class that is not the target may be impossible.
    let x = Tensor::from([[0.0f32, f32::NEG_INFINITY]]);
    let loss = CrossEntropyLoss::new().weight(&Tensor::from([2.0f32, 1.0])).forward(&x, &Tensor::from([0i64]))?;
    assert_eq!(loss.item::<f32>()?, 0.0);
    Ok(())
}
