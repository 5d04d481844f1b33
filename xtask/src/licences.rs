//! Checks that every dependency has an accepted licence.
//!
//! This replaces `cargo deny check licenses`, which takes minutes to build. `deny.toml` is the only list of licences for
//! both: this command reads `allow` and `exceptions` of `[licenses]` and `[[licenses.clarify]]`, and takes the licence
//! expressions (SPDX) from `cargo metadata`. cargo-deny also checks advisories, bans and sources; hosted CI installs and
//! runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use test_kit::commands::{self, Failure};

/// Checks the dependencies of the workspace and, where it exists, of the fuzz targets.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let file = root.join("deny.toml");
    let text =
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let allowed = parse_allow_list(&text)?;
    let exceptions = parse_exceptions(&text);
    let clarified = parse_clarifications(&text);
    let mut refused = Vec::new();
    let mut count = 0;
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let manifest = root.join(manifest);
        if !manifest.is_file() {
            continue;
        }
        let metadata = commands::read_output(
            commands::cargo()
                .args(["metadata", "--format-version=1", "--manifest-path"])
                .arg(&manifest),
        )?;
        let metadata: serde_json::Value = serde_json::from_str(&metadata)
            .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
        for package in metadata["packages"].as_array().into_iter().flatten() {
            count += 1;
            let name = package["name"].as_str().unwrap_or("?");
            let expression =
                package["license"].as_str().or(clarified.get(name).map(String::as_str));
            let mut allowed = allowed.clone();
            allowed.extend(exceptions.get(name).into_iter().flatten().cloned());
            let name = format!("{name} {}", package["version"].as_str().unwrap_or("?"));
            match expression {
                None => refused.push(format!("{name}: no licence expression")),
                Some(expression) => {
                    if !is_satisfied(expression, &allowed)
                        .map_err(|problem| format!("{name}: `{expression}`: {problem}"))?
                    {
                        refused.push(format!("{name}: {expression}"));
                    }
                }
            }
        }
    }
    if refused.is_empty() {
        println!("licences: all {count} packages are allowed by deny.toml");
        return Ok(());
    }
    refused.sort();
    refused.dedup();
    Err(format!("licences that deny.toml does not allow:\n  {}", refused.join("\n  ")))
}

/// Returns the strings of `allow = […]` in the section `[licenses]`.
fn parse_allow_list(deny: &str) -> Result<BTreeSet<String>, Failure> {
    let section = deny
        .split_once("[licenses]")
        .and_then(|(_, after)| after.split_once("allow"))
        .and_then(|(_, after)| after.split_once('['))
        .and_then(|(_, after)| after.split_once(']'))
        .map(|(list, _)| list)
        .ok_or("deny.toml has no list `allow` in `[licenses]`")?;
    let uncommented = section.lines().map(|line| line.split('#').next().unwrap_or_default());
    let allowed: BTreeSet<String> = uncommented
        .flat_map(|line| line.split(','))
        .map(|entry| entry.trim().trim_matches('"').to_owned())
        .filter(|entry| !entry.is_empty())
        .collect();
    if allowed.is_empty() {
        return Err("deny.toml allows no licence at all".to_owned());
    }
    Ok(allowed)
}

/// Returns package and licences of each line `{ crate = "…", allow = […] }`.
fn parse_exceptions(deny: &str) -> BTreeMap<String, Vec<String>> {
    deny.lines()
        .filter_map(|line| {
            let (_, after) = line.trim().strip_prefix('{')?.split_once("crate = \"")?;
            let (name, after) = after.split_once('"')?;
            let (_, list) = after.split_once("allow = [")?;
            let (list, _) = list.split_once(']')?;
            let licences = list.split(',').map(|entry| entry.trim().trim_matches('"').to_owned());
            Some((name.to_owned(), licences.collect()))
        })
        .collect()
}

/// Returns package and licence expression of each `[[licenses.clarify]]`.
pub(crate) fn parse_clarifications(deny: &str) -> BTreeMap<String, String> {
    let blocks = deny.split("[[licenses.clarify]]").skip(1);
    blocks
        .filter_map(|block| {
            let block = block.split("\n[").next()?;
            let value = |key: &str| {
                block.lines().find_map(|line| {
                    let (name, value) = line.split_once('=')?;
                    (name.trim() == key).then(|| value.trim().trim_matches('"').to_owned())
                })
            };
            Some((value("crate")?, value("expression")?))
        })
        .collect()
}

