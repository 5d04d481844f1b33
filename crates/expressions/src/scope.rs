//! Scopes: the variables that exist at a place of the configuration.

/// The variables that expressions at one place may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    request: bool,
    operation: bool,
    cost: bool,
    response: bool,
    outcome: bool,
}

impl Scope {
    /// `request`, `client` and `claims`.
    pub const REQUEST: Self =
        Self { request: true, operation: false, cost: false, response: false, outcome: false };

    /// The variables of [`Scope::REQUEST`], and `operation` without its cost.
    pub const OPERATION: Self = Self { operation: true, ..Self::REQUEST };

    /// The variables of [`Scope::OPERATION`], and `operation.cost`: places that are evaluated after the estimate.
    pub const COSTED_OPERATION: Self = Self { cost: true, ..Self::OPERATION };

    /// `subgraph` and `response`: the response of one subgraph, which may belong to several requests.
    pub const RESPONSE: Self =
        Self { request: false, operation: false, cost: false, response: true, outcome: false };

    /// The variables of [`Scope::COSTED_OPERATION`], and the outcome in `response`: the log of requests.
    pub const LOG: Self = Self { outcome: true, ..Self::COSTED_OPERATION };

    pub(crate) fn has_request(self) -> bool {
        self.request
    }

    pub(crate) fn has_operation(self) -> bool {
        self.operation
    }

    pub(crate) fn has_cost(self) -> bool {
        self.cost
    }

    pub(crate) fn has_response(self) -> bool {
        self.response
    }

    pub(crate) fn has_outcome(self) -> bool {
        self.outcome
    }
}
