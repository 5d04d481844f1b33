//! Rules: for each key of another router, its counterpart and how its value becomes one. The tables of
//! `docs/migration.md` are these rules.

use super::conversion::Conversion;
use super::form::Form;
use super::setting::Setting;

/// The conversion of one key, or of all keys below it.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The key there. `<name>` matches any name, `(a|b)` either of two parts.
    pub(crate) key: &'static str,
    /// The counterparts, divided by commas. Empty: there is none.
    pub(crate) to: &'static str,
    /// The difference, or what to do instead. Empty: there is none.
    pub(crate) note: &'static str,
    pub(crate) action: Action,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    /// Writes the value in this form to the counterpart.
    Set(Form),
    /// Converts the value and everything below it, and reports on all of it.
    With(fn(&mut Conversion<'_>, &Setting<'_>)),
    /// There is no counterpart.
    Absent,
    /// There is no counterpart, and none is needed.
    Unneeded,
}

/// A key with a value that keeps its meaning.
pub(crate) const fn same(key: &'static str, to: &'static str, form: Form) -> Rule {
    Rule { key, to, note: "", action: Action::Set(form) }
}

/// A key with a counterpart that differs.
pub(crate) const fn changed(
    key: &'static str,
    to: &'static str,
    form: Form,
    note: &'static str,
) -> Rule {
    Rule { key, to, note, action: Action::Set(form) }
}

/// A key with a conversion of its own.
pub(crate) const fn with(
    key: &'static str,
    to: &'static str,
    note: &'static str,
    convert: fn(&mut Conversion<'_>, &Setting<'_>),
) -> Rule {
    Rule { key, to, note, action: Action::With(convert) }
}

/// A key without a counterpart.
pub(crate) const fn absent(key: &'static str, note: &'static str) -> Rule {
    Rule { key, to: "", note, action: Action::Absent }
}

/// A key that needs no counterpart.
pub(crate) const fn unneeded(key: &'static str, note: &'static str) -> Rule {
    Rule { key, to: "", note, action: Action::Unneeded }
}

/// A key, without alternatives.
#[derive(Debug)]
pub(crate) struct Pattern {
    segments: Vec<&'static str>,
    /// The counterparts for this alternative.
    pub(crate) to: String,
    pub(crate) rule: &'static Rule,
}

/// The statement of the rules about a key.
#[derive(Debug)]
pub(crate) enum Found<'p> {
    Rule(&'p Pattern, Vec<String>),
    /// There are rules for keys below this one.
    Section,
    Nothing,
}

/// Returns the patterns of rules: one for each alternative.
pub(crate) fn patterns(rules: &[&'static [Rule]]) -> Vec<Pattern> {
    let mut patterns = Vec::new();
    for rule in rules.iter().copied().flatten() {
        let Some((before, alternatives, after)) = group(rule.key) else {
            let segments = rule.key.split('.').collect();
            patterns.push(Pattern { segments, to: rule.to.to_owned(), rule });
            continue;
        };
        for (index, alternative) in alternatives.split('|').enumerate() {
            let parts = [before, alternative, after];
            let segments =
                parts.iter().flat_map(|it| it.split('.')).filter(|it| !it.is_empty()).collect();
            let to = match group(rule.to) {
                None => rule.to.to_owned(),
                Some((before, alternatives, after)) => {
                    let chosen = alternatives.split('|').nth(index).unwrap_or(alternatives);
                    format!("{before}{chosen}{after}")
                }
            };
            patterns.push(Pattern { segments, to, rule });
        }
    }
    patterns
}

/// Looks for the rule of a key.
pub(crate) fn find<'p>(patterns: &'p [Pattern], path: &[&str]) -> Found<'p> {
    let fits = |segments: &[&str]| {
        segments.iter().zip(path).all(|(segment, key)| *segment == "<name>" || segment == key)
    };
    // A name in full goes before `<name>`.
    let exact = patterns
        .iter()
        .filter(|it| it.segments.len() == path.len() && fits(&it.segments))
        .min_by_key(|it| it.segments.iter().filter(|segment| **segment == "<name>").count());
    if let Some(pattern) = exact {
        let names = pattern.segments.iter().zip(path);
        let names = names.filter(|(segment, _)| **segment == "<name>");
        return Found::Rule(pattern, names.map(|(_, key)| (*key).to_owned()).collect());
    }
    let has_below = patterns.iter().any(|it| it.segments.len() > path.len() && fits(&it.segments));
    if has_below { Found::Section } else { Found::Nothing }
}

/// Returns the allowed keys at the place of a key, for suggestions.
pub(crate) fn siblings(patterns: &[Pattern], path: &[&str]) -> Vec<&'static str> {
    let Some((_, parent)) = path.split_last() else { return Vec::new() };
    let below = patterns.iter().filter(|it| {
        let is_deep = it.segments.len() > parent.len();
        is_deep
            && it
                .segments
                .iter()
                .zip(parent)
                .all(|(segment, key)| *segment == "<name>" || segment == key)
    });
    below.map(|it| it.segments[parent.len()]).filter(|it| *it != "<name>").collect()
}

/// Splits a text around its group of alternatives.
fn group(text: &'static str) -> Option<(&'static str, &'static str, &'static str)> {
    let (before, rest) = text.split_once('(')?;
    let (alternatives, after) = rest.split_once(')')?;
    Some((before, alternatives, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &[Rule] = &[
        same(
            "traffic.(all|subgraphs.<name>).timeout",
            "traffic.(all|subgraphs.<name>).timeout",
            Form::Text,
        ),
        same("(limits|limits.router).depth", "limits.depth", Form::Number),
        absent("plugins.<name>", ""),
        same("plugins.cors", "cors", Form::Text),
    ];

    #[test]
    fn alternatives_and_names_are_found_and_names_in_full_go_first() {
        let patterns = patterns(&[RULES]);
        let to = |path: &str| match find(&patterns, &path.split('.').collect::<Vec<_>>()) {
            Found::Rule(pattern, names) => format!("{} {names:?}", pattern.to),
            Found::Section => "section".to_owned(),
            Found::Nothing => "nothing".to_owned(),
        };
        assert_eq!(to("traffic.all.timeout"), "traffic.all.timeout []");
        assert_eq!(to("traffic.subgraphs.a.timeout"), r#"traffic.subgraphs.<name>.timeout ["a"]"#);
        assert_eq!(to("limits.depth"), "limits.depth []");
        assert_eq!(to("limits.router.depth"), "limits.depth []");
        assert_eq!(to("plugins.cors"), "cors []");
        assert_eq!(to("plugins.mine"), r#" ["mine"]"#);
        assert_eq!(to("traffic.subgraphs"), "section");
        assert_eq!(to("traffic.none"), "nothing");
        assert_eq!(siblings(&patterns, &["limits", "depht"]), ["depth", "router"]);
    }
}
