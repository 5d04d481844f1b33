//! Every folder of `tests/diff` is one change: `old.graphql` and `new.graphql` are API schemas, `operations` has those
//! of clients, `usage.txt` the requests that a router has counted (coordinate, client, requests), and `expected.txt`
//! the changes. `UPDATE_EXPECT=1` rewrites it.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use apollo_compiler::{Schema, ast};
use compose::{
    ChangeCode, ChangeUse, ClientUse, CountedUsage, OperationFile, SchemaChange, UsageRules,
};
use graph::ApiSchema;

fn folders() -> Vec<std::path::PathBuf> {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/diff");
    let entries = fs::read_dir(parent).expect("the folder of cases exists");
    let mut folders: Vec<_> = entries.map(|it| it.expect("an entry").path()).collect();
    folders.sort();
    folders
}

fn parse_schema(sdl: &str, name: &str) -> ApiSchema {
    match Schema::parse_and_validate(sdl, name) {
        Ok(schema) => ApiSchema(Arc::new(schema)),
        Err(failed) => panic!("{name}: {}", failed.errors),
    }
}

fn read_schema(path: &Path) -> ApiSchema {
    parse_schema(&fs::read_to_string(path).expect("a schema"), &path.display().to_string())
}

fn read_files(folder: &Path) -> Vec<OperationFile> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|it| it.expect("an entry").path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| OperationFile {
        name: path.file_name().expect("a file name").to_string_lossy().into_owned(),
        text: fs::read_to_string(path).expect("a text file"),
    };
    paths.iter().map(read).collect()
}

/// Reads `usage.txt`: after the line `requests TOTAL threshold REQUESTS`, lines such as `Query.user(id:) web 12`.
fn read_usage(folder: &Path) -> Option<(CountedUsage, UsageRules)> {
    let text = fs::read_to_string(folder.join("usage.txt")).ok()?;
    let mut lines = text.lines();
    let number = |text: &str| text.parse().expect("a number");
    let head: Vec<_> = lines.next().expect("a first line").split(' ').collect();
    let [_, total, _, threshold] = head[..] else { panic!("{head:?}") };
    let rules =
        UsageRules { threshold: number(threshold), total: number(total), is_complete: true };
    let mut usage = CountedUsage::default();
    for line in lines {
        let [coordinate, client, requests] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let one = ClientUse { requests: number(requests), first: 1, last: 2 };
        usage.coordinates.entry(coordinate.into()).or_default().insert(client.into(), one);
    }
    Some((usage, rules))
}

fn used_by(change: &SchemaChange) -> String {
    match &change.usage {
        None => String::new(),
        Some(ChangeUse::Unknown) => "  use is not counted\n".into(),
        Some(ChangeUse::Counted(clients)) => clients
            .iter()
            .map(|(name, it)| format!("  used by {name}: {}\n", it.requests))
            .collect(),
    }
}

#[test]
fn each_case_gives_its_expected_changes() {
    for folder in folders() {
        let old = read_schema(&folder.join("old.graphql"));
        let new = read_schema(&folder.join("new.graphql"));
        let mut changes = compose::diff(&old, &new);
        let mut text = String::new();
        let files = read_files(&folder.join("operations"));
        if !files.is_empty() {
            let operations = compose::read_operations(&files).expect("operations");
            let report = compose::check_operations(&old, &new, changes, &operations);
            changes = report.changes;
            text += &format!("{} operations\n", report.checked);
            for unchecked in report.unchecked {
                text += &format!("not checked: {}: {}\n", unchecked.label, unchecked.message);
            }
            text += "\n";
        }
        if let Some((usage, rules)) = read_usage(&folder) {
            changes = compose::check_usage(&old, changes, &usage, rules);
            text += &format!("{} requests\n\n", rules.total);
        }
        for change in &changes {
            text += &format!("{change}\n");
            text += &used_by(change);
            text += "\n";
        }
        expect_test::expect_file![folder.join("expected.txt")].assert_eq(&text);
    }
}

