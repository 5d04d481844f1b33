//! The listener, paths, pages, certificates, limits of requests, logs and uploads of Cosmo Router.

use crate::apollo::file_size;
use crate::conversion::{Conversion, Members, is_turned_off, source_of};
use crate::expression::from_expr_lang;
use crate::form::Form;
use crate::listener_tls::{self, client_certificates, named_file};
use crate::rule::{Rule, absent, changed, same, unneeded, with};
use crate::setting::Setting;
use crate::target::Value;

const PROBES: &str = "health checks are on the admin listener (`admin.listen`): `/health/live` and \
                      `/health/ready`; change the probes";
const COMPOSE: &str = "Starling serves a supergraph in SDL: compose it of the same subgraphs by `starling \
                       compose`, or name their list in `supergraph.compose` (docs/composition.md)";
const NO_STUDIO: &str = "Starling has no control plane";

/// The keys that say where Cosmo Router gets its execution configuration.
pub(super) const SOURCES: [&str; 5] =
    ["graph", "cdn", "execution_config", "router_config_path", "split_config_poller"];

pub(super) const RULES: &[Rule] = &[
    unneeded("version", "there is one version of the format"),
    with("listen_addr", "listen", "", listen),
    same("graphql_path", "path", Form::Text),
    absent("graph", COMPOSE),
    absent("cdn", COMPOSE),
    absent("execution_config", COMPOSE),
    absent("router_config_path", COMPOSE),
    absent("config_path", COMPOSE),
    absent("split_config_poller", COMPOSE),
    unneeded("controlplane_url", NO_STUDIO),
    unneeded("router_registration", NO_STUDIO),
    unneeded(
        "cluster",
        "the name is only for Studio; `tracing.resource` has attributes of the router",
    ),
    unneeded(
        "poll_interval",
        "files are watched; `supergraph.poll_interval` is for subgraphs that are asked for \
         their schemas",
    ),
    unneeded("poll_jitter", "files are watched"),
    unneeded("watch_config", "the supergraph is watched; the configuration is read at the start"),
    with("playground_enabled", "ide.enabled", "GraphiQL, at `/`", playground_enabled),
    absent("playground_path", "the page is at `/`"),
    with("playground", "ide.enabled", "GraphiQL, at `/`", playground),
    same("introspection_enabled", "introspection", Form::Bool),
    same("introspection.enabled", "introspection.enabled", Form::Bool),
    absent(
        "introspection.secret",
        "`introspection.when` is the condition for introspection; it may read claims",
    ),
    absent(
        "query_plans_enabled",
        "`starling plan` prints plans, and `trace.enabled` shows the requests of one operation",
    ),
    same(
        "log_level",
        "log.level",
        Form::Words(&[
            ("debug", "debug"),
            ("info", "info"),
            ("warn", "warn"),
            ("warning", "warn"),
            ("error", "error"),
            ("panic", "error"),
            ("fatal", "error"),
        ]),
    ),
    same("json_log", "log.format", Form::Words(&[("true", "json"), ("false", "text")])),
    absent(
        "log_service_name",
        "lines of the log have no name of a service: let the collector add it",
    ),
    changed(
        "shutdown_delay",
        "subscriptions.drain_period",
        Form::Duration,
        "`shutdown.delay` goes before it: 5 seconds in which load balancers notice",
    ),
    unneeded("grace_period", "a replaced graph ends with its last request"),
    with("health_check_path", "", PROBES, probe),
    with("readiness_check_path", "", PROBES, probe),
    with("liveness_check_path", "", PROBES, probe),
    absent(
        "localhost_fallback_inside_docker",
        "write `host.docker.internal` in the URLs of subgraphs",
    ),
    absent("dev_mode", "`starling dev` composes and serves on this machine"),
    absent("demo_mode", "`starling demo` is a complete example"),
    changed(
        "instance_id",
        "events.instance",
        Form::Text,
        "it names the router among those that share a broker; each needs its own",
    ),
    absent(
        "modules",
        "Starling has no modules: expressions (docs/expressions.md) and policies in Rego \
         (docs/field-authorization.md) cover the common ones",
    ),
    absent("plugins", "Starling has no plugins over gRPC: put a GraphQL service in their place"),
    absent("(mcp|connect_rpc)", "Starling serves GraphQL only"),
    with(
        "tls.server",
        "listen[].tls.cert, listen[].tls.key, listen[].tls.client_ca",
        "a `client_ca` always requires certificates",
        server_tls,
    ),
    absent(
        "tls.client.all",
        "Starling sets it for each subgraph: repeat it below `subgraphs.<name>.tls`",
    ),
    with(
        "tls.client.subgraphs.<name>",
        "subgraphs.<name>.tls.ca, subgraphs.<name>.tls.certificate, subgraphs.<name>.tls.key",
        "certificates are always verified",
        subgraph_tls,
    ),
    absent("tls.client_grpc", "Starling has no subgraphs over gRPC"),
    with(
        "access_logs",
        "access_log.enabled, access_log.file, access_log.fields",
        "lines have fields of their own (docs/access-log.md)",
        access_logs,
    ),
    with(
        "compliance",
        "",
        "lines of the access log contain the address of the peer, which is that of a load \
         balancer if there is one",
        compliance,
    ),
    with(
        "file_upload",
        "uploads.enabled, uploads.max_files, uploads.max_file_bytes",
        "requests with files need a header of `csrf.required_headers`",
        uploads,
    ),
    same("batching.enabled", "http.batching.enabled", Form::Bool),
    same("batching.max_entries_per_batch", "http.batching.max_operations", Form::Number),
    unneeded(
        "batching.max_concurrency",
        "queries of a batch run concurrently within the limits of all requests",
    ),
    unneeded("batching.omit_extensions", "members of `extensions` are those of single responses"),
    with("client_header.name", "client_info.name_headers", "", client_name),
    with("client_header.version", "client_info.version_headers", "", client_version),
    absent(
        "(apollo_compatibility_flags|apollo_router_compatibility_flags)",
        "docs/errors.md lists the codes of errors: compare what clients read",
    ),
    same("override_routing_url.subgraphs.<name>", "subgraphs.<name>.url", Form::Text),
    same("overrides.subgraphs.<name>.routing_url", "subgraphs.<name>.url", Form::Text),
    with(
        "overrides.subgraphs.<name>.subscription_url",
        "subgraphs.<name>.subscription.url",
        "",
        subscription_url,
    ),
    with(
        "overrides.subgraphs.<name>.subscription_protocol",
        "subgraphs.<name>.subscription.protocol",
        "",
        subscription_protocol,
    ),
    with(
        "overrides.subgraphs.<name>.subscription_websocket_subprotocol",
        "subgraphs.<name>.subscription.protocol",
        "",
        subprotocol,
    ),
];

