//! Keys of a scenario file, and sections: the keys that describe one struct. A section reads,
//! checks, writes and lists its keys, so that each key is defined in one place.

use quell_link::Error;
use quell_link::field::{Field, Range};

use super::tree::{Node, Table};

/// A key: its value, meaning and default.
pub(super) struct Key<T: 'static> {
    pub name: &'static str,
    value: Value<T>,
    meaning: &'static str,
    /// Default in words, if the section's default struct does not show it.
    default: &'static str,
    /// This key is allowed only if this earlier key has this value.
    only: Option<(&'static str, &'static str)>,
    /// Keys that this one replaces. Two keys that replace each other exclude each other.
    replaces: &'static [&'static str],
}

/// Reading and writing of a key's value.
pub(super) enum Value<T: 'static> {
    /// One value.
    One(Field<T>),
    /// A list, or either one value or a list.
    List {
        /// As in [`Field::Other`]; lists in brackets, `...` for more items of the same form.
        syntax: &'static str,
        set: fn(&mut T, &Node) -> Result<(), Error>,
        get: fn(&T) -> Option<Node>,
    },
}

/// A key with one value.
pub(super) const fn key<T>(name: &'static str, field: Field<T>, meaning: &'static str) -> Key<T> {
    any(name, Value::One(field), meaning)
}

/// A key with any value.
pub(super) const fn any<T>(name: &'static str, value: Value<T>, meaning: &'static str) -> Key<T> {
    Key {
        name,
        value,
        meaning,
        default: "",
        only: None,
        replaces: &[],
    }
}

impl<T> Key<T> {
    /// Sets the default in words.
    pub const fn or(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    /// Allows this key only if an earlier key has this value.
    pub const fn only(mut self, key: &'static str, value: &'static str) -> Self {
        self.only = Some((key, value));
        self
    }

    /// Sets the keys that this key replaces.
    pub const fn replaces(mut self, keys: &'static [&'static str]) -> Self {
        self.replaces = keys;
        self
    }
}

/// Keys of which a table needs at least one.
pub(super) struct Needs {
    pub one_of: &'static [&'static str],
    /// The error if the table has none of them.
    pub what: &'static str,
    pub remedy: &'static str,
}

/// The keys that describe a `T`.
pub(super) struct Section<T: 'static> {
    pub keys: &'static [Key<T>],
    /// The struct that a table without any of the keys describes.
    pub default: fn() -> T,
    pub needs: Option<Needs>,
    /// Sets defaults that depend on several keys, and checks rules between keys.
    pub finish: fn(&mut T, &Table) -> Result<(), Error>,
}

/// A key as documents, schemas and lists of known keys need it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub name: &'static str,
    /// Notation of the value.
    pub syntax: &'static str,
    pub range: Option<Range>,
    pub default: Fallback,
    pub meaning: &'static str,
    pub only: Option<(&'static str, &'static str)>,
    pub replaces: &'static [&'static str],
}

/// Default of a key.
#[derive(Clone, Debug)]
pub(super) enum Fallback {
    /// No default.
    None,
    /// A value.
    Value(Node),
    /// A description in words, for a default that is not one value.
    Words(&'static str),
}

/// A section, independent of the struct that it describes.
pub(super) trait Keys: Sync {
    fn rows(&self) -> Vec<Row>;
    fn needs(&self) -> Option<&Needs>;
}

/// Visits the sections of a value that several sections describe.
pub(super) trait Visitor {
    fn visit<T: Clone>(&mut self, section: &'static Section<T>, value: &mut T)
    -> Result<(), Error>;
}

/// Reads the sections from a table.
pub(super) struct Reader<'a>(pub &'a Table);

/// Writes the sections into a table.
pub(super) struct Writer<'a>(pub &'a mut Table);

/// Collects the sections.
pub(super) struct Names(pub Vec<&'static dyn Keys>);

impl Visitor for Reader<'_> {
    fn visit<T: Clone>(
        &mut self,
        section: &'static Section<T>,
        value: &mut T,
    ) -> Result<(), Error> {
        section.read(self.0, value)
    }
}

impl Visitor for Writer<'_> {
    fn visit<T: Clone>(
        &mut self,
        section: &'static Section<T>,
        value: &mut T,
    ) -> Result<(), Error> {
        section.write(value, self.0);
        Ok(())
    }
}

impl Visitor for Names {
    fn visit<T: Clone>(&mut self, section: &'static Section<T>, _: &mut T) -> Result<(), Error> {
        self.0.push(section);
        Ok(())
    }
}

