//! Reading supergraph SDL of the join specification v0.1 to v0.5. Field sets, links and directive arguments have files
//! of their own in this folder; [`crate::api`] derives the schema that clients see.

mod access_directives;
mod cache_hints;
mod costs;
mod declared_access;
mod directive_arguments;
mod directive_names;
mod event_fields;
mod field_sets;
mod interfaces;
pub(crate) mod links;
mod pending_field_sets;
mod possible_types;
mod reader;
mod subscription_endpoints;

use std::collections::HashMap;

use apollo_compiler::{Schema, parser::Parser, schema::ExtendedType};

use crate::{SchemaErrors, SubgraphKind, Supergraph, errors::ErrorCollector};
use links::Links;

/// The maximum size of a supergraph: ten times the largest public ones, far below the 32-bit offsets of the parser.
pub const SDL_BYTES_MAX: usize = 256 << 20;

/// The maximum nesting depth of values and types in a schema. Schemas written by people have about five levels.
const DEPTH_MAX: usize = 128;

/// Definitions that some composers leave out. They are added to schemas that use them without defining them.
const DEFINITIONS: &str = "
directive @link(url: String, as: String, for: link__Purpose, import: [link__Import]) repeatable on SCHEMA
scalar link__Import
enum link__Purpose { SECURITY EXECUTION }
scalar join__FieldSet
scalar join__DirectiveArguments
scalar join__FieldValue
input join__ContextArgument { name: String! type: String! context: String! selection: join__FieldValue! }
directive @context(name: String!) repeatable on INTERFACE | OBJECT | UNION
directive @join__graph(name: String!, url: String!) on ENUM_VALUE
directive @join__enumValue(graph: join__Graph!) repeatable on ENUM_VALUE
directive @join__field(graph: join__Graph, requires: join__FieldSet, provides: join__FieldSet, type: String, external: Boolean, override: String, usedOverridden: Boolean, overrideLabel: String, contextArguments: [join__ContextArgument!]) repeatable on FIELD_DEFINITION | INPUT_FIELD_DEFINITION
directive @join__implements(graph: join__Graph!, interface: String!) repeatable on OBJECT | INTERFACE
directive @join__type(graph: join__Graph!, key: join__FieldSet, extension: Boolean! = false, resolvable: Boolean! = true, isInterfaceObject: Boolean! = false) repeatable on OBJECT | INTERFACE | UNION | ENUM | INPUT_OBJECT | SCALAR
directive @join__unionMember(graph: join__Graph!, member: String!) repeatable on UNION
directive @join__directive(graphs: [join__Graph!], name: String!, args: join__DirectiveArguments) repeatable on SCHEMA | OBJECT | INTERFACE | UNION | FIELD_DEFINITION
directive @starling__subscription(protocol: String, url: String) on ENUM_VALUE
directive @inaccessible on FIELD_DEFINITION | OBJECT | INTERFACE | UNION | ARGUMENT_DEFINITION | SCALAR | ENUM | ENUM_VALUE | INPUT_OBJECT | INPUT_FIELD_DEFINITION
directive @tag(name: String!) repeatable on FIELD_DEFINITION | INTERFACE | OBJECT | UNION | ARGUMENT_DEFINITION | SCALAR | ENUM | ENUM_VALUE | INPUT_OBJECT | INPUT_FIELD_DEFINITION | SCHEMA
directive @authenticated on FIELD_DEFINITION | OBJECT | INTERFACE | SCALAR | ENUM
directive @requiresScopes(scopes: [[requiresScopes__Scope!]!]!) on FIELD_DEFINITION | OBJECT | INTERFACE | SCALAR | ENUM
directive @policy(policies: [[policy__Policy!]!]!) on FIELD_DEFINITION | OBJECT | INTERFACE | SCALAR | ENUM
scalar requiresScopes__Scope
scalar policy__Policy
directive @oneOf on INPUT_OBJECT
enum join__Graph { NONE }
type Query { none: Int }
";

