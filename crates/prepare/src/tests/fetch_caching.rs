//! The declared policy and the tags of fetches, by the hints of the schema and the configuration.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cache::{Scope, SubgraphTtl, TtlRules, TypeTtl};
use execute::{FetchCaching, PartCaching};
use graph::Supergraph;
use plan::{Value, Variables};

use crate::operation_variant::OperationVariant;
use crate::pipeline::Pipeline;
use crate::steps::PrepareSteps;
use crate::{PrepareSettings, fetch_caching::caching_of};

/// The schema of Apollo Server's documentation of `@cacheControl`, in the subgraph `books`, and a second subgraph with
/// other hints for the same type.
const SCHEMA: &str = r#"
schema
  @link(url: "https://specs.apollo.dev/link/v1.0")
  @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION) { query: Query }
enum join__Graph {
  BOOKS @join__graph(name: "books", url: "http://books")
  STOCK @join__graph(name: "stock", url: "http://stock")
}
type Query @join__type(graph: BOOKS) @join__type(graph: STOCK) {
  book: Book @join__field(graph: BOOKS)
  cachedBook: Book @join__field(graph: BOOKS) @join__directive(graphs: [BOOKS], name: "cacheControl", args: {maxAge: 60})
  reader: Reader @join__field(graph: BOOKS) @join__directive(graphs: [BOOKS], name: "cacheControl", args: {maxAge: 40})
  me: Account @join__field(graph: BOOKS)
  node: Node @join__field(graph: BOOKS)
  publicNode: Node @join__field(graph: BOOKS) @join__directive(graphs: [BOOKS], name: "cacheControl", args: {scope: PUBLIC})
  whole: Reader @join__field(graph: BOOKS) @join__directive(graphs: [BOOKS], name: "openfed__queryCache", args: {maxAge: 25})
  tagged(id: ID!, first: Int = 3, filter: Filter): Post @join__field(graph: BOOKS)
    @join__directive(graphs: [BOOKS], name: "federation__cacheTag", args: {format: "post-{$args.id}"})
    @join__directive(graphs: [BOOKS], name: "federation__cacheTag", args: {format: "{$args.filter.color}-{$args.first}"})
    @join__directive(graphs: [STOCK], name: "federation__cacheTag", args: {format: "of another subgraph"})
}
input Filter @join__type(graph: BOOKS) { color: String }
type Book @join__type(graph: BOOKS) {
  title: String
  cachedTitle: String @join__directive(graphs: [BOOKS], name: "cacheControl", args: {maxAge: 30})
}
type Reader @join__type(graph: BOOKS) {
  book: Book @join__directive(graphs: [BOOKS], name: "cacheControl", args: {inheritMaxAge: true})
  other: Book
}
type Account implements Node @join__type(graph: BOOKS) @join__implements(graph: BOOKS, interface: "Node")
  @join__directive(graphs: [BOOKS], name: "cacheControl", args: {maxAge: 50, scope: PRIVATE}) { id: ID! name: String }
interface Node @join__type(graph: BOOKS)
  @join__directive(graphs: [BOOKS], name: "cacheControl", args: {maxAge: 15}) { id: ID! }
type Post @join__type(graph: BOOKS, key: "id") @join__type(graph: STOCK, key: "id")
  @join__directive(graphs: [BOOKS], name: "cacheControl", args: {maxAge: 240})
  @join__directive(graphs: [STOCK], name: "openfed__entityCache", args: {maxAge: 20}) {
  id: ID!
  votes: Int @join__field(graph: BOOKS) @join__directive(graphs: [BOOKS], name: "cacheControl", args: {maxAge: 30})
  author: Account @join__field(graph: BOOKS)
  shelf: Shelf @join__field(graph: STOCK)
}
type Shelf @join__type(graph: STOCK) { number: Int }
"#;

/// Returns the facts about the fetch of a plan from a subgraph. The plan has one fetch of it.
fn caching_at(subgraph: &str, query: &str, rules: &TtlRules) -> FetchCaching {
    let graph = Arc::new(Supergraph::from_sdl(SCHEMA, "schema.graphql").expect("a supergraph"));
    let pipeline = Pipeline::new(Arc::clone(&graph), 1, PrepareSettings::default(), Arc::default());
    let variant = OperationVariant::default();
    let (prepared, _) = pipeline
        .prepare_shared(query.as_bytes(), None, &variant, &mut PrepareSteps::default())
        .expect("a plan");
    let plan = &prepared.plan;
    let all = caching_of(plan, &graph, rules);
    let mut found = plan.fetches.iter().zip(all);
    let of_subgraph = found.find(|(fetch, _)| *graph.subgraph(fetch.subgraph).name == *subgraph);
    let (_, caching) = of_subgraph.expect("a fetch of the subgraph");
    caching.expect("a query")
}

