//! The pipeline of preparing one operation, from its text to [`Prepared`]. It computes on the
//! calling thread; equal operations share their plans.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use apollo_compiler::introspection::check_max_depth;
use apollo_compiler::parser::Parser;
use apollo_compiler::validation::{Valid, WithErrors};
use apollo_compiler::{ExecutableDocument, Schema, ast, executable};
use cost::{CostModel, OperationCost};
use execute::{Executable, StatePlan};
use graph::{InitialState, OverrideLabels, RequirementSet, Supergraph};
use plan::{FieldTarget, OperationKind, SubscriptionRoot};
use quick_cache::sync::Cache;

use crate::access::{self, AccessFacts};
use crate::changed_entities::select_changed_entities;
use crate::coerce::VariableTypes;
use crate::compact_text;
use crate::error::{Limit, PrepareError, Problem, convert_diagnostics, shorten};
use crate::fetch_caching::caching_of;
use crate::field_merging::{self, MergeStop};
use crate::field_use::FieldUse;
use crate::identity::{self, operation_id};
use crate::input_types::InputTypes;
use crate::introspection::{Introspection, SchemaFacts};
use crate::introspection_size;
use crate::lexical::count_tokens;
use crate::limits::{self, NESTING_MAX};
use crate::literal_extraction;
use crate::live_directive::{self, LiveQuery};
use crate::normalise::normalise;
use crate::operation_variant::OperationVariant;
use crate::override_labels::{self, LabelFacts};
use crate::plan_cache::{PlanCache, SharedPlan};
use crate::prepared::{Prepared, depth_of};
use crate::settings::PrepareSettings;
use crate::stats::PrepareStats;
use crate::steps::{PrepareStep, PrepareSteps};
use crate::variable_usage;
use crate::visible_schemas::VisibleSchemas;

/// Maximum number of ignored tokens (white space, commas, comments) that the parser reads for each
/// token that counts. Documents written by people and programs have one or two; without a bound, a
/// document of only commas would cost a hundred times its size.
const IGNORED_TOKENS_MAX: usize = 4;

/// Number of sets of override labels whose graphs are kept. A graph is some megabytes; five labels
/// that are decided independently make 32 sets.
const VARIANTS_MAX: usize = 32;

/// The pipeline that prepares operations of one supergraph.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) graph: Arc<Supergraph>,
    graph_id: u64,
    pub(crate) schema: Arc<SchemaFacts>,
    settings: PrepareSettings,
    /// The costs of the graph, if costs are estimated.
    cost: Option<Arc<CostModel>>,
    plans: PlanCache,
    /// The parts of the schema that introspection shows; `None` if it shows all of it to every client.
    visible: Option<Arc<VisibleSchemas>>,
    stats: Arc<PrepareStats>,
    /// The graph without override labels.
    plain: Arc<Variant>,
    /// The graphs for other sets of override labels that are in use.
    variants: Cache<OverrideLabels, Arc<Variant>>,
}

/// The graph for one set of override labels.
#[derive(Debug)]
struct Variant {
    graph: Arc<Supergraph>,
    /// Checks the plans of this graph.
    #[cfg(debug_assertions)]
    soundness: soundness::Checker,
}

impl Variant {
    fn new(graph: Arc<Supergraph>) -> Self {
        Self {
            #[cfg(debug_assertions)]
            soundness: soundness::Checker::new(Arc::clone(&graph)),
            graph,
        }
    }
}

/// The facts about a text that the choice of a variant depends on.
#[derive(Clone, Debug)]
pub(crate) struct TextFacts {
    pub(crate) labels: LabelFacts,
    pub(crate) access: Arc<AccessFacts>,
}

/// An operation before it is planned.
#[derive(Debug)]
pub(crate) struct NormalisedText {
    pub(crate) operation: plan::Operation,
    pub(crate) operation_id: u128,
    pub(crate) variables: VariableTypes,
    pub(crate) introspection: Option<Introspection>,
    pub(crate) live: Option<LiveQuery>,
    pub(crate) field_use: Option<Arc<FieldUse>>,
    /// The part of its identity that is not in the normalised form.
    besides: String,
}

