//! A state file: written atomically, checked when it is read.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use quell_link::Error;
use serde::Serialize;

use super::folder::Folder;
use super::{Command, State, no_state};
use crate::system::{host, sys};

/// Largest state file, bytes. A tree of several thousand classes takes 200 bytes per class.
const MAX_BYTES: u64 = 16 << 20;
/// Hexadecimal digits of the hash in the names of files that share a lock.
const DIGITS: usize = 16;

/// The state file of an interface, locked against other processes until this value is dropped.
#[derive(Debug)]
pub struct StateFile {
    pub(super) command: Command,
    pub(super) folder: Arc<Folder>,
    /// File name without the extension.
    pub(super) stem: String,
    pub(super) _lock: Option<File>,
}

impl StateFile {
    pub(super) fn file(&self, extension: &str) -> String {
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
            // The stem may contain dots, as in `eth0.100`.
            let (hash, _) = name
                .strip_prefix(&self.stem)?
                .strip_prefix('-')?
                .split_once('.')?;
            let is_hash = hash.len() == DIGITS && hash.bytes().all(|b| b.is_ascii_hexdigit());
            is_hash.then(|| format!("{}-{hash}", self.stem))
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

    /// As [`Self::write`], but without waiting for the disk: a system failure that loses the file
    /// undoes the recorded change, too.
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

    /// As [`Self::write`], with any content, such as text from Python.
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
            let what = format!("{}: is not a state file ({why})", self.path().display());
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
