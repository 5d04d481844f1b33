//! From keys of the data tree to paths of the client's answer: which response keys lead to an
//! object, and to a place inside it. Only errors need this, so it is worked out when one comes.

use astjson::{Document, Kind, NodeId};
use plan::{
    Condition, ContextSource, ObjectShape, Path, PathStep, Plan, RepresentationField, Shape,
    ShapeField, ValueKind, ValueShape, Variables, Variant,
};

use crate::PathSegment;
use crate::bounds::ERROR_PLACE_VISITS_MAX;
use crate::executable::batches_of;

/// A position in the shape of the client's answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Position<'a> {
    /// An object.
    Object(&'a ObjectShape),
    /// A list with such elements.
    List(&'a ValueShape),
    /// A leaf, or something that the client did not ask for.
    End,
}

impl<'a> Position<'a> {
    /// The root of the answer.
    pub(crate) fn root(shape: &'a Shape) -> Self {
        Self::object(shape, shape.root.0)
    }

    fn object(shape: &'a Shape, index: u32) -> Self {
        shape.objects.get(index as usize).map_or(Self::End, Self::Object)
    }

    fn of(shape: &'a Shape, value: &'a ValueShape) -> Self {
        match &value.kind {
            ValueKind::Object(id) => Self::object(shape, id.0),
            ValueKind::List(element) => Self::List(element),
            ValueKind::Leaf(_) | ValueKind::Typename | ValueKind::Verbatim => Self::End,
        }
    }

    /// The response key that shows `data_key` of an object here, and where that leads. The
    /// object's own type chooses where it is known.
    fn below(
        self,
        shape: &'a Shape,
        document: &Document,
        object: Option<NodeId>,
        data_key: &str,
    ) -> Option<(&'a str, Self)> {
        let Self::Object(here) = self else { return None };
        variants(here, document, object)
            .flat_map(|variant| &variant.fields)
            .find(|field| &*field.data_key == data_key)
            .map(|field| (&*field.response_key, Self::of(shape, &field.value)))
    }
}

/// What an object may be: of the type that it says, or of any.
fn variants<'a>(
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

/// A place in the client's answer.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    /// The object's node in the tree.
    pub(crate) node: NodeId,
    /// Response keys and indices from the root. It ends early where the tree holds what the
    /// client did not ask for.
    pub(crate) path: Vec<PathSegment>,
    /// Where in the shape the path has led.
    pub(crate) position: Position<'a>,
}

/// Finds up to `limit` places that `path` leads to and whose node is `wanted`.
pub(crate) fn places<'a>(
    document: &Document,
    shape: &'a Shape,
    root: NodeId,
    path: &'a Path,
    limit: usize,
    wanted: impl Fn(NodeId) -> bool,
) -> Vec<Place<'a>> {
    let mut search = Search {
        document,
        shape,
        steps: &path.steps,
        wanted,
        path: Vec::new(),
        found: Vec::new(),
        limit,
        visits_left: ERROR_PLACE_VISITS_MAX,
    };
    search.object(root, Position::root(shape), 0);
    search.found
}

struct Search<'a, 'd, W> {
    document: &'d Document,
    shape: &'a Shape,
    steps: &'a [PathStep],
    wanted: W,
    path: Vec<PathSegment>,
    found: Vec<Place<'a>>,
    limit: usize,
    visits_left: u32,
}

