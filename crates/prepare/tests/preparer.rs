//! The public API of preparing: the cache, waiting, and the results.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::ClientKey;
use graph::RequirementSet;
use graph::Supergraph;
use plan::OperationKind;
use prepare::{LabelShare, OperationRequest, PrepareError, PrepareSettings, Preparer};

const SCHEMA: &str = include_str!("fixtures/schema.graphql");

fn preparer() -> Preparer {
    let graph = Supergraph::from_sdl(SCHEMA, "schema.graphql").expect("the fixtures use it");
    let graph = Arc::new(graph);
    Preparer::new(graph, 1, PrepareSettings::default())
}

fn request(query: &str) -> OperationRequest {
    OperationRequest { query: Bytes::copy_from_slice(query.as_bytes()), ..Default::default() }
}

/// Hits, misses, operations refused by a limit.
fn stats(preparer: &Preparer) -> (u64, u64, u64) {
    let stats = preparer.stats();
    (stats.hits.load(Relaxed), stats.misses.load(Relaxed), stats.limited.load(Relaxed))
}

#[tokio::test]
async fn the_same_text_is_prepared_once() {
    let preparer = preparer();
    let first = preparer.prepare(&request("{ me { id name } }")).await.unwrap();
    let again = preparer.prepare(&request("{ me { id name } }")).await.unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    assert_eq!(stats(&preparer), (1, 1, 0));
    assert_eq!(preparer.len(), 1);
    assert_eq!(first.kind, OperationKind::Query);
    let graph = Supergraph::from_sdl(SCHEMA, "schema.graphql").unwrap();
    let plan = first.plan.to_text(&graph);
    assert!(plan.contains("id") && plan.contains("name"), "{plan}");
}

#[tokio::test]
async fn another_operation_of_the_same_text_is_another_entry() {
    let preparer = preparer();
    let mut request = request("query A { me { id } } query B { me { name } }");
    for name in ["A", "B"] {
        request.operation_name = Some(name.into());
        let prepared = preparer.prepare(&request).await.unwrap();
        assert_eq!(prepared.name.as_deref(), Some(name));
    }
    request.operation_name = None;
    let error = preparer.prepare(&request).await.unwrap_err();
    assert!(matches!(error, PrepareError::UnknownOperation(_)), "{error}");
    assert_eq!(stats(&preparer), (0, 3, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_for_the_same_operation_wait_for_one_preparation() {
    let preparer = Arc::new(preparer());
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let preparer = Arc::clone(&preparer);
            tokio::spawn(async move {
                let query = format!("{{ me {{ {} }} }}", "id name ".repeat(200));
                preparer.prepare(&request(&query)).await.unwrap()
            })
        })
        .collect();
    let mut prepared = Vec::new();
    for task in tasks {
        prepared.push(task.await.unwrap());
    }
    assert!(prepared.iter().all(|it| Arc::ptr_eq(it, &prepared[0])));
    assert_eq!(stats(&preparer), (49, 1, 0));
}

#[tokio::test]
async fn failures_are_not_kept() {
    let preparer = preparer();
    for _ in 0..2 {
        let error = preparer.prepare(&request("{ nope }")).await.unwrap_err();
        assert!(matches!(error, PrepareError::Validation(_)), "{error}");
    }
    let bomb = format!("{{ me {{ {} }} }}", "a: id ".repeat(101));
    let error = preparer.prepare(&request(&bomb)).await.unwrap_err();
    assert!(matches!(error, PrepareError::Limit { .. }), "{error}");
    assert_eq!(stats(&preparer), (0, 3, 1));
    assert!(preparer.is_empty());
}

#[test]
fn a_request_that_is_cancelled_does_not_affect_the_others() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().max_blocking_threads(1).build().unwrap().block_on(async {
        // No operation is prepared while the only thread for it is busy.
        let (let_go, busy) = std::sync::mpsc::channel::<()>();
        let thread = tokio::task::spawn_blocking(move || busy.recv());
        let preparer = preparer();
        let wanted = request("{ me { id } }");
        let mut abandoned = Box::pin(preparer.prepare(&wanted));
        // Polled once, it is the request that prepares; then it is dropped.
        assert!(futures_poll(&mut abandoned).is_none());
        let other = preparer.prepare(&wanted);
        tokio::pin!(other);
        assert!(futures_poll(&mut other.as_mut()).is_none());
        drop(abandoned);
        let_go.send(()).unwrap();
        thread.await.unwrap().unwrap();
        other.await.unwrap();
        assert_eq!(preparer.len(), 1);
    });
}

