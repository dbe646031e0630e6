//! What happens in a run: arrivals, and all that can go wrong.

use std::time::Duration;

use crate::destination::Destination;
use crate::gateway::Gateway;
use crate::message::Ledger;
use crate::network::{Event, Way};
use crate::source::SourceFlow;
use crate::world::{Party, World, settings_of};

impl World {
    /// The next event; `false` if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let Some(event) = self.network.next_event() else {
            return false;
        };
        if self.trace && !matches!(event, Event::Arrival { .. } | Event::Wake(_)) {
            eprintln!("{} us, {event:?}", self.network.now.0 / 1000);
        }
        match event {
            Event::Arrival { link, way } => {
                let (from, to) = (self.network.links[link].from, self.network.links[link].to);
                let (receiver, sender) = if way == Way::Back {
                    (from, to)
                } else {
                    (to, from)
                };
                self.work(receiver);
                self.work(sender);
            }
            Event::Wake(party) => {
                if self.wake_at[party].is_some_and(|at| at <= self.network.now) {
                    self.wake_at[party] = None;
                }
                self.work(party);
            }
            Event::LinkUp(from, to) => self.link_up(from, to),
            Event::LinkLost(from, to, away_us) => {
                if let Some(&link) = self.network.current.get(&(from, to)) {
                    self.link_lost(link, away_us);
                }
            }
            Event::AcceptorNotices(link) => self.acceptor_notices(link),
            Event::Restart(party) => self.restart(party),
            Event::Stop(party) => self.stopped[party] = true,
            Event::GoOn(party) => {
                self.stopped[party] = false;
                self.work(party);
            }
            Event::AppStop(party) | Event::AppGoOn(party) => {
                if let Party::Endpoint(endpoint) = &mut self.parties[party] {
                    endpoint.app_stopped = matches!(event, Event::AppStop(_));
                }
                self.work(party);
            }
            Event::Sweep => {
                for party in &mut self.parties {
                    match party {
                        Party::Gateway(gateway) => {
                            gateway.transit.handle_timeout(self.network.now);
                        }
                        Party::Endpoint(endpoint) => endpoint.destination.sweep(&self.network),
                    }
                }
                let next = self.network.now + Duration::from_secs(5);
                self.network.schedule(next, Event::Sweep);
            }
        }
        true
    }

    fn link_up(&mut self, from: usize, to: usize) {
        if self.network.current.contains_key(&(from, to)) {
            return;
        }
        if self.stopped[from] || self.stopped[to] {
            let later = self.network.now + Duration::from_millis(20);
            self.network.schedule(later, Event::LinkUp(from, to));
            return;
        }
        let link = self.network.connect(from, to);
        let now = self.network.now;
        match &mut self.parties[from] {
            Party::Gateway(gateway) => {
                self.network.links[link].dialer_id = Some(gateway.add_link(link));
            }
            Party::Endpoint(endpoint) => {
                for flow in endpoint
                    .sources
                    .iter_mut()
                    .filter(|flow| flow.next_hop == to)
                {
                    flow.outgoing.handle_link_up(now);
                }
            }
        }
        if let Party::Gateway(gateway) = &mut self.parties[to] {
            self.network.links[link].acceptor_id = Some(gateway.add_link(link));
        }
        self.work(from);
    }

    /// The dialer finds out that a link is lost; the acceptor will, too.
    fn link_lost(&mut self, link: usize, away_us: u64) {
        self.network.lose(link);
        self.dialer_notices(link);
        let notices = self.network.now + self.network.random.duration_us(0..50_000);
        self.network.schedule(notices, Event::AcceptorNotices(link));
        let (from, to) = (self.network.links[link].from, self.network.links[link].to);
        let up = self.network.now + Duration::from_micros(away_us);
        self.network.schedule(up, Event::LinkUp(from, to));
    }

    /// One side closes a link because of what came over it.
    pub(crate) fn link_broken(&mut self, link: usize) {
        if self.network.links[link].dialer_holds {
            self.link_lost(link, 1000);
        }
        self.acceptor_notices(link);
    }

    fn dialer_notices(&mut self, link: usize) {
        let (from, to) = (self.network.links[link].from, self.network.links[link].to);
        let now = self.network.now;
        match &mut self.parties[from] {
            Party::Gateway(gateway) => {
                gateway.remove_link(self.network.links[link].dialer_id.unwrap());
            }
            Party::Endpoint(endpoint) => {
                for flow in endpoint
                    .sources
                    .iter_mut()
                    .filter(|flow| flow.next_hop == to)
                {
                    flow.outgoing.handle_link_lost(now);
                }
            }
        }
        self.work(from);
    }

    fn acceptor_notices(&mut self, link: usize) {
        if !self.network.links[link].acceptor_holds {
            return;
        }
        self.network.forget(link);
        let to = self.network.links[link].to;
        match &mut self.parties[to] {
            Party::Gateway(gateway) => {
                gateway.remove_link(self.network.links[link].acceptor_id.unwrap());
            }
            Party::Endpoint(endpoint) => {
                endpoint.destination.handle_link_lost(link, &self.network);
            }
        }
        self.work(to);
    }

    fn restart(&mut self, party: usize) {
        let now = self.network.now;
        self.stopped[party] = true;
        for link in 0..self.network.links.len() {
            let ends = &self.network.links[link];
            let (from, to) = (ends.from, ends.to);
            if from != party && to != party {
                continue;
            }
            let (dialer_held, acceptor_held) = (ends.dialer_holds, ends.acceptor_holds);
            self.network.links[link].dialer_holds = false;
            if from == party && acceptor_held {
                self.acceptor_notices(link);
            }
            self.network.forget(link);
            if to == party && dialer_held {
                self.dialer_notices(link);
            }
            if dialer_held {
                let up = now + self.network.random.duration_us(100..200_000);
                self.network.schedule(up, Event::LinkUp(from, to));
            }
        }
        self.stopped[party] = false;
        match &mut self.parties[party] {
            Party::Gateway(gateway) => **gateway = Gateway::new(party, self.plan.gateway_bytes),
            Party::Endpoint(endpoint) => {
                endpoint.incarnation += 1 << 20;
                let incarnation = endpoint.incarnation;
                endpoint.destination =
                    Destination::new(incarnation, self.plan.window_most, self.plan.endpoint_bytes);
                for flow in &mut endpoint.sources {
                    let key = flow.key();
                    let seed = self.network.random.next();
                    let settings = settings_of(&self.plan, key, incarnation, seed);
                    let script = std::mem::take(&mut flow.script);
                    let retention = self.plan.retention;
                    *flow = SourceFlow::new(settings, flow.next_hop, script, retention, now);
                    self.ledgers.insert((key, incarnation), Ledger::default());
                }
            }
        }
    }
}
