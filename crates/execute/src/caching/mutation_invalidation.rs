//! Makes stale what the response to a mutation names: in a header with tags, in its `extensions`, and by the entities
//! that it returns where the schema says that these have changed; where it says so, these are stored as well
//! (`populated_entities`). It takes effect before the client gets the result, so that a client that reads what it has
//! changed reads the new value.
//!
//! - The header (`cache.invalidate_header`) is a list of tags, divided by commas.
//! - `extensions.invalidation` is a list of invalidations in the form of `cache::read_invalidation`.
//! - `extensions.cacheInvalidation.keys` is a list of entities: `{"typename": "User", "key": {"id": "1"}}`.

use std::time::Instant;

use astjson::{Document, Kind, NodeId};
use cache::{
    EntityKey, EntityKeyError, INVALIDATIONS_MAX, Invalidation, InvalidationError, StaleTags,
    read_invalidation,
};
use graph::SubgraphId;
use http::{HeaderMap, HeaderName};
use memchr::memmem;

use super::{ChangedEntity, PopulatingRequest};
use crate::document_pool::PooledDocument;
use crate::{RequestContext, SubgraphResponse};

/// The end of the name of both members. A response without it is not parsed here.
const MEMBER_END: &[u8] = b"nvalidation\"";

/// The entities in the response to a mutation.
#[derive(Default)]
pub(crate) struct MutationChanges<'a> {
    /// The entities that are stale.
    pub(crate) entities: &'a [ChangedEntity],
    /// Stores the new values of some of them.
    pub(crate) populating: Option<Box<PopulatingRequest>>,
}

/// Applies the invalidations of a response to a mutation, and those of the changed entities in it, of which some are
/// stored. Parts that cannot be read are counted, and the others apply. Waits a little until the other routers can know
/// of them.
pub(crate) async fn invalidate_by_response(
    context: &RequestContext,
    subgraph: SubgraphId,
    response: &SubgraphResponse,
    MutationChanges { entities: changed, populating }: MutationChanges<'_>,
) {
    let Some(caches) = &context.generation.caches else { return };
    let received = Instant::now();
    let mut found = FoundInvalidations::default();
    let mut new = Vec::new();
    if let Some(name) = &caches.invalidate_header {
        found.add_tags(&response.headers, name);
    }
    if !changed.is_empty() || memmem::find(&response.body, MEMBER_END).is_some() {
        let mut document = PooledDocument::take();
        // A body that is not JSON is reported where the response is merged.
        if let Ok(root) = document.parse(response.body.clone()) {
            found.add_extensions(&document, root);
            let named = populating.as_ref().map(|_| StaleTags::of(&found.all, &caches.tags));
            if let Some(data) = member(&document, root, "data") {
                for entity in changed {
                    entity.add_invalidations(&document, data, &mut |it| found.add(Ok(it)));
                }
            }
            if let Some((request, named)) = populating.as_ref().zip(named) {
                let read =
                    request.read_entities(context, subgraph, response, &document, root, changed);
                new = read.unwrap_or_default();
                // A later field of the mutation may have changed what an earlier one has returned.
                let fields = member(&document, root, "data").map_or(0, |data| document.len(data));
                if fields > 1 {
                    new.retain(|entity| !entity.is_named_by(&named));
                }
            }
        }
    }
    let stats = &caches.invalidation_stats.mutation;
    if let Some(problem) = found.problem {
        stats.count_malformed();
        let subgraph = &*context.generation.graph.subgraph(subgraph).name;
        tracing::debug!(subgraph, problem, "invalidations of a mutation that cannot be read");
    }
    if !found.all.is_empty() {
        let announcement = match &populating {
            Some(request) if !new.is_empty() => request.replace(caches, subgraph, &found.all, &new),
            _ => caches.invalidate(&found.all),
        };
        stats.count_message(found.all.len(), received.elapsed());
        if let Some(announcement) = announcement {
            announcement.await;
        }
    }
}

/// The invalidations of one response.
#[derive(Default)]
struct FoundInvalidations {
    all: Vec<Invalidation>,
    /// The first mistake.
    problem: Option<String>,
}

impl FoundInvalidations {
    fn add_tags(&mut self, headers: &HeaderMap, name: &HeaderName) {
        for value in headers.get_all(name) {
            match std::str::from_utf8(value.as_bytes()) {
                Ok(text) => {
                    let tags = text.split(',').map(str::trim).filter(|tag| !tag.is_empty());
                    tags.for_each(|tag| self.add(Ok(Invalidation::Tag(tag.into()))));
                }
                Err(_) => self.fail(format!("the header {name} is not UTF-8")),
            }
        }
    }

