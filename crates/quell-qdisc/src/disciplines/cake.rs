//! CAKE, best effort: a shaper without bursts, a set-associative flow hash, deficit round robin over sparse, bulk and
//! decaying flows, COBALT on each.
//!
//! Sources: Linux `net/sched/sch_cake.c`; T. Høiland-Jørgensen, D. Täht, J. Morton, "Piece of CAKE" (LANMAN 2018).
//! Deviations:
//! - one tin (`besteffort`), whatever the DSCP says; no `ack-filter`, `ingress` (nor the shaper's fail-safe, which
//!   acts only then), `autorate-ingress`, `wash`, `atm`, `nat`;
//! - flows are isolated, hosts are not (`flows`): a packet carries one hash. Linux's default, `triple-isolate`, equals it
//!   between two hosts, but for quanta that are cut by the number of bulk flows, more turns for the same shares;
//! - a flow's set is the list that it waits in; Linux also counts the sets, which only other tins and `ingress` read;
//! - the longest flow is found by a walk over the flows ever used, not by a heap;
//! - memory is each packet's length and [`PACKET_MEMORY`], which stands for `truesize`.

use crate::parts::flows::{FlowId, Flows, PACKET_MEMORY, Turn, of_flow};
use crate::{
    Admission, Discipline, DropCause, Drops, Gauges, Got, MS, MTU, Nanos, Packet, Rng, SEC, US,
    cobalt,
};

/// Queues (`CAKE_QUEUES`).
const QUEUES: u32 = 1024;
/// Queues that a hash may choose among (`CAKE_SET_WAYS`).
const WAYS: u32 = 8;
/// Memory by default is at least this, and without a rate as many full-size packets as below.
const MIN_MEMORY: u64 = 4 << 20;
const MAX_PACKETS: u64 = 10_240;
/// COBALT's arithmetic ends here: so does Linux's, which keeps the interval's lower 32 bits.
const MAX_INTERVAL: Nanos = 4 * SEC;

/// Parameters of [`Cake`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Rate, bit/s, at least 512 (default none: unlimited).
    pub bandwidth: Option<u64>,
    /// Whether packets are held back to `bandwidth` (default). If not, the link behind does that, and `bandwidth` only
    /// tunes target, interval, quantum and memory.
    pub shape: bool,
    /// Round trip time of the paths behind: COBALT's interval, 1 us to 4 s (default 100 ms).
    pub rtt: Nanos,
    /// COBALT's target (default a twentieth of `rtt`: 5 ms).
    pub target: Option<Nanos>,
    /// Bytes that the link adds to an IP packet, -64 to 256, in place of `header` (default none: packets count as they are).
    pub overhead: Option<i32>,
    /// A packet counts as at least this many bytes, up to 256 (default 0).
    pub mpu: u32,
    /// Link-layer bytes that [`Packet::len`] holds (default 14, Ethernet's).
    pub header: u32,
    /// Bytes of memory, at most 2^31; 0 for what suits `bandwidth` and `rtt` (default 0).
    pub memory_limit: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            bandwidth: None,
            shape: true,
            rtt: 100 * MS,
            target: None,
            overhead: None,
            mpu: 0,
            header: 14,
            memory_limit: 0,
        }
    }
}

impl Params {
    /// What is out of range, if anything.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.bandwidth.is_some_and(|b| b < 512) {
            return Err("bandwidth must be at least 512 bit/s");
        }
        if !(US..=MAX_INTERVAL).contains(&self.rtt) {
            return Err("rtt must be between 1us and 4s");
        }
        if self.target.is_some_and(|t| t > MAX_INTERVAL) {
            return Err("target must be at most 4s");
        }
        if self.overhead.is_some_and(|o| !(-64..=256).contains(&o)) {
            return Err("overhead must be -64 to 256 bytes");
        }
        if self.memory_limit > 1 << 31 {
            return Err("memory_limit must be at most 2147483648 bytes");
        }
        if self.mpu > 256 {
            return Err("mpu must be at most 256 bytes");
        }
        Ok(())
    }
}

/// What follows from the parameters (`cake_set_rate`, `cake_reconfigure`).
#[derive(Clone, Debug, PartialEq)]
struct Config {
    quantum: u32,
    cobalt: cobalt::Params,
    memory: u64,
    /// Time for one byte, in units of 2^-shift ns; 0 without a rate.
    byte_time: u64,
    shift: u32,
}

