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
pub(crate) struct Expected {
    /// The kinds; those that were merged into another kind are empty.
    kinds: Vec<Kind>,
    /// Objects after the kinds: the outermost ones of responses.
    envelopes: Vec<LinkedObject>,
}

/// Number of a kind of object. The first ones are the objects of the response shape.
type KindId = usize;

#[derive(Debug, Default)]
struct Kind {
    fields: Vec<(Box<str>, Member)>,
    /// The kind that this one was merged into.
    became: Option<KindId>,
}

/// The layout of a member.
#[derive(Clone, Copy, Debug)]
enum Member {
    /// A leaf, or a value that is needed whole.
    Whole,
    /// An object, or lists of them.
    Object(KindId),
}

impl Expected {
    /// Computes the layout for everything that `plan` reads.
    pub(crate) fn new(plan: &Plan) -> Self {
        let kinds = plan.shape.objects.iter().map(|_| Kind::default()).collect();
        let mut expected = Self { kinds, envelopes: Vec::new() };
        for (kind, object) in plan.shape.objects.iter().enumerate() {
            if object.is_abstract {
                expected.add(kind, TYPENAME, Member::Whole);
            }
            for field in object.variants.iter().flat_map(|variant| &variant.fields) {
                if field.value.kind != ValueKind::Typename {
                    let member = expected.member_of(&field.value);
                    expected.add(kind, &field.data_key, member);
                }
            }
        }
        if expected.kinds.is_empty() {
            expected.kinds.push(Kind::default());
        }
        let root = plan.shape.root.0 as usize;
        for fetch in &plan.fetches {
            if let FetchKind::RootBelow { target, .. } = &fetch.kind {
                expected.walk(root, target);
            }
        }
        for batch in plan.fetches.iter().flat_map(|fetch| fetch.kind.batches()) {
            let mut common = None;
            for target in &batch.targets {
                // Also for targets below a value that is needed whole: the values are above them.
                for source in batch.context.iter().flat_map(|variable| &variable.sources) {
                    expected.read(root, target, source);
                }
                let Some(kind) = expected.walk(root, target) else { continue };
                expected.need(kind, &batch.representation.fields);
                if batch.representation.typename.is_none() {
                    expected.add(kind, TYPENAME, Member::Whole);
                }
                match common {
                    None => common = Some(kind),
                    Some(common) => expected.unite(common, kind),
                }
            }
        }
        expected
    }

    fn member_of(&self, value: &ValueShape) -> Member {
        match &value.kind {
            ValueKind::List(element) => self.member_of(element),
            ValueKind::Object(id) if (id.0 as usize) < self.kinds.len() => {
                Member::Object(id.0 as usize)
            }
            _ => Member::Whole,
        }
    }

    fn find(&self, mut kind: KindId) -> KindId {
        while let Some(next) = self.kinds[kind].became {
            kind = next;
        }
        kind
    }

    fn new_kind(&mut self) -> KindId {
        self.kinds.push(Kind::default());
        self.kinds.len() - 1
    }

    /// Adds a member to a kind. If it exists and both are objects, their kinds are merged.
    fn add(&mut self, kind: KindId, key: &str, member: Member) {
        let kind = self.find(kind);
        let known = self.kinds[kind].fields.iter_mut().find(|(own, _)| **own == *key);
        match (known, member) {
            (None, member) => self.kinds[kind].fields.push((key.into(), member)),
            (Some((_, known)), Member::Whole) => *known = Member::Whole,
            (Some((_, Member::Whole)), Member::Object(_)) => {}
            (Some((_, Member::Object(known))), Member::Object(new)) => {
                let known = *known;
                self.unite(known, new);
            }
        }
    }

    /// Merges two kinds.
    fn unite(&mut self, left: KindId, right: KindId) {
        // Each round leaves one kind less, so this ends.
        let mut pending = vec![(left, right)];
        while let Some((left, right)) = pending.pop() {
            let (left, right) = (self.find(left), self.find(right));
            if left == right {
                continue;
            }
            self.kinds[right].became = Some(left);
            for (key, member) in std::mem::take(&mut self.kinds[right].fields) {
                let known = self.kinds[left].fields.iter_mut().find(|(own, _)| *own == key);
                match (known, member) {
                    (None, member) => self.kinds[left].fields.push((key, member)),
                    (Some((_, known)), Member::Whole) => *known = Member::Whole,
                    (Some((_, Member::Whole)), Member::Object(_)) => {}
                    (Some((_, Member::Object(known))), Member::Object(new)) => {
                        pending.push((*known, new));
                    }
                }
            }
        }
    }

