//! The export of the tables.

use std::fmt;

use telemetry::MetricsWriter;
use telemetry::name_table::{NAME_TABLE_METRICS, TableReading};

use super::FigureTables;
use super::client_figures::CLIENT_FIGURE_METRICS;
use super::field_usage::FIELD_USAGE_METRICS;
use super::names::OTHER;
use super::operation_figures::OPERATION_FIGURE_METRICS;

impl FigureTables {
    /// Writes the metrics of all rows, in the order of their names.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn write_metrics(&self, out: &mut MetricsWriter<'_>) -> fmt::Result {
        let mut fills = Vec::new();
        if let Some(operations) = &self.operations {
            let TableReading { mut rows, other } = operations.read_rows();
            rows.sort_unstable_by(|a, b| a.label.cmp(&b.label));
            let labels = |name, kind| vec![("operation", name), ("kind", kind)];
            let named = rows
                .iter()
                .map(|it| (it.number, labels(&*it.label.name, it.label.kind), &it.counters));
            out.write_rows(OPERATION_FIGURE_METRICS, named, (labels(OTHER, OTHER), &other))?;
            fills.push((vec![("table", "operations")], operations.fill()));
        }
        if let Some(clients) = &self.clients {
            let TableReading { mut rows, other } = clients.read_rows();
            rows.sort_unstable_by(|a, b| a.label.cmp(&b.label));
            let labels = |name, version| vec![("client", name), ("client_version", version)];
            let named = rows
                .iter()
                .map(|it| (it.number, labels(&*it.label.name, &*it.label.version), &it.counters));
            out.write_rows(CLIENT_FIGURE_METRICS, named, (labels(OTHER, OTHER), &other))?;
            fills.push((vec![("table", "clients")], clients.fill()));
        }
        if let Some(fields) = &self.fields {
            out.write(FIELD_USAGE_METRICS, fields)?;
        }
        if fills.is_empty() {
            return Ok(());
        }
        let fills: Vec<_> = fills.iter().map(|(labels, fill)| (labels.clone(), fill)).collect();
        out.write_each(NAME_TABLE_METRICS, &fills)
    }
}
