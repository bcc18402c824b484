//! A3C's environment: worlds that stop after each period, give an actor's observation of each
//! sub-queue of one queue, and let it set p' of every sub-queue.

use std::sync::{Arc, MutexGuard};

use quell_link::Error;
use quell_link::record::Run;
use quell_qdisc::control::a3c::{self, Observation};
use quell_qdisc::time::{Duration, Instant, MS, NEVER};
use quell_qdisc::{Gauges, Knobs, SubGauges, num};
use quell_sim::scenario::Scenario;
use quell_sim::{Status, World};

use crate::team::Team;

/// The queue that agents control, their period and their observation.
#[derive(Clone, Debug)]
pub struct Task {
    /// Queue words of the bottleneck.
    pub queue: String,
    /// The queue whose sub-queues are set, in the order of [`World::queues`]: 0 is the bottleneck.
    pub port: usize,
    /// Time between decisions.
    pub period: Duration,
    /// Readings of each sub-queue in an actor's observation.
    pub observation: Observation,
}

/// One world, and its readings at the last decision.
#[derive(Clone, Debug)]
pub struct Coupled {
    task: Arc<Task>,
    world: World,
    last: Vec<SubGauges>,
    gauges: Gauges,
    over: bool,
}

/// One sub-queue in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SubQueueView {
    /// Whether packets arrived in the period or are queued at its end.
    pub busy: bool,
    /// Delay as the sub-queue's law measures it, ms.
    pub delay_ms: f32,
    /// Ratio of drops to packets offered in the period, 0..1.
    pub loss: f32,
}

/// The whole queue in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueView {
    /// Ratio of the bytes that left to the bytes that the link can send in a period. It can
    /// exceed 1, because a packet counts as a whole even if its transmission began in the previous
    /// period.
    pub utilisation: f32,
    /// Backlog of all sub-queues as time at the link's rate, ms.
    pub backlog_ms: f32,
    /// Whether the scenario has ended.
    pub over: bool,
}

/// Results of a period: an actor's readings, and measures of each sub-queue and of the whole queue.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// [`Observation::width`] numbers for each sub-queue: the classic sub-queues, then their L4S
    /// partners in the same order.
    pub readings: Vec<f32>,
    /// Measures of each sub-queue, in the order of `readings`.
    pub sub_queues: Vec<SubQueueView>,
    /// The whole queue.
    pub queue: QueueView,
}

impl Coupled {
    /// Begins a world of a scenario.
    ///
    /// # Errors
    /// If there is no such queue, or it has no sub-queues whose p' can be set.
    pub fn new(task: Arc<Task>, scenario: Arc<Scenario>, seed: u64) -> Result<Self, Error> {
        let mut world = World::builder(scenario)
            .queue(task.queue.as_str())
            .seed(seed)
            .build()?;
        world.set_outside(task.port, task.period)?;
        let last: Vec<_> = world.sub_gauges(task.port).collect();
        if last.is_empty() {
            return Err(
                Error::new("this queue has no sub-queues to be set one by one")
                    .remedy("write l4s with its options"),
            );
        }
        Ok(Self {
            gauges: world.gauges(task.port),
            world,
            task,
            last,
            over: false,
        })
    }

    /// Number of sub-queues.
    pub fn sub_queues(&self) -> usize {
        self.last.len()
    }

    /// Simulated time.
    pub fn now(&self) -> Instant {
        self.world.now()
    }

    /// Record of the run so far, without the warm-up.
    pub fn record(&mut self) -> Run {
        self.world.record(0.0)
    }

    /// Sets p' of every sub-queue (a negative number: the queue's own law decides) and runs until
    /// the next decision. Once the scenario has ended, nothing changes.
    ///
    /// # Errors
    /// Unless there is a number of at most 1 for each sub-queue.
    pub fn step(&mut self, probabilities: &[f32], view: &mut View) -> Result<(), Error> {
        self.check(probabilities)?;
        if self.over {
            return Ok(());
        }
        let Task {
            port,
            period,
            observation,
            ..
        } = *self.task;
        for (sub_queue, &p) in probabilities.iter().enumerate() {
            let knobs = Knobs {
                base_probability: (p >= 0.0).then_some(f64::from(p)),
                release: p < 0.0,
                ..Knobs::KEEP
            };
            self.world.set_knobs(port, Some(sub_queue), &knobs)?;
        }
        self.over = self.world.run_until(NEVER) == Status::Done;
        let gauges = self.world.gauges(port);
        let rows = view.readings.chunks_mut(observation.width());
        for (((last, g), readings), shown) in self
            .last
            .iter_mut()
            .zip(self.world.sub_gauges(port))
            .zip(rows)
            .zip(&mut view.sub_queues)
        {
            observation.observe(self.world.now(), last, &g, readings);
            let packets = (g.arrivals - last.arrivals).max(1) as f32;
            *shown = SubQueueView {
                busy: !a3c::is_idle(last, &g),
                delay_ms: g.law.delay.as_nanos() as f32 / MS.as_nanos() as f32,
                loss: ((g.drops - last.drops) as f32 / packets).min(1.0),
            };
            *last = g;
        }
        let bytes = gauges.departed_bytes - self.gauges.departed_bytes;
        let rate = gauges.rate.bps().max(1) as f64;
        view.queue = QueueView {
            utilisation: num::single(bytes as f64 * 8e9 / (rate * period.as_nanos() as f64)),
            backlog_ms: num::single(gauges.backlog_bytes as f64 * 8e3 / rate),
            over: self.over,
        };
        self.gauges = gauges;
        Ok(())
    }

