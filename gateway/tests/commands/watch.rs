//! Waits until something happens in a folder.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

/// Events of one folder, from its making on.
pub(crate) struct Watch {
    events: File,
}

impl Watch {
    pub(crate) fn new(folder: &Path) -> Self {
        let events = init(CreateFlags::CLOEXEC).unwrap();
        let flags = WatchFlags::CREATE | WatchFlags::MODIFY | WatchFlags::DELETE;
        add_watch(&events, folder, flags | WatchFlags::MOVED_FROM).unwrap();
        Self {
            events: events.into(),
        }
    }

    /// Waits until a file in the folder holds some bytes.
    pub(crate) fn wait_for_bytes(&mut self, folder: &Path) {
        self.wait_until(|| {
            fs::read_dir(folder).unwrap().any(|entry| {
                // It may go or get another name meanwhile.
                entry
                    .unwrap()
                    .metadata()
                    .is_ok_and(|file| file.is_file() && file.size() > 0)
            })
        });
    }

    /// Waits until something is so; looks after every event.
    pub(crate) fn wait_until(&mut self, mut is_so: impl FnMut() -> bool) {
        let mut events = [0; 4096];
        while !is_so() {
            assert!(self.events.read(&mut events).unwrap() > 0);
        }
    }
}
