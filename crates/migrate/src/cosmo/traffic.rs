//! Timeouts, retries, circuit breakers, WebSockets, limits of rates and the engine of Cosmo Router.

use std::time::Duration;

use crate::apollo::traffic_path;
use crate::conversion::{Conversion, Members, is_turned_off};
use crate::expression::{claim, from_expr_lang, header};
use crate::form::Form;
use crate::quantity::parse_duration;
use crate::redis::servers_of;
use crate::rule::{Rule, absent, changed, same, unneeded, with};
use crate::setting::Setting;
use crate::target::Value;

const WINDOW: &str = "the window is ten seconds; one request at a time is tried, and three in a row \
                      close the breaker";

const RATE: &str = "Starling limits operations of clients, Cosmo Router requests to subgraphs: compare the \
                    numbers";

/// The longest wait before a repetition by default in Starling (`traffic.all.retry.max`).
const RETRY_WAIT_MAX_DEFAULT: Duration = Duration::from_millis(500);

pub(super) const RULES: &[Rule] = &[
    same("traffic_shaping.router.max_request_body_size", "limits.body", Form::Size),
    with("traffic_shaping.router.max_header_bytes", "http.max_header_size", "", header_size),
    unneeded(
        "traffic_shaping.router.decompression_enabled",
        "bodies of requests may always be compressed",
    ),
    same(
        "traffic_shaping.router.response_compression_min_size",
        "http.compression.min_size",
        Form::Size,
    ),
    with(
        "traffic_shaping.(all|subgraphs.<name>).request_timeout",
        "traffic.(all|subgraphs.<name>).timeout",
        "",
        request_timeout,
    ),
    with(
        "traffic_shaping.(all|subgraphs.<name>).dial_timeout",
        "traffic.(all|subgraphs.<name>).connect_timeout",
        "",
        dial_timeout,
    ),
    with(
        "traffic_shaping.(all|subgraphs.<name>).keep_alive_idle_timeout",
        "traffic.(all|subgraphs.<name>).idle_timeout",
        "",
        idle_timeout,
    ),
    unneeded(
        "traffic_shaping.(all|subgraphs.<name>).tls_handshake_timeout",
        "`connect_timeout` covers the handshake",
    ),
    unneeded(
        "traffic_shaping.(all|subgraphs.<name>).response_header_timeout",
        "`timeout` covers it",
    ),
    unneeded(
        "traffic_shaping.(all|subgraphs.<name>).expect_continue_timeout",
        "requests do not wait for `100 Continue`",
    ),
    unneeded(
        "traffic_shaping.(all|subgraphs.<name>).keep_alive_probe_interval",
        "`idle_timeout` closes unused connections",
    ),
    same(
        "traffic_shaping.(all|subgraphs.<name>).max_conns_per_host",
        "traffic.(all|subgraphs.<name>).max_connections",
        Form::Number,
    ),
    unneeded(
        "traffic_shaping.(all|subgraphs.<name>).max_idle_conns",
        "`idle_timeout` closes unused connections",
    ),
    unneeded(
        "traffic_shaping.(all|subgraphs.<name>).max_idle_conns_per_host",
        "`idle_timeout` closes unused connections",
    ),
    with(
        "traffic_shaping.(all|subgraphs.<name>).retry",
        "traffic.(all|subgraphs.<name>).retry.retries, traffic.(all|\
         subgraphs.<name>).retry.initial, traffic.(all|subgraphs.<name>).retry.max",
        "`timeout` covers all attempts; the statuses are 502, 503 and 504",
        retry,
    ),
    with(
        "traffic_shaping.(all|subgraphs.<name>).circuit_breaker",
        "traffic.(all|subgraphs.<name>).circuit_breaker",
        "the window is ten seconds, and three requests in a row close the breaker",
        circuit_breaker,
    ),
    with("websocket.enabled", "block.subscriptions", "WebSockets are always on", websocket_enabled),
    absent(
        "websocket.absinthe_protocol",
        "clients need `graphql-transport-ws` or `graphql-ws`, at `path`",
    ),
    with(
        "websocket.forward_initial_payload",
        "websocket.init_payload_headers",
        "headers of the payload count as those of the request if they are listed; rules \
         (`headers`) forward them",
        forward_payload,
    ),
    with(
        "websocket.forward_upgrade_headers",
        "headers.all.request",
        "rules (`headers`) forward headers of the handshake",
        forward_headers,
    ),
    absent(
        "websocket.forward_upgrade_query_params",
        "the query of the handshake does not reach subgraphs: let clients send headers or \
         `connection_init`",
    ),
    with(
        "websocket.authentication",
        "authentication.jwt.init_payload",
        "",
        websocket_authentication,
    ),
    with(
        "websocket.client_info_from_initial_payload",
        "websocket.init_payload_headers",
        "",
        client_info,
    ),
    with(
        "rate_limit",
        "rate_limits[].rate, rate_limits[].burst, rate_limits[].per, rate_limits[].key, \
         rate_limits[].store, storage_providers.redis",
        RATE,
        rate_limit,
    ),
    same("engine.enable_single_flight", "sharing.subgraph_queries", Form::Bool),
    same("engine.enable_inbound_request_deduplication", "sharing.operations", Form::Bool),
    unneeded(
        "engine.(force_enable_single_flight|force_enable_inbound_request_deduplication)",
        "work is shared by what a subgraph could tell apart, headers included",
    ),
    same("engine.enable_multi_fetch", "traffic.all.batching", Form::Bool),
    changed(
        "engine.execution_plan_cache_size",
        "limits.prepared_operations",
        Form::Number,
        "at least 128",
    ),
    absent(
        "engine.enable_request_tracing",
        "`trace.enabled` shows the cost of a request to clients that send `starling-trace: 1`",
    ),
    absent(
        "engine.(websocket_client_ping_interval|websocket_client_ping_timeout|\
         websocket_client_ack_timeout|websocket_client_read_limit)",
        "Starling sets it for each subgraph: `subgraphs.<name>.subscription` has \
         `ping_interval`, `ack_timeout` and `max_message_size`",
    ),
    absent(
        "engine.enable_subgraph_fetch_operation_name",
        "requests to subgraphs have no names of operations",
    ),
    absent("engine.enable_defer", "Starling does not serve `@defer`"),
    absent(
        "engine.validate_inline_arguments",
        "there is no such check; values in texts do not make further plans",
    ),
    absent("engine.enable_require_fetch_reasons", "requests to subgraphs have no reasons"),
    absent(
        "engine.allow_string_literals_for_enums",
        "texts for enum values are refused, as the specification says",
    ),
    unneeded("engine.debug", "`starling plan` prints plans; `log.level: debug` shows details"),
    unneeded(
        "engine.(enable_execution_plan_cache_response_header|max_concurrent_resolvers|\
         enable_net_poll|websocket_client_poll_timeout|websocket_client_conn_buffer_size|\
         websocket_client_read_timeout|websocket_client_write_timeout|\
         websocket_client_frame_timeout|websocket_server_read_timeout|\
         websocket_server_write_timeout|websocket_server_poll_timeout|\
         websocket_server_conn_buffer_size|sse_server_write_timeout|\
         resolver_max_recyclable_parser_size|slow_plan_cache_size|slow_plan_cache_threshold|\
         minify_subgraph_operations|enable_persisted_operations_cache|\
         enable_normalization_cache|normalization_cache_size|operation_hash_cache_size|\
         parsekit_pool_size|enable_validation_cache|validation_cache_size|\
         disable_exposing_variables_content_on_validation_error|disable_variables_remapping|\
         validate_required_external_fields|subscription_fetch_timeout|enable_schedule_fetches|\
         relax_subgraph_operation_field_selection_merging_nullability|\
         enable_websocket_epoll_kqueue|epoll_kqueue_poll_timeout|epoll_kqueue_conn_buffer_size|\
         websocket_read_timeout)",
        "it tunes another engine",
    ),
];

