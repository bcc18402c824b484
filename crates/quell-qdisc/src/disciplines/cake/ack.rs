//! CAKE's ACK filter: finds the queued ACK that a later one supersedes.
//!
//! Source: Linux `net/sched/sch_cake.c` (`cake_ack_filter`).

use super::params::AckFilter;
use crate::parts::flows::{FlowId, Flows, Place};
use crate::{Acknowledgment, Drops, Packet};

/// Whether `a` is later than `b`: wrapping sequence numbers or timestamps.
fn after(a: u32, b: u32) -> bool {
    b.wrapping_sub(a).cast_signed() < 0
}

/// Comparison of the SACK blocks of an older ACK with those of a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sack {
    /// The older one reports bytes that the newer one does not.
    Needed,
    /// Both report the same.
    Same,
    /// The newer one reports more.
    Exceeded,
}

/// Compares their SACK blocks.
fn compare(old: &Acknowledgment, new: &Acknowledgment) -> Sack {
    let of = |ack: &Acknowledgment| ack.sack.into_iter().take(usize::from(ack.blocks));
    match (old.blocks, new.blocks) {
        (0, 0) => return Sack::Same,
        (0, _) => return Sack::Exceeded,
        (_, 0) => return Sack::Needed,
        _ => {}
    }
    let covered = |(start, end): (u32, u32)| {
        let within = |(from, to): (u32, u32)| !after(from, start) && !after(end, to);
        // A block below the ACK's number reports a duplicate segment, in this ACK only (RFC 2883).
        !after(old.number, start) && of(new).any(within)
    };
    if !of(old).all(covered) {
        return Sack::Needed;
    }
    let bytes = |ack: &Acknowledgment| {
        of(ack).fold(0u32, |sum, (start, end)| {
            sum.wrapping_add(end.wrapping_sub(start))
        })
    };
    match bytes(new) > bytes(old) {
        true => Sack::Exceeded,
        false => Sack::Same,
    }
}

/// Whether the newer ACK of a connection makes the older one superfluous: the older one carries no
/// data, and the newer one reports all that it does and something more.
fn supersedes(new: &Acknowledgment, old: &Acknowledgment) -> bool {
    if !old.pure
        || after(old.number, new.number)
        || after(old.tsval, new.tsval)
        || after(old.tsecr, new.tsecr)
    {
        return false;
    }
    match compare(old, new) {
        Sack::Needed => false,
        Sack::Same => old.number != new.number,
        Sack::Exceeded => true,
    }
}