impl<T: Clone> Section<T> {
    fn find(&self, name: &str) -> Option<&'static Key<T>> {
        self.keys.iter().find(|k| k.name == name)
    }

    /// The keys that a key replaces.
    pub fn replaces(&self, name: &str) -> &'static [&'static str] {
        self.find(name).map_or(&[], |k| k.replaces)
    }

    /// Whether this key is allowed, given the values of the earlier keys.
    fn applies(&self, key: &Key<T>, value: &T) -> bool {
        key.only.is_none_or(|(other, word)| {
            matches!(self.find(other).map(|k| &k.value), Some(Value::One(field)) if field.get(value) == word)
        })
    }

    /// Reads the keys that the table has into `value`.
    pub fn read(&self, table: &Table, value: &mut T) -> Result<(), Error> {
        if let Some(needs) = &self.needs
            && !needs.one_of.iter().any(|k| table.has(k))
        {
            return Err(table.error("", Error::new(needs.what).remedy(needs.remedy)));
        }
        for (i, key) in self.keys.iter().enumerate() {
            let Some(node) = table.get(key.name) else {
                continue;
            };
            let fail = |e| table.error(key.name, e);
            let excludes = |other: &&Key<T>| {
                table.has(other.name)
                    && key.replaces.contains(&other.name)
                    && other.replaces.contains(&key.name)
            };
            if let Some(other) = self.keys[..i].iter().find(excludes) {
                let what = format!("`{}` and `{}` exclude each other", other.name, key.name);
                return Err(fail(Error::new(what).remedy("keep one of them")));
            }
            if let (Some((other, word)), false) = (key.only, self.applies(key, value)) {
                let what = format!("`{}` is for {other} = \"{word}\" alone", key.name);
                let remedy = format!("leave it out, or write {other} = \"{word}\"");
                return Err(fail(Error::new(what).remedy(remedy)));
            }
            match (&key.value, node.text()) {
                (Value::One(field), Some(text)) => field.set(value, text),
                (Value::One(_), None) => {
                    Err(Error::new("one value is wanted here, not several")
                        .remedy("write key = value"))
                }
                (Value::List { set, .. }, _) => set(value, node),
            }
            .map_err(fail)?;
        }
        (self.finish)(value, table)
    }

    /// A new value from a table, with defaults filled in.
    pub fn read_new(&self, table: &Table) -> Result<T, Error> {
        let mut value = (self.default)();
        self.read(table, &mut value)?;
        Ok(value)
    }

    /// Writes all keys that have a value.
    pub fn write(&self, value: &T, table: &mut Table) {
        for key in self.keys.iter().filter(|k| self.applies(k, value)) {
            if let Some(node) = key.value.get(value) {
                table.put(key.name, node);
            }
        }
    }
}

impl<T: Clone> Value<T> {
    fn get(&self, value: &T) -> Option<Node> {
        match self {
            Value::List { get, .. } => get(value),
            Value::One(field) => Some(field.get(value))
                .filter(|text| !text.is_empty())
                .map(|text| self.node(text)),
        }
    }

    /// The node of a value's text: numbers and booleans are written without quotes, unless the
    /// key's values are texts.
    fn node(&self, text: String) -> Node {
        let is_text = self
            .syntax()
            .split('|')
            .any(|s| matches!(s, "TEXT" | "WORDS" | "FILE"));
        let is_plain = matches!(text.as_str(), "true" | "false") || text.parse::<f64>().is_ok();
        match !is_text && is_plain {
            true => Node::Plain(text),
            false => Node::Text(text),
        }
    }

    fn syntax(&self) -> &'static str {
        match self {
            Value::One(field) => field.syntax(),
            Value::List { syntax, .. } => syntax,
        }
    }
}

impl<T: Clone> Keys for Section<T> {
    fn rows(&self) -> Vec<Row> {
        let default = (self.default)();
        let row = |key: &Key<T>| Row {
            name: key.name,
            syntax: key.value.syntax(),
            range: match &key.value {
                Value::One(field) => field.range(),
                Value::List { .. } => None,
            },
            default: match (key.default, key.value.get(&default)) {
                ("", None) => Fallback::None,
                ("", Some(node)) => Fallback::Value(node),
                (words, _) => Fallback::Words(words),
            },
            meaning: key.meaning,
            only: key.only,
            replaces: key.replaces,
        };
        self.keys.iter().map(row).collect()
    }

    fn needs(&self) -> Option<&Needs> {
        self.needs.as_ref()
    }
}
