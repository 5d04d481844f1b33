//! The walk over a projection and a tree together: checks, propagates `null`, and prints, in one
//! pass. Where `null` must not be, what was printed since the nearest place that may be `null` is
//! taken back.

use std::fmt;

use crate::document::Document;
use crate::emitter::{Emitter, Mark, Run};
use crate::node::{Kind, Node, NodeId, REAL, SLOTS, Tag};
use crate::parser::ABSENT;
use crate::projection::{Accepts, Object, Plan, Projection, Source, Value, ValueKind};

/// Most errors that one walk notes. A list of a million wrong values would otherwise cost more in
/// errors than in data; clients read the first few.
pub const PROJECTION_ERRORS_MAX: usize = 1000;

/// Decides about [`Accepts::Custom`] leaves.
pub trait LeafCheck {
    /// Whether value `n` may stand where the projection says [`Accepts::Custom`]`(number)`.
    fn accepts(&self, number: u32, document: &Document, n: NodeId) -> bool;
}

/// Accepts every custom leaf.
impl LeafCheck for () {
    fn accepts(&self, _: u32, _: &Document, _: NodeId) -> bool {
        true
    }
}

/// A place at which the tree is not what the projection asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProjectionError {
    /// What is wrong.
    pub kind: ProjectionErrorKind,
    /// Where: printed keys and indices from the root on.
    pub path: Vec<ResultPathSegment>,
}

/// A step of the path of a [`ProjectionError`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResultPathSegment {
    /// A printed key.
    Key(Box<str>),
    /// A place in a list, counted from 0.
    Index(usize),
}

/// In what way a tree is not what a projection asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ProjectionErrorKind {
    /// `null`, or nothing, where neither may be.
    Null,
    /// A leaf of a kind that is not accepted here.
    WrongLeaf(Kind),
    /// No list where one must be.
    NotAList(Kind),
    /// No object where one must be.
    NotAnObject(Kind),
}

impl fmt::Display for ProjectionErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null where a value must be"),
            Self::WrongLeaf(kind) => write!(f, "{kind} is not what must be here"),
            Self::NotAList(kind) => write!(f, "{kind} where a list must be"),
            Self::NotAnObject(kind) => write!(f, "{kind} where an object must be"),
        }
    }
}

/// Walks projections. Keeps its memory, so that a warm one does not allocate (but for errors).
#[derive(Default)]
pub struct Projector {
    errors: Vec<ProjectionError>,
    path: Vec<Step>,
    /// For every object of the plan: the shape whose slots are known, and where in `slots`.
    known: Vec<(u32, u32)>,
    /// Slots of the sources of an object.
    slots: Vec<u32>,
    /// Values of the sources of objects that are being printed.
    values: Vec<u32>,
}

#[derive(Clone, Copy)]
enum Step {
    Field { object: u32, field: u32 },
    Index(u32),
}

/// What must not be `null` would be; the error is noted.
struct Violation;

struct Walk<'a, C> {
    document: &'a Document,
    plan: &'a Plan,
    check: &'a C,
    projector: &'a mut Projector,
}

impl fmt::Debug for Projector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Projector").field("errors", &self.errors.len()).finish_non_exhaustive()
    }
}

impl Projector {
    /// A projector without memory yet.
    pub fn new() -> Projector {
        Projector::default()
    }

