//! The listener, the supergraph, pages, documents and WebSockets of Hive Router.

use crate::conversion::{Conversion, Members, source_of};
use crate::expression::{from_vrl, share_of_vrl};
use crate::form::Form;
use crate::rule::{Rule, absent, same, unneeded, with};
use crate::setting::Setting;
use crate::target::Value;
use crate::variables::has_reference;

const CDN: &str = "the CDN of Hive becomes a URL with its key in a header; a variable with an endpoint names one, \
                   without `/supergraph` at its end";

pub(super) const RULES: &[Rule] = &[
    with("http", "listen, path, workers", "paths with parameters have no counterpart", http),
    with(
        "supergraph",
        "supergraph.file, supergraph.url.urls, supergraph.url.headers, supergraph.url.refresh, \
         supergraph.url.timeout",
        CDN,
        supergraph,
    ),
    with(
        "override_subgraph_urls.<name>.url",
        "subgraphs.<name>.url",
        "a URL that depends on the request has no counterpart",
        subgraph_url,
    ),
    with(
        "override_labels.<name>",
        "override_labels.<name>",
        "`random_float` becomes a percentage; other expressions have no counterpart",
        label,
    ),
    with("introspection", "introspection", "expressions are translated to CEL", introspection),
    with("graphiql", "ide.enabled", "", page),
    with("laboratory", "ide.enabled", "GraphiQL in place of Laboratory, at `/`", page),
    with(
        "persisted_documents",
        "persisted_documents.mode, persisted_documents.manifests",
        "manifests of a CDN or a bucket must be fetched or served over HTTPS",
        persisted_documents,
    ),
    absent(
        "storages",
        "Starling reads files and URLs: let a job copy the objects, or serve the bucket over HTTPS",
    ),
    with(
        "subscriptions",
        "subgraphs.<name>.subscription, subscriptions.callback",
        "subscriptions are always on; settings are for each subgraph",
        subscriptions,
    ),
    with(
        "websocket",
        "websocket.init_payload_headers",
        "WebSockets are always on, at `path`",
        websocket,
    ),
    absent(
        "coprocessor",
        "Starling calls no coprocessors: expressions cover headers, conditions and limits \
         (docs/expressions.md), decision points cover policies (docs/field-authorization.md)",
    ),
    absent(
        "plugins",
        "Starling has no plugins: expressions (docs/expressions.md) and policies in Rego \
         (docs/field-authorization.md) cover the common ones",
    ),
    absent(
        "response_extensions",
        "`trace.enabled` shows the cost of a request to clients that ask for it",
    ),
    absent(
        "query_planner.allow_expose",
        "`starling plan` prints plans, and `trace.enabled` shows the requests of one operation",
    ),
    unneeded("query_planner.timeout", "`limits.time` covers planning, too"),
    same(
        "(log|log.service).level",
        "log.level",
        Form::Words(&[
            ("trace", "trace"),
            ("debug", "debug"),
            ("info", "info"),
            ("warn", "warn"),
            ("error", "error"),
        ]),
    ),
    same(
        "(log|log.service).format",
        "log.format",
        Form::Words(&[
            ("json", "json"),
            ("text", "text"),
            ("pretty-tree", "text"),
            ("pretty-compact", "text"),
        ]),
    ),
    absent("log.filter", "`STARLING_LOG` filters by the target of a line"),
    absent("log.log_internals", "`STARLING_LOG` filters by the target of a line"),
    with("log.correlation.id_header", "request_id.enabled, request_id.header", "", request_id),
    unneeded(
        "log.correlation.trace_propagation",
        "lines of the access log have the id of the trace while traces are on",
    ),
    absent("log.service.exporters", "the log goes to standard error"),
    absent(
        "log.access_log",
        "`access_log` is the counterpart, with fields of its own (docs/access-log.md)",
    ),
];

