//! `@cost` and `@listSize`: places and arguments.

use apollo_compiler::ast::Value;

use crate::{
    code::Code,
    federation_spec::FederationDirective as D,
    finding::Findings,
    subgraph::model::{AppliedDirective, FieldDefinition, SubgraphModel, TypeKind, all_of},
};

/// Checks the costs of a subgraph.
pub(super) fn check(subgraph: &SubgraphModel, findings: &mut Findings<'_>) {
    for ty in subgraph.types.values() {
        for field in ty.fields.values() {
            let coordinate = format!("{}.{}", ty.name, field.name);
            if ty.kind == TypeKind::Interface
                && let Some(applied) = all_of(&field.directives, D::Cost).next()
            {
                findings.error(
                    Code::COST_APPLIED_TO_INTERFACE_FIELD,
                    [(subgraph.id, applied.node.location())],
                    format!(
                        "`@{}` is on `{coordinate}`, a field of an interface",
                        applied.node.name
                    ),
                    "put it on the field of the object types that implement the interface",
                );
            }
            for applied in all_of(&field.directives, D::ListSize) {
                check_list_size(subgraph, &coordinate, field, applied, findings);
            }
        }
    }
}

fn check_list_size(
    subgraph: &SubgraphModel,
    coordinate: &str,
    field: &FieldDefinition,
    applied: &AppliedDirective,
    findings: &mut Findings<'_>,
) {
    let spot = [(subgraph.id, applied.node.location())];
    let texts = |name: &str| -> Vec<String> {
        let list = applied.node.specified_argument_by_name(name).and_then(|it| it.as_list());
        let texts = list.unwrap_or_default().iter().filter_map(|it| it.as_str());
        texts.map(str::to_owned).collect()
    };
    let sized = texts("sizedFields");
    if !field.ty.is_list() && sized.is_empty() {
        let message = format!("`{coordinate}` has a `@listSize` but is not a list");
        let advice = "remove the directive, or name the lists below the field in `sizedFields`";
        findings.error(Code::LIST_SIZE_APPLIED_TO_NON_LIST, spot, message, advice);
    }
    let assumed = applied.node.specified_argument_by_name("assumedSize").map(|it| &**it);
    if let Some(Value::Int(size)) = assumed
        && size.as_str().starts_with('-')
    {
        let message = format!("the assumed size of `{coordinate}` is negative");
        findings.error(Code::LIST_SIZE_INVALID_ASSUMED_SIZE, spot, message, "use 0 or more");
    }
    for name in texts("slicingArguments") {
        let argument = field.arguments.get(name.as_str());
        let is_integer =
            argument.is_some_and(|it| it.ty.to_string().trim_end_matches('!') == "Int");
        if !is_integer {
            findings.error(
                Code::LIST_SIZE_INVALID_SLICING_ARGUMENT,
                spot,
                format!("`{coordinate}` has no argument `{name}` of type `Int`"),
                "slicing arguments are integers that say how long the list may be",
            );
        }
    }
    let returned = subgraph.types.get(field.ty.inner_named_type());
    for name in sized {
        let own = returned.and_then(|ty| ty.fields.get(name.as_str()));
        let (code, problem) = match own {
            None => (Code::LIST_SIZE_INVALID_SIZED_FIELD, "has no field"),
            Some(own) if !own.ty.is_list() => (Code::LIST_SIZE_APPLIED_TO_NON_LIST, "has no list"),
            Some(_) => continue,
        };
        findings.error(
            code,
            spot,
            format!(
                "`{}` {problem} `{name}`, which `{coordinate}` names as a sized field",
                field.ty.inner_named_type()
            ),
            "sized fields are lists directly below the field",
        );
    }
}
