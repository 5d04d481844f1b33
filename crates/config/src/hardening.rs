//! The checklist for graphs that strangers can reach: the settings that `starling check --hardening` reports, and the
//! table in `docs/hardening.md`, which is generated from it.
//!
//! A new item is one more entry of [`ITEMS`]. Its row of the page is written by `UPDATE_EXPECT=1 cargo test -p config`.

use std::fmt::Write as _;
use std::net::SocketAddr;

use expressions::{Expected, Scope};

use super::disclosure::SubgraphErrorRule;
use super::findings::{Findings, KeyPlace, KeyPlaces};
use super::{Admin, Config, CostMode, Expression, Limits, Listener, LoadedConfig, WebSocket};
use crate::diagnostic::Diagnostic;

/// One item of the checklist.
struct HardeningItem {
    /// The name of the item, which findings carry as their code.
    name: &'static str,
    /// The state that is reported.
    state: &'static str,
    /// The remedy.
    change: &'static str,
    /// The reason.
    why: &'static str,
    /// Returns the keys with which a configuration leaves the item open; none if it is done.
    open_keys: fn(&Config) -> Vec<String>,
}

/// The checklist, in the order of the page.
const ITEMS: [HardeningItem; 18] = [
    HardeningItem {
        name: "no-tls",
        state: "a listener for other machines without TLS",
        change: "`listen[].tls`, or TLS at the balancer",
        why: "tokens travel in headers",
        open_keys: listeners_without_tls,
    },
    HardeningItem {
        name: "public-admin",
        state: "`admin.listen` on an address for other machines, without client certificates",
        change: "127.0.0.1, an address that only operators reach, or `admin.tls.client_ca`",
        why: "it has no authentication, and publishes events",
        open_keys: |config| {
            let is_protected = config.admin.needs_client_certificate();
            open("admin.listen", is_public(config.admin.listen) && !is_protected)
        },
    },
    HardeningItem {
        name: "unsigned-supergraph",
        state: "a supergraph by URL without a signature",
        change: "`supergraph.url.signature` ([delivery](supergraph-delivery.md#signatures))",
        why: "write access to its server is enough to send requests, with their tokens, elsewhere",
        open_keys: |config| {
            let url = config.supergraph.url.as_ref();
            open("supergraph.url", url.is_some_and(|it| !it.signature.is_required()))
        },
    },
    HardeningItem {
        name: "anonymous-clients",
        state: "every client may send operations",
        change: "`authentication.jwt.required: true`",
        why: "without a token, clients behind one address cannot be told apart",
        open_keys: |config| {
            open("authentication.jwt.required", !config.authentication.jwt.required)
        },
    },
    HardeningItem {
        name: "unscoped-tokens",
        state: "an issuer without `issuer`, `audiences` or `algorithms`",
        change: "name all three in `authentication.jwt.issuers[]`",
        why: "a token that was issued for another purpose is then refused",
        open_keys: unscoped_issuers,
    },
    HardeningItem {
        name: "introspection",
        state: "introspection without a condition",
        change: "`introspection: false`, or `when` with a condition that strangers do not meet",
        why: "strangers need no map of the graph",
        open_keys: |config| {
            let introspection = &config.introspection;
            let is_conditional =
                introspection.when.is_some() || config.block.introspection.is_some();
            open("introspection", introspection.enabled && !is_conditional)
        },
    },
    HardeningItem {
        name: "unknown-operations",
        state: "every client may send operations of its own",
        change: "`persisted_documents: {mode: require_id, manifests: …}` ([persisted documents](persisted-documents.md)), if all clients are yours",
        why: "strangers can otherwise send any operation within the limits",
        open_keys: |config| {
            open("persisted_documents.mode", !config.persisted_documents.mode.is_restrictive())
        },
    },
    HardeningItem {
        name: "ide",
        state: "`ide.enabled: true`",
        change: "`ide.enabled: false`",
        why: "the page is for developers",
        open_keys: |config| open("ide.enabled", config.ide.enabled),
    },
    HardeningItem {
        name: "every-origin",
        state: "`\"*\"` in `cors`",
        change: "list the origins of your pages",
        why: "every web page can use the graph from the network of its reader",
        open_keys: every_origin,
    },
    HardeningItem {
        name: "default-limits",
        state: "`limits.*` that fit large applications",
        change: "set `body`, `depth`, `aliases`, `root_fields` and `tokens` to what your clients send",
        why: "each bounds what one request can cost",
        open_keys: default_limits,
    },
    HardeningItem {
        name: "no-cost-maximum",
        state: "`cost.mode` other than `enforce`",
        change: "`cost: {mode: enforce, max: …}` ([cost](cost.md))",
        why: "a short operation with long lists in lists can ask subgraphs for millions of objects",
        open_keys: |config| open("cost.mode", config.cost.mode != CostMode::Enforce),
    },
    HardeningItem {
        name: "no-rate-limit",
        state: "no rate limit",
        change: "[`rate_limits`](rate-limits.md), by token or address",
        why: "one user cannot take the capacity of all",
        open_keys: |config| open("rate_limits", config.rate_limits.is_empty()),
    },
    HardeningItem {
        name: "open-store",
        state: "a Redis of `storage_providers` without credentials, or without TLS on another machine",
        change: "`authentication` and `rediss://`",
        why: "a program that writes there can lift rate limits",
        open_keys: open_stores,
    },
    HardeningItem {
        name: "authorization-dry-run",
        state: "`authorization.dry_run: true`",
        change: "`authorization.dry_run: false`",
        why: "protected fields are shown to every client",
        open_keys: |config| open("authorization.dry_run", config.authorization.dry_run),
    },
    HardeningItem {
        name: "connections-per-address",
        state: "no limit of connections per address",
        change: "`http.max_connections_per_ip`, if clients connect directly",
        why: "one client cannot take all connections",
        open_keys: |config| {
            open("http.max_connections_per_ip", config.http.max_connections_per_ip == 0)
        },
    },
    HardeningItem {
        name: "subscriptions-per-connection",
        state: "1,000 subscriptions for one connection",
        change: "`websocket.max_subscriptions_per_connection`",
        why: "each may open a topic at the broker",
        open_keys: |config| {
            let default = WebSocket::default().max_subscriptions_per_connection;
            let is_open = config.websocket.max_subscriptions_per_connection >= default;
            open("websocket.max_subscriptions_per_connection", is_open)
        },
    },
    HardeningItem {
        name: "subgraph-messages",
        state: "`include_subgraph_errors.all: true`, or a rule without conditions that shows messages",
        change: "`all: false`; `subgraphs.NAME: true` or `rules` for messages that are for users",
        why: "messages may contain queries, hosts and stack traces",
        open_keys: |config| {
            let shown = &config.include_subgraph_errors;
            let all = open("include_subgraph_errors.all", shown.all);
            let rules = shown.rules.iter().any(SubgraphErrorRule::shows_everything);
            [all, open("include_subgraph_errors.rules", rules)].concat()
        },
    },
    HardeningItem {
        name: "diagnostics",
        state: "`trace.enabled` without `trace.when` or with a constant one, `admin.profiling`, or `admin.show_values`",
        change: "turn them off, except while you measure, or name the clients that get traces by `trace.when`",
        why: "they reveal how the router and its subgraphs work, or values of clients",
        open_keys: |config| {
            let is_traced = config.trace.enabled && !is_condition(config.trace.when.as_ref());
            let trace = open("trace.enabled", is_traced);
            let profiling = config.admin.profiling != Admin::default().profiling;
            let values = config.admin.show_values != Admin::default().show_values;
            [trace, open("admin.profiling", profiling), open("admin.show_values", values)].concat()
        },
    },
];

