//! SFQ: deficit round robin over the flows of a hash that may change from time to time, each a
//! short FIFO.
//!
//! Sources: McKenney, "Stochastic Fairness Queueing" (1990); Linux 7.x `net/sched/sch_sfq.c`,
//! tc-sfq(8). Deviations:
//! - the longest flow is found by a walk over the flows ever used, not by lists of flows of equal
//!   length;
//! - `perturb` acts at the first call after its time, not at its time, which makes no observable
//!   difference;
//! - after a perturbation, flows are in the round in the order of their first packets ever, not in
//!   the order of the kernel's slots.

use crate::num;
use crate::parts::flows::{FlowId, FlowList, Flows, of_flow};
use crate::parts::hash::rehash;
use crate::parts::red::{Action, Law, Vars, check_weight, weight};
use crate::time::{Duration, Instant, NEVER};
use crate::{Dequeued, Discipline, DropCause, Drops, Gauges, MTU, Packet, Rng};

/// Maximum number of packets of a flow, whatever the options.
pub const MAX_DEPTH: u32 = 127;
/// Maximum number of flows at once.
pub const MAX_FLOWS: u32 = 65_408;

/// Packets for which room is reserved before a perturbation, at most.
const MAX_RESERVED: u32 = 4096;

/// Parameters of RED on each flow; lengths are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Red {
    /// Average length at which dropping begins.
    pub min: u64,
    /// Average length with the greatest probability.
    pub max: u64,
    /// Bytes of an average packet.
    pub avpkt: u32,
    /// Packets of a burst to allow for; sets how slowly the average moves.
    pub burst: u32,
    /// Probability at `max`, 0..1.
    pub probability: f64,
    /// Mark ECN-capable packets instead of dropping them.
    pub ecn: bool,
    /// Above `max` drop even ECN-capable packets.
    pub harddrop: bool,
}

/// Parameters, named as in tc-sfq(8).
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Packets in the whole queue, at least 2 (default 127), at most `flows` times `depth`.
    pub limit: Option<u32>,
    /// Time after which the hash of flows changes; 0 for never (default).
    pub perturb: Duration,
    /// Bytes per flow and round, up to 2^20; less than 256 counts as 256 (default 1514, one
    /// full-size packet).
    pub quantum: u32,
    /// Buckets of the hash, a power of two up to 65536 (default 1024).
    pub divisor: u32,
    /// Flows that may have packets at once, at most `divisor` (default 128).
    pub flows: u32,
    /// Packets of one flow, 1 to 127 (default 127).
    pub depth: u32,
    /// Drop at the head of a flow, not at its tail (default off).
    pub headdrop: bool,
    /// RED on each flow (default none).
    pub red: Option<Red>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            limit: None,
            perturb: Duration::ZERO,
            quantum: MTU,
            divisor: 1024,
            flows: 128,
            depth: MAX_DEPTH,
            headdrop: false,
            red: None,
        }
    }
}

impl Params {
    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if !self.divisor.is_power_of_two() || self.divisor > 65_536 {
            return Err("divisor must be a power of two, at most 65536");
        }
        if self.quantum > 1 << 20 {
            return Err("quantum must be at most 1048576 bytes");
        }
        if self.flows == 0 || self.depth == 0 {
            return Err("flows and depth must be at least 1");
        }
        if self.effective().0 < 2 {
            return Err("limit, and flows times depth, must be at least 2 packets");
        }
        let Some(red) = &self.red else {
            return Ok(());
        };
        if red.min == 0 || red.min >= red.max || red.max > u64::from(u32::MAX) {
            return Err("min must be above 0 and below max, and max below 4 GiB");
        }
        if red.avpkt == 0 {
            return Err("avpkt must be above 0");
        }
        if !(red.probability > 0.0 && red.probability <= 1.0) {
            return Err("probability must be above 0 and at most 1");
        }
        check_weight(red.min, red.burst, red.avpkt)
    }

    /// Effective limits: packets, flows, and packets of one flow. A given `limit` is bounded by the
    /// others and bounds the flows (`sfq_change`).
    fn effective(&self) -> (u32, u32, u32) {
        let depth = self.depth.min(MAX_DEPTH);
        let flows = self.flows.min(MAX_FLOWS).min(self.divisor);
        match self.limit {
            None => (MAX_DEPTH, flows, depth),
            Some(limit) => {
                let limit = limit.min(flows * depth);
                (limit, flows.min(limit), depth)
            }
        }
    }
}

