//! The delay of the line, from the delays that its sources show.

use super::lasting::STEADY;
use crate::time::{Duration, Instant, MS, SEC};

/// A reflector's base delay is its smallest one of the last `BASE` to 2 `BASE`.
pub(super) const BASE: Duration = Duration::from_secs(10);
/// The start ends when delays have not fallen by `FALL` or more for `CALM` (see
/// [`Beginning::is_over`]), or after `BEGINNING`.
const FALL: Duration = MS;
const CALM: Duration = Duration::from_millis(300);
const BEGINNING: Duration = Duration::from_secs(20);
/// Age up to which the last delay of a reflector counts. It is long because some reflectors answer
/// seldom: one that lies must not be the only one that was heard.
pub(super) const AGREE: Duration = Duration::from_secs(3);
/// Age up to which the last delay of a remote host of the traffic counts.
pub(super) const AGREE_TRAFFIC: Duration = SEC;
/// Number of sources whose last delay is kept.
const SOURCES: usize = 16;

/// The base delay of a reflector: its smallest delay in the present window of 10 s and in the
/// previous one.
#[derive(Clone, Copy, Debug)]
pub struct Base {
    /// Start of the present window.
    since: Instant,
    /// Smallest delay of the present window.
    now: Duration,
    /// Smallest delay of the previous window.
    before: Duration,
}

impl Base {
    /// Starts with the first delay.
    pub fn new(at: Instant, delay: Duration) -> Self {
        Self {
            since: at,
            now: delay,
            before: delay,
        }
    }

    /// Smallest delay of the last 10 to 20 s.
    pub fn least(&self) -> Duration {
        self.now.min(self.before)
    }

    /// Adds a delay; returns by how much it exceeds the smallest.
    pub fn excess(&mut self, at: Instant, delay: Duration) -> Duration {
        if at - self.since > BASE {
            (self.before, self.now, self.since) = (self.now, delay, at);
        }
        self.now = self.now.min(delay);
        delay - self.least()
    }
}

/// Two answers of a reflector within this time must both be fast to lower its base delay fully
/// (see [`Path`]).
const PAIR: Duration = Duration::from_millis(700);

/// Delays of a reflector. An answer that is faster than the one before it by more than `loose`
/// counts for the smallest delay only as `loose` faster: rare fast answers, by another path, would
/// make all others late. (An answer more than [`PAIR`] after the one before counts fully, because
/// answers are rare then.)
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    base: Base,
    /// The last delay and its time.
    last: (Duration, Instant),
    /// The smallest delay so far.
    pub(super) shortest: Duration,
}

impl Path {
    pub(super) fn new(at: Instant, delay: Duration) -> Self {
        Self {
            base: Base::new(at, delay),
            last: (delay, at),
            shortest: delay,
        }
    }

    /// The same path for a clock that begins at 0.
    pub(super) fn at_zero(mut self) -> Self {
        (self.base.since, self.last.1) = (Instant::ZERO, Instant::ZERO);
        self
    }

    /// Adds a delay; returns by how much it exceeds the smallest.
    pub(super) fn excess(&mut self, at: Instant, delay: Duration, loose: Duration) -> Duration {
        let (last, last_at) = self.last;
        let counts = match at <= last_at + PAIR {
            true => delay.max(last.saturating_sub(loose)),
            false => delay,
        };
        self.base.excess(at, counts);
        (self.last, self.shortest) = ((delay, at), self.shortest.min(delay));
        delay.saturating_sub(self.base.least())
    }

    /// Time of the last delay.
    pub(super) fn last_at(&self) -> Instant {
        self.last.1
    }
}

/// The start, in which a queue that the line may hold empties.
#[derive(Clone, Debug)]
pub(super) struct Beginning {
    /// Time of the first delay.
    since: Instant,
    /// The rate to set after the start, bit/s.
    pub(super) rate: f64,
    sources: Vec<Falling>,
}

/// A source during the start.
#[derive(Clone, Copy, Debug)]
struct Falling {
    source: u64,
    /// Time of the last delay that was smaller than all before by [`FALL`], or of the first delay.
    fell: Instant,
    /// Time of the last delay.
    last: Instant,
    /// Number of delays since `fell`.
    calm: u32,
}

impl Beginning {
    pub(super) fn new(now: Instant, rate: f64) -> Self {
        Self {
            since: now,
            rate,
            sources: Vec::new(),
        }
    }

