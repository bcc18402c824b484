//! `quell._core.StateFile`: what `quell tune` notes before it changes an interface. Linux only.

use std::path::PathBuf;

use pyo3::prelude::*;
use quell_live::state::{self, TUNE};

use crate::input_error;

/// The state file of an interface, which no other process has until it is closed.
#[pyclass(module = "quell._core")]
pub struct StateFile(Option<state::StateFile>);

#[pymethods]
impl StateFile {
    /// Takes the state file of an interface for a command.
    #[staticmethod]
    fn hold(command: &str, dev: &str) -> PyResult<Self> {
        if command != TUNE.name {
            let what = format!("{command}: the only command in Python with state files is tune");
            return Err(pyo3::exceptions::PyValueError::new_err(what));
        }
        let file = TUNE.hold(dev).map_err(input_error)?;
        let taken = || input_error(format!("{dev}: another quell {command} is at work on it"));
        Ok(Self(Some(file.ok_or_else(taken)?)))
    }

    /// Where it is.
    #[getter]
    fn path(&self) -> PyResult<PathBuf> {
        Ok(self.file()?.path())
    }

    /// Its text; None if there is none.
    fn read(&self) -> PyResult<Option<String>> {
        self.file()?.read_text().map_err(input_error)
    }

    /// Writes it as a whole, or not at all.
    fn write(&self, text: &str) -> PyResult<()> {
        self.file()?
            .write_text(text.as_bytes())
            .map_err(input_error)
    }

    /// Tries whether this text could be written, and leaves the file as it is.
    fn try_write(&self, text: &str) -> PyResult<()> {
        self.file()?.try_text(text.as_bytes()).map_err(input_error)
    }

    /// Deletes it.
    fn remove(&self) -> PyResult<()> {
        self.file()?.remove().map_err(input_error)
    }

    /// Lets other processes have it.
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
