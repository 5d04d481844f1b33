//! The documents and jobs that astjson is measured with. Shared by the `compare` example, the
//! benches and the test that counts allocations.

#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)]

use astjson::{Document, NodeId, Shape, ShapeSpec};
use bytes::Bytes;
use serde_json::Value;

/// A response of products and reviews: short strings, small numbers.
pub const DENSE: &str = include_str!("../../tests/data/responses/dense.json");
/// The response of the federation benchmark: long strings.
pub const TEXT: &str = include_str!("../../tests/data/responses/text.json");

/// One product of the dense document with its reviews, about 1 kB.
pub fn small() -> String {
    let dense: Value = serde_json::from_str(DENSE).unwrap();
    dense["data"]["topProducts"][0].to_string()
}

/// The dense document eleven times over, about 1 MB.
pub fn large() -> String {
    format!("[{}]", [DENSE; 11].join(","))
}

const PRODUCT: [&str; 5] = ["__typename", "upc", "name", "price", "weight"];
const INVENTORY: [&str; 2] = ["inStock", "shippingEstimate"];
const REVIEW: [&str; 4] = ["__typename", "id", "body", "rating"];
const USER: [&str; 3] = ["username", "name", "birthDate"];

/// The four responses of subgraphs that together make the dense document.
pub struct SubgraphResponses {
    pub products: String,
    pub inventory: String,
    pub reviews: String,
    pub users: String,
}

impl SubgraphResponses {
    pub fn new() -> SubgraphResponses {
        let dense: Value = serde_json::from_str(DENSE).unwrap();
        let products = dense["data"]["topProducts"].as_array().unwrap();
        let pick = |value: &Value, keys: &[&str]| {
            let members = keys.iter().map(|key| format!("\"{key}\":{}", value[*key]));
            members.collect::<Vec<_>>().join(",")
        };
        let list = |elements: Vec<String>| elements.join(",");
        let reviews = |product: &Value| {
            let reviews = product["reviews"].as_array().unwrap().iter();
            list(
                reviews
                    .map(|review| {
                        let author = pick(&review["author"], &["__typename", "id"]);
                        format!("{{{},\"author\":{{{author}}}}}", pick(review, &REVIEW))
                    })
                    .collect(),
            )
        };
        let authors = products.iter().flat_map(|product| product["reviews"].as_array().unwrap());
        let entities =
            |elements: Vec<String>| format!("{{\"data\":{{\"_entities\":[{}]}}}}", list(elements));
        let object = |members: String| format!("{{{members}}}");
        SubgraphResponses {
            products: format!(
                "{{\"data\":{{\"topProducts\":[{}]}}}}",
                list(products.iter().map(|p| object(pick(p, &PRODUCT))).collect())
            ),
            inventory: entities(products.iter().map(|p| object(pick(p, &INVENTORY))).collect()),
            reviews: entities(
                products.iter().map(|p| format!("{{\"reviews\":[{}]}}", reviews(p))).collect(),
            ),
            users: entities(authors.map(|r| object(pick(&r["author"], &USER))).collect()),
        }
    }

    pub fn all(&self) -> [&str; 4] {
        [&self.products, &self.inventory, &self.reviews, &self.users]
    }

    pub fn bytes(&self) -> [Bytes; 4] {
        self.all().map(|text| Bytes::from(text.to_owned()))
    }
}

fn any(keys: &[&'static str]) -> Vec<(&'static str, ShapeSpec)> {
    keys.iter().map(|key| (*key, ShapeSpec::Any)).collect()
}

fn user_spec() -> ShapeSpec {
    ShapeSpec::object([any(&["__typename", "id"]), any(&USER)].concat())
}

fn review_spec() -> ShapeSpec {
    ShapeSpec::object([any(&REVIEW), vec![("author", user_spec())]].concat())
}

fn product_spec() -> ShapeSpec {
    ShapeSpec::object([any(&PRODUCT), any(&INVENTORY), vec![("reviews", review_spec())]].concat())
}

/// The shape of the dense document.
pub fn dense_shape() -> Shape {
    let data = ShapeSpec::object([("topProducts", product_spec())]);
    Shape::new(&ShapeSpec::object([("data", data)]))
}

/// The shapes of the four responses. Each entity has all slots of its place in the result, so that
/// it is merged slot by slot.
pub struct Shapes([Shape; 4]);

impl Shapes {
    pub fn new() -> Shapes {
        let entities = |spec| {
            let data = ShapeSpec::object([("_entities", spec)]);
            Shape::new(&ShapeSpec::object([("data", data)]))
        };
        Shapes([
            dense_shape(),
            entities(product_spec()),
            entities(product_spec()),
            entities(user_spec()),
        ])
    }
}

/// The state that the pipeline keeps between runs.
pub struct Pipeline {
    responses: [Bytes; 4],
    shapes: Shapes,
    document: Document,
    targets: Vec<NodeId>,
    pub out: Vec<u8>,
}

impl Pipeline {
    pub fn new(responses: &SubgraphResponses) -> Pipeline {
        Pipeline {
            responses: responses.bytes(),
            shapes: Shapes::new(),
            document: Document::new(),
            targets: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Parses four responses, merges three of them at list paths by position, prints.
    pub fn run(&mut self) {
        let Pipeline { responses, shapes, document, targets, out } = self;
        document.reset();
        let root = document.parse_shaped(responses[0].clone(), &shapes.0[0]).unwrap();
        let paths: [&[&str]; 3] = [
            &["data", "topProducts"],
            &["data", "topProducts"],
            &["data", "topProducts", "reviews", "author"],
        ];
        for (i, path) in paths.iter().enumerate() {
            let response =
                document.parse_shaped(responses[i + 1].clone(), &shapes.0[i + 1]).unwrap();
            let data = document.get(response, "data").unwrap();
            let entities = document.get(data, "_entities").unwrap();
            targets.clear();
            document.select_into(root, path, targets);
            for (i, target) in targets.iter().enumerate() {
                let entity = document.at(entities, i).unwrap();
                document.merge(*target, entity).unwrap();
            }
        }
        out.clear();
        document.print(root, out);
    }
}

/// Four small objects that are merged into one and printed.
pub const MICRO: [&str; 4] =
    [r#"{"a":1}"#, r#"{"b":{}}"#, r#"{"b":{"c":{}}}"#, r#"{"b":{"c":{"d":true}}}"#];
/// The result of printing them.
pub const MICRO_RESULT: &[u8] = br#"{"a":1,"b":{"c":{"d":true}}}"#;

/// Parses the four, merges them and prints the result.
pub fn micro(document: &mut Document, out: &mut Vec<u8>) {
    document.reset();
    out.clear();
    let root = document.parse(MICRO[0]).unwrap();
    for text in &MICRO[1..] {
        let more = document.parse(*text).unwrap();
        document.merge(root, more).unwrap();
    }
    document.print(root, out);
}
