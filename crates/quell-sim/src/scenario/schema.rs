//! A JSON Schema (draft 2020-12) of scenario files, generated from the tables of keys.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::key::{Fallback, Row};
use super::keys::{BETWEEN, KINDS, TABLES, TableKeys, WAY, names, of_kind, rows};
use super::syntax::value_schema;
use super::toml::inline;
use super::tree::Node;

/// A JSON Schema of scenario files. With it, editors complete and describe keys and find most
/// mistakes. Mistakes that involve other files, queue words or a comparison of values are found
/// only when the file is read.
pub fn json_schema() -> Value {
    let [file, link, up, class, hop, wifi, noise, node, flow] = &TABLES;
    let one = |table: &TableKeys| json!({"$ref": format!("#/$defs/{}", table.name), "description": sentence(table.about)});
    let many = |table: &TableKeys| {
        let items = json!({"$ref": format!("#/$defs/{}", table.name)});
        json!({"type": "array", "items": items, "description": sentence(table.about)})
    };
    let mut root = object(file, &rows(file.sections), true);
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("quell scenario");
    for (key, schema) in [
        ("link", one(link)),
        ("wifi", one(wifi)),
        ("class", many(class)),
        ("hop", many(hop)),
        ("flow", many(flow)),
    ] {
        root["properties"][key] = schema;
    }
    let without =
        |keys: &[&str]| json!({"flow": {"items": {"propertyNames": {"not": {"enum": keys}}}}});
    root["oneOf"] = json!([
        {"required": ["link"], "not": {"required": ["wifi"]}, "properties": without(&names(&[&BETWEEN]))},
        {"required": ["wifi"], "not": {"anyOf": [{"required": ["link"]}, {"required": ["class"]}, {"required": ["hop"]}]},
         "properties": without(&names(&[&WAY]))},
    ]);
    let mut of_link = object(link, &rows(link.sections), true);
    of_link["properties"]["up"] = one(up);
    let mut of_wifi = object(wifi, &rows(wifi.sections), true);
    of_wifi["properties"]["noise"] = one(noise);
    of_wifi["properties"]["node"] = many(node);
    of_wifi["oneOf"] = json!([{"required": ["stations"]}, {"required": ["node"]}]);
    root["$defs"] = json!({
        "link": of_link,
        "link.up": object(up, &rows(up.sections), false),
        "class": object(class, &rows(class.sections), true),
        "hop": object(hop, &rows(hop.sections), true),
        "wifi": of_wifi,
        "wifi.noise": object(noise, &rows(noise.sections), true),
        "wifi.node": object(node, &rows(node.sections), false),
        "flow": flow_schema(flow),
    });
    root
}

/// Schema of a table with these keys. `whole`: it inherits nothing from another table.
fn object(table: &TableKeys, rows: &[Row], whole: bool) -> Value {
    let properties: Map<String, Value> = rows
        .iter()
        .map(|r| (r.name.to_owned(), property(r)))
        .collect();
    let mut rules = Vec::new();
    for needs in table.sections.iter().filter_map(|s| s.needs()) {
        let one_of = needs.one_of.iter().map(|key| json!({"required": [key]}));
        if whole || needs.one_of.len() == 1 {
            rules.push(json!({"anyOf": one_of.collect::<Vec<_>>()}));
        }
    }
    rules.extend(between(rows, whole));
    with_rules(
        json!({
            "type": "object",
            "description": sentence(table.about),
            "properties": properties,
            "additionalProperties": false,
        }),
        rules,
    )
}

fn with_rules(mut schema: Value, rules: Vec<Value>) -> Value {
    if !rules.is_empty() {
        schema["allOf"] = Value::Array(rules);
    }
    schema
}

/// Rules between keys: keys that exclude each other, and keys that need another key's value.
fn between(rows: &[Row], whole: bool) -> Vec<Value> {
    let mut rules = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let others = rows[..i]
            .iter()
            .filter(|o| o.replaces.contains(&row.name) && row.replaces.contains(&o.name));
        rules.extend(others.map(|o| json!({"not": {"required": [o.name, row.name]}})));
        let Some((key, word)) = row.only else {
            continue;
        };
        let mut then = json!({"properties": {key: {"const": word}}});
        let default = rows.iter().find(|r| r.name == key).map(|r| &r.default);
        let is_default =
            matches!(default, Some(Fallback::Value(node)) if node.text() == Some(word));
        if whole && !is_default {
            then["required"] = json!([key]);
        }
        rules.push(json!({"if": {"required": [row.name]}, "then": then}));
    }
    rules
}

