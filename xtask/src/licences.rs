//! Checks that every dependency has an accepted licence.
//!
//! This replaces `cargo deny check licenses`, which takes minutes to build. It reads the same `deny.toml` (`allow` and
//! `exceptions` of `[licenses]`, and `[[licenses.clarify]]`) and the licence expressions (SPDX) of `cargo metadata`.
//! cargo-deny itself also checks advisories, bans and sources; CI runs it if it is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use test_kit::commands::{self, Failure};

/// Checks the dependencies of the workspace and, where it exists, of the fuzz targets.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let file = root.join("deny.toml");
    let text =
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let allowed = allow_list(&text)?;
    let exceptions = exceptions(&text);
    let clarified = clarifications(&text);
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
                    if !satisfied(expression, &allowed)
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

/// The strings of `allow = […]` in the section `[licenses]`.
fn allow_list(deny: &str) -> Result<BTreeSet<String>, Failure> {
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

/// Package and licences of each `{ crate = "…", allow = […] }`, one a line.
fn exceptions(deny: &str) -> BTreeMap<String, Vec<String>> {
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

/// Package and licence expression of each `[[licenses.clarify]]`.
fn clarifications(deny: &str) -> BTreeMap<String, String> {
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

/// Whether the licences in `allowed` satisfy an SPDX expression (SPDX 2.3, annex D): `OR` binds
/// weaker than `AND`, `WITH` names an exception, and `/` is the old way to write `OR`.
fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> Result<bool, Failure> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let answer = any_of(&mut rest, allowed)?;
    match rest.first() {
        None => Ok(answer),
        Some(word) => Err(format!("unexpected `{word}`")),
    }
}

fn any_of(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Result<bool, Failure> {
    let mut answer = all_of(rest, allowed)?;
    while take(rest, "OR") {
        answer |= all_of(rest, allowed)?;
    }
    Ok(answer)
}

fn all_of(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Result<bool, Failure> {
    let mut answer = one(rest, allowed)?;
    while take(rest, "AND") {
        answer &= one(rest, allowed)?;
    }
    Ok(answer)
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Result<bool, Failure> {
    if take(rest, "(") {
        let answer = any_of(rest, allowed)?;
        return if take(rest, ")") { Ok(answer) } else { Err("a `)` is missing".to_owned()) };
    }
    let (&name, after) = rest.split_first().ok_or("it ends too early")?;
    if matches!(name, "AND" | "OR" | "WITH" | ")") {
        return Err(format!("unexpected `{name}`"));
    }
    *rest = after;
    if take(rest, "WITH") {
        let (exception, after) = rest.split_first().ok_or("it ends after `WITH`")?;
        *rest = after;
        return Ok(allowed.contains(&format!("{name} WITH {exception}")));
    }
    Ok(allowed.contains(name))
}

fn take(rest: &mut &[&str], word: &str) -> bool {
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
        allow_list("[licenses]\nallow = [\"MIT\", # ours\n \"ISC\",\n \"Apache-2.0\"]\n").unwrap()
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
            assert_eq!(satisfied(expression, &allowed()), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn an_expression_that_does_not_parse_is_an_error_and_not_a_licence() {
        for expression in ["", "MIT OR", "(MIT", "MIT)", "AND", "MIT ISC", "MIT WITH"] {
            assert!(satisfied(expression, &allowed()).is_err(), "{expression}");
        }
    }

    #[test]
    fn a_package_without_an_expression_gets_the_clarified_one() {
        let deny = "[licenses]\nallow = [\"MIT\"]\n[[licenses.clarify]]\ncrate = \"odd\"\n\
            expression = \"MIT\"\nlicense-files = []\n\n[bans]\ncrate = \"other\"\n";
        let expected = BTreeMap::from([("odd".to_owned(), "MIT".to_owned())]);
        assert_eq!(clarifications(deny), expected);
    }

    #[test]
    fn an_exception_is_for_its_package_only() {
        let deny = "exceptions = [\n    { crate = \"odd\", allow = [\"NCSA\", \"X\"] },\n]\n\
            deny = [\n    { crate = \"bad\" },\n]\n";
        let licences = vec!["NCSA".to_owned(), "X".to_owned()];
        assert_eq!(exceptions(deny), BTreeMap::from([("odd".to_owned(), licences)]));
    }

    #[test]
    fn a_deny_file_without_a_list_is_refused() {
        assert!(allow_list("[bans]\nmultiple-versions = \"warn\"").is_err());
        assert!(allow_list("[licenses]\nallow = []").is_err());
    }
}
