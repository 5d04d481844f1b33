//! Samples of the public documentation of other routers: each becomes a configuration that passes the checks, and every
//! key of it is reported. The results are snapshots: `UPDATE_EXPECT=1 cargo test -p migrate` writes them.

#![allow(clippy::unwrap_used)] // a fixture that cannot be read fails the test

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use config::diagnostic::Severity;
use config::{Content, Overrides, SourceNode};
use migrate::{Finding, Outcome, Router, migrate, table};

/// The number of samples that the acceptance of migrations asks for.
const CASES_MIN: usize = 50;

/// Members that only say which form a value has: their parent is reported.
const SWITCHES: [&str; 9] =
    ["enabled", "disabled", "op", "type", "kind", "source", "mode", "name", "required"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Returns the cases of all routers.
fn cases() -> Vec<(Router, PathBuf)> {
    let folders = [(Router::Apollo, "apollo"), (Router::Cosmo, "cosmo"), (Router::Hive, "hive")];
    let mut cases = Vec::new();
    for (router, folder) in folders {
        let entries = fs::read_dir(fixtures().join(folder)).unwrap();
        cases.extend(entries.map(|entry| (router, entry.unwrap().path())));
    }
    cases.sort_by(|a, b| a.1.cmp(&b.1));
    cases
}

/// The variables that the samples refer to. Later checks of the results have the same.
fn environment() -> BTreeMap<String, String> {
    let text = fs::read_to_string(fixtures().join("environment.txt")).unwrap();
    let pairs = text.lines().map(|line| line.split_once('=').unwrap());
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn report(findings: &[Finding]) -> String {
    findings.iter().map(|it| format!("{it}\n")).collect()
}

/// Returns the errors of a configuration, apart from parts that a build lacks.
fn errors_in(yaml: &str) -> Vec<String> {
    let environment = environment();
    let env = |name: &str| environment.get(name).map(OsString::from);
    match config::parse(yaml, "starling.yaml", Path::new(""), &Overrides::default(), &env) {
        Ok(_) => Vec::new(),
        Err(diagnostics) => diagnostics
            .iter()
            .filter(|it| it.severity == Severity::Error && it.code != "not-built")
            .map(|it| format!("{it}"))
            .collect(),
    }
}

#[test]
fn samples_of_the_documentation_become_configurations_that_pass_the_checks() {
    let cases = cases();
    assert!(cases.len() >= CASES_MIN, "only {} samples", cases.len());
    for (router, folder) in cases {
        let input = fs::read_to_string(folder.join("input.yaml")).unwrap();
        assert!(input.starts_with("# Settings of a sample in the "), "{}", folder.display());
        let migration = migrate(router, &input, "input.yaml").unwrap();
        let errors = errors_in(&migration.yaml);
        assert!(errors.is_empty(), "{}: {errors:#?}\n{}", folder.display(), migration.yaml);
        expect_test::expect_file![folder.join("starling.yaml")].assert_eq(&migration.yaml);
        expect_test::expect_file![folder.join("findings.txt")]
            .assert_eq(&report(&migration.findings));
    }
}

/// Collects the paths of all single values.
fn leaves(node: &SourceNode, path: &str, leaves: &mut BTreeSet<String>) {
    match &node.content {
        Content::Mapping(entries) if !entries.is_empty() => {
            for entry in entries {
                let below = match path.is_empty() {
                    true => entry.key.clone(),
                    false => format!("{path}.{}", entry.key),
                };
                self::leaves(&entry.value, &below, leaves);
            }
        }
        Content::Sequence(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                self::leaves(item, &format!("{path}[{index}]"), leaves);
            }
        }
        _ => drop(leaves.insert(path.to_owned())),
    }
}

/// True if a finding is about a key or about something around it.
fn covers(reported: &str, leaf: &str) -> bool {
    leaf.strip_prefix(reported).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[test]
fn every_key_of_a_sample_is_reported() {
    let mut silent = Vec::new();
    for (router, folder) in cases() {
        let input = fs::read_to_string(folder.join("input.yaml")).unwrap();
        let tree = config::parse_tree(&input, "input.yaml").unwrap().unwrap();
        let mut keys = BTreeSet::new();
        leaves(&tree, "", &mut keys);
        let findings = migrate(router, &input, "input.yaml").unwrap().findings;
        for leaf in keys {
            let parent = leaf.rsplit_once('.').map_or("", |(parent, _)| parent);
            let is_switch = SWITCHES.iter().any(|it| leaf.ends_with(&format!(".{it}")));
            let is_covered = findings
                .iter()
                .any(|it| covers(&it.key, &leaf) || is_switch && covers(parent, &it.key));
            if !is_covered {
                silent.push(format!("{}: {leaf}", folder.display()));
            }
        }
    }
    assert!(silent.is_empty(), "nothing is said about these keys: {silent:#?}");
}

#[test]
fn findings_have_the_lines_of_their_keys() {
    for (router, folder) in cases() {
        let input = fs::read_to_string(folder.join("input.yaml")).unwrap();
        let lines: Vec<_> = input.lines().collect();
        for finding in migrate(router, &input, "input.yaml").unwrap().findings {
            let Some(line) = finding.line else {
                assert_eq!(finding.outcome, Outcome::Added);
                continue;
            };
            let last = finding.key.rsplit(['.', ']']).next().unwrap();
            assert!(lines[line - 1].contains(last), "{}: {finding}", folder.display());
        }
    }
}

/// Collects the path and the place of each single value.
fn values(node: &SourceNode, path: &str, values: &mut Vec<(String, std::ops::Range<usize>)>) {
    match &node.content {
        Content::Mapping(entries) => {
            for entry in entries {
                self::values(&entry.value, &format!("{path}.{}", entry.key), values);
            }
        }
        Content::Sequence(items) => {
            for (index, item) in items.iter().enumerate() {
                self::values(item, &format!("{path}[{index}]"), values);
            }
        }
        Content::Scalar(_) | Content::Broken => values.push((path.to_owned(), node.range.clone())),
    }
}

/// True for values that are names: of subgraphs, attributes and providers. Messages may have them.
fn is_name(path: &str) -> bool {
    path.contains(".callback.subgraphs[")
        || path.starts_with(".telemetry.resource_attributes[")
        || path.ends_with("].id")
}

#[test]
fn findings_and_comments_contain_no_values_of_the_source() {
    const SECRET: &str = "hunter2-hunter2";
    for (router, folder) in cases() {
        let input = fs::read_to_string(folder.join("input.yaml")).unwrap();
        let tree = config::parse_tree(&input, "input.yaml").unwrap().unwrap();
        let mut places = Vec::new();
        values(&tree, "", &mut places);
        for (path, range) in places.into_iter().filter(|(path, _)| !is_name(path)) {
            let value = match input[range.clone()].contains("://") {
                true => format!("{SECRET}://{SECRET}:{SECRET}@host:{SECRET}"),
                false => SECRET.to_owned(),
            };
            let changed = format!("{}\"{value}\"{}", &input[..range.start], &input[range.end..]);
            let Ok(migration) = migrate(router, &changed, "input.yaml") else { continue };
            let comments = migration.yaml.lines().filter(|it| it.trim_start().starts_with('#'));
            let comments: String = comments.map(|it| format!("{it}\n")).collect();
            let said = comments + &report(&migration.findings);
            assert!(!said.contains(SECRET), "{}: {path}: {said}", folder.display());
        }
    }
}

#[test]
fn the_tables_of_the_page_are_the_rules() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migration.md");
    let text = fs::read_to_string(&page).unwrap();
    let mut expected = text.clone();
    for router in Router::ALL {
        let begin = format!("<!-- keys of {} -->\n", router.name());
        let (before, rest) = expected.split_once(&begin).unwrap();
        let (_, after) = rest.split_once("\n<!-- end -->").unwrap();
        expected = format!("{before}{begin}\n{}\n<!-- end -->{after}", table(router));
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&page, &expected).unwrap();
    }
    let update = "run `UPDATE_EXPECT=1 cargo test -p migrate` to write the tables";
    assert!(text == expected || std::env::var_os("UPDATE_EXPECT").is_some(), "{update}");
}

