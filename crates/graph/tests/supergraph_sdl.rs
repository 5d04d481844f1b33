//! Reading supergraph SDL: the resulting model, and the errors for invalid texts.

use graph::{
    FieldId, SUBSCRIPTION_PROTOCOLS, SubgraphKind, SubgraphSet, SubscriptionEndpoint, Supergraph,
};

const BENCHMARK: &str = include_str!("../../../fixtures/federation-benchmark/supergraph.graphql");

const JOIN: &str = r#"
schema @link(url: "https://specs.apollo.dev/link/v1.0") @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION) { query: Query }
"#;

fn read(body: &str) -> Supergraph {
    match Supergraph::from_sdl(&format!("{JOIN}{body}"), "test.graphql") {
        Ok(supergraph) => supergraph,
        Err(errors) => panic!("{errors}"),
    }
}

/// Returns the error messages of a text, without positions.
fn errors(text: &str) -> Vec<String> {
    match Supergraph::from_sdl(text, "test.graphql") {
        Ok(_) => panic!("the schema was accepted"),
        Err(errors) => errors.0.into_iter().map(|error| error.message).collect(),
    }
}

fn resolved_by(supergraph: &Supergraph, coordinate: &str) -> Vec<String> {
    let (ty, field) = coordinate.split_once('.').expect("Type.field");
    let ty = supergraph.type_named(ty).expect("a known type");
    let field = supergraph.field_named(ty, field).expect("a known field");
    names(supergraph, supergraph.field(field).resolved_by)
}

fn names(supergraph: &Supergraph, set: SubgraphSet) -> Vec<String> {
    set.iter().map(|id| supergraph.subgraph(id).name.to_string()).collect()
}

#[test]
fn the_benchmark_supergraph_has_the_expected_resolvers_and_jumps() {
    let supergraph = Supergraph::from_sdl(BENCHMARK, "supergraph.graphql").unwrap();
    assert_eq!(resolved_by(&supergraph, "Product.upc"), ["inventory", "products", "reviews"]);
    assert_eq!(resolved_by(&supergraph, "Product.weight"), ["products"]);
    assert_eq!(resolved_by(&supergraph, "User.username"), ["accounts"]);
    assert_eq!(resolved_by(&supergraph, "Review.product"), ["reviews"]);
    let product = supergraph.type_named("Product").unwrap();
    let shipping = supergraph.field_named(product, "shippingEstimate").unwrap();
    let requires = supergraph.field(shipping).subgraphs[0].requires.as_ref().unwrap();
    assert_eq!(requires.items.len(), 2);
    let jumps = graph::Jumps::new(&supergraph);
    assert_eq!(names(&supergraph, jumps.targets(product)), ["inventory", "products", "reviews"]);
    let user = supergraph.type_named("User").unwrap();
    let reviews = SubgraphSet::of(graph::SubgraphId(3));
    assert_eq!(names(&supergraph, jumps.reachable(user, reviews)), ["accounts", "reviews"]);
}

#[test]
fn the_api_schema_has_no_join_machinery() {
    let supergraph = Supergraph::from_sdl(BENCHMARK, "supergraph.graphql").unwrap();
    let sdl = supergraph.api_sdl();
    assert!(!sdl.contains("join__") && !sdl.contains("link__"), "{sdl}");
    assert!(sdl.contains("topProducts(first: Int = 5): [Product]"), "{sdl}");
}

#[test]
fn inaccessible_types_also_hide_fields_and_types_that_depend_on_them() {
    let supergraph = read(
        r#"
        enum join__Graph { A @join__graph(name: "a", url: "http://a") }
        type Query @join__type(graph: A) { open: String @deprecated(reason: "old") hidden: Hidden both: Both }
        type Hidden @join__type(graph: A) @inaccessible { x: Int }
        union Both @join__type(graph: A) = Hidden | Shown
        type Shown @join__type(graph: A) { x: Int only: Only }
        type Only @join__type(graph: A) { x: Int @inaccessible }
        enum Color @join__type(graph: A) { RED GREEN @inaccessible }
        "#,
    );
    let sdl = supergraph.api_sdl();
    assert!(!sdl.contains("Hidden") && !sdl.contains("Only") && !sdl.contains("GREEN"), "{sdl}");
    assert!(sdl.contains("@deprecated(reason: \"old\")"), "{sdl}");
    let query = supergraph.query;
    let hidden = supergraph.field_named(query, "hidden").unwrap();
    assert!(supergraph.field(hidden).inaccessible);
}

