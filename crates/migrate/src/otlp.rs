//! Exporters to collectors (OTLP): the same settings under other names in each router.

use super::conversion::Conversion;
use super::form::Form;
use super::setting::Setting;
use super::target::Value;
use super::variables::has_reference;

/// The kind of data that is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    /// Returns the section of Starling.
    pub(crate) fn section(self) -> &'static str {
        match self {
            Self::Traces => "tracing.otlp",
            Self::Metrics => "metrics.otlp",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
        }
    }
}

/// Returns the URL of a collector: with its path by HTTP, and without one by gRPC.
pub(crate) fn endpoint(text: &str, signal: Signal, is_grpc: bool, path: Option<&str>) -> String {
    let with_scheme = match text.contains("://") || text.starts_with("${") {
        true => text.to_owned(),
        false => format!("http://{text}"),
    };
    let (scheme, rest) = with_scheme.split_once("://").unwrap_or(("", &with_scheme));
    let (host, own_path) = match rest.split_once('/') {
        // A reference may contain a default with a slash.
        Some((host, _)) if host.contains("${") && !host.contains('}') => (rest, ""),
        Some((host, own)) => (host, own),
        None => (rest, ""),
    };
    let host = match scheme {
        "" => host.to_owned(),
        scheme => format!("{scheme}://{host}"),
    };
    if is_grpc {
        return host;
    }
    if has_reference(&host) && scheme.is_empty() {
        // The variable may have a path.
        return with_scheme;
    }
    match own_path.trim_matches('/') {
        "" => format!("{host}{}", path.unwrap_or(signal.path())),
        own => format!("{host}/{own}"),
    }
}

/// Returns the headers of an exporter, from a mapping of names to a value or to a list of them.
pub(crate) fn headers(conversion: &mut Conversion<'_>, setting: &Setting<'_>) -> Option<Value> {
    let mut headers = Vec::new();
    for (name, value) in setting.members() {
        for value in value.items() {
            if let Some(value) = conversion.optional(Some(value), Form::Text) {
                let name = Value::text(name.to_lowercase());
                headers.push(Value::map([("name", Some(name)), ("value", Some(value))]));
            }
        }
    }
    (!headers.is_empty()).then_some(Value::List(headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_a_path_by_http_and_none_by_grpc() {
        let cases = [
            ("http://collector:4318", false, "http://collector:4318/v1/traces"),
            ("http://collector:4318/", false, "http://collector:4318/v1/traces"),
            ("https://collector/custom/traces", false, "https://collector/custom/traces"),
            ("http://collector:4317/v1/traces", true, "http://collector:4317"),
            ("collector:4317", true, "http://collector:4317"),
            ("${ENDPOINT}", false, "${ENDPOINT}"),
            ("http://${HOST}:4318", false, "http://${HOST}:4318/v1/traces"),
        ];
        for (text, is_grpc, expected) in cases {
            assert_eq!(endpoint(text, Signal::Traces, is_grpc, None), expected, "{text}");
        }
        let with_path = endpoint("https://a", Signal::Metrics, false, Some("/otlp/metrics"));
        assert_eq!(with_path, "https://a/otlp/metrics");
    }
}
