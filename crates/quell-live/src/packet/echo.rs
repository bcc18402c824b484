//! ICMP requests to reflectors and the evaluation of their answers, without sockets or clock.
//!
//! A reflector gets ICMP timestamp requests (RFC 792), whose answers give the delay of each
//! direction. After several without an answer, and at an IPv6 address, it gets echo requests (RFC
//! 792, RFC 4443), which give only the round trip. An answer counts once, and only if it has the
//! sequence number and the random word of an outstanding request.

use std::collections::VecDeque;
use std::net::IpAddr;

use quell_qdisc::control::Echo;
use quell_qdisc::control::pace::Base;
use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, MS, SEC};

/// Shortest time between two requests: to any two reflectors, and to the same one.
const MIN_GAP: Duration = Duration::from_millis(50);
const MIN_GAP_PER_REFLECTOR: Duration = Duration::from_millis(200);
/// Time after which a request counts as unanswered: longer than the queue of any modem, so that
/// a full queue is still measured.
const LATE: Duration = Duration::from_secs(30);
/// Timestamp requests without an answer before a reflector gets echo requests.
const TRIES: u32 = 5;
/// After these, one in this many requests is a timestamp request again, since a full modem may have
/// dropped the first ones.
const RETRY_PERIOD: u16 = 16;
/// If a one-way delay grows by `WRONG` more than the round trip, a clock is wrong, and the answer
/// is ignored. `WRONG_ANSWERS` consecutive ones show that a clock was set (or that this machine was
/// suspended, which stops its clock). Timestamps of a reflector whose clock is set again within
/// `SETTLED` are no longer used.
const WRONG: Duration = Duration::from_millis(100);
const WRONG_ANSWERS: u32 = 5;
const SETTLED: Duration = Duration::from_secs(60);
/// An answer with only a round trip does not show which direction is slow. It is ignored if at
/// least `MIN_AGREEING` reflectors have measured both directions within `RECENT`: that many are
/// enough for a controller to compare.
const MIN_AGREEING: usize = 2;
const RECENT: Duration = SEC;
/// Length of a day, after which timestamps start again at 0, ms.
const DAY_MS: i64 = 86_400_000;
const DAY: Duration = Duration::from_millis(DAY_MS as u64);

/// Longest request, bytes.
pub const LENGTH: usize = 20;
/// Most reflectors.
pub const MAX_REFLECTORS: usize = 16;

/// A request that has no answer yet.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// Whether it is a timestamp request.
    dated: bool,
    sequence: u16,
    word: u32,
    sent: Instant,
}

/// Smallest delays of a reflector: round trip, up, down.
#[derive(Clone, Copy, Debug)]
struct Least([Base; 3]);

/// State of a reflector.
#[derive(Clone, Debug)]
struct Reflector {
    address: IpAddr,
    /// Whether it gets timestamp requests now.
    dated: bool,
    /// Whether it may get timestamp requests again: IPv4, and its clock has been usable so far.
    may_date: bool,
    sequence: u16,
    /// Requests without an answer, the oldest first.
    open: VecDeque<Request>,
    /// Timestamp requests since the last answer.
    tries: u32,
    /// Consecutive answers with wrong timestamps.
    wrong: u32,
    /// Offsets added to the one-way delays since a clock was set, and the time of that.
    moved: [Duration; 2],
    set: Option<Instant>,
    /// Time of its last answer that measured both directions.
    measured: Option<Instant>,
    least: Option<Least>,
    next: Instant,
    seen: ReflectorStats,
}

/// Statistics of a reflector.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReflectorStats {
    /// Requests so far.
    pub sent: u64,
    /// Answers so far.
    pub answered: u64,
    /// Packets from its address that answered no request.
    pub refused: u64,
    /// Last round trip.
    pub round_trip: Option<Duration>,
    /// Whether it answers with timestamps.
    pub dated: bool,
}

/// An answer, for the controllers of both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The reflector's number; a different number for its answers without timestamps.
    pub reflector: u32,
    /// Time from the request to the answer.
    pub round_trip: Duration,
    /// One-way delays to the reflector and back, each including the unknown offset of the
    /// clocks.
    pub ways: Option<[Duration; 2]>,
}

impl Answer {
    /// The answer for the controller of the direction to the reflector, or `back`.
    pub fn echo(&self, now: Instant, back: bool) -> Echo {
        Echo {
            now,
            reflector: self.reflector,
            round_trip: self.round_trip,
            one_way: self.ways.map(|ways| ways[usize::from(back)]),
        }
    }
}