fn http(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let host = members.take("host");
    let port = members.take("port");
    if let Some(path) = members.take("graphql_endpoint") {
        if path.text() == Some("/") {
            conversion.put(&path, "ide.enabled", Value::Bool(false));
        }
        conversion.set(&path, &["path".to_owned()], Form::Text, "");
    }
    if let Some(workers) = members.take("workers") {
        conversion.set(&workers, &["workers".to_owned()], Form::Number, "");
    }
    members.finish(conversion);
    let text = |conversion: &Conversion<'_>, setting: &Option<Setting<'_>>, default: &str| {
        setting.as_ref().map_or_else(|| Ok(default.to_owned()), |it| conversion.text(it))
    };
    let Some(reporter) = host.clone().or_else(|| port.clone()) else { return };
    let parts = (text(conversion, &host, "0.0.0.0"), text(conversion, &port, "4000"));
    let (Ok(host_text), Ok(port_text)) = parts else {
        conversion.refuse(&reporter, "is no address", "write `listen: IP:PORT`");
        return;
    };
    let host_text = if host_text == "localhost" { "127.0.0.1".to_owned() } else { host_text };
    let host_text = if host_text.contains(':') { format!("[{host_text}]") } else { host_text };
    let address = Value::text(format!("{host_text}:{port_text}"));
    conversion.listener.address = Some((address, source_of(&reporter)));
    for setting in [host, port].into_iter().flatten() {
        conversion.done(&setting, "listen", "");
    }
}

fn supergraph(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let source = members.take("source");
    match source.as_ref().and_then(Setting::text) {
        None | Some("file") => {}
        Some("hive") => return supergraph_of_cdn(conversion, setting, members),
        Some(_) => {
            let advice = "let a job copy the supergraph into `supergraph.file`, or name its server in \
                          `supergraph.url` (docs/supergraph-delivery.md)";
            conversion.not_converted(setting, advice);
            return;
        }
    }
    if let Some(source) = source {
        conversion.done(&source, "supergraph.file", "");
    }
    if let Some(path) = members.take("path") {
        let to = ["supergraph".to_owned(), "file".to_owned()];
        conversion.set(&path, &to, Form::Text, "");
    }
    members.unneeded(conversion, "poll_interval", "the file is watched");
    members.finish(conversion);
}

/// Converts the CDN of Hive. Keys that are left out are variables there.
fn supergraph_of_cdn(
    conversion: &mut Conversion<'_>,
    setting: &Setting<'_>,
    mut members: Members<'_>,
) {
    let to = |key: &str| ["supergraph", "url", key].map(str::to_owned);
    let endpoint = members.take("endpoint");
    let key = members.take("key");
    let times =
        [(members.take("poll_interval"), "refresh"), (members.take("request_timeout"), "timeout")];
    members.unneeded(conversion, "connect_timeout", "`timeout` covers the whole request");
    members.unneeded(
        conversion,
        "retry_policy",
        "the next URL is tried at once, and all of them again after `refresh`",
    );
    members.absent(
        conversion,
        "accept_invalid_certs",
        "certificates are always verified: name the authority that has signed them in \
         `supergraph.url.ca`",
    );
    members.finish(conversion);

    let items = endpoint.iter().flat_map(Setting::items);
    let urls: Result<Vec<_>, _> = items.map(|it| conversion.given(Some(it), Form::Text)).collect();
    let header = conversion.given(key.clone(), Form::Text);
    let (Ok(urls), Ok(header)) = (urls, header) else {
        let advice = "write `supergraph.url` (docs/supergraph-delivery.md): half of the source \
                      cannot be read";
        conversion.not_converted(setting, advice);
        return;
    };
    let mut urls: Vec<_> = urls.into_iter().flatten().collect();
    if urls.is_empty() {
        urls.push(Value::text("${HIVE_CDN_ENDPOINT}"));
    }
    let has_variable = |it: &Value| matches!(it, Value::Text(url) if has_reference(url));
    let note = if urls.iter().any(has_variable) { CDN } else { "" };
    let urls = Value::List(urls.into_iter().map(artifact_url).collect());
    let header = header.unwrap_or_else(|| Value::text("${HIVE_CDN_KEY}"));
    let header =
        Value::map([("name", Some(Value::text("X-Hive-CDN-Key"))), ("value", Some(header))]);
    conversion.write(endpoint.as_ref().unwrap_or(setting), &to("urls"), urls, note);
    conversion.push(key.as_ref().unwrap_or(setting), &to("headers"), header, "");
    for (time, name) in times {
        if let Some(time) = time {
            conversion.set(&time, &to(name), Form::Duration, "");
        }
    }
}

