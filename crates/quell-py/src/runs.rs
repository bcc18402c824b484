//! `quell._core.run_many`: many worlds on all cores, the interpreter's lock released, Ctrl-C answered.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use quell_sim::RunOptions;
use quell_sim::scenario::Scenario as Checked;

use crate::scenario::Scenario;
use crate::{input_error, nanos};

/// How often a waiting caller looks for a pending signal.
const POLL: Duration = Duration::from_millis(20);

/// Runs every job `(queue words, seed, width of the series' bins in seconds)` and calls `on_done(index, record as JSON)` from
/// this thread as runs finish, in no fixed order. On Ctrl-C, or when `on_done` raises, running worlds stop, what had finished
/// is still handed over, and the exception is raised.
#[pyfunction]
#[pyo3(signature = (scenario, jobs, on_done, *, threads = 0, pcap = None))]
pub fn run_many(
    py: Python<'_>,
    scenario: &Scenario,
    jobs: Vec<(String, u64, Option<f64>)>,
    on_done: &Bound<'_, PyAny>,
    threads: usize,
    pcap: Option<PathBuf>,
) -> PyResult<()> {
    let job = |(queue, seed, bin_s)| (scenario.0.clone(), queue, seed, bin_s);
    run_all(py, jobs.into_iter().map(job), on_done, threads, pcap)
}

/// As `run_many`, each job with a scenario of its own: `(scenario, queue words, seed, width of the series' bins)`.
#[pyfunction]
#[pyo3(signature = (jobs, on_done, *, threads = 0))]
pub fn run_each(
    py: Python<'_>,
    jobs: Vec<(PyRef<'_, Scenario>, String, u64, Option<f64>)>,
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
    jobs: impl Iterator<Item = (Arc<Checked>, String, u64, Option<f64>)>,
    on_done: &Bound<'_, PyAny>,
    threads: usize,
    pcap: Option<PathBuf>,
) -> PyResult<()> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(input_error)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, mut receiver) = channel();
    for (index, (scenario, queue, seed, bin_s)) in jobs.enumerate() {
        let options = RunOptions {
            series_bin: bin_s.map(nanos).transpose()?,
            pcap: pcap.clone(),
        };
        let (stop, sender) = (stop.clone(), sender.clone());
        pool.spawn_fifo(move || {
            if !stop.load(Ordering::Relaxed) {
                // The receiver lives until the last sender is gone.
                let _ = sender.send((index, record(&scenario, &queue, seed, &options, &stop)));
            }
        });
    }
    drop(sender);

    let mut first_error: Option<PyErr> = None;
    loop {
        let message;
        (receiver, message) = py.detach(move || {
            let message = receiver.recv_timeout(POLL);
            (receiver, message)
        });
        let outcome = match message {
            Ok((index, Ok(json))) => on_done.call1((index, json)).map(drop),
            // A stopped world reports that it was stopped: the reason is already kept.
            Ok((_, Err(error))) => Err(error),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if let Err(error) = outcome.and_then(|()| py.check_signals()) {
            stop.store(true, Ordering::Relaxed);
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(()), Err)
}

fn record(
    scenario: &Checked,
    queue: &str,
    seed: u64,
    options: &RunOptions,
    stop: &AtomicBool,
) -> PyResult<String> {
    // A panic would end the process, and with it what other runs have found.
    let run = catch_unwind(AssertUnwindSafe(|| {
        quell_sim::run(scenario, queue, seed, options, stop)
    }));
    let run = run.map_err(|_| {
        PyRuntimeError::new_err(format!(
            "the simulator panicked with queue {queue}, seed {seed}"
        ))
    })?;
    serde_json::to_string(&run.map_err(input_error)?).map_err(input_error)
}