/// State of a flow besides its packets.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    red: Vars,
    /// Serial number of its last change of length: of equally long flows, the one that changed last
    /// counts as the longest.
    changed: u64,
}

/// The `sfq` queue.
#[derive(Clone, Debug)]
pub struct Sfq<P> {
    params: Params,
    limit: u32,
    max_flows: u32,
    depth: u32,
    quantum: u32,
    law: Option<Law>,
    flows: Flows<P>,
    states: Vec<State>,
    /// Flows that have packets.
    active: u32,
    /// Number of changes of the flows' lengths so far.
    changes: u64,
    /// Key of the hash.
    key: u32,
    next_perturb: Instant,
    /// Holds the packets during a change of the hash; otherwise empty.
    moving: Vec<P>,
    marks: u64,
}

impl<P: Packet> Sfq<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        let (limit, max_flows, depth) = params.effective();
        let law = params.red.as_ref().map(|red| {
            let wlog = weight(red.min, red.burst, red.avpkt).unwrap_or(31);
            Law::new(red.min, red.max, wlog, red.probability)
        });
        Self {
            limit,
            max_flows,
            depth,
            quantum: params.quantum.max(256),
            law,
            flows: Flows::new(params.divisor),
            states: Vec::new(),
            active: 0,
            changes: 0,
            key: 0,
            next_perturb: match params.perturb {
                Duration::ZERO => NEVER,
                period => Instant::ZERO + period,
            },
            // Reserved so that perturbations do not allocate, except for the first one of a clone,
            // and for queues of more than `MAX_RESERVED` packets.
            moving: Vec::with_capacity(match params.perturb {
                Duration::ZERO => 0,
                _ => limit.min(MAX_RESERVED) as usize,
            }),
            marks: 0,
            params,
        }
    }

    #[inline]
    fn bucket(&self, packet: &P) -> u32 {
        rehash(packet.flow_hash(), self.key) & (self.params.divisor - 1)
    }

    /// Notes a change of the flow's length.
    #[inline]
    fn note_change(&mut self, flow: FlowId) {
        self.changes += 1;
        of_flow(&mut self.states, flow).changed = self.changes;
    }

    /// Appends a packet to its flow; an empty flow joins the end of the round.
    #[inline]
    fn append(&mut self, flow: FlowId, packet: P) -> &mut P {
        self.note_change(flow);
        if self.flows.get(flow).packets() == 0 {
            self.active += 1;
            self.flows.get_mut(flow).deficit = self.quantum.cast_signed();
            self.flows.move_to(flow, FlowList::Old);
        }
        self.flows.push(flow, packet)
    }

    /// Takes a packet from its flow, which leaves the round when it is empty.
    #[inline]
    fn take(&mut self, flow: FlowId, head: bool) -> Option<P> {
        let packet = match head {
            true => self.flows.pop(flow)?,
            false => {
                let last = self.flows.packets_in(flow).last()?.0;
                self.flows.remove(flow, last)
            }
        };
        self.note_change(flow);
        if self.flows.get(flow).packets() == 0 {
            self.active -= 1;
            self.flows.unlink(flow);
        }
        Some(packet)
    }

    /// Drops from the longest flow; if all have one packet, from the flow whose turn it is.
    #[cold]
    fn drop_one<D: Drops<P>>(&mut self, now: Instant, drops: &mut D) {
        let flows = self.flows.iter().zip(&self.states).enumerate();
        let longest = flows.max_by_key(|(_, (flow, state))| (flow.packets(), state.changed));
        let flow = match longest {
            Some((flow, (f, _))) if f.packets() > 1 => Some(num::count(flow)),
            _ => self.flows.first(FlowList::Old),
        };
        let packet = flow.and_then(|flow| self.take(flow, self.params.headdrop));
        if let Some(packet) = packet {
            drops.drop(now, packet, DropCause::Overflow);
        }
    }

    /// Changes the hash of all flows when due; packets that then find no room are dropped.
    #[inline]
    fn perturb<D: Drops<P>>(&mut self, now: Instant, rng: &mut Rng, drops: &mut D) {
        if now >= self.next_perturb {
            self.rehash(now, rng, drops);
        }
    }

    #[cold]
    fn rehash<D: Drops<P>>(&mut self, now: Instant, rng: &mut Rng, drops: &mut D) {
        let periods = (now - self.next_perturb) / self.params.perturb + 1;
        self.next_perturb += periods * self.params.perturb;
        let mut moving = std::mem::take(&mut self.moving);
        for flow in 0..num::count(self.flows.count()) {
            while let Some(packet) = self.take(flow, true) {
                moving.push(packet);
            }
        }
        self.key = rng.u32();
        for packet in moving.drain(..) {
            let bucket = self.bucket(&packet);
            let flow = self.flows.flow_of(bucket);
            let packets = self.flows.get(flow).packets();
            if packets >= self.depth || (packets == 0 && self.active >= self.max_flows) {
                drops.drop(now, packet, DropCause::Overflow);
                continue;
            }
            let backlog = self.flows.backlog(flow).into();
            let state = of_flow(&mut self.states, flow);
            if packets == 0 {
                state.red = Vars::default();
            }
            if let Some(law) = &self.law {
                state.red.update(law, backlog);
            }
            self.append(flow, packet);
        }
        self.moving = moving;
    }

    /// RED's decision on a packet for a flow that is not empty: the cause of a drop, or `None`.
    #[inline]
    fn red(&mut self, flow: FlowId, packet: &mut P, rng: &mut Rng) -> Option<DropCause> {
        let (law, red) = (self.law.as_ref()?, self.params.red.as_ref()?);
        let backlog = self.flows.backlog(flow).into();
        let vars = &mut of_flow(&mut self.states, flow).red;
        vars.update(law, backlog);
        let action = law.action(vars, rng);
        if action == Action::Pass {
            return None;
        }
        if red.ecn && !(action == Action::Hard && red.harddrop) {
            let head = self.flows.front_mut(flow).filter(|_| self.params.headdrop);
            if head.is_some_and(Packet::mark) || packet.mark() {
                self.marks += 1;
                return None;
            }
        }
        Some(match red.ecn {
            true => DropCause::Forced,
            false => DropCause::Early,
        })
    }
}

