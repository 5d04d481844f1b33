//! Executes one compiled operation over the records and writes the response meanwhile.
//!
//! Values are completed as in section 6.4.3 of the specification: a null at a non-null position is an error at that
//! path, and the nearest nullable parent becomes null; its output so far is removed from the buffer again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Map, Value, json};

use super::changes::ChangedEntities;
use super::errors::FieldError;
use super::input::Argument;
use super::invention::{FieldRule, FieldRuleKind, Identity, Inventor, RequestedItems};
use super::model::{FieldIndex, FieldModel, Model, Shape, TypeId};
use super::operation::{CompiledOperation, Field, FieldKind, SelectionSet};
use super::resolvers::{Call, Resolvers};
use super::source::{FieldSource, KnownObject, ObjectSource, RuntimeOrigin};
use super::store::{Store, StoredValue, concrete_type, only_key_members, print_leaf};
use super::subscriptions::SubscriptionEvent;
use crate::random::mix;

/// The maximum number of errors of one response; more would not be informative.
const ERRORS_MAX: usize = 1000;

/// The maximum number of objects in one response. Records that refer to each other let a short operation select any
/// number; a hundred thousand entities with ten objects each fit.
const OBJECTS_MAX: u32 = 1_000_000;

/// The maximum capacity reserved for a response because of an earlier response to the same operation.
const SIZE_HINT_MAX: usize = 1024 * 1024;

/// The maximum length of one response, several times what routers accept.
const RESPONSE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A field that a test causes to fail.
pub(super) struct FieldFault {
    pub(super) type_id: TypeId,
    pub(super) field: FieldIndex,
    /// The message of an error in its place, or `None` for a bare null, even at a non-null position.
    pub(super) message: Option<String>,
}

/// The parameters of a made-up field.
#[derive(Clone, Copy)]
struct InventedField<'a> {
    inventor: &'a Inventor,
    /// The object that has the field.
    identity: Identity,
    rule: &'a FieldRule,
    requested: &'a RequestedItems,
}

/// A null at a non-null position: the parent must become null.
struct NullPropagated;

enum PathSegment<'a> {
    Key(&'a str),
    Index(usize),
}

/// The execution of one operation.
pub(super) struct Execution<'a> {
    model: &'a Model,
    store: &'a Store,
    resolvers: &'a Resolvers,
    inventor: Option<&'a Inventor>,
    changes: Arc<ChangedEntities>,
    operation: &'a CompiledOperation,
    variables: &'a [Option<Value>],
    fault: Option<&'a FieldFault>,
    event: Option<&'a SubscriptionEvent>,
    buffer: Vec<u8>,
    path: Vec<PathSegment<'a>>,
    errors: Vec<Value>,
    objects_left: u32,
    /// True if one of the bounds above is reached: the response is discarded.
    is_exhausted: bool,
}

impl<'a> Execution<'a> {
    pub(super) fn new(
        model: &'a Model,
        store: &'a Store,
        resolvers: &'a Resolvers,
        inventor: Option<&'a Inventor>,
        operation: &'a CompiledOperation,
        variables: &'a [Option<Value>],
        fault: Option<&'a FieldFault>,
    ) -> Self {
        let capacity = operation.size_hint.load(Ordering::Relaxed).max(256);
        Self {
            model,
            store,
            resolvers,
            inventor,
            changes: Arc::default(),
            operation,
            variables,
            fault,
            event: None,
            buffer: Vec::with_capacity(capacity),
            path: Vec::new(),
            errors: Vec::new(),
            objects_left: OBJECTS_MAX,
            is_exhausted: false,
        }
    }

    /// Reads these changes of made-up entities.
    pub(super) fn with_changes(mut self, changes: Arc<ChangedEntities>) -> Self {
        self.changes = changes;
        self
    }

    /// Resolves the root field of a subscription from this event.
    pub(super) fn with_event(mut self, event: &'a SubscriptionEvent) -> Self {
        self.event = Some(event);
        self
    }