impl Pipeline {
    pub(crate) fn new(
        graph: Arc<Supergraph>,
        graph_id: u64,
        settings: PrepareSettings,
        stats: Arc<PrepareStats>,
    ) -> Self {
        let schema = match settings.live_queries {
            true => Arc::new(live_directive::with_live_directive(Schema::clone(&graph.api.0))),
            false => Arc::clone(&graph.api.0),
        };
        let schema = Arc::new(SchemaFacts {
            input_types: InputTypes::of(&schema),
            implementers: schema.implementers_map(),
            introspection_values_max: introspection_size::values_max(&schema),
            introspection_cached: Arc::default(),
            schema,
        });
        let plain = Arc::new(Variant::new(Arc::clone(&graph)));
        let (plans, variants) = (PlanCache::default(), Cache::new(VARIANTS_MAX));
        let cost = settings.cost.clone().map(|cost| Arc::new(CostModel::new(&graph, cost)));
        let visible = (settings.filters_introspection && !graph.access.is_empty()).then(|| {
            let (graph, stats) = (Arc::clone(&graph), Arc::clone(&stats));
            Arc::new(VisibleSchemas::new(graph, settings.live_queries, stats))
        });
        Self { graph, graph_id, schema, settings, cost, plans, visible, stats, plain, variants }
    }

    /// Returns the graph for these labels.
    fn graph_variant(&self, labels: OverrideLabels) -> Arc<Variant> {
        if labels.is_empty() {
            return Arc::clone(&self.plain);
        }
        let made = self.variants.get_or_insert_with(&labels, || {
            let graph = Arc::new(self.graph.with_override_labels(labels));
            Ok::<_, std::convert::Infallible>(Arc::new(Variant::new(graph)))
        });
        match made {
            Ok(variant) => variant,
            Err(never) => match never {},
        }
    }

    /// Prepares a text as it is written, with a plan of its own.
    pub(crate) fn prepare(
        &self,
        query: &[u8],
        name: Option<&str>,
        variant: &OperationVariant,
    ) -> Result<Prepared, PrepareError> {
        let mut normalised = self.normalise_text(query, name)?;
        self.deny(&mut normalised, variant)?;
        let shared_plan = Arc::new(self.make_shared_plan(&normalised.operation, variant.labels)?);
        Ok(self.build_prepared(query, normalised, variant, &shared_plan, Vec::new()))
    }

    /// Prepares a text with its literals extracted, and the plan of all operations that differ in
    /// literals only. The flag is true if that plan existed. `steps` gets the steps, also those before a failure.
    pub(crate) fn prepare_shared(
        &self,
        query: &[u8],
        name: Option<&str>,
        variant: &OperationVariant,
        steps: &mut PrepareSteps,
    ) -> Result<(Prepared, bool), PrepareError> {
        let began = Instant::now();
        let document = self.parse_document(query);
        let began = steps.record(PrepareStep::Parse, began);
        let normalised = self.normalise_document(query, &document?, name);
        let began = steps.record(PrepareStep::Validate, began);
        let prepared = self.prepare_normalised(query, normalised?, variant);
        steps.record(PrepareStep::Plan, began);
        prepared
    }

    /// Prepares what [`Self::prepare_shared`] prepares, after its text was validated.
    fn prepare_normalised(
        &self,
        query: &[u8],
        mut normalised: NormalisedText,
        variant: &OperationVariant,
    ) -> Result<(Prepared, bool), PrepareError> {
        self.deny(&mut normalised, variant)?;
        let extracted = self.extract_literals(&mut normalised);
        let identity = identity::of_variant(normalised.operation_id, variant);
        let plan = || self.make_shared_plan(&normalised.operation, variant.labels);
        let (shared_plan, was_planned) = self.plans.get_or_make(identity, plan)?;
        Ok((self.build_prepared(query, normalised, variant, &shared_plan, extracted), was_planned))
    }

