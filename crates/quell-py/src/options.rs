//! `quell._core.options`: the options of commands on real packets, on every platform.

use pyo3::prelude::*;
use quell_live::options::{Row, Table, live};

use crate::input_error;

/// A row: name, former name, value, what it does with the default, the default, whether it repeats, where it can be given.
type Fields = (
    &'static str,
    Option<&'static str>,
    &'static str,
    String,
    &'static str,
    bool,
    String,
);

/// The options of a command in the help's order, and examples of what follows the command.
#[pyfunction]
pub fn options(command: &str) -> PyResult<(Vec<Fields>, Vec<&'static str>)> {
    let (rows, examples) = match command {
        "live" => (live::Options::ROWS, live::EXAMPLES),
        _ => return Err(input_error(format!("{command} has no table of options"))),
    };
    let fields = |row: &Row| {
        let (text, scope) = (row.text(), format!("{:?}", row.scope).to_lowercase());
        (
            row.name,
            row.former,
            row.value,
            text,
            row.default,
            row.repeats,
            scope,
        )
    };
    Ok((rows.iter().map(fields).collect(), examples.to_vec()))
}
