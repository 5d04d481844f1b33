//! Events that are resolved together get, byte for byte, the payloads that they get one by one.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

mod kit;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use astjson::{Document, Kind};
use bytes::Bytes;
use execute::{
    EventFetchCache, EventRequest, Executable, FetchCacheBudget, FetchError, ForwardedHeaders,
    Generation, GraphqlError, LocalFuture, Publisher, RequestContext, Seed, Sharing, Subgraph,
    SubgraphRequest, SubgraphResponse,
};
use http::{HeaderMap, StatusCode};
use kit::notation;
use kit::subgraphs::generation;
use plan::{
    EventField, Fetch, FetchId, FetchKind, OperationKind, Plan, SubgraphOperation,
    SubscriptionRoot, VariableId, Variables,
};

/// A subgraph whose response about an entity depends on the seed only, not on the other entities.
struct Oracle {
    seed: u64,
    /// Percentage of responses with a failure.
    trouble: u64,
    requests: AtomicU64,
    taken_apart: AtomicU64,
    bodies: Mutex<Vec<Bytes>>,
}

impl Oracle {
    fn new(seed: u64, trouble: u64) -> Arc<Self> {
        Arc::new(Self {
            seed,
            trouble,
            requests: AtomicU64::new(0),
            taken_apart: AtomicU64::new(0),
            bodies: Mutex::default(),
        })
    }

    /// A number below `bound` that depends on the arguments only.
    fn says(&self, about: &[&str], bound: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, about).hash(&mut hasher);
        hasher.finish() % bound
    }

    fn respond(&self, body: &Bytes) -> Result<(StatusCode, String), FetchError> {
        let mut document = Document::new();
        let root = document.parse(body.clone()).unwrap();
        let query = document.as_str(document.get(root, "query").unwrap()).unwrap().into_owned();
        if self.says(&[&query, "down"], 1000) < self.trouble {
            return Err(FetchError::Connect("connection refused".into()));
        }
        let variables = document.get(root, "variables").unwrap();
        let (mut context, mut lists) = (String::new(), Vec::new());
        for (name, value) in document.members(variables) {
            match document.kind(value) {
                Kind::Array => {
                    let items = document.elements(value).map(|it| document.to_string(it));
                    lists.push((name.into_owned(), items.collect::<Vec<_>>()));
                }
                _ => context += &document.to_string(value),
            }
        }
        let (mut data, mut errors) = (Vec::new(), Vec::new());
        for (variable, items) in &lists {
            let key = match &**variable {
                "a" => "e0",
                "b" => "e1",
                _ => "_entities",
            };
            let mut entities = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let about = [&query, &context, item.as_str()];
                let kind = self.says(&[about[0], about[1], about[2], "kind"], 1000);
                let error = |rest: &str| {
                    format!(
                        "{{\"path\":[\"{key}\",{index}{rest}],\"message\":\"no {item}\",\"extensions\":{{\"at\":[1]}}}}",
                        item = item.replace('"', "'"),
                    )
                };
                // The first few concern all entities of the request.
                match (kind * 100).checked_div(self.trouble).unwrap_or(100) {
                    0..3 => return Err(FetchError::TooLarge { limit: 1000 }),
                    3..6 => return Ok((StatusCode::OK, "{\"data\":".into())),
                    6..9 => {
                        let text = "{\"data\":null,\"errors\":[{\"message\":\"all\"}]}";
                        return Ok((StatusCode::INTERNAL_SERVER_ERROR, text.into()));
                    }
                    9..12 => errors.push("{\"message\":\"some\"}".to_owned()),
                    12..15 => errors.push(format!("{{\"message\":\"list\",\"path\":[\"{key}\"]}}")),
                    15..18 => errors.push(format!("{{\"message\":\"?\",\"path\":[\"{key}\",99]}}")),
                    18..21 => {
                        entities.push("{}".to_owned());
                    }
                    21..40 => {
                        entities.push("null".to_owned());
                        continue;
                    }
                    40..70 => {
                        errors.push(error(""));
                        entities.push("null".to_owned());
                        continue;
                    }
                    70..90 => errors.push(error(",\"name\"")),
                    90..95 => errors.push(error(",\"friends\",0,\"name\"")),
                    _ => {}
                }
                entities.push(self.entity(&about));
            }
            data.push(format!("\"{key}\":[{}]", entities.join(", ")));
        }
        if lists.is_empty() {
            data.push(format!("\"b\":{}", self.says(&[&query], 9)));
        }
        let errors = match &errors[..] {
            [] => String::new(),
            errors => format!(",\"errors\":[{}]", errors.join(",")),
        };
        Ok((StatusCode::OK, format!("{{\"data\": {{{}}}{errors}}}", data.join(","))))
    }

    fn entity(&self, about: &[&str; 3]) -> String {
        let says = |what: &str, bound| self.says(&[about[0], about[1], about[2], what], bound);
        let name = match says("name", 8) {
            0 => "null".to_owned(),
            1 => "7".to_owned(),
            number => format!("\"n\\u00e9 {number}\""),
        };
        let friend = |number: u64| match says(&format!("friend {number}"), 6) {
            0 => "null".to_owned(),
            1 => "{\"id\":null}".to_owned(),
            id => format!("{{\"id\":\"{id}\"}}"),
        };
        let friends: Vec<_> = (0..says("friends", 4)).map(friend).collect();
        let maker = match says("maker", 5) {
            0 => "null".to_owned(),
            id => format!("{{\"id\":{id}}}"),
        };
        let size = if says("size", 4) == 0 { "null" } else { "3.0" };
        format!(
            "{{\"__typename\":\"P\",\"name\":{name},\"n\":{},\"maker\":{maker},\"friends\":[{}],\"size\":{size}}}",
            says("n", 100),
            friends.join(",")
        )
    }
}

