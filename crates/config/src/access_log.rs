//! Settings of the access log and of request ids.

use std::path::{Path, PathBuf};

use expressions::{Expected, Scope};
use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expression::Expression;
use super::findings::{Findings, KeyPlaces};
use super::format::{
    FileText, HeaderNameText, LogConditionText, LogExpressionText, LogFieldText, SizeText,
};
use super::quantity;

/// The access log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLog {
    /// Writes the log.
    #[schemars(example = true)]
    pub enabled: bool,

    /// The file that lines are added to. Without it they go to standard output. A relative path is relative to the
    /// folder of the configuration file. If the file is renamed or removed, the next lines go to a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<FileText>", example = &"access.log")]
    pub file: Option<PathBuf>,

    /// The size after which a new file is begun. The former files are `FILE.1` (the newest), `FILE.2` and so on.
    #[serde(with = "quantity::text")]
    #[schemars(with = "SizeText", example = &"1GiB", extend("x-minimum" = 4096))]
    pub rotate_at: usize,

    /// The number of former files that are kept.
    #[schemars(range(max = 1000), example = 10)]
    pub keep: u32,

    /// The format of a line.
    #[schemars(example = &"text")]
    pub format: AccessLogFormat,

    /// The condition under which a line is written. It may use `request`, `client`, `claims`, `operation` and
    /// `response`. If it cannot be evaluated, for example because a request has no operation, the line is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null), with = "Option<LogConditionText>", example = &"response.errors > 0 || response.milliseconds > 500")]
    pub when: Option<Expression>,

    /// Further fields at the end of each line.
    #[schemars(length(max = 32))]
    pub fields: Vec<AccessLogField>,
}

impl Default for AccessLog {
    fn default() -> Self {
        Self {
            enabled: false,
            file: None,
            rotate_at: 100 << 20,
            keep: 5,
            format: AccessLogFormat::Json,
            when: None,
            fields: Vec::new(),
        }
    }
}

impl AccessLog {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve(&mut self, folder: &Path) {
        if let Some(path) = &mut self.file {
            *path = folder.join(&*path);
        }
    }
}

impl AccessLog {
    /// Iterates over the expressions of a log that is written, each with its scope and the type of its result.
    pub fn expressions(&self) -> impl Iterator<Item = (&Expression, Scope, Expected)> {
        let when = self.when.iter().map(|it| (it, Scope::LOG, Expected::Condition));
        let fields = self.fields.iter().map(|it| (&it.value, Scope::LOG, Expected::Text));
        when.chain(fields).filter(|_| self.enabled)
    }

    /// Checks that the names of fields are different. With several graphs, lines have one more field without
    /// configuration.
    pub(super) fn check_fields(
        &self,
        has_graphs: bool,
        places: &KeyPlaces,
        findings: &mut Findings,
    ) {
        for (index, field) in self.fields.iter().enumerate() {
            let name = field.name.as_str();
            let is_repeated = self.fields[..index].iter().any(|it| it.name == name);
            let is_graph = has_graphs && name == GRAPH_FIELD;
            if is_repeated || is_graph || ACCESS_LOG_FIELDS.contains(&name) {
                let path = format!("access_log.fields[{index}].name");
                findings
                    .error(
                        "conflict",
                        format!("lines of the access log have the field `{name}` already"),
                    )
                    .at_place(places.get(&path), "used already")
                    .help("choose another name");
            }
        }
    }
}

/// A field of the access log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessLogField {
    /// The name: not one of those that lines have anyway.
    #[schemars(with = "LogFieldText", example = &"user")]
    pub name: String,

    /// The value. It may use `request`, `client`, `claims`, `operation` and `response`. The field is left out if the
    /// value is null or empty, or if it cannot be evaluated, for example because a claim is absent.
    #[schemars(with = "LogExpressionText", example = &"claims.sub")]
    pub value: Expression,
}

/// The name of the field that lines have if the process serves several graphs.
const GRAPH_FIELD: &str = "graph";

/// The names of the fields that lines have without configuration.
pub const ACCESS_LOG_FIELDS: [&str; 26] = [
    "time",
    "event",
    "request_id",
    "trace_id",
    "address",
    "method",
    "path",
    "protocol",
    "transport",
    "connection",
    "status",
    "duration_ms",
    "bytes",
    "operation",
    "kind",
    "operation_id",
    "client",
    "client_version",
    "errors",
    "code",
    "cost",
    "operations",
    "events",
    "close_code",
    "close_reason",
    "reason",
];

/// The format of a line of the access log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessLogFormat {
    /// One JSON object per line, for log collectors.
    #[default]
    Json,
    /// `name=value` pairs.
    Text,
}

/// Ids of requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RequestId {
    /// Gives each request an id.
    #[schemars(example = true)]
    pub enabled: bool,

    /// The header with the id, in requests of clients, in responses and in requests to subgraphs.
    #[serde(with = "super::headers::header_name")]
    #[schemars(with = "HeaderNameText", example = &"x-correlation-id")]
    pub header: HeaderName,

    /// Takes the id from the client's request if it has one of at most 128 letters, digits and `-._:/+=@`. Otherwise,
    /// or with `false`, the router makes one.
    #[schemars(example = false)]
    pub accept: bool,
}

impl Default for RequestId {
    fn default() -> Self {
        Self { enabled: false, header: HeaderName::from_static("x-request-id"), accept: true }
    }
}
