//! The options of the commands. Each is one row of a table, from which the parser of the command
//! line, the help, Python's command line, the keys of the configuration file and OpenWrt's start
//! script are made (tools/keys.py writes those that are files).

pub mod attach;
pub mod live;
pub mod steer;
pub mod watch;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;

use quell_link::Error;

/// Where an option can be given, and whether it can change at run time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scope {
    /// Only on the command line.
    Command,
    /// On the command line or as a key of the configuration file, which is read again on SIGHUP.
    File,
    /// As `File`, but the option cannot change at run time.
    Start,
}

/// An option of the options `T`.
pub struct Row<T> {
    /// Key in the configuration file. The option has `-` in place of `_`.
    pub name: &'static str,
    /// Former name, still accepted but not in the help.
    pub former: Option<&'static str>,
    /// Placeholder of the value in the help: in brackets if the value can be left out, empty for a
    /// flag.
    pub value: &'static str,
    /// Help text without the default.
    pub help: &'static str,
    /// Default as the help prints it; empty: off.
    pub default: &'static str,
    /// Whether the option can be repeated; each use adds a value.
    pub repeats: bool,
    /// Where the option can be given.
    pub scope: Scope,
    /// Parses a value into the option's field. The error says what kind of value is expected.
    pub fill: fn(&mut T, &str) -> Result<(), &'static str>,
    /// Whether the option's field has a value.
    pub given: fn(&T) -> bool,
}

impl<T> Row<T> {
    /// The option on the command line: `--name`.
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    /// Help text with the default.
    pub fn text(&self) -> String {
        match self.default {
            "" => self.help.to_owned(),
            default => format!("{}; default: {default}", self.help),
        }
    }

    fn is(&self, typed: &str) -> bool {
        let names = [Some(self.name), self.former];
        let name = typed.strip_prefix("--").map(|name| name.replace('-', "_"));
        name.is_some_and(|name| names.contains(&Some(name.as_str())))
            || (typed, self.name) == ("-q", "quiet")
    }
}

/// Type of an option's field.
pub trait Field: PartialEq + Sized {
    /// Whether the option can be repeated; each use adds a value.
    const REPEATS: bool = false;
    /// Parses a value from the command line.
    ///
    /// # Errors
    /// What kind of value is expected, if `text` cannot be parsed.
    fn fill(&mut self, text: &str) -> Result<(), &'static str>;
    /// Whether the field has a value.
    fn given(&self) -> bool;
}

impl Field for bool {
    fn fill(&mut self, _: &str) -> Result<(), &'static str> {
        *self = true;
        Ok(())
    }

    fn given(&self) -> bool {
        *self
    }
}

impl Field for Vec<String> {
    const REPEATS: bool = true;

    fn fill(&mut self, text: &str) -> Result<(), &'static str> {
        self.push(text.to_owned());
        Ok(())
    }

    fn given(&self) -> bool {
        !self.is_empty()
    }
}

/// Type of a value on the command line.
pub trait Value: FromStr + PartialEq {
    /// Description of the type for error messages.
    const WHAT: &'static str = "a text";
}

impl Value for String {}
impl Value for PathBuf {}

impl Value for u16 {
    const WHAT: &'static str = "a whole number up to 65535";
}

impl Value for u32 {
    const WHAT: &'static str = "a whole number up to 4294967295";
}

impl Value for usize {
    const WHAT: &'static str = "a whole number";
}

impl<T: Value> Field for Option<T> {
    fn fill(&mut self, text: &str) -> Result<(), &'static str> {
        *self = Some(text.parse().map_err(|_| T::WHAT)?);
        Ok(())
    }

    fn given(&self) -> bool {
        self.is_some()
    }
}