    /// Returns the facts that access to a text is decided by, and those that its override labels are decided by. `None`
    /// if it is not a valid operation.
    pub(crate) fn text_facts(&self, query: &[u8], name: Option<&str>) -> Option<TextFacts> {
        let mut normalised = self.normalise_text(query, name).ok()?;
        let relevant = override_labels::relevant_labels(&self.graph, &normalised.operation);
        let requirements = self.requirements_of(&normalised);
        self.extract_literals(&mut normalised);
        let NormalisedText { operation, operation_id, .. } = normalised;
        Some(TextFacts {
            labels: LabelFacts { relevant, kind: operation.kind },
            access: Arc::new(AccessFacts {
                requirements,
                kind: operation.kind,
                operation_id,
                depth: depth_of(&operation.selection_set),
                name: operation.name,
            }),
        })
    }

    /// Replaces the literals of an operation by variables, and returns their values.
    fn extract_literals(&self, normalised: &mut NormalisedText) -> Vec<Option<Box<str>>> {
        let operation = &mut normalised.operation;
        let extracted =
            literal_extraction::extract_literals(&self.graph, &self.schema.input_types, operation);
        if !extracted.is_empty() {
            normalised.operation_id = operation_id(self.graph_id, operation, &normalised.besides);
        }
        extracted
    }

    /// Marks what a client that does not meet the requirements of `variant` may not use.
    ///
    /// # Errors
    /// [`PrepareError::Denied`] for a subscription with a denied root field, because no stream can be opened for it,
    /// and for introspection of a schema of which the client may use nothing.
    fn deny(
        &self,
        normalised: &mut NormalisedText,
        variant: &OperationVariant,
    ) -> Result<(), PrepareError> {
        if variant.unmet.is_empty() {
            return Ok(());
        }
        let operation = &mut normalised.operation;
        if let (Some(schemas), Some(introspection)) = (&self.visible, &mut normalised.introspection)
            && !introspection.restrict(schemas, &variant.unmet)
        {
            return Err(PrepareError::Denied(introspection_key(operation)));
        }
        let denied = self.graph.access.denied(&variant.unmet);
        if operation.kind == OperationKind::Subscription {
            for item in &operation.selection_set.items {
                if let plan::Selection::Field(field) = item
                    && let FieldTarget::Field(id) = field.target
                    && denied.has_field(id)
                {
                    return Err(PrepareError::Denied(field.response_key.clone()));
                }
            }
        }
        operation.denied = Arc::new(denied);
        Ok(())
    }

    fn make_shared_plan(
        &self,
        operation: &plan::Operation,
        labels: OverrideLabels,
    ) -> Result<SharedPlan, PrepareError> {
        let variant = self.graph_variant(labels);
        let mut plan = self.plan_operation(&variant.graph, operation)?;
        #[cfg(debug_assertions)]
        variant.soundness.check(operation, &plan).map_err(|unsound| {
            PrepareError::Internal(format!("{unsound}\n{}", plan.to_text(&self.graph)))
        })?;
        let state = self.plan_state(operation, &plan, &variant)?.map(Arc::new);
        let cost = self
            .cost
            .as_ref()
            .map(|model| Arc::new(OperationCost::compile(model, &variant.graph, operation, &plan)));
        let caching = self.settings.caching.as_ref();
        let caching = caching.map(|rules| {
            let changed = select_changed_entities(&mut plan, &variant.graph, rules);
            (caching_of(&plan, &variant.graph, rules), changed)
        });
        let (caching, changed) = caching.unwrap_or_default();
        let executable = Executable::new(Arc::new(plan))
            .with_cost(cost.clone())
            .with_caching(caching)
            .with_changed_entities(changed);
        Ok(SharedPlan { executable: Arc::new(executable), state, cost })
    }

