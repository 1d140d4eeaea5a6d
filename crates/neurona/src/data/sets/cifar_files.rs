//! The two forms of CIFAR's files: records of bytes, and Python's pickles.

use super::read;
use crate::io::pickle::{self, Value, numpy};
use crate::{Error, Result};
use std::path::Path;

/// Bytes of an image: red, green and blue planes of 32 by 32.
const IMAGE: usize = 3 * 32 * 32;

/// Where a set of CIFAR's has what.
pub(super) struct Files {
    pub name: &'static str,
    pub title: &'static str,
    pub folders: &'static [&'static str],
    /// Which of a record's labels counts, and how many there are.
    pub label: usize,
    pub label_bytes: usize,
    /// The same in a pickle.
    pub label_key: &'static str,
    /// Where the names of the classes are: a line each, or a pickle's list.
    pub names_text: &'static str,
    pub names_pickle: (&'static str, &'static str),
    /// For when they are nowhere.
    pub known_classes: &'static [&'static str],
}

fn wrong(path: &Path, problem: String) -> Error {
    Error::Format { path: path.into(), problem }
}

impl Files {
    /// Whether either form of this part is in the folder.
    pub fn has(&self, folder: &Path, part: &str) -> bool {
        folder.join(format!("{part}.bin")).is_file() || folder.join(part).is_file()
    }

    /// Adds one file's images and labels.
    pub fn part(
        &self,
        folder: &Path,
        part: &str,
        classes: usize,
        images: &mut Vec<u8>,
        labels: &mut Vec<i64>,
    ) -> Result<()> {
        let binary = folder.join(format!("{part}.bin"));
        // Named by the binary form when there is neither, unless the set is a pickled one.
        if binary.is_file() || !self.has(folder, part) && !folder.join(self.names_pickle.0).is_file() {
            self.binary(&read(&binary)?, &binary, classes, images, labels)
        } else {
            let path = folder.join(part);
            self.pickled(&read(&path)?, &path, classes, images, labels)
        }
    }

    fn binary(
        &self,
        bytes: &[u8],
        path: &Path,
        classes: usize,
        images: &mut Vec<u8>,
        labels: &mut Vec<i64>,
    ) -> Result<()> {
        let record = self.label_bytes + IMAGE;
        let records = bytes.chunks_exact(record);
        let rest = records.remainder().len();
        if bytes.is_empty() {
            return Err(wrong(path, "it is empty".to_string()));
        }
        if rest > 0 {
            let (n, title) = (bytes.len() / record, self.title);
            let problem = format!("it is cut short: record {n} has {rest} of {record} bytes (or it is not {title})");
            return Err(wrong(path, problem));
        }
        images.reserve(bytes.len() / record * IMAGE);
        for (n, record) in records.enumerate() {
            labels.push(checked(record[self.label].into(), n, classes, path)?);
            images.extend_from_slice(&record[self.label_bytes..]);
        }
        Ok(())
    }

    fn pickled(
        &self,
        bytes: &[u8],
        path: &Path,
        classes: usize,
        images: &mut Vec<u8>,
        labels: &mut Vec<i64>,
    ) -> Result<()> {
        let pickle = pickle::parse(bytes, path)?;
        let entry = |key: &str| {
            let names = "it is not a batch of this set, which has";
            pickle.get(key).ok_or_else(|| wrong(path, format!("there is no '{key}' in it; {names} 'data' and labels")))
        };
        let data = entry("data")?;
        let array = numpy::array(data)
            .filter(|array| array.kind == "u1" && !array.fortran && matches!(array.shape[..], [_, IMAGE]));
        let Some(array) = array else {
            let found = data.kind();
            return Err(wrong(path, format!("'data' must be an array of bytes [n, {IMAGE}]; it is {found}")));
        };
        let n = array.shape[0];
        let list = entry(self.label_key)?.items().unwrap_or_default();
        if list.len() != n {
            return Err(wrong(path, format!("it has {n} images but {} labels", list.len())));
        }
        for (n, label) in list.iter().enumerate() {
            let number = label.int().ok_or_else(|| wrong(path, format!("label {n} is {}", label.kind())))?;
            labels.push(checked(number, n, classes, path)?);
        }
        images.extend_from_slice(&array.bytes);
        Ok(())
    }

    /// The names that are beside the images, if any.
    pub fn classes(&self, folder: &Path) -> Result<Option<Vec<String>>> {
        let (text, pickled) = (folder.join(self.names_text), folder.join(self.names_pickle.0));
        let (found, path) = if text.is_file() {
            let lines = String::from_utf8_lossy(&read(&text)?).into_owned();
            let names = lines.lines().map(str::trim).filter(|line| !line.is_empty());
            (names.map(String::from).collect::<Vec<_>>(), text)
        } else if pickled.is_file() {
            let meta = pickle::parse(&read(&pickled)?, &pickled)?;
            let list = meta.get(self.names_pickle.1).and_then(Value::items).unwrap_or_default();
            (list.iter().filter_map(|name| name.text().map(String::from)).collect(), pickled)
        } else {
            return Ok(None);
        };
        let (got, want) = (found.len(), self.known_classes.len());
        if got != want {
            return Err(wrong(&path, format!("it names {got} classes; {} has {want}", self.title)));
        }
        Ok(Some(found))
    }
}

fn checked(label: i64, record: usize, classes: usize, path: &Path) -> Result<i64> {
    match (0..classes as i64).contains(&label) {
        true => Ok(label),
        false => Err(wrong(path, format!("label {label} of record {record} is not between 0 and {}", classes - 1))),
    }
}
