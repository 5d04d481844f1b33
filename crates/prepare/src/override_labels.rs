//! Which labels of progressive overrides (`@override(label:)`) are on for a request. `percent(x)` says
//! so itself; what other labels mean is configured. Every label is decided by itself, once per
//! request, and for a subscription once for all who subscribe to the same with the same variables.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use graph::{FieldSet, FieldSetItem, OverrideLabels, Supergraph, TypeId};
use plan::{Operation, OperationKind, Selection, SelectionSet};
use quick_cache::sync::Cache;

/// Parts of a whole: composition allows eight decimals in `percent(x)`.
const PARTS: u64 = 10_000_000_000;

/// For how large a part of the requests a label is on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LabelShare(u64);

impl LabelShare {
    /// Off for everyone.
    pub const NEVER: Self = Self(0);
    /// On for everyone.
    pub const ALWAYS: Self = Self(PARTS);

    /// On for so many of a hundred requests; less than 0 is 0, more than 100 is 100.
    pub fn percent(percent: f64) -> Self {
        Self((percent.clamp(0.0, 100.0) / 100.0 * PARTS as f64).round() as u64)
    }

    /// What the label itself says: `percent(x)`.
    fn of_label(label: &str) -> Option<Self> {
        let percent = label.strip_prefix("percent(")?.strip_suffix(')')?;
        percent.trim().parse().ok().map(Self::percent)
    }
}

/// Who takes part in what: shares by label.
pub type LabelShares = BTreeMap<String, LabelShare>;

/// Decides labels for the requests to one supergraph.
#[derive(Debug)]
pub(crate) struct Decisions {
    /// As [`Supergraph::override_labels`].
    shares: Vec<LabelShare>,
    /// Makes every request's draw another one.
    requests: AtomicU64,
    random: RandomState,
    /// The facts about operations that are known before planning; `None`: the text is not a valid operation.
    pub(crate) known: Cache<u128, Option<Known>>,
}

/// What decisions depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The labels that can change how the operation is planned.
    pub(crate) relevant: OverrideLabels,
    pub(crate) kind: OperationKind,
}

/// Operations remembered with their labels: 48 bytes each.
const KNOWN_MAX: usize = 16_384;

impl Decisions {
    pub(crate) fn new(graph: &Supergraph, configured: &LabelShares) -> Self {
        let share = |label: &str| {
            let configured = configured.get(label).copied();
            configured.or_else(|| LabelShare::of_label(label)).unwrap_or(LabelShare::NEVER)
        };
        Self {
            shares: graph.override_labels.iter().map(|label| share(label)).collect(),
            requests: AtomicU64::new(0),
            random: RandomState::new(),
            known: Cache::new(KNOWN_MAX),
        }
    }

    /// Has the supergraph any labels?
    pub(crate) fn are_needed(&self) -> bool {
        !self.shares.is_empty()
    }

    /// The labels that are on for one request.
    pub(crate) fn decide(&self, known: Known, query: u128, variables: &[u8]) -> OverrideLabels {
        let draw = match known.kind {
            // The same for everybody who belongs to the same group, on every router.
            OperationKind::Subscription => {
                let mut hasher = DefaultHasher::new();
                (query, variables).hash(&mut hasher);
                hasher.finish()
            }
            OperationKind::Query | OperationKind::Mutation => {
                self.random.hash_one(self.requests.fetch_add(1, Ordering::Relaxed))
            }
        };
        self.drawn(draw).intersection(known.relevant)
    }

    fn drawn(&self, draw: u64) -> OverrideLabels {
        let mut on = OverrideLabels::NONE;
        for (label, share) in self.shares.iter().enumerate() {
            let mut hasher = DefaultHasher::new();
            (draw, label).hash(&mut hasher);
            if hasher.finish() % PARTS < share.0 {
                on.insert(label);
            }
        }
        on
    }
}

/// The labels that can change the plan of `operation`: those on fields of the types it passes, and of
/// the types that their keys and requirements pass.
pub(crate) fn relevant(graph: &Supergraph, operation: &Operation) -> OverrideLabels {
    let mut types = Types { graph, seen: HashSet::new(), labels: OverrideLabels::NONE };
    types.selections(&operation.selection_set);
    types.labels
}

struct Types<'a> {
    graph: &'a Supergraph,
    seen: HashSet<TypeId>,
    labels: OverrideLabels,
}

impl Types<'_> {
    fn selections(&mut self, set: &SelectionSet) {
        self.add(set.on);
        for item in &set.items {
            match item {
                Selection::Field(field) => {
                    field.selection_set.iter().for_each(|below| self.selections(below));
                }
                Selection::Fragment(fragment) => self.selections(&fragment.selection_set),
            }
        }
    }

    fn add(&mut self, ty: TypeId) {
        if !self.seen.insert(ty) {
            return;
        }
        let graph = self.graph;
        let definition = graph.ty(ty);
        for there in &definition.subgraphs {
            there.keys.iter().for_each(|key| self.field_set(&key.fields));
        }
        for &field in &definition.fields {
            let field = graph.field(field);
            for moving in &field.progressive {
                self.labels.insert(usize::from(moving.label));
            }
            let sets = field.subgraphs.iter().filter_map(|there| there.requires.as_ref());
            sets.for_each(|set| self.field_set(set));
        }
        let others = definition.possible.iter().chain(&definition.implements);
        others.chain(definition.interface_objects.iter().map(|(_, it)| it)).for_each(|&other| {
            // Upwards only to interfaces, downwards only to what they may be.
            self.add_fields_of(other);
        });
    }

    /// The labels of a type that this one is seen as, or may be.
    fn add_fields_of(&mut self, ty: TypeId) {
        if self.graph.ty(ty).possible.contains(&ty) {
            self.add(ty);
            return;
        }
        for &field in &self.graph.ty(ty).fields {
            for moving in &self.graph.field(field).progressive {
                self.labels.insert(usize::from(moving.label));
            }
        }
    }

    fn field_set(&mut self, set: &FieldSet) {
        for item in &set.items {
            match item {
                FieldSetItem::Field { field, fields, .. } => {
                    if !fields.items.is_empty() {
                        self.add(self.graph.field(*field).ty.named());
                        self.field_set(fields);
                    }
                }
                FieldSetItem::Fragment { on, fields } => {
                    self.add(*on);
                    self.field_set(fields);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_its_percentage_itself() {
        let cases = [
            ("percent(0)", Some(LabelShare::NEVER)),
            ("percent(100)", Some(LabelShare::ALWAYS)),
            ("percent(0.00000001)", Some(LabelShare(1))),
            ("percent(5.5)", Some(LabelShare(PARTS / 1000 * 55))),
            ("percent(x)", None),
            ("beta", None),
        ];
        for (label, expected) in cases {
            assert_eq!(LabelShare::of_label(label), expected, "{label}");
        }
    }

    #[test]
    fn a_share_of_the_draws_is_on() {
        let decisions = Decisions {
            shares: vec![LabelShare::percent(25.0), LabelShare::NEVER, LabelShare::ALWAYS],
            requests: AtomicU64::new(0),
            random: RandomState::new(),
            known: Cache::new(1),
        };
        let drawn: Vec<OverrideLabels> = (0..10_000).map(|draw| decisions.drawn(draw)).collect();
        let on = |label: usize| drawn.iter().filter(|labels| labels.contains(label)).count();
        // Draws are fixed, so this is no chance: 2,500 give or take the hash.
        assert!((2_300..2_700).contains(&on(0)), "{}", on(0));
        assert_eq!((on(1), on(2)), (0, 10_000));
    }
}
