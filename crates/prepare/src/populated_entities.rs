//! The entries that are made of the entities that a mutation returns (`@openfed__cachePopulate`): those of requests for
//! the entity by one of its keys with the selection of the mutation. Such a request does not select the fields of the
//! key, because the router has them already.

use apollo_compiler::ast::{self, Selection};
use apollo_compiler::{Name, Node, name};
use cache::{Scope, TtlRules};
use execute::{ChangedKey, PartCaching, PopulatedEntry, PopulatedMember};
use graph::{SubgraphId, Supergraph};
use plan::VariableId;

use crate::fetch_caching::{EntitiesRequest, Selections, entities_part};

/// A field of a mutation that populates.
pub(crate) struct PopulatedField<'a> {
    pub(crate) graph: &'a Supergraph,
    pub(crate) rules: &'a TtlRules,
    pub(crate) subgraph: SubgraphId,
    /// The variables of the operation.
    pub(crate) variables: &'a [(Box<str>, VariableId)],
    /// A name that no variable of the operation has.
    pub(crate) representations: &'a str,
    /// The text of the fetch.
    pub(crate) selections: &'a Selections,
    /// `maxAge` of the directive.
    pub(crate) max_age: Option<u32>,
    /// True if the schema says that the value of the field is private.
    pub(crate) is_private: bool,
}

impl PopulatedField<'_> {
    /// Returns the entry of each key with these indices. A key has none if nothing else is selected.
    pub(crate) fn entries(
        &self,
        field: &ast::Field,
        keys: &[ChangedKey],
        of_requests: &[usize],
    ) -> Vec<PopulatedEntry> {
        let keys = of_requests.iter().filter_map(|&index| Some((index, keys.get(index)?)));
        keys.filter_map(|(index, key)| self.entry(field, index, key)).collect()
    }

    fn entry(&self, field: &ast::Field, index: usize, key: &ChangedKey) -> Option<PopulatedEntry> {
        if has_spread(&field.selection_set) {
            return None;
        }
        let mut members = Vec::new();
        let selections = without_key(&field.selection_set, key, false, &mut members);
        if selections.is_empty() {
            return None;
        }
        let entity = ast::InlineFragment {
            type_condition: Some(Name::new(&key.type_name).ok()?),
            directives: ast::DirectiveList::default(),
            selection_set: selections,
        };
        let variable = ast::Value::Variable(Name::new(self.representations).ok()?);
        let representations =
            ast::Argument { name: name!("representations"), value: Node::new(variable) };
        let entities = ast::Field {
            alias: None,
            name: name!("_entities"),
            arguments: vec![Node::new(representations)],
            directives: ast::DirectiveList::default(),
            selection_set: vec![Selection::InlineFragment(Node::new(entity))],
        };
        let request = EntitiesRequest {
            variables: self.variables,
            representations: self.representations,
            max_age: self.max_age,
        };
        let (graph, rules) = (self.graph, self.rules);
        let part = entities_part(graph, rules, self.subgraph, self.selections, &entities, &request);
        let PartCaching { selection, mut declared, type_names, .. } = part;
        if self.is_private {
            declared.scope = Scope::Private;
        }
        // The values of such variables are those of one request.
        let is_constant = !selection.reads_context;
        is_constant.then_some(PopulatedEntry {
            key: index,
            selection,
            declared,
            type_names,
            members,
        })
    }
}

/// Returns the selections without the scalar fields of a key and without `__typename`, and adds the members that are
/// left.
///
/// Recursion is bounded by the depth of operations, which is limited before they are planned.
fn without_key(
    all: &[Selection],
    key: &ChangedKey,
    is_conditional: bool,
    members: &mut Vec<PopulatedMember>,
) -> Vec<Selection> {
    let is_of_key = |field: &ast::Field| {
        let is_plain = field.arguments.is_empty() && field.selection_set.is_empty();
        let own =
            |name: &str| key.fields.iter().any(|it| *it.name == *name && it.fields.is_empty());
        is_plain && field.response_name() == &field.name && own(&field.name)
    };
    let mut left = Vec::with_capacity(all.len());
    for selection in all {
        match selection {
            Selection::Field(field) if field.name == "__typename" || is_of_key(field) => {}
            Selection::Field(field) => {
                let response_key: Box<str> = field.response_name().as_str().into();
                let is_conditional = is_conditional || !field.directives.is_empty();
                match members.iter_mut().find(|it| it.response_key == response_key) {
                    Some(known) => known.is_conditional &= is_conditional,
                    None => members.push(PopulatedMember { response_key, is_conditional }),
                }
                left.push(selection.clone());
            }
            Selection::InlineFragment(fragment) => {
                let selection_set = without_key(&fragment.selection_set, key, true, members);
                if !selection_set.is_empty() {
                    let fragment = ast::InlineFragment { selection_set, ..(**fragment).clone() };
                    left.push(Selection::InlineFragment(Node::new(fragment)));
                }
            }
            // See `has_spread`.
            Selection::FragmentSpread(_) => {}
        }
    }
    left
}

/// True if the members of an object are not known without the definition of a fragment. The planner writes no such
/// text.
fn has_spread(all: &[Selection]) -> bool {
    all.iter().any(|selection| match selection {
        Selection::Field(_) => false,
        Selection::InlineFragment(fragment) => has_spread(&fragment.selection_set),
        Selection::FragmentSpread(_) => true,
    })
}
