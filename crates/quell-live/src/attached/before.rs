//! The disciplines of a device before quell attached one.

use serde::{Deserialize, Serialize};

use crate::rtnetlink::request::QdiscState;

/// Pairs of handles: that of the first queue, and that of the root if there are several queues. The
/// second pair is used while a discipline has a handle of the first, since the kernel does not
/// replace a discipline by one of another kind under the same handle.
pub const HANDLES: [(u32, u32); 2] = [(0x9E00 << 16, 0x9DFF << 16), (0x9E10 << 16, 0x9DFE << 16)];
/// Whether a root with this handle may be quell's.
pub fn is_ours(handle: u32) -> bool {
    HANDLES
        .iter()
        .any(|(first, root)| [*first, *root].contains(&handle))
}

/// Kinds that can be restored from the settings that the kernel lists.
pub const RESTORABLE: [&str; 10] = [
    "pfifo", "bfifo", "codel", "fq_codel", "pie", "fq_pie", "cake", "fq", "dualpi2", "mq",
];

/// The configured disciplines of a device. Default ones are not included: the kernel creates them
/// again by itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PreviousQdiscs {
    /// The disciplines, the root first.
    pub rows: Vec<Row>,
}

/// A configured discipline.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub handle: u32,
    pub parent: u32,
    /// Kind, such as `fq_codel`.
    pub kind: String,
    /// Options in the kernel's format.
    pub options: Vec<u8>,
}

impl Row {
    /// A row for a discipline that was found.
    pub fn new(found: &QdiscState) -> Self {
        Self {
            handle: found.key.handle,
            parent: found.key.parent,
            kind: found.kind.clone(),
            options: found.options.clone(),
        }
    }
}
