//! Folders of files that a bench needs: removed at its end, and also where a signal ends it.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, Once, PoisonError};
use std::{fs, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tempfile::TempDir;

/// Those that were made, whether they are there still or not.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static LISTENS: Once = Once::new();

/// A new folder.
///
/// # Errors
/// When it cannot be made.
pub fn folder() -> io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    folders.push(folder.path().to_owned());
    drop(folders);
    LISTENS.call_once(|| {
        // Without it, the worst is a folder that stays.
        if let Ok(signals) = Signals::new([SIGHUP, SIGINT, SIGTERM]) {
            thread::spawn(move || remove_at(signals));
        }
    });
    Ok(folder)
}

/// Ends the process as the first signal wants it, once the folders are gone.
fn remove_at(mut signals: Signals) {
    let Some(signal) = signals.forever().next() else {
        return;
    };
    let folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    for folder in folders.iter() {
        // It may be gone, or somebody may have made something in it just now.
        let _ = fs::remove_dir_all(folder);
    }
    let _ = emulate_default_handler(signal);
}
