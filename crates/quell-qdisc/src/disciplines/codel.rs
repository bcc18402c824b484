//! CoDel: RFC 8289 as in Linux (`include/net/codel_impl.h`, `net/sched/sch_codel.c`).
//!
//! The law ([`dequeue`]) works on anything that packets can be popped from, so that FQ-CoDel runs it once per flow.
//!
//! Where Linux and the RFC differ, this follows Linux: a drop needs `now` strictly after `first_above_time`; 1/sqrt(count) is a
//! 16-bit number corrected by one Newton step per drop; a restart resumes `count - lastcount` rather than `count - 2`.
//! Deviation from Linux: times are 64-bit nanoseconds, not 32-bit units of 1024 ns, so that they neither round nor wrap.

use crate::discipline::{self, offer_each};
use crate::parts::ring::Ring;
use crate::{
    Discipline, DropCause, Drops, Gauges, Got, KnobSet, Knobs, MS, MTU, Nanos, Packet, Rng, SEC, US,
};

/// Parameters of the law and, for [`Codel`], the limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Acceptable standing delay (default 5 ms).
    pub target: Nanos,
    /// How long the delay must stay above `target` before the first drop: a round trip of the slowest flows (default 100 ms, 1 us..10 s).
    pub interval: Nanos,
    /// Packets (default 1000, at least 1). Only [`Codel`] itself uses it.
    pub limit: u32,
    /// Mark ECN-capable packets instead of dropping them (default off, as `tc`'s codel; fq_codel turns it on).
    pub ecn: bool,
    /// Mark every ECN-capable packet that waited longer than this, whatever the law says (default none).
    pub ce_threshold: Option<Nanos>,
    /// `ce_threshold` applies only to packets whose ECN field, under this mask, equals `ce_selector` (default 0: to all).
    pub ce_mask: u8,
    /// See `ce_mask` (default 0).
    pub ce_selector: u8,
    /// With no more than this many bytes behind the packet at hand the law rests (default 1514).
    pub mtu: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            target: 5 * MS,
            interval: 100 * MS,
            limit: 1000,
            ecn: false,
            ce_threshold: None,
            ce_mask: 0,
            ce_selector: 0,
            mtu: MTU,
        }
    }
}

impl Params {
    /// What is wrong with these parameters, if anything.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        if !(US..=10 * SEC).contains(&self.interval) {
            return Err("interval must be between 1us and 10s");
        }
        if self.target > 10 * SEC {
            return Err("target must be at most 10s");
        }
        if self.limit == 0 {
            return Err("limit must be at least 1 packet");
        }
        Ok(())
    }
}

/// The law's memory; one per queue, or per flow of a fair queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Drops (or marks) since dropping began; sets the pace.
    pub count: u32,
    /// `count` with which the present or last dropping episode began.
    pub lastcount: u32,
    /// In an episode of dropping.
    pub dropping: bool,
    /// 1/sqrt(count) in units of 2^-16.
    pub rec_inv_sqrt: u16,
    /// When the delay will have been above target for an interval; 0 while it is below.
    pub first_above_time: Nanos,
    /// When the next drop is due.
    pub drop_next: Nanos,
    /// Sojourn of the packet examined last.
    pub ldelay: Nanos,
}

/// Counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Packets that the law marked.
    pub marks: u64,
    /// Packets that `ce_threshold` marked and the law had not.
    pub ce_marks: u64,
    /// Packets that the law dropped.
    pub drops: u64,
    /// Bytes of those.
    pub dropped_bytes: u64,
}

/// What the law takes packets from.
pub trait Source<P> {
    /// The packet at the head, left in place.
    fn head(&self) -> Option<&P>;
    /// Takes the packet at the head out.
    fn pop(&mut self) -> Option<P>;
    /// Bytes still queued, for the law's one-packet floor: of the whole discipline, where this is one flow of it (as Linux).
    fn backlog_bytes(&self) -> u64;
}

