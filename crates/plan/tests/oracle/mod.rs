//! A test executor: it runs plans against subgraphs that are pure functions of one store, and compares the response
//! with a plain GraphQL execution over the same store. Both must be equal for every plan.

mod store;
mod subgraph;

use graph::{ContextArgument, Supergraph, TypeId};
use plan::{
    Condition, ContextSource, EntityBatch, EventField, FetchKind, FieldTarget, ObjectShapeId,
    Operation, OperationKind, Path, Plan, RepresentationField, Selection, SelectionSet, ShapeField,
    SubscriptionRoot, Value as V, ValueKind, ValueShape,
};
use serde_json::{Map, Value, json};
use store::{Object, Store, Stored};

/// Executes `operation` in both ways, for these values of its boolean variables.
pub(crate) fn check(graph: &Supergraph, operation: &Operation, plan: &Plan, variables: &[bool]) {
    let store = Store { graph };
    let root = match operation.kind {
        OperationKind::Query => graph.query,
        OperationKind::Mutation => graph.mutation.expect("a mutation root"),
        OperationKind::Subscription => graph.subscription.expect("a subscription root"),
    };
    let expected = Monolith { store, operation, variables }.object(
        &[&operation.selection_set],
        store.root(root),
        &[],
    );
    let actual = Run { store, operation, plan, variables }.answer(root);
    assert_eq!(
        actual,
        expected,
        "the plan answers otherwise than one server would ({variables:?})\n{}",
        plan.to_text(graph)
    );
}

fn holds(condition: &Condition, variables: &[bool]) -> bool {
    condition.all.iter().all(|&(id, wanted)| variables[usize::from(id.0)] == wanted)
}

/// Merges two values deeply. Two values for one key must be equal.
fn merge(into: &mut Value, other: Value) {
    match (into, other) {
        (Value::Object(into), Value::Object(other)) => {
            for (key, value) in other {
                match into.get_mut(&key) {
                    Some(known) => merge(known, value),
                    None => {
                        into.insert(key, value);
                    }
                }
            }
        }
        (Value::Array(into), Value::Array(other)) => {
            assert_eq!(into.len(), other.len(), "merged lists are equally long");
            into.iter_mut().zip(other).for_each(|(into, other)| merge(into, other));
        }
        (into, other) => assert_eq!(*into, other, "one place has one value"),
    }
}

/// The plain execution.
struct Monolith<'a> {
    store: Store<'a>,
    operation: &'a Operation,
    variables: &'a [bool],
}

