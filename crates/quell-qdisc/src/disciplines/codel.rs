//! CoDel: RFC 8289 as in Linux (`include/net/codel_impl.h`, `net/sched/sch_codel.c`).
//!
//! The law ([`dequeue`]) works on anything that packets can be popped from, so that FQ-CoDel runs
//! it once per flow.
//!
//! Where Linux and the RFC differ, this follows Linux: a drop needs `now` strictly after
//! `first_above_time`; 1/sqrt(count) is a 16-bit number corrected by one Newton step per drop; a
//! restart resumes `count - lastcount` rather than `count - 2`. Deviation from Linux: times are
//! 64-bit nanoseconds, not 32-bit units of 1024 ns, so that they neither round nor wrap.

use crate::discipline::{self, FastPath};
use crate::parts::ring::Ring;
use crate::time::{Duration, Instant, MS, SEC, US};
use crate::{Dequeued, Discipline, DropCause, Drops, Gauges, KnobSet, Knobs, MTU, Packet, Rng};

/// Parameters of the law and, for [`Codel`], the limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Acceptable standing delay (default 5 ms).
    pub target: Duration,
    /// Time for which the delay must stay above `target` before the first drop: about the round
    /// trip of the slowest flows (default 100 ms, 1 us..10 s).
    pub interval: Duration,
    /// Limit in packets (default 1000, at least 1). Only [`Codel`] itself uses it.
    pub limit: u32,
    /// Mark ECN-capable packets instead of dropping them (default off, as `tc`'s codel; fq_codel
    /// turns it on).
    pub ecn: bool,
    /// Mark every ECN-capable packet that waited longer than this, whatever the law says (default
    /// none).
    pub ce_threshold: Option<Duration>,
    /// `ce_threshold` applies only to packets whose ECN field, under this mask, equals
    /// `ce_selector` (default 0: to all).
    pub ce_mask: u8,
    /// Value of the masked ECN field to which `ce_threshold` applies (default 0).
    pub ce_selector: u8,
    /// The law does not act while at most this many bytes are queued behind a packet (default
    /// 1514).
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
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
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

/// The law's state; one per queue, or per flow of a fair queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Drops (or marks) in the episode; the next follows after interval / sqrt(count).
    pub count: u32,
    /// `count` at the start of the current or last dropping episode.
    pub lastcount: u32,
    /// True in a dropping episode.
    pub dropping: bool,
    /// 1/sqrt(count) in units of 2^-16.
    pub rec_inv_sqrt: u16,
    /// Time at which the delay will have been above target for an interval; 0 while it is below.
    pub first_above_time: Instant,
    /// Time at which the next drop is due.
    pub drop_next: Instant,
    /// Sojourn time of the packet examined last.
    pub ldelay: Duration,
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
    /// Bytes of the packets that the law dropped.
    pub dropped_bytes: u64,
}

/// A queue from which the law takes packets.
pub trait Source<P> {
    /// The packet at the head, left in place.
    fn head(&self) -> Option<&P>;
    /// Removes and returns the packet at the head.
    fn pop(&mut self) -> Option<P>;
    /// Bytes still queued, which the law compares with [`Params::mtu`]; for one flow of a fair
    /// queue, the bytes of the whole queue (as in Linux).
    fn backlog_bytes(&self) -> u64;
}

impl State {
    /// One step of Newton's method towards 1/sqrt(count), in Linux's integers.
    #[inline]
    fn newton_step(&mut self) {
        let x = u64::from(self.rec_inv_sqrt) << 16;
        let x2 = (x * x) >> 32;
        // When `count` jumps, x does not fit it, and this wraps as in Linux; later steps correct
        // the result.
        let v = (3u64 << 32).wrapping_sub(u64::from(self.count) * x2) >> 2;
        self.rec_inv_sqrt = (v.wrapping_mul(x) >> (32 - 2 + 1) >> 16) as u16;
    }

