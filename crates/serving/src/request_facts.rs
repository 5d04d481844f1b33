//! The facts about a request that expressions read, from the parts in which the router keeps them.

use clients::client_info::ClientInfo;
use clients::request_source::RequestSource;
use config::diagnostic::Diagnostic;
use config::{ClientInfoHeaders, Expression};
use expressions::{ClaimFacts, ClientFacts, Expected, Program, RequestFacts, Scope};
use http::HeaderMap;

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
