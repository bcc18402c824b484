//! One option of a kind: its word and its field.

use std::iter::Peekable;

use super::OptionInfo;
use crate::error::Error;
use crate::field::Field;

/// An option: its word, what it does, and where its value is kept.
pub(super) struct Opt<T: 'static> {
    pub name: &'static str,
    pub field: Field<T>,
    pub meaning: &'static str,
    /// It may be given again, and what is said later counts, as `tc` has it.
    pub again: bool,
    /// Its value is all the words after it that begin with a digit.
    pub list: bool,
    /// Its value is all the words after it.
    pub rest: bool,
    /// The options of the classes that it begins.
    pub classes: Option<fn() -> Vec<OptionInfo>>,
}

impl<T> Opt<T> {
    /// The option may be given again and override others: what is said later counts, as `tc` has it.
    pub const fn again(mut self) -> Self {
        self.again = true;
        self
    }

    /// The value is a list of numbers.
    pub const fn list(mut self) -> Self {
        self.list = true;
        self
    }

    /// The value is all that follows.
    pub const fn rest(mut self) -> Self {
        self.rest = true;
        self
    }

    /// The value is a list of classes with these options.
    pub const fn classes(mut self, options: fn() -> Vec<OptionInfo>) -> Self {
        self.classes = Some(options);
        self.rest()
    }
}

impl<T: Clone> Opt<T> {
    pub fn matches(&self, word: &str) -> bool {
        self.words_of().any(|own| own == word)
    }

    /// Every word that names it.
    pub fn words_of(&self) -> impl Iterator<Item = &'static str> {
        self.name.split('|').chain(self.off())
    }

    /// Does the word stand alone?
    pub fn is_flag(&self) -> bool {
        self.field.is_flag()
    }

    /// A flag's opposite, if it has one.
    pub fn off(&self) -> Option<&'static str> {
        self.field.off()
    }

    /// How the value is written; empty for a word that stands alone.
    pub fn syntax(&self) -> &'static str {
        match self.is_flag() {
            true => "",
            false => self.field.syntax(),
        }
    }

    /// The value behind its word, empty for a word that stands alone.
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
            let (name, syntax) = (self.name, self.syntax());
            return Err(Error::new(format!("`{name}` needs a value"))
                .remedy(format!("write {name} {syntax}")));
        }
        Ok(value)
    }

    pub fn set(&self, params: &mut T, word: &str, value: &str) -> Result<(), Error> {
        let value = match self.field {
            Field::Word { .. } => word,
            Field::Flag(..) | Field::Switch { .. } if word == self.name => "true",
            Field::Flag(..) | Field::Switch { .. } => "false",
            // `tc` prints counts of packets as "1000p".
            Field::Count(..) | Field::MaybeCount(..) => value.strip_suffix('p').unwrap_or(value),
            _ => value,
        };
        self.field.set(params, value)
    }

    /// The value as one would write it, empty for none; for a flag the word that holds.
    pub fn get(&self, params: &T) -> String {
        let value = self.field.get(params);
        match (self.is_flag(), value.as_str()) {
            (false, _) => value,
            _ if matches!(self.field, Field::Word { .. }) => value,
            (true, "true") => self.name.to_owned(),
            (true, _) => self.off().unwrap_or_default().to_owned(),
        }
    }

    /// The word to read a value with that [`Opt::get`] gave.
    pub fn name_of<'a>(&'a self, value: &'a str) -> &'a str {
        match self.is_flag() {
            true => value,
            false => self.name,
        }
    }

    /// The option with a value that [`Opt::get`] gave, as one would write it.
    pub fn words(&self, value: &str) -> String {
        match self.is_flag() {
            true => value.to_owned(),
            false => format!("{} {value}", self.name),
        }
    }
}
