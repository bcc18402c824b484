//! A line shared by several queues, each in a thread of its own. Together they get exactly its
//! rate.
//!
//! A queue books line time for its next packet only, so at most one packet per queue waits, and
//! backlogged queues take turns packet by packet. A thread wakes some time after the end of its
//! packet's transmission, so its queue books late. Line time that stayed unused in between, because
//! another queue booked later time, is recorded and given to the late queue.

use std::sync::{Arc, Mutex, PoisonError};

use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, SEC};

use quell_qdisc::num;

/// Fractional bits of the fixed-point time per byte.
pub(crate) const SHIFT: u32 = 24;

/// Time per byte at this rate, ns in fixed point.
pub(crate) fn per_byte(rate: Rate) -> u128 {
    (u128::from(8 * SEC.as_nanos()) << SHIFT) / u128::from(rate.bps())
}

/// Largest unused line time that is recorded, hence the longest time for which the line may exceed
/// its rate after a late queue.
const MAX_UNUSED: Duration = Duration::from_millis(250);

/// A line of constant rate.
#[derive(Debug)]
pub struct Line {
    rate: Rate,
    per_byte: u128,
    booked: Mutex<Booked>,
}

/// The line's bookings.
#[derive(Clone, Copy, Debug, Default)]
struct Booked {
    /// End of the last booking.
    until: Instant,
    /// End of the last idle time.
    idle_until: Instant,
    /// Unused line time before `idle_until`, at most `MAX_UNUSED`.
    unused: Duration,
    /// Fraction of a nanosecond that bookings have truncated so far, in fixed point.
    rest: u128,
}

impl Line {
    /// An idle line of this rate, at least 1 bit/s.
    pub fn new(rate: Rate) -> Self {
        let rate = rate.max(Rate::from_bps(1));
        Self {
            rate,
            per_byte: per_byte(rate),
            booked: Mutex::default(),
        }
    }

    /// The rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Books line time for `bytes` of a queue that could send from `now` on; returns the end of the
    /// transmission.
    fn book(&self, now: Instant, bytes: u32) -> Instant {
        let mut booked = self.booked.lock().unwrap_or_else(PoisonError::into_inner);
        let time = u128::from(bytes) * self.per_byte + booked.rest;
        booked.rest = time & ((1 << SHIFT) - 1);
        let time = Duration::from_nanos(num::low_u64(time >> SHIFT));
        // The queue books late: the line was idle after `now` although this queue had a packet.
        let late = booked.idle_until.saturating_since(now);
        let made_up = time.min(late).min(booked.unused);
        booked.unused -= made_up;
        if made_up == time {
            return now + time;
        }
        let start = booked.until.max(now + made_up);
        if start > booked.until {
            let idle = start - booked.until;
            booked.unused = booked.unused.saturating_add(idle).min(MAX_UNUSED);
            booked.idle_until = start;
        }
        booked.until = start + time - made_up;
        booked.until
    }
}

/// A queue's share of a line.
#[derive(Clone, Debug)]
pub struct Share {
    line: Arc<Line>,
    /// Line time at queue time 0.
    since: Instant,
}

impl Share {
    /// A share for a queue whose time 0 is the line's time `since`.
    pub fn new(line: Arc<Line>, since: Instant) -> Self {
        Self { line, since }
    }

    /// The line's rate.
    pub fn rate(&self) -> Rate {
        self.line.rate
    }

    /// Sends `bytes` at `now` or as soon as the line is free; returns the end of the transmission.
    #[cold]
    #[inline(never)]
    pub fn finish(&self, now: Instant, bytes: u32) -> Instant {
        let through = self.line.book(self.since + (now - Instant::ZERO), bytes);
        Instant::ZERO + (through - self.since)
    }
}

