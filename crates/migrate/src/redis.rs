//! Redis servers of other routers: their URLs, and the providers that they become.

use super::conversion::{Conversion, Members};
use super::form::Form;
use super::setting::Setting;
use super::target::Value;

/// The servers of one Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Servers {
    urls: Vec<String>,
    /// True if the scheme of a URL says that they are a cluster.
    is_cluster: bool,
    /// True if options in the query of a URL were left out.
    lost_options: bool,
}

impl Servers {
    /// Returns the difference, for a finding.
    pub(crate) fn note(&self) -> &'static str {
        match self.lost_options {
            true => "options in the query of a URL are left out",
            false => "",
        }
    }

    /// Returns a provider with these servers. `cluster` is the switch of the source.
    pub(crate) fn into_provider(
        self,
        id: &str,
        cluster: Option<Value>,
        authentication: Option<Value>,
        further: Vec<(String, Value)>,
    ) -> Value {
        let mut members =
            vec![("id".to_owned(), Value::text(id)), ("urls".to_owned(), Value::texts(self.urls))];
        let cluster = match self.is_cluster {
            true => Some(Value::Bool(true)),
            false => cluster.filter(|it| *it != Value::Bool(false)),
        };
        members.extend(cluster.map(|it| ("cluster_enabled".to_owned(), it)));
        members.extend(authentication.map(|it| ("authentication".to_owned(), it)));
        members.extend(further);
        Value::Map(members)
    }
}

/// Converts a list of servers, each with an id, to the providers in the list `to`.
pub(crate) fn convert_providers(
    conversion: &mut Conversion<'_>,
    setting: &Setting<'_>,
    to: &[String],
) {
    for provider in setting.items() {
        let mut members = Members::of(&provider);
        let id = conversion.optional(members.take("id"), Form::Text);
        let urls = members.take("urls");
        let cluster = conversion.optional(members.take("cluster_enabled"), Form::Bool);
        members.finish(conversion);
        let (Some(Value::Text(id)), Some(urls)) = (id, urls) else {
            conversion.refuse(&provider, "has no `id` or no `urls`", "");
            continue;
        };
        match servers_of(conversion, &urls) {
            Ok(servers) => {
                let note = servers.note();
                let value = servers.into_provider(&id, cluster, None, Vec::new());
                conversion.push(&provider, to, value, note);
            }
            Err(reason) => conversion.refuse(&urls, &reason, ""),
        }
    }
}

/// Reads a list of URLs.
///
/// # Errors
/// The reason, for a sentence after "the value".
pub(crate) fn servers_of(
    conversion: &Conversion<'_>,
    urls: &Setting<'_>,
) -> Result<Servers, String> {
    let urls: Result<Vec<_>, _> = urls.items().iter().map(|it| conversion.text(it)).collect();
    servers(&urls?)
}

/// Reads the URLs of servers. They may be those of a cluster by their scheme.
fn servers(urls: &[String]) -> Result<Servers, String> {
    let mut servers = Servers { urls: Vec::new(), is_cluster: false, lost_options: false };
    for url in urls {
        let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
        let scheme = match scheme {
            // A reference in place of the whole URL.
            _ if url.starts_with("${") && !url.contains("://") => {
                servers.urls.push(url.clone());
                continue;
            }
            "redis" | "valkey" => "redis",
            "rediss" | "valkeys" => "rediss",
            "redis-cluster" | "valkey-cluster" => {
                servers.is_cluster = true;
                "redis"
            }
            "rediss-cluster" | "valkeys-cluster" => {
                servers.is_cluster = true;
                "rediss"
            }
            // The scheme is not repeated: without one, a password may be in its place.
            _ => return Err("has a scheme that Starling does not have".into()),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        servers.lost_options |= !query.is_empty();
        servers.urls.push(format!("{scheme}://{}", rest.trim_end_matches('/')));
    }
    if servers.urls.is_empty() {
        return Err("has no URL".into());
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_other_clients_become_plain_ones() {
        let read = |urls: &[&str]| {
            let urls: Vec<_> = urls.iter().map(|it| (*it).to_owned()).collect();
            servers(&urls)
        };
        let plain = read(&["localhost:6379", "rediss://a:1/2?pool_size=3"]).unwrap();
        assert_eq!(plain.urls, ["redis://localhost:6379", "rediss://a:1/2"]);
        assert!(plain.lost_options && !plain.is_cluster);
        assert!(read(&["redis-cluster://a:1"]).unwrap().is_cluster);
        assert_eq!(read(&["${URL}"]).unwrap().urls, ["${URL}"]);
        assert!(read(&["redis-sentinel://a:1"]).is_err());
        assert!(read(&[]).is_err());
    }
}
