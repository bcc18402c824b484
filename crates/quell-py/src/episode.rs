//! `quell._core.episode`: runs of queues that learn; `quell._core.LearnQueueTable`: LearnQueue's
//! Q-table.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quell_lab::episode::Start;
use quell_link::Error;
use quell_link::words::{LearnQueueWords, Queue};
use quell_qdisc::control::learnqueue::{LearnQueue, Table};
use quell_qdisc::policy::Policy;

use crate::input_error;
use crate::scenario::Scenario;

/// A Q-table with its card. Immutable.
#[pyclass(frozen, module = "quell._core")]
pub struct LearnQueueTable(Arc<Table>);

#[pymethods]
impl LearnQueueTable {
    /// Reads a table file's bytes; `file` is its name, for errors.
    #[new]
    fn new(file: &str, data: &[u8]) -> PyResult<Self> {
        let table = Table::load(file, data).map_err(input_error)?;
        Ok(Self(Arc::new(table)))
    }

    /// The card as JSON.
    #[getter]
    fn card(&self) -> PyResult<String> {
        serde_json::to_string(self.0.card()).map_err(input_error)
    }

    /// The limits that are the table's states, ascending: one per row.
    fn limits(&self) -> Vec<u32> {
        self.0.limits()
    }

    /// Q of the next smaller and of the next larger limit, for each row, ms.
    fn values(&self) -> Vec<[f64; 2]> {
        self.0.values()
    }

    /// Number of visits of these two actions, for each row.
    fn visits(&self) -> Vec<[u32; 2]> {
        self.0.visits().to_vec()
    }

    /// The bytes of a table file; its card describes the training.
    fn save<'py>(
        &self,
        py: Python<'py>,
        trained_on: &str,
        seed: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let table = Table::clone(&self.0).from(trained_on, seed);
        Ok(PyBytes::new(py, &table.save().map_err(input_error)?))
    }
}

/// Results of an episode.
#[pyclass(frozen, get_all, module = "quell._core")]
pub struct Episode {
    /// The record as JSON.
    record: String,
    /// The network's inputs at each decision: float32, (decisions, inputs).
    inputs: Py<PyBytes>,
    /// Index of each action, or its value: float32, (decisions,).
    actions: Py<PyBytes>,
    /// LearnQueue's table at the end; None with another controller or under a guard.
    table: Option<Py<LearnQueueTable>>,
}

/// Runs one world. Its queues start from the network in `model` (bytes of a policy file) and from
/// `table`, if given; `explore` is the seed for exploration. Decisions and table in the result are
/// those of queue number `which`. Releases the interpreter's lock; Ctrl-C ends the run.
#[pyfunction]
#[pyo3(signature = (scenario, queue, seed, *, which = 0, model = None, explore = None, table = None))]
#[allow(clippy::too_many_arguments)] // They are Python's keywords.
pub fn episode(
    py: Python<'_>,
    scenario: &Scenario,
    queue: &str,
    seed: u64,
    which: usize,
    model: Option<&[u8]>,
    explore: Option<u64>,
    table: Option<&LearnQueueTable>,
) -> PyResult<Episode> {
    let policy = model.map(|bytes| Policy::load("the model", bytes));
    let start = Start {
        policy: policy.transpose().map_err(input_error)?,
        explore,
        table: table.map(|table| table.0.clone()),
    };
    let mut signal = None;
    let run = py.detach(|| {
        let mut poll = || {
            let checked = Python::attach(|py| py.check_signals());
            checked.map_err(|e| {
                signal = Some(e);
                Error::new("interrupted")
            })
        };
        quell_lab::episode::episode(&scenario.0, queue, start, seed, which, &mut poll)
    });
    if let Some(signal) = signal {
        return Err(signal);
    }
    let quell_lab::episode::Episode {
        run,
        inputs,
        actions,
        table,
    } = run.map_err(input_error)?;
    let bytes = |numbers: &[f32]| -> Py<PyBytes> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_ne_bytes()).collect();
        PyBytes::new(py, &bytes).unbind()
    };
    let table = table.map(|table| Py::new(py, LearnQueueTable(Arc::new(table))));
    Ok(Episode {
        record: serde_json::to_string(&run).map_err(input_error)?,
        inputs: bytes(&inputs),
        actions: bytes(&actions),
        table: table.transpose()?,
    })
}

/// LearnQueue's limits (its states), its initial limit, and the time between two decisions, s.
#[pyfunction]
pub fn learnqueue_steps(queue: &str) -> PyResult<(Vec<u32>, u32, f64)> {
    let parsed = Queue::parse(queue).map_err(input_error)?;
    match parsed.spec::<LearnQueueWords>() {
        Some(words) => {
            let p = &words.params;
            Ok((p.limits().to_vec(), p.initial, p.period.as_secs_f64()))
        }
        None => Err(input_error(format!("{queue}: is not learnqueue"))),
    }
}

/// LearnQueue's memory per station, bytes: of its Q-table alone, and in total.
#[pyfunction]
pub fn learnqueue_memory(queue: &str) -> PyResult<(usize, usize)> {
    let parsed = Queue::parse(queue).map_err(input_error)?;
    match parsed.spec::<LearnQueueWords>() {
        Some(words) => Ok(LearnQueue::new(words.params.clone()).memory()),
        None => Err(input_error(format!("{queue}: is not learnqueue"))),
    }
}
