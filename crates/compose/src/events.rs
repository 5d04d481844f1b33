//! Event subgraphs: root fields bound to topics of a broker by event directives. Definitions of these directives may be
//! left out. The directives travel in the supergraph as `@join__directive`.

use apollo_compiler::{
    Name, Node,
    ast::{self, Value},
};
use graph::EventRole;
use indexmap::IndexMap;

use crate::{
    code::Code,
    event_spec::{FILTER, PUBLISH_RESULT},
    finding::Findings,
    subgraph::model::{
        AppliedDirective, FieldDefinition, SubgraphModel, TypeDefinition, TypeKind, is_root,
    },
};

/// The limits of filters, as the open federation specification has them.
const FILTER_DEPTH_MAX: usize = 5;
const FILTER_BRANCHES_MAX: usize = 5;

/// Adds the result type of publishing mutations if the subgraph uses it without defining it.
pub(crate) fn complete(model: &mut SubgraphModel) {
    let is_used = model
        .types
        .values()
        .flat_map(|ty| ty.fields.values())
        .any(|field| field.ty.inner_named_type() == PUBLISH_RESULT);
    let Ok(name) = Name::new(PUBLISH_RESULT) else { return };
    if is_used && !model.types.contains_key(&name) {
        let success = Name::new_unchecked("success");
        let field = FieldDefinition {
            name: success.clone(),
            description: None,
            ty: ast::Type::NonNullNamed(Name::new_unchecked("Boolean")),
            arguments: IndexMap::new(),
            directives: Vec::new(),
            is_external: false,
            is_shareable: true,
            is_provided: false,
            requires: None,
            provides: None,
            override_from: None,
        };
        let ty = TypeDefinition {
            fields: IndexMap::from([(success, field)]),
            ..TypeDefinition::empty(name.clone(), TypeKind::Object)
        };
        model.types.insert(name.clone(), ty);
    }
    if let Some(result) = model.types.get_mut(&name) {
        result.fields.values_mut().for_each(|field| field.is_shareable = true);
    }
}

/// Checks the rules of event subgraphs.
pub(crate) fn check(model: &SubgraphModel, findings: &mut Findings<'_>) {
    if !model.is_event_subgraph {
        return;
    }
    for ty in model.types.values() {
        for field in ty.fields.values() {
            let bindings: Vec<_> = bindings_of(field).collect();
            if is_root(&ty.name) {
                check_root_field(model, ty, field, &bindings, findings);
            } else if let Some((directive, _)) = bindings.first() {
                findings.error(
                    Code::EVENT_DIRECTIVE_MISPLACED,
                    [(model.id, directive.node.location())],
                    format!(
                        "`@{}` is on `{}.{}`, which is not a root field",
                        directive.node.name, ty.name, field.name
                    ),
                    "event directives belong on fields of Query, Mutation and Subscription",
                );
            }
        }
        for key in ty.keys.iter().filter(|key| key.is_resolvable) {
            findings.error(
                Code::EVENT_KEY_RESOLVABLE,
                [(model.id, key.place)],
                format!(
                    "the key \"{}\" of `{}` says that subgraph `{}` resolves entities, but an event subgraph has no server",
                    key.fields, ty.name, model.name
                ),
                format!("write `@key(fields: \"{}\", resolvable: false)`", key.fields),
            );
        }
    }
}

fn bindings_of(field: &FieldDefinition) -> impl Iterator<Item = (&AppliedDirective, EventRole)> {
    field.directives.iter().filter_map(|it| Some((it, EventRole::of_directive(&it.node.name)?)))
}

