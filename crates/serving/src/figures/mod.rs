//! The metrics of single operations and clients: requests, errors, durations and costs.
//!
//! [`operation_figures`] and [`client_figures`] hold the counters of one row and the tables of their metrics, `names`
//! its labels; [`telemetry::name_table`] bounds the number of rows and decides which names get one. This module joins
//! both with requests: the names when an operation is prepared (`FigureTables::begin`), the counts when it has ended.
//!
//! Names that clients choose are cut, and become labels as they are: the export escapes them.

pub mod client_figures;
mod client_uses;
mod error_counts;
mod export;
pub mod field_usage;
mod names;
pub mod operation_figures;
pub mod readings;
pub mod response_origins;
pub mod work_counters;

use std::time::{Duration, Instant};

use clients::client_info::ClientInfo;
use config::{ClientInfoHeaders, Config};
use execute::{ErrorCode, GraphqlError, Payload};
use http::HeaderMap;
use prepare::Prepared;
use telemetry::ExemplarSpan;
use telemetry::name_table::{NameKey, NameTable};

use self::client_figures::{ClientFigures, ClientLabel};
use self::field_usage::{CoordinateUses, FieldUsage, FieldUsageReport};
pub use self::names::OTHER;
use self::names::{NAME_BYTES_MAX, kind_of, shorten};
use self::operation_figures::{OperationFigures, OperationLabel};
use self::response_origins::ResponseOrigin;
use self::work_counters::EndedRequest;

/// The maximum length of the version of a client.
const VERSION_BYTES_MAX: usize = 32;

/// The name of a client that states none.
const UNNAMED_CLIENT: &str = "unnamed";

/// The tables of the process.
#[derive(Debug)]
pub struct FigureTables {
    /// The operations; `None` if they are not counted.
    pub operations: Option<NameTable<OperationLabel, OperationFigures>>,
    /// The clients; `None` if they are not counted.
    pub clients: Option<NameTable<ClientLabel, ClientFigures>>,
    /// The use of fields by client; `None` if it is not counted.
    pub fields: Option<FieldUsage>,
    client_info: ClientInfoHeaders,
}

/// The identity of a request in the tables, from its beginning to its end.
#[derive(Clone, Copy, Debug)]
pub struct RequestFigures {
    began: Instant,
    /// The time that workers have spent on it so far.
    busy: Duration,
    /// `None` until the operation is known.
    operation: Option<NameKey>,
    client: NameKey,
    /// True if the operation was prepared before.
    was_prepared: bool,
}

