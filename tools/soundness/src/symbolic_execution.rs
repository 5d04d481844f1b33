//! One symbolic execution: the fetches of a plan, in order, for fixed values of the conditions.

use std::cell::Cell;
use std::collections::BTreeSet;

use apollo_compiler::Node;
use apollo_compiler::ast::{self, Directive, OperationDefinition, Selection};
use graph::{FieldId, FieldSet, FieldSetItem, SubgraphId, Supergraph, TypeId};
use plan::{
    EntityBatch, EventField, FetchKind, Operation, OperationKind, Path, PathStep, Plan,
    SubscriptionRoot, Variables,
};

use crate::{
    arguments,
    assignments::any_holds,
    known_entities, representations,
    requests::{Requests, response_key},
    symbolic_tree::{FieldFacts, ObjectFacts, ObjectsAt, Producer, SEED, coordinate},
    violation::{Unsound, unsound},
};

pub(crate) struct SymbolicExecution<'a> {
    pub(crate) graph: &'a Supergraph,
    operation: &'a Operation,
    plan: &'a Plan,
    requests: &'a Requests,
    variables: &'a Variables,
    root: ObjectsAt,
    /// The number of values that may still be put into the tree.
    pub(crate) values_left: Cell<usize>,
}

/// The request that is being recorded, and the facts that hold at the current position of its selections.
#[derive(Clone)]
struct FetchScope<'a> {
    subgraph: SubgraphId,
    producer: Producer,
    /// The field sets that `@provides` adds at this position.
    provides: Vec<&'a FieldSet>,
    /// The batch that fetched the object, if any: its representations may contain the fields that others require.
    batch: Option<&'a EntityBatch>,
}

impl<'a> SymbolicExecution<'a> {
    pub(crate) fn new(
        graph: &'a Supergraph,
        operation: &'a Operation,
        plan: &'a Plan,
        requests: &'a Requests,
        variables: &'a Variables,
    ) -> Self {
        let mut root = ObjectsAt::default();
        let known = ObjectFacts { typename: vec![SEED], ..ObjectFacts::default() };
        root.types.insert(operation.selection_set.on, known);
        Self { graph, operation, plan, requests, variables, root, values_left: Cell::new(0) }
    }

    /// Returns the tree after all fetches.
    pub(crate) fn into_root(self) -> ObjectsAt {
        self.root
    }

    pub(crate) fn fetch_all(&mut self) -> Result<(), Unsound> {
        match &self.plan.subscription {
            Some(SubscriptionRoot::Event(event)) => self.record_payload(event, SEED),
            Some(SubscriptionRoot::Upstream { subgraph, .. }) => {
                if let Some(sent) = &self.requests.subscription {
                    self.fetch_root(*subgraph, sent, SEED)?;
                }
            }
            None => {}
        }
        let mut before: Vec<BTreeSet<Producer>> = Vec::new();
        for (index, fetch) in self.plan.fetches.iter().enumerate() {
            let mut all = BTreeSet::from([SEED]);
            for id in &fetch.depends_on {
                let Some(known) = before.get(id.0 as usize) else {
                    unsound!("fetch {index} depends on {}, which is not before it", id.0)
                };
                all.extend(known);
                all.insert(id.0);
            }
            self.check_order(index, &all, &before)?;
            if any_holds(&fetch.any_of, self.variables) {
                let producer = index as Producer;
                match (&fetch.kind, &self.requests.fetches[index]) {
                    (FetchKind::Root { .. }, Some(sent)) => {
                        self.fetch_root(fetch.subgraph, sent, producer)?;
                    }
                    (FetchKind::RootBelow { target, .. }, Some(sent)) => {
                        self.fetch_root_below(fetch.subgraph, target, sent, producer, &all)?;
                    }
                    (FetchKind::Entities { batches, .. }, Some(sent)) => {
                        for (batch, selection) in batches.iter().zip(&sent.selection_set) {
                            self.fetch_entities(fetch.subgraph, batch, selection, producer, &all)?;
                        }
                    }
                    (FetchKind::Publish(event) | FetchKind::Request(event), _) => {
                        self.record_payload(event, producer);
                    }
                    (_, None) => {}
                }
            }
            before.push(all);
        }
        Ok(())
    }

