//! The subgraphs of the tests: one lists entities, the other knows their values, which differ by user, language and
//! version.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use astjson::Document;
use bytes::Bytes;
use execute::{
    EventRequest, FetchError, GraphqlError, LocalFuture, Publisher, Subgraph, SubgraphRequest,
    SubgraphResponse,
};
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue, VARY};
use http::{HeaderMap, StatusCode};

use crate::populate;

/// The time to live of every response.
pub(super) const TTL: u64 = 10_000;

/// The number of entities.
pub(super) const ITEMS: u64 = 6;

pub(super) const USER: HeaderName = HeaderName::from_static("x-user");
pub(super) const LANGUAGE: HeaderName = HeaderName::from_static("x-language");

thread_local! {
    pub(super) static NOW: Cell<u64> = const { Cell::new(0) };
}

pub(super) fn is_private(id: u64) -> bool {
    id.is_multiple_of(3)
}

pub(super) fn depends_on_language(id: u64) -> bool {
    id.is_multiple_of(2)
}

/// The value of an entity that the subgraph sends to a client.
pub(super) fn value_of(id: u64, user: &str, language: &str, version: u64) -> String {
    let user = if is_private(id) { user } else { "all" };
    let language = if depends_on_language(id) { language } else { "all" };
    format!("{id} for {user} in {language}, version {version}")
}

/// The subgraph that knows the values: as fields of entities, and as root fields with an argument.
#[derive(Default)]
pub(super) struct Values {
    pub(super) versions: Mutex<HashMap<u64, u64>>,
    /// The ids with an error in place of a value.
    pub(super) broken: Mutex<HashSet<u64>>,
    /// The entities that a mutation changes once more, after the field that returns them.
    pub(super) changed_again: Mutex<HashSet<u64>>,
    /// The ids of all requests.
    pub(super) requests: Mutex<Vec<Vec<u64>>>,
    /// True if responses must not be stored.
    pub(super) forbids_storing: Mutex<bool>,
    /// Called while the next mutation is executed.
    pub(super) during_mutation: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Values {
    pub(super) fn version(&self, id: u64) -> u64 {
        self.versions.lock().unwrap().get(&id).copied().unwrap_or_default()
    }

    /// The headers of a response about these ids.
    pub(super) fn headers_for(&self, ids: &[u64]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let scope = if ids.iter().any(|id| is_private(*id)) { "private" } else { "public" };
        let cache_control = match *self.forbids_storing.lock().unwrap() {
            true => "no-store".to_owned(),
            false => format!("{scope}, max-age={}", TTL / 1000),
        };
        headers.insert(CACHE_CONTROL, HeaderValue::try_from(cache_control).unwrap());
        if ids.iter().any(|id| depends_on_language(*id)) {
            headers.insert(VARY, HeaderValue::from_static("x-language"));
        }
        headers
    }
}

impl Subgraph for Values {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        let header = |name: &HeaderName| {
            let found = request.headers.forwarded.iter().find(|(it, _)| it == name);
            found.map_or(String::new(), |(_, value)| value.to_str().unwrap().to_owned())
        };
        let (user, language) = (header(&USER), header(&LANGUAGE));
        if request.is_mutation {
            return Box::pin(self.mutate(populate::id_of(&request.body), user, language));
        }
        let (ids, keys) = ids_of(&request.body);
        let broken = self.broken.lock().unwrap().clone();
        let text = |id: &u64| value_of(*id, &user, &language, self.version(*id));
        let values: Vec<String> = ids
            .iter()
            .map(|id| match (broken.contains(id), keys.is_empty()) {
                (true, _) => "null".to_owned(),
                (false, true) => format!(r#"{{"value":"{}"}}"#, text(id)),
                (false, false) => format!("{:?}", text(id)),
            })
            .collect();
        let errors = ids.iter().enumerate().filter(|(_, id)| broken.contains(id));
        let path = |index: usize| match keys.get(index) {
            Some(key) => format!("[{key:?}]"),
            None => format!(r#"["_entities",{index},"value"]"#),
        };
        let errors: Vec<String> = errors
            .map(|(index, _)| format!(r#"{{"message":"broken","path":{}}}"#, path(index)))
            .collect();
        let data = match keys.is_empty() {
            true => format!(r#""_entities":[{}]"#, values.join(",")),
            false => {
                let members = keys.iter().zip(&values);
                let members: Vec<String> =
                    members.map(|(key, value)| format!("{key:?}:{value}")).collect();
                members.join(",")
            }
        };
        let errors = errors.join(",");
        let tags = if keys.is_empty() { "" } else { "\"roots\"" };
        let body = format!(
            r#"{{"data":{{{data}}},"errors":[{errors}],"extensions":{{"apolloCacheTags":[{tags}]}}}}"#
        );
        let headers = self.headers_for(&ids);
        self.requests.lock().unwrap().push(ids);
        Box::pin(async move {
            tokio::task::yield_now().await;
            let status = StatusCode::OK;
            Ok(SubgraphResponse { status, headers, body: body.into(), policy: None, hedge: None })
        })
    }
}

/// The ids of the representations or of the root fields of a request, and the response keys of root fields.
pub(super) fn ids_of(body: &Bytes) -> (Vec<u64>, Vec<String>) {
    let mut document = Document::new();
    let root = document.parse(body.clone()).unwrap();
    let query = document.as_str(document.get(root, "query").unwrap()).unwrap().into_owned();
    let variables = document.get(root, "variables").unwrap();
    if let Some(list) = document.get(variables, "r") {
        let id = |node| document.raw(document.get(node, "id").unwrap()).parse().unwrap();
        return (document.elements(list).map(id).collect(), Vec::new());
    }
    let fields = query.split_once('{').unwrap().1.trim_end_matches('}').split(' ');
    let read = |field: &str| {
        let (key, rest) = field.split_once(":value(id:$").unwrap();
        let id = document.get(variables, rest.trim_end_matches(')')).unwrap();
        (document.raw(id).parse::<u64>().unwrap(), key.to_owned())
    };
    fields.map(read).unzip()
}

/// The subgraph that lists the entities that a test asks for.
#[derive(Default)]
pub(super) struct Lists(pub(super) Mutex<Vec<u64>>);

impl Subgraph for Lists {
    fn fetch<'a>(
        &'a self,
        _: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        let ids = self.0.lock().unwrap();
        let items: Vec<String> =
            ids.iter().map(|id| format!(r#"{{"__typename":"Item","id":{id}}}"#)).collect();
        let body = format!(r#"{{"data":{{"items":[{}]}}}}"#, items.join(","));
        let (status, headers) = (StatusCode::OK, HeaderMap::new());
        let response =
            SubgraphResponse { status, headers, body: body.into(), policy: None, hedge: None };
        Box::pin(async { Ok(response) })
    }
}

pub(super) struct NoPublisher;

impl Publisher for NoPublisher {
    fn publish<'a>(&'a self, _: EventRequest<'a>) -> LocalFuture<'a, Result<bool, GraphqlError>> {
        unreachable!("no operation publishes")
    }

    fn request<'a>(&'a self, _: EventRequest<'a>) -> LocalFuture<'a, Result<Bytes, GraphqlError>> {
        unreachable!("no operation sends requests over a broker")
    }
}
