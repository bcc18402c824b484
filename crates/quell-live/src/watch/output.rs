//! Output of lines: standard output, or a file that is rotated by size or age. A file always ends
//! in a whole line.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use quell_link::Error;
use quell_link::units::{parse_size, parse_time};
use quell_qdisc::time::{Duration, Instant, SEC};

use super::lines::Format;
use crate::system::bounded_writer::{BoundedWriter, Wait};
use crate::system::host::{self, Signals};

/// Buffered bytes after which a file is written.
const ROOM: usize = 64 << 10;
/// Longest time that a line waits in the buffer.
const MAX_AGE: Duration = SEC;

/// When a file is finished and the next one started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotate {
    /// Never.
    Never,
    /// At this size, bytes.
    Size(u64),
    /// At this age.
    Age(Duration),
}

impl Rotate {
    /// Parses a size or a time, as in `100mb` or `1h`.
    ///
    /// # Errors
    /// If it is neither a time nor a size, or too small.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::new(format!("\"{text}\" is neither a size nor a time"))
                .remedy("write a size from 64kb, as 100mb, or a time from 1s, as 600s")
        };
        match (parse_time(text), parse_size(text)) {
            (Ok(age), _) if age >= MAX_AGE => Ok(Self::Age(age)),
            (Err(_), Ok(size)) if size >= ROOM as u64 => Ok(Self::Size(size)),
            _ => Err(wrong()),
        }
    }
}

/// Receives the path of each finished file.
pub type Finished<'a> = &'a mut dyn FnMut(&Path);

/// Buffered lines and their target.
pub struct Output<'a> {
    format: Format,
    buffer: Vec<u8>,
    /// Time of the first line in the buffer.
    since: Option<Instant>,
    target: Target<'a>,
    /// What has happened to the file, not yet reported.
    note: Option<String>,
}

enum Target<'a> {
    /// Standard output. Writing waits for its reader until one of these signals arrives.
    Standard(&'a Signals),
    File(Files<'a>),
}

struct Files<'a> {
    path: PathBuf,
    file: File,
    /// Bytes written, all of them whole lines.
    written: u64,
    begun: Instant,
    rotate: Rotate,
    /// Number of finished files that are kept; `None`: all.
    keep: Option<usize>,
    number: u64,
    done: VecDeque<PathBuf>,
    finished: Finished<'a>,
}

impl<'a> Output<'a> {
    /// Output to standard output, each sample at once. A signal ends the wait for a reader that has
    /// stopped.
    pub fn standard(format: Format, signals: &'a Signals) -> Self {
        Self {
            format,
            buffer: format.heading().into_bytes(),
            since: Some(Instant::ZERO),
            target: Target::Standard(signals),
            note: None,
        }
    }

    /// Output to a file, whose extension selects the format. Finished files are named `out.1.csv`
    /// and so on.
    ///
    /// # Errors
    /// If the extension is unknown, or the file cannot be created.
    pub fn file(
        path: &Path,
        rotate: Rotate,
        keep: Option<usize>,
        now: Instant,
        finished: Finished<'a>,
    ) -> Result<Self, Error> {
        let format = match path.extension().and_then(|e| e.to_str()) {
            Some("csv") => Format::Csv,
            Some("jsonl") => Format::Json,
            _ => {
                return Err(Error::new("the name must end in .csv or .jsonl")
                    .key(format!("--out {}", path.display())));
            }
        };
        let file = host::open_output(path).map_err(|e| failed(path, &e))?;
        let files = Files {
            path: path.to_owned(),
            file,
            written: 0,
            begun: now,
            rotate,
            keep,
            number: 0,
            done: VecDeque::new(),
            finished,
        };
        Ok(Self {
            format,
            buffer: format.heading().into_bytes(),
            since: None,
            target: Target::File(files),
            note: None,
        })
    }

    /// What has happened to the file since the last call.
    pub fn note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// The format of lines, and the buffer to append them to.
    pub fn line(&mut self) -> (Format, &mut Vec<u8>) {
        (self.format, &mut self.buffer)
    }

    /// Ends a sample: writes what is due. [`is_unread`] recognises the error of a standard output
    /// without a reader.
    ///
    /// # Errors
    /// If the lines cannot be written.
    pub fn turn(&mut self, now: Instant) -> io::Result<()> {
        let since = *self.since.get_or_insert(now);
        let age = now.saturating_since(since);
        let due = match &self.target {
            Target::Standard(_) => true,
            Target::File(_) => self.buffer.len() >= ROOM || age >= MAX_AGE,
        };
        if due {
            self.flush()?;
            if let Target::File(files) = &mut self.target
                && files.due(now)
            {
                self.buffer.extend(self.format.heading().into_bytes());
                files.next(now)?;
            }
        }
        Ok(())
    }

