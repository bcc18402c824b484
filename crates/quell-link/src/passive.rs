//! Delay behind a shaper, measured by the timestamps of the TCP segments that pass it both ways
//! (RFC 7323). No packet is sent for it.
//!
//! The first segment of each TSval that leaves for the line is noted; the first segment that
//! returns with it as TSecr ends a round trip. If the TSval enters the shaper again in between, the
//! answer may be to the later segment: the delay is then measured from that one, and not at all if
//! they are more than `TICK` apart.
//!
//! - A pure ACK requires no answer: if no other segment of the connection came in between, the far
//!   side may have had nothing to send, and the round trip is only an upper bound. It is used only
//!   if it shows that there is hardly any delay. While the line's queue is shorter than the time
//!   between two segments, there is no other evidence. Segments other than pure ACKs may wait for a
//!   delayed ACK; of all round trips that end within [`WINDOW`] the smallest delay counts.
//! - A connection's delay is its round trip minus its smallest one of the last 10 to 20 s. A
//!   connection that begins while others show delay is not used until they show none: its smallest
//!   round trip would include that delay. A single host whose delay lasts does not keep it from
//!   being used.
//! - If the far side's clock ticks each millisecond, as Linux's does, its TSval shows how much of
//!   the delay is on the way down: the excess over the smallest value without delay or, if there is
//!   delay for 2 s without a break, over the smallest value in that time. Until then, and with
//!   other clocks, each direction counts the whole delay as its own and lowers its rate, even if
//!   its own part of the delay is below its target.
//!
//! Source: K. Nichols's pping for the matching; the rest is quell's.

use quell_qdisc::control::Delay;
use quell_qdisc::control::pace::Base;
use quell_qdisc::time::{Duration, Instant, MS, SEC};

/// Far hosts are kept in `SETS` sets of `WAYS`, with `CONNECTIONS` each; those idle longest are
/// evicted.
const SETS: usize = 16;
const WAYS: usize = 4;
const CONNECTIONS: usize = 8;
/// A connection with a measured round trip is kept if it had a segment within this time.
const IN_USE: Duration = SEC;
/// A host whose delay was measured within this time, even if it was 0, is evicted last.
const DELAY_MEMORY: Duration = Duration::from_secs(10);
/// Segments of a connection that wait for their echo; more are not noted.
const STAMPS: usize = 16;
/// Smallest time between two segments that are noted.
const GAP: Duration = Duration::from_millis(10);
/// Longest tick of a near clock with which delays are measured: that of old Linux.
const TICK: Duration = Duration::from_millis(12);
/// Timeout of an echo.
const ECHO_TIMEOUT: Duration = Duration::from_secs(30);
/// Smallest time between two reported delays.
pub const WINDOW: Duration = Duration::from_millis(25);
/// A delay, or a bound on it, of at most 1 / `NO_DELAY` of the round trip counts as no delay.
const NO_DELAY: u64 = 8;
/// A bound on the delay that is no larger than this is evidence that there is none.
const CLEAR: Duration = Duration::from_millis(3);
/// Age at which a reported delay is out of date.
const MAX_AGE: Duration = SEC;
/// Longest time that a new connection waits for others to show no delay: a delay that stays
/// although the rate has fallen is not the line's.
const NEWCOMER_TIMEOUT: Duration = Duration::from_secs(3);
/// A host whose delay has lasted for [`NEWCOMER_TIMEOUT`] can keep new connections from being used
/// again only after this time without delay. Otherwise a host that lies with short pauses could do
/// so without end.
const CALM: Duration = Duration::from_secs(30);
/// Smallest number of hosts whose timestamps must distinguish the directions before those of others
/// are ignored: a single host may have a wrong clock.
const MIN_HOSTS: usize = 2;
/// One of this many hosts must distinguish the directions before the others are ignored.
const HOSTS_SHARE: usize = 3;
/// Interval at which the far side's clock is checked.
const CLOCK_INTERVAL: Duration = Duration::from_secs(2);
/// Deviation of a far clock that a change of the delay may cause.
const MAX_CLOCK_DEVIATION: Duration = Duration::from_millis(400);
/// Added to differences of clocks, so that none is negative.
const OFFSET: i64 = 1 << 60;