/// Returns the URL of the supergraph at an endpoint, which may be that URL itself.
fn artifact_url(endpoint: Value) -> Value {
    match endpoint {
        Value::Text(url) if !url.ends_with("/supergraph") => {
            Value::Text(format!("{}/supergraph", url.trim_end_matches('/')))
        }
        other => other,
    }
}

fn subgraph_url(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let to = crate::conversion::with_names("subgraphs.<name>.url", &setting.names);
    match conversion.text(setting) {
        Ok(url) => conversion.write(setting, &to, Value::Text(url), ""),
        Err(reason) => conversion.refuse(
            setting,
            &reason,
            "a subgraph has one URL: let a proxy choose the server by the header",
        ),
    }
}

fn label(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let to = crate::conversion::with_names("override_labels.<name>", &setting.names);
    let Some(expression) = setting.member("expression") else {
        conversion.set(setting, &to, Form::Text, "");
        return;
    };
    match expression.text().and_then(share_of_vrl) {
        Some(share) => conversion.write(&expression, &to, Value::text(share), ""),
        None => conversion.refuse(
            &expression,
            "is an expression in VRL",
            "a label is on, off, or on for a percentage of requests",
        ),
    }
}

fn introspection(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let Some(expression) = setting.member("expression") else {
        conversion.set(setting, &["introspection".to_owned()], Form::Bool, "");
        return;
    };
    match expression.text().and_then(from_vrl) {
        Some(written) => {
            let to = ["introspection".to_owned(), "when".to_owned()];
            conversion.write(
                &expression,
                &to,
                Value::Text(written),
                "translated from VRL to CEL: compare both",
            );
        }
        None => {
            conversion.put(setting, "introspection", Value::Bool(false));
            let advice = "write it in CEL, as `introspection.when` (docs/expressions.md); \
                          introspection is off until then";
            conversion.refuse(&expression, "is an expression in VRL", advice);
        }
    }
}

fn page(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    if let Some(enabled) = members.take("enabled") {
        let is_at_root = conversion.root.descendant(&["http", "graphql_endpoint"]);
        match is_at_root.and_then(|it| it.text()) == Some("/") && enabled.may_be_on() {
            true => conversion.not_converted(
                &enabled,
                "the page is at `/`, where the endpoint is: choose another `path` to have both",
            ),
            false => {
                conversion.set(&enabled, &["ide".to_owned(), "enabled".to_owned()], Form::Bool, "");
            }
        }
    }
    for name in ["global_headers", "operations", "collections"] {
        members.absent(conversion, name, "the page begins empty");
    }
    members.finish(conversion);
}

fn persisted_documents(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let enabled = members.take("enabled");
    if !conversion.is_on(enabled.as_ref()) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    let require = members.take("require_id").filter(|it| conversion.is_on(Some(it)));
    let log = members.take("log_missing_id").filter(|it| conversion.is_on(Some(it)));
    let storage = members.take("storage");
    for name in ["selectors", "extractors"] {
        members.absent(
            conversion,
            name,
            "clients send ids in `documentId`, `id` or `extensions.persistedQuery` \
             (docs/persisted-documents.md)",
        );
    }
    members.finish(conversion);
    let mut has_manifest = false;
    if let Some(storage) = storage {
        let mut own = Members::of(&storage);
        let kind = own.take("type");
        if kind.as_ref().and_then(Setting::text) == Some("file") {
            if let Some(path) = own.take("path")
                && let Some(file) = conversion.optional(Some(path.clone()), Form::Text)
            {
                let to = ["persisted_documents", "manifests"].map(str::to_owned);
                conversion.push(&path, &to, Value::keyed("file", file), "");
                has_manifest = true;
            }
            own.unneeded(conversion, "watch", "manifests are always watched");
            own.finish(conversion);
        } else {
            let advice = "name the manifest as a file or a URL in `persisted_documents.manifests`: let a \
                          job fetch it, or serve the bucket over HTTPS";
            conversion.not_converted(&storage, advice);
        }
    }
    let mode = match (&require, &log) {
        (Some(_), _) => "require_id",
        (None, Some(_)) => "log_unknown",
        (None, None) => return,
    };
    let reporter = require.or(log).unwrap_or_else(|| setting.clone());
    let to = ["persisted_documents", "mode"].map(str::to_owned);
    match has_manifest {
        true => conversion.write(&reporter, &to, Value::text(mode), ""),
        false => {
            let advice = format!("set `persisted_documents.mode: {mode}` beside the manifests");
            conversion.not_converted(&reporter, &advice);
            if mode == "require_id" {
                conversion.refuse_operations(&reporter, "persisted documents are not set up yet");
            }
        }
    }
}