    fn check(&self, probabilities: &[f32]) -> Result<(), Error> {
        let n = self.last.len();
        if probabilities.len() == n && probabilities.iter().all(|p| *p <= 1.0) {
            return Ok(());
        }
        Err(Error::new(format!(
            "write a number up to 1 for each of {n} sub-queues"
        )))
    }

    /// A view of the right size, all zero, for [`Coupled::step`] to fill.
    pub fn view(&self) -> View {
        let n = self.last.len();
        View {
            readings: vec![0.0; n * self.task.observation.width()],
            sub_queues: vec![SubQueueView::default(); n],
            queue: QueueView::default(),
        }
    }
}

/// Worlds that are stepped together. Results do not depend on the number of threads.
pub struct Fleet {
    task: Arc<Task>,
    team: Team<Member>,
}

/// A world of a fleet, and its last view.
pub struct Member {
    /// The world.
    pub world: Coupled,
    /// Results of the last period.
    pub view: View,
    probabilities: Vec<f32>,
    result: Result<(), Error>,
}

impl Member {
    fn new(task: &Arc<Task>, scenario: Arc<Scenario>, seed: u64) -> Result<Self, Error> {
        let world = Coupled::new(task.clone(), scenario, seed)?;
        Ok(Self {
            view: world.view(),
            probabilities: Vec::new(),
            result: Ok(()),
            world,
        })
    }

    fn step(&mut self) {
        self.result = self.world.step(&self.probabilities, &mut self.view);
    }
}

impl Fleet {
    /// Begins a world for each scenario and seed, on `threads` threads (0: one per core).
    ///
    /// # Errors
    /// See [`Coupled::new`]; if `scenarios` is empty; if a thread cannot be started.
    pub fn new(
        task: Task,
        scenarios: &[(Arc<Scenario>, u64)],
        threads: usize,
    ) -> Result<Self, Error> {
        if scenarios.is_empty() {
            return Err(Error::new("there is no world").remedy("give at least one scenario"));
        }
        let task = Arc::new(task);
        let members: Result<Vec<_>, _> = scenarios
            .iter()
            .map(|(scenario, seed)| Member::new(&task, scenario.clone(), *seed))
            .collect();
        let threads = match threads {
            0 => rayon::current_num_threads(),
            threads => threads,
        };
        let team = Team::new(members?, threads.min(scenarios.len()), Member::step);
        Ok(Self {
            task,
            team: team.map_err(|e| Error::new(e.to_string()))?,
        })
    }

