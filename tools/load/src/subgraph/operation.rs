//! An operation text compiled to numbers: the fields to print for each object type, and their conditions.
//!
//! Everything that depends on the text only is computed here, once: fragments are inlined per object type, fields with
//! the same response key are merged (specification, section 6.3.2), arguments and conditions refer to variables by
//! number.

use std::collections::HashMap;

use apollo_compiler::ExecutableDocument;
use apollo_compiler::ast::{DirectiveList, OperationType, Value as Literal};
use apollo_compiler::executable::{self, Selection};
use apollo_compiler::parser::Parser;

use super::input::{Argument, Variable};
use super::model::{FieldIndex, Model, Shape, TypeId};

/// The maximum number of tokens of one operation text: ten times those of a router's larger fetches.
const TOKENS_MAX: usize = 100_000;

/// The maximum nesting of fields, more than routers allow. It bounds the recursion of compiling and executing.
const DEPTH_MAX: usize = 128;

/// The maximum number of fields of all operations of a document after inlining. It bounds the expansion of nested
/// fragments.
const FIELDS_MAX: usize = 100_000;

/// The operations of one text.
pub(super) struct Document {
    operations: Vec<(Option<Box<str>>, CompiledOperation)>,
}

/// One operation.
pub(super) struct CompiledOperation {
    /// The name of a subscription's root field; `None` for queries and mutations.
    pub(super) subscription_field: Option<Box<str>>,
    pub(super) variables: Vec<Variable>,
    pub(super) root: TypeId,
    pub(super) fields: Box<[Field]>,
    /// The length of the largest recent response, so that the next one is written without reallocation.
    pub(super) size_hint: std::sync::atomic::AtomicUsize,
}

/// The fields to print of an object, by its type.
pub(super) struct SelectionSet {
    pub(super) by_type: Box<[(TypeId, Box<[Field]>)]>,
}

/// One field to print.
pub(super) struct Field {
    /// `"responseKey":`, as printed.
    pub(super) head: Box<str>,
    pub(super) response_key: Box<str>,
    /// The field is present if all conditions of one of these lists hold, or if there are no lists.
    pub(super) presence: Box<[Box<[FieldCondition]>]>,
    pub(super) kind: FieldKind,
}

/// The kind of a field.
pub(super) enum FieldKind {
    Typename,
    /// The root field `_entities`.
    Entities {
        representations: Argument,
        index: FieldIndex,
        shape: Shape,
        selection: SelectionSet,
    },
    Data {
        index: FieldIndex,
        shape: Shape,
        arguments: Box<[Argument]>,
        /// `None` for leaves.
        selection: Option<SelectionSet>,
    },
}

/// A directive `@include` or `@skip` with a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FieldCondition {
    pub(super) variable: usize,
    /// The value with which the field is present.
    pub(super) expected: bool,
}

impl Document {
    /// Parses, validates and compiles an operation text. The error is a message for the client.
    pub(super) fn compile(model: &Model, text: &str) -> Result<Self, String> {
        let document = Parser::new()
            .token_limit(TOKENS_MAX)
            .parse_executable(&model.schema, text, "operation.graphql")
            .map_err(|error| error.errors.to_string())?
            .validate(&model.schema)
            .map_err(|error| error.errors.to_string())?;
        let mut operations = Vec::new();
        let mut fields_left = FIELDS_MAX;
        for operation in document.operations.iter() {
            let variables = operation
                .variables
                .iter()
                .map(|definition| Variable::declared(&model.schema, definition))
                .collect::<Result<Vec<_>, _>>()?;
            let root = model
                .type_id(&operation.selection_set.ty)
                .ok_or("the root type is not an object type")?;
            let mut compiler =
                Compiler { model, document: &document, variables: &variables, fields_left };
            let fields =
                compiler.compile_fields(root, &[(&operation.selection_set, Vec::new())], 0)?;
            fields_left = compiler.fields_left;
            let subscription_field = match operation.operation_type {
                OperationType::Subscription => Some(name_root_field(model, root, &fields)?),
                OperationType::Query | OperationType::Mutation => None,
            };
            let compiled = CompiledOperation {
                subscription_field,
                variables,
                root,
                fields,
                size_hint: 0.into(),
            };
            operations.push((operation.name.as_ref().map(|name| name.as_str().into()), compiled));
        }
        Ok(Self { operations })
    }

