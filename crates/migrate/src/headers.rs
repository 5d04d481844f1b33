//! Rules for headers of Apollo Router and Hive Router: `propagate`, `insert` and `remove`.

use super::conversion::{Conversion, Members};
use super::expression::from_vrl;
use super::form::Form;
use super::setting::Setting;
use super::target::Value;

/// Returns the list of rules that a key belongs to: `headers.subgraphs.<name>.request`.
pub(crate) fn list_path(setting: &Setting<'_>, direction: &str) -> Vec<String> {
    let mut path = vec!["headers".to_owned()];
    match setting.names.first() {
        Some(name) => path.extend(["subgraphs".to_owned(), name.clone()]),
        None => path.push("all".to_owned()),
    }
    path.push(direction.to_owned());
    path
}

/// Converts the rules for requests.
pub(crate) fn convert_request(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    convert(conversion, setting, "request");
}

/// Converts the rules for responses.
pub(crate) fn convert_response(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    convert(conversion, setting, "response");
}

fn convert(conversion: &mut Conversion<'_>, setting: &Setting<'_>, direction: &str) {
    // Newer versions of Apollo Router have the list one level deeper.
    let list = setting.member("operations").unwrap_or_else(|| setting.clone());
    if list.is_empty() {
        conversion.unneeded(setting, "it is empty");
    }
    let path = list_path(setting, direction);
    for rule in list.items() {
        let members = rule.members();
        let [(kind, body)] = members.as_slice() else {
            conversion.unknown(&rule, "a rule has one of `propagate`, `insert`, `remove`");
            continue;
        };
        match *kind {
            "propagate" => propagate(conversion, &rule, body, &path),
            "insert" => insert(conversion, &rule, body, &path),
            "remove" => remove(conversion, &rule, body, &path),
            _ => conversion.unknown(body, ""),
        }
    }
}

fn propagate(
    conversion: &mut Conversion<'_>,
    rule: &Setting<'_>,
    body: &Setting<'_>,
    path: &[String],
) {
    let mut members = Members::of(body);
    let named = members.take("named");
    let matching = members.take("matching");
    let rename = conversion.optional(members.take("rename"), Form::Text).map(lower_case);
    let default = conversion.optional(members.take("default"), Form::Text);
    let algorithm = conversion.optional(members.take("algorithm"), Form::Text);
    let excluded = members.take("exclude");
    members.finish(conversion);
    let mut note = "";
    for (key, selection) in [("named", named), ("matching", matching)] {
        for name in selection.iter().flat_map(Setting::items) {
            let Some(mut name) = conversion.optional(Some(name), Form::Text) else { continue };
            if key == "named" {
                name = lower_case(name);
            }
            let is_named = key == "named";
            let value = Value::map([
                (key, Some(name)),
                ("rename", rename.clone().filter(|_| is_named)),
                ("default", default.clone().filter(|_| is_named)),
                ("algorithm", algorithm.clone()),
            ]);
            if !is_named && (rename.is_some() || default.is_some()) {
                note = "`rename` and `default` need `named` in Starling, and are left out for the pattern";
            }
            conversion.push(rule, path, Value::keyed("propagate", value), note);
        }
    }
    for exclusion in excluded.iter().flat_map(Setting::items) {
        if let Some(pattern) = conversion.optional(Some(exclusion.clone()), Form::Text) {
            let value = Value::keyed("remove", Value::keyed("matching", pattern));
            let note = "`exclude` became a rule that also removes what earlier rules have added";
            conversion.push(&exclusion, path, value, note);
        }
    }
}

fn insert(
    conversion: &mut Conversion<'_>,
    rule: &Setting<'_>,
    body: &Setting<'_>,
    path: &[String],
) {
    let mut members = Members::of(body);
    let name = conversion.optional(members.take("name"), Form::Text).map(lower_case);
    let foreign = [
        (
            "from_context",
            "Starling has no context of plugins: `claim` sets a header to a claim of the token, and \
             `set` to an expression",
        ),
        (
            "path",
            "Starling does not read headers from the body of a request: let clients send a header",
        ),
    ];
    for (key, advice) in foreign {
        let Some(from) = members.take(key) else { continue };
        conversion.not_converted(&from, advice);
        for further in ["default", "algorithm"] {
            members.unneeded(conversion, further, "it belongs to the value that is left out");
        }
        members.finish(conversion);
        return;
    }
    if let Some(expression) = members.take("expression") {
        let text = expression.text().unwrap_or_default();
        let (value, note) = match (super::variables::of_expression(text), from_vrl(text)) {
            (Some(value), _) => {
                let members = [("name", name), ("value", Some(Value::Text(value)))];
                (Value::keyed("insert", Value::map(members)), "")
            }
            (None, Some(written)) => {
                let members = [("name", name), ("expression", Some(Value::Text(written)))];
                let note = "translated from VRL to CEL: compare both";
                (Value::keyed("set", Value::map(members)), note)
            }
            (None, None) => {
                let advice = "write it in CEL, as `set: {name, expression}` (docs/expressions.md)";
                conversion.refuse(&expression, "is an expression in VRL", advice);
                return;
            }
        };
        members.unneeded(conversion, "algorithm", "the last subgraph sets the value");
        members.finish(conversion);
        conversion.push(rule, path, value, note);
        return;
    }
    let value = conversion.optional(members.take("value"), Form::Text);
    members.unneeded(conversion, "algorithm", "the last subgraph sets the value");
    members.finish(conversion);
    let value = Value::keyed("insert", Value::map([("name", name), ("value", value)]));
    conversion.push(rule, path, value, "");
}

fn remove(
    conversion: &mut Conversion<'_>,
    rule: &Setting<'_>,
    body: &Setting<'_>,
    path: &[String],
) {
    let mut members = Members::of(body);
    let selections = [("named", members.take("named")), ("matching", members.take("matching"))];
    members.absent(
        conversion,
        "exclude",
        "a rule of Starling removes every match: write the pattern so that it does not match these",
    );
    members.finish(conversion);
    for (key, selection) in selections {
        for name in selection.iter().flat_map(Setting::items) {
            if let Some(name) = conversion.optional(Some(name), Form::Text) {
                let name = if key == "named" { lower_case(name) } else { name };
                conversion.push(rule, path, Value::keyed("remove", Value::keyed(key, name)), "");
            }
        }
    }
}

/// Returns the name of a header in lower case. References keep theirs.
pub(crate) fn lower_case(name: Value) -> Value {
    match name {
        Value::Text(text) if !super::variables::has_reference(&text) => {
            Value::Text(text.to_lowercase())
        }
        other => other,
    }
}
