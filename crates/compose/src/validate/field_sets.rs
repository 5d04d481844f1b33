//! `@key`, `@requires` and `@provides`: their selections must name existing fields that their kind allows.

use apollo_compiler::{ast::Selection, parser::SourceSpan};

use crate::{
    code::Code,
    federation_spec::{FederationDirective as D, FederationVersion},
    finding::Findings,
    similar_names::find_similar,
    subgraph::{
        field_sets,
        model::{
            AppliedDirective, FieldDefinition, SubgraphModel, TypeDefinition, TypeKind, all_of, has,
        },
    },
};

/// The kind of a field set, with the codes of its errors.
struct FieldSetKind {
    directive: &'static str,
    invalid_type: Code,
    invalid: Code,
    has_arguments: Option<Code>,
    has_directive: Code,
    missing_external: Option<Code>,
}

const KEY: FieldSetKind = FieldSetKind {
    directive: "key",
    invalid_type: Code::KEY_INVALID_FIELDS_TYPE,
    invalid: Code::KEY_INVALID_FIELDS,
    has_arguments: Some(Code::KEY_FIELDS_HAS_ARGS),
    has_directive: Code::KEY_DIRECTIVE_IN_FIELDS_ARG,
    missing_external: None,
};

const REQUIRES: FieldSetKind = FieldSetKind {
    directive: "requires",
    invalid_type: Code::REQUIRES_INVALID_FIELDS_TYPE,
    invalid: Code::REQUIRES_INVALID_FIELDS,
    has_arguments: None,
    has_directive: Code::REQUIRES_DIRECTIVE_IN_FIELDS_ARG,
    missing_external: Some(Code::REQUIRES_FIELDS_MISSING_EXTERNAL),
};

const PROVIDES: FieldSetKind = FieldSetKind {
    directive: "provides",
    invalid_type: Code::PROVIDES_INVALID_FIELDS_TYPE,
    invalid: Code::PROVIDES_INVALID_FIELDS,
    has_arguments: Some(Code::PROVIDES_FIELDS_HAS_ARGS),
    has_directive: Code::PROVIDES_DIRECTIVE_IN_FIELDS_ARG,
    missing_external: Some(Code::PROVIDES_FIELDS_MISSING_EXTERNAL),
};

/// The number of characters of a field set that a message repeats: one set may have thousands of errors.
const TEXT_CHARACTERS_MAX: usize = 500;

/// Checks all field sets of a subgraph.
pub(super) fn check(subgraph: &SubgraphModel, findings: &mut Findings<'_>) {
    for ty in subgraph.types.values() {
        check_keys(subgraph, ty, findings);
        for field in ty.fields.values() {
            check_field(subgraph, ty, field, findings);
        }
    }
}

fn check_keys(subgraph: &SubgraphModel, ty: &TypeDefinition, findings: &mut Findings<'_>) {
    for key in all_of(&ty.directives, D::Key) {
        let has_interface_keys =
            !matches!(subgraph.links.version, FederationVersion::Two(minor) if minor < 3);
        if ty.kind == TypeKind::Interface && !has_interface_keys {
            findings.error(
                Code::KEY_UNSUPPORTED_ON_INTERFACE,
                [(subgraph.id, key.node.location())],
                format!(
                    "interface `{}` has a key, which this federation version does not support",
                    ty.name
                ),
                "link version v2.3 of the federation specification or a later one",
            );
        }
        check_one(subgraph, ty, &KEY, &ty.name, key, findings);
    }
}

fn check_field(
    subgraph: &SubgraphModel,
    ty: &TypeDefinition,
    field: &FieldDefinition,
    findings: &mut Findings<'_>,
) {
    let coordinate = format!("{}.{}", ty.name, field.name);
    let is_interface = ty.kind == TypeKind::Interface;
    if field.requires.is_some() {
        for applied in all_of(&field.directives, D::Requires) {
            if is_interface {
                report_on_interface(
                    subgraph,
                    &coordinate,
                    applied,
                    Code::REQUIRES_UNSUPPORTED_ON_INTERFACE,
                    findings,
                );
            } else {
                check_one(subgraph, ty, &REQUIRES, &coordinate, applied, findings);
            }
        }
    }
    if field.provides.is_some() {
        for applied in all_of(&field.directives, D::Provides) {
            let returned = subgraph.types.get(field.ty.inner_named_type());
            let returned = returned.filter(|it| it.kind.is_composite());
            if is_interface {
                report_on_interface(
                    subgraph,
                    &coordinate,
                    applied,
                    Code::PROVIDES_UNSUPPORTED_ON_INTERFACE,
                    findings,
                );
            } else if let Some(returned) = returned {
                check_one(subgraph, returned, &PROVIDES, &coordinate, applied, findings);
            } else {
                findings.error(
                    Code::PROVIDES_ON_NON_OBJECT_FIELD,
                    [(subgraph.id, applied.node.location())],
                    format!("`{coordinate}` provides fields, but its type `{}` has none", field.ty),
                    "remove `@provides`",
                );
            }
        }
    }
}

