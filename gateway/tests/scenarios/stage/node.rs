//! A node's process from inside: it takes orders line by line, and answers with lines.
//!
//! | order | what it does | what it says |
//! |---|---|---|
//! | `stream ID CHANNEL TO BYTES [COUNT]` | packs numbered messages, until `halt ID`, or `cut ID`, which gives the last one up | `ended ID SENT [ERROR]` |
//! | `lend ID CHANNEL TO BYTES [COUNT]` | the same with borrowed memory, so that each message waits until it is delivered | the same |
//! | `sent [ID]` | | `sent MESSAGES`, so far, of one stream or all |
//! | `collect CHANNEL` | unpacks and checks them | `lost CHANNEL SOURCE ERROR` per message that broke off |
//! | `pause CHANNEL`, `resume CHANNEL` | stops to unpack, and goes on | itself |
//! | `counts` | | `counts NANOSECONDS [CHANNEL/SOURCE=MESSAGES/BYTES]…` |
//! | `echo CHANNEL`, `ping CHANNEL TO COUNT` | messages of eight bytes, there and back | `ping MEDIAN`, of half of the way in ns |
//! | `toss CHANNEL TO COUNT BYTES` | messages of so many bytes more there, for an `echo` | `toss MEDIAN`, of the whole way in ns |
//! | `half CHANNEL TO BYTES`, `drop` | begins a message, and gives it up | itself |
//! | `crumbs CHANNEL TO COUNT` | packs one message of so many empty blocks | `crumbs` |
//! | `block CHANNEL TO BYTES` | packs one message of one block, of which little is not zero | `block` |
//! | `swallow CHANNEL` | unpacks one such message and checks it | `swallow BLOCKS BYTES` |
//! | `open CHANNEL` | has the channel open, for nobody to unpack | itself |
//! | `counters NAME` | | what the gateway has counted of one thing |
//! | `close` | leaves the session | `close [ERROR]` |

use std::collections::HashMap;
use std::env;
use std::fmt::Display;
use std::io::{self, BufRead, Write};
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use madgate_gateway::Gateway;
use madgate_vchannel::{Cluster, Session};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::giants::{pack_block, pack_crumbs, swallow};
use super::traffic::{Collector, Half, Stream, echo, ping, toss};

/// The test that is no test, but a node when it is told so.
pub(crate) const TEST: &str = "stage::node::a_node_of_another_test";
/// Says which file describes the cluster.
pub(crate) const CLUSTER: &str = "MADGATE_TEST_CLUSTER";
/// Says which node it is.
pub(crate) const NAME: &str = "MADGATE_TEST_NODE";
/// Says whose child it is, to notice a parent that died before it asked.
pub(crate) const PARENT: &str = "MADGATE_TEST_PARENT";
/// Says what nodes log to stderr, such as "debug": to find out why a scenario fails.
pub(crate) const LOG: &str = "MADGATE_TEST_LOG";
/// What lines that the test reads begin with.
pub(crate) const SAYS: &str = "@ ";

/// How long the last messages may take when a node leaves.
const CLOSE_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn a_node_of_another_test() {
    let (Some(cluster), Ok(name)) = (env::var_os(CLUSTER), env::var(NAME)) else {
        return;
    };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let parent = env::var(PARENT).unwrap();
    assert_eq!(parent_id().to_string(), parent, "the test has gone");
    if let Ok(filter) = env::var(LOG) {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(io::stderr)
            .init();
    }
    let cluster = Arc::new(Cluster::read(PathBuf::from(cluster)).unwrap());
    let mut node = Node::start(cluster, &name);
    // Ends the line in which the test harness says which test this is.
    println!();
    say("ready");
    for order in io::stdin().lock().lines() {
        let order = order.unwrap();
        let words: Vec<&str> = order.split(' ').collect();
        node.obey(&words);
    }
    std::process::exit(0);
}

/// Says one line, at once.
pub(super) fn say(line: &str) {
    let mut out = io::stdout().lock();
    // Nobody may be listening any more.
    let _ = writeln!(out, "{SAYS}{line}").and_then(|()| out.flush());
}

/// Says that what must not be has happened.
pub(super) fn broken(why: impl Display) -> ! {
    say(&format!("broken: {why}"));
    // Until the test has noticed, and kills this.
    loop {
        thread::park();
    }
}

/// A stream, as other threads see it.
#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    cut: AtomicBool,
    sent: AtomicU64,
}

struct Node {
    session: Session,
    gateway: Option<Gateway>,
    streams: HashMap<String, Arc<Progress>>,
    collectors: HashMap<String, Arc<Collector>>,
    half: Option<Half>,
}

impl Node {
    fn start(cluster: Arc<Cluster>, name: &str) -> Self {
        let id = cluster.node(name).unwrap();
        let gateway = cluster
            .is_gateway(id)
            .then(|| Gateway::start(Arc::clone(&cluster), name).unwrap());
        let session = match &gateway {
            Some(gateway) => gateway.session().clone(),
            None => Session::open(cluster, name).unwrap(),
        };
        Self {
            session,
            gateway,
            streams: HashMap::new(),
            collectors: HashMap::new(),
            half: None,
        }
    }