/// Sends requests to reflectors in turn.
#[derive(Clone, Debug)]
pub struct Prober<W> {
    reflectors: Vec<Reflector>,
    turn: usize,
    due: Instant,
    /// ICMP identifier of all requests.
    number: u16,
    words: W,
    /// Time of day at time 0, ms since midnight UTC.
    began_ms: u64,
}

impl<W: FnMut() -> Option<u32>> Prober<W> {
    /// A prober for reflectors at these addresses. `began_ms` is the time of day at its time 0, ms
    /// since midnight UTC. `words` must be unpredictable: with a predictable word, answers can be
    /// forged without seeing the requests. While it returns `None`, no request is sent.
    pub fn new(addresses: &[IpAddr], mut words: W, began_ms: u64) -> Self {
        let reflectors = addresses.iter().map(|address| Reflector {
            address: *address,
            dated: address.is_ipv4(),
            may_date: address.is_ipv4(),
            sequence: 0,
            open: VecDeque::new(),
            tries: 0,
            wrong: 0,
            moved: [Duration::ZERO; 2],
            set: None,
            measured: None,
            least: None,
            next: Instant::ZERO,
            seen: ReflectorStats::default(),
        });
        Self {
            reflectors: reflectors.collect(),
            turn: 0,
            due: Instant::ZERO,
            number: num::low_u16((words().unwrap_or_default()).into()),
            words,
            began_ms,
        }
    }

    /// The identifier of all requests and answers.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Time at which the next request is due.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Each reflector's address and statistics.
    pub fn seen(&self) -> impl Iterator<Item = (IpAddr, ReflectorStats)> {
        let dated = |r: &Reflector| r.dated && r.seen.answered > 0;
        let seen = move |r: &Reflector| ReflectorStats {
            dated: dated(r),
            ..r.seen
        };
        self.reflectors.iter().map(move |r| (r.address, seen(r)))
    }

