//! The facts about a request that expressions read, from the parts in which the router keeps them, and the facts that
//! the expressions of one place need.

use clients::client_info::ClientInfo;
use clients::request_source::RequestSource;
use config::diagnostic::Diagnostic;
use config::{ClientInfoHeaders, Expression};
use execute::ClaimPath;
use expressions::{
    ClaimFacts, ClientFacts, Expected, OperationFacts, Program, RequestFacts, Scope,
};
use http::HeaderMap;
use plan::OperationKind;
use prepare::Prepared;

/// Returns the facts about a request. With `client_info`, the application is read from the headers that it names.
pub(crate) fn request_facts<'a>(
    source: RequestSource<'a>,
    headers: &'a HeaderMap,
    claims: ClaimFacts<'a>,
    client_info: Option<&ClientInfoHeaders>,
) -> RequestFacts<'a> {
    let info = client_info.map(|it| ClientInfo::of(it, headers)).unwrap_or_default();
    RequestFacts {
        method: source.method,
        path: source.path,
        headers: Some(headers),
        client_address: source.origin.address,
        is_tls: source.origin.is_tls,
        client: ClientFacts { name: info.name, version: info.version },
        claims,
        ..RequestFacts::default()
    }
}

/// The facts that a set of programs reads, beyond those that cost nothing.
#[derive(Debug, Default)]
pub(crate) struct NeededFacts {
    /// The claims that any program reads.
    pub(crate) claims: Vec<ClaimPath>,
    /// The headers with name and version of the application, if a program reads those.
    pub(crate) client_info: Option<ClientInfoHeaders>,
    needs_operation_id: bool,
    needs_depth: bool,
}

impl NeededFacts {
    /// Returns the facts that these programs read.
    pub(crate) fn of<'p>(
        programs: impl Iterator<Item = &'p Program>,
        client_info: &ClientInfoHeaders,
    ) -> Self {
        let references: Vec<_> = programs.map(Program::references).collect();
        Self {
            claims: references.iter().flat_map(|it| &it.claims).cloned().collect(),
            client_info: references.iter().any(|it| it.client).then(|| client_info.clone()),
            needs_operation_id: references.iter().any(|it| it.operation_id),
            needs_depth: references.iter().any(|it| it.depth),
        }
    }

    /// Returns the facts about an operation that have to be computed.
    pub(crate) fn of_operation<'a>(&self, operation: KnownOperation<'a>) -> ComputedFacts<'a> {
        let prepared = operation.prepared;
        ComputedFacts {
            operation,
            id: match self.needs_operation_id {
                true => format!("{:032x}", prepared.operation_id),
                false => String::new(),
            },
            depth: self.needs_depth.then(|| prepared.depth()),
        }
    }
}

/// An operation that is known, with its estimated cost once there is one.
#[derive(Clone, Copy, Debug)]
pub struct KnownOperation<'a> {
    /// The prepared operation.
    pub prepared: &'a Prepared,
    /// The estimated cost.
    pub cost: Option<u64>,
}

/// The facts about one operation, computed as far as they are needed.
#[derive(Debug)]
pub(crate) struct ComputedFacts<'a> {
    operation: KnownOperation<'a>,
    id: String,
    depth: Option<u32>,
}

impl ComputedFacts<'_> {
    /// Returns the facts for expressions.
    pub(crate) fn facts(&self) -> OperationFacts<'_> {
        let KnownOperation { prepared, cost } = self.operation;
        OperationFacts {
            name: prepared.name.as_deref().unwrap_or_default(),
            kind: match prepared.kind {
                OperationKind::Query => "query",
                OperationKind::Mutation => "mutation",
                OperationKind::Subscription => "subscription",
            },
            id: &self.id,
            depth: self.depth,
            cost,
        }
    }
}

/// Compiles an expression of the configuration.
///
/// # Errors
/// The configuration was not checked, and the expression is not valid.
pub(crate) fn compile(
    setting: &str,
    expression: &Expression,
    scope: Scope,
    expected: Expected,
) -> Result<Program, Box<Diagnostic>> {
    expression.compile(scope, expected).map_err(|error| {
        let message = format!("`{setting}` is not a valid expression: {error}");
        let diagnostic = Diagnostic::error("invalid-value", message);
        Box::new(match error.help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        })
    })
}
