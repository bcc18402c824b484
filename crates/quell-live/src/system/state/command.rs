//! What a command does with its state files: takes one, lists them, undoes what they record.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quell_link::Error;

use super::file::StateFile;
use super::folder::{Folder, UMASK};
use super::undo::UndoOutcome;
use super::{Command, State, is_name, no_state};
use crate::system::{host, sys};

/// Identifier of this network namespace. Older kernels only have inode numbers, which are reused.
fn namespace() -> String {
    let inode = || fs::metadata("/proc/self/ns/net").map_or(0, |m| m.ino());
    host::namespace().map_or_else(|_| format!("i{}", inode()), |cookie| format!("{cookie}"))
}

impl Command {
    /// The state file of an interface; `None` if another process holds its lock.
    ///
    /// # Errors
    /// If the folder or the lock cannot be created, or other users can write to the folder.
    pub fn hold(self, dev: &str) -> Result<Option<StateFile>, Error> {
        if !is_name(dev) {
            return Err(Error::new("is not an interface name")
                .key(format!("{dev:?}"))
                .remedy("`ip link` lists them"));
        }
        let name = format!("{}{dev}", self.prefix());
        self.take(Arc::new(self.made_folder()?), name)
    }

    fn prefix(self) -> String {
        match self.location.of_namespace {
            true => format!("{}-{}-", self.name, namespace()),
            false => format!("{}-", self.name),
        }
    }

    /// The path of this process's folder, and whether it may be a link.
    fn place(self) -> (PathBuf, bool) {
        let named = std::env::var_os(self.location.variable).filter(|_| self.service.is_some());
        // The variable may have several folders, separated by colons.
        let first = named.map(|named| {
            let first = named.as_encoded_bytes().split(|byte| *byte == b':').next();
            PathBuf::from(OsStr::from_bytes(first.unwrap_or_default()))
        });
        match first.filter(|path| path.is_absolute()) {
            // With DynamicUser=, systemd makes the folder a link.
            Some(path) => (path, sys::identity().0 != 0),
            None => (self.location.folder.into(), false),
        }
    }

