//! The layout of the data tree, computed once per plan: the members that each object can have, from
//! all subgraphs. Responses are parsed into slots for these members; other members get no nodes.
//!
//! An object of the response shape is one kind of object in the tree, wherever it occurs. Places
//! that one entity batch leads to are one kind too, so that the objects of a response and those
//! that requested them have the same slots.

use astjson::{LinkedObject, Shape};
use plan::{
    ContextSource, EntityBatch, FetchKind, Path, Plan, RepresentationField, ValueKind, ValueShape,
};

const TYPENAME: &str = "__typename";

/// The kinds of objects of a data tree.
#[derive(Debug)]
pub(crate) struct ResponseLayout {
    /// The kinds; those that were merged into another kind are empty.
    kinds: Vec<ObjectKind>,
    /// Objects after the kinds: the outermost ones of responses.
    envelopes: Vec<LinkedObject>,
}

/// Number of a kind of object. The first ones are the objects of the response shape.
type KindId = usize;

#[derive(Debug, Default)]
struct ObjectKind {
    fields: Vec<(Box<str>, LayoutMember)>,
    /// The kind that this one was merged into.
    merged_into: Option<KindId>,
}

/// The layout of a member.
#[derive(Clone, Copy, Debug)]
enum LayoutMember {
    /// A leaf, or a value that is needed whole.
    Whole,
    /// An object, or lists of them.
    Object(KindId),
}

impl ResponseLayout {
    /// Computes the layout for everything that `plan` reads.
    pub(crate) fn new(plan: &Plan) -> Self {
        let kinds = plan.shape.objects.iter().map(|_| ObjectKind::default()).collect();
        let mut layout = Self { kinds, envelopes: Vec::new() };
        for (kind, object) in plan.shape.objects.iter().enumerate() {
            if object.is_abstract {
                layout.add_member(kind, TYPENAME, LayoutMember::Whole);
            }
            for field in object.variants.iter().flat_map(|variant| &variant.fields) {
                if !matches!(field.value.kind, ValueKind::Typename | ValueKind::Denied) {
                    let member = layout.member_of(&field.value);
                    layout.add_member(kind, &field.data_key, member);
                }
            }
        }
        if layout.kinds.is_empty() {
            layout.kinds.push(ObjectKind::default());
        }
        let root = plan.shape.root.0 as usize;
        for fetch in &plan.fetches {
            if let FetchKind::RootBelow { target, .. } = &fetch.kind {
                layout.kind_at_end(root, target);
            }
        }
        for batch in plan.fetches.iter().flat_map(|fetch| fetch.kind.batches()) {
            let mut common = None;
            for target in &batch.targets {
                // Also for targets below a value that is needed whole: the values are above them.
                for source in batch.context.iter().flat_map(|variable| &variable.sources) {
                    layout.add_context_members(root, target, source);
                }
                let Some(kind) = layout.kind_at_end(root, target) else { continue };
                layout.add_representation_members(kind, &batch.representation.fields);
                if batch.representation.typename.is_none() {
                    layout.add_member(kind, TYPENAME, LayoutMember::Whole);
                }
                match common {
                    None => common = Some(kind),
                    Some(common) => layout.merge_kinds(common, kind),
                }
            }
        }
        layout
    }

    fn member_of(&self, value: &ValueShape) -> LayoutMember {
        match &value.kind {
            ValueKind::List(element) => self.member_of(element),
            ValueKind::Object(id) if (id.0 as usize) < self.kinds.len() => {
                LayoutMember::Object(id.0 as usize)
            }
            _ => LayoutMember::Whole,
        }
    }

    fn resolve_kind(&self, mut kind: KindId) -> KindId {
        while let Some(next) = self.kinds[kind].merged_into {
            kind = next;
        }
        kind
    }

    fn new_kind(&mut self) -> KindId {
        self.kinds.push(ObjectKind::default());
        self.kinds.len() - 1
    }

