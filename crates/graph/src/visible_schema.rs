//! The part of the API schema that a client may use, for introspection: without the types and fields with requirements
//! that it does not meet, and without everything that is reachable only through those.
//!
//! The result is a valid schema. Where an object type loses a field that an interface declares, the interface loses it,
//! too; a type without fields or members is removed with the fields of that type. Arguments and members of input
//! objects have no requirements, so input types are removed only if nothing that is left takes them.

use apollo_compiler::ast::FieldDefinition;
use apollo_compiler::collections::{HashSet, IndexMap, IndexSet};
use apollo_compiler::schema::{Component, ComponentName, ExtendedType};
use apollo_compiler::validation::Valid;
use apollo_compiler::{Name, Schema};

use crate::api::remove_dangling;
use crate::{RequirementSet, Supergraph};

impl Supergraph {
    /// Returns the part of the API schema that a client may use that does not meet the requirements `unmet`. `None` if
    /// it may use no field of the query root: there is no such schema.
    pub fn visible_api(&self, unmet: &RequirementSet) -> Option<Valid<Schema>> {
        if unmet.is_empty() {
            return Some((*self.api.0).clone());
        }
        let mut schema = Schema::clone(&self.api.0);
        self.remove_denied(&mut schema, unmet);
        remove_consequences(&mut schema);
        remove_missing_roots(&mut schema);
        let visible = Visibility::of(&schema);
        schema.types.retain(|name, ty| ty.is_built_in() || visible.named.contains(name));
        // A union that is only the type of a field of a named interface keeps the members that are left.
        remove_consequences(&mut schema);
        remove_missing_roots(&mut schema);
        schema.schema_definition.query.as_ref()?;
        if cfg!(debug_assertions) {
            match schema.validate() {
                Ok(valid) => Some(valid),
                // Introspection is refused rather than wrong. Tests fail by the assertion.
                Err(invalid) => {
                    debug_assert!(false, "a part of the schema is not valid: {}", invalid.errors);
                    None
                }
            }
        } else {
            // Validation takes longer than everything else here. Tests and debug builds do it.
            Some(Valid::assume_valid(schema))
        }
    }

    /// Removes the types and fields with requirements of their own that are not met.
    fn remove_denied(&self, schema: &mut Schema, unmet: &RequirementSet) {
        let is_unmet = |requirements: &[u16]| requirements.iter().any(|it| unmet.contains(*it));
        schema.types.retain(|name, ty| {
            let id = self.type_named(name).filter(|_| !ty.is_built_in());
            id.is_none_or(|id| !is_unmet(self.access.of_type(id)))
        });
        for (name, ty) in &mut schema.types {
            let Some(id) = self.type_named(name).filter(|_| !ty.is_built_in()) else { continue };
            let is_denied = |field: &Name| {
                let field = self.field_named(id, field);
                field.is_some_and(|field| is_unmet(self.access.of_field(field)))
            };
            retain_fields(ty, |field| !is_denied(field));
        }
    }
}

/// Keeps the fields of an object or interface type with these names. Returns true if any was removed.
fn retain_fields(ty: &mut ExtendedType, keeps: impl Fn(&Name) -> bool) -> bool {
    match ty {
        ExtendedType::Object(it) if !it.fields.keys().all(&keeps) => {
            it.make_mut().fields.retain(|name, _| keeps(name));
            true
        }
        ExtendedType::Interface(it) if !it.fields.keys().all(&keeps) => {
            it.make_mut().fields.retain(|name, _| keeps(name));
            true
        }
        _ => false,
    }
}

/// Removes what is not valid, or has no use, without the types and fields that are missing.
fn remove_consequences(schema: &mut Schema) {
    // Each turn removes something, so there are at most as many turns as fields and types; usually two or three.
    loop {
        while remove_dangling(schema) {}
        if !remove_unimplemented_fields(schema) && !remove_empty_interfaces(schema) {
            return;
        }
    }
}

