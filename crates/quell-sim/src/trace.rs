//! Records of packets that leave a queue or are dropped by it: a hash over every event, the places
//! of dropped ACKs in the store, losses by flow, and a capture.

use quell_link::queue::Observer;
use quell_qdisc::packet::SACK_BLOCKS;
use quell_qdisc::time::Instant;
use quell_qdisc::{Acknowledgment, DropCause, Labels, Packet};

use crate::packet::{self, Ack, Kind, Pkt};

/// Records of one queue.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Hash over every packet event.
    pub hash: u64,
    /// Places of dropped ACKs in the store, to be freed.
    pub dropped_acks: Vec<u32>,
    /// Number of datagrams and segments dropped or lost, by slot of the flow table.
    pub losses: Vec<u64>,
    /// Packets that left (None) or were dropped (with the cause), for a capture; None: no capture.
    pub capture: Option<Vec<(Option<DropCause>, Pkt)>>,
    /// Labels of data and ACKs by slot, if the queue reads labels.
    pub labels: Vec<[Labels; 2]>,
    /// ACKs that entered this queue, by their places in the store; None: the queue does not read
    /// ACKs.
    pub acks: Option<Vec<Ack>>,
}

impl Trace {
    /// Sets the labels of a slot's data and ACKs.
    pub fn label(&mut self, slot: u16, labels: [Labels; 2]) {
        let slot = usize::from(slot);
        if self.labels.len() <= slot {
            self.labels.resize(slot + 1, Default::default());
        }
        self.labels[slot] = labels;
    }

    /// Records the content of an ACK that enters the queue.
    pub fn note_ack(&mut self, place: u32, ack: &Ack) {
        if let Some(acks) = &mut self.acks {
            let place = place as usize;
            if acks.len() <= place {
                acks.resize(place + 1, Ack::default());
            }
            acks[place] = *ack;
        }
    }

    /// Mixes one packet's fate into the hash.
    #[inline]
    fn event(&mut self, now: Instant, p: &Pkt, fate: u64) {
        let word =
            now.as_nanos() ^ u64::from(p.seq) << 20 ^ u64::from(p.flow.slot) << 44 ^ fate << 60;
        self.hash = (self.hash ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }

    /// Records a packet that was dropped or lost.
    fn count_loss(&mut self, p: &Pkt) {
        match p.kind() {
            Kind::Ack => self.dropped_acks.push(p.seq),
            Kind::Syn => {}
            Kind::Data | Kind::Udp => {
                let slot = p.flow.index();
                if slot >= self.losses.len() {
                    self.losses.resize(slot + 1, 0);
                }
                self.losses[slot] += 1;
            }
        }
    }
}

impl Observer<Pkt> for Trace {
    #[inline(always)]
    fn departed(&mut self, now: Instant, p: &Pkt) {
        self.event(now, p, 1 + p.ecn() as u64);
        if let Some(capture) = &mut self.capture {
            capture.push((None, *p));
        }
    }

    fn dropped(&mut self, now: Instant, p: Pkt, cause: DropCause) {
        self.count_loss(&p);
        self.event(now, &p, 8 + cause as u64);
        if let Some(capture) = &mut self.capture {
            capture.push((Some(cause), p));
        }
    }

    fn lost(&mut self, _now: Instant, p: Pkt) {
        self.count_loss(&p);
    }

    #[inline]
    fn labels(&self, p: &Pkt) -> Labels {
        let row = self.labels.get(p.flow.index());
        row.map_or_else(Labels::default, |r| r[usize::from(p.kind() == Kind::Ack)])
    }

    /// A connection's data flow only in the direction opposite to its ACKs, so each ACK is pure.
    fn acknowledgment(&self, p: &Pkt) -> Option<Acknowledgment> {
        if p.kind() != Kind::Ack {
            return None;
        }
        let ack = self.acks.as_ref()?.get(p.seq as usize)?;
        let mut sack = [(0, 0); SACK_BLOCKS];
        sack[..packet::SACK_BLOCKS].copy_from_slice(&ack.blocks);
        (!ack.syn).then_some(Acknowledgment {
            connection: u64::from(p.flow.slot) << 16 | u64::from(p.flow.generation),
            pure: true,
            // The accurate count of CE marks replaces the flags that would carry it.
            echo: u32::from(ack.ece) | ack.ce << 1,
            number: ack.cumulative,
            tsval: 0,
            tsecr: ack.tsecr,
            sack,
            blocks: ack.count,
        })
    }
}

#[cfg(test)]
mod tests {
    use quell_qdisc::Ecn;

    use super::*;
    use crate::packet::FlowId;

    #[test]
    fn a_drop_counts_in_the_hash_at_the_time_when_it_happens() {
        // A tail drop never entered this queue, so the packet's enqueue time is 0 or that of the
        // previous hop.
        let hash = |now| {
            let mut trace = Trace::default();
            let p = Pkt::new(Kind::Udp, FlowId::default(), 0, 7, 1500, 1472, Ecn::NotEct);
            trace.dropped(now, p, DropCause::Overflow);
            trace.hash
        };
        assert_ne!(hash(Instant::from_micros(1)), hash(Instant::from_micros(2)));
        assert_eq!(hash(Instant::from_micros(1)), hash(Instant::from_micros(1)));
    }
}