    fn add_extensions(&mut self, document: &Document, root: NodeId) {
        let Some(extensions) = member(document, root, "extensions") else { return };
        if let Some(list) = member(document, extensions, "invalidation") {
            self.add_list(document, list, "extensions.invalidation", read_invalidation);
        }
        let keys = member(document, extensions, "cacheInvalidation")
            .and_then(|it| member(document, it, "keys"));
        if let Some(list) = keys {
            self.add_list(document, list, "extensions.cacheInvalidation.keys", read_entity);
        }
    }

    fn add_list(
        &mut self,
        document: &Document,
        list: NodeId,
        path: &str,
        read: impl Fn(&Document, NodeId) -> Result<Invalidation, InvalidationError>,
    ) {
        if document.kind(list) != Kind::Array {
            return self.fail(format!("{path} is not a list"));
        }
        for (index, node) in document.elements(list).enumerate() {
            self.add(read(document, node).map_err(|error| format!("{path}[{index}]: {error}")));
        }
    }

    fn add(&mut self, read: Result<Invalidation, String>) {
        match read {
            Ok(invalidation) if self.all.len() < INVALIDATIONS_MAX => self.all.push(invalidation),
            // More than can be listed: everything is stale rather than too little.
            Ok(_) => {
                self.all = vec![Invalidation::All];
                self.fail(InvalidationError::TooMany.to_string());
            }
            Err(problem) => self.fail(problem),
        }
    }

    fn fail(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }
}

fn member(document: &Document, node: NodeId, name: &str) -> Option<NodeId> {
    match document.kind(node) {
        Kind::Object => document.get(node, name),
        _ => None,
    }
}

/// Reads `{"typename": …, "key": {…}}`.
fn read_entity(document: &Document, node: NodeId) -> Result<Invalidation, InvalidationError> {
    let name = member(document, node, "typename").and_then(|name| document.as_str(name));
    let key = member(document, node, "key").ok_or(EntityKeyError::NotAnObject)?;
    Ok(Invalidation::Entity {
        type_name: name.ok_or(InvalidationError::Member("typename"))?.into(),
        key: EntityKey::from_node(document, key)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: Option<&[u8]>, body: &'static str) -> FoundInvalidations {
        let mut found = FoundInvalidations::default();
        let name = HeaderName::from_static("x-invalidate");
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.append(&name, http::HeaderValue::from_bytes(value).expect("a value"));
        }
        found.add_tags(&headers, &name);
        let mut document = Document::new();
        let root = document.parse(body).expect("JSON");
        found.add_extensions(&document, root);
        found
    }

    fn entity(id: &str) -> Invalidation {
        let key = EntityKey::from_json(&format!(r#"{{"id":"{id}"}}"#)).expect("a key");
        Invalidation::Entity { type_name: "User".into(), key }
    }

    #[test]
    fn tags_and_both_extensions_are_read() {
        let found = read(
            Some(b"user-1, cart-1,,"),
            r#"{"data":{},"extensions":{
                "invalidation":[{"kind":"type","type":"Cart"}],
                "cacheInvalidation":{"keys":[{"typename":"User","key":{"id":"1"}}]}}}"#,
        );
        let tags = ["user-1", "cart-1"].map(|tag| Invalidation::Tag(tag.into()));
        let of_type = Invalidation::Type { type_name: "Cart".into(), subgraph: None };
        let expected: Vec<_> = tags.into_iter().chain([of_type, entity("1")]).collect();
        assert_eq!((found.all, found.problem), (expected, None));
    }

    #[test]
    fn a_part_that_cannot_be_read_does_not_affect_the_others() {
        let found = read(
            Some(b"\xff"),
            r#"{"extensions":{"invalidation":{},
                "cacheInvalidation":{"keys":[{"typename":"User"},7,{"typename":"User","key":{"id":2}}]}}}"#,
        );
        assert_eq!(found.all, [entity("2")]);
        assert_eq!(found.problem.as_deref(), Some("the header x-invalidate is not UTF-8"));
        for body in ["[]", r#"{"extensions":5}"#, r#"{"extensions":{"cacheInvalidation":[]}}"#] {
            assert_eq!(read(None, body).all, []);
        }
    }
}
