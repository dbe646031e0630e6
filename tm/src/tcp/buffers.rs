//! How large the kernel's buffers of a connection are.
//!
//! A buffer that is set keeps its size; else the kernel adapts it to the way, within limits of its
//! own. Of what is asked for it gives no more than `net.core.wmem_max` and `rmem_max` say, without a
//! word: on many systems a fifth of a megabyte, where it would adapt itself up to several. So what
//! is not to be had is only set where what the kernel gives is closer to it than what it adapts to.

use std::fs;
use std::io;

use socket2::{Domain, Socket, Type};

/// One direction's buffer.
struct Way {
    set: fn(&Socket, usize) -> io::Result<()>,
    get: fn(&Socket) -> io::Result<usize>,
    /// Where the system says between what it adapts it.
    limits: &'static str,
}

const WAYS: [Way; 2] = [
    Way {
        set: Socket::set_send_buffer_size,
        get: Socket::send_buffer_size,
        limits: "/proc/sys/net/ipv4/tcp_wmem",
    },
    Way {
        set: Socket::set_recv_buffer_size,
        get: Socket::recv_buffer_size,
        limits: "/proc/sys/net/ipv4/tcp_rmem",
    },
];

/// Gives `socket` buffers for `bytes` in each direction, or leaves one to the kernel, which would
/// come closer to that.
pub(super) fn set(socket: &Socket, bytes: usize) -> io::Result<()> {
    for way in &WAYS {
        // Asking settles it: a connection that was asked for is not adapted any more.
        let given = Socket::new(Domain::IPV4, Type::STREAM, None).and_then(|other| {
            (way.set)(&other, bytes)?;
            (way.get)(&other)
        });
        let adapts_to = fs::read_to_string(way.limits);
        let adapts_to = adapts_to.ok().as_deref().and_then(largest);
        if is_better_set(bytes, given.ok(), adapts_to) {
            (way.set)(socket, bytes)?;
        }
    }
    Ok(())
}

/// Whether a buffer is to be set to `bytes`, of which the kernel has `given` as many as it counts
/// with what it needs itself, where it would adapt it up to `adapts_to`, so counted.
fn is_better_set(bytes: usize, given: Option<usize>, adapts_to: Option<usize>) -> bool {
    let (Some(given), Some(adapts_to)) = (given, adapts_to) else {
        return true;
    };
    // It counts twice what is asked for.
    let asked = bytes.saturating_mul(2);
    let is_closer = || {
        let [asked, given, adapts_to] = [asked, given, adapts_to].map(|bytes| bytes as u128);
        // One is further above than the other is below, in proportion.
        given * adapts_to > asked * asked
    };
    given >= asked || given >= adapts_to || is_closer()
}

/// The last of the three sizes that the system says: the smallest, the first and the largest.
fn largest(limits: &str) -> Option<usize> {
    limits.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_the_kernel_would_make_larger_is_left_to_it() {
        let common = Some(425_984);
        assert!(!is_better_set(2 * MIB, common, Some(6 * MIB)));
        assert!(is_better_set(2 * MIB, Some(4 * MIB), Some(6 * MIB)), "had");
        assert!(
            is_better_set(64 * MIB, Some(8 * MIB), Some(6 * MIB)),
            "more"
        );
        assert!(
            is_better_set(64 << 10, Some(128 << 10), Some(6 * MIB)),
            "asked for"
        );
        assert!(
            is_better_set(256 << 10, common, Some(6 * MIB)),
            "nearly had"
        );
        // Of what is counted, 6 MiB is as far above 4, in proportion, as 9 is above 6.
        for (bytes, is_set) in [(3 * MIB - 1, true), (3 * MIB, false), (3 * MIB + 1, false)] {
            assert_eq!(
                is_better_set(bytes, Some(4 * MIB), Some(9 * MIB)),
                is_set,
                "{bytes}"
            );
        }
        assert!(is_better_set(2 * MIB, None, Some(6 * MIB)), "unknown");
        assert!(is_better_set(2 * MIB, common, None), "unknown");
    }

    #[test]
    fn the_largest_is_the_last_of_three() {
        assert_eq!(largest("4096\t131072\t6291456\n"), Some(6_291_456));
        assert_eq!(largest("4096 131072"), None);
        assert_eq!(largest("4096 131072 much"), None);
    }

    #[test]
    fn a_connection_has_what_was_asked_for_or_what_the_kernel_began_with() {
        for bytes in [64 << 10, 1 << 30] {
            let fresh = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            set(&socket, bytes).unwrap();
            for way in &WAYS {
                let [now, before] = [&socket, &fresh].map(|socket| (way.get)(socket).unwrap());
                (way.set)(&fresh, bytes).unwrap();
                let given = (way.get)(&fresh).unwrap();
                let limits = fs::read_to_string(way.limits).unwrap();
                let adapts_to = largest(&limits).unwrap();
                let expected = match is_better_set(bytes, Some(given), Some(adapts_to)) {
                    true => given,
                    false => before,
                };
                assert_eq!(now, expected, "{bytes} bytes, {}", way.limits);
            }
        }
    }
}
