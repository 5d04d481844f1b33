//! Conversion of a syntax tree to the model of a subgraph. Nothing is checked here: what a schema must not contain is
//! reported by [`crate::validate`].

use std::collections::{HashMap, HashSet};

use apollo_compiler::{
    Name, Node,
    ast::{self, Definition, OperationType},
};
use indexmap::IndexMap;

use super::{
    field_sets,
    model::{
        AppliedDirective, EnumValue, FieldDefinition, InputDefinition, KeyDefinition,
        OverrideSource, SubgraphModel, TypeDefinition, TypeKind, all_of, has,
    },
};
use crate::{
    events,
    federation_spec::{FederationDirective as D, FederationVersion},
    links::Links,
};

/// Reads the model of one subgraph.
pub(crate) fn read(
    id: usize,
    name: &str,
    document: &ast::Document,
    links: Links,
    is_event_subgraph: bool,
) -> SubgraphModel {
    let renamed = find_renamed_roots(document);
    let mut reader = DocumentReader {
        links,
        renamed,
        types: IndexMap::new(),
        directive_definitions: IndexMap::new(),
        schema_directives: Vec::new(),
        description: None,
    };
    for definition in &document.definitions {
        reader.read_definition(definition);
    }
    let DocumentReader {
        links,
        mut types,
        directive_definitions,
        schema_directives,
        description,
        ..
    } = reader;
    // Every server of a subgraph has a query root, if only for `_entities`.
    let query = Name::new_unchecked("Query");
    let query = types
        .entry(query.clone())
        .or_insert_with(|| TypeDefinition::empty(query, TypeKind::Object));
    query.fields.retain(|name, _| name != "_service" && name != "_entities");
    let mut model = SubgraphModel {
        id,
        name: name.to_owned(),
        links,
        types,
        directive_definitions,
        schema_directives,
        description,
        is_event_subgraph,
    };
    if is_event_subgraph {
        events::complete(&mut model);
    }
    let keys_of_extensions = find_key_references(&model);
    for (ty, field) in keys_of_extensions {
        if let Some(field) = model.types.get_mut(&ty).and_then(|ty| ty.fields.get_mut(&field)) {
            field.is_external = false;
        }
    }
    mark_shareable_fields(&mut model);
    mark_provided_fields(&mut model);
    model
}

/// Returns the fields that are external only in name: members of a key on a type extension, or of a key in an event
/// subgraph. Federation 1 demands `@external` there, although the subgraph gives the values.
fn find_key_references(model: &SubgraphModel) -> Vec<(Name, Name)> {
    let mut found = Vec::new();
    for ty in model.types.values() {
        for key in &ty.keys {
            if !key.is_on_extension && !ty.is_extension && !model.is_event_subgraph {
                continue;
            }
            let Ok(selections) = field_sets::parse(&key.fields) else { continue };
            field_sets::visit_fields(model, ty, &selections, &mut |on, field| {
                if field.is_external {
                    found.push((on.name.clone(), field.name.clone()));
                }
            });
        }
    }
    found
}

/// Marks the members of keys as shareable: every subgraph that has an entity has its keys.
fn mark_shareable_fields(model: &mut SubgraphModel) {
    let mut members = HashSet::new();
    for ty in model.types.values() {
        for key in &ty.keys {
            let Ok(selections) = field_sets::parse(&key.fields) else { continue };
            field_sets::visit_fields(model, ty, &selections, &mut |on, field| {
                members.insert((on.name.clone(), field.name.clone()));
            });
        }
    }
    for (ty, field) in members {
        if let Some(field) = model.types.get_mut(&ty).and_then(|ty| ty.fields.get_mut(&field)) {
            field.is_shareable = true;
        }
    }
}

/// Marks the external fields that the subgraph resolves on some paths.
fn mark_provided_fields(model: &mut SubgraphModel) {
    let mut provided = HashSet::new();
    for field in model.types.values().flat_map(|ty| ty.fields.values()) {
        let Some(provides) = field.provides.as_ref().filter(|_| !field.is_external) else {
            continue;
        };
        let Some(returned) = model.types.get(field.ty.inner_named_type()) else { continue };
        let Ok(selections) = field_sets::parse(provides) else { continue };
        field_sets::visit_fields(model, returned, &selections, &mut |on, field| {
            provided.insert((on.name.clone(), field.name.clone()));
        });
    }
    for (ty, field) in provided {
        if let Some(field) = model.types.get_mut(&ty).and_then(|ty| ty.fields.get_mut(&field)) {
            field.is_provided = true;
        }
    }
}

/// Returns the names of the root types in the schema definition that differ from the usual ones.
fn find_renamed_roots(document: &ast::Document) -> HashMap<Name, &'static str> {
    let mut renamed = HashMap::new();
    for definition in &document.definitions {
        let roots = match definition {
            Definition::SchemaDefinition(it) => &it.root_operations,
            Definition::SchemaExtension(it) => &it.root_operations,
            _ => continue,
        };
        for root in roots {
            let usual = match root.0 {
                OperationType::Query => "Query",
                OperationType::Mutation => "Mutation",
                OperationType::Subscription => "Subscription",
            };
            if root.1 != usual {
                renamed.insert(root.1.clone(), usual);
            }
        }
    }
    renamed
}

