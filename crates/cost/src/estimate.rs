//! Compiles a selection to its estimated cost.

use std::collections::HashMap;

use graph::{FieldId, TypeId, TypeRef, TypeRefShape};
use plan::{SelectionSet, Value};

use crate::argument_weight::SplitWeight;
use crate::graph_costs::GraphCosts;
use crate::list_length::Length;
use crate::merged_fields::{MergedField, Source, merge_fields};
use crate::model::CostModel;
use crate::program::{Operand, ProgramBuilder, ProgramLength};

/// The maximum number of selections that are looked at for one operation, each once for every object type that its
/// values may have. It bounds the work; a cost that needs more has no useful estimate, and counts as infinite.
const VISITED_MAX: usize = 2_000_000;

/// Compiles the costs of one operation.
pub(crate) struct EstimateCompiler<'a> {
    pub(crate) costs: GraphCosts<'a>,
    pub(crate) model: &'a CostModel,
    pub(crate) builder: ProgramBuilder,
    /// The length of lists without a directive.
    pub(crate) list_size: u64,
    known: HashMap<SelectionKey<'a>, Operand>,
    pub(crate) visited: usize,
}

#[derive(PartialEq, Eq, Hash)]
struct SelectionKey<'a> {
    ty: TypeId,
    sources: Vec<Source<'a>>,
    sized: Vec<SizedField>,
    weighs_objects: bool,
}

/// A list further down that has the length of a field above it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct SizedField {
    path: Vec<Box<str>>,
    length: ProgramLength,
}

/// The cost of a field's arguments: a constant, and indices of those that depend on variables.
#[derive(Debug)]
pub(crate) struct FieldArguments {
    pub(crate) constant: i64,
    pub(crate) arguments: Vec<u32>,
}

impl<'a> EstimateCompiler<'a> {
    pub(crate) fn new(costs: GraphCosts<'a>, model: &'a CostModel) -> Self {
        Self {
            costs,
            model,
            builder: ProgramBuilder::default(),
            list_size: model.settings.list_size,
            known: HashMap::new(),
            visited: 0,
        }
    }

    /// Returns the cost of an operation's root, without the addition for mutations.
    pub(crate) fn root(&mut self, selections: &'a SelectionSet) -> Operand {
        let root = selections.on;
        let fields = self.object(root, &Source::root(selections), &[]);
        let weight = Operand::Constant(self.costs.root_weight(root));
        self.builder.sum([weight, fields])
    }

    /// Returns the cost of selections on a value of type `ty`, with the largest cost of the object types that the value
    /// may have. `weighs_objects` adds the weight of the object itself.
    // Recursion is bounded by the depth of operations.
    pub(crate) fn selection(
        &mut self,
        ty: TypeId,
        sources: Vec<Source<'a>>,
        sized: Vec<SizedField>,
        weighs_objects: bool,
    ) -> Operand {
        let key = SelectionKey { ty, sources, sized, weighs_objects };
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let possible = &self.costs.graph.ty(ty).possible;
        let mut costs = Vec::with_capacity(possible.len());
        for &object in possible {
            let fields = self.object(object, &key.sources, &key.sized);
            let weight = match weighs_objects {
                true => self.costs.object_weight(object, ty),
                false => 0,
            };
            costs.push(self.builder.sum([Operand::Constant(weight), fields]));
        }
        let cost = self.builder.largest(costs);
        self.known.insert(key, cost);
        cost
    }

