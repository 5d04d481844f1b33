//! Reading of `@cost` and `@listSize`, which composition writes on types, fields, arguments and input fields.

use apollo_compiler::{
    Schema,
    ast::{self, Value},
    schema::{Directive, ExtendedType, FieldDefinition},
};

use super::{directive_arguments as arguments, directive_names::DirectiveNames};
use crate::{
    Costs, FieldCosts, IGNORED_MAX, ListSize, Supergraph, TypeId, Weight, errors::ErrorCollector,
};

/// Reads the costs of `schema`. `None` if it has none.
pub(super) fn read_costs(
    schema: &Schema,
    names: &DirectiveNames,
    supergraph: &Supergraph,
    errors: &mut ErrorCollector<'_>,
) -> Option<Costs> {
    let mut reader = CostReader { schema, names, supergraph, costs: Costs::default(), errors };
    for (index, ty) in supergraph.types.iter().enumerate() {
        if let Some(definition) = schema.types.get(&*ty.name) {
            reader.read_type(TypeId(index as u32), definition);
        }
    }
    Some(reader.costs).filter(|costs| *costs != Costs::default())
}

struct CostReader<'a, 'e, 't> {
    schema: &'a Schema,
    names: &'a DirectiveNames,
    supergraph: &'a Supergraph,
    costs: Costs,
    errors: &'e mut ErrorCollector<'t>,
}

impl CostReader<'_, '_, '_> {
    fn read_type(&mut self, id: TypeId, definition: &ExtendedType) {
        if let Some(applied) = definition.directives().get(&self.names.cost)
            && let Some(weight) = self.weight(applied)
        {
            self.costs.types.insert(id, weight);
        }
        match definition {
            ExtendedType::Object(object) => {
                object.fields.values().for_each(|field| self.read_field(id, field));
            }
            ExtendedType::Interface(interface) => {
                interface.fields.values().for_each(|field| self.read_field(id, field));
            }
            ExtendedType::InputObject(input) => {
                let mut weights = Vec::new();
                for field in input.fields.values() {
                    let applied = field.directives.get(&self.names.cost);
                    if let Some(weight) = applied.and_then(|it| self.weight(it)) {
                        weights.push((field.name.as_str().into(), weight));
                    }
                }
                if !weights.is_empty() {
                    self.costs.input_fields.insert(id, weights);
                }
            }
            ExtendedType::Scalar(_) | ExtendedType::Enum(_) | ExtendedType::Union(_) => {}
        }
    }

    fn read_field(&mut self, parent: TypeId, definition: &FieldDefinition) {
        let Some(id) = self.supergraph.field_named(parent, &definition.name) else { return };
        let mut costs = FieldCosts::default();
        if let Some(applied) = definition.directives.get(&self.names.cost) {
            costs.weight = self.weight(applied);
        }
        for argument in &definition.arguments {
            let applied = argument.directives.get(&self.names.cost);
            if let Some(weight) = applied.and_then(|it| self.weight(it)) {
                costs.arguments.push((argument.name.as_str().into(), weight));
            }
        }
        if let Some(applied) = definition.directives.get(&self.names.list_size) {
            costs.list_size = self.list_size(parent, definition, applied);
        }
        if costs != FieldCosts::default() {
            self.costs.fields.insert(id, costs);
        }
    }

    /// Reads `weight:`, an integer in Apollo's definition of the directive and a string with a number in IBM's.
    fn weight(&mut self, applied: &Directive) -> Option<Weight> {
        let value = applied.specified_argument_by_name("weight")?;
        let weight = match &**value {
            Value::Int(number) => Weight::parse(number.as_str()),
            Value::Float(number) => Weight::parse(number.as_str()),
            Value::String(text) => Weight::parse(text),
            _ => None,
        };
        if weight.is_none() {
            self.errors.push(
                value.location(),
                format!("the weight of `@{}` is not a number up to a billion", applied.name),
                Some("write a number, such as `5` or, if the directive takes a string, `\"2.5\"`"),
            );
        }
        weight
    }

    fn list_size(
        &mut self,
        parent: TypeId,
        definition: &FieldDefinition,
        applied: &Directive,
    ) -> Option<ListSize> {
        let assumed_size = match applied.specified_argument_by_name("assumedSize") {
            None => None,
            Some(value) if value.is_null() => None,
            Some(value) => {
                let size = match &**value {
                    Value::Int(number) => number.as_str().parse().ok(),
                    _ => None,
                };
                if size.is_none() {
                    self.errors.push(
                        value.location(),
                        format!("the assumed size of `@{}` is negative", applied.name),
                        Some("write the usual or the maximum number of elements, 0 or more"),
                    );
                }
                size
            }
        };
        let parent = self.supergraph.ty(parent).name.clone();
        let coordinate = format!("{parent}.{}", definition.name);
        let mut slicing_arguments = read_paths(applied, "slicingArguments");
        slicing_arguments.retain(|path| {
            let is_known = self.is_argument(definition, path);
            if !is_known {
                self.ignore(format!("{coordinate} has no argument `{}`", path.join(".")));
            }
            is_known
        });
        let mut sized_fields = read_paths(applied, "sizedFields");
        sized_fields.retain(|path| {
            let is_known = self.is_field(&definition.ty, path);
            if !is_known {
                let ty = definition.ty.inner_named_type();
                self.ignore(format!("{ty}, of {coordinate}, has no field `{}`", path.join(".")));
            }
            is_known
        });
        let takes_one_argument =
            arguments::read_boolean(applied, "requireOneSlicingArgument").unwrap_or(true);
        Some(ListSize { assumed_size, slicing_arguments, sized_fields, takes_one_argument })
    }

    fn ignore(&mut self, problem: String) {
        if self.costs.ignored.len() < IGNORED_MAX {
            self.costs.ignored.push(problem);
        }
    }

    /// True if the path leads to an argument of the field, or to a member of one.
    fn is_argument(&self, definition: &FieldDefinition, path: &[Box<str>]) -> bool {
        let mut steps = path.iter();
        let first = steps.next().and_then(|name| definition.argument_by_name(name));
        let mut ty = first.map(|argument| argument.ty.inner_named_type().as_str());
        for name in steps {
            let input = ty.and_then(|ty| self.schema.get_input_object(ty));
            let field = input.and_then(|input| input.fields.get(&**name));
            ty = field.map(|field| field.ty.inner_named_type().as_str());
        }
        ty.is_some()
    }

    /// True if the path leads to a field below a value of `ty`.
    fn is_field(&self, ty: &ast::Type, path: &[Box<str>]) -> bool {
        let mut ty = Some(ty);
        for name in path {
            let field = ty.and_then(|ty| self.schema.type_field(ty.inner_named_type(), name).ok());
            ty = field.map(|field| &field.ty);
        }
        ty.is_some()
    }
}

/// Reads a list of strings, each a path with dots. Empty paths are left out.
fn read_paths(applied: &Directive, argument: &str) -> Vec<Vec<Box<str>>> {
    let list = applied.specified_argument_by_name(argument).and_then(|it| it.as_list());
    let texts = list.unwrap_or_default().iter().filter_map(|it| it.as_str());
    let path = |text: &str| text.split('.').map(Box::from).collect::<Vec<_>>();
    texts.filter(|text| !text.is_empty()).map(path).collect()
}