/// Fields of a segment's header that the measurement uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// Hash of the far host's address.
    pub host: u64,
    /// Hash of addresses and ports, the same in both directions.
    pub connection: u64,
    /// TSval.
    pub value: u32,
    /// TSecr; 0: no echo.
    pub echo: u32,
    /// Whether the segment requires an answer: it carries data, SYN or FIN.
    pub requires_answer: bool,
}

/// A segment that was noted.
#[derive(Clone, Copy, Debug, Default)]
struct Stamp {
    /// Its TSval.
    value: u32,
    requires_answer: bool,
    /// Time at which it entered the shaper.
    entered: Instant,
    /// Time at which it left the shaper for the line.
    left: Instant,
    /// Time after `entered` at which the last segment with the same TSval entered the shaper.
    last_copy: Duration,
}

/// The far side's clock.
#[derive(Clone, Copy, Debug)]
struct FarClock {
    /// Time of its first reading.
    since: Instant,
    /// Its value at the first reading.
    first: u32,
    /// Time of the last check.
    checked: Instant,
    /// Whether it ticks each millisecond, by the last check.
    ticks_ms: bool,
    /// Time since which it is known to tick each millisecond, and the smallest delay since then.
    known: Option<(Instant, Duration)>,
    /// The smallest delay, once there was none or it has lasted for [`CLOCK_INTERVAL`].
    base: Option<Base>,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    /// See [`Stamped::connection`].
    name: u64,
    /// Time of the last segment in either direction.
    seen: Instant,
    /// Time of the last segment from the far side.
    last_arrival: Instant,
    /// Last TSval that left.
    value: Option<u32>,
    /// Time at which a segment was last noted.
    noted: Instant,
    /// The first `waiting` of these stamps wait for their echo, oldest first.
    stamps: [Stamp; STAMPS],
    waiting: usize,
    /// Time of the first round trip, and the smallest one until the connection is used.
    first: Option<(Instant, Duration)>,
    /// The smallest round trip, once the connection is used.
    base: Option<Base>,
    clock: Option<FarClock>,
}

impl Connection {
    fn new(name: u64) -> Self {
        Self {
            name,
            seen: Instant::ZERO,
            last_arrival: Instant::ZERO,
            value: None,
            noted: Instant::ZERO,
            stamps: [Stamp::default(); STAMPS],
            waiting: 0,
            first: None,
            base: None,
            clock: None,
        }
    }

    /// Whether a round trip of this connection has ended.
    fn answered(&self) -> bool {
        self.first.is_some() || self.base.is_some()
    }

    fn forget(&mut self, count: usize) {
        self.stamps.copy_within(count..self.waiting, 0);
        self.waiting -= count;
    }

    fn note(&mut self, now: Instant, entered: Instant, segment: &Stamped) {
        let is_first = self.value.is_none_or(|last| after(segment.value, last));
        if !is_first {
            let mut waiting = self.stamps[..self.waiting].iter_mut();
            if let Some(stamp) = waiting.find(|stamp| stamp.value == segment.value) {
                stamp.last_copy = stamp.last_copy.max(entered.saturating_since(stamp.entered));
            }
            return;
        }
        self.value = Some(segment.value);
        let late = |stamp: &&Stamp| stamp.left + ECHO_TIMEOUT < now;
        self.forget(self.stamps[..self.waiting].iter().take_while(late).count());
        if self.waiting == STAMPS || (self.noted > Instant::ZERO && now < self.noted + GAP) {
            return;
        }
        self.noted = now;
        self.stamps[self.waiting] = Stamp {
            value: segment.value,
            requires_answer: segment.requires_answer,
            entered,
            left: now,
            last_copy: Duration::ZERO,
        };
        self.waiting += 1;
    }

