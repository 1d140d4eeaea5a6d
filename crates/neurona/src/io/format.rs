//! Which kind of file it is, by its first bytes.

use super::{StateDict, pth, safetensors};
use crate::{Error, Result};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// The kinds of weights files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Hugging Face's format of named tensors.
    Safetensors,
    /// PyTorch's checkpoint: a zip archive.
    Pth,
    /// PyTorch's checkpoint from before version 1.6, or a bare pickle.
    OldPth,
    /// An ONNX model.
    Onnx,
    /// None of these.
    Unknown,
}

impl Format {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Format::Safetensors => "safetensors",
            Format::Pth => "PyTorch checkpoint",
            Format::OldPth => "old PyTorch checkpoint",
            Format::Onnx => "ONNX",
            Format::Unknown => "unknown",
        }
    }
}

/// A tar archive says so here; PyTorch's first checkpoints were such.
const TAR: (usize, &[u8]) = (257, b"ustar");

/// The kind of a file, and its size; reading goes on from its start.
pub(super) fn of(from: &mut (impl Read + Seek)) -> io::Result<(Format, u64)> {
    let size = from.seek(SeekFrom::End(0))?;
    from.seek(SeekFrom::Start(0))?;
    let mut head = Vec::new();
    from.take(512).read_to_end(&mut head)?;
    from.seek(SeekFrom::Start(0))?;
    Ok((told(&head), size))
}

fn told(head: &[u8]) -> Format {
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        return Format::Pth;
    }
    if head.get(TAR.0..TAR.0 + TAR.1.len()) == Some(TAR.1) {
        return Format::OldPth;
    }
    // Before the others: the length of a safetensors header may begin with any byte. Other files that have a brace
    // here have something before it that would be too long a header.
    if let Some((length, rest)) = head.split_first_chunk::<8>()
        && rest.first() == Some(&b'{')
        && u64::from_le_bytes(*length) <= safetensors::LARGEST_HEADER
    {
        return Format::Safetensors;
    }
    match head {
        // A pickle says its protocol first.
        [0x80, 1..=5, ..] => Format::OldPth,
        // ir_version, a small number, is the first field of an ONNX model.
        [0x08, 1..=32, ..] => Format::Onnx,
        _ => Format::Unknown,
    }
}

/// What to tell whoever wants a zip archive and has another file.
pub(super) fn not_a_zip(format: Format) -> Option<&'static str> {
    match format {
        Format::Pth => None,
        Format::OldPth => Some(
            "it has PyTorch's format from before version 1.6, which is a program to be run; in Python, save it anew: \
             torch.save(torch.load(path, weights_only=True), path)",
        ),
        Format::Safetensors => Some("it is a safetensors file, not a PyTorch checkpoint"),
        Format::Onnx => Some("it looks like an ONNX model, not a PyTorch checkpoint"),
        Format::Unknown => Some("it is not a PyTorch checkpoint, or its beginning is damaged"),
    }
}

/// What to tell whoever has a file that holds no tensors by name.
pub(super) fn unknown(format: Format, path: &Path) -> Error {
    let problem = match format {
        Format::Onnx => "it looks like an ONNX model; read it with io::onnx::import",
        _ => "it is not a weights file; known are safetensors and PyTorch's .pth and .pt",
    };
    Error::Format { path: path.into(), problem: problem.into() }
}

/// Reads the tensors of a weights file, whichever kind it is: the contents tell, not the name.
///
/// ```
/// use neurona::{Tensor, io::{self, StateDict}};
/// # let path = std::env::temp_dir().join(format!("neurona-doc-load-{}", std::process::id()));
/// let state: StateDict = [("w", Tensor::from([1.0f32, 2.0]))].into_iter().collect();
/// io::pth::save(&path, &state)?;
/// assert_eq!(io::load(&path)?.len(), 1);
/// io::safetensors::save(&path, &state, &Default::default())?;
/// assert_eq!(io::load(&path)?.len(), 1);
/// # std::fs::remove_file(path).ok();
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn load(path: impl AsRef<Path>) -> Result<StateDict> {
    let path = path.as_ref();
    let failed = |source| Error::File { action: "read", path: path.into(), source };
    let mut file = File::open(path).map_err(failed)?;
    match of(&mut file).map_err(failed)?.0 {
        Format::Safetensors => safetensors::read(file, path).map(|(state, _)| state),
        Format::Pth | Format::OldPth => pth::read(file, path, None).map(|checkpoint| checkpoint.state),
        other => Err(unknown(other, path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_tell() {
        let tar = [vec![b'x'; 257], b"ustar".to_vec()].concat();
        let cases: [(&[u8], Format); 10] = [
            (b"PK\x03\x04 and so on", Format::Pth),
            (b"\x02\0\0\0\0\0\0\0{}", Format::Safetensors),
            // Cut off, or with a length that begins as other files do.
            (b"\x80\x02\0\0\0\0\0\0{", Format::Safetensors),
            (b"\x08\x08\0\0\0\0\0\0{", Format::Safetensors),
            (b"\x80\x02}q\x00X\x05\x00{", Format::OldPth),
            (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", Format::OldPth),
            (&tar, Format::OldPth),
            (b"\x08\x08\x12\x07pytorch", Format::Onnx),
            (b"", Format::Unknown),
            (b"\x89PNG", Format::Unknown),
        ];
        for (head, want) in cases {
            assert_eq!(told(head), want, "{head:?}");
        }
    }
}
