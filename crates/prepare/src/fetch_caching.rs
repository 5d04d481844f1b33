//! Derives from each fetch of a plan the facts on which the caching of its responses depends: the policy that schema
//! and configuration declare for its fields, the tags of root fields, and the types of the objects in the response.
//!
//! The text of the fetch is read again, because a plan does not keep selections. That takes some microseconds, once for
//! each plan.

use std::collections::BTreeSet;
use std::time::Duration;

use apollo_compiler::ast::{self, Definition, Selection};
use apollo_compiler::parser::Parser;
use cache::{
    CacheHint, FieldHints, HintFold, Scope, TagTemplate, TemplateError, TemplateScope, TtlRules,
};
use execute::{FetchCaching, KeyedSelection, PartCaching, RootTag};
use graph::{ConstValue, ElementHints, FieldId, SubgraphId, Supergraph, TypeId};
use plan::{Fetch, FetchKind, OperationKind, Plan, SubgraphOperation, Value, VariableId};

use crate::keyed_selection::SelectionWriter;
use crate::root_division::divide;

/// Returns the facts about each fetch of `plan`. `None` for fetches without stored responses: those of
/// mutations, of events, and of subgraphs without a cache.
pub(crate) fn caching_of(
    plan: &Plan,
    graph: &Supergraph,
    rules: &TtlRules,
) -> Vec<Option<FetchCaching>> {
    let all = plan.fetches.iter();
    all.map(
        |fetch| {
            if plan.kind == OperationKind::Query { of_fetch(fetch, graph, rules) } else { None }
        },
    )
    .collect()
}

fn of_fetch(fetch: &Fetch, graph: &Supergraph, rules: &TtlRules) -> Option<FetchCaching> {
    match &fetch.kind {
        FetchKind::Root { operation, .. } if operation.kind == OperationKind::Query => {
            let selections = Selections::read(operation)?;
            let divided = divide(operation, selections.operation()?)?;
            let root = Parent { ty: graph.query, is_root: true, has_whole_time: false };
            let parts = divided.selections.iter().zip(divided.keyed).map(|(all, keyed)| {
                let mut part = PartInProgress::new(graph, rules, fetch.subgraph, keyed);
                for &selection in all {
                    part.add_selections(&selections, std::slice::from_ref(selection), root);
                }
                // All selections of a field have equal arguments. The loading of a graph refuses wrong templates;
                // without its tag a response must not be stored.
                let field = all.first().and_then(|it| it.as_field())?;
                part.add_root_tags(field, &operation.variables).ok()?;
                Some(part.finish())
            });
            let parts = parts.collect::<Option<Vec<_>>>()?;
            Some(FetchCaching::of_root(divided.request, parts))
        }
        FetchKind::Entities { operation, batches } => {
            let selections = Selections::read(operation)?;
            let parts = batches.iter().map(|batch| {
                let root = &selections.operation()?.selection_set;
                let mut fields = root.iter().filter_map(Selection::as_field);
                let field = fields.find(|it| *it.response_name() == *batch.data_key)?;
                let request = EntitiesRequest {
                    variables: &operation.variables,
                    representations: &batch.variable,
                    max_age: None,
                };
                Some(entities_part(graph, rules, fetch.subgraph, &selections, field, &request))
            });
            Some(FetchCaching::new(parts.collect::<Option<Vec<_>>>()?))
        }
        FetchKind::Root { .. }
        | FetchKind::RootBelow { .. }
        | FetchKind::Publish(_)
        | FetchKind::Request(_) => None,
    }
}

/// The facts about a field `_entities` beside its selections.
pub(crate) struct EntitiesRequest<'a> {
    /// The variables of the operation.
    pub(crate) variables: &'a [(Box<str>, VariableId)],
    /// The variable of the representations.
    pub(crate) representations: &'a str,
    /// The time that takes the place of those of the entity types.
    pub(crate) max_age: Option<u32>,
}

/// Returns the facts about the entities that a field `_entities` selects.
pub(crate) fn entities_part(
    graph: &Supergraph,
    rules: &TtlRules,
    subgraph: SubgraphId,
    selections: &Selections,
    field: &ast::Field,
    request: &EntitiesRequest<'_>,
) -> PartCaching {
    let mut writer = SelectionWriter::new(request.variables, Some(request.representations));
    let text = writer.write_top(field);
    let keyed = writer.finish(text);
    let mut part = PartInProgress::new(graph, rules, subgraph, keyed);
    part.add_entities(selections, &field.selection_set, request.max_age);
    part.finish()
}

/// The text of a fetch, parsed.
pub(crate) struct Selections(pub(crate) ast::Document);

impl Selections {
    /// `None` if the text cannot be parsed, which does not happen to texts of the planner.
    fn read(operation: &SubgraphOperation) -> Option<Self> {
        Parser::new().parse_ast(&*operation.text, "fetch.graphql").ok().map(Self)
    }

