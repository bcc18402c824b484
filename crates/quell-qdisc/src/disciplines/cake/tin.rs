//! One tin: its queues, the hosts that share it, its rate and its statistics.

use super::diffserv::Part;
use super::params::Isolation;
use crate::num;
use crate::parts::flows::{FlowId, FlowList, Flows, of_flow};
use crate::rate::Rate;
use crate::time::{Duration, Instant, SEC};
use crate::{Labels, MTU, Packet, Rng, TinGauges, cobalt};

/// Queues of a tin, and hosts that it can distinguish (`CAKE_QUEUES`).
const QUEUES: u32 = 1024;
/// Queues of a set, one of which a flow gets (`CAKE_SET_WAYS`).
const WAYS: u32 = 8;
/// Lower bound of the rate that sets a byte's transmission time, bytes per second.
const MIN_RATE: u64 = 64;

/// State of a flow, by which flows are counted. The list in which it waits is its [`FlowList`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Set {
    /// Inactive.
    #[default]
    None,
    /// A sparse flow.
    Sparse,
    /// A sparse flow that used up its credit and was empty then: it waits in the rotation.
    SparseWait,
    /// A bulk flow, which is in the rotation.
    Bulk,
    /// An empty flow whose COBALT is not yet at rest.
    Decaying,
}

/// State of a flow besides its packets.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowState {
    pub law: cobalt::State,
    pub set: Set,
    /// Indices of its hosts in the table of hosts.
    source: u16,
    destination: u16,
}

/// An entry of the table of hosts: the hash of a source and that of a destination address, and for
/// each the number of its bulk flows.
#[derive(Clone, Copy, Debug, Default)]
struct Host {
    tags: [u32; 2],
    bulk: [u16; 2],
}

/// Indices into the arrays of [`Host`].
const SOURCE: usize = 0;
const DESTINATION: usize = 1;

/// Transmission time of a byte, in units of 2^-shift ns; 0 without a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByteTime {
    time: u64,
    shift: u32,
}

impl ByteTime {
    /// At this many bytes per second (0: no rate). The time has at most 34 bits, so that its
    /// product with a packet's length fits 64 bits.
    fn new(rate: u64) -> Self {
        if rate == 0 {
            return Self::default();
        }
        let mut shift = 34;
        let mut time = (SEC.as_nanos() << shift) / rate.max(MIN_RATE);
        while time >> 34 != 0 {
            time >>= 1;
            shift -= 1;
        }
        Self { time, shift }
    }

    /// True if there is a rate.
    #[inline]
    pub fn limits(&self) -> bool {
        self.time > 0
    }

    /// Transmission time of this many bytes; 0 without a rate.
    #[inline]
    pub fn of(&self, bytes: u32) -> Duration {
        Duration::from_nanos((u64::from(bytes) * self.time) >> self.shift)
    }
}

/// Configuration of a tin, derived from the parameters (`cake_set_rate`).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Config {
    pub part: Part,
    pub byte_time: ByteTime,
    /// Bytes of a flow per round if it is the only bulk flow of its hosts.
    pub quantum: u32,
    pub cobalt: cobalt::Params,
}

impl Config {
    pub fn new(part: Part, target: Duration, interval: Duration) -> Self {
        let byte_time = ByteTime::new(part.rate);
        let mtu_time = byte_time.of(MTU);
        let lowest = (mtu_time * 3 / 2).max(target);
        Self {
            byte_time,
            quantum: match part.rate {
                0 => MTU,
                rate => num::low_u32((rate >> 12).clamp(300, MTU.into())),
            },
            cobalt: cobalt::Params {
                target: lowest,
                interval: (interval + lowest - target).max(2 * lowest),
                mtu_time,
                ..cobalt::Params::default()
            },
            part,
        }
    }
}

/// A tin; its tables are allocated at its first packet.
#[derive(Clone, Debug)]
pub(super) struct Tin<P> {
    pub config: Config,
    pub flows: Flows<P>,
    pub states: Vec<FlowState>,
    /// Hash of the flow that last held each queue.
    tags: Vec<u32>,
    hosts: Vec<Host>,
    /// Time up to which its threshold rate is used up.
    pub next: Instant,
    /// Bytes that it may still send in this round of the round robin that serves the tins while
    /// there is no rate.
    pub deficit: i32,
    pub stats: TinGauges,
    decaying: u32,
}

