//! Converts keys of the data tree to paths of the client's response: the response keys that lead to
//! an object, and to a place inside it. Only errors need this, so it is computed when an error
//! occurs.

use astjson::{Document, Kind, NodeId};
use plan::{
    Condition, EntityBatch, ObjectShape, Path, PathStep, Plan, RepresentationField, Requirement,
    Shape, ShapeField, ValueKind, ValueShape, Variables, Variant,
};

use crate::PathSegment;
use crate::bounds::ERROR_PLACE_VISITS_MAX;

/// Maximum depth to which requirements of requirements are followed; anything further away counts
/// as needed.
const REQUIREMENTS_MAX: u32 = 16;

/// A position in the shape of the client's response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Position<'a> {
    /// An object.
    Object(&'a ObjectShape),
    /// A list with elements of this shape.
    List(&'a ValueShape),
    /// A leaf, or a value that the client did not select.
    End,
}

impl<'a> Position<'a> {
    /// The root of the response.
    pub(crate) fn root(shape: &'a Shape) -> Self {
        Self::visit_object(shape, shape.root.0)
    }

    fn visit_object(shape: &'a Shape, index: u32) -> Self {
        shape.objects.get(index as usize).map_or(Self::End, Self::Object)
    }

    fn of(shape: &'a Shape, value: &'a ValueShape) -> Self {
        match &value.kind {
            ValueKind::Object(id) => Self::visit_object(shape, id.0),
            ValueKind::List(element) => Self::List(element),
            ValueKind::Leaf(_) | ValueKind::Typename | ValueKind::Verbatim | ValueKind::Denied => {
                Self::End
            }
        }
    }

    /// Returns the response key that shows `data_key` of an object here, and the position below it.
    /// The type of the object selects the variant if it is known.
    fn below(
        self,
        shape: &'a Shape,
        document: &Document,
        object: Option<NodeId>,
        data_key: &str,
    ) -> Option<(&'a str, Self)> {
        let Self::Object(here) = self else { return None };
        possible_variants(here, document, object)
            .flat_map(|variant| &variant.fields)
            .find(|field| &*field.data_key == data_key)
            .map(|field| (&*field.response_key, Self::of(shape, &field.value)))
    }
}

/// Returns the possible variants of an object: that of its `__typename`, or all.
fn possible_variants<'a>(
    here: &'a ObjectShape,
    document: &Document,
    object: Option<NodeId>,
) -> impl Iterator<Item = &'a Variant> {
    let typename =
        object.filter(|_| here.is_abstract).and_then(|object| document.get(object, "__typename"));
    here.variants
        .iter()
        .filter(move |variant| typename.is_none_or(|it| document.str_eq(it, &variant.type_name)))
}

/// A place in the client's response.
#[derive(Clone, Debug)]
pub(crate) struct ResponsePlace<'a> {
    /// The object's node in the tree.
    pub(crate) node: NodeId,
    /// Response keys and indices from the root. The path ends early at a value that the client did
    /// not select.
    pub(crate) path: Vec<PathSegment>,
    /// Keys of the tree and indices from the end of `path` to the object.
    pub(crate) beyond: Vec<PathSegment>,
    /// The position in the shape at the end of `path`.
    pub(crate) position: Position<'a>,
}

/// Returns up to `limit` places at the end of `path` whose node is `wanted`.
pub(crate) fn find_places<'a>(
    document: &Document,
    shape: &'a Shape,
    root: NodeId,
    path: &'a Path,
    limit: usize,
    wanted: impl Fn(NodeId) -> bool,
) -> Vec<ResponsePlace<'a>> {
    let mut search = PlaceSearch {
        document,
        shape,
        steps: &path.steps,
        wanted,
        path: Vec::new(),
        beyond: Vec::new(),
        found: Vec::new(),
        limit,
        visits_left: ERROR_PLACE_VISITS_MAX,
    };
    search.visit_object(root, Position::root(shape), 0);
    search.found
}