    /// Adds a member to a kind. If it exists and both are objects, their kinds are merged.
    fn add_member(&mut self, kind: KindId, key: &str, member: LayoutMember) {
        let kind = self.resolve_kind(kind);
        let known = self.kinds[kind].fields.iter_mut().find(|(own, _)| **own == *key);
        match (known, member) {
            (None, member) => self.kinds[kind].fields.push((key.into(), member)),
            (Some((_, known)), LayoutMember::Whole) => *known = LayoutMember::Whole,
            (Some((_, LayoutMember::Whole)), LayoutMember::Object(_)) => {}
            (Some((_, LayoutMember::Object(known))), LayoutMember::Object(new)) => {
                let known = *known;
                self.merge_kinds(known, new);
            }
        }
    }

    /// Merges two kinds.
    fn merge_kinds(&mut self, left: KindId, right: KindId) {
        // Each round leaves one kind less, so this ends.
        let mut pending = vec![(left, right)];
        while let Some((left, right)) = pending.pop() {
            let (left, right) = (self.resolve_kind(left), self.resolve_kind(right));
            if left == right {
                continue;
            }
            self.kinds[right].merged_into = Some(left);
            for (key, member) in std::mem::take(&mut self.kinds[right].fields) {
                let known = self.kinds[left].fields.iter_mut().find(|(own, _)| *own == key);
                match (known, member) {
                    (None, member) => self.kinds[left].fields.push((key, member)),
                    (Some((_, known)), LayoutMember::Whole) => *known = LayoutMember::Whole,
                    (Some((_, LayoutMember::Whole)), LayoutMember::Object(_)) => {}
                    (Some((_, LayoutMember::Object(known))), LayoutMember::Object(new)) => {
                        pending.push((*known, new));
                    }
                }
            }
        }
    }

    /// Returns the kind of the member `key`, which must be an object.
    fn object_member(&mut self, kind: KindId, key: &str) -> Option<KindId> {
        let kind = self.resolve_kind(kind);
        if let Some((_, member)) = self.kinds[kind].fields.iter().find(|(own, _)| **own == *key) {
            return match *member {
                LayoutMember::Whole => None,
                LayoutMember::Object(kind) => Some(kind),
            };
        }
        let below = self.new_kind();
        self.kinds[kind].fields.push((key.into(), LayoutMember::Object(below)));
        Some(below)
    }

    /// Returns the kind of the objects at the end of `path`. `None` if the path leads into a value
    /// that is needed whole.
    fn kind_at_end(&mut self, root: KindId, path: &Path) -> Option<KindId> {
        let mut kind = root;
        for step in &path.steps {
            kind = self.object_member(kind, &step.data_key)?;
            if !step.types.is_empty() {
                self.add_member(kind, TYPENAME, LayoutMember::Whole);
            }
        }
        Some(kind)
    }

    /// Adds the members that a context reads from an object on the path of `target`.
    fn add_context_members(&mut self, root: KindId, target: &Path, source: &ContextSource) {
        let steps = target.steps.iter().take(source.steps as usize).cloned().collect();
        let Some(mut kind) = self.kind_at_end(root, &Path { steps }) else { return };
        if !source.types.is_empty() {
            self.add_member(kind, TYPENAME, LayoutMember::Whole);
        }
        let Some((last, above)) = source.data_keys.split_last() else { return };
        for data_key in above {
            match self.object_member(kind, data_key) {
                Some(below) => kind = below,
                None => return,
            }
        }
        self.add_member(kind, last, LayoutMember::Whole);
    }

    /// Adds the members that representations of an object consist of.
    fn add_representation_members(&mut self, kind: KindId, fields: &[RepresentationField]) {
        for field in fields {
            if !field.types.is_empty() {
                self.add_member(kind, TYPENAME, LayoutMember::Whole);
            }
            if field.fields.is_empty() {
                self.add_member(kind, &field.data_key, LayoutMember::Whole);
            } else if let Some(below) = self.object_member(kind, &field.data_key) {
                self.add_representation_members(below, &field.fields);
            }
        }
    }

    /// Returns the kind of the objects of a batch.
    pub(crate) fn target(&self, plan: &Plan, batch: &EntityBatch) -> Option<KindId> {
        batch.targets.iter().find_map(|path| self.kind_at(plan, path))
    }

    /// Returns the kind of the objects at the end of `path`.
    pub(crate) fn kind_at(&self, plan: &Plan, path: &Path) -> Option<KindId> {
        let mut kind = plan.shape.root.0 as usize;
        for step in &path.steps {
            kind = self.member_kind(kind, &step.data_key)?;
        }
        Some(self.resolve_kind(kind))
    }

