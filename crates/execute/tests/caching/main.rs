//! Caching of entities and root fields: no value crosses between clients that the subgraph tells apart, nothing is
//! served after its invalidation or after its time to live, also if two routers share a store, and an error is about
//! its own entity or field only.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

#[path = "../kit/mod.rs"]
mod kit;
mod populate;
mod shared_store;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use astjson::Document;
use bytes::Bytes;
use cache::{
    Dependencies, EntityKey, IgnoredHeaders, Invalidation, Jitter, KeyHeaders, KeySecret,
    Partition, Store, StoreSettings, TagHasher, Timestamp, TtlSettings,
};
use execute::{
    EventRequest, Executable, FetchCaching, FetchError, FetchesInFlight, ForwardedHeaders,
    Generation, GraphqlError, KeyedSelection, LocalFuture, LookupTrace, PartCaching, Publisher,
    RequestCaching, RequestContext, RootField, RootRequest, RootSelection, Seed, SharedCache,
    Subgraph, SubgraphCache, SubgraphCaches, SubgraphRequest, SubgraphResponse, Trace,
};
use graph::SubgraphId;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue, VARY};
use http::{HeaderMap, StatusCode};
use kit::{notation, subgraphs};
use plan::{Fetch, FetchKind, OperationKind, Plan, SubgraphOperation, VariableId, Variables};
use proptest::prelude::*;
use shared_store::{SharedMemory, SharingRouter};

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

/// The value of an entity that the subgraph sends to a client.
fn value_of(id: u64, user: &str, language: &str, version: u64) -> String {
    let user = if is_private(id) { user } else { "all" };
    let language = if depends_on_language(id) { language } else { "all" };
    format!("{id} for {user} in {language}, version {version}")
}

