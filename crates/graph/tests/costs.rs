//! Reading `@cost` and `@listSize`.

use graph::{FieldCosts, ListSize, SchemaErrors, Supergraph, Weight};

/// Reads a supergraph with this link of the cost specification, definitions and types.
fn read(link: &str, body: &str) -> Result<Supergraph, SchemaErrors> {
    let text = format!(
        r#"schema
             @link(url: "https://specs.apollo.dev/link/v1.0")
             @link(url: "https://specs.apollo.dev/join/v0.5", for: EXECUTION)
             {link} {{ query: Query }}
           enum join__Graph {{ A @join__graph(name: "a", url: "http://a") }}
           {body}"#
    );
    Supergraph::from_sdl(&text, "test.graphql")
}

const DEFINITIONS: &str = r#"
  directive @cost(weight: String!) on ARGUMENT_DEFINITION | ENUM | FIELD_DEFINITION | INPUT_FIELD_DEFINITION | OBJECT | SCALAR
  directive @listSize(assumedSize: Int, slicingArguments: [String!], sizedFields: [String!], requireOneSlicingArgument: Boolean = true) on FIELD_DEFINITION
"#;

fn field_costs(graph: &Supergraph, coordinate: &str) -> FieldCosts {
    let (ty, field) = coordinate.split_once('.').expect("Type.field");
    let ty = graph.type_named(ty).expect("a known type");
    let field = graph.field_named(ty, field).expect("a known field");
    let costs = graph.costs.as_ref().expect("the supergraph has costs");
    costs.fields.get(&field).cloned().unwrap_or_default()
}

#[test]
fn a_supergraph_without_the_directives_has_no_table_of_costs() {
    let graph = read("", "type Query @join__type(graph: A) { a: Int }").expect("a supergraph");
    assert!(graph.costs.is_none());
}

#[test]
fn weights_and_list_sizes_are_read_under_their_names_in_the_supergraph() {
    let link = r#"@link(url: "https://specs.apollo.dev/cost/v0.1", import: [{name: "@cost", as: "@weight"}, {name: "@listSize", as: "@size"}])"#;
    let graph = read(
        link,
        r#"
        directive @weight(weight: Int!) on ARGUMENT_DEFINITION | ENUM | FIELD_DEFINITION | INPUT_FIELD_DEFINITION | OBJECT | SCALAR
        directive @size(assumedSize: Int, slicingArguments: [String!], sizedFields: [String!], requireOneSlicingArgument: Boolean = true) on FIELD_DEFINITION
        type Query @join__type(graph: A) {
          a(first: Int @weight(weight: 3), f: F): [T] @weight(weight: 2)
            @size(assumedSize: 4, slicingArguments: ["first", "f.n"], sizedFields: ["b.c"], requireOneSlicingArgument: false)
        }
        type T @join__type(graph: A) @weight(weight: 5) { b: U }
        type U @join__type(graph: A) { c: [Int] }
        input F @join__type(graph: A) { n: Int @weight(weight: 7) }
        "#,
    )
    .expect("a supergraph");
    let path = |steps: &[&str]| steps.iter().map(|&step| step.into()).collect::<Vec<_>>();
    let expected = FieldCosts {
        weight: Some(Weight(2_000)),
        arguments: vec![("first".into(), Weight(3_000))],
        list_size: Some(ListSize {
            assumed_size: Some(4),
            slicing_arguments: vec![path(&["first"]), path(&["f", "n"])],
            sized_fields: vec![path(&["b", "c"])],
            takes_one_argument: false,
        }),
    };
    assert_eq!(field_costs(&graph, "Query.a"), expected);
    let costs = graph.costs.as_ref().expect("costs");
    let ty = |name: &str| graph.type_named(name).expect("a known type");
    assert_eq!(costs.types[&ty("T")], Weight(5_000));
    assert_eq!(costs.input_fields[&ty("F")], [("n".into(), Weight(7_000))]);
    assert_eq!(costs.ignored, [""; 0]);
    // The directives are read, so they are not kept as unknown ones.
    let query = graph.field_named(graph.query, "a").expect("a known field");
    assert_eq!(graph.field(query).directives, []);
    assert!(!graph.api_sdl().contains("size"), "{}", graph.api_sdl());
}

#[test]
fn a_weight_that_is_not_a_number_and_a_negative_size_are_errors_at_their_places() {
    let body = format!(
        r#"{DEFINITIONS}
        type Query @join__type(graph: A) {{
          a: Int @cost(weight: "dear")
          b: [Int] @listSize(assumedSize: -1)
          c: Int @cost(weight: "1e300")
        }}"#
    );
    let errors = read("", &body).expect_err("weights are numbers").0;
    let messages: Vec<_> = errors.iter().map(|error| &*error.message).collect();
    assert_eq!(
        messages,
        [
            "the weight of `@cost` is not a number up to a billion",
            "the assumed size of `@listSize` is negative",
            "the weight of `@cost` is not a number up to a billion",
        ]
    );
    assert!(errors.iter().all(|error| error.span.is_some() && error.help.is_some()), "{errors:?}");
}

#[test]
fn names_that_composition_may_have_dropped_are_ignored() {
    let body = format!(
        r#"{DEFINITIONS}
        type Query @join__type(graph: A) {{
          a(first: Int): [T] @listSize(slicingArguments: ["first", "last", "first.n"], sizedFields: ["b", "c.d", ""])
        }}
        type T @join__type(graph: A) {{ b: [Int] }}"#
    );
    let graph = read("", &body).expect("a supergraph");
    let size = field_costs(&graph, "Query.a").list_size.expect("a list size");
    assert_eq!(size.slicing_arguments, [vec![Box::from("first")]]);
    assert_eq!(size.sized_fields, [vec![Box::from("b")]]);
    assert!(size.takes_one_argument);
    assert_eq!(
        graph.costs.as_ref().expect("costs").ignored,
        [
            "Query.a has no argument `last`",
            "Query.a has no argument `first.n`",
            "T, of Query.a, has no field `c.d`",
        ]
    );
}
