//! Bounds hold, and the payload is well-formed regardless of the responses of subgraphs.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

mod kit;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use execute::{Executable, Payload, Seed};
use kit::notation;
use kit::subgraphs::{Rule, World};
use plan::{Fetch, FetchId, FetchKind, OperationKind, Plan, SubgraphOperation, Variables};

/// A root fetch of subgraph `one`, then entity batches of subgraph `two`, one fetch after the other.
fn plan(shape: &str, batches: &[&str]) -> Arc<Executable> {
    let operation = |text: &str| SubgraphOperation {
        text: text.into(),
        kind: OperationKind::Query,
        name: None,
        variables: vec![],
    };
    let mut fetches = vec![Fetch {
        subgraph: graph::SubgraphId(0),
        kind: FetchKind::Root { operation: operation("{p}"), data_keys: vec!["p".into()] },
        depends_on: vec![],
        any_of: vec![],
        representations_max: 1_000_000,
    }];
    for (index, batch) in batches.iter().enumerate() {
        fetches.push(Fetch {
            subgraph: graph::SubgraphId(1),
            kind: FetchKind::Entities {
                operation: operation(&format!("{{fetch{index}}}")),
                batches: vec![notation::batch(batch)],
            },
            depends_on: vec![FetchId(index as u32)],
            any_of: vec![],
            representations_max: 1_000_000,
        });
    }
    let shape = notation::shape(shape);
    Arc::new(Executable::new(Arc::new(Plan {
        kind: OperationKind::Query,
        fetches,
        subscription: None,
        shape,
    })))
}

fn run(executable: &Executable, one: String, two: String) -> (Payload, usize) {
    let rule = |subgraph: &str, reaction| Rule {
        subgraph: subgraph.into(),
        contains: String::new(),
        reaction,
    };
    let names = ["one".to_owned(), "two".to_owned()];
    let world = World::new(&names, vec![rule("one", one), rule("two", two)]);
    let context = world.context(Instant::now() + Duration::from_secs(60));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let variables = Variables::default();
    let payload =
        runtime.block_on(execute::execute(executable, &variables, None, Seed::Nothing, &context));
    let sent = world.log.lock().unwrap().len();
    (payload, sent)
}

fn text(payload: &Payload) -> &str {
    std::str::from_utf8(&payload.bytes).unwrap()
}

#[test]
fn more_representations_than_the_bound_are_not_sent() {
    let executable =
        plan("Query { p: [P] { id: ID! name: String! } }", &["_entities r at p as P id!"]);
    let mut one = String::from("{\"data\":{\"p\":[");
    for id in 0..=100_000 {
        write!(one, "{}{{\"id\":{id}}}", if id > 0 { "," } else { "" }).unwrap();
    }
    one.push_str("]}}");
    let (payload, sent) = run(&executable, one, "unused".into());
    assert_eq!((payload.errors, sent), (1, 1));
    let expected = "\"errors\":[{\"message\":\"The operation asks subgraphs about more than 100000 \
                    entities.\",\"extensions\":{\"code\":\"OPERATION_LIMIT_EXCEEDED\"}}]}";
    assert!(text(&payload).ends_with(expected));
}

#[test]
fn duplicates_do_not_count_as_representations() {
    let executable =
        plan("Query { p: [P] { id: ID! name: String! } }", &["_entities r at p as P id!"]);
    let one = format!("{{\"data\":{{\"p\":[{}{{\"id\":1}}]}}}}", "{\"id\":1},".repeat(150_000));
    let two = "{\"data\":{\"_entities\":[{\"name\":\"x\"}]}}".to_owned();
    let (payload, sent) = run(&executable, one, two);
    assert_eq!((payload.errors, sent), (0, 2));
    assert_eq!(text(&payload).matches("\"name\":\"x\"").count(), 150_001);
}

#[test]
fn a_large_payload_is_printed_in_a_turn_of_its_own() {
    let executable = plan("Query { p: String }", &[]);
    let turns = |bytes: usize| {
        let response = format!("{{\"data\":{{\"p\":\"{}\"}}}}", "x".repeat(bytes));
        let rule = Rule { subgraph: "one".into(), contains: String::new(), reaction: response };
        let world = World::new(&["one".to_owned()], vec![rule]);
        let context = world.context(Instant::now() + Duration::from_secs(60));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let variables = Variables::default();
        let execution = execute::execute(&executable, &variables, None, Seed::Nothing, &context);
        let mut execution = std::pin::pin!(execution);
        let mut turns = 0;
        let payload = runtime.block_on(std::future::poll_fn(|context| {
            turns += 1;
            execution.as_mut().poll(context)
        }));
        assert!(payload.bytes.len() > bytes);
        turns
    };
    assert_eq!(turns(1_000_000), turns(1_000) + 1);
}

#[test]
fn errors_over_the_bound_are_counted() {
    let executable = plan("Query { p: [P] { name: String! } }", &[]);
    let one = format!("{{\"data\":{{\"p\":[{}{{}}]}}}}", "{},".repeat(299));
    let (payload, _) = run(&executable, one, String::new());
    assert_eq!(payload.errors, 201);
    assert!(text(&payload).contains("\"message\":\"100 more errors were left out.\""));
}