#[test]
fn external_and_overridden_fields_are_resolved_elsewhere() {
    let supergraph = read(
        r#"
        enum join__Graph { A @join__graph(name: "a", url: "http://a") B @join__graph(name: "b", url: "http://b") }
        type Query @join__type(graph: A) @join__type(graph: B) { p: P @join__field(graph: A) }
        type P @join__type(graph: A, key: "id") @join__type(graph: B, key: "id") {
          id: ID! @join__field(graph: A) @join__field(graph: B, external: true)
          moved: Int @join__field(graph: A, usedOverridden: true) @join__field(graph: B, override: "a")
          asked: Int @join__field(graph: A, external: true) @join__field(graph: B)
          nowhere: Int @join__field
        }
        "#,
    );
    assert_eq!(resolved_by(&supergraph, "P.id"), ["a"]);
    assert_eq!(resolved_by(&supergraph, "P.moved"), ["b"]);
    assert_eq!(resolved_by(&supergraph, "P.asked"), ["b"]);
    assert!(resolved_by(&supergraph, "P.nowhere").is_empty());
}

#[test]
fn external_key_members_are_resolvable_on_type_extensions_and_in_event_subgraphs_only() {
    let supergraph = read(
        r#"
        enum join__Graph {
          A @join__graph(name: "a", url: "http://a")
          B @join__graph(name: "b", url: "http://b")
          C @join__graph(name: "c", url: "http://c")
          EVENTS @join__graph(name: "events", url: "")
        }
        type Query @join__type(graph: A) @join__type(graph: B) @join__type(graph: C) @join__type(graph: EVENTS) {
          p: P @join__field(graph: EVENTS) @join__directive(graphs: [EVENTS], name: "edfs__natsRequest", args: {subject: "p"})
        }
        type P
          @join__type(graph: A, key: "id spot { x }")
          @join__type(graph: B, key: "id spot { x }", extension: true)
          @join__type(graph: C, key: "id spot { x }")
          @join__type(graph: EVENTS, key: "id", resolvable: false)
        {
          id: ID! @join__field(graph: A) @join__field(graph: B, external: true) @join__field(graph: C, external: true) @join__field(graph: EVENTS, external: true)
          spot: Spot! @join__field(graph: A) @join__field(graph: B, external: true) @join__field(graph: C)
          other: Int @join__field(graph: A) @join__field(graph: B, external: true)
        }
        type Spot @join__type(graph: A) @join__type(graph: B) @join__type(graph: C) {
          x: Int! @join__field(graph: A) @join__field(graph: B, external: true) @join__field(graph: C, external: true)
        }
        "#,
    );
    assert_eq!(resolved_by(&supergraph, "P.id"), ["a", "b", "events"]);
    assert_eq!(resolved_by(&supergraph, "P.spot"), ["a", "b", "c"]);
    assert_eq!(resolved_by(&supergraph, "P.other"), ["a"]);
    assert_eq!(resolved_by(&supergraph, "Spot.x"), ["a", "b"]);
}

#[test]
fn a_key_of_an_interface_leads_only_where_every_implementation_is_an_entity() {
    let supergraph = read(
        r#"
        enum join__Graph {
          A @join__graph(name: "a", url: "http://a")
          B @join__graph(name: "b", url: "http://b")
          C @join__graph(name: "c", url: "http://c")
          D @join__graph(name: "d", url: "http://d")
        }
        type Query @join__type(graph: A) { media: Media @join__field(graph: D) }
        interface Media
          @join__type(graph: A, key: "id")
          @join__type(graph: B, key: "id")
          @join__type(graph: C, key: "id")
          @join__type(graph: D, key: "id", isInterfaceObject: true)
        { id: ID! }
        type Book implements Media
          @join__implements(graph: A, interface: "Media") @join__type(graph: A, key: "id")
          @join__implements(graph: B, interface: "Media") @join__type(graph: B, key: "id", resolvable: false)
        { id: ID! }
        type Film implements Media
          @join__implements(graph: A, interface: "Media") @join__type(graph: A, key: "id")
          @join__implements(graph: B, interface: "Media") @join__type(graph: B, key: "id")
        { id: ID! }
        "#,
    );
    let media = supergraph.type_named("Media").unwrap();
    let subgraphs = (0..4).map(graph::SubgraphId);
    let leads =
        |&subgraph: &graph::SubgraphId| supergraph.keys_into(media, subgraph).next().is_some();
    assert_eq!(names(&supergraph, subgraphs.filter(leads).collect()), ["a", "d"]);
}

