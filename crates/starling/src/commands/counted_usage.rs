//! The use of fields that routers have counted, for `starling diff --usage`: reading it from files and from the admin
//! listeners of routers, and adding it up.

use std::collections::BTreeMap;
use std::time::Duration;

use compose::{ClientUse, CountedUsage};
use config::diagnostic::Diagnostic;
use server::FieldUsageReport;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::graph_file;
use super::usage_periods::UsagePeriods;

/// The maximum size of a report over HTTP. A million counters are about 150 MB.
const REPORT_BYTES_MAX: usize = 512 << 20;

/// The time limit of reading one over HTTP.
const READ_TIME_MAX: Duration = Duration::from_secs(60);

/// The use of all routers.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub(super) counted: CountedUsage,
    /// The number of all counted requests.
    pub(super) requests: u64,
    /// The number of uses that found no room in a router.
    pub(super) lost: u64,
    /// The times in which routers have counted.
    pub(super) periods: UsagePeriods,
}

impl Usage {
    /// Reads reports from files or URLs.
    ///
    /// # Errors
    /// One of them cannot be read; the error is a text for people.
    pub(super) fn read(places: &[String]) -> Result<Self, String> {
        let mut usage = Self::default();
        for place in places {
            let report = read_report(place).map_err(|reason| {
                let message = format!("cannot read the usage from {place}: {reason}");
                graph_file::render(&[Diagnostic::error("usage", message).help(
                    "a router with `metrics.fields` has it on its admin listener: `/admin/usage`",
                )])
            })?;
            usage.add(report);
        }
        Ok(usage)
    }

    fn add(&mut self, report: FieldUsageReport) {
        self.requests += report.requests;
        self.lost += report.lost;
        self.periods.add(report.since, report.until);
        for row in report.uses {
            let client = match &*row.client_version {
                "" => row.client.into(),
                // The name of all that have no counters of their own.
                version if *row.client == *version => row.client.into(),
                version => format!("{} {version}", row.client),
            };
            let clients: &mut BTreeMap<_, _> =
                self.counted.coordinates.entry(row.coordinate.into()).or_default();
            let (first, last) = (row.first_used, row.last_used);
            let all = clients.entry(client).or_insert(ClientUse { requests: 0, first, last });
            all.requests += row.requests;
            (all.first, all.last) = (all.first.min(first), all.last.max(last));
        }
    }
}

/// Returns a time in seconds since 1970 as text.
pub(super) fn time_text(seconds: u64) -> String {
    let time =
        i64::try_from(seconds).ok().and_then(|it| OffsetDateTime::from_unix_timestamp(it).ok());
    time.and_then(|it| it.format(&Rfc3339).ok()).unwrap_or_else(|| seconds.to_string())
}

fn read_report(place: &str) -> Result<FieldUsageReport, String> {
    let is_url = place.starts_with("http://") || place.starts_with("https://");
    let text = match is_url {
        true => fetch(place)?,
        false => std::fs::read(place).map_err(|error| error.to_string())?,
    };
    serde_json::from_slice(&text).map_err(|error| format!("it is no usage of a router: {error}"))
}

fn fetch(url: &str) -> Result<Vec<u8>, String> {
    let tls = upstream::resource_tls(url, None)?;
    let accept = "application/json";
    let resource = upstream::Resource::new(url, tls, accept, REPORT_BYTES_MAX, READ_TIME_MAX);
    let resource = resource.map_err(|error| error.to_string())?;
    let runtime = super::control_runtime().map_err(|error| format!("no threads: {error}"))?;
    let body = runtime.block_on(resource.get()).map_err(|error| error.to_string())?;
    Ok(body.to_vec())
}

#[cfg(test)]
mod tests {
    use server::UsageRow;

    use super::*;

    #[test]
    fn the_counts_of_several_routers_are_added() {
        let report = |client: &str, version: &str, requests, since| FieldUsageReport {
            since,
            until: since + 3 * 86_400,
            requests,
            lost: 1,
            uses: vec![UsageRow {
                coordinate: "Query.top".into(),
                client: client.into(),
                client_version: version.into(),
                requests,
                first_used: since,
                last_used: since + 9,
            }],
        };
        let mut usage = Usage::default();
        for (client, version, requests, since) in [
            ("web", "1", 3, 1_000),
            ("web", "1", 4, 90_000),
            ("app", "", 1, 0),
            ("other", "other", 2, 0),
        ] {
            usage.add(report(client, version, requests, since));
        }
        assert_eq!((usage.requests, usage.lost, usage.periods.covered_days(30)), (10, 4, 4));
        let clients = &usage.counted.coordinates["Query.top"];
        let names: Vec<_> = clients.keys().map(String::as_str).collect();
        assert_eq!(names, ["app", "other", "web 1"]);
        assert_eq!(clients["web 1"], ClientUse { requests: 7, first: 1_000, last: 90_009 });
        assert_eq!(time_text(1_000), "1970-01-01T00:16:40Z");
    }

    #[test]
    fn other_json_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "{\"data\": 1}").expect("a text");
        let message = Usage::read(&[file.path().display().to_string()]).expect_err("no usage");
        assert!(message.contains("it is no usage of a router: missing field `since`"), "{message}");
    }
}
