//! `quell._core.CoupledQueues`: coupled queues as A3C learns in them.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quell_lab::coupled::{Coupled, Period};
use quell_qdisc::control::a3c;

use crate::scenario::Scenario;
use crate::{input_error, nanos};

/// What a period shows: the numbers that an actor reads of each sub-queue (float32, 12 each); of each whether it was in use, its delay
/// in ms and its share of losses (float32, 3 each); the link's utilisation, and whether the scenario is over.
type Seen<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, f64, bool);

/// One world, and what was seen of it last.
#[pyclass(module = "quell._core")]
pub struct CoupledQueues(Coupled);

#[pymethods]
impl CoupledQueues {
    /// See [`Coupled::new`].
    #[new]
    #[pyo3(signature = (scenario, queue, seed, *, port = 0, period_s = 0.015, published = false))]
    fn new(
        scenario: &Scenario,
        queue: &str,
        seed: u64,
        port: usize,
        period_s: f64,
        published: bool,
    ) -> PyResult<Self> {
        let period = nanos(period_s)?;
        let coupled = Coupled::new(scenario.0.clone(), queue, seed, port, period, published);
        coupled.map(Self).map_err(input_error)
    }

    /// How many sub-queues there are: the classic ones, then their L4S partners in the same order.
    #[getter]
    fn sub_queues(&self) -> usize {
        self.0.sub_queues()
    }

    /// Simulated seconds so far.
    #[getter]
    fn now_s(&self) -> f64 {
        self.0.now() as f64 / 1e9
    }

    /// Sets p' of every sub-queue (a negative number leaves it to the queue's own law) and runs on to the next decision.
    fn step<'py>(&mut self, py: Python<'py>, probabilities: Vec<f64>) -> PyResult<Seen<'py>> {
        let period = py.detach(|| self.0.step(&probabilities));
        let Period {
            sub_queues,
            utilisation,
            over,
        } = period.map_err(input_error)?;
        let (mut readings, mut state) = (Vec::new(), Vec::new());
        for shown in &sub_queues {
            readings.extend(shown.readings.iter().flat_map(|x| x.to_ne_bytes()));
            let values = [f32::from(u8::from(shown.busy)), shown.delay_ms, shown.loss];
            state.extend(values.iter().flat_map(|x| x.to_ne_bytes()));
        }
        Ok((
            PyBytes::new(py, &readings),
            PyBytes::new(py, &state),
            utilisation,
            over,
        ))
    }
}

/// What an actor reads of a sub-queue, in order: its name, and where the default reading ends.
#[pyfunction]
#[pyo3(signature = (published = false))]
pub fn a3c_readings(published: bool) -> Vec<(&'static str, f64)> {
    match published {
        true => a3c::PUBLISHED.map(|name| (name, f64::INFINITY)).to_vec(),
        false => a3c::READINGS
            .iter()
            .map(|r| (r.name, f64::from(r.most)))
            .collect(),
    }
}
