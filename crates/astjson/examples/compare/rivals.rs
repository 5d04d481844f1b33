//! The same jobs for other parsers, each done the way its makers would have it.

use crate::cases::Answers;

/// A tree of another library.
pub(crate) trait Rival: Sized {
    const NAME: &'static str;

    /// Text as the parser wants it: simd-json writes into its input.
    fn parse(text: &mut [u8]) -> Self;
    /// How the parser takes its text for the next round.
    fn refresh(text: &mut Vec<u8>, from: &str) {
        // Most parsers leave their text alone; then this is nothing.
        let _ = (text, from);
    }
    fn print(&self, out: &mut Vec<u8>);

    fn member(&self, key: &str) -> Option<&Self>;
    fn member_mut(&mut self, key: &str) -> Option<&mut Self>;
    fn elements(&self) -> Option<&[Self]>;
    fn elements_mut(&mut self) -> Option<&mut [Self]>;
    fn take_elements(&mut self) -> Vec<Self>;
    /// Moves the members of `other` into this object.
    fn absorb(&mut self, other: Self);
    fn kind(&self) -> Kind;
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Bool,
    Number,
    String,
    Container,
}

/// The pipeline: parse four answers, merge three at list paths by position, project, print.
pub(crate) fn pipeline<R: Rival>(texts: &mut [Vec<u8>; 4], out: &mut Vec<u8>) {
    let [products, inventory, reviews, users] = texts;
    let mut root = R::parse(products);
    let entities = |text| {
        let mut answer = R::parse(text);
        let entities = answer.member_mut("data").and_then(|data| data.member_mut("_entities"));
        entities.map(R::take_elements).unwrap_or_default()
    };
    for answer in [entities(inventory), entities(reviews)] {
        for (target, entity) in products_of(&mut root).iter_mut().zip(answer) {
            target.absorb(entity);
        }
    }
    let mut users = entities(users).into_iter();
    for product in products_of(&mut root) {
        let reviews = product.member_mut("reviews").and_then(R::elements_mut).unwrap_or_default();
        for (review, user) in reviews.iter_mut().zip(&mut users) {
            if let Some(author) = review.member_mut("author") {
                author.absorb(user);
            }
        }
    }
    out.clear();
    project(&root, &ROOT, out);
}

fn products_of<R: Rival>(root: &mut R) -> &mut [R] {
    let products = root.member_mut("data").and_then(|data| data.member_mut("topProducts"));
    products.and_then(R::elements_mut).unwrap_or_default()
}

/// What is projected; the same as in `cases`.
enum Spec {
    Leaf(Kind),
    Object(&'static [(&'static str, &'static str, Spec)]),
    List(&'static Spec),
}

const USER: Spec = Spec::Object(&[
    ("id", "\"id\":", Spec::Leaf(Kind::String)),
    ("username", "\"username\":", Spec::Leaf(Kind::String)),
    ("name", "\"name\":", Spec::Leaf(Kind::String)),
    ("birthDate", "\"birthDate\":", Spec::Leaf(Kind::String)),
]);
const REVIEW: Spec = Spec::Object(&[
    ("id", "\"id\":", Spec::Leaf(Kind::String)),
    ("body", "\"body\":", Spec::Leaf(Kind::String)),
    ("rating", "\"rating\":", Spec::Leaf(Kind::Number)),
    ("author", "\"author\":", USER),
]);
const PRODUCT: Spec = Spec::Object(&[
    ("upc", "\"upc\":", Spec::Leaf(Kind::String)),
    ("name", "\"name\":", Spec::Leaf(Kind::String)),
    ("price", "\"price\":", Spec::Leaf(Kind::Number)),
    ("weight", "\"weight\":", Spec::Leaf(Kind::Number)),
    ("inStock", "\"inStock\":", Spec::Leaf(Kind::Bool)),
    ("shippingEstimate", "\"shippingEstimate\":", Spec::Leaf(Kind::Number)),
    ("reviews", "\"reviews\":", Spec::List(&REVIEW)),
]);
const DATA: Spec = Spec::Object(&[("topProducts", "\"topProducts\":", Spec::List(&PRODUCT))]);
const ROOT: Spec = Spec::Object(&[("data", "\"data\":", DATA)]);

fn project<R: Rival>(value: &R, spec: &Spec, out: &mut Vec<u8>) {
    match (spec, value.kind()) {
        (_, Kind::Null) => out.extend_from_slice(b"null"),
        (Spec::Leaf(wanted), kind) => {
            if kind == *wanted {
                value.print(out);
            } else {
                out.extend_from_slice(b"null");
            }
        }
        (Spec::List(of), _) => {
            out.push(b'[');
            for (i, element) in value.elements().unwrap_or_default().iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                project(element, of, out);
            }
            out.push(b']');
        }
        (Spec::Object(fields), _) => {
            out.push(b'{');
            for (i, (key, printed, spec)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(printed.as_bytes());
                match value.member(key) {
                    Some(member) => project(member, spec, out),
                    None => out.extend_from_slice(b"null"),
                }
            }
            out.push(b'}');
        }
    }
}

/// The texts of the pipeline, as parsers write into them.
pub(crate) fn texts(answers: &Answers) -> [Vec<u8>; 4] {
    answers.all().map(|text| text.as_bytes().to_vec())
}

impl Rival for serde_json::Value {
    const NAME: &'static str = "serde_json";