    /// The noted segment that this one echoes, if it is the first to do so.
    fn echoed(&mut self, echo: u32) -> Option<Stamp> {
        if self.value.is_none_or(|last| after(echo, last)) {
            return None;
        }
        let waiting = &self.stamps[..self.waiting];
        let past = waiting
            .iter()
            .take_while(|stamp| !after(stamp.value, echo))
            .count();
        let last = past.checked_sub(1).map(|last| waiting[last]);
        self.forget(past);
        last.filter(|stamp| stamp.value == echo)
    }

    /// Excess of the delay of the far side's segment over the smallest one; `None` if the far clock
    /// does not show it. `calm`: whether there is no delay now.
    fn down(&mut self, now: Instant, value: u32, calm: bool) -> Option<Duration> {
        let clock = self.clock.get_or_insert(FarClock {
            since: now,
            first: value,
            checked: now,
            ticks_ms: false,
            known: None,
            base: None,
        });
        let ticks = i64::from(value.wrapping_sub(clock.first).cast_signed());
        let behind = now.signed_since(clock.since) - ticks * MS.as_nanos().cast_signed();
        let delay = Duration::from_nanos((OFFSET + behind).cast_unsigned());
        if now >= clock.checked + CLOCK_INTERVAL {
            clock.checked = now;
            clock.ticks_ms = Duration::from_nanos(behind.unsigned_abs())
                < MAX_CLOCK_DEVIATION.max((now - clock.since) / 1000);
            clock.known = clock.known.filter(|_| clock.ticks_ms);
            clock.base = clock.base.filter(|_| clock.ticks_ms);
        }
        if clock.ticks_ms && clock.base.is_none() {
            let (since, least) = clock.known.get_or_insert((now, delay));
            *least = delay.min(*least);
            if calm || now >= *since + CLOCK_INTERVAL {
                clock.base = Some(Base::new(now, *least));
            }
        }
        Some(clock.base.as_mut()?.excess(now, delay))
    }
}

