//! `quell._core.live`, what `quell doctor` asks about it, and `quell._core.watch`. Linux only.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use quell_live::firewall::Changes;
use quell_live::live as system;
use quell_live::live::{Options, Settings};
use quell_live::rules;
use quell_live::watch as sampling;

use crate::input_error;

/// Manages an interface until SIGTERM, Ctrl-C or the end of its time, or with `restore` undoes what a killed process left. To be
/// called by the main thread.
#[pyfunction]
#[pyo3(signature = (*, dev = None, rate = None, aqm = None, ingress = None, ingress_aqm = None, overhead = None, status = None,
    metrics = None, to = None, backend = None, no_fail_open = None, tunnels = None, cpu = None, config = None, dry_run = false, duration = None, restore = false, quiet = false))]
#[allow(clippy::too_many_arguments)] // They are Python's keywords.
pub fn live(
    py: Python<'_>,
    dev: Option<String>,
    rate: Option<String>,
    aqm: Option<String>,
    ingress: Option<String>,
    ingress_aqm: Option<String>,
    overhead: Option<u32>,
    status: Option<String>,
    metrics: Option<u16>,
    to: Option<String>,
    backend: Option<String>,
    no_fail_open: Option<bool>,
    tunnels: Option<bool>,
    cpu: Option<String>,
    config: Option<PathBuf>,
    dry_run: bool,
    duration: Option<String>,
    restore: bool,
    quiet: bool,
) -> PyResult<()> {
    let options = Options {
        given: Settings {
            dev,
            rate,
            aqm,
            ingress,
            ingress_aqm,
            overhead,
            status,
            metrics,
            to,
            backend,
            no_fail_open,
            tunnels,
            cpu,
        },
        config,
        dry_run,
        duration,
        quiet,
    };
    let act = if restore {
        system::restore
    } else {
        system::run
    };
    py.detach(|| act(&options)).map_err(input_error)
}

/// The rules of `quell live` on an interface with iptables: each a program and what follows its verb.
#[pyfunction]
pub fn live_rules(dev: &str) -> PyResult<Vec<Vec<String>>> {
    let changes = Changes::iptables(dev, Some(1..=1), None).map_err(input_error)?;
    Ok(changes.rules().to_vec())
}

/// State files of `quell live` in this network namespace: their paths.
#[pyfunction]
pub fn live_left() -> Vec<PathBuf> {
    rules::left().into_iter().map(|(path, _)| path).collect()
}

/// Samples the queues of these devices until SIGTERM, Ctrl-C or the end of the time; `finished` receives the path of each file that is
/// complete. To be called by the main thread.
#[pyfunction]
#[pyo3(signature = (devices, *, every = None, duration = None, out = None, rotate = None, keep = None, json = false, flows = false,
    quiet = false, finished = None))]
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
