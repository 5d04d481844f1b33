//! A subgraph's schema in the form that the executor needs: object types, their fields and keys, numbered once.
//!
//! Reading is lenient where a subgraph library would add definitions itself: Federation directives need no definition,
//! `extend type` needs no type, and a schema with entities only needs no `Query`.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use apollo_compiler::ast::Type;
use apollo_compiler::schema::{ExtendedType, Schema};
use apollo_compiler::validation::Valid;
use apollo_compiler::{Name, Node};
use serde_json::{Map, Value};

use super::errors::SubgraphError;

/// The maximum nesting of one `@key` field set; real keys have two levels at most.
const KEY_DEPTH_MAX: usize = 16;

/// The separator between the values of a composite key in its text; it cannot occur unescaped in JSON text.
const KEY_SEPARATOR: char = '\u{1f}';

/// The index of an object type in [`Model::objects`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TypeId(u16);

/// The index of a field in [`ObjectType::print_fields`].
pub(super) type FieldIndex = u16;

/// A numbered schema, together with the validated schema that operations are checked against.
pub(super) struct Model {
    /// The SDL as given.
    pub(super) sdl: Box<str>,
    /// The schema that operations are validated against: directives removed, Federation's root fields added.
    pub(super) schema: Valid<Schema>,
    pub(super) objects: Vec<ObjectType>,
    by_name: HashMap<Box<str>, TypeId>,
    possible: HashMap<Box<str>, Vec<TypeId>>,
}

/// An object type.
pub(super) struct ObjectType {
    pub(super) name: Box<str>,
    pub(super) fields: Vec<FieldModel>,
    /// The resolvable keys, in the order of the SDL.
    pub(super) keys: Vec<KeyFields>,
    /// The index of the resolver of `_entities` for this type, if there is one.
    pub(super) entity_resolver: Option<usize>,
    field_index: HashMap<Box<str>, FieldIndex>,
}

/// A field of an object type.
pub(super) struct FieldModel {
    pub(super) name: Box<str>,
    pub(super) shape: Shape,
    /// The innermost named type.
    pub(super) named: Box<str>,
    /// True if the innermost type is an object, interface or union.
    pub(super) composite: bool,
    /// True if the innermost type is `ID`, which is always printed as a string.
    pub(super) id: bool,
    /// True if a representation may contain it: it is `@external`, or part of a key.
    pub(super) from_representation: bool,
    pub(super) resolver: Option<usize>,
}

/// The lists and non-null markers around a named type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) non_null: bool,
    pub(super) item: Option<Box<Shape>>,
}

/// The fields of one `@key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyFields(Vec<(Box<str>, KeyFields)>);

impl Shape {
    fn of(ty: &Type) -> Self {
        match ty {
            Type::Named(_) => Self { non_null: false, item: None },
            Type::NonNullNamed(_) => Self { non_null: true, item: None },
            Type::List(item) => Self { non_null: false, item: Some(Box::new(Self::of(item))) },
            Type::NonNullList(item) => {
                Self { non_null: true, item: Some(Box::new(Self::of(item))) }
            }
        }
    }
}

impl ObjectType {
    pub(super) fn field_index(&self, name: &str) -> Option<FieldIndex> {
        self.field_index.get(name).copied()
    }

    pub(super) fn field(&self, index: FieldIndex) -> &FieldModel {
        &self.fields[usize::from(index)]
    }
}

