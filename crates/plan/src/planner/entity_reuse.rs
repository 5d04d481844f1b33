//! Reuse of entities within a request: fields of an entity that a subgraph has sent for one place are not fetched again
//! for another. This module finds the places; execution copies the values.
//!
//! A batch may take its entities from a place if an earlier fetch of the same subgraph selects there, on objects of the
//! same type, the key members and every field of the batch with the same arguments. Only leaves are taken: objects
//! would be merged into by later fetches, differently at each place.
//!
//! Not used for mutations: the same entity may change between two of them.

use graph::Supergraph;

use super::conditions;
use super::fetch_graph::{SelectedField, SelectionId, Selections, SubgraphSelection};
use crate::{
    Condition, EntityBatch, Fetch, FetchKind, ObjectShape, OperationKind, Path, PathStep, Plan,
    Representation, RepresentationField, ReusePlace, ReusedValue, ValueKind, ValueShape,
};

/// The maximum number of places for one batch. Further places mostly have the same entities as the first ones.
const PLACES_MAX: usize = 4;

/// The key under which abstract types are selected, and its field.
const TYPENAME: &str = "__typename";

/// A selection set as it was written: of a root fetch, or under one alias of an entity fetch.
#[derive(Clone, Copy)]
pub(super) struct WrittenSelection<'a> {
    pub(super) selection: SelectionId,
    /// The conditions under which objects may be at the place of the set; empty if they always may.
    pub(super) reached: &'a [Condition],
}

/// Adds the places to all batches of `plan`. `written` has the selection sets of each fetch: that of a root fetch, or
/// those of the batches, or none. Gives up after visiting `fields_max` fields, because fetches are compared pairwise.
pub(super) fn add_reuse_places(
    graph: &Supergraph,
    selections: &Selections,
    written: &[Vec<WrittenSelection<'_>>],
    plan: &mut Plan,
    fields_max: u64,
) {
    if plan.fetches.iter().any(may_change_data) {
        return;
    }
    let mut search = ReuseSearch { graph, selections, written, plan, fields_left: fields_max };
    let mut found: Vec<(usize, Vec<Vec<ReusePlace>>)> = Vec::new();
    for number in 0..plan.fetches.len() {
        let earlier = search.earlier_fetches(number);
        if !earlier.is_empty() {
            found.push((number, search.search_batches(number, &earlier)));
        }
    }
    for (number, places) in found {
        if let FetchKind::Entities { batches, .. } = &mut plan.fetches[number].kind {
            batches.iter_mut().zip(places).for_each(|(batch, places)| batch.reuse = places);
        }
    }
}

fn may_change_data(fetch: &Fetch) -> bool {
    match &fetch.kind {
        FetchKind::Root { operation, .. } => operation.kind == OperationKind::Mutation,
        FetchKind::Entities { .. } | FetchKind::RootBelow { .. } => false,
        // A responder may have other effects; in doubt nothing is reused.
        FetchKind::Publish(_) | FetchKind::Request(_) => true,
    }
}

/// The values that a batch needs, if they can be taken from elsewhere.
struct NeededFields<'a> {
    type_name: &'a str,
    /// The names of the key members.
    keys: Vec<&'a str>,
    selects_typename: bool,
    fields: Vec<&'a SelectedField>,
}

struct ReuseSearch<'a> {
    graph: &'a Supergraph,
    selections: &'a Selections,
    written: &'a [Vec<WrittenSelection<'a>>],
    plan: &'a Plan,
    /// The number of fields that may still be visited.
    fields_left: u64,
}

impl<'a> ReuseSearch<'a> {
    /// Returns the fetches of the same subgraph that are complete when an entity fetch begins.
    fn earlier_fetches(&self, number: usize) -> Vec<usize> {
        let fetch = &self.plan.fetches[number];
        let is_searched = |earlier: &usize| {
            self.plan.fetches[*earlier].subgraph == fetch.subgraph
                && !self.written[*earlier].is_empty()
        };
        if fetch.kind.batches().is_empty() || !(0..number).any(|earlier| is_searched(&earlier)) {
            return Vec::new();
        }
        let is_before = fetches_before(self.plan, number);
        (0..number).filter(is_searched).filter(|&earlier| is_before[earlier]).collect()
    }

