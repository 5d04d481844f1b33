//! Headers, origins, tokens, authorization, errors and persisted queries of Apollo Router.

use crate::authorization;
use crate::aws;
use crate::conversion::{Conversion, Members, Refused};
use crate::form::Form;
use crate::headers;
use crate::origins;
use crate::rule::{Rule, absent, same, unneeded, with};
use crate::setting::Setting;
use crate::target::Value;
use crate::tokens::{self, AUDIENCES, Algorithms, Issuer, names};

pub(super) const RULES: &[Rule] = &[
    with(
        "headers.(all|subgraphs.<name>).request",
        "headers.(all|subgraphs.<name>).request",
        "`insert` from a context or a body has no counterpart",
        headers::convert_request,
    ),
    absent("headers.connector", "Starling has no connectors for REST"),
    with(
        "cors",
        "cors.policies",
        "credentials need listed origins; OPTIONS and HEAD are not listed",
        origins::convert,
    ),
    same("csrf.unsafe_disabled", "csrf.enabled", Form::Not),
    same("csrf.required_headers", "csrf.required_headers", Form::Texts),
    with(
        "authentication.router.jwt",
        "authentication.jwt.issuers, authentication.jwt.header, authentication.jwt.sources, \
         authentication.jwt.on_error",
        AUDIENCES,
        jwt,
    ),
    with(
        "authentication.subgraph.subgraphs.<name>.aws_sig_v4",
        "subgraphs.<name>.aws_sigv4",
        "roles cannot be assumed; without keys, those of the environment are used",
        aws::convert,
    ),
    absent(
        "authentication.subgraph.all",
        "Starling sets it for each subgraph: write `subgraphs.<name>.aws_sigv4`",
    ),
    absent("authentication.connector", "Starling has no connectors for REST"),
    same("authorization.require_authentication", "authentication.jwt.required", Form::Bool),
    with(
        "authorization.directives.enabled",
        "",
        "the directives always apply; they cannot be turned off",
        authorization::convert_switch,
    ),
    same("authorization.directives.dry_run", "authorization.dry_run", Form::Bool),
    with("authorization.directives.reject_unauthorized", "authorization.mode", "", reject),
    same(
        "authorization.directives.errors.response",
        "authorization.errors",
        Form::Words(&[("errors", "errors"), ("extensions", "extensions"), ("disabled", "none")]),
    ),
    unneeded("authorization.directives.errors.log", "refusals are counted in metrics"),
    unneeded("authorization.preview_directives", "the directives always apply"),
    with(
        "include_subgraph_errors",
        "include_subgraph_errors",
        "`extensions.code` is always shown; other members must be listed, for all subgraphs \
         together",
        subgraph_errors,
    ),
    with(
        "persisted_queries",
        "persisted_documents.mode, persisted_documents.manifests",
        "manifests are files or URLs; those of GraphOS must be fetched",
        persisted_queries,
    ),
    same("forbid_mutations", "block.mutations", Form::Bool),
];

fn reject(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mode = Form::Words(&[("true", "reject"), ("false", "filter")]);
    conversion.set(setting, &["authorization".to_owned(), "mode".to_owned()], mode, "");
}

fn jwt(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    for provider in members.take("jwks").iter().flat_map(Setting::items) {
        let mut own = Members::of(&provider);
        let keys = key_set(conversion, &mut own);
        let audiences = conversion.given(own.take("audiences"), Form::Texts);
        let algorithms = Algorithms::of(conversion, own.take("algorithms").as_ref());
        let names = names(conversion, &[own.take("issuer"), own.take("issuers")]);
        own.absent(conversion, "headers", "requests for key sets have no headers in Starling");
        own.unneeded(
            conversion,
            "retry",
            "key sets are read again after one second, then two, and so on",
        );
        own.finish(conversion);
        Issuer { names, audiences, algorithms, keys }.write(conversion, &provider);
    }
    let name = members.take("header_name");
    let prefix = members.take("header_value_prefix");
    let sources = members.take("sources");
    places(conversion, name.as_ref(), prefix.as_ref(), sources.as_ref());
    if let Some(error) = members.take("on_error") {
        let to = ["authentication", "jwt", "on_error"].map(str::to_owned);
        let words = Form::Words(&[("continue", "continue"), ("error", "reject")]);
        conversion.set(&error, &to, words, "");
    }
    members.absent(
        conversion,
        "ignore_other_prefixes",
        "a value with another prefix is refused: use a header of its own for other credentials",
    );
    members.finish(conversion);
}