    /// Appends what `projection` asks for of `root` to `out`. `None` for `root` is like `null`.
    ///
    /// Values are checked on the way. Where something else than asked for is found, that is noted
    /// in [`errors`](Projector::errors) and `null` printed, if `null` may stand there; otherwise
    /// in the nearest place around it where it may. Where it may nowhere, the whole result is
    /// `null`. A member that is missing and may be `null` is printed as `null`, without an error.
    ///
    /// After an error in a list or object that becomes `null` the rest of it is not looked at, so
    /// there is one error for every `null` that was put in.
    pub fn project<C: LeafCheck>(
        &mut self,
        document: &Document,
        root: Option<NodeId>,
        projection: &Projection,
        check: &C,
        out: &mut Vec<u8>,
    ) {
        self.errors.clear();
        self.path.clear();
        self.slots.clear();
        self.values.clear();
        self.known.clear();
        self.known.resize(projection.plan.objects.len(), (ABSENT, 0));
        let plan = &*projection.plan;
        let mut out = Out { emitter: Emitter::new(&document.texts, out), run: Run::EMPTY };
        let mut walk = Walk { document, plan, check, projector: self };
        let start = out.mark();
        if let Err(Violation) = walk.value(&plan.root, root, &mut out) {
            out.go_back(start);
            out.bytes(b"null");
        }
        let Out { mut emitter, mut run } = out;
        emitter.flush(&mut run);
    }

    /// What the last walk found wrong, at most [`PROJECTION_ERRORS_MAX`] of it.
    pub fn errors(&self) -> &[ProjectionError] {
        &self.errors
    }

    /// Takes the errors out.
    pub fn take_errors(&mut self) -> Vec<ProjectionError> {
        std::mem::take(&mut self.errors)
    }
}

/// Where the result goes.
struct Out<'a> {
    emitter: Emitter<'a, Vec<u8>>,
    run: Run<'a>,
}

impl<'a> Out<'a> {
    #[inline(always)]
    fn punctuation(&mut self, byte: u8) {
        self.emitter.punctuation(&mut self.run, byte);
    }

    /// A key as it is printed, with a comma before it, unless it is the first.
    #[inline(always)]
    fn key(&mut self, separated: bool, printed: &[u8]) {
        if separated {
            self.punctuation(b',');
        }
        self.bytes(printed);
    }

    #[inline(always)]
    fn token(&mut self, node: Node) {
        self.emitter.token(&mut self.run, node);
    }

    #[inline(always)]
    fn bytes(&mut self, bytes: &[u8]) {
        self.emitter.bytes(&mut self.run, bytes);
    }

    #[inline(always)]
    fn mark(&self) -> Mark<'a> {
        self.emitter.mark(&self.run)
    }

    fn go_back(&mut self, mark: Mark<'a>) {
        self.run = self.emitter.go_back(mark);
    }
}

impl<'a, C: LeafCheck> Walk<'a, C> {
    // Hot path: `cargo bench -p astjson -- pipeline`.
    fn value(
        &mut self,
        value: &Value,
        n: Option<NodeId>,
        out: &mut Out<'a>,
    ) -> Result<(), Violation> {
        let (n, node) = self.look_up(n);
        self.known_value(value, n, node, out)
    }

    /// A value and its node. An absent value is no node of the arena, and so reads as null.
    #[inline(always)]
    fn look_up(&self, n: Option<NodeId>) -> (NodeId, Node) {
        let n = n.map(|n| self.document.resolve(n)).unwrap_or(NodeId(ABSENT));
        (n, self.document.stored(n.0))
    }

    fn known_value(
        &mut self,
        value: &Value,
        n: NodeId,
        node: Node,
        out: &mut Out<'a>,
    ) -> Result<(), Violation> {
        if node.is(Tag::Null) {
            if !value.nullable {
                self.note(ProjectionErrorKind::Null);
                return Err(Violation);
            }
            out.bytes(b"null");
            return Ok(());
        }
        let start = out.mark();
        let result = match &value.kind {
            ValueKind::Leaf(accepts) => self.leaf(accepts, n, node, out),
            ValueKind::List(of) => self.list(of, n, node, out),
            ValueKind::Object(number) => self.object(*number, n, node, out),
        };
        match result {
            Err(Violation) if value.nullable => {
                out.go_back(start);
                out.bytes(b"null");
                Ok(())
            }
            result => result,
        }
    }

