//! Loading of a compiled discipline, by libbpf.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel, set_print};
use quell_link::Error;

use super::super::{bpf, host};
use super::page::Knobs;
use super::support::INSTEAD;

/// Maps with an entry for each queue.
const PER_QUEUE: [&str; 3] = ["page", "queues", "slots"];
/// The map with so many entries for each queue that they are told by the object.
const BUFFERS: &str = "buffers";
/// The program for clsact.
const MARK: &str = "mark";
/// The disciplines' `QUELL_SLOTS`.
const SLOTS: u32 = 16;
/// Another process may be attaching one of the same name: how often is tried, and the time between.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// The line before a verifier's log in what libbpf says.
const LOG_BEGINS: &str = "-- BEGIN PROG LOAD LOG --";

/// What libbpf said.
static SAID: Mutex<String> = Mutex::new(String::new());

/// A discipline that the kernel knows, as long as this lives. Queues that use it by then stay.
pub struct Registered {
    /// The number of the map with knobs and gauges.
    pub page: u32,
    _link: Link,
    object: Object,
}

impl Registered {
    /// Loads a discipline with memory for so many queues, sets their knobs, and registers it as `quell_NAME`.
    ///
    /// # Errors
    /// If a right is missing or the kernel refuses it: with what its verifier says.
    pub fn new(name: &str, bytes: &[u8], slots: u32, knobs: &Knobs) -> Result<Self, Error> {
        if let Ok(mut said) = SAID.lock() {
            said.clear();
        }
        let before = set_print(Some((PrintLevel::Warn, |_, text| {
            if let Ok(mut said) = SAID.lock() {
                said.push_str(&text);
            }
        })));
        let done = Self::load(name, bytes, slots, knobs);
        set_print(before);
        done.map_err(|error| refused(&error))
    }

    /// The program for clsact, which marks packets.
    ///
    /// # Errors
    /// If the object has none, or the process too many files open.
    pub fn mark(&self) -> Result<OwnedFd, Error> {
        let mut programs = self.object.progs();
        let program = programs.find(|program| program.name() == MARK);
        let missing = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let fd = program.ok_or_else(missing);
        fd.and_then(|program| program.as_fd().try_clone_to_owned())
            .map_err(|e| Error::new(format!("BPF: {}", host::reason(&e))))
    }

    fn load(name: &str, bytes: &[u8], slots: u32, knobs: &Knobs) -> libbpf_rs::Result<Self> {
        let mut open = ObjectBuilder::default().open_memory(bytes)?;
        for mut map in open.maps_mut() {
            let entries = map.max_entries();
            match &*map.name().to_string_lossy() {
                map_name if PER_QUEUE.contains(&map_name) => map.set_max_entries(slots)?,
                BUFFERS => map.set_max_entries(entries / SLOTS * slots)?,
                _ => {}
            }
        }
        let mut object = open.load()?;
        let mut page = 0;
        for map in object.maps().filter(|map| map.name() == "page") {
            for slot in 0..slots {
                map.update(&slot.to_ne_bytes(), &knobs.bytes(), MapFlags::ANY)?;
            }
            page = map.info()?.info.id;
        }
        let mut tried = 0;
        let link = loop {
            let mut maps = object.maps_mut();
            let Some(mut ops) = maps.find(|map| map.name() == name) else {
                return Err(std::io::Error::from(std::io::ErrorKind::InvalidData).into());
            };
            match ops.attach_struct_ops() {
                Err(e) if e.kind() == libbpf_rs::ErrorKind::AlreadyExists && tried < TRIES => {
                    tried += 1;
                    std::thread::sleep(PAUSE);
                }
                attached => break attached?,
            }
        };
        Ok(Self {
            page,
            _link: link,
            object,
        })
    }
}

fn refused(error: &libbpf_rs::Error) -> Error {
    let said = SAID
        .lock()
        .map_or_else(|_| String::new(), |said| said.clone());
    let log = verifier(&said);
    // Without a verifier's log it was not asked: libbpf's first and simplest program was refused.
    let asked = said.contains(LOG_BEGINS);
    if error.kind() == libbpf_rs::ErrorKind::PermissionDenied && !asked {
        let what = "the kernel lets this process load no discipline";
        return Error::new(what).remedy("CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN in the first namespaces are needed: write sudo before it");
    }
    let what = match log.as_str() {
        "" => format!("BPF: {error}"),
        log => format!("the kernel refuses the discipline: {log}"),
    };
    Error::new(what).remedy(INSTEAD)
}

/// The last lines of the verifier's log within what libbpf said, or of that.
fn verifier(said: &str) -> String {
    let log = said
        .split(LOG_BEGINS)
        .nth(1)
        .and_then(|rest| rest.split("-- END PROG LOAD LOG --").next());
    bpf::last_lines(log.unwrap_or(said).as_bytes())
}
