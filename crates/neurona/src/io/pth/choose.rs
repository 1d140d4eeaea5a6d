//! Which of the dicts of a checkpoint is the model's.

use super::view::{View, view};
use crate::io::pickle::Value;
use std::collections::{HashMap, HashSet};

/// Under these keys training programs keep the model's state.
const USUAL: [&str; 8] =
    ["state_dict", "model_state_dict", "model", "net", "network", "model_state", "weights", "params"];
/// What wrappers put before every name: DataParallel's and torch.compile's.
const WRAPPERS: [&str; 2] = ["module.", "_orig_mod."];
/// A key that is longer is no name.
const LONGEST_NAME: usize = 4096;
/// Other things beyond this many are not listed one by one.
const MOST_IGNORED: usize = 1000;
/// Usual keys within usual keys beyond which nobody looks.
const DEEPEST: usize = 4;

/// The model's tensors in a checkpoint, and what else it holds.
#[derive(Debug)]
pub struct Chosen {
    /// Keys that lead to the dict, with slashes between; empty for the outermost.
    pub key: String,
    /// What was taken off every name.
    pub prefix: String,
    pub tensors: Vec<(String, View)>,
    /// Names and kinds of everything else.
    pub ignored: Vec<(String, String)>,
}

impl Chosen {
    fn ignore(&mut self, key: &Value, value: &Value) {
        match self.ignored.len() {
            0..MOST_IGNORED => self.ignored.push((name(key).unwrap_or_else(|| key.kind()), value.kind())),
            MOST_IGNORED => self.ignored.push(("…".into(), "more of them".into())),
            _ => {}
        }
    }
}

/// Looks for the model's tensors, or takes those under `key`.
pub fn choose(root: &Value, key: Option<&str>) -> Result<Chosen, String> {
    let Some(entries) = root.entries() else {
        return Err(match root {
            _ if view(root).is_some() => "it holds one tensor; a dict of them by name is needed".into(),
            Value::Object(object) => {
                let class = object.global().map_or_else(|| "something".into(), ToString::to_string);
                format!(
                    "it holds a whole {class}, which needs its program to be read; in Python, save only the weights: torch.save(model.state_dict(), path)"
                )
            }
            other => format!("it holds {}; a dict of tensors by name is needed", other.kind()),
        });
    };
    let found = match key {
        Some(key) => vec![(key.to_string(), follow(root, key).ok_or_else(|| unknown(root, key))?)],
        None => search(root, "", DEEPEST, &mut HashSet::new()),
    };
    let (key, dict) = match &found[..] {
        [] => return Err(format!("it holds no tensors by name, only: {}", list(entries))),
        [(key, dict)] => (key.clone(), *dict),
        _ => {
            let names: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
            return Err(format!("it holds several sets of tensors; say which is meant: {}", names.join(", ")));
        }
    };
    let mut chosen = Chosen { key, prefix: String::new(), tensors: Vec::new(), ignored: Vec::new() };
    if !chosen.key.is_empty() {
        let first = chosen.key.split('/').next().map(String::from);
        entries.iter().filter(|(k, _)| name(k) != first).for_each(|(k, v)| chosen.ignore(k, v));
    }
    collect(dict, &mut chosen)?;
    unwrap_names(&mut chosen);
    Ok(chosen)
}

/// A key as text: PyTorch's are text, and numbers where people number their layers.
fn name(key: &Value) -> Option<String> {
    match key {
        Value::Int(n) => Some(n.to_string()),
        Value::Text(text) if text.len() <= LONGEST_NAME => Some(text.to_string()),
        Value::Bytes(bytes) if bytes.len() <= LONGEST_NAME => key.text().map(String::from),
        _ => None,
    }
}

fn list(entries: &[(Value, Value)]) -> String {
    let mut names: Vec<String> = entries.iter().take(20).map(|(k, _)| name(k).unwrap_or_else(|| k.kind())).collect();
    if entries.len() > names.len() {
        names.push("…".into());
    }
    names.join(", ")
}

fn unknown(root: &Value, key: &str) -> String {
    format!("it has no dict of tensors under {key}; it has: {}", list(root.entries().unwrap_or_default()))
}

fn follow<'a>(root: &'a Value, key: &str) -> Option<&'a Value> {
    let dict = key.split('/').filter(|part| !part.is_empty()).try_fold(root, |dict, part| dict.get(part))?;
    has_tensors(dict).then_some(dict)
}

fn has_tensors(value: &Value) -> bool {
    value.entries().is_some_and(|entries| entries.iter().any(|(_, v)| view(v).is_some()))
}

/// Dicts that may be the model's: under a usual key if there is one, else this one, else any just below. Each dict is
/// looked at once, however often the checkpoint refers to it.
fn search<'a>(
    dict: &'a Value,
    path: &str,
    depth: usize,
    seen: &mut HashSet<*const (Value, Value)>,
) -> Vec<(String, &'a Value)> {
    let entries = dict.entries().unwrap_or_default();
    if entries.is_empty() || !seen.insert(entries.as_ptr()) {
        return Vec::new();
    }
    let below = |key: &str| if path.is_empty() { key.to_string() } else { format!("{path}/{key}") };
    let mut found = Vec::new();
    for key in USUAL.iter().filter(|_| depth > 0) {
        if let Some(inner) = dict.get(key) {
            found.extend(search(inner, &below(key), depth - 1, seen));
        }
    }
    if found.is_empty() && has_tensors(dict) {
        found.push((path.to_string(), dict));
    }
    if found.is_empty() {
        for (key, value) in entries {
            let fresh = value.entries().is_some_and(|inner| seen.insert(inner.as_ptr()));
            if let Some(name) = name(key).filter(|_| fresh && has_tensors(value)) {
                found.push((below(&name), value));
            }
        }
    }
    found
}

fn collect(dict: &Value, chosen: &mut Chosen) -> Result<(), String> {
    let mut seen = HashMap::new();
    for (key, value) in dict.entries().unwrap_or_default() {
        let Some(name) = name(key) else {
            chosen.ignore(key, value);
            continue;
        };
        let Some(view) = view(value) else {
            chosen.ignore(key, value);
            continue;
        };
        let view = view.map_err(|problem| format!("its tensor {name} {problem}"))?;
        let number = matches!(key, Value::Int(_));
        match seen.insert(name.clone(), (chosen.tensors.len(), number)) {
            None => chosen.tensors.push((name, view)),
            // The same key again: the last counts, as in Python.
            Some((place, before)) if before == number => {
                chosen.tensors[place].1 = view;
                seen.insert(name, (place, number));
            }
            Some(_) => return Err(format!("it has a tensor under the text {name} and one under the number")),
        }
    }
    Ok(())
}

fn unwrap_names(chosen: &mut Chosen) {
    while let Some(prefix) = WRAPPERS.iter().find(|prefix| {
        !chosen.tensors.is_empty()
            && chosen.tensors.iter().all(|(name, _)| name.len() > prefix.len() && name.starts_with(**prefix))
    }) {
        chosen.prefix += prefix;
        chosen.tensors.iter_mut().for_each(|(name, _)| drop(name.drain(..prefix.len())));
    }
}
