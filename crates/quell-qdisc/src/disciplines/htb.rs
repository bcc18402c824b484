//! HTB: a hierarchy of token buckets. Each class has a guaranteed rate and a ceiling up to which it
//! may borrow from its parent; classes that send at the same level and priority take turns by
//! deficit round robin.
//!
//! Sources: Linux 7.x `net/sched/sch_htb.c`, `sch_generic.c` (`psched_ratecfg_precompute`),
//! tc-htb(8) and `tc/q_htb.c` (bursts). Deviations:
//! - filters belong to the whole tree, none to an inner class;
//! - no hysteresis (a parameter of the kernel module, off by default), no limit on the events of
//!   one call, no hardware offload;
//! - at most 128 classes.

use super::class::{Class as Held, Classes};
use crate::discipline::Wants;
use crate::disciplines::Fifo;
use crate::num;
use crate::parts::filter::{Filter, Filters};
use crate::rate::Rate;
use crate::time::{Duration, Instant, SEC};
use crate::{Dequeued, Discipline, Drops, Gauges, Packet, Rng, TinGauges, disciplines, fifo};

/// Maximum number of classes.
pub const MAX_CLASSES: usize = 128;
/// `TC_HTB_NUMPRIO`: priorities.
const PRIORITIES: usize = 8;
/// `TC_HTB_MAXDEPTH`: levels; leaves are on the lowest, roots with children on the highest.
const LEVELS: usize = 8;
/// Longest time for which a bucket fills, and its largest debt, ns.
const MAX_DEBT: i64 = 60 * SEC.as_nanos().cast_signed();
/// The largest packet that `tc` assumes for a default burst, bytes.
const LARGEST: u64 = 1600;
/// `tc`'s unit of time, ns.
const TICK: u64 = 64;

/// Parameters, named as in tc-htb(8).
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Minor number of the leaf for packets that no filter takes; without such a leaf they pass
    /// unshaped.
    pub default: u16,
    /// Bytes per second of a class's rate for each byte of its quantum (default 10).
    pub r2q: u32,
    /// Limit of the queue of unshaped packets (default 1000, the device's `txqueuelen`).
    pub direct_qlen: u32,
    /// The classes; filters are evaluated in this order.
    pub classes: Vec<Class>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            default: 0,
            r2q: 10,
            direct_qlen: 1000,
            classes: Vec::new(),
        }
    }
}

/// A class.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its number in `tc`, with the major number in the upper 16 bits.
    pub id: u32,
    /// The class above it.
    pub parent: Option<u32>,
    /// Guaranteed rate.
    pub rate: Rate,
    /// Highest rate with borrowing; `None`: its rate.
    pub ceil: Option<Rate>,
    /// Bytes that it may send at once at its rate; `None`: 1600 plus the bytes of 1 ns.
    pub burst: Option<u64>,
    /// Bytes that it may send at once at its ceiling; `None`: 1600 plus the bytes of 1 ns.
    pub cburst: Option<u64>,
    /// Priority of a leaf: 0 (borrows first) to 7.
    pub prio: u8,
    /// Of a leaf: bytes per round among leaves of one priority; `None`: the rate in bytes over
    /// `r2q`, 1000 to 200000.
    pub quantum: Option<u32>,
    /// Filter of its packets; without conditions it takes none.
    pub filter: Filter,
    /// Queue of a leaf; `None`: a FIFO of 1000 packets.
    pub queue: Option<disciplines::Params>,
}

