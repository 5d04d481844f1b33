//! Rules for headers of Cosmo Router: `op: propagate` and `op: set`.

use crate::conversion::{Conversion, Members};
use crate::expression::{claim, from_expr_lang};
use crate::form::Form;
use crate::headers::{list_path, lower_case};
use crate::rule::{Rule, absent, with};
use crate::setting::Setting;
use crate::target::Value;

pub(super) const RULES: &[Rule] = &[
    with(
        "headers.(all|subgraphs.<name>).request",
        "headers.(all|subgraphs.<name>).request",
        "a claim becomes a rule `claim`, an expression a rule `set` in CEL as far as it can be \
         translated",
        request,
    ),
    with(
        "headers.(all|subgraphs.<name>).response",
        "headers.(all|subgraphs.<name>).response",
        "`cache.enabled` merges `cache-control` of subgraphs",
        response,
    ),
    absent(
        "headers.router",
        "Starling sets no headers of responses by the request: let a proxy do so",
    ),
    absent(
        "headers.cookie_whitelist",
        "cookies are forwarded as a whole, or not at all: propagate the header `cookie` only to \
         subgraphs that may see all of them",
    ),
    absent(
        "cache_control_policy",
        "`cache.enabled` sends `cache-control` made of what subgraphs say, and \
         `cache.subgraphs` has times to live for those that say nothing (docs/caching.md)",
    ),
];

fn request(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    convert(conversion, setting, "request");
}

fn response(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    convert(conversion, setting, "response");
}

fn convert(conversion: &mut Conversion<'_>, setting: &Setting<'_>, direction: &str) {
    let path = list_path(setting, direction);
    if setting.is_empty() {
        conversion.unneeded(setting, "it is empty");
    }
    for rule in setting.items() {
        let mut members = Members::of(&rule);
        let op = members.take("op");
        match op.as_ref().and_then(Setting::text) {
            Some("propagate") => propagate(conversion, &rule, members, &path, direction),
            Some("set") => set(conversion, &rule, members, &path),
            _ => conversion
                .unknown(op.as_ref().unwrap_or(&rule), "a rule has `op: propagate` or `op: set`"),
        }
    }
}

fn propagate(
    conversion: &mut Conversion<'_>,
    rule: &Setting<'_>,
    mut members: Members<'_>,
    path: &[String],
    direction: &str,
) {
    let named = conversion.optional(members.take("named"), Form::Text).map(lower_case);
    let matching = conversion.optional(members.take("matching"), Form::Text);
    let rename = conversion.optional(members.take("rename"), Form::Text).map(lower_case);
    let default = conversion.optional(members.take("default"), Form::Text);
    let algorithm = members.take("algorithm");
    let negated = members.take("negate_match");
    members.finish(conversion);
    if negated.is_some_and(|it| it.may_be_on()) {
        let advice = "write a pattern of the headers to forward, or propagate all and `remove` those \
                      that match";
        conversion.not_converted(rule, advice);
        return;
    }
    let merge = match algorithm.as_ref().and_then(Setting::text) {
        None => None,
        Some("first_write") => Some("first"),
        Some("last_write") => Some("last"),
        Some("append") => Some("append"),
        Some("most_restrictive_cache_control") => {
            let advice = "`cache.enabled` sends the most restrictive `cache-control` of all subgraphs \
                          (docs/caching.md)";
            conversion.not_converted(rule, advice);
            return;
        }
        Some(_) => {
            conversion.refuse(rule, "has an unknown `algorithm`", "");
            return;
        }
    };
    let is_named = named.is_some();
    let whitelist = conversion.root.descendant(&["headers", "cookie_whitelist"]);
    let filters_cookies = direction == "request" && whitelist.is_some_and(|it| !it.is_empty());
    if filters_cookies && named == Some(Value::text("cookie")) {
        conversion.not_converted(
            rule,
            "cookies are forwarded as a whole, or not at all: the rule is left out because of \
             `cookie_whitelist`",
        );
        return;
    }
    let note = match !is_named && (rename.is_some() || default.is_some()) {
        true => "`rename` and `default` need `named` in Starling, and are left out for the pattern",
        false => "",
    };
    let value = Value::map([
        ("named", named),
        ("matching", matching.filter(|_| !is_named)),
        ("rename", rename.filter(|_| is_named)),
        ("default", default.filter(|_| is_named)),
        ("algorithm", merge.map(Value::text)),
    ]);
    conversion.push(rule, path, Value::keyed("propagate", value), note);
    if filters_cookies && !is_named {
        let removal = Value::keyed("remove", Value::keyed("named", Value::text("cookie")));
        let note = "cookies are not forwarded because of `cookie_whitelist`";
        conversion.push(rule, path, removal, note);
    }
}

fn set(
    conversion: &mut Conversion<'_>,
    rule: &Setting<'_>,
    mut members: Members<'_>,
    path: &[String],
) {
    let name = conversion.optional(members.take("name"), Form::Text).map(lower_case);
    let value = members.take("value");
    let mut expression = members.take("expression");
    let from = members.take("value_from");
    let file = members.take("from_file");
    members.finish(conversion);
    if let Some(file) = file {
        conversion.not_converted(
            &file,
            "values come from the configuration: write `${NAME}`, and give the variable to the \
             process",
        );
        return;
    }
    if let Some(value) = value {
        let value = conversion.optional(Some(value), Form::Text);
        let insertion = Value::map([("name", name), ("value", value)]);
        conversion.push(rule, path, Value::keyed("insert", insertion), "");
        return;
    }
    let mut written = None;
    if let Some(from) = &from {
        let member = |name| from.member(name).and_then(|it| it.text());
        written = match (member("request_header"), member("context_field")) {
            (Some(header), _) => {
                Some(format!("request.headers[?\"{}\"].orValue(\"\")", header.to_lowercase()))
            }
            (_, Some("operation_name")) => Some("operation.name".to_owned()),
            (_, Some("operation_type")) => Some("operation.kind".to_owned()),
            (_, Some("operation_hash")) => Some("operation.id".to_owned()),
            _ => None,
        };
        expression = expression.or_else(|| from.member("expression"));
    }
    let text = expression.as_ref().and_then(Setting::text);
    if let Some(path_of_claim) = text.and_then(claim) {
        let claim = Value::map([("path", Some(Value::Text(path_of_claim))), ("name", name)]);
        conversion.push(rule, path, Value::keyed("claim", claim), "");
        return;
    }
    match written.or_else(|| text.and_then(from_expr_lang)) {
        Some(written) => {
            let computed = Value::map([("name", name), ("expression", Some(Value::Text(written)))]);
            let note = "translated to CEL: compare both";
            conversion.push(rule, path, Value::keyed("set", computed), note);
        }
        None => conversion.not_converted(
            rule,
            "the value cannot be translated: write it in CEL, as `set: {name, expression}` \
             (docs/expressions.md)",
        ),
    }
}
