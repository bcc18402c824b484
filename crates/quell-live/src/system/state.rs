//! State files: a change of the system is recorded before it is made, and the file is deleted when
//! the change is undone.
//!
//! Root acts on their contents. So their folder is opened once, must belong to root or this user,
//! and must not be writable by others. Files are opened below its descriptor, and links are not
//! followed. A file has typed values, each of which is checked when it is read.

use std::ffi::{CString, OsStr, c_int};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quell_link::Error;
use quell_link::units::counted;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{host, sys};

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

/// Files about changes of the system. Neither the folder nor the changes outlive a restart.
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
/// Umask with which folder and files are made: the owner must be able to read them, since
/// `quell live` has dropped the capability to ignore file modes.
const UMASK: u32 = 0o022;
/// Largest state file, bytes: a tree of several thousand classes has 200 bytes for each.
const MAX_BYTES: u64 = 16 << 20;
/// Most files that are read in a folder where another user can create any number.
const MAX_FOREIGN: usize = 256;
/// Longest subject in a file's name, bytes: an interface, and a place on it.
const MAX_NAME: usize = 40;
/// Hexadecimal digits of the hash in the names of files that share a lock.
const DIGITS: usize = 16;

/// A command with its own state files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Name, as in `quell live`; the files' names begin with it.
    pub name: &'static str,
    /// Command that shows the changes, for the user if a file cannot be read.
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

/// The state file of an interface, locked against other processes until this value is dropped.
#[derive(Debug)]
pub struct StateFile {
    command: Command,
    folder: Arc<Folder>,
    /// File name without the extension.
    stem: String,
    _lock: Option<File>,
}

/// An open folder of state files.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    fd: OwnedFd,
    /// Whether it is the folder of a service, whose user can write anything there.
    foreign: bool,
}

/// Identifier of this network namespace. Older kernels only have inode numbers, which are reused.
fn namespace() -> String {
    let inode = || fs::metadata("/proc/self/ns/net").map_or(0, |m| m.ino());
    host::namespace().map_or_else(|_| format!("i{}", inode()), |cookie| format!("{cookie}"))
}

/// Whether this can be a file's subject: an interface name that the kernel accepts, and a place on
/// the interface.
fn is_name(name: &str) -> bool {
    let bad = |c: char| c == '/' || c.is_control() || c.is_whitespace();
    !name.is_empty() && name.len() <= MAX_NAME && !name.contains(bad)
}

impl Command {
    /// The state file of an interface; `None` if another process has it.
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

    /// The same, created if it is missing.
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

