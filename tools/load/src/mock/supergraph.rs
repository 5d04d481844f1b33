//! Splits a supergraph into the schema of each of its subgraphs, by the directives of the join specification (versions
//! 0.1 to 0.5).
//!
//! The result is not the text of the subgraph's authors, but it responds to the same fetches: it has the subgraph's
//! types, fields and keys, and the fields that it knows from representations only. Descriptions and access rules are
//! left out.

use std::collections::HashSet;
use std::fmt::Write as _;

use apollo_compiler::Schema;
use apollo_compiler::ast::{Directive, FieldDefinition, InputValueDefinition};
use apollo_compiler::schema::{Component, ExtendedType};
use apollo_compiler::{Name, Node};

/// One subgraph of a supergraph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubgraphSchema {
    /// The name of the subgraph.
    pub name: String,
    /// The URL in the supergraph; empty for a subgraph without a server.
    pub url: String,
    /// The schema of the subgraph.
    pub sdl: String,
}

/// The prefixes of names that belong to the specifications and not to the graph.
const SPECIFICATION_PREFIXES: [&str; 7] =
    ["join__", "link__", "core__", "federation__", "connect__", "context__", "__"];

/// Splits a supergraph into its subgraphs.
///
/// # Errors
/// The text is not a supergraph: a message, or the messages of the parser.
pub fn subgraphs(supergraph: &str) -> Result<Vec<SubgraphSchema>, String> {
    let schema = Schema::builder()
        .adopt_orphan_extensions()
        .ignore_builtin_redefinitions()
        .parse(supergraph, "supergraph.graphql")
        .build()
        .map_err(|error| error.errors.to_string())?;
    let graphs = schema.get_enum("join__Graph").ok_or(
        "this is not a supergraph: it has no enum `join__Graph` (use --schema for the schema of one subgraph)",
    )?;
    let mut subgraphs = Vec::new();
    for (id, value) in &graphs.values {
        let text = |name: &str| {
            let directive = value.directives.get("join__graph")?;
            directive.specified_argument_by_name(name)?.as_str().map(str::to_owned)
        };
        let name = text("name").unwrap_or_else(|| id.to_lowercase());
        let sdl = SubgraphExtraction { schema: &schema, graph: id }.sdl();
        subgraphs.push(SubgraphSchema { name, url: text("url").unwrap_or_default(), sdl });
    }
    Ok(subgraphs)
}

/// The extraction of one subgraph.
struct SubgraphExtraction<'a> {
    schema: &'a Schema,
    graph: &'a Name,
}

/// The relation of a type to the extracted subgraph.
#[derive(Default)]
struct TypeMembership<'a> {
    keys: Vec<(&'a str, bool)>,
    interface_object: bool,
    /// Join 0.1: fields without directives belong to this subgraph only.
    owner: Option<&'a Name>,
}

impl<'a> SubgraphExtraction<'a> {
    fn sdl(&self) -> String {
        let mut sdl = String::new();
        let definition = &self.schema.schema_definition;
        let roots: Vec<(&str, &Name)> = [
            ("query", &definition.query),
            ("mutation", &definition.mutation),
            ("subscription", &definition.subscription),
        ]
        .into_iter()
        .filter_map(|(operation, root)| Some((operation, &root.as_ref()?.name)))
        .collect();
        let mut present = HashSet::new();
        for (name, definition) in &self.schema.types {
            if definition.is_built_in()
                || SPECIFICATION_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            {
                continue;
            }
            let Some(membership) = self.membership(definition) else { continue };
            let text = self.definition(name, definition, &membership);
            if !text.is_empty() {
                present.insert(name);
                sdl.push_str(&text);
            }
        }
        // A `schema` definition is only written if a root type does not have its default name.
        let renamed = roots.iter().any(|(operation, name)| !name.eq_ignore_ascii_case(operation));
        let mut roots = roots.iter().filter(|(_, name)| present.contains(name)).peekable();
        if renamed && roots.peek().is_some() {
            sdl.push_str("schema {");
            for (operation, name) in roots {
                let _ = write!(sdl, " {operation}: {name}");
            }
            sdl.push_str(" }\n");
        }
        sdl
    }