impl State {
    /// One step of Newton's method towards 1/sqrt(count), in Linux's integers.
    #[inline]
    fn newton_step(&mut self) {
        let x = u64::from(self.rec_inv_sqrt) << 16;
        let x2 = (x * x) >> 32;
        // Wraps for a stale x, as in Linux, when count jumps; later steps mend it.
        let v = (3u64 << 32).wrapping_sub(u64::from(self.count) * x2) >> 2;
        self.rec_inv_sqrt = (v.wrapping_mul(x) >> (32 - 2 + 1) >> 16) as u16;
    }

    /// `t` plus interval / sqrt(count) (RFC 8289, section 5.4).
    #[inline]
    fn control_law(&self, t: Nanos, interval: Nanos) -> Nanos {
        t + ((interval * u64::from(self.rec_inv_sqrt)) >> 16)
    }

    /// Looks at a packet with `backlog` bytes behind it: has the delay been above target for a whole interval (`dodequeue` of the RFC)?
    #[inline]
    fn should_drop(&mut self, params: &Params, enqueued: Nanos, backlog: u64, now: Nanos) -> bool {
        self.ldelay = now - enqueued;
        if self.ldelay < params.target || backlog <= u64::from(params.mtu) {
            self.first_above_time = 0;
            return false;
        }
        if self.first_above_time == 0 {
            self.first_above_time = now + params.interval;
            return false;
        }
        now > self.first_above_time
    }

    /// Opens an episode of dropping, at the pace of the last one if that ended a short while ago.
    fn begin(&mut self, params: &Params, now: Nanos) {
        self.dropping = true;
        let delta = self.count.wrapping_sub(self.lastcount);
        // `drop_next` may lie ahead: then it surely is recent (Linux compares signed). At 0 there was no episode yet; Linux's
        // clock is never that near its start.
        let recent = self.drop_next != 0 && now < self.drop_next + 16 * params.interval;
        if delta > 1 && recent {
            self.count = delta;
            self.newton_step();
        } else {
            self.count = 1;
            self.rec_inv_sqrt = u16::MAX;
        }
        self.lastcount = self.count;
        self.drop_next = self.control_law(now, params.interval);
    }
}

/// What the law says of the packet at the head.
pub(super) enum Judged {
    /// There is none.
    Empty,
    /// It leaves as it is.
    Sends,
    /// [`act`] on it; true if a drop (or mark) is due.
    Acts(bool),
}

/// Takes the next packet that may leave, dropping (or marking) as the law says. Never [`Got::NotBefore`].
#[inline]
pub fn dequeue<P: Packet, S: Source<P>, D: Drops<P>>(
    params: &Params,
    state: &mut State,
    stats: &mut Stats,
    now: Nanos,
    source: &mut S,
    drops: &mut D,
) -> Got<P> {
    match judge(params, state, now, source) {
        Judged::Empty => Got::Empty,
        Judged::Sends => source.pop().into(),
        Judged::Acts(due) => act(params, state, stats, now, (source, due), drops),
    }
}

/// [`dequeue`] of a packet that goes to `line`.
#[inline(always)]
fn dequeue_to<P: Packet, S: Source<P>, D: Drops<P>>(
    params: &Params,
    state: &mut State,
    stats: &mut Stats,
    now: Nanos,
    source: &mut S,
    drops: &mut D,
    line: &mut Option<P>,
) -> Got<()> {
    match judge(params, state, now, source) {
        Judged::Empty => return Got::Empty,
        Judged::Sends => *line = source.pop(),
        Judged::Acts(due) => {
            let got = act(params, state, stats, now, (source, due), drops);
            return got.map(|packet| *line = Some(packet));
        }
    }
    Got::Packet(())
}

/// Looks at the packet at the head. One in good time, as most are, is judged in its place and then moved once: moving it costs
/// more than judging it.
#[inline(always)]
pub(super) fn judge<P: Packet, S: Source<P>>(
    params: &Params,
    state: &mut State,
    now: Nanos,
    source: &S,
) -> Judged {
    let Some(head) = source.head() else {
        // Linux 7.2 forgets when the delay rose, too (older ones did not): a flow that comes back has an interval again.
        state.first_above_time = 0;
        state.dropping = false;
        return Judged::Empty;
    };
    let behind = source.backlog_bytes() - u64::from(head.len());
    let over = state.should_drop(params, head.enqueued(), behind, now);
    state.dropping &= over;
    let due = over && (!state.dropping || now >= state.drop_next);
    if due || state.ldelay > params.ce_threshold.unwrap_or(Nanos::MAX) {
        return Judged::Acts(due);
    }
    Judged::Sends
}

