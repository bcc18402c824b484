//! `quell attach` and `quell detach`: queue disciplines in BPF, which run in the kernel
//! (docs/how-to/kernel.md).
//!
//! Each device has its own copy of the discipline, with memory for its own queues. The kernel keeps
//! the copy as long as one of its queues is in use: nothing is pinned, no process stays, and
//! `tc qdisc del` removes all of it, too.

mod chosen;
mod object;
mod plan;
mod support;

pub use crate::options::attach::{Detach, Options};
use std::io::Write as _;
use std::path::PathBuf;

use quell_link::Error;
use quell_link::units::parse_rate;

use crate::attached::saved::{self, ATTACH, Saved};
use crate::bpf::page::{Knobs, Page};
use crate::rtnetlink::clsact::Hook;
use crate::rtnetlink::dump::{Dump, whole};
use crate::rtnetlink::failed;
use crate::rtnetlink::message::{Handle, INGRESS};
use crate::rtnetlink::request::{QdiscState, RtnlWriter};
use crate::rtnetlink::tree;
use crate::steer::saved::is_changed;
use crate::system::command::quoted;
use crate::system::messages::{need, tell};
use crate::system::state::StateFile;
use crate::system::{host, sys};
use chosen::Selection;
use object::Registered;
use plan::Plan;

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
        match (rate, self.limit) {
            (Some(rate), _) if rate.bytes_per_sec() == 0 => {
                Err(error("--rate").remedy("give a rate, as in --rate 8mbit"))
            }
            (_, Some(0)) => Err(error("--limit").remedy("give packets, as in --limit 1000")),
            (rate, limit) => Ok(Knobs { rate, limit }),
        }
    }
}

/// Attaches a discipline to a device, or changes the knobs of the attached one; without a name,
/// reports what is attached.
///
/// # Errors
/// If an option is wrong, the kernel lacks support, a capability is missing, the verifier rejects
/// the program, or another program configured the present discipline.
pub fn run(options: &Options) -> Result<(), Error> {
    let dev = options.dev.as_str();
    let device = host::existing(dev)?;
    if let Some(name) = host::name(device).filter(|name| name != dev) {
        // An alternative name would lead to another state file.
        let error = Error::new(format!("this is another name of {name}")).key(dev);
        return Err(error.remedy(format!("give {name}")));
    }
    let knobs = options.knobs()?;
    let no = |e| failed(e).key(dev);
    let rows = tree::rows(&mut Dump::new().map_err(no)?, device).map_err(no)?;
    let Some(words) = &options.words else {
        return shown(dev, &rows);
    };
    let chosen = Selection::parse(words)?;
    let name = chosen.discipline.name;
    let file = match options.dry_run {
        true => None,
        false => {
            need("attach", host::NET_ADMIN)?;
            Some(held(dev)?)
        }
    };
    let left = match &file {
        Some(file) => match file.read::<Saved>()?.filter(|left| !left.is_old()) {
            Some(left) if left.device != device => not_elsewhere(&left, dev).map(|()| None)?,
            left => left,
        },
        None => None,
    };
    let saved = left.as_ref().filter(|saved| saved.has_own_root(&rows));
    if let Some(saved) = saved
        && saved.is_current(name, &rows)
        && saved.marks_as_requested(chosen.said).map_err(no)?
    {
        for slot in Page::open(&saved.page())?.slots() {
            slot.set(&knobs);
        }
        options.say(&format!(
            "{dev}: {name} was already attached; its knobs are set"
        ));
        return Ok(());
    }
    let before = saved.map(|saved| saved.before.clone());
    let plan = Plan::new(dev, device, &rows, before, &knobs, options.replace)?;
    if saved.is_none() {
        has_no_filters(&plan, dev)?;
    }
    let Some(file) = file else {
        options.say(&format!("{dev}: dry run, {}", plan.describe(name)));
        return Ok(());
    };
    // Otherwise the steered settings would be saved as those to restore.
    if is_changed(device)? {
        let error = Error::new("quell steer has changed one of its queues").key(dev);
        return Err(error.remedy("end that first, or if it was killed: quell steer --restore"));
    }
    let kernel = support::check()?;
    // The registration ends when `object` is dropped; after that only this device has the
    // discipline.
    let object = Registered::new(&kernel, &chosen.discipline, plan.slots(), &knobs)?;
    let hooks = left.map_or_else(Vec::new, |left| left.hooks);
    attach(options, &object, &chosen, &plan, &rows, hooks, &file)
}

