//! A congestion control that watches delay: it grows by a packet per round trip while few packets
//! queue, and shrinks by one while many do (the idea of TCP Vegas, Brakmo and Peterson, 1995).

use quell_qdisc::time::Instant;
use quell_sim::cc::outside::{Acked, Cause, Congestion, Sign};

/// Below this number of queued packets the window grows.
const MIN_QUEUED: f64 = 3.0;
/// Above this number of queued packets the window shrinks.
const MAX_QUEUED: f64 = 6.0;

/// The congestion control of one connection.
#[derive(Clone, Debug)]
pub struct Delay {
    window: f64,
    slow_start: bool,
}

impl Default for Delay {
    fn default() -> Self {
        Self {
            window: 10.0,
            slow_start: true,
        }
    }
}

impl Congestion for Delay {
    fn window(&self) -> u32 {
        self.window as u32
    }

    fn on_start(&mut self, _: Instant, window: u32, _: u32) {
        self.window = f64::from(window);
    }

    fn on_ack(&mut self, ack: &Acked) {
        let Some(rtt) = ack.rtt.filter(|_| ack.window_limited && !ack.reducing) else {
            return;
        };
        let queued = self.window * (1.0 - ack.min_rtt.as_nanos() as f64 / rtt.as_nanos() as f64);
        self.slow_start &= queued < MIN_QUEUED;
        let step = match queued {
            _ if self.slow_start => 1.0,
            q if q < MIN_QUEUED => 1.0 / self.window,
            q if q > MAX_QUEUED => -1.0 / self.window,
            _ => 0.0,
        };
        self.window = (self.window + step * f64::from(ack.delivered)).max(2.0);
    }

    fn on_congestion(&mut self, sign: &Sign) {
        self.slow_start = sign.cause == Cause::Timeout;
        self.window = match sign.cause {
            Cause::Timeout => 1.0,
            Cause::Loss | Cause::Mark => (self.window / 2.0).max(2.0),
        };
    }
}
