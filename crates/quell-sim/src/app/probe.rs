//! Responsiveness under working conditions: new connections that fetch a byte, beside all other
//! traffic (draft-ietf-ippm-responsiveness-09, "foreign probes").

use quell_link::hist::Hist;
use quell_link::record::Application;
use quell_qdisc::{MS, Nanos, SEC, num};

use super::{Action, Event};

/// Foreign probes per second: half of MPS.
const MAX_PER_SECOND: u64 = 50;
/// Bytes of a foreign and a self probe together.
const BYTES: u64 = 6000;
/// Share of the capacity that they may take, one over it (PTC is 5 %).
const SHARE: u64 = 20;
/// Values above this quantile are left out of means (TMP).
const TRIM: f64 = 0.95;
/// Probes that may be under way at once.
const OPEN: usize = 200;

/// A source of probes.
#[derive(Clone, Debug)]
pub struct Prober {
    period: Nanos,
    /// The next probe.
    pub wake_at: Nanos,
    next: u8,
    /// Those under way, and when the present step of each began.
    open: Vec<(u8, Nanos)>,
    tcp: Hist,
    tls: Hist,
    http: Hist,
}

impl Prober {
    /// Begins at `start`; `capacity` in bit/s is that of the slower direction.
    pub fn new(capacity: u64, start: Nanos) -> Self {
        let per_second = capacity as f64 / (8 * BYTES * SHARE) as f64;
        Self {
            period: num::whole_u64(SEC as f64 / per_second.min(MAX_PER_SECOND as f64)),
            wake_at: start,
            next: 0,
            open: Vec::new(),
            tcp: Hist::new(),
            tls: Hist::new(),
            http: Hist::new(),
        }
    }

    /// Something happens.
    pub fn on(&mut self, now: Nanos, event: Event, measuring: bool, todo: &mut Vec<Action>) {
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
                    self.tcp.record(took);
                }
            }
            Event::Connected(number) => {
                if let Some(took) = self.step(number, now).filter(|_| measuring) {
                    self.tls.record(took);
                }
                todo.push(Action::Fetch(number, 1));
            }
            Event::Received(number) => {
                if let Some(took) = self.step(number, now).filter(|_| measuring) {
                    self.http.record(took);
                }
                self.open.retain(|(n, _)| *n != number);
                todo.push(Action::HangUp(number));
            }
        }
    }

    /// How long the step took that ends now.
    fn step(&mut self, number: u8, now: Nanos) -> Option<Nanos> {
        let (_, began) = self.open.iter_mut().find(|(n, _)| *n == number)?;
        Some(now - std::mem::replace(began, now))
    }

    /// The result; `loaded` are round-trip times of the connections that load the network. `None`
    /// without a probe.
    pub fn result(&self, loaded: &Hist) -> Option<Application> {
        let parts = [&self.tcp, &self.tls, &self.http, loaded];
        let [tcp, tls, http, loaded] =
            parts.map(|h| (h.count() > 0).then(|| h.trimmed_mean(TRIM) / MS as f64));
        Some(Application {
            rpm: Some(responsiveness([tcp?, tls?, http?], loaded?)),
            ..Application::default()
        })
    }
}

/// Round trips per minute, of trimmed means in ms: of the steps of foreign probes, and on loaded
/// connections.
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
        // 9.6 Mbit/s: 60,000 bytes a second are 10 probes. From 48 Mbit/s on, 50.
        assert_eq!(Prober::new(9_600_000, 0).period, 100 * MS);
        assert_eq!(Prober::new(1_000_000_000, 0).period, 20 * MS);
    }

    #[test]
    fn each_step_is_timed_by_itself() {
        let (mut p, mut todo) = (Prober::new(9_600_000, 0), Vec::new());
        p.on(0, Event::Wake, true, &mut todo);
        p.on(20 * MS, Event::Opened(0), true, &mut todo);
        p.on(50 * MS, Event::Connected(0), true, &mut todo);
        p.on(90 * MS, Event::Received(0), true, &mut todo);
        assert_eq!(
            todo,
            [Action::Connect(0), Action::Fetch(0, 1), Action::HangUp(0)]
        );
        let mut loaded = Hist::new();
        assert!(p.result(&loaded).is_none());
        loaded.record(60 * MS);
        let rpm = p.result(&loaded).and_then(|r| r.rpm).expect("a result");
        assert!((rpm - 1500.0).abs() < 8.0, "{rpm}");
    }
}
