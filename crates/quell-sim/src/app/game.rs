//! A game: the server sends states of the world, the player sends commands. The measure is the time
//! from a command to the arrival of a state that reflects it.

use quell_link::hist::Hist;
use quell_link::record::Application;
use quell_qdisc::time::{Duration, MS};

/// Round trip above which players of fast games notice the delay.
const FAST: Duration = Duration::from_millis(50);
/// Maximum number of states in flight that are distinguished: 4 s of them at 60 per second.
const HELD: usize = 256;

/// A player and a server of a game.
#[derive(Clone, Debug)]
pub struct Match {
    /// One-way delay of the newest command; `None` before the first has arrived.
    command: Option<Duration>,
    /// By serial number of a state (modulo `HELD`): delay of the newest command that it reflects.
    reflected: Vec<Option<Duration>>,
    /// Delay of a command plus that of a state that reflects it, ns.
    round_trips: Hist,
    /// Number of states with a round trip of at most `FAST`.
    fast: u64,
}

impl Default for Match {
    fn default() -> Self {
        Self {
            command: None,
            reflected: vec![None; HELD],
            round_trips: Hist::new(),
            fast: 0,
        }
    }
}

impl Match {
    /// A command has reached the server.
    pub fn command_arrived(&mut self, delay: Duration) {
        self.command = Some(delay);
    }

    /// The server sends a state.
    pub fn state_sent(&mut self, serial: u32) {
        self.reflected[serial as usize % HELD] = self.command;
    }

    /// A state has reached the player.
    pub fn state_arrived(&mut self, serial: u32, delay: Duration, measuring: bool) {
        if let Some(command) = self.reflected[serial as usize % HELD]
            && measuring
        {
            let round_trip = command + delay;
            self.round_trips.record(round_trip.as_nanos());
            self.fast += u64::from(round_trip <= FAST);
        }
    }

    /// The player's experience; `None` if no state was sent. `sent` is the number of states sent; a
    /// lost state does not count as within 50 ms.
    pub fn result(&self, sent: u64) -> Option<Application> {
        let arrived = self.round_trips.count();
        (sent > 0).then(|| Application {
            round_trip_ms: (arrived > 0)
                .then(|| self.round_trips.summary(1.0 / MS.as_nanos() as f64)),
            within_50ms: Some(self.fast as f64 / sent.max(arrived) as f64),
            ..Application::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_a_command_and_the_state_that_reflects_it() {
        let mut m = Match::default();
        m.state_sent(0);
        m.state_arrived(0, 20 * MS, true); // before any command
        m.command_arrived(15 * MS);
        m.state_sent(1);
        m.command_arrived(90 * MS);
        m.state_sent(2);
        m.state_arrived(1, 20 * MS, true);
        m.state_arrived(2, 20 * MS, true);
        let r = m.result(4).expect("states");
        let round_trip = r.round_trip_ms.expect("states");
        assert_eq!((round_trip.mean, round_trip.max), (72.5, 110.0));
        assert_eq!(r.within_50ms, Some(0.25));
    }
}