#[test]
fn clients_see_scalars_inputs_and_enums_with_their_directives() {
    let supergraph = read(
        r#"
        directive @tag(name: String!) repeatable on FIELD_DEFINITION | ENUM_VALUE
        directive @loud(volume: Int) on FIELD
        enum join__Graph { A @join__graph(name: "a", url: "http://a") B @join__graph(name: "b", url: "http://b") }
        type Query @join__type(graph: A) @join__type(graph: B) {
          find(by: By!, old: Int @deprecated(reason: "use by")): Day @deprecated @tag(name: "x") @join__field(graph: A)
          color: Color @join__field(graph: B)
        }
        input By @oneOf @join__type(graph: A) { id: ID name: String secret: Int @inaccessible }
        scalar Day @specifiedBy(url: "https://example.org/day") @join__type(graph: A) @join__type(graph: B)
        enum Color @join__type(graph: A) @join__type(graph: B) {
          RED @join__enumValue(graph: A) @join__enumValue(graph: B)
          PINK @deprecated @join__enumValue(graph: B)
          INFRARED @inaccessible @join__enumValue(graph: B)
        }
        "#,
    );
    let sdl = supergraph.api_sdl();
    for part in [
        "input By @oneOf {\n  id: ID\n  name: String\n}",
        "scalar Day @specifiedBy(url: \"https://example.org/day\")",
        "old: Int @deprecated(reason: \"use by\")",
        "): Day @deprecated\n",
        "enum Color {\n  RED\n  PINK @deprecated\n}",
        "directive @loud(volume: Int) on FIELD",
    ] {
        assert!(sdl.contains(part), "{part}\n{sdl}");
    }
    assert!(!sdl.contains("tag") && !sdl.contains("INFRARED") && !sdl.contains("secret"), "{sdl}");
}

#[test]
fn a_context_argument_is_read_from_the_types_that_set_the_context() {
    let body = r#"
        enum join__Graph { A @join__graph(name: "a", url: "http://a") }
        type Query @join__type(graph: A) { u: U @join__field(graph: A) }
        type U @join__type(graph: A, key: "id") @context(name: "a__c") { id: ID! currency: String t: T }
        type T @join__type(graph: A, key: "id") {
          id: ID!
          price: Int @join__field(graph: A, contextArguments: [{name: "currency", type: "String!", context: "a__c", selection: "{ SELECTION }"}])
        }
    "#;
    let supergraph = read(&body.replace("SELECTION", "currency"));
    let [u, t] = ["U", "T"].map(|name| supergraph.type_named(name).unwrap());
    let price = supergraph.field(supergraph.field_named(t, "price").unwrap());
    let [argument] = &price.subgraphs[0].context[..] else { panic!("one argument") };
    assert_eq!((&*argument.name, &*argument.ty), ("currency", "String!"));
    assert_eq!(argument.selections[0].0, u);
    assert!(price.subgraphs[0].requires.is_some(), "the field is fetched by key");
    assert!(!supergraph.api_sdl().contains("context"), "clients do not see it");
    assert_eq!(
        errors(&format!("{JOIN}{}", body.replace("SELECTION", "nope"))),
        ["no type sets the context `a__c` with `{ nope }`"]
    );
}

#[test]
fn an_override_label_decides_which_subgraph_resolves_a_field() {
    let supergraph = read(
        r#"
        enum join__Graph { A @join__graph(name: "a", url: "http://a") B @join__graph(name: "b", url: "http://b") }
        type Query @join__type(graph: A) @join__type(graph: B) {
          x: Int @join__field(graph: A, overrideLabel: "l") @join__field(graph: B, override: "a", overrideLabel: "l")
          y: Int @join__field(graph: B, override: "a", overrideLabel: "percent(5)") @join__field(graph: A)
          z: Int @join__field(graph: B, override: "gone", overrideLabel: "l")
          i: I @join__field(graph: A)
        }
        interface I @join__type(graph: A) @join__type(graph: B) { x: Int }
        type T implements I @join__implements(graph: A, interface: "I") @join__implements(graph: B, interface: "I") @join__type(graph: A, key: "id") @join__type(graph: B, key: "id") {
          id: ID!
          x: Int @join__field(graph: A) @join__field(graph: B, override: "a", overrideLabel: "l")
        }
        "#,
    );
    assert_eq!(supergraph.override_labels, ["l".into(), "percent(5)".into()]);
    let with = |labels: &[usize]| {
        let mut on = graph::OverrideLabels::NONE;
        labels.iter().for_each(|&label| on.insert(label));
        let there = supergraph.with_override_labels(on);
        ["Query.x", "Query.y", "Query.z", "T.x", "I.x"]
            .map(|coordinate| resolved_by(&there, coordinate).join(" "))
    };
    assert_eq!(with(&[]), ["a", "a", "b", "a", "a"]);
    assert_eq!(with(&[0]), ["b", "a", "b", "b", "b"]);
    assert_eq!(with(&[1]), ["a", "b", "b", "a", "a"]);
    let labels: String = (0..=graph::OVERRIDE_LABELS_MAX)
        .map(|n| {
            format!("f{n}: Int @join__field(graph: A, override: \"b\", overrideLabel: \"l{n}\") ")
        })
        .collect();
    let text = format!(
        "{JOIN} enum join__Graph {{ A @join__graph(name: \"a\", url: \"http://a\") }} type Query @join__type(graph: A) {{ {labels} }}"
    );
    assert_eq!(errors(&text), ["there are more than 64 labels of @override"]);
}

