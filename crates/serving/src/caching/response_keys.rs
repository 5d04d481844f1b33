//! The keys of whole responses: everything that may distinguish the response to a query from another one.

use cache::{EntryKeyHasher, EntryKeys, EntryLabel, HashDomain, KeySecret};
use execute::{ForwardedHeaders, RequestCaching};
use http::{HeaderName, HeaderValue};
use plan::Variables;

/// A query, by everything that may distinguish its response from another one on the same graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedQuery<'a> {
    /// The client's name of the operation, for operators only.
    pub(crate) name: Option<&'a str>,
    /// The id of the operation, which contains the rights of the client.
    pub(crate) operation_id: u128,
    pub(crate) variables: &'a Variables,
    pub(crate) headers: &'a ForwardedHeaders,
    pub(crate) caching: RequestCaching,
}

impl CachedQuery<'_> {
    /// Describes the whole response for operators: the operation, and the values of its variables in their order, which
    /// have no names here.
    pub(super) fn label(&self, is_private: bool) -> EntryLabel {
        let name =
            format!("{} {:032x}", self.name.unwrap_or("(without a name)"), self.operation_id);
        let values = self.variables.values.iter().map(|it| ("", it.as_deref().unwrap_or("–")));
        let values: Vec<_> = values.collect();
        EntryLabel::new(None, &name, &values, is_private)
    }
}

/// Returns the keys of a whole response on the graph with this number. Each list is hashed behind its length, so that
/// different queries are different lists of parts.
pub(super) fn response_keys(secret: &KeySecret, number: u64, query: &CachedQuery<'_>) -> EntryKeys {
    let CachedQuery { operation_id, variables, headers, caching, .. } = query;
    let mut hasher = EntryKeyHasher::new(secret, HashDomain::Response);
    // One part for everything of fixed size: each part costs two calls of the hash function.
    let mut fixed = [0; 48];
    fixed[..8].copy_from_slice(&number.to_le_bytes());
    fixed[8..24].copy_from_slice(&operation_id.to_le_bytes());
    fixed[24..32].copy_from_slice(&(headers.all.len() as u64).to_le_bytes());
    fixed[32..40].copy_from_slice(&(headers.by_subgraph.len() as u64).to_le_bytes());
    fixed[40..].copy_from_slice(&(variables.values.len() as u64).to_le_bytes());
    hasher.part(&fixed);
    hash_headers(&headers.all, &mut hasher);
    for (subgraph, list) in &headers.by_subgraph {
        hasher.part(&subgraph.0.to_le_bytes());
        hasher.part(&(list.len() as u64).to_le_bytes());
        hash_headers(list, &mut hasher);
    }
    for value in &variables.values {
        match value {
            // No JSON text is empty.
            None => hasher.part(b""),
            Some(text) => hasher.part(text.as_bytes()),
        }
    }
    hasher.finish(caching.partition)
}

fn hash_headers(list: &[(HeaderName, HeaderValue)], hasher: &mut EntryKeyHasher) {
    for (name, value) in list {
        hasher.part(name.as_str().as_bytes());
        hasher.part(value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use cache::Partition;
    use graph::SubgraphId;

    use super::*;

    #[test]
    fn queries_that_differ_in_anything_have_different_keys() {
        let name = HeaderName::from_static;
        let value = HeaderValue::from_static;
        let header = |key, text| vec![(name(key), value(text))];
        let all = |all| ForwardedHeaders { all, ..ForwardedHeaders::default() };
        let one = |id, list| ForwardedHeaders {
            by_subgraph: vec![(SubgraphId(id), list)],
            ..ForwardedHeaders::default()
        };
        let two = vec![(name("x-a"), value("1")), (name("x-b"), value("2"))];
        let headers = [
            all(Vec::new()),
            all(header("x-a", "1")),
            all(header("x-a", "2")),
            all(header("x-b", "1")),
            all(header("x-a", "1x-b2")),
            all(two.clone()),
            one(0, header("x-a", "1")),
            one(1, header("x-a", "1")),
            one(0, two),
            one(0, Vec::new()),
        ];
        let variables = [
            vec![],
            vec![None],
            vec![None, None],
            vec![Some("null")],
            vec![Some("\"a\"")],
            vec![Some("1"), Some("2")],
            vec![Some("12"), None],
            vec![None, Some("12")],
        ];
        let variables = variables.map(|values| Variables {
            values: values.into_iter().map(|value| value.map(Into::into)).collect(),
        });
        let partition = |text: &'static str| Partition::of_values([("sub", Some(text.as_bytes()))]);
        let partitions = [None, partition("a"), partition("b")];
        let secret = KeySecret::from_bytes([7; 16]);
        let mut seen = std::collections::HashSet::new();
        let mut count = 0;
        for number in [1, 2] {
            for operation_id in [1, 1 << 64] {
                for headers in &headers {
                    for variables in &variables {
                        for (index, partition) in partitions.into_iter().enumerate() {
                            let caching =
                                RequestCaching { partition, is_live: false, renew_within: None };
                            let query = CachedQuery {
                                operation_id,
                                variables,
                                headers,
                                caching,
                                name: None,
                            };
                            let keys = response_keys(&secret, number, &query);
                            assert_eq!(keys, response_keys(&secret, number, &query));
                            // The public key is the same for all clients, and the private one is not.
                            let own = keys.private.filter(|_| index > 0);
                            count += usize::from(index == 0) + usize::from(own.is_some());
                            seen.extend((index == 0).then_some(keys.public).into_iter().chain(own));
                            assert_eq!(keys.private.is_some(), index > 0);
                        }
                    }
                }
            }
        }
        assert_eq!((seen.len(), count), (count, 2 * 2 * 10 * 8 * 3));
    }
}