fn open(key: &str, is_open: bool) -> Vec<String> {
    if is_open { vec![key.to_owned()] } else { Vec::new() }
}

/// True if the expression depends on the request.
fn is_condition(when: Option<&Expression>) -> bool {
    let program = when.map(|it| it.compile(Scope::OPERATION, Expected::Condition));
    program.is_some_and(|it| it.is_ok_and(|program| !program.is_constant()))
}

fn is_public(address: SocketAddr) -> bool {
    !address.ip().is_loopback()
}

fn listeners_without_tls(config: &Config) -> Vec<String> {
    let is_open = |listener: &Listener| matches!(listener, Listener::Address { address, tls: None } if is_public(*address));
    let listeners = config.listen.iter().enumerate().filter(|(_, listener)| is_open(listener));
    listeners.map(|(index, _)| format!("listen[{index}]")).collect()
}

fn unscoped_issuers(config: &Config) -> Vec<String> {
    let issuers = config.authentication.jwt.issuers.iter().enumerate();
    let unscoped = issuers.filter(|(_, it)| {
        it.issuer.is_none() || it.audiences.is_empty() || it.algorithms.is_empty()
    });
    unscoped.map(|(index, _)| format!("authentication.jwt.issuers[{index}]")).collect()
}

fn open_stores(config: &Config) -> Vec<String> {
    let stores = config.storage_providers.redis.iter().enumerate();
    let is_plain = |url: &String| {
        let host = url.strip_prefix("redis://");
        host.is_some_and(|it| !["localhost", "127.", "[::1]"].iter().any(|own| it.starts_with(own)))
    };
    let is_local = |url: &String| url.starts_with("unix:");
    let open = stores.filter(|(_, it)| {
        let is_anonymous = it.authentication.is_none() && !it.urls.iter().all(is_local);
        is_anonymous || it.urls.iter().any(is_plain)
    });
    open.map(|(index, _)| format!("storage_providers.redis[{index}]")).collect()
}