impl Params {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.classes.len() > MAX_CLASSES {
            return Err("there may be at most 128 classes");
        }
        if self.r2q == 0 {
            return Err("r2q must be at least 1");
        }
        for (i, class) in self.classes.iter().enumerate() {
            let is_zero = |rate: Rate| rate.bytes_per_sec() == 0;
            if is_zero(class.rate) || class.ceil.is_some_and(is_zero) {
                return Err("a class needs a rate of at least 8 bit/s");
            }
            if self.classes[..i].iter().any(|other| other.id == class.id) {
                return Err("two classes have the same id; number them differently");
            }
            if self.classes[0].id >> 16 != class.id >> 16 || class.id & 0xffff == 0 {
                return Err("the ids of all classes have the same major number and a minor one");
            }
            let mut at = class.parent;
            for depth in 1.. {
                let Some(id) = at else { break };
                let Some(parent) = self.classes.iter().find(|c| c.id == id) else {
                    return Err("a class names a parent that does not exist; add its table");
                };
                if depth >= LEVELS {
                    return Err("the tree has more than 8 levels, or contains a cycle");
                }
                at = parent.parent;
            }
            let is_parent = self.classes.iter().any(|c| c.parent == Some(class.id));
            if is_parent && (class.queue.is_some() || !class.filter.is_empty()) {
                return Err(
                    "a class with classes below it has no queue and no filter; give them to a leaf",
                );
            }
        }
        Ok(())
    }
}

/// Converts bytes into time at a rate as Linux does: by a multiplication and a shift.
#[derive(Clone, Copy, Debug)]
struct RateCfg {
    mult: u64,
    shift: u32,
}

impl RateCfg {
    fn new(rate: Rate) -> Self {
        let bytes = rate.bytes_per_sec();
        let (mut factor, mut shift) = (SEC.as_nanos(), 0);
        loop {
            let mult = factor / bytes.max(1);
            if mult & (1 << 31) != 0 || factor & (1 << 63) != 0 {
                return Self { mult, shift };
            }
            factor <<= 1;
            shift += 1;
        }
    }

    #[inline]
    fn ns(self, bytes: u32) -> i64 {
        ((u64::from(bytes) * self.mult) >> self.shift).cast_signed()
    }
}

/// Depth of a bucket: the time of a burst at the rate, ns.
fn depth(rate: Rate, burst: Option<u64>) -> i64 {
    let bytes = rate.bytes_per_sec();
    let burst = burst.unwrap_or(bytes / SEC.as_nanos() + LARGEST);
    let ns = u128::from(burst) * u128::from(SEC.as_nanos()) / u128::from(bytes.max(1));
    // `tc` passes the depth to the kernel in 32 bits, in units of its own.
    (num::low_u64(ns) / TICK).min(u32::MAX.into()).cast_signed() * TICK.cast_signed()
}

/// A set of classes, a bit for each.
type Set = u128;

/// The first class of a set from `at` on.
#[inline]
fn from(set: Set, at: u8) -> Option<u8> {
    let rest = set.checked_shr(at.into()).unwrap_or(0);
    (rest != 0).then(|| at + num::low_u8(rest.trailing_zeros().into()))
}

/// Classes that take turns at one priority: those of a level, or those below a class that borrow
/// from it.
#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    active: Set,
    /// The class whose turn it is.
    at: Option<u8>,
    /// The class whose turn it was when it left the set.
    last: Option<u8>,
}

impl Turns {
    #[inline]
    fn next(&mut self) {
        self.at = self.at.and_then(|at| from(self.active, at + 1));
    }
}

/// Whether a class may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The class has reached its ceiling.
    CantSend,
    /// The class has used its rate, and may send if a class above it can.
    MayBorrow,
    /// The class is below its rate.
    CanSend,
}

/// State of a class. Classes are in the order of their ids, which is also the order of turns.
#[derive(Clone, Debug)]
struct Node {
    parent: Option<u8>,
    level: usize,
    rate: RateCfg,
    ceil: RateCfg,
    /// Depths of the buckets of the rate and of the ceiling, ns.
    buffer: i64,
    cbuffer: i64,
    /// Tokens in these buckets, ns; negative: debt.
    tokens: i64,
    ctokens: i64,
    /// Time of the last update of the tokens.
    checked: Instant,
    mode: Mode,
    /// Time at which its mode changes by itself.
    due: Instant,
    prio: u8,
    quantum: i32,
    /// Bytes that a leaf may still send in its turn, by the level that lends to it.
    deficit: [i32; LEVELS],
    /// A bit for each priority at which it or a class below it has something to send.
    active: u8,
    /// Of an inner class: the classes below it that borrow, by priority.
    feeds: [Turns; PRIORITIES],
}