/// Returns the facts about each root field or batch.
fn parts_of(subgraph: &str, query: &str, rules: &TtlRules) -> Vec<PartCaching> {
    caching_at(subgraph, query, rules).parts
}

fn declared(subgraph: &str, query: &str, rules: &TtlRules) -> Vec<Option<(u64, Scope)>> {
    let declared = parts_of(subgraph, query, rules).into_iter().map(|part| part.declared);
    declared.map(|it| it.max_age.map(|time| (time.as_secs(), it.scope))).collect()
}

#[test]
fn selections_have_the_policy_that_apollo_server_gives_them() {
    use Scope::{Private, Public};
    for (query, expected) in [
        ("{ book { cachedTitle } }", &[None][..]),
        ("{ cachedBook { title } }", &[Some((60, Public))]),
        ("{ cachedBook { cachedTitle } }", &[Some((30, Public))]),
        ("{ cachedBook { title } book { title } }", &[Some((60, Public)), None]),
        ("{ reader { book { title } } }", &[Some((40, Public))]),
        ("{ reader { book { cachedTitle } } }", &[Some((30, Public))]),
        ("{ reader { other { title } } }", &[None]),
        ("{ me { name } }", &[Some((50, Private))]),
        (
            "{ ... on Query { cachedBook { ...F } } } fragment F on Book { cachedTitle }",
            &[Some((30, Public))],
        ),
        ("{ cachedBook { title } me { name } }", &[Some((60, Public)), Some((50, Private))]),
        // Stricter than Apollo Server: an object behind the interface is private.
        ("{ node { id } }", &[Some((15, Private))]),
        ("{ publicNode { id } }", &[Some((15, Public))]),
        ("{ tagged(id: 1) { id } }", &[Some((240, Public))]),
        ("{ tagged(id: 1) { votes } }", &[Some((30, Public))]),
        ("{ tagged(id: 1) { author { name } } }", &[Some((50, Private))]),
        // Cosmo's directives hold for everything below.
        ("{ whole { other { title } } }", &[Some((25, Public))]),
        (
            "{ whole { other { title } } cachedBook { title } }",
            &[Some((25, Public)), Some((60, Public))],
        ),
        (
            "{ whole { book { cachedTitle } other { title } } book { title } }",
            &[Some((25, Public)), None],
        ),
    ] {
        assert_eq!(declared("books", query, &TtlRules::default()), expected, "{query}");
    }
}

#[test]
fn an_entity_has_the_hints_of_the_subgraph_that_resolves_it() {
    let query = "{ tagged(id: 1) { votes shelf { number } } }";
    let none = TtlRules::default();
    assert_eq!(declared("books", query, &none), [Some((30, Scope::Public))]);
    assert_eq!(declared("stock", query, &none), [Some((20, Scope::Public))]);
}

#[test]
fn the_configuration_counts_where_the_schema_gives_no_time() {
    let seconds = Duration::from_secs;
    let book = TypeTtl { default: Some(seconds(100)), ..TypeTtl::default() };
    let books =
        SubgraphTtl { default: Some(seconds(80)), types: HashMap::from([("Book".into(), book)]) };
    let rules = TtlRules { default: None, subgraphs: HashMap::from([("books".into(), books)]) };
    for (query, expected) in [
        ("{ book { title } }", 100),
        ("{ book { cachedTitle } }", 30),
        ("{ cachedBook { title } }", 60),
        ("{ reader { other { title } } }", 40),
        ("{ tagged(id: 1) { id } }", 240),
    ] {
        let expected = [Some((expected, Scope::Public))];
        assert_eq!(declared("books", query, &rules), expected, "{query}");
    }
}

/// Returns the templates' arguments of `tagged`, one list for each tag.
fn arguments(query: &str) -> Vec<Vec<(Box<str>, Value)>> {
    let parts = parts_of("books", query, &TtlRules::default());
    parts.into_iter().flat_map(|part| part.root_tags).map(|it| it.arguments).collect()
}

