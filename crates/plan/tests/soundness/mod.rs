//! Checks any plan against the supergraph, independently of how it was made: every subgraph
//! operation is valid for that subgraph's schema, and every member of a representation was selected
//! by a fetch that comes before.

mod subgraph_schema;

use std::collections::{BTreeMap, BTreeSet};

use apollo_compiler::ast::{Definition, Document, Selection};
use graph::{SubgraphId, Supergraph, TypeId};
use plan::{
    EntityBatch, Fetch, FetchKind, Operation, Path, Plan, RepresentationField, SubgraphOperation,
    SubscriptionRoot,
};

/// Data keys at a place, for all types; `None` as the type: whatever the type is.
#[derive(Clone, Default, Debug)]
struct Tree {
    children: BTreeMap<String, Tree>,
    /// A payload: its members are not known, anything may be there.
    is_open: bool,
}

impl Tree {
    fn merge(&mut self, other: &Tree) {
        self.is_open |= other.is_open;
        for (key, below) in &other.children {
            self.children.entry(key.clone()).or_default().merge(below);
        }
    }

    fn at(&mut self, path: &Path) -> &mut Tree {
        let mut here = self;
        for step in &path.steps {
            here = here.children.entry(step.data_key.to_string()).or_default();
        }
        here
    }

    fn get(&self, path: &Path) -> Option<&Tree> {
        let mut here = self;
        for step in &path.steps {
            if here.is_open {
                return Some(here);
            }
            here = here.children.get(&*step.data_key)?;
        }
        Some(here)
    }
}

pub(crate) use subgraph_schema::Schemas;

pub(crate) fn check(graph: &Supergraph, schemas: &Schemas, operation: &Operation, plan: &Plan) {
    let mut start = Tree::default();
    match &plan.subscription {
        Some(SubscriptionRoot::Event(event)) => {
            start.children.entry(event.data_key.to_string()).or_default().is_open = true;
        }
        Some(SubscriptionRoot::Upstream { subgraph, operation }) => {
            let root = graph.subscription.expect("the schema has subscriptions");
            start.merge(&selected(graph, schemas, *subgraph, operation, &[], root));
        }
        None => {}
    }
    let mut done: Vec<Tree> = Vec::new();
    let mut all: Vec<BTreeSet<usize>> = Vec::new();
    for (index, fetch) in plan.fetches.iter().enumerate() {
        let mut before: BTreeSet<usize> = BTreeSet::new();
        for id in &fetch.depends_on {
            let id = id.0 as usize;
            assert!(id < index, "a fetch depends on earlier ones only");
            before.insert(id);
            before.extend(&all[id]);
        }
        let mut there = start.clone();
        before.iter().for_each(|&id| there.merge(&done[id]));
        done.push(answer(graph, schemas, fetch, &there));
        all.push(before);
    }
    for variable in plan.fetches.iter().filter_map(operation_of).flat_map(|o| &o.variables) {
        let declared = &operation.variables[usize::from(variable.1.0)];
        assert_eq!(declared.name, variable.0, "variables keep their names");
    }
    let mut whole = start;
    done.iter().for_each(|tree| whole.merge(tree));
    covers(plan, plan.shape.root, &whole, &mut BTreeSet::new());
}

/// Everything the answer reads is selected by somebody (conditions and types left aside).
fn covers(
    plan: &Plan,
    shape: plan::ObjectShapeId,
    tree: &Tree,
    seen: &mut BTreeSet<(u32, *const Tree)>,
) {
    if tree.is_open || !seen.insert((shape.0, std::ptr::from_ref(tree))) {
        return;
    }
    let object = &plan.shape.objects[shape.0 as usize];
    for field in object.variants.iter().flat_map(|variant| &variant.fields) {
        let mut kind = &field.value.kind;
        while let plan::ValueKind::List(inner) = kind {
            kind = &inner.kind;
        }
        if matches!(kind, plan::ValueKind::Typename | plan::ValueKind::Verbatim) {
            continue;
        }
        let Some(below) = tree.children.get(&*field.data_key) else {
            // Object types that nobody returns here are in the shape all the same.
            assert!(object.is_abstract, "nobody selects {}.{}", object.type_name, field.data_key);
            continue;
        };
        if let plan::ValueKind::Object(id) = kind {
            covers(plan, *id, below, seen);
        }
    }
}

fn operation_of(fetch: &Fetch) -> Option<&SubgraphOperation> {
    match &fetch.kind {
        FetchKind::Root(operation) | FetchKind::Entities { operation, .. } => Some(operation),
        FetchKind::Publish(_) => None,
    }
}

