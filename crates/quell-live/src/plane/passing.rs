//! TCP timestamps of both directions of an interface. Each direction has a loop that reports
//! segments; the controllers of both get the delays computed from them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use quell_link::passive::{Passive, Stamped};
use quell_qdisc::{Nanos, num};

use super::shared::Watch;
use crate::packet::header::{Class, Key, random_key};

/// State shared by both loops. It has its own clock, since each loop's clock differs.
#[derive(Clone)]
pub struct Passing {
    passive: Arc<Mutex<Passive>>,
    began: Instant,
    key: Key,
    loops: Vec<Watch>,
}

impl Passing {
    /// Passes delays to these loops.
    pub fn new(loops: Vec<Watch>) -> Self {
        Self {
            passive: Arc::default(),
            began: Instant::now(),
            key: random_key(),
            loops,
        }
    }

    /// The packet's TCP timestamps, with hashes of its far host and its connection; `back`: it
    /// comes from the line.
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

    /// Records that a segment has left for the line, after `waited` ns in the shaper.
    pub fn left(&self, waited: Nanos, segment: &Stamped) {
        let mut passive = self.passive.lock().unwrap_or_else(PoisonError::into_inner);
        // The clock is read under the lock, so that recorded times never run backwards.
        let now = self.now();
        passive.left(now, now.saturating_sub(waited), segment);
    }

    /// Records that a segment has come from the line; passes the delay that it shows to the loops.
    pub fn came(&self, segment: &Stamped) {
        let mut passive = self.passive.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = passive.came(self.now(), segment);
        drop(passive);
        if let Some(delay) = delay {
            self.loops.iter().for_each(|of| of.hear_delay(delay));
        }
    }
}