    fn parse(text: &mut [u8]) -> Self {
        serde_json::from_slice(text).unwrap()
    }
    fn print(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(out, self).unwrap();
    }
    fn member(&self, key: &str) -> Option<&Self> {
        self.get(key)
    }
    fn member_mut(&mut self, key: &str) -> Option<&mut Self> {
        self.get_mut(key)
    }
    fn elements(&self) -> Option<&[Self]> {
        self.as_array().map(Vec::as_slice)
    }
    fn elements_mut(&mut self) -> Option<&mut [Self]> {
        self.as_array_mut().map(Vec::as_mut_slice)
    }
    fn take_elements(&mut self) -> Vec<Self> {
        match self.take() {
            Self::Array(array) => array,
            _ => Vec::new(),
        }
    }
    fn absorb(&mut self, other: Self) {
        if let (Self::Object(own), Self::Object(other)) = (self, other) {
            own.extend(other);
        }
    }
    fn kind(&self) -> Kind {
        match self {
            Self::Null => Kind::Null,
            Self::Bool(_) => Kind::Bool,
            Self::Number(_) => Kind::Number,
            Self::String(_) => Kind::String,
            _ => Kind::Container,
        }
    }
}

impl Rival for sonic_rs::Value {
    const NAME: &'static str = "sonic-rs";

    fn parse(text: &mut [u8]) -> Self {
        sonic_rs::from_slice(text).unwrap()
    }
    fn print(&self, out: &mut Vec<u8>) {
        sonic_rs::to_writer(out, self).unwrap();
    }
    fn member(&self, key: &str) -> Option<&Self> {
        use sonic_rs::JsonValueTrait;
        self.get(key)
    }
    fn member_mut(&mut self, key: &str) -> Option<&mut Self> {
        use sonic_rs::JsonValueMutTrait;
        self.get_mut(key)
    }
    fn elements(&self) -> Option<&[Self]> {
        use sonic_rs::JsonContainerTrait;
        self.as_array().map(sonic_rs::Array::as_slice)
    }
    fn elements_mut(&mut self) -> Option<&mut [Self]> {
        use sonic_rs::JsonValueMutTrait;
        self.as_array_mut().map(sonic_rs::Array::as_mut_slice)
    }
    fn take_elements(&mut self) -> Vec<Self> {
        use sonic_rs::JsonValueMutTrait;
        let array = self.as_array_mut().map(sonic_rs::Array::as_mut_slice).unwrap_or_default();
        array.iter_mut().map(sonic_rs::Value::take).collect()
    }
    fn absorb(&mut self, mut other: Self) {
        use sonic_rs::JsonValueMutTrait;
        if let (Some(own), Some(other)) = (self.as_object_mut(), other.as_object_mut()) {
            own.append(other);
        }
    }
    fn kind(&self) -> Kind {
        use sonic_rs::{JsonType, JsonValueTrait};
        match self.get_type() {
            JsonType::Null => Kind::Null,
            JsonType::Boolean => Kind::Bool,
            JsonType::Number => Kind::Number,
            JsonType::String => Kind::String,
            _ => Kind::Container,
        }
    }
}

impl Rival for simd_json::OwnedValue {
    const NAME: &'static str = "simd-json";

    fn parse(text: &mut [u8]) -> Self {
        simd_json::to_owned_value(text).unwrap()
    }
    fn refresh(text: &mut Vec<u8>, from: &str) {
        text.clear();
        text.extend_from_slice(from.as_bytes());
    }
    fn print(&self, out: &mut Vec<u8>) {
        use simd_json::prelude::Writable;
        self.write(out).unwrap();
    }
    fn member(&self, key: &str) -> Option<&Self> {
        use simd_json::prelude::ValueObjectAccess;
        self.get(key)
    }
    fn member_mut(&mut self, key: &str) -> Option<&mut Self> {
        use simd_json::prelude::*;
        self.get_mut(key)
    }
    fn elements(&self) -> Option<&[Self]> {
        use simd_json::prelude::ValueAsArray;
        self.as_array().map(Vec::as_slice)
    }
    fn elements_mut(&mut self) -> Option<&mut [Self]> {
        use simd_json::prelude::ValueAsMutArray;
        self.as_array_mut().map(Vec::as_mut_slice)
    }
    fn take_elements(&mut self) -> Vec<Self> {
        use simd_json::prelude::ValueAsMutArray;
        self.as_array_mut().map(std::mem::take).unwrap_or_default()
    }
    fn absorb(&mut self, other: Self) {
        use simd_json::prelude::ValueAsMutObject;
        if let (Some(own), simd_json::OwnedValue::Object(other)) = (self.as_object_mut(), other) {
            for (key, value) in *other {
                own.insert(key, value);
            }
        }
    }
    fn kind(&self) -> Kind {
        use simd_json::{ValueType, prelude::TypedValue};
        match self.value_type() {
            ValueType::Null => Kind::Null,
            ValueType::Bool => Kind::Bool,
            ValueType::String => Kind::String,
            ValueType::Array | ValueType::Object => Kind::Container,
            _ => Kind::Number,
        }
    }
}
