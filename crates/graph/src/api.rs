//! The API schema, which is what clients see: the supergraph without join and link machinery and without everything
//! that `@inaccessible` hides, directly or because all of its members are hidden.

use apollo_compiler::{
    Schema,
    ast::Type,
    collections::HashSet,
    schema::{DirectiveList, ExtendedType},
    validation::Valid,
};

use crate::{Supergraph, errors::ErrorCollector, sdl::links::Links};

impl Supergraph {
    /// The API schema as SDL.
    pub fn api_sdl(&self) -> String {
        self.api.0.to_string()
    }
}

/// Directives that stay in the API schema because they mean something to clients.
const CLIENT_DIRECTIVES: [&str; 3] = ["deprecated", "specifiedBy", "oneOf"];

/// Derives the API schema from `schema`. The result is meaningless if errors were pushed.
pub(crate) fn api_schema(
    schema: &Schema,
    links: &Links,
    errors: &mut ErrorCollector<'_>,
) -> Valid<Schema> {
    let inaccessible = links.directive("inaccessible", "inaccessible");
    let mut api = schema.clone();
    api.types.retain(|name, ty| {
        // Input types and scalars that only arguments of event directives use.
        let is_of_directives = (name.starts_with("edfs__") && ty.is_input_object())
            || (name.starts_with("events__") && (ty.is_input_object() || ty.is_scalar()));
        let is_machinery = links.is_machinery_type(name) || is_of_directives;
        (ty.is_built_in() || !is_machinery) && !ty.directives().has(&inaccessible)
    });
    api.directive_definitions.retain(|name, definition| {
        let reaches_clients = definition.locations.iter().any(is_executable);
        CLIENT_DIRECTIVES.contains(&name.as_str())
            || (reaches_clients && !links.is_machinery_directive(name))
    });
    for ty in api.types.values_mut().filter(|ty| !ty.is_built_in()) {
        remove_hidden_members(ty, &inaccessible);
    }
    while remove_dangling(&mut api) {}
    for ty in api.types.values_mut().filter(|ty| !ty.is_built_in()) {
        strip_directives(ty);
    }
    let uses_one_of = api.types.values().any(|ty| ty.directives().has("oneOf"));
    if !uses_one_of {
        api.directive_definitions.shift_remove("oneOf");
    }
    let definition = api.schema_definition.make_mut();
    definition.directives = DirectiveList::new();
    for root in [&mut definition.mutation, &mut definition.subscription, &mut definition.query] {
        if root.as_ref().is_some_and(|name| !api.types.contains_key(name.as_str())) {
            *root = None;
        }
    }
    if definition.query.is_none() {
        errors.push(
            None,
            "the query root has no field that clients may see",
            Some("at least one field of it must be accessible"),
        );
        return Valid::assume_valid(api);
    }
    match api.validate() {
        Ok(api) => api,
        Err(failed) => {
            for diagnostic in failed.errors.iter() {
                use apollo_compiler::diagnostic::ToCliReport;
                errors.push(
                    diagnostic.error.location(),
                    format!(
                        "without what is inaccessible the schema is invalid: {}",
                        diagnostic.error
                    ),
                    None,
                );
            }
            Valid::assume_valid(failed.partial)
        }
    }
}

fn is_executable(location: &apollo_compiler::schema::DirectiveLocation) -> bool {
    use apollo_compiler::schema::DirectiveLocation as L;
    matches!(
        location,
        L::Query
            | L::Mutation
            | L::Subscription
            | L::Field
            | L::FragmentDefinition
            | L::FragmentSpread
            | L::InlineFragment
            | L::VariableDefinition
    )
}

fn remove_hidden_members(ty: &mut ExtendedType, inaccessible: &str) {
    match ty {
        ExtendedType::Object(object) => {
            let object = object.make_mut();
            object.fields.retain(|_, field| !field.directives.has(inaccessible));
            for field in object.fields.values_mut() {
                field.make_mut().arguments.retain(|a| !a.directives.has(inaccessible));
            }
        }
        ExtendedType::Interface(interface) => {
            let interface = interface.make_mut();
            interface.fields.retain(|_, field| !field.directives.has(inaccessible));
            for field in interface.fields.values_mut() {
                field.make_mut().arguments.retain(|a| !a.directives.has(inaccessible));
            }
        }
        ExtendedType::Enum(values) => {
            values.make_mut().values.retain(|_, value| !value.directives.has(inaccessible));
        }
        ExtendedType::InputObject(input) => {
            input.make_mut().fields.retain(|_, field| !field.directives.has(inaccessible));
        }
        ExtendedType::Scalar(_) | ExtendedType::Union(_) => {}
    }
}