impl FigureTables {
    /// Creates the tables of a configuration; `None` if none is wanted.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let now = Instant::now();
        let config::Metrics { operations, clients, fields, .. } = &config.metrics;
        if operations.max == 0 && clients.max == 0 && fields.max == 0 {
            return None;
        }
        Some(Self {
            operations: (operations.max > 0).then(|| NameTable::new(operations.max as usize, now)),
            clients: (clients.max > 0).then(|| NameTable::new(clients.max as usize, now)),
            fields: (fields.max > 0).then(|| FieldUsage::new(fields.max as usize, now)),
            client_info: config.client_info.clone(),
        })
    }

    /// Begins to count a request with these headers.
    // hot path: about 100 ns for a client without a name
    pub(crate) fn begin(&self, headers: &HeaderMap, now: Instant) -> RequestFigures {
        let client = self.clients.as_ref().map_or(NameKey::OTHER, |clients| {
            let ClientInfo { name, version } = ClientInfo::of(&self.client_info, headers);
            let name = if name.is_empty() { UNNAMED_CLIENT } else { shorten(name, NAME_BYTES_MAX) };
            let version = shorten(version, VERSION_BYTES_MAX);
            match (name, version) {
                // The labels of the row that other clients share.
                (OTHER, OTHER) => NameKey::OTHER,
                name => clients.admit(name, now, || ClientLabel::new(name)),
            }
        });
        let (busy, was_prepared) = (Duration::ZERO, false);
        RequestFigures { began: now, busy, operation: None, client, was_prepared }
    }

    /// Notes the operation of a request, and counts the fields that it uses.
    // hot path: less than 200 ns
    pub(crate) fn note_operation(&self, request: &mut RequestFigures, prepared: &Prepared) {
        if let Some((fields, field_use)) = self.fields.as_ref().zip(prepared.field_use.as_ref()) {
            fields.count(field_use, request.client, self.clients.as_ref(), request.began);
        }
        let Some(operations) = &self.operations else { return };
        let kind = kind_of(prepared);
        let key = match &prepared.name {
            Some(name) => {
                let name = shorten(name, NAME_BYTES_MAX);
                operations.admit((kind, name), request.began, || OperationLabel::named(name, kind))
            }
            None => {
                let id = prepared.operation_id;
                // Equal labels have equal names, and the label has the first half only.
                operations.admit((kind, (id >> 64) as u64), request.began, || {
                    OperationLabel::anonymous(id, kind)
                })
            }
        };
        request.operation = Some(key);
    }

    /// Counts an operation that has ended at `ended`. `busy` is the time that workers have spent on executing it,
    /// `origin` the origin of its response if it has one, and `span` its span if its trace is exported.
    // hot path: about 200 ns
    pub(crate) fn count_result(
        &self,
        request: RequestFigures,
        (ended, busy): (Instant, Duration),
        (origin, span): (Option<ResponseOrigin>, Option<ExemplarSpan>),
        result: &Result<Payload, Vec<GraphqlError>>,
    ) {
        let (payload, error) = match result {
            Ok(payload) => (Some(payload), payload.first_error),
            Err(errors) => (None, errors.first().map(|it| it.code)),
        };
        let request = RequestFigures { busy: request.busy + busy, ..request };
        self.count(request, ended, span, (payload, origin), error);
    }

    /// Counts an operation that was refused with these errors, or could not be prepared.
    pub(crate) fn count_refusal(&self, request: RequestFigures, errors: &[GraphqlError]) {
        let error = errors.first().map(|it| it.code);
        self.count(request, Instant::now(), None, (None, None), error);
    }

    /// Counts an operation without a response of its own: a subscription that was opened, or a prepared operation that
    /// was refused with this code.
    pub(crate) fn count_without_response(&self, request: RequestFigures, error: Option<ErrorCode>) {
        let origin = error.is_none().then_some(ResponseOrigin::Executed);
        self.count(request, Instant::now(), None, (None, origin), error);
    }

    fn count(
        &self,
        request: RequestFigures,
        ended: Instant,
        span: Option<ExemplarSpan>,
        (payload, origin): (Option<&Payload>, Option<ResponseOrigin>),
        error: Option<ErrorCode>,
    ) {
        let took = ended.saturating_duration_since(request.began);
        let ended = EndedRequest { took, span, busy: request.busy, payload, error };
        if let Some((operations, key)) = self.operations.as_ref().zip(request.operation) {
            operations.count(key, |it| {
                it.count(&ended, request.client, origin.map(|it| (it, request.was_prepared)));
            });
        }
        if let Some(clients) = &self.clients {
            clients.count(request.client, |it| it.count(&ended));
        }
    }
}

impl FigureTables {
    /// Returns the use of fields and arguments since the start; `None` if it is not counted.
    pub fn field_usage(&self) -> Option<FieldUsageReport> {
        Some(self.fields.as_ref()?.report(self.clients.as_ref()))
    }

    /// Returns the uses of each of these coordinates (`Type.field`) since the start, with at most `clients_max`
    /// applications; `None` if they are not counted.
    pub fn field_uses(
        &self,
        coordinates: &[String],
        clients_max: usize,
    ) -> Option<Vec<CoordinateUses>> {
        Some(self.fields.as_ref()?.uses_of(coordinates, clients_max, self.clients.as_ref()))
    }
}

