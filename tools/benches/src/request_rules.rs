//! `cargo xtask bench router --filter rules`: the cost of each rule that a request passes before it is executed.
//!
//! One router for each combination of rules serves the operation of the federation benchmark. They are measured in
//! turn, round by round, so that a changing speed of the machine affects all of them. A rule's cost is the difference
//! to the router without that rule in the same round.

use crate::comparison::{Side, measure_in_turn};
use crate::reports::verdict;
use crate::scenario::{Scenario, ScenarioSamples};
use crate::server_process::ServerProcess;
use crate::servers::{BENCHMARK_SUBGRAPHS, replace_subgraph_urls};
use crate::setup::{Bench, read_file, write_file};
use crate::statistics::Samples;
use crate::tokens::{authentication_section, sign_token};
use serde_json::Value;
use std::path::Path;
use test_kit::commands::Failure;

/// The maximum CPU time of all rules together for a request, in microseconds.
const ALL_RULES_US_MAX: f64 = 25.0;

/// The scopes that meet all requirements of the graph.
const SCOPES: &str = "catalog:read reviews:read";

/// The header with a unique value in each request that shares nothing. `authorization` has the token.
pub(crate) const UNIQUE_HEADER: &str = "x-request";

/// The rules of one router.
#[derive(Clone, Copy, Default)]
struct Rules {
    /// Tokens are verified, and requests have one.
    token: bool,
    /// The graph has `@authenticated` and `@requiresScopes`.
    directives: bool,
    /// Subgraphs get two headers with computed values.
    headers: bool,
    /// Users have a rate limit, which is never reached.
    rate_limit: bool,
    /// Costs are measured.
    cost: bool,
}

const NONE: Rules =
    Rules { token: false, directives: false, headers: false, rate_limit: false, cost: false };
const TOKEN: Rules = Rules { token: true, ..NONE };

/// A router of the comparison.
struct Variant {
    name: &'static str,
    rules: Rules,
    /// The index of the router with the same rules except the named one.
    without: usize,
}

/// Directives, headers and limits are of use with tokens only, so they are compared with the router that verifies them.
const VARIANTS: [Variant; 7] = [
    Variant { name: "no rules", rules: NONE, without: 0 },
    Variant { name: "token", rules: TOKEN, without: 0 },
    Variant { name: "directives", rules: Rules { directives: true, ..TOKEN }, without: 1 },
    Variant { name: "two headers", rules: Rules { headers: true, ..TOKEN }, without: 1 },
    Variant { name: "rate limit", rules: Rules { rate_limit: true, ..TOKEN }, without: 1 },
    Variant { name: "cost", rules: Rules { cost: true, ..NONE }, without: 0 },
    Variant {
        name: "all",
        rules: Rules { token: true, directives: true, headers: true, rate_limit: true, cost: true },
        without: 0,
    },
];

impl Rules {
    fn configuration(self) -> String {
        let mut headers = format!("propagate: {{named: {UNIQUE_HEADER}}}");
        if self.headers {
            headers.push_str(
                "}, {set: {name: x-tenant, expression: \"claims.?tenant.orValue('public')\"}}, \
                 {set: {name: x-client, expression: \"client.name + '/' + request.headers[?'x-region'].orValue('none')\"}",
            );
        }
        let mut text = format!("headers: {{all: {{request: [{{{headers}}}]}}}}\n");
        if self.token {
            text.push_str(&authentication_section());
        }
        if self.rate_limit {
            text.push_str(
                "rate_limits: [{name: per-user, key: \"claims.?sub.orValue(request.client_address)\", \
                 rate: 1000000, per: 1s}]\n",
            );
        }
        if self.cost {
            text.push_str("cost: {mode: measure}\n");
        }
        text
    }

    fn supergraph(self) -> &'static str {
        match self.directives {
            true => "benches/rules/supergraph.graphql",
            false => "fixtures/federation-benchmark/supergraph.graphql",
        }
    }
}

