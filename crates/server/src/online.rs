//! `starling check --online`: is everything there that the configuration names, and does it let us in? Nothing is
//! published, nothing is left behind; subgraphs are asked for `{ __typename }`.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bindings::BoundTopic;
use bytes::Bytes;
use events::{Provider, Verdict};
use execute::{FetchError, Subgraph, SubgraphRequest};
use futures_util::{StreamExt, stream};
use http::StatusCode;
use tokio::time::sleep;
use upstream::Upstream;

use crate::config::{self, Overrides};
use crate::diagnostic::Diagnostic;
use crate::has_errors;
use crate::loaded::{self, SupergraphSource};
use crate::start;
use crate::upstreams::SubgraphCertificates;

/// How long a broker or a subgraph may take. Whoever is slower is away, as far as clients are concerned.
const TIME_MAX: Duration = Duration::from_secs(5);

/// How often is looked whether a provider has connected by now.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Topics tried at a time: each is a subscription for half a second.
const TOPICS_AT_ONCE: usize = 16;

/// How one thing is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnlineVerdict {
    /// As it should be.
    Works,
    /// Somebody has to do something.
    Fails,
    /// It could not be found out.
    Unknown,
}

/// One thing that was tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OnlineCheck {
    /// `connect`, `subscribe`, `publish`.
    pub what: &'static str,
    /// `subgraph reviews, http://…`; `nats/default orders.>, Subscription.orderMoved`
    pub place: String,
    /// How it is.
    pub verdict: OnlineVerdict,
    /// Why it is not as it should be.
    pub reason: Option<String>,
    /// What to do about it.
    pub advice: Option<String>,
}

/// All that was found.
#[derive(Debug, Default)]
pub struct OnlineReport {
    /// What is wrong without asking anybody. With errors among them nobody was asked.
    pub findings: Vec<Diagnostic>,
    /// What was tried, in the order of subgraphs, providers and fields.
    pub checks: Vec<OnlineCheck>,
}

impl OnlineVerdict {
    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Works => "ok",
            Self::Fails => "FAILED",
            Self::Unknown => "unknown",
        }
    }
}

impl OnlineReport {
    /// Must somebody do something?
    pub fn has_failed(&self) -> bool {
        has_errors(&self.findings)
            || self.checks.iter().any(|check| check.verdict == OnlineVerdict::Fails)
    }
}

/// Asks everything that the configuration at `path` names, unless there are errors among `findings`, those of
/// [`check`](crate::check()) of the same files. Must run on a `LocalSet`.
pub async fn check_online(
    findings: Vec<Diagnostic>,
    path: Option<&Path>,
    overrides: &Overrides,
) -> OnlineReport {
    let mut report = OnlineReport { findings, checks: Vec::new() };
    if !has_errors(&report.findings)
        && let Err(diagnostics) = ask_everybody(path, overrides, &mut report.checks).await
    {
        // A file has changed since a moment ago.
        report.findings.extend(diagnostics);
    }
    report
}

