//! Conversion of a valid schema with join directives to [`Supergraph`].

use std::collections::HashMap;
use std::sync::Arc;

use apollo_compiler::{
    Schema,
    ast::{self, Value},
    parser::SourceSpan,
    schema::{Component, DirectiveList, ExtendedType, FieldDefinition},
};

use super::{
    access_directives::AccessDirectives,
    cache_hints, costs,
    declared_access::DeclaredAccess,
    directive_arguments as arguments,
    directive_names::DirectiveNames,
    event_fields, interfaces,
    links::Links,
    pending_field_sets::{self, FieldSetSlot, PendingFieldSet},
    possible_types, subscription_endpoints,
};
use crate::{
    ApiSchema, AppliedDirective, Argument, ConstValue, ContextArgument, Field, FieldId,
    FieldInSubgraph, OVERRIDE_LABELS_MAX, OverrideLabels, ProgressiveOverride, SUBGRAPHS_MAX,
    Subgraph, SubgraphId, SubgraphKind, SubgraphSet, Supergraph, Type, TypeId, TypeInSubgraph,
    TypeKind, TypeRef, TypeRefShape, api, errors::ErrorCollector,
};

/// Reads the model from `schema`. The result is meaningful only if no errors were pushed.
pub(super) fn read_schema(
    schema: &Schema,
    links: &Links,
    errors: &mut ErrorCollector<'_>,
) -> Supergraph {
    let graphs = DeclaredSubgraphs::read(schema, links, errors);
    let mut reader = SchemaReader {
        schema,
        graphs,
        names: DirectiveNames::of(links),
        access_directives: AccessDirectives::of(links),
        access: DeclaredAccess::default(),
        is_v0_1: links.is_join_v0_1(),
        field_sets: Vec::new(),
        types: Vec::new(),
        fields: Vec::new(),
        type_names: HashMap::new(),
        override_labels: Vec::new(),
        errors,
    };
    reader.declare_types(links);
    reader.read_types();
    let SchemaReader {
        graphs, field_sets, types, fields, type_names, override_labels, access, ..
    } = reader;
    let root = |name: &Option<apollo_compiler::schema::ComponentName>| {
        name.as_ref().and_then(|name| type_names.get(name.as_str()).copied())
    };
    let roots = &schema.schema_definition;
    let api = api::api_schema(schema, links, errors);
    let mut supergraph = Supergraph {
        query: root(&roots.query).unwrap_or(TypeId(0)),
        mutation: root(&roots.mutation),
        subscription: root(&roots.subscription),
        subgraphs: graphs.subgraphs,
        types,
        fields,
        type_names,
        override_labels,
        access: Arc::default(),
        costs: None,
        cache_hints: None,
        api: ApiSchema(Arc::new(api)),
    };
    possible_types::fill_possible_types(
        &mut supergraph,
        schema,
        &graphs.by_name,
        &DirectiveNames::of(links),
    );
    pending_field_sets::fill_field_sets(&mut supergraph, field_sets, errors);
    event_fields::mark_event_subgraphs(&mut supergraph);
    let is_v0_1 = links.is_join_v0_1();
    pending_field_sets::mark_resolvable_key_members(&mut supergraph, is_v0_1);
    if is_v0_1 {
        pending_field_sets::add_external_mentions(&mut supergraph);
    }
    interfaces::disable_keys_without_entities(&mut supergraph);
    interfaces::register_interface_objects(&mut supergraph);
    supergraph.resolve(OverrideLabels::NONE);
    supergraph.access = Arc::new(access.combine(&supergraph));
    mark_inaccessible(&mut supergraph);
    let costs = costs::read_costs(schema, &DirectiveNames::of(links), &supergraph, errors);
    supergraph.costs = costs.map(Arc::new);
    let hints = cache_hints::read_cache_hints(
        schema,
        &DirectiveNames::of(links),
        &graphs.by_name,
        &supergraph,
        errors,
    );
    supergraph.cache_hints = hints.map(Arc::new);
    event_fields::check_event_fields(&supergraph, schema, errors);
    supergraph
}

/// The subgraphs, and their ids by enum value.
struct DeclaredSubgraphs {
    subgraphs: Vec<Subgraph>,
    by_name: HashMap<String, SubgraphId>,
}