    /// Checks the order of root fields of mutations: fetches that belong to an earlier root field end before a later
    /// one starts (GraphQL specification, section 6.2.2).
    fn check_order(
        &self,
        index: usize,
        all: &BTreeSet<Producer>,
        before: &[BTreeSet<Producer>],
    ) -> Result<(), Unsound> {
        let kind = &self.plan.fetches[index].kind;
        let is_root =
            matches!(kind, FetchKind::Root { .. } | FetchKind::Publish(_) | FetchKind::Request(_));
        if self.plan.kind != OperationKind::Mutation || !is_root {
            return Ok(());
        }
        match (0..before.len()).find(|&earlier| !all.contains(&(earlier as Producer))) {
            Some(earlier) => unsound!("mutation {index} does not wait for fetch {earlier}"),
            None => Ok(()),
        }
    }

    fn record_payload(&mut self, event: &EventField, producer: Producer) {
        let ty = self.graph.field_type_in(event.field, event.subgraph);
        let entry = FieldFacts {
            field: event.field,
            arguments: None,
            producers: vec![producer],
            below: ObjectsAt::payload(self.graph, ty, event.subgraph),
        };
        for known in self.root.types.values_mut() {
            known.fields.insert(event.data_key.clone(), entry.clone());
        }
    }

    fn fetch_root(
        &mut self,
        subgraph: SubgraphId,
        sent: &'a Node<OperationDefinition>,
        producer: Producer,
    ) -> Result<(), Unsound> {
        let scope = FetchScope { subgraph, producer, provides: Vec::new(), batch: None };
        let mut root = std::mem::take(&mut self.root);
        for (&ty, known) in &mut root.types {
            if self.plan.kind == OperationKind::Mutation {
                self.check_called_once(known, &sent.selection_set)?;
            }
            self.record_selections(ty, known, &sent.selection_set, &scope)?;
        }
        self.root = root;
        Ok(())
    }

    fn fetch_root_below(
        &mut self,
        subgraph: SubgraphId,
        target: &Path,
        sent: &'a Node<OperationDefinition>,
        producer: Producer,
        before: &BTreeSet<Producer>,
    ) -> Result<(), Unsound> {
        if sent.operation_type != ast::OperationType::Query {
            unsound!("root fields below others are fetched by a {}", sent.operation_type)
        }
        let scope = FetchScope { subgraph, producer, provides: Vec::new(), batch: None };
        let mut root = std::mem::take(&mut self.root);
        self.visit_targets(&mut root, &target.steps, &[], before, &mut |run, ty, known| {
            if ty != run.graph.query {
                unsound!("root fields are fetched for a {}", run.graph.ty(ty).name)
            }
            run.record_selections(ty, known, &sent.selection_set, &scope)
        })?;
        self.root = root;
        Ok(())
    }

    fn check_called_once(
        &self,
        known: &ObjectFacts,
        selections: &[Selection],
    ) -> Result<(), Unsound> {
        for selection in selections {
            if let Selection::Field(field) = selection
                && known.fields.contains_key(response_key(field))
                && self.is_included(&field.directives)
            {
                unsound!("mutation field `{}` is called twice", response_key(field));
            }
        }
        Ok(())
    }

