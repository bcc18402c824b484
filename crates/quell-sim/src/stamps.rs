//! What the controllers of shapers before and behind modems are told of TCP's timestamps, and far
//! hosts that lie.

use std::collections::VecDeque;

use quell_link::passive::{Passive, Stamped};
use quell_qdisc::control::Delay;
use quell_qdisc::{Nanos, SEC};

use crate::packet::FlowId;

/// Far hosts that hold their answers back: an attack on the loop over the rate
/// (`examples/liars.rs`).
#[derive(Clone, Debug, Default)]
pub struct DelayAttack {
    /// The first reflectors, so many.
    pub reflectors: u32,
    /// Far hosts (`to_host`) of TCP flows.
    pub hosts: Vec<String>,
    /// From when to when.
    pub span: (Nanos, Nanos),
    /// So long, and so much longer each second.
    pub hold: Nanos,
    /// See `hold`.
    pub growth: Nanos,
    /// A reflector lets so many answers leave at once; 0: each by itself.
    pub batch: u32,
}

impl DelayAttack {
    /// How long an answer is held back of a reflector that is asked once in an interval.
    pub(crate) fn holds(&self, now: Nanos, interval: Nanos) -> Nanos {
        if !(self.span.0..self.span.1).contains(&now) {
            return 0;
        }
        let period = interval * Nanos::from(self.batch);
        let together = match period {
            0 => now,
            period => now.next_multiple_of(period),
        };
        together - now + self.hold + self.growth * ((now - self.span.0) / SEC)
    }
}

/// Reads the segments between shapers and modems.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamps {
    passive: Passive,
    /// The far host of each slot's flow.
    hosts: Vec<u64>,
    pub lie: Option<(DelayAttack, Vec<u64>)>,
    /// Segments of hosts that lie, and until when they are held back.
    held: VecDeque<(Nanos, Stamped)>,
}

impl Stamps {
    /// A connection begins.
    pub fn connect(&mut self, flow: FlowId, host: u64) {
        let place = usize::from(flow.slot);
        if self.hosts.len() <= place {
            self.hosts.resize(place + 1, 0);
        }
        self.hosts[place] = host;
    }

    /// The name of a flow's connection, and that of its far host.
    pub fn names(&self, flow: FlowId) -> (u64, u64) {
        let host = self.hosts.get(usize::from(flow.slot)).copied();
        let connection = u64::from(flow.slot) << 16 | u64::from(flow.generation);
        (host.unwrap_or(0), connection)
    }

    /// A segment leaves for the line.
    pub fn left(&mut self, now: Nanos, entered: Nanos, segment: &Stamped) {
        self.passive.left(now, entered, segment);
    }

    /// A segment comes from the line; what `tell` is told.
    pub fn came(&mut self, now: Nanos, segment: Stamped, mut tell: impl FnMut(&Delay)) {
        while let Some((_, held)) = self.held.front().copied().filter(|(due, _)| *due <= now) {
            self.held.pop_front();
            self.passive.came(now, &held).iter().for_each(&mut tell);
        }
        let lie = self
            .lie
            .as_ref()
            .filter(|(_, hosts)| hosts.contains(&segment.host));
        match lie.map_or(0, |(lie, _)| lie.holds(now, 0)) {
            0 => self.passive.came(now, &segment).iter().for_each(tell),
            hold => self.held.push_back((now + hold, segment)),
        }
    }
}
