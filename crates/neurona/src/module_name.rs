//! Names of modules as numbers.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{LazyLock, RwLock};
use std::{fmt, ops};

/// The path of a module in its model, as in `layer1.0.conv1`.
///
/// Every op notes whose it is, in every step, so a name must cost nothing to pass on: it is the number of one of the names
/// that modules of this process have had. Those are kept for ever; models of the same kind have the same ones.
///
/// ```
/// use neurona::ModuleName;
/// let name = ModuleName::new("layer1.0.conv1").unwrap();
/// assert_eq!(name.as_str(), "layer1.0.conv1");
/// assert_eq!(Some(name), ModuleName::new("layer1.0.conv1"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModuleName(NonZeroU32);

/// Beyond so many bytes of names, which no program comes to that does not make them up, modules have none.
const MOST: usize = 16 << 20;

#[derive(Default)]
struct Names {
    bytes: usize,
    all: Vec<&'static str>,
    numbers: HashMap<&'static str, ModuleName>,
}

static NAMES: LazyLock<RwLock<Names>> = LazyLock::new(RwLock::default);

impl ModuleName {
    /// The one for this path; none when 16 MB of other names are kept already.
    pub fn new(path: &str) -> Option<Self> {
        let mut names = NAMES.write().unwrap_or_else(|e| e.into_inner());
        if let Some(known) = names.numbers.get(path) {
            return Some(*known);
        }
        let bytes = names.bytes + path.len() + size_of::<&str>();
        if bytes > MOST {
            return None;
        }
        names.bytes = bytes;
        let path: &'static str = Box::leak(path.into());
        names.all.push(path);
        let name = ModuleName::of(names.all.len() as u32)?;
        names.numbers.insert(path, name);
        Some(name)
    }

    /// The path; empty for a whole model.
    pub fn as_str(self) -> &'static str {
        let names = NAMES.read().unwrap_or_else(|e| e.into_inner());
        names.all.get(self.0.get() as usize - 1).copied().unwrap_or_default()
    }

    /// A number that is not 0.
    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }

    /// The name with this number; none has 0.
    pub(crate) fn of(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(ModuleName)
    }
}

impl ops::Deref for ModuleName {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for ModuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for ModuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_whoever_asks() {
        let names = |i: usize| format!("names.of.threads.{}", i % 7);
        let all: Vec<Vec<ModuleName>> = std::thread::scope(|scope| {
            let ask = || scope.spawn(|| (0..70).filter_map(|i| ModuleName::new(&names(i))).collect());
            let threads: Vec<_> = (0..4).map(|_| ask()).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(all[0].len(), 70);
        for (i, name) in all[0].iter().enumerate() {
            assert!(all.iter().all(|of_thread| of_thread[i] == *name));
            assert_eq!((name.as_str(), ModuleName::of(name.number())), (names(i).as_str(), Some(*name)));
        }
        assert_ne!(all[0][0], all[0][1]);
    }
}
