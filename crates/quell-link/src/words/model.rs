//! The network of a learned controller: from a file that the words name, or one that quell ships.
//! Shipped networks are in the program or, without the feature `networks`, in a folder.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::Path;
use std::sync::OnceLock;

use quell_qdisc::control::LearnedState;
use quell_qdisc::control::networks::Networks;
use quell_qdisc::policy::Policy;

use crate::error::Error;

/// A given network and its file; `None`: the shipped network.
#[derive(Clone, Debug, Default)]
pub struct Model(Option<(String, Policy)>);

/// Networks are equal if the names of their files are; networks without a file are all equal.
impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        self.file() == other.file()
    }
}

/// The networks from which a queue with the word `learn` continues.
pub(super) fn networks(state: LearnedState, learn: bool) -> Result<Networks, Error> {
    match state {
        LearnedState::Networks(networks) if learn => Ok(networks),
        LearnedState::Networks(_) => Err(Error::new("does not learn").remedy("add learn")),
        LearnedState::Table(_) => Err(Error::new("has no table to start from")),
    }
}

impl Model {
    /// Reads a network from a file and checks that it fits its controller.
    pub(super) fn load<E: Display>(
        &mut self,
        file: &str,
        check: fn(&Policy) -> Result<(), E>,
    ) -> Result<(), Error> {
        let bytes = crate::file::read_plain(file.as_ref(), crate::file::MODEL)
            .map_err(|e| Error::new(format!("{file}: {e}")))?;
        let policy = Policy::load(file, &bytes).map_err(|e| Error::new(e.to_string()))?;
        check(&policy).map_err(|e| Error::new(format!("{file}: {e}")))?;
        self.0 = Some((file.to_owned(), policy));
        Ok(())
    }

    /// Takes a network without a file and checks that it fits its controller.
    pub(super) fn set<E: Display>(
        &mut self,
        policy: Policy,
        check: fn(&Policy) -> Result<(), E>,
    ) -> Result<(), Error> {
        check(&policy).map_err(|e| Error::new(e.to_string()))?;
        *self = Self::without_file(policy);
        Ok(())
    }

    /// A network that comes from no file.
    pub(super) fn without_file(policy: Policy) -> Self {
        Self(Some(("-".into(), policy)))
    }

    /// Whether a network is given.
    pub(super) fn is_given(&self) -> bool {
        self.0.is_some()
    }

    /// Name of the file; empty for the shipped network.
    pub(super) fn file(&self) -> &str {
        self.0.as_ref().map_or("", |(file, _)| file)
    }

    /// The given network, or else this shipped one.
    pub(super) fn or(&self, shipped: Option<&ShippedNetwork>) -> Option<Policy> {
        match &self.0 {
            Some((_, policy)) => Some(policy.clone()),
            None => shipped?.policy(),
        }
    }
}

/// A network that quell ships (`models/`).
pub(super) struct ShippedNetwork {
    name: &'static str,
    /// The file's content, if it is in the program.
    bytes: Option<&'static [u8]>,
    policy: OnceLock<Option<Policy>>,
}

impl ShippedNetwork {
    pub(super) const fn new(name: &'static str, bytes: Option<&'static [u8]>) -> Self {
        Self {
            name,
            bytes,
            policy: OnceLock::new(),
        }
    }

    /// The network; `None` if it is absent or damaged.
    pub(super) fn policy(&self) -> Option<Policy> {
        self.read().cloned()
    }

    /// The network, read once.
    fn read(&self) -> Option<&Policy> {
        let read = || Policy::load(self.name, &self.file()?).ok();
        self.policy.get_or_init(read).as_ref()
    }

    /// The file's content, from the program or from a folder (see [`FOLDER`]).
    fn file(&self) -> Option<Cow<'static, [u8]>> {
        if let Some(bytes) = self.bytes {
            return Some(Cow::Borrowed(bytes));
        }
        // An empty variable would name the current folder, which may be another user's.
        let named = std::env::var_os("QUELL_MODELS").filter(|folder| !folder.is_empty());
        let folder = named.unwrap_or_else(|| FOLDER.into());
        let file = Path::new(&folder).join(format!("{}.safetensors", self.name));
        let bytes = crate::file::read_plain(&file, crate::file::MODEL).ok()?;
        Some(Cow::Owned(bytes))
    }

    /// Checks that the network exists and can be read.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        match self.read() {
            Some(_) => Ok(()),
            None => Err(
                "its network is not in /usr/share/quell/models (or $QUELL_MODELS), or is damaged; install quell-models or give model FILE",
            ),
        }
    }
}

/// Folder of the networks for a program that does not contain them; the environment variable
/// `QUELL_MODELS` overrides it.
const FOLDER: &str = "/usr/share/quell/models";

/// The shipped network of this name, a string literal.
#[cfg(feature = "networks")]
macro_rules! shipped_network {
    ($name:literal) => {
        ShippedNetwork::new(
            $name,
            Some(include_bytes!(concat!(
                "../../models/",
                $name,
                ".safetensors"
            ))),
        )
    };
}
#[cfg(not(feature = "networks"))]
macro_rules! shipped_network {
    ($name:literal) => {
        ShippedNetwork::new($name, None)
    };
}

pub(super) use shipped_network;

#[cfg(test)]
mod tests {
    use super::ShippedNetwork;

    #[test]
    fn a_network_that_is_not_in_the_program_and_in_no_folder_is_reported() {
        let missing = ShippedNetwork::new("nosuch", None);
        assert!(missing.policy().is_none());
        assert!(
            missing
                .check()
                .unwrap_err()
                .contains("install quell-models")
        );
    }
}