    fn take(self, folder: Arc<Folder>, name: String) -> Result<Option<StateFile>, Error> {
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
    /// If a file before it cannot be read, or others can write to their folder.
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

    /// Calls `undo` for each file that a dead process left in this network namespace, on these
    /// interfaces or, if there are none, on all; for root also for files of the shipped service. A
    /// failure does not stop the others.
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
    fn remove_parts(self, folder: &Arc<Folder>, prefix: &str, devs: &[String]) {
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

impl Folder {
    /// Opens a folder that belongs to root or this user and that no other user can write to.
    ///
    /// # Errors
    /// The outer error if the folder cannot be opened, the inner one if other users can write to
    /// it.
    fn open(
        location: &Location,
        path: &Path,
        may_be_link: bool,
    ) -> io::Result<Result<Self, Error>> {
        let (is_default, variable) = (path == Path::new(location.folder), location.variable);
        let follow = if may_be_link { 0 } else { libc::O_NOFOLLOW };
        let name = CString::new(path.as_os_str().as_bytes())?;
        let is_link = || path.symlink_metadata().is_ok_and(|at| at.is_symlink());
        let shown = path.display();
        let fd = match sys::open(&name, libc::O_RDONLY | libc::O_DIRECTORY | follow) {
            Err(_) if !may_be_link && is_link() && location != CHANGES => {
                return Ok(Err(Error::new(format!(
                    "{shown}: is a link, and is not followed"
                ))));
            }
            Err(_) if !may_be_link && is_link() => {
                let what = "is a link, as the service of quell 0.2.0 has one, and is not followed";
                return Ok(Err(Error::new(format!("{shown}: {what}")).remedy(format!(
                    "stop quell-live, give it the unit of this release, then: rm {shown}"
                ))));
            }
            opened => opened?,
        };
        // Another user may have placed a link within the path. Links in the default path, as in
        // OpenWrt, are root's.
        if !may_be_link
            && !is_default
            && let Ok(real) = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
            && real != path
        {
            let what = format!("{shown}: a link leads to it, and is not followed");
            let remedy = format!("name {} in ${variable}, or unset that", real.display());
            return Ok(Err(Error::new(what).remedy(remedy)));
        }
        let at = File::from(fd.try_clone()?).metadata()?;
        let (user, mode) = (sys::identity().0, at.mode() & 0o7777);
        // If root has named /tmp or a user's folder, the remedy must not be to delete it or to
        // change its mode.
        let remedy = |command: &str| match is_default {
            true => format!("look at what is there, then: {command} {shown}"),
            false => format!("name a folder of your own in ${variable}, or unset that"),
        };
        let fault = if at.uid() != user && at.uid() != 0 {
            let what = format!(
                "{shown}: belongs to user {}, who could write anything there",
                at.uid()
            );
            Some(Error::new(what).remedy(remedy("rm -r")))
        } else if mode & 0o022 != 0 {
            let what = format!("{shown}: other users can write to it (mode {mode:o})");
            Some(Error::new(what).remedy(remedy("chmod 755")))
        } else {
            None
        };
        Ok(fault.map_or_else(
            || {
                Ok(Self {
                    path: path.to_owned(),
                    fd,
                    foreign: false,
                })
            },
            Err,
        ))
    }

    /// Opens a service's folder, in which another user can write anything; `None` if there is none.
    /// Links are followed, since they are root's.
    fn of_service(location: &Location, path: &Path) -> Result<Option<Self>, Error> {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        match sys::open(&name, libc::O_RDONLY | libc::O_DIRECTORY) {
            Ok(fd) => Ok(Some(Self {
                path: path.to_owned(),
                fd,
                foreign: true,
            })),
            // The root of a user namespace may not open it.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                Ok(None)
            }
            Err(e) => Err(no_state(location, path, &e)),
        }
    }

    /// The subjects of the state files with this prefix; other files are ignored.
    fn names(&self, prefix: &str) -> Vec<String> {
        self.subjects(prefix, ".json")
    }

    /// The subjects of files with this prefix and this suffix.
    fn subjects(&self, prefix: &str, end: &str) -> Vec<String> {
        let files = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let named = files.filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            let about = name.strip_prefix(prefix)?.strip_suffix(end)?;
            is_name(about).then(|| about.to_owned())
        });
        let most = if self.foreign {
            MAX_FOREIGN
        } else {
            usize::MAX
        };
        let mut found: Vec<_> = named.take(most).collect();
        found.sort();
        found
    }

    /// O_CREAT; in another user's folder 0.
    fn create(&self) -> c_int {
        if self.foreign { 0 } else { libc::O_CREAT }
    }

    /// Opens a regular file, not a link. In this user's own folder, other users must not be able to
    /// write to it.
    fn open_file(&self, name: &str, flags: c_int) -> io::Result<File> {
        let name = CString::new(name)?;
        // Opening a FIFO would block.
        let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let open = || sys::open_at(self.fd.as_fd(), &name, flags, 0o600);
        let opened = match flags & libc::O_CREAT {
            0 => open(),
            _ => sys::with_umask(UMASK, open),
        };
        let fd = match opened {
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "is a link, which quell does not make",
                ));
            }
            opened => File::from(opened?),
        };
        let at = fd.metadata()?;
        let invalid = |what: &str| Err(io::Error::new(ErrorKind::InvalidData, what));
        let ours = [0, sys::identity().0].contains(&at.uid()) && at.mode() & 0o022 == 0;
        if at.is_dir() {
            Err(io::Error::from_raw_os_error(libc::EISDIR))
        } else if !at.is_file() {
            invalid("is no regular file")
        } else if !ours && !self.foreign {
            invalid("other users can write to it")
        } else {
            Ok(fd)
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        sys::unlink_at(self.fd.as_fd(), &CString::new(name)?)
    }
}

fn no_state(location: &Location, path: &Path, error: &io::Error) -> Error {
    let text = format!("{}: {}", path.display(), host::reason(error));
    let remedy = match error.kind() {
        ErrorKind::InvalidData | ErrorKind::IsADirectory => "look at it, then delete it",
        _ => location.remedy,
    };
    Error::new(text).remedy(remedy)
}

impl StateFile {
    fn file(&self, extension: &str) -> String {
        format!("{}.{extension}", self.stem)
    }

