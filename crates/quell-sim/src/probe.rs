//! The instruments at one queue of the simulator: the meter, a hash over every event, what a capture wants.

use std::ops::{Deref, DerefMut};

use quell_link::meter::Meter;
use quell_qdisc::{DropCause, Drops, Nanos, Packet};

pub use quell_link::meter::Counters;

use crate::packet::{Kind, Pkt};

/// The instruments at one queue.
#[derive(Clone, Debug)]
pub struct Probe {
    meter: Meter,
    /// Hash over every packet event.
    pub hash: u64,
    /// ACKs that were dropped: their places in the store are to be freed.
    pub dropped_acks: Vec<u32>,
    /// Packets that left (no cause) or were dropped, for a capture; None: nobody captures.
    pub capture: Option<Vec<(Option<DropCause>, Pkt)>>,
}

impl Deref for Probe {
    type Target = Meter;
    #[inline]
    fn deref(&self) -> &Meter {
        &self.meter
    }
}

impl DerefMut for Probe {
    #[inline]
    fn deref_mut(&mut self) -> &mut Meter {
        &mut self.meter
    }
}

impl Probe {
    /// Instruments for a link of this mean rate, bit/s.
    pub fn new(mean_bps: u64) -> Self {
        Self {
            meter: Meter::new(mean_bps),
            hash: 0,
            dropped_acks: Vec::new(),
            capture: None,
        }
    }

    /// A packet leaves the queue for the link.
    #[inline]
    pub fn departure(&mut self, now: Nanos, p: &Pkt) {
        self.meter.departure(now, p.enqueued(), p.len());
        self.event(now, p, 1 + p.ecn() as u64);
        if let Some(capture) = &mut self.capture {
            capture.push((None, *p));
        }
    }

    /// The link behind the queue lost a packet.
    #[cold]
    pub fn lost(&mut self, p: &Pkt) {
        self.meter.counters.drops.link += 1;
        if p.kind == Kind::Ack {
            self.dropped_acks.push(p.seq);
        }
    }

    /// Mixes one packet's fate into the hash.
    #[inline]
    fn event(&mut self, now: Nanos, p: &Pkt, fate: u64) {
        let word = now ^ u64::from(p.seq) << 20 ^ u64::from(p.flow.slot) << 44 ^ fate << 60;
        self.hash = (self.hash ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }
}

impl Drops<Pkt> for Probe {
    fn drop(&mut self, now: Nanos, p: Pkt, cause: DropCause) {
        self.meter.dropped(cause);
        if p.kind == Kind::Ack {
            self.dropped_acks.push(p.seq);
        }
        self.event(now, &p, 8 + cause as u64);
        if let Some(capture) = &mut self.capture {
            capture.push((Some(cause), p));
        }
    }
}

#[cfg(test)]
mod tests {
    use quell_qdisc::Ecn;

    use super::*;
    use crate::packet::FlowId;

    #[test]
    fn a_drop_counts_in_the_hash_at_the_time_when_it_happens() {
        // A tail drop never entered this queue: what the packet says of its enqueue is 0, or the previous hop's.
        let hash = |now| {
            let mut probe = Probe::new(1_000_000);
            let p = Pkt::new(Kind::Udp, FlowId::default(), 0, 7, 1500, 1472, Ecn::NotEct);
            probe.drop(now, p, DropCause::Overflow);
            probe.hash
        };
        assert_ne!(hash(1_000), hash(2_000));
        assert_eq!(hash(1_000), hash(1_000));
    }
}
