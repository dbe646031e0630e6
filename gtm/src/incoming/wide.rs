//! Windows that are wider while what arrives is large.

/// From fragments of which size on a window may be how many times as wide as of small ones.
///
/// Large payloads come by few calls, one after the other at each hop: there have to be several under way for all
/// hops to have something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WideWindow {
    /// Payloads of so many bytes at least.
    pub from_bytes: u64,
    /// So many windows, one at least.
    pub windows: u64,
}

impl WideWindow {
    /// No fragment is large enough for it.
    pub const NONE: Self = Self {
        from_bytes: u64::MAX,
        windows: 1,
    };
}

/// A window while fragments are large enough for it.
#[derive(Debug)]
pub(super) struct Wide {
    pub(super) from_bytes: u64,
    pub(super) most: u64,
    /// Up to where what arrives counts as large: a window beyond the end of the last fragment that was.
    pub(super) up_to: u64,
}

impl Wide {
    pub(super) const fn new(wide: WideWindow, window_most: u64) -> Self {
        Self {
            from_bytes: wide.from_bytes,
            most: match wide.windows {
                0 => window_most,
                windows => window_most.saturating_mul(windows),
            },
            up_to: 0,
        }
    }
}