/// State of one level.
#[derive(Clone, Debug)]
struct Level {
    rows: [Turns; PRIORITIES],
    /// Classes whose modes will change, the earliest first.
    waiting: Vec<u8>,
    /// Time of the next check for events.
    next_check: Instant,
}

/// The `htb` queue.
#[derive(Clone, Debug)]
pub struct Htb<P> {
    /// The queues of leaves; those of inner classes stay empty.
    queues: Classes<P>,
    nodes: Vec<Node>,
    levels: Vec<Level>,
    filters: Filters,
    /// The class of packets that no filter takes.
    default: Option<u8>,
    /// Packets that pass unshaped.
    direct: Fifo<P>,
    now: Instant,
}

impl<P: Packet> Htb<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        let mut sorted: Vec<&Class> = params.classes.iter().take(MAX_CLASSES).collect();
        sorted.sort_by_key(|class| class.id);
        let place = |id: u32| {
            sorted
                .iter()
                .position(|c| c.id == id)
                .map(|i| num::low_u8(i as u64))
        };
        let above = |class: &Class| {
            let parent = |id: &Option<u32>| id.and_then(|id| sorted.iter().find(|c| c.id == id));
            std::iter::successors(parent(&class.parent), |c| parent(&c.parent))
                .take(LEVELS)
                .count()
        };
        let node = |class: &&Class| {
            let is_inner = sorted.iter().any(|c| c.parent == Some(class.id));
            let ceil = class.ceil.unwrap_or(class.rate);
            let by_rate = class.rate.bytes_per_sec() / u64::from(params.r2q.max(1));
            let quantum = class.quantum.unwrap_or(by_rate.clamp(1000, 200_000) as u32);
            let (buffer, cbuffer) = (depth(class.rate, class.burst), depth(ceil, class.cburst));
            Node {
                parent: class.parent.and_then(place),
                level: if is_inner {
                    (LEVELS - 1).saturating_sub(above(class))
                } else {
                    0
                },
                rate: RateCfg::new(class.rate),
                ceil: RateCfg::new(ceil),
                buffer,
                cbuffer,
                tokens: buffer,
                ctokens: cbuffer,
                checked: Instant::ZERO,
                mode: Mode::CanSend,
                due: Instant::ZERO,
                prio: class.prio.min(num::low_u8(PRIORITIES as u64) - 1),
                quantum: quantum.min(i32::MAX as u32).cast_signed(),
                deficit: [0; LEVELS],
                active: 0,
                feeds: Default::default(),
            }
        };
        let nodes: Vec<Node> = sorted.iter().map(node).collect();
        let queue = |class: &&Class| {
            let fifo = || disciplines::Params::Fifo(fifo::Params::default());
            let seen = TinGauges {
                class: class.id,
                threshold: class.rate,
                ..TinGauges::default()
            };
            Held::new(class.queue.clone().unwrap_or_else(fifo), seen)
        };
        let level = |_| Level {
            rows: Default::default(),
            waiting: Vec::with_capacity(nodes.len()),
            next_check: Instant::ZERO,
        };
        let filters = params.classes.iter();
        let filters = filters.filter_map(|c| Some((&c.filter, place(c.id)?)));
        let direct = fifo::Params {
            limit_packets: params.direct_qlen,
            ..fifo::Params::default()
        };
        let major = sorted.first().map_or(0, |c| c.id & 0xffff_0000);
        let default = place(major | u32::from(params.default));
        Self {
            queues: Classes::new(sorted.iter().map(queue)),
            levels: (0..LEVELS).map(level).collect(),
            filters: Filters::new(filters),
            default: default.filter(|at| nodes[usize::from(*at)].level == 0),
            nodes,
            direct: Fifo::new(direct),
            now: Instant::ZERO,
        }
    }

    #[inline]
    fn node(&mut self, at: u8) -> &mut Node {
        &mut self.nodes[usize::from(at)]
    }

    /// The turns of the classes that borrow from this parent.
    #[inline]
    fn feed(&mut self, parent: u8, prio: usize) -> &mut Turns {
        &mut self.node(parent).feeds[prio]
    }

    /// Adds a class to the turns of its current mode: below its parent if it borrows (the parent
    /// then has something to send), or in its level's row.
    fn activate(&mut self, mut at: u8) {
        let mut mask = self.node(at).active;
        while let (Mode::MayBorrow, Some(parent)) = (self.node(at).mode, self.node(at).parent) {
            if mask == 0 {
                return;
            }
            for prio in bits(mask) {
                let feed = self.feed(parent, prio);
                // The parent already has turns at this priority.
                if feed.active != 0 {
                    mask &= !(1 << prio);
                }
                feed.active |= 1 << at;
            }
            self.node(parent).active |= mask;
            at = parent;
        }
        if self.node(at).mode == Mode::CanSend {
            let level = self.node(at).level;
            for prio in bits(mask) {
                self.levels[level].rows[prio].active |= 1 << at;
            }
        }
    }

    /// Removes a class from all turns of its current mode.
    fn deactivate(&mut self, mut at: u8) {
        let mut mask = self.node(at).active;
        while let (Mode::MayBorrow, Some(parent)) = (self.node(at).mode, self.node(at).parent) {
            if mask == 0 {
                return;
            }
            let mut left = 0;
            for prio in bits(mask) {
                let feed = self.feed(parent, prio);
                if feed.at == Some(at) {
                    (feed.last, feed.at) = (Some(at), None);
                }
                feed.active &= !(1 << at);
                if feed.active == 0 {
                    left |= 1 << prio;
                }
            }
            self.node(parent).active &= !left;
            mask = left;
            at = parent;
        }
        if self.node(at).mode == Mode::CanSend {
            let level = self.node(at).level;
            for prio in bits(mask) {
                let row = &mut self.levels[level].rows[prio];
                if row.at == Some(at) {
                    row.next();
                }
                row.active &= !(1 << at);
            }
        }
    }

    /// Deactivates a leaf that has nothing more to send.
    fn deactivate_leaf(&mut self, at: u8) {
        if self.node(at).active != 0 {
            self.deactivate(at);
            self.node(at).active = 0;
        }
    }

    /// Sets a class's mode from its tokens; `since` is the time since their last update, ns.
    /// Returns the time until the mode changes again, ns.
    fn change_mode(&mut self, at: u8, since: i64) -> i64 {
        let node = self.node(at);
        let (tokens, ctokens) = (node.tokens + since, node.ctokens + since);
        let (mode, wait) = match () {
            () if ctokens < 0 => (Mode::CantSend, -ctokens),
            () if tokens >= 0 => (Mode::CanSend, since),
            () => (Mode::MayBorrow, -tokens),
        };
        if mode != node.mode {
            let is_active = node.active != 0;
            if is_active && node.mode != Mode::CantSend {
                self.deactivate(at);
            }
            self.node(at).mode = mode;
            if is_active && mode != Mode::CantSend {
                self.activate(at);
            }
        }
        wait
    }

    /// Schedules the change of a class's mode after this time.
    fn wait(&mut self, at: u8, wait: i64) {
        let due = self
            .now
            .saturating_add(Duration::from_nanos(wait.max(1).unsigned_abs()));
        let node = self.node(at);
        node.due = due;
        let level = &mut self.levels[self.nodes[usize::from(at)].level];
        level.next_check = level.next_check.min(due);
        let nodes = &self.nodes;
        let place = level
            .waiting
            .partition_point(|other| nodes[usize::from(*other)].due <= due);
        level.waiting.insert(place, at);
    }

    /// Charges a packet to its leaf and to all classes above that. `level` is that of the class
    /// which lent the tokens: a class below it pays at its ceiling only.
    fn charge(&mut self, leaf: u8, level: usize, bytes: u32) {
        let mut next = Some(leaf);
        while let Some(at) = next {
            let now = self.now;
            let node = self.node(at);
            let since = node.since(now);
            if node.level >= level {
                node.tokens = (node.tokens + since).min(node.buffer) - node.rate.ns(bytes);
                node.tokens = node.tokens.max(1 - MAX_DEBT);
            } else {
                node.tokens += since;
            }
            node.ctokens = (node.ctokens + since).min(node.cbuffer) - node.ceil.ns(bytes);
            node.ctokens = node.ctokens.max(1 - MAX_DEBT);
            node.checked = now;
            let (old, row) = (node.mode, node.level);
            let wait = self.change_mode(at, 0);
            let mode = self.node(at).mode;
            if old != mode {
                if old != Mode::CanSend {
                    self.levels[row].waiting.retain(|other| *other != at);
                }
                if mode != Mode::CanSend {
                    self.wait(at, wait);
                }
            }
            next = self.node(at).parent;
        }
    }

    /// Applies the mode changes that are due at a level; returns the time of the next one.
    fn events(&mut self, level: usize) -> Instant {
        loop {
            let Some(&at) = self.levels[level].waiting.first() else {
                return self.now + SEC;
            };
            let now = self.now;
            let node = self.node(at);
            if node.due > now {
                return node.due;
            }
            let since = node.since(now);
            self.levels[level].waiting.remove(0);
            let wait = self.change_mode(at, since);
            if self.node(at).mode != Mode::CanSend {
                self.wait(at, wait);
            }
        }
    }

    /// The leaf whose turn it is at a level and priority. Its path begins with `None`, which is the
    /// level's row, and continues with the inner classes on the way to the leaf.
    fn leaf(&mut self, level: usize, prio: usize) -> Option<u8> {
        if self.levels[level].rows[prio].active == 0 {
            return None;
        }
        let mut path = [None; LEVELS];
        let mut depth = 0;
        loop {
            let turns = self.turns(level, prio, path[depth]);
            if turns.at.is_none() {
                turns.at = turns.last.and_then(|last| from(turns.active, last));
            }
            turns.last = None;
            let Some(at) = turns.at else {
                // The end of a round: return to the first class, and take the next turn one level
                // up.
                turns.at = from(turns.active, 0);
                if depth > 0 {
                    depth -= 1;
                    self.turns(level, prio, path[depth]).next();
                }
                continue;
            };
            if self.node(at).level == 0 {
                return Some(at);
            }
            depth += 1;
            path[depth] = Some(at);
        }
    }

    #[inline]
    fn turns(&mut self, level: usize, prio: usize, of: Option<u8>) -> &mut Turns {
        match of {
            None => &mut self.levels[level].rows[prio],
            Some(inner) => self.feed(inner, prio),
        }
    }

    /// Ends the turn of a leaf that sends at this level.
    #[inline]
    fn end_turn(&mut self, leaf: u8, level: usize, prio: usize) {
        let of = self.node(leaf).parent.filter(|_| level > 0);
        self.turns(level, prio, of).next();
    }

    /// Sends the next packet of a level and priority.
    fn send<D: Drops<P>>(
        &mut self,
        (level, prio): (usize, usize),
        rng: &mut Rng,
        drops: &mut D,
    ) -> Dequeued<P> {
        let now = self.now;
        let mut wait = Dequeued::Empty;
        let Some(mut at) = self.leaf(level, prio) else {
            return Dequeued::Empty;
        };
        let mut first = at;
        loop {
            if self.queues.get(at.into()).is_empty() {
                self.deactivate_leaf(at);
                let Some(next) = self.leaf(level, prio) else {
                    return wait;
                };
                first = if at == first { next } else { first };
                at = next;
                continue;
            }
            let got = self
                .queues
                .with(at.into(), |queue| queue.dequeue(now, rng, drops));
            if let Dequeued::Packet(packet) = got {
                self.sent(at, level, prio, packet.len());
                return got;
            }
            wait = wait.sooner(got);
            // Its queue dropped all its packets, or they may not leave yet.
            let rests = self.queues.get(at.into()).is_empty();
            if rests {
                self.deactivate_leaf(at);
            }
            self.end_turn(at, level, prio);
            match self.leaf(level, prio) {
                Some(next) if rests && at == first => (first, at) = (next, next),
                Some(next) if next != first => at = next,
                _ => return wait,
            }
        }
    }

    /// Accounts for a packet that a leaf sent.
    #[inline]
    fn sent(&mut self, at: u8, level: usize, prio: usize, bytes: u32) {
        let node = self.node(at);
        node.deficit[level] = node.deficit[level].saturating_sub_unsigned(bytes);
        if node.deficit[level] < 0 {
            node.deficit[level] += node.quantum;
            self.end_turn(at, level, prio);
        }
        if self.queues.get(at.into()).is_empty() {
            self.deactivate_leaf(at);
        }
        self.charge(at, level, bytes);
    }
}

