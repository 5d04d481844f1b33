//! `@cacheControl`, `@cacheTag`, `@openfed__entityCache`, `@openfed__queryCache`, `@openfed__cacheInvalidate` and
//! `@openfed__cachePopulate`: places and arguments.

use apollo_compiler::ast::{Selection, Value};
use cache::{TagTemplate, TemplateScope};

use crate::{
    cache_spec::{CACHE_INVALIDATE, CACHE_POPULATE, is_cache_directive},
    code::Code,
    federation_spec::FederationDirective as D,
    finding::{Findings, Severity},
    subgraph::{
        field_sets,
        model::{
            AppliedDirective, FieldDefinition, SubgraphModel, TypeDefinition, TypeKind, all_of,
        },
    },
};

/// Checks the hints of a subgraph.
pub(super) fn check(subgraph: &SubgraphModel, findings: &mut Findings<'_>) {
    for ty in subgraph.types.values() {
        check_times(subgraph, &ty.name, &ty.directives, findings);
        for applied in all_of(&ty.directives, D::CacheTag) {
            check_entity_tag(subgraph, ty, applied, findings);
        }
        for field in ty.fields.values() {
            let coordinate = format!("{}.{}", ty.name, field.name);
            check_times(subgraph, &coordinate, &field.directives, findings);
            check_changed_entity(subgraph, ty, field, findings);
            for applied in all_of(&field.directives, D::CacheTag) {
                if ty.name == "Query" {
                    check_root_tag(subgraph, &coordinate, field, applied, findings);
                } else {
                    findings.error(
                        Code::CACHE_TAG_MISPLACED,
                        [(subgraph.id, applied.node.location())],
                        format!(
                            "`@{}` is on `{coordinate}`, which is not a field of `Query`",
                            applied.node.name
                        ),
                        "put it on the type of the entity, or on the root field that returns it",
                    );
                }
            }
        }
    }
}

fn check_times(
    subgraph: &SubgraphModel,
    coordinate: &str,
    directives: &[AppliedDirective],
    findings: &mut Findings<'_>,
) {
    let all = directives.iter().filter(|it| it.known.is_none());
    for applied in all.filter(|it| is_cache_directive(&it.node.name)) {
        let value = applied.node.specified_argument_by_name("maxAge").filter(|it| !it.is_null());
        let Some(value) = value else { continue };
        let is_valid =
            matches!(&**value, Value::Int(number) if number.as_str().parse::<u32>().is_ok());
        if !is_valid {
            findings.error(
                Code::CACHE_CONTROL_INVALID_MAX_AGE,
                [(subgraph.id, value.location())],
                format!(
                    "`maxAge` of `@{}` on `{coordinate}` is not a number of seconds",
                    applied.node.name
                ),
                "write a whole number, 0 or more",
            );
        }
    }
}

/// Checks a field with `@openfed__cacheInvalidate` or `@openfed__cachePopulate`: a mutation that returns an entity.
fn check_changed_entity(
    subgraph: &SubgraphModel,
    ty: &TypeDefinition,
    field: &FieldDefinition,
    findings: &mut Findings<'_>,
) {
    let names = [CACHE_INVALIDATE, CACHE_POPULATE];
    let own = field.directives.iter().filter(|it| it.known.is_none());
    let own: Vec<_> = own.filter(|it| names.contains(&&*it.node.name)).collect();
    let Some(applied) = own.first() else { return };
    let coordinate = format!("{}.{}", ty.name, field.name);
    let value = field.ty.inner_named_type();
    let entity = subgraph.types.get(value).filter(|it| it.kind == TypeKind::Object);
    let (message, advice) = if ty.name != "Mutation" {
        (
            format!(
                "`@{}` is on `{coordinate}`, which is not a field of `Mutation`",
                applied.node.name
            ),
            "put it on the mutations that change the entity; for events, use \
             `@events__subscribe(invalidate: true)` in an event subgraph",
        )
    } else if entity.is_none_or(|it| it.keys.is_empty()) {
        (
            format!(
                "`@{}` is on `{coordinate}`, and its type `{value}` is not an object with a `@key` in subgraph `{}`",
                applied.node.name, subgraph.name
            ),
            "return the entity that the mutation changes, or name what is stale in the response of the mutation",
        )
    } else if own.iter().any(|it| it.node.name != applied.node.name) {
        (
            format!("`{coordinate}` has `@{}` and `@{}`", names[0], names[1]),
            "use one of them: the second one also makes older values stale",
        )
    } else {
        return;
    };
    let place = (subgraph.id, applied.node.location());
    findings.error(Code::CACHE_CHANGE_MISPLACED, [place], message, advice);
}

