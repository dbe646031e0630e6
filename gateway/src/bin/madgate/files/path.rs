//! Paths that cannot leave a folder.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use thiserror::Error;

use super::temporary;
use super::wire::MAX_PATH_BYTES;

/// The longest name of a file or folder; `NAME_MAX` of Linux.
const MAX_NAME_BYTES: usize = 255;

/// A relative path of plain names: no `..`, no `.`, no empty name, nothing absolute. It may
/// be empty, which is the folder itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Beneath {
    bytes: Vec<u8>,
}

/// Why a path is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum PathError {
    /// It starts at the root of the file system.
    #[error("{0:?} is an absolute path; give one relative to the served folder")]
    Absolute(String),
    /// It has a `.` or `..` in it.
    #[error("{0:?} has \".\" or \"..\" in it, which could lead out of the served folder")]
    Dots(String),
    /// It has a zero byte in it.
    #[error("{0:?} has a zero byte in it")]
    Nul(String),
    /// It or a name in it is too long.
    #[error("{0:?} is too long a path")]
    TooLong(String),
    /// It has a name that this program uses itself.
    #[error("{0:?} has a name that is reserved for unfinished files")]
    Reserved(String),
}

impl Beneath {
    /// Checks a path from outside. Slashes at the end and doubled ones are dropped.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, PathError> {
        let shown = || {
            let cut = &bytes[..bytes.len().min(MAX_NAME_BYTES)];
            String::from_utf8_lossy(cut).into_owned()
        };
        if bytes.len() > MAX_PATH_BYTES {
            return Err(PathError::TooLong(shown()));
        }
        if bytes.first() == Some(&b'/') {
            return Err(PathError::Absolute(shown()));
        }
        if bytes.contains(&0) {
            return Err(PathError::Nul(shown()));
        }
        let mut path = Self {
            bytes: Vec::with_capacity(bytes.len()),
        };
        for name in bytes
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            if name == b"." || name == b".." {
                return Err(PathError::Dots(shown()));
            }
            if name.len() > MAX_NAME_BYTES {
                return Err(PathError::TooLong(shown()));
            }
            if temporary::is_temporary(name) {
                return Err(PathError::Reserved(shown()));
            }
            path.push(name);
        }
        Ok(path)
    }

    /// Whether this is the folder itself.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The names, outermost first.
    pub(crate) fn names(&self) -> impl DoubleEndedIterator<Item = &OsStr> {
        let names = self.bytes.split(|byte| *byte == b'/');
        names.filter(|name| !name.is_empty()).map(OsStr::from_bytes)
    }

    /// The folder that it is in, and its name there; `None` for the folder itself.
    pub(crate) fn split_last(&self) -> Option<(Self, &OsStr)> {
        let name = self.names().next_back()?;
        let before = self.bytes.len() - name.len();
        let parent = self.bytes[..before].strip_suffix(b"/").unwrap_or_default();
        Some((
            Self {
                bytes: parent.to_vec(),
            },
            name,
        ))
    }

    /// This path, then `inner`.
    pub(crate) fn join(&self, inner: &Self) -> Self {
        let mut joined = self.clone();
        inner.names().for_each(|name| joined.push(name.as_bytes()));
        joined
    }

    /// `inner` with its first name replaced by this path.
    pub(crate) fn rename(&self, inner: &Self) -> Self {
        let mut renamed = self.clone();
        let rest = inner.names().skip(1);
        rest.for_each(|name| renamed.push(name.as_bytes()));
        renamed
    }

    fn push(&mut self, name: &[u8]) {
        if !self.bytes.is_empty() {
            self.bytes.push(b'/');
        }
        self.bytes.extend_from_slice(name);
    }
}

impl fmt::Display for Beneath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = if self.is_empty() {
            ".".into()
        } else {
            String::from_utf8_lossy(&self.bytes)
        };
        f.write_str(&shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beneath(text: &str) -> Beneath {
        Beneath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn plain_paths_pass() {
        assert_eq!(beneath("a//b/c/").to_string(), "a/b/c");
        assert_eq!(beneath("..a/b..").to_string(), "..a/b..");
        assert!(beneath("").is_empty());
        assert_eq!(Beneath::parse(b"\xff").unwrap().names().count(), 1);
    }

    #[test]
    fn what_could_leave_the_folder_does_not() {
        assert!(matches!(
            Beneath::parse(b"/etc/passwd"),
            Err(PathError::Absolute(_))
        ));
        assert!(matches!(Beneath::parse(b"/"), Err(PathError::Absolute(_))));
        for dots in ["..", ".", "a/../../b", "a/..", "./a", "a/./b"] {
            let parsed = Beneath::parse(dots.as_bytes());
            assert!(matches!(parsed, Err(PathError::Dots(_))), "{dots}");
        }
        assert!(matches!(Beneath::parse(b"a\0b"), Err(PathError::Nul(_))));
        let long = vec![b'a'; MAX_NAME_BYTES + 1];
        assert!(matches!(Beneath::parse(&long), Err(PathError::TooLong(_))));
        let long = b"a/".repeat(MAX_PATH_BYTES);
        assert!(matches!(Beneath::parse(&long), Err(PathError::TooLong(_))));
        let reserved = b"a/.name.madgate-0123456789abcdef";
        assert!(matches!(
            Beneath::parse(reserved),
            Err(PathError::Reserved(_))
        ));
    }

    #[test]
    fn paths_are_split_and_joined() {
        let path = beneath("a/b/c");
        let (parent, name) = path.split_last().unwrap();
        assert_eq!(
            (parent.to_string().as_str(), name),
            ("a/b", OsStr::new("c"))
        );
        let name = beneath("x");
        let (parent, _) = name.split_last().unwrap();
        assert!(parent.is_empty());
        assert!(parent.split_last().is_none());
        assert_eq!(beneath("t").join(&path), beneath("t/a/b/c"));
        assert_eq!(beneath("").join(&path), path);
        assert_eq!(beneath("t/u").rename(&path), beneath("t/u/b/c"));
    }
}
