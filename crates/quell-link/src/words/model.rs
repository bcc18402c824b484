//! The network of a learned controller: from a file that the words name, or shipped with quell.

use std::fmt::Display;
use std::sync::OnceLock;

use quell_qdisc::policy::Policy;

use crate::error::Error;

/// Another network than quell's own, and its file; or none.
#[derive(Clone, Debug, Default)]
pub struct Model(Option<(String, Policy)>);

/// Networks are equal if their files are.
impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        self.file() == other.file()
    }
}

impl Model {
    /// Reads a file and holds it to what its controller expects.
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

    /// Takes a network that lies in no file and holds it to what its controller expects.
    pub(super) fn set<E: Display>(
        &mut self,
        policy: Policy,
        check: fn(&Policy) -> Result<(), E>,
    ) -> Result<(), Error> {
        check(&policy).map_err(|e| Error::new(e.to_string()))?;
        *self = Self::in_no_file(policy);
        Ok(())
    }

    /// A network that lies in no file.
    pub(super) fn in_no_file(policy: Policy) -> Self {
        Self(Some(("-".into(), policy)))
    }

    pub(super) fn is_given(&self) -> bool {
        self.0.is_some()
    }

    /// Empty for quell's own.
    pub(super) fn file(&self) -> &str {
        self.0.as_ref().map_or("", |(file, _)| file)
    }

    /// The network: this one, or quell's own.
    pub(super) fn or(&self, own: Option<&Own>) -> Option<Policy> {
        match &self.0 {
            Some((_, policy)) => Some(policy.clone()),
            None => own?.policy(),
        }
    }
}

/// A network that quell ships (`models/`).
pub(super) struct Own {
    name: &'static str,
    bytes: &'static [u8],
    policy: OnceLock<Option<Policy>>,
}

impl Own {
    pub(super) const fn new(name: &'static str, bytes: &'static [u8]) -> Self {
        Self {
            name,
            bytes,
            policy: OnceLock::new(),
        }
    }

    /// Read once; tests rule out that it cannot be read.
    pub(super) fn policy(&self) -> Option<Policy> {
        self.policy
            .get_or_init(|| Policy::load(self.name, self.bytes).ok())
            .clone()
    }
}

/// The network in `models/` of this name.
macro_rules! own {
    ($name:literal) => {
        Own::new(
            $name,
            include_bytes!(concat!("../../models/", $name, ".safetensors")),
        )
    };
}

pub(super) use own;
