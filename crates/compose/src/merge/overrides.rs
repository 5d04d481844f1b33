//! `@override`: fields that move from one subgraph to another, at once or by a label.

use std::collections::{HashMap, HashSet};

use apollo_compiler::Name;

use crate::{
    code::Code,
    finding::{Findings, Severity, Spot},
    subgraph::model::{FieldDefinition, OverrideSource, SubgraphModel, TypeDefinition, TypeKind},
};

/// A field of a type in one subgraph.
type FieldKey = (usize, Name, Name);

/// The fields that move.
#[derive(Debug, Default)]
pub(super) struct OverridePlan {
    /// The fields that their subgraph no longer resolves.
    overridden: HashSet<FieldKey>,
    /// The fields that override one of another subgraph.
    overriding: HashSet<FieldKey>,
    /// The labels of fields that move by label, for both subgraphs.
    labels: HashMap<FieldKey, String>,
    /// The fields that their subgraph resolves only while a label is off.
    leaving: HashSet<FieldKey>,
}

impl OverridePlan {
    /// True if the subgraph no longer resolves the field.
    pub(super) fn is_overridden(&self, subgraph: usize, ty: &Name, field: &Name) -> bool {
        !self.overridden.is_empty()
            && self.overridden.contains(&(subgraph, ty.clone(), field.clone()))
    }

    /// True if the field overrides one of another subgraph that exists.
    pub(super) fn is_overriding(&self, subgraph: usize, ty: &Name, field: &Name) -> bool {
        !self.overriding.is_empty()
            && self.overriding.contains(&(subgraph, ty.clone(), field.clone()))
    }

    /// True if the subgraph resolves the field only while a label is off.
    pub(super) fn is_leaving(&self, subgraph: usize, ty: &Name, field: &Name) -> bool {
        !self.leaving.is_empty() && self.leaving.contains(&(subgraph, ty.clone(), field.clone()))
    }

    /// Returns the label by which the field moves to or from the subgraph.
    pub(super) fn label(&self, subgraph: usize, ty: &Name, field: &Name) -> Option<&str> {
        if self.labels.is_empty() {
            return None;
        }
        self.labels.get(&(subgraph, ty.clone(), field.clone())).map(String::as_str)
    }

    /// Returns the subgraphs with overridden fields.
    pub(super) fn subgraphs_with_overridden_fields(&self) -> HashSet<usize> {
        self.overridden.iter().map(|(subgraph, ..)| *subgraph).collect()
    }
}

/// Finds and checks all overrides.
pub(super) fn find(subgraphs: &[SubgraphModel], findings: &mut Findings<'_>) -> OverridePlan {
    let by_name: HashMap<&str, &SubgraphModel> =
        subgraphs.iter().map(|it| (it.name.as_str(), it)).collect();
    let mut plan = OverridePlan::default();
    for subgraph in subgraphs {
        for ty in subgraph.types.values() {
            for field in ty.fields.values() {
                let Some(source) = &field.override_from else { continue };
                if ty.is_interface_object {
                    findings.error(
                        Code::OVERRIDE_COLLISION_WITH_ANOTHER_DIRECTIVE,
                        [(subgraph.id, source.place)],
                        format!("`{}.{}` is a field of an `@interfaceObject` and cannot have `@override`", ty.name, field.name),
                        "override the field of the object types that implement the interface",
                    );
                } else if ty.kind == TypeKind::Interface {
                    report_on_interface(subgraph, ty, field, source, findings);
                } else {
                    check(subgraph, ty, field, source, &by_name, &mut plan, findings);
                }
            }
        }
    }
    plan
}

fn report_on_interface(
    subgraph: &SubgraphModel,
    ty: &TypeDefinition,
    field: &FieldDefinition,
    source: &OverrideSource,
    findings: &mut Findings<'_>,
) {
    findings.error(
        Code::OVERRIDE_ON_INTERFACE,
        [(subgraph.id, source.place)],
        format!(
            "`{}.{}` is a field of an interface and cannot have `@override`",
            ty.name, field.name
        ),
        "override the field of the object types that implement the interface",
    );
}

