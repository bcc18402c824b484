//! Training episodes for queues that learn. An episode is one run: it starts from earlier learning
//! and returns the decisions of one queue and what that queue has learned by the end.

use std::any::Any;
use std::sync::Arc;

use quell_link::error::Error;
use quell_link::record::Run;
use quell_link::words::Queue;
use quell_qdisc::Rng;
use quell_qdisc::control::LearnedState;
use quell_qdisc::control::learnqueue::{LearnQueue, Table};
use quell_qdisc::control::rlaqm::RlAqm;
use quell_qdisc::policy::Policy;
use quell_qdisc::time::{Duration, Instant, SEC};
use quell_sim::World;
use quell_sim::scenario::Scenario;

/// The state from which an episode starts.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// A network in place of the one that the queue words name; `None`: no replacement.
    pub policy: Option<Policy>,
    /// Seed of the random stream for exploration (`rlaqm` only); `None`: the queue's own stream.
    pub explore: Option<u64>,
    /// The initial table of every LearnQueue in the world; `None`: as the queue words say.
    pub table: Option<Arc<Table>>,
}

/// A run's record, with the data that a learner needs.
#[derive(Clone, Debug)]
pub struct Episode {
    /// The result record.
    pub run: Run,
    /// The network's inputs at each periodic decision, concatenated.
    pub inputs: Vec<f32>,
    /// The action of each of these decisions; see [`quell_qdisc::control::Explanation::action`].
    pub actions: Vec<f32>,
    /// LearnQueue's table at the end; `None` with another controller or under a guard.
    pub table: Option<Table>,
}

