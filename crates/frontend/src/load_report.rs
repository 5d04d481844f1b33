//! The load of this router in a header of responses, for load balancers that send more clients to routers with less
//! load: the load report of ORCA (Open Request Cost Aggregation), as Envoy reads it.
//!
//! The text is made once a second, and copied into responses.

use std::fmt::Write as _;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use config::{LoadReportFormat, LoadReportMode};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::response::Response;

/// The header of responses, as Envoy's `orca_parser.h` names it.
const REPORT: HeaderName = HeaderName::from_static("endpoint-load-metrics");

/// The header by which requests ask for a report. Its value is the name of the format.
const REQUESTED_FORMAT: HeaderName = HeaderName::from_static("endpoint-load-metrics-format");

/// The load of the router, in the fields of `OrcaLoadReport`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LoadFigures {
    /// The part of the processors that the router uses, from 0 to 1.
    pub cpu_utilization: f64,
    /// The part of what the router can do that it does, from 0; more than 1 is overload.
    pub application_utilization: Option<f64>,
    /// Responses per second.
    pub requests_per_second: f64,
    /// Responses per second with a status from 500.
    pub errors_per_second: f64,
}

/// The reports for responses.
#[derive(Debug)]
pub struct LoadReports {
    is_always_sent: bool,
    format: LoadReportFormat,
    /// None until the load was measured for the first time.
    current: ArcSwapOption<Report>,
}

/// One report in all formats.
#[derive(Debug)]
struct Report {
    text: HeaderValue,
    json: HeaderValue,
}

impl LoadReports {
    /// Creates the reports of a configuration; `None` if none are sent.
    pub fn new(settings: &config::LoadReport) -> Option<Arc<Self>> {
        let is_always_sent = match settings.send {
            LoadReportMode::Never => return None,
            LoadReportMode::OnRequest => false,
            LoadReportMode::Always => true,
        };
        let format = settings.format;
        Some(Arc::new(Self { is_always_sent, format, current: ArcSwapOption::empty() }))
    }

    /// Reports this load from now on.
    pub fn set(&self, figures: &LoadFigures) {
        self.current.store(Some(Arc::new(Report::new(figures))));
    }

    /// Returns the format of the report for a request with these headers; `None` if it gets none.
    pub(crate) fn format_for(&self, headers: &HeaderMap) -> Option<LoadReportFormat> {
        match headers.get(&REQUESTED_FORMAT).map(HeaderValue::as_bytes) {
            Some(name) if name.eq_ignore_ascii_case(b"text") => Some(LoadReportFormat::Text),
            Some(name) if name.eq_ignore_ascii_case(b"json") => Some(LoadReportFormat::Json),
            _ => self.is_always_sent.then_some(self.format),
        }
    }

    /// Adds the report to a response.
    // hot path: one look-up in the headers of the request and a copy of a shared value
    pub(crate) fn add(&self, format: LoadReportFormat, response: &mut Response) {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return;
        }
        if let Some(report) = &*self.current.load() {
            let value = match format {
                LoadReportFormat::Text => &report.text,
                LoadReportFormat::Json => &report.json,
            };
            response.headers_mut().insert(REPORT, value.clone());
        }
    }
}

impl Report {
    fn new(figures: &LoadFigures) -> Self {
        let fields = [
            ("cpu_utilization", Some(figures.cpu_utilization)),
            ("application_utilization", figures.application_utilization),
            ("rps_fractional", Some(figures.requests_per_second)),
            ("eps", Some(figures.errors_per_second)),
        ];
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let (mut text, mut json) = (String::from("TEXT "), String::from("JSON {"));
        for (index, (name, value)) in fields.enumerate() {
            let comma = if index == 0 { "" } else { "," };
            // Writing to a string does not fail.
            let _ = write!(text, "{comma}{name}={value:.3}");
            let _ = write!(json, "{comma}\"{name}\":{value:.3}");
        }
        json.push('}');
        let value = |text| HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("TEXT"));
        Self { text: value(text), json: value(json) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::response;
    use super::*;

    fn reports(send: LoadReportMode) -> Option<Arc<LoadReports>> {
        LoadReports::new(&config::LoadReport { send, format: LoadReportFormat::Text })
    }

    /// Returns the report that a request gets, with this value of the header that asks for one.
    fn report(
        reports: &LoadReports,
        requested: Option<&'static str>,
        status: StatusCode,
    ) -> String {
        let value = requested.map(|it| (REQUESTED_FORMAT, HeaderValue::from_static(it)));
        let headers = HeaderMap::from_iter(value);
        let mut response = response::empty(status);
        if let Some(format) = reports.format_for(&headers) {
            reports.add(format, &mut response);
        }
        let report = response.headers().get(REPORT).map(|it| it.to_str().expect("text"));
        report.unwrap_or_default().to_owned()
    }

    #[test]
    fn reports_have_the_format_that_the_request_names_or_that_of_the_configuration() {
        let figures = LoadFigures {
            cpu_utilization: 0.25,
            application_utilization: Some(0.5),
            requests_per_second: 1234.5,
            errors_per_second: 0.0,
        };
        let text = "TEXT cpu_utilization=0.250,application_utilization=0.500,rps_fractional=1234.500,eps=0.000";
        let json = r#"JSON {"cpu_utilization":0.250,"application_utilization":0.500,"rps_fractional":1234.500,"eps":0.000}"#;
        let always = reports(LoadReportMode::Always).expect("reports");
        assert_eq!(report(&always, None, StatusCode::OK), "", "the load is not known yet");
        always.set(&figures);
        assert_eq!(report(&always, None, StatusCode::OK), text);
        assert_eq!(report(&always, Some("JSON"), StatusCode::SERVICE_UNAVAILABLE), json);
        assert_eq!(report(&always, Some("xml"), StatusCode::OK), text);
        assert_eq!(report(&always, None, StatusCode::SWITCHING_PROTOCOLS), "");
        let requested = reports(LoadReportMode::OnRequest).expect("reports");
        requested.set(&LoadFigures { application_utilization: None, ..figures });
        assert_eq!(report(&requested, None, StatusCode::OK), "");
        assert_eq!(report(&requested, Some("xml"), StatusCode::OK), "");
        let without = "TEXT cpu_utilization=0.250,rps_fractional=1234.500,eps=0.000";
        assert_eq!(report(&requested, Some("text"), StatusCode::OK), without);
        assert!(reports(LoadReportMode::Never).is_none());
    }
}
