//! Folders of image files.

use crate::data::{Dataset, Image};
use crate::{Error, Result};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// Images in a folder for each class, as in torchvision's `ImageFolder`: `root/cat/1.jpg`, `root/dog/night/2.png`.
///
/// Classes and files are in the order of their names. Files are known as images by their ending (jpg, jpeg, png, webp,
/// bmp, gif, in either case); what begins with a dot is not looked at.
///
/// ```no_run
/// use neurona::data::{Dataset, sets::ImageFolder};
/// let pets = ImageFolder::open("pets")?;
/// println!("{} images of {}", pets.len(), pets.classes().join(", "));
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ImageFolder {
    files: Vec<PathBuf>,
    labels: Vec<i64>,
    classes: Vec<String>,
    ignored: usize,
}

const ENDINGS: [&str; 6] = ["jpg", "jpeg", "png", "webp", "bmp", "gif"];

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_path_buf();
    |source| Error::File { action: "read", path, source }
}

fn wrong(path: &Path, problem: String) -> Error {
    Error::Format { path: path.into(), problem }
}

impl ImageFolder {
    /// The images of all folders in `root`, each of which is a class: at least two, none without images.
    pub fn open(root: impl AsRef<Path>) -> Result<Self> {
        let root = root.as_ref();
        let folders = class_folders(root)?;
        let set = Self::of(root, &folders, folders.iter().map(|f| f.to_string_lossy().into_owned()).collect())?;
        match &set.classes[..] {
            [] => Err(wrong(root, "there are no folders in it; each class needs a folder of images".to_string())),
            [only] => Err(wrong(root, format!("there is only one class, '{only}'; a classifier needs two or more"))),
            _ => {
                let empty = (0..set.classes.len()).find(|class| !set.labels.contains(&(*class as i64)));
                match empty {
                    Some(class) => Err(wrong(&root.join(&folders[class]), set.without_images())),
                    None => Ok(set),
                }
            }
        }
    }

    /// The images of a part (to validate or to test with) of a set that has these classes; it need not have images of
    /// every one.
    pub fn with_classes(root: impl AsRef<Path>, classes: &[String]) -> Result<Self> {
        let root = root.as_ref();
        let mut folders = class_folders(root)?;
        let known = |folder: &OsString| classes.iter().any(|class| *class == folder.to_string_lossy());
        if let Some(stranger) = folders.iter().find(|folder| !known(folder)) {
            let problem = "there is no such class among the training images".to_string();
            return Err(wrong(&root.join(stranger), problem));
        }
        folders.sort_by_key(|folder| classes.iter().position(|class| *class == folder.to_string_lossy()));
        let set = Self::of(root, &folders, classes.to_vec())?;
        if set.files.is_empty() { Err(wrong(root, set.without_images())) } else { Ok(set) }
    }

    fn of(root: &Path, folders: &[OsString], classes: Vec<String>) -> Result<Self> {
        let whole = fs::canonicalize(root).map_err(failed(root))?;
        let (mut files, mut labels, mut ignored) = (Vec::new(), Vec::new(), 0);
        for folder in folders {
            let mut found = Vec::new();
            collect(&whole, root.join(folder), &mut found, &mut ignored)?;
            // As torchvision sorts: by folder, then by name.
            found.sort_by(|a: &(PathBuf, OsString), b| (a.0.as_os_str(), &a.1).cmp(&(b.0.as_os_str(), &b.1)));
            let label = classes.iter().position(|class| *class == folder.to_string_lossy()).unwrap_or(0);
            labels.resize(labels.len() + found.len(), label as i64);
            files.extend(found.into_iter().map(|(folder, name)| folder.join(name)));
        }
        Ok(ImageFolder { files, labels, classes, ignored })
    }

    fn without_images(&self) -> String {
        let others = if self.ignored > 0 { format!(" ({} other files are)", self.ignored) } else { String::new() };
        format!("there are no images in it{others}; images end in {}", ENDINGS.join(", "))
    }

    /// The files, in order.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// How many files there were that are not images by their ending.
    pub fn ignored(&self) -> usize {
        self.ignored
    }
}

fn hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// The names of the folders in a folder, sorted. Links to folders are folders.
pub(super) fn class_folders(root: &Path) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root).map_err(failed(root))? {
        let entry = entry.map_err(failed(root))?;
        if !hidden(&entry.file_name()) && entry.path().is_dir() {
            names.push(entry.file_name());
        }
    }
    names.sort();
    Ok(names)
}

/// All images below a class's folder, as folder and name.
fn collect(whole: &Path, folder: PathBuf, found: &mut Vec<(PathBuf, OsString)>, ignored: &mut usize) -> Result<()> {
    // Links may lead back: no folder is entered twice, nor one that holds the whole set.
    let mut seen = HashSet::new();
    let mut waiting = vec![folder];
    while let Some(folder) = waiting.pop() {
        let real = fs::canonicalize(&folder).map_err(failed(&folder))?;
        if whole.starts_with(&real) || !seen.insert(real) {
            continue;
        }
        for entry in fs::read_dir(&folder).map_err(failed(&folder))? {
            let entry = entry.map_err(failed(&folder))?;
            let (name, path) = (entry.file_name(), entry.path());
            if hidden(&name) {
                continue;
            }
            let mut kind = entry.file_type().map_err(failed(&path))?;
            let dangling = kind.is_symlink() && fs::metadata(&path).map(|target| kind = target.file_type()).is_err();
            // A link to nothing is an image that cannot be read, which is said when it is read.
            match (kind.is_dir(), is_image(&path) && (kind.is_file() || dangling)) {
                (true, _) => waiting.push(path),
                (false, true) => found.push((folder.clone(), name)),
                (false, false) => *ignored += 1,
            }
        }
    }
    Ok(())
}

fn is_image(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

impl Dataset for ImageFolder {
    fn len(&self) -> usize {
        self.files.len()
    }
    fn classes(&self) -> &[String] {
        &self.classes
    }
    fn labels(&self) -> &[i64] {
        &self.labels
    }
    fn read(&self, index: usize, image: &mut Image) -> Result<()> {
        match self.files.get(index) {
            Some(file) => Image::open_into(file, image),
            None => Err(Error::Argument(format!("there is no image {index}; the folder has {}", self.len()))),
        }
    }
    fn describe(&self, index: usize) -> String {
        self.files.get(index).map_or_else(|| format!("image {index}"), |file| file.display().to_string())
    }
}