/// Refuses to replace a discipline that has filters, since detach could not restore them.
fn has_no_filters(plan: &Plan, dev: &str) -> Result<(), Error> {
    let no = |e| failed(e).key(dev);
    let mut dump = Dump::new().map_err(no)?;
    for row in &plan.before.rows {
        let has = whole(|| {
            let mut has = false;
            dump.filters(plan.device, row.handle, |_| has = true)?;
            Ok(has)
        });
        if has.map_err(no)? {
            let what = "has filters, which quell could not put back later";
            let [handle, parent] = [row.handle, row.parent].map(Handle);
            let error = Error::new(what).key(format!("{dev} {} {handle} at {parent}", row.kind));
            let dev = quoted(dev);
            return Err(error.remedy(format!("tc filter del dev {dev} parent {handle}")));
        }
    }
    Ok(())
}

/// Carries out a plan. `hooks` are quell's filters that are attached already.
fn attach(
    options: &Options,
    object: &Registered,
    chosen: &Selection,
    plan: &Plan,
    rows: &[QdiscState],
    hooks: Vec<Hook>,
    file: &StateFile,
) -> Result<(), Error> {
    let name = chosen.discipline.name;
    let dev = options.dev.as_str();
    let no = |e| failed(e).key(dev);
    let mut saved = plan.saved(name, object.page, hooks);
    file.write(&saved)?;
    let mut rtnl = RtnlWriter::new().map_err(no)?;
    let mut work = || {
        let old = saved.hooks.clone();
        if chosen.marks() {
            match mark(object, &mut saved, rows, file, &mut rtnl) {
                Ok(None) => {}
                Ok(Some(note)) => options.say(&format!("{dev}: {note}")),
                Err(error) if chosen.said.is_none() => {
                    options.say(&format!(
                        "{dev}: no packet will be marked, {name} drops instead: {error}"
                    ));
                }
                Err(error) => {
                    let error = Error::new(error.to_string()).key(dev);
                    return Err(error.remedy("or noecn, which drops packets instead"));
                }
            }
        }
        has_not_changed(plan, rows, dev)?;
        plan.carry_out(name, &mut rtnl)?;
        // Removes the filters of the discipline that was attached before.
        saved::unhook(&old, &mut rtnl)?;
        saved.hooks.retain(|hook| !old.contains(hook));
        file.write(&saved)
    };
    if let Err(error) = work() {
        // The first error is reported; if this fails, too, the file still says what to undo.
        if saved::undo(&saved).is_ok() {
            file.remove()?;
        }
        return Err(error);
    }
    options.say(&format!("{dev}: {}", plan.describe(name)));
    Ok(())
}

/// Refuses to replace a discipline that another program has set while the BPF program was loaded:
/// detach would not restore it. The options of cake are not compared, since autorate-ingress
/// changes its rate.
fn has_not_changed(plan: &Plan, rows: &[QdiscState], dev: &str) -> Result<(), Error> {
    let no = |e| failed(e).key(dev);
    let now = tree::rows(&mut Dump::new().map_err(no)?, plan.device).map_err(no)?;
    let is_egress = |row: &&QdiscState| !row.key.class && row.key.parent != INGRESS;
    let same = |(one, other): (&QdiscState, &QdiscState)| {
        let is_cake = one.kind == "cake";
        one.key == other.key && one.kind == other.kind && (is_cake || one.options == other.options)
    };
    let [before, now] = [rows, &now].map(|rows| rows.iter().filter(is_egress).collect::<Vec<_>>());
    if before.len() == now.len() && before.into_iter().zip(now).all(same) {
        return Ok(());
    }
    let what = "another program has changed its disciplines meanwhile";
    let error = Error::new(what).key(dev);
    Err(error.remedy("try again when that has ended"))
}