    /// Whether a leaf that is not null may stand where something of this kind must.
    #[inline(always)]
    fn accepted(&self, accepts: &Accepts, n: NodeId, node: Node) -> bool {
        match accepts {
            Accepts::Any => true,
            Accepts::String => node.is(Tag::String),
            Accepts::Boolean => node.is(Tag::True) || node.is(Tag::False),
            Accepts::Number => node.is(Tag::Number),
            Accepts::Integer32 => self.document.is_integer32(node),
            Accepts::StringOrInteger => node.is(Tag::String) || self.document.is_integer(n),
            Accepts::OneOf(strings) => {
                node.is(Tag::String) && {
                    let text = self.document.decoded(node);
                    strings.binary_search_by(|own| (**own).cmp(&*text)).is_ok()
                }
            }
            Accepts::Custom(number) => self.check.accepts(*number, self.document, n),
        }
    }

    fn leaf(
        &mut self,
        accepts: &Accepts,
        n: NodeId,
        node: Node,
        out: &mut Out<'a>,
    ) -> Result<(), Violation> {
        if !self.accepted(accepts, n, node) {
            self.note(ProjectionErrorKind::WrongLeaf(self.document.kind(n)));
            return Err(Violation);
        }
        if node.is_container() {
            self.document.emit(n, &mut out.emitter, &mut out.run);
        } else {
            out.token(node);
        }
        Ok(())
    }

    fn list(
        &mut self,
        of: &Value,
        n: NodeId,
        node: Node,
        out: &mut Out<'a>,
    ) -> Result<(), Violation> {
        if !node.is(Tag::Array) {
            self.note(ProjectionErrorKind::NotAList(self.document.kind(n)));
            return Err(Violation);
        }
        out.punctuation(b'[');
        self.projector.path.push(Step::Index(0));
        let place = self.projector.path.len() - 1;
        for (i, element) in self.document.elements(n).enumerate() {
            if i > 0 {
                out.punctuation(b',');
                self.projector.path[place] = Step::Index(i as u32);
            }
            self.value(of, Some(element), out)?;
            // A violation inside that found its place leaves its path behind.
            self.projector.path.truncate(place + 1);
        }
        self.projector.path.pop();
        out.punctuation(b']');
        Ok(())
    }

    fn object(
        &mut self,
        number: u32,
        n: NodeId,
        node: Node,
        out: &mut Out<'a>,
    ) -> Result<(), Violation> {
        if !node.is(Tag::Object) {
            self.note(ProjectionErrorKind::NotAnObject(self.document.kind(n)));
            return Err(Violation);
        }
        let plan = self.plan;
        let mut number = number;
        let mut object = &plan.objects[number as usize];
        if !object.alternatives.is_empty()
            && let Some(name) = self.document.get(n, "__typename")
            && let Some((_, chosen)) =
                object.alternatives.iter().find(|(own, _)| self.document.str_eq(name, own))
        {
            number = *chosen;
            object = &plan.objects[number as usize];
        }
        let base = self.projector.values.len();
        let slots = if node.has(SLOTS) {
            self.known_slots(number, object, node)
        } else {
            self.collect_values(object, n);
            0
        };
        let result = self.fields(number, object, node, slots, base, out);
        self.projector.values.truncate(base);
        result
    }