fn every_origin(config: &Config) -> Vec<String> {
    let policies = config.cors.policies.iter().enumerate();
    let policies =
        policies.map(|(index, it)| (format!("cors.policies[{index}].origins"), &it.origins));
    let all = std::iter::once(("cors.origins".to_owned(), &config.cors.origins)).chain(policies);
    let has_any = all.filter(|(_, origins)| origins.iter().any(|origin| origin == "*"));
    has_any.map(|(path, _)| path).collect()
}

fn default_limits(config: &Config) -> Vec<String> {
    let (limits, default) = (&config.limits, Limits::default());
    let keys = [
        ("body", limits.body >= default.body),
        ("depth", limits.depth >= default.depth),
        ("aliases", limits.aliases >= default.aliases),
        ("root_fields", limits.root_fields >= default.root_fields),
        ("tokens", limits.tokens >= default.tokens),
    ];
    keys.iter().flat_map(|&(key, is_open)| open(&format!("limits.{key}"), is_open)).collect()
}

/// Returns the names of the items of the checklist.
pub fn hardening_items() -> impl Iterator<Item = &'static str> {
    ITEMS.iter().map(|item| item.name)
}

/// Returns the checklist as a table in Markdown.
pub fn hardening_checklist() -> String {
    let mut table = "| name | reported | change | why |\n|---|---|---|---|\n".to_owned();
    for HardeningItem { name, state, change, why, .. } in &ITEMS {
        // Writing to a `String` cannot fail.
        let _ = writeln!(table, "| `{name}` | {state} | {change} | {why} |");
    }
    table
}

impl LoadedConfig {
    /// Returns a warning for each item of the checklist that the configuration leaves open, in the order of the file,
    /// except for the `accepted` items.
    pub fn open_hardening_items(&self, accepted: &[String]) -> Vec<Diagnostic> {
        let mut findings = Findings::default();
        check(&self.config, self.key_places(), accepted, &mut findings);
        findings.into_diagnostics(self.source_text())
    }
}

fn check(config: &Config, places: &KeyPlaces, accepted: &[String], findings: &mut Findings) {
    for item in ITEMS.iter().filter(|item| !accepted.iter().any(|it| it == item.name)) {
        let keys = (item.open_keys)(config);
        if keys.is_empty() {
            continue;
        }
        let shown: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
        let finding = findings.warning(item.name, format!("{}: {}", shown.join(", "), item.state));
        match keys.iter().find_map(|key| place_of(key, places)) {
            Some(place) => finding.at_place(Some(place), item.why).help(item.change),
            // The file does not have the key, so its default applies.
            None => finding.help(format!("{}: {}", item.change, item.why)),
        };
    }
}