/// Converts a duration of which zero means none.
fn duration(conversion: &mut Conversion<'_>, setting: &Setting<'_>, key: &str) {
    let is_zero = setting.text().is_some_and(|it| parse_duration(it) == Ok(Duration::ZERO));
    match is_zero || setting.is_empty() {
        true => conversion.unneeded(setting, "it is turned off: the default of Starling applies"),
        false => conversion.set(setting, &traffic_path(setting, key), Form::Duration, ""),
    }
}

fn request_timeout(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    duration(conversion, setting, "timeout");
}

fn dial_timeout(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    duration(conversion, setting, "connect_timeout");
}

fn idle_timeout(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    duration(conversion, setting, "idle_timeout");
}

fn header_size(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let bytes = setting.text().and_then(|it| crate::quantity::parse_size(it).ok());
    match bytes {
        Some(0) => conversion.unneeded(setting, "it is the default of another HTTP library"),
        _ => {
            let to = ["http".to_owned(), "max_header_size".to_owned()];
            conversion.set(setting, &to, Form::Size, "");
        }
    }
}

fn retry(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let to = |key: &str| traffic_path(setting, &format!("retry.{key}"));
    let mut members = Members::of(setting);
    let enabled = members.take("enabled");
    if let Some(enabled) = enabled.filter(|it| it.truth() == Some(false)) {
        conversion.write(&enabled, &to("retries"), Value::number(0), "");
        return;
    }
    if let Some(attempts) = members.take("max_attempts") {
        let note = "`timeout` covers all attempts; the statuses are 502, 503 and 504";
        conversion.set(&attempts, &to("retries"), Form::Number, note);
    }
    let interval = members.take("interval");
    let longest = members.take("max_duration");
    let wait =
        |it: &Option<Setting<'_>>| it.as_ref().and_then(|it| parse_duration(it.text()?).ok());
    let (first, last) = (wait(&interval), wait(&longest));
    if let Some(interval) = interval {
        conversion.set(&interval, &to("initial"), Form::Duration, "");
        // The longest wait may not be below the first one.
        if longest.is_none()
            && let Some(first) = first.filter(|it| *it > RETRY_WAIT_MAX_DEFAULT)
        {
            let scope = if setting.names.is_empty() { "all" } else { "subgraphs.<name>" };
            let longest = Value::text(config::print_duration(first));
            conversion.put(setting, &format!("traffic.{scope}.retry.max"), longest);
        }
    }
    if let Some(longest) = longest {
        match first.zip(last).is_some_and(|(first, last)| first > last) {
            true => conversion.unneeded(&longest, "it is shorter than the first wait"),
            false => conversion.set(&longest, &to("max"), Form::Duration, ""),
        }
    }
    members.unneeded(conversion, "algorithm", "waits always double, and are shortened at random");
    let condition = members.take("condition").or_else(|| members.take("expression"));
    members.finish(conversion);
    if let Some(condition) = condition {
        let advice = "failed connections and the statuses 502, 503 and 504 are retried, and \
                      nothing else";
        match condition.text() {
            Some("IsRetryableStatusCode() || IsConnectionError() || IsTimeout()") => {
                conversion.unneeded(&condition, "it is the default there");
            }
            _ => conversion.not_converted(&condition, advice),
        }
    }
}