struct DocumentReader {
    links: Links,
    renamed: HashMap<Name, &'static str>,
    types: IndexMap<Name, TypeDefinition>,
    directive_definitions: IndexMap<Name, Node<ast::DirectiveDefinition>>,
    schema_directives: Vec<AppliedDirective>,
    description: Option<Node<str>>,
}

/// The parts that definitions and extensions of all kinds of types have in common.
struct TypeHead<'a> {
    name: &'a Name,
    kind: TypeKind,
    description: Option<&'a Node<str>>,
    directives: &'a ast::DirectiveList,
    is_extension: bool,
}

impl DocumentReader {
    fn read_definition(&mut self, definition: &Definition) {
        macro_rules! head {
            ($node:expr, $kind:ident) => {
                TypeHead {
                    name: &$node.name,
                    kind: TypeKind::$kind,
                    description: $node.description.as_ref(),
                    directives: &$node.directives,
                    is_extension: false,
                }
            };
            ($node:expr, extended $kind:ident) => {
                TypeHead {
                    name: &$node.name,
                    kind: TypeKind::$kind,
                    description: None,
                    directives: &$node.directives,
                    is_extension: true,
                }
            };
        }
        use Definition as A;
        match definition {
            A::DirectiveDefinition(it) => {
                self.directive_definitions.entry(it.name.clone()).or_insert_with(|| it.clone());
            }
            A::SchemaDefinition(it) => {
                self.description.clone_from(&it.description);
                self.read_schema_directives(&it.directives);
            }
            A::SchemaExtension(it) => self.read_schema_directives(&it.directives),
            A::ScalarTypeDefinition(it) => _ = self.read_head(head!(it, Scalar)),
            A::ScalarTypeExtension(it) => _ = self.read_head(head!(it, extended Scalar)),
            A::ObjectTypeDefinition(it) => {
                self.read_output(head!(it, Object), &it.implements_interfaces, &it.fields);
            }
            A::ObjectTypeExtension(it) => {
                self.read_output(head!(it, extended Object), &it.implements_interfaces, &it.fields);
            }
            A::InterfaceTypeDefinition(it) => {
                self.read_output(head!(it, Interface), &it.implements_interfaces, &it.fields);
            }
            A::InterfaceTypeExtension(it) => self.read_output(
                head!(it, extended Interface),
                &it.implements_interfaces,
                &it.fields,
            ),
            A::UnionTypeDefinition(it) => self.read_union(head!(it, Union), &it.members),
            A::UnionTypeExtension(it) => self.read_union(head!(it, extended Union), &it.members),
            A::EnumTypeDefinition(it) => self.read_enum(head!(it, Enum), &it.values),
            A::EnumTypeExtension(it) => self.read_enum(head!(it, extended Enum), &it.values),
            A::InputObjectTypeDefinition(it) => self.read_input(head!(it, InputObject), &it.fields),
            A::InputObjectTypeExtension(it) => {
                self.read_input(head!(it, extended InputObject), &it.fields);
            }
            A::OperationDefinition(_) | A::FragmentDefinition(_) => {}
        }
    }

    fn read_schema_directives(&mut self, directives: &ast::DirectiveList) {
        let applied = self.applied(directives);
        self.schema_directives.extend(applied);
    }

    fn applied(&self, directives: &ast::DirectiveList) -> Vec<AppliedDirective> {
        let applied = |node: &Node<ast::Directive>| AppliedDirective {
            known: self.links.directive_named(&node.name),
            node: node.clone(),
        };
        directives.0.iter().map(applied).collect()
    }

    /// Returns the type with its head applied; `None` for types of the machinery and for a second definition with
    /// another kind, which validation reports.
    fn read_head(&mut self, head: TypeHead<'_>) -> Option<&mut TypeDefinition> {
        let is_built_in =
            matches!(head.name.as_str(), "Int" | "Float" | "String" | "Boolean" | "ID");
        if is_built_in || self.links.is_machinery_type(head.name) {
            return None;
        }
        let directives = self.applied(head.directives);
        let name = self.rename(head.name);
        let is_new = !self.types.contains_key(&name);
        let ty = self.types.entry(name.clone()).or_insert_with(|| TypeDefinition {
            is_extension: true,
            has_definition: false,
            ..TypeDefinition::empty(name, head.kind)
        });
        if ty.kind != head.kind {
            return None;
        }
        if !head.is_extension {
            if !is_new {
                // The position of the definition says more than that of an extension before it.
                ty.name = self
                    .renamed
                    .get(head.name)
                    .map_or_else(|| head.name.clone(), |_| ty.name.clone());
            }
            ty.is_extension = false;
            ty.has_definition = true;
            ty.description = head.description.cloned();
        }
        for key in all_of(&directives, D::Key) {
            ty.keys.push(KeyDefinition {
                fields: key.text("fields").unwrap_or_default().to_owned(),
                is_resolvable: key
                    .node
                    .specified_argument_by_name("resolvable")
                    .and_then(|it| it.to_bool())
                    .unwrap_or(true),
                is_on_extension: head.is_extension || has(&directives, D::Extends),
                place: key.node.location(),
            });
        }
        ty.is_extension |= has(&directives, D::Extends);
        ty.is_shareable_twice |= all_of(&directives, D::Shareable).count() > 1;
        ty.is_interface_object |= has(&directives, D::InterfaceObject);
        ty.directives.extend(directives);
        Some(ty)
    }

