//! Attaches quell's program as a filter at the egress of clsact, before all queues of a device.
//! Other programs' filters are not changed.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use quell_link::Error;
use serde::{Deserialize, Serialize};

use crate::rtnetlink::dump::{self, Dump};
use crate::rtnetlink::failed;
use crate::rtnetlink::message::{
    CLSACT_EGRESS, CLSACT_INGRESS, DEL_FILTER, DEL_QDISC, Filter, INGRESS, NEW_FILTER, NEW_QDISC,
    OPTIONS, attributes,
};
use crate::rtnetlink::request::{
    NESTED, QdiscState, Refusal, Request, RtnlWriter, put, unanswered,
};
use crate::system::command::quoted;
use crate::system::host;

/// Handle of clsact, the only possible one.
const HANDLE: u32 = 0xFFFF_0000;
/// ETH_P_ALL in network byte order (linux/if_ether.h).
const ALL: u32 = 3u16.to_be() as u32;
/// Handle of quell's filter among those of its priority.
const OURS: u32 = 1;
/// Its priority if there are no other filters: the kernel's default (`tcf_auto_prio`), so that
/// others can be placed before it.
const PRIORITY: u16 = 0xC000;
// linux/netlink.h: NLM_F_CREATE | NLM_F_EXCL.
const MAKE: u16 = 0x400 | 0x200;
// linux/pkt_cls.h.
const BPF_FD: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
const BPF_ID: u16 = 11;
const DIRECT_ACTION: u32 = 1;
/// Name of the filter's program.
const NAME: &[u8] = b"quell\0";

/// A filter with the program: planned or attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    device: u32,
    priority: u16,
    /// ID of the program.
    program: u32,
    /// Whether clsact does not exist and will be made.
    makes: bool,
    /// Whether quell has made clsact and may remove it.
    removes: bool,
}

/// What is at clsact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClsactState {
    /// Whether quell's filter is there.
    pub ours: bool,
    /// Whether other programs have filters, in either direction.
    pub others: bool,
    /// Whether any of these at egress runs before quell's.
    pub before: bool,
}

impl Hook {
    /// Plans the filter for a device with these disciplines, before other programs' filters if
    /// there is a free priority.
    ///
    /// # Errors
    /// If the device cannot have clsact.
    pub fn plan(
        dump: &mut Dump,
        rows: &[QdiscState],
        device: u32,
        program: u32,
    ) -> Result<Self, Error> {
        if rows.iter().any(|row| row.kind == "ingress") {
            let what = "clsact would replace the ingress discipline";
            let dev = host::name(device).unwrap_or_default();
            let dev = quoted(&dev);
            return Err(Error::new(what).remedy(format!(
                "tc qdisc del dev {dev} ingress; tc qdisc add dev {dev} clsact; then its filters again, by tc filter add dev {dev} ingress"
            )));
        }
        let taken = dump::whole(|| {
            let mut taken = Vec::new();
            dump.filters(device, CLSACT_EGRESS, |filter| taken.push(filter.priority))?;
            Ok(taken)
        });
        let taken = taken.map_err(failed)?;
        let free = match taken.iter().min() {
            None => Some(PRIORITY),
            Some(1) => (2..u16::MAX).find(|priority| !taken.contains(priority)),
            Some(first) => Some(first - 1),
        };
        let makes = !rows.iter().any(|row| row.kind == "clsact");
        Ok(Self {
            device,
            priority: free.unwrap_or(u16::MAX),
            program,
            makes,
            removes: makes,
        })
    }

    /// Interface index.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Records that this filter replaces the filter `before`: if quell was to remove clsact with
    /// that one, it removes clsact with this one.
    pub fn continues(&mut self, before: Option<&Self>) {
        self.removes |= before.is_some_and(|before| before.removes);
    }

    /// Attaches the program, and makes clsact if it is missing.
    ///
    /// # Errors
    /// If the kernel lacks a module or refuses.
    pub fn attach(&self, rtnl: &mut RtnlWriter, program: &OwnedFd) -> Result<(), Error> {
        if self.makes {
            let made = Request {
                what: NEW_QDISC,
                flags: MAKE,
                ..self.clsact()
            };
            send(rtnl, &made)?.map_err(|refusal| lacking(&refusal, "clsact", "sch_ingress"))?;
        }
        let mut options = Vec::new();
        put(&mut options, BPF_FD, &program.as_raw_fd().to_ne_bytes());
        put(&mut options, BPF_NAME, NAME);
        put(&mut options, BPF_FLAGS, &DIRECT_ACTION.to_ne_bytes());
        let filter = Request {
            what: NEW_FILTER,
            flags: MAKE,
            options: Some((OPTIONS | NESTED, &options)),
            ..self.filter()
        };
        send(rtnl, &filter)?.map_err(|refusal| lacking(&refusal, "a filter", "cls_bpf"))
    }

