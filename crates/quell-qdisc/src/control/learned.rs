//! What a controller has learned while it served, from which another one continues.

use super::learnqueue::Table;
use super::networks::Networks;
use crate::policy::Error;

/// What a controller has learned.
#[derive(Clone, Debug, PartialEq)]
pub enum LearnedState {
    /// The table of `learnqueue`.
    Table(Box<Table>),
    /// The networks of `rlaqm learn` or `lfq learn`.
    Networks(Networks),
}

impl LearnedState {
    /// The bytes of a file; `origin` says what has learned it, and where.
    ///
    /// # Errors
    /// If the file's card cannot be written, which does not happen.
    pub fn save(&self, origin: &str) -> Result<Vec<u8>, Error> {
        match self {
            Self::Table(table) => Table::clone(table).from(origin, 0).save(),
            Self::Networks(networks) => networks.save(origin),
        }
    }

    /// Reads a file of this origin for a controller that has learned nothing yet and is in this
    /// state; `file` is its name, for errors.
    ///
    /// # Errors
    /// If the bytes are not what was written, or of another origin or controller.
    pub fn load(&self, file: &str, bytes: &[u8], origin: &str) -> Result<Self, Error> {
        let (state, found, fits) = match self {
            Self::Table(untrained) => {
                let table = Table::load(file, bytes)?;
                let found = table.card().trained_on.clone();
                // The same words may mean other limits in another release.
                let fits = table.limits() == untrained.limits();
                (Self::Table(Box::new(table)), found, fits)
            }
            Self::Networks(untrained) => {
                let (networks, found) = untrained.load(file, bytes)?;
                (Self::Networks(networks), found, true)
            }
        };
        match found == origin && fits {
            true => Ok(state),
            false => Err(Error::new(format!("is of {found:?}")).at(file)),
        }
    }
}