    /// Returns the cost of the fields of one object.
    fn object(&mut self, ty: TypeId, sources: &[Source<'a>], sized: &[SizedField]) -> Operand {
        if self.visited > VISITED_MAX {
            return Operand::Constant(u64::MAX);
        }
        let fields = merge_fields(self.costs.graph, ty, sources, &mut self.visited);
        let costs: Vec<_> = fields.into_iter().map(|field| self.field(field, sized)).collect();
        self.builder.sum(costs)
    }

    fn field(&mut self, merged: MergedField<'a>, sized: &[SizedField]) -> Operand {
        let MergedField { field, definition, selected, any_of, below } = merged;
        let graph = self.costs.graph;
        let ty = &graph.field(definition).ty;
        let named = ty.named();
        let (lengths, sized) = self.lengths(definition, selected, &field.arguments, sized);
        let declared = self.costs.field_weight(definition, selected);
        let each = if graph.ty(named).kind.is_composite() {
            let below = self.selection(named, below, sized, declared.is_none());
            self.builder.sum([Operand::Constant(declared.unwrap_or(0)), below])
        } else {
            Operand::Constant(declared.unwrap_or_else(|| self.costs.leaf_weight(named)))
        };
        let all = lengths.into_iter().fold(each, |cost, length| self.builder.times(length, cost));
        let FieldArguments { constant, arguments } =
            self.arguments(definition, selected, &field.arguments);
        let all = self.builder.with_arguments(all, constant, &arguments);
        self.builder.when(&any_of, all)
    }

    /// Returns the lengths of the lists that the field's value consists of, outermost first, and the lists below it
    /// that have a length from here or further up.
    pub(crate) fn lengths(
        &mut self,
        definition: FieldId,
        selected: FieldId,
        arguments: &[(Box<str>, Value)],
        sized: &[SizedField],
    ) -> (Vec<ProgramLength>, Vec<SizedField>) {
        let graph = self.costs.graph;
        let field = graph.field(definition);
        let (mut below, mut from_above) = (Vec::new(), None);
        for sized in sized {
            let [first, rest @ ..] = &sized.path[..] else { continue };
            if **first != *field.name {
                continue;
            }
            if rest.is_empty() {
                from_above = Some(sized.length);
            } else {
                below.push(SizedField { path: rest.to_vec(), length: sized.length });
            }
        }
        let mut own = None;
        if let Some(size) = self.costs.list_size(definition, selected) {
            let parent = &graph.ty(field.parent).name;
            let length = Length::of(size, field, parent, arguments, self.list_size);
            let length = self.builder.length(length);
            let sized = size.sized_fields.iter();
            below.extend(sized.map(|path| SizedField { path: path.clone(), length }));
            own = Some(length);
        }
        let mut lengths = Vec::new();
        for depth in 0..list_depth(&field.ty) {
            let default = ProgramLength::Constant(self.list_size);
            let known = from_above.or(own).filter(|_| depth == 0);
            lengths.push(known.unwrap_or(default));
        }
        (lengths, below)
    }

    /// Returns the cost of a field's arguments, once for each time that the field is resolved.
    pub(crate) fn arguments(
        &mut self,
        definition: FieldId,
        selected: FieldId,
        arguments: &[(Box<str>, Value)],
    ) -> FieldArguments {
        let graph = self.costs.graph;
        let inputs = &self.model.inputs;
        let mut split = SplitWeight::default();
        for (name, value) in arguments {
            let declared = graph.field(definition).arguments.iter().find(|it| it.name == *name);
            let ty = declared.and_then(|it| graph.type_named(it.ty.trim_matches(['[', ']', '!'])));
            let Some(ty) = ty else { continue };
            let weight = self.costs.argument_weight(definition, selected, name);
            split.add(inputs, inputs.input(weight, ty), value);
        }
        let arguments = split.variables.into_iter().map(|it| self.builder.argument(it));
        FieldArguments { constant: split.constant, arguments: arguments.collect() }
    }

    /// Forgets the costs of selections, which were compiled for another length of lists.
    pub(crate) fn set_list_size(&mut self, list_size: u64) {
        if self.list_size != list_size {
            self.list_size = list_size;
            self.known.clear();
        }
    }
}

fn list_depth(ty: &TypeRef) -> usize {
    match &ty.shape {
        TypeRefShape::List(inner) => 1 + list_depth(inner),
        TypeRefShape::Named(_) => 0,
    }
}
