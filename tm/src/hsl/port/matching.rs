//! Pieces of a message: where the sender's list of segments and the receiver's differ, what is
//! contiguous at both ends is put at once (paper 000, section 3.1).

use crate::hsl::put::Name;

/// Some bytes in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Where they begin.
    pub(super) at: u64,
    /// How many there are.
    pub(super) length: u32,
    /// What the card there calls memory outside of the arena.
    pub(super) name: Name,
}

/// What is contiguous at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Matched {
    /// Which segment of the sender's it is in,
    pub(super) segment: usize,
    /// and how far from its beginning.
    pub(super) offset: u32,
    /// Where it goes.
    pub(super) remote: u64,
    /// How many bytes it has.
    pub(super) length: u32,
}

/// How far a message has come: so many bytes into one of its segments. Kept, so that what is done about
/// a part of a message does not depend on how many are before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) segment: usize,
    pub(super) offset: u64,
}

impl Cursor {
    /// So many bytes further, in segments that are so long.
    pub(super) fn advance(&mut self, mut bytes: u64, mut lengths: impl Iterator<Item = u64>) {
        while bytes > 0
            && let Some(length) = lengths.next()
        {
            let rest = length - self.offset;
            if bytes < rest {
                self.offset += bytes;
                return;
            }
            bytes -= rest;
            *self = Self {
                segment: self.segment + 1,
                offset: 0,
            };
        }
    }
}

/// Matches the bytes of the sender's segments, from `skipped` on, with those of the receiver's,
/// until either list ends; `most` at once.
pub(super) fn matched<'a>(
    local: impl Iterator<Item = u32> + 'a,
    mut skipped: u64,
    remote: &'a [Span],
    most: u32,
) -> impl Iterator<Item = Matched> + 'a {
    let mut local = local.enumerate();
    let mut remote = remote.iter().copied();
    let (mut from, mut to) = (None::<(usize, u32, u32)>, None::<Span>);
    std::iter::from_fn(move || {
        let (segment, offset, rest) = loop {
            match from {
                Some((_, _, rest)) if rest > 0 => break from?,
                _ => {
                    let (segment, length) = local.next()?;
                    // What is skipped of a segment is no more than its length.
                    let skips = u32::try_from(skipped).unwrap_or(u32::MAX).min(length);
                    skipped -= u64::from(skips);
                    from = Some((segment, skips, length - skips));
                }
            }
        };
        let target = loop {
            match to {
                Some(span) if span.length > 0 => break span,
                _ => to = Some(remote.next()?),
            }
        };
        let length = rest.min(target.length).min(most);
        from = Some((segment, offset + length, rest - length));
        to = Some(Span {
            at: target.at.wrapping_add(length.into()),
            length: target.length - length,
            ..target
        });
        Some(Matched {
            segment,
            offset,
            remote: target.at,
            length,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cursor_is_where_so_many_bytes_end(
            lengths in proptest::collection::vec(0..50_u64, 0..12),
            steps in proptest::collection::vec(0..60_u64, 0..12),
        ) {
            let all: u64 = lengths.iter().sum();
            let (mut cursor, mut done) = (Cursor::default(), 0);
            for step in steps {
                let step = step.min(all - done);
                cursor.advance(step, lengths[cursor.segment..].iter().copied());
                done += step;
                let before: u64 = lengths[..cursor.segment].iter().sum();
                prop_assert_eq!(before + cursor.offset, done);
                let length = lengths.get(cursor.segment);
                prop_assert!(length.is_none_or(|length| cursor.offset < *length.max(&1)));
            }
        }

        /// Each byte goes where the lists say, in as few pieces as can be.
        #[test]
        fn every_byte_finds_its_place(
            local in proptest::collection::vec(0..50_u32, 0..12),
            remote in proptest::collection::vec((0..1000_u64, 0..50_u32), 0..12),
            skipped in 0..100_u64,
            most in prop_oneof![1..60_u32, Just(u32::MAX)],
        ) {
            let spans: Vec<Span> = remote
                .iter()
                .enumerate()
                .map(|(index, (at, length))| Span { at: at + 10_000 * index as u64, length: *length, name: Name::default() })
                .collect();
            let sources = local.iter().enumerate().flat_map(|(segment, length)| {
                (0..*length).map(move |offset| (segment, offset))
            });
            let targets = spans
                .iter()
                .flat_map(|span| (0..span.length).map(|at| span.at + u64::from(at)));
            let skips = usize::try_from(skipped).unwrap();
            let expected: Vec<_> = sources.skip(skips).zip(targets).collect();
            let pieces: Vec<_> = matched(local.iter().copied(), skipped, &spans, most).collect();
            let found: Vec<_> = pieces
                .iter()
                .flat_map(|piece| {
                    (0..piece.length).map(|at| {
                        ((piece.segment, piece.offset + at), piece.remote + u64::from(at))
                    })
                })
                .collect();
            prop_assert_eq!(found, expected);
            prop_assert!(pieces.iter().all(|piece| (1..=most).contains(&piece.length)));
            prop_assert!(most < 60 || pieces.len() <= local.len() + spans.len());
        }
    }
}
