//! `quell._core.run_many`: runs many worlds on all cores, without the interpreter's lock; Ctrl-C
//! stops them. Worlds whose queue is written in Python run one after another on the calling thread,
//! which holds the lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use quell_link::Error;
use quell_link::record::Run;
use quell_qdisc::time;
use quell_sim::scenario::Scenario as Checked;
use quell_sim::{RunOptions, Session, Status, World};
use serde_json::Value;

use crate::queue::{OwnQueue, Raised};
use crate::scenario::{Queue, Scenario};
use crate::{duration, input_error, no_threads};

/// Interval at which a waiting caller checks for pending signals.
const POLL: Duration = Duration::from_millis(20);

/// A queue: words, or one written in Python.
#[derive(FromPyObject)]
pub enum AnyQueue {
    /// Words that have been parsed.
    Parsed(Queue),
    /// Queue words.
    Words(String),
    /// A queue written in Python, see `quell.experiments.queue.OwnQueue`.
    Own(OwnQueue),
}

impl AnyQueue {
    /// Parses the queue; `Err` is a queue that is written in Python.
    pub fn parsed(self) -> PyResult<Result<Queue, OwnQueue>> {
        Ok(match self {
            Self::Parsed(queue) => Ok(queue),
            Self::Words(words) => Ok(Queue::new(&words)?),
            Self::Own(own) => Err(own),
        })
    }
}

/// Runs every job `(queue, seed, width of the series' bins in seconds)` and calls
/// `on_done(index, record as JSON)` in this thread as runs finish, in no fixed order. On Ctrl-C, or
/// when `on_done` raises an exception, running worlds stop, finished records are still handed over,
/// and the exception is raised.
#[pyfunction]
#[pyo3(signature = (scenario, jobs, on_done, *, threads = 0, pcap = None))]
pub fn run_many(
    py: Python<'_>,
    scenario: &Scenario,
    jobs: Vec<(AnyQueue, u64, Option<f64>)>,
    on_done: &Bound<'_, PyAny>,
    threads: usize,
    pcap: Option<PathBuf>,
) -> PyResult<()> {
    let job = |(queue, seed, bin_s)| (scenario.0.clone(), queue, seed, bin_s);
    run_all(py, jobs.into_iter().map(job), on_done, threads, pcap)
}