fn circuit_breaker(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let to = |key: &str| traffic_path(setting, &format!("circuit_breaker.{key}"));
    let mut members = Members::of(setting);
    let forms = [
        ("enabled", "enabled", Form::Bool),
        ("error_threshold_percentage", "failure_percent", Form::Percent),
        ("request_threshold", "min_requests", Form::Number),
        ("sleep_window", "open_for", Form::Duration),
    ];
    for (there, here, form) in forms {
        if let Some(value) = members.take(there) {
            conversion.set(&value, &to(here), form, "");
        }
    }
    for name in [
        "half_open_attempts",
        "required_successful",
        "rolling_duration",
        "num_buckets",
        "execution_timeout",
    ] {
        members.unneeded(conversion, name, WINDOW);
    }
    if let Some(most) = members.take("max_concurrent_requests") {
        match most.text() {
            Some("-1") => conversion.unneeded(&most, "it is turned off"),
            _ => conversion.not_converted(
                &most,
                "`max_connections` and `max_waiting` bound the requests to a subgraph",
            ),
        }
    }
    members.finish(conversion);
}

fn websocket_enabled(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    match setting.truth() {
        Some(true) => conversion.unneeded(setting, "WebSockets are always on"),
        _ => conversion.not_converted(
            setting,
            "WebSockets are always on: `block.subscriptions` refuses subscriptions over all \
             transports",
        ),
    }
}

