//! `quell._core.rlaqm_episode`: a run under RL-AQM's controller, with what its learner needs.

use std::sync::atomic::AtomicBool;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quell_link::Error;
use quell_qdisc::control::rlaqm::{Params, RlAqm};
use quell_qdisc::policy::Policy;
use quell_qdisc::{Gauges, Rng};
use quell_sim::RunOptions;

use crate::scenario::Scenario;
use crate::{input_error, nanos};

/// What Python is given: the record as JSON, states (float32, three per decision) and actions (uint8).
type Episode<'py> = (String, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Runs one world under the network in `model` (the bytes of a policy file), which explores with probability `epsilon` by dice
/// of the seed `dice`. The interpreter's lock is released.
#[pyfunction]
#[pyo3(signature = (scenario, queue, seed, model, *, period_s, epsilon, dice))]
#[allow(clippy::too_many_arguments)] // They are Python's keywords.
pub fn rlaqm_episode<'py>(
    py: Python<'py>,
    scenario: &Scenario,
    queue: &str,
    seed: u64,
    model: &[u8],
    period_s: f64,
    epsilon: f64,
    dice: u64,
) -> PyResult<Episode<'py>> {
    let period = nanos(period_s)?;
    let params = Params {
        period,
        epsilon,
        ..Params::default()
    };
    params.check().map_err(input_error)?;
    let policy = Policy::load("the model", model).map_err(input_error)?;
    let mut controller = RlAqm::new(params, policy).map_err(input_error)?;
    let (record, states, actions) = py
        .detach(|| {
            let mut rng = Rng::new(dice, "rlaqm");
            let (mut states, mut actions) = (Vec::new(), Vec::new());
            let mut decide = |gauges: &Gauges| {
                let step = controller.step(gauges, &mut rng);
                states.extend(step.state.iter().flat_map(|x| x.to_ne_bytes()));
                actions.push(step.action as u8);
                Ok(controller.knobs())
            };
            let outside = Some((period, &mut decide as _));
            let stop = AtomicBool::new(false);
            let options = RunOptions::default();
            let run =
                quell_sim::run_controlled(&scenario.0, queue, seed, &options, &stop, outside)?;
            let record = serde_json::to_string(&run).map_err(|e| Error::new(e.to_string()))?;
            Ok::<_, Error>((record, states, actions))
        })
        .map_err(input_error)?;
    Ok((
        record,
        PyBytes::new(py, &states),
        PyBytes::new(py, &actions),
    ))
}
