//! State files: a change of the system is recorded before it is made, and the file is deleted when
//! the change is undone.
//!
//! Since root acts on their contents, their folder is opened once, must belong to root or this
//! user, and must not be writable by others. Files are opened below its descriptor, and links are
//! not followed. A file has typed values, each of which is checked when it is read.

mod command;
mod file;
mod folder;
mod undo;

#[cfg(test)]
pub(crate) mod hostile;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::path::Path;

use quell_link::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::host;

pub use file::StateFile;
pub use undo::{UndoOutcome, report};

/// Location and naming of a command's files.
#[derive(Debug, PartialEq, Eq)]
pub struct Location {
    /// Default folder.
    folder: &'static str,
    /// Environment variable in which systemd names a service's folder (systemd.exec(5)).
    variable: &'static str,
    /// Extension of the files.
    extension: &'static str,
    /// Whether the names contain the network namespace.
    of_namespace: bool,
    /// Remedy in the message about a file that cannot be written.
    remedy: &'static str,
}

/// Files about changes of the system, which do not outlive a restart; nor does the folder on most
/// systems.
pub const CHANGES: &Location = &Location {
    folder: "/run/quell",
    variable: "RUNTIME_DIRECTORY",
    extension: "json",
    of_namespace: true,
    remedy: "the state file must be there before anything is changed",
};
/// Files that outlive a restart of the system: what queues have learned. Network namespaces have no
/// name that outlives it.
pub const LEARNED: &Location = &Location {
    folder: "/var/lib/quell",
    variable: "STATE_DIRECTORY",
    extension: "safetensors",
    of_namespace: false,
    remedy: "name a folder of your own in $STATE_DIRECTORY",
};

/// Longest subject in a file's name, bytes: an interface, and a place on it.
const MAX_NAME: usize = 40;

/// A command with its own state files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Name, as in `quell live`; the files' names begin with it.
    pub name: &'static str,
    /// Command that shows the changes. Messages about an invalid file name it.
    pub look: &'static str,
    /// Folder of the shipped service, which has its own user; `None` if there is no service.
    pub service: Option<&'static str>,
    /// Location of its files.
    pub location: &'static Location,
}

/// `quell tune --apply`, which is written in Python.
pub const TUNE: Command = Command {
    name: "tune",
    look: "tc qdisc show",
    service: None,
    location: CHANGES,
};

/// `quell shell --nat`, which is written in Python: one file for all running shells.
pub const NAT: Command = Command {
    name: "nat",
    look: "iptables -S and sysctl net.ipv4.ip_forward",
    service: None,
    location: CHANGES,
};

/// The contents of a state file.
pub trait State: Serialize + DeserializeOwned {
    /// Checks what the types do not ensure.
    ///
    /// # Errors
    /// For a value that quell does not write.
    fn check(&self) -> Result<(), String>;
}

/// Whether this can be a file's subject: an interface name that the kernel accepts, and a place on
/// the interface.
fn is_name(name: &str) -> bool {
    let bad = |c: char| c == '/' || c.is_control() || c.is_whitespace();
    !name.is_empty() && name.len() <= MAX_NAME && !name.contains(bad)
}

fn no_state(location: &Location, path: &Path, error: &io::Error) -> Error {
    let text = format!("{}: {}", path.display(), host::reason(error));
    let remedy = match error.kind() {
        ErrorKind::InvalidData | ErrorKind::IsADirectory => "look at it, then delete it",
        _ => location.remedy,
    };
    Error::new(text).remedy(remedy)
}
