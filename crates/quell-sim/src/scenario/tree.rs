//! A scenario's text as a tree that remembers lines: every value is asked for once by key, what nobody asked for is an error.

use quell_link::Error;
use toml::de::{DeTable, DeValue};

/// A table of the file, or one that overrides made up.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// How errors call it: empty for the file itself.
    path: String,
    /// Where it begins.
    line: Option<usize>,
    entries: Vec<Entry>,
    /// Every key that was asked for: the known ones.
    asked: Vec<&'static str>,
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    key: String,
    /// `None`: not from the file.
    pub line: Option<usize>,
    pub value: Node,
}

/// A value. Numbers and words are text alike, so that files and command lines are read by the same functions.
#[derive(Clone, Debug)]
pub enum Node {
    Text(String),
    List(Vec<Node>),
    Table(Table),
    Tables(Vec<Table>),
}

/// Where each line begins.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let begins = text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        Self(
            std::iter::once(0)
                .chain(begins.map(|(i, _)| i + 1))
                .collect(),
        )
    }
    fn at(&self, position: usize) -> usize {
        self.0.partition_point(|begin| *begin <= position)
    }
}

/// Reads TOML.
pub fn parse(text: &str) -> Result<Table, Error> {
    let lines = Lines::of(text);
    let root = DeTable::parse(text).map_err(|e| {
        let mut error = Error::new(format!("not TOML: {}", e.message().replace('\n', "; ")))
            .remedy("write key = value lines and [tables]");
        error.line = e.span().map(|span| lines.at(span.start));
        error
    })?;
    table(root.get_ref(), String::new(), None, &lines)
}

fn table(
    toml: &DeTable<'_>,
    path: String,
    line: Option<usize>,
    lines: &Lines,
) -> Result<Table, Error> {
    let mut entries = Vec::with_capacity(toml.len());
    for (key, value) in toml {
        let line = Some(lines.at(key.span().start));
        let name = key.get_ref().to_string();
        let inner = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let value = node(value.get_ref(), &inner, line, lines)
            .map_err(|e| with_line(e.key(inner), line))?;
        entries.push(Entry {
            key: name,
            line,
            value,
        });
    }
    Ok(Table {
        path,
        line,
        entries,
        asked: Vec::new(),
    })
}

fn node(
    value: &DeValue<'_>,
    path: &str,
    line: Option<usize>,
    lines: &Lines,
) -> Result<Node, Error> {
    Ok(match value {
        DeValue::String(s) => Node::Text(s.to_string()),
        DeValue::Integer(i) if i.radix() == 10 => Node::Text(i.as_str().to_owned()),
        DeValue::Integer(_) => {
            return Err(Error::new("only decimal numbers are understood")
                .remedy("write it with digits 0 to 9"));
        }
        DeValue::Float(f) => Node::Text(f.as_str().to_owned()),
        DeValue::Boolean(b) => Node::Text(b.to_string()),
        DeValue::Datetime(_) => {
            return Err(Error::new("a date is not understood here")
                .remedy("write times as \"20ms\" or \"60s\""));
        }
        DeValue::Table(t) => Node::Table(table(t, path.to_owned(), line, lines)?),
        DeValue::Array(items)
            if !items.is_empty() && items.iter().all(|i| i.get_ref().is_table()) =>
        {
            let mut tables = Vec::with_capacity(items.len());
            for (i, item) in items.iter().enumerate() {
                let line = Some(lines.at(item.span().start));
                if let Some(t) = item.get_ref().as_table() {
                    tables.push(table(t, format!("{path}[{}]", i + 1), line, lines)?);
                }
            }
            Node::Tables(tables)
        }
        DeValue::Array(items) => {
            let items = items.iter().map(|i| node(i.get_ref(), path, line, lines));
            Node::List(items.collect::<Result<_, _>>()?)
        }
    })
}

/// Notes the line, the file's name being added later.
fn with_line(mut error: Error, line: Option<usize>) -> Error {
    if error.line.is_none() && error.file.is_none() {
        error.line = line;
    }
    error
}

