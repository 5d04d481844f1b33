//! Directives that reach the supergraph: those of the federation specification that concern routers and clients, the
//! standard ones of GraphQL, composed ones, event directives and hints about caching.

use apollo_compiler::{
    Name, Node,
    ast::{IntValue, Value},
};

use super::context::MergeContext;
use crate::{
    cache_spec,
    code::Code,
    event_spec,
    federation_spec::FederationDirective as D,
    finding::{Findings, Severity, Spot},
    subgraph::model::{AppliedDirective, SubgraphModel},
    supergraph::MergedDirective,
};

/// The directives of one element in one subgraph.
pub(super) struct DirectiveSource<'a> {
    pub(super) subgraph: &'a SubgraphModel,
    pub(super) directives: &'a [AppliedDirective],
    pub(super) spot: Spot,
    /// True if the element is an external field there.
    pub(super) is_external: bool,
}

/// Merges the directives of one element. `element` names it in messages.
pub(super) fn merge(
    context: &MergeContext<'_>,
    sources: &[DirectiveSource<'_>],
    element: &dyn Fn() -> String,
    findings: &mut Findings<'_>,
) -> Vec<MergedDirective> {
    if sources.iter().all(|source| source.directives.is_empty()) {
        return Vec::new();
    }
    let mut merged = Vec::new();
    report_on_external(sources, element, findings);
    merge_repeatable(sources, D::Tag, "tag", &mut merged);
    for (directive, name) in
        [(D::Inaccessible, "inaccessible"), (D::Authenticated, "authenticated")]
    {
        if applications(sources, directive).next().is_some() {
            merged.push(MergedDirective::plain(name, Vec::new()));
        }
    }
    for (directive, name, argument) in
        [(D::RequiresScopes, "requiresScopes", "scopes"), (D::Policy, "policy", "policies")]
    {
        merge_requirements(sources, directive, name, argument, &mut merged);
    }
    for directive in [D::RequiresScopes, D::Policy, D::Cost, D::ListSize] {
        hint_merged_arguments(sources, directive, element, findings);
    }
    merge_cost(sources, &mut merged);
    merge_list_size(sources, &mut merged);
    for source in sources {
        for applied in of_kind(source.directives, D::Context) {
            let Some(name) = applied.text("name") else { continue };
            let name = format!("{}__{name}", source.subgraph.name);
            merged.push(MergedDirective::plain("context", vec![text_argument("name", &name)]));
        }
    }
    for name in ["deprecated", "specifiedBy", "oneOf"] {
        merge_standard(sources, name, element, &mut merged, findings);
    }
    merge_composed(context, sources, &mut merged);
    merge_carried(sources, &mut merged);
    merged
}

fn of_kind(directives: &[AppliedDirective], wanted: D) -> impl Iterator<Item = &AppliedDirective> {
    directives.iter().filter(move |it| it.known == Some(wanted))
}

fn applications<'s>(
    sources: &'s [DirectiveSource<'_>],
    wanted: D,
) -> impl Iterator<Item = &'s AppliedDirective> {
    sources.iter().flat_map(move |source| of_kind(source.directives, wanted))
}

fn text_argument(name: &str, value: &str) -> (String, Node<Value>) {
    (name.to_owned(), Node::new(Value::String(value.to_owned())))
}

