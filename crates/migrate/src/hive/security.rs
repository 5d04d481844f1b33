//! Headers, origins, tokens, authorization, signatures, limits and errors of Hive Router.

use crate::authorization;
use crate::aws;
use crate::conversion::{Conversion, Members, Refused, is_turned_off};
use crate::cost;
use crate::form::Form;
use crate::headers;
use crate::origins;
use crate::rule::{Rule, absent, same, unneeded, with};
use crate::setting::Setting;
use crate::target::Value;
use crate::tokens::{self, AUDIENCES, Algorithms, Issuer};

pub(super) const RULES: &[Rule] = &[
    with(
        "headers.(all|subgraphs.<name>).request",
        "headers.(all|subgraphs.<name>).request",
        "expressions are translated from VRL to CEL where possible",
        headers::convert_request,
    ),
    with(
        "headers.(all|subgraphs.<name>).response",
        "headers.(all|subgraphs.<name>).response",
        "expressions are translated from VRL to CEL where possible",
        headers::convert_response,
    ),
    with(
        "cors",
        "cors.policies",
        "credentials need listed origins; OPTIONS and HEAD are not listed",
        origins::convert,
    ),
    same("csrf.enabled", "csrf.enabled", Form::Bool),
    same("csrf.required_headers", "csrf.required_headers", Form::Texts),
    with(
        "jwt",
        "authentication.jwt.required, authentication.jwt.issuers, authentication.jwt.sources, \
         authorization.scope_claims",
        AUDIENCES,
        jwt,
    ),
    with(
        "authorization.directives.enabled",
        "",
        "the directives always apply; they cannot be turned off",
        authorization::convert_switch,
    ),
    same(
        "authorization.directives.unauthorized.mode",
        "authorization.mode",
        Form::Words(&[("filter", "filter"), ("reject", "reject")]),
    ),
    absent(
        "authorization.policies",
        "`authorization.policies` decides by expressions, Rego or a decision point \
         (docs/field-authorization.md)",
    ),
    absent(
        "hmac_signature",
        "Starling signs the body for each subgraph, in a header: \
         `subgraphs.<name>.signature.hmac` (docs/subgraphs.md); subgraphs must verify the \
         header",
    ),
    with(
        "aws_sig_v4.subgraphs.<name>",
        "subgraphs.<name>.aws_sigv4",
        "roles cannot be assumed; without keys, those of the environment are used",
        aws_signature,
    ),
    absent(
        "aws_sig_v4.all",
        "Starling sets it for each subgraph: write `subgraphs.<name>.aws_sigv4`",
    ),
    same("limits.max_depth.n", "limits.depth", Form::Number),
    unneeded("limits.max_depth.flatten_fragments", "fragments are part of the depth"),
    unneeded(
        "limits.max_depth.(ignore_introspection|disable_introspection)",
        "limits are also for introspection",
    ),
    same("limits.max_tokens.n", "limits.tokens", Form::Number),
    same("limits.max_aliases.n", "limits.aliases", Form::Number),
    absent("limits.max_directives", "`limits.tokens` bounds texts"),
    unneeded("limits.(max_depth|max_tokens|max_aliases).expose_limits", "errors name the limit"),
    same("limits.max_request_body_size", "limits.body", Form::Size),
    with(
        "demand_control",
        "cost.mode, cost.max, cost.list_size, cost.expose, cost.subgraphs",
        "",
        cost::demand_control,
    ),
    with(
        "error_masking",
        "include_subgraph_errors.all, include_subgraph_errors.subgraphs, \
         include_subgraph_errors.extensions",
        "the fixed text cannot be changed; members of `extensions` are hidden unless they are \
         listed, for all subgraphs together",
        error_masking,
    ),
];