impl DeclaredSubgraphs {
    fn read(schema: &Schema, links: &Links, errors: &mut ErrorCollector<'_>) -> Self {
        let mut graphs = Self { subgraphs: Vec::new(), by_name: HashMap::new() };
        let directive = links.directive("join", "graph");
        let endpoint_directive = links.directive("starling", "subscription");
        let Some(ExtendedType::Enum(values)) =
            schema.types.get(links.type_name("join", "Graph").as_str())
        else {
            return graphs;
        };
        for (value, definition) in &values.values {
            let Some(applied) = definition.directives.get(&directive) else {
                errors.push(
                    definition.location(),
                    format!("`{value}` has no `@{directive}(name:, url:)`"),
                    None,
                );
                continue;
            };
            let name =
                arguments::read_text(applied, "name").map_or(value.as_str(), |(name, _)| name);
            let url = arguments::read_text(applied, "url").map_or("", |(url, _)| url);
            if graphs.subgraphs.iter().any(|other| &*other.name == name) {
                errors.push(
                    applied.location(),
                    format!("two subgraphs are named `{name}`"),
                    Some("names of subgraphs are unique: configuration, logs and metrics use them"),
                );
            }
            if graphs.subgraphs.len() == SUBGRAPHS_MAX {
                errors.push(
                    definition.location(),
                    format!("there are more than {SUBGRAPHS_MAX} subgraphs"),
                    Some("merge some of them"),
                );
                break;
            }
            let endpoint = definition.directives.get(&endpoint_directive);
            let endpoint = endpoint.map(|it| subscription_endpoints::read_endpoint(it, errors));
            let id = SubgraphId(graphs.subgraphs.len() as u16);
            graphs.by_name.insert(value.to_string(), id);
            graphs.subgraphs.push(Subgraph {
                name: name.into(),
                url: url.into(),
                kind: SubgraphKind::Server,
                subscription: endpoint,
            });
        }
        if graphs.subgraphs.is_empty() && errors.is_empty() {
            errors.push(values.location(), "the supergraph has no subgraphs", None);
        }
        graphs
    }
}

struct SchemaReader<'a, 'e, 't> {
    schema: &'a Schema,
    graphs: DeclaredSubgraphs,
    names: DirectiveNames,
    access_directives: AccessDirectives,
    access: DeclaredAccess,
    is_v0_1: bool,
    field_sets: Vec<PendingFieldSet>,
    types: Vec<Type>,
    fields: Vec<Field>,
    type_names: HashMap<Box<str>, TypeId>,
    override_labels: Vec<Box<str>>,
    errors: &'e mut ErrorCollector<'t>,
}

