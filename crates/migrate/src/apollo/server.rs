//! The listener, paths, certificates, limits, pages and uploads of Apollo Router.

use crate::conversion::{Conversion, Members, source_of};
use crate::form::Form;
use crate::listener_tls::{self, ClientCertificates};
use crate::rule::{Rule, absent, changed, same, unneeded, with};
use crate::setting::Setting;
use crate::target::Value;
use crate::variables::file_reference;

const HEALTH: &str = "health checks and metrics are on the admin listener: `/health/live`, `/health/ready` \
                      and `/metrics`";
const FOR_EACH: &str = "Starling sets it for each subgraph: repeat it below `subgraphs.<name>`";

const NAME_FILE: &str = "Starling reads certificates and keys from files: name the file";

pub(super) const RULES: &[Rule] = &[
    with("supergraph.listen", "listen", "", listen),
    with(
        "supergraph.path",
        "path",
        "parameters and wildcards (`/:id`, `/*`) have no counterpart; with `/` the page for \
         trying out queries is turned off",
        path,
    ),
    same("supergraph.introspection", "introspection", Form::Bool),
    absent(
        "supergraph.defer_support",
        "Starling does not serve `@defer`: clients get the whole response at once only if they \
         leave it out",
    ),
    changed(
        "supergraph.query_planning.cache.in_memory.limit",
        "limits.prepared_operations",
        Form::Number,
        "at least 128; the least recently used operations are removed first",
    ),
    absent(
        "supergraph.query_planning.cache.redis",
        "plans are kept in the memory of each router; `warming.operations` prepares them before \
         the start (docs/scaling.md)",
    ),
    absent(
        "supergraph.query_planning.warmed_up_queries",
        "`warming.operations` names the operations that are prepared before the router is ready \
         (docs/scaling.md)",
    ),
    unneeded(
        "supergraph.query_planning.(experimental_paths_limit|experimental_plans_limit|\
         experimental_parallelism|experimental_reuse_query_plans|\
         experimental_reuse_query_fragments|experimental_cooperative_cancellation)",
        "it tunes another planner",
    ),
    unneeded(
        "supergraph.(early_cancel|experimental_log_on_broken_pipe|log_on_broken_pipe|\
         generate_query_fragments|experimental_reuse_query_fragments)",
        "it tunes another implementation",
    ),
    unneeded("supergraph.strict_variable_validation", "variables are always checked"),
    absent(
        "supergraph.redact_query_validation_errors",
        "messages of validation always name the field; turn `introspection` off, or use \
         `persisted_documents`",
    ),
    changed(
        "supergraph.connection_shutdown_timeout",
        "subscriptions.drain_period",
        Form::Duration,
        "it covers subscriptions too",
    ),
    changed(
        "server.http.header_read_timeout",
        "http.header_timeout",
        Form::Duration,
        "idle connections are closed after the same time",
    ),
    absent("server.http.tls_handshake_timeout", "there is no setting of its own"),
    with(
        "tls.supergraph",
        "listen[].tls.cert, listen[].tls.key",
        "the values must be files (`${file.PATH}`); append the intermediate certificates to the \
         file of the certificate",
        server_tls,
    ),
    absent("tls.(subgraph|connector).all", FOR_EACH),
    with(
        "tls.subgraph.subgraphs.<name>",
        "subgraphs.<name>.tls.ca, subgraphs.<name>.tls.certificate, subgraphs.<name>.tls.key",
        "the values must be files (`${file.PATH}`)",
        subgraph_tls,
    ),
    absent("tls.connector.sources", "Starling has no connectors for REST"),
    same("override_subgraph_url.<name>", "subgraphs.<name>.url", Form::Text),
    with("health_check.listen", "admin.listen", HEALTH, admin_listen),
    absent(
        "health_check.path",
        "the paths of the admin listener are `/health/live` and `/health/ready`: change the probes",
    ),
    unneeded("health_check.enabled", "the admin listener always has health checks"),
    unneeded(
        "health_check.readiness",
        "`admission.readiness` is the counterpart, for routers that refuse much; it is off by \
         default",
    ),
    unneeded(
        "homepage",
        "Starling has no home page; `ide.enabled` is the page for trying out queries",
    ),
    with("sandbox.enabled", "ide.enabled", "GraphiQL in place of Sandbox, at `/`", sandbox),
    unneeded("sandbox.initial_endpoint", "the page sends to `path`"),
    same("(limits|limits.router).max_depth", "limits.depth", Form::Number),
    changed(
        "(limits|limits.router).max_height",
        "limits.selections",
        Form::Number,
        "fields of fragments count wherever they are spread",
    ),
    same("(limits|limits.router).max_aliases", "limits.aliases", Form::Number),
    same("(limits|limits.router).max_root_fields", "limits.root_fields", Form::Number),
    same("(limits|limits.router).parser_max_tokens", "limits.tokens", Form::Number),
    unneeded("(limits|limits.router).parser_max_recursion", "`limits.depth` bounds it"),
    unneeded("(limits|limits.router).max_recursive_selections", "`limits.selections` bounds it"),
    unneeded(
        "(limits|limits.router).introspection_max_depth",
        "`limits.depth` and `limits.selections` bound it",
    ),
    same("(limits|limits.router).http_max_request_bytes", "limits.body", Form::Size),
    same("(limits|limits.router).http1_max_request_headers", "http.max_headers", Form::Number),
    same("(limits|limits.router).http1_max_request_buf_size", "http.max_header_size", Form::Size),
    changed(
        "(limits|limits.router).http_max_header_size",
        "http.max_header_size",
        Form::Size,
        "it bounds all headers together",
    ),
    changed(
        "(limits|limits.router).http_max_header_list_size",
        "http.max_header_size",
        Form::Size,
        "it is the limit of HTTP/1.1, too",
    ),
    absent(
        "(limits|limits.router).warn_only",
        "Starling always enforces limits: raise them until `/metrics` counts no refusals",
    ),
    absent(
        "limits.(subgraph|connector)",
        "`traffic.all.max_response_size` bounds the responses of subgraphs",
    ),
    with(
        "(preview_file_uploads|file_uploads)",
        "uploads.enabled, uploads.max_files, uploads.max_file_bytes",
        "requests with files need a header of `csrf.required_headers`",
        uploads,
    ),
    same("batching.enabled", "http.batching.enabled", Form::Bool),
    same("batching.maximum_size", "http.batching.max_operations", Form::Number),
    unneeded("batching.mode", "there is one mode"),
    absent(
        "batching.subgraph",
        "requests to subgraphs are single operations; `traffic.all.batching` joins the fetches \
         of one operation",
    ),
];