/// Returns the key set of a provider.
fn key_set(
    conversion: &mut Conversion<'_>,
    members: &mut Members<'_>,
) -> Result<Option<(&'static str, Value)>, Refused> {
    let interval = conversion.optional(members.take("poll_interval"), Form::Duration);
    let Some(Value::Text(url)) = conversion.given(members.take("url"), Form::Text)? else {
        return Ok(None);
    };
    let place = match url.strip_prefix("file://") {
        Some(path) => ("file", Value::text(path)),
        None => ("url", Value::Text(url)),
    };
    Ok(Some(("jwks", Value::map([(place.0, Some(place.1)), ("refresh", interval)]))))
}

/// Converts the places of tokens: a header, or a list in which that header comes first.
fn places(
    conversion: &mut Conversion<'_>,
    name: Option<&Setting<'_>>,
    prefix: Option<&Setting<'_>>,
    sources: Option<&Setting<'_>>,
) {
    let header = |name: Option<Value>, prefix: Option<Value>| {
        Value::keyed("header", Value::map([("name", name), ("prefix", prefix)]))
    };
    let has_sources = sources.is_some_and(|it| !it.is_empty());
    let first_name = conversion.optional(name.cloned(), Form::Text).map(headers::lower_case);
    let first_prefix = prefix.and_then(|it| tokens::prefix(conversion, it).ok());
    // A prefix without a counterpart has been reported.
    let prefix = prefix.filter(|_| first_prefix.is_some());
    if !has_sources {
        for (key, setting, value) in [("name", name, first_name), ("prefix", prefix, first_prefix)]
        {
            if let (Some(setting), Some(value)) = (setting, value) {
                let to = ["authentication", "jwt", "header", key].map(str::to_owned);
                conversion.write(setting, &to, value, "");
            }
        }
        return;
    }
    let to = ["authentication", "jwt", "sources"].map(str::to_owned);
    if let Some(sources) = sources {
        let first = header(first_name, first_prefix);
        conversion.push(sources, &to, first, "");
        for setting in [name, prefix].into_iter().flatten() {
            conversion.done(setting, "authentication.jwt.sources[0].header", "");
        }
    }
    for source in sources.iter().flat_map(|it| it.items()) {
        let mut members = Members::of(&source);
        let kind = members.take("type");
        let name = conversion.optional(members.take("name"), Form::Text);
        let prefix = members.take("value_prefix");
        let prefix = prefix.and_then(|it| tokens::prefix(conversion, &it).ok());
        members.finish(conversion);
        let place = match kind.as_ref().and_then(Setting::text) {
            Some("cookie") => Value::keyed("cookie", Value::map([("name", name)])),
            _ => header(name.map(headers::lower_case), prefix),
        };
        conversion.push(&source, &to, place, "");
    }
}

fn subgraph_errors(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let section = "include_subgraph_errors".to_owned();
    let mut members = Members::of(setting);
    if let Some(all) = members.take("all") {
        let to = [section.clone(), "all".to_owned()];
        errors_of(conversion, &all, &to);
    }
    if let Some(subgraphs) = members.take("subgraphs") {
        for (name, subgraph) in subgraphs.members() {
            let to = [section.clone(), "subgraphs".to_owned(), name.to_owned()];
            errors_of(conversion, &subgraph, &to);
        }
    }
    members.finish(conversion);
}