impl<P: Packet> Discipline<P> for Sfq<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, mut packet: P, rng: &mut Rng, drops: &mut D) {
        self.perturb(now, rng, drops);
        let flow = self.flows.flow_of(self.bucket(&packet));
        let packets = self.flows.get(flow).packets();
        if packets == 0 {
            if self.active >= self.max_flows {
                return drops.drop(now, packet, DropCause::Overflow);
            }
            of_flow(&mut self.states, flow).red = Vars::default();
        } else {
            let full = (packets >= self.depth).then_some(DropCause::Overflow);
            if let Some(cause) = self.red(flow, &mut packet, rng).or(full) {
                if !self.params.headdrop {
                    return drops.drop(now, packet, cause);
                }
                // The head makes room for the packet. The flow is as long as before, so this is not
                // a change of its length.
                if let Some(head) = self.flows.pop(flow) {
                    drops.drop(now, head, cause);
                }
                self.flows.push(flow, packet).set_enqueued(now);
                return;
            }
        }
        self.append(flow, packet).set_enqueued(now);
        if self.flows.len() > self.limit as usize {
            self.drop_one(now, drops);
        }
    }

    #[inline]
    fn dequeue<D: Drops<P>>(&mut self, now: Instant, rng: &mut Rng, drops: &mut D) -> Dequeued<P> {
        self.perturb(now, rng, drops);
        let Some(flow) = self.flows.next_turn(self.quantum) else {
            return Dequeued::Empty;
        };
        let Some(packet) = self.take(flow, true) else {
            return Dequeued::Empty;
        };
        self.flows.get_mut(flow).deficit -= packet.len().cast_signed();
        Dequeued::Packet(packet)
    }

    #[inline]
    fn len(&self) -> usize {
        self.flows.len()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.flows.bytes()
    }

    fn marks(&self) -> u64 {
        self.marks
    }

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.limit;
        gauges.head_age = self.flows.head_age(now);
        gauges.marks = self.marks;
    }

    fn flows(&self) -> Option<&Flows<P>> {
        Some(&self.flows)
    }

    fn sub_queue_of(&self, packet: &P) -> Option<usize> {
        let flow = self.flows.used(self.bucket(packet))?;
        Some(flow as usize)
    }
}

