//! A kind of queue as a table of options that reads, prints and lists its words. No word is
//! silently ignored: a preset (an option that sets other options as well) has to come before the
//! options that it would override.

use std::fmt;

use super::option::{Head, Opt};
use super::{AnySpec, KindInfo, OptionInfo, Spec, downcast, guard};
use crate::error::Error;
use crate::field::Field;

/// A kind, independent of the type of its parameters.
pub(super) trait AnyKind: Sync {
    fn name(&self) -> &'static str;
    fn parse(&self, words: &[&str]) -> Result<Box<dyn AnySpec>, Error>;
    /// The options whose values are not the defaults, as words.
    fn differing(&self, spec: &dyn AnySpec) -> Vec<String>;
    fn info(&self) -> KindInfo;
}

/// A row of the table of kinds.
pub(super) struct Kind<T: 'static> {
    pub name: &'static str,
    pub summary: &'static str,
    pub source: &'static str,
    pub default: fn() -> T,
    pub options: &'static [Opt<T>],
    /// Checks conditions between options.
    pub check: fn(&T) -> Result<(), &'static str>,
}

/// Parameters with the table of their options. Code that reads and prints words works on this
/// trait, so it is compiled once and not for each type of parameters.
trait Row {
    fn len(&self) -> usize;
    fn head(&self, option: usize) -> &Head;
    /// The value in queue words, empty for none; for a flag, its current word.
    fn get(&self, option: usize) -> String;
    fn set(&mut self, option: usize, word: &str, value: &str) -> Result<(), Error>;
    fn check(&self) -> Result<(), &'static str>;
    /// The default parameters.
    fn fresh(&self) -> Box<dyn Row + '_>;
    /// The parameters with only the file of this option given.
    fn of_file(&self, option: usize) -> Option<Box<dyn Row + '_>>;
}

/// Parameters of a kind.
struct Filled<'a, T: 'static> {
    kind: &'a Kind<T>,
    params: T,
}

impl<T: Clone> Row for Filled<'_, T> {
    fn len(&self) -> usize {
        self.kind.options.len()
    }

    fn head(&self, option: usize) -> &Head {
        &self.kind.options[option].head
    }

    fn get(&self, option: usize) -> String {
        let Opt { head, field } = &self.kind.options[option];
        head.shown(field.get(&self.params))
    }

    fn set(&mut self, option: usize, word: &str, value: &str) -> Result<(), Error> {
        let Opt { head, field } = &self.kind.options[option];
        field.set(&mut self.params, head.text(word, value))
    }

    fn check(&self) -> Result<(), &'static str> {
        (self.kind.check)(&self.params)
    }

    fn fresh(&self) -> Box<dyn Row + '_> {
        Box::new(self.kind.filled())
    }

    fn of_file(&self, option: usize) -> Option<Box<dyn Row + '_>> {
        let Field::File { of_file, .. } = self.kind.options[option].field else {
            return None;
        };
        let params = of_file(&self.params);
        let kind = self.kind;
        Some(Box::new(Filled { kind, params }))
    }
}

/// An option as it was typed.
struct Given<'a> {
    option: usize,
    head: &'a Head,
    word: &'a str,
    /// Empty for a word that stands alone.
    value: String,
}

impl Given<'_> {
    fn apply(&self, row: &mut dyn Row) -> Result<(), Error> {
        let set = row.set(self.option, self.word, &self.value);
        set.map_err(|e| e.key(self.head.name))
    }
}

impl fmt::Display for Given<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => f.write_str(self.word),
            value => write!(f, "{} {value}", self.word),
        }
    }
}

/// Values of all options.
fn values(row: &dyn Row) -> Vec<String> {
    (0..row.len()).map(|i| row.get(i)).collect()
}

