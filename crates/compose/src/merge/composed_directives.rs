//! `@composeDirective`: type system directives of users that reach the supergraph.

use std::collections::{BTreeMap, HashSet};

use apollo_compiler::{Name, Node, ast};

use crate::{
    code::Code,
    event_spec,
    federation_spec::FederationDirective as D,
    finding::{Findings, Severity},
    links::LinkedSpec,
    subgraph::model::{AppliedDirective, SubgraphModel, all_of},
    supergraph::ComposedLink,
};

/// The composed directives.
#[derive(Debug, Default)]
pub(super) struct ComposedDirectives {
    /// The subgraphs that compose a directive, by its name.
    composed: HashSet<(usize, Name)>,
    pub(super) definitions: BTreeMap<Name, Node<ast::DirectiveDefinition>>,
    /// The specifications by identity: the newest version, its URL, and the imports.
    specs: BTreeMap<String, ComposedSpec>,
}

#[derive(Debug)]
struct ComposedSpec {
    url: String,
    version: (u32, u32),
    imports: Vec<(String, String)>,
}

impl ComposedDirectives {
    /// True if no directive is composed.
    pub(super) fn is_empty(&self) -> bool {
        self.composed.is_empty()
    }

    /// True if the subgraph composes the directive.
    pub(super) fn is_composed(&self, subgraph: usize, name: &Name) -> bool {
        self.composed.contains(&(subgraph, name.clone()))
    }

    /// True if the definition of the directive is repeatable.
    pub(super) fn is_repeatable(&self, name: &Name) -> bool {
        self.definitions.get(name).is_some_and(|it| it.repeatable)
    }

    /// Returns the links of the supergraph for these directives.
    pub(super) fn links(&self) -> Vec<ComposedLink> {
        let link =
            |it: &ComposedSpec| ComposedLink { url: it.url.clone(), imports: it.imports.clone() };
        self.specs.values().map(link).collect()
    }
}

/// The federation directives that are in every supergraph.
const REACHING_CLIENTS: [D; 6] =
    [D::Tag, D::Inaccessible, D::Authenticated, D::RequiresScopes, D::Policy, D::Context];

/// Finds and checks the composed directives of all subgraphs.
pub(super) fn find(subgraphs: &[SubgraphModel], findings: &mut Findings<'_>) -> ComposedDirectives {
    let mut composed = ComposedDirectives::default();
    for subgraph in subgraphs {
        for applied in all_of(&subgraph.schema_directives, D::ComposeDirective) {
            add(subgraph, applied, &mut composed, findings);
        }
    }
    warn_of_other_names(subgraphs, &composed, findings);
    composed
}

/// Warns of subgraphs that import a composed directive under another name without composing it.
fn warn_of_other_names(
    subgraphs: &[SubgraphModel],
    composed: &ComposedDirectives,
    findings: &mut Findings<'_>,
) {
    for subgraph in subgraphs {
        for spec in &subgraph.links.specs {
            let Some(known) = composed.specs.get(&spec.identity) else { continue };
            for (own, local) in &spec.imports {
                let other = known
                    .imports
                    .iter()
                    .find(|(name, name_there)| name == own && name_there != local);
                if let Some((_, name_there)) = other {
                    findings.hint(
                        Code::DIRECTIVE_COMPOSITION_WARN,
                        Severity::Warning,
                        [(subgraph.id, spec.place)],
                        format!("subgraph `{}` imports `{own}` as `{local}` and does not compose it, but the supergraph has it as `{name_there}`", subgraph.name),
                        format!("import it as `{name_there}`"),
                    );
                }
            }
        }
    }
}

fn add(
    subgraph: &SubgraphModel,
    applied: &AppliedDirective,
    composed: &mut ComposedDirectives,
    findings: &mut Findings<'_>,
) {
    let spot = [(subgraph.id, applied.node.location())];
    let mut refuse = |message: String, advice: &str| {
        findings.error(Code::DIRECTIVE_COMPOSITION_ERROR, spot, message, advice);
    };
    let Some(written) = applied.text("name") else {
        refuse(
            "`@composeDirective` names no directive".to_owned(),
            "give it the argument `name`, such as \"@mask\"",
        );
        return;
    };
    let Some(name) = written.strip_prefix('@') else {
        refuse(
            format!("`@composeDirective(name: \"{written}\")` names no directive"),
            "names of directives begin with `@`",
        );
        return;
    };
    if event_spec::is_event_directive(name) {
        // Event directives are composed anyway, in a form that keeps their subgraph.
        return;
    }
    if let Some(directive) = subgraph.links.directive_named(name) {
        let is_composed_anyway = REACHING_CLIENTS.contains(&directive);
        if is_composed_anyway {
            findings.hint(
                Code::DIRECTIVE_COMPOSITION_INFO,
                Severity::Info,
                spot,
                format!("`@{name}` reaches the supergraph anyway"),
                "remove this `@composeDirective`",
            );
        } else {
            refuse(
                format!(
                    "`@{name}` belongs to the federation specification and cannot be composed by `@composeDirective`"
                ),
                "remove this `@composeDirective`: composition itself knows what to do with the directive",
            );
        }
        return;
    }
    let Some((name, definition)) = subgraph.directive_definitions.get_key_value(name) else {
        refuse(
            format!("subgraph `{}` does not define `@{name}`", subgraph.name),
            "define the directive, or correct the name",
        );
        return;
    };
    let Some((spec, original)) = find_spec(subgraph, name) else {
        refuse(
            format!("`@{name}` belongs to no linked specification"),
            "link a specification of your own, such as `@link(url: \"https://example.com/mask/v1.0\", import: [\"@mask\"])`: \
             its URL identifies the directive among subgraphs",
        );
        return;
    };
    register(subgraph, applied, spec, original, (name, definition), composed, findings);
}

