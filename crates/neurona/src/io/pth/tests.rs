use super::*;
use crate::io::{safetensors, zip};
use crate::{DType, Tensor};
use half::{bf16, f16};
use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/pth")
}

fn bits(tensor: &Tensor) -> Vec<u8> {
    let storage = crate::graph::engine::value(tensor).unwrap();
    storage.read::<u8>()[..tensor.meta().bytes()].to_vec()
}

/// A checkpoint of this pickle and these storages.
fn file(pickle: &[u8], storages: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut archive = zip::Writer::new(&mut bytes);
    archive.entry("x/data.pkl", pickle).unwrap();
    for (place, storage) in storages.iter().enumerate() {
        archive.entry(&format!("x/data/{place}"), storage).unwrap();
    }
    archive.finish().unwrap();
    bytes
}

/// The pickle of a dict with one tensor of f32s of the first storage.
fn one(elements: &[u8], offset: &[u8], shape: &[u8], strides: &[u8]) -> Vec<u8> {
    let head = b"}U\x01actorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpu";
    let tail = b"\x89ccollections\nOrderedDict\n)RtRs.";
    [&head[..], elements, b"tQ", offset, b"(", shape, b"t(", strides, b"t", tail].concat()
}

fn problem(bytes: &[u8]) -> String {
    read(Cursor::new(bytes), "x".as_ref(), None).unwrap_err().to_string()
}

/// Made by PyTorch itself (`tools/pth_fixtures.py`), each with the values that it must give.
#[test]
fn reads_what_pytorch_wrote() {
    let mut names: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|e| e == "pth"));
    assert_eq!(names.len(), 11);
    for path in names {
        let (got, want) = (load(&path).unwrap(), safetensors::load(path.with_extension("safetensors")).unwrap());
        assert_eq!(got.len(), want.len(), "{}", path.display());
        for (name, tensor) in want.iter() {
            let other = got.get(name).unwrap_or_else(|| panic!("{}: {name}", path.display()));
            assert_eq!(other.meta(), tensor.meta(), "{}: {name}", path.display());
            assert_eq!(bits(other), bits(tensor), "{}: {name}", path.display());
        }
    }
}

#[test]
fn says_what_it_took_and_what_it_left() {
    let found = load_with(folder().join("checkpoint.pth"), None).unwrap();
    assert_eq!((found.key.as_str(), found.prefix.as_str()), ("model_state_dict", ""));
    let ignored: Vec<&str> = found.ignored.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(ignored, ["epoch", "lr", "losses", "optimizer_state_dict", "scheduler"]);
    assert_eq!((found.ignored[0].1.as_str(), found.ignored[2].1.as_str()), ("3", "a list of 2"));
    assert!(found.state.contains("1.num_batches_tracked"));
    assert_eq!(load_with(folder().join("nested.pth"), None).unwrap().key, "model/state_dict");
    assert_eq!(load_with(folder().join("other_key.pth"), None).unwrap().key, "my_net");
    assert_eq!(load_with(folder().join("data_parallel.pth"), None).unwrap().prefix, "module.");
    assert_eq!(load_with(folder().join("compiled.pth"), None).unwrap().prefix, "_orig_mod.module.");
    let kinds = load_with(folder().join("kinds.pth"), None).unwrap().converted;
    let names: Vec<&str> = kinds.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["i32", "i16", "i8", "u16", "u32"]);
    let chosen = load_with(folder().join("refused/several.pth"), Some("critic")).unwrap();
    assert_eq!((chosen.key.as_str(), chosen.state.len()), ("critic", 1));
    let none = load_with(folder().join("refused/several.pth"), Some("model")).unwrap_err().to_string();
    assert!(none.contains("no dict of tensors under model; it has: generator, critic"), "{none}");
}

#[test]
fn what_cannot_be_read_says_why_and_what_to_do() {
    let cases = [
        ("old_format.pth", "from before version 1.6"),
        ("old_format.pth", "torch.save(torch.load(path, weights_only=True), path)"),
        ("torchscript.pt", "TorchScript program"),
        ("whole_model.pth", "a whole torch.nn.modules.linear.Linear"),
        ("whole_model.pth", "torch.save(model.state_dict(), path)"),
        ("several.pth", "say which is meant: generator, critic"),
        ("one_tensor.pth", "it holds one tensor"),
        ("sparse.pth", "its tensor a is a sparse_tensor"),
        ("complex.pth", "its tensor a has elements of type ComplexFloat"),
        ("no_tensors.pth", "no tensors by name, only: epoch, note"),
    ];
    for (name, want) in cases {
        let path = folder().join("refused").join(name);
        let text = load(&path).unwrap_err().to_string();
        assert!(text.starts_with(&path.display().to_string()) && text.contains(want), "{name}: {text}");
    }
    let tar = [vec![0; 257], b"ustar".to_vec(), vec![0; 300]].concat();
    assert!(problem(&tar).contains("from before version 1.6"));
    assert!(problem(b"whatever").contains("not a PyTorch checkpoint"));
    assert!(problem(b"").contains("not a PyTorch checkpoint"));
}