impl SchemaReader<'_, '_, '_> {
    /// Assigns an id to every type that is not machinery, built-in scalars first.
    fn declare_types(&mut self, links: &Links) {
        for name in ["Int", "Float", "String", "Boolean", "ID"] {
            self.declare(name, TypeKind::Scalar, false);
        }
        for (name, definition) in &self.schema.types {
            if definition.is_built_in()
                || links.is_machinery_type(name)
                || self.type_names.contains_key(name.as_str())
            {
                continue;
            }
            let inaccessible = definition.directives().has(&self.names.inaccessible);
            let kind = match definition {
                ExtendedType::Scalar(_) => TypeKind::Scalar,
                ExtendedType::Object(_) => TypeKind::Object,
                ExtendedType::Interface(_) => TypeKind::Interface,
                ExtendedType::Union(_) => TypeKind::Union,
                ExtendedType::InputObject(_) => TypeKind::InputObject,
                ExtendedType::Enum(values) => TypeKind::Enum(
                    values
                        .values
                        .iter()
                        .filter(|(_, value)| !value.directives.has(&self.names.inaccessible))
                        .map(|(name, _)| name.as_str().into())
                        .collect(),
                ),
            };
            self.declare(name, kind, inaccessible);
        }
    }

    fn declare(&mut self, name: &str, kind: TypeKind, inaccessible: bool) {
        let id = TypeId(self.types.len() as u32);
        self.type_names.insert(name.into(), id);
        self.types.push(Type {
            name: name.into(),
            kind,
            fields: Vec::new(),
            possible: Vec::new(),
            implements: Vec::new(),
            subgraphs: Vec::new(),
            interface_objects: Vec::new(),
            contexts: Vec::new(),
            inaccessible,
        });
    }

    fn read_types(&mut self) {
        for index in 0..self.types.len() {
            let id = TypeId(index as u32);
            let name = self.types[index].name.clone();
            let schema = self.schema;
            let Some(definition) = schema.types.get(&*name) else { continue };
            self.read_join_types(id, definition.directives());
            for directive in definition.directives().iter() {
                let (access, errors) = (&mut self.access, &mut *self.errors);
                let requirement = self.access_directives.read(directive, access, errors);
                if let Some(requirement) = requirement {
                    access.types.entry(id).or_default().push(requirement);
                }
            }
            let contexts = definition.directives().get_all(&self.names.context);
            self.types[index].contexts = contexts
                .filter_map(|directive| arguments::read_text(directive, "name"))
                .map(|(name, _)| name.into())
                .collect();
            let (fields, implements) = match definition {
                ExtendedType::Object(object) => (&object.fields, &object.implements_interfaces),
                ExtendedType::Interface(interface) => {
                    (&interface.fields, &interface.implements_interfaces)
                }
                _ => continue,
            };
            self.types[index].implements = implements
                .iter()
                .filter_map(|name| self.type_names.get(name.as_str()).copied())
                .collect();
            let owner = definition
                .directives()
                .get(&self.names.owner)
                .filter(|_| self.is_v0_1)
                .and_then(|owner| self.graph_argument(owner, "graph"));
            for field in fields.values() {
                self.read_field(id, owner, field);
            }
        }
    }

    fn read_join_types(&mut self, id: TypeId, directives: &DirectiveList) {
        let name = self.names.ty.clone();
        for directive in directives.get_all(&name) {
            let Some(subgraph) = self.graph_argument(directive, "graph") else { continue };
            let ty = &mut self.types[id.0 as usize];
            if !ty.subgraphs.iter().any(|there| there.subgraph == subgraph) {
                ty.subgraphs.push(TypeInSubgraph {
                    subgraph,
                    keys: Vec::new(),
                    interface_object: false,
                    possible: Vec::new(),
                });
            }
            if arguments::read_boolean(directive, "isInterfaceObject") == Some(true)
                && let Some(there) =
                    ty.subgraphs.iter_mut().find(|there| there.subgraph == subgraph)
            {
                there.interface_object = true;
            }
            if let Some((text, place)) = arguments::read_text(directive, "key") {
                let resolvable = arguments::read_boolean(directive, "resolvable").unwrap_or(true);
                let is_extension = arguments::read_boolean(directive, "extension") == Some(true);
                let slot = FieldSetSlot::Key { ty: id, subgraph, resolvable, is_extension };
                self.field_sets.push(PendingFieldSet { text: text.to_owned(), place, slot });
            }
        }
        // A type without `@join__type` is a value type of join v0.1, or was written by hand: all subgraphs have it.
        let all = self.graphs.subgraphs.len();
        let ty = &mut self.types[id.0 as usize];
        if ty.subgraphs.is_empty() || (self.is_v0_1 && !directives.has(&self.names.owner)) {
            for subgraph in (0..all).map(|index| SubgraphId(index as u16)) {
                if !ty.subgraphs.iter().any(|there| there.subgraph == subgraph) {
                    ty.subgraphs.push(TypeInSubgraph {
                        subgraph,
                        keys: Vec::new(),
                        interface_object: false,
                        possible: Vec::new(),
                    });
                }
            }
        }
    }

    /// Returns the subgraph that an argument names, and reports an error if none has that name.
    fn graph_argument(&mut self, directive: &ast::Directive, name: &str) -> Option<SubgraphId> {
        let (graph, place) = arguments::enum_name(directive, name)?;
        let id = self.graphs.by_name.get(graph).copied();
        if id.is_none() {
            let help = "subgraphs are the values of the enum join__Graph";
            self.errors.push(place, format!("there is no subgraph `{graph}`"), Some(help));
        }
        id
    }

    fn read_field(
        &mut self,
        parent: TypeId,
        owner: Option<SubgraphId>,
        definition: &Component<FieldDefinition>,
    ) {
        let id = FieldId(self.fields.len() as u32);
        let Some(ty) = self.type_ref(&definition.ty) else { return };
        let mut field = Field {
            name: definition.name.as_str().into(),
            parent,
            ty,
            arguments: definition
                .arguments
                .iter()
                .map(|argument| Argument {
                    name: argument.name.as_str().into(),
                    ty: argument.ty.to_string().into(),
                    default: argument
                        .default_value
                        .as_ref()
                        .map(|value| value.serialize().no_indent().to_string().into()),
                })
                .collect(),
            subgraphs: Vec::new(),
            declared_by: SubgraphSet::EMPTY,
            progressive: Vec::new(),
            resolved_by: SubgraphSet::EMPTY,
            directives: Vec::new(),
            inaccessible: definition.directives.has(&self.names.inaccessible),
        };
        let name = self.names.field.clone();
        if definition.directives.has(&name) {
            self.read_join_fields(id, &mut field, definition);
        } else {
            let everywhere = self.types[parent.0 as usize].subgraphs.iter().map(|t| t.subgraph);
            let subgraphs: Vec<_> = owner.map_or_else(|| everywhere.collect(), |owner| vec![owner]);
            for subgraph in subgraphs {
                field.declared_by.insert(subgraph);
                field.subgraphs.push(FieldInSubgraph::of(subgraph));
            }
        }
        self.read_applied_directives(&mut field, definition);
        for directive in definition.directives.iter() {
            let (access, errors) = (&mut self.access, &mut *self.errors);
            if let Some(requirement) = self.access_directives.read(directive, access, errors) {
                access.fields.entry(id).or_default().push(requirement);
            }
        }
        self.types[parent.0 as usize].fields.push(id);
        self.fields.push(field);
    }

    fn read_join_fields(&mut self, id: FieldId, field: &mut Field, definition: &FieldDefinition) {
        let name = self.names.field.clone();
        let mut overridden = Vec::new();
        for directive in definition.directives.get_all(&name) {
            // Without `graph` no subgraph has the field itself: an interface object provides it.
            let Some(subgraph) = self.graph_argument(directive, "graph") else { continue };
            let index = field.subgraphs.len();
            let mut there = FieldInSubgraph::of(subgraph);
            there.external = arguments::read_boolean(directive, "external") == Some(true)
                || arguments::read_boolean(directive, "usedOverridden") == Some(true);
            if let Some((from, _)) = arguments::read_text(directive, "override") {
                let label = arguments::read_text(directive, "overrideLabel")
                    .map(|(label, place)| self.override_label(label, place));
                overridden.push((from.to_owned(), subgraph, label));
            }
            self.read_context_arguments(id, index, &mut there, directive);
            if let Some((text, place)) = arguments::read_text(directive, "type") {
                match ast::Type::parse(text, "type.graphql").ok().and_then(|ty| self.type_ref(&ty))
                {
                    Some(ty) => there.ty = Some(ty).filter(|ty| *ty != field.ty),
                    None => self.errors.push(place, format!("`{text}` is not a type"), None),
                }
            }
            for (argument, is_requires) in [("requires", true), ("provides", false)] {
                if let Some((text, place)) = arguments::read_text(directive, argument) {
                    let slot = match is_requires {
                        true => FieldSetSlot::Requires { field: id, mention: index },
                        false => FieldSetSlot::Provides { field: id, mention: index },
                    };
                    self.field_sets.push(PendingFieldSet { text: text.to_owned(), place, slot });
                }
            }
            field.subgraphs.push(there);
        }
        for (from, to, label) in overridden {
            for there in &mut field.subgraphs {
                let subgraph = &self.graphs.subgraphs[usize::from(there.subgraph.0)];
                if there.subgraph == to || *subgraph.name != *from || there.external {
                    continue;
                }
                match label {
                    None => there.external = true,
                    Some(label) => {
                        let from = there.subgraph;
                        field.progressive.push(ProgressiveOverride { label, from, to });
                    }
                }
            }
        }
        field.declared_by =
            field.subgraphs.iter().filter(|there| !there.external).map(|t| t.subgraph).collect();
    }

    fn read_context_arguments(
        &mut self,
        field: FieldId,
        mention: usize,
        there: &mut FieldInSubgraph,
        directive: &ast::Directive,
    ) {
        let Some(value) = directive.specified_argument_by_name("contextArguments") else { return };
        let ConstValue::List(items) = arguments::convert_value(value) else { return };
        for item in items {
            let ConstValue::Object(members) = item else { continue };
            let text = |wanted: &str| match members.iter().find(|(name, _)| **name == *wanted) {
                Some((_, ConstValue::String(text))) => Some(text.clone()),
                _ => None,
            };
            let (Some(name), Some(ty), Some(context), Some(selection)) =
                (text("name"), text("type"), text("context"), text("selection"))
            else {
                let message = "a context argument has a name, a type, a context and a selection";
                self.errors.push(value.location(), message, None);
                continue;
            };
            let slot =
                FieldSetSlot::Context { field, mention, argument: there.context.len(), context };
            let place = value.location();
            self.field_sets.push(PendingFieldSet { text: selection.into(), place, slot });
            there.context.push(ContextArgument { name, ty, selections: Vec::new() });
            // The field is always fetched by an entity request with the argument, whichever subgraph gave the object.
            there.requires.get_or_insert_default();
        }
    }

    /// Returns the index of a label. Beyond the limit all labels share the last index; loading fails then.
    fn override_label(&mut self, label: &str, place: Option<SourceSpan>) -> u8 {
        if let Some(known) = self.override_labels.iter().position(|known| **known == *label) {
            return known as u8;
        }
        if self.override_labels.len() == OVERRIDE_LABELS_MAX {
            let message = format!("there are more than {OVERRIDE_LABELS_MAX} labels of @override");
            self.errors.push(place, message, Some("finish some of the migrations first"));
            return (OVERRIDE_LABELS_MAX - 1) as u8;
        }
        self.override_labels.push(label.into());
        (self.override_labels.len() - 1) as u8
    }

    fn read_applied_directives(&mut self, field: &mut Field, definition: &FieldDefinition) {
        for directive in definition.directives.iter() {
            if directive.name == self.names.directive.as_str() {
                let mut subgraphs = SubgraphSet::EMPTY;
                let graphs = directive.specified_argument_by_name("graphs");
                for graph in graphs.and_then(|value| value.as_list()).unwrap_or_default() {
                    let name = match &**graph {
                        Value::Enum(name) => name.as_str(),
                        Value::String(text) => text,
                        _ => continue,
                    };
                    match self.graphs.by_name.get(name) {
                        Some(&id) => subgraphs.insert(id),
                        None => self.errors.push(
                            graph.location(),
                            format!("there is no subgraph `{name}`"),
                            Some("subgraphs are the values of the enum join__Graph"),
                        ),
                    }
                }
                let Some((name, _)) = arguments::read_text(directive, "name") else { continue };
                let members = match directive.specified_argument_by_name("args").map(|args| &**args)
                {
                    Some(Value::Object(members)) => members.as_slice(),
                    _ => &[],
                };
                field.directives.push(AppliedDirective {
                    subgraphs,
                    name: name.trim_start_matches('@').into(),
                    arguments: members
                        .iter()
                        .map(|(name, value)| {
                            (name.as_str().into(), arguments::convert_value(value))
                        })
                        .collect(),
                });
            } else if !self.names.machinery.iter().any(|name| directive.name == name.as_str()) {
                field.directives.push(AppliedDirective {
                    subgraphs: field.subgraphs.iter().map(|there| there.subgraph).collect(),
                    name: directive.name.as_str().into(),
                    arguments: directive
                        .arguments
                        .iter()
                        .map(|argument| {
                            (
                                argument.name.as_str().into(),
                                arguments::convert_value(&argument.value),
                            )
                        })
                        .collect(),
                });
            }
        }
    }

    fn type_ref(&self, ty: &ast::Type) -> Option<TypeRef> {
        let (nullable, shape) = match ty {
            ast::Type::Named(name) | ast::Type::NonNullNamed(name) => {
                let id = self.type_names.get(name.as_str())?;
                (matches!(ty, ast::Type::Named(_)), TypeRefShape::Named(*id))
            }
            ast::Type::List(inner) | ast::Type::NonNullList(inner) => (
                matches!(ty, ast::Type::List(_)),
                TypeRefShape::List(Box::new(self.type_ref(inner)?)),
            ),
        };
        Some(TypeRef { nullable, shape })
    }
}

fn mark_inaccessible(supergraph: &mut Supergraph) {
    let api = supergraph.api.0.clone();
    for ty in &mut supergraph.types {
        let is_built_in_scalar = matches!(&*ty.name, "Int" | "Float" | "String" | "Boolean" | "ID");
        ty.inaccessible |= !is_built_in_scalar && !api.types.contains_key(&*ty.name);
    }
    for field in &mut supergraph.fields {
        let parent = &supergraph.types[field.parent.0 as usize].name;
        field.inaccessible |= api.type_field(parent, &field.name).is_err();
    }
}