fn subscriptions(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    if let Some(enabled) = members.take("enabled") {
        crate::apollo::subscriptions_enabled(conversion, &enabled);
    }
    if let Some(callback) = members.take("callback") {
        let mut own = Members::of(&callback);
        let to = |key: &str| ["subscriptions", "callback", key].map(str::to_owned);
        if let Some(url) = own.take("public_url") {
            conversion.set(
                &url,
                &to("public_url"),
                Form::Text,
                "each router needs a URL of its own",
            );
        }
        if let Some(path) = own.take("path") {
            conversion.set(&path, &to("path"), Form::Text, "");
        }
        if let Some(interval) = own.take("heartbeat_interval") {
            conversion.set(&interval, &to("heartbeat_interval"), Form::Duration, "");
        }
        for name in own.take("subgraphs").iter().flat_map(Setting::items) {
            if let Some(subgraph) = name.text() {
                let to = ["subgraphs", subgraph, "subscription", "protocol"].map(str::to_owned);
                conversion.write(&name, &to, Value::text("callback"), "");
            }
        }
        own.finish(conversion);
    }
    if let Some(websocket) = members.take("websocket") {
        let mut own = Members::of(&websocket);
        own.absent(
            conversion,
            "all",
            "WebSockets are the default (`auto`); write a path as a whole URL for each subgraph: \
             `subgraphs.<name>.subscription.url`",
        );
        for (name, subgraph) in own.take("subgraphs").iter().flat_map(Setting::members) {
            websocket_of(conversion, name, &subgraph);
        }
        own.finish(conversion);
    }
    members.finish(conversion);
}

fn websocket_of(conversion: &mut Conversion<'_>, name: &str, setting: &Setting<'_>) {
    let to = |key: &str| ["subgraphs", name, "subscription", key].map(str::to_owned);
    let protocol = Value::text("graphql_transport_ws");
    conversion.write(setting, &to("protocol"), protocol, "");
    let mut members = Members::of(setting);
    if let Some(path) = members.take("path") {
        let url = conversion.root.descendant(&["override_subgraph_urls", name, "url"]);
        let url = url.and_then(|it| conversion.text(&it).ok());
        crate::apollo::subscription_path(conversion, &path, url, &to("url"));
    }
    members.finish(conversion);
}

fn websocket(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    if let Some(enabled) = members.take("enabled") {
        match enabled.truth() {
            Some(true) => conversion.unneeded(&enabled, "WebSockets are always on"),
            _ => conversion.not_converted(
                &enabled,
                "WebSockets are always on: `block.subscriptions` refuses subscriptions over all \
                 transports",
            ),
        }
    }
    if let Some(path) = members.take("path") {
        let main = conversion.root.descendant(&["http", "graphql_endpoint"]);
        let main = main.and_then(|it| it.text()).unwrap_or("/graphql");
        let advice = "WebSockets are at `path`, as all requests: change the clients, or let a proxy \
                      rewrite it";
        match path.text() == Some(main) {
            true => conversion.unneeded(&path, "WebSockets are at `path`"),
            false => conversion.not_converted(&path, advice),
        }
    }
    let advice = "list the headers that clients send in `connection_init` in \
                  `websocket.init_payload_headers`; tokens in its member `authorization` are verified \
                  anyway";
    if let Some(headers) = members.take("headers") {
        match headers.member("source").as_ref().and_then(Setting::text) {
            Some("none") => conversion.unneeded(&headers, "no header is accepted by default"),
            _ => conversion.not_converted(&headers, advice),
        }
    }
    for name in [
        "headers_in_connection_init_payload",
        "headers_in_operation_extensions",
        "merge_connection_init_payload_and_operation_extensions_headers",
    ] {
        members.absent(conversion, name, advice);
    }
    members.finish(conversion);
}

fn request_id(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    conversion.put(setting, "request_id.enabled", Value::Bool(true));
    conversion.set(setting, &["request_id".to_owned(), "header".to_owned()], Form::Text, "");
}
