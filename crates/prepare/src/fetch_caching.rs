//! Derives from each fetch of a plan the facts on which the caching of its responses depends: the time to live that the
//! configuration declares for its fields, and the types of the objects in the response.
//!
//! The text of the fetch is read again, because a plan does not keep selections. That takes some microseconds, once for
//! each plan.

use std::collections::BTreeSet;

use apollo_compiler::ast::{self, Definition, Selection};
use apollo_compiler::parser::Parser;
use cache::{CacheHint, FieldHints, HintFold, TtlRules};
use execute::{FetchCaching, PartCaching};
use graph::{Supergraph, TypeId};
use plan::{Fetch, FetchKind, OperationKind, Plan, SubgraphOperation};

/// Returns the facts about each fetch of `plan`. `None` for fetches whose responses are never stored: those of mutations,
/// of events, and of subgraphs without a cache.
pub(crate) fn caching_of(
    plan: &Plan,
    graph: &Supergraph,
    rules: &TtlRules,
) -> Vec<Option<FetchCaching>> {
    let all = plan.fetches.iter();
    all.map(
        |fetch| {
            if plan.kind == OperationKind::Query { of_fetch(fetch, graph, rules) } else { None }
        },
    )
    .collect()
}

fn of_fetch(fetch: &Fetch, graph: &Supergraph, rules: &TtlRules) -> Option<FetchCaching> {
    let subgraph = &graph.subgraph(fetch.subgraph).name;
    match &fetch.kind {
        FetchKind::Root { operation, .. } if operation.kind == OperationKind::Query => {
            let selections = Selections::read(operation)?;
            let mut part = PartInProgress::new(graph, rules, subgraph);
            part.add_selections(&selections, selections.root()?, graph.query, true);
            Some(FetchCaching::new(vec![part.finish()]))
        }
        FetchKind::Entities { operation, batches } => {
            let selections = Selections::read(operation)?;
            let parts = batches.iter().map(|batch| {
                let mut part = PartInProgress::new(graph, rules, subgraph);
                let fields = selections.root()?.iter().filter_map(Selection::as_field);
                let field = fields.into_iter().find(|it| *it.response_name() == *batch.data_key)?;
                part.add_entities(&selections, &field.selection_set);
                Some(part.finish())
            });
            Some(FetchCaching::new(parts.collect::<Option<Vec<_>>>()?))
        }
        FetchKind::Root { .. }
        | FetchKind::RootBelow { .. }
        | FetchKind::Publish(_)
        | FetchKind::Request(_) => None,
    }
}

/// The text of a fetch, parsed.
struct Selections(ast::Document);

impl Selections {
    /// `None` if the text cannot be parsed, which does not happen to texts of the planner.
    fn read(operation: &SubgraphOperation) -> Option<Self> {
        Parser::new().parse_ast(&*operation.text, "fetch.graphql").ok().map(Self)
    }

    fn root(&self) -> Option<&[Selection]> {
        self.0.definitions.iter().find_map(|definition| match definition {
            Definition::OperationDefinition(operation) => Some(&operation.selection_set[..]),
            _ => None,
        })
    }

    fn fragment(&self, name: &str) -> Option<&ast::FragmentDefinition> {
        self.0.definitions.iter().find_map(|definition| match definition {
            Definition::FragmentDefinition(fragment) if fragment.name == name => Some(&**fragment),
            _ => None,
        })
    }

    /// The type condition and the selections of a fragment, or of a spread of one.
    fn of_fragment<'a>(
        &'a self,
        selection: &'a Selection,
    ) -> Option<(Option<&'a str>, &'a [Selection])> {
        match selection {
            Selection::Field(_) => None,
            Selection::InlineFragment(fragment) => {
                let condition = fragment.type_condition.as_ref().map(apollo_compiler::Name::as_str);
                Some((condition, &fragment.selection_set))
            }
            Selection::FragmentSpread(spread) => {
                let fragment = self.fragment(&spread.fragment_name)?;
                Some((Some(fragment.type_condition.as_str()), &fragment.selection_set))
            }
        }
    }
}

/// The facts about one batch or about all root fields, while selections are added.
struct PartInProgress<'a> {
    graph: &'a Supergraph,
    rules: &'a TtlRules,
    subgraph: &'a str,
    fold: HintFold,
    type_names: BTreeSet<Box<str>>,
}

impl<'a> PartInProgress<'a> {
    fn new(graph: &'a Supergraph, rules: &'a TtlRules, subgraph: &'a str) -> Self {
        let (fold, type_names) = (HintFold::default(), BTreeSet::new());
        Self { graph, rules, subgraph, fold, type_names }
    }

    /// Adds the selections of `_entities`: fragments on entity types.
    fn add_entities(&mut self, selections: &Selections, all: &[Selection]) {
        for selection in all {
            let Some((Some(name), below)) = selections.of_fragment(selection) else { continue };
            self.fold.add_entity(CacheHint::default(), self.rules.of_type(self.subgraph, name));
            if let Some(id) = self.graph.type_named(name) {
                self.add_selections(selections, below, id, false);
            }
        }
    }

    // Recursion is bounded by the depth of operations, which is limited before they are planned.
    fn add_selections(
        &mut self,
        selections: &Selections,
        all: &[Selection],
        parent: TypeId,
        is_root: bool,
    ) {
        for selection in all {
            let Selection::Field(field) = selection else {
                let Some((condition, below)) = selections.of_fragment(selection) else { continue };
                let narrowed = condition.and_then(|name| self.graph.type_named(name));
                self.add_selections(selections, below, narrowed.unwrap_or(parent), is_root);
                continue;
            };
            let Some(id) = self.graph.field_named(parent, &field.name) else { continue };
            let value = self.graph.field(id).ty.named();
            let value_type = self.graph.ty(value);
            let composite = value_type.kind.is_composite().then_some(&*value_type.name);
            let configured = self.rules.of_field(
                self.subgraph,
                &self.graph.ty(parent).name,
                &field.name,
                composite,
                is_root,
            );
            self.fold.add_field(FieldHints {
                field: CacheHint::default(),
                composite: composite.map(|_| CacheHint::default()),
                is_root,
                configured,
            });
            if let Some(name) = composite {
                self.type_names.insert(name.into());
                // The objects behind an interface or a union are of these types.
                let possible = value_type.possible.iter().map(|id| &self.graph.ty(*id).name);
                self.type_names.extend(possible.cloned());
            }
            self.add_selections(selections, &field.selection_set, value, false);
        }
    }

    fn finish(self) -> PartCaching {
        PartCaching {
            declared: self.fold.finish(),
            type_names: self.type_names.into_iter().collect(),
            root_tags: Vec::new(),
        }
    }
}
