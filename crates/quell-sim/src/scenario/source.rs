//! A scenario's keys as they were given, before defaults are filled in: the form that is read,
//! overridden and changed.

use std::borrow::Cow;
use std::path::Path;

use quell_link::Error;

use super::keys;
use super::model::Scenario;
use super::overrides::{self, Overrides};
use super::tree::{self, Node, Table};
use super::{read, toml};

/// The keys of a file. [`Source::read`] checks them and fills in defaults.
#[derive(Clone, Debug)]
pub struct Source {
    file: Table,
    /// Name of the file in errors.
    path: String,
}

impl Source {
    /// Parses TOML. Errors name `path`, and paths of traces are relative to its folder.
    ///
    /// # Errors
    /// If it is not TOML.
    pub fn parse(text: &str, path: &str) -> Result<Self, Error> {
        let file = tree::parse(text).map_err(|e| {
            let line = e.line;
            e.at(path, line)
        })?;
        Ok(Self::new(file, path).with_traces_from_here())
    }

    /// Takes keys from a caller. Paths of traces are relative to the working directory.
    pub fn from_keys(keys: Table) -> Self {
        let mut file = Table::new("");
        merge(&mut file, &keys, "");
        Self::new(file, "")
    }

    fn new(mut file: Table, path: &str) -> Self {
        let stem = Path::new(path).file_stem().map(|s| s.to_string_lossy());
        if let Some(stem) = stem.filter(|s| !file.has("name") && !s.trim().is_empty()) {
            file.put("name", Node::Text(stem.into_owned()));
        }
        Self {
            file,
            path: path.to_owned(),
        }
    }

    /// Makes the paths of traces, which are relative to the file, relative to the working
    /// directory.
    fn with_traces_from_here(mut self) -> Self {
        let dir = Path::new(&self.path).parent().unwrap_or(Path::new(""));
        let join = |table: &mut Table| {
            for key in ["trace", "modem_trace"] {
                if let Some(Node::Text(trace)) = table.get_mut(key)
                    && !trace.starts_with("builtin:")
                    && !trace.is_empty()
                {
                    *trace = dir.join(&*trace).to_string_lossy().into_owned();
                }
            }
        };
        self.file.tables_mut("hop").iter_mut().for_each(join);
        if let Some(Node::Table(link)) = self.file.get_mut("link") {
            join(link);
            if let Some(Node::Table(up)) = link.get_mut("up") {
                join(up);
            }
        }
        self
    }

    /// Replaces keys by overrides.
    ///
    /// # Errors
    /// If an override is invalid, or does not apply to the scenario.
    pub fn with(mut self, overrides: &Overrides) -> Result<Self, Error> {
        overrides::apply(overrides, &mut self.file)?;
        Ok(self)
    }

    /// Changes keys. A table in `changes` changes the keys that it names and leaves the others. If
    /// the file has a list of tables there (`[[flow]]`), the table changes each of them; a key that
    /// only some kinds of flows have is changed only in flows of these kinds. A list of tables
    /// replaces the previous value. [`Node::Nothing`] removes a key.
    pub fn replace(mut self, changes: &Table) -> Self {
        if changes.has("flow") {
            overrides::put_default_flow(&mut self.file);
        }
        merge(&mut self.file, changes, "");
        self
    }

    /// Checks the keys and fills in defaults.
    ///
    /// # Errors
    /// If a key or a value is wrong, or a file that it names cannot be read.
    pub fn read(&self) -> Result<Scenario, Error> {
        read::scenario(&self.with_flow()).map_err(|e| match (e.line, &e.key) {
            // An error that names a key but no line does not come from the file, so the file's name
            // would mislead.
            (None, Some(_)) => e,
            (line, _) => e.at(&self.path, line),
        })
    }

    /// The keys as the text of a file.
    pub fn to_toml(&self) -> String {
        toml::write(&self.with_flow())
    }

    /// The keys, with the default flow if there is none.
    fn with_flow(&self) -> Cow<'_, Table> {
        if self.file.has("flow") {
            return Cow::Borrowed(&self.file);
        }
        let mut file = self.file.clone();
        overrides::put_default_flow(&mut file);
        Cow::Owned(file)
    }
}

/// Merges changes into a table of this name (`link.up`, `flow`). See [`Source::replace`].
fn merge(into: &mut Table, changes: &Table, name: &str) {
    let keys = keys::keys_of(name);
    for (key, value) in changes.iter() {
        let inner = tree::join(name, key);
        let new_table = |changes: &Table| {
            let mut table = Table::new(changes.path());
            merge(&mut table, changes, &inner);
            table
        };
        let value = match (value, into.get_mut(key)) {
            (Node::Nothing, _) => {
                into.remove(key);
                continue;
            }
            (Node::Table(changes), Some(Node::Table(table))) => {
                merge(table, changes, &inner);
                continue;
            }
            (Node::Table(changes), Some(Node::Tables(tables))) => {
                merge_each(tables, changes, &inner);
                continue;
            }
            (Node::Table(changes), _) => Node::Table(new_table(changes)),
            (Node::Tables(list), _) => Node::Tables(list.iter().map(new_table).collect()),
            (value, _) => value.clone(),
        };
        let replaced = keys.map_or_else(Vec::new, |k| keys::replaced(k, key));
        replaced.iter().for_each(|k| into.remove(k));
        into.put(key, value);
    }
}

/// Merges changes into each table of a list. A key that only some of the tables can have is not
/// merged into the others, unless the changes also set the kind.
fn merge_each(tables: &mut [Table], changes: &Table, name: &str) {
    let by_some = |key: &str| tables.iter().any(|table| keys::takes(table, name, key));
    let by_some: Vec<_> = changes.iter().map(|(key, _)| by_some(key)).collect();
    for table in tables {
        let mut own = changes.clone();
        for ((key, _), by_some) in changes.iter().zip(&by_some) {
            if *by_some && !changes.has("kind") && !keys::takes(table, name, key) {
                own.remove(key);
            }
        }
        merge(table, &own, name);
    }
}
