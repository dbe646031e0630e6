//! Two ends of a port: remote write without a session, for programs that bring their own
//! connection.
//!
//! ```text
//! cargo run --release -p madgate-gateway --example port
//! ```
//!
//! A port needs a connected Unix socket, of which one end *connects* and the other does not, and a
//! thread at each end that goes on with it. Short messages are copied at both ends; a long one goes
//! from the sender's arena straight into memory that the receiver has posted.

use std::error::Error;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use madgate_tm::hsl::port::{Arrived, Block, Port, PortStart, PortTuning};
use madgate_tm::{LaneError, Poller};

type Failure = Box<dyn Error + Send + Sync>;

const LONG_BYTES: u32 = 1 << 20;

fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("port");
    let listener = UnixListener::bind(&place)?;
    thread::scope(|scope| {
        // As well a process of its own, of the same user.
        let sender = scope.spawn(move || sends(UnixStream::connect(place)?));
        receives(listener.accept()?.0)?;
        match sender.join() {
            Ok(sent) => Ok(sent?),
            Err(_) => Err("the sender panicked".into()),
        }
    })
}

/// Both ends say what they have, and map each other's memory.
fn start(socket: UnixStream, connects: bool) -> Result<Port, LaneError> {
    let mut start = PortStart::new(socket, connects, PortTuning::default())?;
    loop {
        if let Some(port) = start.advance()? {
            return Ok(port);
        }
        wait_for(|poller| poller.add(&start, 0, madgate_tm::Interest::Readable))?;
    }
}

/// Sleeps until something comes for what is `added` to a poller.
fn wait_for(added: impl FnOnce(&Poller) -> std::io::Result<()>) -> Result<(), LaneError> {
    let mut poller = Poller::new()?;
    added(&poller)?;
    poller.wait(None)?;
    Ok(())
}

/// Goes on until `found` finds what it looks for, and sleeps where nothing comes.
fn until<T>(
    port: &mut Port,
    mut found: impl FnMut(&mut Port) -> Option<T>,
) -> Result<T, LaneError> {
    loop {
        port.progress()?;
        if let Some(it) = found(port) {
            return Ok(it);
        }
        // A program that waits often keeps its poller.
        if port.arm()? {
            let (descriptor, interest) = port.descriptor();
            wait_for(|poller| poller.add(descriptor, 0, interest))?;
            port.acknowledge();
        }
    }
}

fn sends(socket: UnixStream) -> Result<(), Failure> {
    let mut port = start(socket, true)?;
    // `false` where the other end has read none of those before it.
    while !port.send_short(b"a short one")? {
        port.progress()?;
    }
    let mut buffer = port
        .arena()
        .allocate(LONG_BYTES)
        .ok_or("the arena is full")?;
    buffer.write(0, &[7; LONG_BYTES as usize]);
    // The blocks are the port's until it has sent them.
    let number = port.send(vec![Block::Arena(buffer)])?;
    let (sent, blocks) = until(&mut port, Port::next_sent)?;
    assert_eq!(sent, number);
    drop(blocks);
    // What is under way ends with the port: this one waits until the other end has all of it.
    match until(&mut port, Port::next_arrived)? {
        Arrived::Short(_) => Ok(()),
        _ => Err("another answer than was agreed".into()),
    }
}

fn receives(socket: UnixStream) -> Result<(), Failure> {
    let mut port = start(socket, false)?;
    let room = port
        .arena()
        .allocate(LONG_BYTES)
        .ok_or("the arena is full")?;
    port.post(vec![Block::Arena(room)])?;
    for _ in 0..2 {
        match until(&mut port, Port::next_arrived)? {
            // In a control slot, which goes back when this is dropped.
            Arrived::Short(slot) => {
                let mut text = vec![0; slot.len()];
                slot.copy_out(0, &mut text);
                println!("short:  {:?}", String::from_utf8_lossy(&text));
            }
            // Where it was posted: nothing was copied.
            Arrived::Posted(blocks, length) => {
                let mut last = [0];
                blocks[0].read(blocks[0].len() - 1, &mut last);
                println!("posted: {length} bytes, the last is {}", last[0]);
            }
            // Nothing was posted: in a buffer of the port's.
            Arrived::Unposted(slot) => println!("unposted: {} bytes", slot.len()),
            _ => {}
        }
    }
    while !port.send_short(&[])? {
        port.progress()?;
    }
    println!("copies at this end: {}", port.counters().copies);
    Ok(())
}
