//! The query for the current state of a subscription's field: the same selections below another root field.

use graph::{FieldId, Supergraph};

use crate::{Field, FieldTarget, Fragment, Operation, OperationKind, Selection, SelectionSet};

impl Operation {
    /// Converts this subscription to a query for `field`, which has the same arguments. The response has the
    /// subscription's response key, so it has the form of the subscription's payloads.
    #[must_use]
    pub fn as_query(&self, graph: &Supergraph, field: FieldId) -> Self {
        Self {
            kind: OperationKind::Query,
            selection_set: convert_root(&self.selection_set, graph, field),
            ..self.clone()
        }
    }
}

// The recursion is as deep as fragments of the root, which normalisation has merged.
fn convert_root(set: &SelectionSet, graph: &Supergraph, field: FieldId) -> SelectionSet {
    let item = |item: &Selection| match item {
        Selection::Field(selected) => Selection::Field(convert_field(selected, graph, field)),
        Selection::Fragment(fragment) => Selection::Fragment(Fragment {
            on: graph.query,
            condition: fragment.condition.clone(),
            selection_set: convert_root(&fragment.selection_set, graph, field),
        }),
    };
    SelectionSet { on: graph.query, items: set.items.iter().map(item).collect() }
}

fn convert_field(selected: &Field, graph: &Supergraph, field: FieldId) -> Field {
    let FieldTarget::Field(subscribed) = selected.target else { return selected.clone() };
    let mut converted = Field { target: FieldTarget::Field(field), ..selected.clone() };
    // An argument that the client omits has the default of the subscription's field, not that of the query's field.
    for argument in &graph.field(subscribed).arguments {
        let is_given = converted.arguments.iter().any(|(name, _)| *name == argument.name);
        let default = argument.default.as_deref().filter(|_| !is_given);
        if let Some(default) = default.and_then(graph::ConstValue::parse) {
            converted.arguments.push((argument.name.clone(), default.into()));
        }
    }
    converted
}