    /// Opens the folder of this process; `None` if it is missing, or this user may not list it.
    fn folder(self) -> Result<Option<Folder>, Error> {
        let (path, may_be_link) = self.place();
        match Folder::open(self.location, &path, may_be_link) {
            Ok(folder) => folder.map(Some),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                Ok(None)
            }
            Err(e) => Err(no_state(self.location, &path, &e)),
        }
    }

    /// Opens the folder of this process; creates it if it is missing.
    fn made_folder(self) -> Result<Folder, Error> {
        let (path, may_be_link) = self.place();
        let make = || {
            let make = || DirBuilder::new().recursive(true).mode(0o755).create(&path);
            sys::with_umask(UMASK, make)
        };
        let open = || match Folder::open(self.location, &path, may_be_link) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                make().and_then(|()| Folder::open(self.location, &path, may_be_link))
            }
            opened => opened,
        };
        open().map_err(|e| no_state(self.location, &path, &e))?
    }

    pub(super) fn take(
        self,
        folder: Arc<Folder>,
        name: String,
    ) -> Result<Option<StateFile>, Error> {
        let file = format!("{name}.lock");
        let lock = folder.open_file(&file, libc::O_RDWR | folder.create());
        let lock = match lock {
            // Without a lock file no process has the state file; in another user's folder none is
            // created.
            Err(e) if folder.foreign && e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(no_state(self.location, &folder.path.join(file), &e)),
            Ok(lock) => Some(lock),
        };
        if let Some(lock) = &lock {
            match host::lock(lock.as_fd()) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(e) => return Err(no_state(self.location, &folder.path.join(file), &e)),
            }
        }
        Ok(Some(StateFile {
            command: self,
            folder,
            stem: name,
            _lock: lock,
        }))
    }

    /// The state files of this network namespace, each with its subject.
    ///
    /// # Errors
    /// If other users can write to their folder.
    pub fn left(self) -> Result<Vec<(PathBuf, String)>, Error> {
        let Some(folder) = self.folder()? else {
            return Ok(Vec::new());
        };
        let prefix = self.prefix();
        let path = |name: &str| folder.path.join(format!("{prefix}{name}.json"));
        let names = folder.names(&prefix).into_iter();
        Ok(names.map(|name| (path(&name), name)).collect())
    }

    /// The first state in a file other than `own` for which `wanted` returns true.
    ///
    /// # Errors
    /// If a file that is checked before it cannot be read, or other users can write to the folder.
    pub fn find<S: State>(
        self,
        own: Option<&StateFile>,
        wanted: impl Fn(&S) -> bool,
    ) -> Result<Option<S>, Error> {
        let Some(folder) = self.folder()? else {
            return Ok(None);
        };
        let folder = Arc::new(folder);
        for name in folder.names(&self.prefix()) {
            let file = StateFile {
                command: self,
                folder: folder.clone(),
                stem: format!("{}{name}", self.prefix()),
                _lock: None,
            };
            if own.is_some_and(|own| own.stem == file.stem) {
                continue;
            }
            if let Some(state) = file.read()?.filter(&wanted) {
                return Ok(Some(state));
            }
        }
        Ok(None)
    }

    /// Calls `undo` for each file that a dead process left in this network namespace: for these
    /// interfaces or, if `devs` is empty, for all. Root also undoes the files of the shipped
    /// service. After a failure the remaining files are still undone.
    pub fn restore(
        self,
        devs: &[String],
        undo: impl Fn(&StateFile, &str) -> Result<UndoOutcome, Error>,
    ) -> Vec<(String, UndoOutcome)> {
        let mut done = Vec::new();
        for folder in self.folders() {
            let folder = match folder {
                Ok(folder) => Arc::new(folder),
                Err(error) => {
                    done.push((self.name.to_owned(), UndoOutcome::Failed(error)));
                    continue;
                }
            };
            self.remove_parts(&folder, &self.prefix(), devs);
            let names = folder.names(&self.prefix()).into_iter();
            for name in names.filter(|name| is_of(name, devs)) {
                let outcome = match self.take(folder.clone(), format!("{}{name}", self.prefix())) {
                    Ok(Some(file)) => undo(&file, &name).unwrap_or_else(UndoOutcome::Failed),
                    Ok(None) => UndoOutcome::Runs,
                    Err(error) => UndoOutcome::Failed(error),
                };
                done.push((name, outcome));
            }
        }
        done
    }

    /// Removes temporary files of processes that were killed while they wrote a state file. Locked
    /// ones stay, since their process may be writing.
    pub(super) fn remove_parts(self, folder: &Arc<Folder>, prefix: &str, devs: &[String]) {
        let names = folder.subjects(prefix, ".part").into_iter();
        for name in names.filter(|name| is_of(name, devs)) {
            if let Ok(Some(file)) = self.take(folder.clone(), format!("{prefix}{name}")) {
                let _ = folder.remove(&file.file("part"));
            }
        }
    }

    /// All folders from which this process restores.
    fn folders(self) -> Vec<Result<Folder, Error>> {
        let own = self.folder().transpose();
        let foreign = match self.service {
            Some(path)
                if sys::identity().0 == 0 && self.place().0 == Path::new(self.location.folder) =>
            {
                Folder::of_service(self.location, Path::new(path)).transpose()
            }
            _ => None,
        };
        own.into_iter().chain(foreign).collect()
    }
}

/// Whether a state file's subject is one of these devices, or a place on one; true if none is
/// named.
fn is_of(name: &str, devs: &[String]) -> bool {
    let device = name.split('@').next().unwrap_or(name);
    devs.is_empty() || devs.iter().any(|dev| dev == name || dev == device)
}
