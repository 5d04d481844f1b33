//! Checks values, variables and directives of valid documents beyond the checks of
//! `apollo-compiler`: variables inside lists, input objects and custom scalars (GraphQL
//! specification, section 5.8), repeated members (5.6.3), `@oneOf`, the nesting of literals, and
//! directives that the router would have to execute and cannot.

use std::collections::{HashMap, HashSet};

use apollo_compiler::ast::{Argument, DirectiveList, Type, Value, VariableDefinition};
use apollo_compiler::executable::{ExecutableDocument, Operation, Selection, SelectionSet};
use apollo_compiler::{Name, Node, Schema};

use crate::PrepareError;
use crate::error::{PROBLEMS_MAX, Problem};
use crate::input_types::{INPUT_DEPTH_MAX, InputTypes};
use crate::live_directive;

/// Checks all operations of `document`. Returns the variables of `chosen` that may be absent,
/// because they have a default, but never null, because they are used where null is not allowed.
///
/// # Errors
/// [`PrepareError::Validation`], or [`PrepareError::Plan`] for directives that are not supported.
pub(crate) fn check_variables<'a>(
    document: &'a ExecutableDocument,
    schema: &'a Schema,
    types: &'a InputTypes,
    chosen: Option<&Operation>,
    has_live_queries: bool,
) -> Result<HashSet<&'a str>, PrepareError> {
    let mut never_null = HashSet::new();
    let mut problems = Vec::new();
    for operation in document.operations.iter() {
        let mut check = UsageCheck {
            document,
            schema,
            types,
            variables: operation.variables.iter().map(|it| (it.name.as_str(), it)).collect(),
            fragments: HashSet::new(),
            never_null: HashSet::new(),
            has_live_queries,
            unsupported: None,
            problems: &mut problems,
        };
        check.check_operation(operation);
        if let Some(directive) = check.unsupported {
            return Err(PrepareError::Plan(plan::PlanError::NotSupported(format!(
                "directive `@{directive}` is not supported in operations"
            ))));
        }
        if chosen.is_some_and(|chosen| std::ptr::eq(&**operation, chosen)) {
            never_null = check.never_null;
        }
    }
    problems.truncate(PROBLEMS_MAX);
    if problems.is_empty() { Ok(never_null) } else { Err(PrepareError::Validation(problems)) }
}

struct UsageCheck<'a, 'p> {
    document: &'a ExecutableDocument,
    schema: &'a Schema,
    types: &'a InputTypes,
    variables: HashMap<&'a str, &'a Node<VariableDefinition>>,
    /// Visited fragments.
    fragments: HashSet<&'a str>,
    never_null: HashSet<&'a str>,
    /// True if operations may have the directive of live queries.
    has_live_queries: bool,
    unsupported: Option<&'a str>,
    problems: &'p mut Vec<Problem>,
}

/// The position of a value.
#[derive(Clone, Copy)]
struct ValueContext<'a> {
    /// The name of the argument or member.
    name: &'a str,
    /// `None` inside custom scalars, where any value is valid.
    ty: Option<&'a Type>,
    /// True if the argument or member has a default of its own.
    has_default: bool,
    depth: usize,
}