impl Monolith<'_> {
    /// Resolves the selections on an object; `above` contains its ancestors, outermost first.
    fn object(&self, sets: &[&SelectionSet], object: Object, above: &[Object]) -> Value {
        let mut out = Value::Object(Map::new());
        for set in sets {
            self.set(set, object, above, &mut out);
        }
        out
    }

    fn set(&self, set: &SelectionSet, object: Object, above: &[Object], out: &mut Value) {
        let graph = self.store.graph;
        for item in &set.items {
            match item {
                Selection::Fragment(fragment) => {
                    let applies = fragment.on == object.ty
                        || graph.ty(fragment.on).possible.contains(&object.ty);
                    if applies && holds(&fragment.condition, self.variables) {
                        self.set(&fragment.selection_set, object, above, out);
                    }
                }
                Selection::Field(field) => {
                    if !holds(&field.condition, self.variables) {
                        continue;
                    }
                    let value = match field.target {
                        FieldTarget::Introspection => continue,
                        FieldTarget::Typename => json!(*graph.ty(object.ty).name),
                        FieldTarget::Field(id) => {
                            let id = graph
                                .field_named(object.ty, &graph.field(id).name)
                                .expect("objects have the fields of their interfaces");
                            let mut arguments = self.arguments(&field.arguments);
                            let mentions = graph.field(id).subgraphs.iter();
                            for argument in mentions.flat_map(|there| &there.context) {
                                arguments[&*argument.name] = self.further_up(argument, above);
                            }
                            let stored = self.store.value(id, object, &arguments);
                            let above: Vec<Object> =
                                above.iter().copied().chain([object]).collect();
                            self.value(stored, field.selection_set.as_ref(), &above)
                        }
                    };
                    let key = field.response_key.to_string();
                    merge(out, Value::Object(Map::from_iter([(key, value)])));
                }
            }
        }
    }

    fn arguments(&self, arguments: &[(Box<str>, V)]) -> Value {
        arguments.iter().map(|(name, value)| (name.to_string(), self.argument(value))).collect()
    }

    fn argument(&self, value: &V) -> Value {
        match value {
            V::Null => Value::Null,
            V::Int(text) | V::Float(text) => serde_json::from_str(text).expect("a number"),
            V::String(text) | V::Enum(text) => json!(**text),
            V::Boolean(value) => json!(value),
            V::List(items) => items.iter().map(|item| self.argument(item)).collect(),
            V::Object(_) => self.arguments(match value {
                V::Object(members) => members,
                _ => &[],
            }),
            V::Variable(id) => {
                assert!(self.operation.variables[usize::from(id.0)].ty.starts_with("Boolean"));
                json!(self.variables[usize::from(id.0)])
            }
        }
    }

    /// Returns the value that an argument reads from the nearest object that sets the context.
    fn further_up(&self, argument: &ContextArgument, above: &[Object]) -> Value {
        let graph = self.store.graph;
        for &object in above.iter().rev() {
            let found = argument.selections.iter().find(|(setter, _)| {
                *setter == object.ty || graph.ty(*setter).possible.contains(&object.ty)
            });
            if let Some((_, set)) = found {
                let mut value = self.store.project(set, object);
                while let Value::Object(members) = value {
                    value = members.into_iter().next().expect("one leaf is read").1;
                }
                return value;
            }
        }
        panic!("nothing above sets the context of `{}`", argument.name)
    }

    fn value(&self, stored: Stored, set: Option<&SelectionSet>, above: &[Object]) -> Value {
        match stored {
            Stored::Leaf(value) => value,
            Stored::List(items) => {
                items.into_iter().map(|item| self.value(item, set, above)).collect::<Value>()
            }
            Stored::Object(object) => self.object(set.as_slice(), object, above),
        }
    }
}

/// The execution of the plan.
struct Run<'a> {
    store: Store<'a>,
    operation: &'a Operation,
    plan: &'a Plan,
    variables: &'a [bool],
}

