//! The behaviour of clients in a measurement of queries, and the figures of one server with them.

use crate::statistics::Samples;
use serde_json::Value;
use test_kit::commands::Failure;

/// The behaviour of the clients.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) connections: u32,
    /// True if every request has a unique header, which is forwarded to the subgraphs: `authorization`, unless that has
    /// a token.
    pub(crate) unique: bool,
}

/// The measurements of one server in one scenario.
#[derive(Default)]
pub(crate) struct ScenarioSamples {
    pub(crate) cpu_us: Samples,
    pub(crate) per_second: Samples,
    pub(crate) p50_ms: Samples,
    pub(crate) p99_ms: Samples,
    pub(crate) resident_mib: Samples,
}

impl ScenarioSamples {
    /// Adds a run and returns the CPU time of one response, in microseconds.
    pub(crate) fn add(&mut self, run: &Value) -> Result<f64, Failure> {
        let failed = run["failed"].as_u64().unwrap_or(u64::MAX);
        if failed > 0 {
            return Err(format!("{}: {failed} requests failed: {}", run["name"], run["example"]));
        }
        let number = |value: &Value| value.as_f64().ok_or("the report lacks a number".to_owned());
        let cpu_us = number(&run["server"]["cpu_us_per_request"])?;
        self.cpu_us.push(cpu_us);
        self.per_second.push(number(&run["answers_per_second"])?);
        self.p50_ms.push(number(&run["latency"]["p50_us"])? / 1e3);
        self.p99_ms.push(number(&run["latency"]["p99_us"])? / 1e3);
        self.resident_mib.push(number(&run["server"]["resident_max_mib"])?);
        Ok(cpu_us)
    }
}
