//! Outcomes of undoing what state files record, and their report.

use quell_link::Error;
use quell_link::units::counted;

use super::Command;

/// The outcome of one state file's undo.
#[derive(Debug, PartialEq)]
pub enum UndoOutcome {
    /// The number of changes that were undone.
    Undone(usize),
    /// A running process holds the file's lock.
    Runs,
    /// It could not be undone.
    Failed(Error),
}

/// Reports the outcomes of [`Command::restore`] for these interfaces, or for all if `devs` is
/// empty. `noun` and `done_to` complete a line such as `eth0: 2 rules removed`.
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