impl TypeId {
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl Model {
    /// Reads a subgraph's SDL.
    pub(super) fn read(sdl: &str) -> Result<Self, SubgraphError> {
        let given = build(&[sdl])?;
        let keys = keys_of(&given)?;
        let mut schema = build(&[sdl, &federation_additions(&given, &keys)])?;
        remove_undefined_directives(&mut schema);
        let externals = externals_of(&given);
        let schema =
            schema.validate().map_err(|error| SubgraphError::Schema(error.errors.to_string()))?;

        let mut model = Self {
            sdl: sdl.into(),
            objects: Vec::new(),
            by_name: HashMap::new(),
            possible: HashMap::new(),
            schema,
        };
        model.number_objects(&keys, &externals)?;
        model.number_possible_types();
        Ok(model)
    }

    pub(super) fn type_id(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    pub(super) fn object(&self, id: TypeId) -> &ObjectType {
        &self.objects[id.index()]
    }

    pub(super) fn object_mut(&mut self, id: TypeId) -> &mut ObjectType {
        &mut self.objects[id.index()]
    }

    /// Returns the object types of values of this named type; none for leaf types.
    pub(super) fn possible_types(&self, named: &str) -> &[TypeId] {
        self.possible.get(named).map_or(&[], Vec::as_slice)
    }

    fn number_objects(
        &mut self,
        keys: &HashMap<Name, Vec<KeyFields>>,
        externals: &HashSet<(Name, Name)>,
    ) -> Result<(), SubgraphError> {
        for (name, definition) in &self.schema.types {
            let ExtendedType::Object(object) = definition else { continue };
            let id = TypeId(u16::try_from(self.objects.len()).map_err(|_| {
                SubgraphError::Schema("a schema of more than 65,535 object types".to_owned())
            })?);
            let keys = keys.get(name).cloned().unwrap_or_default();
            let mut fields = Vec::with_capacity(object.fields.len());
            let mut field_index = HashMap::with_capacity(object.fields.len());
            for (field_name, field) in &object.fields {
                let index = FieldIndex::try_from(fields.len()).map_err(|_| {
                    SubgraphError::Schema(format!("`{name}` has more than 65,535 fields"))
                })?;
                let named = field.ty.inner_named_type();
                let composite = matches!(
                    self.schema.types.get(named),
                    Some(
                        ExtendedType::Object(_)
                            | ExtendedType::Interface(_)
                            | ExtendedType::Union(_)
                    )
                );
                let in_key = keys.iter().any(|key| key.has_member(field_name));
                fields.push(FieldModel {
                    name: field_name.as_str().into(),
                    shape: Shape::of(&field.ty),
                    named: named.as_str().into(),
                    composite,
                    id: named == "ID",
                    from_representation: in_key
                        || externals.contains(&(name.clone(), field_name.clone())),
                    resolver: None,
                });
                field_index.insert(field_name.as_str().into(), index);
            }
            self.by_name.insert(name.as_str().into(), id);
            self.objects.push(ObjectType {
                name: name.as_str().into(),
                fields,
                keys,
                entity_resolver: None,
                field_index,
            });
        }
        Ok(())
    }

    fn number_possible_types(&mut self) {
        let implementers = self.schema.implementers_map();
        for (name, definition) in &self.schema.types {
            let ids: Vec<TypeId> = match definition {
                ExtendedType::Object(_) => self.type_id(name).into_iter().collect(),
                ExtendedType::Interface(_) => implementers
                    .get(name)
                    .map(|found| found.objects.iter().filter_map(|o| self.type_id(o)).collect())
                    .unwrap_or_default(),
                ExtendedType::Union(union) => {
                    union.members.iter().filter_map(|member| self.type_id(member)).collect()
                }
                _ => continue,
            };
            self.possible.insert(name.as_str().into(), ids);
        }
    }
}

impl KeyFields {
    /// Parses a field set such as `id organization { id }`.
    fn parse(text: &str) -> Result<Self, String> {
        let mut open: Vec<Vec<(Box<str>, Self)>> = vec![Vec::new()];
        for token in
            text.replace('{', " { ").replace('}', " } ").replace(',', " ").split_whitespace()
        {
            match token {
                "{" if open.len() < KEY_DEPTH_MAX => open.push(Vec::new()),
                "{" => return Err(format!("the key `{text}` is nested too deeply")),
                "}" => {
                    let children = open.pop().unwrap_or_default();
                    match open.last_mut().and_then(|members| members.last_mut()) {
                        Some((_, slot)) => *slot = Self(children),
                        None => return Err(format!("the key `{text}` has unbalanced braces")),
                    }
                }
                name => {
                    if let Some(members) = open.last_mut() {
                        members.push((name.into(), Self(Vec::new())));
                    }
                }
            }
        }
        match (open.len(), open.pop()) {
            (1, Some(members)) if !members.is_empty() => Ok(Self(members)),
            _ => Err(format!("the key `{text}` is empty or has unbalanced braces")),
        }
    }

    /// Returns the names of its top level.
    pub(super) fn members(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(member, _)| &**member)
    }

    /// Returns the first leaf of the key in an object that has the complete key.
    pub(super) fn first_leaf<'a>(&self, object: &'a Map<String, Value>) -> Option<&'a Value> {
        let (name, children) = self.0.first()?;
        match object.get(&**name)? {
            Value::Object(nested) if !children.0.is_empty() => children.first_leaf(nested),
            leaf => Some(leaf),
        }
    }

    pub(super) fn has_member(&self, name: &str) -> bool {
        self.0.iter().any(|(member, _)| **member == *name)
    }

    /// Returns the text that identifies an object by this key, if the object has the complete key.
    pub(super) fn text_of(&self, object: &Map<String, Value>) -> Option<String> {
        let mut text = String::new();
        self.write_text(object, &mut text)?;
        Some(text)
    }

    fn write_text(&self, object: &Map<String, Value>, text: &mut String) -> Option<()> {
        for (name, children) in &self.0 {
            match object.get(&**name)? {
                Value::Null => return None,
                Value::Object(nested) if !children.0.is_empty() => {
                    children.write_text(nested, text)?;
                }
                // An ID is the same as a string and as a number.
                Value::String(value) => text.push_str(value),
                other => write!(text, "{other}").ok()?,
            }
            text.push(KEY_SEPARATOR);
        }
        Some(())
    }
}