    /// Writes the next request to `out`; returns its destination and length. `None` if no request
    /// is due.
    pub fn next_request(
        &mut self,
        now: Instant,
        out: &mut [u8; LENGTH],
    ) -> Option<(IpAddr, usize)> {
        self.due = now + MIN_GAP;
        let count = self.reflectors.len();
        let ready = |k: &usize| self.reflectors[k % count].next <= now;
        let Some(turn) = (self.turn..self.turn + count).find(ready) else {
            let next = self.reflectors.iter().map(|reflector| reflector.next).min();
            self.due = next.unwrap_or(self.due);
            return None;
        };
        self.turn = (turn + 1) % count;
        // The highest bit marks a value that is not a standard time of day (RFC 792).
        let word = (self.words)()? | 1 << 31;
        let reflector = &mut self.reflectors[turn % count];
        reflector.next = now + MIN_GAP_PER_REFLECTOR;
        reflector.seen.sent += 1;
        reflector.sequence = reflector.sequence.wrapping_add(1);
        let late = |request: &Request| request.sent + LATE < now;
        while reflector.open.front().is_some_and(late) {
            reflector.open.pop_front();
        }
        if reflector.dated {
            reflector.tries += 1;
            if reflector.tries > TRIES && reflector.seen.answered == 0 {
                // An answer to any timestamp request, also to a late one, sets it again.
                reflector.dated = false;
            }
        }
        let sequence = reflector.sequence;
        let again = reflector.may_date && sequence.is_multiple_of(RETRY_PERIOD);
        let dated = reflector.dated || again;
        reflector.open.push_back(Request {
            dated,
            sequence,
            word,
            sent: now,
        });
        let (kind, length) = match (reflector.address, dated) {
            (IpAddr::V6(_), _) => (128, 12),
            (_, true) => (13, 20),
            (_, false) => (8, 12),
        };
        out.fill(0);
        out[0] = kind;
        out[4..6].copy_from_slice(&self.number.to_be_bytes());
        out[6..8].copy_from_slice(&sequence.to_be_bytes());
        out[8..12].copy_from_slice(&word.to_be_bytes());
        // The kernel writes the checksum of ICMPv6.
        if reflector.address.is_ipv4() {
            let sum = checksum(&out[..length]);
            out[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        Some((reflector.address, length))
    }

    /// Evaluates a packet from the ICMP header on; `None` if it is from no reflector, answers no
    /// request, or is not to be used: its timestamps are wrong, or it has none while enough other
    /// reflectors measure both directions.
    pub fn take(&mut self, now: Instant, from: IpAddr, icmp: &[u8]) -> Option<Answer> {
        let count = num::count(self.reflectors.len());
        let lately =
            |reflector: &&Reflector| reflector.measured.is_some_and(|at| now < at + RECENT);
        let others = self.reflectors.iter().filter(lately).count();
        let clock = self.began_ms.cast_signed() + now.as_millis().cast_signed();
        let (at, reflector) = (0..)
            .zip(&mut self.reflectors)
            .find(|(_, reflector)| reflector.address == from)?;
        let Some((request, times)) = reflector.matched(self.number, icmp) else {
            reflector.seen.refused += 1;
            return None;
        };
        let round_trip = now.saturating_since(request.sent);
        reflector.tries = 0;
        reflector.dated |= request.dated;
        reflector.seen.answered += 1;
        reflector.seen.round_trip = Some(round_trip);
        let ways = times.map(|[received, sent]| {
            let before = clock - round_trip.as_millis().cast_signed();
            let [up, down] = reflector.moved;
            [
                (difference(received.into(), before) + up) % DAY,
                (difference(clock, sent.into()) + down) % DAY,
            ]
        });
        let ways = match ways {
            Some(ways) => match reflector.checked(now, round_trip, ways) {
                AnswerContents::Ways(ways) => Some(ways),
                AnswerContents::RoundTrip => None,
                AnswerContents::Nothing => return None,
            },
            None => None,
        };
        let reflector = match ways {
            Some(_) => {
                reflector.measured = Some(now);
                at
            }
            None if others >= MIN_AGREEING => return None,
            None => at + count,
        };
        Some(Answer {
            reflector,
            round_trip,
            ways,
        })
    }
}

impl Reflector {
    /// Switches the reflector to echo requests for good; outstanding requests are forgotten.
    fn undate(&mut self) {
        (self.dated, self.may_date) = (false, false);
        self.open.clear();
    }

    /// The request that a packet answers, and the reflector's receive and transmit timestamps.
    fn matched(&mut self, number: u16, icmp: &[u8]) -> Option<(Request, Option<[u32; 2]>)> {
        let kind = *icmp.first()?;
        let least = if kind == 14 { 20 } else { 12 };
        if icmp.len() < least || icmp[1] != 0 {
            return None;
        }
        let short = |k: usize| u16::from_be_bytes([icmp[k], icmp[k + 1]]);
        let long = |k: usize| u32::from(short(k)) << 16 | u32::from(short(k + 2));
        let (sequence, word) = (short(6), long(8));
        let of = |request: &Request| request.sequence == sequence && request.word == word;
        let place = self.open.iter().position(of)?;
        let wanted = match (self.address, self.open[place].dated) {
            (IpAddr::V6(_), _) => 129,
            (_, true) => 14,
            (_, false) => 0,
        };
        if short(4) != number || kind != wanted {
            return None;
        }
        let request = self.open.remove(place)?;
        let times = (kind == 14).then(|| [long(12), long(16)]);
        Some((request, times))
    }

    /// Checks the one-way delays of an answer against the round trip.
    fn checked(
        &mut self,
        now: Instant,
        round_trip: Duration,
        ways: [Duration; 2],
    ) -> AnswerContents {
        let delays = [round_trip, ways[0], ways[1]];
        let least = self
            .least
            .get_or_insert_with(|| Least(delays.map(|delay| Base::new(now, delay))));
        // Wrong times do not enter the smallest delays.
        let mut after = *least;
        let mut over = [Duration::ZERO; 3];
        for ((base, delay), over) in after.0.iter_mut().zip(delays).zip(&mut over) {
            *over = base.excess(now, delay);
        }
        if over[1].max(over[2]) <= over[0] + WRONG {
            (*least, self.wrong) = (after, 0);
            return AnswerContents::Ways(ways);
        }
        self.wrong += 1;
        if self.wrong < WRONG_ANSWERS {
            return AnswerContents::Nothing;
        }
        self.wrong = 0;
        if self.set.is_some_and(|set| now < set + SETTLED) {
            self.undate();
            return AnswerContents::RoundTrip;
        }
        self.set = Some(now);
        // Assumes that neither direction has a queue now. If one has, its smallest delay falls as
        // soon as the queue shrinks.
        let [_, up, down] = &least.0;
        let usual = [up.least(), down.least()];
        for ((moved, usual), way) in self.moved.iter_mut().zip(usual).zip(ways) {
            *moved = (*moved + usual + DAY - way) % DAY;
        }
        AnswerContents::Ways(usual)
    }
}

/// The usable delays in an answer.
enum AnswerContents {
    /// One-way delays, to the reflector and back.
    Ways([Duration; 2]),
    /// Only the round trip.
    RoundTrip,
    /// None: the answer is ignored.
    Nothing,
}

/// Time from one time of day to another plus half a day, so that it is positive whatever the
/// clocks' offset.
fn difference(later: i64, earlier: i64) -> Duration {
    (later - earlier + DAY_MS / 2).rem_euclid(DAY_MS) as u64 * MS
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    num::low_u16((!((folded & 0xffff) + (folded >> 16))).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_qdisc::Rng;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const TWO: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    const SIX: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
    /// Half a second before midnight, when timestamps start again at 0.
    const LATE_IN_THE_DAY: u64 = 86_399_500;

    /// The same words for each test.
    fn seeded() -> impl FnMut() -> Option<u32> + Clone {
        let mut rng = Rng::new(1, "reflectors");
        move || Some(rng.u32())
    }

    fn asked(prober: &mut Prober<impl FnMut() -> Option<u32>>, now: Instant) -> (IpAddr, Vec<u8>) {
        let mut out = [0; LENGTH];
        let (to, length) = prober.next_request(now, &mut out).expect("one is due");
        (to, out[..length].to_vec())
    }

    /// Linux's answer to a request that arrives `up` after it was sent, by a clock that is `ahead`
    /// ms ahead.
    fn answered(request: &[u8], sent: Instant, up: Duration, ahead: i64) -> Vec<u8> {
        let mut answer = request.to_vec();
        answer[0] = match request[0] {
            13 => 14,
            128 => 129,
            _ => 0,
        };
        if answer[0] == 14 {
            let clock = LATE_IN_THE_DAY as i64 + (sent + up).as_millis() as i64 + ahead;
            let time = (clock.rem_euclid(DAY_MS) as u32).to_be_bytes();
            answer[12..16].copy_from_slice(&time);
            answer[16..20].copy_from_slice(&time);
        }
        answer
    }

    #[test]
    fn requests_have_right_checksums_and_alternate() {
        let mut prober = Prober::new(&[ONE, TWO, SIX], seeded(), LATE_IN_THE_DAY);
        for (k, (whom, kind)) in [(ONE, 13), (TWO, 13), (SIX, 128)].into_iter().enumerate() {
            let (to, request) = asked(&mut prober, Instant::ZERO + k as u64 * MIN_GAP);
            assert_eq!((to, request[0]), (whom, kind));
            if to.is_ipv4() {
                assert_eq!(checksum(&request), 0);
            }
        }
        assert!(
            prober
                .next_request(Instant::from_millis(150), &mut [0; LENGTH])
                .is_none(),
            "none yet"
        );
        assert_eq!(prober.due(), Instant::ZERO + MIN_GAP_PER_REFLECTOR);
    }

    #[test]
    fn timestamps_distinguish_the_directions_over_midnight_and_with_clocks_that_differ() {
        for ahead in [0, -40_000_000, 3_600_000] {
            let mut prober = Prober::new(&[ONE], seeded(), LATE_IN_THE_DAY);
            let mut ways = Vec::new();
            for k in 0..10 {
                let sent = Instant::ZERO + k * MIN_GAP_PER_REFLECTOR;
                let (_, request) = asked(&mut prober, sent);
                let (up, down) = (10 * MS, if k == 9 { 90 * MS } else { 20 * MS });
                let answer = answered(&request, sent, up, ahead);
                let answer = prober.take(sent + up + down, ONE, &answer).unwrap();
                assert_eq!(answer.round_trip, up + down);
                ways.push(answer.ways.unwrap());
            }
            let way = |k: usize, way: usize| ways[k][way].as_nanos().cast_signed();
            let grown = |of: usize| (way(9, of) - way(0, of)) / 1_000_000;
            assert!(grown(0).abs() <= 1, "{ahead}: {}", grown(0));
            assert!((grown(1) - 70).abs() <= 1, "{ahead}: {}", grown(1));
        }
    }

    #[test]
    fn only_answers_to_requests_under_way_count_and_each_once() {
        let mut prober = Prober::new(&[ONE, TWO], seeded(), LATE_IN_THE_DAY);
        let (_, request) = asked(&mut prober, Instant::ZERO);
        let answer = answered(&request, Instant::ZERO, 5 * MS, 0);
        assert!(
            prober.take(Instant::from_millis(1), TWO, &answer).is_none(),
            "of another"
        );
        assert!(
            prober.take(Instant::from_millis(1), SIX, &answer).is_none(),
            "of no reflector"
        );
        for k in 0..answer.len() {
            // All bytes except the checksum, which the kernel checks, and the times.
            if matches!(k, 0 | 1 | 4..=11) {
                let mut wrong = answer.clone();
                wrong[k] ^= 1;
                assert!(
                    prober.take(Instant::from_millis(1), ONE, &wrong).is_none(),
                    "byte {k}"
                );
            }
            assert!(
                prober
                    .take(Instant::from_millis(1), ONE, &answer[..k])
                    .is_none(),
                "{k} bytes"
            );
        }
        assert!(
            prober
                .take(Instant::from_millis(10), ONE, &answer)
                .is_some()
        );
        assert!(
            prober
                .take(Instant::from_millis(11), ONE, &answer)
                .is_none(),
            "again"
        );
        let (_, seen) = prober.seen().next().unwrap();
        assert_eq!((seen.sent, seen.answered), (1, 1));
        assert!(seen.refused > 20);
    }

    /// Whether an answer is accepted that is forged from the state of `words` before the request,
    /// without seeing the request.
    fn forged(words: impl FnMut() -> Option<u32> + Clone) -> bool {
        let mut prober = Prober::new(&[ONE], words, LATE_IN_THE_DAY);
        asked(&mut prober, Instant::ZERO);
        let sent = Instant::ZERO + MIN_GAP_PER_REFLECTOR;
        let (_, guess) = asked(&mut prober.clone(), sent);
        asked(&mut prober, sent);
        let answer = answered(&guess, sent, 5 * MS, 0);
        prober.take(sent + 10 * MS, ONE, &answer).is_some()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_answer_is_refused_whose_word_is_predicted_from_the_generator() {
        assert!(
            forged(seeded()),
            "the next word of a generator in this process can be computed"
        );
        assert!(!forged(crate::system::sys::random));
    }

    #[test]
    fn no_request_is_sent_without_random_words() {
        let mut prober = Prober::new(&[ONE], || None, LATE_IN_THE_DAY);
        assert!(
            prober
                .next_request(Instant::ZERO, &mut [0; LENGTH])
                .is_none()
        );
        assert_eq!(prober.due(), Instant::ZERO + MIN_GAP);
    }

    #[test]
    fn a_reflector_without_timestamps_gets_echo_requests_under_another_number() {
        let mut prober = Prober::new(&[ONE], seeded(), LATE_IN_THE_DAY);
        let mut now = Instant::ZERO;
        for _ in 0..TRIES {
            assert_eq!(asked(&mut prober, now).1[0], 13);
            now += MIN_GAP_PER_REFLECTOR;
        }
        let (_, request) = asked(&mut prober, now);
        assert_eq!((request[0], request.len()), (8, 12));
        let answer = answered(&request, now, Duration::ZERO, 0);
        let answer = prober.take(now + 30 * MS, ONE, &answer).unwrap();
        assert_eq!((answer.reflector, answer.ways), (1, None));
    }

    #[test]
    fn answers_that_a_full_modem_delays_by_seconds_count_and_distinguish_the_directions() {
        for late in [4 * SEC, 15 * SEC] {
            let mut prober = Prober::new(&[ONE], seeded(), LATE_IN_THE_DAY);
            let mut under_way = VecDeque::new();
            let mut counted = Vec::new();
            for k in 0..45 * SEC / MIN_GAP_PER_REFLECTOR {
                let now = Instant::ZERO + k * MIN_GAP_PER_REFLECTOR;
                let (_, request) = asked(&mut prober, now);
                under_way.push_back((now, request));
                if let Some((sent, request)) =
                    under_way.pop_front_if(|(sent, _)| *sent + late <= now)
                {
                    let answer = answered(&request, sent, late - 20 * MS, 0);
                    counted.extend(prober.take(sent + late, ONE, &answer));
                }
            }
            let all = ((45 * SEC - late) / MIN_GAP_PER_REFLECTOR) as usize;
            assert_eq!(counted.len(), all, "{late:?}");
            assert!(counted.iter().all(|answer| answer.round_trip == late));
            // At first echo requests were sent, since no answers arrived.
            let ways = counted.iter().filter(|answer| answer.ways.is_some());
            assert!(
                ways.count() >= all - (late / MIN_GAP_PER_REFLECTOR) as usize,
                "{late:?}"
            );
            let (_, seen) = prober.seen().next().unwrap();
            assert!(seen.dated && seen.refused == 0, "{seen:?}");
        }
    }

    #[test]
    fn a_reflector_whose_first_timestamps_a_full_modem_dropped_gets_more_and_one_without_any_few() {
        for has_any in [true, false] {
            let mut prober = Prober::new(&[ONE], seeded(), LATE_IN_THE_DAY);
            let (mut answered_with, mut asked_for) = (0, 0);
            for k in 1..=100 {
                let now = Instant::ZERO + k * MIN_GAP_PER_REFLECTOR;
                let (_, request) = asked(&mut prober, now);
                let dated = request[0] == 13;
                asked_for += u32::from(dated);
                if k > 6 && (has_any || !dated) {
                    let answer = answered(&request, now, Duration::from_nanos(10), 0);
                    let answer = prober.take(now + 20 * MS, ONE, &answer);
                    answered_with += u32::from(answer.expect("an answer").ways.is_some());
                }
            }
            let expected = if has_any { (85, 90) } else { (0, 11) };
            assert_eq!((answered_with, asked_for), expected, "{has_any}");
        }
    }

    /// Answers to a request every 200 ms with delays of 10 ms up and 20 ms down, by a clock that is
    /// `ahead` ms ahead.
    fn answers(ahead: impl Fn(u64) -> i64, count: u64) -> (Vec<Option<Answer>>, bool) {
        let mut prober = Prober::new(&[ONE], seeded(), LATE_IN_THE_DAY);
        let answers = (0..count).map(|k| {
            let sent = Instant::ZERO + k * MIN_GAP_PER_REFLECTOR;
            let (_, request) = asked(&mut prober, sent);
            let answer = answered(&request, sent, 10 * MS, ahead(k));
            prober.take(sent + 30 * MS, ONE, &answer)
        });
        let answers = answers.collect();
        let dated = prober.seen().all(|(_, seen)| seen.dated);
        (answers, dated)
    }

    #[test]
    fn only_round_trips_of_a_reflector_whose_clock_jumps_are_used() {
        let (answers, dated) = answers(|k| (k as i64 * 7919) % 5000, 40);
        assert!(!dated);
        let answers: Vec<_> = answers.iter().flatten().collect();
        assert!(answers.iter().all(|answer| answer.round_trip == 30 * MS));
        // At first, and when its clock is considered set.
        let ways = answers.iter().filter(|answer| answer.ways.is_some());
        assert!(ways.count() <= 3);
        assert!(answers.len() > 25, "{}", answers.len());
    }

    #[test]
    fn a_round_trip_is_ignored_if_two_reflectors_measure_both_directions() {
        let mut prober = Prober::new(&[ONE, TWO, SIX], seeded(), LATE_IN_THE_DAY);
        let mut counted = Vec::new();
        for k in 0..60 {
            let sent = Instant::ZERO + k * MIN_GAP_PER_REFLECTOR;
            let (to, request) = asked(&mut prober, sent);
            let answer = answered(&request, sent, 10 * MS, 0);
            // From 4 s on the second one is silent.
            if to == TWO && k >= 20 {
                continue;
            }
            if prober.take(sent + 30 * MS, to, &answer).is_some() && to == SIX {
                counted.push(k);
            }
        }
        assert!(
            counted.first() >= Some(&20) && counted.len() > 8,
            "{counted:?}"
        );
        let (_, seen) = prober.seen().last().unwrap();
        assert!(seen.answered > 15, "it answers all the same");
    }

    #[test]
    fn a_clock_that_is_set_is_not_a_delay_and_still_distinguishes_the_directions() {
        for by in [-3_600_000, 1000, -1000, 40_000_000] {
            // The clock is set again a minute later.
            let (answers, dated) =
                answers(|k| by * (i64::from(k >= 20) + i64::from(k >= 400)), 800);
            assert!(dated, "{by}");
            let first = answers[0].unwrap().ways.unwrap();
            for answer in answers.iter().flatten() {
                let ways = answer.ways.expect("as before");
                let grown = |way: usize| ways[way].abs_diff(first[way]);
                assert!(grown(0).max(grown(1)) <= MS, "{by}");
                assert_eq!(answer.reflector, 0);
            }
            let silent = answers.iter().filter(|answer| answer.is_none()).count();
            assert_eq!(silent, 2 * (WRONG_ANSWERS as usize - 1), "{by}");
        }
    }
}
