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
        // Who was started so that they pass over it (`nohup`) is not to be ended by one. Without any, the
        // worst is a folder that stays.
        let ignored = ignored();
        let ending = [SIGHUP, SIGINT, SIGTERM].into_iter();
        let ending = ending.filter(|signal| ignored & (1 << (signal - 1)) == 0);
        if let Ok(signals) = Signals::new(ending) {
            thread::spawn(move || remove_at(signals));
        }
    });
    Ok(folder)
}

/// The signals that this process passes over, the first in the lowest bit.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
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
