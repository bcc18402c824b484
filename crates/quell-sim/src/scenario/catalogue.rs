//! Lists all keys of scenario files by table, for the documentation.

use serde::Serialize;

use super::key::{Fallback, Keys, Row};
use super::keys::{KINDS, Kind, TABLES, of_kind, rows};
use super::toml::inline;

/// A table of a scenario file, or the keys of one kind of flow.
#[derive(Clone, Debug, Serialize)]
pub struct TableInfo {
    /// `file`, `link`, `wifi.node`, or the kind of flow.
    pub name: &'static str,
    /// What the table describes.
    pub about: &'static str,
    /// Keys of the table; those of `web`, `page` and `video` are without TCP's keys.
    pub keys: Vec<KeyInfo>,
}

/// A key of a scenario file.
#[derive(Clone, Debug, Serialize)]
pub struct KeyInfo {
    /// Name.
    pub name: &'static str,
    /// Notation of the value: alternatives separated by `|`, words as they are, types of values in
    /// capitals (`N`, `TIME`).
    pub value: &'static str,
    /// Default as it would be written, in Markdown; empty: none.
    pub default: String,
    /// Meaning, in Markdown.
    pub meaning: String,
}

/// All keys, table by table; the keys of `[link]` are also those of `[link.up]` and `[[hop]]`.
pub fn catalogue() -> Vec<TableInfo> {
    let tables = TABLES
        .iter()
        .filter(|t| !matches!(t.name, "link.up" | "hop"));
    let tables = tables.map(|t| TableInfo {
        name: if t.name.is_empty() { "file" } else { t.name },
        about: t.about,
        keys: infos(t.sections),
    });
    // A kind with two names is listed once. A kind that has only TCP's keys is not listed.
    let described = |kind: &&Kind| {
        (kind.make)().name() == kind.name
            && !matches!(kind.name, "probe" | "download" | "upload" | "backup")
    };
    let kinds = KINDS.iter().filter(described).map(|kind| TableInfo {
        name: kind.name,
        about: kind.about,
        keys: match kind.name {
            // The other sections are TCP's.
            "web" | "page" | "video" => infos(&of_kind(&(kind.make)())[..1]),
            _ => infos(&of_kind(&(kind.make)())),
        },
    });
    tables.chain(kinds).collect()
}

fn infos(sections: &[&'static dyn Keys]) -> Vec<KeyInfo> {
    let info = |row: Row| KeyInfo {
        name: row.name,
        value: row.syntax,
        default: match &row.default {
            Fallback::None => String::new(),
            Fallback::Value(node) => format!("`{}`", inline(node).unwrap_or_default()),
            Fallback::Words(words) => (*words).to_owned(),
        },
        meaning: match row.only {
            Some((key, word)) => format!("with `{key} = \"{word}\"`: {}", row.meaning),
            None => row.meaning.to_owned(),
        },
    };
    rows(sections).into_iter().map(info).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_listed_once_and_says_what_it_means() {
        let kinds: Vec<&str> = KINDS.iter().map(|k| k.name).collect();
        let flow = catalogue().into_iter().find(|t| t.name == "flow").unwrap();
        assert_eq!(flow.keys[0].value, kinds.join("|"));
        for table in catalogue() {
            let mut names: Vec<&str> = table.keys.iter().map(|k| k.name).collect();
            // A flow has the keys of its kind and those of all flows.
            if kinds.contains(&table.name) {
                names.extend(flow.keys.iter().map(|k| k.name));
            }
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "{}", table.name);
            assert!(table.keys.iter().all(|k| !k.meaning.is_empty()));
        }
    }
}