    /// Executes the operation and returns the GraphQL response, or an error message if it would be too large.
    pub(super) fn run(mut self) -> Result<Vec<u8>, String> {
        let operation = self.operation;
        self.buffer.extend_from_slice(b"{\"data\":");
        let start = self.buffer.len();
        let identity = self.inventor.map(|inventor| match self.event {
            Some(event) => inventor.event(operation.root, event.number),
            None => inventor.root(operation.root),
        });
        let base = KnownObject { record: self.store.root(operation.root), identity };
        let value = self.event.and_then(|event| event.value.as_ref());
        let members: Option<Map<String, Value>> = value
            .zip(operation.subscription_field.as_deref())
            .map(|(value, field)| Map::from_iter([(field.to_owned(), value.clone())]));
        let source = match &members {
            Some(members) => ObjectSource::Json { base, members, origin: RuntimeOrigin::Resolver },
            None => ObjectSource::Known(base),
        };
        if self.print_fields(&operation.fields, operation.root, source).is_err() {
            if self.is_exhausted {
                return Err(format!(
                    "the response has more than {OBJECTS_MAX} objects or {RESPONSE_BYTES_MAX} bytes"
                ));
            }
            self.replace_by_null(start);
        }
        if !self.errors.is_empty() {
            self.buffer.extend_from_slice(b",\"errors\":");
            // Writing a `Value` to a vector cannot fail: its keys are strings and the vector accepts all bytes.
            let _ = serde_json::to_writer(&mut self.buffer, &self.errors);
        }
        self.buffer.push(b'}');
        operation.size_hint.fetch_max(self.buffer.len().min(SIZE_HINT_MAX), Ordering::Relaxed);
        Ok(self.buffer)
    }

    /// Prints an object.
    // hot path: about 10 ns a field in addition to copying its text; see `cargo bench -p bench-subgraphs`.
    fn print_fields(
        &mut self,
        fields: &'a [Field],
        type_id: TypeId,
        source: ObjectSource<'_>,
    ) -> Result<(), NullPropagated> {
        self.objects_left = self.objects_left.saturating_sub(1);
        if self.objects_left == 0 || self.buffer.len() > RESPONSE_BYTES_MAX {
            self.is_exhausted = true;
            return Err(NullPropagated);
        }
        self.buffer.push(b'{');
        let mut first = true;
        for field in fields {
            if !self.is_present(field) {
                continue;
            }
            if !std::mem::take(&mut first) {
                self.buffer.push(b',');
            }
            self.buffer.extend_from_slice(field.head.as_bytes());
            self.path.push(PathSegment::Key(&field.response_key));
            let done = self.field(field, type_id, source);
            self.path.pop();
            done?;
        }
        self.buffer.push(b'}');
        Ok(())
    }

    fn is_present(&self, field: &Field) -> bool {
        field.presence.is_empty()
            || field.presence.iter().any(|all| {
                all.iter().all(|condition| {
                    self.variables[condition.variable].as_ref().and_then(Value::as_bool)
                        == Some(condition.expected)
                })
            })
    }

