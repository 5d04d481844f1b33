//! Origins, authorization, limits of operations and errors of Cosmo Router.

use crate::conversion::{Conversion, Members, is_turned_off};
use crate::expression::from_expr_lang;
use crate::form::Form;
use crate::origins::{methods_of, pattern_of_wildcards, whole_pattern};
use crate::rule::{Rule, absent, same, unneeded, with};
use crate::setting::Setting;
use crate::target::Value;
use crate::tokens::AUDIENCES;

const PERSISTED: &str = "the limit is also for persisted documents in Starling";

pub(super) const RULES: &[Rule] = &[
    with(
        "cors",
        "cors.policies",
        "`\"*\"` never allows credentials; OPTIONS and HEAD are not listed",
        cors,
    ),
    with(
        "authentication.jwt",
        "authentication.jwt.issuers, authentication.jwt.header, authentication.jwt.sources, \
         authorization.scope_claims",
        AUDIENCES,
        super::tokens::jwt,
    ),
    with(
        "authentication.providers",
        "authentication.jwt.issuers, authentication.jwt.sources",
        AUDIENCES,
        super::tokens::providers,
    ),
    absent(
        "authentication.ignore_introspection",
        "`introspection.when` and `authentication.jwt.required` apply to all requests: let \
         tools send a token",
    ),
    same("authorization.require_authentication", "authentication.jwt.required", Form::Bool),
    same(
        "authorization.reject_operation_if_unauthorized",
        "authorization.mode",
        Form::Words(&[("true", "reject"), ("false", "filter")]),
    ),
    unneeded(
        "authorization.enable_pre_fetch_field_authorization",
        "fields are always authorized before anything is fetched",
    ),
    with(
        "security.block_mutations",
        "block.mutations",
        "conditions are translated to CEL",
        block_mutations,
    ),
    with(
        "security.block_subscriptions",
        "block.subscriptions",
        "conditions are translated to CEL",
        block_subscriptions,
    ),
    with(
        "security.block_non_persisted_operations",
        "persisted_documents.mode",
        "manifests must be listed, and conditions become `persisted_documents.exceptions`",
        block_non_persisted,
    ),
    absent(
        "security.block_persisted_operations",
        "leave `persisted_documents.manifests` out, and set `apq.enabled: false`",
    ),
    with("security.complexity_limits.depth", "limits.depth", PERSISTED, depth),
    with("security.complexity_limits.total_fields", "limits.selections", PERSISTED, total_fields),
    with("security.complexity_limits.root_fields", "limits.root_fields", PERSISTED, root_fields),
    with(
        "security.complexity_limits.root_field_aliases",
        "limits.aliases",
        "the aliases of all fields count",
        aliases,
    ),
    with("security.depth_limit", "limits.depth", PERSISTED, depth),
    with("security.complexity_limits.mode", "", "limits are always enforced", complexity_mode),
    absent("security.complexity_limits.ignore_introspection", "limits are also for introspection"),
    unneeded(
        "security.complexity_calculation_cache",
        "limits are part of preparing an operation, which is done once",
    ),
    unneeded(
        "security.parser_limits",
        "`limits.tokens`, `limits.depth` and `limits.selections` bound the parser",
    ),
    absent("security.operation_name_length_limit", "`limits.body` and `limits.tokens` bound texts"),
    with(
        "security.cost_control",
        "cost.mode, cost.max, cost.list_size, cost.expose",
        "",
        cost_control,
    ),
    with(
        "subgraph_error_propagation",
        "include_subgraph_errors.all, include_subgraph_errors.subgraph_names, \
         include_subgraph_errors.extensions",
        "errors are never wrapped in another one; `extensions.code` is always shown",
        errors,
    ),
    absent(
        "subgraph_extension_propagation",
        "members of `extensions` of responses of subgraphs do not reach clients",
    ),
];