/// Shares are equal if they have the same line and the same time offset.
impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.line, &other.line) && self.since == other.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quell_qdisc::time::{MS, NEVER, US};

    /// A queue that always has packets. The transmission of one ends at `next`; its thread wakes
    /// `lateness` later.
    struct Busy {
        next: Instant,
        bytes: u32,
        lateness: Duration,
        sent: u64,
    }

    /// Bytes sent until `end` by queues that wake late. Another queue, `sparse` (interval, bytes),
    /// sends one packet per interval.
    fn sent_until(
        end: Instant,
        line: &Line,
        queues: &mut [Busy],
        sparse: Option<(Duration, u32)>,
    ) -> u64 {
        let (mut total, mut next_sparse) = (0, Instant::ZERO);
        loop {
            let wakes = |q: &Busy| q.next + q.lateness;
            let first = (0..queues.len()).min_by_key(|k| wakes(&queues[*k]));
            let woken = first.map_or(NEVER, |k| wakes(&queues[k]));
            if let Some((every, bytes)) = sparse
                && next_sparse < woken.min(end)
            {
                if line.book(next_sparse, bytes) <= end {
                    total += u64::from(bytes);
                }
                next_sparse += every;
                continue;
            }
            let Some(k) = first.filter(|_| woken < end) else {
                return total;
            };
            // Sends everything that was due meanwhile, at its due time, as `LiveLink::advance`
            // does.
            while queues[k].next <= woken {
                let queue = &mut queues[k];
                queue.next = line.book(queue.next, queue.bytes);
                if queue.next <= end {
                    queue.sent += u64::from(queue.bytes);
                    total += u64::from(queue.bytes);
                }
            }
        }
    }

    fn busy(bytes: u32, lateness: Duration) -> Busy {
        Busy {
            next: Instant::ZERO,
            bytes,
            lateness,
            sent: 0,
        }
    }

    proptest! {
        #[test]
        fn the_rate_is_shared_exactly_however_late_queues_are_and_whatever_they_send(
            mbps in prop_oneof![Just(1u64), Just(10), Just(100), Just(1000), Just(10_000)],
            each in proptest::collection::vec((64u32..1514, 0..300_000u64), 1..4),
            sparse in proptest::option::of((100_000..20_000_000u64, 64u32..1514)),
        ) {
            let line = Line::new(Rate::from_mbit(mbps));
            let mut queues: Vec<_> = each.into_iter().map(|(bytes, late)| busy(bytes, Duration::from_nanos(late))).collect();
            // This limits the run to 200,000 of the smallest packets.
            let end = if mbps < 1000 { SEC } else { 100 * SEC / mbps };
            let sparse = sparse.map(|(every, bytes)| (Duration::from_nanos(every), bytes));
            let bits = 8 * sent_until(Instant::ZERO + end, &line, &mut queues, sparse);
            let rate = mbps * 1_000_000;
            let due = rate * end / SEC;
            // At the end each queue may have one packet on the line that is not counted, and has
            // not sent what became due during its lateness.
            let under_way = 8 * 1514 * 4 + rate * 300 / 1_000_000;
            // Times are whole nanoseconds (10 bits at 10 Gbit/s), so one more packet may have just
            // ended.
            prop_assert!(bits <= due + 8 * 1514, "{bits} of {due}");
            prop_assert!(bits + under_way + due / 1000 >= due, "{bits} of {due}");
        }
    }

    #[test]
    fn busy_queues_take_turns() {
        let line = Line::new(Rate::from_mbit(10));
        let mut queues = [
            busy(1000, Duration::ZERO),
            busy(1000, 50 * US),
            busy(1000, Duration::ZERO),
        ];
        sent_until(Instant::from_secs(1), &line, &mut queues, None);
        let sent = queues.map(|q| q.sent / 1000);
        assert!(sent.iter().all(|n| (416..=417).contains(n)), "{sent:?}");
    }

    #[test]
    fn a_queue_that_is_not_late_gets_no_earlier_unused_share() {
        // 1000 bytes at 8 Mbit/s take 1 ms.
        let line = Line::new(Rate::from_mbit(8));
        let second = Instant::from_secs(1);
        assert_eq!(line.book(second, 1000), second + MS);
        assert_eq!(line.book(second, 1000), second + 2 * MS);
        assert_eq!(
            line.book(second - MS / 2, 1000),
            second + 2 * MS + MS / 2,
            "late by half a packet's time in which the line was idle"
        );
    }

    #[test]
    fn a_share_has_its_own_time() {
        let line = Arc::new(Line::new(Rate::from_mbit(8)));
        let (first, second) = (
            Share::new(line.clone(), Instant::ZERO),
            Share::new(line, Instant::from_millis(5)),
        );
        assert_eq!(
            first.finish(Instant::from_millis(5), 1000),
            Instant::from_millis(6)
        );
        assert_eq!(second.finish(Instant::ZERO, 1000), Instant::from_millis(2));
        assert_ne!(first, second);
    }
}