    /// Prints the fields of an object whose values are in `slots` or behind `base`.
    #[inline(always)]
    fn fields(
        &mut self,
        number: u32,
        object: &Object,
        node: Node,
        slots: usize,
        base: usize,
        out: &mut Out<'a>,
    ) -> Result<(), Violation> {
        out.punctuation(b'{');
        self.projector.path.push(Step::Index(0));
        let place = self.projector.path.len() - 1;
        for (i, field) in object.fields.iter().enumerate() {
            let member = match &field.source {
                Source::Constant(text) => {
                    out.key(i > 0, &field.printed);
                    out.bytes(text);
                    continue;
                }
                Source::Member(source) => *source as usize,
            };
            let value = if node.has(SLOTS) {
                match self.projector.slots[slots + member] {
                    // Not in the shape; perhaps among the others.
                    ABSENT => self
                        .document
                        .others(node)
                        .and_then(|others| self.document.get(others, &object.sources[member])),
                    slot => self.document.link((node.a + slot) as usize),
                }
            } else {
                Some(NodeId(self.projector.values[base + member]))
            };
            let (n, node) = self.look_up(value);
            // What most fields are: scalars as they must be, often just behind the one before.
            if let ValueKind::Leaf(accepts) = &field.value.kind
                && !(node.is(Tag::Null) || node.is_container())
                && self.accepted(accepts, n, node)
            {
                if i == 0 || !out.run.goes_on(&field.separated, node) {
                    out.key(i > 0, &field.printed);
                    out.token(node);
                }
                continue;
            }
            out.key(i > 0, &field.printed);
            self.projector.path[place] = Step::Field { object: number, field: i as u32 };
            self.known_value(&field.value, n, node, out)?;
            self.projector.path.truncate(place + 1);
        }
        self.projector.path.truncate(place);
        out.punctuation(b'}');
        Ok(())
    }

    /// Where in `slots` the slots of the sources of `object` stand for the shape of `node`.
    #[inline]
    fn known_slots(&mut self, number: u32, object: &Object, node: Node) -> usize {
        let (shape, place) = self.projector.known[number as usize];
        if shape == node.text() { place as usize } else { self.learn_slots(number, object, node) }
    }

    #[cold]
    fn learn_slots(&mut self, number: u32, object: &Object, node: Node) -> usize {
        let (known, place) = self.projector.known[number as usize];
        // The room of the shape before is used again, if there was one.
        let place = if known == ABSENT {
            let place = self.projector.slots.len();
            self.projector.slots.resize(place + object.sources.len(), ABSENT);
            place
        } else {
            place as usize
        };
        let shape = self.document.shapes.object(node.text());
        for (i, source) in object.sources.iter().enumerate() {
            let slot = shape.and_then(|shape| shape.slot(source));
            self.projector.slots[place + i] = slot.map_or(ABSENT, |slot| slot as u32);
        }
        self.projector.known[number as usize] = (node.text(), place as u32);
        place
    }

    /// Pushes the values of the sources of `object`; of duplicate keys the last.
    fn collect_values(&mut self, object: &Object, n: NodeId) {
        let values = &mut self.projector.values;
        let base = values.len();
        values.resize(base + object.sources.len(), ABSENT);
        let mut cursor = self.document.member_cursor(n);
        // Members often come in the order in which they are printed.
        let mut expected = 0;
        while let Some((key, value)) = self.document.next_member(&mut cursor) {
            let is = |source: &str| self.document.key_is(key, source);
            if !object.sources.get(expected).is_some_and(|source| is(source)) {
                match object.sources.iter().position(|source| is(source)) {
                    Some(place) => expected = place,
                    None => continue,
                }
            }
            values[base + expected] = value.0;
            expected += 1;
        }
    }

    /// Notes an error at the current path.
    #[cold]
    fn note(&mut self, kind: ProjectionErrorKind) {
        if self.projector.errors.len() >= PROJECTION_ERRORS_MAX {
            return;
        }
        let path = self.projector.path.iter().map(|step| match *step {
            Step::Index(i) => ResultPathSegment::Index(i as usize),
            Step::Field { object, field } => {
                let field = &self.plan.objects[object as usize].fields[field as usize];
                ResultPathSegment::Key(field.key.clone())
            }
        });
        let path = path.collect();
        self.projector.errors.push(ProjectionError { kind, path });
    }
}

impl Document {
    fn is_integer32(&self, node: Node) -> bool {
        // Shorter than the largest: no need to look at the digits.
        const DIGITS_SURE: u32 = 9;
        node.is(Tag::Number)
            && !node.has(REAL)
            && (node.b <= DIGITS_SURE || self.literal(node).parse::<i32>().is_ok())
    }
}
