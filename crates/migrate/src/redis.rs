//! Redis servers of other routers: their URLs, and the providers that they become.

use super::target::Value;

/// The servers of one Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Servers {
    pub(crate) urls: Vec<String>,
    pub(crate) is_cluster: bool,
    /// True if options in the query of a URL were left out.
    pub(crate) lost_options: bool,
}

impl Servers {
    /// Returns a provider with these servers.
    pub(crate) fn into_provider(
        self,
        id: &str,
        authentication: Option<Value>,
        further: Vec<(String, Value)>,
    ) -> Value {
        let mut members =
            vec![("id".to_owned(), Value::text(id)), ("urls".to_owned(), Value::texts(self.urls))];
        if self.is_cluster {
            members.push(("cluster_enabled".to_owned(), Value::Bool(true)));
        }
        members.extend(authentication.map(|it| ("authentication".to_owned(), it)));
        members.extend(further);
        Value::Map(members)
    }
}

/// Reads the URLs of servers. They may be those of a cluster by their scheme.
///
/// # Errors
/// The reason, for a sentence after "the value".
pub(crate) fn servers(urls: &[String], is_cluster: bool) -> Result<Servers, String> {
    let mut servers = Servers { urls: Vec::new(), is_cluster, lost_options: false };
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
            other => return Err(format!("has the scheme `{other}`, which Starling does not have")),
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
            servers(&urls, false)
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