    fn field(
        &mut self,
        field: &'a Field,
        type_id: TypeId,
        source: ObjectSource<'_>,
    ) -> Result<(), NullPropagated> {
        let object = self.model.object(type_id);
        let (index, shape) = match &field.kind {
            FieldKind::Typename => {
                self.buffer.push(b'"');
                self.buffer.extend_from_slice(object.name.as_bytes());
                self.buffer.push(b'"');
                return Ok(());
            }
            FieldKind::Entities { index, shape, .. } | FieldKind::Data { index, shape, .. } => {
                (*index, shape)
            }
        };
        let start = self.buffer.len();
        if let Some(fault) = self.fault
            && fault.type_id == type_id
            && fault.field == index
        {
            let Some(message) = &fault.message else {
                self.replace_by_null(start);
                return Ok(());
            };
            let failed = self.fail(&message.as_str().into());
            return self.complete_or_null(Err(failed), shape, start);
        }
        let done = match &field.kind {
            FieldKind::Typename => Ok(()),
            FieldKind::Entities { representations, shape, selection, .. } => {
                self.entities(representations, shape, selection)
            }
            FieldKind::Data { shape, arguments, selection, .. } => {
                let model = object.field(index);
                let selection = selection.as_ref();
                match model.resolver {
                    Some(resolver) => match self.resolve(resolver, arguments, type_id, source) {
                        Ok(value) => self.complete_json(&value, model, shape, selection),
                        Err(error) => Err(self.fail(&error)),
                    },
                    None => match source.get(index, model) {
                        FieldSource::StoredValue(slot) => {
                            self.complete_slot(slot, shape, selection)
                        }
                        FieldSource::Json(value) => {
                            self.complete_json(value, model, shape, selection)
                        }
                        FieldSource::InventedField(identity) => {
                            let changed = self.changes.get(&identity).cloned();
                            match changed.as_ref().and_then(|fields| fields.get(&*model.name)) {
                                Some(value) => self.complete_json(value, model, shape, selection),
                                None => self
                                    .invent(identity, type_id, index, shape, arguments, selection),
                            }
                        }
                    },
                }
            }
        };
        self.complete_or_null(done, shape, start)
    }

    /// Completes a field or list item: if it failed, it becomes null if it is nullable, otherwise its parent fails.
    fn complete_or_null(
        &mut self,
        done: Result<(), NullPropagated>,
        shape: &Shape,
        start: usize,
    ) -> Result<(), NullPropagated> {
        if done.is_err() {
            if shape.non_null || self.is_exhausted {
                return Err(NullPropagated);
            }
            self.replace_by_null(start);
        }
        Ok(())
    }

    fn resolve(
        &self,
        resolver: usize,
        arguments: &[Argument],
        type_id: TypeId,
        source: ObjectSource<'_>,
    ) -> Result<Value, FieldError> {
        let mut resolved = Map::new();
        for argument in arguments {
            argument.resolve(self.variables, &mut resolved);
        }
        self.resolvers.fields[resolver](&Call {
            arguments: &resolved,
            model: self.model,
            store: self.store,
            type_id,
            source,
        })
    }

    fn complete_slot(
        &mut self,
        slot: &StoredValue,
        shape: &Shape,
        selection: Option<&'a SelectionSet>,
    ) -> Result<(), NullPropagated> {
        match (slot, selection) {
            (StoredValue::Text { start, end }, _) => {
                let store = self.store;
                self.buffer.extend_from_slice(store.text(*start, *end));
                Ok(())
            }
            (StoredValue::Record(id), Some(set)) => {
                let record = self.store.record(*id);
                self.object(
                    set,
                    record.type_id,
                    ObjectSource::Known(KnownObject { record: Some(record), identity: None }),
                )
            }
            (StoredValue::List(items), _) => {
                // Linking created a list only where the shape has one.
                let item_shape = shape.item.as_deref().unwrap_or(shape);
                self.list(items, item_shape, |this, item| {
                    this.complete_slot(item, item_shape, selection)
                })
            }
            (StoredValue::Absent | StoredValue::Null | StoredValue::Record(_), _) => {
                self.null(shape)
            }
        }
    }

    fn complete_json(
        &mut self,
        value: &Value,
        field: &FieldModel,
        shape: &Shape,
        selection: Option<&'a SelectionSet>,
    ) -> Result<(), NullPropagated> {
        if value.is_null() {
            return self.null(shape);
        }
        if let Some(item_shape) = &shape.item {
            let Value::Array(items) = value else {
                return Err(self.fail(&"the value is not a list".into()));
            };
            return self.list(items, item_shape, |this, item| {
                this.complete_json(item, field, item_shape, selection)
            });
        }
        let Some(set) = selection else {
            print_leaf(field, value, &mut self.buffer);
            return Ok(());
        };
        let Value::Object(members) = value else {
            return Err(self.fail(&"the value is not an object".into()));
        };
        match concrete_type(self.model, &field.named, members) {
            Ok(type_id) => self.print_resolved(set, type_id, members, shape),
            Err(error) => Err(self.fail(&error)),
        }
    }

