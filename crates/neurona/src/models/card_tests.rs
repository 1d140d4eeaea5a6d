use super::*;
use crate::Tensor;
use crate::io::StateDict;
use std::path::PathBuf;

struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Temporary(std::env::temp_dir().join(format!("neurona-card-{name}-{}", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn card() -> Card {
    let spec = Spec::new("resnet18_cifar", 3).unwrap().images([1, 28, 20]);
    Card::new(spec, ["a", "ü", "\"c\""])
        .normalize([0.2860], [0.3530])
        .resize(Resize::ShorterSide(32))
        .note("trained by", "a test")
}

fn refused(path: &Path) -> String {
    match open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_model_file_needs_nothing_else() -> Result<()> {
    let at = Temporary::new("whole");
    let (card, x) = (card(), Tensor::rand([2, 1, 28, 20])?);
    let net = card.spec.build()?;
    card.save(&at.0, &net)?;
    net.eval();
    let (again, read) = open(&at.0)?;
    assert_eq!(read, card);
    assert_eq!(again.forward(&x)?.to_vec::<f32>()?, net.forward(&x)?.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn every_network_has_a_card_and_its_ends() -> Result<()> {
    for name in Spec::NAMES {
        let spec = Spec::new(name, 7)?;
        let card = Card::new(spec.clone(), (0..7).map(|i| i.to_string()));
        assert_eq!(Card::from_metadata(&card.to_metadata())?, Some(card));
        let net = init::left_empty(usize::MAX, || spec.build())?;
        let parameters: BTreeMap<_, _> = net.named_parameters().into_iter().collect();
        let shape = |path: &str| parameters[&format!("{path}.weight")].shape();
        assert_eq!((shape(spec.head_path()?)[0], shape(spec.stem_path()?)[1]), (7, spec.channels), "{name}");
    }
    Ok(())
}

#[test]
fn other_files_are_named_for_what_they_are() -> Result<()> {
    let at = Temporary::new("other");
    for (bytes, what) in [
        (&b"PK\x03\x04 and so on, like a zip file"[..], "a PyTorch (.pth) or other zip file"),
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "a pickle"),
        (b"\x08\x08\x12\x07pytorch\x1a\x052.5.1", "an ONNX file"),
        (b"some text that is no model", "is not a safetensors file"),
    ] {
        std::fs::write(&at.0, bytes).unwrap();
        let error = refused(&at.0);
        assert!(error.contains(what), "{error}");
    }
    let state: StateDict = [("w", Tensor::from([1.0f32]))].into_iter().collect();
    safetensors::save(&at.0, &state, &BTreeMap::new())?;
    let error = refused(&at.0);
    assert!(error.contains("1 tensors but no model card") && error.contains("--weights"), "{error}");
    Ok(())
}

#[test]
fn cards_that_lie_are_refused() -> Result<()> {
    let (at, card) = (Temporary::new("lies"), card());
    let state = card.spec.build()?.state_dict()?;
    let with = |change: &dyn Fn(&mut Value)| -> Result<String> {
        let mut value = card.to_json();
        change(&mut value);
        safetensors::save(&at.0, &state, &[(KEY.into(), value.to_string())].into())?;
        Ok(refused(&at.0))
    };
    let network = |key: &'static str, new: Value| with(&move |v| v["network"][key] = new.clone());
    for (error, what) in [
        (network("name", json!("resnet19"))?, "no network called 'resnet19'; did you mean resnet18?"),
        (network("name", json!("small_cnn"))?, "do not fit its card, which says small_cnn"),
        (network("name", json!("vgg16"))?, "28 x 28"),
        (with(&|v| v["version"] = json!(2))?, "version 2"),
        (with(&|v| v["version"] = json!("x"))?, "\"version\" is not"),
        (with(&|v| v["classes"] = json!(["a", "b"]))?, "2 names for 3 classes"),
        (with(&|v| v["classes"] = json!(["a", 1, "b"]))?, "list of names"),
        (with(&|v| v["mean"] = json!([0.5, 0.5]))?, "2 means"),
        (with(&|v| v["mean"] = json!(["x"]))?, "list of numbers"),
        (with(&|v| v["std"] = json!([0.0]))?, "cannot be normalised"),
        (with(&|v| v["resize"] = json!({ "shorter_side": 27 }))?, "no 20 x 28 pixels"),
        (with(&|v| v["resize"] = json!("bigger"))?, "\"resize\" is not"),
    ] {
        assert!(error.contains(what) || what == "28 x 28" && error.contains("20 x 28"), "{what}: {error}");
    }
    safetensors::save(&at.0, &state, &[(KEY.into(), "{".into())].into())?;
    assert!(refused(&at.0).contains("broken model card: the card is not JSON"));
    Ok(())
}

#[test]
fn a_card_that_claims_much_gets_no_memory() -> Result<()> {
    let at = Temporary::new("claims");
    let state = Spec::new("lenet", 2)?.build()?.state_dict()?;
    let huge = 1u64 << 40;
    for (name, sizes, argument) in [
        ("lenet", [3, 1 << 20, 1 << 20], None),
        ("lenet", [huge, 32, 32], None),
        ("small_cnn", [1, huge, huge], None),
        ("vgg16", [3, 224, 224], None),
        ("vit_b_16", [3, huge, huge], None),
        ("vit_b_16", [3, 224, 224], Some(("num_layers", 9e15))),
        ("vit_b_16", [3, 224, 224], Some(("hidden_dim", 12e14))),
        ("mobilenet_v2", [3, 224, 224], Some(("width_mult", 1e6))),
    ] {
        let mut spec = Spec::new(name, 2)?.images(sizes.map(|s| s as usize));
        if let Some((argument, value)) = argument {
            spec = spec.with(argument, value);
        }
        let card = Card::new(Spec { channels: spec.channels.min(3), ..spec.clone() }, ["a", "b"]);
        let mut value = card.to_json();
        value["network"]["channels"] = json!(spec.channels);
        safetensors::save(&at.0, &state, &[(KEY.into(), value.to_string())].into())?;
        refused(&at.0);
    }
    Ok(())
}
