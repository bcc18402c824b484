//! Writes a tree as TOML.

use std::fmt::Write;

use super::tree::{Node, Table, join};

/// The text of a file that reads back as this tree.
pub(super) fn write(table: &Table) -> String {
    let mut out = String::new();
    body(&mut out, "", table);
    out
}

fn body(out: &mut String, path: &str, table: &Table) {
    for (key, value) in table.iter() {
        if let Some(value) = inline(value) {
            let _ = writeln!(out, "{} = {value}", bare(key));
        }
    }
    for (key, value) in table.iter() {
        let path = join(path, &bare(key));
        match value {
            Node::Table(table) => {
                let _ = writeln!(out, "\n[{path}]");
                body(out, &path, table);
            }
            Node::Tables(tables) => {
                for table in tables {
                    let _ = writeln!(out, "\n[[{path}]]");
                    body(out, &path, table);
                }
            }
            _ => {}
        }
    }
}

/// A value that fits on the key's line; `None` for tables.
pub(super) fn inline(value: &Node) -> Option<String> {
    match value {
        Node::Text(text) => Some(quoted(text)),
        Node::Plain(text) => Some(text.clone()),
        Node::List(items) => {
            let items: Option<Vec<String>> = items.iter().map(inline).collect();
            items.map(|items| format!("[{}]", items.join(", ")))
        }
        Node::Table(_) | Node::Tables(_) | Node::Nothing => None,
    }
}

/// A key, quoted if necessary.
fn bare(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match !key.is_empty() && key.chars().all(is_bare) {
        true => key.to_owned(),
        false => quoted(key),
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
