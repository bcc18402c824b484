//! What was on a device before a discipline was attached.

use serde::{Deserialize, Serialize};

use crate::rtnetlink::request::QdiscState;

/// The handle of the first queue, and of the root where there are several; others while these are
/// taken: under a handle the kernel does not replace one kind by another.
pub const HANDLES: [(u32, u32); 2] = [(0x9E00 << 16, 0x9DFF << 16), (0x9E10 << 16, 0x9DFE << 16)];
/// Whether a root of this handle may be ours.
pub fn is_ours(handle: u32) -> bool {
    HANDLES
        .iter()
        .any(|(first, root)| [*first, *root].contains(&handle))
}

/// Kinds whose settings, as the kernel lists them, make the same discipline again.
pub const RESTORABLE: [&str; 10] = [
    "pfifo", "bfifo", "codel", "fq_codel", "pie", "fq_pie", "cake", "fq", "dualpi2", "mq",
];

/// What was on a device: the disciplines that were configured; the kernel creates default ones
/// again by itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PreviousQdiscs {
    /// The root first.
    pub rows: Vec<Row>,
}

/// A discipline.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub handle: u32,
    pub parent: u32,
    /// Its kind.
    pub kind: String,
    /// Its options in the kernel's format.
    pub options: Vec<u8>,
}

impl Row {
    /// One that was found.
    pub fn new(found: &QdiscState) -> Self {
        Self {
            handle: found.key.handle,
            parent: found.key.parent,
            kind: found.kind.clone(),
            options: found.options.clone(),
        }
    }
}
