//! `quell live`: manages the queue of an interface's egress or ingress traffic
//! (docs/how-to/live.md). This file runs the command and prints its messages; `settings` checks the
//! options, and `plane::worker` moves the packets.

mod check;
mod memory;
pub mod rules;
mod running;
mod settings;
pub(crate) mod upkeep;
mod view;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use quell_link::Error;
use quell_link::units::parse_time;

use super::serve::{Endpoints, Server, State};
use crate::live::running::Running;
pub use crate::live::settings::Options;
use crate::live::settings::Plan;
use crate::live::view::TerminalView;
use crate::plane::shared::Snapshot;
use crate::system::host::{self, Signals};
use crate::system::messages::{need, print, tell};
use crate::system::sandbox;
use crate::system::state;

/// Runs `quell live` with these options; returns the exit status.
///
/// # Errors
/// If a privilege is missing, an option is wrong, or an interface cannot be used or restored.
pub fn command(options: &Options) -> Result<u8, Error> {
    if let Some(path) = &options.check {
        return Ok(check(options, path));
    }
    match (options.restore, options.print_dropin) {
        (true, _) => restore(options),
        (_, true) => print_drop_in(options),
        _ => run(options),
    }?;
    Ok(0)
}

/// Says what is wrong with a configuration file; returns the exit status, 1 if anything is.
fn check(options: &Options, path: &Path) -> u8 {
    match check::plan(options, path) {
        Ok(plan) => {
            if !options.quiet {
                tell(&format!(
                    "{}: no faults; {}",
                    path.display(),
                    plan.announce(false)
                ));
                plan.notes().iter().for_each(|note| tell(note));
            }
            0
        }
        Err(faults) => {
            faults.iter().for_each(|fault| tell(&fault.to_string()));
            1
        }
    }
}

/// Removes and reports what killed processes left behind, on the interfaces named in the options or
/// the configuration file, else on all. Processes that still run are not touched.
///
/// # Errors
/// If a privilege is missing, an option is wrong, or something cannot be undone.
fn restore(options: &Options) -> Result<(), Error> {
    need("live", host::NET_ADMIN)?;
    let devs = settings::named(options)?;
    let say = |line: &str| {
        if !options.quiet {
            tell(line);
        }
    };
    let done = rules::restore(&devs);
    state::report(rules::LIVE, &devs, done, ("rule", "removed"), &say)
}

/// Prints a drop-in that allows the reflectors' addresses in a systemd unit that denies all others.
///
/// # Errors
/// If an option is wrong, there are no reflectors, or standard output cannot be written.
fn print_drop_in(options: &Options) -> Result<(), Error> {
    let addresses = Plan::new(options)?.reflectors;
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    if addresses.is_empty() {
        let error = Error::new("there are no reflectors to allow").key("--print-dropin");
        return Err(error.remedy("name some with --autorate and --reflector, or in --config"));
    }
    let text = format!("[Service]\nIPAddressAllow={}\n", addresses.join(" "));
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| Error::new(format!("standard output: {}", host::reason(&e))))
}

/// Runs until SIGTERM, Ctrl-C or the end of `--duration`; then sends all held packets and restores
/// the previous state.
///
/// # Errors
/// If a privilege is missing, an option is wrong, or an interface cannot be used.
fn run(options: &Options) -> Result<(), Error> {
    let right = if options.dry_run {
        host::NET_RAW
    } else {
        host::NET_ADMIN
    };
    // Before the check of privileges, so that any user is told of a mistyped option.
    let mut plan = Plan::new(options)?;
    need("live", right)?;
    if options.view {
        view::check()?;
    }
    let end = match &options.duration {
        None => None,
        Some(text) => {
            let time = parse_time(text).map_err(|e| e.key("--duration"))?;
            Instant::now().checked_add(Duration::from_nanos(time.as_nanos()))
        }
    };
    // The signals are blocked, not handled: from here on only `watch` receives them.
    let signals =
        Signals::hold(options.config.is_some()).map_err(|e| Error::new(host::reason(&e)))?;
    // Before the interface is taken, so that an error about a port in use affects no packet.
    let mut server = Server::bind(Endpoints {
        status: plan.options.status.as_deref(),
        metrics: plan.options.metrics,
        dashboard: plan.options.dashboard,
    })?;
    let mut running = Running::start(&plan, options.dry_run)?;
    sandbox::process();
    let state = || {
        Box::new(State {
            dev: plan.dev().to_owned(),
            directions: running.watches(),
            restored: running.restored.clone(),
            reflectors: plan.moves().then(|| running.reflectors.clone()),
        })
    };
    server.start(state());
    let drawn = options.view.then(state);
    let say = |line: &str| {
        if !options.quiet {
            tell(line);
        }
    };
    // Printed even with --quiet, since the address's token cannot be guessed.
    server
        .dashboard
        .iter()
        .for_each(|address| tell(&format!("dashboard: {address}")));
    say(&plan.announce(options.dry_run));
    plan.notes().iter().for_each(|note| say(note));
    running.notes().iter().for_each(|note| say(note));
    if let (None, Some((kind, whole))) = (&plan.options.to, host::part_of(plan.dev())) {
        let dev = plan.dev();
        let why = format!("the firewall sees its packets as those of {whole}, so none is managed");
        say(&format!(
            "{dev} is a port of the {kind} {whole}: {why}; give --dev {whole}"
        ));
    }
    let drawing = drawn.map(|state| TerminalView::start(state));
    let over = running.watch(&signals, &mut plan, options, end, &say);
    drop((drawing, server));
    let snapshots = running.end()?;
    over?;
    if !options.quiet {
        print(&table(&plan, &snapshots));
    }
    Ok(())
}

/// The counts of each direction, printed at the end.
fn table(plan: &Plan, snapshots: &[(&'static str, Snapshot)]) -> String {
    let titles = ["", "rate", "packets", "sent", "drops", "marks", "missed"];
    let mut rows = vec![titles.map(str::to_owned)];
    for direction in &plan.directions {
        let Some((name, snapshot)) = snapshots.iter().find(|(name, _)| *name == direction.name)
        else {
            continue;
        };
        let counts = [
            snapshot.read,
            snapshot.sent,
            snapshot.dropped,
            snapshot.marked,
            snapshot.link.missed,
        ];
        let [read, sent, dropped, marked, missed] = counts.map(|count| count.to_string());
        rows.push([
            (*name).to_owned(),
            direction.understood(),
            read,
            sent,
            dropped,
            marked,
            missed,
        ]);
    }
    let queues = std::iter::once("queue").chain(plan.directions.iter().map(|d| d.aqm.as_str()));
    let mut text = String::new();
    for (row, queue) in rows.iter().zip(queues) {
        let _ = write!(text, "{:8}", row[0]);
        for cell in &row[1..] {
            let _ = write!(text, " {cell:>9}");
        }
        let _ = writeln!(text, "  {queue}");
    }
    text
}
