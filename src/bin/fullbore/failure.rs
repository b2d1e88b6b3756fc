//! Why the program ends early, and the exit status that says so.

use std::fmt;
use std::io::{self, Write};

/// What ended the run. The text is one line: cause and remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Nothing was measured: the command line, the machine or the file does not allow it.
    Setup(String),
    /// A transfer failed or a byte was wrong.
    Data(String),
    /// Ctrl-C.
    Stopped,
}

impl Failure {
    pub fn status(&self) -> u8 {
        match self {
            Self::Data(_) => 1,
            Self::Setup(_) => 2,
            Self::Stopped => 130,
        }
    }

    pub fn setup(cause: impl fmt::Display) -> Self {
        Self::Setup(cause.to_string())
    }

    pub fn data(cause: impl fmt::Display) -> Self {
        Self::Data(cause.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setup(text) | Self::Data(text) => f.write_str(text),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// A line on stderr. That nobody reads it any more (`2>&1 | head`) is no failure of its own, as it would be with eprintln.
pub fn tell(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "fullbore: {line}");
}

#[cfg(test)]
mod tests {
    use super::Failure;

    #[test]
    fn each_kind_has_its_exit_status() {
        assert_eq!(Failure::data("x").status(), 1);
        assert_eq!(Failure::setup("x").status(), 2);
        assert_eq!(Failure::Stopped.status(), 130);
    }
}