fn report_on_interface(
    subgraph: &SubgraphModel,
    coordinate: &str,
    applied: &AppliedDirective,
    code: Code,
    findings: &mut Findings<'_>,
) {
    findings.error(
        code,
        [(subgraph.id, applied.node.location())],
        format!(
            "`{coordinate}` is a field of an interface and cannot have `@{}`",
            applied.node.name
        ),
        "put the directive on the field of each object type that implements the interface",
    );
}

fn check_one(
    subgraph: &SubgraphModel,
    on: &TypeDefinition,
    kind: &FieldSetKind,
    coordinate: &str,
    applied: &AppliedDirective,
    findings: &mut Findings<'_>,
) {
    let argument = applied.node.specified_argument_by_name("fields");
    let place =
        argument.and_then(apollo_compiler::Node::location).or_else(|| applied.node.location());
    let Some(text) = applied.text("fields") else {
        let message = format!(
            "the argument `fields` of `@{}` on `{coordinate}` is not a string",
            kind.directive
        );
        findings.error(
            kind.invalid_type,
            [(subgraph.id, place)],
            message,
            "put the selection into quotation marks",
        );
        return;
    };
    let mut checker = FieldSetChecker { subgraph, kind, coordinate, text, place, findings };
    match field_sets::parse(text) {
        Ok(selections) => checker.check(on, &selections, false),
        Err(reason) => checker.report(
            kind.invalid,
            &reason,
            "write names of fields with spaces between them, such as \"id\" or \"id owner { id }\"",
        ),
    }
}

struct FieldSetChecker<'a, 'f, 's> {
    subgraph: &'a SubgraphModel,
    kind: &'a FieldSetKind,
    coordinate: &'a str,
    text: &'a str,
    place: Option<SourceSpan>,
    findings: &'f mut Findings<'s>,
}

