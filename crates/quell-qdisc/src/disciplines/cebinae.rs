//! Cebinae: on a saturated link the flows that send most are taxed, so that the others can grow,
//! with state for two groups of flows in place of one queue per flow.
//!
//! Sources: Yu, Sonchack and Liu, "Cebinae: Scalable In-network Fairness Augmentation" (SIGCOMM
//! 2022); the authors' model for ns-3.35, github.com/eniac/Cebinae (commit cebcbdb),
//! `ns/src/traffic-control/model/cebinae-queue-disc.{h,cc}`.
//!
//! The top flows, which are taxed, form one group, and all other flows the other (bottom). Time is
//! divided into rounds of `dt`. Each group has a leaky bucket with a rate for the current round and
//! one for the next: packets that fit the current round join the head queue, packets that fit the
//! next join the tail queue, and the rest is dropped. At a round's end the queues change roles.
//! Every `p` rounds the top flows and both rates are chosen again.
//!
//! In the model a bucket also counts dropped packets, so an unresponsive flow that sends more than
//! the link carries permanently blocks its whole group. Here dropped packets count only with
//! `count_drops`. Further deviations:
//! - the model recognises acknowledgements and does not count them; here a flow is its hash, as in
//!   a switch;
//! - lengths include the link layer's bytes, because they are compared with the link's rate;
//! - the changes at the end of a round are made when the next packet arrives or leaves, each with
//!   its own time; this has no visible effect;
//! - a slot of the flow table identifies its flow by the 32-bit hash; in the model, by a flow
//!   number.

use crate::num;
use crate::parts::hash::rehash;
use crate::parts::ring::Ring;
use crate::rate::Rate;
use crate::time::{Duration, Instant, SEC};
use crate::{Dequeued, Discipline, DropCause, Drops, Gauges, MTU, Packet, Rng};

/// Slots of each of the two stages of the flow table (the model's 2^11).
const SLOTS: usize = 2048;
/// Key of the second stage's hash (arbitrary).
const STAGE_2: u32 = 2022;

/// Parameters, named as in the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Packets in both queues (default 1000).
    pub limit: u32,
    /// The link's rate (default 10 Mbit/s).
    pub rate: Rate,
    /// Length of a round (default: [`Params::round_for`] the default limit and rate).
    pub dt: Duration,
    /// Step of the buckets' clock (default 1024 ns).
    pub vdt: Duration,
    /// Time before a round's end at which the next rates are computed and the tail queue becomes
    /// the one served first (default 65.536 us).
    pub l: Duration,
    /// Rounds from one choice of top flows to the next (default 1).
    pub p: u32,
    /// The tax: share by which the top flows' rate is cut, 0..1 (default 0.05).
    pub tau: f64,
    /// The link is saturated if it has sent more than 1 - `delta_port` of its capacity, 0..1
    /// (default 0.05).
    pub delta_port: f64,
    /// Top flows sent more than 1 - `delta_flow` of what the largest flow sent, 0..1 (default
    /// 0.05).
    pub delta_flow: f64,
    /// Buckets also count the packets that are dropped, as in the authors' model (default off).
    pub count_drops: bool,
    /// Each queue may hold up to `limit` packets as long as both together do not exceed it;
    /// otherwise each may hold half of `limit` (default off).
    pub pool: bool,
}

impl Default for Params {
    fn default() -> Self {
        let (limit, rate) = (1000, Rate::from_mbit(10));
        let (vdt, l) = (Duration::from_nanos(1024), Duration::from_nanos(65_536));
        Self {
            limit,
            rate,
            dt: Self::round_for(limit, rate, vdt + l),
            vdt,
            l,
            p: 1,
            tau: 0.05,
            delta_port: 0.05,
            delta_flow: 0.05,
            count_drops: false,
            pool: false,
        }
    }
}

impl Params {
    /// The shortest round.
    pub const SHORTEST: Duration = Duration::from_micros(100);
    /// The longest round.
    pub const LONGEST: Duration = Duration::from_secs(100);

