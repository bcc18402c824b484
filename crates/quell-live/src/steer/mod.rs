//! `quell steer`: a controller sets knobs of the kernel's own disciplines over rtnetlink
//! (docs/how-to/kernel.md).

mod actuator;
mod dropper;
pub(super) mod saved;
mod session;
mod source;
mod steered;

use crate::options::Table as _;
pub use crate::options::steer::Options;
use std::net::IpAddr;
use std::path::PathBuf;

use quell_link::Error;
use quell_link::units::parse_time;
use quell_qdisc::control::Control;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, MS, SEC};

use crate::plane::prober;
pub use crate::rtnetlink::options as kinds;
use crate::rtnetlink::options::Knob;
use crate::rtnetlink::tree::Place;
use crate::system::messages::{need, tell};
use crate::system::{host, state};
use session::Session;
use source::{Bounds, Source};

/// Bounds of the time between samples.
const INTERVALS: std::ops::RangeInclusive<Duration> = MS..=SEC;

/// The checked options.
#[derive(Debug)]
struct Plan {
    dev: String,
    place: Place,
    knobs: Vec<Knob>,
    /// Whether the knobs are those of an attached queue, in the page that it shares with user
    /// space.
    page: bool,
    bounds: Vec<Bounds>,
    ecn: bool,
    reflectors: Vec<IpAddr>,
    source: Source,
    /// Name of the controller or source, for messages.
    by: String,
    /// Time between two samples.
    every: Duration,
    /// Rate of the line, if it was given.
    rate: Option<Rate>,
    /// Time for which a line on standard input is valid.
    valid: Duration,
    duration: Option<Duration>,
    dry_run: bool,
    insist: bool,
    json: bool,
    quiet: bool,
}

impl Plan {
    fn new(options: &Options, own: Option<Box<dyn Control>>) -> Result<Self, Error> {
        let words = options.words.iter();
        let mut words = words.flat_map(|word| word.split_whitespace()).peekable();
        if options.hands_off && options.insist {
            let error = Error::new("excludes --insist").key("--hands-off");
            return Err(error.remedy("give one of the two"));
        }
        let usage = "quell steer eth0 wqm --with limit";
        let missing = |what: &str| Error::new(format!("no {what} is named")).remedy(usage);
        let dev = words.next().ok_or_else(|| missing("interface"))?;
        let place = match words.next_if(|word| Place::is(word)) {
            Some(word) => Place::parse(word)?,
            None => Place::parse("root")?,
        };
        let knobs = knobs(options.with.as_deref())?;
        let page = options.with.as_deref() == Some(PAGE);
        if options.ecn && (page || !knobs.contains(&Knob::Drop)) {
            return Err(Error::new("needs --with clsact").key("--ecn"));
        }
        let by = words.collect::<Vec<_>>().join(" ");
        let (source, by) = match own {
            Some(controller) => {
                let name = controller.name();
                (Source::own(controller, &knobs)?, name)
            }
            None if by.is_empty() => return Err(missing("controller")),
            None => (Source::parse(&by, &knobs)?, by),
        };
        let reflectors = prober::addresses(&options.reflector).map_err(|e| e.key("--reflector"))?;
        source.needs_reflectors(&knobs, !reflectors.is_empty())?;
        let bounds = bounds(options, &knobs)?;
        let every = time("--every", options.every.as_deref())?;
        let every = every.unwrap_or_else(|| source::period(&source, &knobs));
        if !INTERVALS.contains(&every) {
            return Err(Error::new("must be from 1ms to 1s").key("--every"));
        }
        let rate = options.rate.as_deref().map(quell_link::units::parse_rate);
        let valid = options.valid.as_deref();
        let valid = valid.unwrap_or_else(|| Options::default_of("valid"));
        Ok(Self {
            dev: dev.to_owned(),
            place,
            knobs,
            page,
            bounds,
            ecn: options.ecn,
            reflectors,
            source,
            by,
            every,
            rate: rate.transpose().map_err(|e| e.key("--rate"))?,
            valid: parse_time(valid).map_err(|e| e.key("--valid"))?,
            duration: time("--duration", options.duration.as_deref())?,
            dry_run: options.dry_run,
            insist: options.insist,
            json: options.json,
            quiet: options.quiet,
        })
    }

