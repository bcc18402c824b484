//! The TCP timestamps of both directions of an interface: each direction has a loop, and the
//! controllers of both hear what they tell.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use quell_link::passive::{Passive, Stamped};
use quell_qdisc::{Nanos, num};

use super::shared::Watch;
use crate::packet::header::{Class, Key, random_key};

/// What both loops read and write. Its clock is its own: each loop has another.
#[derive(Clone)]
pub struct Passing {
    passive: Arc<Mutex<Passive>>,
    began: Instant,
    key: Key,
    loops: Vec<Watch>,
}

impl Passing {
    /// For these loops.
    pub fn new(loops: Vec<Watch>) -> Self {
        Self {
            passive: Arc::default(),
            began: Instant::now(),
            key: random_key(),
            loops,
        }
    }

    /// The segment that a packet of a direction is, by the names of its far host and its
    /// connection.
    pub fn segment(&self, class: &Class, back: bool) -> Option<Stamped> {
        let stamps = class.stamps?;
        Some(Stamped {
            host: class.tuple.far_host(back, self.key),
            connection: class.tuple.connection(back, self.key),
            value: stamps.value,
            echo: stamps.echo,
            asks: stamps.asks,
        })
    }

    fn now(&self) -> Nanos {
        num::low_u64(self.began.elapsed().as_nanos())
    }

    /// A segment has left for the line, after a time in the shaper.
    pub fn left(&self, waited: Nanos, segment: &Stamped) {
        let mut passive = self.passive.lock().unwrap_or_else(PoisonError::into_inner);
        // The clock is read by who has the lock: times never run backwards.
        let now = self.now();
        passive.left(now, now.saturating_sub(waited), segment);
    }

    /// A segment has come from the line.
    pub fn came(&self, segment: &Stamped) {
        let mut passive = self.passive.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = passive.came(self.now(), segment);
        drop(passive);
        if let Some(delay) = delay {
            self.loops.iter().for_each(|of| of.hear_delay(delay));
        }
    }
}