fn build(sources: &[&str]) -> Result<Schema, SubgraphError> {
    let mut builder = Schema::builder().adopt_orphan_extensions().ignore_builtin_redefinitions();
    for source in sources {
        builder = builder.parse(*source, "subgraph.graphql");
    }
    builder.build().map_err(|error| SubgraphError::Schema(error.errors.to_string()))
}

/// Returns the resolvable keys of each object type.
fn keys_of(schema: &Schema) -> Result<HashMap<Name, Vec<KeyFields>>, SubgraphError> {
    let mut keys = HashMap::new();
    for (name, definition) in &schema.types {
        let ExtendedType::Object(object) = definition else { continue };
        let mut found = Vec::new();
        for directive in object.directives.iter() {
            if !matches!(directive.name.as_str(), "key" | "federation__key") {
                continue;
            }
            let argument = |name: &str| directive.specified_argument_by_name(name);
            if argument("resolvable").and_then(|value| value.to_bool()) == Some(false) {
                continue;
            }
            let fields = argument("fields").and_then(|value| value.as_str()).ok_or_else(|| {
                SubgraphError::Schema(format!("a @key of `{name}` has no fields"))
            })?;
            found.push(KeyFields::parse(fields).map_err(SubgraphError::Schema)?);
        }
        if !found.is_empty() {
            keys.insert(name.clone(), found);
        }
    }
    Ok(keys)
}

/// Returns the fields marked `@external`, by type and name.
fn externals_of(schema: &Schema) -> HashSet<(Name, Name)> {
    let is_external = |name: &str| matches!(name, "external" | "federation__external");
    let mut externals = HashSet::new();
    for (name, definition) in &schema.types {
        let ExtendedType::Object(object) = definition else { continue };
        let whole_type = object.directives.iter().any(|directive| is_external(&directive.name));
        for (field_name, field) in &object.fields {
            if whole_type || field.directives.iter().any(|directive| is_external(&directive.name)) {
                externals.insert((name.clone(), field_name.clone()));
            }
        }
    }
    externals
}

/// Returns the definitions that the Federation subgraph specification adds to every subgraph's schema, unless they
/// exist.
fn federation_additions(given: &Schema, keys: &HashMap<Name, Vec<KeyFields>>) -> String {
    let mut sdl = String::new();
    let mut root_fields = String::new();
    if !given.types.contains_key("_Service") {
        sdl.push_str("type _Service { sdl: String }\n");
    }
    // In the order of the schema, so that the union's members are the same in every run.
    let entities: Vec<&str> =
        given.types.keys().filter(|name| keys.contains_key(*name)).map(Name::as_str).collect();
    if !entities.is_empty() && !given.types.contains_key("_Entity") {
        let _ = writeln!(sdl, "union _Entity = {}", entities.join(" | "));
        if !given.types.contains_key("_Any") {
            sdl.push_str("scalar _Any\n");
        }
    }
    let query = given.schema_definition.query.as_ref();
    let has_field = |field: &str| {
        query
            .and_then(|name| given.get_object(name))
            .is_some_and(|object| object.fields.contains_key(field))
    };
    if !has_field("_service") {
        root_fields.push_str(" _service: _Service!");
    }
    if !entities.is_empty() && !has_field("_entities") {
        root_fields.push_str(" _entities(representations: [_Any!]!): [_Entity]!");
    }
    if !root_fields.is_empty() {
        let (keyword, name) =
            query.map_or(("type", "Query"), |name| ("extend type", name.as_str()));
        let _ = writeln!(sdl, "{keyword} {name} {{{root_fields} }}");
    }
    sdl
}

