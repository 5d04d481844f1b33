//! The query that asks for the current state of a subscription's field: the same selections below another root field.

use graph::{FieldId, Supergraph};

use crate::planner::constant;
use crate::{Field, FieldTarget, Fragment, Operation, OperationKind, Selection, SelectionSet};

impl Operation {
    /// This subscription as a query for `field`, which takes the same arguments. The answer has the subscription's
    /// response key, so it is one of its payloads.
    #[must_use]
    pub fn as_query(&self, graph: &Supergraph, field: FieldId) -> Self {
        Self {
            kind: OperationKind::Query,
            selection_set: root(&self.selection_set, graph, field),
            ..self.clone()
        }
    }
}

// As deep as fragments of the root, which normalisation has merged.
fn root(set: &SelectionSet, graph: &Supergraph, field: FieldId) -> SelectionSet {
    let item = |item: &Selection| match item {
        Selection::Field(selected) => Selection::Field(asked(selected, graph, field)),
        Selection::Fragment(fragment) => Selection::Fragment(Fragment {
            on: graph.query,
            condition: fragment.condition.clone(),
            selection_set: root(&fragment.selection_set, graph, field),
        }),
    };
    SelectionSet { on: graph.query, items: set.items.iter().map(item).collect() }
}

fn asked(selected: &Field, graph: &Supergraph, field: FieldId) -> Field {
    let FieldTarget::Field(subscribed) = selected.target else { return selected.clone() };
    let mut asked = Field { target: FieldTarget::Field(field), ..selected.clone() };
    // What the client leaves out is what it would be there, and not what it would be here.
    for argument in &graph.field(subscribed).arguments {
        let is_given = asked.arguments.iter().any(|(name, _)| *name == argument.name);
        let default = argument.default.as_deref().filter(|_| !is_given);
        if let Some(default) = default.and_then(graph::ConstValue::parse) {
            asked.arguments.push((argument.name.clone(), constant(default)));
        }
    }
    asked
}
