//! Where the three processes are: the cluster file.

use std::error::Error;
use std::fmt::Write as _;

use clap::ValueEnum;

use super::common::free_address;

/// The protocol of the network on which the processes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// Remote write between processes of this host.
    Hsl,
    /// Shared memory.
    Shm,
    /// TCP.
    Tcp,
}

/// How a process learns that something has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// It looks for a while, then sleeps until it is woken.
    Adaptive,
    /// It sleeps, and is woken each time.
    Interrupt,
    /// It looks again and again, and lets others run in between.
    Polling,
}

/// The nodes that have samples, in their order.
pub(crate) const NODES: [&str; 3] = ["first", "second", "third"];

/// The gateway, where there is one.
pub(crate) const GATEWAY: &str = "between";

/// A cluster file of three processes on one network; with `has_gateway`, the third is on a TCP
/// network of its own, behind a gateway.
pub(crate) fn cluster_file(
    protocol: Protocol,
    mode: Mode,
    has_gateway: bool,
) -> Result<String, Box<dyn Error>> {
    let (near, far) = (("near", protocol), ("far", Protocol::Tcp));
    let mut text = settings(mode);
    network(&mut text, near, mode)?;
    if has_gateway {
        network(&mut text, far, mode)?;
        node(&mut text, NODES[0], &[near], false)?;
        node(&mut text, NODES[1], &[near], false)?;
        node(&mut text, NODES[2], &[far], false)?;
        node(&mut text, GATEWAY, &[near, far], true)?;
        text.push_str("[[channel]]\nname = \"values\"\nnetworks = [\"near\", \"far\"]\n");
    } else {
        for name in NODES {
            node(&mut text, name, &[near], false)?;
        }
        text.push_str("[[channel]]\nname = \"values\"\nnetworks = [\"near\"]\n");
    }
    Ok(text)
}

fn settings(mode: Mode) -> String {
    let wait = match mode {
        Mode::Adaptive => "adaptive",
        Mode::Interrupt => "sleep",
        Mode::Polling => "spin",
    };
    format!(
        "[session]\nname = \"cestac\"\nkey_file = \"session.key\"\n\n\
         [endpoint]\nwait = \"{wait}\"\n\n[gateway]\nwait = \"{wait}\"\n\n"
    )
}

fn network(
    text: &mut String,
    (name, protocol): (&str, Protocol),
    mode: Mode,
) -> Result<(), Box<dyn Error>> {
    let keys = match protocol {
        Protocol::Tcp => "protocol = \"tcp\"\n".to_owned(),
        Protocol::Shm => format!("protocol = \"shm\"\ndirectory = \"{name}\"\n"),
        Protocol::Hsl => {
            let mode = match mode {
                Mode::Adaptive => "adaptive",
                Mode::Interrupt => "interrupt",
                Mode::Polling => "polling",
            };
            format!(
                "protocol = \"hsl\"\ndirectory = \"{name}\"\ntrust = \"memory\"\n\
                 mode = \"{mode}\"\n"
            )
        }
    };
    writeln!(text, "[[network]]\nname = \"{name}\"\n{keys}")?;
    Ok(())
}

fn node(
    text: &mut String,
    name: &str,
    networks: &[(&str, Protocol)],
    is_gateway: bool,
) -> Result<(), Box<dyn Error>> {
    let mut addresses = Vec::new();
    for (network, protocol) in networks {
        let address = match protocol {
            Protocol::Tcp => free_address()?,
            Protocol::Shm | Protocol::Hsl => name.to_owned(),
        };
        addresses.push(format!("{network} = \"{address}\""));
    }
    writeln!(
        text,
        "[[node]]\nname = \"{name}\"\ngateway = {is_gateway}\naddresses = {{ {} }}\n",
        addresses.join(", ")
    )?;
    Ok(())
}