/// The longest period of `perturb`: what the kernel's timer takes at 1000 ticks a second.
pub const LONGEST_PERTURB: Duration = Duration::from_secs(i32::MAX as u64 / 1000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ecn;
    use crate::packet::TestPacket;
    use crate::time::SEC;

    struct Bed {
        q: Sfq<TestPacket>,
        rng: Rng,
        now: Instant,
        next: u64,
        dropped: Vec<(TestPacket, DropCause)>,
    }

    impl Bed {
        fn new(params: Params) -> Self {
            assert_eq!(params.check(), Ok(()));
            Self {
                q: Sfq::new(params),
                rng: Rng::new(1, "sfq"),
                now: Instant::ZERO,
                next: 0,
                dropped: Vec::new(),
            }
        }
        /// `n` packets of a flow.
        fn put_ecn(&mut self, flow: u32, n: u32, len: u32, ecn: Ecn) {
            for _ in 0..n {
                let packet = TestPacket::new(self.next, len, flow, ecn);
                self.next += 1;
                self.q
                    .enqueue(self.now, packet, &mut self.rng, &mut self.dropped);
            }
        }
        fn put(&mut self, flow: u32, n: u32) {
            self.put_ecn(flow, n, 1514, Ecn::NotEct);
        }
        fn take(&mut self) -> Option<TestPacket> {
            match self.q.dequeue(self.now, &mut self.rng, &mut self.dropped) {
                Dequeued::Packet(packet) => Some(packet),
                _ => None,
            }
        }
        fn flows(&mut self, n: usize) -> Vec<u32> {
            (0..n).map_while(|_| self.take()).map(|p| p.hash).collect()
        }
        fn lost(&self) -> Vec<u64> {
            self.dropped.iter().map(|(p, _)| p.id).collect()
        }
    }

    fn red() -> Red {
        Red {
            min: 8_000,
            max: 60_000,
            avpkt: 1000,
            burst: 25,
            probability: 0.2,
            ecn: false,
            harddrop: false,
        }
    }

    #[test]
    fn flows_are_served_in_turn_and_a_new_one_waits_for_all_others() {
        let mut bed = Bed::new(Params::default());
        bed.put(1, 3);
        bed.put(2, 3);
        assert_eq!(bed.flows(1), [1]);
        bed.put(3, 2);
        // Flow 1 has no credit left and goes to the end, behind flow 3.
        assert_eq!(bed.flows(7), [2, 3, 1, 2, 3, 1, 2]);
    }

    #[test]
    fn credit_counts_bytes() {
        let mut bed = Bed::new(Params {
            quantum: 1000,
            ..Params::default()
        });
        bed.put_ecn(1, 20, 500, Ecn::NotEct);
        bed.put_ecn(2, 20, 1000, Ecn::NotEct);
        let served = bed.flows(21);
        let of = |flow| served.iter().filter(|f| **f == flow).count();
        assert_eq!((of(1), of(2)), (14, 7));
    }

    #[test]
    fn a_full_queue_drops_the_last_packet_of_the_longest_flow() {
        let mut bed = Bed::new(Params {
            limit: Some(10),
            ..Params::default()
        });
        bed.put(1, 7);
        bed.put(2, 3);
        bed.put(3, 1);
        assert_eq!(bed.lost(), [6]);
        assert_eq!(bed.q.len(), 10);
    }

    #[test]
    fn of_equally_long_flows_the_one_that_changed_last_is_the_longest() {
        let mut bed = Bed::new(Params {
            limit: Some(6),
            ..Params::default()
        });
        bed.put(1, 3);
        bed.put(2, 3);
        bed.put(3, 1);
        assert_eq!(bed.lost(), [5]);
    }

    #[test]
    fn where_all_flows_have_one_packet_the_next_to_be_served_loses_it() {
        let mut bed = Bed::new(Params {
            limit: Some(3),
            flows: 128,
            ..Params::default()
        });
        // `limit` also bounds the number of flows: the fourth finds no place.
        for flow in 1..=4 {
            bed.put(flow, 1);
        }
        assert_eq!(bed.lost(), [3]);
        let mut bed = Bed::new(Params {
            depth: 1,
            ..Params::default()
        });
        for flow in 1..=200 {
            bed.put(flow, 1);
        }
        assert_eq!(bed.q.len(), 127);
        assert_eq!(bed.lost().iter().filter(|id| **id < 20).count(), 20);
    }

    #[test]
    fn a_flow_holds_depth_packets_and_drops_what_arrives_then() {
        let mut bed = Bed::new(Params {
            depth: 4,
            ..Params::default()
        });
        bed.put(1, 6);
        assert_eq!(bed.lost(), [4, 5]);
    }

    #[test]
    fn headdrop_drops_the_oldest_packet_of_a_flow() {
        let mut bed = Bed::new(Params {
            depth: 4,
            headdrop: true,
            limit: Some(6),
            ..Params::default()
        });
        bed.put(1, 6);
        assert_eq!(bed.lost(), [0, 1]);
        bed.put(2, 3);
        assert_eq!(bed.lost(), [0, 1, 2]);
    }

    #[test]
    fn a_given_limit_is_bounded_by_flows_and_depth() {
        let limit = |params: Params| Bed::new(params).q.limit;
        let of = |limit, flows, depth| Params {
            limit,
            flows,
            depth,
            ..Params::default()
        };
        assert_eq!(limit(of(None, 128, 127)), 127);
        assert_eq!(limit(of(Some(100_000), 128, 127)), 128 * 127);
        assert_eq!(limit(of(Some(1000), 10, 20)), 200);
        assert_eq!(
            of(Some(1000), 1, 1).check(),
            Err("limit, and flows times depth, must be at least 2 packets")
        );
        let wide = Params {
            divisor: 4,
            ..of(Some(1000), 100, 10)
        };
        assert_eq!(limit(wide), 40);
    }

    #[test]
    fn perturb_rehashes_flows_and_keeps_their_order() {
        let mut bed = Bed::new(Params {
            perturb: 10 * SEC,
            divisor: 2,
            flows: 2,
            depth: 127,
            limit: Some(200),
            ..Params::default()
        });
        for round in 0..10 {
            for flow in 0..4 {
                bed.put(flow, 1);
            }
            assert!(bed.q.len() == 4 * (round + 1));
        }
        let key = bed.q.key;
        bed.now = Instant::from_nanos((10 * SEC - Duration::from_nanos(1)).as_nanos());
        bed.take();
        assert_eq!(bed.q.key, key);
        bed.now = Instant::from_secs(35);
        let mut last = [0; 4];
        while let Some(packet) = bed.take() {
            assert!(packet.id >= last[packet.hash as usize]);
            last[packet.hash as usize] = packet.id;
        }
        assert_ne!(bed.q.key, key);
        assert_eq!(bed.q.next_perturb, Instant::from_secs(40));
        assert!(bed.dropped.is_empty());
    }

    #[test]
    fn perturb_drops_packets_without_a_place() {
        // Sixty flows have 64 buckets; with the new hash, more of them share a bucket, which holds
        // two packets.
        let mut bed = Bed::new(Params {
            perturb: SEC,
            divisor: 64,
            flows: 64,
            depth: 2,
            limit: Some(128),
            ..Params::default()
        });
        for flow in 0..60 {
            bed.put(flow, 2);
        }
        let (held, lost) = (bed.q.len(), bed.dropped.len());
        bed.now = Instant::from_secs(1);
        assert!(bed.take().is_some());
        assert!(bed.dropped.len() > lost);
        assert_eq!(bed.q.len() + 1 + bed.dropped.len() - lost, held);
    }

    #[test]
    fn red_drops_in_a_flow_whose_average_is_long_and_spares_others() {
        let mut bed = Bed::new(Params {
            limit: Some(3000),
            red: Some(red()),
            ..Params::default()
        });
        for _ in 0..3000 {
            bed.put(1, 1);
            bed.put(2, 1);
            bed.take();
            bed.take();
            if bed.q.flows.packets_of(0) < 30 {
                bed.put(1, 1);
            }
        }
        let early = bed.dropped.iter().filter(|(_, c)| *c == DropCause::Early);
        assert!(early.count() > 50);
        assert!(bed.dropped.iter().all(|(p, _)| p.hash == 1));
    }

    #[test]
    fn red_marks_with_ecn_and_with_headdrop_at_the_head() {
        let params = |headdrop| Params {
            limit: Some(3000),
            headdrop,
            red: Some(Red { ecn: true, ..red() }),
            ..Params::default()
        };
        for headdrop in [false, true] {
            let mut bed = Bed::new(params(headdrop));
            bed.put_ecn(1, 100, 1514, Ecn::Ect0);
            assert!(bed.dropped.is_empty() && bed.q.marks() > 0);
            let first = bed.take().map(|p| p.ecn);
            assert_eq!(first == Some(Ecn::Ce), headdrop);
        }
    }

    #[test]
    fn harddrop_drops_ect_above_max() {
        let with = |harddrop| {
            let mut bed = Bed::new(Params {
                limit: Some(3000),
                red: Some(Red {
                    ecn: true,
                    harddrop,
                    burst: 9,
                    ..red()
                }),
                ..Params::default()
            });
            for _ in 0..600 {
                bed.put_ecn(1, 1, 1514, Ecn::Ect0);
                if bed.q.len() > 60 {
                    bed.take();
                }
            }
            bed.dropped.len()
        };
        assert_eq!(with(false), 0);
        assert!(with(true) > 100);
    }
}
