//! Reuses entities within a request: fields of an entity that a subgraph has sent for one place are
//! not fetched again for another.
//!
//! The places are computed once per plan. A batch may take its entities from a place if an earlier
//! fetch of the same subgraph selects there, on objects of the same type, the key members and every
//! field of the batch under the same name with the same arguments. Only leaves are taken, and only
//! texts are copied: objects would be merged into by later fetches, differently at each place.
//! Whether the values exist is known at run time; missing values and nulls are fetched as usual.
//!
//! Not used for mutations: the same entity may change between two of them.

use plan::{
    EntityBatch, Fetch, FetchKind, ObjectShape, OperationKind, Path, PathStep, Plan,
    Representation, RepresentationField, ValueKind, ValueShape,
};

use crate::compiled_objects::{CompiledRepresentation, CompiledTarget, common_steps, step_slots};
use crate::path_tree::PathTree;
use crate::response_layout::ResponseLayout;
use crate::selections::{Selections, parse_selections};

/// Maximum number of places for one batch. Further places mostly have the same entities as the
/// first ones.
const SOURCES_MAX: usize = 4;

/// A place where the entities of a batch may be known.
#[derive(Debug)]
pub(crate) struct ReuseSource {
    pub(crate) path: Path,
    pub(crate) target: CompiledTarget,
    /// The representation of an object of this place for the batch's subgraph.
    pub(crate) representation: Representation,
    pub(crate) compiled: CompiledRepresentation,
    /// The values that the batch needs.
    pub(crate) values: Vec<ReuseValue>,
}

/// One value that a batch needs, at a place where it is known.
#[derive(Debug)]
pub(crate) struct ReuseValue {
    /// Key in the data tree at the place.
    pub(crate) data_key: Box<str>,
    pub(crate) slot: usize,
    /// Comma, key in the batch's response, and colon.
    pub(crate) printed_key: Box<[u8]>,
}

/// Returns the places where the entities of a batch of fetch `number` may be known.
pub(crate) fn reuse_sources(
    plan: &Plan,
    layout: &ResponseLayout,
    targets: &PathTree<'_>,
    number: usize,
    batch: &EntityBatch,
) -> Vec<ReuseSource> {
    let mut found = Vec::new();
    // Arguments that depend on objects further up may differ from place to place.
    if plan.fetches.iter().any(may_change_data) || !batch.context.is_empty() {
        return found;
    }
    let FetchKind::Entities { operation, .. } = &plan.fetches[number].kind else { return found };
    let Some(needed) = parse_selections(&operation.text) else { return found };
    let Some(needed) = needed_fields(&needed, batch) else { return found };
    for earlier in fetches_before(plan, number) {
        let fetch = &plan.fetches[earlier];
        if fetch.subgraph == plan.fetches[number].subgraph {
            find_places(plan, fetch, &needed, &mut |place| {
                if found.len() < SOURCES_MAX {
                    let before = found.last().map(|source| &source.path);
                    let source = compile_source(plan, layout, targets, before, place);
                    found.push(source);
                }
            });
        }
    }
    found
}

fn may_change_data(fetch: &Fetch) -> bool {
    match &fetch.kind {
        FetchKind::Root(operation) => operation.kind == OperationKind::Mutation,
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
    /// Key, name and arguments of each field.
    fields: Vec<(&'a str, &'a str, &'a str)>,
}

fn needed_fields<'a>(
    operation: &Selections<'a>,
    batch: &'a EntityBatch,
) -> Option<NeededFields<'a>> {
    let type_name = batch.representation.typename.as_deref()?;
    // Required fields influence the value too, and they may differ from place to place.
    let plain = |it: &RepresentationField| it.key && it.fields.is_empty() && it.types.is_empty();
    if !batch.representation.fields.iter().all(plain) {
        return None;
    }
    let entities = operation.fields.iter().find(|field| *field.key == *batch.data_key)?;
    let [fragment] = &entities.below.fragments[..] else { return None };
    let is_plain = !entities.is_conditional && !fragment.is_conditional;
    let leaves = &fragment.below;
    if !is_plain
        || fragment.on != type_name
        || !entities.below.fields.is_empty()
        || !leaves.fragments.is_empty()
        || leaves.fields.is_empty()
    {
        return None;
    }
    let field = |field: &crate::selections::SelectedField<'a>| {
        // Variables are named differently in each operation.
        let same_everywhere = !field.is_conditional && !field.arguments.contains('$');
        let is_leaf = field.below.is_empty();
        (same_everywhere && is_leaf).then_some((field.key, field.name, field.arguments))
    };
    let fields = leaves.fields.iter().map(field).collect::<Option<Vec<_>>>()?;
    let keys = batch.representation.fields.iter().map(|field| &*field.name).collect();
    Some(NeededFields { type_name, keys, fields })
}

