//! A check of the part of a schema that introspection shows a client: by the directives in the supergraph, and not by
//! the rules of the router.

use apollo_compiler::schema::ExtendedType;
use graph::TypeKind;

use crate::LoadedCase;

impl LoadedCase {
    /// Checks that the client sees no type and field that it may not use, and every allowed field with a value to show.
    /// Debug builds also validate the schema when it is made.
    pub(crate) fn check_visible_schema(&self) -> Result<(), String> {
        let (graph, denials) = (&self.graph, &self.denials);
        let visible = graph.visible_api(&self.unmet);
        let shown = |ty: &str| visible.as_ref().and_then(|schema| schema.types.get(ty));
        for (name, ty) in graph.api.0.types.iter().filter(|(_, ty)| !ty.is_built_in()) {
            let ExtendedType::Object(object) = ty else { continue };
            let Some(id) = graph.type_named(name) else { continue };
            let Some(seen) = shown(name) else { continue };
            let Some(seen) = seen.as_object() else {
                return Err(format!("{name} is no object type any more"));
            };
            if denials.has_type(graph, id) {
                return Err(format!("{name} is denied and shown"));
            }
            for (field, definition) in &object.fields {
                let is_seen = seen.fields.contains_key(field);
                let is_denied = denials.has_field(graph, id, field);
                if is_denied && is_seen {
                    return Err(format!("{name}.{field} is denied and shown"));
                }
                let below = definition.ty.inner_named_type();
                if !is_denied && !is_seen && (shown(below).is_some() || self.is_useful(below)) {
                    return Err(format!("{name}.{field} is allowed and not shown"));
                }
            }
        }
        let query = &graph.ty(graph.query).name;
        if visible.is_none() && self.is_useful(query) {
            return Err("a field of the query root is allowed, and nothing is shown".to_owned());
        }
        Ok(())
    }

    /// True if the type certainly has something to show: it is a leaf, or an object type with an allowed leaf.
    fn is_useful(&self, ty: &str) -> bool {
        let graph = &self.graph;
        let Some(id) = graph.type_named(ty) else { return true };
        let definition = graph.ty(id);
        let is_leaf = |kind: &TypeKind| matches!(kind, TypeKind::Scalar | TypeKind::Enum(_));
        match &definition.kind {
            kind if is_leaf(kind) => true,
            TypeKind::Object => {
                let Some(ExtendedType::Object(api)) = graph.api.0.types.get(ty) else {
                    return false;
                };
                let mut fields = definition.fields.iter().map(|it| graph.field(*it));
                !self.denials.has_type(graph, id)
                    && fields.any(|it| {
                        api.fields.contains_key(&*it.name)
                            && is_leaf(&graph.ty(it.ty.named()).kind)
                            && !self.denials.has_field(graph, id, &it.name)
                    })
            }
            _ => false,
        }
    }
}
