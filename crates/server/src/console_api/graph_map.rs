//! The JSON of the graph: its subgraphs and the traffic between them, its types and fields with their use, and what the
//! last reload changed.
//!
//! Traffic comes from the fetches of the prepared operations in the cache, so it is that of operations that are in use
//! now. The figures of subgraphs are those of the overview, and the use of fields by client is that of
//! `GET /admin/usage`. All functions that visit the cache take a time that grows with it, and block.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use graph::{FieldId, SubgraphId, SubgraphKind, Supergraph, Type, TypeKind, TypeRef, TypeRefShape};
use plan::{FieldTarget, Selection, SelectionSet};
use prepare::Preparer;
use serde_json::{Value, json};
use serving::figures::field_usage::CoordinateUses;
use serving::serving::Serving;

use super::overview::SubgraphMinute;
use crate::graph_change::GraphDifference;

/// The maximum number of types in a list, and of names in each list of changes.
const TYPES_MAX: usize = 5_000;
const CHANGES_MAX: usize = 200;

/// The maximum number of operations that are listed for a field.
const OPERATIONS_MAX: usize = 10;

/// The maximum number of clients that are listed for a field: those that use it most.
const CLIENTS_MAX: usize = 10;

/// The last change of the graph.
#[derive(Debug, Default)]
pub(super) struct LastReload(Mutex<Option<(Instant, GraphDifference)>>);

impl LastReload {
    /// Notes the difference of each new graph to the one before, for as long as the router runs.
    pub(super) async fn follow(&self, serving: &Serving) {
        let first = serving.current();
        let (mut number, mut before) =
            (first.generation.number, Arc::clone(&first.generation.graph));
        drop(first);
        loop {
            let next = serving.wait_for_graph_after(number).await;
            let now = Arc::clone(&next.generation.graph);
            number = next.generation.number;
            drop(next);
            let (old, new) = (std::mem::replace(&mut before, Arc::clone(&now)), now);
            let difference =
                tokio::task::spawn_blocking(move || GraphDifference::between(&old, &new)).await;
            if let Ok(difference) = difference {
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some((Instant::now(), difference));
            }
        }
    }

    fn describe(&self) -> Value {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((at, GraphDifference { added, removed, changed })) = &*last else {
            return Value::Null;
        };
        let list = |names: &[String]| json!({"count": names.len(), "names": &names[..names.len().min(CHANGES_MAX)]});
        let seconds = at.elapsed().as_secs();
        json!({
            "secondsAgo": seconds,
            "added": list(added),
            "removed": list(removed),
            "changed": list(changed),
        })
    }
}

/// Returns the JSON of `api/graph`. Blocks.
pub(super) fn describe(
    serving: &Serving,
    last_reload: &LastReload,
    minute: &SubgraphMinute,
) -> Value {
    let loaded = serving.current();
    let graph = &loaded.generation.graph;
    let shown = graph.types.iter().filter(|it| is_shown(it));
    let types = shown.clone().take(TYPES_MAX).map(|it| summary(graph, it));
    json!({
        "generation": loaded.generation.number,
        "minuteSeconds": minute.seconds,
        "subgraphs": graph.subgraph_ids().map(|id| subgraph(graph, id, minute)).collect::<Vec<_>>(),
        "traffic": traffic(graph, &loaded.preparer),
        "types": types.collect::<Vec<_>>(),
        "typeCount": shown.count(),
        "lastReload": last_reload.describe(),
    })
}

/// Returns the JSON of `api/type`: the fields of one type, and the operations that select them; `None` if there is no
/// such type. Blocks.
pub(super) fn describe_type(serving: &Serving, name: &str) -> Option<Value> {
    let loaded = serving.current();
    let graph = &loaded.generation.graph;
    let ty = graph.ty(graph.type_named(name)?);
    if !is_shown(ty) {
        return None;
    }
    let uses = field_uses(ty, &loaded.preparer);
    let shown: Vec<FieldId> =
        ty.fields.iter().copied().filter(|id| !graph.field(*id).inaccessible).collect();
    let coordinate = |id: &FieldId| format!("{}.{}", ty.name, graph.field(*id).name);
    let coordinates: Vec<String> = shown.iter().map(coordinate).collect();
    let usage = serving.figures.as_ref().and_then(|it| it.field_uses(&coordinates, CLIENTS_MAX));
    let fields = shown.iter().enumerate().map(|(index, id)| {
        let field = graph.field(*id);
        let by = uses.get(id);
        let usage = usage.as_ref().and_then(|it| it.get(index));
        let subgraphs = field.subgraphs.iter().filter(|it| !it.external);
        let subgraphs = subgraphs.map(|it| &*graph.subgraph(it.subgraph).name);
        json!({
            "name": &*field.name,
            "type": type_text(graph, &field.ty),
            "subgraphs": subgraphs.collect::<Vec<_>>(),
            "operationCount": by.map_or(0, |it| it.operations),
            "operations": by.map(|it| &it.names),
            "usage": usage.map(usage_json),
        })
    });
    let fields: Vec<Value> = fields.collect();
    let mut described = summary(graph, ty);
    described["fields"] = fields.into();
    Some(described)
}