impl Subgraph for Oracle {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        self.requests.fetch_add(1, Relaxed);
        self.bodies.lock().unwrap().push(request.body.clone());
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let (status, body) = self.respond(&request.body)?;
            Ok(SubgraphResponse {
                status,
                headers: HeaderMap::new(),
                body: body.into(),
                policy: None,
                hedge: None,
            })
        })
    }

    fn note_split(&self) {
        self.taken_apart.fetch_add(1, Relaxed);
    }
}

impl Publisher for Oracle {
    fn publish<'a>(&'a self, _: EventRequest<'a>) -> LocalFuture<'a, Result<bool, GraphqlError>> {
        Box::pin(std::future::pending())
    }

    fn request<'a>(&'a self, _: EventRequest<'a>) -> LocalFuture<'a, Result<Bytes, GraphqlError>> {
        Box::pin(std::future::pending())
    }
}

fn operation(text: &str, variables: &[(&str, u16)]) -> SubgraphOperation {
    let variables = variables.iter().map(|(name, id)| ((*name).into(), VariableId(*id)));
    SubgraphOperation {
        text: text.into(),
        kind: OperationKind::Query,
        name: None,
        variables: variables.collect(),
    }
}

fn entities(subgraph: u16, after: &[u32], text: &str, batches: &[&str]) -> Fetch {
    let batches = batches.iter().enumerate().map(|(number, text)| {
        let mut batch = notation::batch(text);
        if batches.len() > 1 {
            batch.alone = Some(operation(&format!("alone {number}"), &[]));
        }
        batch
    });
    Fetch {
        subgraph: graph::SubgraphId(subgraph),
        kind: FetchKind::Entities {
            operation: operation(text, &[("first", 0)]),
            batches: batches.collect(),
        },
        depends_on: after.iter().map(|it| FetchId(*it)).collect(),
        any_of: vec![],
        representations_max: 1000,
    }
}

fn executable(shape: &str, fetches: Vec<Fetch>) -> Executable {
    let event = EventField {
        subgraph: graph::SubgraphId(0),
        field: graph::FieldId(0),
        data_key: "tick".into(),
        arguments: vec![],
    };
    Executable::new(Arc::new(Plan {
        kind: OperationKind::Subscription,
        fetches,
        subscription: Some(SubscriptionRoot::Event(event)),
        shape: notation::shape(shape),
    }))
}

/// One fetch, several in sequence, lists, aliases, contexts and root fields below others.
fn plans() -> Vec<Executable> {
    let one = || entities(1, &[], "one", &["_entities r at tick as P id!"]);
    let parts = |max| {
        let aliases = ["e0 a at tick.parts as Q id!", "e1 b at tick as P id!"];
        let fetch = entities(1, &[], "aliases", &aliases);
        Fetch { representations_max: max, ..fetch }
    };
    let below = Fetch {
        subgraph: graph::SubgraphId(1),
        kind: FetchKind::RootBelow {
            operation: operation("below", &[]),
            target: notation::path("tick.again"),
        },
        depends_on: vec![],
        any_of: vec![],
        representations_max: 1000,
    };
    vec![
        executable("S { tick: P { id: ID! name: String! n: Int! } }", vec![one()]),
        executable("S { tick: P! { id: ID! name: String n: Int! } }", vec![one()]),
        executable(
            "S { tick: P { id: ID! maker: M! { id: ID! name: String friends: [P!] { name: String! } } } }",
            vec![
                one(),
                entities(2, &[0], "two", &["_entities r at tick.maker as M id!"]),
                entities(1, &[1], "three", &["_entities r at tick.maker.friends as P id!"]),
            ],
        ),
        executable(
            "S { tick: P { title: String @if(0) n: Int parts: [Q!] { id: ID! name: String! size: Int } } }",
            vec![parts(1000)],
        ),
        executable(
            "S { tick: P { n: Int parts: [Q] { name: String size: Int! } maker: M { name: String! } } }",
            vec![parts(3), entities(2, &[0], "two", &["_entities r at tick.maker as M id!"])],
        ),
        executable(
            "S { tick: P { parts: [Q] { size: Int! name: String } } }",
            vec![entities(1, &[], "context", &["_entities r at tick.parts as Q id! with c=1:c"])],
        ),
        executable("S { tick: P { n: Int again: Query { b: Int! } } }", vec![one(), below]),
    ]
}

