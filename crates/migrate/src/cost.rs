//! Estimates of costs of Apollo Router and Hive Router (`demand_control`), and the headers with costs of all routers.

use super::conversion::{Conversion, Members};
use super::form::Form;
use super::setting::Setting;
use super::target::Value;

/// Converts the section `demand_control`.
pub(crate) fn demand_control(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let enabled = members.take("enabled");
    if !conversion.is_on(enabled.as_ref()) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    if let Some(mode) = members.take("mode") {
        let words = Form::Words(&[("measure", "measure"), ("enforce", "enforce")]);
        conversion.set(&mode, &["cost".to_owned(), "mode".to_owned()], words, "");
    }
    if let Some(expose) = members.take("expose_headers") {
        expose_costs(conversion, &expose);
    }
    if let Some(strategy) = members.take("strategy") {
        convert_strategy(conversion, &strategy);
    }
    members.finish(conversion);
}

/// Converts the strategy of estimates, `static_estimated`.
fn convert_strategy(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut strategies = Members::of(setting);
    let strategy = strategies.take("static_estimated");
    strategies.finish(conversion);
    let Some(strategy) = strategy else { return };
    let mut members = Members::of(&strategy);
    let cost = |key: &str| ["cost".to_owned(), key.to_owned()];
    if let Some(max) = members.take("max") {
        conversion.set(&max, &cost("max"), Form::Number, "");
    }
    if let Some(size) = members.take("list_size") {
        conversion.set(&size, &cost("list_size"), Form::Number, "");
    }
    members.unneeded(conversion, "actual_cost_mode", "actual costs are counted in the response");
    let subgraph = members.take("subgraph");
    members.finish(conversion);
    let Some(subgraph) = subgraph else { return };
    let mut scopes = Vec::new();
    if let Some(all) = subgraph.member("all") {
        scopes.push((vec!["cost", "subgraphs", "all"], all));
    }
    let named = subgraph.member("subgraphs");
    for (name, settings) in named.iter().flat_map(Setting::members) {
        scopes.push((vec!["cost", "subgraphs", "subgraphs", name], settings));
    }
    for (path, settings) in scopes {
        let mut members = Members::of(&settings);
        for key in ["max", "list_size"] {
            if let Some(value) = members.take(key) {
                let to: Vec<_> = path.iter().copied().chain([key]).map(str::to_owned).collect();
                conversion.set(&value, &to, Form::Number, "");
            }
        }
        members.finish(conversion);
    }
}

/// Converts headers with costs: Starling sends them to clients that ask for them.
pub(crate) fn expose_costs(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let is_on = |it: &Setting<'_>| it.text().is_some_and(|it| it != "false");
    let has_any = is_on(setting) || setting.members().iter().any(|(_, it)| is_on(it));
    if !has_any {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let to = ["cost".to_owned(), "expose".to_owned()];
    let note = "clients ask for costs with the header `starling-cost: 1`; the headers are \
                `starling-cost-estimated` and `starling-cost-actual`";
    conversion.write(setting, &to, Value::Bool(true), note);
}
