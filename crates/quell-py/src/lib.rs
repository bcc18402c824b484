//! The extension module `quell._core`: the simulator's interface for Python. It only converts
//! values; all rules are in the crates below.
//!
//! `python/quell/_core.pyi` has its types.

// Integers are converted by `From`, `try_from` or a function of `quell_qdisc::num`, whose name says
// what happens to a value that does not fit.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod a3c;
mod dqn;
mod env;
mod episode;
#[cfg(target_os = "linux")]
mod interface;
mod lfq;
mod options;
mod policy;
mod queue;
mod runs;
mod scenario;
#[cfg(target_os = "linux")]
mod shell;
#[cfg(target_os = "linux")]
mod state;
mod world;

use pyo3::prelude::*;
use quell_link::Error;
use quell_qdisc::time::Duration;

pyo3::create_exception!(
    quell._core,
    InputError,
    pyo3::exceptions::PyValueError,
    "Bad input; the message is one line that names the place and what is allowed."
);

/// The simulator behind quell.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::InputError;
    #[pymodule_export]
    use crate::a3c::{CoupledQueues, Period, a3c_maxima, a3c_readings};
    #[pymodule_export]
    use crate::dqn::Dqn;
    #[pymodule_export]
    use crate::env::{Environments, readings};
    #[pymodule_export]
    use crate::episode::{Episode, LearnQueueTable, episode, learnqueue_memory, learnqueue_steps};
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::interface::{
        attach, attached_left, detach, disciplines, live, live_left, live_rules, steer,
        steer_kinds, steer_left, steer_why_not, steered, watch,
    };
    #[pymodule_export]
    use crate::lfq::{lfq_experiments, lfq_features};
    #[pymodule_export]
    use crate::options::options;
    #[pymodule_export]
    use crate::policy::{Policy, policy_bytes};
    #[pymodule_export]
    use crate::queue::Packet;
    #[pymodule_export]
    use crate::runs::{check_records, grade, heard, run_each, run_many};
    #[pymodule_export]
    use crate::scenario::{
        Queue, Scenario, hush_model, note_on_rate, quantity, queue, queues, read_file,
        scenario_keys, scenario_schema, scenarios, unknown,
    };
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::shell::Shell;
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::state::StateFile;
    #[pymodule_export]
    use crate::world::World;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __build__: &str = env!("QUELL_BUILD");
}

/// Converts an error of the simulator to Python's `InputError`.
fn input_error(error: impl std::fmt::Display) -> PyErr {
    InputError::new_err(error.to_string())
}

/// Describes why a pool of threads cannot be made: limits of processes or memory.
fn no_threads(error: &rayon::ThreadPoolBuildError) -> Error {
    let what = format!("no thread can be started: {error}");
    Error::new(what).remedy("raise the limits (`ulimit -u` and `ulimit -v` show them)")
}

/// Converts seconds, a float in Python.
fn duration(seconds: f64) -> PyResult<Duration> {
    let nanos = seconds * 1e9;
    if !(1.0..1e18).contains(&nanos) {
        return Err(input_error(format!(
            "{seconds} s is not a time between 1 ns and 30 years"
        )));
    }
    Ok(Duration::from_nanos(quell_qdisc::num::whole_u64(
        nanos.round(),
    )))
}
