//! Values that arguments read from objects further up (`@fromContext`): divides the objects of a
//! batch by them. Objects for which they differ are fetched in requests of their own.

use astjson::{Document, Kind, NodeId};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use plan::{ContextSource, EntityBatch, PathStep};

use crate::bounds::{CONTEXTS_MAX, TARGET_OBJECTS_MAX};
use crate::error_path::has_type;
use crate::representations::CollectError;

/// Objects that share all values.
#[derive(Debug, Default)]
pub(crate) struct ContextGroup {
    /// The variables as members of a JSON object, without braces.
    pub(crate) variables: Vec<u8>,
    pub(crate) objects: HashSet<NodeId>,
}

/// Divides the objects of a batch, in the order of the tree.
pub(crate) fn group_by_context(
    document: &Document,
    root: NodeId,
    batch: &EntityBatch,
) -> Result<Vec<ContextGroup>, CollectError> {
    let mut walk = ContextWalk {
        document,
        batch,
        trail: vec![root],
        groups: Vec::new(),
        by_values: HashMap::new(),
        seen: HashSet::new(),
        visits: 0,
    };
    for target in &batch.targets {
        walk.visit_object(root, &target.steps)?;
    }
    Ok(walk.groups)
}

struct ContextWalk<'a> {
    document: &'a Document,
    batch: &'a EntityBatch,
    /// The objects from the root to here, one for each step.
    trail: Vec<NodeId>,
    groups: Vec<ContextGroup>,
    by_values: HashMap<Vec<u8>, usize>,
    seen: HashSet<NodeId>,
    visits: usize,
}

impl ContextWalk<'_> {
    fn visit_object(&mut self, object: NodeId, steps: &[PathStep]) -> Result<(), CollectError> {
        let Some((step, rest)) = steps.split_first() else { return self.add_object(object) };
        match self.document.get(object, &step.data_key) {
            Some(value) => self.visit_value(value, step, rest),
            None => Ok(()),
        }
    }

    // Recursion is bounded by the length of the path and by the nesting of a parsed response.
    fn visit_value(
        &mut self,
        value: NodeId,
        step: &PathStep,
        rest: &[PathStep],
    ) -> Result<(), CollectError> {
        match self.document.kind(value) {
            Kind::Object if has_type(self.document, value, &step.types) => {
                self.visits += 1;
                if self.visits > TARGET_OBJECTS_MAX {
                    return Err(CollectError::Objects);
                }
                self.trail.push(value);
                let result = self.visit_object(value, rest);
                self.trail.pop();
                result
            }
            Kind::Array => {
                let document = self.document;
                document
                    .elements(value)
                    .try_for_each(|element| self.visit_value(element, step, rest))
            }
            _ => Ok(()),
        }
    }

    fn add_object(&mut self, object: NodeId) -> Result<(), CollectError> {
        // The plan ensures that objects below different values are different objects.
        if !self.seen.insert(object) {
            return Ok(());
        }
        let mut variables = Vec::new();
        for variable in &self.batch.context {
            if !variables.is_empty() {
                variables.push(b',');
            }
            variables.push(b'"');
            variables.extend_from_slice(variable.variable.as_bytes());
            variables.extend_from_slice(b"\":");
            match variable.sources.iter().find_map(|source| self.source_value(source)) {
                Some(value) => self.document.print(value, &mut variables),
                None => variables.extend_from_slice(b"null"),
            }
        }
        let group = match self.by_values.get(&variables) {
            Some(&group) => group,
            None if self.groups.len() == CONTEXTS_MAX => return Err(CollectError::Contexts),
            None => {
                self.by_values.insert(variables.clone(), self.groups.len());
                self.groups.push(ContextGroup { variables, objects: HashSet::new() });
                self.groups.len() - 1
            }
        };
        self.groups[group].objects.insert(object);
        Ok(())
    }

    /// Returns the value of a source, or `None` if the source does not apply to the object.
    fn source_value(&self, source: &ContextSource) -> Option<NodeId> {
        let object = *self.trail.get(source.steps as usize)?;
        if !has_type(self.document, object, &source.types) {
            return None;
        }
        let mut value = object;
        for data_key in &source.data_keys {
            match self.document.kind(value) {
                Kind::Object => value = self.document.get(value, data_key)?,
                // A null on the path is the value.
                _ => break,
            }
        }
        Some(value)
    }
}
