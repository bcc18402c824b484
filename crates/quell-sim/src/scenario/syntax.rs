//! JSON Schemas of values, generated from their notation in the catalogue of keys.

use quell_link::field::Range;
use quell_link::units;
use quell_qdisc::num;
use serde_json::{Value, json};

/// The schema of the values that [`super::catalogue::KeyInfo::value`] describes; `range` bounds
/// `N`, `X` and `BYTES`. Lists are in brackets: `[N, N]` has two items, `[N, ...]` one or more,
/// `[N ...]` any number.
pub(super) fn value_schema(syntax: &str, range: Option<&Range>) -> Value {
    let alternatives = split(syntax, '|');
    let mut schemas: Vec<Value> = Vec::new();
    let mut words: Vec<Value> = Vec::new();
    for alternative in alternatives {
        match alternative {
            "true" | "false" => {
                let boolean = json!({"type": "boolean"});
                if !schemas.contains(&boolean) {
                    schemas.push(boolean);
                }
            }
            word => match type_schema(word, range) {
                Some(schema) => schemas.push(schema),
                None => words.push(serde_json::from_str(word).unwrap_or_else(|_| json!(word))),
            },
        }
    }
    if !words.is_empty() {
        schemas.push(json!({"enum": words}));
    }
    match <[Value; 1]>::try_from(schemas) {
        Ok([schema]) => schema,
        Err(schemas) => json!({"anyOf": schemas}),
    }
}

/// The schema of a list or of a type of value, such as `N` or `TIME`; `None` for a literal word.
fn type_schema(notation: &str, range: Option<&Range>) -> Option<Value> {
    if let Some(items) = notation.strip_prefix('[').and_then(|s| s.strip_suffix(']')) {
        return Some(list_schema(items));
    }
    let number = |json_type: &str| {
        let mut schema = json!({"type": json_type});
        if let Some(range) = range {
            (schema["minimum"], schema["maximum"]) = (whole(range.low), whole(range.high));
        }
        schema
    };
    let text = |pattern: String| json!({"type": "string", "pattern": format!("^{pattern}$")});
    Some(match notation {
        "N" if range.is_none() => json!({"type": "integer", "minimum": 0}),
        "N" => number("integer"),
        "X" => number("number"),
        "P" => json!({"anyOf": [
            {"type": "number", "minimum": 0, "maximum": 1},
            text(quantity(&["%"])),
        ]}),
        "BYTES" if range.is_none() => {
            json!({"anyOf": [{"type": "integer", "minimum": 0}, text(quantity(&units::sizes()))]})
        }
        "BYTES" => json!({"anyOf": [number("integer"), text(quantity(&units::sizes()))]}),
        // Only 0 needs no unit.
        "TIME" => json!({"anyOf": [
            {"enum": [0]},
            text(format!("({}|[+]?(0+[.]?0*|[.]0+))", quantity(&units::times()))),
        ]}),
        "RATE" => text(quantity(&units::rates())),
        "MAJOR:MINOR" => text("(root|[0-9a-fA-F]{1,4}:[0-9a-fA-F]{0,4})".to_owned()),
        "TEXT" | "WORDS" | "FILE" | "NAME" | "NAME,..." => {
            json!({"type": "string", "minLength": 1})
        }
        other => match other.split_once(':') {
            Some((prefix, "BYTES")) => text(format!("{prefix}:{}", quantity(&units::sizes()))),
            _ => return None,
        },
    })
}

fn list_schema(items: &str) -> Value {
    let mut parts: Vec<&str> = split(items, ',').into_iter().map(str::trim).collect();
    if let [item] = parts[..]
        && let Some(item) = item.strip_suffix(" ...")
    {
        return json!({"type": "array", "items": value_schema(item, None)});
    }
    let open = parts.last() == Some(&"...");
    if open {
        parts.pop();
        let last = parts
            .last()
            .map_or(Value::Null, |last| value_schema(last, None));
        return json!({"type": "array", "items": last, "minItems": parts.len()});
    }
    let schemas: Vec<Value> = parts.iter().map(|p| value_schema(p, None)).collect();
    json!({"type": "array", "prefixItems": schemas, "items": false, "minItems": parts.len()})
}

/// Splits a text at a character, except inside brackets.
fn split(text: &str, at: char) -> Vec<&str> {
    let mut depth = 0;
    text.split(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        depth == 0 && c == at
    })
    .collect()
}

/// A number as JSON: an integer if it is whole and its magnitude is at most 2^53.
fn whole(x: f64) -> Value {
    match x == x.trunc() && x.abs() <= 9_007_199_254_740_992.0 {
        true => json!(num::whole_i64(x)),
        false => json!(x),
    }
}

/// A regular expression for the input of [`units`]: a non-negative decimal number, optional blanks
/// and one of these units, in upper or lower case.
fn quantity(units: &[&str]) -> String {
    let any_case = |c: char| match c.is_ascii_alphabetic() {
        true => format!("[{c}{}]", c.to_ascii_uppercase()),
        false => c.to_string(),
    };
    let units = units
        .iter()
        .map(|u| u.chars().map(any_case).collect::<String>());
    let units = units.collect::<Vec<_>>().join("|");
    format!("[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?\\s*({units})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_of_a_value_gives_its_schema() {
        for (syntax, schema) in [
            ("N", json!({"type": "integer", "minimum": 0})),
            ("true|false", json!({"type": "boolean"})),
            ("down|up", json!({"enum": ["down", "up"]})),
            ("0|3839", json!({"enum": [0, 3839]})),
            (
                "N|unlimited",
                json!({"anyOf": [{"type": "integer", "minimum": 0}, {"enum": ["unlimited"]}]}),
            ),
            (
                "[NAME ...]",
                json!({"type": "array", "items": {"type": "string", "minLength": 1}}),
            ),
            (
                "[[X, X], ...]",
                json!({"type": "array", "minItems": 1, "items": {
                    "type": "array", "minItems": 2, "items": false,
                    "prefixItems": [{"type": "number"}, {"type": "number"}],
                }}),
            ),
        ] {
            assert_eq!(value_schema(syntax, None), schema, "{syntax}");
        }
        let range = Range {
            low: 1.0,
            high: 64.0,
            text: String::new(),
        };
        assert_eq!(
            value_schema("N", Some(&range)),
            json!({"type": "integer", "minimum": 1, "maximum": 64})
        );
    }
}