fn jwt(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    // Older versions had no switch.
    if members.take("enabled").is_some_and(|it| it.truth() == Some(false)) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let given = members.take("audiences");
    let audiences = conversion.given(given.clone(), Form::Texts);
    if let (Some(given), Ok(Some(_))) = (&given, &audiences) {
        conversion.done(given, "authentication.jwt.issuers[].audiences", "");
    }
    let names = members.take("issuers");
    let texts = tokens::names(conversion, std::slice::from_ref(&names));
    let allowed = members.take("allowed_algorithms");
    let algorithms = Algorithms::of(conversion, allowed.as_ref());
    for provider in members.take("jwks_providers").iter().flat_map(Setting::items) {
        let mut own = Members::of(&provider);
        own.take("source");
        let file = conversion.given(own.take("path").or_else(|| own.take("file")), Form::Text);
        let url = conversion.given(own.take("url"), Form::Text);
        let refresh = conversion.optional(own.take("polling_interval"), Form::Duration);
        own.unneeded(conversion, "prefetch", "key sets are read at the start");
        own.finish(conversion);
        let keys = match (url, file) {
            (Ok(None), Ok(None)) => Ok(None),
            (Ok(url), Ok(file)) => {
                let set = Value::map([("url", url), ("file", file), ("refresh", refresh)]);
                Ok(Some(("jwks", set)))
            }
            _ => Err(Refused),
        };
        let issuer = Issuer {
            names: texts.clone(),
            audiences: audiences.clone(),
            algorithms: algorithms.clone(),
            keys,
        };
        issuer.write(conversion, &provider);
    }
    if let Some(names) = names.filter(|_| texts.is_ok()) {
        conversion.done(&names, "authentication.jwt.issuers[].issuer", "");
    }
    let sources = ["authentication", "jwt", "sources"].map(str::to_owned);
    for place in members.take("lookup_locations").iter().flat_map(Setting::items) {
        let mut own = Members::of(&place);
        let source = own.take("source");
        let name = conversion.optional(own.take("name"), Form::Text);
        let prefix = match own.take("prefix") {
            Some(prefix) => tokens::prefix(conversion, &prefix).ok(),
            // Without a prefix, the whole value is the token.
            None => Some(Value::text("")),
        };
        own.finish(conversion);
        let value = match source.as_ref().and_then(Setting::text) {
            Some("cookies") => Value::keyed("cookie", Value::map([("name", name)])),
            _ => Value::keyed(
                "header",
                Value::map([("name", name.map(headers::lower_case)), ("prefix", prefix)]),
            ),
        };
        conversion.push(&place, &sources, value, "");
    }
    if let Some(required) = members.take("require_authentication") {
        let to = ["authentication", "jwt", "required"].map(str::to_owned);
        conversion.set(&required, &to, Form::Bool, "");
    }
    if let Some(scope) = members.take("scopes_claim") {
        let to = ["authorization".to_owned(), "scope_claims".to_owned()];
        conversion.set(&scope, &to, Form::Texts, "");
    }
    members.absent(
        conversion,
        "forward_claims_to_upstream_extensions",
        "rules set headers to claims: `headers.all.request: [{claim: {path, name}}]` \
         (docs/subgraphs.md)",
    );
    members.finish(conversion);
}

fn aws_signature(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    match is_turned_off(setting) {
        true => conversion.unneeded(setting, "it is empty or turned off"),
        false => aws::convert(conversion, setting),
    }
}

fn error_masking(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let section = "include_subgraph_errors".to_owned();
    let mut members = Members::of(setting);
    members.absent(
        conversion,
        "redacted_error_message",
        "the text is fixed; `include_subgraph_errors.rules[].message` replaces messages of \
         single errors",
    );
    if let Some(all) = members.take("all") {
        masking_of(conversion, &all, &[section.clone(), "all".to_owned()]);
    }
    for (name, subgraph) in members.take("subgraphs").iter().flat_map(Setting::members) {
        let to = [section.clone(), "subgraphs".to_owned(), name.to_owned()];
        masking_of(conversion, &subgraph, &to);
    }
    members.finish(conversion);
}

fn masking_of(conversion: &mut Conversion<'_>, setting: &Setting<'_>, to: &[String]) {
    let mut members = Members::of(setting);
    if let Some(masks) = members.take("error_message") {
        conversion.set(&masks, to, Form::Not, "");
    }
    let extensions = members.take("extensions");
    members.finish(conversion);
    let Some(extensions) = extensions else { return };
    let mode = extensions.member("mode");
    let keys = extensions.member("keys");
    let list = ["include_subgraph_errors".to_owned(), "extensions".to_owned()];
    match mode.as_ref().and_then(Setting::text) {
        Some("allow") => {
            let keys: Vec<_> = keys.iter().flat_map(Setting::items).collect();
            if keys.is_empty() {
                conversion.unneeded(&extensions, "without a list, only `code` is shown");
            }
            for key in keys {
                crate::apollo::show_extension(conversion, &key, &list);
            }
        }
        _ => conversion.not_converted(
            &extensions,
            "list the members that clients see in `include_subgraph_errors.extensions`: all others \
             are hidden",
        ),
    }
}
