//! The same jobs for other parsers, each written as its documentation recommends.

use crate::cases::SubgraphResponses;

/// A tree of another library.
pub(crate) trait Rival: Sized {
    const NAME: &'static str;

    /// Parses a text, which is mutable because simd-json writes into its input.
    fn parse(text: &mut [u8]) -> Self;
    /// Restores the text for the next round.
    fn refresh(text: &mut Vec<u8>, from: &str) {
        // Most parsers do not change their text and need no restoring.
        let _ = (text, from);
    }
    fn print(&self, out: &mut Vec<u8>);

    fn member_mut(&mut self, key: &str) -> Option<&mut Self>;
    fn elements_mut(&mut self) -> Option<&mut [Self]>;
    fn take_elements(&mut self) -> Vec<Self>;
    /// Moves the members of `other` into this object.
    fn absorb(&mut self, other: Self);
}

/// The pipeline: parses four responses, merges three at list paths by position, prints.
pub(crate) fn pipeline<R: Rival>(texts: &mut [Vec<u8>; 4], out: &mut Vec<u8>) {
    let [products, inventory, reviews, users] = texts;
    let mut root = R::parse(products);
    let entities = |text| {
        let mut response = R::parse(text);
        let entities = response.member_mut("data").and_then(|data| data.member_mut("_entities"));
        entities.map(R::take_elements).unwrap_or_default()
    };
    for response in [entities(inventory), entities(reviews)] {
        for (target, entity) in products_of(&mut root).iter_mut().zip(response) {
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
    root.print(out);
}

fn products_of<R: Rival>(root: &mut R) -> &mut [R] {
    let products = root.member_mut("data").and_then(|data| data.member_mut("topProducts"));
    products.and_then(R::elements_mut).unwrap_or_default()
}

/// The texts of the pipeline in mutable buffers.
pub(crate) fn texts(responses: &SubgraphResponses) -> [Vec<u8>; 4] {
    responses.all().map(|text| text.as_bytes().to_vec())
}

impl Rival for serde_json::Value {
    const NAME: &'static str = "serde_json";

    fn parse(text: &mut [u8]) -> Self {
        serde_json::from_slice(text).unwrap()
    }
    fn print(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(out, self).unwrap();
    }
    fn member_mut(&mut self, key: &str) -> Option<&mut Self> {
        self.get_mut(key)
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
}

impl Rival for sonic_rs::Value {
    const NAME: &'static str = "sonic-rs";

    fn parse(text: &mut [u8]) -> Self {
        sonic_rs::from_slice(text).unwrap()
    }
    fn print(&self, out: &mut Vec<u8>) {
        sonic_rs::to_writer(out, self).unwrap();
    }
    fn member_mut(&mut self, key: &str) -> Option<&mut Self> {
        use sonic_rs::JsonValueMutTrait;
        self.get_mut(key)
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
    fn member_mut(&mut self, key: &str) -> Option<&mut Self> {
        use simd_json::prelude::*;
        self.get_mut(key)
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
}