fn place_of<'a>(key: &str, places: &'a KeyPlaces) -> Option<&'a KeyPlace> {
    // A single address may be written without a list.
    let whole_section = key.starts_with("listen[").then(|| places.get("listen")).flatten();
    places.get(key).or(whole_section)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::expect_file;

    use super::*;
    use crate::diagnostic::{Style, render};
    use crate::{Overrides, parse};

    const BEGIN: &str = "<!-- Generated from crates/config/src/hardening.rs. -->\n\n";
    const END: &str = "\n<!-- End of the generated table. -->";

    fn page() -> (std::path::PathBuf, String) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hardening.md");
        let text = std::fs::read_to_string(&path).unwrap();
        (path, text)
    }

    fn loaded(text: &str) -> LoadedConfig {
        let environment = |_: &str| Some("a value of more than 32 bytes, for keys".into());
        parse(text, "starling.yaml", Path::new(""), &Overrides::default(), &environment).unwrap()
    }

    fn open_items(text: &str) -> Vec<String> {
        loaded(text).open_hardening_items(&[]).iter().map(|it| it.code.to_string()).collect()
    }

    #[test]
    fn the_checklist_of_the_page_is_up_to_date() {
        let (path, text) = page();
        let (before, rest) = text.split_once(BEGIN).expect("the page has the checklist");
        let (_, after) = rest.split_once(END).expect("the checklist has an end");
        let table = hardening_checklist();
        expect_file![path].assert_eq(&format!("{before}{BEGIN}{table}{END}{after}"));
    }

    #[test]
    fn the_first_configuration_of_the_page_leaves_nothing_open() {
        let (_, text) = page();
        let (_, rest) = text.split_once("```yaml\n").unwrap();
        let (sample, _) = rest.split_once("```").unwrap();
        assert_eq!(open_items(sample), [""; 0]);
    }

    #[test]
    fn an_empty_configuration_leaves_open_what_the_defaults_allow() {
        assert_eq!(
            open_items(""),
            [
                "anonymous-clients",
                "introspection",
                "unknown-operations",
                "ide",
                "default-limits",
                "no-cost-maximum",
                "no-rate-limit",
                "connections-per-address",
                "subscriptions-per-connection",
            ]
        );
    }

    #[test]
    fn every_item_can_be_found_open_and_accepted() {
        let config = loaded(
            "listen: 0.0.0.0:4000\nadmin: {listen: 0.0.0.0:8088}\ncors: {policies: [{origins: [\"*\"]}]}\n\
             authentication: {jwt: {issuers: [{secret: \"${SECRET}\"}]}}\n\
             supergraph: {url: \"http://g/\"}\n\
             storage_providers: {redis: [{id: a, urls: [\"redis://r\"]}]}\ninclude_subgraph_errors: {all: true}\ntrace: {enabled: true}\nauthorization: {dry_run: true}",
        );
        let found = |accepted: &[String]| {
            let found = config.open_hardening_items(accepted).into_iter();
            found.map(|it| it.code.to_string()).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(found(&[]), hardening_items().map(str::to_owned).collect());
        let all: Vec<_> = hardening_items().map(str::to_owned).collect();
        assert!(found(&all).is_empty());
    }

    #[test]
    fn traces_for_everyone_are_open_whatever_their_condition_looks_like() {
        let is_open = |when: &str| {
            let items = open_items(&format!("trace: {{enabled: true{when}}}\n"));
            items.iter().any(|name| name == "diagnostics")
        };
        assert!(is_open("") && is_open(", when: 'true'") && is_open(", when: '1 < 2'"));
        assert!(!is_open(", when: client.name == 'studio'"));
    }

    #[test]
    fn an_admin_listener_with_client_certificates_may_be_public() {
        let is_open = |tls: &str| {
            let config = loaded(&format!("admin: {{listen: 0.0.0.0:8088{tls}}}"));
            let found = config.open_hardening_items(&[]);
            found.iter().any(|it| it.code == "public-admin")
        };
        assert!(is_open("") && is_open(", tls: {cert: a.pem, key: a.key}"));
        assert!(!is_open(", tls: {cert: a.pem, key: a.key, client_ca: b.pem}"));
    }

    #[test]
    fn a_finding_has_a_place_a_reason_and_a_remedy() {
        let config = loaded("listen: 0.0.0.0:4000\nlimits: {depth: 500}\n");
        let accepted: Vec<_> = hardening_items()
            .filter(|name| !["no-tls", "default-limits", "ide"].contains(name))
            .map(str::to_owned)
            .collect();
        let found = config.open_hardening_items(&accepted);
        expect_test::expect![[r#"
            warning[no-tls]: `listen[0]`: a listener for other machines without TLS
             --> starling.yaml:1:9
              |
            1 | listen: 0.0.0.0:4000
              |         ^^^^^^^^^^^^ tokens travel in headers
              |
              = help: `listen[].tls`, or TLS at the balancer

            warning[default-limits]: `limits.body`, `limits.depth`, `limits.aliases`, `limits.root_fields`, `limits.tokens`: `limits.*` that fit large applications
             --> starling.yaml:2:17
              |
            2 | limits: {depth: 500}
              |                 ^^^ each bounds what one request can cost
              |
              = help: set `body`, `depth`, `aliases`, `root_fields` and `tokens` to what your clients send

            warning[ide]: `ide.enabled`: `ide.enabled: true`
             |
             = help: `ide.enabled: false`: the page is for developers
        "#]].assert_eq(&render(&found, Style::Plain));
    }
}
