//! What LearnQueue learns in a world, to be kept and to start other worlds from.

use std::sync::Arc;

use quell_link::error::Error;
use quell_link::record::Run;
use quell_link::words::Queue;
use quell_qdisc::SEC;
use quell_qdisc::control::Controller;
use quell_qdisc::control::learnqueue::{LearnQueue, Table};

use crate::scenario::Scenario;
use crate::world::{Status, World};

/// Simulated time between two questions whether to go on.
const SLICE: u64 = SEC;

impl World {
    /// LearnQueue at this queue, if it is that which turns its knobs.
    pub fn learnqueue(&self, queue: usize) -> Option<&LearnQueue> {
        match &self.net.ports.get(queue)?.controller {
            Controller::LearnQueue(learner) => Some(learner),
            _ => None,
        }
    }
}

/// Runs a world to its end and returns its record and what the queue number `which` has learned by then. `words` is a
/// `learnqueue`; every such queue of the world starts from `table`, if there is one. `go_on` is asked every simulated second.
pub fn episode(
    scenario: &Arc<Scenario>,
    words: &str,
    table: Option<Arc<Table>>,
    seed: u64,
    which: usize,
    go_on: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<(Run, Table), Error> {
    let mut queue = Queue::parse(words)?;
    if queue.kind() != "learnqueue" || queue.is_guarded() {
        return Err(Error::new(format!("{words}: has no table to train"))
            .remedy("write learnqueue with any of its options, but no guard"));
    }
    if let Some(table) = table {
        queue = queue.starting_from(table);
    }
    let mut world = World::with_queue(scenario.clone(), &queue, seed, None)?;
    if world.learnqueue(which).is_none() {
        let learners: Vec<_> = (0..world.queues())
            .filter(|&q| world.learnqueue(q).is_some())
            .map(|q| q.to_string())
            .collect();
        return Err(Error::new(format!(
            "queue {which}: no learnqueue; those of {} are {}",
            scenario.name,
            learners.join(", ")
        )));
    }
    let clock = cpu_time::ThreadTime::now();
    let mut until = 0;
    while until < scenario.duration {
        go_on()?;
        until = (until + SLICE).min(scenario.duration);
        while let Status::Decide { .. } = world.run_until(until) {}
    }
    let table = world.learnqueue(which).map(LearnQueue::table);
    let table = table.ok_or_else(|| Error::new("the queue lost its learner"))?;
    Ok((world.record(clock.elapsed().as_secs_f64()), table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Overrides;

    fn scenario(text: &str) -> Arc<Scenario> {
        let text = format!("duration = \"5s\"\nwarmup = \"0s\"\n{text}");
        Arc::new(Scenario::parse(&text, "t", &Overrides::default()).expect("a scenario"))
    }

    fn plain() -> Arc<Scenario> {
        scenario("[link]\nrate = \"17mbit\"\n[[flow]]\nrtt = \"10ms\"\n")
    }

    #[test]
    fn an_episode_goes_on_from_the_one_before() {
        let mut go_on = || Ok(());
        let (_, first) = episode(&plain(), "learnqueue", None, 1, 0, &mut go_on).unwrap();
        let from = Some(Arc::new(first.clone()));
        let (_, second) = episode(&plain(), "learnqueue", from, 2, 0, &mut go_on).unwrap();
        let tried = |t: &Table| -> u64 { t.visits().iter().flatten().map(|&n| u64::from(n)).sum() };
        // A decision each 15 ms of 5 s.
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
        let table =
            |which| episode(&cell, "learnqueue", None, 1, which, &mut || Ok(())).map(|e| e.1);
        assert_ne!(table(0).unwrap(), table(1).unwrap());
        let e = table(99).expect_err("no such queue").to_string();
        assert!(
            e.starts_with("queue 99: no learnqueue; those of t are 0, 1"),
            "{e}"
        );
    }

    #[test]
    fn what_does_not_learn_or_is_stopped_gives_no_table() {
        for words in ["pfifo", "wqm", "learnqueue guard"] {
            let e = episode(&plain(), words, None, 1, 0, &mut || Ok(())).expect_err(words);
            assert!(e.to_string().contains("has no table to train"), "{e}");
        }
        let mut stop = || Err(Error::new("enough"));
        let e = episode(&plain(), "learnqueue", None, 1, 0, &mut stop).expect_err("a stop");
        assert_eq!(e.to_string(), "enough");
    }

    #[test]
    fn integers_and_floating_point_hold_nearly_the_same_limits() {
        let mean_limit = |words: &str| {
            let runs = (1..=12).map(|seed| {
                let world = scenario("[link]\nrate = \"17mbit\"\n[[flow]]\nrtt = \"10ms\"\n[[flow]]\nkind = \"cbr\"\nrate = \"4mbit\"\n");
                let (run, _) = episode(&world, words, None, seed, 0, &mut || Ok(())).unwrap();
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