    /// Writes the remaining lines, and finishes the file. Returns what has happened to the file.
    ///
    /// # Errors
    /// If the lines cannot be written.
    pub fn end(mut self) -> Result<Option<String>, Error> {
        match self.flush() {
            Err(e) if is_unread(&e) => return Ok(None),
            Err(e) => return Err(self.explain(&e)),
            Ok(()) => {}
        }
        if let Target::File(files) = self.target {
            (files.finished)(&files.path);
        }
        Ok(self.note)
    }

    /// The message for an error in writing.
    pub fn explain(&self, error: &io::Error) -> Error {
        match &self.target {
            Target::Standard(_) => Error::new(format!("standard output: {}", host::reason(error))),
            // The error says what is wrong with the file that is at the path now.
            Target::File(files) if error.kind() == ErrorKind::Other => failed(&files.path, error),
            Target::File(files) => failed(&files.path, error)
                .remedy(format!("its {} bytes are whole lines", files.written)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.since = None;
        match &mut self.target {
            Target::Standard(signals) => {
                let out = io::stdout().lock();
                let wait = Wait::Until(signals.as_fd());
                BoundedWriter::new(out.as_fd(), wait).write_all(&self.buffer)?;
            }
            Target::File(files) => {
                if files.is_gone()? {
                    let (path, bytes) = (files.path.display(), files.written);
                    self.note = Some(format!(
                        "{path} was moved or deleted, with {bytes} bytes; a new one has what follows"
                    ));
                    files.reopen()?;
                    files.append(self.format.heading().as_bytes())?;
                }
                files.append(&self.buffer)?;
            }
        }
        self.buffer.clear();
        Ok(())
    }
}

impl Files<'_> {
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(lines);
        match written {
            Ok(()) => self.written += lines.len() as u64,
            // On a full disk the write may end within a line, so the file is truncated to its whole
            // lines. A pipe cannot be truncated.
            Err(_) => drop(self.file.set_len(self.written)),
        }
        written
    }

    /// Whether the file is no longer at its path, so that what is written could be lost.
    fn is_gone(&self) -> io::Result<bool> {
        let file = self.file.metadata()?;
        let here = |at: &fs::Metadata| (at.dev(), at.ino()) == (file.dev(), file.ino());
        match fs::symlink_metadata(&self.path) {
            // The name of a pipe may be deleted as soon as both ends are open.
            _ if !file.is_file() => Ok(false),
            Ok(at) if here(&at) => Ok(false),
            Ok(_) => Err(io::Error::other("another file has taken its place")),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(true),
            Err(e) => Err(e),
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.file = host::open_output(&self.path)?;
        self.written = 0;
        Ok(())
    }

    /// Whether the file is to be finished.
    fn due(&self, now: Instant) -> bool {
        match self.rotate {
            Rotate::Never => false,
            Rotate::Size(size) => self.written >= size,
            Rotate::Age(age) => now.saturating_since(self.begun) >= age,
        }
    }

    /// `out.3.csv` beside `out.csv`.
    fn piece(&self, number: u64) -> PathBuf {
        let end = self.path.extension().unwrap_or_default();
        let mut name = number.to_string();
        name.push('.');
        name.push_str(&end.to_string_lossy());
        self.path.with_extension(name)
    }

    /// Finishes the file, which gets a number, and starts the next one.
    fn next(&mut self, now: Instant) -> io::Result<()> {
        self.number += 1;
        // Files of an earlier run are kept. With `--keep` their numbers do not start at 1, so each
        // number is tried.
        while self.piece(self.number).exists() {
            self.number += 1;
        }
        let piece = self.piece(self.number);
        std::fs::rename(&self.path, &piece)?;
        self.reopen()?;
        self.begun = now;
        (self.finished)(&piece);
        self.done.push_back(piece);
        if let Some(keep) = self.keep
            && self.done.len() > keep
            && let Some(oldest) = self.done.pop_front()
        {
            // The operator may have moved or deleted it.
            let _ = std::fs::remove_file(oldest);
        }
        Ok(())
    }
}

/// Whether the reader of standard output has closed it, or had not read a line when a signal came.
pub fn is_unread(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::TimedOut)
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::new(format!("cannot be written: {}", host::reason(error)))
        .key(format!("--out {}", path.display()))
}