    fn operation(&self) -> Option<&ast::OperationDefinition> {
        self.0.definitions.iter().find_map(|definition| match definition {
            Definition::OperationDefinition(operation) => Some(&**operation),
            _ => None,
        })
    }

    fn fragment(&self, name: &str) -> Option<&ast::FragmentDefinition> {
        self.0.definitions.iter().find_map(|definition| match definition {
            Definition::FragmentDefinition(fragment) if fragment.name == name => Some(&**fragment),
            _ => None,
        })
    }

    /// The type condition and the selections of a fragment, or of a spread of one.
    fn of_fragment<'a>(
        &'a self,
        selection: &'a Selection,
    ) -> Option<(Option<&'a str>, &'a [Selection])> {
        match selection {
            Selection::Field(_) => None,
            Selection::InlineFragment(fragment) => {
                let condition = fragment.type_condition.as_ref().map(apollo_compiler::Name::as_str);
                Some((condition, &fragment.selection_set))
            }
            Selection::FragmentSpread(spread) => {
                let fragment = self.fragment(&spread.fragment_name)?;
                Some((Some(fragment.type_condition.as_str()), &fragment.selection_set))
            }
        }
    }
}

/// The facts about one batch or about one root field, while selections are added.
struct PartInProgress<'a> {
    graph: &'a Supergraph,
    rules: &'a TtlRules,
    subgraph: SubgraphId,
    subgraph_name: &'a str,
    selection: KeyedSelection,
    fold: HintFold,
    type_names: BTreeSet<Box<str>>,
    root_tags: Vec<RootTag>,
}

/// The object with the selected fields.
#[derive(Clone, Copy)]
struct Parent {
    ty: TypeId,
    /// True for the query root.
    is_root: bool,
    /// True if a hint on an entity or root field above holds for everything below it.
    has_whole_time: bool,
}

/// The hint of an element. `has_whole_time` makes a composite without a time of its own inherit.
fn cache_hint(hints: Option<&ElementHints>, has_whole_time: bool) -> CacheHint {
    let control = hints.map(|it| it.control).unwrap_or_default();
    let max_age = control.max_age.map(|it| Duration::from_secs(it.into()));
    CacheHint {
        max_age,
        scope: control.is_private.map(|it| if it { Scope::Private } else { Scope::Public }),
        inherits_max_age: control.inherits_max_age || (has_whole_time && max_age.is_none()),
    }
}

/// Gives an element without `@cacheControl(maxAge:)` the time of `@openfed__entityCache` or `@openfed__queryCache`.
/// Returns true if that time counts.
fn apply_whole_time(hint: &mut CacheHint, hints: Option<&ElementHints>) -> bool {
    let whole = hints.and_then(|it| it.whole_max_age);
    let (None, Some(seconds)) = (hint.max_age, whole) else { return false };
    hint.max_age = Some(Duration::from_secs(seconds.into()));
    true
}

impl<'a> PartInProgress<'a> {
    fn new(
        graph: &'a Supergraph,
        rules: &'a TtlRules,
        subgraph: SubgraphId,
        selection: KeyedSelection,
    ) -> Self {
        Self {
            graph,
            rules,
            subgraph,
            selection,
            subgraph_name: &graph.subgraph(subgraph).name,
            fold: HintFold::default(),
            type_names: BTreeSet::new(),
            root_tags: Vec::new(),
        }
    }

