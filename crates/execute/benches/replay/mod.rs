//! The operation of the federation benchmark: planned as the router plans it, executed against
//! subgraphs that replay their responses from memory.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use execute::{
    EventRequest, FetchError, ForwardedHeaders, Generation, GraphqlError, LocalFuture, Payload,
    Publisher, RequestContext, Seed, Subgraph, SubgraphRequest, SubgraphResponse,
};
use graph::Supergraph;
use http::{HeaderMap, StatusCode};
use plan::Variables;
use prepare::{PrepareSettings, Prepared, Preparer};

const SUPERGRAPH: &str =
    include_str!("../../../../fixtures/federation-benchmark/supergraph.graphql");
const OPERATION: &str = include_str!("../../../../fixtures/federation-benchmark/operation.graphql");
/// The response, compact.
pub(crate) const EXPECTED: &str =
    include_str!("../../../../fixtures/federation-benchmark/expected_response.json");

pub(crate) struct Benchmark {
    prepared: Prepared,
    variables: Variables,
    context: RequestContext,
}

impl Benchmark {
    pub(crate) fn new() -> Self {
        let graph = Supergraph::from_sdl(SUPERGRAPH, "supergraph.graphql").unwrap();
        let graph = Arc::new(graph);
        let preparer = Preparer::new(Arc::clone(&graph), 1, PrepareSettings::default());
        let prepared = preparer.prepare_now(OPERATION.as_bytes(), None).unwrap();
        let subgraphs = graph.subgraphs.iter().map(|subgraph| -> Arc<dyn Subgraph> {
            let data = match &*subgraph.name {
                "accounts" => bench_subgraphs::accounts(),
                "inventory" => bench_subgraphs::inventory(),
                "products" => bench_subgraphs::products(),
                "reviews" => bench_subgraphs::reviews(),
                other => panic!("the benchmark has no subgraph {other}"),
            };
            Arc::new(Replay { subgraph: data, known: Mutex::default() })
        });
        let generation = Generation {
            number: 1,
            graph_id: 1,
            subgraphs: subgraphs.collect(),
            graph: Arc::clone(&graph),
            publisher: Arc::new(NoPublisher),
            disclosure: Default::default(),
            caches: None,
            memory: admission::memory::MemoryAccount::unlimited(),
        };
        let context = RequestContext {
            uploads: None,
            closed_subgraphs: None,
            caching: None,
            claims: None,
            generation: Arc::new(generation),
            headers: Arc::new(ForwardedHeaders::default()),
            deadline: Instant::now() + Duration::from_secs(3600),
            sharing: None,
            trace: None,
        };
        let variables = prepared.coerce(&Bytes::new()).unwrap();
        Self { prepared, variables, context }
    }

    pub(crate) async fn execute(&self) -> Payload {
        let (executable, variables) = (&self.prepared.executable, &self.variables);
        execute::execute(executable, variables, None, Seed::Nothing, &self.context).await
    }
}

struct Replay {
    subgraph: load::subgraph::Subgraph,
    /// Requests and their responses.
    known: Mutex<Vec<(Bytes, Bytes)>>,
}

impl Subgraph for Replay {
    fn fetch<'a>(
        &'a self,
        request: SubgraphRequest<'a>,
    ) -> LocalFuture<'a, Result<SubgraphResponse, FetchError>> {
        Box::pin(async move {
            let mut known = self.known.lock().unwrap();
            let response = known.iter().find(|(body, _)| *body == request.body);
            let body = match response {
                Some((_, response)) => response.clone(),
                None => {
                    let response = Bytes::from(self.subgraph.respond(&request.body).body);
                    known.push((request.body.clone(), response.clone()));
                    response
                }
            };
            Ok(SubgraphResponse {
                status: StatusCode::OK,
                headers: HeaderMap::new(),
                body,
                policy: None,
                hedge: None,
            })
        })
    }
}

struct NoPublisher;

impl Publisher for NoPublisher {
    fn publish<'a>(&'a self, _: EventRequest<'a>) -> LocalFuture<'a, Result<bool, GraphqlError>> {
        Box::pin(async move { Err(no_events()) })
    }

    fn request<'a>(&'a self, _: EventRequest<'a>) -> LocalFuture<'a, Result<Bytes, GraphqlError>> {
        Box::pin(async move { Err(no_events()) })
    }
}

fn no_events() -> GraphqlError {
    let code = execute::ErrorCode::InternalServerError;
    GraphqlError::new(code, Cow::Borrowed("there are no events"))
}
