//! The facts about one fetch on which the storing of its responses depends. They are the same for all executions.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use cache::{DeclaredPolicy, HashDomain, KeyBase, Scope, TagTemplate};
use plan::Value;

use crate::caching::{SubgraphCache, SubgraphCaches};

/// The facts about one fetch.
#[derive(Debug, Default)]
pub struct FetchCaching {
    /// The facts about each batch of an entity fetch; one for all root fields of another fetch.
    pub parts: Vec<PartCaching>,
    /// The beginning of all keys of the fetch.
    base: OnceLock<KeyBase>,
    /// The scope of the last response that was stored: see [`FetchCaching::expected_scope`].
    last_scope: AtomicU8,
}

/// The facts about one batch, or about all root fields of a fetch.
#[derive(Clone, Debug, Default)]
pub struct PartCaching {
    /// The policy that schema and configuration declare.
    pub declared: DeclaredPolicy,
    /// The types of the objects in the response, those of entities excepted.
    pub type_names: Vec<Box<str>>,
    /// The tags of root fields (`@cacheTag`), each with the arguments of its field.
    pub root_tags: Vec<RootTag>,
}

/// A tag of one root field.
#[derive(Clone, Debug)]
pub struct RootTag {
    /// The template.
    pub template: TagTemplate,
    /// The arguments of the field.
    pub arguments: Vec<(Box<str>, Value)>,
}

const PUBLIC_STORED: u8 = 0;
const PRIVATE_STORED: u8 = 1;
const NOTHING_STORED: u8 = 2;

impl FetchCaching {
    /// Creates the facts of a fetch with these parts.
    pub fn new(parts: Vec<PartCaching>) -> Self {
        Self { parts, ..Self::default() }
    }

    /// Returns the beginning of all keys of this fetch: the subgraph and the text of its operation.
    pub(super) fn base(
        &self,
        caches: &SubgraphCaches,
        cache: &SubgraphCache,
        domain: HashDomain,
        head: &[u8],
    ) -> KeyBase {
        let base = self.base.get_or_init(|| {
            let mut base = KeyBase::new(&caches.secret, domain);
            base.part(cache.name.as_bytes());
            base.part(head);
            base
        });
        base.clone()
    }

    /// The scope that the next response probably has, public before the first; `None` if the last one was not stored.
    /// Waiting for the response to another operation is worth it only if that response is stored.
    pub(crate) fn expected_scope(&self) -> Option<Scope> {
        match self.last_scope.load(Relaxed) {
            PUBLIC_STORED => Some(Scope::Public),
            PRIVATE_STORED => Some(Scope::Private),
            _ => None,
        }
    }

    /// Notes the scope of a response that was stored, or that it was not stored.
    pub(super) fn note_scope(&self, scope: Option<Scope>) {
        let value = match scope {
            None => NOTHING_STORED,
            Some(Scope::Public) => PUBLIC_STORED,
            Some(Scope::Private) => PRIVATE_STORED,
        };
        // Most responses have the scope of the last one, and a store would take the cache line from other cores.
        if self.last_scope.load(Relaxed) != value {
            self.last_scope.store(value, Relaxed);
        }
    }
}