    fn name(&self) -> String {
        self.file(self.command.location.extension)
    }

    /// Path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder.path.join(self.name())
    }

    /// One of several files that share this one's lock; `self` must live at least as long. The
    /// file's name has a hash of `subject` (FNV-1a), so the file must contain the subject, too, and
    /// it must be checked when the file is read.
    #[must_use]
    pub fn about(&self, subject: &str) -> Self {
        let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = subject.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        Self {
            command: self.command,
            folder: self.folder.clone(),
            stem: format!("{}-{hash:0DIGITS$x}", self.stem),
            _lock: None,
        }
    }

    /// Deletes all files that share this one's lock except `most` of them: `newest`, and those
    /// written last.
    pub fn prune(&self, newest: &Self, most: usize) {
        let subject = |name: &str| {
            let (stem, _) = name.split_once('.')?;
            let hash = stem.strip_prefix(&self.stem)?.strip_prefix('-')?;
            let is_hash = hash.len() == DIGITS && hash.bytes().all(|b| b.is_ascii_hexdigit());
            is_hash.then(|| stem.to_owned())
        };
        let files = fs::read_dir(&self.folder.path).into_iter().flatten();
        let found = files.flatten().filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            let written = file.metadata().ok()?.modified().ok()?;
            Some((written, subject(&name)?, name))
        });
        let mut found: Vec<_> = found.collect();
        found.sort();
        let mut kept = vec![newest.stem.clone()];
        for (_, stem, name) in found.into_iter().rev() {
            if kept.contains(&stem) {
                continue;
            }
            if kept.len() < most {
                kept.push(stem);
            } else {
                let _ = self.folder.remove(&name);
            }
        }
    }

    /// Replaces the file atomically.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, state: &impl Serialize) -> Result<(), Error> {
        self.write_text(&self.text(state)?)
    }

    /// The same without waiting for the disk: if the system fails, the change is lost, too.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn update(&self, state: &impl Serialize) -> Result<(), Error> {
        self.replace(&self.text(state)?, false)
    }

    fn text(&self, state: &impl Serialize) -> Result<Vec<u8>, Error> {
        let no = |e: serde_json::Error| no_state(self.command.location, &self.path(), &e.into());
        serde_json::to_vec(state).map_err(no)
    }

    /// The same with any content, such as text from Python.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_text(&self, text: &[u8]) -> Result<(), Error> {
        self.replace(text, true)
    }

    fn replace(&self, text: &[u8], sync: bool) -> Result<(), Error> {
        let folder = self.folder.fd.as_fd();
        self.part(text, sync, |part| {
            let name = CString::new(self.name())?;
            sys::rename_at(folder, &CString::new(part)?, &name)
        })
    }

    /// Tests whether the file could be written, so that a full or read-only file system is noticed
    /// before anything is changed.
    ///
    /// # Errors
    /// If it could not be written.
    pub fn try_text(&self, text: &[u8]) -> Result<(), Error> {
        self.part(text, true, |part| self.folder.remove(part))
    }

    /// Writes a temporary file beside the state file, which `then` renames or removes.
    fn part(
        &self,
        text: &[u8],
        sync: bool,
        then: impl Fn(&str) -> io::Result<()>,
    ) -> Result<(), Error> {
        if text.len() as u64 > MAX_BYTES {
            // A larger file could not be read again.
            let most = Error::new(format!("a state file may have {MAX_BYTES} bytes"));
            return Err(most.key(self.path().display().to_string()));
        }
        let name = self.file("part");
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let write = || -> io::Result<()> {
            let mut file = match self.folder.open_file(&name, flags) {
                // A killed process left it, since this process has the lock.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                    self.folder.remove(&name)?;
                    self.folder.open_file(&name, flags)?
                }
                opened => opened?,
            };
            file.write_all(text)?;
            if sync {
                file.sync_all()?;
            }
            then(&name)
        };
        write().map_err(|error| {
            let _ = self.folder.remove(&name);
            no_state(self.command.location, &self.path(), &error)
        })
    }

    /// Reads the state; `None` if there is no file.
    ///
    /// # Errors
    /// If it cannot be read, or is not a state that quell writes.
    pub fn read<S: State>(&self) -> Result<Option<S>, Error> {
        let Some(text) = self.read_text()? else {
            return Ok(None);
        };
        let state = serde_json::from_str::<S>(&text).map_err(|e| e.to_string());
        let state = state.and_then(|state| state.check().map(|()| state));
        let state = state.map_err(|why| {
            let what = format!("{}: is no state file ({why})", self.path().display());
            Error::new(what).remedy(self.delete())
        });
        state.map(Some)
    }

    /// Reads the text without checks, for Python; `None` if there is no file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_text(&self) -> Result<Option<String>, Error> {
        let invalid = |what: String| io::Error::new(ErrorKind::InvalidData, what);
        let read = || String::from_utf8(self.bytes()?).map_err(|e| invalid(e.to_string()));
        let fault =
            |e: &io::Error| Error::new(format!("{}: {}", self.path().display(), host::reason(e)));
        match read() {
            Ok(text) => Ok(Some(text)),
            Err(e) => match e.kind() {
                ErrorKind::NotFound => Ok(None),
                ErrorKind::PermissionDenied => Err(fault(&e).remedy("write sudo before it")),
                // The user must inspect an invalid file; one that cannot be read now may be valid.
                ErrorKind::InvalidData | ErrorKind::IsADirectory => {
                    Err(fault(&e).remedy(self.delete()))
                }
                _ => Err(fault(&e).remedy(format!(
                    "quell {} --restore, once it can be read",
                    self.command.name
                ))),
            },
        }
    }

    /// Reads the content.
    ///
    /// # Errors
    /// If there is no file, or it cannot be read.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let file = self.folder.open_file(&self.name(), libc::O_RDONLY)?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > MAX_BYTES {
            true => Err(io::Error::new(ErrorKind::InvalidData, "is too large")),
            false => Ok(bytes),
        }
    }

    /// Renames the file, replacing one that was set aside before; returns the new path.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub fn set_aside(&self) -> io::Result<PathBuf> {
        let (from, to) = (self.name(), self.file("old"));
        let folder = self.folder.fd.as_fd();
        // A directory could not replace a file.
        let _ = self.folder.remove(&to);
        sys::rename_at(folder, &CString::new(from)?, &CString::new(&*to)?)?;
        Ok(self.folder.path.join(to))
    }

    /// The remedy for an invalid file.
    fn delete(&self) -> String {
        format!("look at {}, then delete it", self.command.look)
    }

    /// Deletes the file.
    ///
    /// # Errors
    /// If it cannot be deleted.
    pub fn remove(&self) -> Result<(), Error> {
        match self.folder.remove(&self.name()) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                let text = format!("{}: {}", self.path().display(), host::reason(&e));
                Err(Error::new(text))
            }
            _ => Ok(()),
        }
    }

    /// The error of an undo that has left the file in place.
    pub fn kept(&self, why: impl Into<String>) -> Error {
        Error::new(why).remedy(format!(
            "{} still says what to undo: quell {} --restore",
            self.path().display(),
            self.command.name
        ))
    }
}

