//! `quell._core.live`, its diagnostics for `quell doctor`, `quell._core.watch` and
//! `quell._core.steer`. Linux only.

use std::path::{Path, PathBuf};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList};
use quell_live::attach as attaching;
use quell_live::firewall::RuleSet;
use quell_live::live as system;
use quell_live::options::Table;
use quell_live::rules;
use quell_live::steer as steering;
use quell_live::watch as sampling;

use crate::input_error;

/// Runs `quell live` with these options; returns the exit status. Must be called by the main
/// thread.
#[pyfunction]
#[pyo3(signature = (**options))]
pub fn live(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<u8> {
    let options: system::Options = read(options)?;
    py.detach(|| system::command(&options)).map_err(input_error)
}

/// Converts keywords to options. None and False mean that an option is not given; a list repeats
/// the option.
fn read<T: Table>(given: Option<&Bound<'_, PyDict>>) -> PyResult<T> {
    let mut options = T::default();
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        // Names that are keywords of Python end in an underscore: with_.
        let name = name.trim_end_matches('_');
        let row = T::ROWS
            .iter()
            .find(|row| row.name == name || row.former == Some(name));
        let row = row.ok_or_else(|| PyTypeError::new_err(format!("unknown option {name}")))?;
        let values = match value.cast::<PyList>() {
            _ if value.is_none() || value.is(PyBool::new(value.py(), false)) => Vec::new(),
            Ok(list) => list.iter().collect(),
            Err(_) => vec![value],
        };
        for value in values {
            let text = value.str()?.to_str()?.to_owned();
            options.set(row, &text).map_err(input_error)?;
        }
    }
    Ok(options)
}

/// The iptables rules of `quell live` on an interface: for each the program, then the arguments
/// after its verb.
#[pyfunction]
pub fn live_rules(dev: &str) -> PyResult<Vec<Vec<String>>> {
    let rules = RuleSet::iptables(dev, Some(1..=1), None).map_err(input_error)?;
    Ok(rules.rules())
}

/// State files of `quell live` in this network namespace: their paths.
#[pyfunction]
pub fn live_left() -> PyResult<Vec<PathBuf>> {
    let files = rules::left().map_err(input_error)?.into_iter();
    Ok(files.map(|(path, _)| path).collect())
}

/// State files of `quell steer` in this network namespace: their paths.
#[pyfunction]
pub fn steer_left() -> PyResult<Vec<PathBuf>> {
    steering::left().map_err(input_error)
}

/// Whether `quell steer` has changed queues of an interface and not yet restored them.
#[pyfunction]
pub fn steered(dev: &str) -> PyResult<bool> {
    steering::is_changed(dev).map_err(input_error)
}

/// Kinds that `quell steer` supports: name, whether it is a kind of class, knobs, and the least
/// time between two changes, ms.
#[pyfunction]
pub fn steer_kinds() -> Vec<(&'static str, bool, Vec<&'static str>, u64)> {
    let kinds = steering::kinds::KINDS.iter();
    kinds
        .map(|kind| {
            let knobs = kind.knobs().map(|knob| knob.name()).collect();
            (kind.name, kind.class, knobs, kind.least.as_millis())
        })
        .collect()
}

/// Why `quell steer` does not support a kind that is not in `steer_kinds`.
#[pyfunction]
pub fn steer_why_not(kind: &str) -> &'static str {
    steering::kinds::why_not(kind)
}

/// All disciplines of this network namespace: device, kind, handle and parent as in `tc`.
#[pyfunction]
pub fn disciplines() -> PyResult<Vec<(String, String, String, String)>> {
    sampling::disciplines().map_err(input_error)
}

/// Runs `quell steer` with these words and options. Must be called by the main thread.
#[pyfunction]
#[pyo3(signature = (words, **options))]
pub fn steer(
    py: Python<'_>,
    words: Vec<String>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let options = steering::Options {
        words,
        ..read(options)?
    };
    py.detach(|| steering::run(&options)).map_err(input_error)
}

/// State files of `quell attach` in this network namespace: their paths.
#[pyfunction]
pub fn attached_left() -> PyResult<Vec<PathBuf>> {
    attaching::left().map_err(input_error)
}

/// Attaches a discipline to a device; without words, prints what is attached.
#[pyfunction]
#[pyo3(signature = (dev, words = None, **options))]
pub fn attach(
    py: Python<'_>,
    dev: String,
    words: Option<String>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let options = attaching::Options {
        dev,
        words,
        ..read(options)?
    };
    py.detach(|| attaching::run(&options)).map_err(input_error)
}

/// Detaches quell's disciplines from these devices and restores the previous ones.
#[pyfunction]
#[pyo3(signature = (devices, **options))]
pub fn detach(devices: Vec<String>, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let options = attaching::Detach {
        devices,
        ..read(options)?
    };
    attaching::detach(&options).map_err(input_error)
}

/// Samples the queues of these devices like `quell watch` with these options; calls `finished` with
/// the path of each complete file. Must be called by the main thread.
#[pyfunction]
#[pyo3(signature = (devices, finished = None, **options))]
pub fn watch(
    py: Python<'_>,
    devices: Vec<String>,
    finished: Option<Py<PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let options = sampling::Options {
        devices,
        ..read(options)?
    };
    let mut failed = None;
    let mut deliver = |path: &Path| {
        let Some(finished) = &finished else { return };
        if let Err(error) = Python::attach(|py| finished.call1(py, (path,)).map(drop)) {
            failed.get_or_insert(error);
        }
    };
    py.detach(|| sampling::run(&options, &mut deliver))
        .map_err(input_error)?;
    failed.map_or(Ok(()), Err)
}
