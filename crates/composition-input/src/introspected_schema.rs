//! The result of GraphQL's own introspection, and its SDL.

use std::fmt::Write as _;

use serde::Deserialize;

/// The introspection query. It selects nothing that is younger than the specification of 2018: a server refuses the
/// whole query for one unknown field.
pub(crate) const INTROSPECTION_QUERY: &str = "\
query IntrospectionQuery { __schema {
  queryType { name } mutationType { name } subscriptionType { name }
  types {
    kind name description
    fields(includeDeprecated: true) {
      name description args { ...Value } type { ...Type } isDeprecated deprecationReason
    }
    inputFields { ...Value } interfaces { name }
    enumValues(includeDeprecated: true) { name description isDeprecated deprecationReason }
    possibleTypes { name }
  }
  directives { name description locations args { ...Value } }
} }
fragment Value on __InputValue { name description type { ...Type } defaultValue }
fragment Type on __Type { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name
  ofType { kind name ofType { kind name ofType { kind name } } } } } } } }";

/// The types and directives that every schema has.
const BUILT_IN: [&str; 10] = [
    "Boolean",
    "Float",
    "ID",
    "Int",
    "String",
    "deprecated",
    "include",
    "oneOf",
    "skip",
    "specifiedBy",
];

/// The data of the response.
#[derive(Deserialize)]
pub(crate) struct SchemaData {
    #[serde(rename = "__schema")]
    schema: IntrospectedSchema,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IntrospectedSchema {
    query_type: Option<TypeName>,
    mutation_type: Option<TypeName>,
    subscription_type: Option<TypeName>,
    types: Vec<IntrospectedType>,
    #[serde(default)]
    directives: Vec<IntrospectedDirective>,
}

#[derive(Deserialize)]
struct TypeName {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IntrospectedType {
    kind: TypeKind,
    name: String,
    description: Option<String>,
    fields: Option<Vec<IntrospectedField>>,
    input_fields: Option<Vec<InputValue>>,
    interfaces: Option<Vec<TypeName>>,
    enum_values: Option<Vec<IntrospectedEnumValue>>,
    possible_types: Option<Vec<TypeName>>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum TypeKind {
    Scalar,
    Object,
    Interface,
    Union,
    Enum,
    InputObject,
    List,
    NonNull,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IntrospectedField {
    name: String,
    description: Option<String>,
    #[serde(default)]
    args: Vec<InputValue>,
    #[serde(rename = "type")]
    field_type: TypeReference,
    #[serde(default)]
    is_deprecated: bool,
    deprecation_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputValue {
    name: String,
    description: Option<String>,
    #[serde(rename = "type")]
    value_type: TypeReference,
    default_value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IntrospectedEnumValue {
    name: String,
    description: Option<String>,
    #[serde(default)]
    is_deprecated: bool,
    deprecation_reason: Option<String>,
}

#[derive(Deserialize)]
struct IntrospectedDirective {
    name: String,
    description: Option<String>,
    #[serde(default)]
    locations: Vec<String>,
    #[serde(default)]
    args: Vec<InputValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeReference {
    kind: TypeKind,
    name: Option<String>,
    of_type: Option<Box<TypeReference>>,
}

impl SchemaData {
    /// Prints the schema as SDL.
    pub(crate) fn to_sdl(&self) -> String {
        let mut sdl = String::new();
        self.schema.print_roots(&mut sdl);
        for directive in &self.schema.directives {
            if !BUILT_IN.contains(&directive.name.as_str()) {
                print_description(&mut sdl, "", directive.description.as_deref());
                let _ = write!(sdl, "directive @{}", directive.name);
                print_arguments(&mut sdl, "", &directive.args);
                let _ = writeln!(sdl, " on {}\n", directive.locations.join(" | "));
            }
        }
        for ty in &self.schema.types {
            if !ty.name.starts_with("__") && !BUILT_IN.contains(&ty.name.as_str()) {
                ty.print(&mut sdl);
            }
        }
        sdl
    }
}

impl IntrospectedSchema {
    /// Prints the root types if one does not have its default name.
    fn print_roots(&self, sdl: &mut String) {
        let roots = [
            ("query", "Query", &self.query_type),
            ("mutation", "Mutation", &self.mutation_type),
            ("subscription", "Subscription", &self.subscription_type),
        ];
        let is_default = |&(_, default, ty): &(&str, &str, &Option<TypeName>)| {
            ty.as_ref().is_none_or(|it| it.name == default)
        };
        if roots.iter().all(is_default) {
            return;
        }
        sdl.push_str("schema {\n");
        for (operation, _, ty) in roots {
            if let Some(ty) = ty {
                let _ = writeln!(sdl, "  {operation}: {}", ty.name);
            }
        }
        sdl.push_str("}\n\n");
    }
}

impl IntrospectedType {
    fn print(&self, sdl: &mut String) {
        print_description(sdl, "", self.description.as_deref());
        let keyword = match self.kind {
            TypeKind::Scalar => "scalar",
            TypeKind::Object => "type",
            TypeKind::Interface => "interface",
            TypeKind::Union => "union",
            TypeKind::Enum => "enum",
            TypeKind::InputObject => "input",
            // Only references have these kinds.
            TypeKind::List | TypeKind::NonNull => return,
        };
        let _ = write!(sdl, "{keyword} {}", self.name);
        let names = |types: &Option<Vec<TypeName>>, separator| {
            let names = types.iter().flatten().map(|it| it.name.as_str());
            names.collect::<Vec<_>>().join(separator)
        };
        let interfaces = names(&self.interfaces, " & ");
        if !interfaces.is_empty() {
            let _ = write!(sdl, " implements {interfaces}");
        }
        if self.kind == TypeKind::Union {
            let _ = write!(sdl, " = {}", names(&self.possible_types, " | "));
        }
        let mut members = String::new();
        for field in self.fields.iter().flatten() {
            print_description(&mut members, "  ", field.description.as_deref());
            let _ = write!(members, "  {}", field.name);
            print_arguments(&mut members, "  ", &field.args);
            let _ = write!(members, ": {}", field.field_type.to_sdl());
            print_deprecation(
                &mut members,
                field.is_deprecated,
                field.deprecation_reason.as_deref(),
            );
        }
        for value in self.input_fields.iter().flatten() {
            print_description(&mut members, "  ", value.description.as_deref());
            let _ = writeln!(members, "  {}", value.to_sdl());
        }
        for value in self.enum_values.iter().flatten() {
            print_description(&mut members, "  ", value.description.as_deref());
            let _ = write!(members, "  {}", value.name);
            print_deprecation(
                &mut members,
                value.is_deprecated,
                value.deprecation_reason.as_deref(),
            );
        }
        if !members.is_empty() {
            let _ = write!(sdl, " {{\n{members}}}");
        }
        sdl.push_str("\n\n");
    }
}

impl InputValue {
    fn to_sdl(&self) -> String {
        let text = format!("{}: {}", self.name, self.value_type.to_sdl());
        match &self.default_value {
            Some(default) => format!("{text} = {default}"),
            None => text,
        }
    }
}

impl TypeReference {
    fn to_sdl(&self) -> String {
        let inner = || self.of_type.as_ref().map(|it| it.to_sdl()).unwrap_or_default();
        match self.kind {
            TypeKind::List => format!("[{}]", inner()),
            TypeKind::NonNull => format!("{}!", inner()),
            _ => self.name.clone().unwrap_or_default(),
        }
    }
}

/// Prints the arguments of a field or directive: in one line if none has a description.
fn print_arguments(sdl: &mut String, indentation: &str, arguments: &[InputValue]) {
    if arguments.is_empty() {
        return;
    }
    if arguments.iter().all(|it| it.description.is_none()) {
        let texts: Vec<_> = arguments.iter().map(InputValue::to_sdl).collect();
        let _ = write!(sdl, "({})", texts.join(", "));
        return;
    }
    sdl.push_str("(\n");
    let inner = format!("{indentation}  ");
    for argument in arguments {
        print_description(sdl, &inner, argument.description.as_deref());
        let _ = writeln!(sdl, "{inner}{}", argument.to_sdl());
    }
    let _ = write!(sdl, "{indentation})");
}

fn print_deprecation(sdl: &mut String, is_deprecated: bool, reason: Option<&str>) {
    match reason {
        _ if !is_deprecated => {}
        Some(reason) => {
            let _ = write!(sdl, " @deprecated(reason: {})", quote(reason));
        }
        None => sdl.push_str(" @deprecated"),
    }
    sdl.push('\n');
}

fn print_description(sdl: &mut String, indentation: &str, description: Option<&str>) {
    if let Some(description) = description.filter(|it| !it.is_empty()) {
        let _ = writeln!(sdl, "{indentation}{}", quote(description));
    }
}

/// Writes a text as a GraphQL string. JSON's escapes are a subset of GraphQL's.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn an_introspected_schema_becomes_sdl() {
        let response = r#"{"__schema": {
            "queryType": {"name": "Root"}, "mutationType": null, "subscriptionType": null,
            "types": [
                {"kind": "OBJECT", "name": "Root", "description": "The \"root\".", "interfaces": [], "fields": [
                    {"name": "birds", "args": [
                        {"name": "first", "type": {"kind": "SCALAR", "name": "Int"}, "defaultValue": "10"},
                        {"name": "filter", "description": "Which birds.", "type": {"kind": "INPUT_OBJECT", "name": "Filter"}}
                    ], "type": {"kind": "NON_NULL", "ofType": {"kind": "LIST", "ofType": {"kind": "INTERFACE", "name": "Bird"}}}},
                    {"name": "old", "args": [], "type": {"kind": "ENUM", "name": "Size"}, "isDeprecated": true, "deprecationReason": "gone"}
                ]},
                {"kind": "INTERFACE", "name": "Bird", "fields": [{"name": "id", "type": {"kind": "SCALAR", "name": "ID"}}]},
                {"kind": "OBJECT", "name": "Owl", "interfaces": [{"name": "Bird"}], "fields": [{"name": "id", "type": {"kind": "SCALAR", "name": "ID"}}]},
                {"kind": "UNION", "name": "Any", "possibleTypes": [{"name": "Owl"}, {"name": "Root"}]},
                {"kind": "ENUM", "name": "Size", "enumValues": [{"name": "S"}, {"name": "L", "isDeprecated": true}]},
                {"kind": "INPUT_OBJECT", "name": "Filter", "inputFields": [{"name": "size", "type": {"kind": "ENUM", "name": "Size"}, "defaultValue": "S"}]},
                {"kind": "SCALAR", "name": "Time"},
                {"kind": "SCALAR", "name": "ID"},
                {"kind": "OBJECT", "name": "__Type", "fields": []}
            ],
            "directives": [
                {"name": "skip", "locations": ["FIELD"], "args": []},
                {"name": "upper", "locations": ["FIELD", "QUERY"], "args": []}
            ]
        }}"#;
        let data: SchemaData = serde_json::from_str(response).unwrap();
        expect![[r#"
            schema {
              query: Root
            }

            directive @upper on FIELD | QUERY

            "The \"root\"."
            type Root {
              birds(
                first: Int = 10
                "Which birds."
                filter: Filter
              ): [Bird]!
              old: Size @deprecated(reason: "gone")
            }

            interface Bird {
              id: ID
            }

            type Owl implements Bird {
              id: ID
            }

            union Any = Owl | Root

            enum Size {
              S
              L @deprecated
            }

            input Filter {
              size: Size = S
            }

            scalar Time

        "#]]
        .assert_eq(&data.to_sdl());
    }
}
