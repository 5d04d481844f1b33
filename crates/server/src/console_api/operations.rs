//! The JSON of single operations: their figures, text and plan.

use execute::FetchTimesReading;
use graph::Supergraph;
use plan::Plan;
use prepare::PrepareError;
use serde_json::{Value, json};
use serving::figures::readings::{ClientReading, OperationReading, UsesOfClient};
use serving::figures::response_origins::HitCounts;
use serving::figures::work_counters::WorkReading;
use serving::redaction::redact_literals;
use serving::serving::Serving;
use telemetry::HistogramReading;
use telemetry::history::quantiles;

use super::overview::compact;
use crate::admin::state::Admin;

/// The maximum length of an operation to explain the plan of.
pub(super) const EXPLAINED_BYTES_MAX: usize = 256 << 10;

/// Returns the JSON of `api/operations`.
pub(super) fn describe(admin: &Admin) -> Value {
    let Some(figures) = &admin.serving.figures else {
        return json!({"enabled": false, "operations": [], "clients": []});
    };
    let operations = figures.operation_readings();
    let clients = figures.client_readings();
    json!({
        "enabled": figures.operations.is_some(),
        "operations": operations.iter().map(operation).collect::<Vec<_>>(),
        "clients": clients.iter().map(client).collect::<Vec<_>>(),
    })
}

/// Returns the JSON of `api/operation`: the figures of one operation, its clients, and its text and plan if it is among
/// the prepared ones of the graph. `None` if there is no such operation. Blocks, because it visits the prepared
/// operations.
pub(super) fn describe_one(serving: &Serving, name: &str, kind: &str) -> Option<Value> {
    let figures = serving.figures.as_ref()?;
    let readings = figures.operation_readings();
    let reading = readings.iter().find(|it| *it.name == *name && it.kind == kind)?;
    let graph = serving.current();
    let cached = graph.preparer.find_cached(|it| reading.is_of(it));
    let (text, plan) = match cached {
        Some((request, prepared)) => {
            let text = redact_literals(&String::from_utf8_lossy(&request.query));
            let mut plan = plan_json(&prepared.plan, &graph.generation.graph);
            add_times(&mut plan, prepared.executable.fetch_times());
            (Some(text), plan)
        }
        None => (None, Value::Null),
    };
    let mut one = operation(reading);
    one["text"] = text.into();
    one["plan"] = plan;
    one["clients"] = reading.clients.iter().map(uses_of_client).collect();
    Some(one)
}

/// Returns the JSON of `api/explain`: the plan of an operation that is not executed. The plan is that of a client with
/// all rights and without labels. Blocks.
///
/// # Errors
/// The reason why the operation has no plan.
pub(super) fn explain(serving: &Serving, text: &[u8], name: Option<&str>) -> Result<Value, String> {
    let graph = serving.current();
    let prepared =
        graph.preparer.prepare_now(text, name).map_err(|error| describe_error(&error))?;
    Ok(json!({"plan": plan_json(&prepared.plan, &graph.generation.graph)}))
}