/// Removes the fields of interfaces that an implementation does not have. Returns true if there were any.
fn remove_unimplemented_fields(schema: &mut Schema) -> bool {
    let mut missing: HashSet<(Name, Name)> = HashSet::default();
    for ty in schema.types.values() {
        let Some((fields, interfaces)) = fields_and_interfaces(ty) else { continue };
        for interface in interfaces {
            let Some(ExtendedType::Interface(declared)) = schema.types.get(&interface.name) else {
                continue;
            };
            let lost = declared.fields.keys().filter(|name| !fields.contains_key(*name));
            missing.extend(lost.map(|name| (interface.name.clone(), name.clone())));
        }
    }
    for (interface, field) in &missing {
        if let Some(ty) = schema.types.get_mut(interface) {
            retain_fields(ty, |name| name != field);
        }
    }
    !missing.is_empty()
}

/// Removes the interfaces that no object type implements: a field of such a type has no value. Returns true if there
/// were any.
fn remove_empty_interfaces(schema: &mut Schema) -> bool {
    let implementers = schema.implementers_map();
    let before = schema.types.len();
    schema.types.retain(|name, ty| {
        !ty.is_interface() || implementers.get(name).is_some_and(|it| !it.objects.is_empty())
    });
    schema.types.len() < before
}

/// Removes the names of root types that are missing.
fn remove_missing_roots(schema: &mut Schema) {
    let types = &schema.types;
    let definition = schema.schema_definition.make_mut();
    for root in [&mut definition.query, &mut definition.mutation, &mut definition.subscription] {
        if root.as_ref().is_some_and(|name| !types.contains_key(name.as_str())) {
            *root = None;
        }
    }
}

type Fields = IndexMap<Name, Component<FieldDefinition>>;
type Interfaces = IndexSet<ComponentName>;

fn fields_and_interfaces(ty: &ExtendedType) -> Option<(&Fields, &Interfaces)> {
    match ty {
        ExtendedType::Object(it) => Some((&it.fields, &it.implements_interfaces)),
        ExtendedType::Interface(it) => Some((&it.fields, &it.implements_interfaces)),
        _ => None,
    }
}

/// The types that a client can reach.
#[derive(Default)]
struct Visibility {
    /// The types that the schema has to name.
    named: HashSet<Name>,
    /// Those of them that values may have. Only their object types and members follow: an interface that is just named
    /// by a type that implements it leads to no others.
    with_values: HashSet<Name>,
    /// The types to visit, and whether values may have them.
    open: Vec<(Name, bool)>,
}

impl Visibility {
    fn of(schema: &Schema) -> Self {
        let mut found = Self::default();
        let definition = &schema.schema_definition;
        for root in [&definition.query, &definition.mutation, &definition.subscription] {
            found.open.extend(root.iter().map(|name| (name.name.clone(), true)));
        }
        for directive in schema.directive_definitions.values() {
            let types = directive.arguments.iter().map(|it| it.ty.inner_named_type().clone());
            found.open.extend(types.map(|name| (name, true)));
        }
        let implementers = schema.implementers_map();
        while let Some((name, has_values)) = found.open.pop() {
            let is_new = found.named.insert(name.clone());
            let has_new_values = has_values && found.with_values.insert(name.clone());
            let Some(ty) = schema.types.get(&name).filter(|_| is_new || has_new_values) else {
                continue;
            };
            found.visit(ty, has_values);
            if let (true, Some(implementers)) = (has_values, implementers.get(&name)) {
                found.open.extend(implementers.iter().map(|name| (name.clone(), true)));
            }
        }
        found
    }

    fn visit(&mut self, ty: &ExtendedType, has_values: bool) {
        if let Some((fields, interfaces)) = fields_and_interfaces(ty) {
            self.open.extend(interfaces.iter().map(|it| (it.name.clone(), false)));
            for field in fields.values() {
                self.open.push((field.ty.inner_named_type().clone(), has_values));
                let taken = field.arguments.iter().map(|it| it.ty.inner_named_type().clone());
                self.open.extend(taken.map(|name| (name, true)));
            }
        }
        match ty {
            ExtendedType::Union(it) if has_values => {
                self.open.extend(it.members.iter().map(|it| (it.name.clone(), true)));
            }
            ExtendedType::InputObject(it) => {
                let types = it.fields.values().map(|it| it.ty.inner_named_type().clone());
                self.open.extend(types.map(|name| (name, true)));
            }
            _ => {}
        }
    }
}
