//! `quell._core.options`: the options of commands on real packets, on every platform.

use pyo3::prelude::*;
use quell_live::options::{Row, Table, attach, live, steer, watch};

use crate::input_error;

/// An option: name, former name, notation of the value, description with the default, default,
/// whether it can be repeated, where it can be given.
type Fields = (
    &'static str,
    Option<&'static str>,
    &'static str,
    String,
    &'static str,
    bool,
    String,
);

/// A command: its options, its positional arguments with their meaning, and examples.
type Command = (
    Vec<Fields>,
    Vec<(&'static str, &'static str)>,
    Vec<&'static str>,
);

/// The options of a command in the order of its help, its positional arguments, and examples.
#[pyfunction]
pub fn options(command: &str) -> PyResult<Command> {
    Ok(match command {
        "live" => of::<live::Options>(live::EXAMPLES),
        "watch" => of::<watch::Options>(watch::EXAMPLES),
        "steer" => of::<steer::Options>(steer::EXAMPLES),
        "attach" => of::<attach::Options>(attach::EXAMPLES),
        "detach" => of::<attach::Detach>(attach::EXAMPLES),
        _ => return Err(input_error(format!("{command} has no table of options"))),
    })
}

fn of<T: Table>(examples: &[&'static str]) -> Command {
    let fields = |row: &Row<T>| {
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
    (
        T::ROWS.iter().map(fields).collect(),
        T::WORDS.to_vec(),
        examples.to_vec(),
    )
}