#[test]
fn a_root_field_has_the_tags_of_its_subgraph_with_its_arguments() {
    let all = arguments("query ($id: ID!) { a: tagged(id: $id, filter: {color: \"red\"}) { id } }");
    let [of_id, of_filter] = &all[..] else { panic!("two tags: {all:?}") };
    // Literals may have become variables of the fetch.
    assert!(matches!(&of_id[..], [(name, Value::Variable(_))] if **name == *"id"), "{of_id:?}");
    let names: Vec<&str> = of_filter.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["filter", "first"]);
    assert_eq!(
        of_filter[1].1,
        Value::Int("3".into()),
        "the default of an argument that is left out"
    );
    assert_eq!(arguments("{ a: tagged(id: 1) { id } b: tagged(id: 2) { id } }").len(), 4);
    assert_eq!(arguments("{ me { name } }").len(), 0);
}

/// The keyed selection of each part, without what operations share.
fn selections(subgraph: &str, query: &str) -> Vec<String> {
    let parts = parts_of(subgraph, query, &TtlRules::default());
    parts.into_iter().map(|part| part.selection.text.into()).collect()
}

#[test]
fn equal_selections_of_different_operations_have_equal_keys() {
    for (query, expected) in [
        ("{ book { title cachedTitle } }", &["book{cachedTitle title}"][..]),
        (
            "query Named { b: book { cachedTitle ...F } } fragment F on Book { title }",
            &["book{cachedTitle title}"],
        ),
        ("{ book { t: title } }", &["book{t:title}"]),
        ("query ($x: ID!) { tagged(first: 4, id: $x) { id } }", &["tagged(first:$0,id:$1){id}"]),
        ("{ tagged(id: 2, first: 5) { id } }", &["tagged(first:$0,id:$1){id}"]),
        // The conditions of the field itself are no part of its value.
        ("query ($c: Boolean!) { book @include(if: $c) { title } }", &["book{title}"]),
        (
            "query ($c: Boolean!) { book { title @skip(if: $c) cachedTitle } }",
            &["book{cachedTitle title@skip(if:$0)}"],
        ),
        (
            "{ me { name } b: book { title } a: book { title } }",
            &["me{name}", "book{title}", "book{title}"],
        ),
    ] {
        assert_eq!(selections("books", query), expected, "{query}");
    }
    let of_entity = "_entities(representations:){...on Post{shelf{number}}}";
    for query in [
        "{ tagged(id: 1) { shelf { number } } }",
        "query A { tagged(id: 2) { shelf { number } votes } }",
    ] {
        assert_eq!(selections("stock", query), [of_entity], "{query}");
    }
}

#[test]
fn a_request_for_some_root_fields_declares_only_their_variables() {
    let query = "query Q($a: ID!, $b: ID!, $c: Boolean!, $d: Boolean!) {
        a: tagged(id: $a) { id }
        b: tagged(id: $b) { id author { name @include(if: $c) } }
        book @skip(if: $c) { title }
        book @include(if: $d) { cachedTitle }
    }";
    let caching = caching_at("books", query, &TtlRules::default());
    let root = caching.root.as_ref().expect("root fields");
    let keys: Vec<&str> = root.fields().iter().map(|field| &*field.data_key).collect();
    assert_eq!(keys, ["a", "b", "book"]);
    let values = ["\"1\"", "\"2\"", "false", "false"].map(|it| Some(it.into()));
    let variables = Variables { values: values.to_vec() };
    let body =
        |numbers: &[u16]| String::from_utf8(root.write_body(numbers, &variables)).expect("text");
    assert_eq!(
        body(&[0]),
        r#"{"query":"query Q__books__0($a:ID!){a:tagged(id: $a){id}}","operationName":"Q__books__0","variables":{"a":"1"}}"#
    );
    assert_eq!(
        body(&[1, 2]),
        r#"{"query":"query Q__books__0($b:ID!,$c:Boolean!,$d:Boolean!){b:tagged(id: $b){id author{name@include(if:$c)}} book@skip(if:$c){title cachedTitle@include(if:$d)} book@include(if:$d){title@skip(if:$c) cachedTitle}}","operationName":"Q__books__0","variables":{"b":"2","c":false,"d":false}}"#
    );
}