    /// Returns the places of each batch of a fetch.
    fn search_batches(&mut self, number: usize, earlier: &[usize]) -> Vec<Vec<ReusePlace>> {
        let fetch = &self.plan.fetches[number];
        let batches = fetch.kind.batches().iter().zip(&self.written[number]);
        let places_of = |(batch, written): (&'a EntityBatch, &WrittenSelection<'a>)| {
            let mut found = Vec::new();
            if let Some(needed) = self.needed_fields(fetch, batch, *written) {
                earlier.iter().for_each(|&it| self.search_earlier(it, &needed, &mut found));
            }
            found
        };
        batches.map(places_of).collect()
    }

    /// Returns the values that `batch` needs; `None` if they cannot be the same elsewhere.
    fn needed_fields(
        &self,
        fetch: &Fetch,
        batch: &'a EntityBatch,
        written: WrittenSelection<'_>,
    ) -> Option<NeededFields<'a>> {
        let type_name = batch.representation.typename.as_deref()?;
        // Required fields influence the value too, and they may differ from place to place.
        let is_plain =
            |it: &RepresentationField| it.key && it.fields.is_empty() && it.types.is_empty();
        if !batch.representation.fields.iter().all(is_plain) || !batch.context.is_empty() {
            return None;
        }
        let set = &self.selections[written.selection];
        let given = conditions::stronger_of(&fetch.any_of, written.reached);
        let is_abstract = self.is_abstract(set, fetch);
        let mut fields = Vec::new();
        for entry in set.entries() {
            match entry.on {
                // The object type may differ from place to place.
                Some(_) if is_abstract => return None,
                Some(on) if on != set.ty => continue,
                _ => {}
            }
            match conditions::remaining_conditions(&entry.any_of, given) {
                None => continue,
                Some(any_of) if !any_of.is_empty() => return None,
                Some(_) => {}
            }
            // Variables and values from further up may differ from place to place.
            let is_constant = entry.arguments.variables.is_empty() && entry.context.is_empty();
            if !is_constant || entry.child.is_some() {
                return None;
            }
            fields.push(entry);
        }
        let selects_typename = set.selects_type || is_abstract;
        if fields.is_empty() && !selects_typename {
            return None;
        }
        let keys = batch.representation.fields.iter().map(|field| &*field.name).collect();
        Some(NeededFields { type_name, keys, selects_typename, fields })
    }

    /// True if the set is written with a fragment for each object type.
    fn is_abstract(&self, set: &SubgraphSelection, fetch: &Fetch) -> bool {
        self.graph.ty(set.ty).kind.is_abstract()
            && !self.graph.is_interface_object(set.ty, fetch.subgraph)
    }

    /// Finds the places of an earlier fetch that select all needed values.
    fn search_earlier(
        &mut self,
        number: usize,
        needed: &NeededFields<'a>,
        found: &mut Vec<ReusePlace>,
    ) {
        let fetch = &self.plan.fetches[number];
        let written = &self.written[number];
        let place = |written: &WrittenSelection<'a>| SearchedSet {
            fetch,
            selection: written.selection,
            given: conditions::stronger_of(&fetch.any_of, written.reached),
        };
        if let FetchKind::Root { .. } = &fetch.kind {
            let root = self.plan.shape.objects.get(self.plan.shape.root.0 as usize);
            if let (Some(root), Some(written)) = (root, written.first()) {
                self.search_object(root, place(written), &mut Path::default(), needed, found);
            }
            return;
        }
        for (batch, written) in fetch.kind.batches().iter().zip(written) {
            for target in &batch.targets {
                // The set is written in a fragment on this type.
                let object = object_at(self.plan, target).filter(|object| {
                    batch.representation.typename.as_ref() == Some(&object.type_name)
                });
                if let Some(object) = object {
                    self.search_object(object, place(written), &mut target.clone(), needed, found);
                }
            }
        }
    }

    /// Searches from an object on, which is of one object type.
    fn search_object(
        &mut self,
        object: &'a ObjectShape,
        place: SearchedSet<'a>,
        path: &mut Path,
        needed: &NeededFields<'a>,
        found: &mut Vec<ReusePlace>,
    ) {
        let (graph, set) = (self.graph, &self.selections[place.selection]);
        self.fields_left = self.fields_left.saturating_sub(1 + set.entries().len() as u64);
        if found.len() >= PLACES_MAX || self.fields_left == 0 {
            return;
        }
        let fields = || {
            set.entries().iter().filter(|entry| {
                entry.on.is_none_or(|on| graph.ty(on).name == object.type_name)
                    && conditions::follows_from(&entry.any_of, place.given)
            })
        };
        if *object.type_name == *needed.type_name && !path.steps.is_empty() {
            let selects_typename = set.selects_type || self.is_abstract(set, place.fetch);
            let values = match needed.selects_typename && !selects_typename {
                true => None,
                false => self.find_values(needed, fields),
            };
            let representation = self.find_representation(needed, fields);
            if let (Some(representation), Some(values)) = (representation, values) {
                found.push(ReusePlace { path: path.clone(), representation, values });
            }
        }
        for entry in fields() {
            let Some(selection) = entry.child else { continue };
            if let Some(below) = member_object(self.plan, object, &entry.data_key) {
                path.steps.push(PathStep { data_key: (*entry.data_key).into(), types: Vec::new() });
                let place = SearchedSet { selection, ..place };
                self.search_object(below, place, path, needed, found);
                path.steps.pop();
            }
        }
    }

    /// Returns the representation of the objects that have `fields`; `None` if a key member is missing.
    fn find_representation<'f, I: Iterator<Item = &'f SelectedField>>(
        &self,
        needed: &NeededFields<'_>,
        fields: impl Fn() -> I,
    ) -> Option<Representation> {
        let key = |name: &&str| {
            let entry = fields().find(|entry| {
                *self.graph.field(entry.field).name == **name
                    && entry.arguments.text.is_empty()
                    && entry.context.is_empty()
            })?;
            Some(RepresentationField {
                name: (*name).into(),
                data_key: (*entry.data_key).into(),
                key: true,
                types: Vec::new(),
                fields: Vec::new(),
            })
        };
        let fields = needed.keys.iter().map(key).collect::<Option<Vec<_>>>()?;
        Some(Representation { typename: Some(needed.type_name.into()), fields })
    }

    /// Returns the needed values among `fields`; `None` if one is missing.
    fn find_values<'f, I: Iterator<Item = &'f SelectedField>>(
        &self,
        needed: &NeededFields<'_>,
        fields: impl Fn() -> I,
    ) -> Option<Vec<ReusedValue>> {
        let name = |entry: &SelectedField| &self.graph.field(entry.field).name;
        let typename = needed.selects_typename.then(|| {
            Some(ReusedValue { data_key: TYPENAME.into(), response_key: TYPENAME.into() })
        });
        let value = |wanted: &&SelectedField| {
            let same = fields().find(|entry| {
                name(entry) == name(wanted)
                    && entry.arguments.text == wanted.arguments.text
                    && entry.context.is_empty()
            })?;
            let (data_key, response_key) = ((*same.data_key).into(), (*wanted.data_key).into());
            Some(ReusedValue { data_key, response_key })
        };
        typename.into_iter().chain(needed.fields.iter().map(value)).collect()
    }
}

