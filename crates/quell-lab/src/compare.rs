//! Compares queues in one scenario like `quell compare`, for crates with their own queue or
//! controller.
//!
//! ```
//! use quell_lab::compare::{Comparison, table};
//! use quell_link::Queue;
//! use quell_qdisc::fifo::{Fifo, Params};
//! use quell_qdisc::outside::Handle;
//! use quell_sim::scenario::{Overrides, Scenario};
//!
//! # fn main() -> Result<(), quell_link::Error> {
//! let text = "duration = \"2s\"\nwarmup = \"1s\"\n[link]\nrate = \"10mbit\"\n";
//! let scenario = Scenario::parse(text, "mine", &Overrides::default())?;
//! let params = Params { limit_packets: 20, ..Params::default() };
//! let own = Queue::outside("mine", move |_| Fifo::<Handle>::new(params.clone()))?;
//! let records = Comparison::of(scenario).words("fq_codel")?.queue(own).seeds(2).run()?;
//! print!("{}", table(&records));
//! # assert_eq!((records.len(), records[3].queue.as_str()), (4, "mine"));
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quell_link::record::Run;
use quell_link::{Error, Queue};
use quell_qdisc::control::Control;
use quell_sim::scenario::Scenario;
use quell_sim::{RunOptions, Session, World};
use rayon::prelude::*;

/// A scenario, the queues to compare in it, and the number of runs of each.
#[derive(Clone, Debug)]
pub struct Comparison {
    scenario: Arc<Scenario>,
    entries: Vec<Entry>,
    seeds: u32,
}

#[derive(Clone, Debug)]
struct Entry {
    queue: Queue,
    controller: Option<Box<dyn Control>>,
}

impl Comparison {
    /// A comparison without queues, with the scenario's number of runs.
    pub fn of(scenario: Scenario) -> Self {
        Self {
            seeds: scenario.seeds,
            scenario: Arc::new(scenario),
            entries: Vec::new(),
        }
    }

    /// Adds one of quell's queues, by its words.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn words(self, words: &str) -> Result<Self, Error> {
        Ok(self.queue(Queue::parse(words)?))
    }

    /// Adds a queue.
    pub fn queue(mut self, queue: Queue) -> Self {
        self.entries.push(Entry {
            queue,
            controller: None,
        });
        self
    }

    /// Adds a queue whose knobs this controller sets in place of the queue's own.
    pub fn controlled(mut self, queue: Queue, controller: impl Control) -> Self {
        self.entries.push(Entry {
            queue,
            controller: Some(Box::new(controller)),
        });
        self
    }

    /// Sets the number of runs of each queue, at least 1. Seeds are derived from the scenario's
    /// seed.
    pub fn seeds(mut self, seeds: u32) -> Self {
        self.seeds = seeds.max(1);
        self
    }

    /// Runs all queues with all seeds on all cores. Records are in the order in which queues were
    /// added, then by seed.
    ///
    /// # Errors
    /// If two entries would share a row, a controller sets a knob that its queue lacks, or a queue
    /// fails.
    pub fn run(&self) -> Result<Vec<Run>, Error> {
        for (i, entry) in self.entries.iter().enumerate() {
            let row = entry.row();
            if self.entries[..i].iter().any(|other| other.row() == row) {
                let error = Error::new(format!("two queues are called {row}"));
                return Err(error.remedy("give one of them another name"));
            }
        }
        let jobs = self.entries.iter().flat_map(|entry| {
            let seeds = 0..self.seeds;
            seeds.map(move |k| (entry, self.scenario.run_seed(k)))
        });
        let jobs: Vec<_> = jobs.collect();
        jobs.into_par_iter()
            .map(|(entry, seed)| entry.run(&self.scenario, seed))
            .collect()
    }
}

impl Entry {
    fn row(&self) -> String {
        let controller = self.controller.as_ref().map(|c| c.name());
        row(&self.queue.canonical(), controller.as_deref())
    }