/// Like `run_many`, but each job has its own scenario:
/// `(scenario, queue, seed, width of the series' bins)`.
#[pyfunction]
#[pyo3(signature = (jobs, on_done, *, threads = 0))]
pub fn run_each(
    py: Python<'_>,
    jobs: Vec<(PyRef<'_, Scenario>, AnyQueue, u64, Option<f64>)>,
    on_done: &Bound<'_, PyAny>,
    threads: usize,
) -> PyResult<()> {
    let job = |(scenario, queue, seed, bin_s): (PyRef<'_, Scenario>, _, _, _)| {
        (scenario.0.clone(), queue, seed, bin_s)
    };
    let jobs: Vec<_> = jobs.into_iter().map(job).collect();
    run_all(py, jobs.into_iter(), on_done, threads, None)
}

fn run_all(
    py: Python<'_>,
    jobs: impl Iterator<Item = (Arc<Checked>, AnyQueue, u64, Option<f64>)>,
    on_done: &Bound<'_, PyAny>,
    threads: usize,
    pcap: Option<PathBuf>,
) -> PyResult<()> {
    let (mut words, mut own) = (Vec::new(), Vec::new());
    for (index, (scenario, queue, seed, bin_s)) in jobs.enumerate() {
        let options = RunOptions {
            series_bin: bin_s.map(duration).transpose()?,
            pcap: pcap.clone(),
        };
        let job = Job {
            index,
            scenario,
            seed,
            options,
        };
        match queue.parsed()? {
            Ok(queue) => words.push((job, queue)),
            Err(queue) => own.push((job, queue)),
        }
    }
    let cores = match threads {
        0 => rayon::current_num_threads(),
        threads => threads.min(words.len() + own.len()).max(1),
    };
    // This thread runs the queues that are written in Python.
    let others = if own.is_empty() { cores } else { cores - 1 };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(others.max(1))
        .build()
        .map_err(|error| input_error(no_threads(&error)))?;
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = channel();
    for (job, queue) in words {
        let (stop, sender) = (stop.clone(), sender.clone());
        pool.spawn_fifo(move || {
            if !stop.load(Ordering::Relaxed) {
                // Cannot fail: the receiver outlives all senders.
                let _ = sender.send((job.index, job.run(&queue, &stop)));
            }
        });
    }
    drop(sender);

    let mut results = Results {
        on_done,
        receiver,
        stop,
        first_error: None,
    };
    if others == 0 {
        results.wait(py);
    }
    for (job, queue) in own {
        if results.first_error.is_some() {
            break;
        }
        let record = job.run_own(py, queue, &mut results);
        results.take(py, (job.index, record));
    }
    results.wait(py);
    results.first_error.map_or(Ok(()), Err)
}

/// Checks that `data` is a result record as JSON, or a non-empty array of records; errors name
/// `file`.
#[pyfunction]
pub fn check_records(file: &str, data: &[u8]) -> PyResult<()> {
    let fail = |e: &dyn std::fmt::Display| {
        let remedy = "name a file written by `quell compare --json` or by write_json() of a frame with nested=True";
        input_error(
            Error::new(format!("no result records: {e}"))
                .remedy(remedy)
                .at(file, None),
        )
    };
    let value = serde_json::from_slice(data).map_err(|e| fail(&e))?;
    let records = match value {
        Value::Array(records) => records,
        one => vec![one],
    };
    if records.is_empty() {
        return Err(fail(&"the list is empty"));
    }
    for mut record in records {
        leave_nulls_out(&mut record);
        if !has_plausible_numbers(&record) {
            return Err(fail(&format!("it has a number beyond {MAX_NUMBER:e}")));
        }
        // A key that Python adds to a run's record.
        if record.get("rpm").is_some_and(|rpm| !rpm.is_number()) {
            return Err(fail(&"rpm is not a number"));
        }
        serde_json::from_value::<Run>(record).map_err(|e| fail(&e))?;
    }
    Ok(())
}

/// Largest plausible measurement; sums of squares of larger numbers may overflow.
const MAX_NUMBER: f64 = 1e100;

fn has_plausible_numbers(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_none_or(|n| n.abs() <= MAX_NUMBER),
        Value::Array(values) => values.iter().all(has_plausible_numbers),
        Value::Object(fields) => fields.values().all(has_plausible_numbers),
        _ => true,
    }
}

/// A run's index, and its record as JSON.
type Message = (usize, PyResult<String>);

/// Collects the results of the runs.
struct Results<'a, 'py> {
    on_done: &'a Bound<'py, PyAny>,
    receiver: Receiver<Message>,
    stop: Arc<AtomicBool>,
    first_error: Option<PyErr>,
}

impl Results<'_, '_> {
    /// Hands a record to Python. An error after the first one is ignored: it is that of a stopped
    /// world.
    fn take(&mut self, py: Python<'_>, (index, record): Message) {
        let handed = record.and_then(|json| self.on_done.call1((index, json)).map(drop));
        self.check(handed.and_then(|()| py.check_signals()));
    }

    fn check(&mut self, outcome: PyResult<()>) {
        if let Err(error) = outcome {
            self.stop.store(true, Ordering::Relaxed);
            self.first_error.get_or_insert(error);
        }
    }

    /// Takes the results that other threads have finished so far.
    fn take_ready(&mut self, py: Python<'_>) {
        while let Ok(message) = self.receiver.try_recv() {
            self.take(py, message);
        }
        self.check(py.check_signals());
    }

