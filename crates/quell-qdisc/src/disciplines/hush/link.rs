//! Gauges of the link and its flows: rate, idle share, active flows, their round trips and recent
//! service.

use super::fixed;
use crate::MTU;
use crate::num;
use crate::parts::flows::{FlowId, of_flow};
use crate::rate::Rate;
use crate::time::{Duration, Instant, MS, NEVER, SEC};

/// Time between updates of the gauges.
const PERIOD: Duration = Duration::from_millis(50);
/// Time constant of a flow's recent service: each period removes a sixth, so six periods.
pub const MEMORY: Duration = PERIOD.saturating_mul(6);
/// The round trip before the first measurement.
const PRIOR: Duration = Duration::from_millis(50);
/// Largest packet that may begin a handshake, bytes; larger ones are data.
const SMALL: u32 = 100;
/// Lowest rate, bytes per second.
pub const SLOWEST: u64 = 100;
/// Highest rate, bytes per second.
pub const FASTEST: u64 = 1 << 40;
/// The mean service is that of at most 2^`COUNTED_BITS` times the effective number of flows.
/// Otherwise hundreds of flows with hardly any service would make it so small that a call counts as
/// a large flow.
const COUNTED_BITS: i64 = 3;
/// Silence after which a flow may be a new connection.
const SILENCE: Duration = SEC;

/// Gauges of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// Time of its last arrival; 0 before the first.
    seen: Instant,
    /// Time at which its handshake left; [`QUEUED`] while that is queued, 0 without one.
    handshake: Instant,
    /// ln of its round trip in ns, with [`fixed::Q`] fractional bits; 0 while unknown.
    round_trip: i32,
    /// Recent service, bytes.
    served: u32,
    /// Service over many round trips, bytes per [`MEMORY`], and excess ([`Link::excess`]), both as
    /// of `at` on the clock [`Link::folds`].
    steady: u32,
    excess: i32,
    at: u32,
}

/// Value of [`Flow::handshake`] while the handshake is queued.
const QUEUED: Instant = Instant::from_nanos(1);

/// The gauges.
#[derive(Clone, Debug)]
pub struct Link {
    flows: Vec<Flow>,
    /// End of the current period.
    pub due: Instant,
    /// End of the last period, and of the last one that measured the rate.
    last: Instant,
    since: Instant,
    /// Time from which the link has nothing to send; [`NEVER`] while it has.
    idle_since: Instant,
    /// A dequeue has found the queue empty since the last arrival.
    seen_empty: bool,
    /// Idle time in this period.
    idle_time: Duration,
    /// Time at which a packet last arrived at an idle link; 0 before the first.
    idle_at: Instant,
    /// Idle time since the rate was last measured.
    idle_time_since_rate: Duration,
    /// Bytes sent in total, and up to the last measurement of the rate.
    sent: u64,
    sent_before: u64,
    /// Rate, bytes per second; 0 while unknown.
    rate: u64,
    /// Nanoseconds per byte, with 16 fractional bits.
    per_byte: u64,
    /// Idle share, with 30 fractional bits.
    idle: i64,
    /// See [`Link::flows`].
    active: u32,
    /// ln of the effective number of flows; see [`Link::ln_effective_flows`].
    ln_effective_flows: i64,
    round_trip: Duration,
    /// The clock of the decay of steady service: e-folds with [`fixed::Q`] fractional bits. It
    /// wraps after 65,536 e-folds, at least five hours; a flow that returns just then keeps its old
    /// service for one memory.
    folds: u32,
    /// Steady service that a byte adds, with [`fixed::Q`] fractional bits.
    weight: u32,
    /// The steady service of all flows, a twentieth of the mean of the active ones, and ln of 1.05
    /// times that mean.
    total: u64,
    twentieth: u64,
    ln_mean: i64,
}