fn forward_payload(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    match is_turned_off(setting) {
        true => conversion.unneeded(setting, "payloads are not forwarded as a whole"),
        false => conversion.not_converted(
            setting,
            "list the headers that clients send in payloads in `websocket.init_payload_headers`; \
             rules (`headers`) forward them, and subgraphs get them in `connection_init`",
        ),
    }
}

fn forward_headers(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    if is_turned_off(setting) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let mut members = Members::of(setting);
    members.take("enabled");
    let names = members.take("allow_list");
    members.finish(conversion);
    let Some(names) = names.filter(|it| !it.is_empty()) else {
        conversion.not_converted(
            setting,
            "list the headers in `headers.all.request`: `propagate: {named: …}`",
        );
        return;
    };
    let to = ["headers", "all", "request"].map(str::to_owned);
    for name in names.items() {
        let Some(header) = conversion.optional(Some(name.clone()), Form::Text) else { continue };
        let rule =
            Value::keyed("propagate", Value::keyed("named", crate::headers::lower_case(header)));
        let note = "the rule is for requests over HTTP, too";
        conversion.push(&name, &to, rule, note);
    }
}

fn websocket_authentication(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let Some(payload) = setting.member("from_initial_payload") else {
        conversion.unneeded(setting, "it is empty");
        return;
    };
    if is_turned_off(&payload) || payload.member("enabled").is_none() {
        conversion.unneeded(
            &payload,
            "it is turned off; tokens in the member `authorization` are verified anyway",
        );
        return;
    }
    let mut members = Members::of(&payload);
    members.take("enabled");
    if let Some(key) = members.take("key") {
        let to = ["authentication", "jwt", "init_payload"].map(str::to_owned);
        conversion.set(&key, &to, Form::Texts, "");
    }
    members.unneeded(
        conversion,
        "export_token",
        "a verified token counts as the header of the request: rules (`headers`) forward it",
    );
    members.finish(conversion);
}

fn client_info(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    if is_turned_off(setting) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let mut members = Members::of(setting);
    members.take("enabled");
    let to = ["websocket".to_owned(), "init_payload_headers".to_owned()];
    for name in ["name_field", "version_field"] {
        if let Some(field) = members.take(name)
            && let Some(value) = conversion.optional(Some(field.clone()), Form::Text)
        {
            conversion.push(&field, &to, crate::headers::lower_case(value), "");
        }
    }
    members.unneeded(
        conversion,
        "forward_to_request_headers",
        "members of the payload count as headers of the same name: rules (`headers`) rename them",
    );
    members.finish(conversion);
}