#[test]
fn an_interface_object_stands_for_the_implementations() {
    let supergraph = read(
        r#"
        enum join__Graph { A @join__graph(name: "a", url: "http://a") B @join__graph(name: "b", url: "http://b") }
        type Query @join__type(graph: A) @join__type(graph: B) { i: I @join__field(graph: B) }
        interface I @join__type(graph: A, key: "id") @join__type(graph: B, key: "id", isInterfaceObject: true) {
          id: ID!
          name: String @join__field(graph: A) @join__field(graph: B, external: true)
          score: Int @join__field(graph: B)
        }
        type T implements I @join__implements(graph: A, interface: "I") @join__type(graph: A, key: "id") {
          id: ID!
          name: String @join__field(graph: A)
          score: Int @join__field
        }
        "#,
    );
    for (coordinate, expected) in
        [("T.id", "a b"), ("T.name", "a"), ("T.score", "b"), ("I.name", "a"), ("I.score", "b")]
    {
        assert_eq!(resolved_by(&supergraph, coordinate).join(" "), expected, "{coordinate}");
    }
    let [i, t] = ["I", "T"].map(|name| supergraph.type_named(name).unwrap());
    let [a, b] = [0, 1].map(graph::SubgraphId);
    assert!(supergraph.is_interface_object(i, b) && !supergraph.is_interface_object(t, b));
    assert_eq!((supergraph.local_type(t, a), supergraph.local_type(t, b)), (t, i));
    assert_eq!(supergraph.keys_into(t, b).count(), 1);
    let jumps = graph::Jumps::new(&supergraph);
    assert_eq!(names(&supergraph, jumps.reachable(t, SubgraphSet::of(a))), ["a", "b"]);
    assert_eq!(names(&supergraph, jumps.reachable(i, SubgraphSet::of(b))), ["a", "b"]);
}

#[test]
fn no_key_is_needed_for_the_query_root_at_any_position() {
    let supergraph = read(
        r#"
        enum join__Graph { A @join__graph(name: "a", url: "http://a") B @join__graph(name: "b", url: "http://b") }
        type Query @join__type(graph: A) @join__type(graph: B) {
          again: Query @join__field(graph: A)
          b: Int @join__field(graph: B)
        }
        "#,
    );
    let jumps = graph::Jumps::new(&supergraph);
    let a = SubgraphSet::of(graph::SubgraphId(0));
    assert_eq!(names(&supergraph, jumps.reachable(supergraph.query, a)), ["a", "b"]);
}

#[test]
fn the_first_join_version_has_owners_and_value_types() {
    let text = r#"
        schema @core(feature: "https://specs.apollo.dev/core/v0.2") @core(feature: "https://specs.apollo.dev/join/v0.1", for: EXECUTION) { query: Query }
        directive @core(as: String, feature: String!, for: core__Purpose) repeatable on SCHEMA
        directive @join__field(graph: join__Graph, provides: join__FieldSet, requires: join__FieldSet) on FIELD_DEFINITION
        directive @join__graph(name: String!, url: String!) on ENUM_VALUE
        directive @join__owner(graph: join__Graph!) on INTERFACE | OBJECT
        directive @join__type(graph: join__Graph!, key: join__FieldSet) repeatable on INTERFACE | OBJECT
        enum core__Purpose { EXECUTION SECURITY }
        scalar join__FieldSet
        enum join__Graph { A @join__graph(name: "a" url: "http://a") B @join__graph(name: "b" url: "http://b") }
        type Query { user: User @join__field(graph: A) }
        type User @join__owner(graph: A) @join__type(graph: A, key: "id") @join__type(graph: B, key: "id") {
          id: ID! @join__field(graph: A)
          name: String
          score: Score @join__field(graph: B)
        }
        type Score { points: Int }
    "#;
    let supergraph = Supergraph::from_sdl(text, "v0.1.graphql").unwrap();
    assert_eq!(resolved_by(&supergraph, "User.id"), ["a", "b"]);
    assert_eq!(resolved_by(&supergraph, "User.name"), ["a"]);
    assert_eq!(resolved_by(&supergraph, "Score.points"), ["a", "b"]);
}

const EVENTS: &str = r#"
    enum join__Graph { EVENTS @join__graph(name: "events", url: "") P @join__graph(name: "p", url: "http://p") }
    type Query @join__type(graph: EVENTS) @join__type(graph: P) { p: Product @join__field(graph: P) }
    type Product @join__type(graph: EVENTS, key: "id", resolvable: false) @join__type(graph: P, key: "id") {
      id: ID! @join__field(graph: EVENTS, external: true) @join__field(graph: P)
      name: String @join__field(graph: P)
    }
"#;

