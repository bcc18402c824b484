//! TCP timestamps of both directions of an interface. Each direction has a loop that reports
//! segments; the controllers of both get the delays computed from them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time;

use quell_link::passive::{Passive, Stamped};
use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant};

use super::shared::Watch;
use crate::packet::header::{Class, Key, random_key};

/// State shared by both loops. It has its own clock, since each loop's clock differs.
#[derive(Clone)]
pub struct Passing {
    passive: Arc<Mutex<Passive>>,
    began: time::Instant,
    key: Key,
    loops: Vec<Watch>,
}

impl Passing {
    /// Passes delays to these loops.
    pub fn new(loops: Vec<Watch>) -> Self {
        Self {
            passive: Arc::default(),
            began: time::Instant::now(),
            key: random_key(),
            loops,
        }
    }

    /// The packet's TCP timestamps, with hashes of its far host and its connection; `back`: it
    /// comes from the line. `None` without timestamps, and for a SYN-ACK to the line: in a SYN
    /// flood with forged addresses, a near host sends SYN-ACKs to very many far hosts, which would
    /// replace the hosts that are about to answer.
    pub fn segment(&self, class: &Class, back: bool) -> Option<Stamped> {
        let stamps = class.stamps.filter(|stamps| back || !stamps.accepts)?;
        Some(Stamped {
            host: class.tuple.far_host(back, self.key),
            connection: class.tuple.connection(back, self.key),
            value: stamps.value,
            echo: stamps.echo,
            requires_answer: stamps.requires_answer,
        })
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(num::low_u64(self.began.elapsed().as_nanos()))
    }

    /// Records that a segment has left for the line, after `waited` in the shaper.
    pub fn left(&self, waited: Duration, segment: &Stamped) {
        let mut passive = self.passive.lock().unwrap_or_else(PoisonError::into_inner);
        // The clock is read under the lock, so that recorded times never run backwards.
        let now = self.now();
        passive.on_departure(now, now.saturating_sub(waited), segment);
    }

    /// Records that a segment has come from the line; passes the delay that it shows to the loops.
    pub fn arrived(&self, segment: &Stamped) {
        let mut passive = self.passive.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = passive.on_arrival(self.now(), segment);
        drop(passive);
        if let Some(delay) = delay {
            self.loops.iter().for_each(|of| of.hear_delay(delay));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::header::Parser;
    use crate::plane::shared::lock;
    use quell_qdisc::discipline::Wants;

    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;

    /// A segment from port 443 of one host to another, with timestamps.
    fn segment(from: u32, to: u32, flags: u8, (value, echo): (u32, u32)) -> Class {
        let mut p = vec![0; 52];
        (p[0], p[3], p[9]) = (0x45, 52, 6);
        p[12..16].copy_from_slice(&from.to_be_bytes());
        p[16..20].copy_from_slice(&to.to_be_bytes());
        p[20..24].copy_from_slice(&[1, 187, 1, 187]);
        p[32..34].copy_from_slice(&[8 << 4, flags]);
        p[40..44].copy_from_slice(&[1, 1, 8, 10]);
        p[44..48].copy_from_slice(&value.to_be_bytes());
        p[48..52].copy_from_slice(&echo.to_be_bytes());
        let parser = Parser {
            key: (1, 2),
            tunnels: false,
            stamps: true,
            wants: Wants::NONE,
        };
        parser.classify(&p)
    }

    #[test]
    fn connections_that_a_flood_of_forged_syns_begins_do_not_replace_a_host_that_is_about_to_answer()
     {
        let (near, far) = (0x0a00_0001, 0xc633_6401);
        let watch = Watch::default();
        let passing = Passing::new(vec![watch.clone()]);
        let leaves = |class: &Class| {
            if let Some(segment) = passing.segment(class, false) {
                passing.left(Duration::ZERO, &segment);
            }
        };
        leaves(&segment(near, far, SYN, (1, 0)));
        for forged in 0..10_000 {
            leaves(&segment(near, 0xc612_0000 + forged, SYN | ACK, (1, 7)));
        }
        let answer = passing.segment(&segment(far, near, SYN | ACK, (5, 1)), true);
        passing.arrived(&answer.expect("it has timestamps"));
        assert_eq!(lock(&watch.0.heard).len(), 1);
    }
}