    /// Returns the operation with this name, or the only one.
    pub(super) fn operation(&self, name: Option<&str>) -> Result<&CompiledOperation, String> {
        match (name, self.operations.as_slice()) {
            (Some(name), operations) => operations
                .iter()
                .find(|(operation, _)| operation.as_deref() == Some(name))
                .map(|(_, operation)| operation)
                .ok_or_else(|| format!("there is no operation named `{name}`")),
            (None, [(_, only)]) => Ok(only),
            (None, []) => Err("the document has no operation".to_owned()),
            (None, _) => Err("the document has several operations: name one".to_owned()),
        }
    }
}

struct Compiler<'a> {
    model: &'a Model,
    document: &'a ExecutableDocument,
    variables: &'a [Variable],
    fields_left: usize,
}

/// A selection set to collect from, and the conditions that apply to all of it.
type Guarded<'a> = (&'a executable::SelectionSet, Vec<FieldCondition>);

/// The fields with one response key.
type Group<'a> = Vec<(&'a executable::Field, Vec<FieldCondition>)>;

impl<'a> Compiler<'a> {
    /// Compiles the fields to print for an object of this type.
    fn compile_fields(
        &mut self,
        type_id: TypeId,
        sets: &[Guarded<'a>],
        depth: usize,
    ) -> Result<Box<[Field]>, String> {
        if depth > DEPTH_MAX {
            return Err(format!("the operation is nested more than {DEPTH_MAX} levels deep"));
        }
        let mut groups = Groups::default();
        for (set, guard) in sets {
            self.collect(type_id, set, guard, &mut groups, 0)?;
        }
        groups.in_order.into_iter().map(|group| self.field(type_id, &group, depth)).collect()
    }

    fn collect(
        &mut self,
        type_id: TypeId,
        set: &'a executable::SelectionSet,
        guard: &[FieldCondition],
        groups: &mut Groups<'a>,
        depth: usize,
    ) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("fragments are nested more than {DEPTH_MAX} levels deep"));
        }
        for selection in &set.selections {
            self.fields_left = self
                .fields_left
                .checked_sub(1)
                .ok_or_else(|| format!("the operation selects more than {FIELDS_MAX} fields"))?;
            let Some(guard) = self.guard(selection.directives(), guard)? else { continue };
            let (condition, set) = match selection {
                Selection::Field(field) => {
                    groups.add(field, guard);
                    continue;
                }
                Selection::InlineFragment(fragment) => {
                    (fragment.type_condition.as_ref(), &fragment.selection_set)
                }
                Selection::FragmentSpread(spread) => {
                    // Validation has checked that the fragment exists.
                    let Some(fragment) = self.document.fragments.get(&spread.fragment_name) else {
                        return Err(format!("there is no fragment `{}`", spread.fragment_name));
                    };
                    (Some(&fragment.selection_set.ty), &fragment.selection_set)
                }
            };
            if condition.is_none_or(|name| self.model.possible_types(name).contains(&type_id)) {
                self.collect(type_id, set, &guard, groups, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Returns the conditions of a selection, or `None` if it is never present.
    fn guard(
        &self,
        directives: &DirectiveList,
        outer: &[FieldCondition],
    ) -> Result<Option<Vec<FieldCondition>>, String> {
        let mut guard = outer.to_vec();
        for (name, expected) in [("skip", false), ("include", true)] {
            let Some(directive) = directives.get(name) else { continue };
            match directive.specified_argument_by_name("if").map(|value| &**value) {
                Some(Literal::Boolean(value)) if *value == expected => {}
                Some(Literal::Boolean(_)) => return Ok(None),
                Some(Literal::Variable(variable)) => {
                    let variable = self
                        .variables
                        .iter()
                        .position(|declared| *declared.name == **variable)
                        .ok_or_else(|| format!("unknown variable `${variable}`"))?;
                    let condition = FieldCondition { variable, expected };
                    if !guard.contains(&condition) {
                        guard.push(condition);
                    }
                }
                _ => return Err(format!("@{name} needs `if`")),
            }
        }
        Ok(Some(guard))
    }

    fn field(&mut self, type_id: TypeId, group: &Group<'a>, depth: usize) -> Result<Field, String> {
        let (first, _) = group[0];
        let response_key: Box<str> = first.response_key().as_str().into();
        let always = group.iter().any(|(_, guard)| guard.is_empty());
        let presence = if always {
            Box::default()
        } else {
            group.iter().map(|(_, guard)| guard.as_slice().into()).collect()
        };
        // A field that occurs once is present or absent as a whole. Only if several are merged do the parts of its
        // selection have conditions of their own.
        let merged = group.len() > 1;
        let sets: Vec<Guarded<'a>> = group
            .iter()
            .map(|(field, guard)| {
                (&field.selection_set, if merged { guard.clone() } else { Vec::new() })
            })
            .collect();
        let kind = self.kind(type_id, first, &sets, depth)?;
        Ok(Field { head: head(&response_key), response_key, presence, kind })
    }

    fn kind(
        &mut self,
        type_id: TypeId,
        field: &'a executable::Field,
        sets: &[Guarded<'a>],
        depth: usize,
    ) -> Result<FieldKind, String> {
        let model = self.model;
        match field.name.as_str() {
            "__typename" => return Ok(FieldKind::Typename),
            "__schema" | "__type" => {
                return Err("introspection is not served: select `_service { sdl }`".to_owned());
            }
            _ => {}
        }
        let object = model.object(type_id);
        let index = object
            .field_index(&field.name)
            .ok_or_else(|| format!("there is no field `{}.{}`", object.name, field.name))?;
        let field_model = object.field(index);
        let shape = field_model.shape.clone();
        let mut arguments = Argument::prepare(
            &model.schema,
            &field.definition.arguments,
            &field.arguments,
            self.variables,
        )?;
        let selection = if field_model.composite {
            let by_type = model
                .possible_types(&field_model.named)
                .iter()
                .map(|possible| Ok((*possible, self.compile_fields(*possible, sets, depth + 1)?)))
                .collect::<Result<Box<[_]>, String>>()?;
            Some(SelectionSet { by_type })
        } else {
            None
        };
        match selection {
            Some(selection) if &*field_model.name == "_entities" => {
                let representations = arguments.pop().ok_or("`_entities` needs representations")?;
                Ok(FieldKind::Entities { representations, index, shape, selection })
            }
            selection => {
                Ok(FieldKind::Data { index, shape, arguments: arguments.into(), selection })
            }
        }
    }
}

/// Fields by response key, in the order of their first occurrence.
#[derive(Default)]
struct Groups<'a> {
    in_order: Vec<Group<'a>>,
    entity_by_key: HashMap<&'a str, usize>,
}

impl<'a> Groups<'a> {
    fn add(&mut self, field: &'a executable::Field, guard: Vec<FieldCondition>) {
        let next = self.in_order.len();
        let place = *self.entity_by_key.entry(field.response_key().as_str()).or_insert(next);
        if place == next {
            self.in_order.push(Vec::new());
        }
        self.in_order[place].push((field, guard));
    }
}

/// Returns the name of a subscription's root field. Validation has checked that there is only one.
fn name_root_field(model: &Model, root: TypeId, fields: &[Field]) -> Result<Box<str>, String> {
    let index = fields.iter().find_map(|field| match field.kind {
        FieldKind::Data { index, .. } => Some(index),
        FieldKind::Typename | FieldKind::Entities { .. } => None,
    });
    let index = index.ok_or("the subscription selects no field")?;
    Ok(model.object(root).field(index).name.clone())
}

/// Formats a member's name. Names need no escapes (specification, section 2.1.9).
fn head(response_key: &str) -> Box<str> {
    format!("\"{response_key}\":").into()
}
