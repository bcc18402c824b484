//! `quell._core.Scenario` and the lists that the command line prints.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use quell_link::{Error, units, words};
use quell_sim::scenario::{self, Overrides};

use crate::input_error;

/// A checked scenario. Immutable.
#[pyclass(frozen, module = "quell._core")]
pub struct Scenario(pub Arc<scenario::Scenario>);

#[pymethods]
impl Scenario {
    /// Reads a scenario file or a built-in one, or `text`, which `name` names in errors. The rest are the command line's
    /// strings, which stand over the file or in its place.
    #[new]
    #[pyo3(signature = (name = None, *, text = None, queue = None, rate = None, rtt = None, trace = None, flows = vec![],
        ecn = false, duration = None, warmup = None, seeds = None, seed = None))]
    #[allow(clippy::too_many_arguments)] // They are Python's keywords.
    fn new(
        name: Option<&str>,
        text: Option<&str>,
        queue: Option<String>,
        rate: Option<String>,
        rtt: Option<String>,
        trace: Option<String>,
        flows: Vec<String>,
        ecn: bool,
        duration: Option<String>,
        warmup: Option<String>,
        seeds: Option<String>,
        seed: Option<String>,
    ) -> PyResult<Self> {
        let overrides = Overrides {
            queue,
            rate,
            rtt,
            trace,
            flows,
            ecn,
            duration,
            warmup,
            seeds,
            seed,
        };
        let scenario = match text {
            Some(text) => scenario::Scenario::parse(text, name.unwrap_or(""), &overrides),
            None => scenario::Scenario::load(name, &overrides),
        };
        Ok(Self(Arc::new(scenario.map_err(input_error)?)))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The bottleneck's queue words.
    #[getter]
    fn queue(&self) -> &str {
        &self.0.link.queue
    }

    /// Runs per queue.
    #[getter]
    fn seeds(&self) -> u32 {
        self.0.seeds
    }

    /// The seed from which each run's is derived.
    #[getter]
    fn seed(&self) -> u64 {
        self.0.seed
    }

    #[getter]
    fn duration_s(&self) -> f64 {
        self.0.duration as f64 / 1e9
    }

    #[getter]
    fn warmup_s(&self) -> f64 {
        self.0.warmup as f64 / 1e9
    }

    /// Seed of run `k`.
    fn run_seed(&self, k: u32) -> u64 {
        self.0.run_seed(k)
    }

    /// Every key with its value, defaults filled in, as a scenario file.
    fn toml(&self) -> String {
        self.0.to_toml()
    }

    /// What pickle makes it from again.
    fn __getnewargs_ex__(&self) -> ((), BTreeMap<&str, String>) {
        ((), BTreeMap::from([("text", self.0.to_toml())]))
    }
}

/// The built-in scenarios: name, a line about it, its TOML.
#[pyfunction]
pub fn scenarios() -> Vec<(&'static str, &'static str, &'static str)> {
    scenario::scenarios()
        .into_iter()
        .map(|s| (s.name, s.summary, s.toml))
        .collect()
}

/// The kinds of queues with their options, as JSON (`quell_link::words::KindInfo`).
#[pyfunction]
pub fn queues() -> PyResult<String> {
    serde_json::to_string(&words::catalogue()).map_err(input_error)
}

/// Reads a rate, time or size as scenario files have them: bit/s, ns or bytes.
#[pyfunction]
pub fn quantity(text: &str, kind: &str) -> PyResult<u64> {
    match kind {
        "rate" => units::parse_rate(text),
        "time" => units::parse_time(text),
        "size" => units::parse_size(text),
        _ => Err(Error::new("is rate, time or size").key(kind)),
    }
    .map_err(input_error)
}

/// Checks queue words and gives them back as short as they can be written.
#[pyfunction]
pub fn queue(words: &str) -> PyResult<String> {
    words::Queue::parse(words)
        .map(|q| q.canonical())
        .map_err(input_error)
}

/// What to say about a rate that is probably not what was meant: bytes per second where bits were; None for all other text.
#[pyfunction]
pub fn note_on_rate(text: &str) -> Option<String> {
    units::note_on_rate(text)
}

/// "unknown <sort> `name`", with the nearest known name and the list of all.
#[pyfunction]
pub fn unknown(sort: &str, name: &str, known: Vec<String>) -> String {
    Error::unknown(sort, name, known.iter().map(String::as_str)).to_string()
}
