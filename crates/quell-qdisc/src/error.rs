//! The error of files and networks: the place, the fault, and the remedy.

use std::fmt;

/// Why a file (of a network, a table or a model) was refused, or why a controller refused the
/// network in it. Its one-line display reads
/// `lfq.safetensors: layers.1.weight: shape [256, 60] instead of [256, 256]; save it as torch's nn.Linear holds it`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Error {
    /// The file, as the caller named it.
    pub file: Option<String>,
    /// The tensor, the key of the model card, or the line.
    pub key: Option<String>,
    /// The fault.
    pub what: String,
    /// The remedy.
    pub remedy: Option<String>,
}

impl Error {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            ..Self::default()
        }
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Puts `name` before the key.
    pub(crate) fn under(mut self, name: &str) -> Self {
        self.key = Some(match self.key {
            Some(key) => format!("{name}.{key}"),
            None => name.to_owned(),
        });
        self
    }

    pub(crate) fn at(mut self, file: &str) -> Self {
        if self.file.is_none() && !file.is_empty() {
            self.file = Some(file.to_owned());
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.file.iter().chain(&self.key);
        let mut text: String = places.flat_map(|p| [p.as_str(), ": "]).collect();
        text += &self.what;
        if let Some(remedy) = &self.remedy {
            text += "; ";
            text += remedy;
        }
        // The text may contain parts of a file, which must neither break the line nor control the
        // terminal.
        text.chars().try_for_each(|c| match c {
            c if c.is_control() => write!(f, "{}", c.escape_default()),
            c => fmt::Write::write_char(f, c),
        })
    }
}

impl std::error::Error for Error {}