    fn run(&self, scenario: &Arc<Scenario>, seed: u64) -> Result<Run, Error> {
        let mut world = World::builder(scenario.clone())
            .queue(&self.queue)
            .seed(seed)
            .build()?;
        if let Some(controller) = &self.controller {
            world.set_controller(0, controller.clone())?;
        }
        Session::new(world, &RunOptions::default())?.complete(&AtomicBool::new(false))
    }
}

/// Name of a row: the queue, and the controller if it is not part of the queue.
fn row(queue: &str, controller: Option<&str>) -> String {
    match controller {
        Some(controller) => format!("{queue} + {controller}"),
        None => queue.to_owned(),
    }
}

/// A column: two lines of heading, decimals, and its value in a record.
type Column = (&'static str, &'static str, usize, fn(&Run) -> Option<f64>);

const COLUMNS: [Column; 8] = [
    ("goodput", "Mbit/s", 2, |r| Some(r.goodput_mbps)),
    ("used", "%", 1, |r| Some(r.utilisation * 100.0)),
    ("sojourn", "mean ms", 1, |r| Some(r.sojourn_ms.mean)),
    ("sojourn", "p95 ms", 1, |r| Some(r.sojourn_ms.p95)),
    ("sojourn", "p99 ms", 1, |r| Some(r.sojourn_ms.p99)),
    ("loss", "%", 2, |r| Some(r.loss_rate * 100.0)),
    ("Jain", "0..1", 3, |r| r.jain),
    ("RTT p95", "ms", 1, |r| r.rtt_ms.map(|rtt| rtt.p95)),
];

/// A table in plain text: one row per queue in order of appearance, with means over its runs.
pub fn table(records: &[Run]) -> String {
    let mut rows: Vec<(String, Vec<&Run>)> = Vec::new();
    for record in records {
        let name = row(&record.queue, record.controller.as_deref());
        match rows.iter_mut().find(|(known, _)| *known == name) {
            Some((_, runs)) => runs.push(record),
            None => rows.push((name, vec![record])),
        }
    }
    let names = rows.iter().map(|(name, _)| name.chars().count());
    let width = names.chain(["queue".len()]).max().unwrap_or(0);
    let heading = |first: &str, line: fn(&Column) -> &'static str| {
        let cells = COLUMNS.iter().map(|c| format!("{:>9}", line(c)));
        format!("{first:width$}{}\n", cells.collect::<String>())
    };
    let mut text = heading("", |c| c.0) + &heading("queue", |c| c.1);
    for (name, runs) in rows {
        let cells = COLUMNS.iter().map(|&(_, _, digits, of)| {
            let values: Vec<f64> = runs.iter().filter_map(|r| of(r)).collect();
            match values.len() {
                0 => format!("{:>9}", "-"),
                n => format!("{:9.digits$}", values.iter().sum::<f64>() / n as f64),
            }
        });
        text += &format!("{name:width$}{}\n", cells.collect::<String>());
    }
    text
}