/// Drops or marks the packet at the head, and those behind it, as [`judge`] found due; gives the one that leaves.
#[inline(never)]
pub(super) fn act<P: Packet, S: Source<P>, D: Drops<P>>(
    params: &Params,
    state: &mut State,
    stats: &mut Stats,
    now: Nanos,
    (source, due): (&mut S, bool),
    drops: &mut D,
) -> Got<P> {
    let run = Run {
        params,
        state,
        stats,
        now,
        source,
        drops,
    };
    run.act(due)
}

/// One [`dequeue`] that has something to do to its first packet.
struct Run<'a, S, D> {
    params: &'a Params,
    state: &'a mut State,
    stats: &'a mut Stats,
    now: Nanos,
    source: &'a mut S,
    drops: &'a mut D,
}

impl<S, D> Run<'_, S, D> {
    #[inline]
    fn act<P: Packet>(mut self, due: bool) -> Got<P>
    where
        S: Source<P>,
        D: Drops<P>,
    {
        let first = self.source.pop().map(|packet| (packet, false));
        let sent = match first {
            Some((packet, _)) if due && self.state.dropping => self.go_on(packet),
            Some((packet, _)) if due => self.begin(packet),
            _ => first,
        };
        let Some((mut packet, marked)) = sent else {
            return Got::Empty;
        };
        if let Some(threshold) = self.params.ce_threshold
            && self.state.ldelay > threshold
            && packet.ecn() as u8 & self.params.ce_mask == self.params.ce_selector
            && packet.mark()
            && !marked
        {
            self.stats.ce_marks += 1;
        }
        Got::Packet(packet)
    }

    /// Marks or drops `packet` and opens an episode. Gives the packet to send on, and whether it was marked.
    fn begin<P: Packet>(&mut self, mut packet: P) -> Option<(P, bool)>
    where
        S: Source<P>,
        D: Drops<P>,
    {
        let sent = if self.mark(&mut packet) {
            Some((packet, true))
        } else {
            self.drop(packet).map(|(next, _over)| (next, false))
        };
        // Also if that emptied the queue: as in Linux, the next call finds it so and leaves the episode.
        self.state.begin(self.params, self.now);
        sent
    }

    /// Goes on dropping: none, one or, at a high pace, several (RFC 8289, section 5.5), each due an interval's share after the
    /// one before, not after now.
    fn go_on<P: Packet>(&mut self, mut packet: P) -> Option<(P, bool)>
    where
        S: Source<P>,
        D: Drops<P>,
    {
        while self.now >= self.state.drop_next {
            self.state.count = self.state.count.wrapping_add(1);
            self.state.newton_step();
            if self.mark(&mut packet) {
                self.schedule();
                return Some((packet, true));
            }
            let Some((next, over)) = self.drop(packet) else {
                self.state.dropping = false;
                return None;
            };
            packet = next;
            if !over {
                self.state.dropping = false;
                break;
            }
            self.schedule();
        }
        Some((packet, false))
    }

    fn schedule(&mut self) {
        self.state.drop_next = self
            .state
            .control_law(self.state.drop_next, self.params.interval);
    }

    fn mark<P: Packet>(&mut self, packet: &mut P) -> bool {
        let marked = self.params.ecn && packet.mark();
        self.stats.marks += u64::from(marked);
        marked
    }

    /// Drops `packet` and examines the one behind it.
    fn drop<P: Packet>(&mut self, packet: P) -> Option<(P, bool)>
    where
        S: Source<P>,
        D: Drops<P>,
    {
        self.stats.drops += 1;
        self.stats.dropped_bytes += u64::from(packet.len());
        let cause = if self.params.ecn {
            DropCause::Forced
        } else {
            DropCause::Early
        };
        self.drops.drop(self.now, packet, cause);
        let Some(next) = self.source.pop() else {
            self.state.first_above_time = 0;
            return None;
        };
        let backlog = self.source.backlog_bytes();
        let over = self
            .state
            .should_drop(self.params, next.enqueued(), backlog, self.now);
        Some((next, over))
    }
}

