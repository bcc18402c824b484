//! `quell._core.live`, what `quell doctor` asks about it, `quell._core.watch` and `quell._core.steer`. Linux only.

use std::path::{Path, PathBuf};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList};
use quell_live::attach as attaching;
use quell_live::firewall::Changes;
use quell_live::live as system;
use quell_live::options::Table;
use quell_live::rules;
use quell_live::steer as steering;
use quell_live::watch as sampling;

use crate::input_error;

/// Does what `quell live` does with these options. To be called by the main thread.
#[pyfunction]
#[pyo3(signature = (**options))]
pub fn live(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let options: system::Options = read(options)?;
    py.detach(|| system::command(&options)).map_err(input_error)
}

/// Keywords as options: None and False are those that are not given, a list gives one several times.
fn read<T: Table>(given: Option<&Bound<'_, PyDict>>) -> PyResult<T> {
    let mut options = T::default();
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        let row = T::ROWS
            .iter()
            .find(|row| row.name == name || row.former == Some(&name));
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

/// The rules of `quell live` on an interface with iptables: each a program and what follows its verb.
#[pyfunction]
pub fn live_rules(dev: &str) -> PyResult<Vec<Vec<String>>> {
    let changes = Changes::iptables(dev, Some(1..=1), None).map_err(input_error)?;
    Ok(changes.rules())
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

/// Whether `quell steer` has changed queues of an interface and not yet brought them back.
#[pyfunction]
pub fn steered(dev: &str) -> PyResult<bool> {
    steering::is_changed(dev).map_err(input_error)
}

/// What `quell steer` can turn: each kind of discipline (or class) with its knobs and the least milliseconds between two changes.
#[pyfunction]
pub fn steer_kinds() -> Vec<(&'static str, bool, Vec<&'static str>, u64)> {
    let kinds = steering::kinds::KINDS.iter();
    kinds
        .map(|kind| {
            let knobs = kind.knobs().map(|knob| knob.name()).collect();
            (kind.name, kind.class, knobs, kind.least / 1_000_000)
        })
        .collect()
}

/// Why `quell steer` turns nothing of a kind that is not among `steer_kinds`.
#[pyfunction]
pub fn steer_why_not(kind: &str) -> &'static str {
    steering::kinds::why_not(kind)
}

/// All disciplines of this network namespace: the device's name, the kind, handle and parent as `tc` writes them.
#[pyfunction]
pub fn disciplines() -> PyResult<Vec<(String, String, String, String)>> {
    sampling::disciplines().map_err(input_error)
}

/// Steers a discipline until SIGTERM, Ctrl-C or the end of its time or of standard input; with `restore` brings back what killed
/// processes left on the devices that `words` names. To be called by the main thread.
#[pyfunction]
#[pyo3(signature = (words, *, knobs = None, reflectors = Vec::new(), ecn = false, every = None, rate = None, least = None, most = None, valid = None, duration = None,
    dry_run = false, insist = false, json = false, restore = false, quiet = false))]
#[allow(clippy::too_many_arguments)] // They are Python's keywords.
pub fn steer(
    py: Python<'_>,
    words: Vec<String>,
    knobs: Option<String>,
    reflectors: Vec<String>,
    ecn: bool,
    every: Option<String>,
    rate: Option<String>,
    least: Option<String>,
    most: Option<String>,
    valid: Option<String>,
    duration: Option<String>,
    dry_run: bool,
    insist: bool,
    json: bool,
    restore: bool,
    quiet: bool,
) -> PyResult<()> {
    if restore {
        return steering::restore(&words, quiet).map_err(input_error);
    }
    let options = steering::Options {
        words,
        with: knobs,
        reflectors,
        ecn,
        every,
        rate,
        min: least,
        max: most,
        valid,
        duration,
        dry_run,
        insist,
        json,
        quiet,
    };
    py.detach(|| steering::run(&options)).map_err(input_error)
}

/// State files of `quell attach` in this network namespace: their paths.
#[pyfunction]
pub fn attached_left() -> PyResult<Vec<PathBuf>> {
    attaching::left().map_err(input_error)
}

/// Attaches a discipline to a device; without words, says what is attached.
#[pyfunction]
#[pyo3(signature = (dev, words = None, *, rate = None, limit = None, replace = false, dry_run = false, quiet = false))]
#[allow(clippy::too_many_arguments)] // They are Python's keywords.
pub fn attach(
    py: Python<'_>,
    dev: String,
    words: Option<String>,
    rate: Option<String>,
    limit: Option<u32>,
    replace: bool,
    dry_run: bool,
    quiet: bool,
) -> PyResult<()> {
    let options = attaching::Options {
        dev,
        words,
        rate,
        limit,
        replace,
        dry_run,
        quiet,
    };
    py.detach(|| attaching::run(&options)).map_err(input_error)
}

/// Takes away what is attached to these devices, and puts back what was before.
#[pyfunction]
#[pyo3(signature = (devices, *, quiet = false))]
pub fn detach(devices: Vec<String>, quiet: bool) -> PyResult<()> {
    attaching::detach(&devices, quiet).map_err(input_error)
}

/// Samples the queues of these devices until SIGTERM, Ctrl-C or the end of the time; `finished` receives the path of each file that is
/// complete. To be called by the main thread.
#[pyfunction]
#[pyo3(signature = (devices, *, every = None, duration = None, out = None, rotate = None, keep = None, json = false, flows = false,
    metrics = None, dashboard = None, quiet = false, finished = None))]
#[allow(clippy::too_many_arguments)] // They are Python's keywords.
pub fn watch(
    py: Python<'_>,
    devices: Vec<String>,
    every: Option<String>,
    duration: Option<String>,
    out: Option<PathBuf>,
    rotate: Option<String>,
    keep: Option<usize>,
    json: bool,
    flows: bool,
    metrics: Option<u16>,
    dashboard: Option<u16>,
    quiet: bool,
    finished: Option<Py<PyAny>>,
) -> PyResult<()> {
    let options = sampling::Options {
        devices,
        every,
        duration,
        out,
        rotate,
        keep,
        json,
        flows,
        metrics,
        dashboard,
        quiet,
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