fn cors(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    if let Some(enabled) = members.take("enabled") {
        if enabled.truth() == Some(false) {
            conversion.unneeded(setting, "it is turned off, as without `cors` in Starling");
            return;
        }
        conversion.done(&enabled, "cors.policies", "");
    }
    let origins = members.take("allow_origins");
    let patterns = members.take("match_origins");
    let methods = members.take("allow_methods");
    let headers = members.take("allow_headers");
    let credentials = members.take("allow_credentials");
    let age = members.take("max_age");
    members.finish(conversion);
    // The defaults there.
    let allows_credentials = match credentials.clone().filter(|it| !it.is_empty()) {
        None => Value::Bool(true),
        // What is neither true nor false allows none.
        given => conversion.optional(given, Form::Bool).unwrap_or(Value::Bool(false)),
    };
    let allow = conversion.optional(headers.clone(), Form::Texts);
    let max_age = conversion.optional(age.clone(), Form::Duration);
    let methods = methods.and_then(|it| methods_of(conversion, &it));
    for (setting, to) in
        [(headers, "allow_headers"), (credentials, "credentials"), (age, "max_age")]
    {
        if let Some(setting) = setting {
            conversion.done(&setting, &format!("cors.policies[].{to}"), "");
        }
    }
    let mut plain = Vec::new();
    let mut expressions = Vec::new();
    let mut allows_every = origins.is_none();
    for origin in origins.iter().flat_map(Setting::items) {
        match conversion.text(&origin) {
            Ok(text) if text == "*" => allows_every = true,
            Ok(text) if is_starling_origin(&text) => plain.push(text),
            Ok(text) => expressions.push(pattern_of_wildcards(&text)),
            Err(reason) => conversion.refuse(&origin, &reason, ""),
        }
    }
    for pattern in patterns.iter().flat_map(Setting::items) {
        match conversion.text(&pattern) {
            Ok(text) => expressions.push(whole_pattern(&text)),
            Err(reason) => conversion.refuse(&pattern, &reason, ""),
        }
    }
    let list = |texts: Vec<String>| (!texts.is_empty()).then(|| Value::texts(texts));
    let policy = |origins, patterns, credentials| {
        Value::map([
            ("origins", origins),
            ("match_origins", patterns),
            ("credentials", Some(credentials)),
            ("methods", methods.clone()),
            ("allow_headers", allow.clone()),
            ("max_age", max_age.clone()),
        ])
    };
    let path = ["cors".to_owned(), "policies".to_owned()];
    if let (Some(_), Some(patterns)) = (&origins, &patterns) {
        conversion.done(patterns, "cors.policies[].match_origins", "");
    }
    let reporter = origins.or(patterns).unwrap_or_else(|| setting.clone());
    if !plain.is_empty() || !expressions.is_empty() {
        let value = policy(list(plain), list(expressions), allows_credentials.clone());
        conversion.push(&reporter, &path, value, "");
    }
    if allows_every {
        let note = match allows_credentials {
            Value::Bool(false) => "",
            _ => "`\"*\"` never allows credentials in Starling: list the origins that need them",
        };
        let every = Some(Value::texts(["*"]));
        conversion.push(&reporter, &path, policy(every, None, Value::Bool(false)), note);
    }
}

/// True for origins that Starling takes as they are: without asterisks, or with one for all subdomains.
fn is_starling_origin(origin: &str) -> bool {
    let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.strip_prefix("*.").unwrap_or(rest).contains('*'))
}

fn block_mutations(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    block(conversion, setting, "mutations");
}

fn block_subscriptions(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    block(conversion, setting, "subscriptions");
}

fn block(conversion: &mut Conversion<'_>, setting: &Setting<'_>, key: &str) {
    if is_turned_off(setting) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let to = ["block".to_owned(), key.to_owned()];
    let Some(condition) = setting.member("condition").filter(|it| !it.is_empty()) else {
        conversion.write(setting, &to, Value::Bool(true), "");
        return;
    };
    match condition.text().and_then(from_expr_lang) {
        Some(written) => {
            let note = "translated to CEL: compare both";
            conversion.write(&condition, &to, Value::Text(written), note);
        }
        None => {
            conversion.put(setting, &format!("block.{key}"), Value::Bool(true));
            conversion.not_converted(
                &condition,
                &format!(
                    "the condition cannot be translated: write it in CEL, as `block.{key}` \
                     (docs/expressions.md). Until then all such operations are refused"
                ),
            );
        }
    }
}

fn block_non_persisted(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    if is_turned_off(setting) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    conversion.not_converted(
        setting,
        "list the manifests in `persisted_documents.manifests`, and set \
         `persisted_documents.mode: require_id`; a condition becomes one of \
         `persisted_documents.exceptions`",
    );
    conversion.refuse_operations(setting, "persisted documents are not set up yet");
}

fn depth(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    limit(conversion, setting, "depth", "");
}

fn total_fields(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    limit(conversion, setting, "selections", "");
}

fn root_fields(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    limit(conversion, setting, "root_fields", "");
}

fn aliases(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    limit(conversion, setting, "aliases", "the aliases of all fields count");
}