impl Default for Link {
    /// Nothing is known: the prior round trip, one flow, 2 % idle.
    fn default() -> Self {
        Self {
            flows: Vec::new(),
            due: NEVER,
            last: Instant::ZERO,
            since: Instant::ZERO,
            idle_since: Instant::ZERO,
            seen_empty: true,
            idle_time: Duration::ZERO,
            idle_at: Instant::ZERO,
            idle_time_since_rate: Duration::ZERO,
            sent: 0,
            sent_before: 0,
            rate: 0,
            per_byte: 0,
            idle: (1 << 30) / 50,
            active: 1,
            ln_effective_flows: 0,
            round_trip: PRIOR,
            folds: 0,
            weight: weight(PRIOR),
            total: 0,
            twentieth: 0,
            ln_mean: 0,
        }
    }
}

/// Memory of steady service: ten round trips, each counted as at least 30 ms.
fn memory(round_trip: Duration) -> Duration {
    10 * round_trip.max(30 * MS)
}

/// Steady service that a byte adds at this round trip.
fn weight(round_trip: Duration) -> u32 {
    num::low_u32((MEMORY.as_nanos() << fixed::Q) / memory(round_trip).as_nanos())
}

impl Flow {
    /// Its steady service at the clock's time.
    #[inline]
    fn steady(&self, folds: u32) -> u32 {
        match folds.wrapping_sub(self.at) {
            0 => self.steady,
            past => num::low_u32(fixed::scaled(self.steady.into(), -i64::from(past))),
        }
    }
}

impl Link {
    /// Rate; 0 before the first measurement.
    pub fn rate(&self) -> Rate {
        Rate::from_bytes_per_sec(self.rate)
    }
    /// The geometric mean of the active flows' base round trips.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }
    /// Flows with an arrival in the last four round trips (at least 200 ms); at least 1.
    pub fn flows(&self) -> u32 {
        self.active
    }
    /// ln of the number of flows, each counted by its share of the service: (sum of service)^2 /
    /// (sum of squares), 1 to [`Link::flows`]. Beside a download, ten flows with little traffic
    /// hardly count. [`fixed::Q`] fractional bits.
    pub fn ln_effective_flows(&self) -> i64 {
        self.ln_effective_flows
    }
    /// Share of the time in which the link had nothing to send, with 30 fractional bits.
    pub fn idle(&self) -> i64 {
        self.idle
    }
    /// Whether the link was idle within the last round trip: the policy's dry share is the share of
    /// the time in which this is so.
    pub fn dry(&self, now: Instant) -> bool {
        self.idle_at != Instant::ZERO && now.saturating_since(self.idle_at) <= self.round_trip
    }
    /// Bytes sent since the queue's creation.
    pub fn sent(&self) -> u64 {
        self.sent
    }
    /// Time that this many bytes take on the link.
    #[inline]
    pub fn drain(&self, bytes: u64) -> Duration {
        let nanos = (u128::from(bytes) * u128::from(self.per_byte)) >> 16;
        Duration::from_nanos(num::low_u64(nanos.min(1 << 40)))
    }
    /// Recent service of a flow, bytes.
    #[inline]
    pub fn served(&self, flow: FlowId) -> u32 {
        self.flows.get(flow as usize).map_or(0, |f| f.served)
    }

    /// Steady service of a flow, over ten round trips: bytes per [`MEMORY`].
    #[inline]
    pub fn steady(&self, flow: FlowId) -> u32 {
        (self.flows.get(flow as usize)).map_or(0, |f| f.steady(self.folds))
    }

    /// Distance of a flow's steady service s from the mean m: ln (s + m / 20) - ln (m + m / 20),
    /// clamped to the range -3 to 2, with [`fixed::Q`] fractional bits. m is the steady service of
    /// all flows divided by the number of active ones, or by eight times their effective number if
    /// that is less. The value is computed at the flow's first arrival or departure after each move
    /// of the clock.
    #[inline(always)]
    pub fn excess(&self, flow: FlowId) -> i64 {
        self.flows[flow as usize].excess.into()
    }

    /// Updates a flow's steady service and its excess to the clock's time.
    #[cold]
    fn update_steady(&mut self, flow: FlowId) {
        let f = &mut self.flows[flow as usize];
        f.steady = f.steady(self.folds);
        f.at = self.folds;
        let excess = fixed::ln(u64::from(f.steady) + self.twentieth + 1) - self.ln_mean;
        f.excess = num::low_i32(excess.clamp(-3 * fixed::ONE, 2 * fixed::ONE));
    }

