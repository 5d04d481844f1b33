//! The use of fields as JSON.

use serde::{Deserialize, Serialize};

/// The use of fields and arguments since the start of a router. Times are seconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldUsageReport {
    /// The start of the router.
    pub since: u64,
    /// The time of the report.
    pub until: u64,
    /// The number of counted requests.
    pub requests: u64,
    /// The number of uses that found no room. If there are any, a field that is not listed may be in use.
    pub lost: u64,
    /// The uses, sorted by coordinate and application.
    pub uses: Vec<UsageRow>,
}

/// The uses of one coordinate since the start of a router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoordinateUses {
    /// The number of requests.
    pub requests: u64,
    /// The time of the last request in seconds since 1970; `None` if there was none.
    pub last_used: Option<u64>,
    /// The number of applications.
    pub client_count: usize,
    /// The uses by application, those with most requests first; only so many as were asked for.
    pub clients: Vec<UsageRow>,
}

/// The uses of one coordinate by one application.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    /// The schema coordinate: `Type.field`, `Type.field(argument:)`, or `Type` for the condition of a fragment.
    pub coordinate: Box<str>,
    /// The name of the application.
    pub client: Box<str>,
    /// Its version; empty if it states none.
    pub client_version: Box<str>,
    /// The number of requests.
    pub requests: u64,
    /// The time of the first request.
    pub first_used: u64,
    /// The time of the last request.
    pub last_used: u64,
}