fn check_root_field(
    model: &SubgraphModel,
    ty: &TypeDefinition,
    field: &FieldDefinition,
    bindings: &[(&AppliedDirective, EventRole)],
    findings: &mut Findings<'_>,
) {
    let coordinate = format!("{}.{}", ty.name, field.name);
    let [(directive, role)] = bindings else {
        let message = match bindings.len() {
            0 => {
                format!("`{coordinate}` of event subgraph `{}` has no event directive", model.name)
            }
            count => format!("`{coordinate}` has {count} event directives"),
        };
        findings.error(
            Code::EVENT_DIRECTIVE_MISSING,
            [model.spot(&field.name)],
            message,
            "every root field of an event subgraph has exactly one directive such as `@events__subscribe`; fields with \
             a resolver belong in a subgraph with a server",
        );
        return;
    };
    let wanted: &[&str] = match role {
        EventRole::Subscribe => &["Subscription"],
        EventRole::Publish => &["Mutation"],
        EventRole::Request => &["Query", "Mutation"],
    };
    if !wanted.contains(&ty.name.as_str()) {
        findings.error(
            Code::EVENT_DIRECTIVE_MISPLACED,
            [(model.id, directive.node.location())],
            format!(
                "`@{}` is on `{coordinate}`, but it works on fields of {} only",
                directive.node.name,
                wanted.join(" and ")
            ),
            "move the field, or use the directive for this root type: `@events__subscribe` for Subscription, \
             `@events__publish` for Mutation, `@events__request` for Query and Mutation",
        );
        return;
    }
    let result = field.ty.inner_named_type();
    let kind = model.types.get(result).map(|ty| ty.kind);
    if *role == EventRole::Publish && field.ty.to_string() != format!("{PUBLISH_RESULT}!") {
        findings.error(
            Code::EVENT_RESULT_INVALID,
            [model.spot(&field.name)],
            format!("`{coordinate}` publishes an event but returns `{}`", field.ty),
            format!(
                "the router says whether the broker accepted the event: return `{PUBLISH_RESULT}!`"
            ),
        );
    }
    if *role == EventRole::Subscribe && kind == Some(TypeKind::InputObject) {
        findings.error(
            Code::EVENT_RESULT_INVALID,
            [model.spot(&field.name)],
            format!("`{coordinate}` returns `{}`, which no event can be", field.ty),
            "return an entity, an interface or a union",
        );
    }
    for filter in field.directives.iter().filter(|it| it.node.name == FILTER) {
        let condition = filter.node.specified_argument_by_name("condition");
        let problem = match (role, condition) {
            (EventRole::Subscribe, Some(condition)) => check_condition(condition, 1).err(),
            (EventRole::Subscribe, None) => Some("it has no condition".to_owned()),
            _ => Some("only subscriptions have filters".to_owned()),
        };
        if let Some(problem) = problem {
            findings.error(
                Code::EVENT_FILTER_INVALID,
                [(model.id, filter.node.location())],
                format!("the filter of `{coordinate}` is invalid: {problem}"),
                "a condition is one of `IN`, `AND`, `OR` and `NOT`, such as {IN: {fieldPath: \"id\", values: [\"{{ args.ids }}\"]}}",
            );
        }
    }
}

/// Checks the shape of a filter condition. The error is the reason.
fn check_condition(condition: &Value, depth: usize) -> Result<(), String> {
    let Value::Object(members) = condition else {
        return Err("a condition is an object".to_owned());
    };
    let members: Vec<_> = members.iter().filter(|(_, value)| !value.is_null()).collect();
    let [(name, value)] = &members[..] else {
        return Err(format!("a condition has exactly one member, this one has {}", members.len()));
    };
    if depth > FILTER_DEPTH_MAX {
        return Err(format!("conditions are nested more than {FILTER_DEPTH_MAX} levels deep"));
    }
    match name.as_str() {
        "NOT" => check_condition(value, depth + 1),
        "AND" | "OR" => {
            // GraphQL reads a single value as a list of one.
            let single = std::slice::from_ref(value);
            let branches: &[Node<Value>] = value.as_list().unwrap_or(single);
            if branches.is_empty() || branches.len() > FILTER_BRANCHES_MAX {
                return Err(format!(
                    "`{name}` has {} branches, allowed are 1 to {FILTER_BRANCHES_MAX}",
                    branches.len()
                ));
            }
            branches.iter().try_for_each(|branch| check_condition(branch, depth + 1))
        }
        "IN" => {
            let Value::Object(members) = &**value else {
                return Err("`IN` is an object with `fieldPath` and `values`".to_owned());
            };
            for wanted in ["fieldPath", "values"] {
                if !members.iter().any(|(name, _)| *name == wanted) {
                    return Err(format!("`IN` lacks `{wanted}`"));
                }
            }
            Ok(())
        }
        other => Err(format!("`{other}` is not a condition")),
    }
}
