use super::*;
use half::{bf16, f16};
use std::fs;
use std::path::PathBuf;

struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Temporary(std::env::temp_dir().join(format!("neurona-{name}-{}.safetensors", std::process::id())))
    }

    fn with(name: &str, bytes: &[u8]) -> Self {
        let file = Self::new(name);
        fs::write(&file.0, bytes).unwrap();
        file
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn some() -> StateDict {
    let floats = [f32::NAN, -0.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY, f32::from_bits(0x7F80_0001), 1.0];
    let bits: Vec<u8> = floats.iter().flat_map(|f| f.to_le_bytes()).collect();
    [
        ("flags", Tensor::from([true, false, true])),
        ("f32", Tensor::of_storage(Meta::new([2, 3], DType::F32), Storage::copy_of(&bits))),
        ("f64", Tensor::from([f64::MIN, 1e-300])),
        ("i64", Tensor::from([i64::MIN, i64::MAX])),
        ("u8", Tensor::from([0u8, 255])),
        ("f16", Tensor::from_vec(vec![f16::MAX, f16::EPSILON], [2, 1]).unwrap()),
        ("bf16", Tensor::from_vec(vec![bf16::MAX], [1]).unwrap()),
        ("scalar", Tensor::scalar(7i64)),
        ("empty", Tensor::zeros([0, 5], DType::F32).unwrap()),
        ("pending", Tensor::from([1.0f32, 2.0]).mul_scalar(2.0).unwrap()),
    ]
    .into_iter()
    .collect()
}

fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

#[test]
fn every_type_comes_back_bit_for_bit() -> Result<()> {
    let (at, state) = (Temporary::new("round"), some());
    let notes: BTreeMap<_, _> = [("a \"quoted\" key".to_string(), "ü\n".to_string())].into();
    save(&at.0, &state, &notes)?;
    let (back, read) = load_with_metadata(&at.0)?;
    assert_eq!((back.len(), read), (state.len(), notes.clone()));
    for (name, tensor) in state.iter() {
        let other = back.get(name).unwrap();
        assert_eq!(other.meta(), tensor.meta(), "{name}");
        let n = tensor.meta().bytes();
        let (a, b) = (engine::value(tensor)?, engine::value(other)?);
        assert_eq!(a.read::<u8>()[..n], b.read::<u8>()[..n], "{name}");
    }
    // The same state gives the same file, and the format's own library reads it.
    let first = fs::read(&at.0).unwrap();
    save(&at.0, &state, &notes)?;
    assert_eq!(first, fs::read(&at.0).unwrap());
    assert_eq!(::safetensors::SafeTensors::deserialize(&first).unwrap().len(), state.len());
    Ok(())
}

#[test]
fn no_file_can_make_it_panic() -> Result<()> {
    let at = Temporary::new("whole");
    save(&at.0, &some(), &BTreeMap::new())?;
    let whole = fs::read(&at.0).unwrap();
    for length in 0..whole.len() {
        let cut = Temporary::with("cut", &whole[..length]);
        assert!(matches!(load(&cut.0), Err(Error::Format { .. })), "cut to {length}");
    }
    let header = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for place in 0..8 + header {
        for change in [1u8, 0x10, 0x80] {
            let mut broken = whole.clone();
            broken[place] ^= change;
            // Some changes give another sound file (a letter of a name); all others must be refused.
            let _ = load(&Temporary::with("flip", &broken).0);
        }
    }
    let longer = Temporary::with("long", &[&whole[..], b"x"].concat());
    assert!(load(&longer.0).unwrap_err().to_string().contains("belong to no tensor"));
    Ok(())
}

#[test]
fn hostile_headers_are_refused() {
    let entry = |name: &str, dtype: &str, shape: &str, from: u64, to: u64| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}"#)
    };
    let one = |dtype: &str, shape: &str, from: u64, to: u64, data: &[u8]| {
        file(&format!("{{{}}}", entry("a", dtype, shape, from, to)), data)
    };
    // Eight tensors whose sizes add up to just below 2⁶⁴: with the header the sum overflows.
    let most = (1u64 << 61) - 1;
    let many: Vec<String> =
        (0..8).map(|i| entry(&i.to_string(), "U8", &format!("[{most}]"), i * most, (i + 1) * most)).collect();
    let cases = [
        ("garbage", b"this is not a tensor file at all".to_vec(), "not a safetensors file"),
        ("json", file("{\"a\": [", b""), "broken header"),
        ("utf8", [&2u64.to_le_bytes()[..], &[0xFF, 0xFE]].concat(), "broken header"),
        ("array", file("[]", b""), "broken header"),
        ("huge", u64::MAX.to_le_bytes().to_vec(), "not a safetensors file"),
        ("gap", one("F32", "[1]", 4, 8, &[0; 8]), "broken header"),
        ("size", one("F32", "[2]", 0, 4, &[0; 4]), "broken header"),
        ("product", one("F32", "[4294967296,4294967296]", 0, 4, &[0; 4]), "broken header"),
        ("empty", one("F32", "[0,18446744073709551615,9]", 0, 0, b""), "too large"),
        ("type", one("I32", "[1]", 0, 4, &[0; 4]), "type I32; known are F64"),
        ("unknown", one("Q7", "[1]", 0, 4, &[0; 4]), "broken header"),
        ("sum", file(&format!("{{{}}}", many.join(",")), b""), "was cut off"),
    ];
    for (name, bytes, problem) in cases {
        let error = load(&Temporary::with(name, &bytes).0).unwrap_err();
        assert!(matches!(error, Error::Format { .. }), "{name}: {error}");
        assert!(error.to_string().contains(problem), "{name}: {error}");
    }
    assert!(matches!(load(std::env::temp_dir()), Err(Error::File { .. } | Error::Format { .. })));
    let reserved: StateDict = [("__metadata__", Tensor::scalar(1.0f32))].into_iter().collect();
    assert!(save("x", &reserved, &BTreeMap::new()).is_err());
}
