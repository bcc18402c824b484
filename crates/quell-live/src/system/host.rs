//! Queries of this machine: interfaces, files, signals, locks.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use quell_link::Error;
use quell_qdisc::num;
use quell_qdisc::rate::Rate;

use super::{bounded_writer, sys};

/// SO_NETNS_COOKIE (asm-generic/socket.h), since Linux 5.14.
const NETNS_COOKIE: c_int = 71;

/// Stack of a thread, bytes: the standard library's default.
const STACK: usize = 2 << 20;

/// CAP_NET_ADMIN and CAP_NET_RAW (linux/capability.h).
pub const NET_ADMIN: u32 = 12;
pub const NET_RAW: u32 = 13;

/// The text of an error without its number.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Reads a regular file of at most `most` bytes. FIFOs and devices, which might block forever, are
/// refused.
pub fn read_regular(path: &Path, most: u64) -> Result<String, Error> {
    let no = |e: io::Error| Error::new(reason(&e));
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map_err(no)?;
    if !file.metadata().map_err(no)?.is_file() {
        return Err(Error::new("is not a regular file").remedy("name a file"));
    }
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text).map_err(no)?;
    match text.len() as u64 > most {
        true => Err(Error::new(format!("is larger than {most} bytes")).remedy("name another file")),
        false => Ok(text),
    }
}

/// Opens an output file, empties it, and locks it against other processes. In a folder that all
/// users can write to, another user may have placed a symbolic or hard link, so that another file
/// is overwritten, or a pipe without a reader; these are refused.
///
/// # Errors
/// If it cannot be opened, is such a file, or is locked by another process.
pub fn open_output(path: &Path) -> io::Result<File> {
    let own = |m: &Metadata| m.uid() == sys::identity().0;
    let own_pipe = |m: &Metadata| m.file_type().is_fifo() && own(m);
    // Opening one's own pipe waits for its reader.
    let pipe = fs::symlink_metadata(path).is_ok_and(|m| own_pipe(&m));
    let wait = if pipe { 0 } else { libc::O_NONBLOCK };
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | wait)
        .open(path)
        .map_err(|e| match e.raw_os_error() {
            Some(libc::ELOOP) => io::Error::other("it is a link; name the file that it leads to"),
            _ => e,
        })?;
    let found = file.metadata()?;
    if own_pipe(&found) {
        return Ok(file);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let open_to_all = fs::metadata(folder.unwrap_or(Path::new(".")))?.mode() & 0o002 != 0;
    let wrong = if !found.is_file() {
        Some("it is not a plain file; name another file")
    } else if found.nlink() > 1 {
        Some("it has more than one name (hard links); name another file")
    } else if open_to_all && !own(&found) {
        Some("it belongs to another user, in a folder where all may write; name another file")
    } else if matches!(lock(file.as_fd()), Ok(false)) {
        Some("another process writes it; name another file")
    } else {
        None
    };
    match wrong {
        Some(why) => Err(io::Error::other(why)),
        None => file.set_len(0).map(|()| file),
    }
}

/// The kernel's cookie of this network namespace, which is unique since the system start.
pub fn namespace() -> io::Result<u64> {
    let socket = sys::socket(libc::AF_UNIX)?;
    let mut cookie = 0u64;
    let mut size = num::count(size_of_val(&cookie));
    // SAFETY: the kernel fills a number of this size.
    let got = unsafe {
        let to = (&raw mut cookie).cast();
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            NETNS_COOKIE,
            to,
            &mut size,
        )
    };
    match got {
        0 => Ok(cookie),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A number that identifies this system start (from `boot_id` in random(4)); 0 if that cannot be
/// read.
pub fn boot() -> u64 {
    static BOOT: OnceLock<u64> = OnceLock::new();
    let read = || {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = id
            .chars()
            .filter(char::is_ascii_hexdigit)
            .take(16)
            .collect();
        u64::from_str_radix(&digits, 16).unwrap_or(0)
    };
    *BOOT.get_or_init(read)
}

/// Whether a state file that was written in the system start `then` (0: unknown) is from an earlier
/// one: `/run` may outlive a start, and devices have other indices now.
pub fn is_earlier(then: u64) -> bool {
    let now = boot();
    now != 0 && then != 0 && then != now
}

/// The index of an interface.
pub fn index(dev: &str) -> Option<u32> {
    let name = CString::new(dev).ok()?;
    // SAFETY: `name` ends in a NUL.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => None,
        index => Some(index),
    }
}