impl RequestFigures {
    /// Notes whether the operation of a request was prepared before.
    pub(crate) fn set_was_prepared(&mut self, was_prepared: bool) {
        self.was_prepared = was_prepared;
    }

    /// Sets the beginning of a request and the time that workers have spent on preparing it.
    pub(crate) fn set_preparing(&mut self, began: Instant, busy: Duration) {
        (self.began, self.busy) = (began, busy);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{HeaderName, HeaderValue};
    use prepare::FieldUse;
    use telemetry::name_table::NamedCounters as _;
    use telemetry::{MetricsExporter, TextFormat};

    use super::*;

    fn tables(operations: u32, clients: u32) -> FigureTables {
        let mut config = Config::default();
        (config.metrics.operations.max, config.metrics.clients.max) = (operations, clients);
        config.metrics.fields.max = 0;
        FigureTables::new(&config).expect("they are wanted")
    }

    fn headers(name: &str, version: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let pairs = [("graphql-client-name", name), ("graphql-client-version", version)];
        for (header, value) in pairs.into_iter().filter(|it| !it.1.is_empty()) {
            let value = HeaderValue::from_str(value).expect("a value");
            headers.insert(HeaderName::from_static(header), value);
        }
        headers
    }

    fn payload(errors: &[ErrorCode], subgraph_requests: u32, cost: Option<u64>) -> Payload {
        let errors: Vec<_> = errors.iter().map(|code| GraphqlError::new(*code, "why")).collect();
        Payload { subgraph_requests, cost, ..execute::request_error(&errors) }
    }

    fn text(tables: &Arc<FigureTables>, format: TextFormat) -> String {
        let tables = Arc::clone(tables);
        MetricsExporter::new(move |out| tables.write_metrics(out)).text(format).expect("a text")
    }

    /// Counts an operation with this name as the path of a request does.
    fn count(tables: &FigureTables, client: &HeaderMap, name: &str, payload: Payload) {
        let mut request = tables.begin(client, Instant::now());
        let operations = tables.operations.as_ref().expect("they are counted");
        let label = || OperationLabel::named(name, "query");
        request.operation = Some(operations.admit(("query", name), request.began, label));
        // The second request of a test, as if the first one had prepared the operation.
        request.set_was_prepared(payload.subgraph_requests == 2);
        let measured = (Instant::now(), Duration::from_micros(1_500));
        tables.count_result(request, measured, (Some(ResponseOrigin::Missed), None), &Ok(payload));
    }

    #[test]
    fn every_figure_of_an_operation_and_its_client_is_counted() {
        let tables = Arc::new(tables(5, 5));
        let web = headers("web", "1.2");
        count(&tables, &web, "Top", payload(&[], 3, Some(7)));
        count(
            &tables,
            &web,
            "Top",
            payload(&[ErrorCode::Timeout, ErrorCode::Forbidden], 2, Some(1)),
        );
        let text = text(&tables, TextFormat::Prometheus);
        let bytes = 2 * r#"{"errors":[]}"#.len() as u64;
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|it| it.rsplit_once(' ')).map(|it| it.1);
            value
                .unwrap_or_else(|| panic!("{name} is not in\n{text}"))
                .parse::<f64>()
                .expect("a number")
        };
        let top = r#"{operation="Top",kind="query"}"#;
        for (name, expected) in [
            ("requests_total", 2.0),
            ("cpu_seconds_total", 0.003),
            ("subgraph_requests_total", 5.0),
            ("cost_total", 8.0),
            ("duration_seconds_count", 2.0),
        ] {
            let actual = value(&format!("starling_named_operation_{name}{top}"));
            assert!((actual - expected).abs() < 1e-9, "{name}: {actual}");
        }
        assert!(
            value(&format!("starling_named_operation_response_bytes_total{top}")) > bytes as f64
        );
        for (metric, result) in
            [("plan_lookups", "hit"), ("plan_lookups", "miss"), ("response_lookups", "miss")]
        {
            let labels = format!(r#"{{operation="Top",kind="query",result="{result}"}}"#);
            let expected = if metric == "plan_lookups" { 1 } else { 2 };
            let actual = value(&format!("starling_named_operation_{metric}_total{labels}"));
            assert_eq!(actual as u64, expected, "{metric} {result}");
        }
        assert!(!text.contains("starling_named_operation_shared_total{"), "nothing was shared");
        let timeout =
            r#"starling_named_operation_errors_total{operation="Top",kind="query",code="TIMEOUT"}"#;
        assert_eq!(value(timeout) as u64, 1);
        assert!(!text.contains("FORBIDDEN"), "the first error decides");
        let client = r#"{client="web",client_version="1.2"}"#;
        assert_eq!(value(&format!("starling_client_requests_total{client}")) as u64, 2);
        for (name, expected) in [
            ("cpu_seconds_total", 0.003),
            ("subgraph_requests_total", 5.0),
            ("cost_total", 8.0),
            ("duration_seconds_count", 2.0),
        ] {
            let actual = value(&format!("starling_client_{name}{client}"));
            assert!((actual - expected).abs() < 1e-9, "{name}: {actual}");
        }
        assert!(value(&format!("starling_client_response_bytes_total{client}")) > bytes as f64);
        let failed =
            r#"starling_client_errors_total{client="web",client_version="1.2",code="TIMEOUT"}"#;
        assert_eq!(value(failed) as u64, 1);
    }