    pub(super) fn set_rate(&mut self, rate: u64) {
        self.rate = rate.clamp(SLOWEST, FASTEST);
        self.per_byte = (SEC.as_nanos() << 16) / self.rate;
    }

    /// A flow's window in bytes: its queued bytes plus its service per round trip.
    pub fn window(&self, flow: FlowId, queued: u32) -> u64 {
        let per_trip = u128::from(self.served(flow)) * u128::from(self.round_trip.as_nanos())
            / u128::from(MEMORY.as_nanos());
        u64::from(queued) + num::low_u64(per_trip)
    }

    /// A packet of a flow arrived.
    #[inline(always)]
    pub fn arrived(&mut self, now: Instant, flow: FlowId, len: u32) {
        if self.idle_since != NEVER {
            self.busy_again(now);
        }
        let mut f = of_flow(&mut self.flows, flow);
        if f.at != self.folds {
            self.update_steady(flow);
            f = &mut self.flows[flow as usize];
        }
        if len <= SMALL {
            if f.seen == Instant::ZERO || now.saturating_since(f.seen) > SILENCE {
                f.handshake = QUEUED;
            }
        } else if f.handshake != Instant::ZERO {
            if f.handshake > QUEUED {
                let gap = now.saturating_since(f.handshake).clamp(MS / 10, 2 * SEC);
                f.round_trip = num::low_i32(fixed::ln(gap.as_nanos()));
            }
            f.handshake = Instant::ZERO;
        }
        f.seen = now.max(Instant::from_nanos(1));
    }

    /// Ends the link's idle time at an arrival.
    fn busy_again(&mut self, now: Instant) {
        if self.due == NEVER {
            // The first packet: the time before it is unknown.
            (self.last, self.since, self.due) = (now, now, now + PERIOD);
        }
        let idle = now.saturating_since(self.idle_since.max(self.last));
        if idle > Duration::ZERO {
            self.idle_at = now;
        }
        self.idle_time += idle;
        self.idle_time_since_rate += now.saturating_since(self.idle_since.max(self.since));
        self.idle_since = NEVER;
        self.seen_empty = false;
    }

    /// A packet of a flow left; `last`: the queue is empty now.
    #[inline(always)]
    pub fn departed(&mut self, now: Instant, flow: FlowId, len: u32, last: bool) {
        let mut f = of_flow(&mut self.flows, flow);
        if f.at != self.folds {
            self.update_steady(flow);
            f = &mut self.flows[flow as usize];
        }
        f.served = f.served.saturating_add(len);
        let more = (u64::from(len) * u64::from(self.weight)) >> fixed::Q;
        f.steady = f.steady.saturating_add(num::low_u32(more));
        self.total += more;
        if len <= SMALL && f.handshake == QUEUED {
            f.handshake = now.max(Instant::from_nanos(2));
        }
        self.sent += u64::from(len);
        if last {
            self.idle_since = now + self.drain(len.into());
        }
    }

    /// A dequeue found the queue empty. The first such call shows that the last packet has been
    /// transmitted.
    #[inline]
    pub fn found_empty(&mut self, now: Instant) {
        if !self.seen_empty {
            self.seen_empty = true;
            self.idle_since = match self.idle_since {
                NEVER => now,
                since => since.max(now),
            };
        }
    }

    /// Updates the gauges at the end of a period; called while packets are queued.
    #[cold]
    pub fn update(&mut self, now: Instant) {
        let span = now.saturating_since(self.last);
        if span > Duration::ZERO {
            let idle = num::low_u64(
                (u128::from(self.idle_time.min(span).as_nanos()) << 30)
                    / u128::from(span.as_nanos()),
            )
            .cast_signed();
            let memory = (10 * self.round_trip).max(SEC / 2);
            fixed::approach(&mut self.idle, idle, fixed::share(span, memory));
            self.measure_rate(now);
            self.count(now);
            self.forget(span);
            self.decay(span);
        }
        self.idle_time = Duration::ZERO;
        self.last = now;
        self.due = now + PERIOD;
    }