impl Run<'_> {
    /// Stores the value that a broker delivers for a root field.
    fn event(&self, event: &EventField, root: TypeId) -> Value {
        let Self { store, operation, variables, .. } = *self;
        let arguments = Monolith { store, operation, variables }.given(event);
        let stored = store.value(event.field, store.root(root), &arguments);
        json!({ &*event.data_key: self.payload(stored, event.subgraph) })
    }

    fn answer(&self, root: TypeId) -> Value {
        let mut tree = Value::Object(Map::new());
        let named = self.named_variables();
        match &self.plan.subscription {
            Some(SubscriptionRoot::Event(event)) => {
                merge(&mut tree, self.event(event, root));
            }
            Some(SubscriptionRoot::Upstream { subgraph, operation }) => {
                merge(&mut tree, subgraph::run(self.store, *subgraph, operation, &named, root));
            }
            None => {}
        }
        for fetch in &self.plan.fetches {
            let is_sent = fetch.any_of.is_empty()
                || fetch.any_of.iter().any(|condition| holds(condition, self.variables));
            if !is_sent {
                continue;
            }
            match &fetch.kind {
                FetchKind::Publish(event) => {
                    merge(&mut tree, json!({ &*event.data_key: { "success": true } }));
                }
                FetchKind::Request(event) => merge(&mut tree, self.event(event, root)),
                FetchKind::Root(operation) => {
                    merge(
                        &mut tree,
                        subgraph::run(self.store, fetch.subgraph, operation, &named, root),
                    );
                }
                FetchKind::RootBelow { operation, target } => {
                    let mut places = Vec::new();
                    walk(&tree, target, 0, String::new(), &mut places);
                    let query = self.store.graph.query;
                    let data = subgraph::run(self.store, fetch.subgraph, operation, &named, query);
                    for place in places {
                        merge(tree.pointer_mut(&place).expect("walked there"), data.clone());
                    }
                }
                FetchKind::Entities { operation, batches }
                    if batches.iter().any(|batch| !batch.context.is_empty()) =>
                {
                    self.one_by_one(fetch.subgraph, operation, &batches[0], &mut tree, &named);
                }
                FetchKind::Entities { operation, batches } => {
                    let mut sent = named.clone();
                    let mut places = Vec::new();
                    for batch in batches {
                        let is_asked = batch.any_of.is_empty()
                            || batch.any_of.iter().any(|it| holds(it, self.variables));
                        let (there, representations) = match is_asked {
                            true => represent(batch, &tree),
                            false => (Vec::new(), Vec::new()),
                        };
                        sent[&*batch.variable] = Value::Array(representations);
                        places.push(there);
                    }
                    let query = self.store.graph.query;
                    let mut data =
                        subgraph::run(self.store, fetch.subgraph, operation, &sent, query);
                    for (batch, there) in batches.iter().zip(places) {
                        let Value::Array(entities) = data[&*batch.data_key].take() else {
                            panic!("entities are a list")
                        };
                        assert_eq!(entities.len(), there.len());
                        for (place, entity) in there.iter().zip(entities) {
                            let into = tree.pointer_mut(place).expect("it was there just now");
                            merge(into, entity);
                        }
                    }
                }
            }
        }
        self.shaped_object(self.plan.shape.root, &tree, "")
    }

    /// Fetches each object alone, with the values that its arguments read further up.
    fn one_by_one(
        &self,
        subgraph: graph::SubgraphId,
        operation: &plan::SubgraphOperation,
        batch: &EntityBatch,
        tree: &mut Value,
        named: &Value,
    ) {
        let (places, representations) = represent(batch, tree);
        for (place, representation) in places.iter().zip(representations) {
            let mut sent = named.clone();
            sent[&*batch.variable] = json!([representation]);
            for variable in &batch.context {
                let value = variable.sources.iter().find_map(|it| read(tree, place, it));
                sent[&*variable.variable] = value.unwrap_or(Value::Null);
            }
            let query = self.store.graph.query;
            let mut data = subgraph::run(self.store, subgraph, operation, &sent, query);
            let into = tree.pointer_mut(place).expect("it was there just now");
            merge(into, data[&*batch.data_key][0].take());
        }
    }

    fn named_variables(&self) -> Value {
        let named = self.operation.variables.iter().zip(self.variables);
        named.map(|(variable, value)| (variable.name.to_string(), json!(value))).collect()
    }

    /// Returns the payload of an event: its type and the leaves that its subgraph declares.
    fn payload(&self, stored: Stored, subgraph: graph::SubgraphId) -> Value {
        let graph = self.store.graph;
        let object = match stored {
            Stored::Object(object) => object,
            Stored::List(items) => {
                return items.into_iter().map(|item| self.payload(item, subgraph)).collect();
            }
            Stored::Leaf(value) => return value,
        };
        let mut payload = json!({ "__typename": *graph.ty(object.ty).name });
        for &field in &graph.ty(object.ty).fields {
            let definition = graph.field(field);
            if definition.resolved_by.contains(subgraph)
                && let Stored::Leaf(value) = self.store.value(field, object, &json!({}))
            {
                payload[&*definition.name] = value;
            }
        }
        payload
    }

    fn shaped_object(&self, id: ObjectShapeId, tree: &Value, path: &str) -> Value {
        let shape = &self.plan.shape.objects[id.0 as usize];
        let variant = match shape.is_abstract {
            false => &shape.variants[0],
            true => {
                let name = tree["__typename"].as_str();
                let name = name.unwrap_or_else(|| panic!("{path} does not say its type"));
                let found = shape.variants.iter().find(|variant| *variant.type_name == *name);
                found.unwrap_or_else(|| panic!("{name} at {path} is not in the shape"))
            }
        };
        let mut out = Map::new();
        for field in &variant.fields {
            let is_wanted = field.any_of.is_empty()
                || field.any_of.iter().any(|condition| holds(condition, self.variables));
            if is_wanted && field.value.kind != ValueKind::Verbatim {
                let value = self.shaped_field(field, &variant.type_name, tree, path);
                out.insert(field.response_key.to_string(), value);
            }
        }
        Value::Object(out)
    }

    fn shaped_field(&self, field: &ShapeField, typename: &str, tree: &Value, path: &str) -> Value {
        if field.value.kind == ValueKind::Typename {
            return json!(typename);
        }
        let path = format!("{path}/{}", field.data_key);
        let value = tree.get(&*field.data_key).unwrap_or(&Value::Null);
        self.shaped_value(&field.value, value, &path)
    }

    fn shaped_value(&self, shape: &ValueShape, value: &Value, path: &str) -> Value {
        if value.is_null() {
            assert!(shape.nullable, "{path} is null\n{}", self.plan.to_text(self.store.graph));
            return Value::Null;
        }
        match &shape.kind {
            ValueKind::Object(id) => self.shaped_object(*id, value, path),
            ValueKind::List(item) => {
                let Value::Array(items) = value else { panic!("{path} is a list") };
                items.iter().map(|one| self.shaped_value(item, one, path)).collect()
            }
            ValueKind::Leaf(_) | ValueKind::Typename | ValueKind::Verbatim => value.clone(),
        }
    }
}