    fn member_kind(&self, kind: KindId, key: &str) -> Option<KindId> {
        let fields = &self.kinds[self.resolve_kind(kind)].fields;
        fields.iter().find_map(|(own, member)| match member {
            LayoutMember::Object(below) if **own == *key => Some(*below),
            _ => None,
        })
    }

    /// Adds the response of a root fetch; returns its index in [`ResponseLayout::shape`].
    pub(crate) fn add_root_response(&mut self, plan: &Plan) -> usize {
        let root = self.resolve_kind(plan.shape.root.0 as usize);
        self.add_response(root)
    }

    /// Adds the response of a fetch of root fields below others; returns its index in
    /// [`ResponseLayout::shape`].
    pub(crate) fn add_root_below_response(&mut self, plan: &Plan, target: &Path) -> usize {
        let data = self.kind_at(plan, target);
        self.add_response_of(data)
    }

    /// Adds the response of an entity fetch; returns its index in [`ResponseLayout::shape`].
    pub(crate) fn add_entity_response(&mut self, plan: &Plan, batches: &[EntityBatch]) -> usize {
        let fields = batches.iter().map(|batch| (batch.data_key.clone(), self.target(plan, batch)));
        let data = LinkedObject { fields: fields.collect() };
        self.envelopes.push(data);
        self.add_response(self.kinds.len() + self.envelopes.len() - 1)
    }

    fn add_response(&mut self, data: usize) -> usize {
        self.add_response_of(Some(data))
    }

    fn add_response_of(&mut self, data: Option<usize>) -> usize {
        let fields = vec![("data".into(), data), ("errors".into(), None)];
        self.envelopes.push(LinkedObject { fields });
        self.kinds.len() + self.envelopes.len() - 1
    }

    /// Returns the shape of all kinds and responses.
    pub(crate) fn shape(&self) -> Shape {
        let kinds = self.kinds.iter().map(|kind| LinkedObject {
            fields: kind
                .fields
                .iter()
                .map(|(key, member)| match *member {
                    LayoutMember::Whole => (key.clone(), None),
                    LayoutMember::Object(kind) => (key.clone(), Some(self.resolve_kind(kind))),
                })
                .collect(),
        });
        Shape::linked(&kinds.chain(self.envelopes.iter().cloned()).collect::<Vec<_>>())
    }

    /// Returns a cursor for looking up slots, from a kind of object on.
    pub(crate) fn cursor(&self, kind: Option<usize>) -> LayoutCursor<'_> {
        LayoutCursor { layout: self, kind: kind.filter(|&kind| kind < self.kinds.len()) }
    }
}

/// A kind of object, for looking up slots.
#[derive(Clone, Copy)]
pub(crate) struct LayoutCursor<'a> {
    layout: &'a ResponseLayout,
    kind: Option<KindId>,
}

impl<'a> LayoutCursor<'a> {
    /// Returns the slot of a member, or zero if there is none: slots are hints.
    pub(crate) fn slot(self, key: &str) -> usize {
        self.known_slot(key).unwrap_or(0)
    }

    fn known_slot(self, key: &str) -> Option<usize> {
        let kind = self.layout.resolve_kind(self.kind?);
        self.layout.kinds[kind].fields.iter().position(|(own, _)| **own == *key)
    }

    /// Like [`LayoutCursor::number`], but the number of no object if one of these members has no
    /// slot.
    pub(crate) fn number_with<'k>(self, keys: impl IntoIterator<Item = &'k str>) -> usize {
        match keys.into_iter().all(|key| self.known_slot(key).is_some()) {
            true => self.number(),
            false => usize::MAX,
        }
    }

    /// Returns the index of the kind in [`ResponseLayout::shape`].
    pub(crate) fn number(self) -> usize {
        self.kind.map_or(usize::MAX, |kind| self.layout.resolve_kind(kind))
    }

    /// Returns the objects that a member leads to.
    pub(crate) fn object_member(self, key: &str) -> LayoutCursor<'a> {
        LayoutCursor { kind: self.kind.and_then(|kind| self.layout.member_kind(kind, key)), ..self }
    }
}
