//! Two ends of a lane in one process, for benches of the parts.

use std::path::Path;
use std::thread;

use madgate_tm::{Endpoint, Establishing, Lane, LaneClass, Tuning, connect, listen};

/// A protocol between processes of one host.
#[derive(Debug, Clone, Copy)]
pub enum Local {
    /// Shared memory.
    Shm,
    /// Remote write.
    Hsl,
}

impl Local {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Shm, Self::Hsl];

    /// As the cluster file has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Hsl => "hsl",
        }
    }

    fn endpoint(self, folder: &Path) -> Endpoint {
        let (directory, name) = (folder.to_owned(), "peer".to_owned());
        match self {
            Self::Shm => Endpoint::Shm { directory, name },
            Self::Hsl => Endpoint::Hsl { directory, name },
        }
    }
}

/// Both ends of one lane: who connected, and who accepted.
///
/// # Panics
/// When this machine cannot have such lanes.
#[must_use]
pub fn pair(protocol: Local, class: LaneClass) -> (Lane, Lane) {
    let folder = tempfile::tempdir().expect("a folder");
    let endpoint = protocol.endpoint(folder.path());
    let tuning = Tuning::default();
    let mut listener = listen(&endpoint, &tuning).expect("a place to listen");
    let dialer = connect(&endpoint, &tuning).expect("a peer that listens");
    let acceptor = loop {
        match listener.try_accept().expect("a listener that works") {
            Some(acceptor) => break acceptor,
            None => thread::yield_now(),
        }
    };
    let mut ends = [dialer, acceptor].map(|end| end.establish(class).expect("a lane"));
    let mut lanes = [None, None];
    while lanes.iter().any(Option::is_none) {
        for (end, lane) in ends.iter_mut().zip(&mut lanes) {
            if lane.is_none() {
                *lane = advance(&mut **end);
            }
        }
        thread::yield_now();
    }
    let [dialer, acceptor] = lanes.map(|lane| lane.expect("both ends are there"));
    (dialer, acceptor)
}

fn advance(end: &mut dyn Establishing) -> Option<Lane> {
    end.advance().expect("an end that can be set up")
}