impl Monolith<'_> {
    /// Returns the arguments that the client gave the only root field.
    fn given(&self, event: &EventField) -> Value {
        for item in &self.operation.selection_set.items {
            if let Selection::Field(selected) = item
                && selected.target == FieldTarget::Field(event.field)
                && selected.response_key == event.data_key
            {
                return self.arguments(&selected.arguments);
            }
        }
        json!({})
    }
}

/// Returns the value of a source for the object at `place`; `None` if the source applies to other objects.
fn read(tree: &Value, place: &str, source: &ContextSource) -> Option<Value> {
    let mut object = tree;
    let mut steps = 0;
    for segment in place.split('/').skip(1) {
        let is_index = segment.parse::<usize>().is_ok();
        if !is_index {
            if steps == source.steps {
                break;
            }
            steps += 1;
        }
        object = object.pointer(&format!("/{segment}"))?;
    }
    let name = object.get("__typename").and_then(Value::as_str);
    if !source.types.is_empty() && !source.types.iter().any(|ty| Some(&**ty) == name) {
        return None;
    }
    let mut value = object;
    for key in &source.data_keys {
        if value.is_null() {
            break;
        }
        value = value.get(&**key)?;
    }
    Some(value.clone())
}

/// Returns the JSON pointers of the objects that can be represented, with their representations.
fn represent(batch: &EntityBatch, tree: &Value) -> (Vec<String>, Vec<Value>) {
    let mut places = Vec::new();
    for target in &batch.targets {
        walk(tree, target, 0, String::new(), &mut places);
    }
    let mut kept = Vec::new();
    let mut representations = Vec::new();
    for place in places {
        let object = tree.pointer(&place).expect("walked there");
        let Some(mut representation) = members(&batch.representation.fields, object) else {
            continue;
        };
        let typename = batch.representation.typename.as_deref().expect("types are fixed");
        representation.insert("__typename".to_owned(), json!(typename));
        representations.push(Value::Object(representation));
        kept.push(place);
    }
    (kept, representations)
}

fn walk(value: &Value, path: &Path, step: usize, pointer: String, places: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, path, step, format!("{pointer}/{index}"), places);
            }
        }
        Value::Object(object) => {
            if step > 0 {
                let types = &path.steps[step - 1].types;
                let name = object.get("__typename").and_then(Value::as_str);
                if !types.is_empty() && !types.iter().any(|ty| Some(&**ty) == name) {
                    return;
                }
            }
            match path.steps.get(step) {
                None => places.push(pointer),
                Some(next) => {
                    if let Some(below) = object.get(&*next.data_key) {
                        let pointer = format!("{pointer}/{}", next.data_key);
                        walk(below, path, step + 1, pointer, places);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Returns the representation of an object; `None` if a key member is missing.
fn members(fields: &[RepresentationField], object: &Value) -> Option<Map<String, Value>> {
    let mut out = Map::new();
    for field in fields {
        let name = object.get("__typename").and_then(Value::as_str);
        if !field.types.is_empty() && !field.types.iter().any(|ty| Some(&**ty) == name) {
            continue;
        }
        let value = object.get(&*field.data_key).unwrap_or(&Value::Null);
        if field.key && value.is_null() {
            return None;
        }
        out.insert(field.name.to_string(), member(field, value)?);
    }
    Some(out)
}

fn member(field: &RepresentationField, value: &Value) -> Option<Value> {
    Some(match value {
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| member(field, item)).collect::<Option<_>>()?)
        }
        Value::Object(_) if !field.fields.is_empty() => {
            Value::Object(members(&field.fields, value)?)
        }
        other => other.clone(),
    })
}