impl<P: Packet> Tin<P> {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            flows: Flows::new(1),
            states: Vec::new(),
            tags: Vec::new(),
            hosts: Vec::new(),
            next: Instant::ZERO,
            deficit: 0,
            stats: TinGauges::default(),
            decaying: 0,
        }
    }

    /// Allocates the tables at the first packet.
    #[cold]
    fn open(&mut self) {
        self.flows = Flows::new(QUEUES);
        self.tags = vec![0; QUEUES as usize];
        self.hosts = vec![Host::default(); QUEUES as usize];
    }

    /// True if it has active flows.
    #[inline]
    pub fn busy(&self) -> bool {
        self.stats.sparse_flows + self.stats.bulk_flows > 0
    }

    #[inline]
    fn set_of(&self, queue: u32) -> Set {
        self.flows
            .used(queue)
            .map_or(Set::None, |flow| self.states[flow as usize].set)
    }

    /// The flow that a packet joins (`cake_hash`).
    #[inline]
    pub fn classify(&mut self, packet: &P, labels: &Labels, isolation: Isolation) -> FlowId {
        if self.tags.is_empty() {
            self.open();
        }
        let hash = match isolation {
            Isolation::Flowblind => 0,
            Isolation::SourceHost => labels.source,
            Isolation::DestinationHost => labels.destination,
            Isolation::Hosts => labels.source ^ labels.destination,
            _ => packet.flow_hash(),
        };
        let direct = hash % QUEUES;
        let known = self.tags[direct as usize] == hash && self.set_of(direct) != Set::None;
        if known || isolation == Isolation::Flowblind {
            return self.flow_of(direct);
        }
        self.search(hash, direct, labels, isolation)
    }

    #[inline]
    fn flow_of(&mut self, queue: u32) -> FlowId {
        let flow = self.flows.flow_of(queue);
        of_flow(&mut self.states, flow);
        flow
    }

    /// Finds a queue for a flow in the set of eight that its hash names: its own queue, else an
    /// inactive one, else (all are in use) the one that the hash names, which it then shares.
    fn search(&mut self, hash: u32, direct: u32, labels: &Labels, isolation: Isolation) -> FlowId {
        let mut ways = ways(direct);
        let own = ways
            .clone()
            .position(|queue| self.tags[queue as usize] == hash);
        let (queue, moves_in) = if let Some(way) = own {
            let queue = ways.nth(way).unwrap_or(direct);
            self.stats.indirect_hits += u64::from(way > 0);
            (queue, self.set_of(queue) == Set::None)
        } else if let Some(queue) = ways.find(|&queue| self.set_of(queue) == Set::None) {
            self.stats.misses += 1;
            (queue, true)
        } else {
            self.stats.collisions += 1;
            (direct, true)
        };
        self.tags[queue as usize] = hash;
        let flow = self.flow_of(queue);
        if moves_in {
            self.set_hosts(flow, labels, isolation);
        }
        flow
    }

    /// Sets the hosts of the flow that has just got a queue. If the queue is bulk, it moves from
    /// the counts of its previous hosts to those of the new ones.
    fn set_hosts(&mut self, flow: FlowId, labels: &Labels, isolation: Isolation) {
        let bulk = self.states[flow as usize].set == Set::Bulk;
        if bulk {
            self.count_bulk(flow, isolation, false);
        }
        if isolation.weighs_source() {
            self.states[flow as usize].source = self.host(SOURCE, labels.source);
        }
        if isolation.weighs_destination() {
            self.states[flow as usize].destination = self.host(DESTINATION, labels.destination);
        }
        if bulk {
            self.count_bulk(flow, isolation, true);
        }
    }

    /// Index of a host's entry in the set of eight that its hash names: its own entry, else one
    /// without bulk flows, else the one that the hash names. The entry is then the host's.
    fn host(&mut self, side: usize, hash: u32) -> u16 {
        let direct = hash % QUEUES;
        let mut ways = ways(direct);
        let place = ways
            .clone()
            .find(|&place| self.hosts[place as usize].tags[side] == hash)
            .or_else(|| ways.find(|&place| self.hosts[place as usize].bulk[side] == 0))
            .unwrap_or(direct);
        self.hosts[place as usize].tags[side] = hash;
        num::low_u16(place.into())
    }

    /// Adds a bulk flow to the counts of its hosts (`more`), or subtracts it.
    fn count_bulk(&mut self, flow: FlowId, isolation: Isolation, more: bool) {
        let FlowState {
            source,
            destination,
            ..
        } = self.states[flow as usize];
        let mut count = |place: u16, side: usize| {
            let bulk = &mut self.hosts[usize::from(place)].bulk[side];
            *bulk = match more {
                true => (*bulk + 1).min(num::low_u16(QUEUES.into())),
                false => bulk.saturating_sub(1),
            };
        };
        if isolation.weighs_source() {
            count(source, SOURCE);
        }
        if isolation.weighs_destination() {
            count(destination, DESTINATION);
        }
    }

    /// Changes a flow's state and the counts.
    pub fn count_as(&mut self, flow: FlowId, set: Set, isolation: Isolation) {
        let was = std::mem::replace(&mut self.states[flow as usize].set, set);
        for (set, more) in [(was, false), (set, true)] {
            let count = match set {
                Set::None => continue,
                Set::Sparse | Set::SparseWait => &mut self.stats.sparse_flows,
                Set::Bulk => &mut self.stats.bulk_flows,
                Set::Decaying => &mut self.decaying,
            };
            *count = count.wrapping_add_signed(if more { 1 } else { -1 });
            if set == Set::Bulk {
                self.count_bulk(flow, isolation, more);
            }
        }
    }

    /// Bytes of a flow in this round: the quantum over the number of bulk flows of its source or of
    /// its destination, whichever has more. It is dithered so that rounding errors do not add up.
    #[inline(always)]
    pub fn quantum(&self, flow: FlowId, isolation: Isolation, rng: &mut Rng) -> i32 {
        let state = &self.states[flow as usize];
        let mut load = 1;
        if isolation.weighs_source() {
            load = load.max(self.hosts[usize::from(state.source)].bulk[SOURCE]);
        }
        if isolation.weighs_destination() {
            load = load.max(self.hosts[usize::from(state.destination)].bulk[DESTINATION]);
        }
        let part = 65_535 / u32::from(load);
        ((self.config.quantum * part + (rng.u32() & 0xffff)) >> 16).cast_signed()
    }

    /// The flow to serve: new flows before old ones before decaying ones. With `first`, which is
    /// set once per dequeue, a decaying flow comes first, so that each gets its turn.
    #[inline]
    pub fn next_flow(&self, first: bool) -> Option<FlowId> {
        let decaying = self.flows.first(FlowList::Decaying);
        decaying
            .filter(|_| first)
            .or_else(|| self.flows.first(FlowList::New))
            .or_else(|| self.flows.first(FlowList::Old))
            .or(decaying)
    }

    /// Handles an empty flow, which stays known until its COBALT is at rest.
    pub fn found_empty(&mut self, now: Instant, flow: FlowId, isolation: Isolation) {
        let law = &mut self.states[flow as usize].law;
        let asleep = law.queue_empty(&self.config.cobalt, now);
        let rests = law.p_drop == 0 && law.count == 0 && law.drop_next <= now;
        self.stats.unresponsive_flows -= u32::from(asleep);
        let (list, set) = match rests {
            true => (FlowList::Off, Set::None),
            false => (FlowList::Decaying, Set::Decaying),
        };
        self.flows.move_to(flow, list);
        self.count_as(flow, set, isolation);
    }

    /// Counts a departing packet and its delay.
    #[inline]
    pub fn note_departure(&mut self, len: u32, delay: Duration) {
        let s = &mut self.stats;
        s.sent_packets += 1;
        s.sent_bytes += u64::from(len);
        let slow = |up: bool| if up { 2 } else { 8 };
        s.average_delay = average(s.average_delay, delay, 8);
        s.peak_delay = average(s.peak_delay, delay, slow(delay > s.peak_delay));
        s.base_delay = average(s.base_delay, delay, slow(delay < s.base_delay));
    }

    /// The tin's readings.
    pub fn gauges(&self) -> TinGauges {
        TinGauges {
            name: self.config.part.name,
            threshold: Rate::from_bytes_per_sec(self.config.part.rate),
            target: self.config.cobalt.target,
            interval: self.config.cobalt.interval,
            backlog_bytes: self.flows.bytes(),
            quantum: self.config.quantum,
            ..self.stats
        }
    }
}

/// The eight indices of a set, beginning with the one that the hash names.
fn ways(direct: u32) -> impl Iterator<Item = u32> + Clone {
    let set = direct - direct % WAYS;
    (0..WAYS).map(move |i| set + (direct + i) % WAYS)
}

/// A moving average, in which `sample` has the weight 2^-shift.
#[inline]
pub(super) fn average(average: Duration, sample: Duration, shift: u32) -> Duration {
    Duration::from_nanos(ewma(average.as_nanos(), sample.as_nanos(), shift))
}

/// A moving average, in which `sample` has the weight 2^-shift.
#[inline]
pub(super) fn ewma(average: u64, sample: u64, shift: u32) -> u64 {
    average - (average >> shift) + (sample >> shift)
}
