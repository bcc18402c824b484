//! Responsiveness under working conditions: while other traffic loads the network, new connections
//! fetch one byte each (draft-ietf-ippm-responsiveness-09, "foreign probes").

use quell_link::hist::Hist;
use quell_link::record::Application;
use quell_qdisc::num;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS, SEC};

use super::{Action, Event};

/// Maximum number of foreign probes per second: half of the draft's MPS, 100 probes of both kinds.
const MAX_PER_SECOND: u64 = 50;
/// Bytes of a foreign and a self probe together.
const BYTES: u64 = 6000;
/// Inverse of the share of the capacity that probes may take: the draft's PTC, 5 %.
const SHARE: u64 = 20;
/// Quantile above which values are left out of means: the draft's TMP.
const TRIM: f64 = 0.95;
/// Maximum number of probes in progress.
const OPEN: usize = 200;

/// A source of probes.
#[derive(Clone, Debug)]
pub struct Prober {
    /// Time between probes.
    period: Duration,
    /// Time of the next probe.
    pub wake_at: Instant,
    /// Number of the next probe.
    next: u8,
    /// Probes in progress: number, and start of the current step.
    open: Vec<(u8, Instant)>,
    /// Durations of the steps: TCP's handshake, TLS's handshake, the request; ns.
    tcp: Hist,
    tls: Hist,
    http: Hist,
}

impl Prober {
    /// A source that starts at `start`; `capacity` is that of the slower direction.
    pub fn new(capacity: Rate, start: Instant) -> Self {
        let per_second = capacity.bps_f64() / (8 * BYTES * SHARE) as f64;
        Self {
            period: Duration::from_nanos(num::whole_u64(
                SEC.as_nanos() as f64 / per_second.min(MAX_PER_SECOND as f64),
            )),
            wake_at: start,
            next: 0,
            open: Vec::new(),
            tcp: Hist::new(),
            tls: Hist::new(),
            http: Hist::new(),
        }
    }

    /// Handles an event.
    pub fn on(&mut self, now: Instant, event: Event, measuring: bool, todo: &mut Vec<Action>) {
        match event {
            Event::Wake => {
                self.wake_at = now + self.period;
                if self.open.len() < OPEN {
                    todo.push(Action::Connect(self.next));
                    self.open.push((self.next, now));
                    self.next = self.next.wrapping_add(1);
                }
            }
            Event::Resolved => {}
            Event::Opened(number) => {
                if let Some(took) = self.step(number, now).filter(|_| measuring) {
                    self.tcp.record(took.as_nanos());
                }
            }
            Event::Connected(number) => {
                if let Some(took) = self.step(number, now).filter(|_| measuring) {
                    self.tls.record(took.as_nanos());
                }
                todo.push(Action::Fetch(number, 1));
            }
            Event::Received(number) => {
                if let Some(took) = self.step(number, now).filter(|_| measuring) {
                    self.http.record(took.as_nanos());
                }
                self.open.retain(|(n, _)| *n != number);
                todo.push(Action::HangUp(number));
            }
        }
    }

    /// Ends a probe's step. Returns its duration.
    fn step(&mut self, number: u8, now: Instant) -> Option<Duration> {
        let (_, began) = self.open.iter_mut().find(|(n, _)| *n == number)?;
        Some(now - std::mem::replace(began, now))
    }

    /// The responsiveness; `None` until every step has been measured once. `loaded` has the RTTs,
    /// ns, of the connections that load the network; without any, the result is `None`, too.
    pub fn result(&self, loaded: &Hist) -> Option<Application> {
        let parts = [&self.tcp, &self.tls, &self.http, loaded];
        let [tcp, tls, http, loaded] =
            parts.map(|h| (h.count() > 0).then(|| h.trimmed_mean(TRIM) / MS.as_nanos() as f64));
        Some(Application {
            rpm: Some(responsiveness([tcp?, tls?, http?], loaded?)),
            ..Application::default()
        })
    }
}

/// Round trips per minute. `foreign` has the trimmed means of the steps of foreign probes, `loaded`
/// is that of the RTTs of loaded connections, ms.
fn responsiveness(foreign: [f64; 3], loaded: f64) -> f64 {
    let foreign = 60_000.0 / (foreign.iter().sum::<f64>() / 3.0);
    (foreign + 60_000.0 / loaded) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_is_the_drafts() {
        // Foreign: 60000 / ((20 + 30 + 40) / 3) = 2000; loaded: 60000 / 60 = 1000.
        assert_eq!(responsiveness([20.0, 30.0, 40.0], 60.0), 1500.0);
    }

    #[test]
    fn probes_take_a_twentieth_of_the_capacity_at_most() {
        // 5 % of 9.6 Mbit/s are 60,000 bytes, or 10 probes, a second. From 48 Mbit/s on, it is 50
        // probes.
        assert_eq!(
            Prober::new(Rate::from_kbit(9600), Instant::ZERO).period,
            100 * MS
        );
        assert_eq!(
            Prober::new(Rate::from_mbit(1000), Instant::ZERO).period,
            20 * MS
        );
    }

    #[test]
    fn each_step_is_timed_by_itself() {
        let (mut p, mut todo) = (
            Prober::new(Rate::from_kbit(9600), Instant::ZERO),
            Vec::new(),
        );
        p.on(Instant::ZERO, Event::Wake, true, &mut todo);
        p.on(Instant::from_millis(20), Event::Opened(0), true, &mut todo);
        p.on(
            Instant::from_millis(50),
            Event::Connected(0),
            true,
            &mut todo,
        );
        p.on(
            Instant::from_millis(90),
            Event::Received(0),
            true,
            &mut todo,
        );
        assert_eq!(
            todo,
            [Action::Connect(0), Action::Fetch(0, 1), Action::HangUp(0)]
        );
        let mut loaded = Hist::new();
        assert!(p.result(&loaded).is_none());
        loaded.record((60 * MS).as_nanos());
        let rpm = p.result(&loaded).and_then(|r| r.rpm).expect("a result");
        assert!((rpm - 1500.0).abs() < 8.0, "{rpm}");
    }
}
