//! The check that a plan produces the whole response and nothing else. It walks the client's selections, the plan's
//! shape and the symbolic tree together.

use graph::{FieldId, Supergraph, TypeId, TypeKind, TypeRef, TypeRefShape};
use plan::{
    Field, FieldTarget, ObjectShapeId, Operation, Plan, Selection, SelectionSet, ShapeField,
    ValueKind, ValueShape, Variables,
};

use crate::{
    arguments,
    symbolic_tree::{ObjectFacts, ObjectsAt, Producer, coordinate},
    violation::{Unsound, unsound},
};

/// Checks the response to `operation` that is read from `root`.
pub(crate) fn check_response(
    graph: &Supergraph,
    operation: &Operation,
    plan: &Plan,
    variables: &Variables,
    mut root: ObjectsAt,
) -> Result<(), Unsound> {
    let check = ResponseCheck { graph, operation, plan, variables };
    check.check_object(&[&operation.selection_set], plan.shape.root, &mut root, None)
}

struct ResponseCheck<'a> {
    graph: &'a Supergraph,
    operation: &'a Operation,
    plan: &'a Plan,
    variables: &'a Variables,
}

/// One field of the response: its first occurrence in the operation, and all selections of the client below it.
struct SelectedField<'a> {
    first: &'a Field,
    below: Vec<&'a SelectionSet>,
}

impl SelectedField<'_> {
    fn is_type(&self) -> bool {
        self.first.target == FieldTarget::Typename
    }
}