#[test]
fn each_code_has_a_case() {
    let mut known = String::new();
    for folder in folders() {
        known += &fs::read_to_string(folder.join("expected.txt")).unwrap_or_default();
    }
    let is_missing = |code: &&ChangeCode| !known.contains(&format!(" {code} "));
    let missing: Vec<_> = ChangeCode::all().iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Returns the weights that a code has in the cases without operations and usage, which lower them.
fn find_weights(code: ChangeCode) -> String {
    let mut weights = Vec::new();
    for folder in folders()
        .iter()
        .filter(|it| ["operations", "usage.txt"].iter().all(|name| !it.join(name).exists()))
    {
        let text = fs::read_to_string(folder.join("expected.txt")).expect("the expected changes");
        for weight in ["breaking", "dangerous", "safe"] {
            let is_new = !weights.contains(&weight);
            if is_new && text.lines().any(|it| it.starts_with(&format!("{weight} {code} "))) {
                weights.push(weight);
            }
        }
    }
    weights.sort_unstable();
    match weights.is_empty() {
        true => "breaking".to_owned(),
        false => weights.join(", "),
    }
}

#[test]
fn the_reference_of_changes_is_current() {
    let mut page = REFERENCE_HEAD.to_owned();
    for code in ChangeCode::all() {
        page += &format!("| `{code}` | {} | {} |\n", code.summary(), find_weights(*code));
    }
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/composition/schema-changes.md");
    expect_test::expect_file![path].assert_eq(&page);
}

/// The text before the table of codes.
const REFERENCE_HEAD: &str = r#"# Changes of a schema

For authors of schemas and of pipelines: the changes that `starling diff` reports, with their codes and their weights.
The page is generated from the code.

<!-- test: not-run reason="docs/composition.md runs the same command" -->
```sh
starling diff old.graphql supergraph.yaml --operations clients/
```

- **breaking**: a correct request may fail, or a response may have a form that was excluded before.
- **dangerous**: requests stay correct, but clients may receive something that they do not expect.
- **safe**: clients do not notice the change.

With `--operations`, a change that affects none of the operations is safe. The values of variables are not known, so
that all values of an enum and all fields of an input type count as sent if a variable has the type. The names of the
codes are those of `graphql-js` where it has one. The weight of some codes depends on the change: a default whose
removal makes an argument required is breaking, another one is dangerous.

| code | meaning | weight |
|---|---|---|
"#;

/// A schema with every kind of element, from which the random tests remove some.
const RICH: &str = r#"
type Query { node(id: ID!, deep: Boolean = true): Node found: Found users(filter: Filter, order: Order): [User!]! extra: Int }
interface Node { id: ID! note: String }
interface Named { name: String label: String }
type User implements Node & Named { id: ID! note: String name: String label: String size: Size }
type Pet implements Node & Named { id: ID! note: String name: String label: String owner(active: Boolean, since: Date!): User }
type Bird { id: ID! wings: Int }
union Found = User | Pet | Bird
input Filter { name: String! = "a" age: Int near: Place }
input Place { city: String zip: String! }
enum Order { UP DOWN NONE }
enum Size { SMALL LARGE @deprecated }
scalar Date
directive @live(rate: Int, unit: String!) repeatable on FIELD | QUERY
"#;

/// Returns a valid schema with some elements of [`RICH`].
fn random_schema(random: &mut fastrand::Rng) -> (String, ApiSchema) {
    let document = ast::Document::parse(RICH, "rich").expect("the schema parses");
    loop {
        let mut own = document.clone();
        let keeps = &mut |_: &str| random.u8(0..8) > 0;
        own.definitions.retain(|it| it.name().is_none_or(|name| name == "Query" || keeps(name)));
        for definition in &mut own.definitions {
            remove_members(definition, keeps);
        }
        let sdl = own.to_string();
        if let Ok(schema) = Schema::parse_and_validate(&sdl, "random") {
            return (sdl, ApiSchema(Arc::new(schema)));
        }
    }
}

fn remove_members(definition: &mut ast::Definition, keeps: &mut impl FnMut(&str) -> bool) {
    use ast::Definition as D;
    match definition {
        D::ObjectTypeDefinition(it) => {
            let it = it.make_mut();
            it.implements_interfaces.retain(|name| keeps(name));
            it.fields.retain(|field| keeps(&field.name));
            for field in &mut it.fields {
                field.make_mut().arguments.retain(|argument| keeps(&argument.name));
            }
        }
        D::InterfaceTypeDefinition(it) => it.make_mut().fields.retain(|field| keeps(&field.name)),
        D::UnionTypeDefinition(it) => it.make_mut().members.retain(|name| keeps(name)),
        D::EnumTypeDefinition(it) => it.make_mut().values.retain(|value| keeps(&value.value)),
        D::InputObjectTypeDefinition(it) => it.make_mut().fields.retain(|field| keeps(&field.name)),
        D::DirectiveDefinition(it) => {
            let it = it.make_mut();
            it.repeatable = keeps("repeatable");
            it.arguments.retain(|argument| keeps(&argument.name));
            if !keeps("FIELD") {
                it.locations.remove(0);
            }
        }
        _ => {}
    }
}

/// Returns the code of the opposite change, for codes of additions and removals.
fn opposite(code: &str) -> Option<String> {
    let code = code.replace("REQUIRED_", "").replace("OPTIONAL_", "");
    let swapped = match (code.contains("ADDED"), code.contains("REMOVED")) {
        (true, false) => code.replace("ADDED", "REMOVED"),
        (false, true) => code.replace("REMOVED", "ADDED"),
        _ => return None,
    };
    // `VALUE_ADDED_TO_ENUM` is the opposite of `VALUE_REMOVED_FROM_ENUM`.
    Some(swapped.replace("_TO_", "_").replace("_FROM_", "_"))
}

/// Counts the additions and removals by code and path, each as itself or as its opposite.
fn count(changes: &[SchemaChange], is_swapped: bool) -> BTreeMap<(String, String), usize> {
    let mut counts = BTreeMap::new();
    for change in changes {
        // Defaults have the opposite `…_CHANGE`, which is no removal by its name.
        if change.code.name().contains("DEFAULT") {
            continue;
        }
        let Some(swapped) = opposite(change.code.name()) else { continue };
        let code = match is_swapped {
            true => swapped,
            false => opposite(&swapped).expect("the opposite of an addition or removal"),
        };
        *counts.entry((code, change.path.clone())).or_default() += 1;
    }
    counts
}

/// Operations that use the elements of [`RICH`] in all ways, one for each line.
const OPERATIONS: &str = r#"
query A { node(id: 1, deep: false) { id note ... on User { name } ... on Named { label } } }
query B { found { ... on Pet { owner(active: true, since: "now") { size } } ... on Node { id } } }
query C { found { ... on Bird { id wings } ... on Named { name } } extra }
query D($filter: Filter, $order: Order) { users(filter: $filter, order: $order) { ... on Node { note } } }
query E { users(filter: {name: "x", near: {city: "y", zip: "1"}}, order: NONE) { id size } }
query F($zip: String!) { users(filter: {near: {zip: $zip}}) { __typename } }
query G @live(unit: "s") { extra @live(rate: 1, unit: "s") @live(unit: "m") }
query H($place: Place, $age: Int = 3) { users(filter: {age: $age, near: $place}) { name } }
"#;

/// Checks that every operation that becomes invalid is blamed on a change.
fn check_blame(context: &str, old: &ApiSchema, new: &ApiSchema) -> usize {
    let file = OperationFile { name: "operations".to_owned(), text: OPERATIONS.to_owned() };
    let operations = compose::read_operations(&[file]).expect("operations");
    let report = compose::check_operations(old, new, compose::diff(old, new), &operations);
    let unexplained = report.changes.iter().find(|it| it.code == ChangeCode::OperationInvalid);
    assert_eq!(unexplained, None, "{context}");
    report.checked
}

fn check_properties(context: &str, old: &ApiSchema, new: &ApiSchema) {
    assert_eq!(compose::diff(old, old), [], "{context}");
    let (forward, back) = (compose::diff(old, new), compose::diff(new, old));
    assert_eq!(count(&forward, true), count(&back, false), "{context}");
}

#[test]
fn a_schema_equals_itself_and_swapping_schemas_turns_additions_into_removals() {
    for folder in folders() {
        let old = read_schema(&folder.join("old.graphql"));
        let new = read_schema(&folder.join("new.graphql"));
        check_properties(&folder.display().to_string(), &old, &new);
    }
    let mut random = fastrand::Rng::with_seed(7);
    let mut checked = 0;
    for _ in 0..300 {
        let (old_sdl, old) = random_schema(&mut random);
        let (new_sdl, new) = random_schema(&mut random);
        let context = format!("{old_sdl}\n---\n{new_sdl}");
        check_properties(&context, &old, &new);
        checked += check_blame(&context, &old, &new);
    }
    assert!(checked > 300, "most random schemas refuse all operations: {checked}");
}
