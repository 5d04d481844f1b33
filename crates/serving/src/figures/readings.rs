//! The figures of all rows for readers in the process. The export has them as metrics.

use prepare::Prepared;
use telemetry::name_table::{NameKey, NamedCounters as _};

use super::FigureTables;
use super::client_figures::{ClientFigures, ClientLabel};
use super::names::{OTHER, kind_of, name_of};
use super::operation_figures::{OperationFigures, OperationLabel};
use super::response_origins::HitCounts;
use super::work_counters::WorkReading;

/// The figures of one operation since it got its row.
#[derive(Clone, Debug)]
pub struct OperationReading {
    /// The name in the metrics.
    pub name: Box<str>,
    /// Query, mutation or subscription.
    pub kind: &'static str,
    /// The number of requests.
    pub requests: u64,
    /// The number of requests by the code of their first error, without zeros. The last one may be [`OTHER`].
    pub errors: Vec<(&'static str, u64)>,
    /// The time and the work of the requests.
    pub work: WorkReading,
    /// The hits and misses of the plan and of the response.
    pub hits: HitCounts,
    /// The clients that sent it, those with most requests first, and all others together at the end.
    pub clients: Vec<UsesOfClient>,
}

/// The number of requests of one client for one operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsesOfClient {
    /// The name of the client.
    pub name: Box<str>,
    /// The version of the client.
    pub version: Box<str>,
    /// The number of requests.
    pub requests: u64,
}

/// The figures of one client since it got its row.
#[derive(Clone, Debug)]
pub struct ClientReading {
    /// The name in the metrics.
    pub name: Box<str>,
    /// The version; empty if it states none.
    pub version: Box<str>,
    /// The number of requests.
    pub requests: u64,
    /// The number of requests by the code of their first error, without zeros. The last one may be [`OTHER`].
    pub errors: Vec<(&'static str, u64)>,
    /// The time and the work of the requests.
    pub work: WorkReading,
}

impl FigureTables {
    /// Reads the figures of all operations. The last ones are those that share a row.
    pub fn operation_readings(&self) -> Vec<OperationReading> {
        let Some(operations) = &self.operations else { return Vec::new() };
        let other = OperationLabel { name: OTHER.into(), kind: OTHER };
        let reading = operations.read_rows();
        let named = reading.rows.iter().map(|row| self.read_operation(&row.label, &row.counters));
        named.chain([self.read_operation(&other, &reading.other)]).collect()
    }

    /// Reads the figures of all clients. The last ones are those that share a row.
    pub fn client_readings(&self) -> Vec<ClientReading> {
        let Some(clients) = &self.clients else { return Vec::new() };
        let other = ClientLabel { name: OTHER.into(), version: OTHER.into() };
        let reading = clients.read_rows();
        let named = reading.rows.iter().map(|row| read_client(&row.label, &row.counters));
        named.chain([read_client(&other, &reading.other)]).collect()
    }

    fn read_operation(
        &self,
        label: &OperationLabel,
        figures: &OperationFigures,
    ) -> OperationReading {
        let (uses, others) = figures.client_uses();
        let mut without_row = others;
        let mut clients: Vec<UsesOfClient> = Vec::new();
        for (client, requests) in uses {
            // A client is one of the others if another one has its row by now.
            match self.client_label(client) {
                Some(ClientLabel { name, version }) => {
                    clients.push(UsesOfClient { name, version, requests });
                }
                None => without_row += requests,
            }
        }
        clients.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.name.cmp(&b.name)));
        if without_row > 0 {
            let (name, version) = (OTHER.into(), Box::default());
            clients.push(UsesOfClient { name, version, requests: without_row });
        }
        OperationReading {
            name: label.name.clone(),
            kind: label.kind,
            requests: figures.uses(),
            errors: figures.errors(),
            work: figures.work(),
            hits: figures.hits(),
            clients,
        }
    }

    fn client_label(&self, client: NameKey) -> Option<ClientLabel> {
        Some(self.clients.as_ref()?.row(client)?.label.clone())
    }
}

fn read_client(label: &ClientLabel, figures: &ClientFigures) -> ClientReading {
    ClientReading {
        name: label.name.clone(),
        version: label.version.clone(),
        requests: figures.uses(),
        errors: figures.errors(),
        work: figures.work(),
    }
}

impl OperationReading {
    /// True if a prepared operation counts here.
    pub fn is_of(&self, prepared: &Prepared) -> bool {
        kind_of(prepared) == self.kind && *name_of(prepared) == *self.name
    }
}
