//! Checks in advance whether this kernel accepts disciplines in BPF and this process may load them.

use std::{fs, io};

use quell_link::Error;

use crate::bpf::btf::{Btf, STRUCT};
use crate::system::{host, sys};

/// The kernel's description of its own types.
pub const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// Type that the kernel has with CONFIG_NET_SCH_BPF: the value of the map that registers a
/// discipline.
pub const VALUE: &str = "bpf_struct_ops_Qdisc_ops";
/// Remedy for kernels without support.
pub const REMEDY: &str =
    "quell live --aqm hush works there, as does the kernel's own fq_codel (tc qdisc replace)";

/// CAP_PERFMON and CAP_BPF, which CAP_SYS_ADMIN includes (linux/capability.h).
const SYS_ADMIN: u32 = 21;
const LOADING: [(u32, &str); 2] = [(39, "CAP_BPF"), (38, "CAP_PERFMON")];

/// Checks kernel and privileges; returns the kernel's types.
///
/// # Errors
/// What is missing.
pub fn check() -> Result<Btf, Error> {
    let missing = LOADING
        .into_iter()
        .find(|(bit, _)| !sys::capable(&[*bit]) && !sys::capable(&[SYS_ADMIN]));
    if let Some((_, name)) = missing {
        let error = Error::new(format!("loading a discipline needs root ({name})"));
        return Err(error.remedy("write sudo before it"));
    }
    let lacks = |what: &str| Error::new(what).remedy(REMEDY);
    let types = fs::read(TYPES).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            lacks("this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)")
        }
        _ => lacks(&host::reason(&error)).key(TYPES),
    })?;
    let types = Btf::new(types).ok_or_else(|| lacks("has types of an unknown kind").key(TYPES))?;
    match types.find(STRUCT, VALUE) {
        Some(_) => Ok(types),
        None => Err(lacks(
            "this kernel takes no disciplines in BPF (Linux 6.16 with CONFIG_NET_SCH_BPF)",
        )),
    }
}
