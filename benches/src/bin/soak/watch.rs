//! What a soak sees from outside: that messages arrive, and that memory stays as it is.

use std::io;
use std::iter;
use std::time::Duration;

/// In the first one of so many parts of the time, memory may still grow to its size.
const WARM_UP: usize = 3;

/// So many looks tell whether memory grows.
const LOOKS_LEAST: usize = 6;

/// What it may grow by afterwards: allocators keep some of what they had, and now and then
/// more large messages than before wait at the same moment. A short soak sees more of that, and
/// cannot tell it from a leak.
const SLACK_BYTES: u64 = 8 << 20;
const SHORT_SLACK_BYTES: u64 = 16 << 20;

/// What is shorter than this is short.
const LONG: Duration = Duration::from_secs(600);

/// Messages and bytes that have arrived at one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    messages: u64,
    bytes: u64,
}

impl Counts {
    /// What a node says: two numbers.
    pub(crate) fn parse(said: &str) -> io::Result<Self> {
        let mut numbers = said.split_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(messages)), Some(Ok(bytes))) => Ok(Self { messages, bytes }),
            _ => Err(io::Error::other(format!("{said:?} are no counts"))),
        }
    }
}

/// Everything that was seen.
#[derive(Debug)]
pub(crate) struct Watch {
    names: &'static [&'static str],
    /// Per look, per process.
    memory: Vec<Vec<u64>>,
    peaks: Vec<u64>,
    /// Per node at which messages arrive.
    last: Vec<Counts>,
}

impl Watch {
    pub(crate) fn new(names: &'static [&'static str]) -> Self {
        Self {
            names,
            memory: Vec::new(),
            peaks: vec![0; names.len()],
            last: Vec::new(),
        }
    }

    /// Notes and prints what there is now; `counts` are of the nodes at which messages arrive, always in
    /// the same order.
    pub(crate) fn look(
        &mut self,
        after: Duration,
        counts: Vec<Counts>,
        visits: u64,
        memory: impl IntoIterator<Item = io::Result<(u64, u64)>>,
    ) -> io::Result<()> {
        let memory: Vec<_> = memory.into_iter().collect::<io::Result<_>>()?;
        let told: Vec<_> = self
            .names
            .iter()
            .zip(&memory)
            .map(|(name, (now, _))| format!("{name} {} MiB", now >> 20))
            .collect();
        println!(
            "{:6} s  {:10} messages  {:8} MiB  {visits:5} visits  {}",
            after.as_secs(),
            counts.iter().map(|node| node.messages).sum::<u64>(),
            counts.iter().map(|node| node.bytes).sum::<u64>() >> 20,
            told.join("  ")
        );
        let before = self
            .last
            .iter()
            .map(|node| node.messages)
            .chain(iter::repeat(0));
        if counts
            .iter()
            .zip(before)
            .any(|(now, before)| now.messages == before)
        {
            return Err(io::Error::other(
                "nothing arrives any more at one of the nodes",
            ));
        }
        self.last = counts;
        for (peak, (_, now)) in self.peaks.iter_mut().zip(&memory) {
            *peak = (*peak).max(*now);
        }
        self.memory
            .push(memory.iter().map(|(now, _)| *now).collect());
        Ok(())
    }

    /// Whether memory was as large in the first half (behind the warm-up) as in the second, of a
    /// soak of so long a `time`.
    pub(crate) fn judge(&self, time: Duration) -> io::Result<()> {
        let slack = if time < LONG {
            SHORT_SLACK_BYTES
        } else {
            SLACK_BYTES
        };
        if self.memory.len() < LOOKS_LEAST {
            println!("too short to tell whether memory grows");
            return Ok(());
        }
        let mut grown = Vec::new();
        for (process, name) in self.names.iter().enumerate() {
            let sizes: Vec<u64> = self.memory.iter().map(|look| look[process]).collect();
            let steady = &sizes[sizes.len() / WARM_UP..];
            let (early, late) = steady.split_at(steady.len() / 2);
            let (early, late) = (median(early), median(late));
            println!(
                "{name}: {} MiB, later {} MiB, {} MiB at most",
                early >> 20,
                late >> 20,
                self.peaks[process] >> 20
            );
            if late > early + slack {
                grown.push(*name);
            }
        }
        if grown.is_empty() {
            return Ok(());
        }
        let grown = grown.join(", ");
        Err(io::Error::other(format!("the memory of {grown} grows")))
    }
}

fn median(sizes: &[u64]) -> u64 {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(messages: &[u64]) -> Vec<Counts> {
        let of = |&messages| Counts { messages, bytes: 0 };
        messages.iter().map(of).collect()
    }

    fn watched(sizes: impl Iterator<Item = u64>) -> Watch {
        let mut watch = Watch::new(&["gw"]);
        for (look, size) in (1..).zip(sizes) {
            let memory = [Ok((size, size))];
            watch
                .look(Duration::ZERO, counts(&[look]), 0, memory)
                .unwrap();
        }
        watch
    }

    #[test]
    fn memory_that_grows_is_found() {
        const MIB: u64 = 1 << 20;
        let short = LONG / 2;
        for time in [short, LONG] {
            assert!(watched((0..60).map(|_| 20 * MIB)).judge(time).is_ok());
            let settles = watched((0..60).map(|look| look.min(15) * MIB));
            assert!(settles.judge(time).is_ok());
            let error = watched((0..60).map(|look| (20 + look) * MIB)).judge(time);
            assert_eq!(error.unwrap_err().to_string(), "the memory of gw grows");
        }
        // Twenty looks lie between the middles of the halves.
        let slowly = watched((0..60).map(|look| 20 * MIB + look * MIB / 2));
        assert!(slowly.judge(short).is_ok());
        assert!(slowly.judge(LONG).is_err());
    }

    #[test]
    fn standing_still_is_found() {
        let mut watch = Watch::new(&[]);
        let mut look = |messages: &[u64]| watch.look(Duration::ZERO, counts(messages), 0, []);
        look(&[5, 6]).unwrap();
        look(&[6, 7]).unwrap();
        look(&[7, 7]).expect_err("one of them stands still");
        assert!(
            Watch::new(&[])
                .look(Duration::ZERO, counts(&[0, 1]), 0, [])
                .is_err()
        );
    }

    #[test]
    fn counts_are_two_numbers() {
        let two = Counts {
            messages: 5,
            bytes: 100,
        };
        assert_eq!(Counts::parse("5 100").unwrap(), two);
        Counts::parse("5").unwrap_err();
    }
}