struct PlaceSearch<'a, 'd, W> {
    document: &'d Document,
    shape: &'a Shape,
    steps: &'a [PathStep],
    wanted: W,
    path: Vec<PathSegment>,
    beyond: Vec<PathSegment>,
    found: Vec<ResponsePlace<'a>>,
    limit: usize,
    visits_left: u32,
}

impl<'a, W: Fn(NodeId) -> bool> PlaceSearch<'a, '_, W> {
    fn visit_object(&mut self, node: NodeId, position: Position<'a>, at: usize) {
        let Some(step) = self.steps.get(at) else {
            if (self.wanted)(node) {
                let (path, beyond) = (self.path.clone(), self.beyond.clone());
                self.found.push(ResponsePlace { node, path, beyond, position });
            }
            return;
        };
        let Some(value) = self.document.get(node, &step.data_key) else { return };
        let below = position.below(self.shape, self.document, Some(node), &step.data_key);
        if let Some((response_key, position)) = below {
            self.path.push(PathSegment::Key(response_key.into()));
            self.visit_value(value, position, step, at);
            self.path.pop();
        } else {
            self.beyond.push(PathSegment::Key(step.data_key.clone()));
            self.visit_value(value, Position::End, step, at);
            self.beyond.pop();
        }
    }

    // Recursion is bounded by the number of steps and by the nesting of lists in a parsed response.
    fn visit_value(&mut self, node: NodeId, position: Position<'a>, step: &'a PathStep, at: usize) {
        if self.found.len() >= self.limit || self.visits_left == 0 {
            return;
        }
        self.visits_left -= 1;
        match self.document.kind(node) {
            Kind::Object => {
                if has_type(self.document, node, &step.types) {
                    self.visit_object(node, position, at + 1);
                }
            }
            Kind::Array => {
                for (index, element) in self.document.elements(node).enumerate() {
                    if self.found.len() >= self.limit || self.visits_left == 0 {
                        return;
                    }
                    if let Position::List(shape) = position {
                        self.path.push(PathSegment::Index(index as u32));
                        self.visit_value(element, Position::of(self.shape, shape), step, at);
                        self.path.pop();
                    } else {
                        self.beyond.push(PathSegment::Index(index as u32));
                        self.visit_value(element, Position::End, step, at);
                        self.beyond.pop();
                    }
                }
            }
            Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
        }
    }
}

/// True if the object's `__typename` is one of `types`, or if `types` is empty.
pub(crate) fn has_type(document: &Document, object: NodeId, types: &[Box<str>]) -> bool {
    types.is_empty()
        || document
            .get(object, "__typename")
            .is_some_and(|name| types.iter().any(|it| document.str_eq(name, it)))
}

/// Extends the path of a place by the segments of an error path from a subgraph. If the client's
/// response has no such place, the path ends, and keys and indices of the tree continue from there,
/// as far as the tree reaches.
pub(crate) fn extend_path(
    document: &Document,
    shape: &Shape,
    place: ResponsePlace<'_>,
    segments: &[NodeId],
) -> (Vec<PathSegment>, Vec<PathSegment>) {
    let ResponsePlace { node, mut path, mut beyond, mut position } = place;
    let mut node = Some(node);
    for &segment in segments {
        if node.is_none() && !beyond.is_empty() {
            break;
        }
        match document.kind(segment) {
            Kind::String => {
                let Some(key) = document.as_str(segment) else { break };
                match position.below(shape, document, node, &key) {
                    Some((response_key, below)) if beyond.is_empty() => {
                        path.push(PathSegment::Key(response_key.into()));
                        position = below;
                    }
                    _ => beyond.push(PathSegment::Key(key.as_ref().into())),
                }
                node = node.and_then(|object| document.get(object, &key));
            }
            Kind::Number => {
                let Ok(index) = document.raw(segment).parse::<u32>() else { break };
                match position {
                    Position::List(element) if beyond.is_empty() => {
                        path.push(PathSegment::Index(index));
                        position = Position::of(shape, element);
                    }
                    _ if beyond.is_empty() => break,
                    _ => beyond.push(PathSegment::Index(index)),
                }
                node = node.and_then(|array| document.at(array, index as usize));
            }
            Kind::Null | Kind::Bool | Kind::Array | Kind::Object => break,
        }
    }
    (path, beyond)
}

