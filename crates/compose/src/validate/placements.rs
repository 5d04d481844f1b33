//! Federation directives in places where they have no meaning, and malformed arguments.

use crate::{
    code::Code,
    federation_spec::FederationDirective as D,
    finding::{Findings, Severity},
    subgraph::model::{
        AppliedDirective, FieldDefinition, SubgraphModel, TypeDefinition, TypeKind, all_of, has,
    },
};

/// Checks the places and arguments of the directives of a subgraph.
pub(super) fn check(subgraph: &SubgraphModel, findings: &mut Findings<'_>) {
    for ty in subgraph.types.values() {
        check_type(subgraph, ty, findings);
        for field in ty.fields.values() {
            check_field(subgraph, ty, field, findings);
            check_tags(subgraph, &field.directives, findings);
            for argument in field.arguments.values() {
                check_tags(subgraph, &argument.directives, findings);
            }
        }
        let inputs = ty.inputs.values().map(|it| &it.directives);
        let values = ty.values.values().map(|it| &it.directives);
        for directives in inputs.chain(values) {
            check_tags(subgraph, directives, findings);
        }
    }
}

fn check_type(subgraph: &SubgraphModel, ty: &TypeDefinition, findings: &mut Findings<'_>) {
    check_tags(subgraph, &ty.directives, findings);
    if ty.is_shareable_twice {
        findings.error(
            Code::INVALID_SHAREABLE_USAGE,
            [subgraph.spot(&ty.name)],
            format!("`{}` is marked `@shareable` twice in one place", ty.name),
            "remove one of the marks; a definition and an extension may have one each",
        );
    }
    if ty.is_interface_object && ty.keys.is_empty() {
        findings.error(
            Code::INTERFACE_OBJECT_USAGE_ERROR,
            [subgraph.spot(&ty.name)],
            format!("`{}` is an `@interfaceObject` without a key", ty.name),
            "give it a `@key` that the interface has in another subgraph: by the key the router finds its objects",
        );
    }
    if ty.is_interface_object {
        let implementation = subgraph.types.values().find(|it| it.implements.contains(&ty.name));
        if let Some(implementation) = implementation {
            findings.error(
                Code::INTERFACE_OBJECT_USAGE_ERROR,
                [subgraph.spot(&ty.name), subgraph.spot(&implementation.name)],
                format!("`{}` implements `{}`, which is an `@interfaceObject` in this subgraph", implementation.name, ty.name),
                "a subgraph either knows the implementations of an interface or treats it as one object type",
            );
        }
    }
    if ty.kind == TypeKind::Interface {
        for wanted in [D::Authenticated, D::RequiresScopes, D::Policy] {
            if let Some(applied) = all_of(&ty.directives, wanted).next() {
                report_authorization(subgraph, &ty.name, applied, findings);
            }
        }
    }
}

fn report_authorization(
    subgraph: &SubgraphModel,
    coordinate: &str,
    applied: &AppliedDirective,
    findings: &mut Findings<'_>,
) {
    findings.error(
        Code::AUTH_REQUIREMENTS_APPLIED_ON_INTERFACE,
        [(subgraph.id, applied.node.location())],
        format!("`@{}` is on `{coordinate}`, but interfaces take their requirements from their implementations", applied.node.name),
        "put the directive on the object types that implement the interface",
    );
}

