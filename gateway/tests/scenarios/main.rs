//! Whole sessions, as their users have them: every node a process of its own, on hosts made
//! of network namespaces where the network matters.
//!
//! ```text
//!   test ── lines on stdin ──> node process ═══> gateway process ═══> node process
//!        <── lines on stdout ─
//! ```
//!
//! - [`stage`] builds clusters, starts nodes, and talks to them; a node is this program
//!   again, and does what [`stage::node`] says it can;
//! - every other file is one promise, and the tests that hold madgate to it.
//!
//! What is promised of networks in general is held to TCP on both sides of a gateway, and to remote
//! write with the card `host` on either: `dead_peers`, `memory` and `ring`, and beyond the gateway
//! `blocking`. The others
//! are about cables, which are cut, shaped and slow (`cut`, `half_bandwidth`, `latency`, `shaped`);
//! about bytes that a member says on a connection (`hostile`); or about cards of libfabric's between
//! hosts (`remote_write`).
//!
//! Scenarios that measure take turns, so that none measures another; those that do not
//! (`cut`, `dead_peers`, `remote_write`, `ring`) run beside each other. None asserts how long anything
//! takes: what is compared was measured side by side, in rounds that alternate.

#![allow(clippy::unwrap_used, reason = "where something is missing a test ends")]

// What other test programs use of the hosts, and these tests do not, is not dead.
#[path = "../support/mod.rs"]
mod support;

mod blocking;
mod cut;
mod dead_peers;
mod half_bandwidth;
mod hostile;
mod latency;
mod memory;
mod remote_write;
mod ring;
mod shaped;
mod stage;
