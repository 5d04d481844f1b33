//! Arguments of fields and directives, and fields of input types: presence, types and defaults.

use apollo_compiler::{
    Name, Node,
    ast::{InputValueDefinition, Type},
};

use super::{
    annotations,
    change::{ChangeCode, ChangeList, Exposure, Weight, breaking, dangerous, safe},
    type_compatibility::is_safe_input_change,
};

/// The element that has the input values.
#[derive(Clone, Copy)]
pub(super) enum InputOwner<'a> {
    Field { ty: &'a Name, field: &'a Name },
    Directive(&'a Name),
    InputType(&'a Name),
}

impl InputOwner<'_> {
    fn coordinate(&self, name: &Name) -> String {
        match self {
            Self::Field { ty, field } => format!("{ty}.{field}({name}:)"),
            Self::Directive(directive) => format!("@{directive}({name}:)"),
            Self::InputType(ty) => format!("{ty}.{name}"),
        }
    }

    fn noun(&self) -> &'static str {
        match self {
            Self::InputType(_) => "input field",
            _ => "argument",
        }
    }

    /// Any use of the owner.
    fn used(&self) -> Exposure {
        match *self {
            Self::Field { ty, field } => Exposure::Field(ty.clone(), field.clone()),
            Self::Directive(directive) => Exposure::Directive(directive.clone()),
            Self::InputType(ty) => Exposure::Input(ty.clone()),
        }
    }

    /// Uses of the owner with a value.
    fn given(&self, name: &Name) -> Exposure {
        match *self {
            Self::Field { ty, field } => {
                Exposure::Argument(ty.clone(), field.clone(), name.clone())
            }
            Self::Directive(directive) => {
                Exposure::DirectiveArgument(directive.clone(), name.clone())
            }
            Self::InputType(ty) => Exposure::InputField(ty.clone(), name.clone()),
        }
    }

    /// Uses of the owner in which the value may be absent.
    fn absent(&self, name: &Name) -> Exposure {
        match *self {
            Self::Field { ty, field } => {
                Exposure::AbsentArgument(ty.clone(), field.clone(), name.clone())
            }
            Self::Directive(directive) => Exposure::Directive(directive.clone()),
            Self::InputType(ty) => Exposure::AbsentInputField(ty.clone(), name.clone()),
        }
    }

    /// Selects a code by the kind of the owner: for arguments of fields, for those of directives, for input fields.
    fn select(&self, codes: [ChangeCode; 3]) -> ChangeCode {
        match self {
            Self::Field { .. } => codes[0],
            Self::Directive(_) => codes[1],
            Self::InputType(_) => codes[2],
        }
    }
}

/// Compares the input values of one owner.
pub(super) fn compare<'a>(
    changes: &mut ChangeList,
    owner: InputOwner<'_>,
    old: impl Iterator<Item = &'a InputValueDefinition> + Clone,
    new: impl Iterator<Item = &'a InputValueDefinition> + Clone,
) {
    for before in old.clone() {
        match new.clone().find(|it| it.name == before.name) {
            Some(after) => compare_value(changes, owner, before, after),
            None => report_removed(changes, owner, before),
        }
    }
    for after in new {
        if old.clone().all(|it| it.name != after.name) {
            report_added(changes, owner, after);
        }
    }
}

fn report_removed(changes: &mut ChangeList, owner: InputOwner<'_>, before: &InputValueDefinition) {
    use ChangeCode as C;
    let path = owner.coordinate(&before.name);
    let message = format!("the {} `{path}` was removed", owner.noun());
    changes.add(
        owner.select([C::ArgRemoved, C::DirectiveArgRemoved, C::InputFieldRemoved]),
        path,
        message,
        breaking("requests that give it are refused"),
        owner.given(&before.name),
    );
}