    /// The rate is the bytes sent over the time in which the link was busy. A slow link takes more
    /// than a period to send enough bytes.
    fn measure_rate(&mut self, now: Instant) {
        let span = now.saturating_since(self.since);
        let busy = span.saturating_sub(self.idle_time_since_rate);
        let bytes = self.sent - self.sent_before;
        if bytes > 2 * u64::from(MTU) && 10 * busy > span {
            let rate = num::low_u64(
                u128::from(bytes) * u128::from(SEC.as_nanos()) / u128::from(busy.as_nanos()),
            );
            self.set_rate(match self.rate {
                0 => rate,
                before => before - 3 * before / 10 + 3 * rate / 10,
            });
        } else if span < SEC && bytes > 0 {
            return;
        }
        (self.sent_before, self.idle_time_since_rate, self.since) =
            (self.sent, Duration::ZERO, now);
    }

    /// Counts the active flows and their effective number, and averages their round trips.
    fn count(&mut self, now: Instant) {
        let span = (4 * self.round_trip).max(SEC / 5);
        let active = self
            .flows
            .iter()
            .filter(|f| f.seen != Instant::ZERO && f.seen + span > now);
        let (mut n, mut known, mut sum) = (0, 0, 0);
        let (mut served, mut squares) = (0u64, 0u64);
        for f in active {
            n += 1;
            let share = u64::from(f.served >> 6);
            served += share;
            squares += share * share;
            if f.round_trip != 0 {
                known += 1;
                sum += i64::from(f.round_trip);
            }
        }
        self.active = n.max(1);
        let max = fixed::ln(self.active.into());
        self.ln_effective_flows = match squares {
            0 => max,
            _ => (2 * fixed::ln(served) - fixed::ln(squares)).clamp(0, max),
        };
        if known > 0 {
            self.round_trip = Duration::from_nanos(fixed::exp(sum / known));
        }
    }

    /// Moves the clock by which steady service decays.
    fn decay(&mut self, span: Duration) {
        let memory = memory(self.round_trip);
        let past = ((u128::from(span.as_nanos()) << fixed::Q) / u128::from(memory.as_nanos()))
            .min(64 << fixed::Q) as u32;
        self.folds = self.folds.wrapping_add(past);
        self.total = fixed::scaled(self.total, -i64::from(past));
        self.weight = weight(self.round_trip);
        let counted = fixed::power(self.ln_effective_flows, COUNTED_BITS).min(self.active.into());
        let mean = self.total / counted;
        self.twentieth = mean / 20;
        self.ln_mean = fixed::ln(mean + self.twentieth + 1);
    }

