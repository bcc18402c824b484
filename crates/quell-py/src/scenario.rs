//! `quell._core.Scenario` and the lists that the command line prints.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyType};
use quell_link::{Error, file, units, words};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::Duration;
use quell_sim::scenario::{self, Node, Overrides, Source, Table};

use crate::input_error;

/// A checked scenario, and the keys from which it was made. Immutable.
#[pyclass(frozen, module = "quell._core")]
pub struct Scenario(pub Arc<scenario::Scenario>, Source);

impl Scenario {
    fn read(source: Source) -> PyResult<Self> {
        let scenario = source.read().map_err(input_error)?;
        Ok(Self(Arc::new(scenario), source))
    }
}

#[pymethods]
impl Scenario {
    /// Reads the scenario file or built-in scenario `name`, copies a scenario, or parses `text`,
    /// named `name` in errors.
    ///
    /// The other arguments are written as on the command line. They override keys of the scenario,
    /// or describe the whole scenario if none is given.
    #[new]
    #[pyo3(signature = (name = None, *, text = None, queue = None, rate = None, rtt = None, trace = None, flows = vec![],
        ecn = false, duration = None, warmup = None, seeds = None, seed = None))]
    #[allow(clippy::too_many_arguments)] // They are Python's keywords.
    fn new(
        name: Option<&Bound<'_, PyAny>>,
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
        let other = name.and_then(|name| name.cast::<Self>().ok());
        let name: Option<String> = match (other, name) {
            (None, Some(name)) => Some(name.extract()?),
            _ => None,
        };
        let source = match (other, text) {
            (Some(other), None) => other.get().1.clone().with(&overrides),
            (_, Some(text)) => {
                let path = name.as_deref().unwrap_or_default();
                Source::parse(text, path).and_then(|source| source.with(&overrides))
            }
            (None, None) => Source::load(name.as_deref(), &overrides),
        };
        Self::read(source.map_err(input_error)?)
    }

    /// A scenario made of these keys only.
    #[staticmethod]
    #[pyo3(signature = (**keys))]
    fn from_keys(keys: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        Self::read(Source::from_keys(table(keys, String::new())?))
    }

    /// The scenario with other values of some keys.
    #[pyo3(signature = (**keys))]
    fn replace(&self, keys: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let changes = table(keys, String::new())?;
        Self::read(self.1.clone().replace(&changes))
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

    /// The seed from which the seeds of runs are derived.
    #[getter]
    fn seed(&self) -> u64 {
        self.0.seed
    }

    #[getter]
    fn duration_s(&self) -> f64 {
        self.0.duration.as_secs_f64()
    }

    #[getter]
    fn warmup_s(&self) -> f64 {
        self.0.warmup.as_secs_f64()
    }

    /// Seed of run `k`.
    fn run_seed(&self, k: u32) -> u64 {
        self.0.run_seed(k)
    }

    /// All keys with their values, defaults included, as a scenario file.
    fn toml(&self) -> String {
        self.0.to_toml()
    }

    /// The scenario as a scenario file.
    fn __str__(&self) -> String {
        self.toml()
    }

    fn __repr__(&self) -> String {
        let s = &self.0;
        let plural = if s.flows.len() == 1 { "" } else { "s" };
        format!(
            "<Scenario {}: queue {}, {}, {} seed{}, {} table{plural} of flows>",
            s.name,
            s.link.queue,
            s.duration,
            s.seeds,
            if s.seeds == 1 { "" } else { "s" },
            s.flows.len(),
        )
    }

    /// Arguments with which pickle makes the scenario again.
    fn __getnewargs_ex__(&self) -> ((), BTreeMap<&str, String>) {
        ((), BTreeMap::from([("text", self.1.to_toml())]))
    }
}

/// Converts keywords to a table of a scenario file, which errors call `path`.
fn table(keys: Option<&Bound<'_, PyDict>>, path: String) -> PyResult<Table> {
    let mut table = Table::new(path);
    for (key, value) in keys.into_iter().flatten() {
        let key: String = key.extract()?;
        let path = match table.path() {
            "" => key.clone(),
            path => format!("{path}.{key}"),
        };
        let value = node(&value, &path)?;
        table.put(&key, value);
    }
    Ok(table)
}

