//! Settings in a TOML file. A key is a flag without its dashes in front.

use super::{Config, Settings};
use crate::failure::{Failure, Outcome};
use crate::flags::nearest;
use clap::{Args, Command};
use serde::{Deserialize, Serialize};
use std::path::Path;
use toml::de::DeTable;
use toml::{Table, Value};

/// Longer files are not settings.
const MOST_BYTES: u64 = 1 << 20;

/// The settings of a file, checked as flags are.
pub fn read(path: &Path) -> Outcome<Settings> {
    let refuse = |e: std::io::Error| Failure::Usage(format!("cannot read {}: {e}", path.display()));
    if std::fs::metadata(path).map_err(refuse)?.len() > MOST_BYTES {
        return Err(Failure::Usage(format!("{}: is too long to be a file of settings", path.display())));
    }
    let text = std::fs::read_to_string(path).map_err(refuse)?;
    parse(&text).map_err(|problem| Failure::Usage(format!("{}: {problem}", path.display())))
}

/// The file of a run's settings, which [`read`] takes back.
pub fn write(config: &Config) -> Outcome<String> {
    let text = toml::to_string(config).map_err(|e| Failure::Told(format!("cannot write the settings: {e}")))?;
    Ok(format!("# Every setting of this run. `neurona train --config` with this file runs it again.\n{text}"))
}

/// What `over` says, and where it says nothing, what `under` says.
pub fn merge(under: &Settings, over: &Settings) -> Outcome<Settings> {
    let failed = |e: &dyn std::fmt::Display| Failure::Told(format!("cannot join the settings: {e}"));
    let mut table = Table::try_from(under).map_err(|e| failed(&e))?;
    table.extend(Table::try_from(over).map_err(|e| failed(&e))?);
    Settings::deserialize(table).map_err(|e| failed(&e))
}

fn parse(text: &str) -> Result<Settings, String> {
    let line = |at: usize| 1 + text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count();
    let spanned = DeTable::parse(text).map_err(|e| e.to_string())?;
    let flags = Settings::augment_args(Command::new("settings").no_binary_name(true));
    let known: Vec<&str> = flags.get_arguments().filter_map(|a| a.get_long()).filter(|n| *n != "help").collect();
    let mut lines = Vec::new();
    for key in spanned.get_ref().keys() {
        let (name, at) = (key.get_ref().replace('_', "-"), line(key.span().start));
        if !known.contains(&name.as_str()) {
            let hint = nearest(&name, &known)
                .map_or_else(|| format!("settings are {}", known.join(", ")), |near| format!("did you mean '{near}'?"));
            return Err(format!("line {at}: there is no setting '{}'; {hint}", key.get_ref()));
        }
        lines.push((key.get_ref().to_string(), name, at));
    }
    let table: Table = toml::from_str(text).map_err(|e| e.to_string())?;
    let mut clean = Table::new();
    for (key, name, at) in lines {
        let Some(value) = table.get(&key) else { continue };
        check(&flags, &name, value).map_err(|problem| format!("line {at}: {key}: {problem}"))?;
        if clean.insert(name, value.clone()).is_some() {
            return Err(format!("line {at}: {key} is set twice"));
        }
    }
    Settings::deserialize(clean).map_err(|e| e.to_string().trim_end().replace('\n', "; "))
}

/// Checks a value by the rule of its flag: one rule, whether it comes from a file or from the command line.
fn check(flags: &Command, name: &str, value: &Value) -> Result<(), String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => value.to_string(),
        _ => return Err("it is one value, not a list or a table".to_string()),
    };
    let flag = format!("--{name}={text}");
    flags.clone().try_get_matches_from([flag]).map(|_| ()).map_err(|e| {
        let said = e.to_string();
        let said = said.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string();
        let values = e.get(clap::error::ContextKind::ValidValue).map(|list| format!("; it is one of {list}"));
        let reason = said.rsplit_once("': ").map(|(_, reason)| reason.to_string());
        let problem = reason.unwrap_or_else(|| format!("'{text}' is no value for it"));
        problem + &values.unwrap_or_default()
    })
}

/// A setting as a serde value, for the list of what a run used.
pub fn pairs(config: &impl Serialize) -> Vec<(String, String)> {
    let table = Table::try_from(config).unwrap_or_default();
    table
        .into_iter()
        .map(|(key, value)| (key, value.as_str().map_or_else(|| value.to_string(), String::from)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_flags_and_underscores_do() {
        let settings = parse("epochs = 3\nbatch_size = 16\nopt = \"adamw\"\nlr = 1\nskip-bad-images = true\n").unwrap();
        assert_eq!((settings.epochs, settings.batch_size, settings.lr), (Some(3), Some(16), Some(1.0)));
        assert_eq!((settings.opt, settings.skip_bad_images), (Some(super::super::Opt::Adamw), Some(true)));
    }

    #[test]
    fn mistakes_name_line_key_and_what_would_do() {
        for (text, hints) in [
            ("epochs = 3\n\nbatchsize = 4", &["line 3", "batchsize", "'batch-size'"][..]),
            ("quux = 1", &["line 1", "quux", "settings are", "epochs"]),
            ("epochs = 0", &["line 1", "epochs", "from 1 to"]),
            ("lr = \"fast\"", &["line 1", "lr", "above 0"]),
            ("opt = \"adm\"", &["line 1", "opt", "adam"]),
            ("epochs = [1]", &["line 1", "one value"]),
            ("epochs = ", &["line 1"]),
            ("epochs = 1\nepochs = 2", &["duplicate"]),
            ("batch-size = 1\nbatch_size = 2", &["line 2", "twice"]),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(hints.iter().all(|hint| problem.contains(hint)), "{text}: {problem}");
        }
    }

    #[test]
    fn flags_go_over_the_file() {
        let file = parse("epochs = 3\nlr = 0.5").unwrap();
        let flags = Settings { epochs: Some(9), ..Settings::default() };
        let both = merge(&file, &flags).unwrap();
        assert_eq!((both.epochs, both.lr, both.seed), (Some(9), Some(0.5), None));
    }
}
