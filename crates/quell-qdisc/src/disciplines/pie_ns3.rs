//! PIE as in ns-3 from 2016 to 2019 (`src/traffic-control/model/pie-queue-disc.cc`, releases 3.26
//! to 3.30): papers of those years, among them RL-AQM's, compared with this version.
//!
//! It comes from ns-2 and the drafts before RFC 8033. Unlike [`Pie`](crate::pie::Pie) it
//! - drops by independent random draws, without the de-randomisation of RFC 8033, section 5.4;
//! - computes the delay from the backlog and a rate: a measurement over 10,000 bytes, averaged with
//!   the rate before it;
//! - reads the delay of the last update in its early exit, and does not drop arrivals that find two
//!   packets or fewer;
//! - divides the change of the probability by 32, 8 or 2 while the probability is below 0.001, 0.01
//!   or 0.1, and multiplies it by 2, 8 or 32 from 0.1, 1 or 10 on, where it adds at most 2 %;
//! - adds 2 % per update above 200 ms;
//! - gives a burst allowance of 100 ms at the first packet, and again after 1.5 s without
//!   congestion; during the allowance, updates hold the probability at 0 (except for the 2 % of a
//!   high delay).
//!
//! Deviation: the byte counter of a discarded measurement restarts at 0, not at -1.

use crate::parts::ring::Ring;
use crate::time::{Duration, Instant, MS, SEC};
use crate::{Dequeued, Discipline, DropCause, Drops, Gauges, KnobSet, Knobs, Packet, Rng};

/// Burst allowance: time without drops.
const MAX_BURST: Duration = Duration::from_millis(100);
/// Time of low delay and probability 0 after which the allowance is given again.
const BURST_RESET: Duration = Duration::from_millis(1500);
/// Bytes over which the rate is measured.
const QUEUE_THRESHOLD: u64 = 10_000;
/// Seconds of delay above which the probability grows by another 2 % per update.
const HIGH_DELAY: f64 = 0.2;

/// Parameters of [`PieNs3`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Delay to hold (default 20 ms, at most 10 s).
    pub target: Duration,
    /// Time between updates of the probability (default 30 ms, 1 ms..10 s).
    pub tupdate: Duration,
    /// Limit in packets (default 1000, as in Linux's PIE; 25 in ns-3; at least 1).
    pub limit: u32,
    /// Weight of the delay's distance from target, in sixteenths of 1/s (default 2: 0.125; 0..32).
    pub alpha: u32,
    /// Weight of the delay's change, in sixteenths of 1/s (default 20: 1.25; 0..32).
    pub beta: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            target: 20 * MS,
            tupdate: 30 * MS,
            limit: 1000,
            alpha: 2,
            beta: 20,
        }
    }
}

impl Params {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.target > 10 * SEC || !(MS..=10 * SEC).contains(&self.tupdate) {
            return Err("target must be at most 10s, tupdate between 1ms and 10s");
        }
        if self.limit == 0 {
            return Err("limit must be at least 1 packet");
        }
        if self.alpha > 32 || self.beta > 32 {
            return Err("alpha and beta must be at most 32 (sixteenths)");
        }
        Ok(())
    }
}

/// State of the burst allowance.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Burst {
    /// The next arrival starts the allowance.
    None,
    /// The allowance was given; no update without congestion has followed.
    Protecting,
    /// Counts the updates without congestion after the first one.
    Quiet(u64),
}

/// The law's state; delays in seconds.
#[derive(Clone, Debug)]
struct Vars {
    prob: f64,
    qdelay_old: f64,
    burst_allowance: Duration,
    burst: Burst,
    /// Start of the running measurement, and bytes since.
    measuring: Option<(Instant, u64)>,
    /// Rate, bytes per second; 0 while unknown.
    rate: f64,
}

impl Vars {
    fn new() -> Self {
        Self {
            prob: 0.0,
            qdelay_old: 0.0,
            burst_allowance: Duration::ZERO,
            burst: Burst::None,
            measuring: None,
            rate: 0.0,
        }
    }

    /// Whether to drop an arrival that finds this many packets (`DropEarly`).
    fn drop_early(&mut self, params: &Params, packets: usize, rng: &mut Rng) -> bool {
        if self.burst_allowance > Duration::ZERO {
            return false;
        }
        if self.burst == Burst::None {
            self.burst = Burst::Protecting;
            self.burst_allowance = MAX_BURST;
        }
        let draw = rng.f64();
        if (self.qdelay_old < 0.5 * seconds(params.target) && self.prob < 0.2) || packets <= 2 {
            return false;
        }
        draw <= self.prob
    }

    /// Notes a departure of `len` bytes that left `backlog` bytes behind (`DoDequeue`).
    fn process_dequeue(&mut self, now: Instant, len: u32, backlog: u64) {
        if backlog >= QUEUE_THRESHOLD && self.measuring.is_none() {
            self.measuring = Some((now, 0));
        }
        let Some((start, count)) = &mut self.measuring else {
            return;
        };
        *count += u64::from(len);
        if *count < QUEUE_THRESHOLD {
            return;
        }
        if now > *start {
            let rate = *count as f64 / seconds(now - *start);
            self.rate = match self.rate {
                0.0 => rate,
                old => 0.5 * old + 0.5 * rate,
            };
        }
        self.measuring = (backlog > QUEUE_THRESHOLD).then_some((now, 0));
    }

