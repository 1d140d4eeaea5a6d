//! How long loading 100 MB takes, next to reading the file. Figures, so it runs only when asked:
//! `cargo test --release --test load_speed -- --ignored --nocapture`

use neurona::{Result, Tensor, io};
use std::time::Instant;

/// The median of some runs in milliseconds, after one that warms up.
fn time<T>(mut body: impl FnMut() -> T) -> f64 {
    body();
    let mut times: Vec<f64> = (0..9)
        .map(|_| {
            let start = Instant::now();
            let result = body();
            let time = start.elapsed().as_secs_f64() * 1e3;
            drop(result);
            time
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[test]
#[ignore = "a measurement: the machine must be quiet"]
fn loading_next_to_reading() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("neurona-load-speed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let tensor = |i: usize| (format!("layer{i}.weight"), Tensor::randn([1024, 1024]).unwrap());
    let state: io::StateDict = (0..25).map(tensor).collect();
    let (safe, pth) = (folder.join("x.safetensors"), folder.join("x.pth"));
    io::safetensors::save(&safe, &state, &Default::default())?;
    io::pth::save(&pth, &state)?;
    let reading = time(|| std::fs::read(&safe).unwrap());
    println!("std::fs::read      {reading:7.1} ms");
    // Fresh memory each time, as in a program that loads once: the pool would hand out warm pages.
    let keep = std::cell::RefCell::new(Vec::new());
    for (name, path) in [("safetensors", &safe), ("pth", &pth)] {
        let fresh = time(|| keep.borrow_mut().push(io::load(path).unwrap()));
        keep.borrow_mut().clear();
        let warm = time(|| io::load(path).unwrap());
        println!(
            "{name:12} fresh {fresh:7.1} ms ({:.2}x), again {warm:7.1} ms ({:.2}x)",
            fresh / reading,
            warm / reading
        );
    }
    std::fs::remove_dir_all(folder).unwrap();
    Ok(())
}
