//! Short notation for shapes and fetches, so that a case reads as an example.
//!
//! Shapes: `Query { items: [Item!]! { id: ID! shown<data: String @if(0) @if(!1) } }`. Abstract types
//! list their variants: `node: Node { ...Product { upc: ID! } ...User { name: String } }`. Leaves:
//! the five built-in scalars, `Color(RED|GREEN)` for enums, `__typename`, `__introspection`, any
//! other name is a custom scalar.
//!
//! Paths: `topProducts.reviews[Review|Note].author`. Representations: `Product upc! weight
//! org!{id!} name<data kind@Book`, with `*` for the object's own type.

use apollo_compiler::ast::{Definition, Document, Selection};
use plan::{
    Condition, ContextSource, ContextVariable, EntityBatch, Leaf, ObjectShape, ObjectShapeId, Path,
    PathStep, Representation, RepresentationField, ReusePlace, ReusedValue, Shape, ShapeField,
    ValueKind, ValueShape, VariableId, Variant,
};

pub struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { rest: text.trim_start() }
    }

    pub fn eat(&mut self, mark: &str) -> bool {
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, mark: &str) {
        assert!(self.eat(mark), "expected {mark} before: {}", self.rest);
    }

    pub fn word(&mut self) -> &'a str {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '*')
            .unwrap_or(self.rest.len());
        assert!(end > 0, "expected a word before: {}", self.rest);
        let word = &self.rest[..end];
        self.rest = self.rest[end..].trim_start();
        word
    }

    pub fn is_done(&self) -> bool {
        self.rest.is_empty()
    }
}

pub fn shape(text: &str) -> Shape {
    let mut reader = Reader::new(text);
    let mut shape = Shape::default();
    let name = reader.word();
    // The root is index 0.
    shape.objects.push(ObjectShape {
        type_name: name.into(),
        is_abstract: false,
        variants: vec![],
    });
    let root = object(&mut reader, &mut shape, name);
    shape.objects[0] = root;
    assert!(reader.is_done(), "{}", reader.rest);
    shape
}

fn object(reader: &mut Reader<'_>, shape: &mut Shape, name: &str) -> ObjectShape {
    reader.expect("{");
    let mut variants = Vec::new();
    while reader.eat("...") {
        let type_name = reader.word();
        reader.expect("{");
        variants.push(Variant {
            type_name: type_name.into(),
            fields: fields(reader, shape),
            is_denied: false,
        });
    }
    let is_abstract = !variants.is_empty();
    if is_abstract {
        reader.expect("}");
    } else {
        variants.push(Variant {
            type_name: name.into(),
            fields: fields(reader, shape),
            is_denied: false,
        });
    }
    ObjectShape { type_name: name.into(), is_abstract, variants }
}

fn fields(reader: &mut Reader<'_>, shape: &mut Shape) -> Vec<ShapeField> {
    let mut fields = Vec::new();
    while !reader.eat("}") {
        let response_key = reader.word();
        let data_key = if reader.eat("<") { reader.word() } else { response_key };
        reader.expect(":");
        let value = value(reader, shape);
        let mut any_of = Vec::new();
        while reader.eat("@if(") {
            any_of.push(condition(reader));
        }
        fields.push(ShapeField {
            response_key: response_key.into(),
            data_key: data_key.into(),
            field_name: response_key.into(),
            any_of,
            unless: vec![],
            value,
        });
    }
    fields
}

/// `0)` or `!0)` or `0,!1)`
fn condition(reader: &mut Reader<'_>) -> Condition {
    let mut all = Vec::new();
    loop {
        let wanted = !reader.eat("!");
        all.push((VariableId(reader.word().parse().unwrap()), wanted));
        if !reader.eat(",") {
            break;
        }
    }
    reader.expect(")");
    Condition { all }
}

fn value(reader: &mut Reader<'_>, shape: &mut Shape) -> ValueShape {
    let mut lists = 0;
    while reader.eat("[") {
        lists += 1;
    }
    let name = reader.word();
    let mut leaf = match name {
        "Int" => ValueKind::Leaf(Leaf::Int),
        "Float" => ValueKind::Leaf(Leaf::Float),
        "String" => ValueKind::Leaf(Leaf::String),
        "Boolean" => ValueKind::Leaf(Leaf::Boolean),
        "ID" => ValueKind::Leaf(Leaf::Id),
        "__typename" => ValueKind::Typename,
        "__introspection" => ValueKind::Verbatim,
        _ => ValueKind::Leaf(Leaf::Custom),
    };
    if reader.eat("(") {
        let mut values = vec![reader.word().into()];
        while reader.eat("|") {
            values.push(reader.word().into());
        }
        reader.expect(")");
        leaf = ValueKind::Leaf(Leaf::Enum(values.into()));
    }
    let mut nullables = vec![!reader.eat("!")];
    for _ in 0..lists {
        reader.expect("]");
        nullables.push(!reader.eat("!"));
    }
    if reader.rest.starts_with('{') {
        let object = object(reader, shape, name);
        shape.objects.push(object);
        leaf = ValueKind::Object(ObjectShapeId(shape.objects.len() as u32 - 1));
    }
    let mut nullables = nullables.into_iter();
    let mut value = ValueShape { nullable: nullables.next().unwrap(), kind: leaf };
    for nullable in nullables {
        value = ValueShape { nullable, kind: ValueKind::List(Box::new(value)) };
    }
    value
}

