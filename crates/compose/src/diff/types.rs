//! Types with their members: fields, enum values, unions, interfaces, and the roots of the schema.

use apollo_compiler::{
    Name, Schema,
    ast::OperationType,
    schema::{EnumType, ExtendedType, FieldDefinition, InputObjectType, ScalarType, UnionType},
};
use indexmap::IndexSet;

use super::{
    annotations,
    change::{ChangeCode, ChangeList, Exposure, breaking, dangerous, safe},
    input_values::{self, InputOwner},
    type_compatibility::is_safe_output_change,
};

/// Compares the types of the schemas.
pub(super) fn compare(changes: &mut ChangeList, old: &Schema, new: &Schema) {
    let own = |(_, ty): &(&Name, &ExtendedType)| !ty.is_built_in();
    for (name, before) in old.types.iter().filter(own) {
        match new.types.get(name).filter(|it| !it.is_built_in()) {
            Some(after) => compare_type(changes, new, before, after),
            None => {
                changes.add(
                    ChangeCode::TypeRemoved,
                    name.as_str(),
                    format!("the {} `{name}` was removed", describe_kind(before)),
                    breaking("operations that name it, or a field that returns it, are refused"),
                    Exposure::Type(name.clone()),
                );
                for interface in implemented_by(before) {
                    if new.types.contains_key(interface) {
                        report_removed_interface(changes, name, interface);
                    }
                }
            }
        }
    }
    for (name, after) in new.types.iter().filter(own) {
        if old.types.get(name).is_some_and(|it| !it.is_built_in()) {
            continue;
        }
        changes.add(
            ChangeCode::TypeAdded,
            name.as_str(),
            format!("the {} `{name}` was added", describe_kind(after)),
            safe("operations of today do not name it"),
            Exposure::Nothing,
        );
        for interface in implemented_by(after) {
            if old.types.contains_key(interface) {
                report_added_interface(changes, name, interface);
            }
        }
    }
}

/// Compares the root types of the schemas.
pub(super) fn compare_roots(changes: &mut ChangeList, old: &Schema, new: &Schema) {
    for (operation, code) in [
        (OperationType::Query, ChangeCode::SchemaQueryTypeChanged),
        (OperationType::Mutation, ChangeCode::SchemaMutationTypeChanged),
        (OperationType::Subscription, ChangeCode::SchemaSubscriptionTypeChanged),
    ] {
        let (message, weight, exposure) =
            match (old.root_operation(operation), new.root_operation(operation)) {
                (Some(before), None) => (
                    format!("the schema has no {operation} root any more; it was `{before}`"),
                    breaking("all operations of this kind are refused"),
                    Exposure::Root(operation),
                ),
                (None, Some(after)) => (
                    format!("the schema got the {operation} root `{after}`"),
                    safe("there were no operations of this kind"),
                    Exposure::Nothing,
                ),
                (Some(before), Some(after)) if before != after => (
                    format!("the {operation} root changed from `{before}` to `{after}`"),
                    breaking("fragments on the old root type are refused"),
                    Exposure::Root(operation),
                ),
                _ => continue,
            };
        changes.add(code, format!("schema.{operation}"), message, weight, exposure);
    }
}

fn describe_kind(ty: &ExtendedType) -> &'static str {
    match ty {
        ExtendedType::Scalar(_) => "scalar",
        ExtendedType::Object(_) => "object type",
        ExtendedType::Interface(_) => "interface",
        ExtendedType::Union(_) => "union",
        ExtendedType::Enum(_) => "enum",
        ExtendedType::InputObject(_) => "input type",
    }
}

fn implemented_by(ty: &ExtendedType) -> impl Iterator<Item = &Name> {
    let interfaces = match ty {
        ExtendedType::Object(it) => Some(&it.implements_interfaces),
        ExtendedType::Interface(it) => Some(&it.implements_interfaces),
        _ => None,
    };
    interfaces.into_iter().flatten().map(|it| &it.name)
}

