//! `quell._core.CoupledQueues`: A3C's environments with coupled queues.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quell_lab::coupled::{Fleet, Task};
use quell_link::Error;
use quell_qdisc::control::a3c::{self, Observation};

use crate::scenario::Scenario;
use crate::{duration, input_error};

/// Results of a period, as the bytes of float32 numbers, world by world.
#[pyclass(frozen, get_all, module = "quell._core")]
pub struct Period {
    /// An actor's readings of each sub-queue.
    readings: Py<PyBytes>,
    /// For each sub-queue whether it was in use (0 or 1), its delay, ms, and its share of losses,
    /// 0..1.
    sub_queues: Py<PyBytes>,
    /// For each whole queue the utilisation, the backlog, ms, and whether the scenario is over (0
    /// or 1).
    queues: Py<PyBytes>,
}

fn observation(name: &str) -> PyResult<Observation> {
    match name {
        "linear" => Ok(Observation::Linear),
        "logarithmic" => Ok(Observation::Logarithmic),
        "published" => Ok(Observation::Published),
        _ => Err(input_error(
            Error::new(format!("there is no observation {name}"))
                .remedy("choose linear, logarithmic or published"),
        )),
    }
}

/// Worlds that are stepped together.
#[pyclass(module = "quell._core")]
pub struct CoupledQueues(Fleet);

#[pymethods]
impl CoupledQueues {
    /// Begins a world for each scenario and seed, on `threads` threads (0: one per core).
    #[new]
    #[pyo3(signature = (scenarios, queue, seeds, *, observation, port = 0, period_s = 0.015, threads = 1))]
    #[allow(clippy::too_many_arguments)] // They are Python's keywords.
    fn new(
        scenarios: Vec<PyRef<'_, Scenario>>,
        queue: String,
        seeds: Vec<u64>,
        observation: &str,
        port: usize,
        period_s: f64,
        threads: usize,
    ) -> PyResult<Self> {
        let task = Task {
            queue,
            port,
            period: duration(period_s)?,
            observation: self::observation(observation)?,
        };
        if scenarios.len() != seeds.len() {
            return Err(input_error(Error::new(format!(
                "scenarios and seeds differ in number: {} and {}",
                scenarios.len(),
                seeds.len()
            ))));
        }
        let worlds: Vec<_> = scenarios.iter().map(|s| s.0.clone()).zip(seeds).collect();
        Fleet::new(task, &worlds, threads)
            .map(Self)
            .map_err(input_error)
    }

    /// Number of sub-queues of a world: the classic ones, then their L4S partners in the same
    /// order.
    #[getter]
    fn sub_queues(&self) -> usize {
        self.0.sub_queues()
    }

    /// Simulated seconds so far, by world.
    #[getter]
    fn now_s(&self) -> Vec<f64> {
        let members = self.0.members();
        members.map(|m| m.world.now().as_secs_f64()).collect()
    }

    /// Replaces world `index` by a new world with this scenario and seed.
    fn replace(&mut self, index: usize, scenario: &Scenario, seed: u64) -> PyResult<()> {
        let replaced = self.0.replace(index, scenario.0.clone(), seed);
        replaced.map_err(input_error)
    }

    /// Sets p' of every sub-queue of every world and runs each world to its next decision.
    /// `probabilities`: float32, world by world, at most 1; negative: the queue's own law decides.
    fn step(&mut self, py: Python<'_>, probabilities: &[u8]) -> PyResult<Period> {
        let numbers = probabilities.chunks_exact(4);
        let numbers: Vec<_> = numbers
            .map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        py.detach(|| self.0.step(&numbers)).map_err(input_error)?;
        let (mut readings, mut sub_queues, mut queues) = (Vec::new(), Vec::new(), Vec::new());
        for member in self.0.members() {
            let view = &member.view;
            readings.extend(view.readings.iter().flat_map(|x| x.to_ne_bytes()));
            for s in &view.sub_queues {
                let values = [f32::from(u8::from(s.busy)), s.delay_ms, s.loss];
                sub_queues.extend(values.iter().flat_map(|x| x.to_ne_bytes()));
            }
            let q = view.queue;
            let values = [q.utilisation, q.backlog_ms, f32::from(u8::from(q.over))];
            queues.extend(values.iter().flat_map(|x| x.to_ne_bytes()));
        }
        Ok(Period {
            readings: PyBytes::new(py, &readings).unbind(),
            sub_queues: PyBytes::new(py, &sub_queues).unbind(),
            queues: PyBytes::new(py, &queues).unbind(),
        })
    }

    /// The records of all worlds so far, as JSON.
    fn records(&mut self) -> PyResult<Vec<String>> {
        let records = self.0.records();
        let texts = records.iter().map(serde_json::to_string);
        texts.map(|text| text.map_err(input_error)).collect()
    }
}

/// Names of an actor's readings of a sub-queue, in order.
#[pyfunction]
pub fn a3c_readings(observation: &str) -> PyResult<Vec<&'static str>> {
    Ok(self::observation(observation)?.names())
}

/// Maximum of each of the linear readings.
#[pyfunction]
pub fn a3c_maxima() -> Vec<f32> {
    a3c::READINGS.iter().map(|r| r.max).collect()
}
