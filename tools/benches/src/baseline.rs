//! `cargo xtask bench router --filter baseline`: the CPU time of a request with all signals off, beside that of another
//! build of Starling, such as one from before a change. `STARLING_BASELINE_BIN` names the other build. If it is the
//! measured one itself, the ratios show the noise of the machine. That is more than the bound on most machines, so the
//! instructions of a request are counted as well.
//!
//! Builds refuse keys that they do not know. Each build prints the schema of its configuration, so the other one gets
//! the keys that it knows: what it has no key for does not exist in it.

use crate::comparison::{Side, measure_in_turn};
use crate::instructions;
use crate::reports::verdict;
use crate::scenario::Scenario;
use crate::server_process::ServerProcess;
use crate::servers::{BENCHMARK_SUBGRAPHS, replace_subgraph_urls};
use crate::setup::{BASELINE_VARIABLE, Bench, read_file, write_file};
use crate::statistics::Samples;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use test_kit::commands::{self, Failure};

/// The maximum CPU time of a request with everything off, in multiples of that of the other build.
const RATIO_MAX: f64 = 1.01;

/// The number of connections of the scenario after which instructions are counted: they are sent over one.
const COUNTED_CONNECTIONS: u32 = 1;

/// A key of the configuration, with the value that turns a part of the router off.
type OffKey = (&'static str, Value);

/// A build with its settings.
struct Variant<'a> {
    name: &'static str,
    bench: &'a Bench,
    settings: Value,
    /// The maximum CPU time of a request, in multiples of that of the first variant, if there is a bound.
    ratio_max: Option<f64>,
}

/// Returns the advice for a run that does not name the other build.
pub(crate) fn advice() -> String {
    format!(
        "baseline: skipped; {BASELINE_VARIABLE} must be the path of another build of `starling`"
    )
}

/// Measures both builds in one scenario, prints their table and returns the runs.
pub(crate) fn compare(
    bench: &Bench,
    scenario: &Scenario,
    subgraphs: &ServerProcess,
    operation: &Path,
) -> Result<Vec<Value>, Failure> {
    let path = bench.baseline.as_deref().ok_or_else(advice)?;
    let canonical =
        |path: &Path| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    if canonical(path)? == canonical(&bench.starling)? {
        println!("Both builds are the same program: the ratios show the noise.\n");
    }
    let other = bench.with_starling(path);
    let variants = variants(bench, &other)?;
    let routers: Vec<ServerProcess> = variants
        .iter()
        .map(|variant| start_router(variant, subgraphs))
        .collect::<Result<_, _>>()?;
    let sides: Vec<Side<'_>> = variants
        .iter()
        .zip(&routers)
        .map(|(variant, router)| Side::of_operation(variant.name, router, operation))
        .collect();
    let measured = measure_in_turn(bench, scenario, &sides)?;
    println!("| build | µs | ratio | at most | met |\n|---|---|---|---|---|");
    for (at, variant) in variants.iter().enumerate() {
        let mut ratio = Samples::default();
        for round in &measured.rounds {
            ratio.push(round[at] / round[0]);
        }
        let (bound, met) = match variant.ratio_max {
            Some(most) => (most.to_string(), verdict(ratio.median() <= most)),
            None => ("–".to_owned(), "–"),
        };
        println!(
            "| {} | {} | {} | {bound} | {met} |",
            variant.name,
            measured.samples[at].cpu_us.format_with_range(1),
            ratio.format_with_range(3),
        );
    }
    drop(routers);
    if scenario.connections == COUNTED_CONNECTIONS {
        count_instructions(&variants, operation)?;
    }
    Ok(measured.runs)
}

/// Counts the instructions of a request for each variant, and prints them.
fn count_instructions(variants: &[Variant<'_>], operation: &Path) -> Result<(), Failure> {
    if !instructions::can_be_counted() {
        println!("\nInstructions are not counted, because Valgrind is not installed.");
        return Ok(());
    }
    let body = json!({ "query": read_file(operation)? }).to_string();
    println!("\n| build | instructions | ratio | at most | met |\n|---|---|---|---|---|");
    let mut baseline = None;
    for variant in variants {
        let [config, supergraph] = files(variant)?;
        let count = instructions::count_for_each(variant.bench, &config, &supergraph, &body)?;
        let ratio = count / *baseline.get_or_insert(count);
        let (bound, met) = match variant.ratio_max {
            Some(most) => (most.to_string(), verdict(ratio <= most)),
            None => ("–".to_owned(), "–"),
        };
        println!("| {} | {count:.0} | {ratio:.4} | {bound} | {met} |", variant.name);
    }
    Ok(())
}

/// Returns the other build, and the measured one with more and more parts turned on.
fn variants<'a>(bench: &'a Bench, other: &'a Bench) -> Result<[Variant<'a>; 4], Failure> {
    let (signals, all) = (signals_off(), everything_off());
    let (known, measured) = (read_schema(other)?, read_schema(bench)?);
    if let Some((key, _)) = all.iter().find(|(key, _)| !is_known(&measured, key)) {
        return Err(format!("the measured build does not know the key `{key}`"));
    }
    let own = |name, off: &[OffKey], ratio_max| {
        let settings = settings(&measured, off);
        Variant { name, bench, settings, ratio_max }
    };
    Ok([
        Variant {
            name: "baseline",
            bench: other,
            settings: settings(&known, &all),
            ratio_max: None,
        },
        own("everything off", &all, Some(RATIO_MAX)),
        own("signals off", &signals, None),
        own("defaults", &[], None),
    ])
}