impl<'a, W: Fn(NodeId) -> bool> Search<'a, '_, W> {
    fn object(&mut self, node: NodeId, position: Position<'a>, at: usize) {
        let Some(step) = self.steps.get(at) else {
            if (self.wanted)(node) {
                self.found.push(Place { node, path: self.path.clone(), position });
            }
            return;
        };
        let Some(value) = self.document.get(node, &step.data_key) else { return };
        let below = position.below(self.shape, self.document, Some(node), &step.data_key);
        if let Some((response_key, position)) = below {
            self.path.push(PathSegment::Key(response_key.into()));
            self.value(value, position, step, at);
            self.path.pop();
        } else {
            self.value(value, Position::End, step, at);
        }
    }

    // Recursion is bounded by the number of steps and by how deep a parsed answer nests lists.
    fn value(&mut self, node: NodeId, position: Position<'a>, step: &'a PathStep, at: usize) {
        if self.found.len() >= self.limit || self.visits_left == 0 {
            return;
        }
        self.visits_left -= 1;
        match self.document.kind(node) {
            Kind::Object => {
                if has_type(self.document, node, &step.types) {
                    self.object(node, position, at + 1);
                }
            }
            Kind::Array => {
                for (index, element) in self.document.elements(node).enumerate() {
                    if self.found.len() >= self.limit || self.visits_left == 0 {
                        return;
                    }
                    if let Position::List(shape) = position {
                        self.path.push(PathSegment::Index(index as u32));
                        self.value(element, Position::of(self.shape, shape), step, at);
                        self.path.pop();
                    } else {
                        self.value(element, Position::End, step, at);
                    }
                }
            }
            Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
        }
    }
}

/// Is the object's `__typename` one of `types`? No types: any object will do.
pub(crate) fn has_type(document: &Document, object: NodeId, types: &[Box<str>]) -> bool {
    types.is_empty()
        || document
            .get(object, "__typename")
            .is_some_and(|name| types.iter().any(|it| document.str_eq(name, it)))
}

/// Extends `path`, which has led to `position` and `node`, by the segments of a subgraph's own
/// error path. Stops where the client's answer has no such place, and names the key there.
pub(crate) fn extend(
    document: &Document,
    shape: &Shape,
    place: Place<'_>,
    segments: &[NodeId],
) -> (Vec<PathSegment>, Option<Box<str>>) {
    let Place { node, mut path, mut position } = place;
    let mut node = Some(node);
    for &segment in segments {
        match document.kind(segment) {
            Kind::String => {
                let Some(key) = document.as_str(segment) else { break };
                let Some((response_key, below)) = position.below(shape, document, node, &key)
                else {
                    return (path, Some(key.as_ref().into()));
                };
                path.push(PathSegment::Key(response_key.into()));
                position = below;
                node = node.and_then(|object| document.get(object, &key));
            }
            Kind::Number => {
                let Position::List(element) = position else { break };
                let Ok(index) = document.raw(segment).parse::<u32>() else { break };
                path.push(PathSegment::Index(index));
                position = Position::of(shape, element);
                node = node.and_then(|array| document.at(array, index as usize));
            }
            Kind::Null | Kind::Bool | Kind::Array | Kind::Object => break,
        }
    }
    (path, None)
}

/// Where a path leaves the client's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outside {
    /// So many segments lead to the last object that is in the answer.
    pub(crate) inside: usize,
    /// What failed is null, and nothing of the answer is made of it.
    pub(crate) is_aside: bool,
}

