//! What madgate's benches share: how processes are staged, what they send to each other, how
//! it is measured and how it is told.
//!
//! A scenario bench is a program under `src/bin/`. It knows some [`Contestant`]s, and asks
//! [`rounds::run`] to measure each of them at each [`Point`], in alternating rounds:
//!
//! ```text
//!   bench ──stage()──> Contestant ──starts──> source ═══> relay (or none) ═══> sink
//!     │                                         │           │                    │
//!     ├── "go" ────────────────────────────────>│      CPU seconds       report  │
//!     │<───────────────────────────────────────────────────┴─────────────────────┘
//!     └──> Figures: medians over the rounds, and at each distance of the processors from each other
//!          ([`measured`]), as a table or one line of JSON each
//! ```
//!
//! What is to be compared is measured [`even`]ly: while the processors are at one [`distance`].
//!
//! All of them are processes of their own: the bench starts itself again with a hidden
//! subcommand ([`children`]). What a source sends and a sink checks is the same for every
//! contestant ([`ends`], over anything that is a [`ends::MessageEnd`]); [`plain`] is the
//! end that speaks over a bare socket.
//!
//! [`paths`] are madgate's own contestants. Start reading in [`contestant`], then [`ends`]. The
//! benches of the parts, under `benches/`, share [`lanes`] and [`samples`] only.

#![forbid(unsafe_code)]

pub mod children;
pub mod cluster;
pub mod contestant;
pub mod cores;
pub mod distance;
pub mod ends;
pub mod even;
pub mod gateway;
pub mod haproxy;
pub mod json;
pub mod lanes;
pub mod line;
pub mod machine;
pub mod madgate;
pub mod measured;
pub mod paths;
pub mod pattern;
pub mod plain;
pub mod process;
pub mod rounds;
pub mod samples;
pub mod scratch;
pub mod stage;
pub mod table;
pub mod waiting;

pub use contestant::{Contestant, Measure, Point, Stage, Timing};
pub use machine::Machine;
pub use process::Process;
pub use rounds::Figures;