fn check(
    subgraph: &SubgraphModel,
    ty: &TypeDefinition,
    field: &FieldDefinition,
    source: &OverrideSource,
    by_name: &HashMap<&str, &SubgraphModel>,
    plan: &mut OverridePlan,
    findings: &mut Findings<'_>,
) {
    let coordinate = format!("{}.{}", ty.name, field.name);
    let spot = (subgraph.id, source.place);
    let key = |id| (id, ty.name.clone(), field.name.clone());
    if source.from == subgraph.name {
        findings.error(
            Code::OVERRIDE_FROM_SELF_ERROR,
            [spot],
            format!("`{coordinate}` overrides itself: `from` names its own subgraph"),
            "name the subgraph that resolves the field now",
        );
        return;
    }
    if let Some(label) = &source.label
        && !is_label(label)
    {
        findings.error(
            Code::OVERRIDE_LABEL_INVALID,
            [spot],
            format!("\"{label}\" cannot be the label of `{coordinate}`"),
            "use `percent(0)` to `percent(100)`, or a name that begins with a letter and has letters, digits, `_`, `-`, `:`, `.` and `/`",
        );
    }
    let Some(from) = by_name.get(source.from.as_str()) else {
        findings.hint(
            Code::FROM_SUBGRAPH_DOES_NOT_EXIST,
            Severity::Warning,
            [spot],
            format!("`{coordinate}` overrides subgraph `{}`, which does not exist", source.from),
            "check the name, or remove `@override` if the migration is over",
        );
        return;
    };
    let Some(original) = find_original(&coordinate, ty, field, from, spot, findings) else {
        return;
    };
    let collision = find_collision(subgraph, field, from, original);
    if let Some((there, name, directive)) = collision {
        findings.error(
            Code::OVERRIDE_COLLISION_WITH_ANOTHER_DIRECTIVE,
            [spot, there.spot(name)],
            format!(
                "`{coordinate}` cannot be overridden: it is marked `@{directive}` in subgraph `{}`",
                there.name
            ),
            format!("remove `@{directive}` there, or `@override`"),
        );
        return;
    }
    plan.overriding.insert(key(subgraph.id));
    match &source.label {
        None => _ = plan.overridden.insert(key(from.id)),
        Some(label) => {
            findings.hint(
                Code::OVERRIDE_MIGRATION_IN_PROGRESS,
                Severity::Info,
                [spot, from.spot(&original.name)],
                format!(
                    "`{coordinate}` moves from subgraph `{}` to `{}` by the label \"{label}\"",
                    from.name, subgraph.name
                ),
                "remove the label when the migration is over",
            );
            plan.labels.insert(key(from.id), label.clone());
            plan.labels.insert(key(subgraph.id), label.clone());
            plan.leaving.insert(key(from.id));
        }
    }
}

/// Returns the field to override, unless the subgraph has none that could be.
fn find_original<'a>(
    coordinate: &str,
    ty: &TypeDefinition,
    field: &FieldDefinition,
    from: &'a SubgraphModel,
    spot: Spot,
    findings: &mut Findings<'_>,
) -> Option<&'a FieldDefinition> {
    let Some(original) = from.field(&ty.name, &field.name) else {
        let object = ty
            .implements
            .iter()
            .filter_map(|name| from.types.get(name))
            .find(|it| it.is_interface_object && it.fields.contains_key(&field.name));
        if let Some(object) = object {
            findings.error(
                Code::OVERRIDE_COLLISION_WITH_ANOTHER_DIRECTIVE,
                [spot, from.spot(&object.name)],
                format!(
                    "`{coordinate}` cannot be overridden: subgraph `{}` has it only through the `@interfaceObject` `{}`",
                    from.name, object.name
                ),
                "remove `@override`, and the field from the interface object",
            );
            return None;
        }
        findings.hint(
            Code::OVERRIDE_DIRECTIVE_CAN_BE_REMOVED,
            Severity::Info,
            [spot],
            format!("subgraph `{}` has no field `{coordinate}` to override", from.name),
            "remove `@override`: the migration is over",
        );
        return None;
    };
    let spots = [spot, from.spot(&original.name)];
    if original.override_from.is_some() {
        findings.error(
            Code::OVERRIDE_SOURCE_HAS_OVERRIDE,
            spots,
            format!(
                "`{coordinate}` overrides subgraph `{}`, which overrides the field itself",
                from.name
            ),
            "only one of the subgraphs can override the field",
        );
        return None;
    }
    if original.is_external && !field.is_external {
        findings.hint(
            Code::OVERRIDE_DIRECTIVE_CAN_BE_REMOVED,
            Severity::Info,
            spots,
            format!(
                "`{coordinate}` is `@external` in subgraph `{}`, so there is nothing to override",
                from.name
            ),
            "remove `@override`: the migration is over",
        );
        return None;
    }
    Some(original)
}

/// Returns the first directive that cannot be combined with `@override`, with its subgraph and field.
fn find_collision<'a>(
    subgraph: &'a SubgraphModel,
    field: &'a FieldDefinition,
    from: &'a SubgraphModel,
    original: &'a FieldDefinition,
) -> Option<(&'a SubgraphModel, &'a Name, &'static str)> {
    let collisions = [
        (field.is_external, subgraph, &field.name, "external"),
        (original.requires.is_some(), from, &original.name, "requires"),
        (original.provides.is_some(), from, &original.name, "provides"),
    ];
    let (_, there, name, directive) = collisions.into_iter().find(|it| it.0)?;
    Some((there, name, directive))
}

fn is_label(label: &str) -> bool {
    if let Some(share) = label.strip_prefix("percent(").and_then(|it| it.strip_suffix(')')) {
        let is_number = share.bytes().all(|it| it.is_ascii_digit() || it == b'.');
        return is_number && share.parse::<f64>().is_ok_and(|share| (0.0..=100.0).contains(&share));
    }
    label.starts_with(|c: char| c.is_ascii_alphabetic())
        && label.chars().all(|c| c.is_ascii_alphanumeric() || "_-:./".contains(c))
}