    /// Returns the relation of this subgraph to a type; `None` if it does not know the type.
    fn membership(&self, definition: &'a ExtendedType) -> Option<TypeMembership<'a>> {
        let directives = definition.directives();
        let mut membership = TypeMembership::default();
        let mut named = false;
        let mut ours = false;
        for directive in directives.get_all("join__type") {
            named = true;
            if !self.is_of_subgraph(directive) {
                continue;
            }
            ours = true;
            let flag = |name: &str| {
                directive.specified_argument_by_name(name).and_then(|value| value.to_bool())
            };
            membership.interface_object |= flag("isInterfaceObject") == Some(true);
            if let Some(key) = text(directive, "key") {
                membership.keys.push((key, flag("resolvable") != Some(false)));
            }
        }
        membership.owner = directives
            .get("join__owner")
            .and_then(|owner| owner.specified_argument_by_name("graph")?.as_enum());
        // Join 0.1 has no directives on types that are not entities: a subgraph with a field of that type has the
        // type.
        (ours || !named).then_some(membership)
    }

    /// True if this subgraph has the type.
    fn has_type(&self, name: &Name) -> bool {
        self.schema.types.get(name).is_some_and(|definition| self.membership(definition).is_some())
    }

    fn definition(
        &self,
        name: &Name,
        definition: &ExtendedType,
        membership: &TypeMembership<'_>,
    ) -> String {
        let mut keys = String::new();
        for (key, resolvable) in &membership.keys {
            let _ = write!(keys, " @key(fields: {}", quote(key));
            keys.push_str(if *resolvable { ")" } else { ", resolvable: false)" });
        }
        match definition {
            ExtendedType::Scalar(_) => format!("scalar {name}\n"),
            ExtendedType::Object(object) => {
                let implements: Vec<&Name> =
                    object.implements_interfaces.iter().map(|name| &name.name).collect();
                let implements = self.implements(&object.directives, implements);
                let fields = self.fields(object.fields.values(), membership);
                block(&format!("type {name}{implements}{keys}"), &fields)
            }
            ExtendedType::Interface(interface) => {
                let implements: Vec<&Name> =
                    interface.implements_interfaces.iter().map(|name| &name.name).collect();
                let implements = self.implements(&interface.directives, implements);
                let fields = self.fields(interface.fields.values(), membership);
                match membership.interface_object {
                    true => block(&format!("type {name}{keys}"), &fields),
                    false => block(&format!("interface {name}{implements}"), &fields),
                }
            }
            ExtendedType::Union(union) => {
                let named: Vec<&Node<Directive>> = union
                    .directives
                    .get_all("join__unionMember")
                    .map(|directive| &directive.node)
                    .collect();
                let members: Vec<&str> = union
                    .members
                    .iter()
                    .map(|member| member.name.as_str())
                    .filter(|member| {
                        named.is_empty()
                            || named.iter().any(|directive| {
                                self.is_of_subgraph(directive)
                                    && text(directive, "member") == Some(member)
                            })
                    })
                    .collect();
                match members.is_empty() {
                    true => String::new(),
                    false => format!("union {name} = {}\n", members.join(" | ")),
                }
            }
            ExtendedType::Enum(values) => {
                let values: Vec<String> = values
                    .values
                    .values()
                    .filter(|value| {
                        let mut named = value.directives.get_all("join__enumValue").peekable();
                        named.peek().is_none()
                            || named.any(|directive| self.is_of_subgraph(directive))
                    })
                    .map(|value| value.value.to_string())
                    .collect();
                block(&format!("enum {name}"), &values)
            }
            ExtendedType::InputObject(input) => {
                let fields: Vec<String> = input
                    .fields
                    .values()
                    .filter(|field| {
                        let mut named = field.directives.get_all("join__field").peekable();
                        named.peek().is_none()
                            || named.any(|directive| self.is_of_subgraph(directive))
                    })
                    .map(|field| input_value(field))
                    .collect();
                block(&format!("input {name}"), &fields)
            }
        }
    }

    fn implements(
        &self,
        directives: &apollo_compiler::schema::DirectiveList,
        declared: Vec<&Name>,
    ) -> String {
        let mut named = directives.get_all("join__implements").peekable();
        let interfaces: Vec<&str> = match named.peek() {
            Some(_) => named
                .filter(|directive| self.is_of_subgraph(directive))
                .filter_map(|directive| text(directive, "interface"))
                .collect(),
            None => {
                declared.into_iter().filter(|name| self.has_type(name)).map(Name::as_str).collect()
            }
        };
        if interfaces.is_empty() {
            String::new()
        } else {
            format!(" implements {}", interfaces.join(" & "))
        }
    }

    /// Returns the fields that this subgraph resolves or receives in representations.
    fn fields<'f>(
        &self,
        fields: impl Iterator<Item = &'f Component<FieldDefinition>>,
        membership: &TypeMembership<'_>,
    ) -> Vec<String> {
        let in_key = |name: &Name| {
            membership.keys.iter().any(|(key, _)| {
                key.split(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .any(|word| word == name.as_str())
            })
        };
        fields
            .filter(|field| !field.name.starts_with("__"))
            .filter_map(|field| {
                let mut directives = field.directives.get_all("join__field").peekable();
                let unmarked = directives.peek().is_none();
                let ours = directives.find(|directive| self.is_of_subgraph(directive));
                let (external, ty) = match ours {
                    Some(ours) => {
                        let external = ours.specified_argument_by_name("external");
                        let external = external.and_then(|value| value.to_bool()) == Some(true);
                        (
                            external,
                            text(ours, "type").map_or_else(|| field.ty.to_string(), str::to_owned),
                        )
                    }
                    None if unmarked
                        && membership.owner.is_none_or(|owner| owner == self.graph) =>
                    {
                        (false, field.ty.to_string())
                    }
                    // Join 0.1 does not repeat the key's fields for subgraphs that only refer to the entity.
                    None if in_key(&field.name) => (true, field.ty.to_string()),
                    None => return None,
                };
                // An external field is not selected here, so an argument with a type that is missing here may be
                // dropped.
                let arguments: Vec<String> = field
                    .arguments
                    .iter()
                    .filter(|argument| self.has_type(argument.ty.inner_named_type()))
                    .map(|argument| input_value(argument))
                    .collect();
                let arguments = match arguments.is_empty() {
                    true => String::new(),
                    false => format!("({})", arguments.join(", ")),
                };
                let external = if external { " @external" } else { "" };
                Some(format!("{}{arguments}: {ty}{external}", field.name))
            })
            .collect()
    }

    fn is_of_subgraph(&self, directive: &Directive) -> bool {
        let graph = directive.specified_argument_by_name("graph");
        graph.and_then(|graph| graph.as_enum()) == Some(self.graph)
    }
}

fn text<'a>(directive: &'a Directive, argument: &str) -> Option<&'a str> {
    directive.specified_argument_by_name(argument)?.as_str()
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text.split_whitespace().collect::<Vec<_>>().join(" ")).to_string()
}