impl Supergraph {
    /// Reads a supergraph. The parser uses `file_name` internally; errors do not repeat it.
    ///
    /// A subgraph with an empty URL and no event directives is accepted here, because the configuration may contain its
    /// URL: [`Supergraph::with_urls`] refuses it.
    ///
    /// # Errors
    /// All errors of the text, at most [`crate::ERRORS_MAX`] entries.
    pub fn from_sdl(sdl: &str, file_name: &str) -> Result<Self, SchemaErrors> {
        let mut errors = ErrorCollector::new(sdl);
        if sdl.len() > SDL_BYTES_MAX {
            errors.push(None, format!("the schema is larger than {SDL_BYTES_MAX} bytes"), None);
            errors.finish()?;
        }
        if let Some((message, help)) = detect_json(sdl) {
            errors.push(None, message, Some(help));
            errors.finish()?;
        }
        let mut builder = Schema::builder().ignore_builtin_redefinitions();
        Parser::new().recursion_limit(DEPTH_MAX).parse_into_schema_builder(
            sdl,
            file_name,
            &mut builder,
        );
        let mut schema = match builder.build() {
            Ok(schema) => schema,
            Err(failed) => {
                errors.push_diagnostics(&failed.errors);
                errors.finish()?;
                failed.partial
            }
        };
        let links = Links::read(&schema, &mut errors);
        if !matches!(
            schema.types.get(links.type_name("join", "Graph").as_str()),
            Some(ExtendedType::Enum(_))
        ) {
            errors.push(None, NOT_A_SUPERGRAPH, Some(HOW_TO_COMPOSE));
            errors.finish()?;
        }
        if schema.schema_definition.query.is_none() {
            errors.push(
                None,
                "the schema has no query root",
                Some("every supergraph has a type `Query` with fields"),
            );
        }
        errors.finish()?;
        add_missing_definitions(&mut schema);
        let schema = match schema.validate() {
            Ok(schema) => schema,
            Err(failed) => {
                errors.push_diagnostics(&failed.errors);
                errors.finish()?;
                // Validation does not fail without a reason; if it did, the reader would still check everything itself.
                apollo_compiler::validation::Valid::assume_valid(failed.partial)
            }
        };
        let supergraph = reader::read_schema(&schema, &links, &mut errors);
        errors.finish().map(|()| supergraph)
    }

    /// Replaces the URLs of the subgraphs named in `urls`. Names that no subgraph has are left to the caller.
    ///
    /// # Errors
    /// A subgraph that is not an event subgraph still has no URL.
    pub fn with_urls(mut self, urls: &HashMap<String, String>) -> Result<Self, SchemaErrors> {
        let mut errors = ErrorCollector::new("");
        for subgraph in &mut self.subgraphs {
            if let Some(url) = urls.get(&*subgraph.name) {
                subgraph.url = url.as_str().into();
            }
            if subgraph.kind == SubgraphKind::Server && subgraph.url.is_empty() {
                errors.push(
                    None,
                    format!("subgraph `{}` has no URL", subgraph.name),
                    Some("give it one in the supergraph or in the configuration; only event subgraphs, whose root fields have event directives, do without"),
                );
            }
        }
        errors.finish().map(|()| self)
    }
}

const NOT_A_SUPERGRAPH: &str =
    "this is not a supergraph: it has no `enum join__Graph` that lists subgraphs";
const HOW_TO_COMPOSE: &str = "a supergraph is what composition makes of the schemas of all subgraphs; compose them and load the result";

/// Recognises JSON documents and returns an error message with advice on what to load instead. No schema begins with a
/// brace.
fn detect_json(text: &str) -> Option<(&'static str, &'static str)> {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    if !start.starts_with('{') {
        return None;
    }
    // The members of the document that Cosmo's `wgc router compose` writes.
    Some(match text.contains("\"engineConfig\"") && text.contains("\"subgraphs\"") {
        true => (
            "this is an execution configuration of Cosmo's router (JSON), not a supergraph in SDL",
            "compose the same subgraph schemas into supergraph SDL with a tool that implements Apollo Federation, such as \
             `rover supergraph compose`, and load that file; directives for events (edfs__*) can stay as they are",
        ),
        false => ("this is JSON, not a supergraph in SDL", HOW_TO_COMPOSE),
    })
}

fn add_missing_definitions(schema: &mut Schema) {
    // The text is a constant of this file; if it did not parse, nothing would be added.
    let Ok(known) = Schema::parse(DEFINITIONS, "definitions.graphql") else { return };
    for (name, definition) in &known.directive_definitions {
        schema.directive_definitions.entry(name.clone()).or_insert_with(|| definition.clone());
    }
    for (name, definition) in &known.types {
        if name.contains("__") && !definition.is_built_in() {
            schema.types.entry(name.clone()).or_insert_with(|| definition.clone());
        }
    }
}