/// The queued ACK to drop because of the flow's last packet, if there is one: the older of two
/// that this packet supersedes. With the aggressive filter also a single one, if the last packet
/// directly follows it and both echo the same marks.
pub(super) fn superfluous<P: Packet, D: Drops<P>>(
    flows: &Flows<P>,
    flow: FlowId,
    last: &P,
    filter: AckFilter,
    owner: &D,
) -> Option<Place> {
    let queued = flows.get(flow).packets() as usize;
    if filter == AckFilter::Off || queued < 2 {
        return None;
    }
    let new = owner.acknowledgment(last)?;
    // The oldest superseded ACK, and the number of packets between it and the last packet.
    let mut found: Option<(Place, Acknowledgment, usize)> = None;
    // Number of superseded ACKs.
    let mut superseded = 0;
    for (i, (place, packet)) in flows.packets_in(flow).take(queued - 1).enumerate() {
        let Some(old) = owner.acknowledgment(packet) else {
            continue;
        };
        if old.connection != new.connection {
            continue;
        }
        // A change of the flags ECE and CWR is information, so the ACK before the change is kept.
        if found.as_ref().is_some_and(|(_, f, _)| f.echo != old.echo) {
            found = None;
            superseded -= 1;
        }
        if !supersedes(&new, &old) {
            continue;
        }
        if found.is_none() {
            found = Some((place, old, queued - 2 - i));
        }
        superseded += 1;
        if superseded > 1 {
            return found.map(|(place, ..)| place);
        }
    }
    let (place, old, between) = found?;
    let alone = filter == AckFilter::Aggressive && between == 0 && old.echo == new.echo;
    alone.then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::TestPacket;
    use crate::time::Instant;
    use crate::{DropCause, Ecn};

    fn ack(number: u32) -> Acknowledgment {
        Acknowledgment {
            pure: true,
            number,
            ..Acknowledgment::default()
        }
    }

    fn sack(number: u32, blocks: &[(u32, u32)]) -> Acknowledgment {
        let mut ack = ack(number);
        ack.sack[..blocks.len()].copy_from_slice(blocks);
        ack.blocks = blocks.len() as u8;
        ack
    }

    /// ACKs by the packets' numbers.
    struct Owner(Vec<Acknowledgment>);

    impl Drops<TestPacket> for Owner {
        fn drop(&mut self, _: Instant, _: TestPacket, _: DropCause) {}
        fn acknowledgment(&self, packet: &TestPacket) -> Option<Acknowledgment> {
            Some(self.0[packet.id as usize])
        }
    }

    /// The number of the ACK that is dropped when the last of these arrives.
    fn dropped(filter: AckFilter, acks: &[Acknowledgment]) -> Option<u64> {
        let mut flows = Flows::new(1);
        let flow = flows.flow_of(0);
        let owner = Owner(acks.to_vec());
        let mut last = TestPacket::new(0, 66, 0, Ecn::NotEct);
        for id in 0..acks.len() as u64 {
            last.id = id;
            flows.push(flow, last);
        }
        let place = superfluous(&flows, flow, &last, filter, &owner)?;
        Some(flows.remove(flow, place).id)
    }

    const FILTER: AckFilter = AckFilter::Filter;

    #[test]
    fn the_oldest_of_two_superfluous_acks_goes() {
        assert_eq!(dropped(FILTER, &[ack(1), ack(2), ack(3)]), Some(0));
        assert_eq!(dropped(FILTER, &[ack(1), ack(2)]), None);
        assert_eq!(dropped(AckFilter::Off, &[ack(1), ack(2), ack(3)]), None);
    }

    #[test]
    fn the_aggressive_filter_keeps_only_the_last_ack() {
        let filter = AckFilter::Aggressive;
        assert_eq!(dropped(filter, &[ack(1), ack(2)]), Some(0));
        // A packet of another connection between them saves the first: only neighbours certainly
        // report the same about ECN.
        let other = Acknowledgment {
            connection: 7,
            ..ack(9)
        };
        assert_eq!(dropped(filter, &[ack(1), other, ack(2)]), None);
    }

    #[test]
    fn duplicate_acks_are_kept() {
        assert_eq!(dropped(FILTER, &[ack(5), ack(5), ack(5)]), None);
        assert_eq!(dropped(FILTER, &[ack(4), ack(5), ack(5), ack(5)]), None);
    }

    #[test]
    fn acks_that_echo_other_marks_are_kept() {
        let echo = |number| Acknowledgment {
            echo: 1,
            ..ack(number)
        };
        assert_eq!(dropped(FILTER, &[ack(1), echo(2), echo(3)]), None);
        assert_eq!(
            dropped(FILTER, &[ack(1), echo(2), echo(3), echo(4)]),
            Some(1)
        );
        assert_eq!(dropped(AckFilter::Aggressive, &[ack(1), echo(2)]), None);
    }

    #[test]
    fn acks_with_other_content_are_kept() {
        let data = Acknowledgment {
            pure: false,
            ..ack(1)
        };
        assert_eq!(dropped(FILTER, &[data, data, ack(3)]), None);
        // It still supersedes older ACKs.
        let data = Acknowledgment {
            pure: false,
            ..ack(3)
        };
        assert_eq!(dropped(FILTER, &[ack(1), ack(2), data]), Some(0));
    }

    #[test]
    fn blocks_that_the_newer_ack_does_not_cover_keep_the_older_one() {
        let old = [sack(10, &[(20, 22)]), sack(10, &[(20, 23)])];
        let with = |new| dropped(FILTER, &[old[0], old[1], new]);
        assert_eq!(with(sack(10, &[(20, 24)])), Some(0));
        assert_eq!(with(sack(10, &[(21, 24)])), None);
        assert_eq!(with(ack(19)), None);
        assert_eq!(with(sack(19, &[(40, 41), (20, 30)])), Some(0));
        // The block reports a duplicate segment (RFC 2883).
        let duplicate = sack(10, &[(4, 5)]);
        let newer = sack(12, &[(4, 5), (20, 30)]);
        assert_eq!(dropped(FILTER, &[duplicate, duplicate, newer]), None);
    }

    #[test]
    fn numbers_and_timestamps_may_wrap_but_not_go_back() {
        let near = [ack(u32::MAX - 1), ack(u32::MAX), ack(1)];
        assert_eq!(dropped(FILTER, &near), Some(0));
        assert_eq!(dropped(FILTER, &[ack(3), ack(3), ack(2)]), None);
        let stamped = |number, tsecr| Acknowledgment {
            tsecr,
            ..ack(number)
        };
        let back = [stamped(1, 9), stamped(2, 9), stamped(3, 8)];
        assert_eq!(dropped(FILTER, &back), None);
    }
}
