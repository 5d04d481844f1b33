//! From keys of the data tree to paths of the client's answer: which response keys lead to an
//! object, and to a place inside it. Only errors need this, so it is worked out when one comes.

use astjson::{Document, Kind, NodeId};
use plan::{ObjectShape, Path, PathStep, Shape, ValueKind, ValueShape};

use crate::PathSegment;
use crate::bounds::ERROR_PLACE_VISITS_MAX;

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
        let typename = object
            .filter(|_| here.is_abstract)
            .and_then(|object| document.get(object, "__typename"));
        here.variants
            .iter()
            .filter(|variant| typename.is_none_or(|it| document.str_eq(it, &variant.type_name)))
            .flat_map(|variant| &variant.fields)
            .find(|field| &*field.data_key == data_key)
            .map(|field| (&*field.response_key, Self::of(shape, &field.value)))
    }
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
/// error path. Stops where the client's answer has no such place.
pub(crate) fn extend(
    document: &Document,
    shape: &Shape,
    place: Place<'_>,
    segments: &[NodeId],
) -> Vec<PathSegment> {
    let Place { node, mut path, mut position } = place;
    let mut node = Some(node);
    for &segment in segments {
        match document.kind(segment) {
            Kind::String => {
                let Some(key) = document.as_str(segment) else { break };
                let Some((response_key, below)) = position.below(shape, document, node, &key)
                else {
                    break;
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
    path
}
