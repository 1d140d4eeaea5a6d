//! Which vector instructions this machine has, and how a loop is compiled for them.

use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Whatever the compiler's base target has: every machine.
    Portable,
    /// AVX2 with fused multiply-add.
    Avx2,
    /// AVX-512 F, BW, VL and DQ.
    Avx512,
}

static CHOSEN: AtomicU8 = AtomicU8::new(u8::MAX);

/// The instruction set in use: the best this machine has, or a lesser one named by `NEURONA_ISA`
/// (`portable`, `avx2`, `avx512`).
///
/// ```
/// assert!(neurona::cpu::simd::isa() >= neurona::cpu::simd::Isa::Portable);
/// ```
#[inline]
pub fn isa() -> Isa {
    match CHOSEN.load(Ordering::Relaxed) {
        0 => Isa::Portable,
        1 => Isa::Avx2,
        2 => Isa::Avx512,
        _ => choose(),
    }
}

#[cold]
fn choose() -> Isa {
    let best = best();
    let isa = match std::env::var("NEURONA_ISA").as_deref() {
        Ok("portable") => Isa::Portable,
        Ok("avx2") => best.min(Isa::Avx2),
        _ => best,
    };
    CHOSEN.store(isa as u8, Ordering::Relaxed);
    isa
}

#[cfg(target_arch = "x86_64")]
fn best() -> Isa {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq");
    match (avx2, avx512) {
        (_, true) => Isa::Avx512,
        (true, _) => Isa::Avx2,
        _ => Isa::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn best() -> Isa {
    Isa::Portable
}

/// Whether the widest registers are worked on in one piece. AMD's first cores with AVX-512 (Zen 4, family 19h) cut them in two:
/// there nothing is won by them where they lie across cache lines.
#[cfg(target_arch = "x86_64")]
pub(crate) fn whole_registers() -> bool {
    static WHOLE: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        use std::arch::x86_64::__cpuid;
        // The maker's name in three registers: "AuthenticAMD".
        let maker = __cpuid(0);
        let amd = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD";
        let version = __cpuid(1).eax;
        let family = (version >> 8 & 0xF) + (version >> 20 & 0xFF);
        !(amd && family == 0x19)
    });
    *WHOLE
}

/// Whether the widest registers are worked on in one piece: other architectures have none that wide.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn whole_registers() -> bool {
    true
}

/// One of three values of the same type, by the instruction set in use: AVX-512's, AVX2's, or every machine's. The first two
/// are looked at where there are such machines only.
macro_rules! by_isa {
    ($avx512:expr, $avx2:expr, $portable:expr $(,)?) => {
        match $crate::cpu::simd::isa() {
            #[cfg(target_arch = "x86_64")]
            $crate::cpu::simd::Isa::Avx512 => $avx512,
            #[cfg(target_arch = "x86_64")]
            $crate::cpu::simd::Isa::Avx2 => $avx2,
            _ => $portable,
        }
    };
}
pub(crate) use by_isa;

/// Runs `body` compiled for the instruction set in use.
/// Write the closure as `#[inline(always)] || …` so that its loops are vectorised for it.
///
/// ```
/// let mut x = [1.0f32, 2.0];
/// neurona::cpu::simd::vectorized(#[inline(always)] || for v in &mut x { *v *= 2.0 });
/// assert_eq!(x, [2.0, 4.0]);
/// ```
#[inline(always)]
pub fn vectorized<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    match isa() {
        // SAFETY: `isa` has found these instructions on this machine.
        Isa::Avx512 => return unsafe { avx512(body) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { avx2(body) },
        Isa::Portable => {}
    }
    body()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<R>(body: impl FnOnce() -> R) -> R {
    body()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn avx512<R>(body: impl FnOnce() -> R) -> R {
    body()
}

/// Code that is written for blocks of lanes.
pub(crate) trait InBlocks {
    /// Runs with blocks of so many lanes.
    fn run<const LANES: usize>(self);
}

/// Runs `body` compiled for the instruction set in use, with as many lanes as one of its registers has floats. Chosen
/// inside [`vectorized`], the number would have every set's code compiled for the others' numbers too.
pub(crate) fn in_blocks(body: impl InBlocks) {
    #[cfg(target_arch = "x86_64")]
    match isa() {
        // SAFETY: `isa` has found these instructions on this machine.
        Isa::Avx512 => return unsafe { avx512_blocks(body) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { avx2_blocks(body) },
        Isa::Portable => {}
    }
    body.run::<8>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2_blocks(body: impl InBlocks) {
    body.run::<8>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn avx512_blocks(body: impl InBlocks) {
    body.run::<16>()
}