/// The outcome of one state file's undo.
#[derive(Debug, PartialEq)]
pub enum UndoOutcome {
    /// The number of changes that were undone.
    Undone(usize),
    /// A running process has the file.
    Runs,
    /// It could not be undone.
    Failed(Error),
}

/// Reports the outcomes of [`Command::restore`] for these interfaces, or for all.
///
/// # Errors
/// The first failure.
pub fn report(
    command: Command,
    devs: &[String],
    done: Vec<(String, UndoOutcome)>,
    (noun, done_to): (&str, &str),
    say: &dyn Fn(&str),
) -> Result<(), Error> {
    let command = command.name;
    let mut failed = None;
    let nothing = done.is_empty();
    for (dev, outcome) in done {
        let line = match outcome {
            UndoOutcome::Undone(count) => {
                format!("{dev}: {} {done_to}", counted(count as u64, noun))
            }
            UndoOutcome::Runs if devs.is_empty() => {
                format!("{dev}: quell {command} still runs on it; left as it is")
            }
            UndoOutcome::Runs => {
                let what = format!("quell {command} still runs on {dev}");
                let error = Error::new(what).key("--restore");
                failed.get_or_insert(error.remedy("stop it, which restores all"));
                continue;
            }
            UndoOutcome::Failed(error) => {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::thread;
    use std::time::{Duration, Instant, SystemTime};

    use super::*;

    const TEST: Command = Command {
        name: "test",
        look: "nothing",
        service: None,
        location: CHANGES,
    };

    /// Makes a temporary folder with a state file.
    fn made(name: &str) -> (PathBuf, StateFile) {
        let path = std::env::temp_dir().join(format!("quell-state-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .expect("a folder");
        (path.clone(), taken(&path).expect("taken").expect("free"))
    }

    fn taken(path: &Path) -> Result<Option<StateFile>, Error> {
        let folder = Folder::open(CHANGES, path, false).expect("opened")?;
        TEST.take(Arc::new(folder), "file".to_owned())
    }

    #[test]
    fn a_file_is_one_process_and_comes_as_a_whole() {
        let (path, file) = made("whole");
        assert!(taken(&path).expect("asked").is_none(), "it is held");
        assert_eq!(file.read_text().expect("none"), None);
        file.try_text(b"[1]").expect("room");
        let large = vec![b' '; 17 << 20];
        let why = file.try_text(&large).expect_err("too large").to_string();
        assert!(why.contains("may have 16777216 bytes"), "{why}");
        assert_eq!(file.read_text().expect("none"), None);
        file.write(&[1, 2]).expect("written");
        fs::write(path.join("file.part"), "of a killed process").expect("part");
        file.write(&[3]).expect("written");
        assert_eq!(file.read_text().expect("it"), Some("[3]".to_owned()));
        let mode = fs::metadata(file.path()).expect("it").mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(file);
        let file = taken(&path).expect("asked").expect("free again");
        file.remove().expect("removed");
        file.remove().expect("removed before");
        let left: Vec<_> = fs::read_dir(&path).expect("it").flatten().collect();
        assert_eq!(left.len(), 1, "the lock stays: {left:?}");
        fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn parts_of_killed_processes_are_removed_and_those_of_others_stay() {
        let (path, held) = made("parts");
        for name in ["file", "eth0", "eth1@1:10", "eth2"] {
            fs::write(path.join(format!("{name}.part")), "[").expect("written");
        }
        // Names that are not of this command's state files, links and folders.
        fs::write(path.join("a b.part"), "[").expect("written");
        symlink("a b.part", path.join("eth3.part")).expect("a link");
        fs::create_dir(path.join("eth4.part")).expect("a folder");
        let folder = || Folder::open(CHANGES, &path, false).expect("opened");
        let left = || {
            let mut left = folder().expect("ours").subjects("", ".part");
            left.sort();
            left
        };
        let remove = |devs: &[&str]| {
            let devs: Vec<_> = devs.iter().map(|dev| (*dev).to_owned()).collect();
            TEST.remove_parts(&Arc::new(folder().expect("ours")), "", &devs);
            left()
        };
        assert_eq!(remove(&["eth1"]), ["eth0", "eth2", "eth3", "eth4", "file"]);
        assert_eq!(remove(&[]), ["eth4", "file"], "one is held, one no file");
        assert!(path.join("a b.part").exists());
        drop(held);
        // A process that another test starts has a copy of the lock until its program is executed.
        let until = Instant::now() + Duration::from_secs(10);
        while remove(&[]) != ["eth4"] && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(left(), ["eth4"]);
        fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn of_the_files_under_a_lock_those_written_last_are_kept() {
        let (path, lock) = made("pruned");
        let files: Vec<_> = (0..5u32).map(|n| lock.about(&n.to_string())).collect();
        for (age, file) in files.iter().enumerate() {
            file.write(&[age]).expect("written");
            let written = SystemTime::UNIX_EPOCH + Duration::from_secs(age as u64);
            let opened = File::open(file.path()).expect("it");
            opened.set_modified(written).expect("set");
        }
        files[1].set_aside().expect("renamed");
        let others = [
            "file-0.safetensors",
            "file-0123456789abcdef-egress.json",
            "a",
        ];
        for other in others {
            fs::write(path.join(other), "of another").expect("written");
        }
        let left = |file: &StateFile| file.read_text().expect("read").is_some();
        lock.prune(&files[4], 5);
        assert_eq!(fs::read_dir(&path).expect("it").count(), 5 + 1 + 3);
        // The clock may have been set back.
        lock.prune(&files[0], 3);
        let left: Vec<_> = files.iter().map(left).collect();
        assert_eq!(left, [true, false, false, true, true]);
        assert_eq!(fs::read_dir(&path).expect("it").count(), 3 + 1 + 3);
        drop(lock);
        fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn links_pipes_and_files_of_others_are_refused() {
        let (path, file) = made("refused");
        let said = || file.read_text().expect_err("refused").to_string();
        fs::write(path.join("secret"), "secret").expect("written");
        symlink("secret", file.path()).expect("a link");
        assert!(said().contains("is a link"), "{}", said());
        // It replaces a link, and does not change the link's target.
        symlink("secret", path.join("file.part")).expect("a link");
        file.write(&[1]).expect("written");
        let secret = fs::read_to_string(path.join("secret")).expect("it");
        assert_eq!(
            (secret.as_str(), file.read_text().expect("it").as_deref()),
            ("secret", Some("[1]"))
        );
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o666)).expect("set");
        assert!(said().contains("other users can write to it"), "{}", said());
        fs::write(file.path(), vec![b' '; 17 << 20]).expect("written");
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).expect("set");
        assert!(said().contains("is too large"), "{}", said());
        fs::write(file.path(), [0xff]).expect("written");
        assert!(said().contains("then delete it"), "{}", said());
        drop(file);
        fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused_with_the_remedy() {
        let (path, file) = made("folder");
        drop(file);
        let said = |path: &Path| taken(path).expect_err("refused").to_string();
        for mode in [0o777, 0o1777, 0o770, 0o720, 0o702] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            let why = said(&path);
            assert!(
                why.contains(&format!(
                    "(mode {mode:o}); name a folder of your own in $RUNTIME_DIRECTORY"
                )),
                "{why}"
            );
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
        let link = path.with_extension("link");
        symlink(&path, &link).expect("a link");
        assert!(said(&link).contains("is a link"), "{}", said(&link));
        let followed = Folder::open(CHANGES, &link, true).expect("opened");
        assert!(followed.is_ok(), "where systemd makes it");
        fs::remove_file(link).expect("removed");
        fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn names_are_those_of_interfaces() {
        for name in ["eth0", "eth0.5", "eth0@1:10", "$(id)", "-x", "\u{e4}"] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            "a/b",
            "../x",
            "a b",
            "a\nb",
            "\u{1b}[2J",
            "\0",
            &"a".repeat(41),
        ] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}

/// Hostile state files, for tests.
#[cfg(test)]
pub(crate) mod hostile {
    use serde_json::{Value, json};

    use super::State;

    /// Replaces each value of a state by hostile ones; returns those that were accepted.
    pub fn accepted<S: State>(state: &Value) -> Vec<String> {
        assert!(is_state::<S>(state), "the state itself");
        let mut found = Vec::new();
        for place in places(state) {
            for value in values() {
                let mut other = state.clone();
                let at = other.pointer_mut(&place).expect("a place");
                // Another number or boolean of the same type is valid, too.
                if at.is_number() && value.is_u64() || at.is_boolean() && value.is_boolean() {
                    continue;
                }
                *at = value.clone();
                if is_state::<S>(&other) {
                    found.push(format!("{place}: {value}"));
                }
            }
            let mut more = state.clone();
            if let Some(object) = more.pointer_mut(&place).and_then(Value::as_object_mut) {
                object.insert("run".to_owned(), json!("sh"));
                if is_state::<S>(&more) {
                    found.push(format!("{place}: another key"));
                }
            }
        }
        found
    }

    fn is_state<S: State>(text: &Value) -> bool {
        let read = serde_json::from_str::<S>(&text.to_string());
        read.is_ok_and(|state| state.check().is_ok())
    }

    fn values() -> Vec<Value> {
        let texts = ["", "/", "a/../b", "x; id > F", "$(id)", "a\nb", "EVIL"];
        let mut values = texts.map(Value::from).to_vec();
        values.extend([
            json!(null),
            json!(-1),
            json!(1e300),
            json!({"a": 1}),
            json!(true),
        ]);
        values.extend([
            json!(7),
            json!([256]),
            json!(["EVIL"]),
            json!(vec![0; 5000]),
        ]);
        values
    }

    /// JSON pointers to all values in it.
    fn places(of: &Value) -> Vec<String> {
        let below: Vec<(String, &Value)> = match of {
            Value::Object(all) => all
                .iter()
                .map(|(key, value)| (key.clone(), value))
                .collect(),
            Value::Array(all) => {
                let all = all.iter().enumerate();
                all.map(|(at, value)| (at.to_string(), value)).collect()
            }
            _ => Vec::new(),
        };
        let mut found = vec![String::new()];
        for (key, value) in below {
            found.extend(
                places(value)
                    .into_iter()
                    .map(|place| format!("/{key}{place}")),
            );
        }
        found
    }
}
