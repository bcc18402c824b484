//! Construction of a world.

use std::sync::Arc;

use quell_link::error::Error;
use quell_link::words::Queue;
use quell_qdisc::time::{Duration, Instant};

use super::{Lookahead, World, path};
use crate::labels;
use crate::measure::Measures;
use crate::scenario::Scenario;

/// A scenario with a queue at the bottleneck, a seed and a time series, from which a [`World`] is
/// built.
#[derive(Clone, Debug)]
#[must_use]
pub struct WorldBuilder {
    scenario: Arc<Scenario>,
    queue: Option<Result<Queue, Error>>,
    seed: Option<u64>,
    series: Option<Duration>,
}

impl World {
    /// Starts to build the world of a scenario.
    pub fn builder(scenario: impl Into<Arc<Scenario>>) -> WorldBuilder {
        WorldBuilder {
            scenario: scenario.into(),
            queue: None,
            seed: None,
            series: None,
        }
    }
}

impl WorldBuilder {
    /// Sets the queue at the bottleneck: a [`Queue`], or its words. By default, the scenario's.
    pub fn queue<Q: TryInto<Queue>>(mut self, queue: Q) -> Self
    where
        Error: From<Q::Error>,
    {
        self.queue = Some(queue.try_into().map_err(Error::from));
        self
    }

    /// Sets the seed of all random numbers. By default, that of the scenario's first run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the width of the time series' bins; `None`, the default: no series.
    pub fn series(mut self, bin: impl Into<Option<Duration>>) -> Self {
        self.series = bin.into();
        self
    }

    /// Builds the world.
    ///
    /// # Errors
    /// If queue words are wrong or do not fit their link, a flow has no path, there are too many
    /// queues or flows, or the bins have a width of 0.
    pub fn build(self) -> Result<World, Error> {
        let Self {
            scenario,
            queue,
            seed,
            series,
        } = self;
        if series == Some(Duration::ZERO) {
            let error = Error::new("the bins of the series have a width of 0");
            return Err(error.remedy("give them at least 1 ns, or leave the series out"));
        }
        let queue = match queue {
            Some(queue) => queue?,
            None => Queue::parse(&scenario.link.queue)?,
        };
        let seed = seed.unwrap_or_else(|| scenario.run_seed(0));
        queue.check(scenario.link.rate.mean_rate(scenario.duration))?;
        let mut world = World {
            now: Instant::ZERO,
            net: path::net(&scenario, &queue, seed)?,
            slots: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            next_id: 0,
            key: labels::key(seed),
            measures: Measures::new(&scenario, series),
            labels: Vec::new(),
            far_hosts: Vec::new(),
            warm_at: Instant::ZERO + scenario.warmup,
            scenario,
            seed,
            queue: queue.canonical(),
            controlled_by: None,
            answers: 0,
            pingers: 0,
            events: 0,
            lookahead: Lookahead::default(),
        };
        world.populate()?;
        for port in &mut world.net.ports {
            port.queue.probe.meter.begin_warmup();
        }
        Ok(world)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Overrides;

    #[test]
    fn queue_and_seed_are_the_scenarios_by_default() {
        let text = "seed = 3\nduration = '3s'\n[link]\nrate = '5mbit'\nqueue = 'red'\n[[flow]]\n";
        let scenario = Scenario::parse(text, "test", &Overrides::default()).expect("a scenario");
        let hash = |builder: WorldBuilder| {
            let mut world = builder.build().expect("a world");
            world.run_until(Instant::from_secs(3));
            world.trace_hash()
        };
        let builder = World::builder(scenario);
        let own = hash(builder.clone());
        assert_eq!(own, hash(builder.clone().queue("red").seed(3)));
        assert_ne!(own, hash(builder.clone().seed(4)));
        let codel = Queue::parse("codel").expect("a queue");
        assert_ne!(own, hash(builder.queue(&codel)));
    }

    #[test]
    fn words_that_name_no_queue_are_refused() {
        let builder = World::builder(Scenario::default()).queue("codl");
        let error = builder.build().expect_err("no such queue").to_string();
        assert!(
            error.starts_with("unknown queue `codl`; did you mean `codel`?"),
            "{error}"
        );
    }
}