    /// Makes the plan that fetches the current state of a subscription. `None` if its field has
    /// none.
    fn plan_state(
        &self,
        operation: &plan::Operation,
        plan: &plan::Plan,
        variant: &Variant,
    ) -> Result<Option<StatePlan>, PrepareError> {
        let Some(SubscriptionRoot::Event(event)) = &plan.subscription else { return Ok(None) };
        let Some(initial) = self.graph.initial_state(event.field) else { return Ok(None) };
        let (state, graph) = match &initial {
            InitialState::Field(field) => {
                (operation.as_query(&variant.graph, *field), Arc::clone(&variant.graph))
            }
            InitialState::Entity { subgraph, keys, .. } => {
                // This takes some milliseconds for a large graph, once for each operation.
                let graph = variant.graph.with_keys_only(event.field, *subgraph, keys);
                (operation.clone(), Arc::new(graph))
            }
        };
        let mut plan = match self.plan_operation(&graph, &state) {
            Ok(plan) => plan,
            // Events may bring values that no subgraph can fetch: such a stream is served without a
            // state.
            Err(PrepareError::Plan(error)) => {
                return Ok(Some(StatePlan::unavailable(error.to_string())));
            }
            Err(error) => return Err(error),
        };
        #[cfg(debug_assertions)]
        soundness::Checker::new(Arc::clone(&graph)).check(&state, &plan).map_err(|unsound| {
            PrepareError::Internal(format!("{unsound}\n{}", plan.to_text(&self.graph)))
        })?;
        match initial {
            InitialState::Field(_) => {
                // Payloads are of the subscription's type, which may be stricter than the query's.
                let nullable = self.graph.field(event.field).ty.nullable;
                let root = plan.shape.objects.get_mut(plan.shape.root.0 as usize);
                for variant in root.into_iter().flat_map(|root| &mut root.variants) {
                    variant.fields.iter_mut().for_each(|field| field.value.nullable = nullable);
                }
                Ok(Some(StatePlan::query(Executable::new(Arc::new(plan)))))
            }
            InitialState::Entity { ty, keys, .. } => {
                let name = |id: &graph::FieldId| self.graph.field(*id).name.clone();
                let keys = keys.iter().map(name).collect();
                let executable = Executable::new(Arc::new(plan));
                Ok(Some(StatePlan::entity(executable, self.graph.ty(ty).name.clone(), keys)))
            }
        }
    }

    fn build_prepared(
        &self,
        query: &[u8],
        normalised: NormalisedText,
        variant: &OperationVariant,
        shared_plan: &Arc<SharedPlan>,
        extracted: Vec<Option<Box<str>>>,
    ) -> Prepared {
        let NormalisedText {
            operation,
            operation_id,
            variables,
            introspection,
            live,
            field_use,
            ..
        } = normalised;
        let cost = shared_plan.cost.clone();
        Prepared {
            operation_id: identity::of_variant(operation_id, variant),
            denied: access::denied_selections(&self.graph, &operation),
            query: match operation.kind == OperationKind::Subscription || live.is_some() {
                true => compact_text::compact_text(query),
                false => bytes::Bytes::new(),
            },
            name: operation.name.clone(),
            kind: operation.kind,
            live,
            // The plan of a state is another plan of the same size.
            weight: estimate_weight(query, &operation, introspection.is_some())
                * (1 + u64::from(shared_plan.state.is_some()))
                + cost.as_ref().map_or(0, |it| it.memory())
                + field_use.as_ref().map_or(0, |it| it.memory()),
            operation,
            plan: Arc::clone(shared_plan.executable.plan()),
            executable: Arc::clone(&shared_plan.executable),
            state: shared_plan.state.clone(),
            cost,
            field_use,
            is_slow: false,
            uses: AtomicU64::new(0),
            _planned: Arc::clone(shared_plan),
            extracted,
            variables,
            introspection,
            schema: Arc::clone(&self.schema),
        }
    }

    fn plan_operation(
        &self,
        graph: &Supergraph,
        operation: &plan::Operation,
    ) -> Result<plan::Plan, PrepareError> {
        let started = Instant::now();
        let limits = &self.settings.planning;
        let (plan, effort) = plan::plan_with_effort(graph, operation, limits);
        self.stats.planning.add(started.elapsed());
        self.stats.planning_steps.fetch_add(effort.steps, Ordering::Relaxed);
        if effort.is_greedy {
            self.stats.greedy.fetch_add(1, Ordering::Relaxed);
        }
        plan.map_err(PrepareError::Plan)
    }

    /// Returns the requirements that decide about a text: those of its fields, or all of them if it introspects and
    /// clients see only what they may use.
    pub(crate) fn requirements_of(&self, text: &NormalisedText) -> RequirementSet {
        match (&self.visible, &text.introspection) {
            (Some(_), Some(_)) => self.graph.access.all(),
            _ => access::requirements_of(&self.graph, &text.operation),
        }
    }