/// Adds a directive that may be composed, if it agrees with the other subgraphs.
fn register(
    subgraph: &SubgraphModel,
    applied: &AppliedDirective,
    spec: &LinkedSpec,
    original: String,
    (name, definition): (&Name, &Node<ast::DirectiveDefinition>),
    composed: &mut ComposedDirectives,
    findings: &mut Findings<'_>,
) {
    let spot = [(subgraph.id, applied.node.location())];
    let version = spec.version.unwrap_or_default();
    let local = format!("@{name}");
    let has_name = |it: &ComposedSpec| it.imports.iter().any(|(_, name)| *name == local);
    let mut others = composed.specs.iter().filter(|(identity, _)| **identity != spec.identity);
    if let Some((other, _)) = others.find(|(_, it)| has_name(it)) {
        findings.error(
            Code::DIRECTIVE_COMPOSITION_ERROR,
            spot,
            format!(
                "`{local}` belongs to `{}` in subgraph `{}`, and to `{other}` in another subgraph",
                spec.identity, subgraph.name
            ),
            "link the same specification in both subgraphs, or import one of the directives under another name",
        );
        return;
    }
    let known = composed.specs.entry(spec.identity.clone()).or_insert_with(|| ComposedSpec {
        url: spec.url.clone(),
        version,
        imports: Vec::new(),
    });
    if known.version.0 != version.0 {
        findings.error(
            Code::DIRECTIVE_COMPOSITION_ERROR,
            spot,
            format!("subgraphs link different major versions of `{}`", spec.identity),
            "link the same major version everywhere",
        );
        return;
    }
    let is_newer = version > known.version;
    if is_newer {
        known.version = version;
        known.url.clone_from(&spec.url);
    }
    match known.imports.iter().find(|(own, _)| *own == original) {
        None => known.imports.push((original, local.clone())),
        Some((_, other)) if *other == local => {}
        Some((_, other)) => {
            let message = format!(
                "`{original}` of `{}` is imported as `{other}` and as `{local}`",
                spec.identity
            );
            findings.error(
                Code::LINK_IMPORT_NAME_MISMATCH,
                spot,
                message,
                "import it under one name everywhere",
            );
            return;
        }
    }
    for argument in &definition.arguments {
        let is_hidden = argument
            .directives
            .iter()
            .any(|it| subgraph.links.directive_named(&it.name) == Some(D::Inaccessible));
        if is_hidden {
            findings.error(
                Code::DISALLOWED_INACCESSIBLE,
                [subgraph.spot(&argument.name)],
                format!("the argument `{}` of `{local}` is `@inaccessible`, but the directive is applied to the schema, which clients cannot do anyway", argument.name),
                "remove `@inaccessible`",
            );
        }
    }
    composed.composed.insert((subgraph.id, name.clone()));
    if is_newer || !composed.definitions.contains_key(name) {
        composed.definitions.insert(name.clone(), definition.clone());
    }
}

/// Returns the linked specification that a directive belongs to, and its name there.
fn find_spec<'a>(subgraph: &'a SubgraphModel, name: &Name) -> Option<(&'a LinkedSpec, String)> {
    let own = |spec: &&LinkedSpec| !matches!(spec.name.as_str(), "federation" | "link");
    let specs = subgraph.links.specs.iter().filter(own);
    specs.filter_map(|spec| Some((spec, spec.original_name(name)?))).next()
}

/// True if the location is in an operation.
pub(super) fn is_executable(location: ast::DirectiveLocation) -> bool {
    use ast::DirectiveLocation as L;
    matches!(
        location,
        L::Query
            | L::Mutation
            | L::Subscription
            | L::Field
            | L::FragmentDefinition
            | L::FragmentSpread
            | L::InlineFragment
            | L::VariableDefinition
    )
}
