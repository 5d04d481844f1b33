//! Stores the entities in the response to a mutation, where the schema says so (`@openfed__cachePopulate`).
//!
//! An entry is the one that a later request for the entity by one of its keys would store: the same subgraph,
//! representation and selection. So a later request finds it if it selects exactly the fields that the mutation
//! selected, the fields of the key aside. What cannot be stored is made stale only.
//!
//! The response is newer than everything that its own invalidation makes stale, but not than other invalidations since
//! the request was sent: those may be about later changes, and keep its values out ([`cache::Store::replace`],
//! [`cache::Replacement`]).

use std::collections::HashMap;
use std::sync::Arc;

use astjson::{Document, Kind, NodeId};
use bytes::Bytes;
use cache::{
    CachePolicy, EntityKey, EntryAddress, EntryLabel, FetchStart, Invalidation, KeyBase, LogEpoch,
    NewEntry, ResponseContent, ResponseTtl, Scope, Sequence, SharedEntry, SharedKey, SharedStart,
    StaleTags, StoreOutcome, Tag, Tags, Timestamp, Vary, resolve_policy,
};
use graph::SubgraphId;
use plan::Variables;

use super::changed_entities::{ChangedEntity, ChangedKey, PopulatedEntry, PopulatedMember};
use super::reported_errors::FaultyParts;
use super::response_storing::{ResponseFacts, add_response_tags};
use super::{Addresses, Announcement, SubgraphCaches};
use crate::document_pool::PooledDocument;
use crate::{RequestContext, SubgraphResponse};

/// The maximum number of entries that one response makes. Entities beyond it are made stale only, and counted as not
/// stored.
const POPULATED_MAX: usize = 1_000;

/// The request of a mutation, for storing entities of its response. It begins before it is sent.
pub(crate) struct PopulatingRequest {
    start: FetchStart,
    began: Timestamp,
    /// The point in the order of shared invalidations; `None` if the response must not be shared.
    shared: Option<SharedStart>,
    /// The beginning of the keys of each entry, by changed entity.
    bases: Vec<Vec<KeyBase>>,
}

/// A new entry of a response, before it is stored.
pub(super) struct NewEntity {
    address: EntryAddress,
    policy: CachePolicy,
    body: Vec<u8>,
    shared_key: Option<SharedKey>,
    type_name: Box<str>,
    key: EntityKey,
}

impl NewEntity {
    /// True if an invalidation of these makes the entry stale.
    pub(super) fn is_named_by(&self, stale: &StaleTags) -> bool {
        let mut own = self.address.tags.iter().copied().chain(self.policy.tags.iter());
        match stale {
            StaleTags::Tags(tags) => {
                (!tags.is_empty() && self.policy.tags.is_unbounded())
                    || own.any(|tag| tags.contains(&tag))
            }
            StaleTags::All => true,
        }
    }
}

impl PopulatingRequest {
    /// Begins a request. `None` if nothing of its response is to be stored.
    pub(crate) fn begin(
        context: &RequestContext,
        subgraph: SubgraphId,
        variables: &Variables,
        changed: &[ChangedEntity],
    ) -> Option<Box<Self>> {
        if changed.iter().all(|it| it.populated.is_empty()) {
            return None;
        }
        let addresses = Addresses::new(context, subgraph, variables)?;
        let caches = addresses.caches();
        let began = (caches.clock)();
        let bases = changed.iter().map(|it| {
            it.populated.iter().map(|entry| addresses.entity_base(&entry.selection)).collect()
        });
        Some(Box::new(Self {
            start: caches.store.begin_fetch(began),
            began,
            shared: caches.shared.as_ref().and_then(|shared| shared.begin_fetch()),
            bases: bases.collect(),
        }))
    }

    /// Returns the entries that the response makes. `None` if its headers or errors allow none.
    pub(super) fn read_entities(
        &self,
        context: &RequestContext,
        subgraph: SubgraphId,
        response: &SubgraphResponse,
        document: &PooledDocument,
        root: NodeId,
        changed: &[ChangedEntity],
    ) -> Option<Vec<NewEntity>> {
        let caches = context.generation.caches.as_deref()?;
        let cache = caches.of(subgraph)?;
        if !response.status.is_success() || document.kind(root) != Kind::Object {
            return None;
        }
        let (ttl, _) = ResponseTtl::from_headers(&response.headers, cache.ttl_header.as_ref());
        let vary = Vary::from_headers(&response.headers);
        // The keys of this request do not have the new name.
        if vary == Vary::Any || cache.key_headers.learn(&vary) {
            return None;
        }
        let data = document.get(root, "data")?;
        let part_of = |key: &str| {
            let number = changed.iter().position(|it| *it.data_key == *key);
            // Errors of other root fields do not matter.
            Some((number.unwrap_or(usize::MAX), None))
        };
        let faulty = FaultyParts::read(document, root, part_of)?;
        let facts = ResponseFacts { caches, cache, ttl, now: (caches.clock)() };
        let mut reader = EntityReader {
            facts,
            document,
            root,
            fields_of: fields_by_entity(caches, document, data, changed),
            tag: String::new(),
            found: Vec::new(),
        };
        for (number, (entity, bases)) in changed.iter().zip(&self.bases).enumerate() {
            if faulty.contains(number, 0) || entity.populated.is_empty() {
                continue;
            }
            entity.for_each_object(document, data, &mut |object| {
                reader.read_object(number, entity, bases, object);
            });
        }
        Some(reader.found)
    }

