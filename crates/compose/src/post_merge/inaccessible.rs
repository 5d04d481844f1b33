//! `@inaccessible`: what clients see must be a valid schema without the hidden elements.

use std::collections::HashSet;

use apollo_compiler::{Name, ast::Value};

use crate::{
    code::Code,
    finding::{Findings, Spot},
    subgraph::model::{SubgraphModel, TypeKind},
    supergraph::{MergedField, MergedInput, MergedType, SupergraphModel, has_directive},
};

const HIDDEN: &str = "inaccessible";

/// Checks the visible part of the merged graph.
pub(crate) fn check(
    subgraphs: &[SubgraphModel],
    merged: &SupergraphModel,
    findings: &mut Findings<'_>,
) {
    let mut has_hidden = false;
    merged.visit_directives(&mut |it| has_hidden |= it.graphs.is_none() && it.name == HIDDEN);
    if !has_hidden {
        return;
    }
    let is_hidden = |ty: &&MergedType| has_directive(&ty.directives, HIDDEN);
    let hidden: HashSet<&Name> =
        merged.types.values().filter(is_hidden).map(|it| &it.name).collect();
    let mut checker = VisibilityChecker { subgraphs, merged, hidden, findings };
    for ty in merged.types.values() {
        checker.check_type(ty);
    }
}

struct VisibilityChecker<'a, 'f, 's> {
    subgraphs: &'a [SubgraphModel],
    merged: &'a SupergraphModel,
    hidden: HashSet<&'a Name>,
    findings: &'f mut Findings<'s>,
}

