//! Reading the reports of the load generator.

use serde_json::Value;
use test_kit::commands::Failure;

/// Returns a number of a report, or 0 if it is missing.
pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// Fails if a run lost results without notice, received wrong ones, or did not subscribe all clients.
pub(crate) fn check_run(run: &Value) -> Result<(), Failure> {
    for (what, bad) in [
        ("results missing", number(&run["missing"])),
        ("surplus results", number(&run["surplus"])),
        ("results out of order", number(&run["disordered"])),
        ("results with errors", number(&run["errors"])),
        ("results of other clients", number(&run["foreign"])),
        ("clients not subscribed", number(&run["clients"]) - number(&run["subscribed"])),
    ] {
        if bad > 0.0 {
            let (ends, example) = (&run["ends"], &run["example"]);
            return Err(format!(
                "{}: {bad} {what}; connections ended: {ends}; {example}",
                run["name"]
            ));
        }
    }
    Ok(())
}

/// Returns `yes` or `NO`, for the column of targets.
pub(crate) fn verdict(is_met: bool) -> &'static str {
    if is_met { "yes" } else { "NO" }
}
