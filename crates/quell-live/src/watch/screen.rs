//! The live view: a table of queues in the terminal, each with a sparkline of its backlog.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::os::fd::AsFd;

use quell_qdisc::time::{Duration, Instant};

use super::sampler::Sample;
use crate::bpf::page::Gauges;
use crate::rtnetlink::message::{Handle, Key};
use crate::system::bounded_writer::{BoundedWriter, Wait};
use crate::system::frame::{self, Bars, Frame, HISTORY, History};
use crate::system::sys;

/// Time between two updates.
const STEP: Duration = Duration::from_millis(250);
/// Width of the table to the left of the sparkline, in columns.
const TABLE: usize = 67;

/// The table and what it shows.
pub struct Screen {
    order: Vec<Key>,
    queues: HashMap<Key, Shown>,
    drawn: Instant,
    frame: Frame,
    bars: Bars,
}

/// The row of a queue.
struct Shown {
    /// Device, handle and kind.
    name: String,
    bps: Option<f64>,
    packets: u32,
    sojourn_ms: Option<f64>,
    drops: u32,
    /// Largest backlog since the last update, packets.
    most: u32,
    history: History,
    /// Gauges of an attached queue, as text.
    gauges: Option<String>,
    seen: bool,
}

impl Screen {
    /// A table, if standard output is a terminal.
    pub fn new() -> Option<Self> {
        sys::terminal_size(io::stdout().as_fd())?;
        Some(Self {
            order: Vec::new(),
            queues: HashMap::new(),
            drawn: Instant::ZERO,
            frame: Frame::default(),
            bars: Bars::of_locale(),
        })
    }

    /// Records a sample.
    pub fn take(&mut self, sample: &Sample<'_>) {
        let (key, counters) = (sample.queue.key, &sample.queue.counters);
        let shown = self.queues.entry(key).or_insert_with(|| {
            self.order.push(key);
            Shown::new(sample)
        });
        shown.bps = sample.rates.bps;
        shown.packets = counters.backlog_packets;
        shown.sojourn_ms = sample.rates.sojourn_ms;
        shown.drops = counters.drops;
        shown.most = shown.most.max(counters.backlog_packets);
        shown.gauges = sample.gauges.as_ref().map(Gauges::describe);
        shown.seen = true;
    }

    /// Erases the table, so that a line can be printed in its place.
    pub fn clear(&mut self) {
        // If the terminal no longer exists, the next update reports it.
        let out = io::stdout().lock();
        let _ = self
            .frame
            .clear(&mut BoundedWriter::new(out.as_fd(), Wait::No));
    }

    /// Draws the table if an update is due.
    ///
    /// # Errors
    /// If the terminal no longer exists.
    pub fn turn(&mut self, now: Instant) -> io::Result<()> {
        if now.saturating_since(self.drawn) < STEP {
            return Ok(());
        }
        self.drawn = now;
        // Removes queues that were deleted since the last update.
        self.order.retain(|key| self.queues[key].seen);
        self.queues.retain(|_, shown| shown.seen);
        for shown in self.queues.values_mut() {
            shown.seen = false;
            let most = std::mem::take(&mut shown.most);
            frame::keep(&mut shown.history, Some(most.into()));
        }
        let out = io::stdout().lock();
        let size = sys::terminal_size(out.as_fd()).unwrap_or((80, 24));
        let text = self.table(size);
        let mut out = BoundedWriter::new(out.as_fd(), Wait::No);
        frame::unless_stopped(self.frame.draw(&mut out, &text))
    }

    fn table(&self, (columns, rows): (usize, usize)) -> String {
        let mut text = String::new();
        let fit = |line: String| line.chars().take(columns).collect::<String>();
        let title = format!(
            "{:<28} {:>9} {:>8} {:>9} {:>8}  backlog, last {} s",
            "queue",
            "Mbit/s",
            "packets",
            "sojourn",
            "drops",
            (HISTORY as u64 * STEP).as_secs()
        );
        let _ = writeln!(text, "{}", fit(title));
        // One line is for the title, one for the count of the rest, one for the cursor.
        let room = rows.saturating_sub(3).max(1);
        let mut lines = 0;
        let mut rest = self.order.iter().map(|key| &self.queues[key]).peekable();
        while let Some(shown) = rest.next_if(|shown| lines + shown.lines() <= room) {
            lines += shown.lines();
            let _ = writeln!(text, "{}", fit(shown.line(columns, self.bars)));
            if let Some(gauges) = &shown.gauges {
                let _ = writeln!(text, "{}", fit(format!("  {gauges}")));
            }
        }
        let rest = rest.count();
        if rest > 0 {
            let _ = writeln!(text, "and {rest} more");
        }
        text
    }
}

impl Shown {
    fn new(sample: &Sample<'_>) -> Self {
        let queue = &sample.queue;
        let class = if queue.key.class { " class" } else { "" };
        let name = format!(
            "{} {} {}{class}",
            sample.device,
            Handle(queue.key.handle),
            queue.kind
        );
        Self {
            // A device's name may contain control characters.
            name: name.replace(char::is_control, "?"),
            bps: None,
            packets: 0,
            sojourn_ms: None,
            drops: 0,
            most: 0,
            history: History::new(),
            gauges: None,
            seen: true,
        }
    }

    fn lines(&self) -> usize {
        1 + usize::from(self.gauges.is_some())
    }

    fn line(&self, columns: usize, bars: Bars) -> String {
        let number = |value: Option<f64>, decimals: usize| match value {
            Some(value) => format!("{value:.decimals$}"),
            None => "-".to_owned(),
        };
        let room = columns.saturating_sub(TABLE + 1).max(8);
        let line = bars.line(&self.history, room);
        let name: String = self.name.chars().take(28).collect();
        format!(
            "{name:<28} {:>9} {:>8} {:>6} ms {:>8}  {line}",
            number(self.bps.map(|bps| bps / 1e6), 3),
            self.packets,
            number(self.sojourn_ms, 1),
            self.drops
        )
    }
}
