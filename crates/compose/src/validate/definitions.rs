//! Definitions of federation directives in a subgraph. They may be left out; if given, they must agree with the
//! specification, though arguments and locations that the subgraph does not use may be missing.

use apollo_compiler::ast::{self, Definition};

use crate::{
    code::Code,
    federation_spec::{DirectiveSpec, TYPES},
    finding::Findings,
    links::Links,
};

/// Checks all definitions of federation directives.
pub(super) fn check(
    subgraph: usize,
    document: &ast::Document,
    links: &Links,
    findings: &mut Findings<'_>,
) {
    check_types(subgraph, document, links, findings);
    check_roots(subgraph, document, findings);
    for definition in &document.definitions {
        let Definition::DirectiveDefinition(it) = definition else { continue };
        let Some(directive) = links.directive_named(&it.name) else { continue };
        if let Some(problem) = find_difference(it, directive.spec()) {
            findings.error(
                Code::DIRECTIVE_DEFINITION_INVALID,
                [(subgraph, it.name.location())],
                format!(
                    "the definition of `@{}` differs from the federation specification: {problem}",
                    it.name
                ),
                "remove the definition; composition knows the directive",
            );
        }
    }
}

fn find_difference(given: &ast::DirectiveDefinition, spec: &DirectiveSpec) -> Option<String> {
    for argument in &given.arguments {
        let known = spec.arguments.iter().find(|(name, _)| argument.name == *name);
        let Some((_, wanted)) = known else {
            return Some(format!("there is no argument `{}`", argument.name));
        };
        let wanted = wanted.split(" = ").next().unwrap_or_default();
        if !is_compatible(&argument.ty.to_string(), wanted) {
            let wanted = wanted.replace('$', "");
            return Some(format!("the argument `{}` has the type `{wanted}`", argument.name));
        }
    }
    let is_missing = |name: &str| given.arguments.iter().all(|it| it.name != name);
    let required = spec.arguments.iter().find(|(name, ty)| ty.ends_with('!') && is_missing(name));
    if let Some((name, _)) = required {
        return Some(format!("the argument `{name}` is missing"));
    }
    if given.repeatable && !spec.is_repeatable {
        return Some("the directive is not repeatable".to_owned());
    }
    let allowed: Vec<_> = spec.locations.split(" | ").collect();
    let excess = given.locations.iter().find(|it| !allowed.contains(&it.name()));
    excess.map(|location| format!("it has no location {}", location.name()))
}

/// True if an argument of type `given` may replace one of type `wanted`. Types of the specification may have any
/// name, or be `String`; nullability may be stricter.
fn is_compatible(given: &str, wanted: &str) -> bool {
    let shape = |text: &str| text.chars().filter(|c| matches!(c, '[' | ']')).collect::<String>();
    let named = |text: &str| text.replace(['[', ']', '!'], "");
    let is_same_name = wanted.contains('$') || named(given) == named(wanted);
    is_same_name && shape(given) == shape(wanted)
}

/// Checks that types of the federation specification are scalars.
fn check_types(
    subgraph: usize,
    document: &ast::Document,
    links: &Links,
    findings: &mut Findings<'_>,
) {
    for definition in &document.definitions {
        let Some(name) = definition.name() else { continue };
        let is_type = !matches!(
            definition,
            Definition::DirectiveDefinition(_)
                | Definition::ScalarTypeDefinition(_)
                | Definition::ScalarTypeExtension(_)
        );
        if is_type && TYPES.iter().any(|it| *name == links.type_name(it)) {
            findings.error(
                Code::TYPE_DEFINITION_INVALID,
                [(subgraph, name.location())],
                format!("`{name}` is a scalar of the federation specification, but the subgraph defines it differently"),
                "remove the definition, or import the scalar under another name with `as`",
            );
        }
    }
}

/// Checks that no type has the usual name of a root type while another type is that root.
fn check_roots(subgraph: usize, document: &ast::Document, findings: &mut Findings<'_>) {
    for definition in &document.definitions {
        let roots = match definition {
            Definition::SchemaDefinition(it) => &it.root_operations,
            Definition::SchemaExtension(it) => &it.root_operations,
            _ => continue,
        };
        for root in roots {
            let (usual, code) = match root.0 {
                ast::OperationType::Query => ("Query", Code::ROOT_QUERY_USED),
                ast::OperationType::Mutation => ("Mutation", Code::ROOT_MUTATION_USED),
                ast::OperationType::Subscription => ("Subscription", Code::ROOT_SUBSCRIPTION_USED),
            };
            let taken = document.definitions.iter().filter_map(Definition::name);
            let taken = taken.into_iter().find(|name| **name == usual);
            if let Some(taken) = taken.filter(|_| root.1 != usual) {
                findings.error(
                    code,
                    [(subgraph, taken.location()), (subgraph, root.1.location())],
                    format!("the root type is `{}`, but another type is named `{usual}`", root.1),
                    format!("rename the type `{usual}`: it is the name of the root type in the supergraph"),
                );
            }
        }
    }
}