    fn rename(&self, name: &Name) -> Name {
        match self.renamed.get(name) {
            // The position is lost: it is bound to the length of the name.
            Some(usual) => Name::new_unchecked(usual),
            None => name.clone(),
        }
    }

    fn rename_in(&self, ty: &ast::Type) -> ast::Type {
        if self.renamed.is_empty() {
            return ty.clone();
        }
        match ty {
            ast::Type::Named(name) => ast::Type::Named(self.rename(name)),
            ast::Type::NonNullNamed(name) => ast::Type::NonNullNamed(self.rename(name)),
            ast::Type::List(inner) => ast::Type::List(Box::new(self.rename_in(inner))),
            ast::Type::NonNullList(inner) => {
                ast::Type::NonNullList(Box::new(self.rename_in(inner)))
            }
        }
    }

    fn read_output(
        &mut self,
        head: TypeHead<'_>,
        implements: &[Name],
        fields: &[Node<ast::FieldDefinition>],
    ) {
        let applied = self.applied(head.directives);
        let is_federation_one = self.links.version == FederationVersion::One;
        let (is_external, is_shareable) = (has(&applied, D::External), has(&applied, D::Shareable));
        let is_object = head.kind == TypeKind::Object;
        let fields: Vec<_> = fields
            .iter()
            .map(|field| {
                let mut field = self.read_field(field);
                field.is_external |= is_external && is_object && !is_federation_one;
                field.is_shareable |= is_shareable;
                field
            })
            .collect();
        let implements: Vec<_> = implements.iter().map(|name| self.rename(name)).collect();
        let Some(ty) = self.read_head(head) else { return };
        for name in implements {
            if !ty.implements.contains(&name) {
                ty.implements.push(name);
            }
        }
        for field in fields {
            ty.fields.entry(field.name.clone()).or_insert(field);
        }
    }

    fn read_field(&self, node: &Node<ast::FieldDefinition>) -> FieldDefinition {
        let directives = self.applied(&node.directives);
        let fields_of = |wanted: D| {
            let applied = all_of(&directives, wanted).next();
            applied.map(|it| it.text("fields").unwrap_or_default().to_owned())
        };
        let override_from = all_of(&directives, D::Override).next().map(|it| OverrideSource {
            from: it.text("from").unwrap_or_default().to_owned(),
            label: it.text("label").filter(|label| !label.is_empty()).map(str::to_owned),
            place: it.node.location(),
        });
        FieldDefinition {
            name: node.name.clone(),
            description: node.description.clone(),
            ty: self.rename_in(&node.ty),
            arguments: self.read_inputs(&node.arguments),
            is_external: has(&directives, D::External),
            is_shareable: has(&directives, D::Shareable),
            is_provided: false,
            requires: fields_of(D::Requires),
            provides: fields_of(D::Provides),
            override_from,
            directives,
        }
    }

    fn read_inputs(
        &self,
        nodes: &[Node<ast::InputValueDefinition>],
    ) -> IndexMap<Name, InputDefinition> {
        let mut inputs = IndexMap::new();
        for node in nodes {
            let directives = self.applied(&node.directives);
            let from_context = all_of(&directives, D::FromContext).next();
            let from_context =
                from_context.map(|it| it.text("field").unwrap_or_default().to_owned());
            inputs.entry(node.name.clone()).or_insert_with(|| InputDefinition {
                name: node.name.clone(),
                description: node.description.clone(),
                ty: (*node.ty).clone(),
                default: node.default_value.clone(),
                from_context,
                directives,
            });
        }
        inputs
    }

    fn read_union(&mut self, head: TypeHead<'_>, members: &[Name]) {
        let members: Vec<_> = members.iter().map(|name| self.rename(name)).collect();
        let Some(ty) = self.read_head(head) else { return };
        for name in members {
            if !ty.members.contains(&name) {
                ty.members.push(name);
            }
        }
    }

    fn read_enum(&mut self, head: TypeHead<'_>, values: &[Node<ast::EnumValueDefinition>]) {
        let values: Vec<_> = values
            .iter()
            .map(|node| EnumValue {
                name: node.value.clone(),
                description: node.description.clone(),
                directives: self.applied(&node.directives),
            })
            .collect();
        let Some(ty) = self.read_head(head) else { return };
        for value in values {
            ty.values.entry(value.name.clone()).or_insert(value);
        }
    }

    fn read_input(&mut self, head: TypeHead<'_>, fields: &[Node<ast::InputValueDefinition>]) {
        let inputs = self.read_inputs(fields);
        let Some(ty) = self.read_head(head) else { return };
        for (name, input) in inputs {
            ty.inputs.entry(name).or_insert(input);
        }
    }
}
