//! Variations of operations: rewritten operations that must have the same data.

use apollo_compiler::ast::{Definition, Document, Field, InlineFragment, Selection};
use apollo_compiler::{Name, Node};
use graph::{Supergraph, TypeId};

use crate::{Outcome, Random};

/// A way to rewrite an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variation {
    /// Every response key gets another name; the data find_difference in these names only.
    RenamedAliases,
    /// Every selection is wrapped in a fragment of its own.
    SplitFragments,
    /// Each selection set is wrapped in `... on` its own type.
    Wrapped,
    /// Each selection set is written twice.
    Doubled,
    /// Siblings are in another order, and so are the members of objects.
    Reordered,
}

impl Variation {
    /// All variations.
    pub const ALL: [Self; 5] =
        [Self::RenamedAliases, Self::SplitFragments, Self::Wrapped, Self::Doubled, Self::Reordered];

    /// Rewrites an operation. `None` if it does not parse.
    pub fn of(self, graph: &Supergraph, text: &str, random: &mut Random) -> Option<String> {
        let mut document = Document::parse(text.to_owned(), "variation.graphql").ok()?;
        for definition in &mut document.definitions {
            match definition {
                Definition::OperationDefinition(it) => {
                    let on = match it.operation_type {
                        apollo_compiler::ast::OperationType::Query => graph.query,
                        apollo_compiler::ast::OperationType::Mutation => graph.mutation?,
                        apollo_compiler::ast::OperationType::Subscription => graph.subscription?,
                    };
                    self.set(graph, &mut it.make_mut().selection_set, on, random)?;
                }
                Definition::FragmentDefinition(it) => {
                    let on = graph.type_named(&it.type_condition)?;
                    self.set(graph, &mut it.make_mut().selection_set, on, random)?;
                }
                _ => {}
            }
        }
        Some(document.to_string())
    }

    /// Returns the difference between the outcome of the rewritten operation and the expected one. The rewritten
    /// operation's response is already known to be correct by itself.
    pub(crate) fn find_difference(
        self,
        response: &str,
        requests: usize,
        other: &Outcome,
    ) -> Option<String> {
        let (other_response, other_requests) = match other {
            Outcome::Correct { response, requests } => (response, requests.len()),
            // Other orders and names may lead to conflicts that did not exist before.
            Outcome::Invalid(_) => return None,
            Outcome::Refused(reason) => return Some(format!("refused: {reason}")),
        };
        // The order of mutations decides which of them share a request, and the names of an entity's fields decide
        // whether it is fetched again within an operation.
        let may_ask_otherwise = matches!(self, Self::Reordered | Self::RenamedAliases);
        if requests != other_requests && !may_ask_otherwise {
            return Some(format!("{other_requests} requests instead of {requests}"));
        }
        let has_same_keys = !matches!(self, Self::RenamedAliases | Self::Reordered);
        (has_same_keys && response != other_response)
            .then(|| format!("the response is {other_response}, expected {response}"))
    }

    fn set(
        self,
        graph: &Supergraph,
        set: &mut Vec<Selection>,
        on: TypeId,
        random: &mut Random,
    ) -> Option<()> {
        for selection in set.iter_mut() {
            match selection {
                Selection::FragmentSpread(_) => {}
                Selection::InlineFragment(fragment) => {
                    let fragment = fragment.make_mut();
                    let on = match &fragment.type_condition {
                        Some(name) => graph.type_named(name)?,
                        None => on,
                    };
                    self.set(graph, &mut fragment.selection_set, on, random)?;
                }
                Selection::Field(field) => {
                    let field: &mut Field = field.make_mut();
                    if field.name != "__typename" && !field.selection_set.is_empty() {
                        let id = graph.field_named(on, &field.name)?;
                        let below = graph.field(id).ty.named();
                        self.set(graph, &mut field.selection_set, below, random)?;
                    }
                    if self == Self::RenamedAliases {
                        let key = field.alias.as_ref().unwrap_or(&field.name);
                        field.alias = Name::new(&format!("other_{key}")).ok();
                    }
                }
            }
        }
        let wrapped = |inner: Vec<Selection>| {
            let type_condition = Name::new(&graph.ty(on).name).ok();
            let directives = apollo_compiler::ast::DirectiveList::default();
            let fragment = InlineFragment { type_condition, directives, selection_set: inner };
            Selection::InlineFragment(Node::new(fragment))
        };
        match self {
            Self::RenamedAliases => {}
            Self::SplitFragments => {
                *set = set.drain(..).map(|selection| wrapped(vec![selection])).collect();
            }
            Self::Wrapped => *set = vec![wrapped(std::mem::take(set))],
            Self::Doubled => {
                let again = set.clone();
                set.extend(again);
            }
            Self::Reordered => {
                for at in (1..set.len()).rev() {
                    set.swap(at, random.below(at + 1));
                }
            }
        }
        Some(())
    }
}

/// Adds a subgraph without any field that operations select. `None` if the supergraph does not parse.
pub fn add_unused_subgraph(sdl: &str) -> Option<String> {
    let mut document = Document::parse(sdl.to_owned(), "supergraph.graphql").ok()?;
    let own = "enum join__Graph { UNUSED @join__graph(name: \"unused\", url: \"http://unused\") }
        type Query @join__type(graph: UNUSED) { unused: Unused @join__field(graph: UNUSED) }
        type Unused @join__type(graph: UNUSED, key: \"id\") { id: ID! unused: Int }";
    let own = Document::parse(own, "unused.graphql").ok()?;
    for definition in own.definitions {
        let known = document.definitions.iter_mut().find(|it| it.name() == definition.name());
        match (known, definition) {
            (Some(Definition::EnumTypeDefinition(known)), Definition::EnumTypeDefinition(own)) => {
                known.make_mut().values.extend(own.values.iter().cloned());
            }
            (
                Some(Definition::ObjectTypeDefinition(known)),
                Definition::ObjectTypeDefinition(own),
            ) => {
                let known = known.make_mut();
                known.directives.0.extend(own.directives.iter().cloned());
                known.fields.extend(own.fields.iter().cloned());
            }
            (_, definition) => document.definitions.push(definition),
        }
    }
    Some(document.to_string())
}