    fn fetch_entities(
        &mut self,
        subgraph: SubgraphId,
        batch: &'a EntityBatch,
        selection: &'a Selection,
        producer: Producer,
        before: &BTreeSet<Producer>,
    ) -> Result<(), Unsound> {
        let Selection::Field(entities) = selection else { return Ok(()) };
        // Other aliases of the same request are wanted; this one selects nothing, whatever is sent with it.
        if !any_holds(&batch.any_of, self.variables)
            || !self.selects_any_field(&entities.selection_set)
        {
            return Ok(());
        }
        let scope = FetchScope { subgraph, producer, provides: Vec::new(), batch: Some(batch) };
        let mut root = std::mem::take(&mut self.root);
        for target in &batch.targets {
            self.visit_targets(&mut root, &target.steps, &[], before, &mut |run, ty, known| {
                representations::check_representation(
                    run.graph, subgraph, batch, ty, known, before,
                )?;
                run.record_selections(ty, known, &entities.selection_set, &scope)
            })?;
        }
        for place in &batch.reuse {
            let selections = &entities.selection_set;
            known_entities::check_values(self.plan, place, selections)?;
            self.visit_targets(
                &mut root,
                &place.path.steps,
                &[],
                before,
                &mut |run, ty, known| {
                    known_entities::check_object(
                        run.graph,
                        run.operation,
                        place,
                        selections,
                        ty,
                        known,
                    )
                },
            )?;
        }
        self.root = root;
        Ok(())
    }

    /// True if any field is selected under the current conditions.
    fn selects_any_field(&self, selections: &[Selection]) -> bool {
        selections.iter().any(|selection| match selection {
            Selection::Field(field) => self.is_included(&field.directives),
            Selection::InlineFragment(fragment) => {
                self.is_included(&fragment.directives)
                    && self.selects_any_field(&fragment.selection_set)
            }
            Selection::FragmentSpread(_) => true,
        })
    }