/// Adds a member of `extensions` to those that clients see. `code` is one of them anyway.
pub(crate) fn show_extension(
    conversion: &mut Conversion<'_>,
    setting: &Setting<'_>,
    list: &[String],
) {
    if setting.text() == Some("code") {
        conversion.unneeded(setting, "`code` is always shown");
    } else if let Some(value) = conversion.optional(Some(setting.clone()), Form::Text) {
        conversion.push(setting, list, value, "the list is that of all subgraphs");
    }
}

/// Converts the errors of all subgraphs or of one: a truth value, or keys.
fn errors_of(conversion: &mut Conversion<'_>, setting: &Setting<'_>, to: &[String]) {
    if !setting.is_mapping() {
        conversion.set(setting, to, Form::Bool, "");
        return;
    }
    let mut members = Members::of(setting);
    let redacts = members.take("redact_message");
    let shows = !redacts.as_ref().is_some_and(Setting::may_be_on);
    conversion.write(redacts.as_ref().unwrap_or(setting), to, Value::Bool(shows), "");
    if let Some(allowed) = members.take("allow_extensions_keys") {
        let list = ["include_subgraph_errors".to_owned(), "extensions".to_owned()];
        for key in allowed.items() {
            show_extension(conversion, &key, &list);
        }
    }
    for name in ["deny_extensions_keys", "exclude_global_keys"] {
        members.absent(
            conversion,
            name,
            "only the members in `include_subgraph_errors.extensions` are shown",
        );
    }
    members.finish(conversion);
}

fn persisted_queries(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let enabled = members.take("enabled");
    let safelist = members.take("safelist");
    let unknown = members.take("log_unknown");
    let manifests =
        members.take("local_manifests").or_else(|| members.take("experimental_local_manifests"));
    members.unneeded(conversion, "hot_reload", "manifests are always watched");
    let warming = members
        .take("experimental_prewarm_query_plan_cache")
        .or_else(|| members.take("prewarm_query_plan_cache"));
    members.finish(conversion);
    if !conversion.is_on(enabled.as_ref()) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let list = ["persisted_documents", "manifests"].map(str::to_owned);
    let files: Vec<_> = manifests.iter().flat_map(Setting::items).collect();
    for file in &files {
        if let Some(path) = conversion.optional(Some(file.clone()), Form::Text) {
            conversion.push(file, &list, Value::map([("file", Some(path))]), "");
        }
    }
    let mut is_on = |name: &str| {
        let switch = safelist.as_ref().and_then(|it| it.member(name));
        conversion.is_on(switch.as_ref())
    };
    let mode = match (is_on("enabled"), is_on("require_id")) {
        (true, true) => "require_id",
        (true, false) => "require_known",
        _ if conversion.is_on(unknown.as_ref()) => "log_unknown",
        _ => "off",
    };
    if let (Some(_), Some(unknown)) = (&safelist, &unknown) {
        conversion.unneeded(unknown, "it is part of `persisted_documents.mode`");
    }
    let reporter = safelist.or(unknown).or(enabled).unwrap_or_else(|| setting.clone());
    if files.is_empty() {
        conversion.not_converted(
            &reporter,
            &format!(
                "the manifest of GraphOS is not fetched: save it as a file, list it in \
                 `persisted_documents.manifests`, and set `persisted_documents.mode: {mode}`"
            ),
        );
        if mode.starts_with("require") {
            conversion.refuse_operations(&reporter, "persisted documents are not set up yet");
        }
    } else {
        let to = ["persisted_documents", "mode"].map(str::to_owned);
        conversion.write(&reporter, &to, Value::text(mode), "");
    }
    if let Some(startup) = warming.as_ref().and_then(|it| it.member("on_startup")) {
        let to = ["warming", "persisted_documents"].map(str::to_owned);
        conversion.set(&startup, &to, Form::Bool, "");
    }
    if let Some(reload) = warming.as_ref().and_then(|it| it.member("on_reload")) {
        conversion.unneeded(&reload, "documents are prepared ahead for each graph");
    }
}
