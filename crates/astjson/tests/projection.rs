//! Projection, by example and against a naive model.

#![allow(clippy::unwrap_used)]

use astjson::{
    Accepts, Document, FieldSource, Kind, LeafCheck, NodeId, Projected, ProjectedField,
    ProjectedObject, Projection, ProjectionErrorKind, Projector, ResultPathSegment, Shape,
    ShapeSpec,
};
use proptest::prelude::*;
use serde_json::{Map, Value};

fn leaf(nullable: bool, accepts: Accepts) -> Projected {
    Projected::Leaf { nullable, accepts }
}

fn list(nullable: bool, of: Projected) -> Projected {
    Projected::List { nullable, of: Box::new(of) }
}

fn field(key: &str, value: Projected) -> ProjectedField {
    ProjectedField { key: key.into(), source: FieldSource::Member(key.into()), value }
}

fn object(nullable: bool, fields: Vec<ProjectedField>) -> Projected {
    Projected::Object { nullable, object: ProjectedObject { fields, alternatives: vec![] } }
}

/// What is printed, and an error per line.
fn projected(text: &str, root: &Projected) -> (String, Vec<String>) {
    let mut doc = Document::new();
    let n = doc.parse(text.to_owned()).unwrap();
    run(&doc, n, root, &())
}

fn run(
    doc: &Document,
    n: NodeId,
    root: &Projected,
    check: &impl LeafCheck,
) -> (String, Vec<String>) {
    let mut projector = Projector::new();
    let mut out = b"[1,".to_vec();
    projector.project(doc, Some(n), &Projection::new(root).unwrap(), check, &mut out);
    let errors = projector.errors().iter().map(|error| {
        let path = error.path.iter().map(|step| match step {
            ResultPathSegment::Key(key) => format!("/{key}"),
            ResultPathSegment::Index(i) => format!("/{i}"),
        });
        format!("{}: {}", path.collect::<String>(), error.kind)
    });
    let errors = errors.collect();
    (String::from_utf8(out).unwrap().strip_prefix("[1,").unwrap().to_owned(), errors)
}

