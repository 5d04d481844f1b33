//! GraphQL's own rules, by the validator of `apollo-compiler`. The subgraph is completed before: definitions of
//! federation, event and cache directives, base definitions of extended types, and a query root.

use std::fmt::Write as _;

use apollo_compiler::{
    Schema,
    ast::{self, Definition},
    diagnostic::ToCliReport as _,
    parser::Parser,
};

use crate::{
    cache_spec,
    code::Code,
    event_spec,
    federation_spec::{FederationDirective, FederationVersion, TYPES},
    finding::Findings,
    links::Links,
    similar_names::find_similar,
};

/// Checks `document` by the rules of GraphQL.
pub(super) fn check(
    subgraph: usize,
    document: &ast::Document,
    links: &Links,
    is_event_subgraph: bool,
    findings: &mut Findings<'_>,
) {
    let added = missing_definitions(document, links, is_event_subgraph);
    // The text is made of constants and names that the parser accepted before.
    let Ok(added) = Parser::new().parse_ast(added, "federation.graphql") else { return };
    let is_replaced = |definition: &&Definition| !is_replaced(definition, links, is_event_subgraph);
    let own = ast::Document {
        sources: document.sources.clone(),
        definitions: document.definitions.iter().filter(is_replaced).cloned().collect(),
    };
    let built = Schema::builder()
        .adopt_orphan_extensions()
        .ignore_builtin_redefinitions()
        .add_ast(&own)
        .add_ast(&added)
        .build();
    let errors = match built {
        Ok(schema) => match schema.validate() {
            Ok(_) => return,
            Err(failed) => failed.errors,
        },
        Err(failed) => failed.errors,
    };
    for diagnostic in errors.iter() {
        let place = diagnostic.error.location();
        let advice = match findings.is_full() {
            true => String::new(),
            false => find_advice(&diagnostic.error.to_string(), document, links),
        };
        let is_own =
            |it: &apollo_compiler::parser::SourceSpan| document.sources.contains_key(&it.file_id());
        findings.error(
            Code::INVALID_GRAPHQL,
            [(subgraph, place.filter(is_own))],
            format!(
                "the schema of subgraph `{}` is not valid: {}",
                findings.subgraph_name(subgraph),
                diagnostic.error
            ),
            advice,
        );
    }
}

/// Returns advice on an error of the validator.
fn find_advice(message: &str, document: &ast::Document, links: &Links) -> String {
    let name_after = |start: &str| message.strip_prefix(start).and_then(|it| it.split('`').next());
    if let Some(name) = name_after("cannot find type `") {
        let known = document.definitions.iter().filter_map(Definition::name);
        let known = known.map(apollo_compiler::Name::as_str).filter(|known| *known != name);
        return match find_similar(name, known) {
            Some(similar) => format!("did you mean `{similar}`?"),
            None => "each subgraph defines all types that it uses, also those that other subgraphs have: define the type \
                 here"
                .to_owned(),
        };
    }
    let Some(name) = name_after("cannot find directive `@") else { return String::new() };
    let Some(directive) = FederationDirective::named(name) else {
        let known = links.directives().map(|(known, _)| known);
        return match find_similar(name, known) {
            Some(similar) => format!("did you mean `@{similar}`?"),
            None => format!("define it with `directive @{name} on …`, or import it in `@link`"),
        };
    };
    let spec = directive.spec();
    let name = spec.name;
    match links.version {
        FederationVersion::One => format!(
            "this subgraph links no federation version, so it is one of Federation 1; add `extend schema @link(url: \
             \"https://specs.apollo.dev/federation/v2.{}\", import: [\"@{name}\"])`",
            spec.since.max(LINKED_MINOR)
        ),
        FederationVersion::Two(minor) if minor < spec.since => format!(
            "`@{name}` exists since version v2.{} of the federation specification, and this subgraph links v2.{minor}",
            spec.since
        ),
        FederationVersion::Two(_) => format!(
            "add \"@{name}\" to the imports of the federation link, or write `@federation__{name}`"
        ),
    }
}

/// The minor version that advice recommends.
const LINKED_MINOR: u32 = 7;