/// Schema of `[[flow]]`: the keys of all kinds, so that editors list them, and a rule for each kind
/// that allows only its own keys.
fn flow_schema(table: &TableKeys) -> Value {
    let common = rows(table.sections);
    let mut all: BTreeMap<&str, Vec<(&str, Value)>> = BTreeMap::new();
    for kind in &KINDS {
        for row in rows(&of_kind(&(kind.make)())) {
            all.entry(row.name)
                .or_default()
                .push((kind.name, property(&row)));
        }
    }
    let mut schema = object(table, &common, true);
    let mut rules = Vec::new();
    for kind in &KINDS {
        let own = rows(&of_kind(&(kind.make)()));
        let names: Vec<&str> = common.iter().chain(&own).map(|r| r.name).collect();
        let differing: Map<String, Value> = own
            .iter()
            .filter(|r| !alike(&all[r.name]))
            .map(|r| (r.name.to_owned(), property(r)))
            .collect();
        let mut of_kind = json!({"properties": {"kind": {"const": kind.name}}});
        if kind.name != "tcp" {
            of_kind["required"] = json!(["kind"]);
        }
        let mut then = json!({"propertyNames": {"enum": names}, "properties": differing});
        let between = between(&own, true);
        if !between.is_empty() {
            then["allOf"] = Value::Array(between);
        }
        rules.push(json!({"if": of_kind, "then": then}));
    }
    for (name, kinds) in &all {
        schema["properties"][*name] = match alike(kinds) {
            true => kinds[0].1.clone(),
            false => any_of(kinds),
        };
    }
    with_rules(schema, rules)
}

fn alike(kinds: &[(&str, Value)]) -> bool {
    kinds.iter().all(|(_, schema)| *schema == kinds[0].1)
}

/// Schema of a key that differs between kinds, given the kinds' names and schemas.
fn any_of(kinds: &[(&str, Value)]) -> Value {
    let mut distinct: Vec<(Vec<&str>, Value)> = Vec::new();
    for (kind, schema) in kinds {
        match distinct.iter_mut().find(|(_, s)| s == schema) {
            Some((names, _)) => names.push(kind),
            None => distinct.push((vec![kind], schema.clone())),
        }
    }
    let about = distinct.iter().map(|(names, schema)| {
        format!(
            "{}: {}",
            names.join(", "),
            schema["description"].as_str().unwrap_or_default()
        )
    });
    let about = about.collect::<Vec<_>>().join("\n");
    let schemas: Vec<Value> = distinct.into_iter().map(|(_, schema)| schema).collect();
    json!({"anyOf": schemas, "description": about})
}

fn property(row: &Row) -> Value {
    let mut schema = value_schema(row.syntax, row.range.as_ref());
    let mut about = sentence(row.meaning);
    match &row.default {
        Fallback::None => {}
        Fallback::Words(words) => about.push_str(&match words.strip_prefix("required") {
            Some(rest) => format!(" Required{}.", plain(rest)),
            None => format!(" Default: {}.", plain(words)),
        }),
        Fallback::Value(node) => {
            let default = plain(&inline(node).unwrap_or_default());
            about.push_str(&format!(" Default: {default}."));
            schema["default"] = literal(node);
        }
    }
    schema["description"] = json!(about);
    schema
}

fn sentence(text: &str) -> String {
    plain(text) + "."
}

/// Markdown without its markup.
fn plain(text: &str) -> String {
    text.replace('`', "")
}

fn literal(node: &Node) -> Value {
    match node {
        Node::Text(text) => json!(text),
        Node::Plain(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        Node::List(items) => items.iter().map(literal).collect(),
        Node::Table(_) | Node::Tables(_) | Node::Nothing => Value::Null,
    }
}
