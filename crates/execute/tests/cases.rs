//! Runs every file in `tests/cases`. A file holds cases; a case is a heading, the input, `--`, and
//! the expected output: each request that was sent (`>`) and the payload (`<`). `UPDATE_EXPECT=1`
//! writes the actual output; read the difference.
//!
//! Lines of the input:
//! - `shape …`: see `kit::notation`
//! - `root SUBGRAPH [after 0,1] [if 0,!1] | TEXT`, `mutation …` likewise
//! - `below SUBGRAPH at PATH [after 0] [if …] | TEXT`: root fields of the query below others
//! - `entities SUBGRAPH [after 0] [if …] [max 2] | TEXT`, followed by `batch …` lines; `max`: the
//!   number of representations in one request
//! - `alone TEXT`: the operation with the last batch only
//! - `reuse PATH as REPRESENTATION copy KEY<KEY_THERE …`: a place where entities of the last batch may be known
//! - `publish FIELD KEY | name=value, …`: values as JSON scalars, `$0` for variables, `E:NAME` for enums
//! - `request FIELD KEY | name=value, …`: likewise; the publisher's response is the field's value,
//!   or `!no-responder`
//! - `variable NAME VALUE`: declared for every fetch; `-` for no value
//! - `response SUBGRAPH ["PART OF THE BODY"] REACTION`: JSON, or `!refused`, `!never`, …
//! - `event KEY TEXT`: executes a subscription whose event has this payload
//! - `upstream SUBGRAPH | TEXT`: the event comes from a subgraph's subscription
//! - `introspection TEXT`
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

mod kit;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::{Executable, Seed};
use kit::notation;
use kit::subgraphs::{Rule, World, subgraph_id};
use plan::{
    EntityBatch, EventField, Fetch, FetchId, FetchKind, OperationKind, Path, Plan, Shape,
    SubgraphOperation, SubscriptionRoot, Value, VariableId, Variables,
};

#[test]
fn every_case_has_its_expected_output() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        expect_test::expect_file![&file].assert_eq(&rewrite(&text));
    }
}

