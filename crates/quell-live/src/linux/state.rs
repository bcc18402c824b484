//! State files: what is changed in the system is written down before it is done, and the file goes when it is undone.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use quell_link::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::host;

/// Where they are. Gone after a reboot, as the changes are.
const FOLDER: &str = "/run/quell";

/// A command that changes something on an interface: the state files of one do not concern another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// As in `quell live`; begins its files' names.
    pub name: &'static str,
    /// What to look at where a file cannot be read.
    pub look: &'static str,
}

/// The state file of an interface, which no other process has until this is dropped.
#[derive(Debug)]
pub struct StateFile {
    command: Command,
    path: PathBuf,
    _lock: File,
}

/// This network namespace: rules and interfaces' names belong to it. Numbers of inodes, which older kernels have alone, are used again.
fn namespace() -> String {
    let inode = || fs::metadata("/proc/self/ns/net").map_or(0, |m| m.ino());
    host::namespace().map_or_else(|_| format!("i{}", inode()), |cookie| format!("{cookie}"))
}

impl Command {
    /// The state file of an interface; `None` if another process has it.
    ///
    /// # Errors
    /// If the folder or the lock cannot be made.
    pub fn hold(self, dev: &str) -> Result<Option<StateFile>, Error> {
        let name = format!("{}-{}-{dev}.json", self.name, namespace());
        fs::create_dir_all(FOLDER).map_err(|e| no_state(Path::new(FOLDER), &e))?;
        self.take(Path::new(FOLDER).join(name))
    }

    fn take(self, path: PathBuf) -> Result<Option<StateFile>, Error> {
        let lock = lock(&path).map_err(|e| no_state(&path, &e))?;
        Ok(lock.map(|lock| StateFile {
            command: self,
            path,
            _lock: lock,
        }))
    }

    /// The state files of this network namespace, and the interface that each is about.
    pub fn left(self) -> Vec<(PathBuf, String)> {
        let prefix = format!("{}-{}-", self.name, namespace());
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

    /// What a state file says; `None` if it is gone.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read<S: DeserializeOwned>(self, path: &Path) -> Result<Option<S>, Error> {
        let fault = |text: &str| Error::new(format!("{}: {text}", path.display()));
        // A file that is none is for a person to look at; one that the system does not let us read now may be a good one.
        let delete = format!("look at {}, then delete it", self.look);
        let again = format!("quell {} --restore, once it can be read", self.name);
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                return Err(fault(&host::reason(&e)).remedy("write sudo before it"));
            }
            Err(e) if e.kind() == io::ErrorKind::IsADirectory => {
                return Err(fault(&host::reason(&e)).remedy(delete));
            }
            Err(e) => return Err(fault(&host::reason(&e)).remedy(again)),
        };
        let state = serde_json::from_slice(&text)
            .map_err(|e| fault(&format!("is no state file ({e})")).remedy(delete))?;
        Ok(Some(state))
    }

    /// Has `undo` take back what dead processes left behind in this network namespace, on these interfaces or on all. One that cannot be
    /// undone keeps none of the others.
    pub fn restore(
        self,
        devs: &[String],
        undo: impl Fn(&StateFile) -> Result<usize, Error>,
    ) -> Vec<(String, Restored)> {
        let files = self.left().into_iter();
        let is = |name: &str| devs.iter().any(|dev| dev == name);
        // A name may go on with a place on the device.
        let device = |name: &str| name.split('@').next().is_some_and(is);
        let wanted = files.filter(|(_, name)| devs.is_empty() || is(name) || device(name));
        wanted
            .map(|(path, name)| {
                let outcome = match self.take(path) {
                    Ok(Some(file)) => undo(&file).map_or_else(Restored::Failed, Restored::Undone),
                    Ok(None) => Restored::Runs,
                    Err(error) => Restored::Failed(error),
                };
                (name, outcome)
            })
            .collect()
    }
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
    Error::new(text).remedy("the state file must be there before anything is changed")
}

impl StateFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it as a whole, or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, state: &impl Serialize) -> Result<(), Error> {
        let part = self.path.with_extension("part");
        let write = || -> io::Result<()> {
            let mut file = File::create(&part)?;
            file.write_all(&serde_json::to_vec(state)?)?;
            file.sync_all()?;
            fs::rename(&part, &self.path)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&part);
            no_state(&self.path, &error)
        })
    }

    /// What it says; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read<S: DeserializeOwned>(&self) -> Result<Option<S>, Error> {
        self.command.read(&self.path)
    }

    /// Deletes it.
    ///
    /// # Errors
    /// If it cannot be deleted.
    pub fn remove(&self) -> Result<(), Error> {
        match fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                let text = format!("{}: {}", self.path.display(), host::reason(&e));
                Err(Error::new(text))
            }
            _ => Ok(()),
        }
    }

    /// An error in undoing what it says, which it still says.
    pub fn kept(&self, why: impl Into<String>) -> Error {
        Error::new(why).remedy(format!(
            "{} still says what to undo: quell {} --restore",
            self.path.display(),
            self.command.name
        ))
    }
}

/// What became of an interface's state file.
#[derive(Debug, PartialEq)]
pub enum Restored {
    /// So many changes were undone.
    Undone(usize),
    /// A running process has it.
    Runs,
    /// It could not be undone.
    Failed(Error),
}

/// Says what became of the state files of a command, which were to be restored on these interfaces or on all.
///
/// # Errors
/// The first thing that went wrong.
pub fn report(
    command: Command,
    devs: &[String],
    done: Vec<(String, Restored)>,
    what: &str,
    say: &dyn Fn(&str),
) -> Result<(), Error> {
    let command = command.name;
    let mut failed = None;
    let nothing = done.is_empty();
    for (dev, outcome) in done {
        let line = match outcome {
            Restored::Undone(count) => format!("{dev}: {count} {what}"),
            Restored::Runs if devs.is_empty() => {
                format!("{dev}: quell {command} still runs on it; left as it is")
            }
            Restored::Runs => {
                let what = format!("quell {command} still runs on {dev}");
                let error = Error::new(what).key("--restore");
                failed.get_or_insert(error.remedy("stop it, which restores all"));
                continue;
            }
            Restored::Failed(error) => {
                failed.get_or_insert(error);
                continue;
            }
        };
        say(&line);
    }
    if nothing {
        say("nothing to restore");
    }
    failed.map_or(Ok(()), Err)
}