/// A selection set that is searched.
#[derive(Clone, Copy)]
struct SearchedSet<'a> {
    fetch: &'a Fetch,
    selection: SelectionId,
    /// The conditions of which one holds wherever the set is reached; empty if nothing is known.
    given: &'a [Condition],
}

/// Returns for each fetch before `number` whether it is complete when that one begins.
fn fetches_before(plan: &Plan, number: usize) -> Vec<bool> {
    let mut is_before = vec![false; number];
    let mut pending = vec![number];
    while let Some(fetch) = pending.pop() {
        for id in &plan.fetches[fetch].depends_on {
            let earlier = id.0 as usize;
            if earlier < number && !std::mem::replace(&mut is_before[earlier], true) {
                pending.push(earlier);
            }
        }
    }
    is_before
}

/// Returns the objects at the end of a path, if all on the path are of one object type each.
fn object_at<'a>(plan: &'a Plan, path: &Path) -> Option<&'a ObjectShape> {
    let mut object = plan.shape.objects.get(plan.shape.root.0 as usize)?;
    for step in &path.steps {
        if !step.types.is_empty() {
            return None;
        }
        object = member_object(plan, object, &step.data_key)?;
    }
    Some(object)
}

/// Returns the objects that a member leads to, if they and those that have it are of one object type each.
fn member_object<'a>(plan: &'a Plan, object: &ObjectShape, key: &str) -> Option<&'a ObjectShape> {
    let [variant] = &object.variants[..] else { return None };
    let field = variant.fields.iter().find(|field| *field.data_key == *key)?;
    let mut value: &ValueShape = &field.value;
    loop {
        match &value.kind {
            ValueKind::List(element) => value = element,
            ValueKind::Object(id) => {
                let below = plan.shape.objects.get(id.0 as usize)?;
                return (!below.is_abstract && below.variants.len() == 1).then_some(below);
            }
            ValueKind::Leaf(_) | ValueKind::Typename | ValueKind::Verbatim | ValueKind::Denied => {
                return None;
            }
        }
    }
}