fn check_field(
    subgraph: &SubgraphModel,
    ty: &TypeDefinition,
    field: &FieldDefinition,
    findings: &mut Findings<'_>,
) {
    let coordinate = format!("{}.{}", ty.name, field.name);
    let place = |wanted: D| {
        all_of(&field.directives, wanted).next().map(|it| (subgraph.id, it.node.location()))
    };
    let mut shareable = all_of(&field.directives, D::Shareable).skip(1);
    if let Some(second) = shareable.next() {
        findings.error(
            Code::INVALID_SHAREABLE_USAGE,
            [(subgraph.id, second.node.location())],
            format!("`{coordinate}` is marked `@shareable` twice"),
            "remove one of the marks",
        );
    }
    if ty.kind == TypeKind::Interface {
        if let Some(spot) = place(D::Shareable) {
            findings.error(
                Code::INVALID_SHAREABLE_USAGE,
                [spot],
                format!("`{coordinate}` is a field of an interface and cannot be `@shareable`"),
                "mark the field of the object types that implement the interface",
            );
        }
        for wanted in [D::Authenticated, D::RequiresScopes, D::Policy] {
            if let Some(applied) = all_of(&field.directives, wanted).next() {
                report_authorization(subgraph, &coordinate, applied, findings);
            }
        }
    }
    if ty.name == "Subscription"
        && (has(&field.directives, D::Shareable) || has(&ty.directives, D::Shareable))
    {
        findings.error(
            Code::INVALID_FIELD_SHARING,
            [subgraph.spot(&field.name)],
            format!("`{coordinate}` is `@shareable`, but a subscription comes from one subgraph"),
            "remove `@shareable`",
        );
    }
}

fn check_tags(
    subgraph: &SubgraphModel,
    directives: &[AppliedDirective],
    findings: &mut Findings<'_>,
) {
    for tag in all_of(directives, D::Tag) {
        let Some(name) = tag.text("name") else { continue };
        let is_valid = !name.is_empty()
            && name.len() <= TAG_BYTES_MAX
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/'));
        if !is_valid {
            findings.hint(
                Code::INVALID_TAG_NAME,
                Severity::Warning,
                [(subgraph.id, tag.node.location())],
                format!("\"{name}\" is not a name for a tag by the tag specification, so contracts may not find it"),
                format!(
                    "a tag begins with a letter or an underscore, continues with letters, digits, `_`, `-` and `/`, and has \
                     at most {TAG_BYTES_MAX} characters"
                ),
            );
        }
    }
}

/// The maximum length of a tag's name, as the tag specification has it.
const TAG_BYTES_MAX: usize = 128;

/// Checks that each implementation of a keyed interface has all its keys, resolvable alike.
pub(super) fn check_interface_keys(subgraph: &SubgraphModel, findings: &mut Findings<'_>) {
    let keyed = subgraph.types.values().filter(|ty| ty.kind == TypeKind::Interface);
    for interface in keyed.filter(|ty| !ty.keys.is_empty()) {
        for key in &interface.keys {
            let wanted = normalise(&key.fields);
            for member in subgraph.possible_types(interface) {
                let own = member.keys.iter().find(|own| normalise(&own.fields) == wanted);
                let problem = match own {
                    None => format!(
                        "`{}` implements `{}` but lacks its key \"{}\"",
                        member.name, interface.name, key.fields
                    ),
                    Some(own) if key.is_resolvable && !own.is_resolvable => format!(
                        "the key \"{}\" of `{}` is not resolvable, but that of its interface `{}` is",
                        key.fields, member.name, interface.name
                    ),
                    Some(_) => continue,
                };
                findings.error(
                    Code::INTERFACE_KEY_NOT_ON_IMPLEMENTATION,
                    [(subgraph.id, key.place), subgraph.spot(&member.name)],
                    problem,
                    format!("add `@key(fields: \"{}\")` to `{}`: the router fetches objects of the interface by it", key.fields, member.name),
                );
            }
        }
    }
}

/// Returns a key with its fields in alphabetical order, so that equal keys are equal texts.
fn normalise(key: &str) -> String {
    // A key with directives is invalid and equals no other.
    let parsed = crate::subgraph::field_sets::parse(key).ok().filter(|_| !key.contains('@'));
    let Some(selections) = parsed else { return key.to_owned() };
    let mut parts: Vec<_> = selections
        .iter()
        .map(|it| crate::subgraph::field_sets::print(std::slice::from_ref(it)))
        .collect();
    parts.sort();
    parts.join(" ")
}