    /// The smallest power of two, in ns, that is at least `rest` plus the time in which a full
    /// queue drains, clamped to [`Self::SHORTEST`] and [`Self::LONGEST`]. Nearly all rounds in
    /// Table 2 of the paper follow this rule.
    pub fn round_for(limit: u32, rate: Rate, rest: Duration) -> Duration {
        let drain = rate.transmission_time(u64::from(limit) * u64::from(MTU));
        let least = drain.saturating_add(rest).min(Self::LONGEST);
        let round = Duration::from_nanos(least.as_nanos().next_power_of_two());
        round.clamp(Self::SHORTEST, Self::LONGEST)
    }

    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        if self.limit < 2 {
            return Err("limit must be at least 2 packets, one for each queue");
        }
        if self.rate.is_zero() || self.p == 0 {
            return Err("rate and p must be at least 1");
        }
        if !(Self::SHORTEST..=Self::LONGEST).contains(&self.dt) || self.vdt == Duration::ZERO {
            return Err("dt must be 100us to 100s and vdt at least 1ns");
        }
        if self.dt <= self.vdt + self.l {
            return Err("dt must exceed vdt and l together");
        }
        if !share(self.tau) || !share(self.delta_port) || !share(self.delta_flow) {
            return Err("tau, delta_port and delta_flow must be 0 to 1");
        }
        Ok(())
    }

    /// Bytes that a rate gives in this time.
    fn bytes_of(rate: Rate, time: Duration) -> u64 {
        num::whole_u64(rate.bps_f64() * time.as_nanos() as f64 / 8e9)
    }
}

/// Counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Choices of top flows on a saturated link.
    pub saturated: u64,
    /// Choices on a link that was not saturated.
    pub unsaturated: u64,
    /// Packets that went to the tail queue, because the current round was used up.
    pub delayed: u64,
    /// Packets dropped because the next round was used up, too.
    pub filtered: u64,
    /// Packets dropped because their queue was full.
    pub overflow: u64,
}

/// A group of flows behind one leaky bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// Bytes that arrived since the round began, plus the excess of earlier rounds; at least as
    /// many as the rate has allowed so far.
    bytes: u64,
    /// Rate of the round that each queue serves, by queue.
    rate: [Rate; 2],
    /// Rate that a queue's next round gets when its current one ends.
    next: Rate,
    /// Rate whose bytes are subtracted at the end of this round.
    drain_rate: Rate,
}

/// The queue whose round a packet fits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fits {
    Head,
    Tail,
    Nowhere,
}

impl Group {
    /// The round for a packet that arrives `elapsed` after the current round's beginning.
    #[inline]
    fn place(&mut self, elapsed: Duration, dt: Duration, head: usize) -> Fits {
        let [this, next] = [self.rate[head], self.rate[head ^ 1]];
        let budget = Params::bytes_of(this, dt);
        let past_head = self.bytes.saturating_sub(budget);
        let fits = if past_head == 0 {
            Fits::Head
        } else if past_head <= Params::bytes_of(next, dt) {
            Fits::Tail
        } else {
            Fits::Nowhere
        };
        let allowed = Params::bytes_of(this, elapsed.min(dt))
            + Params::bytes_of(next, elapsed.saturating_sub(dt));
        self.bytes = self.bytes.max(allowed);
        fits
    }

    /// Starts a new round; `head` is the queue whose round ends.
    fn rotate(&mut self, dt: Duration, head: usize) {
        self.rate[head] = self.next;
        let drained = Params::bytes_of(self.drain_rate, dt);
        self.bytes = self.bytes.saturating_sub(drained);
    }

    /// True if further rounds without packets do not change the group.
    fn is_at_rest(&self) -> bool {
        let rates = [self.rate[0], self.rate[1], self.drain_rate];
        rates == [self.next; 3] && (self.bytes == 0 || self.next.is_zero())
    }
}

/// Bytes of each flow; a flow uses the first free one of two slots.
#[derive(Clone, Debug)]
struct Table {
    /// A flow's hash and its bytes; 0 bytes: free.
    stages: [Box<[(u32, u64)]>; 2],
}

impl Table {
    fn new() -> Self {
        let stage = || vec![(0, 0); SLOTS].into_boxed_slice();
        Self {
            stages: [stage(), stage()],
        }
    }

    #[inline]
    fn count(&mut self, flow: u32, len: u32) {
        for (stage, hash) in self.stages.iter_mut().zip([flow, rehash(flow, STAGE_2)]) {
            let slot = &mut stage[hash as usize % SLOTS];
            if slot.1 == 0 || slot.0 == flow {
                *slot = (flow, slot.1 + u64::from(len));
                return;
            }
        }
    }

    fn slots(&self) -> impl Iterator<Item = &(u32, u64)> {
        self.stages.iter().flat_map(|stage| stage.iter())
    }

