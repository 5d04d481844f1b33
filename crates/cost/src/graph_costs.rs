//! The weights of one graph, as its directives declare them.

use graph::{Costs, FieldCosts, FieldId, ListSize, Supergraph, TypeId, TypeKind, Weight};

/// The weights of a graph, with their defaults.
#[derive(Clone, Copy)]
pub(crate) struct GraphCosts<'a> {
    pub(crate) graph: &'a Supergraph,
    costs: Option<&'a Costs>,
}

impl<'a> GraphCosts<'a> {
    pub(crate) fn of(graph: &'a Supergraph) -> Self {
        Self { graph, costs: graph.costs.as_deref() }
    }

    /// Returns the weight that a directive gives to a type.
    fn declared(&self, ty: TypeId) -> Option<Weight> {
        self.costs?.types.get(&ty).copied()
    }

    /// Returns the weight of an object of type `ty` that a field of type `selected` returns.
    pub(crate) fn object_weight(&self, ty: TypeId, selected: TypeId) -> u64 {
        let declared = self.declared(ty).or_else(|| self.declared(selected));
        not_negative(declared.unwrap_or(Weight::ONE))
    }

    /// Returns the weight of the root object, which is free unless a directive says otherwise.
    pub(crate) fn root_weight(&self, ty: TypeId) -> u64 {
        self.declared(ty).map_or(0, not_negative)
    }

    /// Returns the weight of a scalar or an enum value.
    pub(crate) fn leaf_weight(&self, ty: TypeId) -> u64 {
        self.declared(ty).map_or(0, not_negative)
    }

    /// Returns the weight of an argument's type: input objects count 1 each.
    pub(crate) fn input_type_weight(&self, ty: TypeId) -> i64 {
        let default = match self.graph.ty(ty).kind {
            TypeKind::InputObject => Weight::ONE,
            _ => Weight::default(),
        };
        self.declared(ty).unwrap_or(default).0
    }

    fn field(&self, field: FieldId) -> Option<&'a FieldCosts> {
        self.costs?.fields.get(&field)
    }

    /// Returns the weight of each value of a field, if a directive gives it one. `definition` is the field of the
    /// object type, `selected` the field of the interface through which it is selected.
    pub(crate) fn field_weight(&self, definition: FieldId, selected: FieldId) -> Option<u64> {
        let own = |id| self.field(id).and_then(|it| it.weight);
        own(definition).or_else(|| own(selected)).map(not_negative)
    }

    /// Returns the declared weight of an argument.
    pub(crate) fn argument_weight(
        &self,
        definition: FieldId,
        selected: FieldId,
        name: &str,
    ) -> Option<i64> {
        let own = |id| {
            let mut arguments = self.field(id)?.arguments.iter();
            arguments.find(|(known, _)| &**known == name).map(|(_, weight)| weight.0)
        };
        own(definition).or_else(|| own(selected))
    }

    /// Returns the declared list size of a field.
    pub(crate) fn list_size(&self, definition: FieldId, selected: FieldId) -> Option<&'a ListSize> {
        let own = |id| self.field(id).and_then(|it| it.list_size.as_ref());
        own(definition).or_else(|| own(selected))
    }

    /// Returns the declared weight of a member of an input object.
    pub(crate) fn weight_of_input(&self, ty: TypeId, name: &str) -> Option<i64> {
        let fields = self.costs?.input_fields.get(&ty)?;
        fields.iter().find(|(known, _)| &**known == name).map(|(_, weight)| weight.0)
    }
}

/// Returns a weight of values, which cannot lower the cost of others.
fn not_negative(weight: Weight) -> u64 {
    weight.0.max(0) as u64
}