/// The index of an interface that the user named.
///
/// # Errors
/// If there is none of this name.
pub fn existing(dev: &str) -> Result<u32, Error> {
    index(dev).ok_or_else(|| {
        let names = format!("there are {}", names().join(", "));
        Error::new("there is no such interface")
            .key(dev)
            .remedy(names)
    })
}

/// The name of the interface with this index.
pub fn name(index: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the name fits, with its NUL.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    let bytes: Vec<u8> = name
        .iter()
        .take_while(|c| **c != 0)
        .map(|c| c.to_ne_bytes()[0])
        .collect();
    (!found.is_null()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether there is no interface with this index. False if the kernel cannot be asked, as when no
/// file can be opened.
pub fn is_gone(index: u32) -> bool {
    name(index).is_none() && matches!(sys::errno(), libc::ENXIO | libc::ENODEV)
}

/// The names of all interfaces.
pub fn names() -> Vec<String> {
    let mut found = Vec::new();
    // SAFETY: the list ends with an entry of index 0 and stays valid until it is freed; names end
    // in a NUL.
    unsafe {
        let list = libc::if_nameindex();
        let mut at = list;
        while !at.is_null() && (*at).if_index != 0 {
            let name = std::ffi::CStr::from_ptr((*at).if_name);
            found.push(name.to_string_lossy().into_owned());
            at = at.add(1);
        }
        if !list.is_null() {
            libc::if_freenameindex(list);
        }
    }
    found
}

/// The MTU of an interface, by an ioctl, since /sys may be that of another namespace.
pub fn mtu(dev: &str) -> io::Result<u32> {
    let answer = asked(dev, libc::SIOCGIFMTU)?;
    // SAFETY: SIOCGIFMTU fills ifru_mtu.
    let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
    Ok(mtu.max(0).cast_unsigned())
}

/// Length of the header before the IP header of an interface's packets: Ethernet's 14 bytes, or 0.
pub fn header(dev: &str) -> io::Result<u64> {
    let answer = asked(dev, libc::SIOCGIFHWADDR)?;
    // SAFETY: SIOCGIFHWADDR fills ifru_hwaddr.
    let family = unsafe { answer.ifr_ifru.ifru_hwaddr.sa_family };
    let has = matches!(family, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK);
    Ok(if has { 14 } else { 0 })
}

/// Sends a request about an interface that fills a field of an ifreq.
fn asked(dev: &str, request: libc::c_ulong) -> io::Result<libc::ifreq> {
    let name = CString::new(dev)?;
    let socket = sys::socket(libc::AF_INET)?;
    // SAFETY: zero is a valid ifreq, and the requests of the callers take one.
    unsafe {
        let mut answer: libc::ifreq = std::mem::zeroed();
        sys::copy_name(&mut answer.ifr_name, &name);
        sys::ioctl(socket.as_fd(), request, &mut answer)?;
        Ok(answer)
    }
}

/// The speed that an interface reports; `None` if it reports none, or if /sys is that of another
/// namespace.
pub fn speed(dev: &str) -> Option<Rate> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{dev}/speed")).ok()?;
    let megabits: i64 = text.trim().parse().ok()?;
    u64::try_from(megabits)
        .ok()
        .filter(|m| *m > 0)
        .map(Rate::from_mbit)
}

/// Whether two interfaces are in one bridge. False if /sys is that of another namespace.
pub fn bridged(one: &str, other: &str) -> bool {
    master(one).is_some_and(|bridge| Some(bridge) == master(other))
}

/// The folder in /sys of the bridge or bond to which an interface belongs.
fn master(dev: &str) -> Option<PathBuf> {
    fs::read_link(format!("/sys/class/net/{dev}/master")).ok()
}

/// The kind and name of the bridge or bond to which an interface belongs; `None` if /sys is that of
/// another namespace.
pub fn part_of(dev: &str) -> Option<(&'static str, String)> {
    let folder = Path::new("/sys/class/net").join(dev);
    let kinds = [("brport", "bridge"), ("bonding_slave", "bond")];
    let is = |(file, _): &(&str, &str)| folder.join(file).exists();
    let (_, kind) = kinds.into_iter().find(is)?;
    Some((
        kind,
        master(dev)?.file_name()?.to_string_lossy().into_owned(),
    ))
}

/// Number of an interface's receive queues; 1 if /sys is that of another namespace.
pub fn receive_queues(dev: &str) -> u32 {
    let files = std::fs::read_dir(format!("/sys/class/net/{dev}/queues"));
    let names = files
        .into_iter()
        .flatten()
        .flatten()
        .map(|file| file.file_name());
    let receive = names.filter(|name| name.as_encoded_bytes().starts_with(b"rx-"));
    num::count(receive.count()).max(1)
}

/// Locks a file for this process; false if another process has locked it.
pub fn lock(file: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: no pointers.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(true),
        _ if sys::errno() == libc::EWOULDBLOCK => Ok(false),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Marks the packets of a socket (`SO_MARK`).
pub fn mark(socket: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    let size = num::count(size_of_val(&mark));
    // SAFETY: the value outlives the call.
    let done = unsafe {
        let value = (&raw const mark).cast();
        let fd = socket.as_raw_fd();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_MARK, value, size)
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets signals at a program's start: SIGCHLD to its default, even if the caller ignores it, so
/// that children's exit statuses are available. SIGXFSZ is ignored, so that a file that exceeds
/// `ulimit -f` is a write error and does not end the program.
pub fn reset_signals() {
    // SAFETY: no handlers are installed.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// A builder for a thread whose stack does not depend on the environment (`RUST_MIN_STACK`).
pub fn thread(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.into()).stack_size(STACK)
}

/// Blocked signals that are read from a descriptor. Threads started afterwards have them blocked,
/// too.
pub struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks SIGTERM, SIGINT and SIGHUP from now on. SIGHUP stays ignored if the caller ignores it
    /// (`nohup`), unless it reloads the configuration (`reloads`). SIGTTOU is blocked, too, so that
    /// output does not stop a background job of a terminal (`stty tostop`). From now on writes must
    /// not block forever.
    pub fn hold(reloads: bool) -> io::Result<Self> {
        bounded_writer::prepare();
        // SAFETY: zero is a valid sigset_t to be filled; all sets outlive the calls. A descriptor
        // that was just opened has no other owner.
        unsafe {
            let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                if signal != libc::SIGHUP || reloads || !is_ignored(signal) {
                    libc::sigaddset(&mut set, signal);
                }
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            libc::sigaddset(&mut set, libc::SIGTTOU);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            let fd = OwnedFd::from_raw_fd(fd);
            Ok(Self { fd, before })
        }
    }

    /// The next pending signal, if there is one.
    pub fn next(&self) -> Option<c_int> {
        // SAFETY: zero is a valid signalfd_siginfo, which is valid for its size.
        unsafe {
            let mut info: libc::signalfd_siginfo = std::mem::zeroed();
            let size = size_of_val(&info);
            let got = libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size);
            (got == size.cast_signed()).then_some(info.ssi_signo.cast_signed())
        }
    }
}

impl AsFd for Signals {
    /// Readable when a signal is pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // The process is about to end, so signals since the last check are discarded. Unblocked,
        // they would kill the process before it writes its errors.
        while self.next().is_some() {}
        // SAFETY: the set is the one that pthread_sigmask gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Whether this process ignores a signal.
fn is_ignored(signal: c_int) -> bool {
    // SAFETY: zero is a valid sigaction, which the call fills.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(signal, std::ptr::null(), &mut action);
        asked == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Shuts a listening socket down, which wakes the threads that wait at it.
pub fn shutdown(socket: BorrowedFd<'_>) {
    // SAFETY: no pointers.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_was_not_read_does_not_kill_at_the_end() {
        let signals = Signals::hold(true).expect("signalfd");
        // SAFETY: no pointers; the signal goes to this thread, which blocks it.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
        drop(signals);
    }
}
