//! The elements of a schema that one operation uses.

use std::collections::HashSet;

use apollo_compiler::{
    ExecutableDocument, Name, Node, Schema,
    ast::{self, DirectiveLocation, OperationType, Type, Value},
    collections::HashMap,
    executable::{Directive, Field, Operation, Selection, SelectionSet},
    parser::SourceSpan,
    schema::{ExtendedType, Implementers, InputValueDefinition},
    validation::Valid,
};
use graph::ApiSchema;

use super::{
    annotations::deprecation_reason,
    change::Exposure,
    client_operations::{ClientOperation, OperationPlace},
};

/// A use of a deprecated element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeprecatedUse {
    /// The schema coordinate of the element.
    pub path: String,
    /// The reason of the deprecation.
    pub reason: String,
    /// The position of the use.
    pub place: OperationPlace,
}

/// Returns the deprecated elements that the operation uses; none if it does not fit the schema.
pub fn find_deprecated_uses(api: &ApiSchema, operation: &ClientOperation) -> Vec<DeprecatedUse> {
    let parsed =
        ExecutableDocument::parse_and_validate(&api.0, operation.text.as_str(), "operation");
    let Ok(document) = parsed else { return Vec::new() };
    let mut uses = Vec::new();
    let implementers = api.0.implementers_map();
    for own in document.operations.iter() {
        let usage = OperationUsage::collect(&api.0, &implementers, &document, own);
        for (path, reason, span) in usage.deprecated {
            let at = span.and_then(|it| it.line_column(&document.sources));
            let place = match at {
                Some(at) => operation.locate(at.line, at.column),
                None => operation.place.clone(),
            };
            uses.push(DeprecatedUse { path, reason, place });
        }
    }
    uses
}

/// The elements that an operation uses. Values of variables are not known: everything that a variable's type allows
/// counts as sent.
#[derive(Debug)]
pub(super) struct OperationUsage {
    /// The uses, as the exposures to the changes that affect them.
    exposures: HashSet<Exposure>,
    deprecated: Vec<(String, String, Option<SourceSpan>)>,
}

impl OperationUsage {
    /// Collects the uses of a valid operation. `implementers` are those of the schema.
    pub(super) fn collect(
        schema: &Schema,
        implementers: &HashMap<Name, Implementers>,
        document: &Valid<ExecutableDocument>,
        operation: &Operation,
    ) -> Self {
        let exposures = HashSet::from([Exposure::Root(operation.operation_type)]);
        let usage = Self { exposures, deprecated: Vec::new() };
        let mut collector = UsageCollector {
            schema,
            implementers,
            document,
            operation,
            usage,
            fragments: HashSet::new(),
        };
        collector.visit_operation();
        collector.usage
    }

    /// True if the operation uses the schema in that way.
    pub(super) fn has(&self, exposure: &Exposure) -> bool {
        self.exposures.contains(exposure)
    }

    fn add(&mut self, exposure: Exposure) {
        self.exposures.insert(exposure);
    }
}

struct UsageCollector<'a> {
    schema: &'a Schema,
    implementers: &'a HashMap<Name, Implementers>,
    document: &'a Valid<ExecutableDocument>,
    operation: &'a Operation,
    usage: OperationUsage,
    /// The fragments that were visited: their uses do not depend on the place of the spread.
    fragments: HashSet<Name>,
}