fn rate_limit(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let enabled = members.take("enabled");
    if !conversion.is_on(enabled.as_ref()) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let simple = members.take("simple_strategy");
    let storage = members.take("storage");
    let suffix = members.take("key_suffix_expression").filter(|it| !it.is_empty());
    let excludes = members.take("exclude_subscriptions");
    members.unneeded(conversion, "strategy", "there is one strategy");
    members.unneeded(conversion, "debug", "`/metrics` counts what limits admit and refuse");
    members.unneeded(conversion, "error_extension_code", "the code is `RATE_LIMITED`");
    members.finish(conversion);

    let store = storage.as_ref().and_then(|storage| store_of(conversion, storage));
    let key = match &suffix {
        None => None,
        Some(suffix) => {
            let text = suffix.text().unwrap_or_default();
            // A key may be null: such operations are not limited.
            let whole = claim(text)
                .map(|path| {
                    path.split('.').fold("claims".to_owned(), |all, name| format!("{all}.?{name}"))
                })
                .or_else(|| header(text).map(|name| format!("request.headers[?\"{name}\"]")));
            let key = whole.or_else(|| from_expr_lang(text));
            match &key {
                Some(_) => {
                    conversion.done(suffix, "rate_limits[].key", "translated to CEL: compare both");
                }
                None => conversion.not_converted(
                    suffix,
                    "the expression cannot be translated: write it in CEL, as `rate_limits[].key` \
                     (docs/expressions.md). Until then all clients share the rate",
                ),
            }
            key
        }
    };
    let mut when = None;
    match excludes.as_ref().map(|it| (it, it.truth())) {
        None | Some((_, Some(false))) => {}
        Some((excludes, Some(true))) => {
            conversion.done(excludes, "rate_limits[].when", "");
            when = Some(Value::text("operation.kind != 'subscription'"));
        }
        Some((excludes, None)) => conversion.refuse(
            excludes,
            "is neither true nor false",
            "subscriptions count: `rate_limits[].when` may exclude them",
        ),
    }
    let Some(simple) = simple else { return };
    let mut own = Members::of(&simple);
    let rate = conversion.optional(own.take("rate"), Form::Number);
    let burst = conversion.optional(own.take("burst"), Form::Number);
    let per = conversion.optional(own.take("period"), Form::Duration);
    own.unneeded(conversion, "reject_exceeding_requests", "an operation is refused as a whole");
    own.unneeded(conversion, "reject_status_code", "the status is 429");
    own.unneeded(
        conversion,
        "hide_stats_from_response_extension",
        "the state is in headers: `ratelimit` and `ratelimit-policy`",
    );
    own.absent(
        conversion,
        "overrides",
        "write a limit for each, with a condition: `rate_limits[].when`",
    );
    own.finish(conversion);
    let limit = Value::map([
        ("name", Some(Value::text("operations"))),
        ("key", key.map(Value::Text)),
        ("when", when),
        ("rate", rate),
        ("burst", burst),
        ("per", per),
        ("store", store),
    ]);
    conversion.push(&simple, &["rate_limits".to_owned()], limit, RATE);
}

/// Adds the Redis of the rate limit as a provider, and returns its id.
fn store_of(conversion: &mut Conversion<'_>, setting: &Setting<'_>) -> Option<Value> {
    let mut members = Members::of(setting);
    let urls =
        members.take("urls").or_else(|| members.take("url")).or_else(|| members.take("addr"));
    let password = conversion.optional(members.take("password"), Form::Text);
    let cluster = conversion.optional(members.take("cluster_enabled"), Form::Bool);
    let prefix = conversion.optional(members.take("key_prefix"), Form::Text);
    members.finish(conversion);
    let urls = urls?;
    match servers_of(conversion, &urls) {
        Ok(servers) => {
            let note = servers.note();
            let authentication = password.map(|it| Value::keyed("password", it));
            let further = prefix.map(|it| ("namespace".to_owned(), it)).into_iter().collect();
            let provider = servers.into_provider("rate-limit", cluster, authentication, further);
            let to = ["storage_providers".to_owned(), "redis".to_owned()];
            conversion.push(setting, &to, provider, note);
            Some(Value::text("rate-limit"))
        }
        Err(reason) => {
            conversion.refuse(&urls, &reason, "each router counts by itself until then");
            None
        }
    }
}
