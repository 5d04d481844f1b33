//! A router with caches in front of the subgraphs, and its clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use astjson::Document;
use bytes::Bytes;
use cache::{
    Dependencies, EntityKey, IgnoredHeaders, Invalidation, Jitter, KeyHeaders, KeySecret,
    Partition, Store, StoreSettings, TagHasher, Timestamp, TtlSettings,
};
use execute::{
    Executable, FetchesInFlight, ForwardedHeaders, Generation, RequestCaching, RequestContext,
    ResponseMemory, Seed, SharedCache, Subgraph, SubgraphCache, SubgraphCaches, Trace,
};
use http::header::HeaderValue;
use plan::Variables;

use crate::kit::subgraphs;
use crate::operations::{executable, root_executable};
use crate::shared_store::{SharedMemory, SharingRouter};
use crate::values_subgraph::{LANGUAGE, Lists, NOW, NoPublisher, USER, Values};

/// A client: one of two users, one of two languages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) user: u8,
    pub(super) language: u8,
}

impl Client {
    pub(super) fn user(self) -> String {
        format!("user {}", self.user)
    }

    pub(super) fn language(self) -> String {
        format!("language {}", self.language)
    }
}

pub(super) struct World {
    pub(super) values: Arc<Values>,
    pub(super) lists: Arc<Lists>,
    pub(super) generation: Arc<Generation>,
    pub(super) executable: Executable,
    pub(super) shared: Option<Arc<SharingRouter>>,
}

/// Returns the values of entities by id; null for those with an error.
pub(super) fn values_of(bytes: &Bytes) -> HashMap<u64, Option<String>> {
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
    pub(super) fn new() -> Self {
        Self::with_settings(TtlSettings::default())
    }

    pub(super) fn with_settings(settings: TtlSettings) -> Self {
        NOW.set(1_000_000);
        Self::with(Arc::default(), None, settings)
    }

    /// Creates routers that share a store and the subgraph.
    pub(super) fn sharing(count: usize) -> Vec<Self> {
        NOW.set(1_000_000);
        let (values, memory) = (Arc::<Values>::default(), Arc::<SharedMemory>::default());
        let router = || Self::with(Arc::clone(&values), Some(&memory), TtlSettings::default());
        std::iter::repeat_with(router).take(count).collect()
    }

    pub(super) fn with(
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
            graph: None,
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
            memory: Arc::new(ResponseMemory::new(1 << 20)),
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
    pub(super) async fn ask_traced(
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

    pub(super) fn context(&self, client: Client, is_live: bool) -> RequestContext {
        let header = |name, value: String| (name, HeaderValue::try_from(value).unwrap());
        let all = vec![header(LANGUAGE, client.language()), header(USER, client.user())];
        let partition = Partition::of_values([("user", Some(client.user().as_bytes()))]);
        RequestContext {
            uploads: None,
            closed_subgraphs: None,
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
    pub(super) async fn watch(&self, ids: &[u64]) -> Dependencies {
        *self.lists.0.lock().unwrap() = ids.to_vec();
        let context = self.context(Client { user: 0, language: 0 }, true);
        let variables = Variables::default();
        let (payload, dependencies) =
            execute::execute_live(&self.executable, &variables, None, &context).await;
        assert_eq!(payload.errors, 0, "{:?}", payload.bytes);
        dependencies
    }

    pub(super) fn requests(&self) -> usize {
        self.values.requests.lock().unwrap().len()
    }

    /// Executes an operation.
    pub(super) async fn execute(
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
    pub(super) async fn ask(&self, client: Client, ids: &[u64]) -> HashMap<u64, Option<String>> {
        self.ask_renewing(client, ids, None).await
    }

    /// Asks for entities as a refresh does: what is fresh for no longer than `renew_within` is fetched again.
    pub(super) async fn ask_renewing(
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
    pub(super) async fn ask_roots(
        &self,
        client: Client,
        ids: &[u64],
    ) -> HashMap<u64, Option<String>> {
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
    pub(super) fn invalidate(&self, id: u64) {
        let key = EntityKey::from_json(&format!(r#"{{"id":{id}}}"#)).unwrap();
        let entity = Invalidation::Entity { type_name: "Item".into(), key };
        let roots = Invalidation::Tag("roots".into());
        self.generation.caches.as_ref().unwrap().invalidate(&[entity, roots]);
    }
}
