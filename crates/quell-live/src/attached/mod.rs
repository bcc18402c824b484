//! What `quell attach` leaves for other commands: the state file of a device, and the page that its
//! queues share with user space.

pub mod before;
pub mod saved;

use quell_link::Error;

use crate::bpf::page::Page;
use saved::{ATTACH, Saved};

/// The page of the discipline attached to a device, read-only.
///
/// # Errors
/// If a privilege is missing, or nothing is attached.
pub fn page(device: u32) -> Result<Page, Error> {
    Page::open_to_read(&find(device)?.page())
}

/// The page of the discipline attached to a device, writable.
///
/// # Errors
/// As [`page`].
pub fn page_to_steer(device: u32) -> Result<Page, Error> {
    Page::open(&find(device)?.page())
}

fn find(device: u32) -> Result<Saved, Error> {
    ATTACH
        .find(None, |saved: &Saved| {
            saved.device == device && !saved.is_old()
        })?
        .ok_or_else(|| {
            let error = Error::new("/run/quell has no state file of quell attach for it");
            let remedy =
                "quell attach leaves one in the file system and network namespace where it runs";
            error.remedy(remedy)
        })
}