    /// Makes stale what the invalidations of the response name, and stores the entries in its place. Returns the
    /// announcement to the other routers, if a store is shared.
    pub(super) fn replace(
        &self,
        caches: &SubgraphCaches,
        subgraph: SubgraphId,
        invalidations: &[Invalidation],
        new: &[NewEntity],
    ) -> Option<Announcement> {
        let stale = || StaleTags::of(invalidations, &caches.tags);
        // Before the store of the process: see `cache::SharedView`.
        let (announcement, replacement) = match (&caches.shared, self.shared) {
            (Some(shared), Some(since)) => {
                let mut tags = Tags::default();
                for entity in new {
                    tags.insert_all(&entity.policy.tags);
                    tags.extend(entity.address.tags.iter().copied());
                }
                let (announcement, replacement) = shared.announce_replacing(stale(), since, &tags);
                (Some(announcement), replacement)
            }
            (Some(shared), None) => (Some(shared.announce(stale())), None),
            (None, _) => (None, None),
        };
        let parts: Vec<_> = new.iter().map(|it| (&it.address, &it.policy.tags)).collect();
        let starts = caches.store.replace(invalidations, &caches.tags, self.start, &parts);
        let mut stored = Vec::new();
        for (entity, start) in new.iter().zip(starts) {
            if self.insert(caches, subgraph, entity, start) == Some(StoreOutcome::Stored)
                && let Some(key) = entity.shared_key
            {
                stored.push((key, self.shared_entry(entity, (caches.clock)())));
            }
        }
        if let (Some(replacement), Some(shared)) = (replacement, &caches.shared)
            && !stored.is_empty()
        {
            let shared = Arc::clone(shared);
            // The number of the invalidation is known later, and the client does not wait for it.
            tokio::task::spawn_local(async move {
                let Some(start) = replacement.await else { return };
                for (key, entry) in stored {
                    shared.store(key, SharedEntry { start, ..entry });
                }
            });
        }
        announcement
    }

    /// Stores one entry, if no other invalidation keeps it out. `None` if the subgraph has no cache.
    fn insert(
        &self,
        caches: &SubgraphCaches,
        subgraph: SubgraphId,
        entity: &NewEntity,
        start: Option<FetchStart>,
    ) -> Option<StoreOutcome> {
        let cache = caches.of(subgraph)?;
        let Some(start) = start else {
            cache.stats.count_store(StoreOutcome::Outdated);
            return Some(StoreOutcome::Outdated);
        };
        let NewEntity { address, policy, body, type_name, key, .. } = entity;
        let content = ResponseContent::Data;
        let new = NewEntry { policy, start, content, extra: b"", body };
        let outcome = caches.store.insert(address, &new, (caches.clock)(), &cache.stats);
        let is_private = policy.scope == Scope::Private;
        caches.store.note_stored(address, policy.scope, body, || {
            let fields: Vec<_> = key.fields().collect();
            EntryLabel::new(Some(&cache.name), type_name, &fields, is_private)
        });
        Some(outcome)
    }

    /// Returns the form of an entry that is shared, with a start that is replaced.
    fn shared_entry(&self, entity: &NewEntity, now: Timestamp) -> SharedEntry {
        let (policy, address) = (&entity.policy, &entity.address);
        SharedEntry {
            start: SharedStart { epoch: LogEpoch([0; 16]), sequence: Sequence(0) },
            began: self.began,
            fetch_took: now.since(self.began),
            policy: policy.without_implied_tags(address),
            content: ResponseContent::Data,
            body: Bytes::copy_from_slice(&entity.body),
        }
    }
}

/// The root fields that return each entity, by its tags: the number of one, or `None` for several. Of an entity that
/// several fields of a mutation return, the values of the first one may be old when the last one has been executed.
fn fields_by_entity(
    caches: &SubgraphCaches,
    document: &Document,
    data: NodeId,
    changed: &[ChangedEntity],
) -> HashMap<Tag, Option<usize>> {
    let mut fields: HashMap<Tag, Option<usize>> = HashMap::new();
    for (number, entity) in changed.iter().enumerate() {
        entity.add_invalidations(document, data, &mut |invalidation| {
            let Some(tag) = invalidation.tag(&caches.tags) else { return };
            let known = fields.entry(tag).or_insert(Some(number));
            *known = known.filter(|known| *known == number);
        });
    }
    fields
}