fn compare_type(
    changes: &mut ChangeList,
    new_schema: &Schema,
    old: &ExtendedType,
    new: &ExtendedType,
) {
    let name = old.name();
    annotations::compare_descriptions(changes, name, old.description(), new.description());
    match (old, new) {
        (ExtendedType::Scalar(old), ExtendedType::Scalar(new)) => {
            compare_scalars(changes, old, new);
        }
        (ExtendedType::Object(old), ExtendedType::Object(new)) => {
            compare_fields(changes, name, &old.fields, &new.fields);
        }
        (ExtendedType::Interface(old), ExtendedType::Interface(new)) => {
            compare_fields(changes, name, &old.fields, &new.fields);
        }
        (ExtendedType::Union(old), ExtendedType::Union(new)) => compare_unions(changes, old, new),
        (ExtendedType::Enum(old), ExtendedType::Enum(new)) => {
            compare_enums(changes, new_schema, old, new);
        }
        (ExtendedType::InputObject(old), ExtendedType::InputObject(new)) => {
            compare_input_types(changes, old, new);
        }
        _ => {
            changes.add(
                ChangeCode::TypeChangedKind,
                name.as_str(),
                format!(
                    "`{name}` changed from {} to {}",
                    with_article(describe_kind(old)),
                    with_article(describe_kind(new))
                ),
                breaking("operations that name it, or a field that returns it, are refused"),
                Exposure::Type(name.clone()),
            );
            return;
        }
    }
    let (before, after): (IndexSet<_>, IndexSet<_>) =
        (implemented_by(old).collect(), implemented_by(new).collect());
    for interface in before.difference(&after) {
        report_removed_interface(changes, name, interface);
    }
    for interface in after.difference(&before) {
        report_added_interface(changes, name, interface);
    }
}

fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['o', 'i', 'e']) { "an" } else { "a" };
    format!("{article} {noun}")
}

fn report_removed_interface(changes: &mut ChangeList, name: &Name, interface: &Name) {
    changes.add(
        ChangeCode::ImplementedInterfaceRemoved,
        name.as_str(),
        format!("`{name}` no longer implements `{interface}`"),
        breaking("fragments that relate both are refused, and fields of the interface no longer return the type"),
        Exposure::Member { general: interface.clone(), member: name.clone() },
    );
}

fn report_added_interface(changes: &mut ChangeList, name: &Name, interface: &Name) {
    changes.add(
        ChangeCode::ImplementedInterfaceAdded,
        name.as_str(),
        format!("`{name}` now implements `{interface}`"),
        dangerous("fields of the interface may return a type that clients do not know"),
        Exposure::Selection(interface.clone()),
    );
}

fn compare_scalars(changes: &mut ChangeList, old: &ScalarType, new: &ScalarType) {
    let url = |it: &ScalarType| {
        let directive = it.directives.get("specifiedBy")?;
        Some(directive.specified_argument_by_name("url")?.as_str()?.to_owned())
    };
    let (before, after) = (url(old), url(new));
    if before == after {
        return;
    }
    let name = &old.name;
    let (message, weight) = match (before, after) {
        (None, Some(after)) => (
            format!("the scalar `{name}` names its specification, {after}"),
            safe("a specification that is named for the first time documents the format"),
        ),
        (Some(before), None) => (
            format!("the scalar `{name}` no longer names its specification, {before}"),
            dangerous("its values may have another format"),
        ),
        (Some(before), Some(after)) => (
            format!("the scalar `{name}` names the specification {after} instead of {before}"),
            dangerous("its values may have another format"),
        ),
        (None, None) => return,
    };
    changes.add(
        ChangeCode::SpecifiedByChanged,
        name.as_str(),
        message,
        weight,
        Exposure::Type(name.clone()),
    );
}

type Fields = apollo_compiler::collections::IndexMap<
    Name,
    apollo_compiler::schema::Component<FieldDefinition>,
>;

fn compare_fields(changes: &mut ChangeList, ty: &Name, old: &Fields, new: &Fields) {
    for (name, before) in old {
        match new.get(name) {
            Some(after) => compare_field(changes, ty, before, after),
            None => {
                let deprecation = annotations::deprecation_reason(&before.directives);
                let note = if deprecation.is_some() { ", which was deprecated," } else { "" };
                changes.add(
                    ChangeCode::FieldRemoved,
                    format!("{ty}.{name}"),
                    format!("the field `{ty}.{name}`{note} was removed"),
                    breaking("operations that select it are refused"),
                    Exposure::Field(ty.clone(), name.clone()),
                );
            }
        }
    }
    for (name, after) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        changes.add(
            ChangeCode::FieldAdded,
            format!("{ty}.{name}"),
            format!("the field `{ty}.{name}: {}` was added", after.ty),
            safe("operations of today do not select it"),
            Exposure::Nothing,
        );
    }
}