fn node(value: &Bound<'_, PyAny>, path: &str) -> PyResult<Node> {
    if value.is_none() {
        return Ok(Node::Nothing);
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        return Ok(Node::Table(table(Some(dict), path.to_owned())?));
    }
    if let Ok(text) = value.extract::<PathBuf>() {
        return Ok(Node::Text(text.to_string_lossy().into_owned()));
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(Node::Plain(truth.is_true().to_string()));
    }
    if let Ok(number) = value.extract::<i64>() {
        return Ok(Node::Plain(number.to_string()));
    }
    if let Ok(number) = value.extract::<f64>() {
        return Ok(Node::Plain(number.to_string()));
    }
    let Ok(items) = value.try_iter() else {
        let what = format!(
            "a value of type {} is not possible here",
            value.get_type().name()?
        );
        let error =
            Error::new(what).remedy("write text, a number, True or False, a list or a dict");
        return Err(input_error(error.key(path)));
    };
    let items: Vec<Bound<'_, PyAny>> = items.collect::<PyResult<_>>()?;
    if items.is_empty() || !items.iter().all(|i| i.is_instance_of::<PyDict>()) {
        let items = items.iter().map(|i| node(i, path));
        return Ok(Node::List(items.collect::<PyResult<_>>()?));
    }
    let tables = items.iter().enumerate();
    let tables = tables.map(|(i, item)| table(item.cast().ok(), format!("{path}[{}]", i + 1)));
    Ok(Node::Tables(tables.collect::<PyResult<_>>()?))
}

/// Every key of scenario files, as JSON (`quell_sim::scenario::TableInfo`).
#[pyfunction]
pub fn scenario_keys() -> PyResult<String> {
    serde_json::to_string(&scenario::catalogue()).map_err(input_error)
}

/// A JSON Schema of scenario files.
#[pyfunction]
pub fn scenario_schema() -> String {
    format!("{:#}", scenario::json_schema())
}

/// The built-in scenarios: name, description in one line, TOML.
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

/// Text of the default policy of `hush`.
#[pyfunction]
pub fn hush_model() -> &'static str {
    quell_link::words::hush_model()
}

/// Reads a rate, time or size in the notation of scenario files: bit/s, ns or bytes.
#[pyfunction]
pub fn quantity(text: &str, kind: &str) -> PyResult<u64> {
    match kind {
        "rate" => units::parse_rate(text).map(Rate::bps),
        "time" => units::parse_time(text).map(Duration::as_nanos),
        "size" => units::parse_size(text),
        _ => Err(Error::new("is rate, time or size").key(kind)),
    }
    .map_err(input_error)
}

/// Checks queue words and returns the shortest words with the same meaning.
#[pyfunction]
pub fn queue(words: &str) -> PyResult<String> {
    Queue::new(words).map(|queue| queue.words)
}

/// Queue words, parsed and checked. Two are equal if they have the same meaning.
#[pyclass(frozen, eq, hash, from_py_object, module = "quell._core")]
#[derive(Clone)]
pub struct Queue {
    /// The shortest words with this meaning.
    pub words: String,
    /// The parsed queue.
    pub parsed: Arc<words::Queue>,
}

#[pymethods]
impl Queue {
    #[new]
    pub fn new(words: &str) -> PyResult<Self> {
        let parsed = words::Queue::parse(words).map_err(input_error)?;
        Ok(Self {
            words: parsed.canonical(),
            parsed: Arc::new(parsed),
        })
    }

    /// The shortest words with this meaning.
    fn __str__(&self) -> &str {
        &self.words
    }

    fn __repr__(&self) -> String {
        format!("Queue({:?})", self.words)
    }

    fn __reduce__(slf: Bound<'_, Self>) -> (Bound<'_, PyType>, (String,)) {
        (slf.get_type(), (slf.get().words.clone(),))
    }
}

impl PartialEq for Queue {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl Hash for Queue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words.hash(state);
    }
}

/// The bytes of a plain file or a pipe, up to the maximum for its kind ("scenario", "model",
/// "records").
#[pyfunction]
pub fn read_file(py: Python<'_>, path: PathBuf, kind: &str) -> PyResult<Vec<u8>> {
    let max_bytes = match kind {
        "scenario" => file::SCENARIO,
        "model" => file::MODEL,
        _ => file::TRACE,
    };
    py.detach(|| file::read(&path, max_bytes)).map_err(|e| {
        input_error(Error::new(format!("cannot be read: {e}")).at(&path.to_string_lossy(), None))
    })
}

/// A note on a rate in bytes per second, which probably should be bits; None for all other text.
#[pyfunction]
pub fn note_on_rate(text: &str) -> Option<String> {
    units::note_on_rate(text)
}

/// "unknown <sort> `name`", with the nearest known name and the list of all.
#[pyfunction]
pub fn unknown(sort: &str, name: &str, known: Vec<String>) -> String {
    Error::unknown(sort, name, known.iter().map(String::as_str)).to_string()
}
