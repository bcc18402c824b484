//! Delays measured from TCP timestamps, for the controllers of shapers in front of and behind
//! modems; and far hosts that falsify them.

use std::collections::VecDeque;

use quell_link::passive::{Passive, Stamped};
use quell_qdisc::control::Delay;
use quell_qdisc::time::{Duration, Instant, SEC};

use crate::packet::FlowId;

/// Reflectors and far hosts that delay their answers: an attack on the control loop of a shaper's
/// rate (`examples/liars.rs`).
#[derive(Clone, Debug, Default)]
pub struct DelayAttack {
    /// Number of reflectors that take part, counted from the first.
    pub reflectors: u32,
    /// Names of the far hosts (`to_host`) of TCP flows that take part.
    pub hosts: Vec<String>,
    /// Start and end of the attack.
    pub span: (Instant, Instant),
    /// Delay added to each answer.
    pub hold: Duration,
    /// Increase of `hold` per second of the attack.
    pub growth: Duration,
    /// Number of answers that a reflector releases together; 0: each is released by itself.
    pub batch: u32,
    /// Period of the attack's pulses, and the part of each period, from its start, during which
    /// answers are delayed; (0, 0): they are delayed all the time.
    pub pulse: (Duration, Duration),
}

impl DelayAttack {
    /// Time for which an answer is held back; `interval` is the time between requests to a
    /// reflector.
    pub(crate) fn hold_time(&self, now: Instant, interval: Duration) -> Duration {
        if !(self.span.0..self.span.1).contains(&now) {
            return Duration::ZERO;
        }
        let (every, part) = self.pulse;
        if every > Duration::ZERO && (now - self.span.0) % every >= part {
            return Duration::ZERO;
        }
        let period = interval * u64::from(self.batch);
        let together = match period {
            Duration::ZERO => now,
            period => Instant::from_nanos(now.as_nanos().next_multiple_of(period.as_nanos())),
        };
        together - now + self.hold + self.growth * ((now - self.span.0) / SEC)
    }
}

/// Reads the timestamps of segments between shapers and modems.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamps {
    passive: Passive,
    /// By slot of the flow table: hash of the far host.
    hosts: Vec<u64>,
    /// The attack, and the hashes of the far hosts that take part.
    pub delay_attack: Option<(DelayAttack, Vec<u64>)>,
    /// Segments of far hosts that take part in the attack, each with the time of its release.
    held: VecDeque<(Instant, Stamped)>,
}

impl Stamps {
    /// Notes the far host of a new connection.
    pub fn connect(&mut self, flow: FlowId, host: u64) {
        let place = usize::from(flow.slot);
        if self.hosts.len() <= place {
            self.hosts.resize(place + 1, 0);
        }
        self.hosts[place] = host;
    }

    /// Identifiers of a flow's far host and of its connection.
    pub fn ids(&self, flow: FlowId) -> (u64, u64) {
        let host = self.hosts.get(usize::from(flow.slot)).copied();
        let connection = u64::from(flow.slot) << 16 | u64::from(flow.generation);
        (host.unwrap_or(0), connection)
    }

    /// Reads a segment that leaves the up link's shaper, whose queue it entered at `entered`, for
    /// the modem.
    pub fn on_upstream(&mut self, now: Instant, entered: Instant, segment: &Stamped) {
        self.passive.on_departure(now, entered, segment);
    }

    /// Reads a segment that comes from the modem; calls `report` with each delay that results.
    pub fn on_downstream(
        &mut self,
        now: Instant,
        segment: Stamped,
        mut report: impl FnMut(&Delay),
    ) {
        while let Some((_, held)) = self.held.front().copied().filter(|(due, _)| *due <= now) {
            self.held.pop_front();
            self.passive
                .on_arrival(now, &held)
                .iter()
                .for_each(&mut report);
        }
        let attack = self
            .delay_attack
            .as_ref()
            .filter(|(_, hosts)| hosts.contains(&segment.host));
        match attack.map_or(Duration::ZERO, |(attack, _)| {
            attack.hold_time(now, Duration::ZERO)
        }) {
            Duration::ZERO => self
                .passive
                .on_arrival(now, &segment)
                .iter()
                .for_each(report),
            hold => self.held.push_back((now + hold, segment)),
        }
    }
}
