//! `greedy-client`: one client sends ten times its share.

use super::bounds::{Bound, Bounds};
use super::stage::{
    OverloadStage, SurgeLoad, class, p99_ms, print_head, print_row, surge_arguments,
};
use crate::setup::{Bench, write_file};
use serde_json::{Value, json};
use test_kit::commands::Failure;

/// The number of clients with equal shares, and their load together, as a part of the capacity.
const CLIENTS: u32 = 10;
const LOAD_SHARE: f64 = 0.7;

/// The load of the greedy client, as a multiple of its share.
const GREED: u32 = 10;

/// The maximum rise of the p99 of the others, in percent.
const RISE_PERCENT_MAX: f64 = 20.0;

/// The maximum share of requests of the others that are refused, in percent.
const REFUSED_PERCENT_MAX: f64 = 1.0;

/// The setting that tells clients apart.
const FAIR: &str = "admission: {enabled: true, fair_by: \"request.headers['x-client']\"}\n";

pub(super) fn measure(bench: &Bench, bounds: &mut Bounds) -> Result<Vec<Value>, Failure> {
    let stage = OverloadStage::start(bench)?;
    let (capacity, closed) = stage.measure_capacity()?;
    let router = stage.start_router(FAIR)?;
    let share = LOAD_SHARE * capacity / f64::from(CLIENTS);
    print_head();
    let measure = |name: &str, greed: u32| -> Result<Value, Failure> {
        let entries: Vec<Value> = (0..CLIENTS)
            .map(|client| {
                let is_greedy = client == 0;
                json!({
                    "name": if is_greedy { "greedy" } else { "others" },
                    "weight": if is_greedy { greed } else { 1 },
                    "operation": stage.operation,
                    "headers": {"x-client": client.to_string()},
                })
            })
            .collect();
        let mix = bench.scratch_folder("overload")?.join("clients.json");
        write_file(&mix, &json!({ "operations": entries }).to_string())?;
        let load = SurgeLoad::Constant(share * f64::from(CLIENTS - 1 + greed));
        let mix = mix.display().to_string();
        let arguments = surge_arguments(bench, load, &["--mix", &mix])?;
        let run = bench.run_surge(&router, name, &arguments)?;
        print_row(&format!("{name}: others"), class(&run, "others")?, bench.seconds);
        print_row(&format!("{name}: one client"), class(&run, "greedy")?, bench.seconds);
        Ok(run)
    };
    let fair = measure("equal shares", 1)?;
    let greedy = measure("ten times its share", GREED)?;
    let (before, during) = (class(&fair, "others")?, class(&greedy, "others")?);
    let rise = 100.0 * (p99_ms(during) / p99_ms(before) - 1.0);
    bounds.check("rise of the p99 of the others", rise, Bound::AtMost(RISE_PERCENT_MAX), " %");
    let count = |what: &str| during["counts"][what].as_f64().unwrap_or(0.0);
    let refused = 100.0 * count("refused") / count("offered").max(1.0);
    bounds.check(
        "requests of the others that were refused",
        refused,
        Bound::AtMost(REFUSED_PERCENT_MAX),
        " %",
    );
    Ok(vec![closed, fair, greedy])
}