    /// The periodic update (`CalculateP`).
    fn calculate_probability(&mut self, params: &Params, backlog: u64) {
        let target = seconds(params.target);
        let known = self.rate > 0.0;
        let qdelay = if known {
            backlog as f64 / self.rate
        } else {
            0.0
        };
        let mut prob = if self.burst_allowance > Duration::ZERO {
            0.0
        } else {
            self.prob + self.step(params, qdelay - target, qdelay - self.qdelay_old)
        };
        if qdelay == 0.0 && self.qdelay_old == 0.0 {
            prob *= 0.98;
        } else if qdelay > HIGH_DELAY {
            prob += 0.02;
        }
        self.prob = prob.max(0.0);
        self.burst_allowance = self.burst_allowance.saturating_sub(params.tupdate);

        let low = 0.5 * target;
        let quiet = qdelay < low && self.qdelay_old < low && self.prob == 0.0;
        if quiet && known {
            self.rate = 0.0;
            self.measuring = self.measuring.map(|(start, _)| (start, 0));
        }
        self.burst = match (self.burst, quiet && self.burst_allowance == Duration::ZERO) {
            (Burst::Protecting, true) => Burst::Quiet(0),
            (Burst::Quiet(n), true) if n >= BURST_RESET / params.tupdate => Burst::None,
            (Burst::Quiet(n), true) => Burst::Quiet(n + 1),
            (Burst::Quiet(_), false) => Burst::Quiet(0),
            (other, _) => other,
        };
        self.qdelay_old = qdelay;
    }

    /// Step of the probability in an update, from the delay's distance from target and its change.
    fn step(&self, params: &Params, distance: f64, change: f64) -> f64 {
        let sixteenths = |weight: u32| f64::from(weight) / 16.0;
        let step = sixteenths(params.alpha) * distance + sixteenths(params.beta) * change;
        let step = match self.prob {
            p if p < 0.001 => step / 32.0,
            p if p < 0.01 => step / 8.0,
            p if p < 0.1 => step / 2.0,
            p if p < 1.0 => step * 2.0,
            p if p < 10.0 => step * 8.0,
            _ => step * 32.0,
        };
        if self.prob >= 0.1 {
            step.min(0.02)
        } else {
            step
        }
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

/// One FIFO with that law at its tail: `pie ns3-2018`.
#[derive(Clone, Debug)]
pub struct PieNs3<P> {
    params: Params,
    vars: Vars,
    next_update: Instant,
    ring: Ring<P>,
    bytes: u64,
}

impl<P: Packet> PieNs3<P> {
    /// An empty queue whose first update is at time 0.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            vars: Vars::new(),
            next_update: Instant::ZERO,
            ring: Ring::new(),
            bytes: 0,
        }
    }
}

