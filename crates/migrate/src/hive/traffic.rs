//! Timeouts, certificates and circuit breakers of Hive Router.

use crate::apollo::{deduplication, traffic_path};
use crate::conversion::{Conversion, Members};
use crate::form::Form;
use crate::listener_tls::{self, client_certificates, named_file, one_file};
use crate::rule::{Rule, absent, changed, same, unneeded, with};
use crate::setting::Setting;
use crate::target::Value;

pub(super) const RULES: &[Rule] = &[
    same("traffic_shaping.max_connections_per_host", "traffic.all.max_connections", Form::Number),
    same("traffic_shaping.router.dedupe.enabled", "sharing.operations", Form::Bool),
    unneeded(
        "traffic_shaping.router.dedupe.headers",
        "work is shared by what a subgraph could tell apart: the headers that rules forward",
    ),
    changed(
        "traffic_shaping.router.request_timeout",
        "limits.time",
        Form::Duration,
        "a late operation gets null with errors in place of status 504",
    ),
    absent(
        "traffic_shaping.router.max_long_lived_clients",
        "`http.max_connections` bounds all connections of clients",
    ),
    with(
        "traffic_shaping.router.tls",
        "listen[].tls.cert, listen[].tls.key, listen[].tls.client_ca",
        "several files of a certificate must be one; a `client_ca` always requires certificates",
        server_tls,
    ),
    same(
        "traffic_shaping.(all|subgraphs.<name>).pool_idle_timeout",
        "traffic.(all|subgraphs.<name>).idle_timeout",
        Form::Duration,
    ),
    with(
        "traffic_shaping.(all|subgraphs.<name>).request_timeout",
        "traffic.(all|subgraphs.<name>).timeout",
        "a timeout that depends on the request has no counterpart",
        timeout,
    ),
    same("traffic_shaping.all.dedupe_enabled", "sharing.subgraph_queries", Form::Bool),
    with(
        "traffic_shaping.subgraphs.<name>.dedupe_enabled",
        "",
        "`sharing.subgraph_queries` is for all subgraphs",
        deduplication,
    ),
    with(
        "traffic_shaping.(all|subgraphs.<name>).allow_only_http2",
        "traffic.(all|subgraphs.<name>).protocol",
        "",
        only_http2,
    ),
    absent(
        "traffic_shaping.(all|subgraphs.<name>).forward_operation_name",
        "requests to subgraphs have no names of operations",
    ),
    with(
        "traffic_shaping.(all|subgraphs.<name>).circuit_breaker",
        "traffic.(all|subgraphs.<name>).circuit_breaker",
        "the window is ten seconds, and three requests in a row close the breaker",
        circuit_breaker,
    ),
    absent(
        "traffic_shaping.all.tls",
        "Starling sets it for each subgraph: repeat it below `subgraphs.<name>.tls`",
    ),
    with(
        "traffic_shaping.subgraphs.<name>.tls",
        "subgraphs.<name>.tls.ca, subgraphs.<name>.tls.certificate, subgraphs.<name>.tls.key",
        "certificates are always verified",
        subgraph_tls,
    ),
    absent(
        "traffic_shaping.all.websocket",
        "Starling sets it for each subgraph: `subgraphs.<name>.queries_over: websocket`",
    ),
    absent(
        "traffic_shaping.subgraphs.<name>.websocket",
        "`subgraphs.<name>.queries_over: websocket` sends queries over the WebSocket of \
         subscriptions",
    ),
];

fn timeout(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let to = traffic_path(setting, "timeout");
    conversion.set(setting, &to, Form::Duration, "");
}

fn only_http2(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    match conversion.is_on(Some(setting)) {
        true => {
            let to = traffic_path(setting, "protocol");
            conversion.write(setting, &to, Value::text("http2"), "");
        }
        false => conversion.unneeded(setting, "the version is negotiated (`auto`)"),
    }
}

fn circuit_breaker(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let to = |key: &str| traffic_path(setting, &format!("circuit_breaker.{key}"));
    let mut members = Members::of(setting);
    let forms = [
        ("enabled", "enabled", Form::Bool),
        ("error_threshold", "failure_percent", Form::Percent),
        ("volume_threshold", "min_requests", Form::Number),
        ("reset_timeout", "open_for", Form::Duration),
    ];
    for (there, here, form) in forms {
        if let Some(value) = members.take(there) {
            let note = match there {
                "volume_threshold" => "requests in ten seconds count",
                _ => "",
            };
            conversion.set(&value, &to(here), form, note);
        }
    }
    members.unneeded(
        conversion,
        "half_open_attempts",
        "one request at a time is tried, and three in a row close the breaker",
    );
    members.absent(conversion, "error_status_codes", "statuses from 500 count as failures");
    members.finish(conversion);
}

fn server_tls(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let certificate = named_file(conversion, members.take("cert_file"));
    let key = named_file(conversion, members.take("key_file"));
    let clients = client_certificates(conversion, members.take("client_auth").as_ref(), true);
    members.finish(conversion);
    listener_tls::convert(conversion, setting, certificate, key, clients);
}

fn subgraph_tls(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let put = |conversion: &mut Conversion<'_>, file: Option<Setting<'_>>, key: &str| {
        let Some(file) = file else { return };
        let to =
            crate::conversion::with_names(&format!("subgraphs.<name>.tls.{key}"), &setting.names);
        if let Some(value) = one_file(conversion, &file) {
            conversion.write(&file, &to, value, "");
        }
    };
    put(conversion, members.take("cert_file"), "ca");
    if let Some(client) = members.take("client_auth") {
        let mut own = Members::of(&client);
        put(conversion, own.take("cert_file"), "certificate");
        put(conversion, own.take("key_file"), "key");
        own.finish(conversion);
    }
    members.absent(
        conversion,
        "insecure_skip_ca_verification",
        "certificates are always verified: name the authority that has signed them (`ca`)",
    );
    members.finish(conversion);
}