impl FieldSetChecker<'_, '_, '_> {
    fn report(&mut self, code: Code, reason: &str, advice: &str) {
        let text = match self.text.char_indices().nth(TEXT_CHARACTERS_MAX) {
            Some((end, _)) => format!("{}…", &self.text[..end]),
            None => self.text.to_owned(),
        };
        let message = format!(
            "`@{}(fields: \"{text}\")` on `{}` is invalid: {reason}",
            self.kind.directive, self.coordinate
        );
        self.findings.error(code, [(self.subgraph.id, self.place)], message, advice);
    }

    fn check(&mut self, on: &TypeDefinition, selections: &[Selection], is_below_external: bool) {
        for selection in selections {
            match selection {
                Selection::Field(it) => {
                    if !it.directives.is_empty() {
                        self.report(
                            self.kind.has_directive,
                            &format!("`{}` has a directive", it.name),
                            "remove the directive",
                        );
                    }
                    if it.alias.is_some() {
                        self.report(
                            self.kind.invalid,
                            &format!("`{}` has an alias", it.name),
                            "remove the alias",
                        );
                    }
                    self.check_field(on, it, is_below_external);
                }
                Selection::InlineFragment(it) => {
                    if !it.directives.is_empty() {
                        self.report(
                            self.kind.has_directive,
                            "a fragment has a directive",
                            "remove the directive",
                        );
                    }
                    let target = match &it.type_condition {
                        None => Some(on),
                        Some(name) => {
                            self.subgraph.types.get(name).filter(|ty| ty.kind.is_composite())
                        }
                    };
                    match target {
                        Some(target) => self.check(target, &it.selection_set, is_below_external),
                        None => {
                            let name = it.type_condition.as_ref().map_or("", |name| name.as_str());
                            self.report(
                                self.kind.invalid,
                                &format!("this subgraph has no type `{name}` to select on"),
                                "name an object, interface or union that this subgraph defines",
                            );
                        }
                    }
                }
                Selection::FragmentSpread(_) => {
                    self.report(
                        self.kind.invalid,
                        "named fragments have no meaning here",
                        "use an inline fragment, `... on Type { … }`",
                    );
                }
            }
        }
    }

    fn check_field(
        &mut self,
        on: &TypeDefinition,
        selected: &apollo_compiler::ast::Field,
        is_below_external: bool,
    ) {
        if selected.name == "__typename" {
            return;
        }
        let Some(field) = on.fields.get(&selected.name) else {
            let reason =
                format!("type `{}` has no field `{}` in this subgraph", on.name, selected.name);
            let advice = match self.kind.missing_external {
                Some(_) => {
                    "declare the field with `@external` in this subgraph, as it is where it is resolved"
                }
                None => "name fields that this subgraph declares",
            };
            let known = on.fields.keys().map(apollo_compiler::Name::as_str);
            let similar = match self.findings.is_full() {
                true => None,
                false => find_similar(&selected.name, known),
            };
            let similar =
                similar.map_or_else(String::new, |it| format!("did you mean `{it}`? If not, "));
            self.report(self.kind.invalid, &reason, &format!("{similar}{advice}"));
            return;
        };
        let coordinate = format!("{}.{}", on.name, field.name);
        if !self.check_arguments(&coordinate, field, selected) {
            return;
        }
        let below = self.subgraph.types.get(field.ty.inner_named_type());
        let below = below.filter(|ty| ty.kind.is_composite());
        if self.kind.missing_external.is_none() {
            self.check_key_type(&coordinate, field, below);
        }
        let is_external = is_below_external || self.is_external(on, field);
        match (below, selected.selection_set.is_empty()) {
            (Some(_), true) => {
                self.report(
                    self.kind.invalid,
                    &format!("`{coordinate}` needs a selection of its fields"),
                    "add the fields in braces, such as `{ id }`",
                );
            }
            (None, false) => {
                self.report(
                    self.kind.invalid,
                    &format!("`{coordinate}` has no fields to select"),
                    "remove the braces and what is in them",
                );
            }
            (Some(below), false) => self.check(below, &selected.selection_set, is_external),
            (None, true) => {
                // Federation 1 allowed fields that the subgraph resolves itself.
                if let Some(code) = self.kind.missing_external
                    && !is_external
                    && !self.subgraph.is_federation_one()
                {
                    let reason = format!(
                        "`{coordinate}` is not `@external`: this subgraph resolves it anyway"
                    );
                    let advice = format!(
                        "mark `{coordinate}` as `@external`, or remove it from the selection"
                    );
                    self.report(code, &reason, &advice);
                }
            }
        }
    }

    /// Checks the arguments of a selected field. Returns false if they do not fit.
    fn check_arguments(
        &mut self,
        coordinate: &str,
        field: &FieldDefinition,
        selected: &apollo_compiler::ast::Field,
    ) -> bool {
        let is_given = |name: &str| selected.arguments.iter().any(|it| it.name == name);
        let unknown = selected.arguments.iter().find(|it| !field.arguments.contains_key(&it.name));
        let missing = field
            .arguments
            .values()
            .find(|it| it.ty.is_non_null() && it.default.is_none() && !is_given(&it.name));
        if let Some(unknown) = unknown {
            let reason = format!("`{coordinate}` has no argument `{}`", unknown.name);
            self.report(
                self.kind.invalid,
                &reason,
                "give only arguments that the field has in this subgraph",
            );
            return false;
        } else if let Some(missing) = missing {
            let reason = format!("`{coordinate}` needs the argument `{}`", missing.name);
            self.report(self.kind.invalid, &reason, "give the argument a value");
            return false;
        } else if let Some(code) = self.kind.has_arguments
            && !field.arguments.is_empty()
        {
            self.report(
                code,
                &format!("`{coordinate}` has arguments"),
                "select fields without arguments",
            );
        }
        true
    }

    fn check_key_type(
        &mut self,
        coordinate: &str,
        field: &FieldDefinition,
        below: Option<&TypeDefinition>,
    ) {
        let what = match below.map(|ty| ty.kind) {
            _ if field.ty.is_list() => return,
            Some(TypeKind::Interface) => "an interface",
            Some(TypeKind::Union) => "a union",
            _ => return,
        };
        self.report(
            Code::KEY_FIELDS_SELECT_INVALID_TYPE,
            &format!("`{coordinate}` is {what}, which cannot be part of a key"),
            "select scalars, enums and object types only",
        );
    }

    /// True if the subgraph does not resolve the field by itself. A field of an interface counts as external if some
    /// implementation has it external, because `@external` is not allowed on the interface.
    fn is_external(&self, on: &TypeDefinition, field: &FieldDefinition) -> bool {
        field.is_external
            || has(&field.directives, D::External)
            || (on.kind == TypeKind::Interface
                && self.subgraph.possible_types(on).iter().any(|member| {
                    member.fields.get(&field.name).is_some_and(|own| own.is_external)
                }))
    }
}
