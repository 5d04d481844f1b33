//! The facts about one fetch on which the storing of its responses depends. They are the same for all executions.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use cache::{DeclaredPolicy, HashDomain, KeyBase, Scope, TagTemplate};
use plan::{Value, VariableId};

use crate::caching::{RootRequest, SubgraphCache, SubgraphCaches};

/// The facts about one fetch.
#[derive(Debug, Default)]
pub struct FetchCaching {
    /// The facts about each batch of an entity fetch, or about each field of [`FetchCaching::root`].
    pub parts: Vec<PartCaching>,
    /// The root fields, for a fetch of root fields.
    pub root: Option<RootRequest>,
    /// The facts that executions have learned about each part.
    states: Vec<PartState>,
}

/// The facts about one batch, or about one root field.
#[derive(Clone, Debug, Default)]
pub struct PartCaching {
    /// The entities or fields that the part asks for.
    pub selection: KeyedSelection,
    /// The policy that schema and configuration declare.
    pub declared: DeclaredPolicy,
    /// The types of the objects in the response, those of entities excepted.
    pub type_names: Vec<Box<str>>,
    /// The tags of a root field (`@cacheTag`).
    pub root_tags: Vec<RootTag>,
}

/// A selection in a form that is equal for equal requests of different operations: the part of keys that says what a
/// response is about. It has neither the alias of the field at its top nor the names of variables, and its fields are
/// sorted by their response keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyedSelection {
    /// The selection, with the numbers of variables in place of their names.
    pub text: Box<str>,
    /// The variables by number.
    pub variables: Vec<VariableId>,
    /// True if the text contains variables that are none of the operation, but of a single request (`@fromContext`).
    pub reads_context: bool,
}

/// A tag of one root field.
#[derive(Clone, Debug)]
pub struct RootTag {
    /// The template.
    pub template: TagTemplate,
    /// The arguments of the field.
    pub arguments: Vec<(Box<str>, Value)>,
}

/// The facts that executions have learned about one part.
#[derive(Debug, Default)]
struct PartState {
    /// The beginning of all keys of the part.
    base: OnceLock<KeyBase>,
    /// The scope of the last response that was stored: see [`FetchCaching::expected_scope`].
    last_scope: AtomicU8,
}

const PUBLIC_STORED: u8 = 0;
const PRIVATE_STORED: u8 = 1;
const NOTHING_STORED: u8 = 2;

impl FetchCaching {
    /// Creates the facts of an entity fetch with these batches.
    pub fn new(parts: Vec<PartCaching>) -> Self {
        let states = parts.iter().map(|_| PartState::default()).collect();
        Self { parts, root: None, states }
    }

    /// Creates the facts of a fetch of root fields: `parts` are those of the fields of `root`, in their order.
    pub fn of_root(root: RootRequest, parts: Vec<PartCaching>) -> Self {
        Self { root: Some(root), ..Self::new(parts) }
    }

    /// Returns the beginning of all keys of a part: the subgraph and the selection.
    pub(super) fn base(
        &self,
        part: usize,
        caches: &SubgraphCaches,
        cache: &SubgraphCache,
        domain: HashDomain,
    ) -> KeyBase {
        let new = || {
            let text = self.parts.get(part).map_or("", |part| &part.selection.text);
            base_of(caches, cache, domain, text)
        };
        self.states.get(part).map_or_else(new, |state| state.base.get_or_init(new).clone())
    }

    /// The scope that the next response for a part probably has, public before the first; `None` if the last one was
    /// not stored. Waiting for the response to another operation is worth it only if that response is stored.
    pub(crate) fn expected_scope(&self, part: usize) -> Option<Scope> {
        match self.states.get(part)?.last_scope.load(Relaxed) {
            PUBLIC_STORED => Some(Scope::Public),
            PRIVATE_STORED => Some(Scope::Private),
            _ => None,
        }
    }

    /// Notes the scope of a response for a part that was stored, or that none was.
    pub(super) fn note_scope(&self, part: usize, scope: Option<Scope>) {
        let Some(state) = self.states.get(part) else { return };
        let value = match scope {
            None => NOTHING_STORED,
            Some(Scope::Public) => PUBLIC_STORED,
            Some(Scope::Private) => PRIVATE_STORED,
        };
        // Most responses have the scope of the last one, and a store would take the cache line from other cores.
        if state.last_scope.load(Relaxed) != value {
            state.last_scope.store(value, Relaxed);
        }
    }
}

/// Returns the beginning of the keys of one selection at one subgraph.
pub(super) fn base_of(
    caches: &SubgraphCaches,
    cache: &SubgraphCache,
    domain: HashDomain,
    selection: &str,
) -> KeyBase {
    let mut base = KeyBase::new(&caches.secret, domain);
    if let Some(graph) = &cache.graph {
        // No name of a graph contains `/`, and one more part makes another key.
        base.part(graph.as_bytes());
        base.part(b"/");
    }
    base.part(cache.name.as_bytes());
    base.part(selection.as_bytes());
    base
}