    /// Visits the objects at the end of a path.
    fn visit_targets(
        &self,
        place: &mut ObjectsAt,
        steps: &[PathStep],
        types: &[Box<str>],
        before: &BTreeSet<Producer>,
        visit: &mut impl FnMut(&Self, TypeId, &mut ObjectFacts) -> Result<(), Unsound>,
    ) -> Result<(), Unsound> {
        for (&ty, known) in &mut place.types {
            if !types.is_empty() {
                // Objects whose `__typename` no earlier fetch selected are skipped, as in execution. If a field of them
                // was wanted, the response or a representation lacks it, which is found there.
                let is_said = known.typename.iter().any(|producer| before.contains(producer));
                if !is_said || !types.contains(&self.graph.ty(ty).name) {
                    continue;
                }
            }
            match steps {
                [] => visit(self, ty, known)?,
                [step, rest @ ..] => {
                    let Some(entry) = known.entry(self.graph, ty, &step.data_key) else { continue };
                    if entry.producers.iter().any(|producer| before.contains(producer)) {
                        self.visit_targets(&mut entry.below, rest, &step.types, before, visit)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Records the fields that a subgraph returns for an object of type `ty`.
    fn record_selections(
        &self,
        ty: TypeId,
        known: &mut ObjectFacts,
        selections: &'a [Selection],
        scope: &FetchScope<'a>,
    ) -> Result<(), Unsound> {
        for selection in selections {
            match selection {
                Selection::FragmentSpread(_) => {
                    unsound!("a named fragment in a subgraph operation")
                }
                Selection::InlineFragment(fragment) => {
                    if !self.is_included(&fragment.directives) {
                        continue;
                    }
                    let applies = match &fragment.type_condition {
                        None => true,
                        Some(name) => match self.graph.type_named(name) {
                            Some(on) => self.is_a(ty, on, scope.subgraph),
                            None => unsound!("a fragment on `{name}`, which does not exist"),
                        },
                    };
                    if applies {
                        self.record_selections(ty, known, &fragment.selection_set, scope)?;
                    }
                }
                Selection::Field(field) => {
                    if self.is_included(&field.directives) {
                        self.record_field(ty, known, field, scope)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn record_field(
        &self,
        ty: TypeId,
        known: &mut ObjectFacts,
        selected: &'a ast::Field,
        scope: &FetchScope<'a>,
    ) -> Result<(), Unsound> {
        let left = self.values_left.get().checked_sub(1).ok_or_else(Unsound::too_large)?;
        self.values_left.set(left);
        let graph = self.graph;
        let key = response_key(selected);
        if selected.name == "__typename" {
            let is_masked = self.is_masked(ty, scope.subgraph);
            match key {
                "__typename" if !is_masked => known.typename.push(scope.producer),
                "__typename" => {}
                _ if is_masked && !known.fields.contains_key(key) => {
                    known.unread.insert(key.into());
                }
                _ => unsound!("`__typename` is stored under `{key}`"),
            }
            return Ok(());
        }
        let type_name = &graph.ty(ty).name;
        if known.unread.contains(key) {
            unsound!("`{key}` of `{type_name}` is also the name of an interface object");
        }
        let Some(own) = graph.field_named(ty, &selected.name) else {
            unsound!("`{type_name}` has no field `{}`", selected.name)
        };
        let provided = self.check_resolvable(ty, own, known, scope)?;
        let read = self.check_context_arguments(ty, own, selected, scope)?;
        let given = selected.arguments.iter().filter(|it| !read.contains(&it.name.as_str()));
        let given = arguments::subgraph_arguments(given, self.operation);
        let entry = known.fields.entry(key.into()).or_insert_with(|| FieldFacts {
            field: own,
            arguments: Some(given.clone()),
            producers: Vec::new(),
            below: ObjectsAt::default(),
        });
        if entry.field != own || entry.arguments.as_ref().is_some_and(|known| *known != given) {
            unsound!(
                "`{key}` of `{type_name}` is both `{}` and `{}{}`",
                coordinate(graph, entry.field),
                coordinate(graph, own),
                if entry.field == own { " with other arguments" } else { "" }
            );
        }
        if !entry.producers.contains(&scope.producer) {
            entry.producers.push(scope.producer);
        }
        let below = graph.field(own).ty.named();
        if !graph.ty(below).kind.is_composite() {
            return Ok(());
        }
        let mut provides = provided;
        let mention = self.mentioned_field(ty, own, scope.subgraph);
        let there = graph.field_in(mention, scope.subgraph);
        provides.extend(there.and_then(|there| there.provides.as_ref()));
        let inner = FetchScope { provides, batch: None, ..*scope };
        let static_type = graph.field_type_in(mention, scope.subgraph);
        let is_object =
            graph.type_in(static_type, scope.subgraph).is_some_and(|there| there.interface_object);
        // An object behind an interface object may be any of the objects that other subgraphs know.
        let possible = match is_object {
            true => &graph.ty(static_type).possible[..],
            false => graph.possible_in(static_type, scope.subgraph),
        };
        for &member in possible {
            let known = entry.below.types.entry(member).or_default();
            self.record_selections(member, known, &selected.selection_set, &inner)?;
        }
        Ok(())
    }

    /// Checks that the subgraph can resolve the field at this position. Returns the field sets that `@provides` states
    /// below it.
    fn check_resolvable(
        &self,
        ty: TypeId,
        own: FieldId,
        known: &mut ObjectFacts,
        scope: &FetchScope<'a>,
    ) -> Result<Vec<&'a FieldSet>, Unsound> {
        let graph = self.graph;
        let mut provided = Vec::new();
        for set in &scope.provides {
            provided_in(graph, set, ty, &graph.field(own).name, &mut provided);
        }
        if !provided.is_empty() {
            return Ok(provided);
        }
        let mention = self.mentioned_field(ty, own, scope.subgraph);
        let subgraph = &graph.subgraph(scope.subgraph).name;
        if !graph.field(mention).resolved_by.contains(scope.subgraph) {
            unsound!("subgraph `{subgraph}` does not resolve `{}`", coordinate(graph, own));
        }
        let there = graph.field_in(mention, scope.subgraph);
        let is_external = there.is_some_and(|there| there.external);
        if is_external && !graph.is_key_reference(mention, scope.subgraph) {
            unsound!("`{}` is external in subgraph `{subgraph}`", coordinate(graph, own));
        }
        if let Some(requires) = there.and_then(|there| there.requires.as_ref()) {
            let Some(batch) = scope.batch else {
                unsound!(
                    "`{}` is fetched from subgraph `{subgraph}` without the fields that it requires",
                    coordinate(graph, own)
                )
            };
            representations::check_required(graph, batch, own, requires, ty, known)?;
        }
        Ok(provided)
    }

    /// Returns the arguments that are read from objects further up (`@fromContext`). Each needs a variable of the
    /// batch, with a value that is found above all objects of the batch.
    fn check_context_arguments(
        &self,
        ty: TypeId,
        own: FieldId,
        selected: &'a ast::Field,
        scope: &FetchScope<'a>,
    ) -> Result<Vec<&'a str>, Unsound> {
        let mention = self.mentioned_field(ty, own, scope.subgraph);
        let there = self.graph.field_in(mention, scope.subgraph);
        let mut read = Vec::new();
        for wanted in there.into_iter().flat_map(|there| &there.context) {
            let given = selected.arguments.iter().find(|it| *it.name.as_str() == *wanted.name);
            let variable = given.and_then(|given| match &*given.value {
                ast::Value::Variable(name) => Some((given, name)),
                _ => None,
            });
            let known = scope.batch.into_iter().flat_map(|batch| &batch.context);
            let Some((given, _)) = variable.filter(|(_, name)| {
                let mut known = known.clone();
                known.any(|it| *it.variable == ***name && !it.sources.is_empty())
            }) else {
                unsound!(
                    "`{}` is fetched without its argument `{}`",
                    coordinate(self.graph, own),
                    wanted.name
                )
            };
            read.push(given.name.as_str());
        }
        Ok(read)
    }

    /// Returns the field as which the subgraph knows `own`: its own field, or the field of an interface object.
    fn mentioned_field(&self, ty: TypeId, own: FieldId, subgraph: SubgraphId) -> FieldId {
        representations::mentioned_field(self.graph, ty, own, subgraph)
    }

    /// True if the subgraph knows objects of that type only as an interface object.
    fn is_masked(&self, ty: TypeId, subgraph: SubgraphId) -> bool {
        self.graph.type_in(ty, subgraph).is_none()
    }

    /// True if a fragment on `on` applies to objects of type `ty` in that subgraph.
    fn is_a(&self, ty: TypeId, on: TypeId, subgraph: SubgraphId) -> bool {
        let there = self.graph.type_in(on, subgraph);
        let is_object = there.is_some_and(|there| there.interface_object);
        on == ty
            || self.graph.possible_in(on, subgraph).contains(&ty)
            || (is_object && self.graph.ty(on).possible.contains(&ty))
    }

    fn is_included(&self, directives: &[Node<Directive>]) -> bool {
        directives.iter().all(|directive| {
            let wanted = directive.name == "include";
            match directive.specified_argument_by_name("if").map(|value| &**value) {
                Some(ast::Value::Boolean(value)) => *value == wanted,
                Some(ast::Value::Variable(name)) => {
                    let mut all = self.operation.variables.iter();
                    let id = all.position(|variable| *variable.name == **name);
                    let id = plan::VariableId(id.map_or(u16::MAX, |index| index as u16));
                    self.variables.is_true(id) == wanted
                }
                _ => true,
            }
        })
    }
}

/// Collects the field sets that a set of `@provides` states below the field `name` of an object of type `ty`.
fn provided_in<'a>(
    graph: &Supergraph,
    set: &'a FieldSet,
    ty: TypeId,
    name: &str,
    found: &mut Vec<&'a FieldSet>,
) {
    for item in &set.items {
        match item {
            FieldSetItem::Field { field, fields, .. } if *graph.field(*field).name == *name => {
                found.push(fields);
            }
            FieldSetItem::Field { .. } => {}
            FieldSetItem::Fragment { on, fields } => {
                if *on == ty || graph.ty(*on).possible.contains(&ty) {
                    provided_in(graph, fields, ty, name, found);
                }
            }
        }
    }
}