    /// Prints an object returned by a resolver, over the record with the same key. A bare key without a record is
    /// null.
    fn print_resolved(
        &mut self,
        set: &'a SelectionSet,
        type_id: TypeId,
        members: &Map<String, Value>,
        shape: &Shape,
    ) -> Result<(), NullPropagated> {
        let base = self.base(type_id, members);
        if base.is_nothing()
            && self.store.has_records(type_id)
            && only_key_members(self.model, type_id, members)
        {
            return self.null(shape);
        }
        self.object(
            set,
            type_id,
            ObjectSource::Json { base, members, origin: RuntimeOrigin::Resolver },
        )
    }

    fn object(
        &mut self,
        set: &'a SelectionSet,
        type_id: TypeId,
        source: ObjectSource<'_>,
    ) -> Result<(), NullPropagated> {
        let fields = set.by_type.iter().find(|(of, _)| *of == type_id);
        self.print_fields(fields.map_or(&[], |(_, fields)| fields), type_id, source)
    }

    fn list<T>(
        &mut self,
        items: &[T],
        item_shape: &Shape,
        mut complete: impl FnMut(&mut Self, &T) -> Result<(), NullPropagated>,
    ) -> Result<(), NullPropagated> {
        self.buffer.push(b'[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.buffer.push(b',');
            }
            let start = self.buffer.len();
            self.path.push(PathSegment::Index(index));
            let done = complete(self, item);
            let done = self.complete_or_null(done, item_shape, start);
            self.path.pop();
            done?;
        }
        self.buffer.push(b']');
        Ok(())
    }

    /// Executes `_entities`: one result for each representation, in their order.
    fn entities(
        &mut self,
        representations: &'a Argument,
        shape: &Shape,
        set: &'a SelectionSet,
    ) -> Result<(), NullPropagated> {
        let value = representations.value.borrow(self.variables);
        let Some(Value::Array(items)) = value.as_deref() else {
            return Err(self.fail(&"`representations` is not a list".into()));
        };
        let item_shape = shape.item.as_deref().unwrap_or(shape);
        self.list(items, item_shape, |this, representation| {
            this.entity(representation, item_shape, set)
        })
    }

    fn entity(
        &mut self,
        representation: &Value,
        shape: &Shape,
        set: &'a SelectionSet,
    ) -> Result<(), NullPropagated> {
        let Value::Object(members) = representation else {
            return Err(self.fail(&"a representation is not an object".into()));
        };
        if !members.get("__typename").is_some_and(Value::is_string) {
            return Err(self.fail(&"a representation has no `__typename`".into()));
        }
        let type_id = match concrete_type(self.model, "_Entity", members) {
            Ok(type_id) => type_id,
            Err(error) => return Err(self.fail(&error)),
        };
        let object = self.model.object(type_id);
        if let Some(resolver) = object.entity_resolver {
            return match self.resolvers.entities[resolver](members) {
                Ok(Value::Object(found)) => self.print_resolved(set, type_id, &found, shape),
                Ok(Value::Null) => self.null(shape),
                Ok(_) => Err(self.fail(&"the entity is not an object".into())),
                Err(error) => Err(self.fail(&error)),
            };
        }
        if !object.keys.iter().any(|key| key.text_of(members).is_some()) {
            let message = format!("a representation of `{}` has no complete key", object.name);
            return Err(self.fail(&message.into()));
        }
        let base = self.base(type_id, members);
        if base.is_nothing() && self.store.has_records(type_id) {
            return self.null(shape);
        }
        self.object(
            set,
            type_id,
            ObjectSource::Json { base, members, origin: RuntimeOrigin::Representation },
        )
    }

    /// Returns the known data of the object with this key.
    fn base(&self, type_id: TypeId, members: &Map<String, Value>) -> KnownObject<'a> {
        let store: &'a Store = self.store;
        let record = store.find(self.model, type_id, members).map(|id| store.record(id));
        let known = record.is_some() || !store.has_records(type_id);
        let inventor = self.inventor.filter(|_| known);
        let identity =
            inventor.map(|inventor| inventor.entity_by_key(self.model, type_id, members));
        KnownObject { record, identity }
    }

    /// Makes up the value of a field.
    fn invent(
        &mut self,
        identity: Identity,
        type_id: TypeId,
        index: FieldIndex,
        shape: &Shape,
        arguments: &[Argument],
        selection: Option<&'a SelectionSet>,
    ) -> Result<(), NullPropagated> {
        // Objects are made up only if there is an inventor.
        let Some(inventor) = self.inventor else { return self.null(shape) };
        let rule = inventor.field(type_id, index);
        let mut requested = RequestedItems::default();
        if !arguments.is_empty() {
            let mut resolved = Map::new();
            for argument in arguments {
                argument.resolve(self.variables, &mut resolved);
            }
            requested = RequestedItems::read(self.model, rule, resolved);
        }
        let seed = Inventor::seed(identity, rule, &requested);
        self.print_invented(
            &InventedField { inventor, identity, rule, requested: &requested },
            shape,
            seed,
            0,
            selection,
        )
    }

    fn print_invented(
        &mut self,
        what: &InventedField<'_>,
        shape: &Shape,
        seed: u64,
        place: u64,
        selection: Option<&'a SelectionSet>,
    ) -> Result<(), NullPropagated> {
        let InventedField { inventor, identity, rule, requested } = *what;
        if !shape.non_null && inventor.is_null(rule, seed) {
            self.buffer.extend_from_slice(b"null");
            return Ok(());
        }
        if let Some(item_shape) = &shape.item {
            let (length, offset) = inventor.list(seed, requested);
            let length = requested.key_count().unwrap_or(length);
            let places: Vec<u64> = (offset..offset.saturating_add(length)).collect();
            return self.list(&places, item_shape, |this, place| {
                this.print_invented(what, item_shape, mix(seed, *place), *place, selection)
            });
        }
        match (&rule.kind, selection) {
            (FieldRuleKind::Leaf(leaf), _) => {
                leaf.write(identity, seed, &mut self.buffer);
                Ok(())
            }
            (FieldRuleKind::Object(types), Some(set)) if !types.is_empty() => {
                let chosen = types[(mix(seed, 3) % types.len() as u64) as usize];
                match requested.key(place) {
                    Some(members) => self.print_resolved(set, chosen, &members, shape),
                    None => {
                        let identity = inventor.object(self.model, rule, chosen, seed, place);
                        self.object(
                            set,
                            chosen,
                            ObjectSource::Known(KnownObject {
                                record: None,
                                identity: Some(identity),
                            }),
                        )
                    }
                }
            }
            (FieldRuleKind::Object(_), _) => self.null(shape),
        }
    }

    fn null(&mut self, shape: &Shape) -> Result<(), NullPropagated> {
        if shape.non_null {
            return Err(self.fail(&"null for a non-null field".into()));
        }
        self.buffer.extend_from_slice(b"null");
        Ok(())
    }

    fn replace_by_null(&mut self, start: usize) {
        self.buffer.truncate(start);
        self.buffer.extend_from_slice(b"null");
    }

    /// Records an error at the current path.
    fn fail(&mut self, error: &FieldError) -> NullPropagated {
        if self.errors.len() < ERRORS_MAX {
            let path: Vec<Value> = self
                .path
                .iter()
                .map(|segment| match segment {
                    PathSegment::Key(key) => Value::from(*key),
                    PathSegment::Index(index) => Value::from(*index),
                })
                .collect();
            let mut entry = json!({ "message": error.message, "path": path });
            if let Some(code) = &error.code {
                entry["extensions"] = json!({ "code": code });
            }
            self.errors.push(entry);
        }
        NullPropagated
    }
}
