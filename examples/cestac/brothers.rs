//! Three processes with a sample each, which exchange values of 8 bytes.
//!
//! Paper 000, section 6.1.3: each sends its value to the two others, and receives theirs.

use std::error::Error;
use std::time::{Duration, Instant};

use madgate_vchannel::ReceiveMode::Cheaper;
use madgate_vchannel::{Channel, NodeId};

use super::arithmetic::SAMPLES;
use super::gauss::Brothers;

/// A process that has gone may come back, so that a message of it is waited for without end, unless a
/// limit is given.
const PATIENCE: Duration = Duration::from_secs(30);

/// The two other processes, and the time that the exchanges have taken.
#[derive(Debug)]
pub(crate) struct Messages {
    channel: Channel,
    /// Which sample is here.
    sample: usize,
    /// Where each sample is.
    nodes: [NodeId; SAMPLES],
    pub(crate) taken: Duration,
}

impl Messages {
    pub(crate) const fn new(channel: Channel, sample: usize, nodes: [NodeId; SAMPLES]) -> Self {
        Self {
            channel,
            sample,
            nodes,
            taken: Duration::ZERO,
        }
    }

    fn send(&self, to: NodeId, value: f64) -> Result<(), Box<dyn Error>> {
        let mut packing = self.channel.begin_packing(to)?;
        packing.pack_safer(&value.to_le_bytes(), Cheaper)?;
        packing.end_packing()?;
        Ok(())
    }

    fn receive(&self, from: NodeId) -> Result<f64, Box<dyn Error>> {
        let mut value = [0; size_of::<f64>()];
        let next = self.channel.begin_unpacking_from_within(from, PATIENCE)?;
        let mut unpacking =
            next.ok_or("another of the three says nothing: it has ended, or is stopped")?;
        unpacking.unpack_cheaper(&mut value)?;
        unpacking.end_unpacking()?;
        Ok(f64::from_le_bytes(value))
    }
}

impl Brothers<1> for Messages {
    fn exchange(&mut self, local: [f64; 1]) -> Result<[f64; SAMPLES], Box<dyn Error>> {
        let begun = Instant::now();
        let mut all = [local[0]; SAMPLES];
        let brothers = [1, 2].map(|step| (self.sample + step) % SAMPLES);
        for brother in brothers {
            self.send(self.nodes[brother], local[0])?;
        }
        for brother in brothers {
            all[brother] = self.receive(self.nodes[brother])?;
        }
        self.taken += begun.elapsed();
        Ok(all)
    }
}