impl UsageCollector<'_> {
    fn visit_operation(&mut self) {
        let operation = self.operation;
        let place = match operation.operation_type {
            OperationType::Query => DirectiveLocation::Query,
            OperationType::Mutation => DirectiveLocation::Mutation,
            OperationType::Subscription => DirectiveLocation::Subscription,
        };
        self.visit_directives(&operation.directives, place);
        for variable in &operation.variables {
            self.visit_directives(&variable.directives, DirectiveLocation::VariableDefinition);
            self.visit_sent_type(variable.ty.inner_named_type());
            if let Some(value) = &variable.default_value {
                self.visit_value(value, &variable.ty);
            }
        }
        self.visit_selections(&operation.selection_set);
    }

    fn visit_selections(&mut self, set: &SelectionSet) {
        self.usage.add(Exposure::Type(set.ty.clone()));
        self.usage.add(Exposure::Selection(set.ty.clone()));
        for selection in &set.selections {
            match selection {
                Selection::Field(field) => self.visit_field(&set.ty, field),
                Selection::InlineFragment(fragment) => {
                    self.visit_directives(&fragment.directives, DirectiveLocation::InlineFragment);
                    if let Some(condition) = &fragment.type_condition {
                        self.relate(&set.ty, condition);
                    }
                    self.visit_selections(&fragment.selection_set);
                }
                Selection::FragmentSpread(spread) => {
                    self.visit_directives(&spread.directives, DirectiveLocation::FragmentSpread);
                    let name = &spread.fragment_name;
                    let Some(fragment) = self.document.fragments.get(name) else { continue };
                    self.relate(&set.ty, fragment.type_condition());
                    if self.fragments.insert(name.clone()) {
                        self.visit_directives(
                            &fragment.directives,
                            DirectiveLocation::FragmentDefinition,
                        );
                        self.visit_selections(&fragment.selection_set);
                    }
                }
            }
        }
    }

    /// Records that a fragment on `condition` is in a selection on `ty`: that is valid as long as a type is both.
    fn relate(&mut self, ty: &Name, condition: &Name) {
        if ty == condition {
            return;
        }
        let all = members(self.schema, self.implementers, ty);
        let own = members(self.schema, self.implementers, condition);
        for member in all.intersection(&own) {
            for general in [ty, condition] {
                let (general, member) = (general.clone(), Name::clone(member));
                self.usage.add(Exposure::Member { general, member });
            }
        }
    }

    fn visit_field(&mut self, ty: &Name, field: &Node<Field>) {
        self.visit_directives(&field.directives, DirectiveLocation::Field);
        let name = &field.name;
        if !name.starts_with("__") {
            self.usage.add(Exposure::Field(ty.clone(), name.clone()));
        }
        let span = field.name.location();
        self.note_deprecated(format!("{ty}.{name}"), &field.definition.directives, span);
        for definition in &field.definition.arguments {
            let argument = &definition.name;
            let given = field.arguments.iter().find(|it| it.name == *argument);
            if given.is_none_or(|it| self.may_be_null(&it.value)) {
                let absent = Exposure::AbsentArgument(ty.clone(), name.clone(), argument.clone());
                self.usage.add(absent);
            }
            let Some(given) = given else { continue };
            self.usage.add(Exposure::Argument(ty.clone(), name.clone(), argument.clone()));
            let coordinate = format!("{ty}.{name}({argument}:)");
            self.note_deprecated(coordinate, &definition.directives, given.name.location());
            self.visit_value(&given.value, &definition.ty);
        }
        let returned = field.ty().inner_named_type();
        self.usage.add(Exposure::Type(returned.clone()));
        match field.selection_set.is_empty() {
            true => self.usage.add(Exposure::Returned(returned.clone())),
            false => self.visit_selections(&field.selection_set),
        }
    }

    fn visit_directives(&mut self, directives: &[Node<Directive>], place: DirectiveLocation) {
        for directive in directives {
            let name = &directive.name;
            self.usage.add(Exposure::Directive(name.clone()));
            self.usage.add(Exposure::DirectivePlace(name.clone(), place));
            let definition = self.schema.directive_definitions.get(name);
            for argument in &directive.arguments {
                let given = argument.name.clone();
                self.usage.add(Exposure::DirectiveArgument(name.clone(), given));
                let definition = definition.and_then(|it| it.argument_by_name(&argument.name));
                if let Some(definition) = definition {
                    self.visit_value(&argument.value, &definition.ty);
                }
            }
        }
    }

    /// True if the value is null, or a variable that may be.
    fn may_be_null(&self, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Variable(name) => {
                let variable = self.operation.variables.iter().find(|it| it.name == *name);
                variable.is_none_or(|it| !it.ty.is_non_null())
            }
            _ => false,
        }
    }

    /// Visits a value of the document. Variables are visited with their definitions.
    fn visit_value(&mut self, value: &Node<Value>, ty: &Type) {
        let named = ty.inner_named_type();
        self.usage.add(Exposure::Type(named.clone()));
        match &**value {
            // A list may be given as its only item.
            Value::List(items) => items.iter().for_each(|it| self.visit_value(it, ty.item_type())),
            Value::Enum(name) => {
                self.usage.add(Exposure::EnumValue(named.clone(), name.clone()));
                if let Some(ExtendedType::Enum(definition)) = self.schema.types.get(named)
                    && let Some(definition) = definition.values.get(name)
                {
                    let coordinate = format!("{named}.{name}");
                    self.note_deprecated(coordinate, &definition.directives, value.location());
                }
            }
            Value::Object(members) => {
                let Some(ExtendedType::InputObject(input)) = self.schema.types.get(named) else {
                    return;
                };
                self.usage.add(Exposure::Input(named.clone()));
                for definition in input.fields.values() {
                    let given = members.iter().find(|(name, _)| *name == definition.name);
                    self.visit_input_field(named, definition, given);
                }
            }
            _ => {}
        }
    }

    fn visit_input_field(
        &mut self,
        ty: &Name,
        definition: &InputValueDefinition,
        given: Option<&(Name, Node<Value>)>,
    ) {
        let field = &definition.name;
        if given.is_none_or(|(_, value)| self.may_be_null(value)) {
            self.usage.add(Exposure::AbsentInputField(ty.clone(), field.clone()));
        }
        if let Some((name, value)) = given {
            self.usage.add(Exposure::InputField(ty.clone(), field.clone()));
            let coordinate = format!("{ty}.{name}");
            self.note_deprecated(coordinate, &definition.directives, name.location());
            self.visit_value(value, &definition.ty);
        }
    }

    /// Records everything that a variable of the type may contain.
    fn visit_sent_type(&mut self, ty: &Name) {
        let mut pending = vec![ty];
        let mut known = HashSet::new();
        while let Some(ty) = pending.pop() {
            if !known.insert(ty) {
                continue;
            }
            self.usage.add(Exposure::Type(ty.clone()));
            match self.schema.types.get(ty) {
                Some(ExtendedType::Enum(definition)) => {
                    for value in definition.values.keys() {
                        self.usage.add(Exposure::EnumValue(ty.clone(), value.clone()));
                    }
                }
                Some(ExtendedType::InputObject(definition)) => {
                    self.usage.add(Exposure::Input(ty.clone()));
                    for (name, field) in &definition.fields {
                        if !field.is_required() {
                            self.usage.add(Exposure::AbsentInputField(ty.clone(), name.clone()));
                        }
                        self.usage.add(Exposure::InputField(ty.clone(), name.clone()));
                        pending.push(field.ty.inner_named_type());
                    }
                }
                _ => {}
            }
        }
    }

    fn note_deprecated(
        &mut self,
        path: String,
        directives: &ast::DirectiveList,
        span: Option<SourceSpan>,
    ) {
        if let Some(reason) = deprecation_reason(directives) {
            self.usage.deprecated.push((path, reason.to_owned(), span));
        }
    }
}

/// Returns the types that a value of type `ty` may have, itself included.
fn members<'s>(
    schema: &'s Schema,
    implementers: &'s HashMap<Name, Implementers>,
    ty: &'s Name,
) -> HashSet<&'s Name> {
    let mut members = HashSet::from([ty]);
    match schema.types.get(ty) {
        Some(ExtendedType::Union(union)) => {
            members.extend(union.members.iter().map(|it| &it.name));
        }
        Some(ExtendedType::Interface(_)) => {
            members.extend(implementers.get(ty).into_iter().flat_map(Implementers::iter));
        }
        _ => {}
    }
    members
}
