//! `quell attach` and `quell detach`: disciplines in BPF, which the kernel itself runs (docs/kernel.md).
//!
//! Each device has a copy of its own, with memory for its queues alone. The kernel keeps it as long as a queue of it is in use: nothing
//! is pinned, no process stays, and `tc qdisc del` takes all of it away, too.

#[cfg(feature = "attach")]
mod object;
mod page;
mod plan;
mod saved;
mod support;

use std::path::PathBuf;

use quell_link::Error;
use quell_link::units::parse_rate;

use super::live::{need, tell};
use super::steer::change::Found;
use super::steer::place;
use super::watch::dump::Dump;
use super::{host, state::StateFile};
use page::{Knobs, Page};
use plan::Plan;
use saved::{ATTACH, Saved};

/// The disciplines, as `make bpf` compiles them, by name.
const DISCIPLINES: [(&str, &[u8]); 5] = [
    ("codel", include_bytes!("../../../bpf/codel.bpf.o")),
    ("fifo", include_bytes!("../../../bpf/fifo.bpf.o")),
    ("fq_codel", include_bytes!("../../../bpf/fq_codel.bpf.o")),
    ("hush", include_bytes!("../../../bpf/hush.bpf.o")),
    ("rlaqm", include_bytes!("../../../bpf/rlaqm.bpf.o")),
];

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The device.
    pub dev: String,
    /// A discipline's name; none: says what is attached.
    pub name: Option<String>,
    /// Shapes to this rate.
    pub rate: Option<String>,
    /// Packets at most; the discipline's own limit if not given.
    pub limit: Option<u32>,
    /// Replaces a discipline that somebody has chosen.
    pub replace: bool,
    /// Only says what would be done.
    pub dry_run: bool,
    /// Only errors on standard error.
    pub quiet: bool,
}

impl Options {
    fn say(&self, line: &str) {
        if !self.quiet {
            tell(line);
        }
    }

    fn knobs(&self) -> Result<Knobs, Error> {
        let rate = self.rate.as_deref().map(parse_rate).transpose();
        let rate = rate.map_err(|e| e.key("--rate"))?;
        let error = |key: &str| Error::new("must be more than 0").key(key);
        match (rate.map(|bits| bits / 8), self.limit) {
            (Some(0), _) => Err(error("--rate").remedy("give a rate, as in --rate 8mbit")),
            (_, Some(0)) => Err(error("--limit").remedy("give packets, as in --limit 1000")),
            (rate, limit) => Ok(Knobs { rate, limit }),
        }
    }
}

/// Attaches a discipline to a device, or changes the knobs of one that is attached; without a name, says what is attached.
///
/// # Errors
/// If an option is wrong, the kernel or a right lacks, its verifier refuses the program, or there is a discipline that somebody chose.
pub fn run(options: &Options) -> Result<(), Error> {
    let dev = options.dev.as_str();
    let device = host::existing(dev)?;
    let knobs = options.knobs()?;
    let no = |e: std::io::Error| Error::new(format!("rtnetlink: {}", host::reason(&e))).key(dev);
    let rows = place::rows(&mut Dump::new().map_err(no)?, device).map_err(no)?;
    let Some(name) = &options.name else {
        return shown(dev, &rows);
    };
    let names = || DISCIPLINES.into_iter().map(|(name, _)| name);
    let found = DISCIPLINES.into_iter().find(|(known, _)| known == name);
    let (name, object) = found.ok_or_else(|| Error::unknown("discipline", name, names()))?;
    let file = match options.dry_run {
        true => None,
        false => {
            need("attach", host::NET_ADMIN)?;
            Some(held(dev)?)
        }
    };
    let saved = match &file {
        Some(file) => file.read::<Saved>()?,
        None => None,
    };
    let saved = saved.filter(|saved| saved.is_there(&rows));
    if let Some(saved) = &saved
        && saved.name == name
    {
        for page in Page::open(saved.page)?.slots(saved.slots) {
            page.set(&knobs);
        }
        options.say(&format!("{dev}: {name} is attached; its knobs are changed"));
        return Ok(());
    }
    let before = saved.map(|saved| saved.before);
    let plan = Plan::new(dev, device, &rows, before, &knobs, options.replace)?;
    let Some(file) = file else {
        options.say(&format!("{dev}: dry run, {}", plan.describe(name)));
        return Ok(());
    };
    support::check()?;
    #[cfg(feature = "attach")]
    {
        // Its registration ends with it: then the discipline is there for this device alone.
        let object = object::Registered::new(name, object, plan.slots(), &knobs)?;
        let saved = Saved::new(device, name, object.page, &plan);
        file.write(&saved)?;
        let mut changer = super::steer::change::Changer::new().map_err(no)?;
        if let Err(error) = plan.carry_out(name, &mut changer) {
            saved.put_back(&mut changer)?;
            file.remove()?;
            return Err(error);
        }
        options.say(&format!("{dev}: {}", plan.describe(name)));
        Ok(())
    }
    #[cfg(not(feature = "attach"))]
    {
        let _ = (object, file);
        Err(
            Error::new("this quell was built without the loader of BPF objects")
                .remedy("build one with it: make attach (docs/kernel.md)"),
        )
    }
}

/// Says what is attached to a device, and its gauges.
fn shown(dev: &str, rows: &[Found]) -> Result<(), Error> {
    let saved = held(dev)?.read::<Saved>()?;
    let saved = saved.filter(|saved| saved.is_there(rows));
    let saved = saved.ok_or_else(|| nothing(dev))?;
    for gauges in Page::open(saved.page)?.slots(saved.slots) {
        let mut line = gauges.json();
        line["device"] = dev.into();
        line["kind"] = format!("quell_{}", saved.name).into();
        println!("{line}");
    }
    Ok(())
}

fn held(dev: &str) -> Result<StateFile, Error> {
    ATTACH.hold(dev)?.ok_or_else(|| {
        let error = Error::new("another quell attach works on it").key(dev);
        error.remedy("try again when that has ended")
    })
}

fn nothing(dev: &str) -> Error {
    let error = Error::new("quell has attached nothing to it").key(dev);
    error.remedy(format!("tc qdisc show dev {dev} says what there is"))
}

/// Takes what is attached away from these devices, and puts back what was before.
///
/// # Errors
/// If a right is missing, nothing is attached, or something cannot be put back.
pub fn detach(devices: &[String], quiet: bool) -> Result<(), Error> {
    if devices.is_empty() {
        return Err(Error::new("no interface is named").remedy("quell detach eth0"));
    }
    need("detach", host::NET_ADMIN)?;
    for dev in devices {
        let file = held(dev)?;
        let saved = file.read::<Saved>()?.ok_or_else(|| nothing(dev))?;
        let said = saved::undo(&saved).map_err(|error| error.key(dev))?;
        file.remove()?;
        if !quiet {
            tell(&format!("{dev}: {said}"));
        }
    }
    Ok(())
}

/// The state files of this network namespace.
pub fn left() -> Vec<PathBuf> {
    let files = ATTACH.left().into_iter();
    files.map(|(path, _)| path).collect()
}
