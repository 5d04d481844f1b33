//! Counts the cost of a response: the same weights as those of the estimate, for the objects that there are.

use std::collections::HashMap;

use astjson::{Document, Kind, NodeId};
use graph::TypeId;
use plan::{Condition, ObjectShapeId, SelectionSet, Shape, ValueKind, ValueShape, Variables};

use crate::estimate::{EstimateCompiler, FieldArguments};
use crate::merged_fields::{MergedField, Source, merge_fields};

/// The maximum number of selections that are looked at for one operation, as for its estimate.
const VISITED_MAX: usize = 2_000_000;

/// The objects of a response that have a cost.
#[derive(Debug, Default)]
pub(crate) struct ResponseCost {
    /// Equal selections share one entry.
    objects: Vec<CountedObject>,
    root: u32,
}

/// The objects of one selection.
#[derive(Debug, Default)]
struct CountedObject {
    /// True if `__typename` selects the variant.
    is_abstract: bool,
    variants: Vec<CountedVariant>,
}

#[derive(Debug)]
struct CountedVariant {
    type_name: Box<str>,
    weight: u64,
    fields: Vec<CountedField>,
}

/// A field that has a cost, or fields below it.
#[derive(Debug)]
struct CountedField {
    data_key: Box<str>,
    any_of: Vec<Condition>,
    /// The cost of each value that is not null.
    each: u64,
    /// The objects that are its values.
    object: Option<u32>,
    arguments: FieldArguments,
}

/// Compiles the counting of responses.
pub(crate) struct ResponseCompiler<'c, 'a> {
    estimate: &'c mut EstimateCompiler<'a>,
    shape: &'c Shape,
    objects: Vec<CountedObject>,
    known: HashMap<ObjectKey<'a>, u32>,
    visited: usize,
}

#[derive(PartialEq, Eq, Hash)]
struct ObjectKey<'a> {
    shape: ObjectShapeId,
    ty: TypeId,
    sources: Vec<Source<'a>>,
    weighs_objects: bool,
}

impl<'c, 'a> ResponseCompiler<'c, 'a> {
    pub(crate) fn new(estimate: &'c mut EstimateCompiler<'a>, shape: &'c Shape) -> Self {
        Self { estimate, shape, objects: Vec::new(), known: HashMap::new(), visited: 0 }
    }

    /// Compiles an operation.
    pub(crate) fn compile(mut self, selections: &'a SelectionSet) -> ResponseCost {
        let (ty, sources) = (selections.on, Source::root(selections));
        let weight = self.estimate.costs.root_weight(ty);
        let fields = self.fields(self.shape.root, ty, &sources);
        let root = self.objects.len() as u32;
        let type_name = self.estimate.costs.graph.ty(ty).name.clone();
        let variants = vec![CountedVariant { type_name, weight, fields }];
        self.objects.push(CountedObject { is_abstract: false, variants });
        ResponseCost { objects: self.objects, root }
    }

    // Recursion is bounded by the depth of operations.
    fn object(&mut self, key: ObjectKey<'a>) -> u32 {
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let costs = self.estimate.costs;
        let shape = self.shape.objects.get(key.shape.0 as usize);
        let mut variants = Vec::new();
        for &ty in &costs.graph.ty(key.ty).possible {
            let type_name = &costs.graph.ty(ty).name;
            let has_variant =
                shape.is_some_and(|it| it.variants.iter().any(|it| it.type_name == *type_name));
            if !has_variant {
                continue;
            }
            let fields = self.fields(key.shape, ty, &key.sources);
            let weight = match key.weighs_objects {
                true => costs.object_weight(ty, key.ty),
                false => 0,
            };
            variants.push(CountedVariant { type_name: type_name.clone(), weight, fields });
        }
        let index = self.objects.len() as u32;
        let is_abstract = shape.is_some_and(|it| it.is_abstract);
        self.objects.push(CountedObject { is_abstract, variants });
        self.known.insert(key, index);
        index
    }