    fn obey(&mut self, words: &[&str]) {
        match *words {
            [
                how @ ("stream" | "lend"),
                id,
                channel,
                to,
                bytes,
                ref count @ ..,
            ] => {
                let count = count.first().map(|count| count.parse().unwrap());
                let stream = Stream::new(bytes.parse().unwrap(), how == "lend");
                self.stream(id, channel, to, stream, count);
            }
            ["halt", id] => self.streams[id].stop.store(true, Ordering::Relaxed),
            ["cut", id] => self.streams[id].cut.store(true, Ordering::Relaxed),
            ["sent", ref id @ ..] => {
                let is_meant = |(name, _): &(&String, _)| id.is_empty() || id == [name.as_str()];
                let streams = self.streams.iter().filter(is_meant);
                let sent = streams.map(|(_, stream)| stream.sent.load(Ordering::Relaxed));
                say(&format!("sent {}", sent.sum::<u64>()));
            }
            ["collect", name] => {
                let channel = self.session.channel(name).unwrap();
                let collector = Collector::start(channel);
                self.collectors.insert(name.to_owned(), collector);
            }
            [order @ ("pause" | "resume"), channel] => {
                self.collectors[channel].pause(order == "pause");
                say(&words.join(" "));
            }
            ["counts"] => {
                let collectors = self.collectors.values();
                let counts: Vec<_> = collectors.map(|collector| collector.counts()).collect();
                let nanos = counts.iter().map(|(nanos, _)| *nanos).max();
                let nanos = nanos.unwrap_or_default();
                let counts: Vec<_> = counts.into_iter().flat_map(|(_, counts)| counts).collect();
                say(&format!("counts {nanos} {}", counts.join(" ")));
            }
            ["echo", channel] => {
                let channel = self.session.channel(channel).unwrap();
                thread::spawn(move || echo(&channel));
            }
            ["ping", channel, to, count] => {
                let to = self.session.cluster().node(to).unwrap();
                let channel = self.session.channel(channel).unwrap();
                let median = ping(&channel, to, count.parse().unwrap());
                say(&format!("ping {}", median.as_nanos()));
            }
            ["toss", channel, to, count, bytes] => {
                let to = self.session.cluster().node(to).unwrap();
                let channel = self.session.channel(channel).unwrap();
                let (count, bytes) = (count.parse().unwrap(), bytes.parse().unwrap());
                let median = toss(&channel, to, count, bytes);
                say(&format!("toss {}", median.as_nanos()));
            }
            ["half", channel, to, bytes] => {
                let to = self.session.cluster().node(to).unwrap();
                let channel = self.session.channel(channel).unwrap();
                self.half = Some(Half::begin(channel, to, bytes.parse().unwrap()));
                say("half");
            }
            ["drop"] => {
                self.half = None;
                say("drop");
            }
            [order @ ("crumbs" | "block"), channel, to, size] => {
                let to = self.session.cluster().node(to).unwrap();
                let channel = self.session.channel(channel).unwrap();
                let size = size.parse().unwrap();
                let order = order.to_owned();
                thread::spawn(move || {
                    let packed = match order.as_str() {
                        "crumbs" => pack_crumbs(&channel, to, size),
                        _ => pack_block(&channel, to, size),
                    };
                    let error = packed.err().map(|error| error.to_string());
                    say(&format!("{order} {}", error.unwrap_or_default()));
                });
            }
            ["swallow", channel] => {
                let channel = self.session.channel(channel).unwrap();
                thread::spawn(move || {
                    let (blocks, bytes) = swallow(&channel).unwrap();
                    say(&format!("swallow {blocks} {bytes}"));
                });
            }
            ["open", channel] => {
                self.session.channel(channel).unwrap();
                say(&words.join(" "));
            }
            ["counters", name] => {
                let counters = self.gateway.as_ref().unwrap().counters();
                let number = match name {
                    "bytes" => counters.bytes,
                    "misbehaved" => counters.misbehaved,
                    "corrupt" => counters.corrupt,
                    "flows" => counters.flows.into(),
                    "queued" => counters.queued_bytes,
                    "links" => counters.links.try_into().unwrap(),
                    "promised" => counters.promised_bytes,
                    _ => broken(format!("no counter {name}")),
                };
                say(&format!("counters {number}"));
            }
            ["close"] => {
                let error = self.session.clone().close(CLOSE_WITHIN).err();
                let error = error.map(|error| error.to_string()).unwrap_or_default();
                say(&format!("close {error}"));
            }
            _ => broken(format!("no such order: {words:?}")),
        }
    }

    fn stream(
        &mut self,
        id: &str,
        channel: &str,
        to: &str,
        mut stream: Stream,
        count: Option<u64>,
    ) {
        let progress = Arc::new(Progress::default());
        self.streams.insert(id.to_owned(), Arc::clone(&progress));
        let to = self.session.cluster().node(to).unwrap();
        let channel = self.session.channel(channel).unwrap();
        let id = id.to_owned();
        thread::spawn(move || {
            let mut result = Ok(());
            while result.is_ok()
                && !progress.stop.load(Ordering::Relaxed)
                && !progress.cut.load(Ordering::Relaxed)
                && count.is_none_or(|count| stream.sent() < count)
            {
                result = stream.send(&channel, to, &progress.cut);
                progress.sent.store(stream.sent(), Ordering::Relaxed);
            }
            let error = result.err().map(|error| error.to_string());
            let error = error.unwrap_or_default();
            say(&format!("ended {id} {} {error}", stream.sent()));
        });
    }
}