impl VisibilityChecker<'_, '_, '_> {
    fn type_spots(&self, ty: &Name) -> Vec<Spot> {
        let own = |it: &SubgraphModel| Some(it.spot(&it.types.get(ty)?.name));
        self.subgraphs.iter().filter_map(own).collect()
    }

    fn field_spots(&self, ty: &Name, field: &Name) -> Vec<Spot> {
        let own = |it: &SubgraphModel| Some(it.spot(&it.field(ty, field)?.name));
        self.subgraphs.iter().filter_map(own).collect()
    }

    fn check_type(&mut self, ty: &MergedType) {
        let is_hidden = self.hidden.contains(&ty.name);
        if is_hidden {
            if ty.name == "Query" {
                self.findings.error(
                    Code::QUERY_ROOT_TYPE_INACCESSIBLE,
                    self.type_spots(&ty.name),
                    "the query root is `@inaccessible`, so clients could send nothing",
                    "hide single fields of `Query` instead",
                );
            }
            return;
        }
        self.check_children(ty);
        for field in ty.fields.values().filter(|it| !has_directive(&it.directives, HIDDEN)) {
            self.check_field(ty, field);
        }
        for input in ty.inputs.values() {
            let coordinate = format!("{}.{}", ty.name, input.name);
            let own = |it: &SubgraphModel| {
                Some(it.spot(&it.types.get(&ty.name)?.inputs.get(&input.name)?.name))
            };
            let spots: Vec<_> = self.subgraphs.iter().filter_map(own).collect();
            self.check_input(spots, &coordinate, input, "input field");
        }
        for interface in ty.implements.keys().filter_map(|it| self.merged.types.get(it)) {
            if !self.hidden.contains(&interface.name) {
                self.check_implementation(ty, interface);
            }
        }
    }

    fn check_children(&mut self, ty: &MergedType) {
        let hidden_members = |name: &Name| self.hidden.contains(name);
        let (count, visible) = match ty.kind {
            TypeKind::Union => {
                (ty.members.len(), ty.members.keys().filter(|it| !hidden_members(it)).count())
            }
            TypeKind::Enum => {
                let visible =
                    ty.values.values().filter(|it| !has_directive(&it.directives, HIDDEN));
                (ty.values.len(), visible.count())
            }
            TypeKind::InputObject => {
                let visible =
                    ty.inputs.values().filter(|it| !has_directive(&it.directives, HIDDEN));
                (ty.inputs.len(), visible.count())
            }
            TypeKind::Object | TypeKind::Interface => {
                let visible =
                    ty.fields.values().filter(|it| !has_directive(&it.directives, HIDDEN));
                (ty.fields.len(), visible.count())
            }
            TypeKind::Scalar => return,
        };
        if count > 0 && visible == 0 {
            self.findings.error(
                Code::ONLY_INACCESSIBLE_CHILDREN,
                self.type_spots(&ty.name),
                format!(
                    "all members of `{}` are `@inaccessible`, but the type itself is visible",
                    ty.name
                ),
                "hide the type too, or show one of its members",
            );
        }
    }

    fn check_field(&mut self, ty: &MergedType, field: &MergedField) {
        let coordinate = format!("{}.{}", ty.name, field.name);
        if self.hidden.contains(field.ty.inner_named_type()) {
            self.findings.error(
                Code::REFERENCED_INACCESSIBLE,
                self.field_spots(&ty.name, &field.name),
                format!(
                    "`{coordinate}` is visible, but its type `{}` is `@inaccessible`",
                    field.ty.inner_named_type()
                ),
                "hide the field too, or show the type",
            );
        }
        for argument in field.arguments.values() {
            let coordinate = format!("{coordinate}({}:)", argument.name);
            let own = |it: &SubgraphModel| {
                let field = it.field(&ty.name, &field.name)?;
                Some(it.spot(&field.arguments.get(&argument.name)?.name))
            };
            let spots: Vec<_> = self.subgraphs.iter().filter_map(own).collect();
            self.check_input(spots, &coordinate, argument, "argument");
        }
    }

    fn check_input(&mut self, spots: Vec<Spot>, coordinate: &str, input: &MergedInput, noun: &str) {
        if has_directive(&input.directives, HIDDEN) {
            if input.ty.is_non_null() && input.default.is_none() {
                self.findings.error(
                    Code::REQUIRED_INACCESSIBLE,
                    spots,
                    format!("the {noun} `{coordinate}` is required, but clients cannot give it because it is `@inaccessible`"),
                    "make it optional or give it a default",
                );
            }
            return;
        }
        let named = input.ty.inner_named_type();
        if self.hidden.contains(named) {
            self.findings.error(
                Code::REFERENCED_INACCESSIBLE,
                spots,
                format!("the {noun} `{coordinate}` is visible, but its type `{named}` is `@inaccessible`"),
                format!("hide the {noun} too, or show the type"),
            );
        } else if let Some(default) = &input.default
            && let Some(element) = self.hidden_element(default, named)
        {
            self.findings.error(
                Code::DEFAULT_VALUE_USES_INACCESSIBLE,
                spots,
                format!("the default of the {noun} `{coordinate}` contains `{element}`, which is `@inaccessible`"),
                "use another default, or show the element",
            );
        }
    }

    /// Returns the coordinate of the first hidden element that a default contains.
    fn hidden_element(&self, value: &Value, ty: &Name) -> Option<String> {
        let definition = self.merged.types.get(ty)?;
        match value {
            Value::List(items) => items.iter().find_map(|it| self.hidden_element(it, ty)),
            Value::Enum(name) => {
                let value = definition.values.get(name)?;
                has_directive(&value.directives, HIDDEN).then(|| format!("{ty}.{name}"))
            }
            Value::Object(members) => members.iter().find_map(|(name, value)| {
                let input = definition.inputs.get(name)?;
                match has_directive(&input.directives, HIDDEN) {
                    true => Some(format!("{ty}.{name}")),
                    false => self.hidden_element(value, input.ty.inner_named_type()),
                }
            }),
            _ => None,
        }
    }

    fn check_implementation(&mut self, ty: &MergedType, interface: &MergedType) {
        for general in interface.fields.values() {
            if has_directive(&general.directives, HIDDEN) {
                continue;
            }
            let Some(own) = ty.fields.get(&general.name) else { continue };
            if has_directive(&own.directives, HIDDEN) {
                self.findings.error(
                    Code::IMPLEMENTED_BY_INACCESSIBLE,
                    self.field_spots(&ty.name, &own.name),
                    format!(
                        "`{}.{}` is `@inaccessible`, but it implements the visible field `{}.{}`",
                        ty.name, own.name, interface.name, general.name
                    ),
                    "hide the field of the interface too, or show this one",
                );
            }
            for argument in general.arguments.values() {
                let hidden = own.arguments.get(&argument.name);
                let is_hidden = hidden.is_some_and(|it| has_directive(&it.directives, HIDDEN));
                if is_hidden && !has_directive(&argument.directives, HIDDEN) {
                    self.findings.error(
                        Code::IMPLEMENTED_BY_INACCESSIBLE,
                        self.field_spots(&ty.name, &own.name),
                        format!(
                            "the argument `{}` of `{}.{}` is `@inaccessible`, but it implements a visible argument of `{}`",
                            argument.name, ty.name, own.name, interface.name
                        ),
                        "hide the argument of the interface too, or show this one",
                    );
                }
            }
        }
    }
}