impl Config {
    fn new(params: &Params) -> Self {
        let rate = params.bandwidth.unwrap_or(0) / 8;
        let (byte_time, shift) = Self::byte_time(rate);
        let cobalt = cobalt::Params {
            target: params.target.unwrap_or(params.rtt / 20),
            interval: params.rtt,
            ..cobalt::Params::default()
        };
        let mut cobalt = cobalt.for_rate(params.bandwidth.unwrap_or(0));
        cobalt.interval = cobalt.interval.min(MAX_INTERVAL);
        let memory = match (params.memory_limit, rate) {
            (0, 0) => MAX_PACKETS * u64::from(MTU),
            (0, rate) => {
                // Four times the bandwidth-delay product.
                let four = u128::from(rate) * u128::from(params.rtt) * 4 / u128::from(SEC);
                (four as u64).clamp(MIN_MEMORY, MAX_PACKETS * u64::from(MTU))
            }
            (limit, _) => limit,
        };
        Self {
            quantum: if rate > 0 {
                (rate >> 12).clamp(300, 1514) as u32
            } else {
                1514
            },
            cobalt,
            memory,
            byte_time,
            shift,
        }
    }

    /// The time for one byte at this many bytes per second, and its shift: 34 bits at most, so that the product with a
    /// packet's length stays within 64.
    fn byte_time(rate: u64) -> (u64, u32) {
        let (mut shift, most) = (34, 1 << 34);
        let Some(mut time) = (SEC << shift).checked_div(rate) else {
            return (0, 0);
        };
        while time >= most {
            time >>= 1;
            shift -= 1;
        }
        (time, shift)
    }

    #[inline]
    fn time(&self, bytes: u32) -> Nanos {
        (u64::from(bytes) * self.byte_time) >> self.shift
    }
}

/// The queue.
#[derive(Clone, Debug)]
pub struct Cake<P> {
    params: Params,
    config: Config,
    flows: Flows<P>,
    /// Hash of the flow that last held each queue.
    tags: Vec<u32>,
    laws: Vec<cobalt::State>,
    /// When the shaper lets the next packet go.
    next: Nanos,
    marks: u64,
}

impl<P: Packet> Cake<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        Self {
            config: Config::new(&params),
            params,
            flows: Flows::new(QUEUES),
            tags: vec![0; QUEUES as usize],
            laws: Vec::new(),
            next: 0,
            marks: 0,
        }
    }

    /// Sets another rate (bit/s; `None`: unlimited), as `tc qdisc change` does; what is queued stays.
    pub fn set_bandwidth(&mut self, bandwidth: Option<u64>) {
        self.params.bandwidth = bandwidth;
        self.config = Config::new(&self.params);
    }

    #[inline]
    fn busy(&self, queue: u32) -> bool {
        self.flows
            .used(queue)
            .is_some_and(|f| self.flows.get(f).turn() != Turn::Off)
    }

    /// The queue of a flow: its own in a set of eight, else a resting one of the set, else, all being busy, the one that
    /// the hash names, shared.
    #[inline]
    fn classify(&mut self, hash: u32) -> FlowId {
        let direct = hash % QUEUES;
        let queue = if self.tags[direct as usize] == hash && self.busy(direct) {
            direct
        } else {
            self.search(hash, direct)
        };
        self.flows.flow_of(queue)
    }

    fn search(&mut self, hash: u32, direct: u32) -> u32 {
        let set = direct - direct % WAYS;
        let mut ways = (0..WAYS).map(|i| set + (direct + i) % WAYS);
        let queue = ways
            .clone()
            .find(|&queue| self.tags[queue as usize] == hash)
            .or_else(|| ways.find(|&queue| !self.busy(queue)))
            .unwrap_or(direct);
        self.tags[queue as usize] = hash;
        queue
    }

    /// Bytes of a packet at the shaper's rate.
    #[inline]
    fn size(&self, packet: &P) -> u32 {
        let len = match self.params.overhead {
            Some(overhead) => packet
                .len()
                .saturating_sub(self.params.header)
                .saturating_add_signed(overhead),
            None => packet.len(),
        };
        len.max(self.params.mpu)
    }

    #[inline]
    fn shaped(&self) -> bool {
        self.params.shape && self.config.byte_time > 0
    }

    /// Drops at the head of the longest flow and tells its COBALT.
    #[cold]
    fn drop_one<D: Drops<P>>(&mut self, now: Nanos, drops: &mut D) {
        let Some(longest) = self.flows.fattest() else {
            return;
        };
        if let Some(packet) = self.flows.pop(longest) {
            of_flow(&mut self.laws, longest).queue_full(&self.config.cobalt, now);
            drops.drop(now, packet, DropCause::Overflow);
        }
    }

    /// The flow to serve: first one that decays, so that each gets its turn, then new ones, then old ones.
    #[inline]
    fn next_flow(&self, first: bool) -> Option<FlowId> {
        let decaying = self.flows.first(Turn::Decaying);
        decaying
            .filter(|_| first)
            .or_else(|| self.flows.first(Turn::New))
            .or_else(|| self.flows.first(Turn::Old))
            .or(decaying)
    }

    /// The next packet of a flow that COBALT lets go; `None` once it is empty. A flow's last packet is never dropped.
    #[inline]
    fn take<D: Drops<P>>(
        &mut self,
        now: Nanos,
        flow: FlowId,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Option<P> {
        let law = of_flow(&mut self.laws, flow);
        loop {
            let mut packet = self.flows.pop(flow)?;
            let cause = law.should_drop(&self.config.cobalt, now, &mut packet, 0, rng);
            self.marks += u64::from(law.ecn_marked);
            match cause {
                Some(cause) if self.flows.get(flow).packets() > 0 => drops.drop(now, packet, cause),
                _ => return Some(packet),
            }
        }
    }

    /// An empty flow stays known until its COBALT has come to rest.
    fn found_empty(&mut self, now: Nanos, flow: FlowId) {
        let law = of_flow(&mut self.laws, flow);
        law.queue_empty(&self.config.cobalt, now);
        let rests = law.p_drop == 0 && law.count == 0 && law.drop_next <= now;
        let turn = if rests { Turn::Off } else { Turn::Decaying };
        self.flows.move_to(flow, turn);
    }

    /// Charges a packet to its flow and the shaper.
    #[inline]
    fn charge(&mut self, flow: FlowId, packet: &P) {
        let size = self.size(packet);
        self.flows.get_mut(flow).deficit -= size as i32;
        if self.shaped() {
            self.next += self.config.time(size);
        }
    }
}