/// Attaches the program that marks packets to clsact, and makes the discipline's queues mark.
/// Returns a note for the user, if there is one.
fn mark(
    object: &Registered,
    saved: &mut Saved,
    rows: &[QdiscState],
    file: &StateFile,
    rtnl: &mut RtnlWriter,
) -> Result<Option<&'static str>, Error> {
    let no = |e: std::io::Error| Error::new(format!("BPF: {}", host::reason(&e)));
    let program = object.mark();
    let id = super::bpf::id(program).map_err(no)?;
    let mut dump = Dump::new().map_err(no)?;
    let mut hook = Hook::plan(&mut dump, rows, saved.device, id)?;
    saved.hooks.iter().for_each(|old| hook.continues(Some(old)));
    let page = Page::open(&saved.page())?;
    saved.hooks.push(hook);
    file.write(saved)?;
    if let Err(error) = hook.attach(rtnl, program) {
        saved.hooks.pop();
        hook.remove(&mut dump, rtnl)?;
        return Err(error);
    }
    page.slots().for_each(|slot| slot.mark());
    // Only for the note; the program is attached.
    let first = hook.look(&mut dump).is_ok_and(|seen| seen.before);
    Ok(first.then_some(
        "another program's filter runs first: packets that it accepts (action ok) are not marked",
    ))
}

/// Prints what is attached to a device, with its gauges.
fn shown(dev: &str, rows: &[QdiscState]) -> Result<(), Error> {
    let saved = held(dev)?.read::<Saved>()?;
    let saved = saved.filter(|saved| !saved.is_old() && saved.has_own_root(rows));
    let saved = saved.ok_or_else(|| nothing(dev))?;
    let now = sys::monotonic();
    let mut out = std::io::stdout().lock();
    for slot in Page::open_to_read(&saved.page())?.slots() {
        let mut line = slot.json(now);
        line["device"] = dev.into();
        line["kind"] = format!("quell_{}", saved.name).into();
        writeln!(out, "{line}")
            .map_err(|e| Error::new(format!("standard output: {}", host::reason(&e))))?;
    }
    Ok(())
}

/// Refuses to overwrite the state file if it is about another interface, which had this name, and
/// quell's discipline is still attached there.
fn not_elsewhere(saved: &Saved, dev: &str) -> Result<(), Error> {
    let no = |e| failed(e).key(dev);
    if host::is_gone(saved.device) {
        return Ok(());
    }
    let now = host::name(saved.device).unwrap_or_default();
    let rows = tree::rows(&mut Dump::new().map_err(no)?, saved.device).map_err(no)?;
    if !saved.has_own_root(&rows) {
        return Ok(());
    }
    let what = format!(
        "this was the name of {now}, where quell_{} is attached",
        saved.name
    );
    let error = Error::new(what).key(dev);
    let dev = quoted(dev);
    Err(error.remedy(format!("first restore {now}: quell detach {dev}")))
}

fn held(dev: &str) -> Result<StateFile, Error> {
    ATTACH.hold(dev)?.ok_or_else(|| {
        let error = Error::new("another quell attach works on it").key(dev);
        error.remedy("try again when that has ended")
    })
}

fn nothing(dev: &str) -> Error {
    let error = Error::new("quell has attached nothing to it").key(dev);
    let dev = quoted(dev);
    error.remedy(format!("tc qdisc show dev {dev} says what there is"))
}

/// Detaches quell's disciplines from these devices, and restores the previous ones.
///
/// # Errors
/// If a privilege is missing, nothing is attached, or something cannot be restored.
pub fn detach(options: &Detach) -> Result<(), Error> {
    let (devices, quiet) = (&options.devices, options.quiet);
    if devices.is_empty() {
        return Err(Error::new("no interface is named").remedy("write quell detach eth0"));
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
///
/// # Errors
/// If other users can write to their folder.
pub fn left() -> Result<Vec<PathBuf>, Error> {
    let files = ATTACH.left()?.into_iter();
    Ok(files.map(|(path, _)| path).collect())
}
