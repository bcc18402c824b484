//! One option of a kind: its word and its field.

use std::iter::Peekable;

use super::OptionInfo;
use crate::error::Error;
use crate::field::Field;

/// An option: its word, what it does, and where its value is kept.
pub(super) struct Opt<T: 'static> {
    pub head: Head,
    pub field: Field<T>,
}

/// The part of an option that does not depend on the type of the parameters.
pub(super) struct Head {
    pub name: &'static str,
    pub meaning: &'static str,
    /// Notation of the value; empty for a word that stands alone.
    pub syntax: &'static str,
    /// A flag's word for false, if it has one.
    pub off: Option<&'static str>,
    sort: OptionKind,
    /// Whether it may be repeated; the last one counts, as in `tc`.
    pub repeatable: bool,
    /// Whether its value is all following words that begin with a digit.
    list: bool,
    /// Whether its value is all following words.
    rest: bool,
    /// Options of the classes that this option begins.
    pub classes: Option<fn() -> Vec<OptionInfo>>,
}

/// How an option's words are read.
#[derive(Clone, Copy, PartialEq)]
enum OptionKind {
    /// A word that stands alone for true, and optionally another one for false.
    Flag,
    /// One of some words that stand alone.
    Word,
    Count,
    /// A file whose values are defaults for the following words.
    File,
    Other,
}

impl<T> Opt<T> {
    pub const fn new(name: &'static str, field: Field<T>, meaning: &'static str) -> Self {
        let sort = match field {
            Field::Flag(..) | Field::Switch { .. } => OptionKind::Flag,
            Field::Word { .. } => OptionKind::Word,
            Field::Count(..) | Field::MaybeCount(..) => OptionKind::Count,
            Field::File { .. } => OptionKind::File,
            _ => OptionKind::Other,
        };
        let head = Head {
            name,
            meaning,
            syntax: if field.is_flag() { "" } else { field.syntax() },
            off: field.off(),
            sort,
            repeatable: false,
            list: false,
            rest: false,
            classes: None,
        };
        Self { head, field }
    }

    /// The option may be repeated and may override others; the last one counts, as in `tc`.
    pub const fn repeatable(mut self) -> Self {
        self.head.repeatable = true;
        self
    }

    /// The value is a list of numbers.
    pub const fn list(mut self) -> Self {
        self.head.list = true;
        self
    }

    /// The value is all following words.
    pub const fn rest(mut self) -> Self {
        self.head.rest = true;
        self
    }

    /// The value is a list of classes with these options.
    pub const fn classes(mut self, options: fn() -> Vec<OptionInfo>) -> Self {
        self.head.classes = Some(options);
        self.rest()
    }
}

impl Head {
    pub fn matches(&self, word: &str) -> bool {
        self.words_of().any(|own| own == word)
    }

    /// Every word that names it.
    pub fn words_of(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.name.split('|').chain(self.off)
    }

    /// Whether the word stands alone.
    pub fn is_flag(&self) -> bool {
        matches!(self.sort, OptionKind::Flag | OptionKind::Word)
    }

    /// Whether it reads a file whose values are defaults for the following words.
    pub fn is_file(&self) -> bool {
        self.sort == OptionKind::File
    }

    /// Reads the value after its word; empty for a word that stands alone.
    pub fn value_in<'a>(
        &self,
        words: &mut Peekable<impl Iterator<Item = &'a str>>,
    ) -> Result<String, Error> {
        if self.is_flag() {
            return Ok(String::new());
        }
        let mut value = String::new();
        if self.list || self.rest {
            let first = |c: char| self.rest || c.is_ascii_digit();
            let number = |word: &&str| word.starts_with(first);
            while let Some(word) = words.next_if(number) {
                value.push_str(if value.is_empty() { "" } else { " " });
                value.push_str(word);
            }
        } else if let Some(word) = words.next() {
            value.push_str(word);
        }
        if value.is_empty() {
            let (name, syntax) = (self.name, self.syntax);
            return Err(Error::new(format!("`{name}` needs a value"))
                .remedy(format!("write {name} {syntax}")));
        }
        Ok(value)
    }

    /// Text that the field reads for this word and the value after it.
    pub fn text<'a>(&self, word: &'a str, value: &'a str) -> &'a str {
        match self.sort {
            OptionKind::Word => word,
            OptionKind::Flag if word == self.name => "true",
            OptionKind::Flag => "false",
            // `tc` prints counts of packets as "1000p".
            OptionKind::Count => value.strip_suffix('p').unwrap_or(value),
            OptionKind::File | OptionKind::Other => value,
        }
    }

    /// A field's text in queue words, empty for none; for a flag, its current word.
    pub fn shown(&self, text: String) -> String {
        match self.sort {
            OptionKind::Flag if text == "true" => self.name.to_owned(),
            OptionKind::Flag => self.off.unwrap_or_default().to_owned(),
            _ => text,
        }
    }

    /// The word with which a value from [`Head::shown`] is read back.
    pub fn name_of<'a>(&self, value: &'a str) -> &'a str {
        match self.is_flag() {
            true => value,
            false => self.name,
        }
    }

    /// The option with a value from [`Head::shown`], as queue words.
    pub fn words(&self, value: &str) -> String {
        match self.is_flag() {
            true => value.to_owned(),
            false => format!("{} {value}", self.name),
        }
    }
}
