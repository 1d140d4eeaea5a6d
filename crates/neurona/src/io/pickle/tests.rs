use super::*;
use std::fs;

fn read(bytes: &[u8]) -> Value {
    parse(bytes, "x".as_ref()).unwrap()
}

fn problem(bytes: &[u8]) -> String {
    parse(bytes, "x".as_ref()).unwrap_err().to_string()
}

fn file(protocol: usize) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/pickle");
    fs::read(folder.join(format!("all-{protocol}.pickle"))).unwrap()
}

fn ints(value: &Value) -> Vec<i64> {
    value.items().unwrap().iter().map(|v| v.int().unwrap()).collect()
}

/// The files are Python's own, of one dict in each protocol (`tools/pth_fixtures.py`).
#[test]
fn every_protocol_gives_the_same_values() {
    for protocol in 0..6 {
        let root = read(&file(protocol));
        let get = |key: &str| root.get(key).unwrap_or_else(|| panic!("protocol {protocol}: {key}"));
        assert!(matches!(get("none"), Value::None));
        assert!(matches!(get("flags").items().unwrap(), [Value::Bool(true), Value::Bool(false)]));
        assert_eq!(ints(get("ints")), [0, -1, 255, 65535, -(1 << 31), 1 << 40, i64::MIN]);
        assert_eq!(ints(get("shared")), ints(get("ints")));
        let floats: Vec<f64> = get("float")
            .items()
            .unwrap()
            .iter()
            .map(|v| match v {
                Value::Float(x) => *x,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(floats, [0.5, -1e300, f64::INFINITY]);
        assert_eq!(&numpy::bytes(get("bytes")).unwrap()[..], b"\x00\xff'\"\\\n");
        assert_eq!(get("text").text(), Some("ünï\n\\ 漢 \u{1F600}"));
        assert_eq!(get("long").text(), Some("x".repeat(300).as_str()));
        assert_eq!((ints(get("t0")), ints(get("t3")), ints(get("t5"))), (vec![], vec![1, 2, 3], vec![1, 2, 3, 4, 5]));
        let keys: Vec<&Value> = root.entries().unwrap().iter().map(|(k, _)| k).collect();
        assert!(keys.iter().any(|k| k.int() == Some(7)) && keys.iter().any(|k| k.items().is_some()));
        let ordered = get("od");
        assert_eq!((ordered.get("a").unwrap().int(), ints(ordered.get("b").unwrap())), (Some(1), vec![2]));
        let array = numpy::array(get("array")).unwrap();
        assert_eq!((&array.shape[..], array.kind.as_str(), array.big_endian), (&[2, 3][..], "i2", true));
        assert_eq!(&array.bytes[..], [0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5]);
        let array = numpy::array(get("fortran")).unwrap();
        assert_eq!((array.fortran, &array.bytes[..]), (true, &[0, 3, 1, 4, 2, 5][..]));
        if protocol > 1 {
            // 2⁸⁰: ten zeros and a one.
            assert!(matches!(get("big"), Value::BigInt(bytes) if bytes[..] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]));
        }
    }
}

#[test]
fn every_cut_is_an_error_and_no_bit_flip_panics() {
    for protocol in 0..6 {
        let whole = file(protocol);
        for n in 0..whole.len() {
            assert!(parse(&whole[..n], "x".as_ref()).is_err(), "protocol {protocol} cut to {n}");
        }
        for place in 0..whole.len() {
            for bit in 0..8 {
                let mut broken = whole.clone();
                broken[place] ^= 1 << bit;
                let _ = parse(&broken, "x".as_ref());
            }
        }
    }
    assert!(problem(b"").contains("cut off"));
}

#[test]
fn ways_to_run_programs_are_refused_by_name() {
    let cases: [(&[u8], &str); 8] = [
        (b"cos\nsystem\n(S'id'\ntR.", "at byte 0 (GLOBAL): it names os.system"),
        (b"\x80\x02cposix\nsystem\nX\x02\x00\x00\x00id\x85R.", "posix.system"),
        (b"(S'id'\nios\nsystem\n.", "(INST): it names os.system"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.", "(STACK_GLOBAL): it names os.system"),
        (b"c__builtin__\neval\n(S'1'\ntR.", "__builtin__.eval"),
        (b"cbuiltins\nexec\n(S'1'\ntR.", "builtins.exec"),
        (b"csubprocess\nPopen\n(S'id'\ntR.", "subprocess.Popen"),
        (b"cimportlib.util\nfind_spec\n(S'os'\ntR.", "importlib.util.find_spec"),
    ];
    for (bytes, want) in cases {
        let text = problem(bytes);
        assert!(text.contains(want) && text.contains("refused"), "{text}");
    }
    // Any other class is a note of what would have been made.
    let Value::Object(object) = read(b"cargparse\nNamespace\n)\x81}X\x02\x00\x00\x00lrK\x01sb.") else { panic!() };
    assert_eq!(object.global().unwrap().to_string(), "argparse.Namespace");
    assert_eq!(object.state.as_ref().unwrap().get("lr").unwrap().int(), Some(1));
}

#[test]
fn cycles_depth_and_numbers_are_bounded() {
    assert!(problem(b"]q\x00h\x00a.").contains("contains itself"));
    assert!(problem(b"}q\x00K\x01h\x00s.").contains("contains itself"));
    assert!(problem(b"]q\x00(h\x00tq\x01h\x01\x30a.").contains("contains itself"));
    assert!(problem(b"]q\x00h\x00\x85a.").contains("contains itself"));
    let nested = |n: usize| [vec![b']'; n], vec![b'a'; n - 1], b".".to_vec()].concat();
    assert!(parse(&nested(DEEPEST), "x".as_ref()).is_ok());
    assert!(problem(&nested(DEEPEST + 1)).contains("deeper than 200"));
    assert!(problem(&nested(1_000_000)).contains("deeper than 200"));
    // The deepest path counts, also where a shared part was reached on a shorter one first.
    let half = [vec![b']'; 150], vec![b'a'; 149]].concat();
    let shared = [&b"("[..], &half, b"q\x00", &b"]".repeat(100), b"h\x00", &b"a".repeat(100), b"t."].concat();
    assert!(problem(&shared).contains("deeper than 200"));
    assert!(problem(&[&b"("[..], &vec![b'N'; MOST_VALUES], b"t."].concat()).contains("more than"));
    assert!(problem(&[&b"N"[..], &vec![b'2'; MOST_VALUES], b"t."].concat()).contains("more than"));
}

#[test]
fn a_billion_laughs_stay_a_hundred_values() {
    // Each list holds the one before it ten times: 10⁹⁰ paths.
    let mut bytes = b"]q\x00".to_vec();
    for level in 1..=90u8 {
        bytes.extend([b']', b'q', level, b'(']);
        (0..10).for_each(|_| bytes.extend([b'h', level - 1]));
        bytes.push(b'e');
    }
    bytes.extend(b"(h\x5at.");
    // What is left below on the stack is an error; one tuple of all is not.
    assert!(problem(&bytes).contains("left over"));
    let whole = [b"(", &bytes[..bytes.len() - 5], b"t."].concat();
    assert_eq!(read(&whole).items().unwrap().len(), 91);
}

#[test]
fn errors_name_opcode_and_offset() {
    let cases: [(&[u8], &str); 14] = [
        (b"N\xffx", "at byte 1 (opcode 0xff): it is not known"),
        (b"K\x01u.", "at byte 2 (SETITEMS): there is no mark"),
        (b"}(K\x01u.", "(SETITEMS): a key has no value"),
        (b"K\x01(K\x02e.", "(APPENDS): there is no list"),
        (b"K\x01K\x02b.", "(BUILD): state is for an object"),
        (b"h\x07.", "(BINGET): nothing was remembered as 7"),
        (b"\x80\x09.", "(PROTO): protocol 9 is not known"),
        (b".", "(STOP): its stack is empty"),
        (b"K\x01(\x30\x30\x30.", "at byte 5 (POP): its stack is empty"),
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", "(BINBYTES8): it was cut off"),
        (b"\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.", "(FRAME): it was cut off"),
        (b"I12x\n.", "(INT): \"12x\" is not an integer"),
        (b"X\x01\x00\x00\x00\xff.", "(BINUNICODE): its text is not UTF-8"),
        (b"\x82\x01.", "(EXT1): registered extensions"),
    ];
    for (bytes, want) in cases {
        let text = problem(bytes);
        assert!(text.starts_with("x: its pickle is broken at byte") && text.contains(want), "{text}");
    }
    assert!(problem(b"N.N.").contains("2 bytes follow"));
}

#[test]
fn strings_of_python_2_are_unquoted() {
    let bytes = |line: &str| numpy::bytes(&read(format!("S{line}\n.").as_bytes())).unwrap().to_vec();
    assert_eq!(bytes(r"'a\'\x41\101\0\\\n\q'"), b"a'AA\0\\\n\\q");
    assert_eq!(bytes("\"it's\""), b"it's");
    for bad in ["'", "a", "'a", r"'\x4'", r"'\'"] {
        assert!(problem(format!("S{bad}\n.").as_bytes()).contains("(STRING)"), "{bad}");
    }
}
