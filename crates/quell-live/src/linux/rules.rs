//! What `quell live` changes in the system is written down before it is done, and the file goes when it is undone.

use std::path::PathBuf;

use quell_link::Error;
use serde::{Deserialize, Serialize};

use super::firewall::Changes;
use super::state::{self, Command, StateFile};

pub use super::state::Restored;

/// Whose state files these are.
pub const LIVE: Command = Command {
    name: "live",
    look: "iptables -t mangle -S",
    service: Some("/run/quell-live"),
};

/// What a state file says.
#[derive(Debug, Deserialize, Serialize)]
struct State {
    pid: u32,
    #[serde(flatten)]
    changes: Changes,
}

impl state::State for State {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// An interface that no other process has; until it is dropped.
#[derive(Debug)]
pub struct Held(StateFile);

/// Takes the interface for this process, and undoes what one before it left behind.
///
/// # Errors
/// If another process has it, the state file cannot be written, or what was left cannot be undone.
pub fn hold(dev: &str) -> Result<Held, Error> {
    let Some(file) = LIVE.hold(dev)? else {
        let error = Error::new("another quell live has it").key(format!("--dev {dev}"));
        return Err(error.remedy("stop that one first"));
    };
    undo(&file)?;
    Ok(Held(file))
}

impl Held {
    /// Writes the changes down, then makes them: all, or none and an error.
    ///
    /// # Errors
    /// If the state file cannot be written, or a change is refused.
    pub fn insert(&self, changes: &Changes) -> Result<(), Error> {
        let state = State {
            pid: std::process::id(),
            changes: changes.clone(),
        };
        self.0.write(&state)?;
        if let Err(why) = state.changes.make() {
            undo(&self.0)?;
            return Err(Error::new(why).remedy("quell doctor says what is missing"));
        }
        Ok(())
    }

    /// Removes what was inserted; how many rules there were.
    ///
    /// # Errors
    /// If a change cannot be undone.
    pub fn undo(&self) -> Result<usize, Error> {
        undo(&self.0)
    }
}

/// Removes the rules that a state file names, then the file; how many there were. The file stays until they are seen to be gone.
fn undo(file: &StateFile) -> Result<usize, Error> {
    let Some(state) = file.read::<State>()? else {
        return Ok(0);
    };
    let removed = state.changes.undo().map_err(|why| file.kept(why))?;
    file.remove()?;
    Ok(removed)
}

/// The state files of this network namespace, and the interface that each is about.
///
/// # Errors
/// If others can write to their folder.
pub fn left() -> Result<Vec<(PathBuf, String)>, Error> {
    LIVE.left()
}

/// Undoes what dead processes left behind in this network namespace, on these interfaces or on all. One that cannot be undone keeps
/// none of the others.
pub fn restore(devs: &[String]) -> Vec<(String, Restored)> {
    LIVE.restore(devs, |file, _| undo(file).map(Restored::Undone))
}
