//! The time of single calls on the path of a request.

#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up must fail")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use cache::{
    AgeStyle, CachePolicy, ClientCaching, DeclaredPolicy, EntryAddress, HashDomain, Invalidation,
    InvalidationTable, Jitter, KeyBase, KeySecret, LookupStats, NewEntry, PolicyFold,
    ResponseContent, ResponseTtl, Scope, Store, StoreSettings, TagHasher, Tags, Timestamp,
    TtlSettings, Validator, resolve_policy,
};
use divan::{Bencher, counter::BytesCount};
use http::header::{AGE, CACHE_CONTROL};
use http::{HeaderMap, HeaderValue};

fn main() {
    divan::main();
}

const RESPONSE: &[u8] =
    include_bytes!("../../../fixtures/federation-benchmark/expected_response.json");
const REPRESENTATION: &[u8] = br#"{"__typename":"Product","upc":"1234567890"}"#;

struct Setting {
    store: Store,
    stats: LookupStats,
    hasher: TagHasher,
    base: KeyBase,
}

fn setting() -> Setting {
    let secret = KeySecret::from_bytes([1; 16]);
    let mut base = KeyBase::new(&secret, HashDomain::Entity);
    base.part(b"products");
    base.part(&[7; 16]);
    base.headers([("accept-language", &b"en"[..])]);
    Setting {
        store: Store::new(&StoreSettings::default(), Arc::new(InvalidationTable::default())),
        stats: LookupStats::default(),
        hasher: TagHasher::new(&secret),
        base,
    }
}

impl Setting {
    fn address(&self, representation: &[u8]) -> EntryAddress {
        let mut entity = self.hasher.begin_entity("Product");
        entity.field("upc", "1234567890");
        let tags = [
            self.hasher.subgraph("products"),
            self.hasher.type_name("Product"),
            self.hasher.type_in_subgraph("Product", "products"),
            entity.finish(),
        ];
        EntryAddress { keys: self.base.keys_of(representation), tags: tags.into_iter().collect() }
    }

    fn insert(&self, address: &EntryAddress, body: &[u8]) {
        let policy = CachePolicy {
            fresh_for: Duration::from_secs(60),
            tags: [self.hasher.text("product-1234567890")].into_iter().collect(),
            ..CachePolicy::default()
        };
        let start = self.store.begin_fetch(Timestamp(1_000));
        let new =
            NewEntry { policy: &policy, start, content: ResponseContent::Data, extra: b"", body };
        self.store.insert(address, &new, Timestamp(1_050), &self.stats);
    }
}

#[divan::bench]
fn key_of_a_representation(bencher: Bencher<'_, '_>) {
    let setting = setting();
    bencher.bench(|| setting.base.keys_of(black_box(REPRESENTATION)));
}

#[divan::bench]
fn tag_of_an_entity(bencher: Bencher<'_, '_>) {
    let setting = setting();
    bencher.bench(|| {
        let mut entity = setting.hasher.begin_entity(black_box("Product"));
        entity.field("upc", black_box("1234567890"));
        entity.finish()
    });
}

/// A hit after as many invalidations of other tags as the argument says.
#[divan::bench(args = [0, 1, 100_000])]
fn hit(bencher: Bencher<'_, '_>, invalidations: u64) {
    let setting = setting();
    let address = setting.address(REPRESENTATION);
    setting.insert(&address, b"{\"name\":\"Table\"}");
    for number in 0..invalidations {
        let tag = Invalidation::Tag(format!("other-{number}").into());
        setting.store.invalidate(&[tag], &setting.hasher);
    }
    bencher.bench(|| setting.store.lookup(&address, Timestamp(2_000), 7, &setting.stats));
}

#[divan::bench]
fn hit_with_a_shared_body(bencher: Bencher<'_, '_>) {
    let setting = setting();
    let address = setting.address(REPRESENTATION);
    setting.insert(&address, RESPONSE);
    bencher.bench(|| match setting.store.lookup(&address, Timestamp(2_000), 7, &setting.stats) {
        cache::Lookup::Fresh(hit) => hit.shared_body(),
        _ => unreachable!("the entry is fresh"),
    });
}

#[divan::bench]
fn insertion(bencher: Bencher<'_, '_>) {
    let setting = setting();
    let address = setting.address(REPRESENTATION);
    bencher.bench(|| setting.insert(&address, b"{\"name\":\"Table\"}"));
}

#[divan::bench]
fn invalidation_of_a_tag(bencher: Bencher<'_, '_>) {
    let setting = setting();
    let tags: Vec<_> = (0..1_000).map(|it| setting.hasher.text(&format!("t{it}"))).collect();
    let mut next = tags.iter().copied().cycle();
    bencher.bench_local(|| setting.store.invalidations().invalidate(next.next()));
}

#[divan::bench]
fn policy_of_a_response(bencher: Bencher<'_, '_>) {
    let mut headers = HeaderMap::new();
    let value = "public, max-age=60, stale-while-revalidate=30, stale-if-error=300";
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(value));
    headers.insert(AGE, HeaderValue::from_static("12"));
    let (declared, settings) = (DeclaredPolicy::default(), TtlSettings::default());
    bencher.bench(|| {
        let (response, _) = ResponseTtl::from_headers(black_box(&headers), None);
        resolve_policy(&response, declared, ResponseContent::Data, &settings, Tags::default(), 7)
    });
}

#[divan::bench(args = [1, 200])]
fn fold_and_print(bencher: Bencher<'_, '_>, parts: u64) {
    let setting = setting();
    let policies: Vec<CachePolicy> = (0..parts)
        .map(|number| CachePolicy {
            fresh_for: Duration::from_secs(60),
            tags: [setting.hasher.text(&format!("product-{number}"))].into_iter().collect(),
            ..CachePolicy::default()
        })
        .collect();
    bencher.bench(|| {
        let mut fold = PolicyFold::default();
        policies.iter().for_each(|policy| fold.add(policy, Duration::from_secs(1)));
        let folded = fold.finish().unwrap();
        ClientCaching::of(&folded, Scope::Public, AgeStyle::Deducted, Jitter::default(), 7)
    });
}

#[divan::bench]
fn validator_of_a_response(bencher: Bencher<'_, '_>) {
    bencher.counter(BytesCount::new(RESPONSE.len())).bench(|| Validator::of(black_box(RESPONSE)));
}
