//! `quell live --check`: every fault of a configuration file, one line each. It needs no privileges
//! and changes nothing.

use std::collections::BTreeMap;
use std::path::Path;

use quell_link::Error;
use toml::{Spanned, Table, Value};

use super::settings::{Options, Plan, text};
use super::upkeep::Interface;

/// Checks a file whose keys the `given` options override.
///
/// # Errors
/// All faults, at least one: those without a line first, then in the order of the file's lines.
pub fn plan(given: &Options, path: &Path) -> Result<Plan, Vec<Error>> {
    let file = path.display().to_string();
    let all = text(path, &format!("--check {file}")).map_err(|error| vec![error])?;
    let line_of = |at: usize| 1 + all[..at].matches('\n').count();
    let keys: BTreeMap<String, Spanned<Value>> = toml::from_str(&all).map_err(|e| {
        let line = e.span().map(|span| line_of(span.start));
        vec![Error::new(e.message().replace('\n', "; ")).at(&file, line)]
    })?;
    let lines = keys
        .iter()
        .map(|(key, value)| (key.clone(), line_of(value.span().start)));
    let mut faults = Faults {
        file,
        lines: lines.collect(),
        found: Vec::new(),
        given,
    };
    let mut options = given.clone();
    for (key, value) in keys {
        match Table::from_iter([(key.clone(), value.into_inner())]).try_into::<Options>() {
            Ok(one) => options = options.over(one),
            Err(e) => {
                let what = e.message().replace('\n', "; ");
                faults.add(Error::new(what).key(key.clone()));
                options = substituted(options, &key);
            }
        }
    }
    let plan = loop {
        match Plan::resolve(options.clone()) {
            Ok(plan) => break Some(plan),
            Err(error) => {
                let key = error.key.clone().unwrap_or_default();
                if !faults.add(error) {
                    break None;
                }
                options = substituted(options, &key);
            }
        }
    };
    if let Some(plan) = &plan {
        for (key, dev) in [("dev", &plan.options.dev), ("to", &plan.options.to)] {
            if let Some(Err(error)) = dev.as_deref().map(|dev| Interface::find(key, dev)) {
                faults.add(Error {
                    key: Some(key.to_owned()),
                    ..error
                });
            }
        }
        for error in plan.broken() {
            faults.add(error);
        }
    }
    faults.found.sort_by_key(|error| error.line);
    match plan {
        Some(plan) if faults.found.is_empty() => Ok(plan),
        _ => Err(faults.found),
    }
}

struct Faults<'a> {
    file: String,
    lines: BTreeMap<String, usize>,
    found: Vec<Error>,
    given: &'a Options,
}

impl Faults<'_> {
    /// Adds a fault of a key; false if the key has one already, of which this may be a consequence.
    fn add(&mut self, error: Error) -> bool {
        use crate::options::Table;
        let key = error.key.clone().unwrap_or_default();
        let flag = format!("--{}", key.replace('_', "-"));
        let had = self.found.iter().filter_map(|error| error.key.as_deref());
        if had.clone().any(|had| had == key || had == flag) {
            return false;
        }
        self.found.push(match self.given.given(&key) {
            true => Error {
                key: Some(flag),
                ..error
            },
            false => error.at(&self.file, self.lines.get(&key).copied()),
        });
        true
    }
}

/// Replaces the value of a faulty key by a valid one, so that the other keys can be checked.
fn substituted(options: Options, key: &str) -> Options {
    let rate = || Some("1gbit".to_owned());
    let mut other = options;
    match key {
        "dev" => other.dev = Some("lo".to_owned()),
        "rate" => other.rate = rate(),
        "ingress" => other.ingress = rate(),
        "aqm" => other.aqm = None,
        "ingress_aqm" => other.ingress_aqm = None,
        "autorate" => other.autorate = false,
        "reflector" => other.reflector = Vec::new(),
        "overhead" => other.overhead = None,
        "to" => other.no_fail_open = true,
        "backend" => other.backend = None,
        "cpu" => other.cpu = None,
        _ => {}
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, text: &str, given: &Options) -> Vec<String> {
        let file = std::env::temp_dir().join(format!("quell-{name}-{}.toml", std::process::id()));
        std::fs::write(&file, text).expect("room");
        let found = plan(given, &file).err().unwrap_or_default();
        std::fs::remove_file(&file).expect("written above");
        let path = file.display().to_string();
        let found = found
            .iter()
            .map(|error| error.to_string().replace(&path, "FILE"));
        found.collect()
    }

    #[test]
    fn each_fault_is_a_line_with_its_place_and_none_hides_another() {
        let text = "dev = 7\nrate = \"18 parsecs\"\naqm = \"codl\"\n# a comment\ningress = \"-1mbit\"\noverhead = 5000\n\
            cpu = \"4-2\"\nrat = \"1mbit\"\nmetrics = \"x\"\nbackend = \"af_inet\"\n";
        let found = faults("many", text, &Options::default());
        let places: Vec<_> = found
            .iter()
            .map(|line| line.splitn(3, ": ").take(2).collect::<Vec<_>>().join(": "))
            .collect();
        let all = [
            "FILE:1: dev",
            "FILE:2: rate",
            "FILE:3: aqm",
            "FILE:5: ingress",
            "FILE:6: overhead",
            "FILE:7: cpu",
            "FILE:8: rat",
            "FILE:9: metrics",
            "FILE:10: backend",
        ];
        assert_eq!(places, all, "{found:#?}");
        assert!(found[2].contains("codel"), "{}", found[2]);
    }

    #[test]
    fn missing_absent_and_overridden_keys_are_reported_and_a_good_file_has_no_fault() {
        let none = Options::default();
        let found = faults("empty", "", &none);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found.iter().all(|line| line.starts_with("FILE: ")),
            "{found:?}"
        );
        assert!(faults("good", "dev = \"lo\"\nrate = \"1mbit\"\n", &none).is_empty());
        let [absent] = &faults("absent", "rate = \"1mbit\"\ndev = \"quell-none\"\n", &none)[..]
        else {
            panic!("one fault");
        };
        assert!(
            absent.starts_with("FILE:2: dev: there is no such interface"),
            "{absent}"
        );
        let [syntax] = &faults("syntax", "dev = \"lo\"\nrate = 1mbit\n", &none)[..] else {
            panic!("one fault");
        };
        assert!(syntax.starts_with("FILE:2: "), "{syntax}");
        let given = Options {
            rate: Some("x".to_owned()),
            ..none
        };
        let [option] = &faults("option", "dev = \"lo\"\nrate = \"1mbit\"\n", &given)[..] else {
            panic!("one fault");
        };
        assert!(option.starts_with("--rate: "), "{option}");
    }
}