/// True if composition uses its own definition instead.
fn is_replaced(definition: &Definition, links: &Links, is_event_subgraph: bool) -> bool {
    match definition {
        Definition::DirectiveDefinition(it) => {
            links.directive_named(&it.name).is_some() || it.name == links.link_directive.as_str()
        }
        _ if definition
            .name()
            .is_some_and(|name| TYPES.iter().any(|it| *name == links.type_name(it))) =>
        {
            true
        }
        Definition::ScalarTypeDefinition(it) => {
            TYPES.iter().any(|name| it.name == links.type_name(name))
                || it.name == format!("{}__Import", links.link_directive).as_str()
                || (is_event_subgraph && it.name == "events__Any")
        }
        Definition::EnumTypeDefinition(it) => {
            it.name == format!("{}__Purpose", links.link_directive).as_str()
        }
        _ => false,
    }
}

/// Returns the definitions that the subgraph uses without giving them.
fn missing_definitions(document: &ast::Document, links: &Links, is_event_subgraph: bool) -> String {
    let mut text = String::new();
    let link = &links.link_directive;
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "directive @{link}(url: String, as: String, for: {link}__Purpose, import: [{link}__Import]) repeatable on SCHEMA\n\
         scalar {link}__Import enum {link}__Purpose {{ SECURITY EXECUTION }}"
    );
    for name in TYPES {
        let _ = writeln!(text, "scalar {}", links.type_name(name));
    }
    for (name, directive) in links.directives() {
        let spec = directive.spec();
        let is_early = |minor| matches!(links.version, FederationVersion::Two(it) if it < minor);
        let arguments =
            spec.arguments.iter().filter(|(argument, _)| !(*argument == "label" && is_early(7)));
        let arguments: Vec<_> = arguments
            .map(|(argument, ty)| {
                let mut ty = (*ty).to_owned();
                for own in TYPES {
                    ty = ty.replace(&format!("${own}"), links.type_name(own));
                }
                format!("{argument}: {ty}")
            })
            .collect();
        let arguments = match arguments.is_empty() {
            true => String::new(),
            false => format!("({})", arguments.join(", ")),
        };
        let repeatable = if spec.is_repeatable { " repeatable" } else { "" };
        let _ = writeln!(text, "directive @{name}{arguments}{repeatable} on {}", spec.locations);
    }
    if is_event_subgraph {
        add_event_definitions(document, &mut text);
    }
    cache_spec::add_definitions(document, &mut text);
    add_query_root(document, &mut text);
    text
}

/// Adds the event definitions that the subgraph does not have.
fn add_event_definitions(document: &ast::Document, text: &mut String) {
    for line in event_spec::DEFINITIONS.lines() {
        let mut words = line.split([' ', '(']);
        let (Some(_), Some(name)) = (words.next(), words.next()) else { continue };
        let name = name.trim_start_matches('@');
        let is_given = name != "events__Any"
            && document.definitions.iter().any(|it| {
                !it.is_extension_definition() && it.name().is_some_and(|given| given == name)
            });
        if !is_given {
            text.push_str(line);
            text.push('\n');
        }
    }
}

/// Adds a query root if the subgraph has none: only the supergraph needs one.
fn add_query_root(document: &ast::Document, text: &mut String) {
    let mut has_schema_definition = false;
    let mut has_query = false;
    for definition in &document.definitions {
        let roots = match definition {
            Definition::SchemaDefinition(it) => {
                has_schema_definition = true;
                &it.root_operations
            }
            Definition::SchemaExtension(it) => &it.root_operations,
            Definition::ObjectTypeDefinition(it)
                if it.name == "Query" && !has_schema_definition =>
            {
                has_query = true;
                continue;
            }
            Definition::ObjectTypeExtension(it) if it.name == "Query" => {
                has_query = true;
                continue;
            }
            _ => continue,
        };
        if !roots.is_empty() {
            has_schema_definition = true;
        }
        has_query |= roots.iter().any(|root| root.0.is_query());
    }
    if !has_query {
        text.push_str("type Query { _unused: Int }\n");
        if has_schema_definition {
            text.push_str("extend schema { query: Query }\n");
        }
    }
}