    /// Parses, validates and normalises a text: all stages before the plan.
    pub(crate) fn normalise_text(
        &self,
        query: &[u8],
        name: Option<&str>,
    ) -> Result<NormalisedText, PrepareError> {
        let document = self.parse_document(query)?;
        self.normalise_document(query, &document, name)
    }

    /// Validates and normalises the document of a text.
    fn normalise_document(
        &self,
        query: &[u8],
        document: &ast::Document,
        name: Option<&str>,
    ) -> Result<NormalisedText, PrepareError> {
        let types = &self.schema.input_types;
        if !self.settings.live_queries {
            live_directive::refuse_live_queries(document, &self.schema.schema)?;
        }
        let document = self.validate_document(document)?;
        let chosen =
            document.operations.get(name).map_err(|_| unknown_operation(&document, name))?;
        let (schema, is_live) = (&self.schema.schema, self.settings.live_queries);
        let never_null =
            variable_usage::check_variables(&document, schema, types, Some(chosen), is_live)?;
        let variables = VariableTypes::of(chosen, types, &never_null)
            .map_err(|problem| PrepareError::Validation(vec![problem]))?;
        let mut operation = normalise(&self.graph, types, &document, chosen)?;
        for (variable, ty) in operation.variables.iter_mut().zip(variables.types()) {
            variable.ty = ty.into();
        }
        let mut besides: String = chosen
            .variables
            .iter()
            .filter_map(|it| Some(format!("{}={};", it.name, it.default_value.as_ref()?)))
            .collect();
        let live = match self.settings.live_queries {
            true => LiveQuery::of(chosen)?,
            false => None,
        };
        if let Some(live) = &live {
            besides.push_str(&live.identity());
        }
        let introspects = has_introspection(&operation);
        if introspects {
            self.check_introspection(&document, chosen)?;
            // The normalised form has no introspection: only the text contains the selections on
            // the schema.
            besides.push_str(&String::from_utf8_lossy(query));
        }
        let operation_id = operation_id(self.graph_id, &operation, &besides);
        let field_use = self.settings.field_use.then(|| Arc::new(FieldUse::of(&document, chosen)));
        let introspection =
            introspects.then(|| Introspection::new(&self.schema, document, name.map(Into::into)));
        Ok(NormalisedText {
            operation,
            operation_id,
            variables,
            introspection,
            live,
            field_use,
            besides,
        })
    }

    /// Parses the syntax tree, within the limits.
    fn parse_document(&self, query: &[u8]) -> Result<ast::Document, PrepareError> {
        let limits = &self.settings.limits;
        let text = std::str::from_utf8(query).map_err(|error| {
            PrepareError::Syntax(vec![Problem::new(format!("the document is not UTF-8: {error}"))])
        })?;
        if text.trim().is_empty() {
            let problem = Problem::new("the document is empty: `query` must hold an operation");
            return Err(PrepareError::Syntax(vec![problem]));
        }
        let too_many = PrepareError::Limit { limit: Limit::Tokens, maximum: limits.tokens };
        if count_tokens(text, limits.tokens) > limits.tokens {
            return Err(too_many);
        }
        let with_ignored = limits.tokens.saturating_mul(1 + IGNORED_TOKENS_MAX);
        let mut parser = Parser::new().token_limit(with_ignored).recursion_limit(NESTING_MAX);
        let document = parser.parse_ast(text, "operation").map_err(|invalid| {
            if parser.tokens_reached() > with_ignored {
                too_many
            } else if parser.recursion_reached() > NESTING_MAX {
                let maximum = limits.depth.min(NESTING_MAX);
                PrepareError::Limit { limit: Limit::Depth, maximum }
            } else {
                // After the first error the parser mostly reports consequences of it.
                let mut problems = convert_diagnostics(&invalid.errors);
                problems.truncate(1);
                PrepareError::Syntax(problems)
            }
        })?;
        limits::check_limits(&document, limits)?;
        Ok(document)
    }

