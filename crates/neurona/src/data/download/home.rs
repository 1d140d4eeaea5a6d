//! Where the user's data sets are kept.

use crate::{Error, Result};
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The folder that data sets are kept in: `$NEURONA_DATA`, or `neurona` in the place that the system has for a
/// user's data (`$XDG_DATA_HOME` or `~/.local/share`; on macOS `~/Library/Application Support`; on Windows
/// `%LOCALAPPDATA%`). It need not be there yet.
///
/// ```
/// let folder = neurona::data::download::data_folder()?;
/// println!("CIFAR-10 goes to {}", folder.join("cifar-10-batches-bin").display());
/// # Ok::<(), neurona::Error>(())
/// ```
pub fn data_folder() -> Result<PathBuf> {
    choose(|name| env::var_os(name), env::home_dir())
}

fn choose(variable: impl Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Result<PathBuf> {
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
    if let Some(folder) = path("NEURONA_DATA") {
        return Ok(folder);
    }
    // The specification wants relative paths in these to be ignored.
    let absolute = |name: &str| path(name).filter(|path| path.is_absolute());
    let home = home.filter(|path| path.is_absolute());
    let base = if cfg!(windows) {
        absolute("LOCALAPPDATA").or_else(|| home.map(|home| home.join("AppData").join("Local")))
    } else if cfg!(target_os = "macos") {
        absolute("XDG_DATA_HOME").or_else(|| home.map(|home| home.join("Library").join("Application Support")))
    } else {
        absolute("XDG_DATA_HOME").or_else(|| home.map(|home| home.join(".local").join("share")))
    };
    let unknown = || Error::Argument("there is no home folder; set NEURONA_DATA to the folder for data sets".into());
    base.map(|base| base.join("neurona")).ok_or_else(unknown)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)], home: Option<&str>) -> Result<PathBuf> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        choose(find, home.map(PathBuf::from))
    }

    #[test]
    fn variables_go_before_the_home_folder() -> Result<()> {
        let all = [("NEURONA_DATA", "sets"), ("XDG_DATA_HOME", "/share")];
        assert_eq!(chosen(&all, Some("/home/ada"))?, PathBuf::from("sets"));
        assert_eq!(chosen(&all[1..], Some("/home/ada"))?, PathBuf::from("/share/neurona"));
        let below = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".local/share" };
        let at_home = PathBuf::from("/home/ada").join(below).join("neurona");
        assert_eq!(chosen(&[], Some("/home/ada"))?, at_home);
        assert_eq!(chosen(&[("NEURONA_DATA", ""), ("XDG_DATA_HOME", "relative")], Some("/home/ada"))?, at_home);
        assert!(chosen(&[], None).unwrap_err().to_string().contains("NEURONA_DATA"));
        Ok(())
    }
}
