//! A scenario's text as a tree that keeps line numbers for errors.

use quell_link::Error;
use toml::de::{DeTable, DeValue};

/// A table of a file, of an override or of a caller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Name in errors; empty for the file itself.
    path: String,
    /// Number of its first line in the file; `None`: not from the file.
    line: Option<usize>,
    entries: Vec<Entry>,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    key: String,
    /// Line in the file; `None`: not from the file.
    line: Option<usize>,
    /// Whether the value is an override; errors then name the key without its table.
    is_override: bool,
    value: Node,
}

/// A value. Words, numbers and booleans are all text, so that files and command lines are parsed by
/// the same functions.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// Text in quotes.
    Text(String),
    /// A number, `true` or `false`.
    Plain(String),
    /// A list of values.
    List(Vec<Node>),
    /// A table.
    Table(Table),
    /// A list of tables.
    Tables(Vec<Table>),
    /// In changes: the key is removed.
    Nothing,
}

impl Node {
    /// The text of a single value.
    pub fn text(&self) -> Option<&str> {
        match self {
            Node::Text(text) | Node::Plain(text) => Some(text),
            _ => None,
        }
    }
}

/// Byte positions at which the lines of a text begin.
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
    /// The number of the line at a position, from 1.
    fn at(&self, position: usize) -> usize {
        self.0.partition_point(|begin| *begin <= position)
    }
}

/// Reads TOML.
pub(super) fn parse(text: &str) -> Result<Table, Error> {
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
        let inner = join(&path, &name);
        let value = node(value.get_ref(), &inner, line, lines)
            .map_err(|e| with_line(e.key(inner), line))?;
        entries.push(Entry {
            key: name,
            line,
            is_override: false,
            value,
        });
    }
    Ok(Table {
        path,
        line,
        entries,
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
        DeValue::Integer(i) if i.radix() == 10 => Node::Plain(i.as_str().to_owned()),
        DeValue::Integer(_) => {
            return Err(Error::new("only decimal numbers are understood")
                .remedy("write it with digits 0 to 9"));
        }
        DeValue::Float(f) => Node::Plain(f.as_str().to_owned()),
        DeValue::Boolean(b) => Node::Plain(b.to_string()),
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

/// The full name of a key in the table `path`: `link.up`.
pub(super) fn join(path: &str, key: &str) -> String {
    match (path, key) {
        ("", key) => key.to_owned(),
        (path, "") => path.to_owned(),
        (path, key) => format!("{path}.{key}"),
    }
}

/// Adds the line to an error; the file's name is added later.
fn with_line(mut error: Error, line: Option<usize>) -> Error {
    if error.line.is_none() && error.file.is_none() {
        error.line = line;
    }
    error
}

impl Table {
    /// An empty table, which errors call `path`: `link`, `flow[2]`.
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            ..Self::default()
        }
    }

    /// Name in errors.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Adds or replaces a value.
    pub fn put(&mut self, key: &str, value: Node) {
        self.enter(key, value, false);
    }

    /// Sets the value of an override; errors name the key without its table.
    pub(super) fn set(&mut self, key: &str, value: &str) {
        self.enter(key, Node::Text(value.to_owned()), true);
    }

    fn enter(&mut self, key: &str, value: Node, is_override: bool) {
        self.remove(key);
        self.entries.push(Entry {
            key: key.to_owned(),
            line: None,
            is_override,
            value,
        });
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.entries.retain(|e| e.key != key);
    }

    /// Whether the key's value is from an override.
    pub(super) fn is_override(&self, key: &str) -> bool {
        self.entry(key).is_some_and(|entry| entry.is_override)
    }

    /// Replaces the text of a key, if it has one; errors still name the key's line.
    pub(super) fn set_text(&mut self, key: &str, text: &str) {
        if let Some(Node::Text(own)) = self.get_mut(key) {
            text.clone_into(own);
        }
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.key == key)
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|e| &e.value)
    }

    /// The value of a key, mutable.
    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let entry = self.entries.iter_mut().find(|e| e.key == key);
        entry.map(|e| &mut e.value)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// The text of a key that has a single value.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }

    /// Every key with its value.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.entries.iter().map(|e| (e.key.as_str(), &e.value))
    }

    /// The table under a key.
    pub(super) fn table(&self, key: &str) -> Result<Option<&Table>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(Node::Table(table)) => Ok(Some(table)),
            Some(_) => {
                let name = join(&self.path, key);
                let error = Error::new("a table is wanted here");
                Err(self.error(
                    key,
                    error.remedy(format!("write [{name}] and its keys below")),
                ))
            }
        }
    }

    /// The tables under a key.
    pub(super) fn tables(&self, key: &str) -> Result<Option<&[Table]>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(Node::Tables(tables)) => Ok(Some(tables)),
            Some(_) => {
                let name = join(&self.path, key);
                let error = Error::new("a list of tables is wanted here");
                let remedy = format!("write [[{name}]] for each and its keys below");
                Err(self.error(key, error.remedy(remedy)))
            }
        }
    }

    /// The table under a key, created if the key is missing; `None` if the value is not a table.
    pub(super) fn table_mut(&mut self, key: &str) -> Option<&mut Table> {
        if !self.has(key) {
            let path = join(&self.path, key);
            self.put(key, Node::Table(Table::new(path)));
        }
        match self.get_mut(key) {
            Some(Node::Table(table)) => Some(table),
            _ => None,
        }
    }

    /// The tables under a key, if any.
    pub(super) fn tables_mut(&mut self, key: &str) -> &mut [Table] {
        match self.get_mut(key) {
            Some(Node::Tables(tables)) => tables,
            _ => &mut [],
        }
    }

    /// Inherits from `base` the values of the keys that `wanted` selects, unless this table has the
    /// key or one that replaces it.
    pub(super) fn inherit(
        &mut self,
        base: &Table,
        wanted: impl Fn(&str) -> bool,
        replaces: impl Fn(&str) -> &'static [&'static str],
    ) {
        for entry in base.entries.iter().filter(|e| wanted(&e.key)) {
            let key = entry.key.as_str();
            let own = |e: &Entry| e.key == key || replaces(&e.key).contains(&key);
            if !self.entries.iter().any(own) {
                self.entries.push(entry.clone());
            }
        }
    }

    /// Completes an error about a key of this table (an empty key: about the table itself) with its
    /// name and line.
    pub(super) fn error(&self, key: &str, error: Error) -> Error {
        let entry = self.entry(key);
        let path = match entry {
            Some(entry) if entry.is_override => key.to_owned(),
            _ => join(&self.path, key),
        };
        let line = entry.map_or(self.line, |e| e.line);
        match path.as_str() {
            "" => with_line(error, line),
            path => with_line(error.under(path), line),
        }
    }

    /// Reports the first key that is not in the list.
    pub(super) fn known_only(&self, what: &str, known: &[&str]) -> Result<(), Error> {
        let stranger = |e: &&Entry| !known.contains(&e.key.as_str());
        let Some(entry) = self.entries.iter().find(stranger) else {
            return Ok(());
        };
        let what = format!("key in {what}");
        let error = Error::unknown(&what, &entry.key, known.iter().copied());
        Err(match self.path.as_str() {
            "" => with_line(error, entry.line),
            path => with_line(error.under(path), entry.line),
        })
    }
}