/// The use of a field since the start, by client, those that use it most first.
fn usage_json(uses: &CoordinateUses) -> Value {
    let clients = uses.clients.iter().map(
        |it| json!({"name": &*it.client, "version": &*it.client_version, "requests": it.requests}),
    );
    json!({
        "requests": uses.requests,
        // Seconds since 1970.
        "lastUsed": uses.last_used,
        "clients": clients.collect::<Vec<_>>(),
        "clientCount": uses.client_count,
    })
}

/// True for types that clients see, and that have fields or possible types.
fn is_shown(ty: &Type) -> bool {
    ty.kind.is_composite() && !ty.inaccessible && !ty.name.starts_with("__")
}

fn subgraph(graph: &Supergraph, id: SubgraphId, minute: &SubgraphMinute) -> Value {
    let subgraph = graph.subgraph(id);
    let fields = graph.fields.iter().filter(|it| it.subgraphs.iter().any(|of| of.subgraph == id));
    let has_key = |ty: &&Type| {
        let mut places = ty.subgraphs.iter();
        places.any(|it| it.subgraph == id && !it.keys.is_empty())
    };
    json!({
        "name": &*subgraph.name,
        "kind": match subgraph.kind {
            SubgraphKind::Server => "server",
            SubgraphKind::Events => "events",
        },
        "fields": fields.count(),
        "entities": graph.types.iter().filter(has_key).count(),
        "minute": minute.by_name.get(&*subgraph.name),
    })
}

fn summary(graph: &Supergraph, ty: &Type) -> Value {
    let kind = match ty.kind {
        TypeKind::Object => "object",
        TypeKind::Interface => "interface",
        TypeKind::Union => "union",
        TypeKind::Scalar | TypeKind::Enum(_) | TypeKind::InputObject => "other",
    };
    let subgraphs = ty.subgraphs.iter().map(|it| &*graph.subgraph(it.subgraph).name);
    json!({
        "name": &*ty.name,
        "kind": kind,
        "isEntity": ty.subgraphs.iter().any(|it| !it.keys.is_empty()),
        "fieldCount": ty.fields.len(),
        "subgraphs": subgraphs.collect::<Vec<_>>(),
    })
}

fn type_text(graph: &Supergraph, ty: &TypeRef) -> String {
    let inner = match &ty.shape {
        TypeRefShape::List(inner) => format!("[{}]", type_text(graph, inner)),
        TypeRefShape::Named(id) => graph.ty(*id).name.to_string(),
    };
    if ty.nullable { inner } else { format!("{inner}!") }
}

/// The number of fetches of a subgraph after those of another one. A fetch that waits for none comes from the client.
fn traffic(graph: &Supergraph, preparer: &Preparer) -> Value {
    let mut edges: BTreeMap<(Option<SubgraphId>, SubgraphId), u64> = BTreeMap::new();
    let mut seen = HashSet::new();
    preparer.visit_cached(|prepared| {
        // Texts of the same operation share a plan, and its counts.
        if !seen.insert(Arc::as_ptr(&prepared.executable).addr()) {
            return;
        }
        let fetches = &prepared.plan.fetches;
        for (fetch, times) in fetches.iter().zip(prepared.executable.fetch_times()) {
            let requests = times.requests;
            if requests == 0 {
                continue;
            }
            let before = fetch.depends_on.iter().filter_map(|id| fetches.get(id.0 as usize));
            let mut sources: Vec<_> = before.map(|it| Some(it.subgraph)).collect();
            if sources.is_empty() {
                sources.push(None);
            }
            sources.sort_unstable();
            sources.dedup();
            for source in sources {
                *edges.entry((source, fetch.subgraph)).or_default() += requests;
            }
        }
    });
    let name = |id: SubgraphId| &*graph.subgraph(id).name;
    let edges = edges.into_iter().map(|((from, to), requests)| {
        json!({"from": from.map(name), "to": name(to), "requests": requests})
    });
    edges.collect()
}

/// The operations that select one field.
#[derive(Debug, Default)]
struct FieldUses {
    operations: u64,
    names: Vec<String>,
}

fn field_uses(ty: &Type, preparer: &Preparer) -> BTreeMap<FieldId, FieldUses> {
    let mut uses: BTreeMap<FieldId, FieldUses> = BTreeMap::new();
    preparer.visit_cached(|prepared| {
        let mut selected = Vec::new();
        collect_fields(&prepared.operation.selection_set, &ty.fields, &mut selected);
        selected.sort_unstable();
        selected.dedup();
        for field in selected {
            let uses = uses.entry(field).or_default();
            uses.operations += 1;
            if let Some(name) = prepared.name.as_deref()
                && uses.names.len() < OPERATIONS_MAX
                && !uses.names.iter().any(|it| it == name)
            {
                uses.names.push(name.to_owned());
            }
        }
    });
    uses
}

/// Collects the selected fields that are in `wanted`. The recursion is as deep as the operation, which is limited.
fn collect_fields(set: &SelectionSet, wanted: &[FieldId], selected: &mut Vec<FieldId>) {
    for item in &set.items {
        match item {
            Selection::Field(field) => {
                if let FieldTarget::Field(id) = field.target
                    && wanted.contains(&id)
                {
                    selected.push(id);
                }
                if let Some(below) = &field.selection_set {
                    collect_fields(below, wanted, selected);
                }
            }
            Selection::Fragment(fragment) => {
                collect_fields(&fragment.selection_set, wanted, selected);
            }
        }
    }
}