impl Node {
    /// The time since the last update of its tokens.
    #[inline]
    fn since(&self, now: Instant) -> i64 {
        (now - self.checked).as_nanos().cast_signed().min(MAX_DEBT)
    }
}

/// The indices of the set bits, the lowest first.
#[inline]
fn bits(mask: u8) -> impl Iterator<Item = usize> {
    (0..PRIORITIES).filter(move |prio| mask >> prio & 1 == 1)
}

impl<P: Packet> Discipline<P> for Htb<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, rng: &mut Rng, drops: &mut D) {
        let filtered = self.filters.find(&drops.labels(&packet));
        let Some(at) = filtered.or(self.default) else {
            return self.direct.enqueue(now, packet, rng, drops);
        };
        self.queues
            .with(at.into(), |queue| queue.enqueue(now, packet, rng, drops));
        if self.node(at).active == 0 && !self.queues.get(at.into()).is_empty() {
            self.node(at).active = 1 << self.node(at).prio;
            self.activate(at);
        }
    }

    #[inline]
    fn dequeue<D: Drops<P>>(&mut self, now: Instant, rng: &mut Rng, drops: &mut D) -> Dequeued<P> {
        if let Dequeued::Packet(packet) = self.direct.dequeue(now, rng, drops) {
            return Dequeued::Packet(packet);
        }
        if self.queues.held().packets == 0 {
            return Dequeued::Empty;
        }
        self.now = now;
        let mut next = now + 5 * SEC;
        for level in 0..LEVELS {
            if now >= self.levels[level].next_check {
                let event = self.events(level);
                self.levels[level].next_check = event;
            }
            next = next.min(self.levels[level].next_check);
            for prio in 0..PRIORITIES {
                if self.levels[level].rows[prio].active == 0 {
                    continue;
                }
                match self.send((level, prio), rng, drops) {
                    Dequeued::Packet(packet) => return Dequeued::Packet(packet),
                    Dequeued::NotBefore(t) => next = next.min(t),
                    Dequeued::Empty => {}
                }
            }
        }
        match self.queues.held().packets {
            0 => Dequeued::Empty,
            _ => Dequeued::NotBefore(next),
        }
    }

    #[inline]
    fn next_timer(&self) -> Instant {
        self.queues.next_timer()
    }

    fn on_timer(&mut self, now: Instant) {
        self.queues.on_timer(now);
    }

    #[inline]
    fn len(&self) -> usize {
        self.queues.held().packets + self.direct.len()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.queues.held().bytes + self.direct.bytes()
    }

    fn marks(&self) -> u64 {
        self.queues.marks()
    }

    fn failure(&self) -> Option<&str> {
        self.queues.failure()
    }

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        let mut direct = Gauges::default();
        self.direct.gauges(now, &mut direct);
        self.queues.gauges(now, gauges);
        gauges.head_age = gauges.head_age.max(direct.head_age);
        gauges.limit_packets = gauges.limit_packets.saturating_add(direct.limit_packets);
    }

    /// The tins of the leaves.
    fn tins(&self) -> Vec<TinGauges> {
        let tins = self.queues.tins().into_iter().zip(&self.nodes);
        tins.filter(|(_, node)| node.level == 0)
            .map(|(tin, _)| tin)
            .collect()
    }

    fn wants(&self) -> Wants {
        self.queues.wants()
    }
}

#[cfg(test)]
mod tests;