/// Compiles the format of a tag. Mistakes become findings.
fn compile(
    subgraph: &SubgraphModel,
    coordinate: &str,
    applied: &AppliedDirective,
    scope: TemplateScope,
    findings: &mut Findings<'_>,
) -> Option<TagTemplate> {
    // A missing format is an error of GraphQL, reported there.
    let format = applied.text("format")?;
    let compiled = TagTemplate::compile(format, scope);
    if let Err(error) = &compiled {
        let message = format!("the tag \"{format}\" of `{coordinate}` is wrong: {error}");
        invalid_format(subgraph, applied, message, "correct the format", findings);
    }
    compiled.ok()
}

fn invalid_format(
    subgraph: &SubgraphModel,
    applied: &AppliedDirective,
    message: String,
    advice: &str,
    findings: &mut Findings<'_>,
) {
    let value = applied.node.specified_argument_by_name("format");
    let place = value.and_then(apollo_compiler::Node::location).or_else(|| applied.node.location());
    findings.error(Code::CACHE_TAG_INVALID_FORMAT, [(subgraph.id, place)], message, advice);
}

fn check_entity_tag(
    subgraph: &SubgraphModel,
    ty: &TypeDefinition,
    applied: &AppliedDirective,
    findings: &mut Findings<'_>,
) {
    let keys: Vec<_> = ty.keys.iter().filter(|key| key.is_resolvable).collect();
    if keys.is_empty() {
        findings.error(
            Code::CACHE_TAG_MISPLACED,
            [(subgraph.id, applied.node.location())],
            format!(
                "`@{}` is on `{}`, which has no resolvable key in subgraph `{}`",
                applied.node.name, ty.name, subgraph.name
            ),
            "give the type a `@key`, or put the tag on the root field that returns it",
        );
        return;
    }
    let scope = TemplateScope::Entity;
    let Some(template) = compile(subgraph, &ty.name, applied, scope, findings) else { return };
    // Keys that cannot be parsed are reported elsewhere.
    let keys: Vec<_> = keys.iter().filter_map(|key| field_sets::parse(&key.fields).ok()).collect();
    for path in template.paths() {
        let count = keys.iter().filter(|key| selects(key, path)).count();
        let name = path.join(".");
        if count == 0 && !keys.is_empty() {
            let message =
                format!("no key of `{}` has a scalar `{name}`, which a tag names", ty.name);
            let advice = "name a member of a `@key` of the type that has no members itself";
            invalid_format(subgraph, applied, message, advice, findings);
        } else if count < keys.len() {
            findings.hint(
                Code::CACHE_TAG_NOT_IN_EVERY_KEY,
                Severity::Warning,
                [(subgraph.id, applied.node.location())],
                format!("`{name}`, which a tag of `{}` names, is not in every key of the type", ty.name),
                "entities that the router requests by another key are not stored; name a member of all keys",
            );
        }
    }
}

/// True if a key has a field without members at the path.
fn selects(selections: &[Selection], path: &[Box<str>]) -> bool {
    let Some((first, rest)) = path.split_first() else { return false };
    selections.iter().any(|selection| match selection {
        Selection::Field(field) if field.name == **first => match rest.is_empty() {
            true => field.selection_set.is_empty(),
            false => selects(&field.selection_set, rest),
        },
        Selection::InlineFragment(fragment) => selects(&fragment.selection_set, path),
        _ => false,
    })
}

fn check_root_tag(
    subgraph: &SubgraphModel,
    coordinate: &str,
    field: &FieldDefinition,
    applied: &AppliedDirective,
    findings: &mut Findings<'_>,
) {
    let scope = TemplateScope::RootField;
    let Some(template) = compile(subgraph, coordinate, applied, scope, findings) else { return };
    for path in template.paths() {
        if !is_scalar_argument(subgraph, field, path) {
            let message = format!(
                "`{coordinate}` has no scalar argument `{}`, which a tag names",
                path.join(".")
            );
            let advice = "name an argument of the field, or a member of an input type below it";
            invalid_format(subgraph, applied, message, advice, findings);
        }
    }
}

/// True if the path leads to an argument, or to a member of an input type, that is neither a list nor an object.
fn is_scalar_argument(
    subgraph: &SubgraphModel,
    field: &FieldDefinition,
    path: &[Box<str>],
) -> bool {
    let mut members = Some(&field.arguments);
    let mut is_scalar = false;
    for name in path {
        let Some(member) = members.and_then(|it| it.get(&**name)) else { return false };
        let ty = subgraph.types.get(member.ty.inner_named_type());
        let input = ty.filter(|ty| ty.kind == TypeKind::InputObject && !member.ty.is_list());
        members = input.map(|ty| &ty.inputs);
        is_scalar = input.is_none() && !member.ty.is_list();
    }
    is_scalar
}