/// One FIFO with the law at its head: `tc`'s `codel`.
#[derive(Clone, Debug)]
pub struct Codel<P> {
    params: Params,
    state: State,
    stats: Stats,
    queue: Backlog<P>,
}

/// The packets and their bytes.
#[derive(Clone, Debug)]
struct Backlog<P> {
    ring: Ring<P>,
    bytes: u64,
}

impl<P: Packet> Source<P> for Backlog<P> {
    #[inline]
    fn head(&self) -> Option<&P> {
        self.ring.front()
    }
    #[inline(always)]
    fn pop(&mut self) -> Option<P> {
        let packet = self.ring.pop()?;
        self.bytes -= u64::from(packet.len());
        Some(packet)
    }
    #[inline]
    fn backlog_bytes(&self) -> u64 {
        self.bytes
    }
}

impl<P: Packet> Codel<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            state: State::default(),
            stats: Stats::default(),
            queue: Backlog {
                ring: Ring::new(),
                bytes: 0,
            },
        }
    }

    /// The parameters in force.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The law's memory.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}

impl<P: Packet> Discipline<P> for Codel<P> {
    #[inline(always)]
    fn enqueue<D: Drops<P>>(&mut self, now: Nanos, packet: P, rng: &mut Rng, drops: &mut D) {
        self.enqueue_with(now, packet.len(), || packet, rng, drops);
    }

    #[inline(always)]
    fn enqueue_with<D: Drops<P>>(
        &mut self,
        now: Nanos,
        len: u32,
        make: impl FnOnce() -> P,
        _rng: &mut Rng,
        drops: &mut D,
    ) {
        if self.queue.ring.len() >= self.params.limit as usize {
            return drops.drop(now, make(), DropCause::Overflow);
        }
        self.queue.bytes += u64::from(len);
        self.queue.ring.push(make()).set_enqueued(now);
    }