/// The point at which a path leaves the client's response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PathExit {
    /// The number of segments that lead to the last object in the response.
    pub(crate) inside: usize,
    /// True if the failed value is null, and no part of the response depends on it.
    pub(crate) is_aside: bool,
}

/// Checks if `path` is a path of the client's response. Called when the tree is complete: errors
/// come earlier, before the types of the objects of an interface object are known, and from fields
/// that only requests need; `beyond` continues to those from the end of the path, by keys of the
/// tree and indices. `None` if it is a path of the response, or ends in a null.
pub(crate) fn find_exit(
    document: &Document,
    plan: &Plan,
    variables: &Variables,
    root: NodeId,
    (path, beyond): (&[PathSegment], &[PathSegment]),
) -> Option<PathExit> {
    let shape = &plan.shape;
    let mut position = Position::root(shape);
    let mut node = root;
    let mut trail: Vec<TrailStep<'_>> = Vec::new();
    // The number of segments inside of the response, and true if the tree has a value at the next
    // one.
    let mut left: Option<(usize, bool)> = None;
    for (at, segment) in path.iter().enumerate() {
        let below = match (segment, position) {
            (PathSegment::Index(index), Position::List(element)) => {
                position = Position::of(shape, element);
                document.at(node, *index as usize)
            }
            (PathSegment::Key(key), Position::Object(here)) => {
                if left.is_none() && document.kind(node) != Kind::Object {
                    return None;
                }
                let is_same = |field: &&ShapeField| field.response_key == *key;
                let mut shown = possible_variants(here, document, Some(node))
                    .flat_map(|variant| &variant.fields)
                    .filter(|field| field.is_shown(variables));
                let shown = if left.is_none() { shown.find(is_same) } else { None };
                let mut all = here.variants.iter().flat_map(|variant| &variant.fields);
                let Some(field) = shown.or_else(|| all.find(is_same)) else {
                    let (inside, _) = left.unwrap_or((at, false));
                    return Some(PathExit { inside, is_aside: false });
                };
                let value = document.get(node, &field.data_key);
                if shown.is_none() && left.is_none() {
                    left = Some((at, value.is_some()));
                }
                position = Position::of(shape, &field.value);
                let is_shown = left.is_none();
                trail.push(TrailStep {
                    data_key: &field.data_key,
                    value: None,
                    position,
                    is_shown,
                });
                value
            }
            _ => break,
        };
        if let Some(step) = trail.last_mut() {
            (step.value, step.position) = (below, position);
        }
        match (below, left) {
            (Some(below), _) => node = below,
            (None, None) => return None,
            (None, Some(_)) => {}
        }
    }
    for segment in beyond {
        let below = match segment {
            PathSegment::Key(key) => {
                let value = document.get(node, key);
                if left.is_none() && document.kind(node) == Kind::Object {
                    left = Some((path.len(), value.is_some()));
                }
                let position = Position::End;
                trail.push(TrailStep { data_key: key, value, position, is_shown: false });
                value
            }
            PathSegment::Index(index) => {
                let value = document.at(node, *index as usize);
                if let Some(step) = trail.last_mut() {
                    step.value = value;
                }
                value
            }
        };
        let Some(below) = below else { break };
        node = below;
    }
    let (inside, is_there) = left?;
    let sent = SentValues { document, plan, variables, root };
    Some(PathExit { inside, is_aside: is_there && !sent.contains(&trail) })
}

/// True if one of the conditions holds, or if there are none.
pub(crate) fn any_holds(any_of: &[Condition], variables: &Variables) -> bool {
    any_of.is_empty() || any_of.iter().any(|condition| condition.holds(variables))
}