    /// `t` plus interval / sqrt(count) (RFC 8289, section 5.4).
    #[inline]
    fn control_law(&self, t: Instant, interval: Duration) -> Instant {
        t + interval * u64::from(self.rec_inv_sqrt) / (1 << 16)
    }

    /// Examines a packet with `backlog` bytes behind it: true if the delay has been above target
    /// for a whole interval (`dodequeue` of the RFC).
    #[inline]
    fn should_drop(
        &mut self,
        params: &Params,
        enqueued: Instant,
        backlog: u64,
        now: Instant,
    ) -> bool {
        self.ldelay = now - enqueued;
        if self.ldelay < params.target || backlog <= u64::from(params.mtu) {
            self.first_above_time = Instant::ZERO;
            return false;
        }
        if self.first_above_time == Instant::ZERO {
            self.first_above_time = now + params.interval;
            return false;
        }
        now > self.first_above_time
    }

    /// Begins a dropping episode, at the drop rate of the last one if that ended recently.
    fn begin(&mut self, params: &Params, now: Instant) {
        self.dropping = true;
        let delta = self.count.wrapping_sub(self.lastcount);
        // A `drop_next` in the future also counts as recent (Linux compares signed numbers). 0
        // means that there was no episode yet; Linux does not check this, because its clock is
        // never that close to 0.
        let recent = self.drop_next != Instant::ZERO && now < self.drop_next + 16 * params.interval;
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

/// The law's decision on the packet at the head.
pub(super) enum Judged {
    /// There is no packet.
    Empty,
    /// The packet leaves unchanged.
    Sends,
    /// [`act`] must handle the packet: true if a drop (or mark) is due, false if `ce_threshold`
    /// alone may mark it.
    Acts(bool),
}

/// Takes the next packet that may leave, dropping (or marking) as the law says. Never
/// [`Dequeued::NotBefore`].
#[inline]
pub fn dequeue<P: Packet, S: Source<P>, D: Drops<P>>(
    params: &Params,
    state: &mut State,
    stats: &mut Stats,
    now: Instant,
    source: &mut S,
    drops: &mut D,
) -> Dequeued<P> {
    match judge(params, state, now, source) {
        Judged::Empty => Dequeued::Empty,
        Judged::Sends => source.pop().into(),
        Judged::Acts(due) => act(params, state, stats, now, (source, due), drops),
    }
}

/// [`dequeue`] into `line`.
#[inline(always)]
fn dequeue_to<P: Packet, S: Source<P>, D: Drops<P>>(
    params: &Params,
    state: &mut State,
    stats: &mut Stats,
    now: Instant,
    source: &mut S,
    drops: &mut D,
    line: &mut Option<P>,
) -> Dequeued<()> {
    match judge(params, state, now, source) {
        Judged::Empty => return Dequeued::Empty,
        Judged::Sends => *line = source.pop(),
        Judged::Acts(due) => {
            let got = act(params, state, stats, now, (source, due), drops);
            return got.map(|packet| *line = Some(packet));
        }
    }
    Dequeued::Packet(())
}

/// Examines the packet at the head. Most packets leave unchanged; such a packet is examined in
/// place and then moved once, because moving it costs more than examining it.
#[inline(always)]
pub(super) fn judge<P: Packet, S: Source<P>>(
    params: &Params,
    state: &mut State,
    now: Instant,
    source: &S,
) -> Judged {
    let Some(head) = source.head() else {
        // Linux 7.2 (unlike older versions) also clears `first_above_time`, so a flow that returns
        // has a whole interval again.
        state.first_above_time = Instant::ZERO;
        state.dropping = false;
        return Judged::Empty;
    };
    let behind = source.backlog_bytes() - u64::from(head.len());
    let over = state.should_drop(params, head.enqueued(), behind, now);
    state.dropping &= over;
    let due = over && (!state.dropping || now >= state.drop_next);
    if due || state.ldelay > params.ce_threshold.unwrap_or(Duration::MAX) {
        return Judged::Acts(due);
    }
    Judged::Sends
}

/// Drops or marks the packet at the head, and those behind it, as [`judge`] found due; returns the
/// packet that leaves.
#[inline(never)]
pub(super) fn act<P: Packet, S: Source<P>, D: Drops<P>>(
    params: &Params,
    state: &mut State,
    stats: &mut Stats,
    now: Instant,
    (source, due): (&mut S, bool),
    drops: &mut D,
) -> Dequeued<P> {
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

/// One [`dequeue`] that acts on its first packet.
struct Run<'a, S, D> {
    params: &'a Params,
    state: &'a mut State,
    stats: &'a mut Stats,
    now: Instant,
    source: &'a mut S,
    drops: &'a mut D,
}

impl<S, D> Run<'_, S, D> {
    #[inline]
    fn act<P: Packet>(mut self, due: bool) -> Dequeued<P>
    where
        S: Source<P>,
        D: Drops<P>,
    {
        let first = self.source.pop().map(|packet| (packet, false));
        let sent = match first {
            Some((packet, _)) if due && self.state.dropping => self.continue_dropping(packet),
            Some((packet, _)) if due => self.begin(packet),
            _ => first,
        };
        let Some((mut packet, marked)) = sent else {
            return Dequeued::Empty;
        };
        if let Some(threshold) = self.params.ce_threshold
            && self.state.ldelay > threshold
            && packet.ecn() as u8 & self.params.ce_mask == self.params.ce_selector
            && packet.mark()
            && !marked
        {
            self.stats.ce_marks += 1;
        }
        Dequeued::Packet(packet)
    }

    /// Marks or drops `packet` and begins an episode. Returns the packet to send, and whether it
    /// was marked.
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
        // As in Linux, an episode begins even if the drop emptied the queue; the next call then
        // ends it.
        self.state.begin(self.params, self.now);
        sent
    }

