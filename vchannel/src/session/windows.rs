//! How wide the windows of large fragments are: as wide as its way needs them.

use madgate_gtm::incoming::WideWindow;
use madgate_gtm::wire::FlowKey;
use madgate_gtm::{Incoming, Time};

use super::core::Core;
use crate::cluster::EndpointSettings;
use crate::topology::Route;

/// Between two nodes of one network.
const DIRECT: WideWindow = wide(256 << 10, 3);
/// From socket to socket all the way: what goes through pipes by default, from 128 KiB on. (Some of that may travel
/// ahead of it, or in front.) What is read into memory is better if there is little of it.
const PIPED: WideWindow = wide(120 << 10, 3);
/// To a destination that its gateway reaches through memory: what slots do not hold waits in sockets.
const INTO_MEMORY: WideWindow = wide(96 << 10, 3);
/// From a source that reaches its gateway through memory. Sockets hold no more than they can, and slots all that
/// is granted: of three windows much has left the caches when it is its turn.
const FROM_MEMORY: WideWindow = wide(96 << 10, 2);

const fn wide(from_bytes: u64, windows: u64) -> WideWindow {
    WideWindow {
        from_bytes,
        windows,
    }
}

impl EndpointSettings {
    /// How many bytes a source may send ahead to a destination that its gateway reaches through memory, while its
    /// fragments have `payload_bytes` each. (Allowances and the budgets of gateways may make it less.)
    #[must_use]
    pub const fn window_into_memory(&self, payload_bytes: u64) -> u64 {
        if self.wide_windows && payload_bytes >= INTO_MEMORY.from_bytes {
            self.window_bytes.saturating_mul(INTO_MEMORY.windows)
        } else {
            self.window_bytes
        }
    }
}

impl Core {
    /// A flow to this node.
    pub(super) fn incoming(&self, key: FlowKey, now: Time) -> Incoming {
        let window = self.settings.window_bytes;
        let incoming = Incoming::new(key, self.incarnation, window, now);
        if self.settings.wide_windows {
            incoming.with_wide_window(self.wide_window(key))
        } else {
            incoming
        }
    }

    fn wide_window(&self, key: FlowKey) -> WideWindow {
        let routes = self.routes.get(usize::from(key.channel));
        let routes = routes.and_then(Option::as_ref);
        let source = self.cluster.node_with_rank(key.source);
        let route = routes.zip(source);
        let route = route.and_then(|(routes, source)| routes.route(source, self.node).ok());
        route.map_or(DIRECT, |route| self.wide_window_of(&route))
    }

    fn wide_window_of(&self, route: &Route) -> WideWindow {
        let [begins, ends] = [route.hops.first(), route.hops.last()]
            .map(|hop| hop.is_some_and(|hop| self.cluster.network(hop.network).stays_in_memory()));
        match (begins, ends) {
            _ if route.is_direct() => DIRECT,
            (true, _) => FROM_MEMORY,
            (false, true) => INTO_MEMORY,
            (false, false) => PIPED,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::Cluster;

    /// Three networks in a row, of which the first and the last are memory of their hosts, and one beside the last.
    const TEXT: &str = r#"
        [session]
        name = "demo"
        key_file = "session.key"
        [[network]]
        name = "left"
        protocol = "shm"
        directory = "/tmp/left"
        [[network]]
        name = "middle"
        protocol = "tcp"
        [[network]]
        name = "right"
        protocol = "hsl"
        directory = "/tmp/right"
        trust = "memory"
        [[node]]
        name = "a0"
        addresses = { left = "a0" }
        [[node]]
        name = "a1"
        addresses = { left = "a1" }
        [[node]]
        name = "g0"
        gateway = true
        addresses = { left = "g0", middle = "127.0.0.1:1" }
        [[node]]
        name = "m0"
        addresses = { middle = "127.0.0.2:1" }
        [[network]]
        name = "beyond"
        protocol = "tcp"
        [[node]]
        name = "g1"
        gateway = true
        addresses = { middle = "127.0.0.3:1", right = "g1", beyond = "127.0.0.4:1" }
        [[node]]
        name = "m1"
        addresses = { beyond = "127.0.0.5:1" }
        [[node]]
        name = "b0"
        addresses = { right = "b0" }
        [[channel]]
        name = "main"
        networks = ["left", "middle", "right", "beyond"]
    "#;

    #[test]
    fn windows_are_as_wide_as_the_way_needs_them() {
        let cluster = Arc::new(Cluster::parse(TEXT, ".").unwrap());
        let node = |name| cluster.node(name).unwrap();
        let of = |source: u32, to| {
            let core = Core::new(Arc::clone(&cluster), node(to), 1);
            core.wide_window(FlowKey {
                channel: 0,
                source,
                destination: core.node.rank(),
            })
        };
        let from_memory = wide(96 << 10, 2);
        let into_memory = wide(96 << 10, 3);
        let piped = wide(120 << 10, 3);
        let direct = wide(256 << 10, 3);
        for (from, to, windows) in [
            ("a0", "m0", from_memory),
            ("a0", "b0", from_memory),
            ("b0", "m0", from_memory),
            ("b0", "a1", from_memory),
            ("m0", "a0", into_memory),
            ("m0", "b0", into_memory),
            ("m0", "m1", piped),
            ("m1", "g0", piped),
            // One hop, wherever it is.
            ("m0", "g0", direct),
            ("a0", "a1", direct),
            ("a0", "g0", direct),
            ("g1", "b0", direct),
            // Of a gateway that has an application.
            ("g0", "b0", into_memory),
        ] {
            assert_eq!(of(node(from).rank(), to), windows, "{from} to {to}");
        }
        // It is refused; nothing is known of its way.
        assert_eq!(of(99, "a0"), direct);
    }

    #[test]
    fn a_gateway_knows_how_wide_the_windows_of_those_behind_memory_are() {
        for (wide_windows, windows) in [(true, [1, 3]), (false, [1, 1])] {
            let settings = EndpointSettings {
                wide_windows,
                ..EndpointSettings::default()
            };
            let of = |bytes| settings.window_into_memory(bytes) / settings.window_bytes;
            assert_eq!([(96 << 10) - 1, 96 << 10].map(of), windows);
        }
    }
}