/// Measures all variants in one scenario, prints their table and returns the runs.
pub(crate) fn compare(
    bench: &Bench,
    scenario: &Scenario,
    subgraphs: &ServerProcess,
    operation: &Path,
) -> Result<Vec<Value>, Failure> {
    let token = sign_token(0, SCOPES)?;
    let routers: Vec<ServerProcess> = VARIANTS
        .iter()
        .map(|variant| start_router(bench, variant, subgraphs))
        .collect::<Result<_, _>>()?;
    let sides: Vec<Side<'_>> = VARIANTS
        .iter()
        .zip(&routers)
        .map(|(variant, router)| Side {
            name: variant.name,
            router,
            operation: Some(operation),
            arguments: match variant.rules.token {
                true => vec!["--header".to_owned(), format!("authorization: Bearer {token}")],
                false => Vec::new(),
            },
            unique_header: UNIQUE_HEADER,
        })
        .collect();
    let measured = measure_in_turn(bench, scenario, &sides)?;
    let mut differences: Vec<Samples> = VARIANTS.iter().map(|_| Default::default()).collect();
    for round in &measured.rounds {
        for (at, variant) in VARIANTS.iter().enumerate() {
            differences[at].push(round[at] - round[variant.without]);
        }
    }
    print_table(&measured.samples, &differences);
    Ok(measured.runs)
}

fn start_router(
    bench: &Bench,
    variant: &Variant,
    subgraphs: &ServerProcess,
) -> Result<ServerProcess, Failure> {
    let folder = bench.scratch_folder(&format!("rules-{}", variant.name.replace(' ', "-")))?;
    let (config, supergraph) = (folder.join("starling.yaml"), folder.join("supergraph.graphql"));
    write_file(&config, &variant.rules.configuration())?;
    let text = read_file(&bench.file(variant.rules.supergraph()))?;
    let placed = replace_subgraph_urls(&text, &BENCHMARK_SUBGRAPHS, subgraphs.address);
    write_file(&supergraph, &placed)?;
    bench.start_starling(&config, &supergraph)
}

fn print_table(samples: &[ScenarioSamples], differences: &[Samples]) {
    println!("| rules | µs | compared with | more, µs | ratio |\n|---|---|---|---|---|");
    for ((variant, own), more) in VARIANTS.iter().zip(samples).zip(differences) {
        let without = &samples[variant.without];
        let ratio = own.cpu_us.median() / without.cpu_us.median();
        let (compared, more) = match variant.rules.token || variant.rules.cost {
            true => (VARIANTS[variant.without].name, more.format_with_range(1)),
            false => ("–", "–".to_owned()),
        };
        println!(
            "| {} | {} | {compared} | {more} | {ratio:.3} |",
            variant.name,
            own.cpu_us.format_with_range(1)
        );
    }
    let all = differences.last().map_or(0.0, Samples::median);
    println!("\n| all rules | at most | met |\n|---|---|---|");
    println!("| {all:.1} µs | {ALL_RULES_US_MAX} µs | {} |\n", verdict(all <= ALL_RULES_US_MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_kit::builds::workspace_root;

    #[test]
    fn each_variant_differs_from_its_base_by_the_named_rules() {
        for variant in &VARIANTS[1..] {
            let base = VARIANTS[variant.without].rules;
            assert_ne!(
                (variant.rules.configuration(), variant.rules.supergraph()),
                (base.configuration(), base.supergraph()),
                "{}",
                variant.name
            );
        }
    }

    /// Returns the definitions of a supergraph without comments, layout and requirements.
    fn without_requirements(sdl: &str) -> String {
        let lines = sdl.lines().filter(|line| {
            !line.starts_with('#')
                && !line.contains("dev/authenticated")
                && !line.contains("dev/requiresScopes")
        });
        let mut text = lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
        text = text.replace(" @authenticated", "");
        while let Some(at) = text.find(" @requiresScopes(") {
            let end = text[at..].find(')').map_or(text.len(), |length| at + length + 1);
            text.replace_range(at..end, "");
        }
        // The last link of the schema has the brace that opens its body.
        text.replace("for: EXECUTION) {", "for: EXECUTION)").replace("for: SECURITY) {", "")
    }

    #[test]
    fn the_graph_with_requirements_is_that_of_the_benchmark_otherwise() {
        let read = |path| std::fs::read_to_string(workspace_root().join(path)).unwrap();
        let (with, without) = (
            read("benches/rules/supergraph.graphql"),
            read("fixtures/federation-benchmark/supergraph.graphql"),
        );
        assert_ne!(with, without);
        assert_eq!(without_requirements(&with), without_requirements(&without));
    }
}