fn answer(graph: &Supergraph, schemas: &Schemas, fetch: &Fetch, there: &Tree) -> Tree {
    let mut tree = Tree::default();
    match &fetch.kind {
        FetchKind::Publish(event) => {
            tree.children.entry(event.data_key.to_string()).or_default().is_open = true;
        }
        FetchKind::Root(operation) => {
            let root = match operation.kind {
                plan::OperationKind::Query => graph.query,
                plan::OperationKind::Mutation => graph.mutation.expect("a mutation root"),
                plan::OperationKind::Subscription => panic!("subscriptions are no fetches"),
            };
            tree = selected(graph, schemas, fetch.subgraph, operation, &[], root);
        }
        FetchKind::Entities { operation, batches } => {
            let answer = selected(graph, schemas, fetch.subgraph, operation, batches, graph.query);
            for batch in batches {
                let typename = batch.representation.typename.as_deref().expect("types are fixed");
                let ty = graph.type_named(typename).expect("a known type");
                assert!(
                    graph.keys_into(ty, fetch.subgraph).next().is_some(),
                    "{typename} has a key in the subgraph asked"
                );
                let below = &answer.children[&*batch.data_key];
                for target in &batch.targets {
                    let Some(objects) = there.get(target) else {
                        panic!("nothing was fetched at {target:?} for {}", operation.text)
                    };
                    assert_has(objects, &batch.representation.fields, &operation.text);
                    tree.at(target).merge(below);
                }
            }
        }
    }
    tree
}

fn assert_has(tree: &Tree, fields: &[RepresentationField], text: &str) {
    if tree.is_open {
        return;
    }
    for field in fields {
        let Some(below) = tree.children.get(&*field.data_key) else {
            panic!("{} was not fetched before {text}", field.data_key)
        };
        assert_has(below, &field.fields, text);
    }
}

/// Parses the text, checks it against the subgraph, and returns the data keys it yields.
fn selected(
    graph: &Supergraph,
    schemas: &Schemas,
    subgraph: SubgraphId,
    operation: &SubgraphOperation,
    batches: &[EntityBatch],
    root: TypeId,
) -> Tree {
    let document = match Document::parse(operation.text.to_string(), "subgraph.graphql") {
        Ok(document) => document,
        Err(errors) => panic!("{errors}\n{}", operation.text),
    };
    let [Definition::OperationDefinition(parsed)] = &*document.definitions else {
        panic!("one operation: {}", operation.text)
    };
    if let Err(errors) = document.to_executable_validate(schemas.of(subgraph)) {
        panic!("{errors}\n{}", operation.text);
    }
    let declared: Vec<String> =
        parsed.variables.iter().map(|variable| variable.name.to_string()).collect();
    let own = batches.iter().map(|batch| batch.variable.to_string());
    let wanted: Vec<String> =
        own.chain(operation.variables.iter().map(|(name, _)| name.to_string())).collect();
    assert_eq!(declared, wanted, "variables are declared as listed");
    let mut tree = Tree::default();
    if batches.is_empty() {
        select(graph, subgraph, &parsed.selection_set, root, &mut tree, &operation.text);
        return tree;
    }
    for selection in &parsed.selection_set {
        let Selection::Field(field) = selection else { panic!("entities only") };
        assert_eq!(field.name, "_entities");
        let below = tree.children.entry(field.response_key().to_string()).or_default();
        for selection in &field.selection_set {
            let Selection::InlineFragment(fragment) = selection else { panic!("a fragment") };
            let on = fragment.type_condition.as_ref().expect("a type condition");
            let ty = graph.type_named(on).expect("a known type");
            select(graph, subgraph, &fragment.selection_set, ty, below, &operation.text);
        }
    }
    tree
}

fn select(
    graph: &Supergraph,
    subgraph: SubgraphId,
    selections: &[Selection],
    on: TypeId,
    tree: &mut Tree,
    text: &str,
) {
    let type_name = &graph.ty(on).name;
    assert!(graph.type_in(on, subgraph).is_some(), "{type_name} is not in the subgraph: {text}");
    assert!(!selections.is_empty(), "an empty selection in {text}");
    for selection in selections {
        match selection {
            Selection::FragmentSpread(_) => panic!("no named fragments: {text}"),
            Selection::InlineFragment(fragment) => {
                let narrowed = match &fragment.type_condition {
                    None => on,
                    Some(name) => graph.type_named(name).expect("a known type"),
                };
                assert!(
                    narrowed == on || graph.possible_in(on, subgraph).contains(&narrowed),
                    "{} cannot be a {type_name} there: {text}",
                    graph.ty(narrowed).name
                );
                select(graph, subgraph, &fragment.selection_set, narrowed, tree, text);
            }
            Selection::Field(field) => {
                let key = field.response_key().to_string();
                if field.name == "__typename" {
                    assert_eq!(key, "__typename", "__typename keeps its key: {text}");
                    tree.children.entry(key).or_default();
                    continue;
                }
                let id = graph.field_named(on, &field.name);
                let id = id.unwrap_or_else(|| panic!("no {type_name}.{}: {text}", field.name));
                let there = graph.field_in(id, subgraph);
                assert!(there.is_some(), "{type_name}.{} is not there: {text}", field.name);
                for argument in &field.arguments {
                    let known = &graph.field(id).arguments;
                    assert!(known.iter().any(|a| *a.name == *argument.name.as_str()), "{text}");
                }
                let below = tree.children.entry(key).or_default();
                let ty = graph.field_type_in(id, subgraph);
                let is_composite = graph.ty(ty).kind.is_composite();
                assert_eq!(is_composite, !field.selection_set.is_empty(), "{text}");
                if is_composite {
                    select(graph, subgraph, &field.selection_set, ty, below, text);
                }
            }
        }
    }
}

trait ResponseKey {
    fn response_key(&self) -> &str;
}

impl ResponseKey for apollo_compiler::ast::Field {
    fn response_key(&self) -> &str {
        self.alias.as_ref().unwrap_or(&self.name).as_str()
    }
}
