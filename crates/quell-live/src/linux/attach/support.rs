//! Whether this kernel takes disciplines in BPF, and this process may load them: said before anything is tried.

use std::fs;
use std::path::Path;

use quell_link::Error;

use super::super::sys;

/// The kernel's description of its own types.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// What it has in there with CONFIG_NET_SCH_BPF.
const STRUCT: &[u8] = b"bpf_struct_ops_Qdisc_ops\0";
/// What to use elsewhere.
pub const INSTEAD: &str = "quell live --aqm hush works there, as does the kernel's own: tc qdisc replace dev DEV root fq_codel";

/// CAP_PERFMON and CAP_BPF, which CAP_SYS_ADMIN includes (linux/capability.h).
const SYS_ADMIN: u32 = 21;
const LOADING: [(u32, &str); 2] = [(39, "CAP_BPF"), (38, "CAP_PERFMON")];

/// Checks it.
///
/// # Errors
/// What is missing.
pub fn check() -> Result<(), Error> {
    let missing = LOADING
        .into_iter()
        .find(|(bit, _)| !sys::capable(&[*bit]) && !sys::capable(&[SYS_ADMIN]));
    if let Some((_, name)) = missing {
        let error = Error::new(format!("loading a discipline needs root ({name})"));
        return Err(error.remedy("write sudo before it"));
    }
    let types = Path::new(TYPES);
    if !types.exists() {
        let what = "this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)";
        return Err(Error::new(what).remedy(INSTEAD));
    }
    let described = fs::read(types).unwrap_or_default();
    if !described.windows(STRUCT.len()).any(|at| at == STRUCT) {
        let what = "this kernel takes no disciplines in BPF (Linux 6.16 with CONFIG_NET_SCH_BPF)";
        return Err(Error::new(what).remedy(INSTEAD));
    }
    Ok(())
}
