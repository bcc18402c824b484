//! `quell._core.lfq_experiments`: the value of one packet more or less in a flow's limit, for many
//! flows on all cores.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};
use quell_lab::lfq::{Draws, Lab, Outcome, Settings};
use quell_link::Error;
use quell_qdisc::control::lfq::{self as control, FEATURES, Params};
use quell_qdisc::policy::Affine;

use crate::{duration, input_error, no_threads};

/// Runs experiments with seeds `first_seed` to `first_seed + count - 1` under one network.
/// `weights` has the weights and the biases of each layer in turn (float32). Returns columns with
/// one row per experiment, as bytes by name. The result does not depend on the number of threads.
#[pyfunction]
#[pyo3(signature = (weights, first_seed, count, alpha, *, online = false, duration_s = 5.0, act_within = 0.5, paper_weights = false, threads = 0))]
#[allow(clippy::too_many_arguments)] // They are Python's keywords.
pub fn lfq_experiments<'py>(
    py: Python<'py>,
    weights: Vec<PyBuffer<f32>>,
    first_seed: u64,
    count: usize,
    alpha: f64,
    online: bool,
    duration_s: f64,
    act_within: f64,
    paper_weights: bool,
    threads: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let numbers: Vec<Vec<f32>> = weights
        .iter()
        .map(|w| w.to_vec(py))
        .collect::<PyResult<_>>()?;
    let (pairs, rest) = numbers.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(input_error("weights: a layer is a weight and a bias"));
    }
    let layers: Vec<Affine> = pairs
        .iter()
        .map(|[weight, bias]| Affine {
            weight: weight.clone(),
            bias: bias.clone(),
        })
        .collect();
    let settings = Settings {
        online,
        duration: duration(duration_s)?,
        act_within,
        control: Params {
            paper_weights,
            ..Params::default()
        },
        ..Settings::new(alpha)
    };
    let results = py.detach(|| {
        let policy = control::policy(&settings.control, &layers)
            .map_err(|e| Error::new(e.to_string()).under("weights"))?;
        let lab = Lab::new(settings, policy)?;
        let seeds: Vec<u64> = (0..count as u64)
            .map(|i| first_seed.wrapping_add(i))
            .collect();
        match threads {
            0 => lab.experiments_in_parallel(&seeds),
            n => rayon::ThreadPoolBuilder::new()
                .num_threads(n)
                .build()
                .map_err(|error| no_threads(&error))?
                .install(|| lab.experiments_in_parallel(&seeds)),
        }
    });
    columns(py, &results.map_err(input_error)?)
}

type Flow = (Draws, Option<Outcome>);

fn columns<'py>(py: Python<'py>, flows: &[Flow]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let put = |name: &str, bytes: Vec<u8>| dict.set_item(name, PyByteArray::new(py, &bytes));
    let outcomes = || flows.iter().map(|(_, outcome)| outcome.as_ref());
    let f32s =
        |numbers: &[f32]| -> Vec<u8> { numbers.iter().flat_map(|x| x.to_ne_bytes()).collect() };
    let f64s =
        |numbers: &[f64]| -> Vec<u8> { numbers.iter().flat_map(|x| x.to_ne_bytes()).collect() };
    let limit = |limit: u32| limit.cast_signed().to_ne_bytes();
    let none = [0.0; FEATURES];
    put(
        "features",
        outcomes()
            .flat_map(|o| f32s(o.map_or(&none, |o| &o.features)))
            .collect(),
    )?;
    put(
        "decided",
        outcomes().map(|o| u8::from(o.is_some())).collect(),
    )?;
    put(
        "before",
        outcomes()
            .flat_map(|o| limit(o.map_or(0, |o| o.before)))
            .collect(),
    )?;
    put(
        "limits",
        outcomes()
            .flat_map(|o| o.map_or([0; 2], |o| o.sides.map(|s| s.limit)))
            .flat_map(limit)
            .collect(),
    )?;
    put(
        "rewards",
        outcomes()
            .flat_map(|o| f64s(&o.map_or([f64::NAN; 2], |o| o.sides.map(|s| s.reward))))
            .collect(),
    )?;
    put(
        "readings",
        outcomes()
            .flat_map(|o| {
                o.map_or([[f64::NAN; 3]; 2], |o| {
                    o.sides.map(|s| [s.rate, s.queued, s.delay])
                })
            })
            .flat_map(|side| f64s(&side))
            .collect(),
    )?;
    put(
        "label",
        outcomes()
            .flat_map(|o| limit(o.map_or(0, |o| o.label)))
            .collect(),
    )?;
    put(
        "draws",
        flows.iter().flat_map(|(d, _)| f64s(&draws(d))).collect(),
    )?;
    put(
        "decided_at",
        outcomes()
            .flat_map(|o| f64s(&[o.map_or(f64::NAN, |o| o.at.as_secs_f64())]))
            .collect(),
    )?;
    Ok(dict)
}

fn draws(d: &Draws) -> [f64; 5] {
    [
        d.rate.bps_f64(),
        d.rtt.as_secs_f64(),
        d.duration.as_secs_f64(),
        d.act_after.as_secs_f64(),
        f64::from(u8::from(d.bic)),
    ]
}

/// The names of the network's inputs, in order.
#[pyfunction]
#[pyo3(signature = (*, paper_weights = false))]
pub fn lfq_features(paper_weights: bool) -> Vec<String> {
    control::features(&Params {
        paper_weights,
        ..Params::default()
    })
}
