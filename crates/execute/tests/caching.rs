//! Caching of entities: no value crosses between clients that the subgraph tells apart, and nothing is served after its
//! invalidation or after its time to live.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

mod kit;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use astjson::Document;
use bytes::Bytes;
use cache::{
    EntityKey, IgnoredHeaders, Invalidation, KeyHeaders, KeySecret, Partition, Store,
    StoreSettings, TagHasher, Timestamp, TtlSettings,
};
use execute::{
    EventRequest, Executable, FetchCaching, FetchError, FetchesInFlight, ForwardedHeaders,
    Generation, GraphqlError, LocalFuture, LookupTrace, PartCaching, Publisher, RequestCaching,
    RequestContext, Seed, Subgraph, SubgraphCache, SubgraphCaches, SubgraphRequest,
    SubgraphResponse, Trace,
};
use graph::SubgraphId;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue, VARY};
use http::{HeaderMap, StatusCode};
use kit::{notation, subgraphs};
use plan::{Fetch, FetchKind, OperationKind, Plan, SubgraphOperation, Variables};
use proptest::prelude::*;

/// The time to live of every response.
const TTL: u64 = 10_000;

/// The number of entities.
const ITEMS: u64 = 6;

const USER: HeaderName = HeaderName::from_static("x-user");
const LANGUAGE: HeaderName = HeaderName::from_static("x-language");

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

fn is_private(id: u64) -> bool {
    id.is_multiple_of(3)
}

fn depends_on_language(id: u64) -> bool {
    id.is_multiple_of(2)
}

/// What the subgraph says about an entity to a client.
fn value_of(id: u64, user: &str, language: &str, version: u64) -> String {
    let user = if is_private(id) { user } else { "all" };
    let language = if depends_on_language(id) { language } else { "all" };
    format!("{id} for {user} in {language}, version {version}")
}

/// The subgraph that knows the values.
#[derive(Default)]
struct Values {
    versions: Mutex<HashMap<u64, u64>>,
    /// The ids of all requests.
    requests: Mutex<Vec<Vec<u64>>>,
}

impl Values {
    fn version(&self, id: u64) -> u64 {
        self.versions.lock().unwrap().get(&id).copied().unwrap_or_default()
    }
}