async fn ask_everybody(
    path: Option<&Path>,
    overrides: &Overrides,
    checks: &mut Vec<OnlineCheck>,
) -> Result<(), Vec<Diagnostic>> {
    let config = config::load(path, overrides)?.config;
    let text = SupergraphSource::File(config.supergraph.file.clone()).read();
    let text = Arc::new(text.map_err(|diagnostic| vec![*diagnostic])?);
    let graph = loaded::read_graph(&config, &text)?;
    let upstreams = loaded::upstreams(&config, &graph, &SubgraphCertificates::default(), None)?;
    for (upstream, subgraph) in upstreams.iter().zip(&graph.subgraphs) {
        if let Some(upstream) = upstream {
            checks.push(ask_subgraph(upstream, &subgraph.url).await);
        }
    }
    let providers = Arc::new(start::providers(&config)?);
    let bindings = loaded::bind(&graph, &text, &providers)?;
    let mut away = HashSet::new();
    for provider in providers.iter() {
        let connection = connection(&**provider).await;
        if connection.verdict == OnlineVerdict::Fails {
            away.insert(provider.name().to_owned());
        }
        checks.push(connection);
    }
    let topics = bindings.bound_topics(&graph);
    let asked = topics.iter().map(|topic| ask_topic(topic, away.contains(topic.provider.name())));
    checks.extend(stream::iter(asked).buffered(TOPICS_AT_ONCE).collect::<Vec<_>>().await);
    // What was opened is taken back in the background.
    let is_open = || providers.iter().any(|it| it.stats().streams.load(Relaxed) > 0);
    let deadline = tokio::time::Instant::now() + TIME_MAX;
    while is_open() && tokio::time::Instant::now() < deadline {
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Without the password that a URL may have.
fn shown(url: &str) -> String {
    match url::Url::parse(url) {
        Ok(mut parsed)
            if parsed.has_authority()
                && (parsed.password().is_some() || !parsed.username().is_empty()) =>
        {
            // Both only fail for URLs without a host, which have neither.
            let _ = parsed.set_password(None);
            let _ = parsed.set_username("");
            parsed.to_string()
        }
        _ => url.to_owned(),
    }
}

async fn ask_subgraph(upstream: &Upstream, url: &str) -> OnlineCheck {
    let request = SubgraphRequest {
        body: Bytes::from_static(br#"{"query":"{__typename}"}"#),
        is_mutation: false,
        headers: &[],
        deadline: Instant::now() + TIME_MAX,
    };
    let name = upstream.name();
    let (verdict, reason, advice) = match upstream.fetch(request).await {
        Ok(answer) if answer.status.is_success() => (OnlineVerdict::Works, None, None),
        Ok(answer) => said_no(name, answer.status, format!("HTTP status {}", answer.status)),
        Err(FetchError::Status { status, .. }) => said_no(
            name,
            status,
            format!("HTTP status {status}, and the body is no GraphQL answer"),
        ),
        Err(error) => {
            let advice = format!(
                "is the subgraph running, and can this machine reach it? `subgraphs.{name}.url` overrides the URL, \
                 `subgraphs.{name}.tls` says what is trusted"
            );
            (OnlineVerdict::Fails, Some(error.to_string()), Some(advice))
        }
    };
    OnlineCheck {
        what: "connect",
        place: format!("subgraph {name}, {}", shown(url)),
        verdict,
        reason,
        advice,
    }
}

/// It is there, and did not answer the question.
fn said_no(
    name: &str,
    status: StatusCode,
    reason: String,
) -> (OnlineVerdict, Option<String>, Option<String>) {
    match status {
        // Clients' headers are not known here.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let advice = "it wants a header that clients send; ask it as one of them".to_owned();
            (OnlineVerdict::Unknown, Some(reason), Some(advice))
        }
        _ => {
            let advice = format!(
                "is that the path of its GraphQL endpoint? `subgraphs.{name}.url` overrides it"
            );
            (OnlineVerdict::Fails, Some(reason), Some(advice))
        }
    }
}

async fn connection(provider: &dyn Provider) -> OnlineCheck {
    let deadline = tokio::time::Instant::now() + TIME_MAX;
    // It waits a moment only, and the first attempt may take longer.
    let result = loop {
        match provider.connected().await {
            // Some answer at once.
            Err(_) if tokio::time::Instant::now() < deadline => sleep(LOOK_EVERY).await,
            result => break result,
        }
    };
    let place = provider.name().to_owned();
    match result {
        Ok(()) => OnlineCheck {
            what: "connect",
            place,
            verdict: OnlineVerdict::Works,
            reason: None,
            advice: None,
        },
        Err(reason) => {
            let (kind, id) = place.split_once('/').unwrap_or((&*place, ""));
            let key = format!("`events.providers.{kind}`, id `{id}`");
            let advice = if is_about_credentials(&reason) {
                format!("check `authentication` of {key}, and the user at the broker")
            } else {
                format!(
                    "is the broker running, and can this machine reach it? Its address stands in {key}"
                )
            };
            OnlineCheck {
                what: "connect",
                verdict: OnlineVerdict::Fails,
                reason: Some(reason),
                advice: Some(advice),
                place,
            }
        }
    }
}

/// Brokers say it in words of their own.
fn is_about_credentials(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    ["auth", "password", "wrongpass", "credential", "nkey", "noperm"]
        .iter()
        .any(|word| reason.contains(word))
}

async fn ask_topic(topic: &BoundTopic, provider_is_away: bool) -> OnlineCheck {
    let BoundTopic { provider, coordinate, what, shown, usage } = topic;
    let verdict = match usage {
        None => Verdict::Unknown("its topic depends on arguments".into()),
        Some(_) if provider_is_away => Verdict::Unknown("the provider is not connected".into()),
        Some(usage) => provider.check(usage.clone()).await,
    };
    let (verdict, reason, advice) = match verdict {
        Verdict::Works => (OnlineVerdict::Works, None, None),
        Verdict::Unknown(reason) => (OnlineVerdict::Unknown, Some(reason), None),
        Verdict::Fails(reason) => {
            let advice = "let the user have it at the broker, or make what is missing; docs/events.md lists the permissions \
                          that each kind of provider needs";
            (OnlineVerdict::Fails, Some(reason), Some(advice.to_owned()))
        }
    };
    let place = format!("{} {shown}, {coordinate}", provider.name());
    OnlineCheck { what, place, verdict, reason, advice }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_a_url_are_not_shown() {
        for (url, expected) in [
            ("http://user:secret@host:1/graphql", "http://host:1/graphql"),
            ("https://token@host/", "https://host/"),
            ("http://127.0.0.1:4001", "http://127.0.0.1:4001"),
            ("unix:///run/a.sock", "unix:///run/a.sock"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