#[test]
fn targets_that_the_tables_name_are_keys_of_the_configuration() {
    let schema = config::config_schema();
    for router in Router::ALL {
        for row in table(router).lines().skip(2) {
            let cell = row.split(" | ").nth(1).unwrap();
            for target in cell.split("`").skip(1).step_by(2) {
                let target = target.replace("(all\\|subgraphs.<name>)", "all");
                let known = target
                    .split('.')
                    .try_fold(&schema, |schema, key| member(schema, key.trim_end_matches("[]")));
                assert!(known.is_some(), "{}: `{target}` in {row}", router.name());
            }
        }
    }
}

/// Returns the schema of a member of a mapping, or of the mappings in a list.
fn member<'a>(schema: &'a serde_json::Value, key: &str) -> Option<&'a serde_json::Value> {
    let further = || schema.get("additionalProperties").filter(|it| it.is_object());
    let branches = ["anyOf", "oneOf"].into_iter().filter_map(|name| schema[name].as_array());
    schema["properties"]
        .get(key)
        .or_else(further)
        .or_else(|| branches.flatten().find_map(|branch| member(branch, key)))
        .or_else(|| schema.get("items").and_then(|items| member(items, key)))
}

#[test]
fn files_without_keys_and_files_of_other_kinds_are_told_apart() {
    for text in ["", "# nothing\n", "\u{feff}{}", "null"] {
        let migration = migrate(Router::Apollo, text, "router.yaml").unwrap();
        assert_eq!(errors_in(&migration.yaml), Vec::<String>::new());
    }
    for text in ["- a\n", "text", "a: [", "a: 1\na: 2\n"] {
        assert!(migrate(Router::Apollo, text, "router.yaml").is_err(), "{text}");
    }
}

mod changed_samples {
    use proptest::prelude::*;

    use super::*;

    /// Values that no sample has at most of its places.
    const VALUES: [&str; 14] = [
        "null",
        "''",
        "-1",
        "0",
        "1e9",
        "99999999999999999999",
        "true",
        "[]",
        "{}",
        "[a, {b: c}]",
        "{enabled: true}",
        "'ü\\n💥'",
        "'a: b # c'",
        "0s",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        /// With any value of a key, the migration ends and its result passes the checks.
        #[test]
        fn always_become_valid_configurations(
            case in any::<prop::sample::Index>(),
            line in any::<prop::sample::Index>(),
            value in prop::sample::select(&VALUES[..]),
        ) {
            let cases = cases();
            let (router, folder) = case.get(&cases);
            let input = fs::read_to_string(folder.join("input.yaml")).unwrap();
            let mut lines: Vec<_> = input.lines().map(str::to_owned).collect();
            let chosen = line.index(lines.len());
            if let Some((key, _)) = lines[chosen].split_once(": ").filter(|(key, _)| !key.contains('#')) {
                lines[chosen] = format!("{key}: {value}");
            }
            let changed = format!("{}\n", lines.join("\n"));
            if let Ok(migration) = migrate(*router, &changed, "input.yaml") {
                let errors = errors_in(&migration.yaml);
                prop_assert!(errors.is_empty(), "{errors:#?}\n{changed}\n{}", migration.yaml);
            }
        }
    }
}