/// Reports directives of the supergraph on external fields, which belong where the field is resolved.
fn report_on_external(
    sources: &[DirectiveSource<'_>],
    element: &dyn Fn() -> String,
    findings: &mut Findings<'_>,
) {
    for source in sources.iter().filter(|it| it.is_external) {
        let is_merged = |it: &&AppliedDirective| match it.known {
            Some(known) => ON_RESOLVED_FIELDS.contains(&known),
            None => it.node.name == "deprecated",
        };
        for applied in source.directives.iter().filter(is_merged) {
            findings.error(
                Code::MERGED_DIRECTIVE_APPLICATION_ON_EXTERNAL,
                [(source.subgraph.id, applied.node.location())],
                format!(
                    "{} is `@external` in subgraph `{}`, so `@{}` does not belong there",
                    element(),
                    source.subgraph.name,
                    applied.node.name
                ),
                "put the directive where the field is resolved",
            );
        }
    }
}

/// The federation directives that say something about the value or use of a field.
const ON_RESOLVED_FIELDS: [D; 7] =
    [D::Tag, D::Inaccessible, D::Authenticated, D::RequiresScopes, D::Policy, D::Cost, D::ListSize];

/// Reports that the supergraph has arguments which no subgraph has given exactly so.
fn hint_merged_arguments(
    sources: &[DirectiveSource<'_>],
    directive: D,
    element: &dyn Fn() -> String,
    findings: &mut Findings<'_>,
) {
    let mut all = applications(sources, directive);
    let Some(first) = all.next() else { return };
    if all.any(|it| it.node.arguments != first.node.arguments) {
        findings.hint(
            Code::MERGED_NON_REPEATABLE_DIRECTIVE_ARGUMENTS,
            Severity::Info,
            sources.iter().map(|source| source.spot),
            format!(
                "{} has `@{}` with different arguments, which are merged",
                element(),
                directive.spec().name
            ),
            "use the same arguments everywhere, unless the difference is intended",
        );
    }
}

/// The arguments of a directive, by name.
type Arguments = Vec<(String, Node<Value>)>;

fn arguments_of(applied: &AppliedDirective) -> Arguments {
    let arguments = applied.node.arguments.iter();
    arguments.map(|it| (it.name.to_string(), it.value.clone())).collect()
}

fn merge_repeatable(
    sources: &[DirectiveSource<'_>],
    directive: D,
    name: &str,
    merged: &mut Vec<MergedDirective>,
) {
    for applied in applications(sources, directive) {
        let one = MergedDirective::plain(name, arguments_of(applied));
        if !merged.contains(&one) {
            merged.push(one);
        }
    }
}

/// Merges requirements of clients, lists of alternatives that are lists of names. All subgraphs must be content, so an
/// alternative of the supergraph is a union of one alternative of each.
fn merge_requirements(
    sources: &[DirectiveSource<'_>],
    directive: D,
    name: &str,
    argument: &str,
    merged: &mut Vec<MergedDirective>,
) {
    let read = |applied: &AppliedDirective| -> Vec<Vec<String>> {
        let outer = applied.node.specified_argument_by_name(argument);
        let outer = outer.and_then(|it| it.as_list()).unwrap_or_default();
        let inner = |it: &Node<Value>| {
            let names = it.as_list().unwrap_or_default().iter().filter_map(|it| it.as_str());
            let mut names: Vec<_> = names.map(str::to_owned).collect();
            names.sort();
            names.dedup();
            names
        };
        outer.iter().map(inner).collect()
    };
    let mut combined: Option<Vec<Vec<String>>> = None;
    for applied in applications(sources, directive) {
        let given = read(applied);
        let Some(before) = combined.take() else {
            combined = Some(given);
            continue;
        };
        let mut product: Vec<Vec<String>> = Vec::new();
        for left in &before {
            for right in given.iter().take(ALTERNATIVES_MAX) {
                let mut both = [left.as_slice(), right.as_slice()].concat();
                both.sort();
                both.dedup();
                if !product.contains(&both) && product.len() < ALTERNATIVES_MAX {
                    product.push(both);
                }
            }
        }
        combined = Some(minimal(product));
    }
    if let Some(alternatives) = combined {
        let text = |it: &String| Node::new(Value::String(it.clone()));
        let list = |it: &Vec<String>| Node::new(Value::List(it.iter().map(text).collect()));
        let value = Node::new(Value::List(alternatives.iter().map(list).collect()));
        merged.push(MergedDirective::plain(name, vec![(argument.to_owned(), value)]));
    }
}

/// The maximum number of alternatives of a merged requirement. Beyond it alternatives are dropped, which only makes the
/// requirement stricter.
const ALTERNATIVES_MAX: usize = 256;

/// Removes the alternatives that contain another one.
fn minimal(alternatives: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let contains = |big: &[String], small: &[String]| small.iter().all(|it| big.contains(it));
    let is_needed = |(index, it): &(usize, &Vec<String>)| {
        let others = alternatives.iter().enumerate().filter(|(other, _)| other != index);
        others.into_iter().all(|(_, other)| other.len() >= it.len() || !contains(it, other))
    };
    alternatives.iter().enumerate().filter(is_needed).map(|(_, it)| it.clone()).collect()
}

fn integer(applied: &AppliedDirective, argument: &str) -> Option<i64> {
    match applied.node.specified_argument_by_name(argument).map(|it| &**it) {
        Some(Value::Int(value)) => value.as_str().parse().ok(),
        _ => None,
    }
}

fn integer_value(value: i64) -> Node<Value> {
    Node::new(Value::Int(IntValue::new_parsed(&value.to_string())))
}

/// Merges costs: the highest counts.
fn merge_cost(sources: &[DirectiveSource<'_>], merged: &mut Vec<MergedDirective>) {
    let weights = applications(sources, D::Cost).filter_map(|it| integer(it, "weight"));
    if let Some(weight) = weights.max() {
        let weight = vec![("weight".to_owned(), integer_value(weight))];
        merged.push(MergedDirective::plain("cost", weight));
    }
}

/// Merges list sizes: the largest assumed size, all slicing arguments and sized fields.
fn merge_list_size(sources: &[DirectiveSource<'_>], merged: &mut Vec<MergedDirective>) {
    let all: Vec<_> = applications(sources, D::ListSize).collect();
    if all.is_empty() {
        return;
    }
    if all.iter().all(|it| it.node.arguments == all[0].node.arguments) {
        merged.push(MergedDirective::plain("listSize", arguments_of(all[0])));
        return;
    }
    let mut arguments = Vec::new();
    if let Some(size) = all.iter().filter_map(|it| integer(it, "assumedSize")).max() {
        arguments.push(("assumedSize".to_owned(), integer_value(size)));
    }
    for name in ["slicingArguments", "sizedFields"] {
        let mut items: Vec<Node<Value>> = Vec::new();
        let lists = all.iter().filter_map(|it| it.node.specified_argument_by_name(name)?.as_list());
        for item in lists.flatten() {
            if !items.contains(item) {
                items.push(item.clone());
            }
        }
        if !items.is_empty() {
            arguments.push((name.to_owned(), Node::new(Value::List(items))));
        }
    }
    let is_required = |it: &&AppliedDirective| {
        let given = it.node.specified_argument_by_name("requireOneSlicingArgument");
        given.and_then(|it| it.to_bool()).unwrap_or(true)
    };
    let required = Value::Boolean(all.iter().all(is_required));
    arguments.push(("requireOneSlicingArgument".to_owned(), Node::new(required)));
    merged.push(MergedDirective::plain("listSize", arguments));
}

/// Merges a directive of GraphQL itself: the arguments that most subgraphs give, the first of equals.
fn merge_standard(
    sources: &[DirectiveSource<'_>],
    name: &str,
    element: &dyn Fn() -> String,
    merged: &mut Vec<MergedDirective>,
    findings: &mut Findings<'_>,
) {
    let mut counts: Vec<(Arguments, usize)> = Vec::new();
    let mut spots = Vec::new();
    for source in sources {
        for applied in source.directives.iter().filter(|it| it.node.name == name) {
            let arguments = arguments_of(applied);
            spots.push(source.spot);
            match counts.iter_mut().find(|(known, _)| *known == arguments) {
                Some((_, count)) => *count += 1,
                None => counts.push((arguments, 1)),
            }
        }
    }
    let Some(most) = counts.iter().map(|(_, count)| *count).max() else { return };
    if counts.len() > 1 {
        findings.hint(
            Code::INCONSISTENT_NON_REPEATABLE_DIRECTIVE_ARGUMENTS,
            Severity::Warning,
            spots,
            format!("{} has `@{name}` with different arguments; the supergraph has those that most subgraphs give", element()),
            "use the same arguments everywhere",
        );
    }
    let chosen = counts.into_iter().find(|(_, count)| *count == most);
    if let Some((arguments, _)) = chosen {
        merged.push(MergedDirective::plain(name, arguments));
    }
}

/// Adds the directives of `@composeDirective`.
fn merge_composed(
    context: &MergeContext<'_>,
    sources: &[DirectiveSource<'_>],
    merged: &mut Vec<MergedDirective>,
) {
    if context.composed.is_empty() {
        return;
    }
    for source in sources {
        for applied in source.directives.iter().filter(|it| it.known.is_none()) {
            let name: &Name = &applied.node.name;
            if !context.composed.is_composed(source.subgraph.id, name) {
                continue;
            }
            let one = MergedDirective::plain(name, arguments_of(applied));
            let is_repeatable = context.composed.is_repeatable(name);
            let is_known = merged.iter().any(|it| match is_repeatable {
                true => *it == one,
                false => it.name == one.name && it.graphs.is_none(),
            });
            if !is_known {
                merged.push(one);
            }
        }
    }
}

/// Adds the directives that travel as `@join__directive`, with the subgraphs that apply them.
fn merge_carried(sources: &[DirectiveSource<'_>], merged: &mut Vec<MergedDirective>) {
    let mut carried: Vec<MergedDirective> = Vec::new();
    for source in sources {
        for applied in source.directives {
            let name = match applied.known {
                Some(D::CacheTag) => "federation__cacheTag",
                None if event_spec::is_event_directive(&applied.node.name)
                    || cache_spec::is_cache_directive(&applied.node.name) =>
                {
                    &applied.node.name
                }
                _ => continue,
            };
            let arguments = arguments_of(applied);
            let same = carried.iter_mut().find(|it| it.name == name && it.arguments == arguments);
            match same.and_then(|it| it.graphs.as_mut()) {
                Some(graphs) => {
                    if !graphs.contains(&source.subgraph.id) {
                        graphs.push(source.subgraph.id);
                    }
                }
                None => carried.push(MergedDirective {
                    name: name.to_owned(),
                    arguments,
                    graphs: Some(vec![source.subgraph.id]),
                }),
            }
        }
    }
    merged.extend(carried);
}