fn input_value(value: &InputValueDefinition) -> String {
    let default = match &value.default_value {
        Some(default) => format!(" = {}", default.serialize().no_indent()),
        None => String::new(),
    };
    format!("{}: {}{default}", value.name, value.ty)
}

/// Formats a definition with its members; empty if there are none.
fn block(head: &str, members: &[String]) -> String {
    if members.is_empty() {
        return String::new();
    }
    format!("{head} {{\n  {}\n}}\n", members.join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BENCHMARK: &str =
        include_str!("../../../../fixtures/federation-benchmark/supergraph.graphql");

    fn sdl_of(supergraph: &str, name: &str) -> String {
        let all = subgraphs(supergraph).unwrap();
        all.into_iter().find(|subgraph| subgraph.name == name).unwrap().sdl
    }

    #[test]
    fn a_subgraph_has_its_own_fields_keys_and_externals() {
        let expected = "\
type Product @key(fields: \"upc\") {
  upc: String!
  weight: Int @external
  price: Int @external
  inStock: Boolean
  shippingEstimate: Int
}
";
        let found = sdl_of(BENCHMARK, "inventory");
        let lines = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(&found), lines(expected), "{found}");
    }

    #[test]
    fn members_values_and_interfaces_are_those_of_the_subgraph() {
        let supergraph = r#"
            enum join__Graph { A @join__graph(name: "a", url: "x") B @join__graph(name: "b", url: "") }
            type Query @join__type(graph: A) @join__type(graph: B) { s: [S] @join__field(graph: A) }
            union S @join__type(graph: A) @join__unionMember(graph: A, member: "X") = X | Y
            enum E @join__type(graph: A) @join__type(graph: B)
              { ONE @join__enumValue(graph: A) TWO @join__enumValue(graph: B) }
            interface N @join__type(graph: A) @join__type(graph: B, key: "id", isInterfaceObject: true)
              { id: ID! extra: Int @join__field(graph: B) }
            type X implements N @join__implements(graph: A, interface: "N") @join__type(graph: A, key: "id")
              { id: ID! e(in: E = ONE): E }
            type Y @join__type(graph: B, key: "id", resolvable: false) { id: ID! }
        "#;
        assert_eq!(
            sdl_of(supergraph, "a"),
            "type Query {\n  s: [S]\n}\nunion S = X\nenum E {\n  ONE\n}\ninterface N {\n  id: ID!\n}\n\
             type X implements N @key(fields: \"id\") {\n  id: ID!\n  e(in: E = ONE): E\n}\n"
        );
        assert_eq!(
            sdl_of(supergraph, "b"),
            "enum E {\n  TWO\n}\ntype N @key(fields: \"id\") {\n  id: ID!\n  extra: Int\n}\n\
             type Y @key(fields: \"id\", resolvable: false) {\n  id: ID!\n}\n"
        );
    }

    #[test]
    fn a_text_that_is_not_a_supergraph_is_refused() {
        assert!(subgraphs("type Query { a: Int }").unwrap_err().contains("join__Graph"));
        assert!(subgraphs("type {").is_err());
    }
}