    fn validate_document(
        &self,
        document: &ast::Document,
    ) -> Result<Valid<ExecutableDocument>, PrepareError> {
        let schema = &self.schema.schema;
        let maximum = self.settings.limits.selections;
        let guard = |document: &ExecutableDocument| {
            field_merging::check_merging(document, schema, maximum).map_err(|stop| match stop {
                MergeStop::Budget => PrepareError::Limit { limit: Limit::Selections, maximum },
                MergeStop::Conflict(problem) => PrepareError::Validation(vec![problem]),
            })
        };
        let invalid = |invalid: WithErrors<ExecutableDocument>| {
            PrepareError::Validation(convert_diagnostics(&invalid.errors))
        };
        match document.to_executable(schema) {
            Ok(executable) => {
                guard(&executable)?;
                executable.validate(schema).map_err(invalid)
            }
            Err(partial) => {
                guard(&partial.partial)?;
                // This also reports the other errors.
                document.to_executable_validate(schema).map_err(invalid)
            }
        }
    }

    fn check_introspection(
        &self,
        document: &Valid<ExecutableDocument>,
        operation: &executable::Operation,
    ) -> Result<(), PrepareError> {
        let refused = |message: String| PrepareError::Validation(vec![Problem::new(message)]);
        if !self.settings.introspection {
            let message = "introspection is turned off on this router (`introspection: false`)";
            return Err(refused(message.to_owned()));
        }
        check_max_depth(document, operation)
            .map_err(|error| refused(error.message().to_string()))?;
        let max = self.schema.introspection_values_max;
        if !introspection_size::fits(&self.schema, document, &operation.selection_set, max) {
            return Err(refused(format!("introspection selects more than {max} values")));
        }
        Ok(())
    }
}

/// Returns the response key of the first introspection field.
fn introspection_key(operation: &plan::Operation) -> Box<str> {
    let key = operation.selection_set.items.iter().find_map(|item| match item {
        plan::Selection::Field(field) if field.target == FieldTarget::Introspection => {
            Some(field.response_key.clone())
        }
        _ => None,
    });
    key.unwrap_or_else(|| "__schema".into())
}

fn has_introspection(operation: &plan::Operation) -> bool {
    operation.selection_set.items.iter().any(|item| {
        matches!(item, plan::Selection::Field(field) if field.target == FieldTarget::Introspection)
    })
}

/// Estimates the size of a prepared operation in bytes.
fn estimate_weight(query: &[u8], operation: &plan::Operation, introspects: bool) -> u64 {
    /// The parts of constant size, and the cache entry.
    const BASE: usize = 8_192;
    /// A selection in the normalised operation, its plan, and its shape.
    const SELECTION: usize = 512;
    /// A character in a syntax tree, which is kept for introspection.
    const CHARACTER: usize = 32;
    fn selections(set: &plan::SelectionSet) -> usize {
        let below = set.items.iter().map(|item| match item {
            plan::Selection::Field(field) => 1 + field.selection_set.as_ref().map_or(0, selections),
            plan::Selection::Fragment(fragment) => 1 + selections(&fragment.selection_set),
        });
        below.sum()
    }
    // The cache and the operation have one copy each.
    let text = query.len() * if introspects { CHARACTER } else { 2 };
    (BASE + text + SELECTION * selections(&operation.selection_set)) as u64
}

fn unknown_operation(document: &ExecutableDocument, name: Option<&str>) -> PrepareError {
    /// Number of names in the message.
    const SHOWN: usize = 10;
    /// Maximum number of characters of a name in the message.
    const NAME_MAX: usize = 100;
    let names = document.operations.named.keys().take(SHOWN);
    let names: Vec<_> = names.map(|name| shorten(name.to_string(), NAME_MAX)).collect();
    PrepareError::UnknownOperation(match name {
        Some(name) => {
            let name = shorten(name.to_owned(), NAME_MAX);
            let others = match &names[..] {
                [] => "its operation has no name".to_owned(),
                names => format!("it has: {}", names.join(", ")),
            };
            format!("the document has no operation named \"{name}\"; {others}")
        }
        None if document.operations.is_empty() => "the document has no operation".to_owned(),
        None => format!(
            "the document has several operations ({}); choose one with `operationName`",
            names.join(", ")
        ),
    })
}