#[test]
fn an_event_subgraph_is_recognised_by_its_empty_url_and_its_directives() {
    let text = format!(
        r#"schema @link(url: "https://specs.apollo.dev/join/v0.4") {{ query: Query subscription: Subscription mutation: Mutation }}
        {EVENTS}
        type Subscription @join__type(graph: EVENTS) {{
          ticked(id: ID!): Product @join__directive(graphs: [EVENTS], name: "edfs__natsSubscribe", args: {{subjects: ["t.{{{{ args.id }}}}"], providerId: "default"}})
        }}
        type Mutation @join__type(graph: EVENTS) {{
          tick(id: ID!): edfs__PublishResult! @join__directive(graphs: [EVENTS], name: "events__publish", args: {{topic: "t"}})
        }}
        input openfed__SubscriptionFieldCondition {{ fieldPath: String! values: [String!]! }}
        type edfs__PublishResult @join__type(graph: EVENTS) {{ success: Boolean! }}"#
    );
    let supergraph = Supergraph::from_sdl(&text, "events.graphql").unwrap();
    assert_eq!(supergraph.subgraphs[0].kind, SubgraphKind::Events);
    assert!(supergraph.api_sdl().contains("type edfs__PublishResult"));
    assert!(!supergraph.api_sdl().contains("openfed__"), "composition machinery is hidden");
    assert_eq!(resolved_by(&supergraph, "Product.id"), ["events", "p"]);
    let ticked = supergraph.field_named(supergraph.subscription.unwrap(), "ticked").unwrap();
    let directive = &supergraph.field(ticked).directives[0];
    assert_eq!(&*directive.name, "edfs__natsSubscribe");
    assert!(directive.argument("subjects").is_some());
    assert!(supergraph.with_urls(&std::collections::HashMap::new()).is_ok());
}

#[test]
fn event_directives_kept_by_composition_bind_fields_and_are_hidden_from_clients() {
    let text = format!(
        r#"schema
          @link(url: "https://specs.apollo.dev/join/v0.4")
          @link(url: "https://starling.example/events/v1.0", import: [{{name: "@subscribe", as: "@events__subscribe"}}])
        {{ query: Query subscription: Subscription }}
        {EVENTS}
        scalar events__Any
        directive @events__subscribe(topics: [String!]!, providerId: String, authorize: events__Any) on FIELD_DEFINITION
        type Subscription @join__type(graph: EVENTS) {{
          ticked: Product @events__subscribe(topics: ["t"], authorize: {{claim: "sub", EXISTS: true}})
        }}"#
    );
    let supergraph = Supergraph::from_sdl(&text, "events.graphql").unwrap();
    assert_eq!(supergraph.subgraphs[0].kind, SubgraphKind::Events);
    let ticked = supergraph.field_named(supergraph.subscription.unwrap(), "ticked").unwrap();
    let directive = &supergraph.field(ticked).directives[0];
    assert_eq!(&*directive.name, "events__subscribe");
    assert!(directive.argument("authorize").is_some());
    assert!(!supergraph.api_sdl().contains("events__"), "{}", supergraph.api_sdl());
}

#[test]
fn event_directives_are_allowed_on_root_fields_of_event_subgraphs_only() {
    let text = format!(
        r#"schema {{ query: Query subscription: Subscription }}
        {EVENTS}
        type Subscription @join__type(graph: EVENTS) @join__type(graph: P) {{
          a: Product @join__field(graph: P) @join__directive(graphs: [P], name: "edfs__natsSubscribe", args: {{subjects: ["t"]}})
          b: Product @join__field(graph: EVENTS) @join__directive(graphs: [EVENTS], name: "events__publish", args: {{topic: "t"}})
          c: Product @join__field(graph: EVENTS)
        }}"#
    );
    assert_eq!(
        errors(&text),
        [
            "`@edfs__natsSubscribe` on `Subscription.a` is applied in subgraph `p`, which has a server",
            "`@events__publish` is applied to `Subscription.b`",
            "`Subscription.c` is a root field of event subgraph `events` but is bound to no topic",
        ]
    );
}

#[test]
fn a_subgraph_without_url_needs_one_from_the_configuration() {
    let body = r#"
        enum join__Graph { A @join__graph(name: "a", url: "") }
        type Query @join__type(graph: A) { x: Int }
    "#;
    let error = read(body).with_urls(&std::collections::HashMap::new()).unwrap_err();
    assert_eq!(error.0[0].message, "subgraph `a` has no URL");
    let urls = [("a".to_owned(), "http://a".to_owned())].into_iter().collect();
    assert_eq!(&*read(body).with_urls(&urls).unwrap().subgraphs[0].url, "http://a");
}

/// Returns a graph with one subgraph. Its entry in `enum join__Graph` has these directives.
fn graph_with_entry(directives: &str) -> String {
    format!(
        r#"{JOIN}
        enum join__Graph {{ REVIEWS @join__graph(name: "reviews", url: "http://reviews/") {directives} }}
        type Query @join__type(graph: REVIEWS) {{ reviews: Int }}"#
    )
}

