//! Hostile state files, for tests.

use serde_json::{Value, json};

use super::State;

/// Replaces each value of a state by hostile ones; returns those that were accepted.
pub fn accepted<S: State>(state: &Value) -> Vec<String> {
    assert!(is_state::<S>(state), "the state itself");
    let mut found = Vec::new();
    for place in places(state) {
        for value in values() {
            let mut other = state.clone();
            let at = other.pointer_mut(&place).expect("a place");
            // Another number or boolean of the same type is valid, too.
            if at.is_number() && value.is_u64() || at.is_boolean() && value.is_boolean() {
                continue;
            }
            *at = value.clone();
            if is_state::<S>(&other) {
                found.push(format!("{place}: {value}"));
            }
        }
        let mut more = state.clone();
        if let Some(object) = more.pointer_mut(&place).and_then(Value::as_object_mut) {
            object.insert("run".to_owned(), json!("sh"));
            if is_state::<S>(&more) {
                found.push(format!("{place}: another key"));
            }
        }
    }
    found
}

fn is_state<S: State>(text: &Value) -> bool {
    let read = serde_json::from_str::<S>(&text.to_string());
    read.is_ok_and(|state| state.check().is_ok())
}

fn values() -> Vec<Value> {
    let texts = ["", "/", "a/../b", "x; id > F", "$(id)", "a\nb", "EVIL"];
    let mut values = texts.map(Value::from).to_vec();
    values.extend([
        json!(null),
        json!(-1),
        json!(1e300),
        json!({"a": 1}),
        json!(true),
    ]);
    values.extend([
        json!(7),
        json!([256]),
        json!(["EVIL"]),
        json!(vec![0; 5000]),
    ]);
    values
}

/// JSON pointers to all values in it.
fn places(of: &Value) -> Vec<String> {
    let below: Vec<(String, &Value)> = match of {
        Value::Object(all) => all
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(all) => {
            let all = all.iter().enumerate();
            all.map(|(at, value)| (at.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    let mut found = vec![String::new()];
    for (key, value) in below {
        found.extend(
            places(value)
                .into_iter()
                .map(|place| format!("/{key}{place}")),
        );
    }
    found
}