#[test]
fn fields_are_printed_in_the_order_and_under_the_keys_of_the_projection() {
    let mut fields = vec![
        field("b", leaf(true, Accepts::Any)),
        ProjectedField {
            key: "say \"A\"".into(),
            source: FieldSource::Member("a".into()),
            value: leaf(false, Accepts::Integer32),
        },
        field("a", leaf(false, Accepts::Integer32)),
        field("missing", leaf(true, Accepts::String)),
    ];
    fields.push(ProjectedField {
        key: "type".into(),
        source: FieldSource::Constant("\"T\"".into()),
        value: leaf(false, Accepts::Any),
    });
    let (out, errors) =
        projected(r#"{"a":1,"x":[],"b":{"c":[1.50,"\u0041"]},"a":2}"#, &object(false, fields));
    assert_eq!(out, r#"{"b":{"c":[1.50,"\u0041"]},"say \"A\"":2,"a":2,"missing":null,"type":"T"}"#);
    assert_eq!(errors, Vec::<String>::new());
}

#[test]
fn null_goes_up_to_the_nearest_place_that_may_be_null() {
    let item = |nullable| {
        object(
            nullable,
            vec![
                field("id", leaf(false, Accepts::StringOrInteger)),
                field("n", leaf(true, Accepts::Integer32)),
            ],
        )
    };
    let root = |list_nullable, item_nullable| {
        object(
            true,
            vec![
                field("before", leaf(true, Accepts::Any)),
                field("list", list(list_nullable, item(item_nullable))),
                field("after", leaf(true, Accepts::Any)),
            ],
        )
    };
    let text = r#"{"before":1,"list":[{"id":"a","n":1},{"id":null,"n":2},{"n":3},{"id":4,"n":5}],"after":6}"#;
    let (out, errors) = projected(text, &root(true, true));
    assert_eq!(out, r#"{"before":1,"list":[{"id":"a","n":1},null,null,{"id":4,"n":5}],"after":6}"#);
    assert_eq!(
        errors,
        ["/list/1/id: null where a value must be", "/list/2/id: null where a value must be"]
    );
    let (out, errors) = projected(text, &root(true, false));
    assert_eq!(out, r#"{"before":1,"list":null,"after":6}"#);
    assert_eq!(errors, ["/list/1/id: null where a value must be"]);
    let (out, errors) = projected(text, &root(false, false));
    assert_eq!(out, "null");
    assert_eq!(errors, ["/list/1/id: null where a value must be"]);
}

#[test]
fn leaves_of_the_wrong_kind_become_null_with_an_error() {
    let names: std::sync::Arc<[Box<str>]> = ["RED".into(), "BLUE".into()].into();
    let cases: [(Accepts, &str, &[&str], &[&str]); 7] = [
        (Accepts::String, "a string", &["\"x\"", "\"\\n\""], &["1", "true", "[]", "{}"]),
        (Accepts::Boolean, "a boolean", &["true", "false"], &["1", "\"true\""]),
        (Accepts::Number, "a number", &["1", "-1.5e300"], &["\"1\"", "true"]),
        (
            Accepts::Integer32,
            "an int",
            &["0", "-2147483648", "2147483647"],
            &["2147483648", "1.0", "1e3", "\"1\""],
        ),
        (Accepts::StringOrInteger, "an id", &["\"1\"", "12345678901234567890"], &["1.5", "true"]),
        (Accepts::OneOf(names), "a colour", &["\"RED\"", "\"\\u0042LUE\""], &["\"GREEN\"", "1"]),
        (Accepts::Any, "anything", &["1", "[{}]", "{\"a\":1}"], &[]),
    ];
    for (accepts, _, good, bad) in cases {
        let root = object(false, vec![field("x", leaf(true, accepts))]);
        for text in good {
            let text = format!("{{\"x\":{text}}}");
            assert_eq!(projected(&text, &root), (text, vec![]));
        }
        for text in bad {
            let (out, errors) = projected(&format!("{{\"x\":{text}}}"), &root);
            assert_eq!((out.as_str(), errors.len()), ("{\"x\":null}", 1), "{text}");
        }
    }
}

#[test]
fn custom_leaves_are_decided_by_the_caller() {
    struct Even;
    impl LeafCheck for Even {
        fn accepts(&self, number: u32, document: &Document, n: NodeId) -> bool {
            number == 7 && document.kind(n) == Kind::Number && document.as_i64(n).unwrap() % 2 == 0
        }
    }
    let mut doc = Document::new();
    let root = doc.parse("[2,3,4]").unwrap();
    let (out, errors) = run(&doc, root, &list(false, leaf(true, Accepts::Custom(7))), &Even);
    assert_eq!(
        (out.as_str(), errors),
        ("[2,null,4]", vec!["/1: a number is not what must be here".to_owned()])
    );
}

#[test]
fn the_type_name_selects_the_fields() {
    let root = list(
        false,
        Projected::Object {
            nullable: true,
            object: ProjectedObject {
                fields: vec![field("__typename", leaf(false, Accepts::String))],
                alternatives: vec![
                    ("Book".into(), vec![field("pages", leaf(true, Accepts::Any))]),
                    ("Film".into(), vec![field("length", leaf(true, Accepts::Any))]),
                ],
            },
        },
    );
    let (out, errors) = projected(
        r#"[{"__typename":"Book","pages":1},{"length":2,"__typename":"\u0046ilm"},{"__typename":"Song"},{}]"#,
        &root,
    );
    assert_eq!(out, r#"[{"pages":1},{"length":2},{"__typename":"Song"},null]"#);
    assert_eq!(errors, ["/3/__typename: null where a value must be"]);
}

#[test]
fn a_projection_that_is_too_deep_is_refused() {
    let mut deep = leaf(true, Accepts::Any);
    for _ in 0..1000 {
        deep = list(true, deep);
    }
    assert!(Projection::new(&deep).is_err());
}

#[test]
fn errors_are_noted_up_to_a_bound() {
    let text = format!("[{}1]", "1,".repeat(if cfg!(miri) { 1100 } else { 5000 }));
    let mut doc = Document::new();
    let root = doc.parse(text).unwrap();
    let mut projector = Projector::new();
    let projection = Projection::new(&list(false, leaf(true, Accepts::String))).unwrap();
    projector.project(&doc, Some(root), &projection, &(), &mut Vec::new());
    assert_eq!(projector.errors().len(), astjson::PROJECTION_ERRORS_MAX);
    assert_eq!(projector.take_errors()[0].kind, ProjectionErrorKind::WrongLeaf(Kind::Number));
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-c\"]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-c]", inner.clone()), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
            ("[AB]", inner)
                .prop_map(|(name, a)| serde_json::json!({"a": a, "__typename": name, "b": 1})),
        ]
    })
}

fn projection() -> impl Strategy<Value = Projected> {
    let accepts = prop::sample::select(vec![
        Accepts::Any,
        Accepts::Any,
        Accepts::String,
        Accepts::Boolean,
        Accepts::Number,
        Accepts::StringOrInteger,
        Accepts::OneOf(["a".into(), "b".into()].into()),
    ]);
    let leaf = (any::<bool>(), accepts).prop_map(|(nullable, accepts)| leaf(nullable, accepts));
    leaf.prop_recursive(5, 40, 4, |inner| {
        let fields = {
            let inner = inner.clone();
            move || {
                prop::collection::vec(("[a-c]", "[a-d]", inner.clone()), 0..4).prop_map(|fields| {
                    let mut unique: Vec<ProjectedField> = Vec::new();
                    for (key, source, value) in fields {
                        if unique.iter().all(|field| *field.key != *key) {
                            let source = FieldSource::Member(source.into());
                            unique.push(ProjectedField { key: key.into(), source, value });
                        }
                    }
                    unique
                })
            }
        };
        prop_oneof![
            (any::<bool>(), inner).prop_map(|(nullable, of)| list(nullable, of)),
            (prop::bool::weighted(0.7), fields(), prop::option::of(fields())).prop_map(
                |(nullable, fields, other)| {
                    let alternatives = other.map(|fields| ("A".into(), fields));
                    let alternatives = alternatives.into_iter().collect();
                    Projected::Object { nullable, object: ProjectedObject { fields, alternatives } }
                }
            ),
        ]
    })
}

/// The model. Notes a path for every error.
fn model(
    value: &Value,
    spec: &Projected,
    path: &str,
    errors: &mut Vec<String>,
) -> Result<Value, ()> {
    let (nullable, result) = match (spec, value) {
        (
            Projected::Leaf { nullable, .. }
            | Projected::List { nullable, .. }
            | Projected::Object { nullable, .. },
            Value::Null,
        ) => {
            if !nullable {
                errors.push(path.to_owned());
            }
            (*nullable, Err(()))
        }
        (Projected::Leaf { nullable, accepts }, value) => {
            let accepted = match accepts {
                Accepts::Any => true,
                Accepts::String => value.is_string(),
                Accepts::Boolean => value.is_boolean(),
                Accepts::Number => value.is_number(),
                Accepts::StringOrInteger => value.is_string() || value.is_number(),
                Accepts::OneOf(names) => {
                    value.as_str().is_some_and(|s| names.iter().any(|name| **name == *s))
                }
                _ => unreachable!(),
            };
            if !accepted {
                errors.push(path.to_owned());
            }
            (*nullable, accepted.then(|| value.clone()).ok_or(()))
        }
        (Projected::List { nullable, of }, Value::Array(array)) => {
            let elements = array.iter().enumerate();
            let elements =
                elements.map(|(i, element)| model(element, of, &format!("{path}/{i}"), errors));
            (*nullable, elements.collect::<Result<Vec<_>, ()>>().map(Value::from))
        }
        (Projected::Object { nullable, object }, Value::Object(members)) => {
            let mut fields = &object.fields;
            for (name, chosen) in &object.alternatives {
                if members.get("__typename") == Some(&Value::from(&**name)) {
                    fields = chosen;
                }
            }
            let printed = fields.iter().map(|field| {
                let FieldSource::Member(source) = &field.source else { unreachable!() };
                let member = members.get(&**source).unwrap_or(&Value::Null);
                let value = model(member, &field.value, &format!("{path}/{}", field.key), errors)?;
                Ok((field.key.to_string(), value))
            });
            (*nullable, printed.collect::<Result<Map<_, _>, ()>>().map(Value::from))
        }
        (Projected::List { nullable, .. } | Projected::Object { nullable, .. }, _) => {
            errors.push(path.to_owned());
            (*nullable, Err(()))
        }
    };
    if nullable { Ok(result.unwrap_or(Value::Null)) } else { result }
}

/// A shape that knows some of what the projection reads.
fn shape_of(spec: &Projected) -> ShapeSpec {
    match spec {
        Projected::Leaf { .. } => ShapeSpec::Any,
        Projected::List { of, .. } => shape_of(of),
        Projected::Object { object, .. } => {
            let fields = object
                .fields
                .iter()
                .chain(object.alternatives.iter().flat_map(|(_, fields)| fields));
            let fields = fields.filter_map(|field| match &field.source {
                // Some are left to be found among the others.
                FieldSource::Member(key) if **key != *"c" => {
                    Some((key.clone(), shape_of(&field.value)))
                }
                _ => None,
            });
            let ShapeSpec::Object(mut spec) = ShapeSpec::object(fields) else { unreachable!() };
            spec.others = astjson::Others::Keep;
            ShapeSpec::Object(spec)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "making up values takes Miri minutes; the examples above go the same ways")]
    fn projecting_equals_the_model(value in json(), spec in projection(), shaped: bool) {
        let mut doc = Document::new();
        let root = if shaped {
            doc.parse_shaped(value.to_string(), &Shape::new(&shape_of(&spec))).unwrap()
        } else {
            doc.parse(value.to_string()).unwrap()
        };
        let (out, errors) = run(&doc, root, &spec, &());
        let mut expected_errors = Vec::new();
        let expected = model(&value, &spec, "", &mut expected_errors).unwrap_or(Value::Null);
        prop_assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), expected);
        let paths: Vec<_> = errors.iter().map(|error| error.split(':').next().unwrap()).collect();
        prop_assert_eq!(paths, expected_errors);
    }
}
