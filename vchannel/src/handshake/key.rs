//! The session key: what members know and strangers do not.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::random::fill_random;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// Longest key file that is read: the key in hexadecimal, with some white space around it.
const FILE_BYTES_MAX: usize = 256;

/// Rights of a new key file: only its owner reads and writes it.
const OWNER: u32 = 0o600;

/// Rights of others and the group, of which a key file must grant none.
const OTHERS: u32 = 0o077;

/// The key of a session, shared by all its nodes. Its file holds one line: 64 hexadecimal
/// digits.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey([u8; KEY_BYTES]);

impl SessionKey {
    /// Draws a key.
    #[must_use]
    pub fn generate() -> Self {
        let mut bytes = [0; KEY_BYTES];
        fill_random(&mut bytes);
        Self(bytes)
    }

    /// Writes the key to a new file that only its owner can read, and brings it to the disk.
    ///
    /// # Errors
    /// When the file exists already (it is left as it is) or cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        let unwritten = |source| KeyError::Unwritten {
            path: path.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(OWNER)
            .open(path)
            .map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => KeyError::Exists(path.to_owned()),
                _ => unwritten(error),
            })?;
        let mut line = String::with_capacity(2 * KEY_BYTES + 1);
        for byte in self.0 {
            // Writing to a string does not fail.
            let _ = write!(line, "{byte:02x}");
        }
        line.push('\n');
        // The umask may have taken rights of the owner's.
        file.set_permissions(Permissions::from_mode(OWNER))
            .and_then(|()| file.write_all(line.as_bytes()))
            .and_then(|()| file.sync_all())
            .map_err(unwritten)
    }

    /// Reads the key from its file.
    ///
    /// # Errors
    /// When the file is missing, is no key, or can be read by others than its owner.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let unusable = |error| KeyError::unusable(path, error);
        // A pipe is refused below, not waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty()).map(File::from);
        let file = opened.map_err(|error| match io::Error::from(error) {
            error if error.kind() == io::ErrorKind::NotFound => KeyError::Missing(path.to_owned()),
            error => unusable(error),
        })?;
        let about = file.metadata().map_err(unusable)?;
        if !about.is_file() {
            return Err(KeyError::not_a_key(path, "it is not a file"));
        }
        let mode = about.mode() & 0o7777;
        if mode & OTHERS != 0 {
            return Err(KeyError::Exposed {
                path: path.to_owned(),
                mode,
            });
        }
        let mut text = Vec::with_capacity(FILE_BYTES_MAX);
        let limit = u64::try_from(FILE_BYTES_MAX + 1).unwrap_or(u64::MAX);
        file.take(limit).read_to_end(&mut text).map_err(unusable)?;
        if text.len() > FILE_BYTES_MAX {
            return Err(KeyError::not_a_key(path, "it is too long"));
        }
        Self::parse(text.trim_ascii())
            .ok_or_else(|| KeyError::not_a_key(path, "expected one line of 64 hexadecimal digits"))
    }

    fn parse(digits: &[u8]) -> Option<Self> {
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        let value = |digit: u8| {
            char::from(digit)
                .to_digit(16)
                .map(|value| value.to_le_bytes()[0])
        };
        let mut bytes = [0; KEY_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(secret)")
    }
}

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There is no such file.
    #[error("there is no session key at {}; copy that of the other nodes there, or make the first one with `madgate keygen {}`", .0.display(), .0.display())]
    Missing(PathBuf),
    /// A new key would replace another one.
    #[error("{} exists already and is left as it is; name another file, or remove it first", .0.display())]
    Exists(PathBuf),
    /// Others than the owner have rights on the file.
    #[error("the session key {} can be used by others than its owner (mode {mode:04o}); run `chmod 600 {}`", .path.display(), .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// What the file holds is no key.
    #[error("{path} is no session key: {what}; copy that of the other nodes here, or remove this one first and make one with `madgate keygen {path}`", path = .path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The system refuses to read it.
    #[error("the session key {} cannot be read{}", .path.display(), reading_advice(.source))]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system refuses to write it.
    #[error("the session key {} cannot be written{}", .path.display(), writing_advice(.path, .source))]
    Unwritten {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What to do where a key cannot be read.
fn reading_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run this as the owner of the file",
        _ => "",
    }
}

/// What to do where a key cannot be written.
fn writing_advice(path: &Path, error: &io::Error) -> String {
    match (error.kind(), path.parent()) {
        (io::ErrorKind::NotFound, Some(folder)) => format!(
            ": there is no folder {}; make it first, or name another file",
            folder.display()
        ),
        (io::ErrorKind::PermissionDenied, _) => {
            "; name a file in a folder that you may write in".to_owned()
        }
        _ => String::new(),
    }
}

impl KeyError {
    fn unusable(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Unusable { path, source }
    }

    fn not_a_key(path: &Path, what: &'static str) -> Self {
        let path = path.to_owned();
        Self::NotAKey { path, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_key_survives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session.key");
        let key = SessionKey::generate();
        key.write_new(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(SessionKey::load(&path).unwrap() == key);
        assert!(SessionKey::generate() != key);
        let other = SessionKey::generate().write_new(&path);
        assert!(matches!(other, Err(KeyError::Exists(_))), "{other:?}");
        assert!(SessionKey::load(&path).unwrap() == key);
        assert_eq!(format!("{key:?}"), "SessionKey(secret)");
    }

    #[test]
    fn a_pipe_is_no_key_and_is_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session.key");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let error = SessionKey::load(&path).unwrap_err();
        assert!(error.to_string().contains("not a file"), "{error}");
    }

    #[test]
    fn what_the_system_refuses_comes_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing/session.key");
        let error = SessionKey::generate().write_new(&path).unwrap_err();
        let missing = folder.path().join("missing");
        let advice = format!("there is no folder {}; make it first", missing.display());
        assert!(error.to_string().contains(&advice), "{error}");
        let error = KeyError::unusable(&path, io::ErrorKind::PermissionDenied.into());
        let advice = "cannot be read; run this as the owner of the file";
        assert!(error.to_string().ends_with(advice), "{error}");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session.key");
        assert!(matches!(SessionKey::load(&path), Err(KeyError::Missing(_))));
        let good = "0123456789abcdefABCDEF0123456789".repeat(2);
        for (text, is_key) in [
            (String::new(), false),
            (good.clone(), true),
            (format!("  {good}\r\n\n"), true),
            (good[1..].to_owned(), false),
            (format!("{good}0"), false),
            (good.replace('a', "g"), false),
            (good.replacen("01", "+1", 1), false),
            (" ".repeat(FILE_BYTES_MAX) + &good, false),
        ] {
            fs::write(&path, &text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            let loaded = SessionKey::load(&path);
            assert_eq!(loaded.is_ok(), is_key, "{text:?}");
            if let Err(error) = loaded {
                let advice = format!(
                    "remove this one first and make one with `madgate keygen {}`",
                    path.display()
                );
                assert!(error.to_string().ends_with(&advice), "{error}");
            }
        }
        fs::write(&path, &good).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601, 0o644] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = SessionKey::load(&path).unwrap_err();
            assert!(matches!(error, KeyError::Exposed { .. }), "{error}");
            assert!(error.to_string().contains("chmod 600"));
        }
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        assert!(SessionKey::load(&path).is_ok());
        assert!(SessionKey::load(folder.path()).is_err());
    }
}
