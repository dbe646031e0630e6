//! Waits until something happens in a folder.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::world::Process;

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

    /// Waits until a file in the folder holds some bytes, while `copy` runs.
    pub(crate) fn wait_for_bytes(&mut self, folder: &Path, copy: &Process) {
        let pid = Pid::from_raw(copy.id().try_into().unwrap()).unwrap();
        let ended = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let has_bytes = || {
            fs::read_dir(folder).unwrap().any(|entry| {
                // It may go or get another name meanwhile.
                let metadata = entry.unwrap().metadata();
                metadata.is_ok_and(|file| file.is_file() && file.size() > 0)
            })
        };
        while !has_bytes() {
            let mut events = [
                PollFd::new(&self.events, PollFlags::IN),
                PollFd::new(&ended, PollFlags::IN),
            ];
            poll(&mut events, None).unwrap();
            let is_over = !events[1].revents().is_empty();
            assert!(!is_over, "the copy is over before it has begun");
            self.take();
        }
    }

    /// Waits until something is so; looks after every event.
    pub(crate) fn wait_until(&mut self, mut is_so: impl FnMut() -> bool) {
        while !is_so() {
            self.take();
        }
    }

    /// Takes events, and waits for the first.
    fn take(&mut self) {
        let mut events = [0; 4096];
        assert!(self.events.read(&mut events).unwrap() > 0);
    }
}
