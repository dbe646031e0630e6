//! What a bench does when it is a child of itself: a plain source, a plain sink, or another
//! program.
//!
//! The conversation with the parent is the same for every kind of end:
//!
//! | end | prints | then |
//! |---|---|---|
//! | sink | `at ADDRESS` | waits for a source |
//! | both | `connected` | the source waits for a line |
//! | sink of a stream, source of a ping-pong | its [`Report`] | ends |

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use crate::contestant::{Measure, Point, Report, Stage, Timing};
use crate::ends::{MessageEnd, run_ping, run_pong, run_sink, run_source};
use crate::gateway::GatewayArguments;
use crate::madgate::MadgateArguments;
use crate::plain::{PlainEnd, Socket};
use crate::process::{PATIENCE, Process, become_program, die_with_parent};
use crate::waiting::Wait;

/// Pause between two attempts to reach somebody who may still be starting.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);

/// The subcommands of a bench that only the bench itself uses.
#[derive(Debug, Subcommand)]
pub enum ChildCommand {
    /// Sends over a bare socket.
    #[command(hide = true)]
    PlainSource(PlainArguments),
    /// Receives over a bare socket.
    #[command(hide = true)]
    PlainSink(PlainArguments),
    /// Sends over a virtual channel.
    #[command(hide = true)]
    MadgateSource(MadgateArguments),
    /// Receives over a virtual channel.
    #[command(hide = true)]
    MadgateSink(MadgateArguments),
    /// Forwards between the networks of a gateway.
    #[command(hide = true)]
    Gateway(GatewayArguments),
    /// Becomes another program that is killed with its parent.
    #[command(hide = true)]
    Exec {
        /// The program and its arguments.
        #[arg(last = true)]
        program: Vec<OsString>,
    },
}

impl ChildCommand {
    /// Does what a child does.
    ///
    /// # Errors
    ///
    /// What it fails with.
    pub fn run(self) -> io::Result<()> {
        die_with_parent()?;
        match self {
            Self::PlainSource(arguments) => match arguments.place {
                Place::Tcp(address) => {
                    let socket = patiently(|| TcpStream::connect(address))?;
                    socket.set_nodelay(true)?;
                    arguments.end.source(plain(socket, arguments.wait)?)
                }
                Place::Unix(ref path) => {
                    let socket = patiently(|| UnixStream::connect(path))?;
                    arguments.end.source(plain(socket, arguments.wait)?)
                }
            },
            Self::PlainSink(arguments) => match arguments.place {
                Place::Tcp(address) => {
                    let listener = TcpListener::bind(address)?;
                    say(&format!("at {}", Place::Tcp(listener.local_addr()?)))?;
                    let (socket, _) = listener.accept()?;
                    socket.set_nodelay(true)?;
                    arguments.end.sink(plain(socket, arguments.wait)?)
                }
                Place::Unix(ref path) => {
                    let listener = UnixListener::bind(path)?;
                    say(&format!("at {}", arguments.place))?;
                    let (socket, _) = listener.accept()?;
                    arguments.end.sink(plain(socket, arguments.wait)?)
                }
            },
            Self::MadgateSource(arguments) => arguments.source(),
            Self::MadgateSink(arguments) => arguments.sink(),
            Self::Gateway(arguments) => arguments.run(),
            Self::Exec { program } => Err(become_program(&program)),
        }
    }
}

/// What a plain end must know.
#[derive(Debug, Args)]
pub struct PlainArguments {
    /// Where the sink listens, or the source connects to.
    place: Place,
    /// How it waits.
    #[arg(long, value_enum)]
    wait: Wait,
    #[command(flatten)]
    end: EndArguments,
}

/// What any end must know: what is measured, and how long.
#[derive(Debug, Clone, Copy, Args)]
pub struct EndArguments {
    #[arg(long, value_enum)]
    measure: Measure,
    #[arg(long)]
    message_bytes: usize,
    #[arg(long)]
    warm_up_us: u64,
    #[arg(long)]
    time_us: u64,
}

impl EndArguments {
    /// The arguments as the command line of a child has them.
    pub fn for_child(point: Point, timing: Timing) -> Vec<OsString> {
        [
            "--measure".to_owned(),
            point.measure.name().to_owned(),
            "--message-bytes".to_owned(),
            point.message_bytes.to_string(),
            "--warm-up-us".to_owned(),
            timing.warm_up.as_micros().to_string(),
            "--time-us".to_owned(),
            timing.time.as_micros().to_string(),
        ]
        .map(OsString::from)
        .to_vec()
    }