/// Returns the keys that turn the signals off.
fn signals_off() -> Vec<OffKey> {
    vec![
        ("metrics.operations.max", json!(0)),
        ("metrics.clients.max", json!(0)),
        ("metrics.fields.max", json!(0)),
        ("admin.console.enabled", json!(false)),
        ("tracing.enabled", json!(false)),
        ("access_log.enabled", json!(false)),
    ]
}

/// Returns the keys that turn the signals and overload protection off. The latter is no signal, and newer than the
/// oldest build that is of interest.
fn everything_off() -> Vec<OffKey> {
    let mut keys = signals_off();
    keys.push(("admission.enabled", json!(false)));
    keys
}

/// Returns the configuration of a build with the given schema: what all builds have in common, and those of the keys
/// that the build knows.
fn settings(schema: &Value, off: &[OffKey]) -> Value {
    let mut settings = json!({
        "headers": {"all": {"request": [{"propagate": {"named": "authorization"}}]}},
        "ide": {"enabled": false},
        "log": {"level": "off"},
        "trace": {"enabled": false},
    });
    for (key, value) in off.iter().filter(|(key, _)| is_known(schema, key)) {
        let mut place = &mut settings;
        for name in key.split('.') {
            place = &mut place[name];
        }
        *place = value.clone();
    }
    settings
}

/// True if the schema of a configuration has this key, the parts of which are separated by points.
fn is_known(schema: &Value, key: &str) -> bool {
    let mut names = key.split('.');
    names.try_fold(schema, |section, name| section.get("properties")?.get(name)).is_some()
}

fn read_schema(bench: &Bench) -> Result<Value, Failure> {
    let text = commands::read_output(Command::new(&bench.starling).arg("config-schema"))?;
    let path = bench.starling.display();
    serde_json::from_str(&text)
        .map_err(|error| format!("{path} prints no schema of its configuration: {error}"))
}

fn start_router(
    variant: &Variant<'_>,
    subgraphs: &ServerProcess,
) -> Result<ServerProcess, Failure> {
    let bench = variant.bench;
    let [config, supergraph] = files(variant)?;
    // JSON is YAML.
    write_file(&config, &format!("{:#}\n", variant.settings))?;
    let text = read_file(&bench.file("fixtures/federation-benchmark/supergraph.graphql"))?;
    let placed = replace_subgraph_urls(&text, &BENCHMARK_SUBGRAPHS, subgraphs.address);
    write_file(&supergraph, &placed)?;
    bench.start_starling(&config, &supergraph)
}

/// Returns the files of a variant: its configuration and its supergraph.
fn files(variant: &Variant<'_>) -> Result<[PathBuf; 2], Failure> {
    let name = format!("baseline-{}", variant.name.replace(' ', "-"));
    let folder = variant.bench.scratch_folder(&name)?;
    Ok(["starling.yaml", "supergraph.graphql"].map(|file| folder.join(file)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_kit::builds;

    #[test]
    fn a_build_gets_the_keys_that_it_knows() {
        let old = json!({"properties": {
            "metrics": {"properties": {"operations": {"properties": {"max": {}}}}},
            "admin": {"properties": {"listen": {}}},
        }});
        let settings = settings(&old, &everything_off());
        assert_eq!(settings["metrics"], json!({"operations": {"max": 0}}));
        assert_eq!(settings["log"], json!({"level": "off"}));
        assert_eq!(settings["admin"], Value::Null);
        assert_eq!(settings["admission"], Value::Null);
    }

    #[test]
    fn this_build_knows_every_key() {
        let path = builds::workspace_root().join("crates/config/tests/schema.json");
        let schema: Value =
            serde_json::from_str(&read_file(&path).expect("the schema")).expect("JSON");
        for (key, _) in everything_off() {
            assert!(is_known(&schema, key), "{key}");
        }
        let all = settings(&schema, &everything_off());
        assert_eq!(all["metrics"]["clients"], json!({"max": 0}));
        assert_eq!(all["admin"], json!({"console": {"enabled": false}}));
        assert_eq!(settings(&schema, &[])["metrics"], Value::Null);
    }
}