    /// The worlds, between steps.
    pub fn members(&self) -> impl Iterator<Item = MutexGuard<'_, Member>> {
        (0..self.team.pieces()).map(|index| self.team.piece(index))
    }

    /// Number of sub-queues of a world.
    pub fn sub_queues(&self) -> usize {
        self.team.piece(0).world.sub_queues()
    }

    /// Replaces world `index` by a new one.
    ///
    /// # Errors
    /// See [`Coupled::new`]; if there is no such world.
    pub fn replace(
        &mut self,
        index: usize,
        scenario: Arc<Scenario>,
        seed: u64,
    ) -> Result<(), Error> {
        let member = Member::new(&self.task, scenario, seed)?;
        let n = self.team.pieces();
        if index >= n {
            return Err(Error::new(format!("there is no world {index} among {n}")));
        }
        *self.team.piece(index) = member;
        Ok(())
    }

    /// Runs [`Coupled::step`] in every world. `probabilities` has those of all sub-queues of the
    /// first world, then those of the next.
    ///
    /// # Errors
    /// Unless there is a number of at most 1 for each sub-queue of each world. No world has been
    /// stepped then.
    pub fn step(&mut self, probabilities: &[f32]) -> Result<(), Error> {
        let (n, worlds) = (self.sub_queues(), self.team.pieces());
        if probabilities.len() != n * worlds {
            return Err(Error::new(format!(
                "write {n} probabilities for each of {worlds} worlds, not {} in all",
                probabilities.len()
            )));
        }
        for (member, own) in self.members().zip(probabilities.chunks(n)) {
            member.world.check(own)?;
        }
        for (mut member, own) in self.members().zip(probabilities.chunks(n)) {
            member.probabilities.clear();
            member.probabilities.extend(own);
        }
        self.team.round();
        self.members()
            .try_for_each(|mut member| std::mem::replace(&mut member.result, Ok(())))
    }

    /// [`Coupled::record`] of each world.
    pub fn records(&mut self) -> Vec<Run> {
        self.members()
            .map(|mut member| member.world.record())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use quell_sim::scenario::Overrides;

    use super::*;

    const TOML: &str = r#"
        duration = "3s"
        warmup = "1s"
        [link]
        rate = "10mbit"
        queue = "l4s"
        delay = "10ms"
        [[flow]]
        cc = "cubic"
        rtt = "20ms"
        [[flow]]
        cc = "prague"
        rtt = "20ms"
    "#;

    fn scenario() -> Arc<Scenario> {
        Arc::new(Scenario::parse(TOML, "test", &Overrides::default()).unwrap())
    }

    fn fleet(observation: Observation, threads: usize) -> Fleet {
        let task = Task {
            queue: "l4s".into(),
            port: 0,
            period: 15 * MS,
            observation,
        };
        let scenario = scenario();
        let worlds: Vec<_> = (1..=5).map(|seed| (scenario.clone(), seed)).collect();
        Fleet::new(task, &worlds, threads).unwrap()
    }

    /// Runs five worlds with p' proportional to the delay; returns every view, and the records.
    fn run(threads: usize) -> (Vec<View>, Vec<Run>) {
        let mut fleet = fleet(Observation::Logarithmic, threads);
        let (mut p, mut seen) = (vec![-1.0_f32; 5 * 6], Vec::new());
        loop {
            fleet.step(&p).unwrap();
            let views: Vec<_> = fleet.members().map(|m| m.view.clone()).collect();
            let rows = views.iter().flat_map(|v| &v.sub_queues);
            p = rows.map(|s| (s.delay_ms / 50.0).min(1.0)).collect();
            let over = views.iter().all(|v| v.queue.over);
            seen.extend(views);
            if over {
                return (seen, fleet.records());
            }
        }
    }

    #[test]
    fn views_and_records_do_not_depend_on_the_number_of_threads() {
        let one = run(1);
        assert_eq!(one.0.len(), 5 * 200);
        for threads in [2, 3, 8] {
            let more = run(threads);
            assert_eq!(one.0, more.0, "{threads} threads");
            let text = |runs: &[Run]| serde_json::to_string(runs).unwrap();
            assert_eq!(text(&one.1), text(&more.1));
        }
    }

    #[test]
    fn the_utilisation_of_a_full_link_averages_1_and_is_not_clamped() {
        let mut fleet = fleet(Observation::Linear, 1);
        let mut uses = Vec::new();
        for _ in 0..190 {
            fleet.step(&[0.0; 30]).unwrap();
            let view = fleet.members().next().unwrap().view.clone();
            if view.queue.backlog_ms > 0.0 {
                uses.push(view.queue.utilisation);
            }
        }
        let mean = uses.iter().sum::<f32>() / uses.len() as f32;
        assert!(uses.len() > 100 && (0.99..1.01).contains(&mean), "{mean}");
        assert!(uses.iter().any(|&u| u > 1.0));
    }

    #[test]
    fn a_replaced_world_starts_at_time_0_and_the_others_continue() {
        let mut fleet = fleet(Observation::Linear, 1);
        for _ in 0..50 {
            fleet.step(&[-1.0; 30]).unwrap();
        }
        let scenario = scenario();
        fleet.replace(2, scenario.clone(), 9).unwrap();
        fleet.step(&[-1.0; 30]).unwrap();
        let now: Vec<_> = fleet
            .members()
            .map(|m| m.world.now().as_millis() / 15)
            .collect();
        assert_eq!(now, [51, 51, 1, 51, 51]);
        let error = fleet.replace(5, scenario, 9).unwrap_err().to_string();
        assert!(error.contains("no world 5 among 5"));
        assert!(
            fleet
                .step(&[0.0; 6])
                .unwrap_err()
                .to_string()
                .contains("6 probabilities for each of 5")
        );
    }

    #[test]
    fn if_one_number_is_invalid_no_world_is_stepped() {
        let mut fleet = fleet(Observation::Linear, 1);
        for bad in [1.5, f32::NAN] {
            let mut p = [0.0; 30];
            p[29] = bad;
            let error = fleet.step(&p).unwrap_err().to_string();
            assert!(error.contains("a number up to 1"), "{error}");
            assert!(fleet.members().all(|m| m.world.now() == Instant::ZERO));
        }
    }
}