/// Runs a world to its end. The decisions and the table in the result are those of queue `which`,
/// counted from 0. `poll` is called about once per second of simulated time.
///
/// # Errors
/// If `start.policy`, `start.table` or `start.explore` does not fit `words`, if there is no such
/// queue, or the error of `poll`.
pub fn episode(
    scenario: &Arc<Scenario>,
    words: &str,
    start: Start,
    seed: u64,
    which: usize,
    poll: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<Episode, Error> {
    let mut queue = Queue::parse(words)?;
    if let Some(policy) = start.policy {
        queue = queue.with_policy(policy)?;
    }
    if let Some(table) = start.table {
        let table = LearnedState::Table(Box::new(Arc::unwrap_or_clone(table)));
        queue = queue.with_learned(table)?;
    }
    let mut world = World::builder(scenario.clone())
        .queue(&queue)
        .seed(seed)
        .build()?;
    world.check_queue(which)?;
    if let Some(seed) = start.explore {
        explore_with(&mut world, which, seed)?;
    }
    let clock = cpu_time::ThreadTime::now();
    let (mut inputs, mut actions) = (Vec::new(), Vec::new());
    let period = world
        .controller(which)
        .map_or(Duration::MAX, |c| c.period());
    // If the queue has no controller with a period, the world runs in steps of 1 s.
    let step = if period == Duration::MAX { SEC } else { period };
    let end = Instant::ZERO + scenario.duration;
    let (mut due, mut asked) = (Instant::ZERO + step, Instant::ZERO);
    while due < end {
        world.run_until(due + Duration::from_nanos(1));
        let made = world.controller(which).and_then(|c| c.explain());
        if let Some(made) = made.filter(|_| period != Duration::MAX) {
            inputs.extend_from_slice(made.inputs);
            actions.push(made.action);
        }
        if due - asked >= SEC {
            asked = due;
            poll()?;
        }
        due += step;
    }
    world.run_until(end);
    let table = learner(&world, which).map(LearnQueue::table);
    Ok(Episode {
        run: world.record(clock.elapsed().as_secs_f64()),
        inputs,
        actions,
        table,
    })
}

fn explore_with(world: &mut World, queue: usize, seed: u64) -> Result<(), Error> {
    let controller = world.controller_mut(queue);
    let rlaqm = controller.and_then(|c| (c as &mut dyn Any).downcast_mut::<RlAqm>());
    let rlaqm = rlaqm.ok_or_else(|| {
        Error::new("only rlaqm explores").remedy("write rlaqm epsilon P, without guard")
    })?;
    rlaqm.explore_with(Rng::new(seed, "rlaqm"));
    Ok(())
}

/// The queue's LearnQueue, if its controller is one.
fn learner(world: &World, queue: usize) -> Option<&LearnQueue> {
    (world.controller(queue)? as &dyn Any).downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_sim::scenario::Overrides;

    fn scenario(text: &str) -> Arc<Scenario> {
        let text = format!("duration = \"5s\"\nwarmup = \"0s\"\n{text}");
        Arc::new(Scenario::parse(&text, "t", &Overrides::default()).expect("a scenario"))
    }

    fn plain() -> Arc<Scenario> {
        scenario("[link]\nrate = \"17mbit\"\n[[flow]]\nrtt = \"10ms\"\n")
    }

    fn run(words: &str, seed: u64, start: Start) -> Episode {
        episode(&plain(), words, start, seed, 0, &mut || Ok(())).unwrap()
    }

    #[test]
    fn an_episode_continues_from_the_previous_one() {
        let first = run("learnqueue", 1, Start::default()).table.unwrap();
        let start = Start {
            table: Some(Arc::new(first.clone())),
            ..Start::default()
        };
        let second = run("learnqueue", 2, start).table.unwrap();
        let tried = |t: &Table| -> u64 { t.visits().iter().flatten().map(|&n| u64::from(n)).sum() };
        // One decision every 15 ms for 5 s.
        assert_eq!(tried(&first), 333);
        assert_eq!(tried(&second), 666);
        assert_eq!(second.card().params.initial, first.card().limit);
        let seen = |t: &Table| t.visits().iter().flatten().filter(|&&n| n > 0).count();
        assert!(seen(&second) >= seen(&first));
    }

    #[test]
    fn every_queue_of_a_cell_has_a_table_of_its_own() {
        let cell = scenario(
            "[wifi]\nstations = 2\n[[flow]]\nto = \"sta1\"\n[[flow]]\nkind = \"cbr\"\nrate = \"90mbit\"\nto = \"sta2\"\n",
        );
        let table = |which| {
            let start = Start::default();
            episode(&cell, "learnqueue", start, 1, which, &mut || Ok(())).map(|e| e.table)
        };
        assert_ne!(table(0).unwrap().unwrap(), table(1).unwrap().unwrap());
        let e = table(99).expect_err("no such queue").to_string();
        assert!(e.starts_with("there is no queue 99; choose 0 to "), "{e}");
    }

    #[test]
    fn a_queue_that_does_not_learn_has_no_table_and_a_stop_is_an_error() {
        for words in ["pfifo", "wqm", "learnqueue guard"] {
            assert_eq!(run(words, 1, Start::default()).table, None, "{words}");
        }
        let mut stop = || Err(Error::new("enough"));
        let e = episode(&plain(), "learnqueue", Start::default(), 1, 0, &mut stop);
        assert_eq!(e.expect_err("a stop").to_string(), "enough");
    }

    #[test]
    fn every_decision_of_a_network_is_logged_and_changes_nothing() {
        let episode = run("rlaqm", 3, Start::default());
        // A decision every 20 ms for 5 s, except at the end. Three inputs: delay, utilisation and
        // probability. The action is one of five steps.
        assert_eq!(
            (episode.inputs.len(), episode.actions.len()),
            (3 * 249, 249)
        );
        assert!(episode.actions.iter().all(|a| (0.0..5.0).contains(a)));
        let never = std::sync::atomic::AtomicBool::new(false);
        let options = quell_sim::RunOptions::default();
        let alone = quell_sim::run(&plain(), "rlaqm", 3, &options, &never).unwrap();
        assert_eq!(episode.run.trace_hash, alone.trace_hash);
    }

    #[test]
    fn a_seed_of_its_own_separates_exploring_from_what_the_queue_draws() {
        let exploring = |explore, seed| {
            let start = Start {
                explore,
                ..Start::default()
            };
            run("rlaqm epsilon 0.5 noheuristics", seed, start).actions
        };
        assert_eq!(exploring(Some(1), 1), exploring(Some(1), 1));
        assert_ne!(exploring(Some(1), 1), exploring(Some(2), 1));
        assert_ne!(exploring(None, 1), exploring(Some(1), 1));
        let start = Start {
            explore: Some(1),
            ..Start::default()
        };
        let e = super::episode(&plain(), "codel", start, 1, 0, &mut || Ok(()));
        assert!(e.unwrap_err().to_string().contains("only rlaqm explores"));
    }

    #[test]
    fn a_table_for_a_queue_that_has_none_is_refused() {
        let table = run("learnqueue", 1, Start::default()).table.map(Arc::new);
        for words in ["codel", "rlaqm"] {
            let table = table.clone();
            let start = Start {
                table,
                ..Start::default()
            };
            let e = super::episode(&plain(), words, start, 1, 0, &mut || Ok(())).unwrap_err();
            assert!(e.to_string().starts_with(&format!("{words}: has no table")));
        }
    }

    #[test]
    fn integers_and_floating_point_hold_nearly_the_same_limits() {
        let mean_limit = |words: &str| {
            let runs = (1..=12).map(|seed| {
                let world = scenario("[link]\nrate = \"17mbit\"\n[[flow]]\nrtt = \"10ms\"\n[[flow]]\nkind = \"cbr\"\nrate = \"4mbit\"\n");
                let run = episode(&world, words, Start::default(), seed, 0, &mut || Ok(())).unwrap().run;
                run.limit_packets.expect("a mean limit")
            });
            runs.sum::<f64>() / 12.0
        };
        let (float, fixed) = (
            mean_limit("learnqueue"),
            mean_limit("learnqueue fixed_point"),
        );
        assert!(
            (float / fixed - 1.0).abs() < 0.25,
            "{float} and {fixed} packets"
        );
    }
}
