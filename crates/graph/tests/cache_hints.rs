//! Reading `@cacheControl`, `@cacheTag`, `@openfed__entityCache`, `@openfed__queryCache`, `@openfed__cacheInvalidate`
//! and `@openfed__cachePopulate`.

use graph::{
    CacheControlHint, CacheHints, ElementHints, PopulateHint, SchemaErrors, SubgraphId, Supergraph,
};

const A: SubgraphId = SubgraphId(0);
const B: SubgraphId = SubgraphId(1);

/// Reads a supergraph with the subgraphs `a` and `b`, with these directives on `User` and on `Query.users`.
fn read(on_type: &str, on_field: &str) -> Result<Supergraph, SchemaErrors> {
    let text = format!(
        r#"schema
             @link(url: "https://specs.apollo.dev/link/v1.0")
             @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
             @link(url: "https://specs.apollo.dev/cacheTag/v0.1", for: EXECUTION) {{ query: Query }}
           enum join__Graph {{
             A @join__graph(name: "a", url: "http://a")
             B @join__graph(name: "b", url: "http://b")
           }}
           type Query @join__type(graph: A) {{ users(id: ID): [User] {on_field} }}
           type User @join__type(graph: A, key: "id") @join__type(graph: B, key: "id") {on_type} {{ id: ID! }}
           union Result @join__type(graph: A) @join__unionMember(graph: A, member: "User")
             @join__directive(graphs: [A], name: "cacheControl", args: {{maxAge: 7}}) = User"#
    );
    Supergraph::from_sdl(&text, "test.graphql")
}

fn hints_of(graph: &Supergraph) -> &CacheHints {
    graph.cache_hints.as_ref().expect("the supergraph has hints")
}

#[test]
fn a_hint_holds_in_the_subgraphs_that_give_it() {
    let graph = read(
        r#"@join__directive(graphs: [A], name: "cacheControl", args: {maxAge: 60, scope: PRIVATE})
           @join__directive(graphs: [A, B], name: "federation__cacheTag", args: {format: "user-{$key.id}"})
           @join__directive(graphs: [B], name: "openfed__entityCache", args: {maxAge: 10, negativeCacheTTL: 5})"#,
        r#"@join__directive(graphs: [A], name: "federation__cacheTag", args: {format: "users"})
           @join__directive(graphs: [A], name: "federation__cacheTag", args: {format: "user-{$args.id}"})
           @join__directive(graphs: [A], name: "cacheControl", args: {inheritMaxAge: true})"#,
    )
    .expect("a supergraph");
    let hints = hints_of(&graph);
    let user = graph.type_named("User").expect("a known type");
    let tag: Vec<Box<str>> = vec!["user-{$key.id}".into()];
    let control =
        CacheControlHint { max_age: Some(60), is_private: Some(true), inherits_max_age: false };
    let of_a = ElementHints { control, tags: tag.clone(), ..ElementHints::default() };
    let of_b = ElementHints { whole_max_age: Some(10), tags: tag, ..ElementHints::default() };
    assert_eq!(hints.of_type(A, user), Some(&of_a));
    assert_eq!(hints.of_type(B, user), Some(&of_b));
    let users = graph.field_named(graph.query, "users").expect("a known field");
    let control = CacheControlHint { inherits_max_age: true, ..CacheControlHint::default() };
    let tags = vec!["users".into(), "user-{$args.id}".into()];
    let expected = ElementHints { control, tags, ..ElementHints::default() };
    assert_eq!(hints.of_field(A, users), Some(&expected));
    assert_eq!(hints.of_field(B, users), None);
    let result = graph.type_named("Result").expect("a known type");
    assert_eq!(hints.of_type(A, result).map(|it| it.control.max_age), Some(Some(7)));
    assert_eq!(hints.of_type(B, result), None);
}

#[test]
fn both_directives_on_mutations_say_that_the_entity_has_changed() {
    let populates = PopulateHint { max_age: Some(5) };
    for (name, is_change, populates) in [
        ("openfed__cacheInvalidate", true, None),
        ("openfed__cachePopulate", true, Some(populates)),
        ("openfed__queryCache", false, None),
    ] {
        let on_field =
            format!(r#"@join__directive(graphs: [A], name: "{name}", args: {{maxAge: 5}})"#);
        let graph = read("", &on_field).expect("a supergraph");
        let users = graph.field_named(graph.query, "users").expect("a known field");
        let hints = hints_of(&graph).of_field(A, users).expect("a hint");
        assert_eq!((hints.changes_entity, hints.populates), (is_change, populates), "{name}");
    }
}

#[test]
fn directives_of_caching_do_not_reach_clients() {
    let graph = read("", "").expect("a supergraph");
    let schema = graph.api.0.to_string();
    assert!(!schema.contains("cacheControl") && !schema.contains("cacheTag"), "{schema}");
}

#[test]
fn wrong_arguments_are_errors_with_a_place() {
    let on_type = r#"@join__directive(graphs: [A], name: "cacheControl", args: {maxAge: -1, scope: SECRET})
        @join__directive(graphs: [A], name: "federation__cacheTag", args: {})"#;
    let errors = read(on_type, "").expect_err("mistakes").to_string();
    for expected in [
        "`maxAge` of `User` is not a number of seconds",
        "the `scope` of `User` is neither PUBLIC nor PRIVATE",
        "a cache tag of `User` has no format",
    ] {
        assert!(errors.contains(expected), "{errors}");
    }
    let many: String = (0..65)
        .map(|number| format!(r#"@join__directive(graphs: [A], name: "federation__cacheTag", args: {{format: "{number}"}}) "#))
        .collect();
    let errors = read("", &many).expect_err("too many tags").to_string();
    assert!(errors.contains("`Query.users` has more than 64 cache tags"), "{errors}");
}
