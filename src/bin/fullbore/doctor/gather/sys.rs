//! Reads small files of /sys and /proc. `root` stands for `/`; tests give a tree of their own.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct Sys(pub PathBuf);

impl Sys {
    pub fn here() -> Self {
        Self("/".into())
    }

    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// What is in a file, without blanks around it; `None` for an empty one.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        self.text_at(&self.path(path))
    }

    /// The same of a path that has the root already.
    pub fn text_at(&self, path: &Path) -> Option<String> {
        let text = fs::read_to_string(path).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    pub fn number<T: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// The last name of what a link leads to.
    pub fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let leads_to = fs::read_link(self.path(path)).ok()?;
        Some(leads_to.file_name()?.to_string_lossy().into_owned())
    }

    /// Names in a folder, in the order that people count: `ng2n1` before `ng10n1`.
    pub fn entries(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_by_cached_key(|name| counted(name));
        names
    }
}

/// The numbers of a name, apart from its letters.
fn counted(name: &str) -> (String, Vec<u64>) {
    let letters = name.chars().filter(|c| !c.is_ascii_digit()).collect();
    let numbers = name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    (letters, numbers.collect())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A tree below a temporary folder, removed when dropped.
    pub struct Tree(pub Sys);

    impl Tree {
        pub fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("fullbore-doctor-{}-{name}", std::process::id()));
            let tree = Self(Sys(root));
            files.iter().for_each(|(path, text)| tree.file(path, text));
            tree
        }

        pub fn file(&self, path: &str, text: &str) {
            let path = self.0.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        pub fn link(&self, path: &str, to: &str) {
            let path = self.0.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(to, path).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.0);
        }
    }

    #[test]
    fn names_are_in_the_order_that_people_count() {
        let tree =
            Tree::new("names", &[("d/ng10n1", ""), ("d/ng2n1", ""), ("d/ng2n10", ""), ("d/ng2n2", "")]);
        assert_eq!(tree.0.entries("/d"), ["ng2n1", "ng2n2", "ng2n10", "ng10n1"]);
        assert!(tree.0.entries("/none").is_empty());
        assert_eq!((tree.0.text("d/ng2n1"), tree.0.number::<u32>("x")), (None, None));
    }
}