fn describe_error(error: &PrepareError) -> String {
    let problems = match error {
        PrepareError::Syntax(problems) | PrepareError::Validation(problems) => problems,
        other => return other.to_string(),
    };
    let lines = problems.iter().map(|problem| match problem.locations.first() {
        Some((line, column)) => format!("{line}:{column}: {}", problem.message),
        None => problem.message.clone(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The plan as `starling plan --format json` prints it, without values in the texts of its requests.
fn plan_json(plan: &Plan, graph: &Supergraph) -> Value {
    // The plan prints itself as valid JSON.
    let mut json: Value = serde_json::from_str(&plan.to_json(graph)).unwrap_or_default();
    redact_operations(&mut json);
    json
}

/// Adds the requests of each fetch, and the times of some recent ones.
fn add_times(plan: &mut Value, times: impl Iterator<Item = FetchTimesReading>) {
    let fetches = plan.get_mut("fetches").and_then(Value::as_array_mut);
    for (fetch, times) in fetches.into_iter().flatten().zip(times) {
        let quantile = |share| times.quantile(share).map(|it| compact(it.as_secs_f64()));
        fetch["measured"] = json!({
            "requests": times.requests,
            "samples": times.times.len(),
            "p50": quantile(0.5),
            "p90": quantile(0.9),
        });
    }
}

fn redact_operations(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if name == "operation" => *text = redact_literals(text),
                    member => redact_operations(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact_operations),
        _ => {}
    }
}

fn operation(reading: &OperationReading) -> Value {
    let mut one = work(&reading.work, reading.requests);
    one["name"] = Value::from(&*reading.name);
    one["kind"] = reading.kind.into();
    one["errors"] = errors(&reading.errors);
    one["failed"] = failed(&reading.errors).into();
    one["hitRatios"] = hit_ratios(&reading.hits);
    one
}

/// The figures that operations and clients have in common.
fn work(work: &WorkReading, requests: u64) -> Value {
    let mean = |sum: f64| if requests > 0 { compact(sum / requests as f64) } else { Value::Null };
    let cost = work.cost.map(|(costed, sum)| compact(sum as f64 / costed as f64));
    json!({
        "requests": requests,
        "latency": latency(&work.durations),
        "cpuSeconds": compact(work.busy.as_secs_f64()),
        "cpuMean": mean(work.busy.as_secs_f64()),
        "subgraphRequests": work.subgraph_requests,
        "subgraphRequestsMean": mean(work.subgraph_requests as f64),
        "costMean": cost,
        "bytesMean": mean(work.response_bytes as f64),
    })
}

/// The shares of requests that used earlier work; null without any that could.
fn hit_ratios(hits: &HitCounts) -> Value {
    let HitCounts { plan_hits, plan_misses, .. } = *hits;
    let HitCounts { response_hits, response_stale_hits, response_misses, shared, .. } = *hits;
    let ratio = |part: u64, whole: u64| match whole {
        0 => Value::Null,
        _ => compact(part as f64 / whole as f64),
    };
    let served = plan_hits + plan_misses;
    let looked_up = response_hits + response_stale_hits + response_misses;
    json!({
        "plan": ratio(plan_hits, served),
        "response": ratio(response_hits + response_stale_hits, looked_up),
        "stale": ratio(response_stale_hits, looked_up),
        "shared": ratio(shared, served),
    })
}

fn errors(errors: &[(&'static str, u64)]) -> Value {
    errors.iter().map(|(code, count)| json!({"code": code, "count": count})).collect()
}

fn failed(errors: &[(&'static str, u64)]) -> u64 {
    errors.iter().map(|it| it.1).sum()
}

fn latency(durations: &HistogramReading) -> Value {
    let count: u64 = durations.buckets.iter().map(|it| it.1).sum();
    let mean = (count > 0).then(|| compact(durations.sum / count as f64));
    let [p50, p90, p99] = quantiles(&durations.buckets).map(|it| it.map(compact));
    json!({"mean": mean, "p50": p50, "p90": p90, "p99": p99})
}

fn client(reading: &ClientReading) -> Value {
    let mut one = work(&reading.work, reading.requests);
    one["name"] = Value::from(&*reading.name);
    one["version"] = Value::from(&*reading.version);
    one["errors"] = errors(&reading.errors);
    one["failed"] = failed(&reading.errors).into();
    one
}

fn uses_of_client(uses: &UsesOfClient) -> Value {
    json!({"name": &*uses.name, "version": &*uses.version, "requests": uses.requests})
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn hit_ratios_are_shares_of_what_was_looked_up() {
        let hits = HitCounts {
            plan_hits: 9,
            plan_misses: 1,
            response_hits: 3,
            response_stale_hits: 1,
            response_misses: 4,
            shared: 2,
        };
        let expected = json!({"plan": 0.9, "response": 0.5, "stale": 0.125, "shared": 0.2});
        assert_eq!(hit_ratios(&hits), expected);
        let none = json!({"plan": null, "response": null, "stale": null, "shared": null});
        assert_eq!(hit_ratios(&HitCounts::default()), none);
    }

    #[test]
    fn each_fetch_of_a_plan_has_its_requests_and_times() {
        let mut plan = json!({"fetches": [{"id": 0}, {"id": 1}]});
        let times = [1, 2, 3, 4].map(Duration::from_millis).to_vec();
        let measured = FetchTimesReading { requests: 70, times };
        let unused = FetchTimesReading { requests: 0, times: Vec::new() };
        add_times(&mut plan, [measured, unused].into_iter());
        let expected = json!([
            {"id": 0, "measured": {"requests": 70, "samples": 4, "p50": 0.002, "p90": 0.004}},
            {"id": 1, "measured": {"requests": 0, "samples": 0, "p50": null, "p90": null}},
        ]);
        assert_eq!(plan["fetches"], expected);
    }

    #[test]
    fn the_texts_of_requests_in_a_plan_have_no_values() {
        let mut plan = json!({
            "fetches": [{"operation": "{ user(id: \"hunter2\") }", "subgraph": "a \"b\" 1"}],
            "subscription": {"operation": "{ n(x: 7) }"},
        });
        redact_operations(&mut plan);
        let expected = json!({
            "fetches": [{"operation": "{ user(id: \"…\") }", "subgraph": "a \"b\" 1"}],
            "subscription": {"operation": "{ n(x: 0) }"},
        });
        assert_eq!(plan, expected);
    }
}
