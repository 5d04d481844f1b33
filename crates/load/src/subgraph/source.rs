//! Where the fields of an object come from: records, values that came at run time, or invention.

use serde_json::{Map, Value};

use super::invention::Identity;
use super::model::{FieldIndex, FieldModel};
use super::store::{Record, Slot};

/// The subgraph's own knowledge of an object: its record, or its identity if the fields are made up.
#[derive(Clone, Copy, Default)]
pub(super) struct Base<'a> {
    pub(super) record: Option<&'a Record>,
    pub(super) identity: Option<Identity>,
}

/// Where the fields of an object come from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Known(Base<'a>),
    /// An object that came at run time, laid over the known object with the same key.
    Json {
        base: Base<'a>,
        members: &'a Map<String, Value>,
        origin: Origin,
    },
}

/// The origin of an object that came at run time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A resolver of the mock, or a member of a representation: all fields count.
    Resolver,
    /// The router: keys and external fields count, the subgraph itself has the others.
    Representation,
}

pub(super) enum Found<'a> {
    Slot(&'a Slot),
    Json(&'a Value),
    Invented(Identity),
}

impl<'a> Base<'a> {
    pub(super) fn is_nothing(self) -> bool {
        self.record.is_none() && self.identity.is_none()
    }

    pub(super) fn get(self, index: FieldIndex) -> Found<'a> {
        let slot = self.record.map_or(&Slot::Absent, |record| &record.slots[usize::from(index)]);
        match (slot, self.identity) {
            (Slot::Absent, Some(identity)) => Found::Invented(identity),
            (slot, _) => Found::Slot(slot),
        }
    }
}

impl<'a> Source<'a> {
    pub(super) fn get(self, index: FieldIndex, field: &FieldModel) -> Found<'a> {
        match self {
            Self::Known(base) => base.get(index),
            Self::Json { base, members, origin } => {
                let counts = origin == Origin::Resolver || field.from_representation;
                match members.get(&*field.name).filter(|_| counts) {
                    Some(value) => Found::Json(value),
                    None => base.get(index),
                }
            }
        }
    }
}