/// Polls once.
fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(future).poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn the_cache_is_bounded_by_the_weight_of_its_entries() {
    let preparer = preparer();
    // Introspection keeps the syntax tree: more than 1 MB each by estimate, so that 128 MiB hold a hundred.
    let comment = "x".repeat(40_000);
    for index in 0..200 {
        let query = format!("query Q{index} {{ __schema {{ queryType {{ name }} }} }} # {comment}");
        preparer.prepare(&request(&query)).await.unwrap();
    }
    let kept = preparer.len();
    assert!((50..=110).contains(&kept), "{kept}");
}

#[tokio::test]
async fn a_prepared_operation_coerces_and_introspects() {
    let preparer = preparer();
    let query = "query($n: String = \"Kind\") { me { id } __type(name: $n) { name } }";
    let prepared = preparer.prepare(&request(query)).await.unwrap();
    for (variables, expected) in [
        ("", r#"{"__type":{"name":"Kind"}}"#),
        (r#"{"n": "User"}"#, r#"{"__type":{"name":"User"}}"#),
        (r#"{"n": "join__Graph"}"#, r#"{"__type":null}"#),
    ] {
        let values = prepared.coerce(&Bytes::from(variables)).unwrap();
        assert_eq!(prepared.introspect(&values).unwrap().unwrap(), expected);
    }
    let error = prepared.coerce(&Bytes::from(r#"{"n": null}"#)).unwrap_err();
    assert!(matches!(error, PrepareError::Variables(_)), "{error}");
}

#[tokio::test]
async fn the_benchmark_operation_is_prepared() {
    let sdl = include_str!("../../../fixtures/federation-benchmark/supergraph.graphql");
    let operation = include_str!("../../../fixtures/federation-benchmark/operation.graphql");
    let graph = Arc::new(Supergraph::from_sdl(sdl, "supergraph.graphql").unwrap());
    let preparer = Preparer::new(graph, 1, PrepareSettings::default());
    let prepared = preparer.prepare(&request(operation)).await.unwrap();
    assert_eq!(prepared.name.as_deref(), Some("TestQuery"));
    assert!(prepared.introspect(&prepared.coerce(&Bytes::new()).unwrap()).unwrap().is_none());
}

/// The operation of `query` as the planner receives it, the values of its variables, and its plan.
async fn extracted(preparer: &Preparer, query: &str) -> (String, Vec<String>, Arc<plan::Plan>) {
    let prepared = preparer.prepare(&request(query)).await.expect("a valid operation");
    let variables = prepared.operation.variables.iter();
    let declared: Vec<_> = variables.map(|it| format!("${}: {}", it.name, it.ty)).collect();
    let values = prepared.coerce(&Bytes::new()).expect("no variables to give").values.into_iter();
    let values = values.map(|it| it.map_or("-".to_owned(), String::from)).collect();
    (declared.join(", "), values, Arc::clone(&prepared.plan))
}

#[tokio::test]
async fn texts_that_differ_in_literals_share_a_plan() {
    let preparer = preparer();
    let (declared, one, plan) = extracted(&preparer, "{ node(id: 1) { name } }").await;
    assert_eq!((&*declared, &one[..]), ("$_0: ID!", &["\"1\"".to_owned()][..]));
    let (_, two, other) = extracted(&preparer, "query { node(id: \"b\\\"\"), { name } }").await;
    assert_eq!(two, [r#""b\"""#]);
    assert!(Arc::ptr_eq(&plan, &other));
    assert_eq!(preparer.stats().plans_shared.load(Relaxed), 1);
    // Another selection has another plan, and so has another name.
    let (_, _, other) = extracted(&preparer, "{ node(id: 1) { id } }").await;
    assert!(!Arc::ptr_eq(&plan, &other));
}

#[tokio::test]
async fn operations_with_the_same_plan_and_other_literals_have_one_identity_and_other_values() {
    let preparer = preparer();
    let one = preparer.prepare(&request("{ node(id: 1) { name } }")).await.unwrap();
    let two = preparer.prepare(&request("{ node(id: 2) { name } }")).await.unwrap();
    assert_eq!(one.operation_id, two.operation_id);
    assert_ne!(one.coerce(&Bytes::new()).unwrap(), two.coerce(&Bytes::new()).unwrap());
}

#[tokio::test]
async fn every_kind_of_literal_becomes_a_variable_of_the_type_of_its_argument() {
    let preparer = preparer();
    let query = r#"{ echo(int: -1, float: 2, boolean: true, string: "s", kind: USER, grid: [[1], null], ids: "x") }"#;
    let (declared, values, _) = extracted(&preparer, query).await;
    assert_eq!(
        declared,
        "$_0: Int, $_1: Float, $_2: Boolean, $_3: String, $_4: Kind, $_5: [[Int]], $_6: [ID]"
    );
    assert_eq!(values, ["-1", "2", "true", "\"s\"", "\"USER\"", "[[1],null]", "[\"x\"]"]);
    let (declared, values, _) = extracted(&preparer, "{ echo(string: null, any: 7) }").await;
    assert_eq!((&*declared, values), ("$_0: String, $_1: Any", vec!["null".into(), "7".into()]));
}

#[tokio::test]
async fn equal_literals_of_a_type_are_one_variable() {
    let preparer = preparer();
    let (declared, values, same) =
        extracted(&preparer, "{ a: node(id: 1) { id } b: node(id: 1) { id } }").await;
    assert_eq!((&*declared, &values[..]), ("$_0: ID!", &["\"1\"".to_owned()][..]));
    let (declared, _, different) =
        extracted(&preparer, "{ a: node(id: 1) { id } b: node(id: 2) { id } }").await;
    assert_eq!(declared, "$_0: ID!, $_1: ID!");
    assert!(!Arc::ptr_eq(&same, &different));
}

#[tokio::test]
async fn the_clients_own_variables_stay_in_front_and_keep_their_names() {
    let preparer = preparer();
    let query = "query ($_0: ID!, $_1: Boolean! = true) { node(id: $_0) @include(if: $_1) { id } sum(really: 5) }";
    let prepared = preparer.prepare(&request(query)).await.unwrap();
    let names: Vec<_> = prepared.operation.variables.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["_0", "_1", "_2"]);
    let variables = prepared.coerce(&Bytes::from_static(br#"{"_0":"x","_2":9}"#)).unwrap();
    let values: Vec<_> = variables.values.iter().flatten().map(|it| &**it).collect();
    assert_eq!(values, ["\"x\"", "true", "5"]);
}

#[tokio::test]
async fn literals_in_conditions_and_in_subscriptions_stay() {
    let preparer = preparer();
    let (declared, ..) = extracted(&preparer, "{ me { id @include(if: true) name } }").await;
    assert_eq!(declared, "");
    let (declared, ..) = extracted(&preparer, "subscription { user(id: 1) { id } }").await;
    assert_eq!(declared, "");
    // A subgraph reads the literals of a custom scalar in its own way.
    let (declared, ..) = extracted(&preparer, "{ echo(any: {a: RED}) }").await;
    assert_eq!(declared, "");
}

#[tokio::test]
async fn invalid_literals_are_found_before_they_are_extracted() {
    let preparer = preparer();
    let error = preparer.prepare(&request("{ sum(really: \"x\") }")).await.unwrap_err();
    assert!(matches!(error, PrepareError::Validation(_)), "{error}");
}

#[tokio::test]
async fn the_cache_stays_within_its_bound_and_counts_evictions() {
    let graph = Arc::new(Supergraph::from_sdl(SCHEMA, "schema.graphql").unwrap());
    let settings = PrepareSettings { operations_max: 256, ..PrepareSettings::default() };
    let preparer = Preparer::new(graph, 1, settings);
    for number in 0..300 {
        let query = format!("{{ a{number}: me {{ id }} }}");
        preparer.prepare(&request(&query)).await.unwrap();
    }
    assert!((128..=256).contains(&preparer.len()), "{}", preparer.len());
    let evicted = preparer.stats().evicted.load(Relaxed);
    assert_eq!(preparer.len() as u64 + evicted, 300);
}

#[tokio::test]
async fn the_most_used_operations_come_first() {
    let preparer = preparer();
    for (query, times) in [("{ me { id } }", 2), ("{ me { name } }", 4), ("{ __typename }", 1)] {
        for _ in 0..times {
            preparer.prepare(&request(query)).await.unwrap();
        }
    }
    let used = |count| {
        let used = preparer.most_used(count).into_iter();
        used.map(|it| (it.request.query, it.uses)).collect::<Vec<_>>()
    };
    // Operations that were never found in the cache are left out.
    let (name, id) = ("{ me { name } }".into(), "{ me { id } }".into());
    assert_eq!(used(10), [(name, 3), (id, 1)]);
    assert_eq!(used(1).len(), 1);
    // Uses that another router has counted are uses.
    preparer.prepare(&request("{ __typename }")).await.unwrap().credit_uses(5);
    assert_eq!(used(1), [("{ __typename }".into(), 6)]);
}

#[test]
fn past_the_bound_new_operations_are_refused_and_known_ones_are_not() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        let graph = Arc::new(Supergraph::from_sdl(SCHEMA, "schema.graphql").unwrap());
        let settings = PrepareSettings { at_once: 1, waiting_max: 0, ..PrepareSettings::default() };
        let preparer = Preparer::new(graph, 1, settings);
        let (known, first, second) =
            (request("{ me { id } }"), request("{ me { name } }"), request("{ me { id name } }"));
        preparer.prepare(&known).await.unwrap();
        // The only thread that prepares is busy until it is notified.
        let (go_on, told) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || told.recv());
        let mut prepared = std::pin::pin!(preparer.prepare(&first));
        tokio::select! {
            biased;
            _ = &mut prepared => panic!("it cannot have been prepared"),
            () = std::future::ready(()) => {}
        }
        let refused = preparer.prepare(&second).await.unwrap_err();
        assert_eq!(refused, PrepareError::Overloaded);
        assert_eq!(preparer.stats().overloaded.load(Relaxed), 1);
        preparer.prepare(&known).await.unwrap();
        go_on.send(()).unwrap();
        busy.await.unwrap().unwrap();
        prepared.await.unwrap();
        preparer.prepare(&second).await.unwrap();
        assert_eq!(preparer.stats().waiting.load(Relaxed), 0);
    });
}

/// Runs `test` while the only thread that prepares is busy, until the given sender is dropped.
fn with_one_busy_thread<F: Future>(test: impl FnOnce(std::sync::mpsc::Sender<()>) -> F) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().max_blocking_threads(1).build().expect("a runtime");
    runtime.block_on(async {
        let (go_on, told) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || told.recv());
        test(go_on).await;
    });
}

#[test]
fn a_client_with_many_new_operations_delays_the_one_of_another_by_one_turn() {
    with_one_busy_thread(|go_on| async move {
        let graph = Arc::new(Supergraph::from_sdl(SCHEMA, "schema.graphql").unwrap());
        let settings = PrepareSettings { at_once: 1, ..PrepareSettings::default() };
        let preparer = Arc::new(Preparer::new(graph, 1, settings));
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let deadline = Instant::now() + Duration::from_secs(60);
        let begin = |client: ClientKey, name: String| {
            let (preparer, order) = (Arc::clone(&preparer), Arc::clone(&order));
            tokio::spawn(async move {
                let query = request(&format!("{{ {name}: me {{ id }} }}"));
                preparer
                    .prepare_for(&query, &RequirementSet::default(), || client, deadline)
                    .await
                    .unwrap();
                order.lock().unwrap().push(name);
            })
        };
        let [noisy, polite] = [1, 2].map(|last| ClientKey::of_address([192, 0, 2, last].into()));
        let mut tasks: Vec<_> = (0..20).map(|it| begin(noisy, format!("noisy{it}"))).collect();
        while preparer.stats().waiting.load(Relaxed) < 19 {
            tokio::task::yield_now().await;
        }
        tasks.push(begin(polite, "polite".to_owned()));
        while preparer.stats().waiting.load(Relaxed) < 20 {
            tokio::task::yield_now().await;
        }
        drop(go_on);
        for task in tasks {
            task.await.unwrap();
        }
        let place = order.lock().unwrap().iter().position(|name| name == "polite");
        // It is prepared third. Tasks record their names when they are woken, which may exchange neighbours.
        assert!(place.is_some_and(|place| place <= 4), "{place:?}");
    });
}

#[test]
fn an_operation_that_waits_until_its_deadline_is_refused() {
    with_one_busy_thread(|go_on| async move {
        let graph = Arc::new(Supergraph::from_sdl(SCHEMA, "schema.graphql").unwrap());
        let settings = PrepareSettings { at_once: 1, ..PrepareSettings::default() };
        let preparer = Preparer::new(graph, 1, settings);
        let (first, second) = (request("{ me { id } }"), request("{ me { name } }"));
        let mut running = Box::pin(preparer.prepare(&first));
        assert!(futures_poll(&mut running).is_none());
        let soon = Instant::now() + Duration::from_millis(10);
        let client = || ClientKey::UNKNOWN;
        let late = preparer.prepare_for(&second, &RequirementSet::default(), client, soon).await;
        assert_eq!(late.unwrap_err(), PrepareError::Overloaded);
        // The same is true if another request is preparing the same operation.
        let late = preparer.prepare_for(&first, &RequirementSet::default(), client, soon).await;
        assert_eq!(late.unwrap_err(), PrepareError::Overloaded);
        assert_eq!(preparer.stats().overloaded.load(Relaxed), 2);
        drop(go_on);
        running.await.unwrap();
    });
}

#[test]
fn a_large_request_that_waits_counts_as_several() {
    with_one_busy_thread(|go_on| async move {
        let graph = Arc::new(Supergraph::from_sdl(SCHEMA, "schema.graphql").unwrap());
        let settings = PrepareSettings {
            at_once: 1,
            waiting_max: 4,
            waiting_per_client_max: 4,
            ..PrepareSettings::default()
        };
        let preparer = Preparer::new(graph, 1, settings);
        let mut large = request("{ me { name } }");
        large.extensions = vec![b' '; 100 << 10].into();
        let (first, small) = (request("{ me { id } }"), request("{ me { id name } }"));
        let mut running = Box::pin(preparer.prepare(&first));
        assert!(futures_poll(&mut running).is_none());
        let mut waiting = Box::pin(preparer.prepare(&large));
        assert!(futures_poll(&mut waiting).is_none());
        assert_eq!(preparer.prepare(&small).await.unwrap_err(), PrepareError::Overloaded);
        drop(waiting);
        let mut waiting = Box::pin(preparer.prepare(&small));
        assert!(futures_poll(&mut waiting).is_none());
        drop(go_on);
        running.await.unwrap();
        waiting.await.unwrap();
    });
}

#[test]
fn texts_are_parsed_for_labels_under_the_limit_of_preparing_and_once_also_if_they_are_not_valid() {
    with_one_busy_thread(|go_on| async move {
        let graph = Arc::new(Supergraph::from_sdl(MOVING, "schema.graphql").unwrap());
        let settings = PrepareSettings { at_once: 1, waiting_max: 0, ..PrepareSettings::default() };
        let preparer = Preparer::new(graph, 1, settings);
        let (first, second) = (request("{ user { id } }"), request("{ nope }"));
        let mut running = Box::pin(preparer.prepare(&first));
        assert!(futures_poll(&mut running).is_none());
        // The limit refuses it; without one it would wait for the thread.
        assert_eq!(preparer.prepare(&second).await.unwrap_err(), PrepareError::Overloaded);
        drop(go_on);
        running.await.unwrap();
        for _ in 0..3 {
            let error = preparer.prepare(&second).await.unwrap_err();
            assert!(matches!(error, PrepareError::Validation(_)), "{error}");
        }
        assert_eq!(preparer.stats().texts_labelled.load(Relaxed), 2);
    });
}

const MOVING: &str = r#"
    enum join__Graph { A @join__graph(name: "a", url: "http://a") B @join__graph(name: "b", url: "http://b") }
    schema { query: Query subscription: Subscription }
    type Query @join__type(graph: A) @join__type(graph: B) {
      still: Int @join__field(graph: A)
      user: User @join__field(graph: A)
    }
    type Subscription @join__type(graph: A) { changed(id: Int): User @join__field(graph: A) }
    type User @join__type(graph: A, key: "id") @join__type(graph: B, key: "id") {
      id: ID!
      name: String @join__field(graph: A) @join__field(graph: B, override: "a", overrideLabel: "beta")
      rank: Int @join__field(graph: A) @join__field(graph: B, override: "a", overrideLabel: "percent(100)")
    }
"#;

fn moving(share: Option<LabelShare>) -> Preparer {
    let graph = Supergraph::from_sdl(MOVING, "schema.graphql").expect("a valid supergraph");
    let shares = share.map(|share| ("beta".to_owned(), share)).into_iter().collect();
    Preparer::new(Arc::new(graph), 1, PrepareSettings::default()).with_override_labels(&shares)
}

/// The number of subgraph requests of the plan: two, once the field has moved.
async fn requests(preparer: &Preparer, query: &str) -> usize {
    preparer.prepare(&request(query)).await.expect("a valid operation").plan.fetches.len()
}

#[tokio::test]
async fn a_label_is_on_for_the_configured_share() {
    let query = "{ user { name } }";
    assert_eq!(requests(&moving(None), query).await, 1);
    assert_eq!(requests(&moving(Some(LabelShare::NEVER)), query).await, 1);
    assert_eq!(requests(&moving(Some(LabelShare::ALWAYS)), query).await, 2);
    // `percent(100)` needs no configuration.
    assert_eq!(requests(&moving(None), "{ user { rank } }").await, 2);
}

#[tokio::test]
async fn every_request_decides_again_and_each_plan_is_made_once() {
    let preparer = moving(Some(LabelShare::percent(50.0)));
    let mut ids = std::collections::HashSet::new();
    // It is less likely than any defect that 200 draws of a half are all alike.
    for _ in 0..200 {
        let prepared = preparer.prepare(&request("{ user { name } }")).await.unwrap();
        ids.insert((prepared.operation_id, prepared.plan.fetches.len()));
    }
    assert_eq!(ids.len(), 2, "one identity for each plan");
    assert_eq!((preparer.len(), stats(&preparer).1), (2, 2));
}

#[tokio::test]
async fn an_operation_without_labels_has_one_plan() {
    let preparer = moving(Some(LabelShare::percent(50.0)));
    for _ in 0..50 {
        preparer.prepare(&request("{ still }")).await.unwrap();
    }
    assert_eq!(stats(&preparer), (49, 1, 0));
}

#[tokio::test]
async fn equal_subscriptions_share_the_decision() {
    let query = "subscription($id: Int) { changed(id: $id) { name } }";
    let mut operations = std::collections::HashSet::new();
    for id in 0..100 {
        let mut request = request(query);
        request.variables = Bytes::from(format!("{{\"id\": {id}}}"));
        let mut of_group = std::collections::HashSet::new();
        // Another router decides in the same way.
        for _ in 0..2 {
            let preparer = moving(Some(LabelShare::percent(50.0)));
            for _ in 0..3 {
                of_group.insert(preparer.prepare(&request).await.unwrap().operation_id);
            }
        }
        assert_eq!(of_group.len(), 1, "{id}");
        operations.extend(of_group);
    }
    assert_eq!(operations.len(), 2, "groups differ");
}

#[tokio::test]
async fn invalid_operations_are_refused_with_labels_too() {
    let preparer = moving(Some(LabelShare::ALWAYS));
    let error = preparer.prepare(&request("{ nope }")).await.unwrap_err();
    assert!(matches!(error, PrepareError::Validation(_)), "{error}");
    assert_eq!(stats(&preparer), (0, 1, 0));
}

/// A graph with a protected field, and a query root with another protected field.
const PROTECTED: &str = r#"
    schema
        @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
        @link(url: "https://specs.apollo.dev/authenticated/v0.1", for: SECURITY)
        @link(url: "https://specs.apollo.dev/requiresScopes/v0.1", for: SECURITY)
        { query: Query }
    enum join__Graph { A @join__graph(name: "a", url: "http://a") }
    type Query @join__type(graph: A) {
        user: User @requiresScopes(scopes: [["users"]])
        other: Int @authenticated
    }
    type User @join__type(graph: A) { name: String email: String @authenticated }
"#;

/// Returns a preparer for [`PROTECTED`], the requirements `@requiresScopes` and `@authenticated`.
fn protected(filters_introspection: bool) -> (Preparer, [u16; 2]) {
    let graph = Arc::new(Supergraph::from_sdl(PROTECTED, "p.graphql").expect("a valid graph"));
    let index = |wanted: &str| {
        let all = &graph.access.requirements;
        all.iter().position(|it| it.to_string().starts_with(wanted)).expect("it is stated") as u16
    };
    let requirements = [index("@requiresScopes"), index("@authenticated")];
    let settings = PrepareSettings { filters_introspection, ..PrepareSettings::default() };
    (Preparer::new(graph, 1, settings), requirements)
}

#[tokio::test]
async fn introspection_depends_on_all_requirements_if_it_is_filtered() {
    let deadline = Instant::now() + Duration::from_secs(60);
    for (filters, query, expected) in [
        (true, "{ __schema { queryType { name } } }", 2),
        (true, "{ __type(name: \"User\") { name } user { name } }", 2),
        (true, "{ __typename }", 0),
        (true, "{ user { name } }", 1),
        (true, "{ nothing }", 0),
        (false, "{ __schema { queryType { name } } }", 0),
    ] {
        let (preparer, _) = protected(filters);
        let client = || ClientKey::UNKNOWN;
        for _ in 0..2 {
            let found = preparer.access_facts(&request(query), client, deadline).await.unwrap();
            let count = found.map_or(0, |facts| facts.requirements.iter().count());
            assert_eq!(count, expected, "{query}");
        }
        assert_eq!(preparer.stats().texts_labelled.load(Relaxed), 1, "{query}");
    }
}

#[tokio::test]
async fn clients_with_equal_rights_share_the_schema_that_introspection_shows() {
    let (preparer, [scopes, login]) = protected(true);
    let fields = async |query: &str, unmet: &[u16]| {
        let unmet: RequirementSet = unmet.iter().copied().collect();
        let prepared = preparer.prepare_without(&request(query), &unmet).await?;
        let values = prepared.coerce(&Bytes::new())?;
        let response = prepared.introspect(&values)?.expect("it introspects");
        Ok::<_, PrepareError>(String::from_utf8(response.to_vec()).expect("JSON is UTF-8"))
    };
    let query = "{ __type(name: \"User\") { fields { name } } }";
    let without_email = r#"{"__type":{"fields":[{"name":"name"}]}}"#;
    let all = r#"{"__type":{"fields":[{"name":"name"},{"name":"email"}]}}"#;
    assert_eq!(fields(query, &[]).await.unwrap(), all);
    assert_eq!(fields(query, &[login]).await.unwrap(), without_email);
    assert_eq!(fields(&format!("{query} # again"), &[login]).await.unwrap(), without_email);
    assert_eq!(fields(query, &[scopes]).await.unwrap(), r#"{"__type":null}"#);
    assert_eq!(preparer.stats().schemas_filtered.load(Relaxed), 2);
    // Nothing is left to show.
    let renamed = "{ map: __schema { queryType { name } } }";
    let refused = fields(renamed, &[scopes, login]).await.unwrap_err();
    assert!(matches!(&refused, PrepareError::Denied(key) if &**key == "map"), "{refused}");
}

#[tokio::test]
async fn the_number_of_filtered_schemas_is_bounded_and_all_of_them_are_served() {
    let fields: String =
        (0..8).map(|at| format!("f{at}: Int @requiresScopes(scopes: [[\"s{at}\"]]) ")).collect();
    let text = PROTECTED.replace("other: Int", &format!("{fields} other: Int"));
    let graph = Arc::new(Supergraph::from_sdl(&text, "p.graphql").expect("a valid graph"));
    let settings = PrepareSettings { filters_introspection: true, ..PrepareSettings::default() };
    let preparer = Preparer::new(graph, 1, settings);
    let query = request("query($n: String!) { __type(name: $n) { fields { name } } }");
    for _ in 0..2 {
        for set in 1..=255_u16 {
            // `@requiresScopes` of `user` and of the eight fields are the first requirements.
            let unmet: RequirementSet =
                (0..8_u16).filter(|bit| set & (1_u16 << *bit) != 0).collect();
            let prepared = preparer.prepare_without(&query, &unmet).await.unwrap();
            let values = prepared.coerce(&Bytes::from(r#"{"n": "Query"}"#)).unwrap();
            let response = prepared.introspect(&values).unwrap().expect("it introspects");
            let shown = String::from_utf8_lossy(&response).matches("name").count();
            assert_eq!(shown, 10 - set.count_ones() as usize, "{set}");
        }
    }
    let made = preparer.stats().schemas_filtered.load(Relaxed);
    assert!(made > 255, "{made}: more sets than are kept");
}
