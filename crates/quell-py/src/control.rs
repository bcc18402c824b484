//! `quell._core.run_controlled`: a queue whose knobs Python turns.

use std::sync::atomic::AtomicBool;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quell_link::Error;
use quell_qdisc::{Gauges, Knobs};
use quell_sim::RunOptions;

use crate::scenario::Scenario;
use crate::{input_error, nanos};

/// Runs one world and asks `decide(gauges)` every `period_s` seconds for the knobs; gives the record as JSON. Gauges and knobs
/// are dicts (`quell.control`). What `decide` raises ends the run.
#[pyfunction]
#[pyo3(signature = (scenario, queue, seed, period_s, decide, *, series_bin_s = None))]
pub fn run_controlled(
    py: Python<'_>,
    scenario: &Scenario,
    queue: &str,
    seed: u64,
    period_s: f64,
    decide: &Bound<'_, PyAny>,
    series_bin_s: Option<f64>,
) -> PyResult<String> {
    let options = RunOptions {
        series_bin: series_bin_s.map(nanos).transpose()?,
        pcap: None,
    };
    let mut raised = None;
    let mut ask = |gauges: &Gauges| {
        py.check_signals()
            .and_then(|()| decide.call1((gauges_to_python(py, gauges)?,)))
            .and_then(|answer| knobs_from_python(&answer))
            .map_err(|error| {
                raised = Some(error);
                Error::new("the controller raised an exception")
            })
    };
    let outside = Some((nanos(period_s)?, &mut ask as _));
    let run = quell_sim::run_controlled(
        &scenario.0,
        queue,
        seed,
        &options,
        &AtomicBool::new(false),
        outside,
    );
    if let Some(error) = raised {
        return Err(error);
    }
    serde_json::to_string(&run.map_err(input_error)?).map_err(input_error)
}

fn gauges_to_python<'py>(py: Python<'py>, gauges: &Gauges) -> PyResult<Bound<'py, PyDict>> {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let dict = PyDict::new(py);
    dict.set_item("now", seconds(gauges.now))?;
    dict.set_item("backlog_packets", gauges.backlog_packets)?;
    dict.set_item("backlog_bytes", gauges.backlog_bytes)?;
    dict.set_item("limit_packets", gauges.limit_packets)?;
    dict.set_item("sojourn", seconds(gauges.sojourn))?;
    dict.set_item("head_age", seconds(gauges.head_age))?;
    dict.set_item("rate_bps", gauges.rate_bps)?;
    dict.set_item("share", gauges.share)?;
    dict.set_item("achieved_bps", gauges.achieved_bps)?;
    dict.set_item("busy", gauges.busy)?;
    dict.set_item("contenders", gauges.contenders)?;
    dict.set_item("aggregate", gauges.aggregate)?;
    dict.set_item("arrivals", gauges.arrivals)?;
    dict.set_item("departures", gauges.departures)?;
    dict.set_item("departed_bytes", gauges.departed_bytes)?;
    dict.set_item("drops_overflow", gauges.drops_overflow)?;
    dict.set_item("drops_early", gauges.drops_early)?;
    dict.set_item("marks", gauges.marks)?;
    dict.set_item("probability", gauges.probability)?;
    Ok(dict)
}

fn knobs_from_python(answer: &Bound<'_, PyAny>) -> PyResult<Knobs> {
    let mut knobs = Knobs::default();
    if answer.is_none() {
        return Ok(knobs);
    }
    let dict = answer
        .cast::<PyDict>()
        .map_err(|_| PyTypeError::new_err("decide() gives a dict of knobs, or None"))?;
    for (name, value) in dict {
        let name: String = name.extract()?;
        let name = name.as_str();
        match name {
            "limit" => knobs.limit_packets = Some(packets(&value)?),
            "drop" => knobs.drop = Some(share(name, &value)?),
            "base_probability" => knobs.base_probability = Some(share(name, &value)?),
            other => {
                return Err(input_error(format!(
                    "unknown knob `{other}`; known: limit, drop, base_probability"
                )));
            }
        }
    }
    Ok(knobs)
}

fn packets(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    match value.extract() {
        Ok(packets) if packets > 0 => Ok(packets),
        _ => Err(input_error(format!(
            "the knob limit is {value}; it must be a whole number of packets, at least 1"
        ))),
    }
}

fn share(name: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    match value.extract() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(input_error(format!(
            "the knob {name} is {value}; it must be a probability between 0 and 1"
        ))),
    }
}
