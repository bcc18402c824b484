//! The folder of state files, opened once; files are opened below its descriptor.

use std::ffi::{CString, c_int};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use quell_link::Error;

use super::{CHANGES, Location, is_name, no_state};
use crate::system::sys;

/// Umask with which folder and files are made: the owner must be able to read them, since
/// `quell live` has dropped the capability to ignore file modes.
pub(super) const UMASK: u32 = 0o022;
/// Most files that are read in a folder where another user can create any number.
const MAX_FOREIGN: usize = 256;

/// An open folder of state files.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) fd: OwnedFd,
    /// Whether it is the folder of a service, whose user can write anything there.
    pub(super) foreign: bool,
}

impl Folder {
    /// Opens a folder that belongs to root or this user and that no other user can write to.
    ///
    /// # Errors
    /// The outer error if the folder cannot be opened, the inner one if other users can write to
    /// it.
    pub(super) fn open(
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
    pub(super) fn of_service(location: &Location, path: &Path) -> Result<Option<Self>, Error> {
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
    pub(super) fn names(&self, prefix: &str) -> Vec<String> {
        self.subjects(prefix, ".json")
    }

    /// The subjects of files with this prefix and this suffix.
    pub(super) fn subjects(&self, prefix: &str, end: &str) -> Vec<String> {
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

    /// Flag for opening a file that may be missing: O_CREAT, or 0 in another user's folder.
    pub(super) fn create(&self) -> c_int {
        if self.foreign { 0 } else { libc::O_CREAT }
    }

    /// Opens a regular file, not a link. In this user's own folder, other users must not be able to
    /// write to it.
    pub(super) fn open_file(&self, name: &str, flags: c_int) -> io::Result<File> {
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
            invalid("is not a regular file")
        } else if !ours && !self.foreign {
            invalid("other users can write to it")
        } else {
            Ok(fd)
        }
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        sys::unlink_at(self.fd.as_fd(), &CString::new(name)?)
    }
}