    fn say(&self, line: &str) {
        if !self.quiet {
            tell(line);
        }
    }
}

/// The knob's name after `--with`.
fn actuator(knob: Knob) -> &'static str {
    match knob {
        Knob::Drop => "clsact",
        other => other.name(),
    }
}

/// Value of `--with` for the drop probability of an attached queue.
const PAGE: &str = "bpf";

fn knobs(with: Option<&str>) -> Result<Vec<Knob>, Error> {
    let names = || Knob::ALL.into_iter().map(actuator).chain([PAGE]);
    let Some(with) = with else {
        let error = Error::new("missing").key("--with");
        return Err(error.remedy("name the knob: --with limit, target, rate, clsact or bpf"));
    };
    if with == PAGE {
        return Ok(vec![Knob::Drop]);
    }
    let mut knobs = Vec::new();
    for name in with.split(',') {
        if name == PAGE {
            let error =
                Error::new("bpf cannot be combined with other knobs").key(format!("--with {with}"));
            return Err(error.remedy("give --with bpf"));
        }
        let found = Knob::ALL.into_iter().find(|knob| actuator(*knob) == name);
        let knob = found.ok_or_else(|| Error::unknown("knob", name, names()).key("--with"))?;
        if !knobs.contains(&knob) {
            knobs.push(knob);
        }
    }
    Ok(knobs)
}

fn bounds(options: &Options, knobs: &[Knob]) -> Result<Vec<Bounds>, Error> {
    let (min, max) = (options.min.as_deref(), options.max.as_deref());
    if knobs.len() > 1 && (min.is_some() || max.is_some()) {
        let key = if min.is_some() { "--min" } else { "--max" };
        return Err(Error::new("needs one knob in --with").key(key));
    }
    let each = knobs.iter().map(|knob| Bounds::new(*knob, min, max));
    each.collect()
}

fn time(option: &str, text: Option<&str>) -> Result<Option<Duration>, Error> {
    text.map(parse_time).transpose().map_err(|e| e.key(option))
}

/// Steers until SIGTERM, Ctrl-C, the end of `--duration` or of standard input; then restores the
/// previous settings. Must be called by the main thread, whose privileges are reduced to what
/// steering needs. With `options.restore`, see [`restore`].
///
/// # Errors
/// If an option is wrong, a privilege is missing, there is no such queue, or it cannot be changed.
pub fn run(options: &Options) -> Result<(), Error> {
    if options.restore {
        return restore(&options.words, options.quiet);
    }
    start(Plan::new(options, None)?)
}

/// As [`run`], with the caller's own controller, which sets what `options.with` names: a limit, or
/// a drop probability. `options.words` are the device and a place.
///
/// # Errors
/// As [`run`].
pub fn run_with(options: &Options, controller: Box<dyn Control>) -> Result<(), Error> {
    start(Plan::new(options, Some(controller))?)
}

fn start(plan: Plan) -> Result<(), Error> {
    host::existing(&plan.dev)?;
    if !plan.dry_run {
        need("steer", host::NET_ADMIN)?;
    }
    Session::new(plan)?.run()
}

/// Restores and reports what killed processes left changed, on these devices or, if there are none,
/// on all. Processes that still run are not touched.
///
/// # Errors
/// If a privilege is missing, or something cannot be restored.
pub fn restore(devices: &[String], quiet: bool) -> Result<(), Error> {
    need("steer", host::NET_ADMIN)?;
    let say = |line: &str| {
        if !quiet {
            tell(line);
        }
    };
    let undo = |file: &state::StateFile, _: &str| saved::undo(file).map(state::UndoOutcome::Undone);
    let done = saved::STEER.restore(devices, undo);
    state::report(saved::STEER, devices, done, ("queue", "restored"), &say)
}

/// Whether queues of an interface are changed and not yet restored, so that their settings are not
/// the operator's.
///
/// # Errors
/// If there is no such interface, a state file cannot be read, or other users can write to the
/// folder.
pub fn is_changed(dev: &str) -> Result<bool, Error> {
    saved::is_changed(host::existing(dev)?)
}

/// The state files of this network namespace.
///
/// # Errors
/// If other users can write to their folder.
pub fn left() -> Result<Vec<PathBuf>, Error> {
    let files = saved::STEER.left()?.into_iter();
    Ok(files.map(|(path, _)| path).collect())
}
