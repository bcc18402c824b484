//! Loads a compiled discipline: its types, maps and programs. Then registers it in the kernel
//! (struct_ops).

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use quell_link::Error;
use quell_qdisc::num;

use super::super::bpf::{self, Load};
use super::support::{REMEDY, TYPES, VALUE};
use crate::bpf::btf::{ARRAY, Btf, FUNC, PTR, SECTION, STRUCT};
use crate::bpf::disciplines::Discipline;
use crate::bpf::linked::{MAPS, Object};
use crate::bpf::page::{Knobs, PAGE};
use crate::system::host;

/// Maps with an entry for each queue.
const PER_QUEUE: [&str; 3] = [PAGE, "queues", "slots"];
/// Map with several entries for each queue; the object has their number.
const BUFFERS: &str = "buffers";
/// Program for clsact, which marks packets.
const MARK: &str = "mark";
/// `QUELL_SLOTS` of the disciplines: most queues.
const SLOTS: u32 = 16;
/// Attempts to register, and the time between them, since another process may be attaching a
/// discipline of the same name.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// The kernel's name of a discipline's struct.
const DISCIPLINE: &str = "Qdisc_ops";
/// Section of the object with that struct.
const REGISTERED: &str = ".struct_ops.link";

// linux/bpf.h: types of programs and of attachments.
const SCHED_CLS: u32 = 3;
const STRUCT_OPS: u32 = 27;
const TCX_EGRESS: u32 = 47;

/// A discipline that is registered in the kernel until this value is dropped. Queues that use it by
/// then keep it.
pub struct Registered {
    /// ID of the map with knobs and gauges.
    pub page: u32,
    _link: OwnedFd,
    mark: OwnedFd,
}

/// Why a discipline could not be loaded.
enum LoadError {
    /// The object or the kernel has something that this loader does not know.
    Unknown(String),
    /// The kernel's error, and the verifier's log.
    Kernel(io::Error, String),
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        Self::Kernel(error, String::new())
    }
}

fn unknown(what: &str) -> LoadError {
    LoadError::Unknown(what.to_owned())
}

impl Registered {
    /// Loads a discipline with memory for `slots` queues into the kernel, whose types are `kernel`,
    /// sets the queues' knobs, and registers it as `quell_NAME`.
    ///
    /// # Errors
    /// If a privilege is missing or the kernel refuses the discipline; the message has the
    /// verifier's log.
    pub fn new(
        kernel: &Btf,
        discipline: &Discipline,
        slots: u32,
        knobs: &Knobs,
    ) -> Result<Self, Error> {
        Self::load(kernel, discipline, slots, knobs).map_err(explained)
    }

    /// The program for clsact, which marks packets.
    pub fn mark(&self) -> &OwnedFd {
        &self.mark
    }

    fn load(
        kernel: &Btf,
        discipline: &Discipline,
        slots: u32,
        knobs: &Knobs,
    ) -> Result<Self, LoadError> {
        let object = Object::new(discipline.object).ok_or_else(|| unknown("the object"))?;
        let find = |name: &str| Some((name.to_owned(), kernel.find(FUNC, name)?));
        let loader = Loader {
            types: bpf::types(&object.types.bytes)
                .map_err(|(error, log)| LoadError::Kernel(error, log))?,
            outside: object.undefined().filter_map(find).collect(),
            object,
            kernel,
        };
        loader.registered(discipline.name, slots, knobs)
    }
}

/// The state of loading.
struct Loader<'a> {
    object: Object<'a>,
    /// The object's types, loaded into the kernel.
    types: OwnedFd,
    kernel: &'a Btf,
    /// Descriptors of maps, and BTF IDs of kernel functions that the object calls, by name.
    outside: HashMap<String, u32>,
}