/// Removes references to types that were removed, and types that have no members left. Returns true if anything was
/// removed, in which case another pass is needed.
pub(crate) fn remove_dangling(api: &mut Schema) -> bool {
    let known: HashSet<_> = api.types.keys().cloned().collect();
    // Built-in scalars that nothing uses may be absent from a schema and are known all the same.
    let is_known = |ty: &Type| {
        let name = ty.inner_named_type();
        known.contains(name)
            || matches!(name.as_str(), "Int" | "Float" | "String" | "Boolean" | "ID")
    };
    let mut changed = false;
    let mut note = |keeps: bool| {
        changed |= !keeps;
        keeps
    };
    for ty in api.types.values_mut().filter(|ty| !ty.is_built_in()) {
        match ty {
            ExtendedType::Object(object) => {
                let object = object.make_mut();
                object.fields.retain(|_, field| note(is_known(&field.ty)));
                for field in object.fields.values_mut() {
                    if field.arguments.iter().any(|a| !is_known(&a.ty)) {
                        field.make_mut().arguments.retain(|a| note(is_known(&a.ty)));
                    }
                }
                object.implements_interfaces.retain(|name| note(known.contains(name.as_str())));
            }
            ExtendedType::Interface(interface) => {
                let interface = interface.make_mut();
                interface.fields.retain(|_, field| note(is_known(&field.ty)));
                for field in interface.fields.values_mut() {
                    if field.arguments.iter().any(|a| !is_known(&a.ty)) {
                        field.make_mut().arguments.retain(|a| note(is_known(&a.ty)));
                    }
                }
                interface.implements_interfaces.retain(|name| note(known.contains(name.as_str())));
            }
            ExtendedType::Union(union) => {
                union.make_mut().members.retain(|name| note(known.contains(name.as_str())));
            }
            ExtendedType::InputObject(input) => {
                input.make_mut().fields.retain(|_, field| note(is_known(&field.ty)));
            }
            ExtendedType::Scalar(_) | ExtendedType::Enum(_) => {}
        }
    }
    api.types.retain(|_, ty| {
        note(
            ty.is_built_in()
                || match ty {
                    ExtendedType::Object(object) => !object.fields.is_empty(),
                    ExtendedType::Interface(interface) => !interface.fields.is_empty(),
                    ExtendedType::Union(union) => !union.members.is_empty(),
                    ExtendedType::Enum(values) => !values.values.is_empty(),
                    ExtendedType::InputObject(input) => !input.fields.is_empty(),
                    ExtendedType::Scalar(_) => true,
                },
        )
    });
    changed
}

fn strip_directives(ty: &mut ExtendedType) {
    fn strip_directives(directives: &mut DirectiveList) {
        directives.0.retain(|directive| CLIENT_DIRECTIVES.contains(&directive.name.as_str()));
    }
    fn strip_ast(directives: &mut apollo_compiler::ast::DirectiveList) {
        directives.0.retain(|directive| CLIENT_DIRECTIVES.contains(&directive.name.as_str()));
    }
    match ty {
        ExtendedType::Scalar(scalar) => strip_directives(&mut scalar.make_mut().directives),
        ExtendedType::Union(union) => strip_directives(&mut union.make_mut().directives),
        ExtendedType::Object(object) => {
            let object = object.make_mut();
            strip_directives(&mut object.directives);
            for field in object.fields.values_mut() {
                let field = field.make_mut();
                strip_ast(&mut field.directives);
                field.arguments.iter_mut().for_each(|a| strip_ast(&mut a.make_mut().directives));
            }
        }
        ExtendedType::Interface(interface) => {
            let interface = interface.make_mut();
            strip_directives(&mut interface.directives);
            for field in interface.fields.values_mut() {
                let field = field.make_mut();
                strip_ast(&mut field.directives);
                field.arguments.iter_mut().for_each(|a| strip_ast(&mut a.make_mut().directives));
            }
        }
        ExtendedType::Enum(values) => {
            let values = values.make_mut();
            strip_directives(&mut values.directives);
            values.values.values_mut().for_each(|v| strip_ast(&mut v.make_mut().directives));
        }
        ExtendedType::InputObject(input) => {
            let input = input.make_mut();
            strip_directives(&mut input.directives);
            input.fields.values_mut().for_each(|f| strip_ast(&mut f.make_mut().directives));
        }
    }
}