/// Values of all options if only these words are given.
fn values_after(row: &dyn Row, given: &[&Given<'_>]) -> Result<Vec<String>, Error> {
    let mut row = row.fresh();
    given.iter().try_for_each(|g| g.apply(&mut *row))?;
    Ok(values(&*row))
}

/// Whether the later option overrides a value that the earlier one set: swapping the two would
/// change that value.
fn overrides(row: &dyn Row, later: &Given<'_>, earlier: &Given<'_>) -> Result<bool, Error> {
    let (default, alone) = (values_after(row, &[])?, values_after(row, &[earlier])?);
    let (here, turned) = (
        values_after(row, &[earlier, later])?,
        values_after(row, &[later, earlier])?,
    );
    // Values from a file are only defaults for the following words.
    let brings = earlier.head.is_file();
    Ok((0..row.len()).any(|i| {
        let set = i == earlier.option || (!brings && alone[i] != default[i]);
        i != later.option && set && here[i] != turned[i]
    }))
}

/// Reads the options into default parameters.
fn read(default: &dyn Row, words: &[&str], row: &mut dyn Row) -> Result<(), Error> {
    let mut given: Vec<Given<'_>> = Vec::new();
    let mut words = words.iter().copied().peekable();
    let heads: Vec<&Head> = (0..default.len()).map(|i| default.head(i)).collect();
    while let Some(word) = words.next() {
        let Some(option) = heads.iter().position(|head| head.matches(word)) else {
            let names: Vec<_> = heads.iter().flat_map(|head| head.words_of()).collect();
            return Err(Error::unknown("option", word, names.iter().copied()));
        };
        let head = heads[option];
        let same = |g: &&Given<'_>| g.option == option;
        if let Some(earlier) = given.iter().find(same).filter(|_| !head.repeatable) {
            return Err(match earlier.word == word {
                true => Error::new("given twice").remedy("give it once").key(word),
                false => {
                    let what = format!("`{}` and `{word}` exclude each other", earlier.word);
                    Error::new(what).remedy("keep one of them")
                }
            });
        }
        let value = head.value_in(&mut words)?;
        let now = Given {
            option,
            head,
            word,
            value,
        };
        let before = values(row);
        now.apply(row)?;
        let is_preset = (before.into_iter().zip(values(row)).enumerate())
            .any(|(i, (before, after))| i != option && before != after);
        if is_preset && !head.repeatable {
            for earlier in given.iter().filter(|g| !g.head.repeatable) {
                if overrides(default, &now, earlier)? {
                    let what = format!("comes after `{earlier}`, which it overrides");
                    let remedy = format!("write {now} first");
                    return Err(Error::new(what).remedy(remedy).key(head.name));
                }
            }
        }
        given.push(now);
    }
    row.check().map_err(Error::new)
}

/// The options whose values are not the defaults, as words.
fn differing(row: &dyn Row) -> Vec<String> {
    let mut default = row.fresh();
    let mut words = Vec::new();
    for i in 0..row.len() {
        let (head, value) = (row.head(i), row.get(i));
        if value == default.get(i) || value.is_empty() {
            continue;
        }
        // It may change the defaults of later options. Setting cannot fail, since the value was
        // parsed before.
        match row.of_file(i) {
            Some(of_file) => default = of_file,
            None => drop(default.set(i, head.name_of(&value), &value)),
        }
        words.push(head.words(&value));
    }
    words
}

/// The options, with those of the classes that an option begins.
fn infos(default: &dyn Row) -> Vec<OptionInfo> {
    let mut infos = Vec::new();
    for i in 0..default.len() {
        let head = default.head(i);
        infos.push(OptionInfo {
            name: match head.off {
                Some(off) => format!("{}|{off}", head.name),
                None => head.name.to_owned(),
            },
            value: head.syntax,
            default: match default.get(i) {
                d if !d.is_empty() => d,
                _ if head.syntax.is_empty() => "off".to_owned(),
                _ => "unset".to_owned(),
            },
            meaning: head.meaning,
        });
        let of_class = head.classes.map_or_else(Vec::new, |options| options());
        infos.extend(of_class.into_iter().map(|info| OptionInfo {
            name: format!("{} {}", head.name, info.name),
            ..info
        }));
    }
    infos
}

impl<T: Clone> Kind<T> {
    fn filled(&self) -> Filled<'_, T> {
        Filled {
            kind: self,
            params: (self.default)(),
        }
    }

    /// Reads the options.
    pub(super) fn read(&self, words: &[&str]) -> Result<T, Error> {
        let mut row = self.filled();
        read(&self.filled(), words, &mut row)?;
        Ok(row.params)
    }

    /// The options whose values are not the defaults, as words.
    pub(super) fn words_of(&self, params: &T) -> Vec<String> {
        differing(&Filled {
            kind: self,
            params: params.clone(),
        })
    }

    /// The options, with those of the classes that an option begins.
    pub(super) fn infos(&self) -> Vec<OptionInfo> {
        infos(&self.filled())
    }
}