    /// Puts the flows that sent more than `share` of the largest flow's bytes into `top`, sorted;
    /// returns their bytes.
    fn top(&self, share: f64, top: &mut Vec<u32>) -> u64 {
        let max = self.slots().map(|slot| slot.1).max().unwrap_or(0);
        let enough = |slot: &&(u32, u64)| slot.1 as f64 > max as f64 * share;
        top.clear();
        top.extend(self.slots().filter(enough).map(|slot| slot.0));
        top.sort_unstable();
        self.slots().filter(enough).map(|slot| slot.1).sum()
    }

    fn clear(&mut self) {
        self.stages.iter_mut().for_each(|stage| stage.fill((0, 0)));
    }
}

/// Event of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// The queues change roles.
    Rotate,
    /// Rates are chosen, and from now on the tail queue is served first.
    Reconfigure,
}

/// The `cebinae` queue.
#[derive(Clone, Debug)]
pub struct Cebinae<P> {
    params: Params,
    stats: Stats,
    queues: [Ring<P>; 2],
    bytes: u64,
    /// The queue of the current round.
    head: usize,
    /// The queue that is served first.
    first: usize,
    /// Start of the round.
    base: Instant,
    /// The clock of the buckets.
    clock: Instant,
    /// The next event and its time.
    next: (Instant, Event),
    /// Rounds since the last choice.
    rounds: u32,
    /// Top and bottom.
    groups: [Group; 2],
    /// Hashes of the top flows, in order.
    top: Vec<u32>,
    table: Table,
    /// Bytes sent since the last choice.
    sent: u64,
}

const TOP: usize = 0;
const BOTTOM: usize = 1;

impl<P: Packet> Cebinae<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        let rate = params.rate;
        let bottom = Group {
            rate: [rate; 2],
            next: rate,
            drain_rate: rate,
            bytes: 0,
        };
        Self {
            stats: Stats::default(),
            queues: [Ring::new(), Ring::new()],
            bytes: 0,
            head: 0,
            first: 1,
            base: Instant::ZERO,
            clock: Instant::ZERO,
            next: (
                Instant::ZERO + params.dt + params.vdt + params.l,
                Event::Rotate,
            ),
            rounds: 1,
            groups: [Group::default(), bottom],
            top: Vec::with_capacity(2 * SLOTS),
            table: Table::new(),
            sent: 0,
            params,
        }
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Applies the events that are due.
    #[inline]
    fn run_events(&mut self, now: Instant) {
        if now >= self.next.0 {
            self.run_due_events(now);
        }
    }

    #[cold]
    fn run_due_events(&mut self, now: Instant) {
        self.skip_idle_rounds(now);
        let (dt, l) = (self.params.dt, self.params.l);
        while now >= self.next.0 {
            match self.next {
                (at, Event::Rotate) => {
                    for group in &mut self.groups {
                        group.rotate(dt, self.head);
                    }
                    self.base += dt;
                    self.head ^= 1;
                    self.next = (at + dt - l, Event::Reconfigure);
                }
                (at, Event::Reconfigure) => {
                    self.reconfigure();
                    self.next = (at + l, Event::Rotate);
                    if self.sent == 0 {
                        self.skip_idle_rounds(now);
                    }
                }
            }
        }
    }

    /// Skips rounds that change nothing, in multiples of 2 `p`: after these, both queues have the
    /// same roles again, and the next choice is as many rounds away as before.
    fn skip_idle_rounds(&mut self, now: Instant) {
        let idle = self.is_empty() && self.sent == 0 && self.top.is_empty();
        if idle && self.groups.iter().all(Group::is_at_rest) {
            let cycle = 2 * u64::from(self.params.p) * self.params.dt;
            let skipped = now.saturating_since(self.next.0) / cycle * cycle;
            self.base += skipped;
            self.next.0 += skipped;
        }
    }

    fn reconfigure(&mut self) {
        self.first = self.head ^ 1;
        self.rounds += 1;
        if self.rounds.is_multiple_of(self.params.p) {
            self.rounds = 0;
            self.choose();
        }
        for group in &mut self.groups {
            group.drain_rate = group.rate[self.head];
        }
    }

    /// Chooses top flows and rates by what was sent in the last `p` rounds.
    fn choose(&mut self) {
        let rate = self.params.rate.bps();
        let time =
            self.params.dt.as_nanos() as f64 * f64::from(self.params.p) / SEC.as_nanos() as f64;
        let capacity = rate as f64 * time * (1.0 - self.params.delta_port);
        let top_bps = if (self.sent * 8) as f64 > capacity {
            self.stats.saturated += 1;
            let bytes = (self.table).top(1.0 - self.params.delta_flow, &mut self.top);
            let rest = 1.0 - self.params.tau;
            let taxed = (bytes as f64 * rest).floor() * 8.0 / time;
            num::whole_u64(taxed.min(rate as f64 * rest))
        } else {
            self.stats.unsaturated += 1;
            self.top.clear();
            0
        };
        self.groups[TOP].next = Rate::from_bps(top_bps);
        self.groups[BOTTOM].next = Rate::from_bps(rate - top_bps);
        if self.sent > 0 {
            self.table.clear();
            self.sent = 0;
        }
    }

    /// True if this queue has room for one more packet.
    #[inline]
    fn has_room(&self, queue: usize) -> bool {
        match self.params.pool {
            true => self.len() < self.params.limit as usize,
            false => self.queues[queue].len() < self.params.limit as usize / 2,
        }
    }
}