/// Reads the entities of one response.
struct EntityReader<'a> {
    facts: ResponseFacts<'a>,
    document: &'a PooledDocument,
    root: NodeId,
    /// See [`fields_by_entity`].
    fields_of: HashMap<Tag, Option<usize>>,
    /// Room for the text of a tag.
    tag: String,
    found: Vec<NewEntity>,
}

impl EntityReader<'_> {
    /// Adds the entries of one entity, which the root field with this number has returned.
    fn read_object(
        &mut self,
        number: usize,
        entity: &ChangedEntity,
        bases: &[KeyBase],
        object: NodeId,
    ) {
        let is_of_other_field = |key: &ChangedKey| {
            let tag = key.read(self.document, object).map(|found| self.entity_tag(key, &found));
            tag.is_some_and(|tag| self.fields_of.get(&tag) != Some(&Some(number)))
        };
        if entity.keys.iter().any(is_of_other_field) {
            return;
        }
        for (entry, base) in entity.populated.iter().zip(bases) {
            let Some(key) = entity.keys.get(entry.key) else { continue };
            if self.found.len() >= POPULATED_MAX {
                self.facts.cache.stats.count_store(StoreOutcome::TooLarge);
                continue;
            }
            self.read_entry(key, entry, base, object);
        }
    }

    fn entity_tag(&self, key: &ChangedKey, found: &EntityKey) -> Tag {
        self.facts.caches.tags.entity(&key.type_name, found)
    }

    /// Adds one entry. `None` if the entity does not have what it needs, or must not be stored.
    fn read_entry(
        &mut self,
        key: &ChangedKey,
        entry: &PopulatedEntry,
        base: &KeyBase,
        object: NodeId,
    ) -> Option<()> {
        let (facts, document) = (&self.facts, self.document);
        let found = key.read(document, object)?;
        let mut representation = Vec::with_capacity(64);
        if !key.write_representation(document, object, &mut representation) {
            return None;
        }
        let body = write_members(document, object, &entry.members)?;
        let mut tags: Tags = facts.type_tags(&entry.type_names).collect();
        let text = Bytes::from(representation);
        facts.add_entity_tags(text.clone(), &mut self.tag, &mut tags)?;
        add_response_tags(facts, document, self.root, "apolloCacheTags", None, &mut tags);
        let (content, settings) = (ResponseContent::Data, &facts.cache.settings);
        let random = fastrand::u64(..);
        let policy = resolve_policy(&facts.ttl, entry.declared, content, settings, tags, random);
        // An entry that is stale at once would only be served in place of a newer value.
        let policy = policy.ok().filter(|policy| !policy.fresh_for.is_zero())?;
        let (hasher, subgraph) = (&facts.caches.tags, &*facts.cache.name);
        let address = EntryAddress {
            keys: base.keys_of(&text),
            tags: [
                hasher.subgraph(subgraph),
                hasher.type_name(&key.type_name),
                hasher.type_in_subgraph(&key.type_name, subgraph),
                self.entity_tag(key, &found),
            ]
            .into(),
        };
        let shared_key = match &facts.caches.shared {
            Some(_) => base.shared().key_of(&text, policy.scope),
            None => None,
        };
        let type_name = key.type_name.clone();
        self.found.push(NewEntity { address, policy, body, shared_key, type_name, key: found });
        Some(())
    }
}

/// Prints the members of an entity as an object. `None` if one is missing that has no conditions.
fn write_members(
    document: &Document,
    object: NodeId,
    members: &[PopulatedMember],
) -> Option<Vec<u8>> {
    let mut body = Vec::with_capacity(256);
    for member in members {
        let Some(value) = document.get(object, &member.response_key) else {
            if member.is_conditional {
                continue;
            }
            return None;
        };
        body.push(if body.is_empty() { b'{' } else { b',' });
        astjson::print_string(&member.response_key, &mut body);
        body.push(b':');
        document.print(value, &mut body);
    }
    if body.is_empty() {
        body.push(b'{');
    }
    body.push(b'}');
    Some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(response_key: &str, is_conditional: bool) -> PopulatedMember {
        PopulatedMember { response_key: response_key.into(), is_conditional }
    }

    #[test]
    fn an_entry_has_the_members_that_are_selected_and_no_others() {
        let members = [member("name", false), member("b", true), member("maker", false)];
        let written = |text: &'static str| {
            let mut document = Document::new();
            let object = document.parse(text).expect("JSON");
            let body = write_members(&document, object, &members);
            body.map(|body| String::from_utf8(body).expect("text"))
        };
        let text = r#"{"_key0":1,"maker":{"id":2},"name":null,"other":5}"#;
        assert_eq!(written(text).as_deref(), Some(r#"{"name":null,"maker":{"id":2}}"#));
        assert_eq!(written(r#"{"name":"a","b":1}"#), None, "`maker` is missing");
        let mut document = Document::new();
        let object = document.parse("{}").expect("JSON");
        let empty = write_members(&document, object, &members[1..2]);
        assert_eq!(empty.as_deref(), Some(&b"{}"[..]));
    }
}
