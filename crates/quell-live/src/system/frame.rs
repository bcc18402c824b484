//! Text that is redrawn in the same place of a terminal, and sparklines in it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use quell_qdisc::num;

use super::bounded_writer::{BoundedWriter, Wait};

/// Longest history, in updates.
pub const HISTORY: usize = 60;
/// Values of the last updates; `None` where there was none.
pub type History = VecDeque<Option<f64>>;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const PLAIN_BARS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// The lines of a terminal in which a text is redrawn.
#[derive(Debug, Default)]
pub struct Frame {
    /// Number of lines drawn last.
    lines: usize,
}

impl Frame {
    /// A frame in which nothing is drawn yet.
    pub const fn new() -> Self {
        Self { lines: 0 }
    }

    /// Draws a text over the previous one.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn draw(&mut self, out: &mut impl Write, text: &str) -> io::Result<()> {
        let mut whole = self.begin();
        for line in text.lines() {
            whole += line;
            whole += "\x1b[K\n";
        }
        // Erases the rest of a longer text.
        whole += "\x1b[J";
        self.lines = text.lines().count();
        out.write_all(whole.as_bytes())?;
        out.flush()
    }

    /// Erases the text, so that other output can take its place.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn clear(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.lines == 0 {
            return Ok(());
        }
        let whole = self.begin() + "\x1b[J";
        self.lines = 0;
        out.write_all(whole.as_bytes())
    }

    /// Control sequence that moves to the first line.
    fn begin(&self) -> String {
        match self.lines {
            0 => "\r".to_owned(),
            lines => format!("\x1b[{lines}A\r"),
        }
    }
}

/// Characters for bars.
#[derive(Clone, Copy, Debug)]
pub struct Bars([char; 8]);

impl Bars {
    /// Block characters if the locale is UTF-8, else ASCII.
    pub fn of_locale() -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(|name| std::env::var(name).ok());
        let locale = locale.into_iter().flatten().find(|value| !value.is_empty());
        let utf8 = locale.is_some_and(|l| l.to_ascii_lowercase().replace('-', "").contains("utf8"));
        Self(if utf8 { BARS } else { PLAIN_BARS })
    }

    /// The last values, at most `room`, as bars scaled to the history's maximum. Only zero has the
    /// lowest bar; a missing value is a space.
    pub fn line(self, history: &History, room: usize) -> String {
        let most = history.iter().flatten().copied().fold(0.0, f64::max);
        let last = (self.0.len() - 1) as f64;
        let bar = |value: &Option<f64>| match value {
            // In this order of operations the greatest value gives exactly 1, and the last bar.
            Some(value) if most > 0.0 => self.0[num::whole_usize((value / most * last).ceil())],
            Some(_) => self.0[0],
            None => ' ',
        };
        let first = history.len().saturating_sub(room);
        history.iter().skip(first).map(bar).collect()
    }
}

/// Adds a value to a history of at most [`HISTORY`] values.
pub fn keep(history: &mut History, value: Option<f64>) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(value);
}

/// The frame on standard error. Messages appear above it.
static FRAME: Mutex<Frame> = Mutex::new(Frame::new());

/// Erases the frame on standard error, so that a message can take its place; the next update draws
/// the frame below.
///
/// # Errors
/// If the terminal is gone.
pub fn clear() -> io::Result<()> {
    on_frame(|frame, out| frame.clear(out))
}

/// Calls `act` with the frame on standard error.
///
/// # Errors
/// If the terminal is gone.
pub fn on_frame(
    act: impl FnOnce(&mut Frame, &mut BoundedWriter<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut frame = FRAME.lock().unwrap_or_else(PoisonError::into_inner);
    let err = io::stderr().lock();
    unless_stopped(act(
        &mut frame,
        &mut BoundedWriter::new(err.as_fd(), Wait::No),
    ))
}

/// The result of drawing, but without the error that the terminal has no room, as after Ctrl-S:
/// that update is skipped.
///
/// # Errors
/// If the terminal is gone.
pub fn unless_stopped(drawn: io::Result<()>) -> io::Result<()> {
    match drawn {
        Err(e) if e.kind() == ErrorKind::TimedOut => Ok(()),
        drawn => drawn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_has_the_highest_bar() {
        for i in 1..100_000 {
            let history = History::from([Some(0.0), Some(f64::from(i) * 0.001_003)]);
            assert_eq!(
                Bars(PLAIN_BARS).line(&history, 9).chars().last(),
                Some(PLAIN_BARS[7])
            );
        }
    }

    #[test]
    fn a_text_replaces_the_previous_one() {
        let (mut frame, mut out) = (Frame::default(), Vec::new());
        frame.draw(&mut out, "a\nb\n").unwrap();
        frame.draw(&mut out, "c\n").unwrap();
        frame.clear(&mut out).unwrap();
        frame.clear(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "\ra\x1b[K\nb\x1b[K\n\x1b[J\x1b[2A\rc\x1b[K\n\x1b[J\x1b[1A\r\x1b[J"
        );
    }

    #[test]
    fn bars_reach_to_the_maximum_and_show_whatever_is_not_zero() {
        let bars = Bars(PLAIN_BARS);
        let history = History::from([9.0, 0.0, 0.001, 3.5, 7.0].map(Some));
        assert_eq!(bars.line(&history, 4), "_.-*");
        assert_eq!(bars.line(&history, 9), "#_.-*");
        assert_eq!(bars.line(&History::from([Some(0.0); 2]), 9), "__");
        let idle = History::from([Some(2.0), None, Some(0.0), None]);
        assert_eq!(bars.line(&idle, 9), "# _ ");
    }
}
