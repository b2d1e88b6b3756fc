//! A sysfs of a test's own making.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A tree below a temporary folder, removed when dropped.
pub struct Fake(PathBuf);

impl Fake {
    /// Of these files and what is in them. `name` is the test's alone.
    pub fn new(name: &str, files: &[(&str, &str)]) -> Fake {
        let root = std::env::temp_dir().join(format!("fullbore-sysfs-{}-{name}", std::process::id()));
        let fake = Fake(root);
        for (path, content) in files {
            fake.file(path, content);
        }
        fake
    }

    pub fn root(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, path: &str, content: &str) {
        fs::write(self.within(path), content).unwrap();
    }

    pub fn folder(&self, path: &str) {
        fs::create_dir_all(self.within(path)).unwrap();
    }

    /// `target` is as sysfs writes it: relative to where the link lies.
    pub fn link(&self, path: &str, target: &str) {
        symlink(target, self.within(path)).unwrap();
    }

    fn within(&self, path: &str) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