/// Whether one timestamp is later than another, by RFC 7323's comparison of numbers that wrap.
fn after(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

/// A round trip that ended, of the connection at index `place`.
struct Trip {
    place: usize,
    took: Duration,
    /// See [`Stamp::last_copy`].
    last_copy: Duration,
    /// Whether it was about as short as the shortest of its connection, or of its host if the
    /// connection is new.
    clears: bool,
}

/// A far host with its connections.
#[derive(Clone, Debug)]
struct Host {
    /// See [`Stamped::host`].
    name: u64,
    /// Time of the last segment in either direction.
    seen: Instant,
    connections: [Option<Connection>; CONNECTIONS],
    /// Smallest round trip of all connections.
    base: Option<Base>,
    /// Start of the time in which it has shown delay, with pauses of less than [`CALM`].
    late: Option<Instant>,
    /// Start of the present pause without delay, if there is one.
    pause: Option<Instant>,
    /// Time of its last measured delay, which may be 0.
    showed_at: Option<Instant>,
    /// Time of its last delay that distinguished the directions.
    distinguished_at: Option<Instant>,
}

impl Host {
    fn new(name: u64) -> Self {
        Self {
            name,
            seen: Instant::ZERO,
            connections: [None; CONNECTIONS],
            base: None,
            late: None,
            pause: None,
            showed_at: None,
            distinguished_at: None,
        }
    }

    /// The connection `name`, new if there is none; `None` while all places are in use.
    fn connection(&mut self, now: Instant, name: u64) -> Option<&mut Connection> {
        let all = &mut self.connections;
        let place = all.iter().position(|c| c.is_some_and(|c| c.name == name));
        let place = place.or_else(|| {
            // In a flood of unanswered segments, their connections replace each other.
            let quiet =
                |at: &usize| all[*at].map_or((false, None), |c| (c.answered(), Some(c.seen)));
            let place = (0..CONNECTIONS).min_by_key(quiet)?;
            if all[place].is_some_and(|c| c.answered() && now < c.seen + IN_USE) {
                return None;
            }
            all[place] = None;
            Some(place)
        })?;
        Some(all[place].get_or_insert(Connection::new(name)))
    }

    /// The round trip that a segment ends, if any.
    fn trip(&mut self, now: Instant, segment: &Stamped) -> Option<Trip> {
        self.seen = now;
        let of = |c: &Option<Connection>| c.is_some_and(|c| c.name == segment.connection);
        let place = self.connections.iter().position(of)?;
        let connection = self.connections[place].as_mut()?;
        let before = std::mem::replace(&mut connection.last_arrival, now);
        connection.seen = now;
        let stamp = connection.echoed(segment.echo)?;
        let took = now.saturating_since(stamp.left);
        let bounds_only = !stamp.requires_answer && before <= stamp.left;
        let base = connection.base.or(self.base);
        let clears = base.is_some_and(|base| took <= base.least() + (took / NO_DELAY).max(CLEAR));
        let is_evidence = !bounds_only && stamp.last_copy <= TICK;
        (clears || is_evidence).then_some(Trip {
            place,
            took,
            last_copy: stamp.last_copy,
            clears,
        })
    }

    /// The delay derived from a round trip. `shown` is the delay that others show now: a new
    /// connection's smallest round trip would include it. `by_direction`: this host or enough
    /// others distinguish the directions.
    fn delay(
        &mut self,
        now: Instant,
        segment: &Stamped,
        trip: &Trip,
        shown: Duration,
        by_direction: bool,
    ) -> Option<Delay> {
        let connection = self.connections[trip.place].as_mut()?;
        let negligible = trip.took / NO_DELAY;
        if connection.base.is_none() {
            let (since, least) = connection.first.get_or_insert((now, trip.took));
            *least = trip.took.min(*least);
            if !trip.clears && shown > negligible && now < *since + NEWCOMER_TIMEOUT {
                return None;
            }
            connection.base = Some(Base::new(now, *least));
        }
        let base = connection.base.as_mut()?;
        let base_decrease = base.least().saturating_sub(trip.took);
        let took = base.excess(now, trip.took);
        let excess = took.saturating_sub(trip.last_copy);
        let host = self.base.get_or_insert(Base::new(now, trip.took));
        host.excess(now, trip.took);
        let source = self.name;
        self.showed_at = Some(now);
        if took > negligible {
            (self.late, self.pause) = (Some(self.late.unwrap_or(now)), None);
        } else if now >= *self.pause.get_or_insert(now) + CALM {
            self.late = None;
        }
        let delay = match connection.down(now, segment.value, took <= negligible) {
            Some(down) => Delay {
                source,
                up: excess.saturating_sub(down),
                down: down.min(excess),
                base_decrease,
                by_direction: true,
            },
            None if by_direction => return None,
            None => Delay {
                source,
                up: excess,
                down: excess,
                base_decrease,
                by_direction: false,
            },
        };
        if delay.by_direction {
            self.distinguished_at = Some(now);
        }
        Some(delay)
    }

    fn distinguishes_directions(&self, now: Instant) -> bool {
        self.distinguished_at.is_some_and(|at| now < at + MAX_AGE)
    }

    fn showed_since(&self, now: Instant, span: Duration) -> bool {
        self.showed_at.is_some_and(|at| now < at + span)
    }
}

/// Reads the segments of both directions of a line.
#[derive(Clone, Debug)]
pub struct Passive {
    hosts: Vec<Option<Host>>,
    /// The last reported delay and its time.
    reported: Option<(Instant, Delay)>,
    /// The last delay that was reported of another host, and its time.
    other: Option<(Instant, Delay)>,
    /// The smallest delays since the last report.
    least: Option<Delay>,
}

impl Default for Passive {
    fn default() -> Self {
        Self {
            hosts: vec![None; SETS * WAYS],
            reported: None,
            other: None,
            least: None,
        }
    }
}

impl Passive {
    /// Indices at which a host may be.
    fn places(name: u64) -> std::ops::Range<usize> {
        let first = (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % SETS * WAYS;
        first..first + WAYS
    }

    fn place(&self, name: u64) -> Option<usize> {
        let is = |at: &usize| {
            self.hosts[*at]
                .as_ref()
                .is_some_and(|host| host.name == name)
        };
        Self::places(name).find(is)
    }

    /// A segment, which entered the shaper at `entered`, has left it for the line.
    pub fn on_departure(&mut self, now: Instant, entered: Instant, segment: &Stamped) {
        let place = self.place(segment.host).unwrap_or_else(|| {
            // Hosts with a measured delay are evicted last, so in a flood new hosts replace each
            // other.
            let quiet = |at: &usize| {
                let host = self.hosts[*at].as_ref();
                host.map_or((false, None), |host| {
                    (host.showed_since(now, DELAY_MEMORY), Some(host.seen))
                })
            };
            let places = Self::places(segment.host);
            let place = places.clone().min_by_key(quiet).unwrap_or(places.start);
            self.hosts[place] = None;
            place
        });
        let host = self.hosts[place].get_or_insert_with(|| Host::new(segment.host));
        host.seen = now;
        if let Some(connection) = host.connection(now, segment.connection) {
            connection.seen = now;
            connection.note(now, entered, segment);
        }
    }

    /// The recently reported delay, up plus down: the smaller one of the last two hosts, or that of
    /// a single host, unless this has lasted for [`NEWCOMER_TIMEOUT`]. Only this delay keeps new
    /// connections from being used.
    fn shown(&self, now: Instant) -> Duration {
        let both = [self.reported, self.other].into_iter().flatten();
        let fresh = both.filter(|(at, _)| now < *at + MAX_AGE);
        let delays = fresh.clone().map(|(_, delay)| delay.up + delay.down);
        let is_lone_and_lasts = fresh.clone().count() == 1
            && fresh
                .filter_map(|(_, delay)| self.hosts[self.place(delay.source)?].as_ref()?.late)
                .any(|late| now >= late + NEWCOMER_TIMEOUT);
        match is_lone_and_lasts {
            true => Duration::ZERO,
            false => delays.min().unwrap_or(Duration::ZERO),
        }
    }

    /// Whether enough hosts distinguish the directions that delays of other hosts, which do not,
    /// can be ignored.
    fn directions_are_known(&self, now: Instant) -> bool {
        let hosts = self.hosts.iter().flatten();
        let recent = hosts.filter(|host| host.showed_since(now, MAX_AGE));
        let known = recent
            .clone()
            .filter(|host| host.distinguishes_directions(now))
            .count();
        known >= MIN_HOSTS && known * HOSTS_SHARE >= recent.count()
    }

    /// A segment has arrived from the line. Returns the delay if a report is due.
    pub fn on_arrival(&mut self, now: Instant, segment: &Stamped) -> Option<Delay> {
        let place = self.place(segment.host)?;
        let trip = self.hosts[place].as_mut()?.trip(now, segment)?;
        let shown = self.shown(now);
        // The other hosts are searched only if this one does not suffice.
        let by_direction = self.hosts[place].as_ref()?.distinguishes_directions(now)
            || self.directions_are_known(now);
        let host = self.hosts[place].as_mut()?;
        let delay = host.delay(now, segment, &trip, shown, by_direction)?;
        self.report(now, delay)
    }

    /// Records a delay. Returns the least delay of the last [`WINDOW`] if a report is due.
    fn report(&mut self, now: Instant, delay: Delay) -> Option<Delay> {
        let least = self.least.map_or(delay, |least| {
            let sum = |delay: &Delay| delay.up + delay.down;
            let less = if sum(&delay) <= sum(&least) {
                delay
            } else {
                least
            };
            Delay {
                up: least.up.min(delay.up),
                down: least.down.min(delay.down),
                ..less
            }
        });
        self.least = Some(least);
        if self.reported.is_some_and(|(at, _)| now < at + WINDOW) {
            return None;
        }
        if self
            .reported
            .is_some_and(|(_, last)| last.source != least.source)
        {
            self.other = self.reported;
        }
        self.reported = Some((now, least));
        self.least.take()
    }
}

#[cfg(test)]
mod tests;
