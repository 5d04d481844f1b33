//! The fields and types that a client may not use, according to the directives in the text of a supergraph. This is
//! part of the oracle: the router's own rules (`graph::AccessRules`) are not used.

use std::collections::HashMap;

use apollo_compiler::Node;
use apollo_compiler::ast::{Definition, Directive, Document, FieldDefinition};
use graph::{Supergraph, TypeId, TypeKind};

use crate::Random;

/// The directives of a supergraph, and the requirements that the client does not meet.
#[derive(Debug, Default)]
pub(crate) struct Denials {
    /// The directives of types, by name.
    types: HashMap<String, Vec<String>>,
    /// The directives of fields, by the names of type and field.
    fields: HashMap<(String, String), Vec<String>>,
    unmet: Vec<String>,
}

impl Denials {
    /// Reads the directives of `sdl` whose text is one of `unmet`, such as `@authenticated`.
    pub(crate) fn read(sdl: &str, unmet: &[String]) -> Self {
        let mut denials = Self { unmet: unmet.to_vec(), ..Self::default() };
        let Ok(document) = Document::parse(sdl.to_owned(), "supergraph.graphql") else {
            return denials;
        };
        let texts = |directives: &[Node<Directive>]| -> Vec<String> {
            directives.iter().map(|it| it.to_string().replace('\n', " ")).collect()
        };
        for definition in &document.definitions {
            let Some(name) = definition.name() else { continue };
            if !is_type(definition) {
                continue;
            }
            denials.types.insert(name.to_string(), texts(definition.directives()));
            for field in fields_of(definition) {
                let key = (name.to_string(), field.name.to_string());
                denials.fields.insert(key, texts(&field.directives));
            }
        }
        denials
    }

    /// True if the client may not use this field of objects of type `ty`.
    pub(crate) fn has_field(&self, graph: &Supergraph, ty: TypeId, field: &str) -> bool {
        let definition = graph.ty(ty);
        let Some(own) = graph.field_named(ty, field) else { return false };
        let is_root = [Some(graph.query), graph.mutation, graph.subscription].contains(&Some(ty));
        let mut interfaces = definition.implements.iter();
        self.is_unmet(self.of_field(graph, ty, field))
            || interfaces.any(|it| self.is_denied_by_interface(graph, *it, Some(field)))
            || self.is_denied_value(graph, graph.field(own).ty.named())
            || is_root && self.is_unmet(self.of_type(graph, ty))
    }

    /// True if the client may not use objects of type `ty`.
    pub(crate) fn has_type(&self, graph: &Supergraph, ty: TypeId) -> bool {
        // Objects of a root type have fields that are denied one by one.
        let is_root = [Some(graph.query), graph.mutation, graph.subscription].contains(&Some(ty));
        !is_root && self.is_unmet(self.of_type(graph, ty))
    }

    /// True if the client may not use values of a field with this named type.
    fn is_denied_value(&self, graph: &Supergraph, ty: TypeId) -> bool {
        match graph.ty(ty).kind {
            TypeKind::Interface => self.is_denied_by_interface(graph, ty, None),
            _ => self.is_unmet(self.of_type(graph, ty)),
        }
    }

    /// True if a directive that none of the implementations repeats is on an interface or one of its fields.
    fn is_denied_by_interface(&self, graph: &Supergraph, ty: TypeId, field: Option<&str>) -> bool {
        let texts = |ty: TypeId| match field {
            Some(field) => self.of_field(graph, ty, field),
            None => self.of_type(graph, ty),
        };
        let members = &graph.ty(ty).possible;
        let is_repeated = |text: &String| members.iter().any(|it| texts(*it).contains(text));
        texts(ty).iter().any(|text| self.unmet.contains(text) && !is_repeated(text))
    }

    fn is_unmet(&self, texts: &[String]) -> bool {
        texts.iter().any(|text| self.unmet.contains(text))
    }

    fn of_type(&self, graph: &Supergraph, ty: TypeId) -> &[String] {
        self.types.get(&*graph.ty(ty).name).map_or(&[], |it| it)
    }

    fn of_field(&self, graph: &Supergraph, ty: TypeId, field: &str) -> &[String] {
        let key = (graph.ty(ty).name.to_string(), field.to_owned());
        self.fields.get(&key).map_or(&[], |it| it)
    }
}

fn is_type(definition: &Definition) -> bool {
    matches!(
        definition,
        Definition::ObjectTypeDefinition(_)
            | Definition::InterfaceTypeDefinition(_)
            | Definition::ScalarTypeDefinition(_)
            | Definition::EnumTypeDefinition(_)
    )
}

fn fields_of(definition: &Definition) -> &[Node<FieldDefinition>] {
    match definition {
        Definition::ObjectTypeDefinition(it) => &it.fields,
        Definition::InterfaceTypeDefinition(it) => &it.fields,
        _ => &[],
    }
}

/// Returns `sdl` with authorization directives on some of its types and fields, and their texts. Scopes are numbered,
/// so that a few requirements occur at several places.
pub fn add_requirements(sdl: &str, random: &mut Random) -> Option<(String, Vec<String>)> {
    /// The number of different sets of scopes.
    const SCOPES: usize = 3;
    let mut document = Document::parse(sdl.to_owned(), "supergraph.graphql").ok()?;
    let mut texts: HashMap<String, Node<Directive>> = HashMap::new();
    let mut all = vec!["@authenticated".to_owned()];
    all.extend((0..SCOPES).map(|it| format!("@requiresScopes(scopes: [[\"s{it}\"]])")));
    all.push("@policy(policies: [[\"p\"], [\"q\", \"r\"]])".to_owned());
    for text in &all {
        let parsed = Document::parse(format!("scalar S {text}"), "directive.graphql").ok()?;
        let directive = parsed.definitions.first()?.directives().first()?.clone();
        texts.insert(text.clone(), directive);
    }
    let mut pick = |one_in: usize| random.one_in(one_in).then(|| texts[random.pick(&all)].clone());
    for definition in &mut document.definitions {
        let name = definition.name().map(ToString::to_string).unwrap_or_default();
        if name.contains("__") {
            continue;
        }
        match definition {
            Definition::ObjectTypeDefinition(it) => {
                let it = it.make_mut();
                it.directives.0.extend(pick(8));
                for field in &mut it.fields {
                    field.make_mut().directives.0.extend(pick(6));
                }
            }
            Definition::InterfaceTypeDefinition(it) => {
                let it = it.make_mut();
                it.directives.0.extend(pick(10));
                for field in &mut it.fields {
                    field.make_mut().directives.0.extend(pick(10));
                }
            }
            Definition::ScalarTypeDefinition(it) => it.make_mut().directives.0.extend(pick(4)),
            Definition::EnumTypeDefinition(it) => it.make_mut().directives.0.extend(pick(6)),
            _ => {}
        }
    }
    Some((document.to_string(), all))
}