    fn fields(
        &mut self,
        shape: ObjectShapeId,
        ty: TypeId,
        sources: &[Source<'a>],
    ) -> Vec<CountedField> {
        if self.visited > VISITED_MAX {
            return Vec::new();
        }
        let graph = self.estimate.costs.graph;
        let fields = merge_fields(graph, ty, sources, &mut self.visited);
        fields.into_iter().filter_map(|field| self.field(shape, ty, field)).collect()
    }

    /// Compiles one field. `None` if nothing in it has a cost.
    fn field(
        &mut self,
        shape: ObjectShapeId,
        ty: TypeId,
        merged: MergedField<'a>,
    ) -> Option<CountedField> {
        let MergedField { field, definition, selected, any_of, below } = merged;
        let costs = self.estimate.costs;
        let type_name = &costs.graph.ty(ty).name;
        let object = self.shape.objects.get(shape.0 as usize)?;
        let variant = object.variants.iter().find(|it| it.type_name == *type_name)?;
        let shown = variant.fields.iter().find(|it| it.response_key == field.response_key)?;
        if shown.value.kind == ValueKind::Denied {
            // Nothing is fetched for it.
            return None;
        }
        let declared = costs.field_weight(definition, selected);
        let named = costs.graph.field(definition).ty.named();
        let (each, object) = match object_shape(&shown.value) {
            Some(shape) => {
                let weighs_objects = declared.is_none();
                let key = ObjectKey { shape, ty: named, sources: below, weighs_objects };
                (declared.unwrap_or(0), Some(self.object(key)))
            }
            None => (declared.unwrap_or_else(|| costs.leaf_weight(named)), None),
        };
        let arguments = self.estimate.arguments(definition, selected, &field.arguments);
        let is_free = each == 0 && arguments.constant == 0 && arguments.arguments.is_empty();
        (object.is_some() || !is_free).then(|| CountedField {
            data_key: shown.data_key.clone(),
            any_of,
            each,
            object,
            arguments,
        })
    }
}

fn object_shape(value: &ValueShape) -> Option<ObjectShapeId> {
    match &value.kind {
        ValueKind::Object(shape) => Some(*shape),
        ValueKind::List(inner) => object_shape(inner),
        ValueKind::Leaf(_) | ValueKind::Typename | ValueKind::Verbatim | ValueKind::Denied => None,
    }
}

/// A walk through one response.
struct ResponseCounter<'a> {
    cost: &'a ResponseCost,
    document: &'a Document,
    variables: &'a Variables,
    /// The costs of arguments, by their index.
    arguments: &'a [i64],
}

impl ResponseCost {
    /// Returns the cost of the response with this root, in thousandths.
    // Hot path: visits the objects of a response, and none of their leaves without a weight.
    pub(crate) fn count(
        &self,
        document: &Document,
        root: NodeId,
        variables: &Variables,
        arguments: &[i64],
    ) -> u64 {
        let counter = ResponseCounter { cost: self, document, variables, arguments };
        counter.count_object(self.root, root)
    }

    /// The number of fields, for the estimate of memory.
    pub(crate) fn len(&self) -> usize {
        let variants = self.objects.iter().flat_map(|it| &it.variants);
        variants.map(|it| 1 + it.fields.len()).sum()
    }
}

impl ResponseCounter<'_> {
    // Recursion is bounded by the depth of the operation and the list nesting of the schema's types.
    fn count_object(&self, object: u32, node: NodeId) -> u64 {
        let Some(object) = self.cost.objects.get(object as usize) else { return 0 };
        let variant = match object.is_abstract {
            false => object.variants.first(),
            true => self.document.get(node, "__typename").and_then(|name| {
                object.variants.iter().find(|it| self.document.str_eq(name, &it.type_name))
            }),
        };
        let Some(variant) = variant else { return 0 };
        let fields = variant.fields.iter().map(|field| self.count_field(field, node));
        fields.fold(variant.weight, u64::saturating_add)
    }

    fn count_field(&self, field: &CountedField, object: NodeId) -> u64 {
        let is_selected = field.any_of.is_empty()
            || field.any_of.iter().any(|condition| condition.holds(self.variables));
        if !is_selected {
            return 0;
        }
        let value = self.document.get(object, &field.data_key);
        let cost = value.map_or(0, |value| self.count_value(field, value));
        let arguments = field.arguments.arguments.iter();
        let given = arguments.map(|&it| self.arguments.get(it as usize).copied().unwrap_or(0));
        cost.saturating_add_signed(given.fold(field.arguments.constant, i64::saturating_add))
    }

    fn count_value(&self, field: &CountedField, value: NodeId) -> u64 {
        match self.document.kind(value) {
            Kind::Null => 0,
            // The elements of a list of leaves have one weight.
            Kind::Array => self
                .document
                .elements(value)
                .map(|element| self.count_value(field, element))
                .fold(0, u64::saturating_add),
            Kind::Object => match field.object {
                Some(object) => field.each.saturating_add(self.count_object(object, value)),
                None => field.each,
            },
            _ => field.each,
        }
    }
}
