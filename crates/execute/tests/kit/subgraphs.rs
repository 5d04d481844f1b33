//! Subgraphs in memory, and a generation made of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use admission::memory::MemoryAccount;
use bytes::Bytes;
use execute::{
    ErrorCode, EventRequest, FetchError, ForwardedHeaders, Generation, GraphqlError, LocalFuture,
    Publisher, RequestContext, Subgraph, SubgraphRequest, SubgraphResponse,
};
use graph::{ApiSchema, SubgraphId, SubgraphKind, Supergraph, TypeId};
use http::{HeaderMap, StatusCode};

/// The response of a subgraph to a request whose body contains `contains`.
pub struct Rule {
    pub subgraph: String,
    pub contains: String,
    pub reaction: String,
}

/// All requests, in order.
pub type Log = Arc<Mutex<Vec<String>>>;

pub struct World {
    pub log: Log,
    pub generation: Arc<Generation>,
}

impl World {
    pub fn new(names: &[String], rules: Vec<Rule>) -> Self {
        let log = Log::default();
        let rules = Arc::new(rules);
        let subgraphs: Vec<Arc<dyn Subgraph>> = names
            .iter()
            .map(|name| -> Arc<dyn Subgraph> {
                Arc::new(InMemory {
                    name: name.clone(),
                    rules: Arc::clone(&rules),
                    log: Arc::clone(&log),
                })
            })
            .collect();
        let publisher = Arc::new(InMemory {
            name: "publisher".into(),
            rules: Arc::clone(&rules),
            log: Arc::clone(&log),
        });
        Self { log, generation: generation(names, subgraphs, publisher) }
    }

    /// Counts memory in this account.
    pub fn with_memory(mut self, memory: &Arc<MemoryAccount>) -> Self {
        let generation = Arc::get_mut(&mut self.generation).unwrap();
        generation.memory = Arc::clone(memory);
        self
    }

    pub fn context(&self, deadline: std::time::Instant) -> RequestContext {
        RequestContext {
            uploads: None,
            closed_subgraphs: None,
            caching: None,
            claims: None,
            generation: Arc::clone(&self.generation),
            headers: Arc::new(ForwardedHeaders::default()),
            deadline,
            sharing: None,
            trace: None,
        }
    }
}

/// A generation with these subgraphs.
pub fn generation(
    names: &[String],
    subgraphs: Vec<Arc<dyn Subgraph>>,
    publisher: Arc<dyn Publisher>,
) -> Arc<Generation> {
    Arc::new(Generation {
        number: 1,
        graph_id: 1,
        graph: Arc::new(supergraph(names)),
        subgraphs,
        publisher,
        disclosure: Default::default(),
        caches: None,
        memory: MemoryAccount::unlimited(),
    })
}

fn supergraph(names: &[String]) -> Supergraph {
    let schema = apollo_compiler::Schema::parse_and_validate("type Query { a: Int }", "t.graphql");
    Supergraph {
        subgraphs: names
            .iter()
            .map(|name| graph::Subgraph {
                name: name.as_str().into(),
                url: "http://127.0.0.1:1/".into(),
                kind: SubgraphKind::Server,
                subscription: None,
            })
            .collect(),
        types: Vec::new(),
        fields: Vec::new(),
        type_names: HashMap::new(),
        query: TypeId(0),
        mutation: None,
        subscription: None,
        access: Default::default(),
        override_labels: Vec::new(),
        costs: None,
        cache_hints: None,
        api: ApiSchema(Arc::new(schema.unwrap())),
    }
}

struct InMemory {
    name: String,
    rules: Arc<Vec<Rule>>,
    log: Log,
}

impl InMemory {
    fn reaction(&self, text: &str) -> String {
        self.log.lock().unwrap().push(format!("{} {text}", self.name));
        self.rules
            .iter()
            .find(|rule| rule.subgraph == self.name && text.contains(&rule.contains))
            .map(|rule| rule.reaction.clone())
            .unwrap_or_else(|| panic!("no rule of {} applies to {text}", self.name))
    }
}

impl Subgraph for InMemory {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        let reaction = self.reaction(std::str::from_utf8(&request.body).unwrap());
        Box::pin(async move {
            match reaction.as_str() {
                "!refused" => Err(FetchError::Connect("connection refused".into())),
                "!closed" => Err(FetchError::Closed("unexpected end of file".into())),
                "!timeout" => Err(FetchError::Timeout(std::time::Duration::from_secs(2))),
                "!large" => Err(FetchError::TooLarge { limit: 1000 }),
                "!overloaded" => Err(FetchError::Overloaded),
                "!html" => Err(FetchError::Status {
                    status: StatusCode::BAD_GATEWAY,
                    content_type: Some("text/html".into()),
                    body: None,
                }),
                "!never" => std::future::pending().await,
                text if text.starts_with("[401 JSON] ") => Err(FetchError::Status {
                    status: StatusCode::UNAUTHORIZED,
                    content_type: Some("application/json".into()),
                    body: Some(Bytes::copy_from_slice(&text.as_bytes()["[401 JSON] ".len()..])),
                }),
                text => {
                    let (status, body) = match text.strip_prefix("[500] ") {
                        Some(body) => (StatusCode::INTERNAL_SERVER_ERROR, body),
                        None => (StatusCode::OK, text),
                    };
                    // Yields once to the runtime, so that concurrent fetches are in flight at once.
                    tokio::task::yield_now().await;
                    let body = Bytes::copy_from_slice(body.as_bytes());
                    Ok(SubgraphResponse {
                        status,
                        headers: HeaderMap::new(),
                        body,
                        policy: None,
                        hedge: None,
                    })
                }
            }
        })
    }

    fn note_split(&self) {
        self.log.lock().unwrap().push(format!("{}, taken apart", self.name));
    }
}

impl Publisher for InMemory {
    fn publish<'a>(
        &'a self,
        request: EventRequest<'a>,
    ) -> LocalFuture<'a, Result<bool, GraphqlError>> {
        let reaction = self.reaction(&text_of(&request));
        Box::pin(async move {
            match reaction.as_str() {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err(GraphqlError::new(ErrorCode::BadUserInput, reaction)),
            }
        })
    }

    /// `!no-responder`, or the response.
    fn request<'a>(
        &'a self,
        request: EventRequest<'a>,
    ) -> LocalFuture<'a, Result<Bytes, GraphqlError>> {
        let reaction = self.reaction(&text_of(&request));
        Box::pin(async move {
            match reaction.as_str() {
                "!no-responder" => {
                    Err(GraphqlError::new(ErrorCode::NoResponder, "No responder listens."))
                }
                "!never" => std::future::pending().await,
                _ => Ok(reaction.into()),
            }
        })
    }
}

fn text_of(request: &EventRequest<'_>) -> String {
    format!("{} {}", request.field.0, std::str::from_utf8(&request.arguments).unwrap())
}

pub fn subgraph_id(names: &mut Vec<String>, name: &str) -> SubgraphId {
    let index = names.iter().position(|it| it == name).unwrap_or_else(|| {
        names.push(name.into());
        names.len() - 1
    });
    SubgraphId(index as u16)
}
