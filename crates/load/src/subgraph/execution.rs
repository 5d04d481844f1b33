//! Executes one compiled operation over the records, writing the answer as it goes.
//!
//! Values are completed as the specification says in section 6.4.3: a null where none may be is an error at that path,
//! and the nearest nullable parent becomes null; what had been written of it is cut off the buffer again.

use std::sync::atomic::Ordering;

use serde_json::{Map, Value, json};

use super::FieldError;
use super::input::Argument;
use super::invention::{Identity, Inventor, Made, MadeKind, Wishes};
use super::model::{FieldIndex, FieldModel, Model, Shape, TypeId};
use super::operation::{Field, FieldKind, Operation, SelectionSet};
use super::resolvers::{Call, Resolvers};
use super::source::{Base, Found, Origin, Source};
use super::store::{Slot, Store, concrete_type, only_key_members, print_leaf};
use crate::random::mix;

/// Errors of one answer; more say nothing new.
const ERRORS_MAX: usize = 1000;

/// Objects printed for one answer. Records that refer to each other let a short operation ask for any number; a
/// hundred thousand entities with ten objects each fit.
const OBJECTS_MAX: u32 = 1_000_000;

/// Bytes reserved for an answer because an earlier one of the same operation had them.
const SIZE_HINT_MAX: usize = 1024 * 1024;

/// Bytes of one answer, some times what routers accept.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A field that a test makes fail.
pub(super) struct FieldFault {
    pub(super) type_id: TypeId,
    pub(super) field: FieldIndex,
    /// The error in its place, or a bare null even where none may be.
    pub(super) message: Option<String>,
}

/// A field being made up.
#[derive(Clone, Copy)]
struct Invented<'a> {
    inventor: &'a Inventor,
    /// The object that has the field.
    identity: Identity,
    made: &'a Made,
    wishes: &'a Wishes,
}

/// A value was null where none may be: the parent has to become null.
struct Nulled;

enum Segment<'a> {
    Key(&'a str),
    Index(usize),
}

/// One operation being executed.
pub(super) struct Execution<'a> {
    model: &'a Model,
    store: &'a Store,
    resolvers: &'a Resolvers,
    inventor: Option<&'a Inventor>,
    operation: &'a Operation,
    variables: &'a [Option<Value>],
    fault: Option<&'a FieldFault>,
    buffer: Vec<u8>,
    path: Vec<Segment<'a>>,
    errors: Vec<Value>,
    objects_left: u32,
    /// One of the bounds above is reached: nothing more is printed, and nothing of it is answered.
    exhausted: bool,
}

impl<'a> Execution<'a> {
    pub(super) fn new(
        model: &'a Model,
        store: &'a Store,
        resolvers: &'a Resolvers,
        inventor: Option<&'a Inventor>,
        operation: &'a Operation,
        variables: &'a [Option<Value>],
        fault: Option<&'a FieldFault>,
    ) -> Self {
        let capacity = operation.size_hint.load(Ordering::Relaxed).max(256);
        Self {
            model,
            store,
            resolvers,
            inventor,
            operation,
            variables,
            fault,
            buffer: Vec::with_capacity(capacity),
            path: Vec::new(),
            errors: Vec::new(),
            objects_left: OBJECTS_MAX,
            exhausted: false,
        }
    }

    /// Executes the operation and returns the GraphQL response, or a message where it would be too large.
    pub(super) fn run(mut self) -> Result<Vec<u8>, String> {
        let operation = self.operation;
        self.buffer.extend_from_slice(b"{\"data\":");
        let start = self.buffer.len();
        let base = Base {
            record: self.store.root(operation.root),
            identity: self.inventor.map(|inventor| inventor.root(operation.root)),
        };
        let source = Source::Known(base);
        if self.fields(&operation.fields, operation.root, source).is_err() {
            if self.exhausted {
                return Err(format!(
                    "the answer has more than {OBJECTS_MAX} objects or {ANSWER_BYTES_MAX} bytes"
                ));
            }
            self.null_from(start);
        }
        if !self.errors.is_empty() {
            self.buffer.extend_from_slice(b",\"errors\":");
            // Writing a `Value` to a vector cannot fail: its keys are strings and the vector takes all bytes.
            let _ = serde_json::to_writer(&mut self.buffer, &self.errors);
        }
        self.buffer.push(b'}');
        operation.size_hint.fetch_max(self.buffer.len().min(SIZE_HINT_MAX), Ordering::Relaxed);
        Ok(self.buffer)
    }

