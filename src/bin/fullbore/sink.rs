//! Files that reports and traces are written to: never over what is measured.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::failure::{self, Failure};

/// Makes the file, or empties it. Refused are those in `taken`, by whatever name, and block devices.
pub fn create<'a>(path: &Path, taken: impl IntoIterator<Item = &'a PathBuf>) -> Result<File, String> {
    let there = fs::metadata(path).ok();
    if there.as_ref().is_some_and(|meta| meta.file_type().is_block_device()) {
        return Err("it is a block device, and would be overwritten: name a file".into());
    }
    let there = there.filter(fs::Metadata::is_file);
    let same = |other: &PathBuf| match (&there, fs::metadata(other)) {
        (Some(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (None, Err(_)) => other == path,
        _ => false,
    };
    if taken.into_iter().any(same) {
        return Err(
            "this run uses it for something else, and it would be overwritten: name another file".into()
        );
    }
    File::create(path).map_err(|error| format!("{error}: name another file"))
}

/// What became of writing a report. A reader that went away (`| head`) is no failure.
pub fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Setup(format!(
            "writing the report: {error}: free space, or name another file in --output"
        ))),
        _ => Ok(()),
    }
}

/// Says on stderr what a report of commas alone leaves out.
pub fn warn_of_rows_alone(compares: bool, ceilings: bool) {
    let left_out = match (compares, ceilings) {
        (true, _) => "comparison and ceilings are",
        (false, true) => "ceilings are",
        (false, false) => return,
    };
    failure::tell(format_args!(
        "note: csv has rows alone: {left_out} in --output-format=json, normal and html"
    ));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::create;

    #[test]
    fn what_is_measured_is_not_overwritten() {
        let folder = std::env::temp_dir().join(format!("fullbore-sink-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (data, link, other) = (folder.join("data"), folder.join("link"), folder.join("other"));
        fs::write(&data, "x").unwrap();
        fs::hard_link(&data, &link).unwrap();
        for (path, taken) in [(&data, &data), (&link, &data), (&other, &other)] {
            assert!(create(path, [taken]).unwrap_err().contains("name another"), "{}", path.display());
        }
        assert_eq!(fs::read(&data).unwrap(), b"x");
        assert!(create(&other, [&data]).is_ok() && create(&folder, [] as [&PathBuf; 0]).is_err());
        // What is no file can be named twice: /dev/null, a terminal.
        assert!(create("/dev/null".as_ref(), [&PathBuf::from("/dev/null")]).is_ok());
        fs::remove_dir_all(&folder).unwrap();
    }
}
