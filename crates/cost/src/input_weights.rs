//! The weights of input types, for values of arguments.

use std::collections::HashMap;

use apollo_compiler::schema::ExtendedType;
use astjson::{Document, Kind, NodeId};
use graph::{Supergraph, TypeId, TypeKind};

use crate::graph_costs::GraphCosts;

/// The maximum nesting depth of values that are weighed. Coercion accepts no deeper ones.
const DEPTH_MAX: usize = 256;

/// The input object types of a graph.
#[derive(Debug, Default)]
pub(crate) struct InputWeights {
    objects: Vec<InputObjectWeights>,
    by_type: HashMap<TypeId, u32>,
    leaves: HashMap<TypeId, i64>,
}

#[derive(Debug)]
struct InputObjectWeights {
    weight: i64,
    fields: HashMap<Box<str>, WeighedInput>,
}

/// An argument or a member of an input object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct WeighedInput {
    /// The weight that a directive gives to it. It counts once and replaces the weights of its values' type.
    declared: Option<i64>,
    ty: InputTypeRef,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum InputTypeRef {
    /// A scalar or an enum with the weight of each value.
    Leaf(i64),
    /// An input object: an index into [`InputWeights::objects`].
    Object(u32),
}

impl InputWeights {
    pub(crate) fn of(graph: &Supergraph) -> Self {
        let costs = GraphCosts::of(graph);
        let mut weights = Self::default();
        for (index, ty) in graph.types.iter().enumerate() {
            let id = TypeId(index as u32);
            match ty.kind {
                TypeKind::InputObject => {
                    weights.by_type.insert(id, weights.objects.len() as u32);
                    let weight = costs.input_type_weight(id);
                    weights.objects.push(InputObjectWeights { weight, fields: HashMap::new() });
                }
                TypeKind::Scalar | TypeKind::Enum(_) => match costs.input_type_weight(id) {
                    0 => {}
                    weight => drop(weights.leaves.insert(id, weight)),
                },
                TypeKind::Object | TypeKind::Interface | TypeKind::Union => {}
            }
        }
        for (&id, &index) in &weights.by_type.clone() {
            let definition = graph.api.0.types.get(&*graph.ty(id).name);
            let Some(ExtendedType::InputObject(definition)) = definition else { continue };
            let fields = definition.fields.values().filter_map(|field| {
                let ty = graph.type_named(field.ty.inner_named_type())?;
                let declared = costs.weight_of_input(id, &field.name);
                Some((field.name.as_str().into(), weights.input(declared, ty)))
            });
            weights.objects[index as usize].fields = fields.collect();
        }
        weights
    }

    /// Returns an argument of type `ty`.
    pub(crate) fn input(&self, declared: Option<i64>, ty: TypeId) -> WeighedInput {
        let ty = match self.by_type.get(&ty) {
            Some(&object) => InputTypeRef::Object(object),
            None => InputTypeRef::Leaf(self.leaves.get(&ty).copied().unwrap_or(0)),
        };
        WeighedInput { declared, ty }
    }

    /// Returns the member `name` of an input object.
    pub(crate) fn member(&self, input: WeighedInput, name: &str) -> Option<WeighedInput> {
        match input.ty {
            InputTypeRef::Object(index) => self.objects[index as usize].fields.get(name).copied(),
            InputTypeRef::Leaf(_) => None,
        }
    }

    /// Returns the cost of one value that is neither null nor a list, without that of its members.
    pub(crate) fn own_weight(&self, input: WeighedInput) -> i64 {
        match (input.declared, input.ty) {
            (Some(_), _) => 0,
            (None, InputTypeRef::Leaf(weight)) => weight,
            (None, InputTypeRef::Object(index)) => self.objects[index as usize].weight,
        }
    }

    /// Returns the cost of a value of JSON text.
    pub(crate) fn weigh(&self, document: &Document, value: NodeId, input: WeighedInput) -> i64 {
        if document.is_null(value) {
            return 0;
        }
        input.declared().saturating_add(self.weigh_values(document, value, input, 0))
    }

    // Recursion is bounded by DEPTH_MAX.
    fn weigh_values(
        &self,
        document: &Document,
        value: NodeId,
        input: WeighedInput,
        depth: usize,
    ) -> i64 {
        let own = self.own_weight(input);
        match document.kind(value) {
            Kind::Null => 0,
            _ if depth > DEPTH_MAX => own,
            Kind::Array => document.elements(value).fold(0, |sum: i64, element| {
                sum.saturating_add(self.weigh_values(document, element, input, depth + 1))
            }),
            Kind::Object => document.members(value).fold(own, |sum, (key, member)| {
                let Some(input) = self.member(input, &key) else { return sum };
                if document.is_null(member) {
                    return sum;
                }
                let values = self.weigh_values(document, member, input, depth + 1);
                sum.saturating_add(input.declared()).saturating_add(values)
            }),
            _ => own,
        }
    }
}

impl WeighedInput {
    /// The weight that counts once if the input is given.
    pub(crate) fn declared(self) -> i64 {
        self.declared.unwrap_or(0)
    }

    /// True if no value of it has a cost.
    pub(crate) fn is_free(self) -> bool {
        self.declared() == 0
            && match self.ty {
                InputTypeRef::Leaf(weight) => weight == 0 || self.declared.is_some(),
                InputTypeRef::Object(_) => false,
            }
    }

    /// True if its cost does not depend on its value, only on whether it is null.
    pub(crate) fn is_constant(self) -> bool {
        matches!(self.ty, InputTypeRef::Leaf(_)) && self.declared.is_some()
    }

    /// Returns the input for elements of a list whose own weight has been counted.
    pub(crate) fn without_declared(self) -> Self {
        Self { declared: self.declared.map(|_| 0), ty: self.ty }
    }
}