fn listen(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    match conversion.value(setting, Form::Address) {
        Ok(address) => {
            conversion.listener.address = Some((address, source_of(setting)));
            conversion.done(setting, "listen", "");
        }
        Err(reason) => conversion.refuse(setting, &reason, "write an IP address and a port"),
    }
}

/// Converts the path of a probe, which cannot be changed. The default paths exist, on another listener.
fn probe(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    conversion.not_converted(setting, PROBES);
}

fn playground_enabled(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    if conversion.root.descendant(&["playground", "enabled"]).is_some() {
        conversion.unneeded(setting, "`playground.enabled` goes before it");
        return;
    }
    conversion.set(setting, &["ide".to_owned(), "enabled".to_owned()], Form::Bool, "");
}

fn playground(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    if let Some(enabled) = members.take("enabled") {
        conversion.set(&enabled, &["ide".to_owned(), "enabled".to_owned()], Form::Bool, "");
    }
    if let Some(path) = members.take("path") {
        match path.text() {
            Some("/") => conversion.unneeded(&path, "the page is at `/`"),
            _ => conversion.not_converted(&path, "the page is at `/`"),
        }
    }
    members.unneeded(conversion, "concurrency_limit", "the page is one response");
    members.finish(conversion);
}

fn server_tls(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let enabled = members.take("enabled");
    if !conversion.is_on(enabled.as_ref()) {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    if let Some(enabled) = enabled.filter(|it| it.truth() == Some(true)) {
        conversion.unneeded(&enabled, "the files turn TLS on");
    }
    let certificate = named_file(conversion, members.take("cert_file"));
    let key = named_file(conversion, members.take("key_file"));
    let clients = client_certificates(conversion, members.take("client_auth").as_ref(), false);
    members.finish(conversion);
    listener_tls::convert(conversion, setting, certificate, key, clients);
}

fn subgraph_tls(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let to = |key: &str| {
        crate::conversion::with_names(&format!("subgraphs.<name>.tls.{key}"), &setting.names)
    };
    client_files(conversion, setting, &to);
}

/// Converts the files with which the router connects to others.
fn client_files(
    conversion: &mut Conversion<'_>,
    setting: &Setting<'_>,
    to: &dyn Fn(&str) -> Vec<String>,
) {
    let mut members = Members::of(setting);
    for (there, here) in [("ca_file", "ca"), ("cert_file", "certificate"), ("key_file", "key")] {
        if let Some(file) = members.take(there).filter(|it| !it.is_empty()) {
            conversion.set(&file, &to(here), Form::Text, "");
        }
    }
    members.absent(
        conversion,
        "insecure_skip_ca_verification",
        "certificates are always verified: name the authority that has signed them (`ca`)",
    );
    members.finish(conversion);
}

fn access_logs(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let section = |key: &str| ["access_log".to_owned(), key.to_owned()];
    match members.take("enabled") {
        Some(enabled) => conversion.set(
            &enabled,
            &section("enabled"),
            Form::Bool,
            "lines have fields of their own (docs/access-log.md)",
        ),
        // It is on by default there.
        None => conversion.put(setting, "access_log.enabled", Value::Bool(true)),
    }
    for name in ["level", "add_stacktrace", "buffer"] {
        members.unneeded(
            conversion,
            name,
            "lines have no level, and are always written in the background",
        );
    }
    if let Some(output) = members.take("output") {
        let mut own = Members::of(&output);
        own.unneeded(
            conversion,
            "stdout",
            "lines go to standard output unless `access_log.file` is set",
        );
        if let Some(file) = own.take("file") {
            let mut file_members = Members::of(&file);
            let is_on = file_members.take("enabled").is_some_and(|it| it.may_be_on());
            let path = file_members.take("path");
            file_members.unneeded(
                conversion,
                "mode",
                "the file has the permissions of the process",
            );
            file_members.finish(conversion);
            match path {
                Some(path) if is_on => conversion.set(&path, &section("file"), Form::Text, ""),
                _ => conversion.unneeded(&file, "it is turned off"),
            }
        }
        own.finish(conversion);
    }
    if let Some(router) = members.take("router") {
        let mut own = Members::of(&router);
        own.unneeded(conversion, "ignore_query_params_list", "lines have no query of a URL");
        for field in own.take("fields").iter().flat_map(Setting::items) {
            log_field(conversion, &field);
        }
        own.finish(conversion);
    }
    members.absent(
        conversion,
        "subgraphs",
        "the log has no lines for requests to subgraphs: traces have spans for them \
         (docs/tracing.md)",
    );
    members.finish(conversion);
}

fn log_field(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let key = members.take("key");
    let default = members.take("default");
    let from = members.take("value_from");
    members.finish(conversion);
    let Some(key) = key.as_ref().and_then(Setting::text) else { return };
    let name: String =
        key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let default = default.as_ref().and_then(Setting::text);
    let member = |name| from.as_ref().and_then(|it| it.member(name)?.text());
    let expression = match (member("request_header"), member("context_field"), member("expression"))
    {
        (Some(header), _, _) => {
            let default = default.map(|it| format!(".orValue({})", serde_json::Value::from(it)));
            let default = default.unwrap_or_else(|| ".orValue(\"\")".to_owned());
            Some(format!("request.headers[?\"{}\"]{default}", header.to_lowercase()))
        }
        (_, Some("operation_name"), _) => Some("operation.name".to_owned()),
        (_, Some("operation_type"), _) => Some("operation.kind".to_owned()),
        (_, Some("operation_hash" | "operation_sha256"), _) => Some("operation.id".to_owned()),
        (_, _, Some(expression)) => from_expr_lang(expression),
        (None, None, None) => default.map(|it| serde_json::Value::from(it).to_string()),
        (None, Some(_), None) => None,
    };
    let list = ["access_log".to_owned(), "fields".to_owned()];
    match expression {
        Some(expression) => {
            let field = [
                ("name", Some(Value::Text(name.clone()))),
                ("value", Some(Value::Text(expression))),
            ];
            let note =
                if name == key { "" } else { "names of fields have letters, digits and `_`" };
            conversion.push(setting, &list, Value::map(field), note);
        }
        None => conversion.not_converted(
            setting,
            "the source of the field has no counterpart: docs/access-log.md lists what fields may \
             read",
        ),
    }
}

fn compliance(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let anonymize = setting.member("anonymize_ip").filter(|it| !is_turned_off(it));
    let mut members = Members::of(setting);
    members.take("anonymize_ip");
    members.finish(conversion);
    match anonymize {
        Some(anonymize) => conversion.not_converted(
            &anonymize,
            "lines of the access log contain the address of the peer, which is that of a load \
             balancer if there is one",
        ),
        None => conversion.unneeded(setting, "it is turned off"),
    }
}

fn uploads(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let to = |key: &str| ["uploads".to_owned(), key.to_owned()];
    let note = "requests with files need a header of `csrf.required_headers`";
    match members.take("enabled") {
        Some(enabled) => {
            let note = if enabled.may_be_on() { note } else { "" };
            conversion.set(&enabled, &to("enabled"), Form::Bool, note);
        }
        None => conversion.put(setting, "uploads.enabled", Value::Bool(true)),
    }
    if let Some(size) = members.take("max_file_size") {
        file_size(conversion, &size);
    }
    if let Some(files) = members.take("max_files") {
        conversion.set(&files, &to("max_files"), Form::Number, "");
    }
    members.finish(conversion);
}

fn client_name(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    client_headers(conversion, setting, "name_headers", "name");
}

fn client_version(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    client_headers(conversion, setting, "version_headers", "version");
}

/// Writes the headers of clients: that of the operator, and those that the router has anyway.
fn client_headers(conversion: &mut Conversion<'_>, setting: &Setting<'_>, key: &str, what: &str) {
    let Some(Value::Text(name)) = conversion.optional(Some(setting.clone()), Form::Text) else {
        return;
    };
    let names = [
        name.to_lowercase(),
        format!("graphql-client-{what}"),
        format!("apollographql-client-{what}"),
    ];
    let to = ["client_info".to_owned(), key.to_owned()];
    conversion.write(setting, &to, Value::texts(names), "");
}

fn subscription_url(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let to = crate::conversion::with_names("subgraphs.<name>.subscription.url", &setting.names);
    conversion.set(setting, &to, Form::Text, "");
}

fn subscription_protocol(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let to =
        crate::conversion::with_names("subgraphs.<name>.subscription.protocol", &setting.names);
    match setting.text() {
        Some("ws") => conversion.unneeded(
            setting,
            "WebSockets are the default, with the subprotocol that the subgraph has",
        ),
        Some("sse") => conversion.write(setting, &to, Value::text("sse_get"), ""),
        Some("sse_post") => conversion.write(setting, &to, Value::text("sse"), ""),
        _ => conversion.refuse(
            setting,
            "is no protocol of Starling",
            "`subgraphs.<name>.subscription.protocol` lists them",
        ),
    }
}

fn subprotocol(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let to =
        crate::conversion::with_names("subgraphs.<name>.subscription.protocol", &setting.names);
    match setting.text() {
        Some("auto") => conversion.unneeded(setting, "it is the default"),
        Some("graphql-ws") => conversion.write(setting, &to, Value::text("graphql_ws"), ""),
        Some("graphql-transport-ws") => {
            conversion.write(setting, &to, Value::text("graphql_transport_ws"), "");
        }
        _ => conversion.refuse(setting, "is no subprotocol of Starling", ""),
    }
}
