//! `header-bytes`: the memory that a header of its own costs each subscriber, if subgraphs get it and if the router
//! only reads the token in it.

use super::idle_memory::{IDLE_ARGUMENTS, WARM_UP_CLIENTS};
use super::stage::{CLIENTS, ClientSettings, PLAIN, Stage};
use crate::reports::{check_run, number, verdict};
use crate::router_metrics::RouterMetrics;
use crate::setup::write_file;
use crate::statistics::Samples;
use crate::tokens::{authentication_section, sign_token};
use serde_json::Value;
use test_kit::commands::Failure;

/// The lengths of a header that is unique to each client.
const HEADER_LENGTHS: [u32; 3] = [0, 512, 2_048];

/// The maximum memory of a token that is not forwarded, for each subscriber.
const TOKEN_BYTES_MAX: f64 = 64.0;

/// The time after which the memory is measured: the allocator returns what only joining needed within ten seconds.
const SETTLED: [&str; 2] = ["--hold", "15s"];

/// The scopes of every second user, and those of the others. Only the first ones allow [`RESTRICTED`].
const SCOPES: [&str; 2] = ["ticks:read profile", "profile"];

/// A subscription with a field that needs a scope.
const RESTRICTED: &str = "subscription { tick { id detail } }";

/// Measures headers that are forwarded, then tokens that are not.
pub(crate) fn measure(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    let mut runs = measure_forwarded_headers(stage)?;
    runs.extend(measure_tokens(stage)?);
    Ok(runs)
}

/// Measures how much a unique header adds to the memory of a subscription if the router must keep it for forwarding.
fn measure_forwarded_headers(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    let forwarding = "headers: {all: {request: [{propagate: {named: authorization}}]}}\n";
    println!("| own header, bytes | bytes a subscription | more than without |\n|---|---|---|");
    let (mut runs, mut without) = (Vec::new(), None);
    for bytes in HEADER_LENGTHS {
        let length = bytes.to_string();
        let extra = ["--header-bytes", &length];
        let name = format!("{bytes} bytes");
        let (run, _) = run_idle(stage, forwarding, PLAIN, &name, &extra)?;
        let each = number(&run["server"]["bytes_per_subscription"]);
        let without = *without.get_or_insert(each);
        println!("| {bytes} | {each:.0} | {:.0} |", each - without);
        runs.push(run);
    }
    Ok(runs)
}

/// Measures subscribers with different tokens and one of two sets of rights, beside as many without a token at a router
/// with the same configuration.
fn measure_tokens(stage: &Stage<'_>) -> Result<Vec<Value>, Failure> {
    let count = stage.bench.clients.unwrap_or(CLIENTS);
    let tokens = (0..count).map(|number| sign_token(number, SCOPES[number as usize % 2]));
    let tokens = tokens.collect::<Result<Vec<_>, _>>()?;
    let length = tokens.first().map_or(0, String::len);
    let file = stage.bench.scratch_folder("subscriptions")?.join("tokens.txt");
    write_file(&file, &tokens.join("\n"))?;
    let file = file.display().to_string();

    let (mut runs, mut more) = (Vec::new(), Samples::default());
    let [mut without, mut with, mut without_groups, mut with_groups]: [Samples; 4] =
        Default::default();
    for _ in 0..stage.bench.pairs {
        let mut measure =
            |name: &str, extra: &[&str], bytes: &mut Samples, groups: &mut Samples| {
                let (run, found) =
                    run_idle(stage, &authentication_section(), RESTRICTED, name, extra)?;
                let each = number(&run["server"]["bytes_per_subscription"]);
                bytes.push(each);
                groups.push(found);
                runs.push(run);
                Ok::<f64, Failure>(each)
            };
        let base = measure("no token", &[], &mut without, &mut without_groups)?;
        let own = measure("own token", &["--tokens", &file], &mut with, &mut with_groups)?;
        more.push(own - base);
    }
    println!(
        "\n{count} clients. Tokens of some {length} bytes, which no subgraph gets; median (smallest–largest) of {} \
         pairs.\n\n| | bytes a subscription | groups |\n|---|---|---|",
        stage.bench.pairs
    );
    for (name, bytes, groups) in
        [("without tokens", &without, &without_groups), ("different tokens", &with, &with_groups)]
    {
        println!("| {name} | {} | {} |", bytes.format_with_range(0), groups.format_with_range(0));
    }
    println!("\n| | | to be | met |\n|---|---|---|---|");
    println!(
        "| bytes a token | {} | at most {TOKEN_BYTES_MAX} | {} |",
        more.format_with_range(0),
        verdict(more.median() <= TOKEN_BYTES_MAX)
    );
    let sets = SCOPES.len() as f64;
    println!(
        "| groups of subscribers with two sets of rights | {} | {sets} | {} |",
        with_groups.format_with_range(0),
        verdict(with_groups.min() == sets && with_groups.max() == sets)
    );
    Ok(runs)
}

/// Runs idle subscribers at a fresh router, and returns the report and the number of their groups.
fn run_idle(
    stage: &Stage<'_>,
    config: &str,
    query: &str,
    name: &str,
    extra: &[&str],
) -> Result<(Value, f64), Failure> {
    let router = stage.start_router(None, config)?;
    let count = stage.bench.clients.unwrap_or(CLIENTS);
    let idle = |hold: &[&'static str]| [&IDLE_ARGUMENTS[..2], hold, extra].concat();
    let [warm, settled] = [&IDLE_ARGUMENTS[2..], &SETTLED].map(idle);
    // The warm-up loads the program's own pages, which would otherwise count as memory of clients.
    let warm = ClientSettings { name: "warm", count: WARM_UP_CLIENTS, query, extra: &warm };
    stage.run_clients(&router, &warm)?;
    let clients = ClientSettings { name, count, query, extra: &settled };
    let load = stage.bench.start_subscription_load(&router, stage.arguments(&clients))?;
    // The groups while all clients are subscribed.
    let mut groups = 0.0;
    let run = load.observe_to_end(|| {
        let metrics = RouterMetrics::fetch(&router)?;
        if metrics.sum("starling_hub_subscribers") == Some(f64::from(count)) {
            groups = metrics.sum("starling_hub_groups").unwrap_or(0.0);
        }
        Ok(())
    })?;
    check_run(&run)?;
    if groups == 0.0 {
        return Err(format!("{name}: the router never reported {count} subscribers"));
    }
    Ok((run, groups))
}
