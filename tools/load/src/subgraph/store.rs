//! The data of a subgraph: records of its types, linked to each other and printed once.
//!
//! A record has a value for each field of its type. Leaves are stored in one arena as JSON text, so printing a field
//! is a copy.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::errors::{FieldError, SubgraphError};
use super::model::{FieldModel, Model, Shape, TypeId};

/// A record of one object.
pub(super) struct Record {
    pub(super) type_id: TypeId,
    /// One value for each field of the type.
    pub(super) slots: Box<[StoredValue]>,
}

/// The value of one field of a record.
#[derive(Debug, Clone, Default)]
pub(super) enum StoredValue {
    /// The record has no member for this field.
    #[default]
    Absent,
    Null,
    /// A leaf, or a list of leaves without nulls: JSON text in the arena.
    Text {
        start: u32,
        end: u32,
    },
    Record(RecordId),
    List(Box<[StoredValue]>),
}

/// The index of a record in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordId(u32);

/// All records of a subgraph.
pub(super) struct Store {
    records: Vec<Record>,
    text: Vec<u8>,
    /// For each type and each of its keys: key text to record.
    entity_by_key: Vec<Vec<HashMap<String, RecordId>>>,
    /// The first record of each type, which is the only one of a root type.
    first: Vec<Option<RecordId>>,
}

impl Store {
    /// Links the given records to each other.
    pub(super) fn link(model: &Model, given: Vec<(String, Value)>) -> Result<Self, SubgraphError> {
        let mut store = Self {
            records: Vec::with_capacity(given.len()),
            text: Vec::new(),
            entity_by_key: model
                .objects
                .iter()
                .map(|o| vec![HashMap::new(); o.keys.len()])
                .collect(),
            first: vec![None; model.objects.len()],
        };
        let mut objects = Vec::with_capacity(given.len());
        for (type_name, value) in given {
            let Value::Object(object) = value else {
                return Err(SubgraphError::Data(format!(
                    "a record of `{type_name}` is not an object"
                )));
            };
            let type_id = type_of(model, &type_name)?;
            let id = store.add(model, type_id)?;
            store.index(model, type_id, id, &object)?;
            objects.push((id, object));
        }
        let mut overlays = Vec::new();
        for (id, object) in &objects {
            store.fill(model, *id, object, &mut overlays)?;
        }
        for (overlay, base) in overlays {
            let inherited = store.records[base.index()].slots.clone();
            for (slot, from_base) in store.records[overlay.index()].slots.iter_mut().zip(inherited)
            {
                if matches!(slot, StoredValue::Absent) {
                    *slot = from_base;
                }
            }
        }
        store.describe(model)?;
        Ok(store)
    }

    /// Sets the value of `Query._service { sdl }`.
    fn describe(&mut self, model: &Model) -> Result<(), SubgraphError> {
        let Some(query) = model.schema.schema_definition.query.as_ref() else { return Ok(()) };
        let (query, service) = (type_of(model, query)?, type_of(model, "_Service")?);
        let root = match self.first[query.index()] {
            Some(root) => root,
            None => {
                let root = self.add(model, query)?;
                *self.first[query.index()].insert(root)
            }
        };
        let description = self.add(model, service)?;
        if let Some(index) = model.object(service).field_index("sdl") {
            let sdl = self.print(model.object(service).field(index), &Value::from(&*model.sdl))?;
            self.records[description.index()].slots[usize::from(index)] = sdl;
        }
        if let Some(index) = model.object(query).field_index("_service") {
            self.records[root.index()].slots[usize::from(index)] = StoredValue::Record(description);
        }
        Ok(())
    }

    pub(super) fn record(&self, id: RecordId) -> &Record {
        &self.records[id.index()]
    }

    pub(super) fn text(&self, start: u32, end: u32) -> &[u8] {
        &self.text[start as usize..end as usize]
    }

    /// Returns the record with the values of a root type's fields.
    pub(super) fn root(&self, type_id: TypeId) -> Option<&Record> {
        self.first[type_id.index()].map(|id| self.record(id))
    }

    pub(super) fn has_records(&self, type_id: TypeId) -> bool {
        self.first[type_id.index()].is_some()
    }

    /// Finds the record with the same key as this object.
    pub(super) fn find(
        &self,
        model: &Model,
        type_id: TypeId,
        object: &Map<String, Value>,
    ) -> Option<RecordId> {
        model.object(type_id).keys.iter().zip(&self.entity_by_key[type_id.index()]).find_map(
            |(key, by_text)| {
                if by_text.is_empty() {
                    return None;
                }
                by_text.get(&key.text_of(object)?).copied()
            },
        )
    }

    fn add(&mut self, model: &Model, type_id: TypeId) -> Result<RecordId, SubgraphError> {
        let id = RecordId(u32::try_from(self.records.len()).map_err(|_| too_large_error())?);
        let slots =
            vec![StoredValue::Absent; model.object(type_id).fields.len()].into_boxed_slice();
        self.records.push(Record { type_id, slots });
        Ok(id)
    }