impl<'a> ResponseCheck<'a> {
    fn check_object(
        &self,
        sets: &[&'a SelectionSet],
        id: ObjectShapeId,
        place: &mut ObjectsAt,
        reached_by: Option<(FieldId, &[Producer])>,
    ) -> Result<(), Unsound> {
        let Some(shape) = self.plan.shape.objects.get(id.0 as usize) else {
            unsound!("the shape has no object {}", id.0)
        };
        for (&ty, known) in &mut place.types {
            let definition = self.graph.ty(ty);
            if definition.inaccessible {
                continue;
            }
            let mut wanted = Vec::new();
            sets.iter().for_each(|set| self.collect(set, ty, &mut wanted));
            let variant = match shape.is_abstract {
                false => shape.variants.first(),
                true => {
                    if known.typename.is_empty() {
                        unsound!(
                            "no fetch selects whether a {} is a {}",
                            shape.type_name,
                            definition.name
                        );
                    }
                    shape.variants.iter().find(|variant| variant.type_name == definition.name)
                }
            };
            let named = variant.and_then(|variant| self.graph.type_named(&variant.type_name));
            let fits = |&named: &TypeId| {
                // Where the type of an object is unknown, no field may depend on it.
                let is_untyped = !shape.is_abstract && self.graph.ty(named).possible.contains(&ty);
                named == ty || (is_untyped && !wanted.iter().any(SelectedField::is_type))
            };
            let (Some(variant), Some(printed_as)) = (variant, named.filter(fits)) else {
                unsound!("the shape of {} does not know {}", shape.type_name, definition.name)
            };
            let is_denied = shape.is_abstract && self.operation.denied.has_type(ty);
            if variant.is_denied != is_denied {
                unsound!("objects of type {} are not denied as they should be", definition.name)
            }
            if is_denied {
                continue;
            }
            let fields = variant.fields.iter();
            let shown: Vec<&ShapeField> =
                fields.filter(|field| field.is_shown(self.variables)).collect();
            let keys = shown.iter().map(|field| &field.response_key);
            if !keys.eq(wanted.iter().map(|wanted| &wanted.first.response_key)) {
                let list = |keys: Vec<&str>| keys.join(" ");
                unsound!(
                    "the response has {{{}}} of {} where {{{}}} is selected",
                    list(shown.iter().map(|field| &*field.response_key).collect()),
                    definition.name,
                    list(wanted.iter().map(|wanted| &*wanted.first.response_key).collect())
                );
            }
            let may_be_unselected = reached_by.is_some_and(|(field, producers)| {
                !self.is_shared_member(field, ty) || !self.is_known_to(producers, field, ty)
            });
            for (wanted, shown) in wanted.iter().zip(shown) {
                // The response has null there, whichever subgraph is asked.
                if may_be_unselected && known.entry(self.graph, ty, &shown.data_key).is_none() {
                    continue;
                }
                self.check_field(wanted, shown, (ty, printed_as), known)?;
            }
        }
        Ok(())
    }

    /// False if `field` has a union type and one of the subgraphs that resolve it does not know the member `ty`. Such
    /// members may be left unselected.
    fn is_shared_member(&self, field: FieldId, ty: TypeId) -> bool {
        let graph = self.graph;
        let definition = graph.field(field);
        graph.ty(definition.ty.named()).kind != TypeKind::Union
            || definition.resolved_by.iter().all(|subgraph| {
                let there = graph.field_type_in(field, subgraph);
                graph.possible_in(there, subgraph).contains(&ty)
            })
    }

    /// False if one of the requests for `field` goes to a subgraph that does not know its possible type `ty`. The
    /// subgraphs that resolve a field agree on its objects, so none of those has that type.
    fn is_known_to(&self, producers: &[Producer], field: FieldId, ty: TypeId) -> bool {
        let graph = self.graph;
        // An event is not a request: its payload has the types that its subgraph knows.
        let requests = producers.iter().filter_map(|&it| self.plan.fetches.get(it as usize));
        requests.map(|fetch| fetch.subgraph).all(|subgraph| {
            let there = graph.field_type_in(field, subgraph);
            graph.type_in(there, subgraph).is_some_and(|it| it.interface_object)
                || !graph.ty(there).kind.is_abstract()
                || graph.possible_in(there, subgraph).contains(&ty)
        })
    }

    /// Collects the selected fields in response order: CollectFields (GraphQL specification, section 6.3.2).
    fn collect(&self, set: &'a SelectionSet, ty: TypeId, wanted: &mut Vec<SelectedField<'a>>) {
        for item in &set.items {
            match item {
                Selection::Field(field) => {
                    if !field.condition.holds(self.variables) {
                        continue;
                    }
                    let same = wanted
                        .iter_mut()
                        .find(|wanted| wanted.first.response_key == field.response_key);
                    match same {
                        Some(wanted) => wanted.below.extend(&field.selection_set),
                        None => wanted.push(SelectedField {
                            first: field,
                            below: field.selection_set.iter().collect(),
                        }),
                    }
                }
                Selection::Fragment(fragment) => {
                    let applies =
                        fragment.on == ty || self.graph.ty(fragment.on).possible.contains(&ty);
                    if applies && fragment.condition.holds(self.variables) {
                        self.collect(&fragment.selection_set, ty, wanted);
                    }
                }
            }
        }
    }

    fn check_field(
        &self,
        wanted: &SelectedField<'a>,
        shown: &ShapeField,
        (ty, printed_as): (TypeId, TypeId),
        known: &mut ObjectFacts,
    ) -> Result<(), Unsound> {
        let graph = self.graph;
        let type_name = &graph.ty(ty).name;
        let field = match wanted.first.target {
            FieldTarget::Typename if shown.value.kind == ValueKind::Typename => return Ok(()),
            FieldTarget::Introspection if shown.value.kind == ValueKind::Verbatim => return Ok(()),
            FieldTarget::Typename | FieldTarget::Introspection => {
                unsound!("`{}` is read from subgraphs", wanted.first.response_key)
            }
            FieldTarget::Field(field) => field,
        };
        let name = &graph.field(field).name;
        let Some(own) = graph.field_named(ty, name) else {
            unsound!("`{type_name}` has no field `{name}`")
        };
        let is_denied = self.operation.denied.has_field(own);
        if is_denied || shown.value.kind == ValueKind::Denied {
            let nullable = graph.field(own).ty.nullable;
            let expected = ValueShape { nullable, kind: ValueKind::Denied };
            if !is_denied || shown.value != expected {
                unsound!("`{type_name}.{name}` is not denied as it should be")
            }
            return Ok(());
        }
        let Some(entry) = known.entry(graph, ty, &shown.data_key) else {
            unsound!(
                "no fetch selects `{type_name}.{name}`, which should be stored under `{}`",
                shown.data_key
            )
        };
        if entry.field != own || shown.field_name != *name {
            unsound!("`{type_name}.{name}` is read from `{}`", coordinate(graph, entry.field));
        }
        let given = arguments::client_arguments(&wanted.first.arguments);
        if entry.arguments.as_ref().is_some_and(|known| *known != given) {
            unsound!("`{type_name}.{name}` is read with other arguments than the client's");
        }
        let printed = graph.field_named(printed_as, name).unwrap_or(own);
        match self.check_value_shape(own, &graph.field(printed).ty, &shown.value)? {
            Some(below) => {
                let reached_by = Some((own, &*entry.producers));
                self.check_object(&wanted.below, below, &mut entry.below, reached_by)
            }
            None => Ok(()),
        }
    }

    /// Checks that a value's shape matches its type, and returns the shape of its objects.
    fn check_value_shape(
        &self,
        field: FieldId,
        ty: &TypeRef,
        shape: &ValueShape,
    ) -> Result<Option<ObjectShapeId>, Unsound> {
        let is_composite = self.graph.ty(ty.named()).kind.is_composite();
        if ty.nullable == shape.nullable {
            match (&ty.shape, &shape.kind) {
                (TypeRefShape::List(ty), ValueKind::List(shape)) => {
                    return self.check_value_shape(field, ty, shape);
                }
                (TypeRefShape::Named(_), ValueKind::Object(id)) if is_composite => {
                    return Ok(Some(*id));
                }
                (TypeRefShape::Named(_), ValueKind::Leaf(_)) if !is_composite => return Ok(None),
                _ => {}
            }
        }
        unsound!("the shape of `{}` is not that of its type", coordinate(self.graph, field))
    }
}
