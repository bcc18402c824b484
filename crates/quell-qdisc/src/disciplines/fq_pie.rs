//! FQ-PIE: deficit round robin over flows, each with a PIE of its own.
//!
//! Source: Linux `net/sched/sch_fq_pie.c` (RFC 8033 for the law). Deviations:
//! - `memory_limit` is enforced, as tc-fq_pie(8) promises; Linux only counts the arrivals beyond
//!   it. Memory is each packet's length plus [`PACKET_MEMORY`](crate::parts::flows::PACKET_MEMORY),
//!   instead of `truesize`;
//! - the timer updates only flows that were ever used: an update does not change an unused flow. It
//!   updates all at once; Linux updates 2048 at a time, with no time in between.

use crate::parts::flows::{FlowList, Flows, of_flow};
use crate::time::Instant;
use crate::{
    Admission, Dequeued, Discipline, DropCause, Drops, Gauges, KnobSet, Knobs, MTU, Packet, Rng,
    pie,
};

/// Parameters of [`FqPie`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Packets in the whole queue (default 10240, at least 1).
    pub limit: u32,
    /// Buckets, 1 to 65536 (default 1024).
    pub flows: u32,
    /// Bytes per flow and round, 1 to 2^20 (default 1514, one full-size packet).
    pub quantum: u32,
    /// Bytes of memory in the whole queue, at most 2^31 (default 32 MiB).
    pub memory_limit: u64,
    /// PIE's parameters (default: ECN off, `ecn_prob` 10 %); their `limit` is not used.
    pub pie: pie::Params,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            limit: 10_240,
            flows: 1024,
            quantum: MTU,
            memory_limit: 32 << 20,
            pie: pie::Params::default(),
        }
    }
}

impl Params {
    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.limit == 0 {
            return Err("limit must be at least 1 packet");
        }
        if self.flows == 0 || self.flows > 65_536 {
            return Err("flows must be 1 to 65536");
        }
        if self.quantum == 0 || self.quantum > 1 << 20 {
            return Err("quantum must be 1 to 1048576 bytes");
        }
        if self.memory_limit > 1 << 31 {
            return Err("memory_limit must be at most 2147483648 bytes");
        }
        self.pie.check()
    }
}

/// The `fq_pie` queue.
#[derive(Clone, Debug)]
pub struct FqPie<P> {
    params: Params,
    flows: Flows<P>,
    laws: Vec<pie::Vars>,
    marks: u64,
    next_update: Instant,
}

impl<P: Packet> FqPie<P> {
    /// An empty queue, created at time 0.
    pub fn new(params: Params) -> Self {
        Self::starting_at(params, Instant::ZERO)
    }

    /// An empty queue, created at `start`: its first update is half a second later.
    pub fn starting_at(params: Params, start: Instant) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        Self {
            flows: Flows::new(params.flows),
            laws: Vec::new(),
            params,
            marks: 0,
            next_update: start + pie::FIRST_UPDATE,
        }
    }

    #[inline]
    fn full(&self, packet: &P) -> bool {
        self.flows.len() >= self.params.limit as usize
            || self.flows.memory_with(packet) > self.params.memory_limit
    }
}