    #[test]
    fn a_client_without_a_name_and_one_with_the_labels_of_all_others_have_no_rows_twice() {
        let tables = Arc::new(tables(5, 5));
        for (name, version) in [("", ""), ("unnamed", ""), ("other", "other"), ("other", "1")] {
            count(&tables, &headers(name, version), "Top", payload(&[], 0, None));
        }
        let text = text(&tables, TextFormat::Prometheus);
        let mut lines: Vec<_> =
            text.lines().filter(|it| it.starts_with("starling_client_requests_total")).collect();
        lines.sort_unstable();
        let expected = [
            r#"starling_client_requests_total{client="other",client_version="1"} 1"#,
            r#"starling_client_requests_total{client="other",client_version="other"} 1"#,
            r#"starling_client_requests_total{client="unnamed",client_version=""} 2"#,
        ];
        assert_eq!(lines, expected);
        assert!(!text.contains("starling_named_operation_cost_total{"), "no cost was measured");
    }

    #[test]
    fn a_refused_operation_counts_for_its_client_also_if_it_is_not_known() {
        let tables = Arc::new(tables(5, 5));
        let request = tables.begin(&headers("web", ""), Instant::now());
        let errors = [GraphqlError::new(ErrorCode::GraphqlValidationFailed, "why")];
        tables.count_refusal(request, &errors);
        let text = text(&tables, TextFormat::Prometheus);
        let code = r#"{client="web",client_version="",code="GRAPHQL_VALIDATION_FAILED"} 1"#;
        assert!(text.contains(code), "{text}");
        assert!(text.contains(r#"requests_total{operation="other",kind="other"} 0"#), "{text}");
    }

    #[test]
    fn names_are_escaped_and_cut() {
        let tables = Arc::new(tables(5, 5));
        let long = format!("{}\"\\{}", "a".repeat(60), "b".repeat(100));
        count(&tables, &headers(&long, &"9".repeat(100)), "Top", payload(&[], 0, None));
        let text = text(&tables, TextFormat::Prometheus);
        let name =
            format!(r#"client="{}\"\\bb",client_version="{}""#, "a".repeat(60), "9".repeat(32));
        assert!(text.contains(&name), "{text}");
    }

    /// Fills all tables with 100,000 names that are as long as possible and have characters that are escaped, and as
    /// many fields. Every request fails, with each code in turn.
    fn tables_after_made_up_names() -> Arc<FigureTables> {
        let tables = Arc::new(FigureTables::new(&Config::default()).expect("they are wanted"));
        let fields = tables.fields.as_ref().expect("they are counted");
        for number in 0..1_000_u32 {
            let names: Vec<_> =
                (0..100).map(|field| format!("Type{number}.field{field}")).collect();
            let field_use = Arc::new(FieldUse::from_iter(names.iter().map(String::as_str)));
            fields.count(&field_use, NameKey::OTHER, tables.clients.as_ref(), Instant::now());
        }
        for number in 0..100_000_u32 {
            let client = headers(&format!("{number:08}{}", "\"".repeat(80)), &"\\".repeat(40));
            let name = format!("{}{number:08}", "O".repeat(NAME_BYTES_MAX - 8));
            let code = ErrorCode::ALL[number as usize % ErrorCode::ALL.len()];
            count(&tables, &client, &name, payload(&[code], 3, Some(9)));
        }
        tables
    }

    /// The maximum time of making the text with all places taken. A build without optimisation is several times slower.
    const TEXT_TIME_MAX: Duration =
        Duration::from_millis(if cfg!(debug_assertions) { 500 } else { 100 });

    const FORMATS: [TextFormat; 2] = [TextFormat::Prometheus, TextFormat::OpenMetrics];

    #[test]
    fn a_hundred_thousand_names_leave_the_metrics_small() {
        let tables = tables_after_made_up_names();
        for format in FORMATS {
            let text = text(&tables, format);
            assert!(text.len() < 2_500_000, "{format:?}: {}", text.len());
            let requests = "starling_named_operation_requests_total{";
            assert_eq!(text.lines().filter(|it| it.starts_with(requests)).count(), 501);
            let requests = "starling_client_requests_total{";
            assert_eq!(text.lines().filter(|it| it.starts_with(requests)).count(), 201);
        }
        let fields = tables.field_usage().expect("they are counted");
        assert_eq!(fields.uses.len(), 100_000);
        let counters = "starling_field_usage_counters 100000";
        assert!(text(&tables, TextFormat::Prometheus).lines().any(|it| it == counters));
        // The shortest time is that without other work of the machine.
        let time = |format| {
            let began = Instant::now();
            text(&tables, format);
            began.elapsed()
        };
        for format in FORMATS {
            let took = (0..5).map(|_| time(format)).min().expect("five times");
            assert!(took < TEXT_TIME_MAX, "{format:?}: {took:?}");
        }
        let total: u64 = {
            let operations = tables.operations.as_ref().expect("they are counted").read_rows();
            operations.rows.iter().map(|it| it.counters.uses()).sum::<u64>()
                + operations.other.uses()
        };
        assert_eq!(total, 100_000);
    }

    /// No client can make the text larger than this: all codes of errors and all origins of responses in each row.
    #[test]
    fn the_largest_text_is_that_of_all_errors_in_all_rows() {
        let tables = tables_after_made_up_names();
        for operation in tables.operations.as_ref().expect("they are counted").read_rows().rows {
            for code in ErrorCode::ALL {
                let (took, payload) = (Duration::from_millis(1), payload(&[code], 1, Some(1)));
                let (payload, error) = (Some(&payload), Some(code));
                let ended = EndedRequest { took, span: None, busy: took, payload, error };
                for origin in ResponseOrigin::ALL {
                    for was_prepared in [true, false] {
                        let origin = Some((origin, was_prepared));
                        operation.counters.count(&ended, NameKey::OTHER, origin);
                    }
                }
            }
        }
        for client in tables.clients.as_ref().expect("they are counted").read_rows().rows {
            for code in ErrorCode::ALL {
                let (took, payload) = (Duration::from_millis(1), payload(&[code], 1, Some(1)));
                let (payload, error) = (Some(&payload), Some(code));
                client.counters.count(&EndedRequest {
                    took,
                    span: None,
                    busy: took,
                    payload,
                    error,
                });
            }
        }
        for format in FORMATS {
            let text = text(&tables, format);
            assert!(text.len() < 5_000_000, "{format:?}: {}", text.len());
        }
    }
}
