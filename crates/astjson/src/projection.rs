//! What a result must look like: which members are printed under which keys, of what kind they
//! must be, and where `null` may stand. Plain data, and its compiled form. The walk is in
//! `project`.

use std::fmt;
use std::sync::Arc;

use crate::string::print_string;

/// How deep a projection may go: lists and objects inside each other. Walking one recurses, with
/// some 300 bytes of stack a level.
pub const PROJECTION_DEPTH_MAX: usize = 512;

/// What must stand at some place of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Projected {
    /// A value that is printed as it is.
    Leaf {
        /// Whether `null` may stand here.
        nullable: bool,
        /// Which values may.
        accepts: Accepts,
    },
    /// A list.
    List {
        /// Whether `null` may stand in place of the list.
        nullable: bool,
        /// What its elements must be.
        of: Box<Projected>,
    },
    /// An object.
    Object {
        /// Whether `null` may stand here.
        nullable: bool,
        /// What is printed of it.
        object: ProjectedObject,
    },
}

/// Which values a leaf accepts. They are printed as they are: nothing is converted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Accepts {
    /// Any value, also arrays and objects, which are printed whole.
    Any,
    /// Strings.
    String,
    /// `true` and `false`.
    Boolean,
    /// Numbers.
    Number,
    /// Numbers written without fraction or exponent that fit 32 bits with a sign.
    Integer32,
    /// Strings, and numbers written without fraction or exponent.
    StringOrInteger,
    /// One of these strings. A sorted list (by bytes) is shared and not copied.
    OneOf(Arc<[Box<str>]>),
    /// Whatever the [`LeafCheck`] of the walk accepts under this number.
    Custom(u32),
}

/// What is printed of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProjectedObject {
    /// The members, in the order in which they are printed.
    pub fields: Vec<ProjectedField>,
    /// Members to print instead of those, where `"__typename"` of the object is the string given
    /// here.
    pub alternatives: Vec<(Box<str>, Vec<ProjectedField>)>,
}

/// A member of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProjectedField {
    /// The key it is printed under.
    pub key: Box<str>,
    /// Where its value comes from.
    pub source: FieldSource,
    /// What the value must be.
    pub value: Projected,
}

/// Where the value of a printed member comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldSource {
    /// The member with this key. If there is none, that is like `null`.
    Member(Box<str>),
    /// This JSON text, for every object alike; it is printed without a look.
    Constant(Box<str>),
}

/// A projection that is nested deeper than [`PROJECTION_DEPTH_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProjectionTooDeep;

impl fmt::Display for ProjectionTooDeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the projection is nested more than {PROJECTION_DEPTH_MAX} levels deep")
    }
}

impl std::error::Error for ProjectionTooDeep {}

/// A compiled projection. Cheap to clone and to share between threads.
#[derive(Clone)]
pub struct Projection {
    pub(crate) plan: Arc<Plan>,
}

impl fmt::Debug for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Projection")
            .field("objects", &self.plan.objects.len())
            .finish_non_exhaustive()
    }
}

pub(crate) struct Plan {
    pub(crate) root: Value,
    pub(crate) objects: Vec<Object>,
}

/// A place, and what must stand there.
pub(crate) struct Value {
    pub(crate) nullable: bool,
    pub(crate) kind: ValueKind,
}

pub(crate) enum ValueKind {
    Leaf(Accepts),
    List(Box<Value>),
    /// Number in [`Plan::objects`].
    Object(u32),
}

pub(crate) struct Object {
    pub(crate) fields: Vec<Field>,
    /// Keys that the fields read, each once.
    pub(crate) sources: Vec<Box<str>>,
    pub(crate) alternatives: Vec<(Box<str>, u32)>,
}

pub(crate) struct Field {
    pub(crate) key: Box<str>,
    /// The key as it is printed, quotes and colon included; and the same with a comma before it.
    pub(crate) printed: Box<[u8]>,
    pub(crate) separated: Box<[u8]>,
    pub(crate) source: Source,
    pub(crate) value: Value,
}

pub(crate) enum Source {
    /// Number in [`Object::sources`].
    Member(u32),
    Constant(Box<[u8]>),
}

impl Projection {
    /// Compiles a projection.
    ///
    /// # Errors
    ///
    /// When it is nested deeper than [`PROJECTION_DEPTH_MAX`].
    pub fn new(root: &Projected) -> Result<Projection, ProjectionTooDeep> {
        let mut objects = Vec::new();
        let root = compile(root, 0, &mut objects)?;
        Ok(Projection { plan: Arc::new(Plan { root, objects }) })
    }
}

fn compile(
    value: &Projected,
    depth: usize,
    objects: &mut Vec<Object>,
) -> Result<Value, ProjectionTooDeep> {
    if depth > PROJECTION_DEPTH_MAX {
        return Err(ProjectionTooDeep);
    }
    Ok(match value {
        Projected::Leaf { nullable, accepts } => {
            let mut accepts = accepts.clone();
            if let Accepts::OneOf(strings) = &mut accepts
                && !strings.is_sorted()
            {
                let mut sorted = strings.to_vec();
                sorted.sort();
                *strings = sorted.into();
            }
            Value { nullable: *nullable, kind: ValueKind::Leaf(accepts) }
        }
        Projected::List { nullable, of } => {
            let of = compile(of, depth + 1, objects)?;
            Value { nullable: *nullable, kind: ValueKind::List(Box::new(of)) }
        }
        Projected::Object { nullable, object } => {
            let number = compile_fields(&object.fields, depth, objects)?;
            for (name, fields) in &object.alternatives {
                let alternative = compile_fields(fields, depth, objects)?;
                objects[number as usize].alternatives.push((name.clone(), alternative));
            }
            Value { nullable: *nullable, kind: ValueKind::Object(number) }
        }
    })
}

fn compile_fields(
    specs: &[ProjectedField],
    depth: usize,
    objects: &mut Vec<Object>,
) -> Result<u32, ProjectionTooDeep> {
    let number = objects.len();
    objects.push(Object { fields: Vec::new(), sources: Vec::new(), alternatives: Vec::new() });
    let mut sources: Vec<Box<str>> = Vec::new();
    let mut fields = Vec::with_capacity(specs.len());
    for spec in specs {
        let source = match &spec.source {
            FieldSource::Constant(text) => Source::Constant(text.as_bytes().into()),
            FieldSource::Member(key) => {
                let known = sources.iter().position(|source| source == key);
                Source::Member(known.unwrap_or_else(|| {
                    sources.push(key.clone());
                    sources.len() - 1
                }) as u32)
            }
        };
        let mut separated = vec![b','];
        print_string(&spec.key, &mut separated);
        separated.push(b':');
        let value = compile(&spec.value, depth + 1, objects)?;
        let printed = separated[1..].into();
        let separated = separated.into();
        fields.push(Field { key: spec.key.clone(), printed, separated, source, value });
    }
    objects[number].fields = fields;
    objects[number].sources = sources;
    Ok(number as u32)
}