impl<P: Packet> Discipline<P> for Cebinae<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, _rng: &mut Rng, drops: &mut D) {
        self.run_events(now);
        if now.saturating_since(self.clock) >= self.params.vdt {
            self.clock = now;
        }
        let is_top = self.top.binary_search(&packet.flow_hash()).is_ok();
        let group = if is_top { TOP } else { BOTTOM };
        let elapsed = self.clock.saturating_since(self.base);
        let fits = self.groups[group].place(elapsed, self.params.dt, self.head);
        let queue = if fits == Fits::Head {
            self.head
        } else {
            self.head ^ 1
        };
        let cause = match fits {
            Fits::Nowhere => Some(DropCause::Early),
            _ if !self.has_room(queue) => Some(DropCause::Overflow),
            _ => None,
        };
        if cause.is_none() || self.params.count_drops {
            self.groups[group].bytes += u64::from(packet.len());
        }
        self.stats.delayed += u64::from(fits == Fits::Tail);
        self.stats.filtered += u64::from(cause == Some(DropCause::Early));
        self.stats.overflow += u64::from(cause == Some(DropCause::Overflow));
        if let Some(cause) = cause {
            return drops.drop(now, packet, cause);
        }
        self.bytes += u64::from(packet.len());
        self.queues[queue].push(packet).set_enqueued(now);
    }

    #[inline]
    fn dequeue<D: Drops<P>>(
        &mut self,
        now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Dequeued<P> {
        self.run_events(now);
        let [first, second] = [self.first, self.first ^ 1];
        let packet = self.queues[first].pop();
        let Some(packet) = packet.or_else(|| self.queues[second].pop()) else {
            return Dequeued::Empty;
        };
        self.bytes -= u64::from(packet.len());
        self.sent += u64::from(packet.len());
        self.table.count(packet.flow_hash(), packet.len());
        Dequeued::Packet(packet)
    }

    #[inline]
    fn len(&self) -> usize {
        self.queues.iter().map(Ring::len).sum()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        let heads = self.queues.iter().filter_map(Ring::front);
        gauges.head_age = heads.map(|p| now - p.enqueued()).max().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ecn;
    use crate::packet::TestPacket;
    use crate::time::{MS, US};

    /// 8 Mbit/s are 1000 bytes per millisecond; a round lasts 10 ms.
    fn params() -> Params {
        Params {
            rate: Rate::from_mbit(8),
            dt: 10 * MS,
            vdt: Duration::from_nanos(1),
            l: 100 * US,
            ..Params::default()
        }
    }

    struct Bed {
        q: Cebinae<TestPacket>,
        rng: Rng,
        dropped: Vec<(TestPacket, DropCause)>,
        id: u64,
    }

    impl Bed {
        fn new(params: Params) -> Self {
            assert_eq!(params.check(), Ok(()));
            Self {
                q: Cebinae::new(params),
                rng: Rng::new(1, "cebinae"),
                dropped: Vec::new(),
                id: 0,
            }
        }
        fn put(&mut self, now: Instant, flow: u32, n: u32) {
            for _ in 0..n {
                self.id += 1;
                let packet = TestPacket::new(self.id, 1000, flow, Ecn::NotEct);
                self.q.offer(now, packet, &mut self.rng, &mut self.dropped);
            }
        }
        fn take(&mut self, now: Instant) -> Option<TestPacket> {
            match self.q.take(now, &mut self.rng, &mut self.dropped).0 {
                Dequeued::Packet(packet) => Some(packet),
                _ => None,
            }
        }
        /// Runs the queue for `ms` milliseconds from `from` on. In each, this many packets of each
        /// flow arrive, and one packet leaves.
        fn run(&mut self, from: u64, ms: u64, arrivals: &[(u32, u32)]) {
            for at in from..from + ms {
                for &(flow, n) in arrivals {
                    self.put(Instant::from_millis(at), flow, n);
                }
                self.take(Instant::from_millis(at));
            }
        }
        fn rates(&self) -> [u64; 2] {
            self.q.groups.map(|group| group.next.bps())
        }
    }

    #[test]
    fn a_round_lasts_as_long_as_a_full_queue_drains_rounded_up_to_a_power_of_two() {
        // 1000 * 1514 * 8 bits at 10 Mbit/s take 1.2 s; 2^31 ns are 2.1 s.
        assert_eq!(
            Params::round_for(1000, Rate::from_mbit(10), Duration::ZERO),
            Duration::from_nanos(1 << 31)
        );
        // Row 0 of Table 2 has 2^26 ns for 250 packets at 100 Mbit/s; 2^25 would do.
        assert_eq!(
            Params::round_for(250, Rate::from_mbit(100), Duration::from_nanos(100_001)),
            Duration::from_nanos(1 << 25)
        );
        assert_eq!(
            Params::round_for(2, Rate::from_bps(1 << 40), Duration::ZERO),
            Params::SHORTEST
        );
        assert_eq!(
            Params::round_for(u32::MAX, Rate::from_bps(1), Duration::ZERO),
            Params::LONGEST
        );
    }

    #[test]
    fn traffic_beyond_a_round_waits_for_the_next_and_traffic_beyond_both_is_dropped() {
        let mut bed = Bed::new(Params {
            limit: 1000,
            ..params()
        });
        // 10 packets are the budget of a round; a packet passes as long as the count before it does
        // not exceed the budget.
        bed.put(Instant::ZERO, 1, 30);
        assert_eq!(bed.q.queues.each_ref().map(Ring::len), [11, 10]);
        assert_eq!((bed.q.stats.delayed, bed.q.stats.filtered), (10, 9));
        assert!(bed.dropped.iter().all(|drop| drop.1 == DropCause::Early));
    }

    #[test]
    fn an_overload_leaves_the_link_busy_unless_buckets_count_drops() {
        // Twice the link's rate for a second, then for another one.
        for (count_drops, sent) in [(false, 900..1001), (true, 0..60)] {
            let mut bed = Bed::new(Params {
                count_drops,
                ..params()
            });
            bed.run(0, 1000, &[(1, 2)]);
            let arrived = bed.id;
            let kept = bed.q.len() as u64;
            bed.run(1000, 1000, &[(1, 2)]);
            let dropped = bed.dropped.iter().filter(|(p, _)| p.id > arrived).count() as u64;
            let out = bed.id - arrived - dropped + kept - bed.q.len() as u64;
            assert!(sent.contains(&out), "{count_drops}: {out}");
        }
    }

    #[test]
    fn each_queue_holds_half_of_the_limit_unless_they_share_it() {
        for (pool, lengths) in [(false, [5, 5]), (true, [10, 0])] {
            let mut bed = Bed::new(Params {
                limit: 10,
                count_drops: true,
                pool,
                ..params()
            });
            bed.put(Instant::ZERO, 1, 20);
            assert_eq!(bed.q.queues.each_ref().map(Ring::len), lengths, "{pool}");
            assert_eq!(bed.q.stats.overflow, 10);
        }
    }

    #[test]
    fn the_largest_flow_of_a_saturated_link_is_taxed() {
        let mut bed = Bed::new(params());
        bed.run(0, 22, &[(7, 1)]);
        assert_eq!((bed.q.stats.saturated, bed.q.top.as_slice()), (1, &[7][..]));
        // The first choice, two rounds after the beginning, saw 21 packets: more than the link's
        // rate less 5 %.
        assert_eq!(bed.rates(), [7_600_000, 400_000]);
        // The second one sees ten, seven of which are flow 7's: 7000 bytes less 5 % in 10 ms.
        bed.run(22, 6, &[(7, 1)]);
        bed.run(28, 4, &[(9, 1)]);
        assert_eq!((bed.q.stats.saturated, bed.q.top.as_slice()), (2, &[7][..]));
        assert_eq!(bed.rates(), [5_320_000, 2_680_000]);
    }

    #[test]
    fn top_flows_are_those_within_delta_flow_of_the_largest() {
        let mut table = Table::new();
        for (flow, len) in [(5, 1000), (3, 951), (8, 950), (4, 10)] {
            table.count(flow, len);
        }
        let mut top = Vec::new();
        // More than 950: flow 8 is not among them.
        assert_eq!(table.top(0.95, &mut top), 1951);
        assert_eq!(top, [3, 5]);
        table.clear();
        assert_eq!(table.top(0.95, &mut top), 0);
        assert!(top.is_empty());
    }

    #[test]
    fn a_flow_whose_slots_are_taken_is_not_counted() {
        let mut table = Table::new();
        let crowd = |stage: usize| {
            let hash = move |flow: u32| [flow, rehash(flow, STAGE_2)][stage] as usize % SLOTS;
            move |other: &u32| hash(*other) == hash(1)
        };
        let first = (2..).find(crowd(0)).expect("one that shares the slot");
        table.count(first, 100);
        table.count(1, 100);
        assert_eq!(table.slots().filter(|slot| slot.1 > 0).count(), 2);
        table.clear();
        // The first stage's slot is flow `first`'s; the second stage's is that of a flow whose own
        // first slot was taken.
        let second = (2..1 << 24).find(|f| crowd(1)(f) && !crowd(0)(f));
        let second = second.expect("one that shares the second slot");
        table.count(first, 100);
        table.stages[1][rehash(1, STAGE_2) as usize % SLOTS] = (second, 100);
        table.count(1, 100);
        assert!(table.slots().all(|slot| slot.0 != 1));
    }

    #[test]
    fn an_unsaturated_link_has_no_top_flows() {
        let mut bed = Bed::new(params());
        bed.run(0, 20, &[(7, 1)]);
        for at in 20..40 {
            bed.put(Instant::from_millis(at), 7, u32::from(at % 2 == 0));
            bed.take(Instant::from_millis(at));
        }
        bed.put(Instant::from_millis(41), 7, 1);
        assert!(bed.q.top.is_empty());
        assert_eq!(bed.rates(), [0, 8_000_000]);
    }

    #[test]
    fn the_tail_queue_goes_first_from_l_before_the_rounds_end_on() {
        let mut bed = Bed::new(Params { p: 100, ..params() });
        // The first round ends at dt + vdt + l, and the next change of priority is dt - l later.
        let end = Instant::ZERO + 10 * MS + Duration::from_nanos(1) + 100 * US;
        bed.put(end, 1, 12);
        let first = bed.take(end).expect("a packet").id;
        assert_eq!(first, 1);
        let before = end + 10 * MS - 100 * US - Duration::from_nanos(1);
        assert_eq!(bed.take(before).expect("a packet").id, 2);
        let tail = bed
            .take(before + Duration::from_nanos(1))
            .expect("a packet")
            .id;
        assert!(tail > 10, "{tail}");
    }

    #[test]
    fn idle_rounds_leave_it_as_if_each_had_been_made() {
        for p in [1, 3] {
            let after = |idle: &[u64]| {
                let mut bed = Bed::new(Params { p, ..params() });
                bed.run(0, 50, &[(7, 2), (9, 1)]);
                while bed.take(Instant::from_millis(100)).is_some() {}
                for &at in idle {
                    bed.take(Instant::from_millis(at));
                }
                bed.put(Instant::from_millis(3_600_000), 7, 3);
                let q = &bed.q;
                (q.head, q.first, q.base, q.next, q.rounds, bed.rates())
            };
            let often: Vec<u64> = (101..3_600_000).step_by(7).collect();
            assert_eq!(after(&[]), after(&often), "{p}");
        }
    }

    #[test]
    fn idle_years_are_skipped() {
        let mut bed = Bed::new(params());
        bed.run(0, 50, &[(7, 2), (9, 1)]);
        while bed.take(Instant::from_millis(100)).is_some() {}
        // 36 years are 115 billion rounds.
        bed.put(Instant::from_nanos(1 << 60), 7, 1);
        assert!(bed.take(Instant::from_nanos(1 << 60)).is_some());
    }

    #[test]
    fn a_wrong_parameter_is_named() {
        let wrong = |change: fn(&mut Params)| {
            let mut p = params();
            change(&mut p);
            p.check().expect_err("wrong")
        };
        assert!(wrong(|p| p.limit = 1).starts_with("limit"));
        assert!(wrong(|p| p.p = 0).starts_with("rate and p"));
        assert!(wrong(|p| p.dt = Duration::from_nanos(1)).starts_with("dt must be"));
        assert!(wrong(|p| p.l = p.dt).starts_with("dt must exceed"));
        assert!(wrong(|p| p.tau = f64::NAN).starts_with("tau"));
    }
}
