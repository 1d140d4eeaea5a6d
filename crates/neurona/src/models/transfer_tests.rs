use super::*;
use crate::nn::Module;
use crate::optim::{Optimizer, Sgd};

fn cifar(classes: usize, channels: usize) -> Result<(Spec, Box<dyn Forward>)> {
    let spec = Spec::new("resnet18_cifar", classes)?.images([channels, 8, 8]);
    let net = spec.build()?;
    Ok((spec, net))
}

fn values(net: &dyn Forward, name: &str) -> Result<Vec<f32>> {
    net.state_dict()?.get(name).expect("a tensor of the network").to_vec::<f32>()
}

#[test]
fn the_backbone_is_taken_and_a_fitting_head_too() -> Result<()> {
    let trained = cifar(5, 3)?.1.state_dict()?;
    let (spec, net) = cifar(3, 3)?;
    let fresh = values(&*net, "fc.weight")?;
    let report = load(&spec, &*net, &trained, Stem::Same)?;
    assert_eq!((report.taken.len(), report.fresh.len(), report.unused.len()), (120, 2, 0));
    assert_eq!(values(&*net, "fc.weight")?, fresh);
    let name = "layer3.1.conv2.weight";
    assert_eq!(values(&*net, name)?, trained.get(name).expect("a filter").to_vec::<f32>()?);
    let (spec, net) = cifar(5, 3)?;
    let mut old = trained.clone();
    old.remove("bn1.num_batches_tracked");
    assert!(load(&spec, &*net, &old, Stem::Same)?.fresh.is_empty());
    assert_eq!(values(&*net, "fc.weight")?, trained.get("fc.weight").expect("a head").to_vec::<f32>()?);
    Ok(())
}

#[test]
fn other_networks_are_refused_and_nothing_changes() -> Result<()> {
    let (spec, net) = cifar(3, 3)?;
    let before = values(&*net, "conv1.weight")?;
    let refused = |weights: &StateDict| load(&spec, &*net, weights, Stem::Average).unwrap_err().to_string();
    let lenet = Spec::new("lenet", 3)?.build()?.state_dict()?;
    let error = refused(&lenet);
    assert!(error.starts_with("these are not weights of resnet18_cifar: 0 of its 102 tensors fit"), "{error}");
    assert!(error.contains("missing: bn1.weight") && error.contains(" more"), "{error}");
    let deeper = Spec::new("resnet34_cifar", 3)?.build_empty()?.state_dict()?;
    let error = refused(&deeper);
    assert!(error.contains("not used: layer1.2.conv1.weight"), "{error}");
    let large = Spec::new("resnet18", 3)?.build_empty()?.state_dict()?;
    let error = refused(&large);
    let shape = "of another shape: conv1.weight (network [64, 3, 3, 3], weights [64, 3, 7, 7])";
    assert!(error.contains(shape), "{error}");
    let head: StateDict = [("fc.bias", Tensor::from([1.0f32, 2.0, 3.0]))].into_iter().collect();
    refused(&head);
    refused(&StateDict::new());
    assert_eq!(values(&*net, "conv1.weight")?, before);
    Ok(())
}

#[test]
fn grey_images_use_averaged_filters_on_request() -> Result<()> {
    let (_, colour) = cifar(3, 3)?;
    let (spec, grey) = cifar(3, 1)?;
    let trained = colour.state_dict()?;
    let error = load(&spec, &*grey, &trained, Stem::Same).unwrap_err().to_string();
    assert!(error.contains("images of 3 channels, resnet18_cifar is built for 1"), "{error}");
    load(&spec, &*grey, &trained, Stem::Average)?;
    colour.eval();
    grey.eval();
    let x = Tensor::rand([2, 1, 8, 8])?;
    let (a, b) = (grey.forward(&x)?, colour.forward(&x.broadcast_to([2, 3, 8, 8])?)?);
    for (a, b) in a.to_vec::<f32>()?.iter().zip(b.to_vec::<f32>()?) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    Ok(())
}

#[test]
fn older_names_of_vit_are_understood_and_other_sizes_explained() -> Result<()> {
    let small = |spec: Spec| spec.with("num_layers", 2.0).with("hidden_dim", 24.0).with("mlp_dim", 8.0);
    let spec = small(Spec::new("vit_b_16", 3)?.images([3, 32, 32]));
    let trained = spec.build()?.state_dict()?;
    let old = |n: &str| n.replace(".mlp.0.", ".mlp.linear_1.").replace(".mlp.3.", ".mlp.linear_2.");
    let older: StateDict = trained.iter().map(|(n, t)| (old(n), t.clone())).collect();
    let net = spec.build()?;
    assert!(load(&spec, &*net, &older, Stem::Same)?.fresh.is_empty());
    let name = "encoder.layers.encoder_layer_1.mlp.3.weight";
    assert_eq!(values(&*net, name)?, trained.get(name).expect("a matrix").to_vec::<f32>()?);
    let larger = small(Spec::new("vit_b_16", 3)?.images([3, 64, 64]));
    let error = load(&larger, &*larger.build()?, &trained, Stem::Same).unwrap_err().to_string();
    assert!(error.contains("depends on the image size"), "{error}");
    Ok(())
}

#[test]
fn a_frozen_backbone_keeps_parameters_and_statistics() -> Result<()> {
    let (spec, net) = cifar(3, 3)?;
    let (x, labels) = (Tensor::rand([4, 3, 8, 8])?, Tensor::from([0i64, 1, 2, 0]));
    let step = |lr: f64| -> Result<()> {
        net.train();
        net.zero_grad();
        let mut optimizer = Sgd::with_groups(groups(&spec, &*net, lr)?, 0.1);
        net.forward(&x)?.cross_entropy(&labels)?.backward()?;
        optimizer.step()
    };
    let read = || -> Result<[Vec<f32>; 3]> {
        Ok([values(&*net, "conv1.weight")?, values(&*net, "bn1.running_mean")?, values(&*net, "fc.weight")?])
    };
    let start = read()?;
    freeze_backbone(&spec, &*net, true)?;
    step(0.1)?;
    let held = read()?;
    assert_eq!((&held[0], &held[1]), (&start[0], &start[1]));
    assert_ne!(held[2], start[2]);
    // PyTorch's way: only statistics move.
    freeze_backbone(&spec, &*net, false)?;
    step(0.1)?;
    let moved = read()?;
    assert_eq!(moved[0], start[0]);
    assert_ne!(moved[1], start[1]);
    unfreeze(&*net);
    assert_eq!(net.num_trainable_parameters(), net.num_parameters());
    // A backbone whose learning rate is 0 stays, and only its own.
    step(0.0)?;
    assert_eq!(read()?[0], start[0]);
    assert_ne!(read()?[2], moved[2]);
    step(0.1)?;
    assert_ne!(read()?[0], start[0]);
    Ok(())
}
