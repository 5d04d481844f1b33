//! The results of the load generators: as JSON, as a table, as a page.
//!
//! [`Run`] is the JSON form of `bench query`, [`SubscriptionRun`] that of `bench subscriptions`, [`SurgeRun`] that of
//! `bench surge`. Members are only added, never changed, so that a report can be compared with an older one.

mod page;
mod picture;
mod plot;
mod points;
mod query_run;
mod subscription_remarks;
pub mod subscription_report;
pub mod subscriptions;
mod summary;
pub mod surge_comparison;
pub mod surge_report;
mod surge_run;
mod table;

use subscriptions::SubscriptionRun;

pub use page::html;
pub use query_run::{QueryGeneratorUsage, QueryInterval, QueryServerUsage, Run};
pub use summary::{FailureCount, LatencySummary};
pub use surge_run::{
    SurgeClass, SurgeCounts, SurgeGeneratorUsage, SurgeInterval, SurgeLatency, SurgeRun,
    SurgeServerUsage, SurgeSubscribers, SurgeSubscribersInterval,
};
pub use table::text;

/// Runs of one kind; runs of different kinds cannot be compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Runs {
    /// Runs of `bench query`.
    Query(Vec<Run>),
    /// Runs of `bench subscriptions`.
    Subscriptions(Vec<SubscriptionRun>),
    /// Runs of `bench surge`.
    Surge(Vec<SurgeRun>),
}

impl Runs {
    /// Parses a report of any kind, or a list of several.
    ///
    /// # Errors
    /// The error of the JSON parser.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        let value: serde_json::Value = serde_json::from_str(text)?;
        let list = match value {
            serde_json::Value::Array(list) => list,
            one => vec![one],
        };
        let list_value = serde_json::Value::from(list);
        // Only runs of `bench subscriptions` have a scenario, and only those of `bench surge` a shape.
        let has = |key: &str| list_value.get(0).is_some_and(|run| run.get(key).is_some());
        if has("scenario") {
            serde_json::from_value(list_value).map(Self::Subscriptions)
        } else if has("shape") {
            serde_json::from_value(list_value).map(Self::Surge)
        } else {
            serde_json::from_value(list_value).map(Self::Query)
        }
    }

    /// Formats the runs as a table in plain text.
    pub fn text(&self) -> String {
        match self {
            Self::Query(runs) => text(runs),
            Self::Subscriptions(runs) => subscription_report::text(runs),
            Self::Surge(runs) => surge_report::text(runs),
        }
    }

    /// Formats the runs as an HTML page.
    pub fn html(&self, title: &str) -> String {
        match self {
            Self::Query(runs) => html(title, runs),
            Self::Subscriptions(runs) => subscription_report::html(title, runs),
            Self::Surge(runs) => surge_report::html(title, runs),
        }
    }

    /// Appends runs of the same kind.
    ///
    /// # Errors
    /// The runs are of different kinds.
    pub fn append(&mut self, other: Self) -> Result<(), &'static str> {
        match (self, other) {
            (Self::Query(runs), Self::Query(more)) => runs.extend(more),
            (Self::Subscriptions(runs), Self::Subscriptions(more)) => runs.extend(more),
            (Self::Surge(runs), Self::Surge(more)) => runs.extend(more),
            _ => return Err("runs of different commands of `bench` cannot be compared"),
        }
        Ok(())
    }
}
