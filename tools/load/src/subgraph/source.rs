//! The data of an object: records, values that came at run time, or invention.

use serde_json::{Map, Value};

use super::invention::Identity;
use super::model::{FieldIndex, FieldModel};
use super::store::{Record, StoredValue};

/// The subgraph's own data of an object: its record, or its identity if the fields are made up.
#[derive(Clone, Copy, Default)]
pub(super) struct KnownObject<'a> {
    pub(super) record: Option<&'a Record>,
    pub(super) identity: Option<Identity>,
}

/// The data of an object.
#[derive(Clone, Copy)]
pub(super) enum ObjectSource<'a> {
    Known(KnownObject<'a>),
    /// An object that came at run time, over the known object with the same key.
    Json {
        base: KnownObject<'a>,
        members: &'a Map<String, Value>,
        origin: RuntimeOrigin,
    },
}

/// The origin of an object that came at run time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RuntimeOrigin {
    /// A resolver of the mock, or a member of a representation: all fields apply.
    Resolver,
    /// The router: keys and external fields apply, the others come from the subgraph.
    Representation,
}

pub(super) enum FieldSource<'a> {
    StoredValue(&'a StoredValue),
    Json(&'a Value),
    InventedField(Identity),
}

impl<'a> KnownObject<'a> {
    pub(super) fn is_nothing(self) -> bool {
        self.record.is_none() && self.identity.is_none()
    }

    pub(super) fn get(self, index: FieldIndex) -> FieldSource<'a> {
        let slot =
            self.record.map_or(&StoredValue::Absent, |record| &record.slots[usize::from(index)]);
        match (slot, self.identity) {
            (StoredValue::Absent, Some(identity)) => FieldSource::InventedField(identity),
            (slot, _) => FieldSource::StoredValue(slot),
        }
    }
}

impl<'a> ObjectSource<'a> {
    pub(super) fn get(self, index: FieldIndex, field: &FieldModel) -> FieldSource<'a> {
        match self {
            Self::Known(base) => base.get(index),
            Self::Json { base, members, origin } => {
                let counts = origin == RuntimeOrigin::Resolver || field.from_representation;
                match members.get(&*field.name).filter(|_| counts) {
                    Some(value) => FieldSource::Json(value),
                    None => base.get(index),
                }
            }
        }
    }
}