/// The subgraph that knows the values: as fields of entities, and as root fields with an argument.
#[derive(Default)]
struct Values {
    versions: Mutex<HashMap<u64, u64>>,
    /// The ids with an error in place of a value.
    broken: Mutex<HashSet<u64>>,
    /// The ids of all requests.
    requests: Mutex<Vec<Vec<u64>>>,
    /// True if responses must not be stored.
    forbids_storing: Mutex<bool>,
    /// Called while the next mutation is executed.
    during_mutation: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Values {
    fn version(&self, id: u64) -> u64 {
        self.versions.lock().unwrap().get(&id).copied().unwrap_or_default()
    }

    /// The headers of a response about these ids.
    fn headers_for(&self, ids: &[u64]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let scope = if ids.iter().any(|id| is_private(*id)) { "private" } else { "public" };
        let cache_control = match *self.forbids_storing.lock().unwrap() {
            true => "no-store".to_owned(),
            false => format!("{scope}, max-age={}", TTL / 1000),
        };
        headers.insert(CACHE_CONTROL, HeaderValue::try_from(cache_control).unwrap());
        if ids.iter().any(|id| depends_on_language(*id)) {
            headers.insert(VARY, HeaderValue::from_static("x-language"));
        }
        headers
    }
}

impl Subgraph for Values {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        let header = |name: &HeaderName| {
            let found = request.headers.forwarded.iter().find(|(it, _)| it == name);
            found.map_or(String::new(), |(_, value)| value.to_str().unwrap().to_owned())
        };
        let (user, language) = (header(&USER), header(&LANGUAGE));
        if request.is_mutation {
            return Box::pin(self.mutate(populate::id_of(&request.body), user, language));
        }
        let (ids, keys) = ids_of(&request.body);
        let broken = self.broken.lock().unwrap().clone();
        let text = |id: &u64| value_of(*id, &user, &language, self.version(*id));
        let values: Vec<String> = ids
            .iter()
            .map(|id| match (broken.contains(id), keys.is_empty()) {
                (true, _) => "null".to_owned(),
                (false, true) => format!(r#"{{"value":"{}"}}"#, text(id)),
                (false, false) => format!("{:?}", text(id)),
            })
            .collect();
        let errors = ids.iter().enumerate().filter(|(_, id)| broken.contains(id));
        let path = |index: usize| match keys.get(index) {
            Some(key) => format!("[{key:?}]"),
            None => format!(r#"["_entities",{index},"value"]"#),
        };
        let errors: Vec<String> = errors
            .map(|(index, _)| format!(r#"{{"message":"broken","path":{}}}"#, path(index)))
            .collect();
        let data = match keys.is_empty() {
            true => format!(r#""_entities":[{}]"#, values.join(",")),
            false => {
                let members = keys.iter().zip(&values);
                let members: Vec<String> =
                    members.map(|(key, value)| format!("{key:?}:{value}")).collect();
                members.join(",")
            }
        };
        let errors = errors.join(",");
        let tags = if keys.is_empty() { "" } else { "\"roots\"" };
        let body = format!(
            r#"{{"data":{{{data}}},"errors":[{errors}],"extensions":{{"apolloCacheTags":[{tags}]}}}}"#
        );
        let headers = self.headers_for(&ids);
        self.requests.lock().unwrap().push(ids);
        Box::pin(async move {
            tokio::task::yield_now().await;
            let status = StatusCode::OK;
            Ok(SubgraphResponse { status, headers, body: body.into(), policy: None })
        })
    }
}

/// The ids of the representations or of the root fields of a request, and the response keys of root fields.
fn ids_of(body: &Bytes) -> (Vec<u64>, Vec<String>) {
    let mut document = Document::new();
    let root = document.parse(body.clone()).unwrap();
    let query = document.as_str(document.get(root, "query").unwrap()).unwrap().into_owned();
    let variables = document.get(root, "variables").unwrap();
    if let Some(list) = document.get(variables, "r") {
        let id = |node| document.raw(document.get(node, "id").unwrap()).parse().unwrap();
        return (document.elements(list).map(id).collect(), Vec::new());
    }
    let fields = query.split_once('{').unwrap().1.trim_end_matches('}').split(' ');
    let read = |field: &str| {
        let (key, rest) = field.split_once(":value(id:$").unwrap();
        let id = document.get(variables, rest.trim_end_matches(')')).unwrap();
        (document.raw(id).parse::<u64>().unwrap(), key.to_owned())
    };
    fields.map(read).unzip()
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
    shared: Option<Arc<SharingRouter>>,
}

/// Returns the values of entities by id; null for those with an error.
fn values_of(bytes: &Bytes) -> HashMap<u64, Option<String>> {
    let mut document = Document::new();
    let root = document.parse(bytes.clone()).unwrap();
    let items = document.get_path(root, &["data", "items"].map(astjson::PathSegment::Key));
    document
        .elements(items.unwrap())
        .map(|item| {
            let member = |name| document.get(item, name).unwrap();
            let id = document.raw(member("id")).parse().unwrap();
            (id, document.as_str(member("value")).map(std::borrow::Cow::into_owned))
        })
        .collect()
}

impl World {
    fn new() -> Self {
        Self::with_settings(TtlSettings::default())
    }

    fn with_settings(settings: TtlSettings) -> Self {
        NOW.set(1_000_000);
        Self::with(Arc::default(), None, settings)
    }

    /// Creates routers that share a store and the subgraph.
    fn sharing(count: usize) -> Vec<Self> {
        NOW.set(1_000_000);
        let (values, memory) = (Arc::<Values>::default(), Arc::<SharedMemory>::default());
        let router = || Self::with(Arc::clone(&values), Some(&memory), TtlSettings::default());
        std::iter::repeat_with(router).take(count).collect()
    }

    fn with(
        values: Arc<Values>,
        memory: Option<&Arc<SharedMemory>>,
        settings: TtlSettings,
    ) -> Self {
        let lists = Arc::<Lists>::default();
        // The secret of keys is one of the process.
        let secret = KeySecret::from_bytes([fastrand::u8(..); 16]);
        let tags = TagHasher::new(&KeySecret::of_namespace("test"));
        let store = Arc::new(Store::new(&StoreSettings::default(), Arc::default()));
        let shared = memory.map(|memory| Arc::new(SharingRouter::new(memory, &store)));
        let names = ["lists".to_owned(), "values".to_owned()];
        let all: Vec<Arc<dyn Subgraph>> =
            vec![Arc::clone(&lists) as Arc<dyn Subgraph>, Arc::clone(&values) as Arc<dyn Subgraph>];
        let generation = subgraphs::generation(&names, all, Arc::new(NoPublisher));
        let mut generation = Arc::into_inner(generation).expect("the only reference");
        let cache = SubgraphCache {
            name: "values".into(),
            settings: TtlSettings { jitter: Jitter::from_permille(0), ..settings },
            ttl_header: None,
            key_headers: KeyHeaders::new(IgnoredHeaders::All),
            type_tags: Default::default(),
            stats: Arc::default(),
        };
        generation.caches = Some(Arc::new(SubgraphCaches {
            store,
            secret,
            tags,
            shared: shared.clone().map(|it| it as Arc<dyn SharedCache>),
            in_flight: Arc::<FetchesInFlight>::default(),
            invalidate_header: None,
            invalidation_stats: Arc::default(),
            subgraphs: vec![None, Some(cache)],
            clock: || Timestamp(NOW.get()),
        }));
        let generation = Arc::new(generation);
        Self { values, lists, generation, executable: executable(), shared }
    }

    /// Does what [`World::ask`] does with a trace.
    async fn ask_traced(
        &self,
        client: Client,
        ids: &[u64],
        trace: Arc<Trace>,
    ) -> HashMap<u64, Option<String>> {
        *self.lists.0.lock().unwrap() = ids.to_vec();
        let context = RequestContext { trace: Some(trace), ..self.context(client, false) };
        let bytes = self.execute(context, &self.executable, &Variables::default()).await;
        values_of(&bytes)
    }

    fn context(&self, client: Client, is_live: bool) -> RequestContext {
        let header = |name, value: String| (name, HeaderValue::try_from(value).unwrap());
        let all = vec![header(LANGUAGE, client.language()), header(USER, client.user())];
        let partition = Partition::of_values([("user", Some(client.user().as_bytes()))]);
        RequestContext {
            uploads: None,
            caching: Some(RequestCaching { partition, is_live, renew_within: None }),
            claims: None,
            generation: Arc::clone(&self.generation),
            headers: Arc::new(ForwardedHeaders { all, ..ForwardedHeaders::default() }),
            deadline: Instant::now() + Duration::from_secs(30),
            sharing: None,
            trace: None,
        }
    }

    /// Executes the operation as a live query, and returns what makes its result stale.
    async fn watch(&self, ids: &[u64]) -> Dependencies {
        *self.lists.0.lock().unwrap() = ids.to_vec();
        let context = self.context(Client { user: 0, language: 0 }, true);
        let variables = Variables::default();
        let (payload, dependencies) =
            execute::execute_live(&self.executable, &variables, None, &context).await;
        assert_eq!(payload.errors, 0, "{:?}", payload.bytes);
        dependencies
    }

    fn requests(&self) -> usize {
        self.values.requests.lock().unwrap().len()
    }

    /// Executes an operation.
    async fn execute(
        &self,
        context: RequestContext,
        executable: &Executable,
        variables: &Variables,
    ) -> Bytes {
        let payload = execute::execute(executable, variables, None, Seed::Nothing, &context).await;
        let is_kept = payload.caching.is_some();
        assert!(payload.errors == 0 || !is_kept, "clients must not keep a response with errors");
        payload.bytes
    }

    /// Asks for entities, and returns their values by id; null for those with an error.
    async fn ask(&self, client: Client, ids: &[u64]) -> HashMap<u64, Option<String>> {
        self.ask_renewing(client, ids, None).await
    }

    /// Asks for entities as a refresh does: what is fresh for no longer than `renew_within` is fetched again.
    async fn ask_renewing(
        &self,
        client: Client,
        ids: &[u64],
        renew_within: Option<Duration>,
    ) -> HashMap<u64, Option<String>> {
        *self.lists.0.lock().unwrap() = ids.to_vec();
        let mut context = self.context(client, false);
        if let Some(caching) = &mut context.caching {
            caching.renew_within = renew_within;
        }
        let bytes = self.execute(context, &self.executable, &Variables::default()).await;
        values_of(&bytes)
    }

    /// Asks for root fields under other response keys for each client, and returns their values by id.
    async fn ask_roots(&self, client: Client, ids: &[u64]) -> HashMap<u64, Option<String>> {
        let prefix = if client.user == 0 { "a" } else { "b" };
        let values = ids.iter().map(|id| Some(id.to_string().into()));
        let variables = Variables { values: values.collect() };
        let executable = root_executable(prefix, ids.len());
        let bytes = self.execute(self.context(client, false), &executable, &variables).await;
        let mut document = Document::new();
        let root = document.parse(bytes).unwrap();
        let data = document.get(root, "data").unwrap();
        let value = |number: usize| {
            let value = document.get(data, &format!("{prefix}{number}")).unwrap();
            document.as_str(value).map(std::borrow::Cow::into_owned)
        };
        ids.iter().enumerate().map(|(number, id)| (*id, value(number))).collect()
    }

    /// Makes an entity stale, and all root fields with it.
    fn invalidate(&self, id: u64) {
        let key = EntityKey::from_json(&format!(r#"{{"id":{id}}}"#)).unwrap();
        let entity = Invalidation::Entity { type_name: "Item".into(), key };
        let roots = Invalidation::Tag("roots".into());
        self.generation.caches.as_ref().unwrap().invalidate(&[entity, roots]);
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

/// A query for `count` root fields `value(id:)`, each with a response key and a variable of its own.
fn root_executable(prefix: &str, count: usize) -> Executable {
    let ids = 0..count as u16;
    let name = |id: u16| format!("{prefix}{id}");
    let text = |id: u16| format!("{}:value(id:${})", name(id), name(id));
    let declaration = |id: u16| format!("${}:Int", name(id));
    let joined = |part: &dyn Fn(u16) -> String, separator: &str| {
        ids.clone().map(part).collect::<Vec<_>>().join(separator)
    };
    let text_of_all = format!("query({}){{{}}}", joined(&declaration, ","), joined(&text, " "));
    let operation = SubgraphOperation {
        text: text_of_all.into(),
        kind: OperationKind::Query,
        name: None,
        variables: ids.clone().map(|id| (name(id).into(), VariableId(id))).collect(),
    };
    let fields = ids.clone().map(|id| RootField {
        data_key: name(id).into(),
        selections: vec![RootSelection {
            text: text(id).into(),
            variables: vec![VariableId(id)],
            conditions: Vec::new(),
            key_text: "value(id:$0)".into(),
        }],
    });
    let variables = ids.clone().map(|id| (name(id).into(), VariableId(id), declaration(id).into()));
    let request = RootRequest::new(None, variables.collect(), fields.collect());
    let parts = ids.clone().map(|id| PartCaching {
        selection: KeyedSelection {
            text: "value(id:$0)".into(),
            variables: vec![VariableId(id)],
            reads_context: false,
        },
        ..PartCaching::default()
    });
    let shape = joined(&|id| format!("{}: String", name(id)), " ");
    let fetch = Fetch {
        subgraph: SubgraphId(1),
        kind: FetchKind::Root {
            operation,
            data_keys: ids.clone().map(|id| name(id).into()).collect(),
        },
        depends_on: Vec::new(),
        any_of: Vec::new(),
        representations_max: 1_000,
    };
    let plan = Plan {
        kind: OperationKind::Query,
        fetches: vec![fetch],
        subscription: None,
        shape: notation::shape(&format!("Query {{ {shape} }}")),
    };
    let caching = FetchCaching::of_root(request, parts.collect());
    Executable::new(Arc::new(plan)).with_caching(vec![Some(caching)])
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
    AskRoots(Client, Vec<u64>),
    /// The subgraph reports an error for a value, or no longer.
    Break(u64),
    Repair(u64),
    /// A value changes and is invalidated.
    Change(u64),
    /// A value changes, and nothing says so.
    ChangeSilently(u64),
    /// A mutation of a client changes a value and returns the entity.
    Mutate(Client, u64),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    let client = (0u8..2, 0u8..2).prop_map(|(user, language)| Client { user, language });
    let ids = proptest::sample::subsequence((0..ITEMS).collect::<Vec<_>>(), 0..=ITEMS as usize);
    let some = proptest::sample::subsequence((0..ITEMS).collect::<Vec<_>>(), 1..=ITEMS as usize);
    prop_oneof![
        6 => (client.clone(), ids).prop_map(|(client, ids)| Step::Ask(client, ids)),
        6 => (client.clone(), some).prop_map(|(client, ids)| Step::AskRoots(client, ids)),
        2 => (client, 0..ITEMS).prop_map(|(client, id)| Step::Mutate(client, id)),
        1 => (0..ITEMS).prop_map(Step::Break),
        2 => (0..ITEMS).prop_map(Step::Repair),
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
                    Step::Mutate(client, id) => {
                        world.mutate(client, id).await;
                        history.borrow_mut().remove(&id);
                    }
                    Step::Break(id) => drop(world.values.broken.lock().unwrap().insert(id)),
                    Step::Repair(id) => drop(world.values.broken.lock().unwrap().remove(&id)),
                    Step::Ask(client, ref ids) | Step::AskRoots(client, ref ids) => {
                        let values = match step {
                            Step::Ask(..) => world.ask(client, ids).await,
                            _ => world.ask_roots(client, ids).await,
                        };
                        let broken = world.values.broken.lock().unwrap().clone();
                        for id in ids {
                            let text = |version| value_of(*id, &client.user(), &client.language(), version);
                            let mut allowed = Vec::new();
                            match broken.contains(id) {
                                true => allowed.push(None),
                                false => allowed.push(Some(text(world.values.version(*id)))),
                            }
                            // What was fetched before the error may be served instead of it.
                            if broken.contains(id) {
                                allowed.push(Some(text(world.values.version(*id))));
                            }
                            for (version, until) in history.borrow().get(id).into_iter().flatten() {
                                // Fetched before it was replaced, and served within the time to live.
                                if NOW.get() < until + TTL {
                                    allowed.push(Some(text(*version)));
                                }
                            }
                            let got = &values[id];
                            assert!(allowed.contains(got), "{got:?} is not one of {allowed:?}");
                        }
                    }
                }
            }
        });
    }
}

proptest! {
    /// After an invalidation is acknowledged, which means that all routers have followed the log, no router serves
    /// anything older. Before that, the router that sent it does not.
    #[test]
    fn no_router_serves_what_another_one_has_invalidated(
        all in proptest::collection::vec((0usize..2, any::<bool>(), steps()), 1..80)
    ) {
        let routers = World::sharing(2);
        let values = Arc::clone(&routers[0].values);
        // The time at which each version of each entity was replaced.
        let mut replaced: HashMap<u64, Vec<u64>> = HashMap::new();
        // The oldest version of each entity that each router may serve, and that all may serve when they have followed
        // the log.
        let mut oldest = [[0; ITEMS as usize]; 2];
        let mut announced = [0; ITEMS as usize];
        let change = |replaced: &mut HashMap<u64, Vec<u64>>, id: u64| {
            replaced.entry(id).or_default().push(NOW.get());
            *values.versions.lock().unwrap().entry(id).or_default() += 1;
        };
        run(async {
            for (router, is_acknowledged, step) in all {
                if is_acknowledged {
                    routers.iter().for_each(|it| it.shared.as_ref().unwrap().follow());
                    oldest = [announced; 2];
                }
                match step {
                    Step::Wait(time) => NOW.set(NOW.get() + time),
                    Step::ChangeSilently(id) => change(&mut replaced, id),
                    Step::Change(id) => {
                        change(&mut replaced, id);
                        routers[router].invalidate(id);
                        announced[id as usize] = values.version(id);
                        oldest[router][id as usize] = values.version(id);
                    }
                    Step::Mutate(client, id) => {
                        replaced.entry(id).or_default().push(NOW.get());
                        routers[router].mutate(client, id).await;
                        announced[id as usize] = values.version(id);
                        oldest[router][id as usize] = values.version(id);
                    }
                    Step::Break(id) => drop(values.broken.lock().unwrap().insert(id)),
                    Step::Repair(id) => drop(values.broken.lock().unwrap().remove(&id)),
                    Step::Ask(client, ref ids) | Step::AskRoots(client, ref ids) => {
                        let got = match step {
                            Step::Ask(..) => routers[router].ask(client, ids).await,
                            _ => routers[router].ask_roots(client, ids).await,
                        };
                        let broken = values.broken.lock().unwrap().clone();
                        for &id in ids {
                            let text = |version| {
                                Some(value_of(id, &client.user(), &client.language(), version))
                            };
                            let mut allowed = vec![text(values.version(id))];
                            if broken.contains(&id) {
                                allowed.push(None);
                            }
                            let times = (0u64..).zip(replaced.get(&id).into_iter().flatten());
                            for (version, until) in times {
                                // Fetched before it was replaced, and served within the time to live.
                                if version >= oldest[router][id as usize] && NOW.get() < until + TTL {
                                    allowed.push(text(version));
                                }
                            }
                            let value = &got[&id];
                            assert!(allowed.contains(value), "{value:?} is not one of {allowed:?}");
                        }
                    }
                }
            }
        });
    }
}

#[test]
fn what_one_router_has_fetched_is_not_requested_by_another() {
    let routers = World::sharing(2);
    let client = |user, language| Client { user, language };
    run(async {
        for (router, client, ids) in [
            (0, client(0, 0), &[1, 5][..]),
            (1, client(1, 1), &[1, 5]),
            (1, client(1, 1), &[1, 3]),
            (0, client(1, 0), &[3]),
            (0, client(0, 0), &[3]),
            (1, client(0, 1), &[3]),
        ] {
            routers[router].ask(client, ids).await;
        }
    });
    let requests = routers[0].values.requests.lock().unwrap().clone();
    assert_eq!(
        requests,
        // The second router has stored something private, and so looks for that.
        [vec![1, 5], vec![3], vec![3], vec![3]],
        "private entities are shared by routers and not by users"
    );
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
fn a_live_query_depends_on_its_entities_whether_they_are_stored_or_not() {
    for forbids_storing in [false, true] {
        let world = World::new();
        *world.values.forbids_storing.lock().unwrap() = forbids_storing;
        let dependencies = run(world.watch(&[1, 5]));
        let expires = (!forbids_storing).then(|| Duration::from_millis(TTL));
        assert_eq!(dependencies.fresh_for, expires);
        let caches = world.generation.caches.as_ref().unwrap();
        let table = caches.store.invalidations();
        let since = table.now();
        let is_valid = || {
            let tags = &dependencies.tags;
            table.is_valid(since, tags.iter(), tags.is_unbounded())
        };
        world.invalidate(3);
        assert!(is_valid(), "it does not select this one");
        world.invalidate(5);
        assert!(!is_valid());
    }
}

#[test]
fn a_live_query_uses_what_is_stored_but_nothing_that_has_expired() {
    let stale_for = Duration::from_secs(60);
    let world = World::with_settings(TtlSettings { stale_for, ..TtlSettings::default() });
    let client = Client { user: 1, language: 1 };
    run(async {
        world.ask(client, &[1]).await;
        NOW.set(NOW.get() + TTL / 2);
        let dependencies = world.watch(&[1]).await;
        assert_eq!(
            (world.requests(), dependencies.fresh_for),
            (1, Some(Duration::from_millis(TTL / 2)))
        );
        NOW.set(NOW.get() + TTL);
        let dependencies = world.watch(&[1]).await;
        assert_eq!(
            (world.requests(), dependencies.fresh_for),
            (2, Some(Duration::from_millis(TTL)))
        );
    });
}

#[test]
fn a_trace_says_what_came_from_memory_and_how_old_it_was() {
    let world = World::new();
    let client = Client { user: 0, language: 0 };
    let seen = |ids: &'static [u64]| {
        let world = &world;
        async move {
            let trace = Arc::new(Trace::new());
            world.ask_traced(client, ids, Arc::clone(&trace)).await;
            let [lookups] = <[LookupTrace; 1]>::try_from(trace.lookups()).unwrap();
            LookupTrace { at: Duration::ZERO, ..lookups }
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
fn a_refresh_fetches_what_would_end_with_the_old_response() {
    let world = World::new();
    let client = Client { user: 0, language: 0 };
    run(async {
        world.ask(client, &[1]).await;
        NOW.set(NOW.get() + TTL / 2);
        world.ask(client, &[5]).await;
        let left = Duration::from_millis(TTL / 2);
        world.ask_renewing(client, &[1, 5], Some(left)).await;
        world.ask_renewing(client, &[1, 5], Some(Duration::ZERO)).await;
        world.ask(client, &[1, 5]).await;
    });
    let requests = world.values.requests.lock().unwrap().clone();
    assert_eq!(requests, [vec![1], vec![5], vec![1]]);
}

#[test]
fn a_request_for_root_fields_has_only_those_that_are_not_stored() {
    let world = World::new();
    let client = |user| Client { user, language: 0 };
    run(async {
        for (client, ids) in [
            (client(0), &[1, 5][..]),
            // The other user has other response keys and variables.
            (client(1), &[5, 7]),
            (client(0), &[7, 1, 5]),
            (client(0), &[11, 7]),
            // A private field does not keep others from being shared.
            (client(0), &[3, 13]),
            (client(0), &[3, 13]),
            (client(1), &[3, 13]),
        ] {
            let values = world.ask_roots(client, ids).await;
            assert!(values.values().all(Option::is_some), "{values:?}");
        }
    });
    let requests = world.values.requests.lock().unwrap().clone();
    // The subgraph says `private` about the whole response that has a private field.
    assert_eq!(requests, [vec![1, 5], vec![7], vec![11], vec![3, 13], vec![3, 13]]);
}

#[test]
fn an_error_keeps_only_its_own_entity_or_field_from_being_stored() {
    let world = World::new();
    let client = Client { user: 0, language: 0 };
    world.values.broken.lock().unwrap().insert(5);
    run(async {
        for _ in 0..2 {
            assert_eq!(world.ask(client, &[1, 5, 7]).await[&5], None);
        }
        for _ in 0..2 {
            assert_eq!(world.ask_roots(client, &[1, 5, 7]).await[&5], None);
        }
        world.values.broken.lock().unwrap().clear();
        for _ in 0..2 {
            assert!(world.ask(client, &[5, 7]).await[&5].is_some());
            assert!(world.ask_roots(client, &[5, 7]).await[&5].is_some());
        }
    });
    let requests = world.values.requests.lock().unwrap().clone();
    let (all, one) = (vec![1, 5, 7], vec![5]);
    assert_eq!(requests, [all.clone(), one.clone(), all, one.clone(), one.clone(), one]);
}

#[test]
fn a_trace_counts_an_entity_once_that_another_operation_is_fetching() {
    let world = World::new();
    let client = Client { user: 0, language: 0 };
    let traces = [Arc::new(Trace::new()), Arc::new(Trace::new())];
    run(async {
        let ask = |trace: &Arc<Trace>| world.ask_traced(client, &[1, 5], Arc::clone(trace));
        tokio::join!(ask(&traces[0]), ask(&traces[1]));
    });
    let counts = traces.map(|trace| {
        trace.lookups().iter().map(|it| (it.fresh, it.awaited, it.sent)).collect::<Vec<_>>()
    });
    assert_eq!(counts, [[(0, 0, 2)], [(0, 2, 0)]]);
}
