//! Memory for messages of some hundred bytes that are being unpacked.
//!
//! Such a message is the application's from when it is begun, for as long as that likes. So it is copied
//! out of its flow, which is then free for the next, to memory that nothing else is in.

use madgate_gtm::wire::BUNDLED_BYTES;
use madgate_tm::Spares;

/// It holds what was written there before, whoever did.
type Bytes = Box<[u8; BUNDLED_BYTES]>;

/// So many a thread keeps for later.
const SPARES: usize = 4;

thread_local! {
    static SPARE: Spares<Bytes, SPARES> = const { Spares::none() };
}

/// Memory for one message, or none. It comes from the thread that asks for it, and the thread that drops
/// it keeps it: as many messages at a time as that keeps memory for cost no allocation.
#[derive(Debug)]
pub(super) struct MessageMemory(Option<Bytes>);

impl MessageMemory {
    /// No memory.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Where `length` bytes go, up to [`BUNDLED_BYTES`], over what was there.
    #[inline]
    pub(super) fn make(&mut self, length: usize) -> &mut [u8] {
        &mut self.0.get_or_insert_with(take)[..length]
    }

    /// The first `length` bytes; fewer if there are not so many.
    #[inline]
    pub(super) fn bytes(&self, length: usize) -> &[u8] {
        let memory = self.0.as_deref().map_or(&[][..], |memory| memory);
        memory.get(..length).unwrap_or(memory)
    }
}

impl Drop for MessageMemory {
    #[inline]
    fn drop(&mut self) {
        if let Some(memory) = self.0.take() {
            // A thread that is ending keeps none.
            let _ = SPARE.try_with(|spares| spares.put(memory));
        }
    }
}

/// Memory from this thread's, or new one.
fn take() -> Bytes {
    // A thread that is ending has none any more.
    let spare = SPARE.try_with(Spares::take).ok().flatten();
    spare.unwrap_or_else(|| Box::new([0; BUNDLED_BYTES]))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_uses_its_memory_again_and_keeps_some() {
        let place = |memory: &mut MessageMemory| memory.make(1).as_ptr().addr();
        let mut several: Vec<_> = (0..SPARES).map(|_| MessageMemory::none()).collect();
        let mut before: Vec<_> = several.iter_mut().map(place).collect();
        several.clear();
        let mut several: Vec<_> = (0..3 * SPARES).map(|_| MessageMemory::none()).collect();
        let mut after: Vec<_> = several.iter_mut().map(place).collect();
        after.truncate(SPARES);
        before.sort_unstable();
        after.sort_unstable();
        assert_eq!(before, after);
        drop(several);
        let kept = SPARE.with(|spares| std::iter::from_fn(|| spares.take()).count());
        assert_eq!(kept, SPARES);
    }

    #[test]
    fn what_is_written_is_there_in_any_thread() {
        let mut memory = MessageMemory::none();
        assert!(memory.bytes(10).is_empty());
        memory.make(BUNDLED_BYTES).fill(7);
        memory.make(3).fill(8);
        let memory = thread::spawn(move || {
            assert_eq!(memory.bytes(4), [8, 8, 8, 7]);
            memory
        });
        assert_eq!(
            memory.join().unwrap().bytes(BUNDLED_BYTES).len(),
            BUNDLED_BYTES
        );
    }
}
