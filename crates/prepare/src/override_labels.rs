//! Decides which labels of progressive overrides (`@override(label:)`) are on for a request.
//! `percent(x)` contains its share; the shares of other labels are configured. Every label is
//! decided separately, once per request, and for a subscription once for all subscribers with the
//! same operation and variables.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use graph::{FieldSet, FieldSetItem, OverrideLabels, Supergraph, TypeId};
use plan::{Operation, OperationKind, Selection, SelectionSet};

/// Units of a whole: composition allows eight decimals in `percent(x)`.
const PARTS: u64 = 10_000_000_000;

/// The share of the requests for which a label is on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LabelShare(u64);

impl LabelShare {
    /// Off for all requests.
    pub const NEVER: Self = Self(0);
    /// On for all requests.
    pub const ALWAYS: Self = Self(PARTS);

    /// On for this percentage of requests; less than 0 is 0, more than 100 is 100.
    pub fn percent(percent: f64) -> Self {
        Self((percent.clamp(0.0, 100.0) / 100.0 * PARTS as f64).round() as u64)
    }

    /// The share that the label itself contains: `percent(x)`.
    fn of_label(label: &str) -> Option<Self> {
        let percent = label.strip_prefix("percent(")?.strip_suffix(')')?;
        percent.trim().parse().ok().map(Self::percent)
    }
}

/// Shares by label.
pub type LabelShares = BTreeMap<String, LabelShare>;

/// Decides labels for the requests to one supergraph.
#[derive(Debug)]
pub(crate) struct LabelDecisions {
    /// The shares, in the order of [`Supergraph::override_labels`].
    shares: Vec<LabelShare>,
    /// Number of requests, which makes the draw of each request different.
    requests: AtomicU64,
    random: RandomState,
}

/// The facts that a decision depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabelFacts {
    /// The labels that can change the plan of the operation.
    pub(crate) relevant: OverrideLabels,
    pub(crate) kind: OperationKind,
}

impl LabelDecisions {
    pub(crate) fn new(graph: &Supergraph, configured: &LabelShares) -> Self {
        let share = |label: &str| {
            let configured = configured.get(label).copied();
            configured.or_else(|| LabelShare::of_label(label)).unwrap_or(LabelShare::NEVER)
        };
        Self {
            shares: graph.override_labels.iter().map(|label| share(label)).collect(),
            requests: AtomicU64::new(0),
            random: RandomState::new(),
        }
    }

    /// True if the supergraph has labels.
    pub(crate) fn has_labels(&self) -> bool {
        !self.shares.is_empty()
    }

    /// Returns the labels that are on for one request. `query` returns the identity of its text, for subscriptions
    /// only.
    pub(crate) fn decide_labels(
        &self,
        known: LabelFacts,
        query: impl FnOnce() -> u128,
        variables: &[u8],
    ) -> OverrideLabels {
        let draw = match known.kind {
            // The draw is the same for all subscribers of a group, on every router.
            OperationKind::Subscription => {
                let mut hasher = DefaultHasher::new();
                (query(), variables).hash(&mut hasher);
                hasher.finish()
            }
            OperationKind::Query | OperationKind::Mutation => {
                self.random.hash_one(self.requests.fetch_add(1, Ordering::Relaxed))
            }
        };
        self.draw_labels(draw).intersection(known.relevant)
    }

    fn draw_labels(&self, draw: u64) -> OverrideLabels {
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

/// Returns the labels that can change the plan of `operation`: those on fields of the types on its
/// path, and of the types on the paths of their keys and requirements.
pub(crate) fn relevant_labels(graph: &Supergraph, operation: &Operation) -> OverrideLabels {
    let mut types = LabelCollector { graph, seen: HashSet::new(), labels: OverrideLabels::NONE };
    types.add_selections(&operation.selection_set);
    types.labels
}

struct LabelCollector<'a> {
    graph: &'a Supergraph,
    seen: HashSet<TypeId>,
    labels: OverrideLabels,
}

impl LabelCollector<'_> {
    fn add_selections(&mut self, set: &SelectionSet) {
        self.add_type(set.on);
        for item in &set.items {
            match item {
                Selection::Field(field) => {
                    field.selection_set.iter().for_each(|below| self.add_selections(below));
                }
                Selection::Fragment(fragment) => self.add_selections(&fragment.selection_set),
            }
        }
    }

    fn add_type(&mut self, ty: TypeId) {
        if !self.seen.insert(ty) {
            return;
        }
        let graph = self.graph;
        let definition = graph.ty(ty);
        for there in &definition.subgraphs {
            there.keys.iter().for_each(|key| self.add_field_set(&key.fields));
        }
        for &field in &definition.fields {
            let field = graph.field(field);
            for moving in &field.progressive {
                self.labels.insert(usize::from(moving.label));
            }
            let sets = field.subgraphs.iter().filter_map(|there| there.requires.as_ref());
            sets.for_each(|set| self.add_field_set(set));
        }
        let others = definition.possible.iter().chain(&definition.implements);
        others.chain(definition.interface_objects.iter().map(|(_, it)| it)).for_each(|&other| {
            // Upwards only to interfaces, downwards only to possible types.
            self.add_fields_of(other);
        });
    }

    /// Adds the labels of an interface or union of this type, or of one of its possible types.
    fn add_fields_of(&mut self, ty: TypeId) {
        if self.graph.ty(ty).possible.contains(&ty) {
            self.add_type(ty);
            return;
        }
        for &field in &self.graph.ty(ty).fields {
            for moving in &self.graph.field(field).progressive {
                self.labels.insert(usize::from(moving.label));
            }
        }
    }

    fn add_field_set(&mut self, set: &FieldSet) {
        for item in &set.items {
            match item {
                FieldSetItem::Field { field, fields, .. } => {
                    if !fields.items.is_empty() {
                        self.add_type(self.graph.field(*field).ty.named());
                        self.add_field_set(fields);
                    }
                }
                FieldSetItem::Fragment { on, fields } => {
                    self.add_type(*on);
                    self.add_field_set(fields);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_may_contain_its_percentage() {
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
        let decisions = LabelDecisions {
            shares: vec![LabelShare::percent(25.0), LabelShare::NEVER, LabelShare::ALWAYS],
            requests: AtomicU64::new(0),
            random: RandomState::new(),
        };
        let drawn: Vec<OverrideLabels> =
            (0..10_000).map(|draw| decisions.draw_labels(draw)).collect();
        let on = |label: usize| drawn.iter().filter(|labels| labels.contains(label)).count();
        // Draws are fixed, so the result is deterministic: 2,500 give or take the hash.
        assert!((2_300..2_700).contains(&on(0)), "{}", on(0));
        assert_eq!((on(1), on(2)), (0, 10_000));
    }
}