/// Returns the text of the file with the current output of every case.
fn rewrite(text: &str) -> String {
    let mut out = String::new();
    for (index, case) in text.split("## ").enumerate() {
        if index == 0 {
            out.push_str(case);
            continue;
        }
        let input = case.split("--\n").next().unwrap();
        out.push_str(&format!("## {}\n--\n{}\n", input.trim_end(), run(input)));
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[derive(Default)]
struct Case {
    names: Vec<String>,
    rules: Vec<Rule>,
    fetches: Vec<Fetch>,
    shape: Shape,
    variables: Vec<(Box<str>, Option<Box<str>>)>,
    seed: Seed,
    subscription: Option<SubscriptionRoot>,
    introspection: Option<Bytes>,
}

fn run(input: &str) -> String {
    let (title, lines) = input.split_once('\n').unwrap();
    let mut case = Case::default();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let (verb, rest) = line.trim().split_once(' ').unwrap();
        case.read(verb, rest.trim());
    }
    let declared: Vec<(Box<str>, VariableId)> = case
        .variables
        .iter()
        .enumerate()
        .map(|(index, (name, _))| (name.clone(), VariableId(index as u16)))
        .collect();
    for fetch in &mut case.fetches {
        if let FetchKind::Root { operation, .. }
        | FetchKind::RootBelow { operation, .. }
        | FetchKind::Entities { operation, .. } = &mut fetch.kind
        {
            operation.variables.clone_from(&declared);
        }
        if let FetchKind::Entities { batches, .. } = &mut fetch.kind {
            for alone in batches.iter_mut().filter_map(|batch| batch.alone.as_mut()) {
                alone.variables.clone_from(&declared);
            }
        }
    }
    let world = World::new(&case.names, case.rules);
    let plan = Plan {
        kind: if case.subscription.is_some() {
            OperationKind::Subscription
        } else {
            OperationKind::Query
        },
        fetches: case.fetches,
        subscription: case.subscription,
        shape: case.shape,
    };
    let executable = Executable::new(Arc::new(plan));
    let variables = Variables { values: case.variables.into_iter().map(|it| it.1).collect() };
    // With the clock paused, time only advances when all tasks wait: `!never` ends at once.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let context = world.context(Instant::now() + Duration::from_secs(30));
    let payload = runtime.unwrap().block_on(execute::execute(
        &executable,
        &variables,
        case.introspection,
        case.seed,
        &context,
    ));
    let text = std::str::from_utf8(&payload.bytes).unwrap();
    // Properties of every payload.
    assert_eq!(payload.splice, text.len() - 1, "{title}");
    assert_eq!(payload.errors > 0, text.contains(",\"errors\":["), "{title}");
    astjson::Document::new().parse(payload.bytes.clone()).unwrap();
    let mut out = String::new();
    for sent in &*world.log.lock().unwrap() {
        out.push_str(&format!("> {sent}\n"));
    }
    out.push_str(&format!("< {text}\n"));
    out
}

impl Case {
    fn read(&mut self, verb: &str, rest: &str) {
        match verb {
            "shape" => self.shape = notation::shape(rest),
            "root" | "below" | "mutation" | "entities" => self.fetch(verb, rest),
            "batch" => {
                let Some(FetchKind::Entities { batches, .. }) =
                    self.fetches.last_mut().map(|fetch| &mut fetch.kind)
                else {
                    panic!("batch without entities")
                };
                batches.push(notation::batch(rest));
            }
            "reuse" => self.last_batch().reuse.push(notation::reuse_place(rest)),
            "alone" => {
                self.last_batch().alone = Some(SubgraphOperation {
                    text: rest.into(),
                    kind: OperationKind::Query,
                    name: None,
                    variables: vec![],
                });
            }
            "publish" | "request" => {
                let (names, arguments) = rest.split_once(" | ").unwrap();
                let (field, data_key) = names.split_once(' ').unwrap();
                let previous = self.fetches.len().checked_sub(1).map(|it| FetchId(it as u32));
                let event = EventField {
                    subgraph: subgraph_id(&mut self.names, "events"),
                    field: graph::FieldId(field.parse().unwrap()),
                    data_key: data_key.into(),
                    arguments: arguments.split(", ").map(argument).collect(),
                };
                let kind = match verb {
                    "publish" => FetchKind::Publish(event),
                    _ => FetchKind::Request(event),
                };
                let subgraph = subgraph_id(&mut self.names, "events");
                let depends_on = match verb {
                    "publish" => previous.into_iter().collect(),
                    _ => Vec::new(),
                };
                self.fetches.push(Fetch {
                    subgraph,
                    kind,
                    depends_on,
                    any_of: vec![],
                    representations_max: 1000,
                });
            }
            "variable" => {
                let (name, value) = rest.split_once(' ').unwrap();
                self.variables.push((name.into(), (value != "-").then(|| value.into())));
            }
            "response" => {
                let (subgraph, rest) = rest.split_once(' ').unwrap();
                let (contains, reaction) = match rest.strip_prefix('"') {
                    Some(quoted) => quoted.split_once("\" ").unwrap(),
                    None => ("", rest),
                };
                self.rules.push(Rule {
                    subgraph: subgraph.into(),
                    contains: contains.into(),
                    reaction: reaction.into(),
                });
            }
            "event" => {
                let (data_key, text) = rest.split_once(' ').unwrap_or((rest, ""));
                self.seed = Seed::Event(Bytes::copy_from_slice(text.as_bytes()));
                let event = EventField {
                    subgraph: subgraph_id(&mut self.names, "events"),
                    field: graph::FieldId(0),
                    data_key: data_key.into(),
                    arguments: vec![],
                };
                self.subscription.get_or_insert(SubscriptionRoot::Event(event));
            }
            "upstream" => {
                let (subgraph, text) = rest.split_once(" | ").unwrap();
                self.subscription = Some(SubscriptionRoot::Upstream {
                    subgraph: subgraph_id(&mut self.names, subgraph),
                    operation: SubgraphOperation {
                        text: text.into(),
                        kind: OperationKind::Subscription,
                        name: None,
                        variables: vec![],
                    },
                });
            }
            "introspection" => self.introspection = Some(Bytes::copy_from_slice(rest.as_bytes())),
            _ => panic!("unknown line: {verb} {rest}"),
        }
    }

    fn last_batch(&mut self) -> &mut EntityBatch {
        let Some(FetchKind::Entities { batches, .. }) =
            self.fetches.last_mut().map(|fetch| &mut fetch.kind)
        else {
            panic!("not after entities")
        };
        batches.last_mut().unwrap()
    }

    fn fetch(&mut self, verb: &str, rest: &str) {
        let (head, text) = rest.split_once(" | ").unwrap();
        let mut words = head.split(' ');
        let subgraph = subgraph_id(&mut self.names, words.next().unwrap());
        let (mut depends_on, mut any_of) = (vec![], vec![]);
        let mut representations_max = 1000;
        let mut target = Path::default();
        while let Some(word) = words.next() {
            let value = words.next().unwrap();
            match word {
                "after" => {
                    depends_on = value.split(',').map(|it| FetchId(it.parse().unwrap())).collect();
                }
                "if" => any_of = notation::conditions(value),
                "max" => representations_max = value.parse().unwrap(),
                "at" => target = notation::path(value),
                _ => panic!("{word}"),
            }
        }
        let operation = SubgraphOperation {
            text: text.into(),
            kind: if verb == "mutation" { OperationKind::Mutation } else { OperationKind::Query },
            name: text
                .strip_prefix("query ")
                .and_then(|it| it.split(['{', '(', ' ']).next())
                .map(Into::into),
            variables: vec![],
        };
        let kind = match verb {
            "entities" => FetchKind::Entities { operation, batches: vec![] },
            "below" => FetchKind::RootBelow { operation, target },
            _ => FetchKind::Root { operation, data_keys: notation::root_keys(text) },
        };
        self.fetches.push(Fetch { subgraph, kind, depends_on, any_of, representations_max });
    }
}

fn argument(text: &str) -> (Box<str>, Value) {
    let (name, value) = text.split_once('=').unwrap();
    let value = match value.as_bytes()[0] {
        b'$' => Value::Variable(VariableId(value[1..].parse().unwrap())),
        b'"' => Value::String(value.trim_matches('"').into()),
        b'[' => Value::List(
            value[1..value.len() - 1].split(' ').map(|it| argument(&format!("x={it}")).1).collect(),
        ),
        _ if value == "null" => Value::Null,
        _ if value == "true" => Value::Boolean(true),
        _ if value.starts_with("E:") => Value::Enum(value[2..].into()),
        _ => Value::Int(value.into()),
    };
    (name.into(), value)
}