impl<'a> UsageCheck<'a, '_> {
    fn check_operation(&mut self, operation: &'a Operation) {
        self.check_directives(&operation.directives);
        for variable in &operation.variables {
            self.check_directives(&variable.directives);
            if let Some(default) = &variable.default_value {
                let (name, ty) = (variable.name.as_str(), Some(&*variable.ty));
                self.check_value(default, ValueContext { name, ty, has_default: false, depth: 0 });
            }
        }
        self.check_selection_set(&operation.selection_set);
    }

    fn check_selection_set(&mut self, set: &'a SelectionSet) {
        for selection in &set.selections {
            self.check_directives(selection.directives());
            match selection {
                Selection::Field(field) => {
                    self.check_arguments(&field.arguments, &field.definition.arguments);
                    self.check_selection_set(&field.selection_set);
                }
                Selection::InlineFragment(fragment) => {
                    self.check_selection_set(&fragment.selection_set);
                }
                Selection::FragmentSpread(spread) => {
                    if self.fragments.insert(spread.fragment_name.as_str())
                        && let Some(fragment) = self.document.fragments.get(&spread.fragment_name)
                    {
                        self.check_directives(&fragment.directives);
                        self.check_selection_set(&fragment.selection_set);
                    }
                }
            }
        }
    }

    fn check_directives(&mut self, directives: &'a DirectiveList) {
        for directive in directives.iter() {
            let is_supported = match directive.name.as_str() {
                "skip" | "include" => true,
                live_directive::NAME => self.has_live_queries,
                _ => false,
            };
            if !is_supported {
                self.unsupported = Some(directive.name.as_str());
            } else if let Some(definition) = self.schema.directive_definitions.get(&directive.name)
            {
                self.check_arguments(&directive.arguments, &definition.arguments);
            }
        }
    }

    fn check_arguments(
        &mut self,
        arguments: &'a [Node<Argument>],
        definitions: &'a [Node<apollo_compiler::ast::InputValueDefinition>],
    ) {
        for argument in arguments {
            let definition = definitions.iter().find(|it| it.name == argument.name);
            let context = ValueContext {
                name: argument.name.as_str(),
                ty: definition.map(|it| &*it.ty),
                has_default: definition.is_some_and(|it| it.default_value.is_some()),
                depth: 0,
            };
            self.check_value(&argument.value, context);
        }
    }

    fn check_value(&mut self, value: &'a Node<Value>, context: ValueContext<'a>) {
        if context.depth > INPUT_DEPTH_MAX {
            let message = format!(
                "the value of `{}` is nested deeper than {INPUT_DEPTH_MAX} levels",
                context.name
            );
            return self.add_problem(message, value);
        }
        let below = ValueContext { depth: context.depth + 1, has_default: false, ..context };
        let item = match context.ty {
            Some(Type::List(item) | Type::NonNullList(item)) => Some(&**item),
            _ => None,
        };
        match &**value {
            Value::Variable(name) => self.check_variable(name, value, context),
            Value::List(items) => {
                for it in items {
                    self.check_value(it, ValueContext { ty: item, ..below });
                }
            }
            Value::Null => {}
            // A single value is a list of one.
            _ if item.is_some() => self.check_value(value, ValueContext { ty: item, ..below }),
            Value::Object(members) => self.check_object(value, members, context),
            _ => {}
        }
    }

    fn check_object(
        &mut self,
        object: &'a Node<Value>,
        members: &'a [(Name, Node<Value>)],
        context: ValueContext<'a>,
    ) {
        let mut seen = HashSet::with_capacity(members.len());
        for (key, value) in members {
            if !seen.insert(key.as_str()) {
                self.add_problem(
                    format!("member `{key}` is given twice in one input object"),
                    value,
                );
            }
        }
        let ty = context.ty.map(|ty| ty.inner_named_type().as_str());
        for (key, value) in members {
            let field = ty.and_then(|ty| self.types.field(ty, key));
            let context = ValueContext {
                name: key.as_str(),
                ty: field.map(|it| &*it.ty),
                has_default: field.is_some_and(|it| it.default.is_some()),
                depth: context.depth + 1,
            };
            self.check_value(value, context);
        }
        let Some(ty) = ty.filter(|ty| self.types.is_one_of(ty)) else { return };
        let fits = match members {
            [(_, value)] => match &**value {
                Value::Null => false,
                Value::Variable(name) => {
                    self.variables.get(name.as_str()).is_none_or(|it| it.ty.is_non_null())
                }
                _ => true,
            },
            _ => false,
        };
        if !fits {
            self.add_problem(
                format!("exactly one member of `{ty}` must be given, and not null"),
                object,
            );
        }
    }

    /// Checks "All Variable Usages Are Allowed", section 5.8.5, and "All Variable Uses Defined",
    /// 5.8.3.
    fn check_variable(&mut self, name: &'a Name, value: &Node<Value>, context: ValueContext<'a>) {
        let Some(&variable) = self.variables.get(name.as_str()) else {
            return self.add_problem(format!("variable `${name}` is not defined"), value);
        };
        let Some(expected) = context.ty else { return };
        let has_default = variable.default_value.as_ref().is_some_and(|it| !it.is_null());
        let is_allowed = if expected.is_non_null() && !variable.ty.is_non_null() {
            if has_default && !context.has_default {
                self.never_null.insert(name.as_str());
            }
            (has_default || context.has_default)
                && variable.ty.is_assignable_to(&expected.clone().nullable())
        } else {
            variable.ty.is_assignable_to(expected)
        };
        if !is_allowed {
            let message = format!(
                "variable `${name}` of type `{}` cannot be used for `{}` expecting type `{expected}`",
                variable.ty, context.name
            );
            self.add_problem(message, value);
        }
    }

    fn add_problem(&mut self, message: String, value: &Node<Value>) {
        if self.problems.len() <= PROBLEMS_MAX {
            self.problems.push(Problem::at(message, value.location(), &self.document.sources));
        }
    }
}