    /// Adds a delay of a source, which is smaller than the source's smallest by `fall` (`None`: the
    /// first of the source); returns whether the start is over. A source is calm if it has given a
    /// delay since the last one that fell by [`FALL`], and that one was [`CALM`] ago. The start is
    /// over if two sources are calm, if one is calm with two delays and at most two sources were
    /// heard within a second, or after [`BEGINNING`].
    pub(super) fn is_over(&mut self, now: Instant, source: u64, fall: Option<Duration>) -> bool {
        let place = self.sources.iter().position(|of| of.source == source);
        let place = place.unwrap_or_else(|| {
            let first = Falling {
                source,
                fell: now,
                last: now,
                calm: 0,
            };
            self.sources.push(first);
            self.sources.len() - 1
        });
        let own = &mut self.sources[place];
        own.last = now;
        match fall {
            Some(fall) if fall < FALL => own.calm += 1,
            Some(_) => (own.fell, own.calm) = (now, 0),
            None => {}
        }
        self.sources.retain(|of| now <= of.last + AGREE_TRAFFIC);
        let calm = |of: &&Falling| of.calm >= 1 && now >= of.fell + CALM;
        let calm = self.sources.iter().filter(calm);
        calm.clone().count() >= 2
            || (self.sources.len() <= 2 && calm.clone().any(|of| of.calm >= 2))
            || now >= self.since + BEGINNING
    }
}

/// A delay that a source (a reflector or a remote host) showed: its time, and its excess over the
/// base.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evidence {
    pub(super) source: u64,
    pub(super) at: Instant,
    pub(super) excess: Duration,
}

impl Evidence {
    pub(super) const NONE: Self = Self {
        source: 0,
        at: Instant::ZERO,
        excess: Duration::ZERO,
    };
}

/// A source. A window is one of [`super::lasting::Lasting`].
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    /// Its last delay minus `longer`.
    last: Evidence,
    /// Time by which its path has become longer.
    longer: Duration,
    /// Its smallest delay of the present window.
    smallest: Duration,
    /// Its largest delay of the present window.
    largest: Duration,
}

/// The last two delays of all, and the last one of each source.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delays {
    last: Evidence,
    before: Evidence,
    /// Entries whose time is 0 are free.
    sources: [Source; SOURCES],
    /// End of the time in which [`Source::longer`] counts.
    longer_until: Instant,
}

impl Delays {
    /// Adds a delay; a new source takes the place of the one heard longest ago.
    pub(super) fn add(&mut self, mut evidence: Evidence) {
        let is_own = |of: &Source| of.last.at > Instant::ZERO && of.last.source == evidence.source;
        let own = self.sources.iter().position(is_own);
        let oldest = || (0..SOURCES).min_by_key(|place| self.sources[*place].last.at);
        if let Some(place) = own.or_else(oldest) {
            let of = &mut self.sources[place];
            if own.is_none() {
                (of.longer, of.smallest, of.largest) =
                    (Duration::ZERO, Duration::MAX, Duration::ZERO);
            }
            if evidence.at >= self.longer_until {
                of.longer = Duration::ZERO;
            }
            of.longer = of.longer.min(evidence.excess);
            of.smallest = of.smallest.min(evidence.excess);
            of.largest = of.largest.max(evidence.excess);
            evidence.excess -= of.longer;
            of.last = evidence;
        }
        (self.before, self.last) = (self.last, evidence);
    }

    /// Begins a window.
    pub(super) fn begin_window(&mut self) {
        for of in &mut self.sources {
            (of.smallest, of.largest) = (Duration::MAX, Duration::ZERO);
        }
    }

    /// Whether at least two thirds of the sources have a smallest delay in the window of at least
    /// [`STEADY`] of their largest.
    pub(super) fn are_steady(&self) -> bool {
        let recent = self.sources.iter().filter(|of| of.smallest < Duration::MAX);
        let steady =
            |of: &&Source| of.smallest.as_nanos() as f64 >= of.largest.as_nanos() as f64 * STEADY;
        let steady = recent.clone().filter(steady).count();
        3 * steady >= 2 * recent.count()
    }

    /// Sets [`Source::longer`] to the smallest delay of the window, for twice [`BASE`].
    pub(super) fn accept(&mut self, now: Instant) {
        self.longer_until = now + 2 * BASE;
        for of in &mut self.sources {
            if of.smallest < Duration::MAX {
                of.longer = of.smallest;
            }
            of.last.excess = Duration::ZERO;
        }
        (self.last.excess, self.before.excess) = (Duration::ZERO, Duration::ZERO);
    }

    /// Delay of the line: the smallest of the last two delays, the last delay of another source,
    /// and the largest delay that at least a third of the sources reach. Of the sources, those
    /// heard within `agree` count.
    pub(super) fn delay(&self, agree: Duration) -> Duration {
        let two = self.last.excess.min(self.before.excess);
        let lately = |of: &&Evidence| of.at > Instant::ZERO && self.last.at < of.at + agree;
        let (mut shown, mut count, mut other) = ([Duration::ZERO; SOURCES], 0, None::<Evidence>);
        for of in self.sources.iter().map(|of| &of.last).filter(lately) {
            shown[count] = of.excess;
            count += 1;
            let is_later = other.is_none_or(|other| of.at > other.at);
            if of.source != self.last.source && is_later {
                other = Some(*of);
            }
        }
        let shown = &mut shown[..count];
        shown.sort_unstable();
        let third = shown.len().checked_sub(count.div_ceil(3));
        let agreed = third.and_then(|place| shown.get(place));
        let other = other.map_or(two, |other| other.excess);
        two.min(other).min(agreed.copied().unwrap_or(two))
    }
}