    /// Takes all results, until the last run has ended.
    fn wait(&mut self, py: Python<'_>) {
        loop {
            let message;
            (self.receiver, message) = {
                let receiver = std::mem::replace(&mut self.receiver, channel().1);
                py.detach(move || {
                    let message = receiver.recv_timeout(POLL);
                    (receiver, message)
                })
            };
            match message {
                Ok(message) => self.take(py, message),
                Err(RecvTimeoutError::Timeout) => self.check(py.check_signals()),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    }
}

/// A run to be done, without its queue.
struct Job {
    index: usize,
    scenario: Arc<Checked>,
    seed: u64,
    options: RunOptions,
}

impl Job {
    /// The record of a run with a queue of the simulator.
    fn run(&self, queue: &Queue, stop: &AtomicBool) -> PyResult<String> {
        // A panic would end the process and lose the results of other runs.
        let run = catch_unwind(AssertUnwindSafe(|| {
            let (scenario, bin) = (self.scenario.clone(), self.options.series_bin);
            let world = World::builder(scenario)
                .queue(&*queue.parsed)
                .seed(self.seed)
                .series(bin)
                .build()?;
            Session::new(world, &self.options)?.complete(stop)
        }));
        let run = run.map_err(|_| {
            PyRuntimeError::new_err(format!(
                "the simulator panicked with queue {}, seed {}",
                queue.words, self.seed
            ))
        })?;
        serde_json::to_string(&run.map_err(input_error)?).map_err(input_error)
    }

    /// The record of a run with a queue that is written in Python. Hands over results of other
    /// threads in between.
    fn run_own(
        &self,
        py: Python<'_>,
        queue: OwnQueue,
        results: &mut Results<'_, '_>,
    ) -> PyResult<String> {
        let raised = Raised::default();
        let mut poll = || {
            results.take_ready(py);
            match results.first_error {
                None => Ok(()),
                Some(_) => Err(Error::new("interrupted")),
            }
        };
        let run = || {
            let queue = queue.queue(&raised)?;
            let bin = self.options.series_bin;
            let world = World::builder(self.scenario.clone())
                .queue(&queue)
                .seed(self.seed)
                .series(bin)
                .build()?;
            let mut session = Session::new(world, &self.options)?;
            while let Status::Decide { .. } = session.run_to_decision(&mut poll)? {}
            session.finish()
        };
        let run = run().map_err(|error| {
            let mut raised = raised
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            raised.take().unwrap_or_else(|| input_error(error))
        });
        serde_json::to_string(&run?).map_err(input_error)
    }
}

/// The bufferbloat grade for a mean increase of latency under load, ms.
#[pyfunction]
pub fn grade(increase_ms: f64) -> &'static str {
    quell_link::record::grade(increase_ms)
}

/// Quality of a real call at the listener, as the JSON of a record's `Application`; `None` if
/// nothing was sent. `arrivals` has, for each packet in order of arrival, its serial number, its
/// one-way delay, ns, and whether it counts; `sent` is the number of packets that count.
#[pyfunction]
pub fn heard(arrivals: Vec<(u32, u64, bool)>, sent: u64) -> PyResult<Option<String>> {
    let arrivals: Vec<_> = arrivals
        .into_iter()
        .map(|(serial, delay, measuring)| (serial, time::Duration::from_nanos(delay), measuring))
        .collect();
    let result = quell_sim::heard(&arrivals, sent);
    result
        .map(|call| serde_json::to_string(&call).map_err(input_error))
        .transpose()
}

/// Removes null values: a data frame has null where a record, or a part of it, lacks a key.
fn leave_nulls_out(value: &mut Value) {
    match value {
        Value::Object(keys) => {
            keys.retain(|_, value| !value.is_null());
            keys.values_mut().for_each(leave_nulls_out);
        }
        Value::Array(values) => values.iter_mut().for_each(leave_nulls_out),
        _ => {}
    }
}