    /// The life of a source that has its connection.
    ///
    /// # Errors
    ///
    /// What sending fails with.
    pub fn source(&self, mut end: impl MessageEnd) -> io::Result<()> {
        say("connected")?;
        io::stdin().lock().read_line(&mut String::new())?;
        let (warm_up, time) = (self.warm_up(), self.time());
        match self.measure {
            Measure::Stream | Measure::Unread => {
                run_source(&mut end, self.message_bytes, warm_up + time)
            }
            Measure::PingPong => {
                let report = run_ping(&mut end, self.message_bytes, warm_up, time)?;
                self.report(Report::Ping(report))
            }
        }
    }

    /// The life of a sink that has its connection.
    ///
    /// # Errors
    ///
    /// What receiving fails with, or a message that is not what was sent.
    pub fn sink(&self, mut end: impl MessageEnd) -> io::Result<()> {
        say("connected")?;
        match self.measure {
            Measure::Stream | Measure::Unread => {
                let reads = self.measure == Measure::Stream;
                let report = run_sink(&mut end, self.message_bytes, self.warm_up(), reads)?;
                self.report(Report::Stream(report))
            }
            Measure::PingPong => run_pong(&mut end, self.message_bytes),
        }
    }

    /// Bytes of a message.
    pub fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    /// What passes before anything is counted.
    pub fn warm_up(&self) -> Duration {
        Duration::from_micros(self.warm_up_us)
    }

    /// What is counted.
    pub fn time(&self) -> Duration {
        Duration::from_micros(self.time_us)
    }

    fn report(&self, report: Report) -> io::Result<()> {
        say(&serde_json::to_string(&report)?)
    }
}

/// Where a plain sink is: `tcp:ADDRESS:PORT` or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(formatter, "tcp:{address}"),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("tcp", address)) => address
                .parse()
                .map(Self::Tcp)
                .map_err(|error| format!("{address}: {error}")),
            Some(("unix", path)) => Ok(Self::Unix(path.into())),
            _ => Err(format!("{text}: expected tcp:ADDRESS:PORT or unix:PATH")),
        }
    }
}

/// Starts a plain sink at `place`, then a relay by `relay`, which is told where the sink is
/// and answers where the relay is, and then a plain source. Without a relay, `relay` answers
/// with the place of the sink.
///
/// # Errors
///
/// If one of them cannot be started, or they do not find each other.
pub fn stage_plain(
    point: Point,
    timing: Timing,
    wait: Wait,
    place: &Place,
    relay: impl FnOnce(Place) -> io::Result<(Option<Process>, Place)>,
) -> io::Result<Stage> {
    let start = |role: &str, place: &Place| {
        let mut arguments: Vec<OsString> = vec![role.into(), place.to_string().into()];
        arguments.extend(["--wait".into(), wait.name().into()]);
        arguments.extend(EndArguments::for_child(point, timing));
        Process::again(role, arguments)
    };
    let sink = start("plain-sink", place)?;
    let at = sink.word("at ")?.parse().map_err(io::Error::other)?;
    let (relay, at) = relay(at)?;
    let source = start("plain-source", &at)?;
    source.word("connected")?;
    sink.word("connected")?;
    Ok(Stage {
        source,
        sink,
        relay,
        files: None,
    })
}

/// Any free port of the loopback address, for somebody who cannot say which one it got.
///
/// # Errors
///
/// If there is none.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind(any_loopback())?.local_addr()
}

/// The same for the node at `place`, on a loopback address of its own: what connects from
/// loopback, or listens for another node, cannot take its port before it is there.
///
/// # Errors
///
/// If there is none, or no address for so many nodes.
pub fn free_address_of(place: usize) -> io::Result<SocketAddr> {
    let place = u16::try_from(place).map_err(io::Error::other)?;
    let [high, low] = place.to_be_bytes();
    TcpListener::bind(SocketAddr::from(([127, 1, high, low], 0)))?.local_addr()
}

/// The loopback address with a port that the kernel chooses.
pub fn any_loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Prints one line for the parent, at once.
///
/// # Errors
///
/// If nobody reads it.
pub fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// Tries to `connect` while nobody is there, up to [`PATIENCE`].
///
/// # Errors
///
/// What the last attempt fails with.
pub fn patiently<S>(connect: impl Fn() -> io::Result<S>) -> io::Result<S> {
    let started = Instant::now();
    loop {
        match connect() {
            Err(error) if started.elapsed() >= PATIENCE => return Err(error),
            Err(_) => thread::sleep(CONNECT_PAUSE),
            connected => return connected,
        }
    }
}

fn plain<S: Socket>(socket: S, wait: Wait) -> io::Result<PlainEnd<S>> {
    PlainEnd::new(socket, wait)
}