#[test]
fn the_subscription_endpoint_of_a_subgraph_is_read_beside_its_url() {
    let endpoint = |directives: &str| {
        let text = graph_with_entry(directives);
        let mut read = Supergraph::from_sdl(&text, "test.graphql").unwrap();
        assert!(!read.api_sdl().contains("starling"), "{}", read.api_sdl());
        read.subgraphs.remove(0).subscription
    };
    let expected = |protocol: Option<&str>, url: Option<&str>| {
        Some(SubscriptionEndpoint { protocol: protocol.map(Into::into), url: url.map(Into::into) })
    };
    assert_eq!(endpoint(""), None);
    assert_eq!(endpoint("@starling__subscription"), expected(None, None));
    for protocol in SUBSCRIPTION_PROTOCOLS {
        let directive = format!("@starling__subscription(protocol: \"{protocol}\")");
        assert_eq!(endpoint(&directive), expected(Some(protocol), None));
    }
    for url in ["ws://r:1/", "wss://r/a?b=c", "http://r/", "https://r/", "unix:///r.sock?path=/a"] {
        let directive = format!("@starling__subscription(url: \"{url}\")");
        assert_eq!(endpoint(&directive), expected(None, Some(url)));
    }
}

#[test]
fn a_wrong_subscription_endpoint_is_an_error_at_its_place() {
    for (arguments, message) in [
        (r#"protocol: "sse_post""#, "`sse_post` is not a protocol of subscriptions"),
        (
            r#"url: "reviews/?key=hunter2""#,
            "the URL of subscriptions is wrong: it does not begin with `ws://`, `wss://`, `http://`, `https://` or \
             `unix://`",
        ),
        (r#"url: "ws:///graphql""#, "the URL of subscriptions is wrong: the host is missing"),
        (
            r#"url: "unix://r.sock""#,
            "the URL of subscriptions is wrong: the absolute path of the socket is missing after `unix://`",
        ),
        (
            r#"url: "wss://me:hunter2@reviews/""#,
            "the URL of subscriptions is wrong: it contains credentials, which would reach logs",
        ),
        (
            r#"protocol: "multipart", url: "wss://reviews/""#,
            "the URL of subscriptions is wrong: it is the URL of a WebSocket, and the protocol works over HTTP",
        ),
    ] {
        let text = graph_with_entry(&format!("@starling__subscription({arguments})"));
        let found = Supergraph::from_sdl(&text, "test.graphql").unwrap_err().0;
        let [error] = &found[..] else { panic!("{found:?}") };
        assert_eq!(error.message, message);
        let span = error.span.expect("the place of the argument");
        let marked = &text[span.start..span.end];
        assert!(marked.starts_with('"') && arguments.ends_with(marked), "{marked}");
    }
    let found = errors(&graph_with_entry("@starling__subscription(protocol: 5)"));
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn a_plain_schema_is_refused_with_an_explanation_of_supergraphs() {
    assert_eq!(
        errors("type Query @key(fields: \"x\") { x: Int }"),
        ["this is not a supergraph: it has no `enum join__Graph` that lists subgraphs"]
    );
}

#[test]
fn several_errors_are_reported_at_once_with_their_positions() {
    let text = format!(
        "{JOIN}{}",
        r#"
        enum join__Graph { A @join__graph(name: "a", url: "http://a") }
        type Query @join__type(graph: A) { p: P @join__field(graph: A, provides: "nope") q(a: Int): P @join__field(graph: A, type: "[") }
        type P @join__type(graph: A, key: "id {") @join__type(graph: A, key: "name") { id: ID! }
        "#
    );
    let Err(found) = Supergraph::from_sdl(&text, "t.graphql") else {
        panic!("the schema was accepted")
    };
    let messages: Vec<_> = found.0.iter().map(|error| &*error.message).collect();
    assert_eq!(messages.len(), 4, "{messages:#?}");
    assert_eq!(messages[0], "`provides: \"nope\"` cannot be read: type `P` has no field `nope`");
    assert_eq!(messages[1], "`[` is not a type");
    assert!(
        messages[2].starts_with("`key: \"id {\"` cannot be read: syntax error"),
        "{messages:?}"
    );
    let span = found.0[0].span.unwrap();
    assert_eq!(&text[span.start..span.end], "\"nope\"");
    assert_eq!(span.line, 5);
}

#[test]
fn required_features_that_are_not_supported_are_refused() {
    let text = r#"
        schema @link(url: "https://specs.apollo.dev/join/v0.9") @link(url: "https://specs.apollo.dev/secrecy/v0.1", for: SECURITY) { query: Query }
        enum join__Graph { A @join__graph(name: "a", url: "http://a") }
        type Query @join__type(graph: A) { x: Int }
    "#;
    assert_eq!(
        errors(text),
        [
            "version 0.9 of the join specification is not supported",
            "the schema needs `https://specs.apollo.dev/secrecy/v0.1` for SECURITY, which is not supported yet",
        ]
    );
}

/// A supergraph with one type, whose fields and directives are `fields` and `directives`, and further links.
fn protected(links: &str, directives: &str, fields: &str) -> String {
    format!(
        r#"
        schema @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION) {links} {{ query: Query }}
        enum join__Graph {{ A @join__graph(name: "a", url: "http://a") }}
        type Query @join__type(graph: A) {{ user: User other: Int }}
        type User @join__type(graph: A) {directives} {{ {fields} }}
    "#
    )
}

/// Returns the requirements of the graph, and those of each field that has some.
fn requirements(text: &str) -> (Vec<String>, Vec<String>) {
    let graph = Supergraph::from_sdl(text, "t.graphql").expect("the schema is valid");
    let all: Vec<String> = graph.access.requirements.iter().map(ToString::to_string).collect();
    let fields = (0..graph.fields.len() as u32).map(FieldId).filter_map(|id| {
        let requirements = graph.access.of_field(id);
        let field = graph.field(id);
        let name = format!("{}.{}", graph.ty(field.parent).name, field.name);
        (!requirements.is_empty()).then(|| format!("{name} {requirements:?}"))
    });
    let fields = fields.collect();
    (all, fields)
}

#[test]
fn requirements_of_fields_include_those_of_their_types() {
    let links = r#"
        @link(url: "https://specs.apollo.dev/authenticated/v0.1", import: [{name: "@authenticated", as: "@login"}], for: SECURITY)
        @link(url: "https://specs.apollo.dev/requiresScopes/v0.1", as: "scoped", for: SECURITY)
    "#;
    let fields = r#"
        id: ID
        email: String @scoped(scopes: [["b", "a", "a"], ["c"]])
        phone: String @scoped(scopes: [["c"], ["a", "b"]]) @login
    "#;
    let definitions = "
        directive @login on FIELD_DEFINITION | OBJECT
        directive @scoped(scopes: [[scoped__Scope!]!]!) on FIELD_DEFINITION | OBJECT
        scalar scoped__Scope
    ";
    let text = protected(links, "@login", fields) + definitions;
    let (all, fields) = requirements(&text);
    let scopes = r#"@requiresScopes(scopes: [["a", "b"], ["c"]])"#;
    assert_eq!(all, ["@authenticated", scopes], "equal requirements are one");
    assert_eq!(fields, ["Query.user [0]", "User.email [1]", "User.phone [0, 1]"]);
}

#[test]
fn authorization_directives_are_enforced_without_a_link_too() {
    let fields =
        r#"id: ID @authenticated name: String @policy(name: "a directive of the user's own")"#;
    let definition = "directive @policy(name: String) on FIELD_DEFINITION";
    let (all, fields) = requirements(&(protected("", "", fields) + definition));
    assert_eq!((all, fields), (vec!["@authenticated".to_owned()], vec!["User.id [0]".to_owned()]));
    let links = r#"@link(url: "https://example.com/other/v1.0", import: ["@authenticated"])"#;
    let (all, _) = requirements(&protected(links, "", "id: ID @authenticated"));
    assert_eq!(all, [] as [String; 0], "the directive is that of another feature");
}

#[test]
fn requirements_that_cannot_be_read_are_errors() {
    let link = r#"@link(url: "https://specs.apollo.dev/requiresScopes/v0.1", for: SECURITY)"#;
    for scopes in ["[[1]]", "[[\"\"]]", "[[[\"a\"]]]", "[{a: 1}]"] {
        let found =
            errors(&protected(link, "", &format!("id: ID @requiresScopes(scopes: {scopes})")));
        assert!(
            found.iter().any(|it| it.contains("is not a list of lists of names")),
            "{scopes}: {found:?}"
        );
    }
}

#[test]
fn unknown_subgraphs_and_too_many_are_errors() {
    let text = r#"
        schema @link(url: "https://specs.apollo.dev/join/v0.3") { query: Query }
        enum join__Graph { A @join__graph(name: "a", url: "http://a") }
        type Query @join__type(graph: B) { x: Int @join__field(graph: C) }
    "#;
    let found = errors(text);
    assert!(found.iter().any(|message| message.contains('B')), "{found:?}");
    let graphs: String = (0..=graph::SUBGRAPHS_MAX)
        .map(|n| format!("G{n} @join__graph(name: \"g{n}\", url: \"http://g\") "))
        .collect();
    let text = format!("enum join__Graph {{ {graphs} }} type Query {{ x: Int }}");
    assert_eq!(errors(&text), ["there are more than 256 subgraphs"]);
}

#[test]
fn a_schema_without_query_is_an_error() {
    let text =
        "enum join__Graph { A @join__graph(name: \"a\", url: \"http://a\") } type P { x: Int }";
    assert_eq!(errors(text), ["the schema has no query root"]);
}

#[test]
fn damaged_texts_never_panic() {
    // Truncations and replacements of single bytes at a fixed stride: cheap and deterministic.
    let stride = 101;
    for cut in (0..BENCHMARK.len()).step_by(stride) {
        let _ = Supergraph::from_sdl(&BENCHMARK[..cut], "cut.graphql");
        for replacement in ["{", "\"", "@", "join__Graph", "\u{fffd}", "0"] {
            let mut text = BENCHMARK.to_owned();
            text.replace_range(cut..cut + 1, replacement);
            let _ = Supergraph::from_sdl(&text, "changed.graphql");
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

    /// Arranges plausible pieces in any order: most texts get past the parser and into the reader.
    #[test]
    fn no_arrangement_of_supergraph_parts_panics(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..24),
    ) {
        let text = pieces.concat();
        if let Err(errors) = Supergraph::from_sdl(&text, "pieces.graphql") {
            assert!(!errors.0.is_empty(), "a refusal has a reason");
            for span in errors.0.iter().filter_map(|error| error.span) {
                assert!(text.get(span.start..span.end).is_some(), "spans lie in the text");
            }
        }
    }
}

const PIECES: &[&str] = &[
    "schema @link(url: \"https://specs.apollo.dev/join/v0.5\", for: EXECUTION) { query: Query }\n",
    "schema @link(url: \"https://specs.apollo.dev/join/v0.1\", as: \"j\") { query: Query mutation: M }\n",
    "enum join__Graph { A @join__graph(name: \"a\", url: \"\") B @join__graph(name: \"b\", url: \"http://b\") }\n",
    "enum j__Graph { A }\n",
    "type Query @join__type(graph: A) @join__type(graph: B) { ",
    "type T implements I & J @join__implements(graph: A, interface: \"I\") @join__type(graph: A, key: \"id\") { id: ID! ",
    "interface I @join__type(graph: A, key: \"id\", isInterfaceObject: true) { id: ID! ",
    "union U @join__type(graph: A) @join__unionMember(graph: A, member: \"T\") = T | Query\n",
    "type M { ",
    "subscription: T @join__directive(graphs: [A], name: \"edfs__natsSubscribe\", args: {subjects: [\"x\"]}) ",
    "p: T @join__directive(graphs: [A, C], name: \"events__publish\") ",
    "f: T @join__field(graph: A, requires: \"g { x ... on T { id } }\", provides: \"id f { id }\") ",
    "g: [U!]! @join__field(graph: B, external: true) @join__field(graph: A, override: \"b\", type: \"[T]\") ",
    "h(a: In = {x: [1, 2.5, \"s\", E]}): I @join__field @inaccessible ",
    "input In { x: In ",
    "scalar S @inaccessible @specifiedBy(url: \"http://s\")\n",
    "x: S\n",
    "} ",
    "} ",
    "} ",
    "\"\"\" text \"\"\"",
    "{ ",
    "# é\u{1F600}\n",
    "extend type Query { more: Int }\n",
];

/// Returns the message and the advice for a text that is refused for one reason.
fn advice(text: &str) -> (String, String) {
    match Supergraph::from_sdl(text, "test.graphql") {
        Ok(_) => panic!("the schema was accepted"),
        Err(errors) => match &errors.0[..] {
            [error] => (error.message.clone(), error.help.clone().unwrap_or_default()),
            several => panic!("{several:?}"),
        },
    }
}

#[test]
fn the_json_of_another_router_is_recognised() {
    let cosmo = r#"
      {"engineConfig": {"defaultFlushInterval": "500", "datasourceConfigurations": []},
       "version": "1", "subgraphs": [{"id": "0", "name": "reviews"}]}"#;
    let (message, help) = advice(cosmo);
    assert!(message.contains("Cosmo's router"), "{message}");
    assert!(help.contains("supergraph SDL"), "{help}");
    let (message, _) = advice("\u{feff}{\"data\": {}}");
    assert_eq!(message, "this is JSON, not a supergraph in SDL");
}

#[test]
fn the_advice_for_an_unsupported_security_feature_warns_of_exposed_fields() {
    let linked = |purpose: &str| {
        format!(
            r#"schema @link(url: "https://specs.apollo.dev/link/v1.0")
                 @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
                 @link(url: "https://example.com/guarded/v0.1", for: {purpose}) {{ query: Query }}
               enum join__Graph {{ A @join__graph(name: "a", url: "http://a") }}
               type Query @join__type(graph: A) {{ a: Int }}"#
        )
    };
    let (_, help) = advice(&linked("SECURITY"));
    assert!(help.contains("would expose them to every client"), "{help}");
    let (_, help) = advice(&linked("EXECUTION"));
    assert!(!help.contains("expose"), "{help}");
}
