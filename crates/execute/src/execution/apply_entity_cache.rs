//! Copies entities that the request knows already to other places: see [`plan::EntityBatch::reuse`].

use std::collections::hash_map::Entry;

use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use plan::EntityBatch;

use super::Execution;
use crate::compiled::CompiledBatch;
use crate::representations::{RememberedObject, scalar_text};

impl Execution<'_> {
    /// Merges the known values into `objects`, in place of a response of their batch.
    pub(super) fn apply_known_entities(
        &mut self,
        batch: &EntityBatch,
        compiled: &CompiledBatch,
        objects: Vec<RememberedObject>,
    ) {
        if objects.is_empty() {
            return;
        }
        // One entity for each group of target paths, as for responses.
        let mut items = HashMap::new();
        let mut text = vec![b'['];
        let mut numbers = Vec::with_capacity(objects.len());
        for object in &objects {
            let group = compiled.targets[object.target as usize].group;
            let next = items.len();
            let number = match items.entry((object.known, group)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(free) => {
                    let place = object.place as usize;
                    let values = batch.reuse[place].values.iter();
                    if next > 0 {
                        text.push(b',');
                    }
                    text.push(b'{');
                    for (index, (value, own)) in
                        values.zip(&compiled.reuse[place].values).enumerate()
                    {
                        // The value was there when the object was chosen.
                        let raw = scalar_text(&self.document, object.known, value, own.slot);
                        let raw = raw.unwrap_or("null");
                        text.extend_from_slice(&own.printed_key[usize::from(index == 0)..]);
                        text.extend_from_slice(raw.as_bytes());
                    }
                    text.push(b'}');
                    *free.insert(next)
                }
            };
            numbers.push(number);
        }
        text.push(b']');
        // The list consists of texts that were parsed before, so this succeeds.
        let Ok(list) = self.document.parse_shaped(Bytes::from(text), &compiled.entity) else {
            return;
        };
        let entities: Vec<_> = self.document.elements(list).collect();
        for (object, number) in objects.iter().zip(numbers) {
            // Scalars always fit.
            let _ = self.document.merge_filling(object.node, entities[number]);
        }
    }
}