#[test]
fn every_type_comes_back_and_ties_stay() {
    let path = std::env::temp_dir().join(format!("neurona-pth-{}.pth", std::process::id()));
    let tied = Tensor::from([1.0f32, 2.0]);
    let state: StateDict = [
        ("f32", Tensor::from_vec(vec![f32::NAN, -0.0, 1e-45, 4.0, 5.0, 6.0], [2, 3]).unwrap()),
        ("f64", Tensor::from([f64::MIN, 1e-300])),
        ("i64", Tensor::from([i64::MIN, i64::MAX])),
        ("u8", Tensor::from([0u8, 255])),
        ("bool", Tensor::from([true, false])),
        ("f16", Tensor::from_vec(vec![f16::MAX, f16::EPSILON], [2, 1]).unwrap()),
        ("bf16", Tensor::from_vec(vec![bf16::MAX], [1]).unwrap()),
        ("scalar", Tensor::scalar(7i64)),
        ("empty", Tensor::zeros([0, 5], DType::F32).unwrap()),
        ("ünï", tied.clone()),
        ("tied", tied),
        ("long", Tensor::zeros([70_000], DType::U8).unwrap()),
        ("pending", Tensor::from([1.0f32, 2.0]).mul_scalar(2.0).unwrap()),
    ]
    .into_iter()
    .collect();
    save(&path, &state).unwrap();
    let bytes = fs::read(&path).unwrap();
    let back = load(&path).unwrap();
    assert_eq!(back.names().collect::<Vec<_>>(), state.names().collect::<Vec<_>>());
    for (name, tensor) in state.iter() {
        assert_eq!(back.get(name).unwrap().meta(), tensor.meta(), "{name}");
        assert_eq!(bits(back.get(name).unwrap()), bits(tensor), "{name}");
    }
    save(&path, &back).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes, "the same tensors give the same file");
    let archive = zip::Archive::open(Cursor::new(&bytes)).unwrap();
    let storages = archive.entries.iter().filter(|entry| entry.name.starts_with("archive/data/")).count();
    assert_eq!(storages, state.len() - 1, "tied weights are written once");
    fs::remove_file(path).unwrap();
}

/// The file that `tools/check_pth.py` had PyTorch read; a change of a byte means to run it again.
#[test]
fn writes_what_pytorch_was_seen_to_read() {
    let path = std::env::temp_dir().join(format!("neurona-pth-seen-{}.pth", std::process::id()));
    let state: StateDict = [
        ("fc.weight", Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])),
        ("fc.bias", Tensor::from([0.5f32, -0.5])),
        ("bn.num_batches_tracked", Tensor::scalar(3i64)),
    ]
    .into_iter()
    .collect();
    save(&path, &state).unwrap();
    let seen = folder().join("written/seen.pth");
    if std::env::var_os("NEURONA_WRITE_SEEN").is_some() {
        fs::create_dir_all(seen.parent().unwrap()).unwrap();
        fs::copy(&path, &seen).unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), fs::read(&seen).unwrap());
    fs::remove_file(path).unwrap();
}

#[test]
fn hostile_views_are_refused() {
    let data: &[u8] = &[0; 16];
    let cases = [
        (one(b"K\x04", b"K\x00", b"K\x05", b"K\x01"), "its tensor a of shape [5] reaches beyond its storage"),
        (one(b"K\x04", b"K\x01", b"K\x04", b"K\x01"), "reaches beyond"),
        (one(b"K\x04", b"J\xff\xff\xff\xff", b"K\x04", b"K\x01"), "not described as PyTorch does"),
        (one(b"K\x04", b"K\x00", b"K\x04", b"J\xff\xff\xff\xff"), "not described"),
        (one(b"K\x04", b"K\x00", b"K\x04", b"K\x01K\x01"), "reaches beyond"),
        (one(b"K\x04", b"K\x00", &b"J\xff\xff\xff\x7f".repeat(5), &b"K\x00".repeat(5)), "reaches beyond"),
        (one(b"K\x04", b"K\x00", b"J\xff\xff\xff\x7f", b"K\x00"), "would take 8589934588 bytes"),
        (one(b"K\x04", b"K\x00", &b"K\x01".repeat(65), &b"K\x01".repeat(65)), "not described"),
        (one(b"K\x05", b"K\x00", b"K\x05", b"K\x01"), "its entry x/data/0 has 16 bytes; tensor a needs 20"),
        (one(b"K\x04", b"K\x00", b"K\x00J\xff\xff\xff\x7fM\x00\x04", b"K\x00K\x00K\x00"), "too large"),
        (b"cos\nsystem\n(S'id'\ntR.".to_vec(), "refused at byte 0 (GLOBAL): it names os.system"),
        (b"}".repeat(3), "cut off"),
    ];
    for (pickle, want) in cases {
        let text = problem(&file(&pickle, &[data]));
        assert!(text.starts_with("x: ") && text.contains(want), "{text} should say {want}");
    }
    let good = one(b"K\x04", b"K\x00", b"K\x02K\x02", b"K\x02K\x01");
    assert!(read(Cursor::new(file(&good, &[data])), "x".as_ref(), None).is_ok());
    assert!(problem(&file(&good, &[])).contains("the entry x/data/0 of its tensor a is missing"));
}

#[test]
fn byte_order_is_heeded() {
    let mut bytes = Vec::new();
    let mut archive = zip::Writer::new(&mut bytes);
    archive.entry("data.pkl", &one(b"K\x02", b"K\x00", b"K\x02", b"K\x01")).unwrap();
    archive.entry("byteorder", b"big").unwrap();
    archive.entry("data/0", &[1.5f32, -2.0].map(f32::to_be_bytes).concat()).unwrap();
    archive.finish().unwrap();
    let state = read(Cursor::new(bytes), "x".as_ref(), None).unwrap().state;
    assert_eq!(state.get("a").unwrap().to_vec::<f32>().unwrap(), [1.5, -2.0]);
}