fn report_added(changes: &mut ChangeList, owner: InputOwner<'_>, after: &InputValueDefinition) {
    use ChangeCode as C;
    let path = owner.coordinate(&after.name);
    if after.is_required() {
        let message = format!("the required {} `{path}: {}` was added", owner.noun(), after.ty);
        changes.add(
            owner.select([
                C::RequiredArgAdded,
                C::RequiredDirectiveArgAdded,
                C::RequiredInputFieldAdded,
            ]),
            path,
            message,
            breaking("requests of today do not give it, so they are refused"),
            owner.used(),
        );
        return;
    }
    let message = format!("the optional {} `{path}: {}` was added", owner.noun(), after.ty);
    let weight = match owner {
        InputOwner::Directive(_) => safe("it may be left out"),
        _ => dangerous("it may be left out, but then the server decides what that means"),
    };
    changes.add(
        owner.select([
            C::OptionalArgAdded,
            C::OptionalDirectiveArgAdded,
            C::OptionalInputFieldAdded,
        ]),
        path,
        message,
        weight,
        owner.used(),
    );
}

fn compare_value(
    changes: &mut ChangeList,
    owner: InputOwner<'_>,
    old: &InputValueDefinition,
    new: &InputValueDefinition,
) {
    let path = owner.coordinate(&old.name);
    annotations::compare_descriptions(
        changes,
        &path,
        old.description.as_ref(),
        new.description.as_ref(),
    );
    annotations::compare_deprecations(changes, &path, &old.directives, &new.directives);
    if old.ty != new.ty {
        report_changed_type(changes, owner, &path, old, new);
    }
    compare_defaults(changes, owner, &path, old, new);
}

fn report_changed_type(
    changes: &mut ChangeList,
    owner: InputOwner<'_>,
    path: &str,
    old: &InputValueDefinition,
    new: &InputValueDefinition,
) {
    use ChangeCode as C;
    let message = format!("`{path}` changed its type from `{}` to `{}`", old.ty, new.ty);
    if is_safe_input_change(&old.ty, &new.ty) {
        changes.add(
            owner.select([
                C::ArgChangedKindSafe,
                C::ArgChangedKindSafe,
                C::InputFieldChangedKindSafe,
            ]),
            path,
            message,
            safe("the new type accepts all values of the old one"),
            Exposure::Nothing,
        );
        return;
    }
    let is_only_required = (*old.ty).clone().non_null() == *new.ty;
    let (weight, exposure): (Weight, _) = match (is_only_required, &new.default_value) {
        (true, None) => (
            breaking("requests that leave it out or give null are refused"),
            owner.absent(&old.name),
        ),
        (true, Some(_)) => {
            (breaking("requests that give null are refused"), owner.given(&old.name))
        }
        (false, _) => {
            (breaking("values and variables of the old type are refused"), owner.given(&old.name))
        }
    };
    changes.add(
        owner.select([C::ArgChangedKind, C::ArgChangedKind, C::InputFieldChangedKind]),
        path,
        message,
        weight,
        exposure,
    );
}

fn compare_defaults(
    changes: &mut ChangeList,
    owner: InputOwner<'_>,
    path: &str,
    old: &InputValueDefinition,
    new: &InputValueDefinition,
) {
    use ChangeCode as C;
    let changed = owner.select([
        C::ArgDefaultValueChange,
        C::ArgDefaultValueChange,
        C::InputFieldDefaultValueChange,
    ]);
    let added = owner.select([
        C::ArgDefaultValueAdded,
        C::ArgDefaultValueAdded,
        C::InputFieldDefaultValueAdded,
    ]);
    let print =
        |value: &Node<apollo_compiler::ast::Value>| value.serialize().no_indent().to_string();
    let absent = owner.absent(&old.name);
    match (&old.default_value, &new.default_value) {
        (Some(before), Some(after)) if before != after => {
            let message = format!(
                "the default of `{path}` changed from `{}` to `{}`",
                print(before),
                print(after)
            );
            let weight = dangerous("requests that leave it out get another value");
            changes.add(changed, path, message, weight, absent);
        }
        (Some(before), None) => {
            let message = format!("the default `{}` of `{path}` was removed", print(before));
            let weight = match is_required(&new.ty) {
                true => breaking("requests that leave it out are refused"),
                false => dangerous("requests that leave it out get no value"),
            };
            changes.add(changed, path, message, weight, absent);
        }
        (None, Some(after)) => {
            let message = format!("`{path}` got the default `{}`", print(after));
            let weight = match is_required(&old.ty) {
                true => safe("requests had to give a value until now"),
                false => dangerous("requests that leave it out get another value"),
            };
            changes.add(added, path, message, weight, absent);
        }
        _ => {}
    }
}

/// True if a value without default has to be given.
fn is_required(ty: &Type) -> bool {
    ty.is_non_null()
}