/// Converts the address, which may get a certificate from another key.
fn listen(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    match conversion.value(setting, Form::Address) {
        Ok(address) => {
            conversion.listener.address = Some((address, source_of(setting)));
            conversion.done(setting, "listen", "");
        }
        Err(reason) => conversion.refuse(setting, &reason, "write an IP address and a port"),
    }
}

fn path(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    conversion.set(setting, &["path".to_owned()], Form::Text, "");
}

/// Converts the address of health checks or of metrics: both are on the admin listener.
pub(super) fn admin_listen(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    if conversion.target.has(&["admin", "listen"]) {
        conversion.not_converted(setting, HEALTH);
        return;
    }
    conversion.set(setting, &["admin".to_owned(), "listen".to_owned()], Form::Address, HEALTH);
}

/// Converts the path of metrics, which cannot be changed.
pub(super) fn metrics_path(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    match setting.text() {
        Some("/metrics") => conversion.unneeded(setting, "it is the path"),
        _ => conversion.not_converted(
            setting,
            "the path is `/metrics` of the admin listener: change the scrape configuration",
        ),
    }
}

fn server_tls(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let mut file = |name: &str| {
        let member = members.take(name)?;
        let path = member.text().and_then(file_reference).map(Value::text);
        if path.is_none() {
            conversion.refuse(&member, "is no file (`${file.PATH}`)", NAME_FILE);
        }
        Some((member, path))
    };
    let (certificate, chain, key) = (file("certificate"), file("certificate_chain"), file("key"));
    members.finish(conversion);
    if let Some((chain, Some(_))) = &chain {
        let advice =
            "append the chain to the file of the certificate, which `listen[].tls.cert` names";
        conversion.not_converted(chain, advice);
    }
    let clients = ClientCertificates::NotRequired;
    listener_tls::convert(conversion, setting, certificate, key, clients);
}