    #[inline(always)]
    fn offer_run<D: Drops<P>>(
        &mut self,
        now: Nanos,
        len: u32,
        count: u32,
        make: impl Fn(u32) -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Option<discipline::Backlog> {
        offer_each(self, now, len, count, make, rng, drops)
    }

    #[inline]
    fn dequeue<D: Drops<P>>(&mut self, now: Nanos, _rng: &mut Rng, drops: &mut D) -> Got<P> {
        let Self {
            params,
            state,
            stats,
            queue,
        } = self;
        dequeue(params, state, stats, now, queue, drops)
    }

    #[inline(always)]
    fn dequeue_to<D: Drops<P>>(
        &mut self,
        now: Nanos,
        _rng: &mut Rng,
        drops: &mut D,
        line: &mut Option<P>,
    ) -> Got<()> {
        let Self {
            params,
            state,
            stats,
            queue,
        } = self;
        dequeue_to(params, state, stats, now, queue, drops, line)
    }

    #[inline]
    fn len(&self) -> usize {
        self.queue.ring.len()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.queue.bytes
    }

    fn marks(&self) -> u64 {
        self.stats.marks + self.stats.ce_marks
    }

    fn gauges(&self, now: Nanos, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        gauges.marks = self.marks();
        gauges.head_age = self.queue.ring.front().map_or(0, |p| now - p.enqueued());
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
    use crate::Ecn;
    use crate::Rng;
    use crate::packet::TestPacket;
    use proptest::prelude::*;

    const FULL: u32 = 1514;

    struct Bed {
        q: Codel<TestPacket>,
        rng: Rng,
        dropped: Vec<(TestPacket, DropCause)>,
        next_id: u64,
    }

    impl Bed {
        fn new(params: Params) -> Self {
            Self {
                q: Codel::new(params),
                rng: Rng::new(1, "codel"),
                dropped: Vec::new(),
                next_id: 0,
            }
        }
        fn add(&mut self, now: Nanos, n: usize, ecn: Ecn) {
            for _ in 0..n {
                let p = TestPacket::new(self.next_id, FULL, 0, ecn);
                self.next_id += 1;
                self.q.enqueue(now, p, &mut self.rng, &mut self.dropped);
            }
        }
        fn take(&mut self, now: Nanos) -> Option<TestPacket> {
            match self.q.dequeue(now, &mut self.rng, &mut self.dropped) {
                Got::Packet(p) => Some(p),
                _ => None,
            }
        }
        /// A packet a millisecond leaves a queue of ten that all have waited `age`; gives the times of drops.
        fn drops_while_late(&mut self, from: Nanos, until: Nanos, age: Nanos) -> Vec<Nanos> {
            let mut times = Vec::new();
            for now in (from..until).step_by(MS as usize) {
                self.refill(now - age, 10);
                let before = self.dropped.len();
                self.take(now);
                times.extend(vec![now; self.dropped.len() - before]);
            }
            times
        }
        /// Only `n` packets queued, all entered at `at`.
        fn refill(&mut self, at: Nanos, n: usize) {
            while self.q.queue.pop().is_some() {}
            self.add(at, n, Ecn::NotEct);
        }
    }

    const T: Nanos = 10 * SEC;

    #[test]
    fn defaults_are_those_of_linux() {
        let p = Params::default();
        assert_eq!(
            (p.target, p.interval, p.limit, p.ecn),
            (5 * MS, 100 * MS, 1000, false)
        );
        assert_eq!(p.check(), Ok(()));
    }

    #[test]
    fn sojourn_is_measured_at_dequeue() {
        let mut bed = Bed::new(Params::default());
        bed.add(T, 10, Ecn::NotEct);
        bed.take(T + 7 * MS);
        assert_eq!(bed.q.state().ldelay, 7 * MS);
    }

    #[test]
    fn the_first_drop_waits_for_a_full_interval_above_target() {
        let mut bed = Bed::new(Params::default());
        let drops = bed.drops_while_late(T, T + 110 * MS, 6 * MS);
        // first_above = T + 100 ms, and a drop must come strictly after it: the next dequeue, 1 ms later.
        assert_eq!(drops, [T + 101 * MS]);
    }

    #[test]
    fn a_drop_comes_strictly_after_the_interval_as_in_linux() {
        let mut bed = Bed::new(Params::default());
        bed.add(T, 10, Ecn::NotEct);
        bed.take(T + 10 * MS);
        bed.take(T + 110 * MS);
        assert_eq!(bed.dropped.len(), 0);
        bed.take(T + 110 * MS + 1);
        assert_eq!(bed.dropped.len(), 1);
    }

    #[test]
    fn one_good_packet_restarts_the_interval() {
        let mut bed = Bed::new(Params::default());
        assert!(bed.drops_while_late(T, T + 90 * MS, 6 * MS).is_empty());
        bed.drops_while_late(T + 90 * MS, T + 110 * MS, 4 * MS);
        let drops = bed.drops_while_late(T + 110 * MS, T + 240 * MS, 6 * MS);
        assert_eq!(drops[0], T + 211 * MS);
    }

    #[test]
    fn at_most_one_mtu_behind_the_packet_stops_dropping() {
        let mut bed = Bed::new(Params::default());
        // Each dequeue leaves exactly one full packet behind: the law rests, however old they are.
        bed.add(T, 2, Ecn::NotEct);
        for i in 0..300 {
            bed.take(T + SEC + i * MS);
            assert_eq!(bed.q.bytes(), u64::from(FULL));
            bed.add(T, 1, Ecn::NotEct);
        }
        assert!(bed.dropped.is_empty());
        // With two behind it, it does not.
        bed.add(T, 1, Ecn::NotEct);
        for i in 300..420 {
            bed.take(T + SEC + i * MS);
            bed.add(T, 1, Ecn::NotEct);
        }
        assert!(!bed.dropped.is_empty());
    }

    #[test]
    fn next_drop_counts_from_the_previous_one() {
        let mut bed = Bed::new(Params::default());
        bed.drops_while_late(T, T + 102 * MS, 20 * MS);
        let first = bed.q.state().drop_next;
        // count = 1: 65535/65536 of an interval after the first drop, at T + 101 ms.
        assert_eq!(first, T + 101 * MS + ((100 * MS * 65535) >> 16));
        // The link pauses for 30 ms past that; the next drop is still due 100 ms / sqrt(2) after `first`, not after now.
        bed.refill(T, 10);
        bed.take(first + 30 * MS);
        let gap = bed.q.state().drop_next - first;
        // One Newton step from 1 towards 1/sqrt(2) = 0.7071 gives 1 * (3 - 2) / 2 = 0.5.
        assert!((49 * MS..=51 * MS).contains(&gap), "{gap}");
    }

    #[test]
    fn the_square_root_is_one_newton_step_per_drop() {
        let mut s = State {
            count: 1,
            rec_inv_sqrt: u16::MAX,
            ..State::default()
        };
        for count in 2..=400_u32 {
            s.count = count;
            s.newton_step();
        }
        // By then the approximation has converged to 1/sqrt(400) = 0.05 within 1 %.
        let x = f64::from(s.rec_inv_sqrt) / 65536.0;
        assert!((x - 0.05).abs() < 0.0005, "{x}");
    }

    #[test]
    fn several_drops_may_occur_in_one_dequeue() {
        let mut bed = Bed::new(Params::default());
        bed.drops_while_late(T, T + 102 * MS, 20 * MS);
        bed.refill(T, 50);
        let before = bed.dropped.len();
        // A second later about 20 are due: the gaps shrink from 50 ms as 100 ms / sqrt(count).
        let got = bed.take(T + 1100 * MS).unwrap();
        let burst = bed.dropped.len() - before;
        assert!(burst >= 10, "{burst}");
        assert!(bed.q.state().drop_next > T + 1100 * MS);
        assert_eq!(got.id, bed.dropped.last().unwrap().0.id + 1);
    }

    #[test]
    fn a_restart_within_16_intervals_resumes_the_pace() {
        let mut bed = Bed::new(Params::default());
        bed.drops_while_late(T, T + 2000 * MS, 20 * MS);
        let (count, last) = (bed.q.state().count, bed.q.state().lastcount);
        assert!(count > 10 && last == 1);
        // Below target for a moment ends the episode; late again for an interval, it resumes with count - lastcount.
        bed.drops_while_late(T + 2000 * MS, T + 2020 * MS, 0);
        assert!(!bed.q.state().dropping);
        bed.drops_while_late(T + 2020 * MS, T + 2126 * MS, 20 * MS);
        assert!(bed.q.state().dropping);
        assert_eq!(bed.q.state().lastcount, count - last);
    }

    #[test]
    fn a_restart_after_16_intervals_starts_at_one() {
        let mut bed = Bed::new(Params::default());
        bed.drops_while_late(T, T + 2000 * MS, 20 * MS);
        bed.drops_while_late(T + 2000 * MS, T + 3800 * MS, 0);
        bed.drops_while_late(T + 3800 * MS, T + 3906 * MS, 20 * MS);
        assert!(bed.q.state().dropping);
        assert_eq!(bed.q.state().count, 1);
    }

    #[test]
    fn a_count_raised_from_outside_before_any_episode_does_not_stop_the_square_root() {
        // FQ-CoDel adds its batch drops to `count`; near the clock's start drop_next = 0 must not look like a recent episode.
        let mut s = State {
            count: 64,
            ..State::default()
        };
        s.begin(&Params::default(), 200 * MS);
        assert_eq!((s.count, s.rec_inv_sqrt), (1, u16::MAX));
    }

    #[test]
    fn an_empty_queue_leaves_the_dropping_state() {
        let mut bed = Bed::new(Params::default());
        bed.drops_while_late(T, T + 102 * MS, 20 * MS);
        assert!(bed.q.state().dropping);
        let mut s = bed.q.state().clone();
        let mut empty = Backlog::<TestPacket> {
            ring: Ring::new(),
            bytes: 0,
        };
        let mut stats = Stats::default();
        dequeue(
            bed.q.params(),
            &mut s,
            &mut stats,
            T + SEC,
            &mut empty,
            &mut bed.dropped,
        );
        assert!(!s.dropping);
    }

    #[test]
    fn with_ecn_it_marks_and_never_drops_ect() {
        let params = Params {
            ecn: true,
            ..Params::default()
        };
        let mut bed = Bed::new(params);
        bed.add(T, 900, Ecn::Ect0);
        let mut ce = 0;
        for i in 0..800 {
            ce += u64::from(bed.take(T + SEC + i * 5 * MS).unwrap().ecn == Ecn::Ce);
        }
        assert!(ce > 50, "{ce}");
        assert_eq!(bed.q.marks(), ce);
        assert!(bed.dropped.is_empty());
    }

    #[test]
    fn with_ecn_packets_that_are_not_ect_are_dropped() {
        let params = Params {
            ecn: true,
            ..Params::default()
        };
        let mut bed = Bed::new(params);
        bed.add(T, 500, Ecn::NotEct);
        for i in 0..100 {
            assert_eq!(bed.take(T + SEC + i * 5 * MS).unwrap().ecn, Ecn::NotEct);
        }
        assert!(bed.dropped.len() > 3);
        assert!(bed.dropped.iter().all(|d| d.1 == DropCause::Forced));
    }

    #[test]
    fn ce_threshold_marks_every_ect_packet_above_it() {
        let params = Params {
            ce_threshold: Some(MS),
            ..Params::default()
        };
        let mut bed = Bed::new(params);
        bed.add(T, 3, Ecn::Ect1);
        assert_eq!(bed.take(T + MS).unwrap().ecn, Ecn::Ect1);
        assert_eq!(bed.take(T + MS + 1).unwrap().ecn, Ecn::Ce);
        bed.add(T, 1, Ecn::NotEct);
        bed.take(T + 2 * MS);
        assert_eq!(bed.take(T + 2 * MS).unwrap().ecn, Ecn::NotEct);
        assert_eq!(bed.q.marks(), 2);
    }

    #[test]
    fn ce_selector_restricts_the_threshold_to_l4s() {
        let params = Params {
            ce_threshold: Some(MS),
            ce_mask: 1,
            ce_selector: 1,
            ..Params::default()
        };
        let mut bed = Bed::new(params);
        bed.add(T, 1, Ecn::Ect0);
        bed.add(T, 1, Ecn::Ect1);
        assert_eq!(bed.take(T + 2 * MS).unwrap().ecn, Ecn::Ect0);
        assert_eq!(bed.take(T + 2 * MS).unwrap().ecn, Ecn::Ce);
    }

    #[test]
    fn the_limit_drops_arrivals() {
        let mut bed = Bed::new(Params::default());
        bed.add(T, 1001, Ecn::NotEct);
        assert_eq!(bed.q.len(), 1000);
        assert_eq!(bed.dropped[0].1, DropCause::Overflow);
        assert_eq!(bed.dropped[0].0.id, 1000);
    }

    #[test]
    fn parameters_out_of_range_are_told() {
        let p = Params {
            interval: 0,
            ..Params::default()
        };
        assert_eq!(p.check(), Err("interval must be between 1us and 10s"));
    }

    proptest! {
        /// Overflow checks are on: no step of the integers overflows, whatever the memory.
        #[test]
        fn the_pace_is_at_most_an_interval_apart_and_nothing_overflows(
            count in any::<u32>(), rec_inv_sqrt in any::<u16>(), t in 0..u64::MAX / 4, interval in 0..=100 * SEC,
        ) {
            let mut s = State { count, rec_inv_sqrt, ..State::default() };
            let next = s.control_law(t, interval);
            prop_assert!(t <= next && next <= t + interval);
            s.newton_step();
            let next = s.control_law(t, interval);
            prop_assert!(t <= next && next <= t + interval);
        }

        /// The k-th packet of an episode goes an interval over the square root of k after the one before.
        #[test]
        fn steps_converge_to_the_inverse_square_root(last in 1_u32..4000) {
            let mut s = State { count: 1, rec_inv_sqrt: u16::MAX, ..State::default() };
            while s.count < last {
                s.count += 1;
                s.newton_step();
            }
            let (x, wanted) = (f64::from(s.rec_inv_sqrt) / 65536.0, 1.0 / f64::from(last).sqrt());
            // Each step of 16 bits rounds down; the first ones have not converged yet.
            prop_assert!((x - wanted).abs() < if last < 8 { 0.3 } else { 0.003 }, "{}: {} {}", last, x, wanted);
        }
    }
}
