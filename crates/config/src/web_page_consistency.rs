//! Rules for the settings of web pages that involve several keys.

use std::collections::HashMap;

use super::Config;
use super::findings::{Findings, KeyPlaces};

/// Headers that browsers send without a preflight: those of the Fetch standard, section 2.2.2 (CORS-safelisted), and
/// those that browsers add by themselves. Names that begin with `sec-` or `proxy-` belong to the latter, too.
const SENT_WITHOUT_PREFLIGHT: [&str; 16] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-language",
    "content-length",
    "content-type",
    "cookie",
    "dnt",
    "host",
    "origin",
    "pragma",
    "range",
    "referer",
    "upgrade-insecure-requests",
    "user-agent",
];

/// Checks the sections `cors` and `csrf`.
pub(super) fn check(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    check_every_origin("cors.origins", &config.cors.origins, places, findings);
    let mut seen: HashMap<&str, String> = HashMap::new();
    for (index, origin) in config.cors.origins.iter().enumerate() {
        seen.insert(origin, format!("cors.origins[{index}]"));
    }
    for (index, policy) in config.cors.policies.iter().enumerate() {
        let path = format!("cors.policies[{index}]");
        check_every_origin(&format!("{path}.origins"), &policy.origins, places, findings);
        // A pattern that is no expression has been reported.
        let has_pattern = places.get(&format!("{path}.match_origins[0]")).is_some();
        if policy.origins.is_empty() && policy.match_origins.is_empty() && !has_pattern {
            findings
                .error("conflict", format!("`{path}` has neither `origins` nor `match_origins`"))
                .at_place(places.get(&path), "applies to no page")
                .help("list the origins of its pages, or remove it");
        }
        if policy.origins.iter().any(|origin| origin == "*")
            && policy.credentials
            && let Some(place) = places.get(&format!("{path}.credentials"))
        {
            findings
                .error("conflict", format!("`{path}.credentials` is true for every origin"))
                .at_place(Some(place), "`\"*\"` never allows credentials")
                .help("list the origins that may send cookies in a policy of their own");
        }
        for (number, origin) in policy.origins.iter().enumerate() {
            let at = format!("{path}.origins[{number}]");
            if let Some(first) = seen.get(origin.as_str()) {
                findings
                    .warning(
                        "no-effect",
                        format!("`{at}` has no effect: an earlier policy decides"),
                    )
                    .at_place(places.get(&at), "the same origin again")
                    .related_place(places.get(first), "decides")
                    .help("remove one of them");
            } else {
                seen.insert(origin, at);
            }
        }
    }
    check_required_headers(config, places, findings);
}

fn check_every_origin(path: &str, origins: &[String], places: &KeyPlaces, findings: &mut Findings) {
    if origins.len() > 1
        && let Some(index) = origins.iter().position(|origin| origin == "*")
    {
        findings
            .warning(
                "no-effect",
                format!("`{path}` allows every origin; the others differ only in credentials"),
            )
            .at_place(places.get(&format!("{path}[{index}]")), "matches every origin")
            .help("remove `\"*\"` to allow only the others");
    }
}

/// Refuses headers that a forged request can carry.
fn check_required_headers(config: &Config, places: &KeyPlaces, findings: &mut Findings) {
    for (index, name) in config.csrf.required_headers.iter().enumerate() {
        let name = name.as_str();
        let is_common = SENT_WITHOUT_PREFLIGHT.contains(&name);
        if is_common || name.starts_with("sec-") || name.starts_with("proxy-") {
            let path = format!("csrf.required_headers[{index}]");
            findings
                .error("conflict", format!("`{path}` proves nothing"))
                .at_place(places.get(&path), "browsers send it without a preflight")
                .help("name a header that only code sends: `apollo-require-preflight`");
        }
    }
}