    fn type_hints(&self, ty: TypeId) -> Option<&'a ElementHints> {
        self.graph.cache_hints.as_ref()?.of_type(self.subgraph, ty)
    }

    /// The hint of a composite type. An interface or union is private if one of its objects is, unless it has a scope
    /// of its own: Apollo Server looks at the type of the field only, but here responses are shared between clients.
    fn type_hint(&self, ty: TypeId, has_whole_time: bool) -> CacheHint {
        let mut hint = cache_hint(self.type_hints(ty), has_whole_time);
        if hint.scope.is_none() {
            let possible = self.graph.ty(ty).possible.iter();
            let mut possible = possible.filter_map(|id| self.type_hints(*id));
            if possible.any(|it| it.control.is_private == Some(true)) {
                hint.scope = Some(Scope::Private);
            }
        }
        hint
    }

    fn field_hints(&self, field: FieldId) -> Option<&'a ElementHints> {
        self.graph.cache_hints.as_ref()?.of_field(self.subgraph, field)
    }

    /// Adds the selections of `_entities`: fragments on entity types. `max_age` takes the place of their times.
    fn add_entities(&mut self, selections: &Selections, all: &[Selection], max_age: Option<u32>) {
        for selection in all {
            let Some((Some(name), below)) = selections.of_fragment(selection) else { continue };
            let id = self.graph.type_named(name);
            let hints = id.and_then(|id| self.type_hints(id));
            let mut hint = id.map(|id| self.type_hint(id, false)).unwrap_or_default();
            let mut has_whole_time = apply_whole_time(&mut hint, hints);
            if let Some(seconds) = max_age {
                hint.max_age = Some(Duration::from_secs(seconds.into()));
                has_whole_time = true;
            }
            self.fold.add_entity(hint, self.rules.of_type(self.subgraph_name, name));
            if let Some(ty) = id {
                self.add_selections(
                    selections,
                    below,
                    Parent { ty, is_root: false, has_whole_time },
                );
            }
        }
    }

    // Recursion is bounded by the depth of operations, which is limited before they are planned.
    fn add_selections(&mut self, selections: &Selections, all: &[Selection], parent: Parent) {
        for selection in all {
            let Selection::Field(field) = selection else {
                let Some((condition, below)) = selections.of_fragment(selection) else { continue };
                let narrowed = condition.and_then(|name| self.graph.type_named(name));
                let ty = narrowed.unwrap_or(parent.ty);
                self.add_selections(selections, below, Parent { ty, ..parent });
                continue;
            };
            let Some(id) = self.graph.field_named(parent.ty, &field.name) else { continue };
            let value = self.graph.field(id).ty.named();
            let value_type = self.graph.ty(value);
            let composite = value_type.kind.is_composite().then_some(&*value_type.name);
            let configured = self.rules.of_field(
                self.subgraph_name,
                &self.graph.ty(parent.ty).name,
                &field.name,
                composite,
                parent.is_root,
            );
            let hints = self.field_hints(id);
            let mut hint = cache_hint(hints, false);
            let begins_whole = parent.is_root && apply_whole_time(&mut hint, hints);
            let has_whole_time = parent.has_whole_time || begins_whole;
            self.fold.add_field(FieldHints {
                field: hint,
                composite: composite.map(|_| self.type_hint(value, has_whole_time)),
                is_root: parent.is_root,
                configured,
            });
            if let Some(name) = composite {
                self.type_names.insert(name.into());
                // The objects behind an interface or a union are of these types.
                let possible = value_type.possible.iter().map(|id| &self.graph.ty(*id).name);
                self.type_names.extend(possible.cloned());
            }
            let below = Parent { ty: value, is_root: false, has_whole_time };
            self.add_selections(selections, &field.selection_set, below);
        }
    }

    /// Adds the tags of a root field.
    ///
    /// # Errors
    /// A template is wrong.
    fn add_root_tags(
        &mut self,
        field: &ast::Field,
        variables: &[(Box<str>, VariableId)],
    ) -> Result<(), TemplateError> {
        let Some(id) = self.graph.field_named(self.graph.query, &field.name) else { return Ok(()) };
        for format in self.field_hints(id).into_iter().flat_map(|it| &it.tags) {
            let template = TagTemplate::compile(format, TemplateScope::RootField)?;
            let mut arguments = arguments_of(self.graph, id, field, variables);
            arguments.retain(|(name, _)| template.paths().any(|path| path.first() == Some(name)));
            self.root_tags.push(RootTag { template, arguments });
        }
        Ok(())
    }

    fn finish(self) -> PartCaching {
        PartCaching {
            selection: self.selection,
            declared: self.fold.finish(),
            type_names: self.type_names.into_iter().collect(),
            root_tags: self.root_tags,
        }
    }
}

/// The arguments of a field in a fetch, with the defaults of those that are left out.
fn arguments_of(
    graph: &Supergraph,
    id: FieldId,
    field: &ast::Field,
    variables: &[(Box<str>, VariableId)],
) -> Vec<(Box<str>, Value)> {
    let given = field.arguments.iter();
    let mut all: Vec<(Box<str>, Value)> =
        given.map(|it| (it.name.as_str().into(), to_value(&it.value, variables))).collect();
    for argument in &graph.field(id).arguments {
        let is_given = all.iter().any(|(name, _)| *name == argument.name);
        let default = argument.default.as_deref().filter(|_| !is_given);
        if let Some(value) = default.and_then(ConstValue::parse) {
            all.push((argument.name.clone(), value.into()));
        }
    }
    all
}

// Recursion is bounded by the depth of operations.
fn to_value(value: &ast::Value, variables: &[(Box<str>, VariableId)]) -> Value {
    match value {
        ast::Value::Null => Value::Null,
        ast::Value::Int(number) => Value::Int(number.as_str().into()),
        ast::Value::Float(number) => Value::Float(number.as_str().into()),
        ast::Value::String(text) => Value::String(text.as_str().into()),
        ast::Value::Boolean(value) => Value::Boolean(*value),
        ast::Value::Enum(name) => Value::Enum(name.as_str().into()),
        ast::Value::List(items) => {
            Value::List(items.iter().map(|item| to_value(item, variables)).collect())
        }
        ast::Value::Object(members) => {
            let members = members.iter();
            let member =
                |(name, value): &(apollo_compiler::Name, apollo_compiler::Node<ast::Value>)| {
                    (name.as_str().into(), to_value(value, variables))
                };
            Value::Object(members.map(member).collect())
        }
        ast::Value::Variable(name) => {
            let known = variables.iter().find(|(known, _)| **known == **name);
            // A fetch declares all variables that it uses.
            known.map_or(Value::Null, |(_, id)| Value::Variable(*id))
        }
    }
}