impl<P: Packet> Discipline<P> for FqPie<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, mut packet: P, rng: &mut Rng, drops: &mut D) {
        let bucket = self.flows.scale(packet.flow_hash());
        let flow = self.flows.flow_of(bucket);
        let full = self.full(&packet);
        let law = of_flow(&mut self.laws, flow);
        if full {
            law.accu_prob = 0;
            return drops.drop(now, packet, DropCause::Overflow);
        }
        let backlog = u64::from(self.flows.backlog(flow));
        if law.drop_early(&self.params.pie, backlog, packet.len(), rng) {
            if !(law.may_mark(&self.params.pie) && packet.mark()) {
                law.accu_prob = 0;
                let cause = if self.params.pie.ecn {
                    DropCause::Forced
                } else {
                    DropCause::Early
                };
                return drops.drop(now, packet, cause);
            }
            self.marks += 1;
        }
        self.flows.push(flow, packet).set_enqueued(now);
        self.flows.activate(flow, self.params.quantum);
    }

    #[inline]
    fn dequeue<D: Drops<P>>(
        &mut self,
        now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Dequeued<P> {
        while let Some(flow) = self.flows.next_turn(self.params.quantum) {
            let Some(packet) = self.flows.pop(flow) else {
                self.flows.found_empty(flow);
                continue;
            };
            self.flows.get_mut(flow).deficit -= packet.len().cast_signed();
            let backlog = u64::from(self.flows.backlog(flow));
            of_flow(&mut self.laws, flow).process_dequeue(
                &self.params.pie,
                now,
                packet.enqueued(),
                packet.len(),
                backlog,
            );
            return Dequeued::Packet(packet);
        }
        Dequeued::Empty
    }

    #[inline]
    fn next_timer(&self) -> Instant {
        self.next_update
    }

    fn on_timer(&mut self, now: Instant) {
        for (law, &backlog) in self.laws.iter_mut().zip(self.flows.backlogs()) {
            law.calculate_probability(&self.params.pie, u64::from(backlog));
        }
        self.next_update = now + self.params.pie.tupdate;
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

    /// `probability` is the highest of the flows in the round robin.
    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        gauges.head_age = self.flows.head_age(now);
        gauges.marks = self.marks;
        gauges.probability = self
            .laws
            .iter()
            .zip(self.flows.iter())
            .filter(|(_, flow)| flow.list() != FlowList::Off)
            .map(|(law, _)| law.probability())
            .fold(0.0, f64::max);
    }

    fn flows(&self) -> Option<&Flows<P>> {
        Some(&self.flows)
    }

    fn admit(&mut self, _now: Instant, packet: &P) -> Option<Admission> {
        Some(self.flows.admit(self.flows.scale(packet.flow_hash())))
    }

    fn knobs(&self) -> KnobSet {
        KnobSet::LIMIT
    }

    fn set_knobs(&mut self, knobs: &Knobs) {
        if let Some(limit) = knobs.limit_packets {
            self.params.limit = limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Ecn, TestPacket};
    use crate::time::{MS, SEC};

    type Dropped = Vec<(TestPacket, DropCause)>;
    /// Hashes of one bucket each: bucket = hash * 1024 >> 32.
    const A: u32 = 1 << 22;
    const B: u32 = 2 << 22;

    fn put(
        q: &mut FqPie<TestPacket>,
        now: Instant,
        hash: u32,
        n: u64,
        ecn: Ecn,
        rng: &mut Rng,
    ) -> Dropped {
        let mut drops = Vec::new();
        for id in 0..n {
            q.enqueue(now, TestPacket::new(id, 1514, hash, ecn), rng, &mut drops);
        }
        drops
    }

    fn take(q: &mut FqPie<TestPacket>, now: Instant) -> Option<TestPacket> {
        match q.dequeue(now, &mut Rng::new(0, ""), &mut Vec::new()) {
            Dequeued::Packet(p) => Some(p),
            _ => None,
        }
    }

    /// For `ms` milliseconds: one packet leaves per millisecond, A offers two and B a tenth of one,
    /// timers run. Ends once a flow's probability is above `most`. Returns the dropped packets.
    fn overload(q: &mut FqPie<TestPacket>, ms: u64, ecn: Ecn, most: f64) -> Dropped {
        let mut rng = Rng::new(3, "fq_pie");
        let mut drops = Vec::new();
        for t in 0..ms {
            let now = Instant::from_millis(t);
            while q.next_timer() <= now {
                q.on_timer(q.next_timer());
            }
            if q.laws.iter().any(|l| l.probability() > most) {
                break;
            }
            drops.extend(put(q, now, A, 2, ecn, &mut rng));
            if t % 10 == 0 {
                drops.extend(put(q, now, B, 1, ecn, &mut rng));
            }
            take(q, now);
        }
        drops
    }

    #[test]
    fn defaults_are_those_of_linux_with_ecn_off() {
        let p = Params::default();
        assert_eq!((p.flows, p.limit, p.quantum), (1024, 10_240, 1514));
        assert_eq!(p.memory_limit, 33_554_432);
        assert_eq!((p.pie.ecn, p.pie.ecn_prob), (false, 10));
        assert_eq!(p.check(), Ok(()));
    }

    #[test]
    fn the_first_update_is_half_a_second_after_creation() {
        let mut q: FqPie<TestPacket> = FqPie::starting_at(Params::default(), Instant::from_secs(1));
        assert_eq!(q.next_timer(), Instant::ZERO + SEC + 500 * MS);
        q.on_timer(q.next_timer());
        assert_eq!(q.next_timer(), Instant::ZERO + SEC + 515 * MS);
    }

    #[test]
    fn each_flow_has_a_pie_of_its_own() {
        let mut q = FqPie::new(Params::default());
        let drops = overload(&mut q, 5000, Ecn::NotEct, 1.0);
        assert!(drops.len() > 100, "{}", drops.len());
        assert!(drops.iter().all(|(p, _)| p.hash == A));
        assert!(q.laws.first().is_some_and(|l| l.prob > 0));
        assert!(q.laws.get(1).is_some_and(|l| l.prob == 0));
    }

    #[test]
    fn drops_happen_at_enqueue_and_are_early() {
        let mut q = FqPie::new(Params::default());
        let drops = overload(&mut q, 5000, Ecn::NotEct, 1.0);
        assert!(drops.iter().all(|(_, c)| *c == DropCause::Early));
        let mut late = Vec::new();
        while let Dequeued::Packet(_) =
            q.dequeue(Instant::from_secs(6), &mut Rng::new(0, ""), &mut late)
        {}
        assert!(late.is_empty());
    }

    #[test]
    fn a_full_queue_drops_the_arriving_packet_even_of_a_thin_flow() {
        let mut q = FqPie::new(Params {
            limit: 100,
            ..Params::default()
        });
        let mut rng = Rng::new(1, "");
        put(&mut q, Instant::ZERO, A, 100, Ecn::NotEct, &mut rng);
        q.flow_law(B).accu_prob = 7;
        let drops = put(&mut q, Instant::ZERO, B, 1, Ecn::NotEct, &mut rng);
        assert_eq!(drops.len(), 1);
        assert_eq!((drops[0].0.hash, drops[0].1), (B, DropCause::Overflow));
        // The drop path also clears that flow's accumulator (`out:` of fq_pie_qdisc_enqueue).
        assert_eq!(q.flow_law(B).accu_prob, 0);
    }

    #[test]
    fn memory_is_limited_too() {
        // Ten packets of 1514 + 790 bytes.
        let mut q = FqPie::new(Params {
            memory_limit: 23_040,
            ..Params::default()
        });
        let drops = put(
            &mut q,
            Instant::ZERO,
            A,
            11,
            Ecn::NotEct,
            &mut Rng::new(1, ""),
        );
        assert_eq!((q.len(), drops.len()), (10, 1));
    }

    #[test]
    fn ecn_marks_up_to_ecn_prob_and_drops_above() {
        let ecn = Params {
            pie: pie::Params {
                ecn: true,
                ..pie::Params::default()
            },
            ..Params::default()
        };
        let mut q = FqPie::new(ecn.clone());
        let drops = overload(&mut q, 5000, Ecn::Ect0, 0.1);
        assert!(drops.is_empty() && q.marks() > 0);
        let drops = overload(&mut FqPie::new(ecn), 5000, Ecn::Ect0, 1.0);
        assert!(!drops.is_empty());
        assert!(drops.iter().all(|(_, c)| *c == DropCause::Forced));
        // ECN is off by default, so nothing is marked.
        let mut q = FqPie::new(Params::default());
        let drops = overload(&mut q, 5000, Ecn::Ect0, 1.0);
        assert!(!drops.is_empty() && q.marks() == 0);
    }

    #[test]
    fn flows_take_turns_a_quantum_each() {
        let mut q = FqPie::new(Params::default());
        let mut rng = Rng::new(1, "");
        put(&mut q, Instant::ZERO, A, 5, Ecn::NotEct, &mut rng);
        put(&mut q, Instant::ZERO, B, 5, Ecn::NotEct, &mut rng);
        let order: Vec<u32> = (0..4)
            .filter_map(|_| take(&mut q, Instant::ZERO))
            .map(|p| p.hash >> 22)
            .collect();
        assert_eq!(order, [1, 2, 1, 2]);
    }

    #[test]
    fn the_timer_leaves_an_unused_flow_as_it_was_created() {
        let mut law = pie::Vars::default();
        for _ in 0..100 {
            law.calculate_probability(&pie::Params::default(), 0);
        }
        assert_eq!(law, pie::Vars::default());
    }

    impl FqPie<TestPacket> {
        fn flow_law(&mut self, hash: u32) -> &mut pie::Vars {
            let bucket = self.flows.scale(hash);
            let flow = self.flows.flow_of(bucket);
            of_flow(&mut self.laws, flow)
        }
    }
}
