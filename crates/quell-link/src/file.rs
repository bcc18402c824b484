//! Reads plain files and pipes that a user names, with a size limit per kind of file and a timeout.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;
use std::time::{Duration, Instant};

/// Largest scenario file, bytes.
pub const SCENARIO: u64 = 1 << 20;
/// Largest network or table, bytes.
pub const MODEL: u64 = 64 << 20;
/// Largest trace, and largest file of result records, bytes.
pub const TRACE: u64 = 256 << 20;

/// Timeout of a silent pipe.
const PIPE_TIMEOUT: Duration = Duration::from_secs(10);
/// Polling interval of a silent pipe.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Reads the file at `path`, if it has at most `max` bytes.
///
/// # Errors
/// If it cannot be read, is longer, is neither a plain file nor a pipe, or is a pipe that times
/// out.
pub fn read(path: &Path, max: u64) -> Result<Vec<u8>> {
    read_with_timeout(path, max, PIPE_TIMEOUT)
}

/// Reads the file at `path` like [`read`], but refuses pipes: the caller is a loop over packets,
/// which cannot wait.
///
/// # Errors
/// If it cannot be read, is longer or is not a plain file.
pub fn read_plain(path: &Path, max: u64) -> Result<Vec<u8>> {
    check_plain(&std::fs::metadata(path)?, max)?;
    let file = open(path)?;
    check_plain(&file.metadata()?, max)?;
    read_open(file, max)
}

fn check_plain(about: &Metadata, max: u64) -> Result<()> {
    match is_pipe(about) {
        true => Err(Error::other("it is a pipe; name a plain file")),
        false => check(about, max),
    }
}

fn read_with_timeout(path: &Path, max: u64, timeout: Duration) -> Result<Vec<u8>> {
    // Opening a device may have side effects, so the type is also checked before opening.
    check(&std::fs::metadata(path)?, max)?;
    let file = open(path)?;
    let about = file.metadata()?;
    check(&about, max)?;
    if about.is_file() {
        return read_open(file, max);
    }
    let mut bytes = Vec::new();
    read_pipe(file, max, timeout, &mut bytes)?;
    bounded(bytes, max)
}

fn read_open(file: File, max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    // Files in /proc do not report their length.
    bounded(bytes, max)
}

fn bounded(bytes: Vec<u8>, max: u64) -> Result<Vec<u8>> {
    match bytes.len() as u64 > max {
        true => Err(too_long(max)),
        false => Ok(bytes),
    }
}

fn check(about: &Metadata, max: u64) -> Result<()> {
    if about.is_file() {
        return match about.len() > max {
            true => Err(too_long(max)),
            false => Ok(()),
        };
    }
    if is_pipe(about) {
        return Ok(());
    }
    let kind = match about.is_dir() {
        true => "folder",
        false if is_socket(about) => "socket",
        false => "device",
    };
    Err(Error::other(format!(
        "it is a {kind}; name a plain file or a pipe"
    )))
}

fn too_long(max: u64) -> Error {
    Error::other(format!("it is longer than {} MiB", max >> 20))
}

#[cfg(unix)]
fn is_pipe(about: &Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    about.file_type().is_fifo()
}

#[cfg(not(unix))]
fn is_pipe(_: &Metadata) -> bool {
    false
}

#[cfg(unix)]
fn is_socket(about: &Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    about.file_type().is_socket()
}

#[cfg(not(unix))]
fn is_socket(_: &Metadata) -> bool {
    false
}

/// Opens a file without waiting for the writer of a pipe.
fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(libc::O_NONBLOCK);
    }
    options.read(true).open(path)
}

fn read_pipe(mut file: File, max: u64, timeout: Duration, bytes: &mut Vec<u8>) -> Result<()> {
    let mut chunk = vec![0; 1 << 16];
    let mut last_read = Instant::now();
    while bytes.len() as u64 <= max {
        match file.read(&mut chunk) {
            // End of file before the first byte: no process has opened the pipe for writing yet.
            Ok(0) if !bytes.is_empty() => break,
            Ok(0) => {}
            Ok(n) => {
                bytes.extend_from_slice(&chunk[..n]);
                last_read = Instant::now();
                continue;
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
        if last_read.elapsed() > timeout {
            let seconds = timeout.as_secs();
            let what = format!("nothing came from this pipe for {seconds} s");
            return Err(Error::new(ErrorKind::TimedOut, what));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("quell-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        folder
    }

    fn why(path: &Path, max: u64) -> String {
        read_with_timeout(path, max, Duration::from_millis(50))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_file_is_read_up_to_its_bound_and_refused_before_it_is_read_beyond() {
        let folder = folder("bounds");
        let path = folder.join("file");
        std::fs::write(&path, [7; 100]).unwrap();
        assert_eq!(read(&path, 100).unwrap(), [7; 100]);
        // A sparse file, which takes no space on disk.
        let huge = File::create(&path).unwrap();
        huge.set_len(1 << 40).unwrap();
        assert_eq!(why(&path, 4 << 20), "it is longer than 4 MiB");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn devices_sockets_and_folders_are_refused() {
        let device = "it is a device; name a plain file or a pipe";
        assert_eq!(why(Path::new("/dev/zero"), 1), device);
        let folder = "it is a folder; name a plain file or a pipe";
        assert_eq!(why(Path::new("/"), 1), folder);
        let name = format!("quell-socket-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let socket = "it is a socket; name a plain file or a pipe";
        assert_eq!(why(&path, 1), socket);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_of_unknown_length_is_bounded_while_it_is_read() {
        if Path::new("/proc/self/status").exists() {
            assert!(why(Path::new("/proc/self/status"), 10).starts_with("it is longer"));
        }
    }

    #[test]
    fn a_pipe_is_read_to_its_end_but_not_without_end_and_not_for_ever() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        assert_eq!(why(&path, 10), "nothing came from this pipe for 0 s");
        writer.write_all(&[1; 1000]).unwrap();
        assert_eq!(why(&path, 999), "it is longer than 0 MiB");
        writer.write_all(&[2; 5]).unwrap();
        drop(writer);
        let refused = read_plain(&path, 5).unwrap_err().to_string();
        assert_eq!(refused, "it is a pipe; name a plain file");
        assert_eq!(read(&path, 5).unwrap(), [2; 5]);
    }
}