    /// Returns the kind of the member `key`, which must be an object.
    fn below(&mut self, kind: KindId, key: &str) -> Option<KindId> {
        let kind = self.find(kind);
        if let Some((_, member)) = self.kinds[kind].fields.iter().find(|(own, _)| **own == *key) {
            return match *member {
                Member::Whole => None,
                Member::Object(kind) => Some(kind),
            };
        }
        let below = self.new_kind();
        self.kinds[kind].fields.push((key.into(), Member::Object(below)));
        Some(below)
    }

    /// Returns the kind of the objects at the end of `path`. `None` if the path leads into a value
    /// that is needed whole.
    fn walk(&mut self, root: KindId, path: &Path) -> Option<KindId> {
        let mut kind = root;
        for step in &path.steps {
            kind = self.below(kind, &step.data_key)?;
            if !step.types.is_empty() {
                self.add(kind, TYPENAME, Member::Whole);
            }
        }
        Some(kind)
    }

    /// Adds the members that a context reads from an object on the path of `target`.
    fn read(&mut self, root: KindId, target: &Path, source: &ContextSource) {
        let steps = target.steps.iter().take(source.steps as usize).cloned().collect();
        let Some(mut kind) = self.walk(root, &Path { steps }) else { return };
        if !source.types.is_empty() {
            self.add(kind, TYPENAME, Member::Whole);
        }
        let Some((last, above)) = source.data_keys.split_last() else { return };
        for data_key in above {
            match self.below(kind, data_key) {
                Some(below) => kind = below,
                None => return,
            }
        }
        self.add(kind, last, Member::Whole);
    }

    /// Adds the members that representations of an object consist of.
    fn need(&mut self, kind: KindId, fields: &[RepresentationField]) {
        for field in fields {
            if !field.types.is_empty() {
                self.add(kind, TYPENAME, Member::Whole);
            }
            if field.fields.is_empty() {
                self.add(kind, &field.data_key, Member::Whole);
            } else if let Some(below) = self.below(kind, &field.data_key) {
                self.need(below, &field.fields);
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
        Some(self.find(kind))
    }

    fn member_kind(&self, kind: KindId, key: &str) -> Option<KindId> {
        let fields = &self.kinds[self.find(kind)].fields;
        fields.iter().find_map(|(own, member)| match member {
            Member::Object(below) if **own == *key => Some(*below),
            _ => None,
        })
    }

    /// Adds the response of a root fetch; returns its index in [`ResponseLayout::shape`].
    pub(crate) fn root_answer(&mut self, plan: &Plan) -> usize {
        let root = self.find(plan.shape.root.0 as usize);
        self.answer(root)
    }

    /// Adds the response of a fetch of root fields below others; returns its index in
    /// [`ResponseLayout::shape`].
    pub(crate) fn root_below_answer(&mut self, plan: &Plan, target: &Path) -> usize {
        let data = self.kind_at(plan, target);
        self.answer_of(data)
    }

    /// Adds the response of an entity fetch; returns its index in [`ResponseLayout::shape`].
    pub(crate) fn entity_answer(&mut self, plan: &Plan, batches: &[EntityBatch]) -> usize {
        let fields = batches.iter().map(|batch| (batch.data_key.clone(), self.target(plan, batch)));
        let data = LinkedObject { fields: fields.collect() };
        self.envelopes.push(data);
        self.answer(self.kinds.len() + self.envelopes.len() - 1)
    }

    fn answer(&mut self, data: usize) -> usize {
        self.answer_of(Some(data))
    }

    fn answer_of(&mut self, data: Option<usize>) -> usize {
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
                    Member::Whole => (key.clone(), None),
                    Member::Object(kind) => (key.clone(), Some(self.find(kind))),
                })
                .collect(),
        });
        Shape::linked(&kinds.chain(self.envelopes.iter().cloned()).collect::<Vec<_>>())
    }

    /// Returns a cursor for looking up slots, from a kind of object on.
    pub(crate) fn cursor(&self, kind: Option<usize>) -> Cursor<'_> {
        Cursor { expected: self, kind: kind.filter(|&kind| kind < self.kinds.len()) }
    }
}

/// A kind of object, for looking up slots.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    expected: &'a Expected,
    kind: Option<KindId>,
}

impl<'a> Cursor<'a> {
    /// Returns the slot of a member, or zero if there is none: slots are hints.
    pub(crate) fn slot(self, key: &str) -> usize {
        self.known_slot(key).unwrap_or(0)
    }

    fn known_slot(self, key: &str) -> Option<usize> {
        let kind = self.expected.find(self.kind?);
        self.expected.kinds[kind].fields.iter().position(|(own, _)| **own == *key)
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
        self.kind.map_or(usize::MAX, |kind| self.expected.find(kind))
    }

    /// Returns the objects that a member leads to.
    pub(crate) fn below(self, key: &str) -> Cursor<'a> {
        Cursor { kind: self.kind.and_then(|kind| self.expected.member_kind(kind, key)), ..self }
    }
}
