//! How wide the windows of large fragments are: as wide as its way needs them.

use madgate_gtm::wire::FlowKey;
use madgate_gtm::{Incoming, Time};

use super::core::Core;
use crate::topology::Route;

/// So many times its window is what a flow is granted while its fragments are large: all hops have something
/// to do then.
const LARGE_WINDOWS: u64 = 3;

/// The same where it goes to its first gateway through memory. Sockets hold no more than they can, and slots
/// all that is granted: of three windows much has left the caches when it is its turn.
const LARGE_WINDOWS_IN_MEMORY: u64 = 2;

impl Core {
    /// A flow to this node.
    pub(super) fn incoming(&self, key: FlowKey, now: Time) -> Incoming {
        let window = self.settings.window_bytes;
        let incoming = Incoming::new(key, self.incarnation, window, now);
        if self.settings.wide_windows {
            incoming.with_wide_windows(self.large_windows(key))
        } else {
            incoming
        }
    }

    fn large_windows(&self, key: FlowKey) -> u64 {
        let routes = self.routes.get(usize::from(key.channel));
        let routes = routes.and_then(Option::as_ref);
        let source = self.cluster.node_with_rank(key.source);
        let route = routes.zip(source);
        let route = route.and_then(|(routes, source)| routes.route(source, self.node).ok());
        let begins_in_memory = |route: &Route| {
            let first = route.hops.first().filter(|_| !route.is_direct());
            first.is_some_and(|hop| self.cluster.network(hop.network).stays_in_memory())
        };
        if route.is_some_and(|route| begins_in_memory(&route)) {
            LARGE_WINDOWS_IN_MEMORY
        } else {
            LARGE_WINDOWS
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::Cluster;

    /// Three networks in a row, of which the first and the last are memory of their hosts.
    const TEXT: &str = r#"
        [session]
        name = "demo"
        key_file = "session.key"
        [endpoint]
        window = "1MiB"
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
        [[node]]
        name = "g1"
        gateway = true
        addresses = { middle = "127.0.0.3:1", right = "g1" }
        [[node]]
        name = "b0"
        addresses = { right = "b0" }
        [[channel]]
        name = "main"
        networks = ["left", "middle", "right"]
    "#;

    #[test]
    fn what_goes_to_a_gateway_through_memory_has_fewer_large_windows() {
        let node = |cluster: &Cluster, name| cluster.node(name).unwrap();
        let width = |core: &Core, source: u32| {
            let key = FlowKey {
                channel: 0,
                source,
                destination: core.node.rank(),
            };
            let flow = format!("{:?}", core.incoming(key, Time(0)));
            let (_, width) = flow.split_once("large_window_most: ").unwrap();
            let (width, _) = width.split_once(',').unwrap();
            width.parse::<u64>().unwrap() >> 20
        };
        for wide in [true, false] {
            let text = TEXT.replace("\"1MiB\"", &format!("\"1MiB\"\nwide_windows = {wide}"));
            let cluster = Arc::new(Cluster::parse(&text, ".").unwrap());
            for (from, to, windows) in [
                ("a0", "m0", 2),
                ("a0", "b0", 2),
                ("b0", "m0", 2),
                ("b0", "a1", 2),
                ("m0", "a0", 3),
                ("m0", "b0", 3),
                ("m0", "g0", 3),
                // To whom it is not one of several hops.
                ("a0", "a1", 3),
                ("a0", "g0", 3),
                ("g1", "b0", 3),
                // Of a gateway that has an application.
                ("g0", "b0", 3),
            ] {
                let core = Core::new(Arc::clone(&cluster), node(&cluster, to), 1);
                let expected = if wide { windows } else { 1 };
                let source = node(&cluster, from).rank();
                assert_eq!(width(&core, source), expected, "{from} to {to}");
            }
            // It is refused; nothing is known of its way.
            let core = Core::new(Arc::clone(&cluster), node(&cluster, "a0"), 1);
            assert_eq!(width(&core, 99), if wide { 3 } else { 1 });
        }
    }
}