pub fn path(text: &str) -> Path {
    let mut reader = Reader::new(text);
    let mut path = Path::default();
    loop {
        let data_key = reader.word().into();
        let mut types = Vec::new();
        if reader.eat("[") {
            types.push(reader.word().into());
            while reader.eat("|") {
                types.push(reader.word().into());
            }
            reader.expect("]");
        }
        path.steps.push(PathStep { data_key, types });
        if !reader.eat(".") {
            break;
        }
    }
    assert!(reader.is_done(), "{}", reader.rest);
    path
}

/// `_entities representations at a.b,c as Product upc! for name,price with currency=1[User|Shop]:locale.currency`
pub fn batch(text: &str) -> EntityBatch {
    let (text, context) = match text.split_once(" with ") {
        Some((text, context)) => (text, context.split(' ').map(context_variable).collect()),
        None => (text, vec![]),
    };
    let (text, data_keys) = match text.split_once(" for ") {
        Some((text, keys)) => (text, keys.split(',').map(Into::into).collect()),
        None => (text, vec![]),
    };
    let (names, rest) = text.split_once(" at ").unwrap();
    let (targets, representation) = rest.split_once(" as ").unwrap();
    let mut names = Reader::new(names);
    let (data_key, variable) = (names.word().into(), names.word().into());
    let targets = targets.split(',').map(path).collect();
    let mut reader = Reader::new(representation);
    let typename = reader.word();
    let representation = Representation {
        typename: (typename != "*").then(|| typename.into()),
        fields: representation_fields(&mut reader),
    };
    EntityBatch {
        data_key,
        variable,
        targets,
        representation,
        context,
        data_keys,
        requirements: Vec::new(),
        any_of: Vec::new(),
        alone: None,
        reuse: Vec::new(),
    }
}

/// `a.b as Product upc! copy name price<cost`: the values that the batch calls `name` and `price`.
pub fn reuse_place(text: &str) -> ReusePlace {
    let (path_text, rest) = text.split_once(" as ").unwrap();
    let (representation, values) = rest.split_once(" copy ").unwrap();
    let mut reader = Reader::new(representation);
    let typename = Some(reader.word().into());
    let fields = representation_fields(&mut reader);
    let value = |text: &str| {
        let (response_key, data_key) = text.split_once('<').unwrap_or((text, text));
        ReusedValue { data_key: data_key.into(), response_key: response_key.into() }
    };
    ReusePlace {
        path: path(path_text),
        representation: Representation { typename, fields },
        values: values.split(' ').map(value).collect(),
    }
}

/// Returns the response keys of the root fields of an operation.
pub fn root_keys(operation: &str) -> Vec<Box<str>> {
    let document = Document::parse(operation, "operation.graphql").unwrap();
    let [Definition::OperationDefinition(operation)] = &document.definitions[..] else {
        panic!("not one operation: {document}")
    };
    let key = |selection: &Selection| match selection {
        Selection::Field(field) => field.response_name().as_str().into(),
        _ => panic!("not a field: {selection}"),
    };
    operation.selection_set.iter().map(key).collect()
}

/// `currency=1[User]:locale.currency,0:currency`: variable, then sources: steps, types, keys.
fn context_variable(text: &str) -> ContextVariable {
    let (variable, sources) = text.split_once('=').unwrap();
    let source = |text: &str| {
        let (object, keys) = text.split_once(':').unwrap();
        let (steps, types) = match object.split_once('[') {
            Some((steps, types)) => (steps, types.trim_end_matches(']').split('|').collect()),
            None => (object, vec![]),
        };
        ContextSource {
            steps: steps.parse().unwrap(),
            types: types.into_iter().map(Into::into).collect(),
            data_keys: keys.split('.').map(Into::into).collect(),
        }
    };
    ContextVariable { variable: variable.into(), sources: sources.split(',').map(source).collect() }
}

fn representation_fields(reader: &mut Reader<'_>) -> Vec<RepresentationField> {
    let mut fields = Vec::new();
    while !reader.is_done() && !reader.eat("}") {
        let name: Box<str> = reader.word().into();
        let data_key = if reader.eat("<") { reader.word().into() } else { name.clone() };
        let types = if reader.eat("@") { vec![reader.word().into()] } else { vec![] };
        let key = reader.eat("!");
        let fields_below = if reader.eat("{") { representation_fields(reader) } else { vec![] };
        fields.push(RepresentationField { name, data_key, key, types, fields: fields_below });
    }
    fields
}

/// `0,!1`
pub fn conditions(text: &str) -> Vec<Condition> {
    let text = format!("{text})");
    vec![condition(&mut Reader::new(&text))]
}