impl<P: Packet> Discipline<P> for Cake<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Nanos, packet: P, _rng: &mut Rng, drops: &mut D) {
        // Time that passed with nothing queued is no credit; a debt of the last packet is still to be paid.
        if self.flows.is_empty() && self.next < now {
            self.next = now;
        }
        let flow = self.classify(packet.flow_hash());
        self.flows.push(flow, packet).set_enqueued(now);
        let f = self.flows.get_mut(flow);
        if matches!(f.turn(), Turn::Off | Turn::Decaying) {
            f.deficit = self.config.quantum as i32;
            self.flows.move_to(flow, Turn::New);
        }
        while self.flows.memory() > self.config.memory {
            self.drop_one(now, drops);
        }
    }

    #[inline]
    fn dequeue<D: Drops<P>>(&mut self, now: Nanos, rng: &mut Rng, drops: &mut D) -> Got<P> {
        if self.flows.is_empty() {
            return Got::Empty;
        }
        if self.shaped() && self.next > now {
            return Got::NotBefore(self.next);
        }
        let mut first = true;
        while let Some(flow) = self.next_flow(first) {
            first = false;
            let f = self.flows.get_mut(flow);
            if f.deficit <= 0 {
                f.deficit += self.config.quantum as i32;
                self.flows.move_to(flow, Turn::Old);
                continue;
            }
            match self.take(now, flow, rng, drops) {
                Some(packet) => {
                    self.charge(flow, &packet);
                    return Got::Packet(packet);
                }
                None => self.found_empty(now, flow),
            }
        }
        Got::Empty
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

    fn flows(&self) -> Option<&Flows<P>> {
        Some(&self.flows)
    }

    fn sub_queue_of(&self, packet: &P) -> Option<usize> {
        let hash = packet.flow_hash();
        let set = hash % QUEUES - hash % QUEUES % WAYS;
        let queue = (set..set + WAYS).find(|&queue| self.tags[queue as usize] == hash)?;
        self.flows.used(queue).map(|flow| flow as usize)
    }

    fn admit(&mut self, _now: Nanos, packet: &P) -> Option<Admission> {
        let known = self.sub_queue_of(packet).is_some();
        Some(Admission {
            sub_queue: self.classify(packet.flow_hash()) as usize,
            fresh: !known,
        })
    }

    /// `limit_packets` is what memory holds of full-size packets.
    fn gauges(&self, now: Nanos, gauges: &mut Gauges) {
        let packets = self.config.memory / (u64::from(MTU) + PACKET_MEMORY);
        gauges.limit_packets = packets.min(u64::from(u32::MAX)) as u32;
        gauges.head_age = self.flows.head_age(now);
        gauges.marks = self.marks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Ecn, TestPacket};

    type Dropped = Vec<(TestPacket, DropCause)>;

    fn rng() -> Rng {
        Rng::new(1, "cake")
    }

    fn cake(bandwidth: Option<u64>) -> Cake<TestPacket> {
        Cake::new(Params {
            bandwidth,
            ..Params::default()
        })
    }

    fn put_ecn(
        q: &mut Cake<TestPacket>,
        now: Nanos,
        hash: u32,
        n: u64,
        len: u32,
        ecn: Ecn,
    ) -> Dropped {
        let mut drops = Vec::new();
        for id in 0..n {
            let packet = TestPacket::new(id, len, hash, ecn);
            q.enqueue(now, packet, &mut rng(), &mut drops);
        }
        drops
    }

    fn put(q: &mut Cake<TestPacket>, now: Nanos, hash: u32, n: u64, len: u32) -> Dropped {
        put_ecn(q, now, hash, n, len, Ecn::NotEct)
    }

    fn take(q: &mut Cake<TestPacket>, now: Nanos, drops: &mut Dropped) -> TestPacket {
        match q.dequeue(now, &mut rng(), drops) {
            Got::Packet(p) => p,
            other => panic!("{other:?}"),
        }
    }

    fn order(q: &mut Cake<TestPacket>, n: usize) -> Vec<u32> {
        let hash = |_| take(q, 0, &mut Vec::new()).hash;
        (0..n).map(hash).collect()
    }

    #[test]
    fn a_slow_rate_stretches_target_and_interval_and_shrinks_the_quantum() {
        // 1 Mbit/s: a full-size packet takes 12.112 ms, the target is 1.5 of that.
        let c = cake(Some(1_000_000)).config;
        assert_eq!(c.cobalt.target, 18_168_000);
        assert_eq!(c.cobalt.interval, 113_168_000);
        assert_eq!(c.quantum, 300);
        // 10 Mbit/s: as by default; 1.25 MB/s >> 12 = 305.
        let c = cake(Some(10_000_000)).config;
        assert_eq!((c.cobalt.target, c.cobalt.interval), (5 * MS, 100 * MS));
        assert_eq!(c.quantum, 305);
        let c = cake(None).config;
        assert_eq!((c.quantum, c.cobalt.mtu_time), (1514, 0));
        // 100 kbit/s: twice the target is longer than what the rtt gives.
        let c = cake(Some(100_000)).config;
        assert_eq!(c.cobalt.target, 181_680_000);
        assert_eq!(c.cobalt.interval, 363_360_000);
    }

    #[test]
    fn memory_is_four_bandwidth_delay_products_between_4_mib_and_10240_packets() {
        assert_eq!(cake(Some(10_000_000)).config.memory, 4 << 20);
        // 125 MB/s for 100 ms is 12.5 MB; four times that is more than 10240 * 1514.
        assert_eq!(cake(Some(1_000_000_000)).config.memory, 15_503_360);
        assert_eq!(cake(Some(200_000_000)).config.memory, 10_000_000);
        assert_eq!(cake(None).config.memory, 15_503_360);
        let set = Params {
            memory_limit: 1 << 20,
            ..Params::default()
        };
        assert_eq!(Config::new(&set).memory, 1 << 20);
    }

    #[test]
    fn the_shaper_spaces_packets_exactly_and_without_a_burst() {
        // 12.112 Mbit/s: a packet of 1514 bytes each millisecond.
        let mut q = cake(Some(12_112_000));
        put(&mut q, 0, 1, 4, 1514);
        let mut now = 0;
        let mut times = Vec::new();
        while times.len() < 4 {
            match q.dequeue(now, &mut rng(), &mut Vec::new()) {
                Got::Packet(_) => times.push(now),
                Got::NotBefore(time) => now = time,
                Got::Empty => unreachable!(),
            }
        }
        for (i, time) in times.iter().enumerate() {
            // Fixed point loses less than a nanosecond per packet.
            assert!(time.abs_diff(i as u64 * MS) <= 4, "{times:?}");
        }
    }

    #[test]
    fn an_idle_shaper_saves_no_credit_and_keeps_its_debt() {
        let mut q = cake(Some(12_112_000));
        put(&mut q, 0, 1, 1, 1514);
        take(&mut q, 0, &mut Vec::new());
        // The debt of the first packet runs until 1 ms though the queue was empty in between ...
        put(&mut q, MS / 2, 1, 1, 1514);
        let got = q.dequeue(MS / 2, &mut rng(), &mut Vec::new());
        assert!(
            matches!(got, Got::NotBefore(t) if t.abs_diff(MS) <= 1),
            "{got:?}"
        );
        take(&mut q, MS, &mut Vec::new());
        // ... and ten idle milliseconds are worth nothing.
        put(&mut q, 12 * MS, 1, 2, 1514);
        take(&mut q, 12 * MS, &mut Vec::new());
        let got = q.dequeue(12 * MS, &mut rng(), &mut Vec::new());
        assert!(matches!(got, Got::NotBefore(_)), "{got:?}");
    }

    #[test]
    fn a_late_caller_gets_what_the_schedule_owes() {
        // Deficit mode: a driver that comes 3 ms late finds three more packets due, not one.
        let mut q = cake(Some(12_112_000));
        put(&mut q, 0, 1, 9, 1514);
        take(&mut q, 0, &mut Vec::new());
        let mut out = 0;
        while let Got::Packet(_) = q.dequeue(4 * MS, &mut rng(), &mut Vec::new()) {
            out += 1;
        }
        assert_eq!(out, 4);
    }

    #[test]
    fn a_link_that_shapes_leaves_cake_only_to_tune() {
        let mut q = Cake::new(Params {
            bandwidth: Some(1_000_000),
            shape: false,
            ..Params::default()
        });
        put(&mut q, 0, 1, 5, 1514);
        assert_eq!(order(&mut q, 5).len(), 5);
        assert_eq!(q.config.cobalt.target, 18_168_000);
    }

    #[test]
    fn overhead_replaces_the_header_and_mpu_is_the_least() {
        let q = Cake::new(Params {
            overhead: Some(44),
            mpu: 96,
            ..Params::default()
        });
        let size = |len| q.size(&TestPacket::new(0, len, 0, Ecn::NotEct));
        assert_eq!((size(1514), size(54)), (1544, 96));
        let plain = cake(None);
        assert_eq!(plain.size(&TestPacket::new(0, 54, 0, Ecn::NotEct)), 54);
    }

    #[test]
    fn eight_flows_of_one_set_do_not_collide_and_a_ninth_does() {
        let mut q = cake(None);
        // All hash to the same queue: hash % 1024 = 5.
        for i in 0..9 {
            put(&mut q, 0, 5 + 1024 * i, 1, 100);
        }
        assert_eq!(q.flows.iter().count(), 8);
        assert!(q.flows.iter().all(|f| f.packets() >= 1));
        // The ninth shares the queue that its hash names, 5, which came first.
        assert_eq!(q.flows.get(0).packets(), 2);
    }

    #[test]
    fn a_flow_finds_its_queue_again() {
        let mut q = cake(None);
        put(&mut q, 0, 5, 1, 100);
        put(&mut q, 0, 5 + 1024, 2, 100);
        put(&mut q, 0, 5, 1, 100);
        let packets: Vec<u32> = q.flows.iter().map(|f| f.packets()).collect();
        assert_eq!(packets, [2, 2]);
    }

    #[test]
    fn sparse_flows_go_before_bulk_ones() {
        let mut q = cake(None);
        put(&mut q, 0, 1, 10, 1514);
        put(&mut q, 0, 2, 10, 1514);
        assert_eq!(order(&mut q, 4), [1, 2, 1, 2]);
        put(&mut q, 0, 3, 1, 100);
        assert_eq!(order(&mut q, 2), [3, 1]);
    }

    #[test]
    fn a_quantum_of_less_than_a_packet_gives_equal_shares() {
        // Quantum 305 at 10 Mbit/s; flow 1 sends packets of 1514, flow 2 of 500 bytes.
        let mut q = Cake::new(Params {
            bandwidth: Some(10_000_000),
            shape: false,
            ..Params::default()
        });
        put(&mut q, 0, 1, 200, 1514);
        put(&mut q, 0, 2, 600, 500);
        let mut sent = [0i64; 3];
        for _ in 0..400 {
            let p = take(&mut q, 0, &mut Vec::new());
            sent[p.hash as usize] += i64::from(p.len);
            assert!((sent[1] - sent[2]).abs() <= 1514 + 500 + 305, "{sent:?}");
        }
    }

    #[test]
    fn overflow_drops_at_the_head_of_the_longest_flow_one_by_one() {
        // Ten packets of 1514 + 790 bytes fit.
        let mut q = Cake::new(Params {
            memory_limit: 23_040,
            ..Params::default()
        });
        assert!(put(&mut q, 0, 1, 8, 1514).is_empty());
        assert!(put(&mut q, 0, 2, 2, 1514).is_empty());
        let drops = put(&mut q, 0, 3, 1, 1514);
        assert_eq!(drops.len(), 1);
        let (packet, cause) = drops[0];
        assert_eq!((packet.hash, packet.id), (1, 0));
        assert_eq!(cause, DropCause::Overflow);
    }

    #[test]
    fn overflow_wakes_blue_of_the_longest_flow_only() {
        let mut q = Cake::new(Params {
            memory_limit: 23_040,
            ..Params::default()
        });
        put(&mut q, 10 * MS, 1, 12, 1514);
        put(&mut q, 10 * MS, 2, 1, 100);
        let p_drop: Vec<u32> = q.laws.iter().map(|l| l.p_drop).collect();
        // One step of 1/256 however many drops: the next comes a target later.
        assert_eq!(p_drop, [1 << 24]);
    }

    #[test]
    fn cobalt_acts_per_flow() {
        // A overloads the link and is dropped from; B's packets go through at once.
        let mut q = cake(None);
        let mut drops = Vec::new();
        put(&mut q, 0, 1, 1500, 1514);
        for i in 0..600 {
            let now = i * 5 * MS;
            put(&mut q, now, 2, 1, 200);
            while take(&mut q, now, &mut drops).hash != 2 {}
        }
        assert!(drops.len() > 5 && drops.iter().all(|(p, _)| p.hash == 1));
    }

    #[test]
    fn ecn_capable_packets_are_marked_and_others_dropped() {
        for (ecn, marked) in [(Ecn::Ect0, true), (Ecn::NotEct, false)] {
            let mut q = cake(None);
            put_ecn(&mut q, 0, 1, 500, 1514, ecn);
            let (mut drops, mut marks) = (Vec::new(), 0);
            for i in 0..200 {
                let p = take(&mut q, 10 * MS + i * 5 * MS, &mut drops);
                marks += u64::from(p.ecn == Ecn::Ce);
            }
            assert_eq!(q.marks(), marks);
            assert_eq!((marks > 0, drops.is_empty()), (marked, marked));
        }
    }

    #[test]
    fn the_last_packet_of_a_flow_is_never_dropped() {
        let mut q = cake(None);
        put(&mut q, 0, 1, 1, 1514);
        let law = of_flow(&mut q.laws, 0);
        law.p_drop = u32::MAX;
        assert_eq!(take(&mut q, MS, &mut Vec::new()).hash, 1);
    }

    #[test]
    fn an_emptied_flow_decays_before_it_is_forgotten() {
        let mut q = cake(None);
        put(&mut q, 0, 2, 100, 100);
        put(&mut q, 0, 1, 1, 100);
        of_flow(&mut q.laws, 1).count = 3;
        // Served as new flows: 2 up to its quantum, then 1, which the next call finds empty with a count still up.
        let mut now = 0;
        while take(&mut q, now, &mut Vec::new()).hash != 1 {}
        take(&mut q, now, &mut Vec::new());
        assert_eq!(q.flows.get(1).turn(), Turn::Decaying);
        // One look per dequeue takes the count down, then it leaves.
        for _ in 0..40 {
            now += 50 * MS;
            put(&mut q, now, 2, 1, 100);
            take(&mut q, now, &mut Vec::new());
        }
        assert_eq!((q.laws[1].count, q.flows.get(1).turn()), (0, Turn::Off));
    }

    #[test]
    fn a_decaying_flow_that_gets_a_packet_is_sparse_again() {
        let mut q = cake(None);
        put(&mut q, 0, 2, 100, 100);
        put(&mut q, 0, 1, 1, 100);
        of_flow(&mut q.laws, 1).count = 3;
        while take(&mut q, 0, &mut Vec::new()).hash != 1 {}
        take(&mut q, 0, &mut Vec::new());
        put(&mut q, 0, 1, 1, 100);
        assert_eq!(q.flows.get(1).turn(), Turn::New);
        assert_eq!(take(&mut q, 0, &mut Vec::new()).hash, 1);
    }
}