/// Is `path` a path of the client's answer? Asked when the tree is complete: errors come earlier, before it
/// is known what the objects of an interface object are, and from fields that only requests need; such a
/// field is named by `beyond`, its key in the tree below the end of the path. `None`: it is a path of the
/// answer, or ends in a null.
pub(crate) fn outside(
    document: &Document,
    plan: &Plan,
    variables: &Variables,
    root: NodeId,
    (path, beyond): (&[PathSegment], Option<&str>),
) -> Option<Outside> {
    let shape = &plan.shape;
    let mut position = Position::root(shape);
    let mut node = root;
    let mut trail: Vec<Step<'_>> = Vec::new();
    // Where the path leaves the answer, and whether there is anything in the tree.
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
                let mut shown = variants(here, document, Some(node))
                    .flat_map(|variant| &variant.fields)
                    .filter(|field| field.is_shown(variables));
                let shown = if left.is_none() { shown.find(is_same) } else { None };
                let mut all = here.variants.iter().flat_map(|variant| &variant.fields);
                let Some(field) = shown.or_else(|| all.find(is_same)) else {
                    let (inside, _) = left.unwrap_or((at, false));
                    return Some(Outside { inside, is_aside: false });
                };
                let value = document.get(node, &field.data_key);
                if shown.is_none() && left.is_none() {
                    left = Some((at, value.is_some()));
                }
                trail.push(Step { data_key: &field.data_key, value: None });
                position = Position::of(shape, &field.value);
                value
            }
            _ => break,
        };
        if let Some(step) = trail.last_mut() {
            step.value = below;
        }
        match (below, left) {
            (Some(below), _) => node = below,
            (None, None) => return None,
            (None, Some(_)) => {}
        }
    }
    if let Some(data_key) = beyond {
        trail.push(Step { data_key, value: None });
        left = left.or_else(|| {
            let is_object = document.kind(node) == Kind::Object;
            is_object.then(|| (path.len(), document.get(node, data_key).is_some()))
        });
    }
    let (inside, is_there) = left?;
    Some(Outside { inside, is_aside: is_there && !is_sent(document, plan, variables, &trail) })
}

/// Does any of them hold? None at all: always.
pub(crate) fn any_holds(any_of: &[Condition], variables: &Variables) -> bool {
    any_of.is_empty() || any_of.iter().any(|condition| condition.holds(variables))
}

/// One key of a path through the tree.
#[derive(Clone, Copy)]
struct Step<'a> {
    data_key: &'a str,
    /// What stands there, within lists the element that the path goes on with; none where the tree ends.
    value: Option<NodeId>,
}

/// Is what stands at the end of this path through the tree part of what some request is sent?
fn is_sent(document: &Document, plan: &Plan, variables: &Variables, trail: &[Step<'_>]) -> bool {
    let wanted = plan.fetches.iter().filter(|fetch| any_holds(&fetch.any_of, variables));
    let batches = wanted.flat_map(|fetch| batches_of(&fetch.kind));
    batches.filter(|batch| any_holds(&batch.any_of, variables)).any(|batch| {
        batch.targets.iter().any(|target| {
            let below = below_target(document, &target.steps, trail);
            let mut below = below.filter(|keys| !keys.is_empty()).into_iter();
            below.any(|keys| is_member(&batch.representation.fields, keys))
                || batch
                    .context
                    .iter()
                    .flat_map(|variable| &variable.sources)
                    .any(|source| is_read(document, target, source, trail))
        })
    })
}

/// The steps below the objects that a target leads to; `None`: they are elsewhere, or below objects of other types.
fn below_target<'t>(
    document: &Document,
    steps: &[PathStep],
    trail: &'t [Step<'t>],
) -> Option<&'t [Step<'t>]> {
    let (above, below) = trail.split_at_checked(steps.len())?;
    let leads_there = |(wanted, step): (&PathStep, &Step<'_>)| {
        *wanted.data_key == *step.data_key
            && step.value.is_none_or(|value| {
                document.kind(value) != Kind::Object || has_type(document, value, &wanted.types)
            })
    };
    steps.iter().zip(above).all(leads_there).then_some(below)
}

fn is_member(fields: &[RepresentationField], trail: &[Step<'_>]) -> bool {
    let [first, below @ ..] = trail else { return true };
    fields.iter().any(|field| *field.data_key == *first.data_key && is_member(&field.fields, below))
}

fn is_read(document: &Document, target: &Path, source: &ContextSource, trail: &[Step<'_>]) -> bool {
    let steps = target.steps.get(..source.steps as usize).unwrap_or(&target.steps);
    below_target(document, steps, trail).is_some_and(|below| {
        below.len() <= source.data_keys.len()
            && below.iter().zip(&source.data_keys).all(|(step, read)| *step.data_key == **read)
    })
}
