//! Ports between processes: one that is killed in the middle of a rendezvous, and one of another
//! user. The other process is this test again, which is told its part.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::Uid;
use rustix::thread::set_thread_uid;

use super::super::Card;
use super::super::fabric::{FabricDevice, FabricPortStart};
use super::super::host::Mode;
use super::super::port::{Arrived, Block, Port, PortDevice, PortStart, PortTuning};
use super::skip;
use crate::conformance::{SILENCE, has_card};
use crate::poller::{Interest, Poller};
use crate::protocol::{Endpoint, Tuning};
use crate::{LaneClass, LaneError, connect, listen};

/// Tells the other process its part,
const PART: &str = "MADGATE_TEST_PART";
/// and where it finds this one.
const PLACE: &str = "MADGATE_TEST_PLACE";
/// What it says when it has come to where it is wanted.
const READY: &str = "ready";

/// So many segments take several answers.
const SEGMENTS: usize = 100;
const SEGMENT_BYTES: u32 = 1000;
const MESSAGE_BYTES: usize = SEGMENTS * SEGMENT_BYTES as usize;

/// Some user that is not the administrator.
const NOBODY: u32 = 65534;

/// The other process, which is killed when it is dropped.
struct Other {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Other {
    fn start(part: &str, place: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["hsl::tests::processes::part", "--exact", "--nocapture"])
            .env(PART, part)
            .env(PLACE, place)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// Waits until it says `word`; what follows it.
    fn hear(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.lines.read_line(&mut line).unwrap();
            assert!(read > 0, "it ended without {word:?}");
            // The harness does not end its own line first.
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Kills it, and waits until it is no more.
    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.kill();
    }
}

fn say(line: &str) {
    let mut stdout = stdout().lock();
    writeln!(stdout, "{line}").unwrap();
    stdout.flush().unwrap();
}

fn wait_for(source: impl AsFd) {
    let mut poller = Poller::new().unwrap();
    poller.add(&source, 0, Interest::Readable).unwrap();
    assert!(
        !poller.wait(Some(SILENCE)).unwrap().is_empty(),
        "nothing comes"
    );
}

fn accept(listener: &UnixListener) -> UnixStream {
    wait_for(listener);
    let socket = listener.accept().unwrap().0;
    socket.set_nonblocking(true).unwrap();
    socket
}

fn advance(mut start: PortStart) -> Port {
    loop {
        match start.advance().unwrap() {
            Some(port) => return port,
            None => wait_for(&start),
        }
    }
}

fn tuning(mode: Mode, foreign: bool) -> PortTuning {
    PortTuning {
        buffers: 0,
        mode,
        foreign,
        ..PortTuning::default()
    }
}

/// This process's port, and the other process.
fn between(part: &str, tuning: &PortTuning) -> (Port, Other) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("port");
    let listener = UnixListener::bind(&place).unwrap();
    let part = format!("{part} {} {}", tuning.mode.name(), tuning.foreign);
    let other = Other::start(&part, &place);
    let start = PortStart::new(accept(&listener), false, tuning.clone()).unwrap();
    (advance(start), other)
}

/// The card of ports between processes, where it is there.
fn card() -> Option<Card> {
    let card = Card::Libfabric {
        provider: Some("tcp;ofi_rxm".to_owned()),
        domain: None,
    };
    has_card(&card).then_some(card)
}

fn advance_fabric(mut start: FabricPortStart) -> Port<FabricDevice> {
    loop {
        match start.advance().unwrap() {
            Some(port) => return port,
            None => wait_for(&start),
        }
    }
}

/// The same over libfabric.
fn between_fabric(part: &str, card: &Card, tuning: &PortTuning) -> (Port<FabricDevice>, Other) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("port");
    let listener = UnixListener::bind(&place).unwrap();
    let part = format!("{part} {} {} fabric", tuning.mode.name(), tuning.foreign);
    let other = Other::start(&part, &place);
    let start = FabricPortStart::new(accept(&listener), false, tuning.clone(), card).unwrap();
    (advance_fabric(start), other)
}