impl Subgraph for Values {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        let header = |name: &HeaderName| {
            let found = request.headers.iter().find(|(it, _)| it == name);
            found.map_or(String::new(), |(_, value)| value.to_str().unwrap().to_owned())
        };
        let (user, language) = (header(&USER), header(&LANGUAGE));
        let ids = ids_of(&request.body);
        let entities: Vec<String> = ids
            .iter()
            .map(|&id| {
                format!(r#"{{"value":"{}"}}"#, value_of(id, &user, &language, self.version(id)))
            })
            .collect();
        let body = format!(r#"{{"data":{{"_entities":[{}]}}}}"#, entities.join(","));
        let mut headers = HeaderMap::new();
        let scope = if ids.iter().any(|id| is_private(*id)) { "private" } else { "public" };
        let cache_control = format!("{scope}, max-age={}", TTL / 1000);
        headers.insert(CACHE_CONTROL, HeaderValue::try_from(cache_control).unwrap());
        if ids.iter().any(|id| depends_on_language(*id)) {
            headers.insert(VARY, HeaderValue::from_static("x-language"));
        }
        self.requests.lock().unwrap().push(ids);
        Box::pin(async move {
            tokio::task::yield_now().await;
            let status = StatusCode::OK;
            Ok(SubgraphResponse { status, headers, body: body.into(), policy: None })
        })
    }
}

/// The ids of the representations of a request.
fn ids_of(body: &Bytes) -> Vec<u64> {
    let mut document = Document::new();
    let root = document.parse(body.clone()).unwrap();
    let path = ["variables", "r"].map(astjson::PathSegment::Key);
    let list = document.get_path(root, &path).unwrap();
    let id = |node| document.raw(document.get(node, "id").unwrap()).parse().unwrap();
    document.elements(list).map(id).collect()
}

/// The subgraph that lists the entities that a test asks for.
#[derive(Default)]
struct Lists(Mutex<Vec<u64>>);

impl Subgraph for Lists {
    fn fetch<'a>(
        &'a self,
        _: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        let ids = self.0.lock().unwrap();
        let items: Vec<String> =
            ids.iter().map(|id| format!(r#"{{"__typename":"Item","id":{id}}}"#)).collect();
        let body = format!(r#"{{"data":{{"items":[{}]}}}}"#, items.join(","));
        let (status, headers) = (StatusCode::OK, HeaderMap::new());
        let response = SubgraphResponse { status, headers, body: body.into(), policy: None };
        Box::pin(async { Ok(response) })
    }
}

struct NoPublisher;

impl Publisher for NoPublisher {
    fn publish<'a>(&'a self, _: EventRequest<'a>) -> LocalFuture<'a, Result<bool, GraphqlError>> {
        unreachable!("no operation publishes")
    }

    fn request<'a>(&'a self, _: EventRequest<'a>) -> LocalFuture<'a, Result<Bytes, GraphqlError>> {
        unreachable!("no operation sends requests over a broker")
    }
}

struct World {
    values: Arc<Values>,
    lists: Arc<Lists>,
    generation: Arc<Generation>,
    executable: Executable,
    tags: TagHasher,
    store: Arc<Store>,
}

impl World {
    fn new() -> Self {
        NOW.set(1_000_000);
        let (values, lists) = (Arc::<Values>::default(), Arc::<Lists>::default());
        let secret = KeySecret::from_bytes([1; 16]);
        let tags = TagHasher::new(&secret);
        let store = Arc::new(Store::new(&StoreSettings::default(), Arc::default()));
        let names = ["lists".to_owned(), "values".to_owned()];
        let all: Vec<Arc<dyn Subgraph>> =
            vec![Arc::clone(&lists) as Arc<dyn Subgraph>, Arc::clone(&values) as Arc<dyn Subgraph>];
        let generation = subgraphs::generation(&names, all, Arc::new(NoPublisher));
        let mut generation = Arc::into_inner(generation).expect("the only reference");
        let cache = SubgraphCache {
            name: "values".into(),
            settings: TtlSettings::default(),
            ttl_header: None,
            key_headers: KeyHeaders::new(IgnoredHeaders::All),
            type_tags: Default::default(),
            stats: Arc::default(),
        };
        generation.caches = Some(Arc::new(SubgraphCaches {
            store: Arc::clone(&store),
            secret,
            tags: tags.clone(),
            in_flight: Arc::<FetchesInFlight>::default(),
            invalidate_header: None,
            invalidation_stats: Arc::default(),
            subgraphs: vec![None, Some(cache)],
            clock: || Timestamp(NOW.get()),
        }));
        let generation = Arc::new(generation);
        Self { values, lists, generation, executable: executable(), tags, store }
    }

    /// Executes the operation for a client, and returns the values by id.
    async fn ask(&self, client: Client, ids: &[u64]) -> HashMap<u64, String> {
        self.ask_traced(client, ids, None).await
    }

    /// Does the same with a trace.
    async fn ask_traced(
        &self,
        client: Client,
        ids: &[u64],
        trace: Option<Arc<Trace>>,
    ) -> HashMap<u64, String> {
        *self.lists.0.lock().unwrap() = ids.to_vec();
        let header = |name, value: String| (name, HeaderValue::try_from(value).unwrap());
        let all = vec![header(LANGUAGE, client.language()), header(USER, client.user())];
        let partition = Partition::of_values([("user", Some(client.user().as_bytes()))]);
        let context = RequestContext {
            uploads: None,
            caching: Some(RequestCaching { partition }),
            claims: None,
            generation: Arc::clone(&self.generation),
            headers: Arc::new(ForwardedHeaders { all, by_subgraph: Vec::new() }),
            deadline: Instant::now() + Duration::from_secs(30),
            sharing: None,
            trace,
        };
        let variables = Variables::default();
        let payload =
            execute::execute(&self.executable, &variables, None, Seed::Nothing, &context).await;
        assert_eq!(payload.errors, 0, "{:?}", payload.bytes);
        let mut document = Document::new();
        let root = document.parse(payload.bytes).unwrap();
        let items = document.get_path(root, &["data", "items"].map(astjson::PathSegment::Key));
        document
            .elements(items.unwrap())
            .map(|item| {
                let member = |name| document.get(item, name).unwrap();
                let id = document.raw(member("id")).parse().unwrap();
                (id, document.as_str(member("value")).unwrap().into_owned())
            })
            .collect()
    }

    fn invalidate(&self, id: u64) {
        let key = EntityKey::from_json(&format!(r#"{{"id":{id}}}"#)).unwrap();
        let invalidation = Invalidation::Entity { type_name: "Item".into(), key };
        self.store.invalidate(&[invalidation], &self.tags);
    }
}

/// The query `{ items { id value } }`: a list of one subgraph, values of the other.
fn executable() -> Executable {
    let operation = |text: &str| SubgraphOperation {
        text: text.into(),
        kind: OperationKind::Query,
        name: None,
        variables: Vec::new(),
    };
    let fetch = |subgraph, kind, depends_on: &[u32]| Fetch {
        subgraph: SubgraphId(subgraph),
        kind,
        depends_on: depends_on.iter().map(|id| plan::FetchId(*id)).collect(),
        any_of: Vec::new(),
        representations_max: 1_000,
    };
    let list = operation("{items{__typename id}}");
    let root = FetchKind::Root { operation: list, data_keys: vec!["items".into()] };
    let values = operation("query($r:[_Any!]!){_entities(representations:$r){...on Item{value}}}");
    let batch = notation::batch("_entities r at items as Item id!");
    let entities = FetchKind::Entities { operation: values, batches: vec![batch] };
    let plan = Plan {
        kind: OperationKind::Query,
        fetches: vec![fetch(0, root, &[]), fetch(1, entities, &[0])],
        subscription: None,
        shape: notation::shape("Query { items: [Item!]! { id: Int! value: String } }"),
    };
    let caching = vec![None, Some(FetchCaching::new(vec![PartCaching::default()]))];
    Executable::new(Arc::new(plan)).with_caching(caching)
}

/// A client: one of two users, one of two languages.
#[derive(Clone, Copy, Debug)]
struct Client {
    user: u8,
    language: u8,
}

impl Client {
    fn user(self) -> String {
        format!("user {}", self.user)
    }

    fn language(self) -> String {
        format!("language {}", self.language)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask(Client, Vec<u64>),
    /// A value changes and is invalidated.
    Change(u64),
    /// A value changes, and nothing says so.
    ChangeSilently(u64),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    let client = (0u8..2, 0u8..2).prop_map(|(user, language)| Client { user, language });
    let ids = proptest::sample::subsequence((0..ITEMS).collect::<Vec<_>>(), 0..=ITEMS as usize);
    prop_oneof![
        6 => (client, ids).prop_map(|(client, ids)| Step::Ask(client, ids)),
        1 => (0..ITEMS).prop_map(Step::Change),
        1 => (0..ITEMS).prop_map(Step::ChangeSilently),
        1 => (0..TTL).prop_map(Step::Wait),
    ]
}

fn run<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

proptest! {
    #[test]
    fn a_client_gets_what_the_subgraph_says_to_it(all in proptest::collection::vec(steps(), 1..60)) {
        let world = World::new();
        // The versions of each entity that may be served, with the time at which each was replaced.
        let history = Rc::<RefCell<HashMap<u64, Vec<(u64, u64)>>>>::default();
        run(async {
            for step in all {
                let change = |id: u64| {
                    let mut versions = world.values.versions.lock().unwrap();
                    let version = versions.entry(id).or_default();
                    history.borrow_mut().entry(id).or_default().push((*version, NOW.get()));
                    *version += 1;
                };
                match step {
                    Step::Wait(time) => NOW.set(NOW.get() + time),
                    Step::ChangeSilently(id) => change(id),
                    Step::Change(id) => {
                        change(id);
                        world.invalidate(id);
                        history.borrow_mut().remove(&id);
                    }
                    Step::Ask(client, ids) => {
                        let values = world.ask(client, &ids).await;
                        for id in ids {
                            let text = |version| value_of(id, &client.user(), &client.language(), version);
                            let mut allowed = vec![text(world.values.version(id))];
                            for (version, until) in history.borrow().get(&id).into_iter().flatten() {
                                // Fetched before it was replaced, and served within the time to live.
                                if NOW.get() < until + TTL {
                                    allowed.push(text(*version));
                                }
                            }
                            let got = &values[&id];
                            assert!(allowed.contains(got), "{got} is not one of {allowed:?}");
                        }
                    }
                }
            }
        });
    }
}

#[test]
fn only_what_is_not_stored_is_requested() {
    let world = World::new();
    let client = |user, language| Client { user, language };
    run(async {
        for (client, ids) in [
            (client(0, 0), &[1, 5][..]),
            // Other users and languages share entities that do not depend on them.
            (client(1, 1), &[1, 5]),
            // The first response that names a header in `vary` is not stored under a key without it.
            (client(0, 0), &[2]),
            (client(0, 0), &[1, 2]),
            (client(0, 0), &[1, 2]),
            (client(1, 0), &[2]),
            (client(0, 1), &[2]),
            (client(0, 0), &[0]),
            (client(0, 0), &[0]),
            (client(1, 0), &[0]),
        ] {
            world.ask(client, ids).await;
        }
    });
    let requests = world.values.requests.lock().unwrap().clone();
    assert_eq!(
        requests,
        [vec![1, 5], vec![2], vec![1, 2], vec![2], vec![0], vec![0]],
        "after a response with `vary`, keys have the language"
    );
}

#[test]
fn a_trace_says_what_came_from_memory_and_how_old_it_was() {
    let world = World::new();
    let client = Client { user: 0, language: 0 };
    let seen = |ids: &'static [u64]| {
        let world = &world;
        async move {
            let trace = Arc::new(Trace::new());
            world.ask_traced(client, ids, Some(Arc::clone(&trace))).await;
            let [lookups] = <[LookupTrace; 1]>::try_from(trace.lookups()).unwrap();
            lookups
        }
    };
    let expected = |fresh, sent, oldest| LookupTrace {
        fetch: 1,
        is_entities: true,
        fresh,
        sent,
        oldest,
        ..LookupTrace::default()
    };
    run(async {
        assert_eq!(seen(&[1]).await, expected(0, 1, None));
        NOW.set(NOW.get() + 300);
        assert_eq!(seen(&[1, 5]).await, expected(1, 1, Some(Duration::from_millis(300))));
        NOW.set(NOW.get() + 200);
        assert_eq!(seen(&[1, 5]).await, expected(2, 0, Some(Duration::from_millis(500))));
        NOW.set(NOW.get() + TTL);
        assert_eq!(seen(&[1, 5]).await, expected(0, 2, None));
    });
}

#[test]
fn a_trace_counts_an_entity_once_that_another_operation_is_fetching() {
    let world = World::new();
    let client = Client { user: 0, language: 0 };
    let traces = [Arc::new(Trace::new()), Arc::new(Trace::new())];
    run(async {
        let ask = |trace: &Arc<Trace>| world.ask_traced(client, &[1, 5], Some(Arc::clone(trace)));
        tokio::join!(ask(&traces[0]), ask(&traces[1]));
    });
    let counts = traces.map(|trace| {
        trace.lookups().iter().map(|it| (it.fresh, it.awaited, it.sent)).collect::<Vec<_>>()
    });
    assert_eq!(counts, [[(0, 0, 2)], [(0, 2, 0)]]);
}