    fn index(
        &mut self,
        model: &Model,
        type_id: TypeId,
        id: RecordId,
        object: &Map<String, Value>,
    ) -> Result<(), SubgraphError> {
        let type_model = model.object(type_id);
        let root_names = &model.schema.schema_definition;
        let is_root = [&root_names.query, &root_names.mutation]
            .into_iter()
            .flatten()
            .any(|root| root.as_str() == &*type_model.name);
        if is_root && self.has_records(type_id) {
            return Err(SubgraphError::Data(format!("two records of `{}`", type_model.name)));
        }
        self.first[type_id.index()].get_or_insert(id);
        for (key, by_text) in type_model.keys.iter().zip(&mut self.entity_by_key[type_id.index()]) {
            let Some(text) = key.text_of(object) else { continue };
            if by_text.insert(text, id).is_some() {
                return Err(SubgraphError::Data(format!(
                    "two records of `{}` have the same key: {}",
                    type_model.name,
                    Value::Object(object.clone())
                )));
            }
        }
        Ok(())
    }

    fn fill(
        &mut self,
        model: &Model,
        id: RecordId,
        object: &Map<String, Value>,
        overlays: &mut Vec<(RecordId, RecordId)>,
    ) -> Result<(), SubgraphError> {
        let type_model = model.object(self.record(id).type_id);
        for (name, value) in object {
            if name == "__typename" {
                continue;
            }
            let index = type_model.field_index(name).ok_or_else(|| {
                SubgraphError::Data(format!("there is no field `{}.{name}`", type_model.name))
            })?;
            let field = type_model.field(index);
            let slot =
                self.slot(model, field, &field.shape, value, overlays).map_err(
                    |error| match error {
                        SubgraphError::Data(what) => {
                            SubgraphError::Data(format!("{}.{name}: {what}", type_model.name))
                        }
                        other => other,
                    },
                )?;
            self.records[id.index()].slots[usize::from(index)] = slot;
        }
        Ok(())
    }

    fn slot(
        &mut self,
        model: &Model,
        field: &FieldModel,
        shape: &Shape,
        value: &Value,
        overlays: &mut Vec<(RecordId, RecordId)>,
    ) -> Result<StoredValue, SubgraphError> {
        if value.is_null() {
            return Ok(StoredValue::Null);
        }
        if let Some(item) = &shape.item {
            let Value::Array(values) = value else {
                return Err(SubgraphError::Data(format!("{value} is not a list")));
            };
            if !field.composite && !has_null(value) {
                return self.print(field, value);
            }
            let slots: Result<Vec<StoredValue>, SubgraphError> =
                values.iter().map(|value| self.slot(model, field, item, value, overlays)).collect();
            return Ok(StoredValue::List(slots?.into_boxed_slice()));
        }
        if !field.composite {
            return self.print(field, value);
        }
        let Value::Object(object) = value else {
            return Err(SubgraphError::Data(format!("{value} is not an object")));
        };
        let type_id = concrete_type(model, &field.named, object)
            .map_err(|error| SubgraphError::Data(error.message))?;
        let base = self.find(model, type_id, object);
        if only_key_members(model, type_id, object) {
            if let Some(base) = base {
                return Ok(StoredValue::Record(base));
            }
            if self.has_records(type_id) {
                return Err(SubgraphError::Data(format!(
                    "there is no record with the key {value}"
                )));
            }
        }
        let id = self.add(model, type_id)?;
        overlays.extend(base.map(|base| (id, base)));
        self.fill(model, id, object, overlays)?;
        Ok(StoredValue::Record(id))
    }

    fn print(&mut self, field: &FieldModel, value: &Value) -> Result<StoredValue, SubgraphError> {
        let start = u32::try_from(self.text.len()).map_err(|_| too_large_error())?;
        print_leaf(field, value, &mut self.text);
        let end = u32::try_from(self.text.len()).map_err(|_| too_large_error())?;
        Ok(StoredValue::Text { start, end })
    }
}

impl RecordId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Prints a leaf, or a list of leaves.
pub(super) fn print_leaf(field: &FieldModel, value: &Value, into: &mut Vec<u8>) {
    match value {
        // An ID is serialised as a string (specification, section 3.5.5).
        Value::Number(number) if field.id => {
            into.extend_from_slice(format!("\"{number}\"").as_bytes());
        }
        Value::Array(items) if field.id => {
            into.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    into.push(b',');
                }
                print_leaf(field, item, into);
            }
            into.push(b']');
        }
        other => {
            // Writing a `Value` to a vector cannot fail: its keys are strings and the vector accepts all bytes.
            let _ = serde_json::to_writer(into, other);
        }
    }
}

/// Returns the object type of a JSON object in place of a value of type `named`.
pub(super) fn concrete_type(
    model: &Model,
    named: &str,
    object: &Map<String, Value>,
) -> Result<TypeId, FieldError> {
    let possible = model.possible_types(named);
    match object.get("__typename").and_then(Value::as_str) {
        Some(name) => model
            .type_id(name)
            .filter(|id| possible.contains(id))
            .ok_or_else(|| format!("an object of type `{name}` is not a `{named}`").into()),
        None => match possible {
            [only] => Ok(*only),
            _ => Err(format!("an object of type `{named}` needs a `__typename`").into()),
        },
    }
}

/// True if an object has no other members than keys and `__typename`.
pub(super) fn only_key_members(
    model: &Model,
    type_id: TypeId,
    object: &Map<String, Value>,
) -> bool {
    let type_model = model.object(type_id);
    object
        .keys()
        .all(|name| name == "__typename" || type_model.keys.iter().any(|key| key.has_member(name)))
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.iter().any(has_null),
        _ => false,
    }
}

pub(super) fn type_of(model: &Model, name: &str) -> Result<TypeId, SubgraphError> {
    model
        .type_id(name)
        .ok_or_else(|| SubgraphError::Data(format!("there is no object type `{name}`")))
}

fn too_large_error() -> SubgraphError {
    SubgraphError::Data("more than 4 GiB of data".to_owned())
}