    /// The present state of clsact.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn look(&self, dump: &mut Dump) -> io::Result<ClsactState> {
        dump::whole(|| self.look_once(dump))
    }

    /// As [`Self::look`], without retries.
    ///
    /// # Errors
    /// If the kernel refuses the request; [`dump::is_partial`] if filters may be missing.
    pub fn look_once(&self, dump: &mut Dump) -> io::Result<ClsactState> {
        let mut seen = ClsactState::default();
        for parent in [CLSACT_EGRESS, CLSACT_INGRESS] {
            let each = |filter: Filter<'_>| match filter {
                // The container of the filters of one priority.
                Filter { handle: 0, .. } => {}
                filter if self.is_ours(parent, &filter) => seen.ours = true,
                filter => {
                    seen.others = true;
                    let first = filter.priority < self.priority;
                    seen.before |= parent == CLSACT_EGRESS && first;
                }
            };
            match dump.filters(self.device, parent, each) {
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {}
                listed => listed?,
            }
        }
        Ok(seen)
    }

    fn is_ours(&self, parent: u32, filter: &Filter<'_>) -> bool {
        let is = |wanted, value: &[u8]| {
            let mut options = attributes(filter.options);
            options.any(|(kind, has)| kind == wanted && has == value)
        };
        // The name is compared, too, since the kernel may have given the ID in a state file to
        // another program.
        let same = is(BPF_ID, &self.program.to_ne_bytes()) && is(BPF_NAME, NAME);
        parent == CLSACT_EGRESS && filter.priority == self.priority && same
    }

    /// Removes quell's filter, and clsact if quell created it and no filter is left. Returns
    /// whether anything was removed.
    ///
    /// # Errors
    /// If the kernel refuses a request.
    pub fn remove(&self, dump: &mut Dump, rtnl: &mut RtnlWriter) -> Result<bool, Error> {
        let seen = self.look(dump).map_err(failed)?;
        let mut removed = false;
        for request in self.removing(seen) {
            match send(rtnl, &request)? {
                Ok(()) => removed = true,
                Err(refusal) if refusal.is_gone() || refusal.errno == libc::EINVAL => {}
                Err(refusal) => return Err(refusal.explain("clsact")),
            }
        }
        Ok(removed)
    }

    /// Messages without acknowledgement that remove quell's filter, and clsact unless other
    /// programs have filters there.
    pub fn removal(&self, others: bool) -> Vec<u8> {
        unanswered(self.removing(ClsactState {
            ours: true,
            others,
            before: false,
        }))
    }

    fn removing(&self, seen: ClsactState) -> impl Iterator<Item = Request<'static>> + use<> {
        let filter = Request {
            what: DEL_FILTER,
            ..self.filter()
        };
        let clsact = Request {
            what: DEL_QDISC,
            ..self.clsact()
        };
        let both = [
            seen.ours.then_some(filter),
            (self.removes && !seen.others).then_some(clsact),
        ];
        both.into_iter().flatten()
    }

    fn clsact(&self) -> Request<'static> {
        Request {
            what: 0,
            flags: 0,
            place: [self.device, HANDLE, INGRESS, 0],
            kind: "clsact",
            options: None,
        }
    }

    fn filter(&self) -> Request<'static> {
        let which = u32::from(self.priority) << 16 | ALL;
        Request {
            what: 0,
            flags: 0,
            place: [self.device, OURS, CLSACT_EGRESS, which],
            kind: "bpf",
            options: None,
        }
    }
}

fn send(rtnl: &mut RtnlWriter, request: &Request<'_>) -> Result<Result<(), Refusal>, Error> {
    rtnl.request(request);
    let outcomes = rtnl.send();
    let mut outcomes = outcomes.map_err(failed)?;
    Ok(outcomes.pop().unwrap_or(Ok(())))
}

/// The error if clsact or the filter cannot be made. ENOENT means that the kernel lacks the module.
fn lacking(refusal: &Refusal, what: &str, module: &str) -> Error {
    match refusal.errno {
        libc::ENOENT => Error::new(format!("this kernel has no {module}")).remedy(format!(
            "modprobe {module}, or give --with limit, which needs no BPF"
        )),
        _ => refusal.explain(what),
    }
}