impl<T: Spec> AnyKind for Kind<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn parse(&self, words: &[&str]) -> Result<Box<dyn AnySpec>, Error> {
        Ok(Box::new(self.read(words)?))
    }

    fn differing(&self, spec: &dyn AnySpec) -> Vec<String> {
        downcast::<T>(spec).map_or_else(Vec::new, |params| self.words_of(params))
    }

    fn info(&self) -> KindInfo {
        let options = self.infos().into_iter();
        KindInfo {
            name: self.name,
            summary: self.summary,
            source: self.source,
            options: options.chain(guard::options(self.name)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{Queue, catalogue};

    fn error(words: &str) -> String {
        Queue::parse(words).expect_err(words).to_string()
    }

    /// Possible values of an option, among them some that differ from its default.
    fn samples(kind: &str, option: &OptionInfo, files: &[(&str, String)]) -> Vec<String> {
        let values: Vec<String> = match option.value {
            "" => return option.name.split('|').map(str::to_owned).collect(),
            "FILE" => files
                .iter()
                .filter(|(k, _)| *k == kind)
                .map(|(_, f)| f.clone())
                .collect(),
            "VALUE/MASK" => vec!["1/3".into()],
            _ => [
                "1", "2", "300", "0.25", "0.5", "7ms", "15ms", "40ms", "1mbit",
            ]
            .map(str::to_owned)
            .into(),
        };
        let words = |v| format!("{} {v}", option.name);
        values.into_iter().map(words).collect()
    }

    #[test]
    fn an_option_that_a_preset_overrides_must_follow_it() {
        let models = concat!(env!("CARGO_MANIFEST_DIR"), "/models/");
        let table = quell_qdisc::control::learnqueue::Params {
            max_size: 60,
            delta: 0.9,
            ..Default::default()
        };
        let learned = quell_qdisc::control::learnqueue::LearnQueue::new(table);
        let path = super::super::tests::file("presets", &learned.table().save().unwrap());
        let files = [
            ("learnqueue", path.clone()),
            ("rlaqm", format!("{models}rl-aqm.safetensors")),
            ("lfq", format!("{models}lfq-offline-10.safetensors")),
            ("a3c_l4s", format!("{models}a3c-l4s.safetensors")),
        ];
        let mut refused = std::collections::BTreeSet::new();
        let mut pairs = 0;
        for kind in catalogue() {
            let name = kind.name;
            // As in tc, the last of several words counts.
            if name == "cake" {
                continue;
            }
            for (first, then) in kind
                .options
                .iter()
                .flat_map(|a| kind.options.iter().map(move |b| (a, b)))
                .filter(|(a, b)| a.name != b.name)
            {
                let both = samples(name, first, &files).into_iter().flat_map(|a| {
                    samples(name, then, &files)
                        .into_iter()
                        .map(move |b| (a.clone(), b))
                });
                for (a, b) in both {
                    let turned = Queue::parse(&format!("{name} {b} {a}"));
                    match Queue::parse(&format!("{name} {a} {b}")) {
                        // The order makes no difference, or the other order is refused.
                        Ok(queue) => {
                            pairs += 1;
                            if let Ok(turned) = turned {
                                assert_eq!(turned, queue, "{name} {a} {b}");
                            }
                        }
                        Err(e) if e.what.contains("which it overrides") => {
                            let preset = then.name.as_str();
                            assert_eq!(
                                e.to_string(),
                                format!(
                                    "{name}: {preset}: comes after `{a}`, which it overrides; write {b} first"
                                )
                            );
                            refused.insert((name, preset.to_owned(), first.name.clone()));
                            // Written after the preset, the option stays in the canonical words.
                            // (Another preset becomes several words there.)
                            let alone = Queue::parse(&format!("{name} {a}"));
                            if let (Ok(turned), Ok(alone)) = (turned, alone)
                                && a != "as_published"
                            {
                                let (turned, alone) = (turned.canonical(), alone.canonical());
                                assert!(turned.contains(&alone[name.len()..]), "{turned}: {a}");
                            }
                        }
                        Err(_) => {}
                    }
                }
            }
        }
        std::fs::remove_file(path).unwrap();
        assert!(pairs > 10_000, "{pairs}");
        let l4s = "any_ect|l4s_ect max_ecnth";
        let rtts = "alpha beta target tupdate";
        let published = "alpha alpha_min delayed_credit|immediate_credit epsilon epsilon_min eta gamma gamma_max step";
        let learned = "alpha alpha_min as_published basic_rate bytes_max_delay current_max_delay decay \
                       delayed_credit|immediate_credit delta epsilon epsilon_min eta fixed_point gamma gamma_max initial \
                       literal_update max packet period printed_gamma published_reward step target";
        let expected: std::collections::BTreeSet<_> = [
            ("a3c_l4s", "as_published", l4s),
            ("dualpi2", "max_rtt", rtts),
            ("dualpi2", "typical_rtt", rtts),
            ("l4s", "as_published", l4s),
            ("learnqueue", "as_published", published),
            ("learnqueue", "as_published", "initial"),
            ("learnqueue", "published_reward", published),
            ("learnqueue", "published_reward", "as_published"),
            ("learnqueue", "table", learned),
            (
                "pie",
                "ns3-2018",
                "alpha beta bytemode|nobytemode dq_rate_estimator|no_dq_rate_estimator ecn_prob ecn|noecn target tupdate",
            ),
        ]
        .into_iter()
        .flat_map(|(kind, preset, options)| {
            options
                .split_whitespace()
                .map(move |o| (kind, preset.to_owned(), o.to_owned()))
        })
        .collect();
        assert_eq!(refused, expected);
    }

    #[test]
    fn presets_after_options_that_they_override_are_refused() {
        for (words, message) in [
            (
                "learnqueue alpha 0.3 as_published",
                "learnqueue: as_published: comes after `alpha 0.3`, which it overrides; write as_published first",
            ),
            (
                "l4s max_ecnth 0.5 as_published",
                "l4s: as_published: comes after `max_ecnth 0.5`, which it overrides; write as_published first",
            ),
            (
                "a3c_l4s l4s_ect as_published",
                "a3c_l4s: as_published: comes after `l4s_ect`, which it overrides; write as_published first",
            ),
            (
                "pie target 5ms ns3-2018",
                "pie: ns3-2018: comes after `target 5ms`, which it overrides; write ns3-2018 first",
            ),
            (
                "dualpi2 beta 5 typical_rtt 15ms",
                "dualpi2: typical_rtt: comes after `beta 5`, which it overrides; write typical_rtt 15ms first",
            ),
            (
                "dualpi2 alpha 1 max_rtt 100ms",
                "dualpi2: max_rtt: comes after `alpha 1`, which it overrides; write max_rtt 100ms first",
            ),
        ] {
            assert_eq!(error(words), message);
        }
    }
}