/// Memory in many pieces.
fn pieces<D: PortDevice>(port: &Port<D>, foreign: bool) -> Vec<Block> {
    let piece = || match foreign {
        true => Block::Other(vec![0; SEGMENT_BYTES as usize]),
        false => Block::Arena(port.arena().allocate(SEGMENT_BYTES).unwrap()),
    };
    (0..SEGMENTS).map(|_| piece()).collect()
}

/// Goes on until the port ends; how. Nothing of what the other one began is whole.
fn end_of<D: PortDevice>(port: &mut Port<D>) -> LaneError {
    loop {
        assert!(!matches!(port.next_arrived(), Some(Arrived::Posted(..))));
        assert!(port.next_sent().is_none(), "nothing has been sent in full");
        // Who is about to sleep asks whether the other one is there.
        match port.progress().and_then(|()| port.arm()) {
            Ok(_) => std::thread::yield_now(),
            Err(error) => return error,
        }
    }
}

#[test]
fn a_receiver_that_is_killed_while_it_is_written_to_ends_its_port() {
    let ways = Mode::ALL.map(|mode| [(mode, false), (mode, true)]);
    for (mode, foreign) in ways.into_iter().flatten() {
        for before_its_end in [false, true] {
            let (mut port, mut other) = between("receive", &tuning(mode, foreign));
            port.send(vec![Block::Other(vec![7; MESSAGE_BYTES])])
                .unwrap();
            other.hear(READY);
            // It has answered, and does nothing any more: the first pieces are put before or
            // after its end, and more of them are never asked for.
            if before_its_end {
                match port.progress() {
                    Ok(()) => {}
                    Err(error) if error.to_string().contains("cannot be reached") => {
                        skip(&format!("other processes' memory: {error}"));
                        return;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            other.kill();
            let error = end_of(&mut port);
            assert!(matches!(error, LaneError::Closed), "{mode:?}: {error}");
        }
    }
}

#[test]
fn a_sender_that_is_killed_in_the_middle_leaves_the_receivers_memory() {
    for mode in Mode::ALL {
        let (mut port, mut other) = between("send", &tuning(mode, false));
        let arena = port.arena().clone();
        let memory = pieces(&port, false);
        port.post(memory).unwrap();
        other.hear(READY);
        // It has asked, and is answered; it never puts anything.
        port.progress().unwrap();
        other.kill();
        let error = end_of(&mut port);
        assert!(matches!(error, LaneError::Closed), "{mode:?}: {error}");
        let all = u32::try_from(arena.capacity()).unwrap();
        assert!(
            arena.allocate(all).is_none(),
            "what is posted is the port's"
        );
        drop(port);
        assert!(arena.allocate(all).is_some(), "all of it is free again");
    }
}

#[test]
fn who_is_killed_ends_its_port_over_libfabric_too() {
    let Some(card) = card() else {
        return;
    };
    for foreign in [false, true] {
        for part in ["receive", "send"] {
            let (mut port, mut other) =
                between_fabric(part, &card, &tuning(Mode::Adaptive, foreign));
            let arena = port.arena().clone();
            if part == "receive" {
                port.send(vec![Block::Other(vec![7; MESSAGE_BYTES])])
                    .unwrap();
                other.hear(READY);
            } else {
                let memory = pieces(&port, foreign);
                port.post(memory).unwrap();
                other.hear(READY);
                port.progress().unwrap();
            }
            other.kill();
            let error = end_of(&mut port);
            // It may be the network that says so first.
            assert!(
                matches!(error, LaneError::Closed | LaneError::Broken(_)),
                "{part}: {error}"
            );
            drop(port);
            let all = u32::try_from(arena.capacity()).unwrap();
            assert!(arena.allocate(all).is_some(), "all of it is free again");
        }
    }
}

#[test]
fn a_process_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        skip("only root can start a process of another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let everybody = |path: &Path| {
        std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    };
    everybody(folder.path());
    let both_users = |what: &str| {
        assert!(what.contains(&format!("user {NOBODY}")), "{what}");
        assert!(what.contains("user 0"), "{what}");
    };

    let place = folder.path().join("port");
    let listener = UnixListener::bind(&place).unwrap();
    everybody(&place);
    let mut other = Other::start("stranger", &place);
    let refused = PortStart::new(accept(&listener), false, PortTuning::default());
    both_users(&refused.unwrap_err().to_string());
    both_users(&other.hear("refused"));

    let endpoint = Endpoint::Hsl {
        directory: folder.path().to_owned(),
        name: "node".to_owned(),
    };
    let mut listener = listen(&endpoint, &Tuning::default()).unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        everybody(&entry.unwrap().path());
    }
    let mut other = Other::start("strange node", folder.path());
    let stranger = loop {
        match listener.try_accept().unwrap() {
            Some(stranger) => break stranger,
            None => wait_for(listener.as_fd()),
        }
    };
    let refused = stranger.establish(LaneClass::Urgent);
    both_users(&refused.unwrap_err().to_string());
    both_users(&other.hear("refused"));
}

/// No test: what the other process does, when it is told its part; nothing otherwise.
#[test]
fn part() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    let place = std::env::var_os(PLACE).unwrap();
    let place = Path::new(&place);
    match part.as_str() {
        "stranger" => {
            set_thread_uid(Uid::from_raw(NOBODY)).unwrap();
            let socket = UnixStream::connect(place).unwrap();
            let refused = PortStart::new(socket, true, PortTuning::default());
            say(&format!("refused {}", refused.unwrap_err()));
        }
        "strange node" => {
            set_thread_uid(Uid::from_raw(NOBODY)).unwrap();
            let endpoint = Endpoint::Hsl {
                directory: place.to_owned(),
                name: "node".to_owned(),
            };
            let stranger = connect(&endpoint, &Tuning::default()).unwrap();
            let refused = stranger.establish(LaneClass::Urgent);
            say(&format!("refused {}", refused.unwrap_err()));
        }
        part => of_a_port(part, place),
    }
}