/// Returns the members of a representation below those on the path of these steps.
fn members_at<'a>(
    mut members: &'a [RepresentationField],
    steps: &[TrailStep<'_>],
) -> Option<&'a [RepresentationField]> {
    for step in steps {
        members = &members.iter().find(|member| *member.data_key == *step.data_key)?.fields;
    }
    Some(members)
}

/// One key of a path through the tree.
#[derive(Clone, Copy)]
struct TrailStep<'a> {
    data_key: &'a str,
    /// The value; within lists, the element on the path. `None` where the tree ends.
    value: Option<NodeId>,
    /// The position in the response, or the one that it would have if the path had not left the
    /// response.
    position: Position<'a>,
    /// True if it is in the response.
    is_shown: bool,
}

/// Decides which values the requests of an execution send.
#[derive(Clone, Copy)]
struct SentValues<'a> {
    document: &'a Document,
    plan: &'a Plan,
    variables: &'a Variables,
    root: NodeId,
}

impl<'a> SentValues<'a> {
    /// True if some request sends the value at the end of this path through the tree.
    fn contains(self, trail: &[TrailStep<'_>]) -> bool {
        self.active_batches().any(|batch| {
            batch.targets.iter().any(|target| {
                let Some((above, below)) = self.split_trail(&target.steps, trail) else {
                    return false;
                };
                self.is_sent(batch, above, below) || self.is_read(batch, target, trail)
            })
        })
    }

    /// True if it is part of the representation of the object at the end of `above`, for a value
    /// that is needed.
    fn is_sent(
        self,
        batch: &EntityBatch,
        above: &[TrailStep<'_>],
        below: &[TrailStep<'_>],
    ) -> bool {
        let is_member =
            |fields: &[RepresentationField]| self.is_member(fields, above, below, |_| true);
        let members = &batch.representation.fields;
        if below.is_empty() || !is_member(members) {
            return false;
        }
        let needs_it = |requirement: &&Requirement| is_member(&requirement.fields);
        let mut needing = batch.requirements.iter().filter(needs_it).peekable();
        // Without the keys there is no response at all.
        if needing.peek().is_none() || self.is_member(members, above, below, |field| field.key) {
            let added = |data_key: &str| batch.data_keys.iter().any(|it| **it == *data_key);
            return self.is_of_use(&added, above, REQUIREMENTS_MAX);
        }
        let added = |data_key: &str| needing.clone().any(|it| *it.data_key == *data_key);
        self.is_of_use(&added, above, REQUIREMENTS_MAX)
    }

    /// The batches that are fetched with these variables.
    fn active_batches(self) -> impl Iterator<Item = &'a EntityBatch> {
        let wanted = move |any_of: &[Condition]| any_holds(any_of, self.variables);
        let fetches = self.plan.fetches.iter().filter(move |fetch| wanted(&fetch.any_of));
        let batches = fetches.flat_map(|fetch| fetch.kind.batches());
        batches.filter(move |batch| wanted(&batch.any_of))
    }

    /// Splits the trail into the steps to the objects of a target and those below. `None` if the
    /// target is elsewhere, or its objects have other types.
    fn split_trail<'t>(
        self,
        steps: &[PathStep],
        trail: &'t [TrailStep<'t>],
    ) -> Option<(&'t [TrailStep<'t>], &'t [TrailStep<'t>])> {
        let (above, below) = trail.split_at_checked(steps.len())?;
        self.leads_along(steps, above).then_some((above, below))
    }

    fn leads_along(self, steps: &[PathStep], trail: &[TrailStep<'_>]) -> bool {
        let leads_there = |(wanted, step): (&PathStep, &TrailStep<'_>)| {
            *wanted.data_key == *step.data_key && self.may_be(step.value, &wanted.types)
        };
        steps.iter().zip(trail).all(leads_there)
    }

    /// True if the value may be an object of one of `types`.
    fn may_be(self, value: Option<NodeId>, types: &[Box<str>]) -> bool {
        value.is_none_or(|value| {
            self.document.kind(value) != Kind::Object || has_type(self.document, value, types)
        })
    }

    /// True if members of the representation of the object at the end of `above` lead along `below`
    /// to one that is `wanted`.
    fn is_member(
        self,
        fields: &[RepresentationField],
        above: &[TrailStep<'_>],
        below: &[TrailStep<'_>],
        wanted: fn(&RepresentationField) -> bool,
    ) -> bool {
        let object = above.last().map_or(Some(self.root), |step| step.value);
        let [first, rest @ ..] = below else { return true };
        fields.iter().any(|field| {
            *field.data_key == *first.data_key
                && self.may_be(object, &field.types)
                && match rest {
                    [] => wanted(field),
                    _ => self.is_member(&field.fields, std::slice::from_ref(first), rest, wanted),
                }
        })
    }

    /// True if a value that `adds` selects of the object at the end of `above` is in the response,
    /// or is sent in a request for a value that is needed, over up to `requests` requests.
    /// Interface objects are fetched with fields that only one of the types has, and errors for the
    /// other types do not matter.
    fn is_of_use(
        self,
        adds: &dyn Fn(&str) -> bool,
        above: &[TrailStep<'_>],
        requests: u32,
    ) -> bool {
        let (object, position, is_shown) = match above.last() {
            Some(step) => (step.value, step.position, step.is_shown),
            None => (Some(self.root), Position::root(&self.plan.shape), true),
        };
        let shown = match position {
            Position::Object(here) if is_shown => Some(here),
            _ => None,
        };
        shown
            .into_iter()
            .flat_map(|here| possible_variants(here, self.document, object))
            .flat_map(|variant| &variant.fields)
            .any(|field| adds(&field.data_key) && field.is_shown(self.variables))
            || self.active_batches().any(|next| self.is_needed_by(next, above, adds, requests))
    }

    /// True if a batch needs a value that `adds` selects of the object at the end of `above`, for a
    /// value that is needed.
    fn is_needed_by(
        self,
        next: &EntityBatch,
        above: &[TrailStep<'_>],
        adds: &dyn Fn(&str) -> bool,
        requests: u32,
    ) -> bool {
        let object = above.last().map_or(Some(self.root), |step| step.value);
        let is_added = |field: &RepresentationField| {
            adds(&field.data_key) && self.may_be(object, &field.types)
        };
        next.targets.iter().any(|target| {
            if !self.leads_along(&target.steps, above) {
                return false;
            }
            if let Some(step) = target.steps.get(above.len()) {
                return adds(&step.data_key);
            }
            let (above, below) = above.split_at(target.steps.len());
            // Contexts are rare, so any value that one may read counts as needed.
            let Some(members) = members_at(&next.representation.fields, below) else {
                return !next.context.is_empty();
            };
            let mut added = members.iter().filter(|field| is_added(field)).peekable();
            if added.peek().is_none() {
                return false;
            }
            let needs_it = |requirement: &&Requirement| {
                members_at(&requirement.fields, below).is_some_and(|it| it.iter().any(is_added))
            };
            let mut needing = next.requirements.iter().filter(needs_it).peekable();
            if requests == 0 || needing.peek().is_none() || added.any(|field| field.key) {
                return true;
            }
            let needed = |data_key: &str| needing.clone().any(|it| *it.data_key == *data_key);
            self.is_of_use(&needed, above, requests - 1)
        })
    }

    /// True if the context of a batch reads it.
    fn is_read(self, batch: &EntityBatch, target: &Path, trail: &[TrailStep<'_>]) -> bool {
        let mut sources = batch.context.iter().flat_map(|variable| &variable.sources);
        sources.any(|source| {
            let steps = target.steps.get(..source.steps as usize).unwrap_or(&target.steps);
            self.split_trail(steps, trail).is_some_and(|(_, below)| {
                below.len() <= source.data_keys.len()
                    && below.iter().zip(&source.data_keys).all(|(step, it)| *step.data_key == **it)
            })
        })
    }
}
