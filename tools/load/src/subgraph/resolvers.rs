//! Functions that compute fields and resolve entities of which a subgraph has no record.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::errors::{FieldError, SubgraphError};
use super::model::{Model, TypeId};
use super::source::{FieldSource, ObjectSource};
use super::store::{Store, StoredValue, type_of};

/// A function that computes a field.
pub(super) type FieldResolver =
    Box<dyn Fn(&Call<'_>) -> Result<Value, FieldError> + Send + Sync + 'static>;

/// A function that resolves the entity of a representation.
pub(super) type EntityResolver =
    Box<dyn Fn(&Map<String, Value>) -> Result<Value, FieldError> + Send + Sync + 'static>;

/// The functions that the model's `resolver` numbers refer to.
#[derive(Default)]
pub(super) struct Resolvers {
    pub(super) fields: Vec<FieldResolver>,
    pub(super) entities: Vec<EntityResolver>,
}

/// The input of a field resolver.
pub struct Call<'a> {
    /// The field's arguments: coerced, with defaults.
    pub arguments: &'a Map<String, Value>,
    pub(super) model: &'a Model,
    pub(super) store: &'a Store,
    pub(super) type_id: TypeId,
    pub(super) source: ObjectSource<'a>,
}

impl Call<'_> {
    /// Returns the name of the object's type.
    pub fn type_name(&self) -> &str {
        &self.model.object(self.type_id).name
    }

    /// Returns an argument, or null if it was not given and has no default.
    pub fn argument(&self, name: &str) -> &Value {
        self.arguments.get(name).unwrap_or(&Value::Null)
    }

    /// Returns a leaf of the object that the field belongs to, from its record or from the requested representation.
    /// Null if it has none.
    pub fn member(&self, name: &str) -> Cow<'_, Value> {
        let object = self.model.object(self.type_id);
        let Some(index) = object.field_index(name) else { return Cow::Owned(Value::Null) };
        match self.source.get(index, object.field(index)) {
            FieldSource::Json(value) => Cow::Borrowed(value),
            FieldSource::StoredValue(StoredValue::Text { start, end }) => Cow::Owned(
                serde_json::from_slice(self.store.text(*start, *end)).unwrap_or_default(),
            ),
            FieldSource::StoredValue(_) | FieldSource::InventedField(_) => Cow::Owned(Value::Null),
        }
    }
}

impl Resolvers {
    pub(super) fn attach(
        model: &mut Model,
        fields: Vec<(String, String, FieldResolver)>,
        entities: Vec<(String, EntityResolver)>,
    ) -> Result<Self, SubgraphError> {
        let mut resolvers = Self::default();
        for (type_name, field, resolve) in fields {
            let id = type_of(model, &type_name)?;
            let object = model.object_mut(id);
            let index = object.field_index(&field).ok_or_else(|| {
                SubgraphError::Data(format!("there is no field `{type_name}.{field}`"))
            })?;
            object.fields[usize::from(index)].resolver = Some(resolvers.fields.len());
            resolvers.fields.push(resolve);
        }
        for (type_name, resolve) in entities {
            let id = type_of(model, &type_name)?;
            if model.object(id).keys.is_empty() {
                return Err(SubgraphError::Data(format!("`{type_name}` is not an entity")));
            }
            model.object_mut(id).entity_resolver = Some(resolvers.entities.len());
            resolvers.entities.push(resolve);
        }
        Ok(resolvers)
    }
}