/// Returns true if the licences in `allowed` satisfy an SPDX expression (SPDX 2.3, annex D): `OR` binds weaker than
/// `AND`, `WITH` names an exception, and `/` is the old form of `OR`.
fn is_satisfied(expression: &str, allowed: &BTreeSet<String>) -> Result<bool, Failure> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let is_allowed = evaluate_or(&mut rest, allowed)?;
    match rest.first() {
        None => Ok(is_allowed),
        Some(word) => Err(format!("unexpected `{word}`")),
    }
}

fn evaluate_or(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Result<bool, Failure> {
    let mut is_allowed = evaluate_and(rest, allowed)?;
    while take_word(rest, "OR") {
        is_allowed |= evaluate_and(rest, allowed)?;
    }
    Ok(is_allowed)
}

fn evaluate_and(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Result<bool, Failure> {
    let mut is_allowed = evaluate_licence(rest, allowed)?;
    while take_word(rest, "AND") {
        is_allowed &= evaluate_licence(rest, allowed)?;
    }
    Ok(is_allowed)
}

fn evaluate_licence(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Result<bool, Failure> {
    if take_word(rest, "(") {
        let is_allowed = evaluate_or(rest, allowed)?;
        return if take_word(rest, ")") {
            Ok(is_allowed)
        } else {
            Err("a `)` is missing".to_owned())
        };
    }
    let (&name, after) = rest.split_first().ok_or("it ends too early")?;
    if matches!(name, "AND" | "OR" | "WITH" | ")") {
        return Err(format!("unexpected `{name}`"));
    }
    *rest = after;
    if take_word(rest, "WITH") {
        let (exception, after) = rest.split_first().ok_or("it ends after `WITH`")?;
        *rest = after;
        return Ok(allowed.contains(&format!("{name} WITH {exception}")));
    }
    Ok(allowed.contains(name))
}

fn take_word(rest: &mut &[&str], word: &str) -> bool {
    match rest.split_first() {
        Some((first, after)) if *first == word => {
            *rest = after;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> BTreeSet<String> {
        parse_allow_list("[licenses]\nallow = [\"MIT\", # ours\n \"ISC\",\n \"Apache-2.0\"]\n")
            .unwrap()
    }

    #[test]
    fn an_expression_is_satisfied_by_the_licences_we_accept() {
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("MIT AND GPL-3.0 OR ISC", true),
            ("MIT AND (GPL-3.0 OR ISC)", true),
            ("(GPL-3.0 OR MPL-2.0) AND MIT", false),
            ("Apache-2.0 WITH LLVM-exception", false),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ] {
            assert_eq!(is_satisfied(expression, &allowed()), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn an_expression_that_does_not_parse_is_an_error_and_not_a_licence() {
        for expression in ["", "MIT OR", "(MIT", "MIT)", "AND", "MIT ISC", "MIT WITH"] {
            assert!(is_satisfied(expression, &allowed()).is_err(), "{expression}");
        }
    }

    #[test]
    fn a_package_without_an_expression_gets_the_clarified_one() {
        let deny = "[licenses]\nallow = [\"MIT\"]\n[[licenses.clarify]]\ncrate = \"odd\"\n\
            expression = \"MIT\"\nlicense-files = []\n\n[bans]\ncrate = \"other\"\n";
        let expected = BTreeMap::from([("odd".to_owned(), "MIT".to_owned())]);
        assert_eq!(parse_clarifications(deny), expected);
    }

    #[test]
    fn an_exception_is_for_its_package_only() {
        let deny = "exceptions = [\n    { crate = \"odd\", allow = [\"NCSA\", \"X\"] },\n]\n\
            deny = [\n    { crate = \"bad\" },\n]\n";
        let licences = vec!["NCSA".to_owned(), "X".to_owned()];
        assert_eq!(parse_exceptions(deny), BTreeMap::from([("odd".to_owned(), licences)]));
    }

    #[test]
    fn a_deny_file_without_a_list_is_refused() {
        assert!(parse_allow_list("[bans]\nmultiple-versions = \"warn\"").is_err());
        assert!(parse_allow_list("[licenses]\nallow = []").is_err());
    }
}