impl Table {
    /// An empty one that errors call `path`.
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            ..Self::default()
        }
    }

    /// Has it such a key?
    pub fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|e| e.key == key)
    }

    /// Was the key given outside of the file?
    pub fn is_override(&self, key: &str) -> bool {
        self.entries
            .iter()
            .any(|e| e.key == key && e.line.is_none())
    }

    /// Sets what an override says.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        self.put(key, Node::Text(value.into()));
    }

    /// The text of a key, without taking it.
    pub fn peek(&self, key: &str) -> Option<&str> {
        self.entries.iter().find_map(|e| match &e.value {
            Node::Text(text) if e.key == key => Some(text.as_str()),
            _ => None,
        })
    }

    /// The table under `key`, made if there is nothing; `None` if something else is there.
    pub fn table_mut(&mut self, key: &str) -> Option<&mut Table> {
        if !self.has(key) {
            self.put(key, Node::Table(Table::new(key)));
        }
        self.entries.iter_mut().find_map(|e| match &mut e.value {
            Node::Table(t) if e.key == key => Some(t),
            _ => None,
        })
    }

    /// The tables under `key`; none if there are none.
    pub fn tables_mut(&mut self, key: &str) -> &mut [Table] {
        let found = self.entries.iter_mut().find_map(|e| match &mut e.value {
            Node::Tables(t) if e.key == key => Some(t.as_mut_slice()),
            _ => None,
        });
        found.unwrap_or_default()
    }

    /// Puts any value in place.
    pub fn put(&mut self, key: &str, value: Node) {
        self.remove(key);
        self.entries.push(Entry {
            key: key.to_owned(),
            line: None,
            value,
        });
    }

    /// Takes a key away.
    pub fn remove(&mut self, key: &str) {
        self.entries.retain(|e| e.key != key);
    }

    /// Copies from `other` what this table does not have, but for `but`.
    pub fn inherit(&mut self, other: &Table, but: &[&str]) {
        for entry in &other.entries {
            if !self.has(&entry.key) && !but.contains(&entry.key.as_str()) {
                self.entries.push(entry.clone());
            }
        }
    }

    /// Copies one key, if `other` has it.
    pub fn inherit_key(&mut self, other: &Table, key: &str) {
        let found = other.entries.iter().filter(|e| e.key == key);
        self.entries.extend(found.cloned());
    }

    /// Where a key stands, or else the table.
    pub fn line_of(&self, key: &str) -> Option<usize> {
        let entry = self.entries.iter().find(|e| e.key == key);
        entry.map_or(self.line, |e| e.line)
    }

    /// How errors call it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// An error about `key` of this table.
    pub fn error(&self, key: &str, line: Option<usize>, error: Error) -> Error {
        let path = match (self.path.as_str(), key) {
            ("", "") => return with_line(error, line),
            // An override is known by its own name, without the table that it went into.
            ("", key) => key.to_owned(),
            ("link", key) if line.is_none() && !key.is_empty() => key.to_owned(),
            (path, "") => path.to_owned(),
            (path, key) => format!("{path}.{key}"),
        };
        with_line(error.under(&path), line)
    }

    /// An error about `key`, wherever it stands, or about the table.
    pub fn complain(&self, key: &str, error: Error) -> Error {
        self.error(key, self.line_of(key), error)
    }

    /// Takes a value of any shape.
    pub fn take(&mut self, key: &'static str) -> Option<Entry> {
        self.asked.push(key);
        let at = self.entries.iter().position(|e| e.key == key)?;
        Some(self.entries.remove(at))
    }

    /// Takes one word or number and reads it.
    pub fn read<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let Some(entry) = self.take(key) else {
            return Ok(None);
        };
        match &entry.value {
            Node::Text(text) => parse(text).map(Some),
            _ => {
                Err(Error::new("one value is wanted here, not several").remedy("write key = value"))
            }
        }
        .map_err(|e| self.error(key, entry.line, e))
    }

    /// The same with a default.
    pub fn read_or<T>(
        &mut self,
        key: &'static str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, Error>,
    ) -> Result<T, Error> {
        Ok(self.read(key, parse)?.unwrap_or(default))
    }

    /// Takes a table.
    pub fn table(&mut self, key: &'static str) -> Result<Option<Table>, Error> {
        match self.take(key) {
            None => Ok(None),
            Some(Entry {
                value: Node::Table(t),
                ..
            }) => Ok(Some(t)),
            Some(entry) => {
                let remedy = format!("write [{}{key}] and its keys below", self.prefix());
                Err(self.error(
                    key,
                    entry.line,
                    Error::new("a table is wanted here").remedy(remedy),
                ))
            }
        }
    }

    /// Takes a list of tables.
    pub fn tables(&mut self, key: &'static str) -> Result<Option<Vec<Table>>, Error> {
        match self.take(key) {
            None => Ok(None),
            Some(Entry {
                value: Node::Tables(t),
                ..
            }) => Ok(Some(t)),
            Some(entry) => {
                let remedy = format!(
                    "write [[{}{key}]] for each and its keys below",
                    self.prefix()
                );
                Err(self.error(
                    key,
                    entry.line,
                    Error::new("a list of tables is wanted here").remedy(remedy),
                ))
            }
        }
    }

    fn prefix(&self) -> String {
        match self.path.as_str() {
            "" => String::new(),
            path => format!("{path}."),
        }
    }

    /// Complains about the first key that nobody asked for.
    pub fn finish(self, sort: &str) -> Result<(), Error> {
        self.known_only(sort, &self.asked)
    }

    /// Complains about the first key left that is not in the list.
    pub fn known_only(&self, sort: &str, known: &[&str]) -> Result<(), Error> {
        let stranger = |e: &&Entry| !known.contains(&e.key.as_str());
        let Some(entry) = self.entries.iter().find(stranger) else {
            return Ok(());
        };
        let sort = format!("key in {sort}");
        let error = Error::unknown(&sort, &entry.key, known.iter().copied());
        Err(self.error("", entry.line, error))
    }
}