/// Returns the fetches that are complete when this one begins.
fn fetches_before(plan: &Plan, number: usize) -> Vec<usize> {
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
    (0..number).filter(|&earlier| is_before[earlier]).collect()
}

/// A place that was found: keys by the name of the needed value.
struct ReusePlace {
    path: Path,
    type_name: Box<str>,
    /// Name and key of each key member.
    keys: Vec<(Box<str>, Box<str>)>,
    /// Key at the place and needed key of each value.
    values: Vec<(Box<str>, Box<str>)>,
}

/// Finds every place of `fetch` that selects all needed values.
fn find_places(
    plan: &Plan,
    fetch: &Fetch,
    needed: &NeededFields<'_>,
    found: &mut dyn FnMut(ReusePlace),
) {
    let operation = match &fetch.kind {
        FetchKind::Root(operation) | FetchKind::Entities { operation, .. } => operation,
        FetchKind::RootBelow { .. } | FetchKind::Publish(_) | FetchKind::Request(_) => return,
    };
    let Some(selected) = parse_selections(&operation.text) else { return };
    if let FetchKind::Root(_) = &fetch.kind {
        let Some(root) = plan.shape.objects.get(plan.shape.root.0 as usize) else { return };
        search_places(plan, root, &selected, &mut Path::default(), needed, found);
        return;
    }
    for batch in fetch.kind.batches() {
        let entities = selected.fields.iter().find(|field| *field.key == *batch.data_key);
        let Some(entities) = entities.filter(|it| !it.is_conditional) else { continue };
        for target in &batch.targets {
            if let Some(object) = object_at(plan, target) {
                search_places(plan, object, &entities.below, &mut target.clone(), needed, found);
            }
        }
    }
}

/// Searches places from an object on, which is of one object type.
fn search_places(
    plan: &Plan,
    object: &ObjectShape,
    selected: &Selections<'_>,
    path: &mut Path,
    needed: &NeededFields<'_>,
    found: &mut dyn FnMut(ReusePlace),
) {
    let own = selected.fragments.iter().filter(|it| *it.on == *object.type_name);
    let sets = || {
        std::iter::once(selected)
            .chain(own.clone().filter(|it| !it.is_conditional).map(|it| &it.below))
    };
    let fields = || sets().flat_map(|set| &set.fields).filter(|field| !field.is_conditional);
    if *object.type_name == *needed.type_name && !path.steps.is_empty() {
        let key = |name: &&str| {
            let field = fields().find(|it| it.name == *name && it.arguments.is_empty())?;
            Some(((*name).into(), field.key.into()))
        };
        let value = |&(key, name, arguments): &(&str, &str, &str)| {
            let same = fields().find(|it| it.name == name && it.arguments == arguments)?;
            Some((same.key.into(), key.into()))
        };
        let keys = needed.keys.iter().map(key).collect::<Option<Vec<_>>>();
        let values = needed.fields.iter().map(value).collect::<Option<Vec<_>>>();
        if let (Some(keys), Some(values)) = (keys, values) {
            let type_name = needed.type_name.into();
            found(ReusePlace { path: path.clone(), type_name, keys, values });
        }
    }
    for field in fields().filter(|field| !field.below.is_empty()) {
        if let Some(below) = member_object(plan, object, field.key) {
            path.steps.push(PathStep { data_key: field.key.into(), types: Vec::new() });
            search_places(plan, below, &field.below, path, needed, found);
            path.steps.pop();
        }
    }
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

/// Returns the objects that a member leads to, if they and those that have it are of one object
/// type each.
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
            ValueKind::Leaf(_) | ValueKind::Typename | ValueKind::Verbatim => return None,
        }
    }
}

fn compile_source(
    plan: &Plan,
    layout: &ResponseLayout,
    targets: &PathTree<'_>,
    before: Option<&Path>,
    place: ReusePlace,
) -> ReuseSource {
    let mut objects = layout.cursor(Some(plan.shape.root.0 as usize));
    for step in &place.path.steps {
        objects = objects.object_member(&step.data_key);
    }
    let key = |(name, data_key): (Box<str>, Box<str>)| RepresentationField {
        name,
        data_key,
        key: true,
        types: Vec::new(),
        fields: Vec::new(),
    };
    let fields = place.keys.into_iter().map(key).collect();
    let representation = Representation { typename: Some(place.type_name), fields };
    let value = |(data_key, needed): (Box<str>, Box<str>)| ReuseValue {
        slot: objects.slot(&data_key),
        data_key,
        printed_key: [b",\"", needed.as_bytes(), b"\":"].concat().into(),
    };
    ReuseSource {
        target: CompiledTarget {
            shared_from: targets.shared_from(&place.path),
            as_before: common_steps(before, &place.path),
            slots: step_slots(plan, layout, &place.path),
            group: 0,
        },
        compiled: CompiledRepresentation::new(objects, &representation),
        values: place.values.into_iter().map(value).collect(),
        representation,
        path: place.path,
    }
}