fn compare_field(
    changes: &mut ChangeList,
    ty: &Name,
    old: &FieldDefinition,
    new: &FieldDefinition,
) {
    let name = &old.name;
    let path = format!("{ty}.{name}");
    annotations::compare_descriptions(
        changes,
        &path,
        old.description.as_ref(),
        new.description.as_ref(),
    );
    annotations::compare_deprecations(changes, &path, &old.directives, &new.directives);
    if old.ty != new.ty {
        let message = format!("`{path}` changed its type from `{}` to `{}`", old.ty, new.ty);
        if is_safe_output_change(&old.ty, &new.ty) {
            changes.add(
                ChangeCode::FieldChangedKindSafe,
                path,
                message,
                safe("responses have no nulls where they were allowed"),
                Exposure::Nothing,
            );
        } else {
            let weight = match is_safe_output_change(&new.ty, &old.ty) {
                true => breaking("responses may contain null where clients do not expect it"),
                false => breaking("responses have values of another type"),
            };
            changes.add(
                ChangeCode::FieldChangedKind,
                path,
                message,
                weight,
                Exposure::Field(ty.clone(), name.clone()),
            );
        }
    }
    let owner = InputOwner::Field { ty, field: name };
    input_values::compare(
        changes,
        owner,
        old.arguments.iter().map(|it| &**it),
        new.arguments.iter().map(|it| &**it),
    );
}

fn compare_unions(changes: &mut ChangeList, old: &UnionType, new: &UnionType) {
    let union = &old.name;
    for member in old.members.iter().filter(|it| !new.members.contains(*it)) {
        changes.add(
            ChangeCode::TypeRemovedFromUnion,
            union.as_str(),
            format!("`{}` was removed from the union `{union}`", member.name),
            breaking("fragments on the type inside the union are refused"),
            Exposure::Member { general: union.clone(), member: member.name.clone() },
        );
    }
    for member in new.members.iter().filter(|it| !old.members.contains(*it)) {
        changes.add(
            ChangeCode::TypeAddedToUnion,
            union.as_str(),
            format!("`{}` was added to the union `{union}`", member.name),
            dangerous("clients may receive a type that they do not know"),
            Exposure::Selection(union.clone()),
        );
    }
}

fn compare_enums(changes: &mut ChangeList, new_schema: &Schema, old: &EnumType, new: &EnumType) {
    let name = &old.name;
    for (value, before) in &old.values {
        let path = format!("{name}.{value}");
        let Some(after) = new.values.get(value) else {
            changes.add(
                ChangeCode::ValueRemovedFromEnum,
                path,
                format!("the value `{value}` was removed from the enum `{name}`"),
                breaking("requests that send it are refused"),
                Exposure::EnumValue(name.clone(), value.clone()),
            );
            continue;
        };
        annotations::compare_descriptions(
            changes,
            &path,
            before.description.as_ref(),
            after.description.as_ref(),
        );
        annotations::compare_deprecations(changes, &path, &before.directives, &after.directives);
    }
    for value in new.values.keys().filter(|it| !old.values.contains_key(*it)) {
        let weight = match is_returned(new_schema, name) {
            true => dangerous("clients may receive a value that they do not know"),
            false => safe("clients only send values of the enum, and receive none"),
        };
        changes.add(
            ChangeCode::ValueAddedToEnum,
            format!("{name}.{value}"),
            format!("the value `{value}` was added to the enum `{name}`"),
            weight,
            Exposure::Returned(name.clone()),
        );
    }
}

/// True if a field returns the type.
fn is_returned(schema: &Schema, ty: &Name) -> bool {
    let returns = |fields: &Fields| fields.values().any(|it| it.ty.inner_named_type() == ty);
    schema.types.values().any(|it| match it {
        ExtendedType::Object(it) => returns(&it.fields),
        ExtendedType::Interface(it) => returns(&it.fields),
        _ => false,
    })
}

fn compare_input_types(changes: &mut ChangeList, old: &InputObjectType, new: &InputObjectType) {
    let name = &old.name;
    match (old.directives.has("oneOf"), new.directives.has("oneOf")) {
        (false, true) => changes.add(
            ChangeCode::OneOfAdded,
            name.as_str(),
            format!("the input type `{name}` became `@oneOf`"),
            breaking("requests that give several of its fields, or none, are refused"),
            Exposure::Input(name.clone()),
        ),
        (true, false) => changes.add(
            ChangeCode::OneOfRemoved,
            name.as_str(),
            format!("the input type `{name}` is no longer `@oneOf`"),
            safe("one field may still be given"),
            Exposure::Nothing,
        ),
        _ => {}
    }
    input_values::compare(
        changes,
        InputOwner::InputType(name),
        old.fields.values().map(|it| &***it),
        new.fields.values().map(|it| &***it),
    );
}