/// What it does with a port: until the parent kills it, or has gone.
fn of_a_port(part: &str, place: &Path) {
    let mut words = part.split(' ');
    let receives = words.next() == Some("receive");
    let mode = words.next().unwrap();
    let mode = Mode::ALL
        .into_iter()
        .find(|one| one.name() == mode)
        .unwrap();
    let foreign = words.next() == Some("true");
    let is_fabric = words.next() == Some("fabric");
    let socket = UnixStream::connect(place).unwrap();
    socket.set_nonblocking(true).unwrap();
    let watched = socket.try_clone().unwrap();
    let tuning = tuning(mode, foreign);
    if is_fabric {
        let start = FabricPortStart::new(socket, true, tuning, &card().unwrap());
        play(advance_fabric(start.unwrap()), receives, foreign, &watched);
    } else {
        let start = PortStart::new(socket, true, tuning);
        play(advance(start.unwrap()), receives, foreign, &watched);
    }
}

fn play<D: PortDevice>(mut port: Port<D>, receives: bool, foreign: bool, watched: &UnixStream) {
    if receives {
        let puts = super::super::counters().puts;
        let memory = pieces(&port, foreign);
        port.post(memory).unwrap();
        // The answer is there when the request has been taken in, which may have come already.
        while super::super::counters().puts == puts {
            port.progress().unwrap();
            std::thread::yield_now();
        }
    } else {
        port.send(vec![Block::Other(vec![7; MESSAGE_BYTES])])
            .unwrap();
    }
    say(READY);
    // Nothing any more.
    let mut poller = Poller::new().unwrap();
    poller.add(watched, 0, Interest::None).unwrap();
    while !poller.wait(None).unwrap().iter().any(|ready| ready.closed) {}
}