    /// Prints an object.
    // hot path: some 10 ns a field beside copying its text; `cargo bench -p bench-subgraphs` shows it.
    fn fields(
        &mut self,
        fields: &'a [Field],
        type_id: TypeId,
        source: Source<'_>,
    ) -> Result<(), Nulled> {
        self.objects_left = self.objects_left.saturating_sub(1);
        if self.objects_left == 0 || self.buffer.len() > ANSWER_BYTES_MAX {
            self.exhausted = true;
            return Err(Nulled);
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
            self.path.push(Segment::Key(&field.response_key));
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
        source: Source<'_>,
    ) -> Result<(), Nulled> {
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
                self.null_from(start);
                return Ok(());
            };
            let failed = self.fail(&message.as_str().into());
            return self.settle(Err(failed), shape, start);
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
                        Found::Slot(slot) => self.complete_slot(slot, shape, selection),
                        Found::Json(value) => self.complete_json(value, model, shape, selection),
                        Found::Invented(identity) => {
                            self.invent(identity, type_id, index, shape, arguments, selection)
                        }
                    },
                }
            }
        };
        self.settle(done, shape, start)
    }

    /// Ends a field or list item: where it failed, it is null if it may be, or else its parent fails.
    fn settle(
        &mut self,
        done: Result<(), Nulled>,
        shape: &Shape,
        start: usize,
    ) -> Result<(), Nulled> {
        if done.is_err() {
            if shape.non_null || self.exhausted {
                return Err(Nulled);
            }
            self.null_from(start);
        }
        Ok(())
    }

    fn resolve(
        &self,
        resolver: usize,
        arguments: &[Argument],
        type_id: TypeId,
        source: Source<'_>,
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
        slot: &Slot,
        shape: &Shape,
        selection: Option<&'a SelectionSet>,
    ) -> Result<(), Nulled> {
        match (slot, selection) {
            (Slot::Text { start, end }, _) => {
                let store = self.store;
                self.buffer.extend_from_slice(store.text(*start, *end));
                Ok(())
            }
            (Slot::Record(id), Some(set)) => {
                let record = self.store.record(*id);
                self.object(
                    set,
                    record.type_id,
                    Source::Known(Base { record: Some(record), identity: None }),
                )
            }
            (Slot::List(items), _) => {
                // Linking made a list only where the shape has one.
                let item_shape = shape.item.as_deref().unwrap_or(shape);
                self.list(items, item_shape, |this, item| {
                    this.complete_slot(item, item_shape, selection)
                })
            }
            (Slot::Absent | Slot::Null | Slot::Record(_), _) => self.null(shape),
        }
    }

    fn complete_json(
        &mut self,
        value: &Value,
        field: &FieldModel,
        shape: &Shape,
        selection: Option<&'a SelectionSet>,
    ) -> Result<(), Nulled> {
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
            Ok(type_id) => self.resolved(set, type_id, members, shape),
            Err(error) => Err(self.fail(&error)),
        }
    }

    /// Prints an object that a resolver gave, over the record with the same key. A mere key of no record is null.
    fn resolved(
        &mut self,
        set: &'a SelectionSet,
        type_id: TypeId,
        members: &Map<String, Value>,
        shape: &Shape,
    ) -> Result<(), Nulled> {
        let base = self.base(type_id, members);
        if base.is_nothing()
            && self.store.has_records(type_id)
            && only_key_members(self.model, type_id, members)
        {
            return self.null(shape);
        }
        self.object(set, type_id, Source::Json { base, members, origin: Origin::Resolver })
    }

    fn object(
        &mut self,
        set: &'a SelectionSet,
        type_id: TypeId,
        source: Source<'_>,
    ) -> Result<(), Nulled> {
        let fields = set.by_type.iter().find(|(of, _)| *of == type_id);
        self.fields(fields.map_or(&[], |(_, fields)| fields), type_id, source)
    }

    fn list<T>(
        &mut self,
        items: &[T],
        item_shape: &Shape,
        mut complete: impl FnMut(&mut Self, &T) -> Result<(), Nulled>,
    ) -> Result<(), Nulled> {
        self.buffer.push(b'[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.buffer.push(b',');
            }
            let start = self.buffer.len();
            self.path.push(Segment::Index(index));
            let done = complete(self, item);
            let done = self.settle(done, item_shape, start);
            self.path.pop();
            done?;
        }
        self.buffer.push(b']');
        Ok(())
    }

    /// `_entities`: one answer for each representation, in their order.
    fn entities(
        &mut self,
        representations: &'a Argument,
        shape: &Shape,
        set: &'a SelectionSet,
    ) -> Result<(), Nulled> {
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
    ) -> Result<(), Nulled> {
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
                Ok(Value::Object(found)) => self.resolved(set, type_id, &found, shape),
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
        self.object(set, type_id, Source::Json { base, members, origin: Origin::Representation })
    }

    /// What is known of the object with this key.
    fn base(&self, type_id: TypeId, members: &Map<String, Value>) -> Base<'a> {
        let store: &'a Store = self.store;
        let record = store.find(self.model, type_id, members).map(|id| store.record(id));
        let known = record.is_some() || !store.has_records(type_id);
        let inventor = self.inventor.filter(|_| known);
        let identity = inventor.map(|inventor| inventor.by_key(self.model, type_id, members));
        Base { record, identity }
    }

    /// Makes a field up.
    fn invent(
        &mut self,
        identity: Identity,
        type_id: TypeId,
        index: FieldIndex,
        shape: &Shape,
        arguments: &[Argument],
        selection: Option<&'a SelectionSet>,
    ) -> Result<(), Nulled> {
        // Objects are made up only where there is an inventor.
        let Some(inventor) = self.inventor else { return self.null(shape) };
        let made = inventor.field(type_id, index);
        let mut wishes = Wishes::default();
        if !arguments.is_empty() {
            let mut resolved = Map::new();
            for argument in arguments {
                argument.resolve(self.variables, &mut resolved);
            }
            wishes = Wishes::read(self.model, made, resolved);
        }
        let seed = Inventor::seed(identity, made, &wishes);
        self.invented(
            &Invented { inventor, identity, made, wishes: &wishes },
            shape,
            seed,
            0,
            selection,
        )
    }

    fn invented(
        &mut self,
        what: &Invented<'_>,
        shape: &Shape,
        seed: u64,
        place: u64,
        selection: Option<&'a SelectionSet>,
    ) -> Result<(), Nulled> {
        let Invented { inventor, identity, made, wishes } = *what;
        if !shape.non_null && inventor.is_null(made, seed) {
            self.buffer.extend_from_slice(b"null");
            return Ok(());
        }
        if let Some(item_shape) = &shape.item {
            let (length, offset) = inventor.list(seed, wishes);
            let length = wishes.key_count().unwrap_or(length);
            let places: Vec<u64> = (offset..offset.saturating_add(length)).collect();
            return self.list(&places, item_shape, |this, place| {
                this.invented(what, item_shape, mix(seed, *place), *place, selection)
            });
        }
        match (&made.kind, selection) {
            (MadeKind::Leaf(leaf), _) => {
                leaf.write(identity, seed, &mut self.buffer);
                Ok(())
            }
            (MadeKind::Object(types), Some(set)) if !types.is_empty() => {
                let chosen = types[(mix(seed, 3) % types.len() as u64) as usize];
                match wishes.key(place) {
                    Some(members) => self.resolved(set, chosen, &members, shape),
                    None => {
                        let identity = inventor.object(self.model, made, chosen, seed, place);
                        self.object(
                            set,
                            chosen,
                            Source::Known(Base { record: None, identity: Some(identity) }),
                        )
                    }
                }
            }
            (MadeKind::Object(_), _) => self.null(shape),
        }
    }

    fn null(&mut self, shape: &Shape) -> Result<(), Nulled> {
        if shape.non_null {
            return Err(self.fail(&"null for a non-null field".into()));
        }
        self.buffer.extend_from_slice(b"null");
        Ok(())
    }

    fn null_from(&mut self, start: usize) {
        self.buffer.truncate(start);
        self.buffer.extend_from_slice(b"null");
    }

    /// Records an error at the present path.
    fn fail(&mut self, error: &FieldError) -> Nulled {
        if self.errors.len() < ERRORS_MAX {
            let path: Vec<Value> = self
                .path
                .iter()
                .map(|segment| match segment {
                    Segment::Key(key) => Value::from(*key),
                    Segment::Index(index) => Value::from(*index),
                })
                .collect();
            let mut entry = json!({ "message": error.message, "path": path });
            if let Some(code) = &error.code {
                entry["extensions"] = json!({ "code": code });
            }
            self.errors.push(entry);
        }
        Nulled
    }
}
