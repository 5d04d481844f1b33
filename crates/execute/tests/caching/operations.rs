//! The operations of the tests, compiled.

use std::sync::Arc;

use execute::{
    Executable, FetchCaching, KeyedSelection, PartCaching, RootField, RootRequest, RootSelection,
};
use graph::SubgraphId;
use plan::{Fetch, FetchKind, OperationKind, Plan, SubgraphOperation, VariableId};

use crate::kit::notation;

/// The query `{ items { id value } }`: a list of one subgraph, values of the other.
pub(super) fn executable() -> Executable {
    let operation = |text: &str| SubgraphOperation {
        text: text.into(),
        kind: OperationKind::Query,
        name: None,
        variables: Vec::new(),
    };
    let fetch = |subgraph, kind, depends_on: &[u32]| Fetch {
        subgraph: SubgraphId(subgraph),
        kind,
        depends_on: depends_on.iter().map(|id| plan::FetchId(*id)).collect(),
        any_of: Vec::new(),
        representations_max: 1_000,
    };
    let list = operation("{items{__typename id}}");
    let root = FetchKind::Root { operation: list, data_keys: vec!["items".into()] };
    let values = operation("query($r:[_Any!]!){_entities(representations:$r){...on Item{value}}}");
    let batch = notation::batch("_entities r at items as Item id!");
    let entities = FetchKind::Entities { operation: values, batches: vec![batch] };
    let plan = Plan {
        kind: OperationKind::Query,
        fetches: vec![fetch(0, root, &[]), fetch(1, entities, &[0])],
        subscription: None,
        shape: notation::shape("Query { items: [Item!]! { id: Int! value: String } }"),
    };
    let caching = vec![None, Some(FetchCaching::new(vec![PartCaching::default()]))];
    Executable::new(Arc::new(plan)).with_caching(caching)
}

/// A query for `count` root fields `value(id:)`, each with a response key and a variable of its own.
pub(super) fn root_executable(prefix: &str, count: usize) -> Executable {
    let ids = 0..count as u16;
    let name = |id: u16| format!("{prefix}{id}");
    let text = |id: u16| format!("{}:value(id:${})", name(id), name(id));
    let declaration = |id: u16| format!("${}:Int", name(id));
    let joined = |part: &dyn Fn(u16) -> String, separator: &str| {
        ids.clone().map(part).collect::<Vec<_>>().join(separator)
    };
    let text_of_all = format!("query({}){{{}}}", joined(&declaration, ","), joined(&text, " "));
    let operation = SubgraphOperation {
        text: text_of_all.into(),
        kind: OperationKind::Query,
        name: None,
        variables: ids.clone().map(|id| (name(id).into(), VariableId(id))).collect(),
    };
    let fields = ids.clone().map(|id| RootField {
        data_key: name(id).into(),
        selections: vec![RootSelection {
            text: text(id).into(),
            variables: vec![VariableId(id)],
            conditions: Vec::new(),
            key_text: "value(id:$0)".into(),
        }],
    });
    let variables = ids.clone().map(|id| (name(id).into(), VariableId(id), declaration(id).into()));
    let request = RootRequest::new(None, variables.collect(), fields.collect());
    let parts = ids.clone().map(|id| PartCaching {
        selection: KeyedSelection {
            text: "value(id:$0)".into(),
            variables: vec![VariableId(id)],
            reads_context: false,
        },
        ..PartCaching::default()
    });
    let shape = joined(&|id| format!("{}: String", name(id)), " ");
    let fetch = Fetch {
        subgraph: SubgraphId(1),
        kind: FetchKind::Root {
            operation,
            data_keys: ids.clone().map(|id| name(id).into()).collect(),
        },
        depends_on: Vec::new(),
        any_of: Vec::new(),
        representations_max: 1_000,
    };
    let plan = Plan {
        kind: OperationKind::Query,
        fetches: vec![fetch],
        subscription: None,
        shape: notation::shape(&format!("Query {{ {shape} }}")),
    };
    let caching = FetchCaching::of_root(request, parts.collect());
    Executable::new(Arc::new(plan)).with_caching(vec![Some(caching)])
}