/// Writes records atomically as a JSON array, the format that `quell compare --json` writes and
/// `quell show` reads.
///
/// # Errors
/// If the file cannot be written.
pub fn write_json(path: &Path, records: &[Run]) -> Result<(), Error> {
    let fail = |e: &dyn std::fmt::Display| {
        Error::new(format!("cannot be written: {e}")).at(&path.to_string_lossy(), None)
    };
    let text = serde_json::to_string(records).map_err(|e| fail(&e))? + "\n";
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    // Always a new file, never an existing one or the target of a link.
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&part);
    let mut file = made.map_err(|e| fail(&e))?;
    let written = std::io::Write::write_all(&mut file, text.as_bytes())
        .and_then(|()| std::fs::rename(&part, path));
    written.map_err(|e| {
        // The partial file is useless. If it cannot be removed either, the first error is still the
        // one reported.
        let _ = std::fs::remove_file(&part);
        fail(&e)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_qdisc::control::fixed::{Fixed, Params};
    use quell_qdisc::fifo::{self, Fifo};
    use quell_qdisc::outside::Handle;
    use quell_sim::scenario::Overrides;

    fn comparison() -> Comparison {
        let text = "duration = \"3s\"\nwarmup = \"1s\"\nseed = 7\n[link]\nrate = \"10mbit\"\n[[flow]]\nstagger = \"1s\"\n";
        let scenario = Scenario::parse(text, "side by side", &Overrides::default());
        Comparison::of(scenario.expect("a scenario")).seeds(3)
    }

    fn own(name: &str) -> Queue {
        let params = fifo::Params {
            limit_packets: 20,
            ..fifo::Params::default()
        };
        Queue::outside(name, move |_| Fifo::<Handle>::new(params.clone())).expect("a name")
    }

    fn fixed(limit: u32) -> Fixed {
        Fixed::new(Params {
            limit: Some(limit),
            drop: None,
        })
    }

    #[test]
    fn records_have_the_requested_order_on_any_number_of_cores() {
        let fifo = || Queue::parse("fifo limit 30").expect("words");
        let comparison = comparison().words("pfifo limit 20").expect("words");
        let comparison = comparison.queue(own("mine")).queue(fifo());
        let records = comparison
            .controlled(fifo(), fixed(20))
            .run()
            .expect("runs");
        let names: Vec<_> = records
            .iter()
            .map(|r| (r.queue.as_str(), r.controller.as_deref()))
            .collect();
        let wanted = [
            ("pfifo limit 20", None),
            ("mine", None),
            ("fifo limit 30", None),
            ("fifo limit 30", Some("Fixed")),
        ];
        assert_eq!(names, wanted.map(|name| [name; 3]).concat());
        let seeds: Vec<_> = records.iter().map(|r| r.seed).collect();
        assert_eq!(seeds[..3], seeds[9..]);
        let hashes: Vec<_> = records.iter().map(|r| &r.trace_hash).collect();
        // The same queue under another name, and a queue that its controller makes equal.
        assert_eq!(hashes[..3], hashes[3..6]);
        assert_eq!(hashes[..3], hashes[9..]);
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[6]);
    }

    #[test]
    fn queues_of_the_same_name_and_missing_knobs_are_refused() {
        let error = |c: Comparison| c.run().unwrap_err().to_string();
        let twice = comparison().queue(own("mine")).queue(own("mine"));
        assert_eq!(
            error(twice),
            "two queues are called mine; give one of them another name"
        );
        let cake = Queue::parse("cake").expect("words");
        let e = error(comparison().controlled(cake, fixed(3)));
        assert_eq!(e, "`cake` has no knob limit; it has none");
    }

    #[test]
    fn the_table_has_a_row_per_queue_and_controller() {
        let run = |queue: &str, controller: Option<&str>, goodput_mbps, jain| Run {
            queue: queue.into(),
            controller: controller.map(str::to_owned),
            goodput_mbps,
            utilisation: 0.5,
            jain,
            ..Run::default()
        };
        let text = table(&[
            run("fifo", None, 1.0, None),
            run("fifo", None, 2.0, None),
            run("fifo", Some("Steady"), 9.5, Some(0.25)),
        ]);
        let wanted = "               goodput     used  sojourn  sojourn  sojourn     loss     Jain  RTT p95\n\
                      queue           Mbit/s        %  mean ms   p95 ms   p99 ms        %     0..1       ms\n\
                      fifo              1.50     50.0      0.0      0.0      0.0     0.00        -        -\n\
                      fifo + Steady     9.50     50.0      0.0      0.0      0.0     0.00    0.250        -\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn records_are_written_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("quell-compare-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let file = folder.join("runs.json");
        let records = comparison()
            .seeds(1)
            .queue(own("mine"))
            .run()
            .expect("a run");
        write_json(&file, &records).expect("written");
        let text = std::fs::read_to_string(&file).expect("text");
        assert_eq!(
            serde_json::from_str::<Vec<Run>>(&text).expect("records"),
            records
        );
        let e = write_json(&folder.join("no/such.json"), &records)
            .unwrap_err()
            .to_string();
        assert!(
            e.contains("no/such.json: cannot be written: ") && !e.contains('\n'),
            "{e}"
        );
        let e = write_json(&folder, &records).unwrap_err().to_string();
        assert!(e.contains("cannot be written"), "{e}");
        assert!(!folder.with_extension("part").exists());
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