    /// Removes a sixth of each flow's recent service for each period in `span`.
    fn forget(&mut self, span: Duration) {
        let periods = (span + PERIOD / 2) / PERIOD;
        for _ in 0..periods.min(64) {
            (self.flows.iter_mut()).for_each(|f| f.served -= f.served / 6);
        }
        if periods > 64 {
            self.flows.iter_mut().for_each(|f| f.served = 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 1500 bytes of flow 0, one each millisecond for `ms` milliseconds, each sent at
    /// once.
    fn steady(link: &mut Link, from: Instant, ms: u64, queued: bool) -> Instant {
        for i in 0..ms {
            let now = from + i * MS;
            link.arrived(now, 0, 1500);
            if now >= link.due {
                link.update(now);
            }
            link.departed(now, 0, 1500, !queued);
        }
        from + ms * MS
    }

    #[test]
    fn a_busy_link_shows_its_rate_and_no_idle_time() {
        let mut link = Link::default();
        steady(&mut link, Instant::from_secs(1), 5000, true);
        assert!(
            (1_490_000..1_510_000).contains(&link.rate().bytes_per_sec()),
            "{}",
            link.rate()
        );
        assert!(link.idle() < (1 << 30) / 1000, "{}", link.idle());
        assert!((1_009_000..1_010_000).contains(&link.drain(1514).as_nanos()));
    }

    #[test]
    fn the_time_that_the_last_packet_takes_is_not_idle() {
        let mut link = Link::default();
        let now = steady(&mut link, Instant::from_secs(1), 1000, true);
        // 1000 bytes each millisecond at 1.5 MB/s: a third of the time is idle, whether or not a
        // dequeue finds the queue empty.
        for dequeues in [false, true] {
            let mut link = link.clone();
            for i in 0..8000 {
                let now = now + i * MS;
                link.arrived(now, 0, 1000);
                if now >= link.due {
                    link.update(now);
                }
                link.departed(now, 0, 1000, true);
                if dequeues {
                    link.found_empty(now + Duration::from_nanos(666_667));
                }
            }
            let idle = link.idle() as f64 / (1 << 30) as f64;
            assert!((idle - 1.0 / 3.0).abs() < 0.01, "{idle}");
        }
    }

    #[test]
    fn a_link_is_dry_for_one_round_trip_after_it_was_idle() {
        let mut link = Link::default();
        let before = steady(&mut link, Instant::from_secs(1), 1000, true);
        assert!(
            !link.dry(before),
            "the time before the first packet is unknown"
        );
        link.departed(before, 0, 1500, true);
        // The last packet takes a millisecond; then the link has nothing to send for another one.
        let now = before + 2 * MS;
        link.arrived(now, 0, 1500);
        assert!(link.dry(now) && link.dry(now + link.round_trip()));
        assert!(!link.dry(now + link.round_trip() + MS));
    }

    #[test]
    fn the_handshake_shows_the_round_trip() {
        let mut link = Link::default();
        let mut now = Instant::from_secs(1);
        link.arrived(now, 0, 66);
        link.departed(now + MS, 0, 66, true);
        link.arrived(now + 81 * MS, 0, 1514);
        // An ACK in the middle of the flow is not a handshake.
        now += 90 * MS;
        link.arrived(now, 0, 66);
        link.departed(now, 0, 66, true);
        link.arrived(now + MS, 0, 1514);
        link.update(now + 2 * MS);
        assert!(
            (79 * MS..81 * MS).contains(&link.round_trip()),
            "{:?}",
            link.round_trip()
        );
        assert_eq!(link.flows(), 1);
    }

    #[test]
    fn flows_that_fell_silent_are_not_active_and_their_service_is_forgotten() {
        let mut link = Link::default();
        for flow in 0..20 {
            link.arrived(Instant::from_secs(1), flow, 1514);
            link.departed(Instant::from_secs(1), flow, 1514, true);
        }
        link.update(Instant::ZERO + SEC + MS);
        assert_eq!((link.flows(), link.served(3)), (20, 1514));
        link.arrived(Instant::ZERO + SEC + 500 * MS, 3, 1514);
        link.update(Instant::ZERO + SEC + 501 * MS);
        assert_eq!(link.flows(), 1);
        // Ten periods: 1514 times (5/6)^10 is 244.
        assert!((240..250).contains(&link.served(3)));
        link.update(Instant::from_secs(100));
        assert_eq!(link.served(3), 0);
    }

    #[test]
    fn flows_with_hardly_any_service_do_not_make_a_call_a_large_flow() {
        let excess = |strangers: bool| {
            let mut link = Link::default();
            let mut now = Instant::from_secs(1);
            for ms in 0..5000 {
                // Two downloads, a call, and a small packet of another flow each millisecond.
                let mut packets = vec![(0, 1500), (1, 1500)];
                if ms % 20 == 0 {
                    packets.push((2, 200));
                }
                if strangers {
                    packets.push((3 + ms % 1000, 60));
                }
                for (flow, len) in packets {
                    link.arrived(now, flow, len);
                    link.departed(now, flow, len, false);
                }
                now += MS;
                if now >= link.due {
                    link.update(now);
                }
            }
            link.arrived(now, 2, 200);
            link.excess(2)
        };
        let alone = excess(false);
        assert!(alone < -2 * fixed::ONE, "{alone}");
        let beside = excess(true);
        assert!(beside < -2 * fixed::ONE, "{beside}");
    }

    #[test]
    fn a_window_is_the_backlog_and_the_service_of_a_round_trip() {
        let mut link = Link::default();
        link.departed(Instant::from_secs(1), 0, 60_000, true);
        // 60000 bytes in 300 ms, a round trip of 50 ms.
        assert_eq!(link.window(0, 3000), 13_000);
        assert_eq!(link.window(7, 3000), 3000);
    }
}