impl<P: Packet> Discipline<P> for PieNs3<P> {
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, rng: &mut Rng, drops: &mut D) {
        let held = self.ring.len();
        if held >= self.params.limit as usize {
            return drops.drop(now, packet, DropCause::Overflow);
        }
        if self.vars.drop_early(&self.params, held, rng) {
            return drops.drop(now, packet, DropCause::Early);
        }
        self.bytes += u64::from(packet.len());
        self.ring.push(packet).set_enqueued(now);
    }

    fn dequeue<D: Drops<P>>(
        &mut self,
        now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Dequeued<P> {
        let Some(packet) = self.ring.pop() else {
            return Dequeued::Empty;
        };
        self.bytes -= u64::from(packet.len());
        self.vars.process_dequeue(now, packet.len(), self.bytes);
        Dequeued::Packet(packet)
    }

    fn next_timer(&self) -> Instant {
        self.next_update
    }

    fn on_timer(&mut self, now: Instant) {
        self.vars.calculate_probability(&self.params, self.bytes);
        self.next_update = now + self.params.tupdate;
    }

    fn len(&self) -> usize {
        self.ring.len()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        gauges.probability = self.vars.prob.min(1.0);
        gauges.head_age = self
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_change_from_each_bound_on() {
        for (prob, factor) in [
            (0.0009, 1.0 / 32.0),
            (0.001, 1.0 / 8.0),
            (0.01, 0.5),
            (0.1, 2.0),
            (1.0, 8.0),
            (10.0, 32.0),
        ] {
            let vars = Vars {
                prob,
                ..Vars::new()
            };
            // Two sixteenths of a millisecond.
            let step = vars.step(&Params::default(), 1e-3, 0.0);
            assert!((step - 1.25e-4 * factor).abs() < 1e-9, "{prob}: {step}");
        }
    }
    use crate::Ecn;
    use crate::packet::TestPacket;

    /// A law past its burst allowance that drains 1 MB/s.
    fn law(prob: f64, qdelay_old: f64) -> Vars {
        Vars {
            prob,
            qdelay_old,
            burst: Burst::Protecting,
            rate: 1e6,
            ..Vars::new()
        }
    }

    /// The probability after one update with this delay, which was the same before.
    fn after(prob: f64, ms: u64) -> f64 {
        let mut v = law(prob, ms as f64 / 1e3);
        v.calculate_probability(&Params::default(), ms * 1000);
        v.prob
    }

    #[test]
    fn steps_shrink_below_a_tenth_and_double_above_up_to_two_percent() {
        // 1 ms above the target of 20 ms: 0.125 / s * 1 ms.
        let step = 1.25e-4;
        for (prob, factor) in [
            (5e-4, 1.0 / 32.0),
            (5e-3, 0.125),
            (0.05, 0.5),
            (0.5, 2.0),
            (5.0, 8.0),
            (50.0, 32.0),
        ] {
            let got = after(prob, 21) - prob;
            assert!((got / (step * factor) - 1.0).abs() < 1e-6, "{prob}: {got}");
        }
        // 160 ms above: twice 0.125 * 0.16 would be 4 %.
        assert!((after(0.5, 180) - 0.52).abs() < 1e-9);
    }

    #[test]
    fn above_200_ms_another_two_percent_is_added() {
        assert!((after(0.5, 200) - 0.52).abs() < 1e-9);
        assert!((after(0.5, 201) - 0.54).abs() < 1e-9);
    }

    #[test]
    fn an_idle_queue_loses_two_percent_of_its_probability() {
        // First the ordinary step: twice 0.125 * -20 ms.
        assert!((after(0.5, 0) - (0.5 - 0.005) * 0.98).abs() < 1e-9);
    }

    #[test]
    fn the_first_arrival_is_given_100_ms_and_updates_take_it_back() {
        let params = Params::default();
        let (mut v, mut rng) = (Vars::new(), Rng::new(1, "t"));
        v.rate = 1e6;
        assert!(!v.drop_early(&params, 50, &mut rng));
        assert_eq!(v.burst_allowance, 100 * MS);
        for left in [70, 40, 10, 0] {
            v.calculate_probability(&params, 100_000);
            assert_eq!((v.burst_allowance, v.prob), (left * MS, 0.0));
        }
        v.calculate_probability(&params, 100_000);
        assert!(v.prob > 0.0);
    }

    #[test]
    fn the_allowance_comes_back_after_a_second_and_a_half_of_quiet() {
        let params = Params::default();
        let mut v = law(0.0, 0.0);
        let mut updates = 0;
        while v.burst != Burst::None {
            v.calculate_probability(&params, 0);
            updates += 1;
        }
        // One update to detect the quiet time, 50 of 30 ms to count to the limit, one to pass it.
        assert_eq!(updates, 52);
        // Congestion restarts the count.
        v.burst = Burst::Quiet(49);
        v.rate = 1e6;
        v.calculate_probability(&params, 50_000);
        assert_eq!(v.burst, Burst::Quiet(0));
    }

    #[test]
    fn the_old_delay_and_two_packets_spare_an_arrival() {
        let params = Params::default();
        let dropped = |prob, old, packets| {
            let (mut v, mut rng) = (law(prob, old), Rng::new(1, "t"));
            (0..200).any(|_| v.drop_early(&params, packets, &mut rng))
        };
        assert!(!dropped(0.19, 0.0099, 50));
        assert!(dropped(0.19, 0.01, 50));
        assert!(dropped(0.2, 0.0, 50));
        assert!(!dropped(0.9, 0.1, 2));
        assert!(dropped(0.9, 0.1, 3));
    }

    #[test]
    fn draws_are_independent() {
        let params = Params::default();
        let (mut v, mut rng) = (law(0.1, 0.1), Rng::new(1, "t"));
        let hits: Vec<bool> = (0..20_000)
            .map(|_| v.drop_early(&params, 50, &mut rng))
            .collect();
        let pairs = hits.windows(2).filter(|w| w[0] && w[1]).count();
        // A tenth of a tenth of 20,000; standard deviation 14. Derandomised drops would never be
        // neighbours.
        assert!((140..260).contains(&pairs), "{pairs}");
    }

    #[test]
    fn the_delay_is_backlog_over_the_measured_rate() {
        let mut q = PieNs3::<TestPacket>::new(Params::default());
        let (mut rng, mut drops) = (Rng::new(1, "t"), Vec::new());
        for id in 0..100 {
            q.enqueue(
                Instant::ZERO,
                TestPacket::new(id, 1500, 0, Ecn::NotEct),
                &mut rng,
                &mut drops,
            );
        }
        // 1500 bytes leave each 1.2 ms: 1.25 MB/s. The first measurement counts a packet without
        // the time before it: 10,500 bytes in 7.2 ms; the others take 8.4 ms.
        for i in 1..=50 {
            q.dequeue(Instant::from_nanos(i * 1_200_000), &mut rng, &mut drops);
        }
        assert!((q.vars.rate / 1.25e6 - 1.0).abs() < 0.01, "{}", q.vars.rate);
        q.on_timer(Instant::from_millis(60));
        assert!((q.vars.qdelay_old / 0.06 - 1.0).abs() < 0.01);
        assert_eq!(q.next_timer(), Instant::from_millis(90));
    }
}