/// Removes directives that the schema does not define: Federation's, and those of other routers.
fn remove_undefined_directives(schema: &mut Schema) {
    let definitions = schema.directive_definitions.clone();
    let defined = |name: &Name| definitions.contains_key(name);
    schema.schema_definition.make_mut().directives.retain(|directive| defined(&directive.name));
    for definition in schema.types.values_mut() {
        match definition {
            ExtendedType::Scalar(scalar) => {
                scalar.make_mut().directives.retain(|directive| defined(&directive.name));
            }
            ExtendedType::Object(object) => {
                let object = object.make_mut();
                object.directives.retain(|directive| defined(&directive.name));
                object.fields.values_mut().for_each(|field| clean_field(field, &defined));
            }
            ExtendedType::Interface(interface) => {
                let interface = interface.make_mut();
                interface.directives.retain(|directive| defined(&directive.name));
                interface.fields.values_mut().for_each(|field| clean_field(field, &defined));
            }
            ExtendedType::Union(union) => {
                union.make_mut().directives.retain(|directive| defined(&directive.name));
            }
            ExtendedType::Enum(enumeration) => {
                let enumeration = enumeration.make_mut();
                enumeration.directives.retain(|directive| defined(&directive.name));
                for value in enumeration.values.values_mut() {
                    value.make_mut().directives.retain(|directive| defined(&directive.name));
                }
            }
            ExtendedType::InputObject(input) => {
                let input = input.make_mut();
                input.directives.retain(|directive| defined(&directive.name));
                for field in input.fields.values_mut() {
                    field.make_mut().directives.retain(|directive| defined(&directive.name));
                }
            }
        }
    }
}

fn clean_field(
    field: &mut apollo_compiler::schema::Component<apollo_compiler::schema::FieldDefinition>,
    defined: &impl Fn(&Name) -> bool,
) {
    let field = field.make_mut();
    field.directives.retain(|directive| defined(&directive.name));
    for argument in &mut field.arguments {
        Node::make_mut(argument).directives.retain(|directive| defined(&directive.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_federation_2_schema_without_definitions_is_read() {
        let model = Model::read(
            r#"
            extend schema @link(url: "https://specs.apollo.dev/federation/v2.3", import: ["@key", "@shareable"])
            type Product @key(fields: "upc") @key(fields: "sku brand { id }", resolvable: true) {
                upc: ID! sku: String brand: Brand @shareable price: Int @external @tag(name: "x")
            }
            type Brand { id: ID! }
            type Stub @key(fields: "id", resolvable: false) { id: ID! }
            "#,
        )
        .unwrap();
        let product = model.object(model.type_id("Product").unwrap());
        assert_eq!(product.keys.len(), 2);
        assert!(product.field(product.field_index("price").unwrap()).from_representation);
        assert!(model.object(model.type_id("Stub").unwrap()).keys.is_empty());
        assert_eq!(model.possible_types("_Entity"), [model.type_id("Product").unwrap()]);
    }

    #[test]
    fn an_extended_query_of_federation_1_is_read() {
        let model = Model::read(
            "extend type Query { me: User } extend type User @key(fields: \"id\") { id: ID! @external }",
        )
        .unwrap();
        let query = model.object(model.type_id("Query").unwrap());
        assert!(query.field_index("me").is_some() && query.field_index("_entities").is_some());
    }

    #[test]
    fn a_schema_that_is_not_valid_is_refused_with_its_diagnostics() {
        let message = Model::read("type Query { a: Missing }").err().unwrap().to_string();
        assert!(message.contains("Missing"), "{message}");
        assert!(Model::read("type Query { a: Int").is_err());
        assert!(Model::read("type A @key(fields: \"id {\") { id: ID }").is_err());
    }

    #[test]
    fn a_key_identifies_an_object_whether_ids_are_strings_or_numbers() {
        let key = KeyFields::parse("id organization { id }").unwrap();
        let text = |value: Value| key.text_of(value.as_object().unwrap());
        assert_eq!(
            text(serde_json::json!({"id": 1, "organization": {"id": "a"}, "name": "x"})),
            text(serde_json::json!({"id": "1", "organization": {"id": "a"}}))
        );
        assert_eq!(text(serde_json::json!({"id": 1, "organization": {}})), None);
        assert_eq!(text(serde_json::json!({"id": 1, "organization": null})), None);
    }
}
