//! What `quell live` changes in the system is written down before it is done, and the file goes when it is undone.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use quell_link::Error;
use serde::{Deserialize, Serialize};

use super::firewall::Changes;
use super::host;

/// Where state files are. Gone after a reboot, as the rules are.
const FOLDER: &str = "/run/quell";
/// What a state file says.
#[derive(Debug, Deserialize, Serialize)]
struct State {
    pid: u32,
    #[serde(flatten)]
    changes: Changes,
}

/// An interface that no other process has; until it is dropped.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    _lock: File,
}

/// This network namespace: rules and interfaces' names belong to it. Numbers of inodes, which older kernels have alone, are used again.
fn namespace() -> String {
    let inode = || fs::metadata("/proc/self/ns/net").map_or(0, |m| m.ino());
    host::namespace().map_or_else(|_| format!("i{}", inode()), |cookie| format!("{cookie}"))
}

/// Takes the interface for this process, and undoes what one before it left behind.
///
/// # Errors
/// If another process has it, the state file cannot be written, or what was left cannot be undone.
pub fn hold(dev: &str) -> Result<Held, Error> {
    let path = Path::new(FOLDER).join(format!("live-{}-{dev}.json", namespace()));
    fs::create_dir_all(FOLDER).map_err(|e| no_state(Path::new(FOLDER), &e))?;
    let lock = lock(&path).map_err(|e| no_state(Path::new(FOLDER), &e))?;
    let Some(lock) = lock else {
        let error = Error::new("another quell live has it").key(format!("--dev {dev}"));
        return Err(error.remedy("stop that one first"));
    };
    undo(&path)?;
    Ok(Held { path, _lock: lock })
}

/// The lock beside a state file, which ends with the process at the latest; None if another process has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path.with_extension("lock"))?;
    Ok(host::lock(file.as_fd())?.then_some(file))
}

fn no_state(path: &Path, error: &io::Error) -> Error {
    let text = format!("{}: {}", path.display(), host::reason(error));
    Error::new(text).remedy("the state file must be there before rules are made")
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
        let part = self.path.with_extension("part");
        let written = write(&part, &state).and_then(|()| fs::rename(&part, &self.path));
        if let Err(error) = written {
            let _ = fs::remove_file(&part);
            return Err(no_state(&self.path, &error));
        }
        if let Err(why) = state.changes.make() {
            undo(&self.path)?;
            return Err(Error::new(why).remedy("quell doctor says what is missing"));
        }
        Ok(())
    }

    /// Removes what was inserted; how many rules there were.
    ///
    /// # Errors
    /// If a change cannot be undone.
    pub fn undo(&self) -> Result<usize, Error> {
        undo(&self.path)
    }
}

fn write(path: &Path, state: &State) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&serde_json::to_vec(state)?)?;
    file.sync_all()
}

/// Removes the rules that a state file names, then the file; how many there were. The file stays until they are seen to be gone.
fn undo(path: &Path) -> Result<usize, Error> {
    let name = path.display();
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(e) => {
            let error = Error::new(format!("{name}: {}", host::reason(&e)));
            return Err(error.remedy("quell live --restore undoes what it says"));
        }
    };
    let state: State = serde_json::from_slice(&text).map_err(|e| {
        Error::new(format!("{name}: is no state file ({e})"))
            .remedy("look at iptables -t mangle -S, then delete it")
    })?;
    let removed = state.changes.undo().map_err(|why| {
        Error::new(why).remedy(format!(
            "{name} still says what to undo: quell live --restore"
        ))
    })?;
    fs::remove_file(path).map_err(|e| Error::new(format!("{name}: {}", host::reason(&e))))?;
    Ok(removed)
}

/// The state files of this network namespace, and the interface that each is about.
pub fn left() -> Vec<(PathBuf, String)> {
    let prefix = format!("live-{}-", namespace());
    let files = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let named = files.filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let dev = name.strip_prefix(&prefix)?.strip_suffix(".json")?;
        Some((file.path(), dev.to_owned()))
    });
    let mut found: Vec<_> = named.collect();
    found.sort();
    found
}

/// What became of an interface's state file.
#[derive(Debug, PartialEq)]
pub enum Restored {
    /// So many rules were removed.
    Undone(usize),
    /// A running quell live has it.
    Runs,
    /// It could not be undone.
    Failed(Error),
}

/// Undoes what dead processes left behind in this network namespace, on these interfaces or on all. One that cannot be undone keeps
/// none of the others.
pub fn restore(devs: &[String]) -> Vec<(String, Restored)> {
    let wanted = left()
        .into_iter()
        .filter(|(_, name)| devs.is_empty() || devs.contains(name));
    wanted
        .map(|(path, name)| {
            let outcome = match lock(&path) {
                Ok(Some(_lock)) => undo(&path).map_or_else(Restored::Failed, Restored::Undone),
                Ok(None) => Restored::Runs,
                Err(e) => Restored::Failed(no_state(&path, &e)),
            };
            (name, outcome)
        })
        .collect()
}
