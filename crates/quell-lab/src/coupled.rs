//! Coupled queues as A3C learns in them: a world that stops each period for somebody outside to set p' of every sub-queue of
//! one queue, and shows what an actor reads of each.

use std::sync::Arc;

use quell_link::Error;
use quell_qdisc::control::a3c::{self, INPUTS};
use quell_qdisc::{Gauges, Knobs, MS, NEVER, Nanos, SubGauges};
use quell_sim::scenario::Scenario;
use quell_sim::{Status, World};

/// One world, and what was seen of it last.
#[derive(Clone, Debug)]
pub struct Coupled {
    world: World,
    queue: usize,
    period: Nanos,
    published: bool,
    last: Vec<SubGauges>,
    gauges: Gauges,
}

/// What a period showed of one sub-queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shown {
    /// What an actor reads.
    pub readings: [f32; INPUTS],
    /// It held or got packets.
    pub busy: bool,
    /// Its delay, ms.
    pub delay_ms: f32,
    /// Share of the packets offered to it that was dropped, 0..1.
    pub loss: f32,
}

/// What a period showed of the queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Period {
    /// By sub-queue: the classic ones, then their L4S partners in the same order.
    pub sub_queues: Vec<Shown>,
    /// Bytes that left over what the link could send, 0..1.
    pub utilisation: f64,
    /// The scenario is over.
    pub over: bool,
}

impl Coupled {
    /// The world of a scenario; `queue` says which of its queues stops it: 0 is the bottleneck, then come the hops and the queue
    /// upwards. `published` reads gauges as the kernel's log has them.
    ///
    /// # Errors
    /// If there is no such queue, or it has no sub-queues whose p' can be set.
    pub fn new(
        scenario: Arc<Scenario>,
        words: &str,
        seed: u64,
        queue: usize,
        period: Nanos,
        published: bool,
    ) -> Result<Self, Error> {
        let mut world = World::new(scenario, words, seed, None)?;
        world.set_outside(queue, period)?;
        let last: Vec<_> = world.sub_gauges(queue).collect();
        if last.is_empty() {
            return Err(
                Error::new("this queue has no sub-queues to be set one by one")
                    .remedy("write l4s with its options"),
            );
        }
        Ok(Self {
            gauges: world.gauges(queue),
            world,
            queue,
            period,
            published,
            last,
        })
    }

    /// How many sub-queues there are.
    pub fn sub_queues(&self) -> usize {
        self.last.len()
    }

    /// The present.
    pub fn now(&self) -> Nanos {
        self.world.now()
    }

    /// Sets p' of every sub-queue (a negative number leaves it to the queue's own law) and runs on to the next decision.
    ///
    /// # Errors
    /// Without a number up to 1 for each sub-queue.
    pub fn step(&mut self, probabilities: &[f64]) -> Result<Period, Error> {
        if probabilities.len() != self.last.len() || !probabilities.iter().all(|p| *p <= 1.0) {
            let n = self.last.len();
            return Err(Error::new(format!(
                "write a number up to 1 for each of {n} sub-queues"
            )));
        }
        for (sub_queue, &p) in probabilities.iter().enumerate() {
            let knobs = Knobs {
                base_probability: (p >= 0.0).then_some(p),
                release: p < 0.0,
                ..Knobs::KEEP
            };
            self.world.set_knobs(self.queue, Some(sub_queue), &knobs)?;
        }
        let over = self.world.run_until(NEVER) == Status::Done;
        let gauges = self.world.gauges(self.queue);
        let now: Vec<_> = self.world.sub_gauges(self.queue).collect();
        let shown = self.last.iter().zip(&now).map(|(last, g)| {
            let mut readings = [0.0; INPUTS];
            a3c::observe(self.published, self.world.now(), last, g, &mut readings);
            let packets = (g.arrivals - last.arrivals).max(1) as f32;
            Shown {
                readings,
                busy: !a3c::is_idle(last, g),
                delay_ms: g.law.delay as f32 / MS as f32,
                loss: ((g.drops - last.drops) as f32 / packets).min(1.0),
            }
        });
        let bytes = gauges.departed_bytes - self.gauges.departed_bytes;
        let room = gauges.rate_bps.max(1) as f64 * self.period as f64 / 8e9;
        let period = Period {
            sub_queues: shown.collect(),
            utilisation: (bytes as f64 / room).min(1.0),
            over,
        };
        self.last = now;
        self.gauges = gauges;
        Ok(period)
    }
}
