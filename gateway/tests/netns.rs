//! The hosts that other tests are built of do what they promise.

mod support;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::thread;
use std::time::Instant;

use support::have;
use support::netns::{Host, Rate, Switch, available, link};

/// Bytes that pass before the rate is measured: more than the burst that a shaper lets by.
const WARM_UP_BYTES: usize = 1024 * 1024;

/// Bytes that are measured: about two seconds at 100 Mbit/s.
const MEASURED_BYTES: usize = 24 * 1024 * 1024;

const CHUNK_BYTES: usize = 64 * 1024;

/// A connection from one host to an address of another.
fn connect(from: &Host, to: &Host, address: Ipv4Addr) -> io::Result<(TcpStream, TcpStream)> {
    let listener = to.run(|| TcpListener::bind((address, 0)))??;
    let at: SocketAddr = listener.local_addr()?;
    let near = from.run(|| TcpStream::connect(at))??;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

/// Bits per second that arrive.
fn measure(mut near: TcpStream, mut far: TcpStream) -> io::Result<f64> {
    let sender = thread::spawn(move || {
        let chunk = vec![7; CHUNK_BYTES];
        let mut left = WARM_UP_BYTES + MEASURED_BYTES;
        while left > 0 {
            near.write_all(&chunk)?;
            left -= CHUNK_BYTES;
        }
        io::Result::Ok(())
    });
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut take =
        |bytes: usize| (0..bytes / CHUNK_BYTES).try_for_each(|_| far.read_exact(&mut chunk));
    take(WARM_UP_BYTES)?;
    let started = Instant::now();
    take(MEASURED_BYTES)?;
    let seconds = started.elapsed().as_secs_f64();
    sender.join().expect("the sender does not panic")?;
    let bits = u32::try_from(MEASURED_BYTES * 8).expect("it is less than 4 Gbit");
    Ok(f64::from(bits) / seconds)
}

fn assert_rate(measured: f64, megabits: u32) {
    let part = measured / (f64::from(megabits) * 1e6);
    println!("{:.1} Mbit/s of {megabits}", measured / 1e6);
    // A busy machine makes it slower, nothing makes it faster.
    assert!((0.5..=1.1).contains(&part), "{part} of the rate");
}

#[test]
fn two_hosts_and_a_shaped_cable() {
    if !have(available()) {
        return;
    }
    let (a, b) = (Host::new().unwrap(), Host::new().unwrap());
    let (_, address) = link(&a, &b, Rate::Megabits(100)).unwrap();

    let (mut near, mut far) = connect(&a, &b, address).unwrap();
    for round in 0..10 {
        let mut ball = [round];
        near.write_all(&ball).unwrap();
        far.read_exact(&mut ball).unwrap();
        far.write_all(&ball).unwrap();
        near.read_exact(&mut ball).unwrap();
        assert_eq!(ball, [round]);
    }
    assert_rate(measure(near, far).unwrap(), 100);
}

#[test]
fn several_hosts_on_a_switch() {
    if !have(available()) {
        return;
    }
    let switch = Switch::new().unwrap();
    let hosts: Vec<_> = (0..3).map(|_| Host::new().unwrap()).collect();
    let addresses: Vec<_> = hosts
        .iter()
        .map(|host| switch.attach(host, Rate::Megabits(200)).unwrap())
        .collect();

    let (near, far) = connect(&hosts[0], &hosts[2], addresses[2]).unwrap();
    let (other_near, other_far) = connect(&hosts[2], &hosts[1], addresses[1]).unwrap();
    // Two directions of one host, at the same time.
    let other = thread::spawn(move || measure(other_near, other_far).unwrap());
    assert_rate(measure(near, far).unwrap(), 200);
    assert_rate(other.join().unwrap(), 200);
}

#[test]
fn a_host_takes_its_processes_with_it() {
    if !have(available()) {
        return;
    }
    let host = Host::new().unwrap();
    let mut sleeper = host
        .command("sh")
        .args(["-c", "echo ready; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It has moved to the host when it speaks.
    let mut ready = [0; 5];
    sleeper
        .stdout
        .take()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    let name = host.name().to_owned();
    drop(host);
    assert_eq!(sleeper.wait().unwrap().signal(), Some(9));
    assert!(!std::path::Path::new("/run/netns").join(name).exists());
}
