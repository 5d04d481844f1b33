//! The cost of one operation: estimated from its variables, counted in its responses.

use std::sync::Arc;

use astjson::{Document, NodeId};
use graph::{SubgraphId, Supergraph, WEIGHT_PARTS};
use plan::{Operation, OperationKind, Plan, Variables};

use crate::estimate::EstimateCompiler;
use crate::fetches;
use crate::graph_costs::GraphCosts;
use crate::model::{CostModel, MUTATION_WEIGHT};
use crate::program::{Operand, Program};
use crate::response::{ResponseCompiler, ResponseCost};

/// The compiled cost of an operation.
#[derive(Debug)]
pub struct OperationCost {
    model: Arc<CostModel>,
    program: Program,
    total: Operand,
    /// The costs of the requests to each subgraph that has any; empty if they are not needed.
    subgraphs: Vec<(SubgraphId, Operand)>,
    /// The cost without any field.
    base: u64,
    response: ResponseCost,
}

/// The estimated cost of one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Estimate<'a> {
    /// The cost of the operation. `u64::MAX` means that it is larger than can be counted.
    pub total: u64,
    /// The cost of the requests to each subgraph that has any; empty if they are not needed.
    pub subgraphs: Vec<(SubgraphId, u64)>,
    /// The coordinate of a field with several slicing arguments of which only one is allowed.
    pub conflict: Option<&'a str>,
}

impl OperationCost {
    /// Compiles an operation and its plan, which belong to `graph`.
    pub fn compile(
        model: &Arc<CostModel>,
        graph: &Supergraph,
        operation: &Operation,
        plan: &Plan,
    ) -> Self {
        let converted = match model.settings.subgraph_list_sizes.is_empty() {
            true => Vec::new(),
            false => fetches::read_fetches(graph, plan),
        };
        let mut compiler = EstimateCompiler::new(GraphCosts::of(graph), model);
        let total = compiler.root(&operation.selection_set);
        let subgraphs = fetches::compile_fetches(&mut compiler, operation, plan, &converted);
        let response = ResponseCompiler::new(&mut compiler, &plan.shape);
        let response = response.compile(&operation.selection_set);
        let base = match operation.kind {
            OperationKind::Mutation => MUTATION_WEIGHT,
            OperationKind::Query | OperationKind::Subscription => 0,
        };
        let program = compiler.builder.finish();
        Self { model: Arc::clone(model), program, total, subgraphs, base, response }
    }

    /// Estimates the cost with these values of variables.
    pub fn estimate(&self, variables: &Variables) -> Estimate<'_> {
        let values = self.program.evaluate(&self.model.inputs, variables);
        let subgraphs = self.subgraphs.iter();
        Estimate {
            total: whole(values.value(self.total).saturating_add(self.base)),
            subgraphs: subgraphs.map(|&(id, cost)| (id, whole(values.value(cost)))).collect(),
            conflict: self.program.find_conflict(variables),
        }
    }

    /// Counts the cost of a response with this root.
    pub fn count(&self, document: &Document, root: NodeId, variables: &Variables) -> u64 {
        let arguments = self.program.evaluate_arguments(&self.model.inputs, variables);
        let cost = self.response.count(document, root, variables, &arguments);
        whole(cost.saturating_add(self.base))
    }

    /// Counts the cost of a response, and records it beside its estimate.
    pub fn measure(&self, document: &Document, root: NodeId, variables: &Variables) -> u64 {
        let actual = self.count(document, root, variables);
        let values = self.program.evaluate(&self.model.inputs, variables);
        let estimated = whole(values.value(self.total).saturating_add(self.base));
        self.model.settings.stats.record_actual(estimated, actual);
        actual
    }

    /// The approximate memory of the compiled cost in bytes.
    pub fn memory(&self) -> u64 {
        /// The size of a step or a field, with its parts on the heap.
        const PART: u64 = 96;
        PART * (self.program.len() + self.response.len()) as u64
    }
}

/// Returns a cost in whole numbers, rounded up.
fn whole(thousandths: u64) -> u64 {
    match thousandths {
        u64::MAX => u64::MAX,
        thousandths => thousandths.div_ceil(WEIGHT_PARTS as u64),
    }
}