    /// Continues the episode: drops none, one or, at a high drop rate, several packets (RFC 8289,
    /// section 5.5), each due interval / sqrt(count) after the due time of the previous drop, not
    /// after now.
    fn continue_dropping<P: Packet>(&mut self, mut packet: P) -> Option<(P, bool)>
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
            self.state.first_above_time = Instant::ZERO;
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

    /// The law's state.
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
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, rng: &mut Rng, drops: &mut D) {
        self.enqueue_with(now, packet.len(), || packet, rng, drops);
    }

    #[inline]
    fn dequeue<D: Drops<P>>(&mut self, now: Instant, _rng: &mut Rng, drops: &mut D) -> Dequeued<P> {
        let Self {
            params,
            state,
            stats,
            queue,
        } = self;
        dequeue(params, state, stats, now, queue, drops)
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

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        gauges.marks = self.marks();
        gauges.head_age = self
            .queue
            .ring
            .front()
            .map_or(Duration::ZERO, |p| now - p.enqueued());
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

impl<P: Packet> FastPath<P> for Codel<P> {
    #[inline(always)]
    fn enqueue_with<D: Drops<P>>(
        &mut self,
        now: Instant,
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
        now: Instant,
        len: u32,
        count: u32,
        make: impl Fn(u32) -> P,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Option<discipline::Backlog> {
        if self.queue.ring.len() + count as usize > self.params.limit as usize {
            return None;
        }
        self.queue.bytes += u64::from(len) * u64::from(count);
        for k in 0..count {
            self.queue.ring.push(make(k)).set_enqueued(now);
        }
        Some(self.backlog())
    }

    #[inline(always)]
    fn dequeue_to<D: Drops<P>>(
        &mut self,
        now: Instant,
        _rng: &mut Rng,
        drops: &mut D,
        line: &mut Option<P>,
    ) -> Dequeued<()> {
        let Self {
            params,
            state,
            stats,
            queue,
        } = self;
        dequeue_to(params, state, stats, now, queue, drops, line)
    }
}

#[cfg(test)]
mod tests;
