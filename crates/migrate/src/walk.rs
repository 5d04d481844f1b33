//! The walk over the source: each key meets its rule.

use super::conversion::{Conversion, is_turned_off, with_names};
use super::rule::{Action, Found, Pattern, find, siblings};
use super::setting::Setting;

/// Converts every key of the source.
pub(crate) fn convert(conversion: &mut Conversion<'_>, patterns: &[Pattern]) {
    let root = conversion.root.clone();
    section(conversion, &root, patterns, &mut Vec::new());
    conversion.write_listener();
}

fn section<'s>(
    conversion: &mut Conversion<'_>,
    parent: &Setting<'s>,
    patterns: &[Pattern],
    path: &mut Vec<&'s str>,
) {
    for (key, setting) in parent.members() {
        path.push(key);
        match find(patterns, path) {
            Found::Rule(pattern, names) => apply(conversion, pattern, &setting.with_names(names)),
            Found::Section if setting.is_mapping() && !setting.is_empty() => {
                section(conversion, &setting, patterns, path);
            }
            Found::Section if setting.is_empty() => conversion.unneeded(&setting, "it is empty"),
            Found::Section => conversion.unknown(&setting, "a section is expected here"),
            Found::Nothing => {
                let note = match config::find_similar(key, siblings(patterns, path)) {
                    Some(similar) => format!("the migration knows `{similar}`"),
                    None => String::new(),
                };
                conversion.unknown(&setting, &note);
            }
        }
        path.pop();
    }
}

fn apply(conversion: &mut Conversion<'_>, pattern: &Pattern, setting: &Setting<'_>) {
    let note = pattern.rule.note;
    match pattern.rule.action {
        Action::With(convert) => convert(conversion, setting),
        Action::Unneeded => conversion.unneeded(setting, note),
        Action::Absent if is_turned_off(setting) => {
            conversion.unneeded(setting, "it is empty or turned off");
        }
        Action::Absent => conversion.not_converted(setting, note),
        Action::Set(_) if setting.is_empty() && !setting.is_list() => {
            conversion.unneeded(setting, "it is empty");
        }
        Action::Set(form) => {
            let to = with_names(&pattern.to, &setting.names);
            conversion.set(setting, &to, form, note);
        }
    }
}