fn seed(random: &mut Random) -> Seed {
    let id = match random.below(12) {
        0 => "null".to_owned(),
        1 => "{\"x\":1}".to_owned(),
        // Often the same values.
        _ => random.below(5).to_string(),
    };
    let part = |random: &mut Random| match random.below(8) {
        0 => "null".to_owned(),
        1 => "{\"__typename\":\"Q\",\"id\":null}".to_owned(),
        2 => "{\"__typename\":\"Q\"}".to_owned(),
        _ => format!("{{\"__typename\":\"Q\",\"id\":{}}}", random.below(6)),
    };
    let parts: Vec<_> = (0..random.below(6)).map(|_| part(random)).collect();
    let context = ["\"EUR\"", "\"USD\"", "null"][random.below(3) as usize];
    let event = format!(
        "{{\"__typename\":\"P\",\"id\":{id},\"title\":\"t\",\"c\":{context},\"parts\":[{}],\"again\":{{}}}}",
        parts.join(",")
    );
    match random.below(20) {
        0 => Seed::BadEvent("is no event".into()),
        1 => Seed::Event("{\"__typename\":\"P\"".into()),
        2 => Seed::Event("{\"__typename\":\"X\",\"id\":1}".into()),
        3 => Seed::Event("{\"__typename\":\"P\",\"title\":1}".into()),
        _ => Seed::Event(event.into()),
    }
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

fn world(oracle: &Arc<Oracle>) -> Arc<Generation> {
    let subgraph = || Arc::clone(oracle) as Arc<dyn Subgraph>;
    let names = ["events", "one", "two"].map(str::to_owned);
    generation(&names, vec![subgraph(), subgraph(), subgraph()], Arc::clone(oracle) as _)
}

fn context(generation: &Arc<Generation>, sharing: Option<Arc<Sharing>>) -> RequestContext {
    RequestContext {
        uploads: None,
        closed_subgraphs: None,
        caching: None,
        generation: Arc::clone(generation),
        headers: Arc::new(ForwardedHeaders::default()),
        // The clock of these tests advances when all tasks wait.
        deadline: Instant::now() + Duration::from_secs(60),
        sharing,
        trace: None,
        claims: None,
    }
}

fn play<F: Future>(test: F) -> F::Output {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(test)
}

fn texts(payloads: &[execute::Payload]) -> Vec<&str> {
    payloads.iter().map(|it| std::str::from_utf8(&it.bytes).unwrap()).collect()
}

#[test]
fn the_payloads_of_a_batch_are_those_of_its_events_one_by_one() {
    let number = |name: &str| std::env::var(name).ok().map(|it| it.parse::<u64>().unwrap());
    let seeds = match number("STARLING_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("STARLING_SEEDS").unwrap_or(600),
    };
    let plans = plans();
    let (mut alone, mut together, mut apart) = (0, 0, 0);
    for number in seeds {
        let mut random = Random(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let executable = &plans[random.below(plans.len() as u64) as usize];
        let trouble = [0, 10, 200][random.below(3) as usize];
        let seeds: Vec<_> = (0..random.below(17)).map(|_| seed(&mut random)).collect();
        let variables = Variables {
            values: vec![Some(if random.below(2) == 0 { "true" } else { "false" }.into())],
        };
        let oracle = Oracle::new(number, trouble);
        let generation = world(&oracle);
        let expected = play(async {
            let mut payloads = Vec::new();
            for seed in seeds.clone() {
                let context = context(&generation, None);
                payloads.push(execute::execute(executable, &variables, None, seed, &context).await);
            }
            payloads
        });
        alone += oracle.requests.swap(0, Relaxed);
        oracle.taken_apart.store(0, Relaxed);
        let events = seeds.iter().map(|seed| (seed.clone(), context(&generation, None)));
        let payloads = play(execute::execute_batch(executable, &variables, events.collect()));
        together += oracle.requests.load(Relaxed);
        apart += oracle.taken_apart.load(Relaxed);
        assert_eq!(texts(&payloads), texts(&expected), "STARLING_SEED={number} {seeds:?}");
        assert_eq!(payloads, expected, "STARLING_SEED={number}");
        for (payload, text) in payloads.iter().zip(texts(&payloads)) {
            assert_eq!(payload.splice, text.len() - 1);
        }
    }
    assert!(together * 2 < alone && apart > 0, "{together} instead of {alone}, {apart} apart");
}

/// Events that concern `P` with these ids.
fn events(ids: impl IntoIterator<Item = u64>) -> Vec<Seed> {
    let event = |id| Seed::Event(format!("{{\"__typename\":\"P\",\"id\":{id}}}").into());
    ids.into_iter().map(event).collect()
}

#[test]
fn a_batch_is_one_request_for_each_fetch_with_every_entity_once() {
    let oracle = Oracle::new(1, 0);
    let generation = world(&oracle);
    let executable = &plans()[0];
    let batch = events([1, 2, 1]).into_iter().map(|seed| (seed, context(&generation, None)));
    play(execute::execute_batch(executable, &Variables::default(), batch.collect()));
    let bodies = oracle.bodies.lock().unwrap();
    let bodies: Vec<_> = bodies.iter().map(|it| std::str::from_utf8(it).unwrap()).collect();
    assert_eq!(
        bodies,
        [
            r#"{"query":"one","variables":{"r":[{"__typename":"P","id":1},{"__typename":"P","id":2}]}}"#
        ]
    );
}

#[test]
fn batches_of_two_groups_and_events_alone_share_requests() {
    let oracle = Oracle::new(1, 0);
    let generation = world(&oracle);
    let executable = &plans()[0];
    let variables = Variables::default();
    let room = Arc::new(FetchCacheBudget::new(1 << 20));
    let sharing: Vec<_> = (0..6)
        .map(|_| {
            let event = Some(EventFetchCache::new(Arc::clone(&room)));
            Arc::new(Sharing { event, ..Sharing::default() })
        })
        .collect();
    let all = events(0..6);
    let event = |number: usize| {
        (all[number].clone(), context(&generation, Some(Arc::clone(&sharing[number]))))
    };
    let batch = |numbers: std::ops::Range<usize>| {
        execute::execute_batch(executable, &variables, numbers.map(event).collect())
    };
    play(async {
        let (seed, own) = event(0);
        let first = execute::execute(executable, &variables, None, seed, &own);
        let (_, one, two) = tokio::join!(first, batch(0..4), batch(0..4));
        assert_eq!(texts(&one), texts(&two));
        assert_eq!(oracle.requests.swap(0, Relaxed), 2, "the first event, and three in a batch");
        let three = batch(2..6).await;
        assert_eq!(texts(&three)[..2], texts(&one)[2..]);
        assert_eq!(oracle.requests.swap(0, Relaxed), 1, "two are known");
        let (seed, own) = event(5);
        let alone = execute::execute(executable, &variables, None, seed, &own).await;
        assert_eq!(alone, three[3]);
        assert_eq!(oracle.requests.load(Relaxed), 0);
    });
    drop(sharing);
    assert_eq!(room.used(), 0);
}

#[test]
fn a_late_subgraph_is_late_for_each_event() {
    struct Never;
    impl Subgraph for Never {
        fn fetch<'a>(
            &'a self,
            _: SubgraphRequest<'a>,
        ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
            Box::pin(std::future::pending())
        }
    }
    let never = || Arc::new(Never) as Arc<dyn Subgraph>;
    let names = ["events", "one", "two"].map(str::to_owned);
    let generation = generation(&names, vec![never(), never(), never()], Oracle::new(1, 0));
    let executable = &plans()[2];
    let mut seeds = events([1, 2]);
    seeds.push(Seed::BadEvent("is none".into()));
    let batch = seeds.into_iter().map(|seed| (seed, context(&generation, None)));
    let payloads = play(execute::execute_batch(executable, &Variables::default(), batch.collect()));
    let late = r#"{"data":{"tick":null},"errors":[{"message":"Subgraph \"one\" did not respond before the request's time was up.","path":["tick"],"extensions":{"code":"TIMEOUT","serviceName":"one"}}]}"#;
    let none = r#"{"data":{"tick":null},"errors":[{"message":"The event is none.","path":["tick"],"extensions":{"code":"INVALID_EVENT"}}]}"#;
    assert_eq!(texts(&payloads), [late, late, none]);
}
