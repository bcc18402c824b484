//! `quell._core.StateFile`: the state files of `quell tune --apply` and `quell shell --nat`. Linux
//! only.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use quell_live::state::{self, NAT, TUNE};

use crate::input_error;

/// Maximum time to wait for another `quell shell --nat` that is starting or ending.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// A state file, locked for this process until it is closed.
#[pyclass(module = "quell._core")]
pub struct StateFile(Option<state::StateFile>);

#[pymethods]
impl StateFile {
    /// Locks the state file of an interface.
    #[staticmethod]
    fn hold(dev: &str) -> PyResult<Self> {
        let file = TUNE.hold(dev).map_err(input_error)?;
        let taken = || input_error(format!("{dev}: another quell tune is at work on it"));
        Ok(Self(Some(file.ok_or_else(taken)?)))
    }

    /// Locks the state file shared by all `quell shell --nat` of this network namespace, as soon as
    /// no other process holds it.
    #[staticmethod]
    fn nat(py: Python<'_>) -> PyResult<Self> {
        let until = Instant::now() + LOCK_TIMEOUT;
        loop {
            let file = NAT.hold("forwarding").map_err(input_error)?;
            if file.is_some() {
                return Ok(Self(file));
            }
            if Instant::now() > until {
                let why = "another quell shell --nat is starting or ending, and does not finish";
                return Err(input_error(why));
            }
            py.detach(|| sleep(Duration::from_millis(20)));
        }
    }

    /// Number that identifies this boot of the system; 0 if unknown.
    #[staticmethod]
    fn boot() -> u64 {
        quell_live::boot()
    }

    /// Its path.
    #[getter]
    fn path(&self) -> PyResult<PathBuf> {
        Ok(self.file()?.path())
    }

    /// Its text; None if there is no file.
    fn read(&self) -> PyResult<Option<String>> {
        self.file()?.read_text().map_err(input_error)
    }

    /// Replaces the file atomically.
    fn write(&self, text: &str) -> PyResult<()> {
        self.file()?
            .write_text(text.as_bytes())
            .map_err(input_error)
    }

    /// Tests whether this text could be written; does not change the file.
    fn try_write(&self, text: &str) -> PyResult<()> {
        self.file()?.try_text(text.as_bytes()).map_err(input_error)
    }

    /// Deletes it.
    fn remove(&self) -> PyResult<()> {
        self.file()?.remove().map_err(input_error)
    }

    /// Unlocks it.
    fn close(&mut self) {
        self.0 = None;
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&mut self, _args: &Bound<'_, PyAny>) {
        self.close();
    }
}

impl StateFile {
    fn file(&self) -> PyResult<&state::StateFile> {
        let closed = || pyo3::exceptions::PyRuntimeError::new_err("this state file is closed");
        self.0.as_ref().ok_or_else(closed)
    }
}