fn subgraph_tls(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let file = |conversion: &mut Conversion<'_>, member: Option<Setting<'_>>, to: &str| {
        let Some(member) = member else { return };
        match member.text().and_then(file_reference) {
            Some(path) => {
                conversion.put(setting, &format!("subgraphs.<name>.tls.{to}"), Value::text(path));
                conversion.done(
                    &member,
                    &format!("subgraphs.{}.tls.{to}", setting.names.join(".")),
                    "",
                );
            }
            None => conversion.refuse(&member, "is no file (`${file.PATH}`)", NAME_FILE),
        }
    };
    file(conversion, members.take("certificate_authorities"), "ca");
    if let Some(client) = members.take("client_authentication") {
        let mut own = Members::of(&client);
        file(conversion, own.take("certificate_chain"), "certificate");
        file(conversion, own.take("key"), "key");
        own.finish(conversion);
    }
    members.finish(conversion);
}

fn sandbox(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let path = conversion.root.descendant(&["supergraph", "path"]);
    let is_at_root = path.is_none_or(|it| it.text() == Some("/"));
    if is_at_root && setting.may_be_on() {
        conversion.put(setting, "ide.enabled", Value::Bool(false));
        let advice = "the page is at `/`, where the endpoint is: set `path: /graphql` to have both";
        conversion.not_converted(setting, advice);
        return;
    }
    let to = ["ide".to_owned(), "enabled".to_owned()];
    let note = match setting.may_be_on() {
        true => "GraphiQL in place of Sandbox, at `/`",
        false => "",
    };
    conversion.set(setting, &to, Form::Bool, note);
}

fn uploads(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let enabled = members.take("enabled");
    let is_on = enabled.as_ref().is_some_and(Setting::may_be_on);
    let multipart = members.take("protocols").and_then(|it| it.member("multipart"));
    members.finish(conversion);
    if !is_on {
        conversion.unneeded(setting, "it is turned off");
        return;
    }
    if let Some(enabled) = enabled {
        let note = "requests with files need a header of `csrf.required_headers`";
        conversion.set(&enabled, &["uploads".to_owned(), "enabled".to_owned()], Form::Bool, note);
    }
    let Some(multipart) = multipart else { return };
    let mut members = Members::of(&multipart);
    members.unneeded(conversion, "enabled", "the section turns uploads on");
    members.unneeded(conversion, "mode", "files always flow to their subgraph while they arrive");
    if let Some(limits) = members.take("limits") {
        let mut limits = Members::of(&limits);
        if let Some(size) = limits.take("max_file_size") {
            file_size(conversion, &size);
        }
        if let Some(files) = limits.take("max_files") {
            let to = ["uploads".to_owned(), "max_files".to_owned()];
            conversion.set(&files, &to, Form::Number, "");
        }
        limits.finish(conversion);
    }
    members.finish(conversion);
}

/// Converts the maximum size of a file, and raises that of a request if needed.
pub(crate) fn file_size(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    conversion.set(setting, &["uploads".to_owned(), "max_file_bytes".to_owned()], Form::Size, "");
    let bytes = setting.text().and_then(|it| crate::quantity::parse_size(it).ok());
    // The default for a request is 32 MiB, and it may not be less than that for a file.
    if let Some(bytes) = bytes.filter(|bytes| *bytes > 32 << 20) {
        conversion.put(setting, "uploads.max_bytes", Value::text(config::print_bytes(bytes)));
    }
}
