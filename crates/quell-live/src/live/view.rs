//! `quell live --view`: a table of an interface's directions, redrawn in place in the terminal.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use quell_link::Error;

use crate::serve::source::QueueStatus;
use crate::serve::source::StatusSource;
use crate::system::frame::{self, Bars, History};
use crate::system::{host, sys};

/// Time between two updates.
const STEP: Duration = Duration::from_millis(250);
/// Width of the table to the left of the bars, in columns.
const TABLE: usize = 61;

/// Draws the queues on a thread of its own until this value is dropped.
pub struct TerminalView {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TerminalView {
    /// Starts the thread that draws.
    pub fn start(state: Box<dyn StatusSource>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let draw = move || {
            let (mut histories, bars) = (HashMap::new(), Bars::of_locale());
            while !stopped.load(Ordering::Relaxed) {
                let queues = state.queues();
                let columns = sys::terminal_size(io::stderr().as_fd()).map_or(80, |(w, _)| w);
                remember(&mut histories, &queues);
                let text = table(&queues, &histories, bars, columns);
                if frame::on_frame(|frame, out| frame.draw(out, &text)).is_err() {
                    return;
                }
                std::thread::park_timeout(STEP);
            }
        };
        let thread = host::thread("quell-view");
        let thread = thread.spawn(draw).ok();
        Self { stop, thread }
    }
}

impl Drop for TerminalView {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        let _ = frame::clear();
    }
}

/// Checks that standard error is a terminal.
///
/// # Errors
/// If standard error is not a terminal.
pub fn check() -> Result<(), Error> {
    let terminal = sys::terminal_size(io::stderr().as_fd()).is_some();
    let error = || Error::new("standard error is not a terminal").key("--view");
    terminal
        .then_some(())
        .ok_or_else(|| error().remedy("leave it out; --status and --metrics serve other programs"))
}

/// Recent mean sojourn times of each direction, ms, by its name; `None` for a bin in which no
/// packet left.
type Histories = HashMap<String, History>;

fn remember(histories: &mut Histories, queues: &[QueueStatus]) {
    for queue in queues {
        let history = histories.entry(queue.name.clone()).or_default();
        frame::keep(history, queue.view.sojourn_ms);
    }
}

fn table(queues: &[QueueStatus], histories: &Histories, bars: Bars, columns: usize) -> String {
    let fit = |line: String| line.chars().take(columns).collect::<String>();
    let width = columns.saturating_sub(TABLE).clamp(8, frame::HISTORY);
    let span = STEP.as_secs_f64() * width as f64;
    let title = format!(
        "{:7} {:>8} {:>8} {:>9} {:>7} {:>7} {:>7}  last {span:.0} s",
        "", "Mbit/s", "of", "in queue", "packets", "drops", "marks",
    );
    let mut text = fit(title) + "\n";
    for queue in queues {
        let view = &queue.view;
        let sojourn = view
            .sojourn_ms
            .map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
        let line = format!(
            "{:7} {:>8.3} {:>8.3} {sojourn:>9} {:>7} {:>7} {:>7}  {}",
            queue.name,
            view.throughput_mbps,
            view.capacity_mbps,
            view.backlog_packets,
            view.drops,
            view.marks,
            bars.line(&histories[&queue.name], width),
        );
        let _ = writeln!(text, "{}", fit(line));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::link::View;

    #[test]
    fn a_line_for_each_direction_fits_the_terminal() {
        let view = View {
            throughput_mbps: 17.9,
            capacity_mbps: 18.0,
            sojourn_ms: Some(4.25),
            backlog_packets: 12,
            drops: 102,
            ..View::default()
        };
        let queues = [
            QueueStatus::new("egress", "codel", view),
            QueueStatus::new("ingress", "codel", View::default()),
        ];
        let mut histories = Histories::new();
        (0..99).for_each(|_| remember(&mut histories, &queues));
        for columns in [40, 80, 200] {
            let text = table(&queues, &histories, Bars::of_locale(), columns);
            assert_eq!(text.lines().count(), 3);
            assert!(
                text.lines().all(|line| line.chars().count() <= columns),
                "{text}"
            );
        }
        let title = |columns| table(&queues, &histories, Bars::of_locale(), columns);
        assert!(title(80).contains("last 5 s"), "{}", title(80));
        assert!(title(200).contains("last 15 s"));
        let text = table(&queues, &histories, Bars::of_locale(), 200);
        let words: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            words[..8],
            ["egress", "17.900", "18.000", "4.2", "ms", "12", "102", "0"]
        );
        assert_eq!(words.last().unwrap().chars().count(), frame::HISTORY);
        let idle = text.lines().nth(2).unwrap();
        assert!(idle.contains(" - "), "nothing left: no time");
        assert!(idle.trim_end().ends_with(" 0"), "and no bar: {idle}");
    }
}