/// Converts a limit of the form `{enabled, limit, ignore_persisted_operations}`.
fn limit(conversion: &mut Conversion<'_>, setting: &Setting<'_>, key: &str, note: &str) {
    let mut members = Members::of(setting);
    let enabled = members.take("enabled");
    if !conversion.is_on(enabled.as_ref()) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let mode = conversion.root.descendant(&["security", "complexity_limits", "mode"]);
    let is_measured = mode.is_some_and(|it| it.text() == Some("measure"));
    if let Some(limit) = members.take("limit") {
        if is_measured {
            conversion.not_converted(&limit, "limits are always enforced: set it when it shall be");
        } else {
            conversion.set(&limit, &["limits".to_owned(), key.to_owned()], Form::Number, note);
        }
    }
    if let Some(ignores) = members.take("ignore_persisted_operations") {
        match ignores.may_be_on() {
            true => conversion.not_converted(&ignores, PERSISTED),
            false => conversion.unneeded(&ignores, PERSISTED),
        }
    }
    members.unneeded(
        conversion,
        "cache_size",
        "limits are part of preparing an operation, which is done once",
    );
    members.finish(conversion);
}

fn complexity_mode(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    match setting.text() {
        Some("enforce") => conversion.unneeded(setting, "limits are always enforced"),
        _ => conversion.not_converted(setting, "limits are always enforced: they are left out"),
    }
}

fn cost_control(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let enabled = members.take("enabled");
    if !conversion.is_on(enabled.as_ref()) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let cost = |key: &str| ["cost".to_owned(), key.to_owned()];
    match members.take("mode") {
        Some(mode) => {
            let words = Form::Words(&[("measure", "measure"), ("enforce", "enforce")]);
            conversion.set(&mode, &cost("mode"), words, "");
        }
        None => conversion.put(setting, "cost.mode", Value::text("measure")),
    }
    for (there, here) in [("max_estimated_limit", "max"), ("estimated_list_size", "list_size")] {
        match members.take(there) {
            Some(value) if value.text() == Some("0") => {
                conversion.unneeded(&value, "it is turned off");
            }
            Some(value) => conversion.set(&value, &cost(here), Form::Number, ""),
            None => {}
        }
    }
    if let Some(expose) = members.take("expose_headers") {
        crate::cost::expose_costs(conversion, &expose);
    }
    members.finish(conversion);
}

fn errors(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    if setting.member("enabled").is_some_and(|it| it.truth() == Some(false)) {
        conversion
            .unneeded(setting, "it is turned off: messages are hidden, as by default in Starling");
        return;
    }
    let mut members = Members::of(setting);
    let shows = match members.take("enabled") {
        None => Value::Bool(true),
        // What is neither true nor false shows nothing.
        enabled => conversion.optional(enabled, Form::Bool).unwrap_or(Value::Bool(false)),
    };
    let to = |key: &str| ["include_subgraph_errors".to_owned(), key.to_owned()];
    let note = "errors are never wrapped in another one; `extensions.code` is always shown";
    match members.take("mode") {
        Some(mode) => conversion.write(&mode, &to("all"), shows, note),
        None => conversion.put(setting, "include_subgraph_errors.all", shows),
    }
    if let Some(name) = members.take("attach_service_name") {
        let note = "it is for errors with a hidden message";
        conversion.set(&name, &to("subgraph_names"), Form::Bool, note);
    }
    let omits = members.take("omit_extensions");
    let hides_all = omits.as_ref().is_some_and(Setting::may_be_on);
    if let Some(omits) = omits {
        conversion.unneeded(&omits, "without a list, only `code` is shown");
    }
    if let Some(allowed) = members.take("allowed_extension_fields") {
        let keys: Vec<_> = allowed.texts().into_iter().filter(|it| *it != "code").collect();
        match keys.is_empty() || hides_all {
            true => conversion.unneeded(&allowed, "without a list, only `code` is shown"),
            false => conversion.write(&allowed, &to("extensions"), Value::texts(keys), ""),
        }
    }
    members.absent(
        conversion,
        "allow_all_extension_fields",
        "list the members in `include_subgraph_errors.extensions`",
    );
    members.absent(
        conversion,
        "propagate_status_codes",
        "statuses of subgraphs are in the log only",
    );
    members.absent(conversion, "allowed_fields", "errors have `message`, `path` and `extensions`");
    for name in ["rewrite_paths", "omit_locations"] {
        members.unneeded(
            conversion,
            name,
            "paths are always those of the client's operation, and locations are left out",
        );
    }
    members.unneeded(
        conversion,
        "default_extension_code",
        "docs/errors.md lists the codes of the router",
    );
    members.finish(conversion);
}