impl Loader<'_> {
    fn registered(
        mut self,
        name: &str,
        slots: u32,
        knobs: &Knobs,
    ) -> Result<Registered, LoadError> {
        // The kernel keeps the maps that programs use.
        let maps = self.maps(slots)?;
        let numbers = maps
            .iter()
            .map(|(name, map)| (name.clone(), bpf::number(map)));
        self.outside.extend(numbers);
        let page = maps.iter().find(|(name, _)| name == PAGE);
        let (_, page) = page.ok_or_else(|| unknown(PAGE))?;
        for slot in 0..slots {
            bpf::update(page, slot, &knobs.bytes())?;
        }
        let page = bpf::id(page)?;
        let map = self.discipline(name)?;
        let mark = self.program(MARK, SCHED_CLS, TCX_EGRESS, 0)?;
        let mut tried = 0;
        let link = loop {
            match bpf::register(&map) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tried < TRIES => {
                    tried += 1;
                    std::thread::sleep(PAUSE);
                }
                link => break link?,
            }
        };
        Ok(Registered {
            page,
            _link: link,
            mark,
        })
    }

    /// Makes the object's maps. Each declared map is a variable whose struct encodes the map's
    /// properties in its members' types; each section of constants becomes a map, too.
    fn maps(&self, slots: u32) -> Result<Vec<(String, OwnedFd)>, LoadError> {
        let mut maps = Vec::new();
        let types = &self.object.types;
        let no = || unknown(MAPS);
        let section = types.find(SECTION, MAPS).and_then(|id| types.get(id));
        for variable in types.members(section.ok_or_else(no)?) {
            let variable = types.get(variable.id).ok_or_else(no)?;
            let name = types.name(variable).ok_or_else(no)?;
            let declared = types.get(variable.size).ok_or_else(no)?;
            let members = types.members(declared);
            let id = |name| members.iter().find(|m| m.name == name).map(|m| m.id);
            let number = |name| id(name).and_then(|id| types.number(id)).ok_or_else(no);
            let pointed = |name| {
                let pointer = types.get(id(name)?).filter(|found| found.kind == PTR)?;
                Some(pointer.size)
            };
            let (key, value) = (pointed("key").ok_or_else(no)?, pointed("value"));
            let value = value.ok_or_else(no)?;
            let entries = number("max_entries")?;
            let entries = match name {
                _ if PER_QUEUE.contains(&name) => slots,
                BUFFERS => entries / SLOTS * slots,
                _ => entries,
            };
            let is_array = number("type")? == bpf::ARRAY;
            let value_type = types.get(value).filter(|of| of.kind == STRUCT && is_array);
            let size = value_type.ok_or_else(no)?.size;
            let types = Some((&self.types, key, value));
            let map = bpf::array(name, size, entries, number("map_flags")?, types)?;
            maps.push((name.to_owned(), map));
        }
        for name in self.object.constants() {
            let bytes = self.object.section(&name).ok_or_else(|| unknown(&name))?;
            let map = bpf::constants(bytes)?;
            maps.push((name, map));
        }
        Ok(maps)
    }

    /// Loads the discipline's programs, and makes the map whose value is the kernel's struct with
    /// them.
    fn discipline(&self, name: &str) -> Result<OwnedFd, LoadError> {
        let no = || unknown(REGISTERED);
        let (types, kernel) = (&self.object.types, self.kernel);
        let of = |types: &Btf, name| {
            let id = types.find(STRUCT, name)?;
            Some((id, types.get(id)?))
        };
        let missing = |what: &str| unknown(&format!("{what} in {TYPES}"));
        let (target, theirs) = of(kernel, DISCIPLINE).ok_or_else(|| missing(DISCIPLINE))?;
        let (value_id, value) = of(kernel, VALUE).ok_or_else(|| missing(VALUE))?;
        let within = kernel.members(value).into_iter().find(|m| m.name == "data");
        let within = within.ok_or_else(|| missing(VALUE))?.at;
        let theirs = kernel.members(theirs);
        let (_, ours) = of(types, DISCIPLINE).ok_or_else(no)?;
        let bytes = self.object.section(REGISTERED).ok_or_else(no)?;
        let mut data = vec![0; value.size as usize];
        let mut programs = Vec::new();
        for member in types.members(ours) {
            let place = theirs.iter().position(|their| their.name == member.name);
            let place = place.ok_or_else(|| missing(member.name))?;
            let at = within + theirs[place].at;
            let text;
            let bytes = match self.object.pointer(REGISTERED, member.at) {
                Some(function) => {
                    let program = self.program(function, STRUCT_OPS, num::count(place), target)?;
                    text = u64::from(bpf::number(&program)).to_ne_bytes();
                    programs.push(program);
                    &text[..]
                }
                // The discipline's name.
                None if types.get(member.id).is_some_and(|of| of.kind == ARRAY) => {
                    let id = format!("quell_{name}");
                    let named = bytes
                        .get(member.at..)
                        .filter(|b| b.starts_with(id.as_bytes()));
                    named.and_then(|b| b.get(..id.len())).ok_or_else(no)?
                }
                None => return Err(no()),
            };
            let to = data.get_mut(at..at + bytes.len()).ok_or_else(no)?;
            to.copy_from_slice(bytes);
        }
        let map = bpf::struct_ops(name, &self.types, value_id, value.size)?;
        bpf::update(&map, 0, &data)?;
        Ok(map)
    }

    fn program(
        &self,
        name: &str,
        kind: u32,
        place: u32,
        target: u32,
    ) -> Result<OwnedFd, LoadError> {
        let linked = self.object.program(name, &self.outside);
        let linked = linked.map_err(|what| unknown(&what))?;
        let load = Load {
            name,
            kind,
            place,
            target,
            code: &linked.code,
            types: Some(&self.types),
            functions: &linked.functions,
            accesses: &linked.accesses,
        };
        bpf::load_with_log(&load).map_err(|(error, log)| LoadError::Kernel(error, log))
    }
}

fn explained(refused: LoadError) -> Error {
    let what = match refused {
        LoadError::Unknown(what) => format!("this loader does not know what it found: {what}"),
        // Without a log the verifier has not run.
        LoadError::Kernel(error, log)
            if log.is_empty() && error.raw_os_error() == Some(libc::EPERM) =>
        {
            let what = "the kernel lets this process load no discipline";
            return Error::new(what).remedy("CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN in the first namespaces are needed: write sudo before it");
        }
        LoadError::Kernel(error, log) if log.is_empty() => format!("BPF: {}", host::reason(&error)),
        LoadError::Kernel(_, log) => format!("the kernel refuses the discipline: {log}"),
    };
    Error::new(what).remedy(REMEDY)
}