/// The options of a command.
pub trait Table: Default + 'static {
    /// All options, in the order of the help.
    const ROWS: &'static [Row<Self>];
    /// Positional arguments and their help texts.
    const WORDS: &'static [(&'static str, &'static str)];

    /// Default of the option `name`, as the help prints it.
    ///
    /// # Panics
    /// If there is no such option.
    fn default_of(name: &str) -> &'static str {
        let row = Self::ROWS.iter().find(|row| row.name == name);
        row.expect("a row of the table").default
    }

    /// Whether the option or key `name` was given.
    fn given(&self, name: &str) -> bool {
        let mut rows = Self::ROWS.iter();
        rows.any(|row| row.name == name && (row.given)(self))
    }

    /// Sets an option to a value from Python or from the command line.
    ///
    /// # Errors
    /// If the value cannot be parsed.
    fn set(&mut self, row: &Row<Self>, text: &str) -> Result<(), Error> {
        (row.fill)(self, text)
            .map_err(|what| Error::new(format!("\"{text}\" is not {what}")).key(row.flag()))
    }

    /// Parses the command line of `command` into options and positional arguments. `None`: `--help`
    /// or `-h` was given.
    ///
    /// # Errors
    /// If an option is unknown, lacks its value, or its value cannot be parsed.
    fn read(
        command: &str,
        arguments: impl Iterator<Item = String>,
    ) -> Result<Option<(Self, Vec<String>)>, Error> {
        let (mut options, mut words) = (Self::default(), Vec::new());
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            if !argument.starts_with('-') || argument == "-" {
                words.push(argument);
                continue;
            }
            let (name, inline) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            if matches!(name, "--help" | "-h") {
                return Ok(None);
            }
            let Some(row) = Self::ROWS.iter().find(|row| row.is(name)) else {
                let error = Error::new("unknown option").key(name);
                return Err(error.remedy(format!("see {command} --help")));
            };
            let value = match row.value.as_bytes().first() {
                None => String::new(),
                // A port that is left out is 0: any that is free.
                Some(b'[') => inline
                    .or_else(|| arguments.next_if(|next| next.bytes().all(|b| b.is_ascii_digit())))
                    .unwrap_or_else(|| "0".to_owned()),
                Some(_) => inline
                    .or_else(|| arguments.next())
                    .ok_or_else(|| Error::new("needs a value").key(name))?,
            };
            options.set(row, &value)?;
        }
        Ok(Some((options, words)))
    }

    /// The help's list of positional arguments and options, broken at column 120.
    fn help() -> String {
        let mut text = String::new();
        let words = Self::WORDS.iter();
        let words = words.map(|(head, about)| ((*head).to_owned(), (*about).to_owned()));
        let rows = Self::ROWS.iter();
        let heads = words.chain(rows.map(|row| (row.flag() + " " + row.value, row.text())));
        let width = heads.clone().map(|(head, _)| head.len()).max().unwrap_or(0);
        for (head, about) in heads {
            let mut line = format!("  {head:width$} ");
            for word in about.split(' ') {
                if line.len() + 1 + word.len() > 120 {
                    let _ = writeln!(text, "{line}");
                    line = " ".repeat(width + 3);
                }
                let _ = write!(line, " {word}");
            }
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

/// Declares a struct with a field for each row and for the positional arguments (`words`). The rows
/// of `file` are also keys of the configuration file.
macro_rules! options {
    (
        $(#[$about:meta])*
        $table:ident
        words { $($(#[$note:meta])* $word:ident: $what:ty = $($head:literal $text:literal),+;)* }
        $(file { $($key:ident $(or $former:literal)?: $kind:ty, $value:literal, $help:literal, $default:literal, $scope:ident;)* })?
        command { $($name:ident: $type:ty, $metavar:literal, $does:literal, $unset:literal;)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $table {
            $($(#[$note])* #[serde(skip)] pub $word: $what,)*
            $($(#[doc = $help] $(#[serde(alias = $former)])? pub $key: $kind,)*)?
            $(#[doc = $does] #[serde(skip)] pub $name: $type,)*
        }

        impl $crate::options::Table for $table {
            const WORDS: &'static [(&'static str, &'static str)] = &[$($(($head, $text)),+),*];
            const ROWS: &'static [$crate::options::Row<Self>] = &[
                $($($crate::options::Row {
                    name: stringify!($key),
                    former: [$(Some($former),)? None][0],
                    value: $value,
                    help: $help,
                    default: $default,
                    repeats: <$kind as $crate::options::Field>::REPEATS,
                    scope: $crate::options::Scope::$scope,
                    fill: |table, text| $crate::options::Field::fill(&mut table.$key, text),
                    given: |table| $crate::options::Field::given(&table.$key),
                },)*)?
                $($crate::options::Row {
                    name: stringify!($name),
                    former: None,
                    value: $metavar,
                    help: $does,
                    default: $unset,
                    repeats: <$type as $crate::options::Field>::REPEATS,
                    scope: $crate::options::Scope::Command,
                    fill: |table, text| $crate::options::Field::fill(&mut table.$name, text),
                    given: |table| $crate::options::Field::given(&table.$name),
                },)*
            ];
        }

        $(impl $table {
            /// These options, completed with those of the file that were not given.
            pub fn over(mut self, file: Self) -> Self {
                use $crate::options::Field;
                $(if !self.$key.given() {
                    self.$key = file.$key;
                })*
                self
            }

            /// Keys of the file whose values differ.
            pub fn changed(&self, other: &Self) -> Vec<&'static str> {
                let same = [$((stringify!($key), self.$key == other.$key)),*];
                same.into_iter().filter(|(_, same)| !same).map(|(key, _)| key).collect()
            }
        })?
    };
}
pub(crate) use options;

#[cfg(test)]
mod tests {
    use super::live::Options;
    use super::*;

    fn read(line: &str) -> Result<(Options, Vec<String>), String> {
        let read = Options::read("quell-live", line.split_whitespace().map(str::to_owned));
        read.map(Option::unwrap_or_default)
            .map_err(|e| e.to_string())
    }

    fn check<T: Table>() {
        for row in T::ROWS {
            let flag = row.flag();
            let line = [Some(&*flag), (!row.value.is_empty()).then_some("7")];
            let read = T::read("quell", line.into_iter().flatten().map(str::to_owned));
            let (options, words) = read.expect("an option").expect("no help");
            assert!(words.is_empty(), "{flag}");
            let given = T::ROWS.iter().filter(|row| options.given(row.name));
            let given: Vec<_> = given.map(|row| row.name).collect();
            assert_eq!(given, [row.name]);
            assert!(
                T::help().contains(&format!("  {flag} {}", row.value)),
                "{flag}"
            );
        }
        assert!(T::help().lines().all(|line| line.len() <= 120));
    }

    #[test]
    fn every_row_is_read_and_in_the_help() {
        check::<live::Options>();
        check::<watch::Options>();
        check::<steer::Options>();
        check::<attach::Options>();
        check::<attach::Detach>();
    }

    #[test]
    fn former_names_inline_values_and_ports_that_are_left_out() {
        let (options, _) =
            read("--door=af_xdp --dashboard --reflector 1 --reflector=2 -q").unwrap();
        assert_eq!(options.backend.as_deref(), Some("af_xdp"));
        assert_eq!((options.dashboard, options.quiet), (Some(0), true));
        assert_eq!(options.reflector, ["1", "2"]);
        assert_eq!(read("--dashboard 9200").unwrap().0.dashboard, Some(9200));
        for (line, said) in [
            ("--rate", "--rate: needs a value"),
            (
                "--metrics 70000",
                "--metrics: \"70000\" is not a whole number up to 65535",
            ),
            ("--frob", "--frob: unknown option; see quell-live --help"),
        ] {
            assert_eq!(read(line).unwrap_err(), said);
        }
    }
}