#[test]
fn one_error_of_an_entity_at_a_thousand_places_is_reported_at_a_few() {
    let executable =
        plan("Query { p: [P] { id: ID! name: String! } }", &["_entities r at p as P id!"]);
    let one = format!("{{\"data\":{{\"p\":[{}{{\"id\":1}}]}}}}", "{\"id\":1},".repeat(999));
    let two = "{\"data\":{\"_entities\":[{\"name\":null}]},\"errors\":[{\"message\":\"no\",\
               \"path\":[\"_entities\",0,\"name\"]}]}";
    let (payload, _) = run(&executable, one, two.to_owned());
    assert_eq!(payload.errors, 16);
    assert!(text(&payload).contains(&format!("[{}null]", "null,".repeat(999))));
}

#[test]
fn a_response_that_would_grow_without_bound_is_refused() {
    // Ten levels of friends, each a list of ten times the same person: a few hundred nodes in
    // memory, ten thousand million when printed. Long names, so that the bound is reached soon.
    let person = format!("{{\"id\":1,\"n\":\"{}\"}}", "x".repeat(100_000));
    let people = "{\"data\":{\"_entities\":[{\"f\":[PEOPLE]}]}}"
        .replace("PEOPLE", &vec![person; 10].join(","));
    let mut shape = String::from("id: ID! n: String");
    let mut batches = Vec::new();
    for level in 0..10 {
        shape = format!("f: [P] {{ {shape} }}");
        let path = format!("p{}", ".f".repeat(level));
        batches.push(format!("_entities r at {path} as P id!"));
    }
    let batches: Vec<_> = batches.iter().map(String::as_str).collect();
    let executable = plan(&format!("Query {{ p: P {{ {shape} }} }}"), &batches);
    let (payload, sent) = run(&executable, "{\"data\":{\"p\":{\"id\":1}}}".into(), people);
    // Each level is fetched once, with one representation.
    assert_eq!(sent, 11);
    assert_eq!(
        text(&payload),
        "{\"data\":null,\"errors\":[{\"message\":\"The response is larger than 134217728 bytes.\",\
         \"extensions\":{\"code\":\"OPERATION_LIMIT_EXCEEDED\"}}]}"
    );
}

#[test]
fn deep_responses_are_refused_and_do_not_overflow_the_stack() {
    let executable = plan("Query { p: Json }", &["_entities r at p.x as P id!"]);
    let deep = |open: &str, close: &str| {
        format!("{{\"data\":{{\"p\":{}1{}}}}}", open.repeat(100_000), close.repeat(100_000))
    };
    for one in [deep("[", "]"), deep("{\"x\":", "}")] {
        let (payload, _) = run(&executable, one, String::new());
        assert!(text(&payload).contains("nested too deeply"), "{}", text(&payload));
    }
}

/// A small generator, so that a failure is reproduced by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    fn json(&mut self, depth: u32) -> String {
        const KEYS: [&str; 14] = [
            "data",
            "errors",
            "p",
            "q",
            "id",
            "name",
            "__typename",
            "_entities",
            "path",
            "message",
            "extensions",
            "code",
            "k\\u0065y",
            "maker",
        ];
        let scalars = [
            "null",
            "true",
            "0",
            "1",
            "-7",
            "1.5",
            "99999999999",
            "\"A\"",
            "\"B\"",
            "\"p\"",
            "\"_entities\"",
            "\"\\ud800\"",
            "\"\\u0000\"",
        ];
        match self.below(if depth == 0 { 4 } else { 12 }) {
            0..4 => self.pick(&scalars).to_owned(),
            4..7 => {
                let count = self.below(4);
                let elements: Vec<_> = (0..count).map(|_| self.json(depth - 1)).collect();
                format!("[{}]", elements.join(","))
            }
            _ => {
                let count = self.below(6);
                let members: Vec<_> = (0..count)
                    .map(|_| format!("\"{}\":{}", self.pick(&KEYS), self.json(depth - 1)))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    /// Mostly a valid response, so that the code behind the first checks is reached.
    fn response(&mut self) -> String {
        match self.below(8) {
            0 => self.json(5),
            1 => {
                let text = self.json(5);
                let mut end = self.below(text.len() as u64 + 1) as usize;
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                text[..end].to_owned()
            }
            _ => {
                let errors = if self.below(3) == 0 {
                    format!(",\"errors\":[{}]", self.json(3))
                } else {
                    String::new()
                };
                let members: Vec<_> = ["p", "q", "_entities"]
                    .iter()
                    .map(|key| format!("\"{key}\":{}", self.json(4)))
                    .collect();
                format!("{{\"data\":{{{}}}{errors}}}", members.join(","))
            }
        }
    }
}

#[test]
fn the_payload_is_well_formed_for_any_subgraph_response() {
    let executable = plan(
        "Query { p: [N!] { ...A { id: ID! name: String! maker: M { name: Int } } ...B { id: Int } }
                 q: [[Q]]! { name: Color(A|B) p: Float } }",
        &[
            "_entities r at p[A|B],q as * id!",
            "_entities r at p.maker as M id! name@A",
            "_entities r at p,p.maker,q.p as P name!{id!} code",
        ],
    );
    let mut document = astjson::Document::new();
    for seed in 1..=3000 {
        let mut random = Random(seed);
        let (one, two) = (random.response(), random.response());
        let (payload, _) = run(&executable, one.clone(), two.clone());
        document.reset();
        let parsed = document.parse(payload.bytes.clone());
        assert!(parsed.is_ok(), "seed {seed}: {one} {two}: {}", text(&payload));
        let root = parsed.unwrap();
        // A null for the non-null root field always has an error.
        let data = document.get(root, "data").unwrap();
        let errors = document.get(root, "errors");
        assert!(!document.is_null(data) || errors.is_some(), "seed {seed}: {one} {two}");
        assert_eq!(payload.errors as usize, errors.map_or(0, |it| document.len(it)), "{seed}");
    }
}
