//! Resolves several events of one operation together. Each event has an execution of its own, so
//! that no payload contains values of another event. The executions go through the plan side by
//! side, and their requests for one fetch become one request. A fetch is sent when all executions
//! have reached it: its dependencies are the same for all of them, so no execution waits for one
//! that waits for it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::pin::pin;

use bytes::Bytes;
use futures_util::future::{join, join_all};
use futures_util::{StreamExt, stream};
use plan::{Fetch, Variables};
use single_flight::Role;
use telemetry::spans::OutgoingSpan;
use tokio::sync::oneshot;

use super::Execution;
use super::batched_fetch::{self, CombinedRequest, SingleRequest};
use super::future_set::FutureSet;
use super::in_flight::{OutgoingRequest, RequestOutcome, send_request};
use super::request_splitting::{is_overload, may_succeed_smaller};
use crate::bounds::ASKED_ALONE_AT_A_TIME;
use crate::fetch_times::FetchTimes;
use crate::shared_fetch::FetchRecorder;
use crate::{
    Executable, FetchError, FetchPlace, LocalFuture, Payload, RequestContext, Seed,
    SubgraphHeaders, SubgraphRequest, SubgraphResponse, shared_fetch,
};

/// Executes an operation for several events at once. The payloads are those that [`crate::execute`]
/// would return for each event, in their order, if the response about an entity does not depend on
/// the other entities of the request. Failures of a whole request, such as a subgraph that does not
/// respond, become an error of each event.
///
/// The contexts may differ in sharing, in headers and in traces; a combined request has the headers
/// of the first event in it, and belongs to its trace.
pub async fn execute_batch(
    executable: &Executable,
    variables: &Variables,
    events: Vec<(Seed, RequestContext)>,
) -> Vec<Payload> {
    let (seeds, contexts): (Vec<Seed>, Vec<RequestContext>) = events.into_iter().unzip();
    let mut batch = EventBatch::new(executable, variables, &contexts);
    batch.insert_seed(seeds);
    batch.run().await;
    batch.all.into_iter().map(|one| one.execution.finish_recorded()).collect()
}

struct EventBatch<'a> {
    executable: &'a Executable,
    contexts: &'a [RequestContext],
    all: Vec<EventExecution<'a>>,
    /// The number of executions that have not reached a fetch yet, by fetch.
    missing: Vec<usize>,
    /// The requests of the executions that have reached a fetch, by fetch.
    pending: Vec<Vec<PendingRequest<'a>>>,
}

/// The execution of one event.
struct EventExecution<'a> {
    execution: Execution<'a>,
    /// True if there is something to fetch for the event.
    is_running: bool,
    ready: VecDeque<usize>,
}

/// A request of one execution.
struct PendingRequest<'a> {
    execution: usize,
    request: usize,
    place: FetchPlace,
    call: OutgoingRequest<'a>,
    /// The positions of its lists of representations: see [`SingleRequest::lists`].
    lists: Vec<Range<usize>>,
}

type FetchResult = Result<SubgraphResponse, FetchError>;

/// The outcome of a request, with the numbers of its execution and of the request.
type FinishedRequest = (usize, (usize, RequestOutcome));

impl<'a> EventBatch<'a> {
    fn new(
        executable: &'a Executable,
        variables: &'a Variables,
        contexts: &'a [RequestContext],
    ) -> Self {
        let one = |context| {
            let execution = Execution::new(executable, variables, context);
            EventExecution { execution, is_running: false, ready: VecDeque::new() }
        };
        let fetches = executable.fetches.len();
        Self {
            executable,
            contexts,
            all: contexts.iter().map(one).collect(),
            missing: vec![0; fetches],
            pending: (0..fetches).map(|_| Vec::new()).collect(),
        }
    }

    fn insert_seed(&mut self, seeds: Vec<Seed>) {
        for (one, seed) in self.all.iter_mut().zip(seeds) {
            one.is_running = one.execution.insert_seed(None, seed);
            if one.is_running {
                one.ready = one.execution.initial_fetches();
                self.missing.iter_mut().for_each(|missing| *missing += 1);
            }
        }
    }

    async fn run(&mut self) {
        let (executable, contexts) = (self.executable, self.contexts);
        let plan = &**executable.plan();
        let place = |fetch: usize| (&plan.fetches[fetch], &executable.times[fetch]);
        let Some(deadline) = contexts.iter().map(|context| context.deadline).min() else { return };
        let mut deadline = pin!(tokio::time::sleep_until(deadline.into()));
        let mut in_flight = FutureSet::new();
        loop {
            self.start_ready_fetches();
            for (fetch, requests_of_fetch) in self.take_complete_fetches() {
                in_flight.push(send_all(place(fetch), requests_of_fetch, contexts));
            }
            tokio::select! {
                biased;
                finished = in_flight.next() => {
                    let Some(finished) = finished else { return };
                    for (execution, (request, outcome)) in finished {
                        let (fetch, again) = self.finish_request(execution, request, outcome);
                        if !again.is_empty() {
                            in_flight.push(send_all(place(fetch), again, contexts));
                        }
                    }
                }
                () = &mut deadline => {
                    let running = self.all.iter_mut().filter(|one| one.is_running);
                    running.for_each(|one| one.execution.end_at_deadline());
                    return;
                }
            }
        }
    }

    fn start_ready_fetches(&mut self) {
        let plan = &**self.executable.plan();
        let mut calls = Vec::new();
        for (number, one) in self.all.iter_mut().enumerate() {
            while let Some(index) = one.ready.pop_front() {
                one.execution.start_fetch(index, &plan.fetches[index], &mut one.ready, &mut calls);
                self.missing[index] -= 1;
                let requests_of_fetch = calls.drain(..).map(|(request, call)| {
                    let sent = &one.execution.sent[request];
                    let (place, batches) = (sent.place(), &sent.collected);
                    let lists = batches.iter().map(|batch| batch.list.clone());
                    // Requests for root fields below others have no list.
                    let lists = lists.filter(|list| !list.is_empty()).collect();
                    PendingRequest { execution: number, request, place, call, lists }
                });
                self.pending[index].extend(requests_of_fetch);
            }
        }
    }

    /// Takes the requests of the fetches that all executions have reached.
    fn take_complete_fetches(&mut self) -> Vec<(usize, Vec<PendingRequest<'a>>)> {
        let fetches = self.pending.iter_mut().enumerate();
        let complete = fetches.filter(|(fetch, _)| self.missing[*fetch] == 0);
        let complete =
            complete.map(|(fetch, requests_of_fetch)| (fetch, std::mem::take(requests_of_fetch)));
        complete.filter(|(_, requests_of_fetch)| !requests_of_fetch.is_empty()).collect()
    }

    /// Handles an outcome. Returns the index of its fetch, and the requests to repeat.
    fn finish_request(
        &mut self,
        number: usize,
        request: usize,
        outcome: RequestOutcome,
    ) -> (usize, Vec<PendingRequest<'a>>) {
        let EventExecution { execution, ready, .. } = &mut self.all[number];
        let mut calls = Vec::new();
        execution.finish_request(request, outcome, ready, &mut calls);
        // These requests concern a failure of this execution only.
        let again = |(request, call): (usize, _)| PendingRequest {
            execution: number,
            request,
            place: execution.sent[request].place(),
            call,
            lists: Vec::new(),
        };
        (execution.sent[request].fetch, calls.into_iter().map(again).collect())
    }
}

/// Sends the requests of several executions for one fetch.
async fn send_all<'a>(
    (fetch, times): (&'a Fetch, &'a FetchTimes),
    requests_of_fetch: Vec<PendingRequest<'a>>,
    contexts: &'a [RequestContext],
) -> Vec<FinishedRequest> {
    let mut own = Vec::new();
    let mut waiting = Vec::new();
    let mut parts: Vec<LocalFuture<'a, FinishedRequest>> =
        Vec::with_capacity(requests_of_fetch.len());
    for PendingRequest { execution, request, place, call, lists } in requests_of_fetch {
        let context = &contexts[execution];
        match call {
            OutgoingRequest::Subgraph { body, is_mutation: false, .. }
                if shared_fetch::is_first_for_event(context, fetch.subgraph, &body) =>
            {
                let (sender, part) = oneshot::channel();
                let recorder = FetchRecorder::begin(context, (fetch.subgraph, place), &body);
                let span = recorder.as_ref().and_then(FetchRecorder::span);
                waiting.push((context, span, Some(sender)));
                own.push(SingleRequest { body: body.clone(), lists });
                parts.push(Box::pin(async move {
                    let part_role = Cell::new(Role::Unshared);
                    let result = || async {
                        let (result, role) =
                            part.await.unwrap_or_else(|_| (Err(aborted_error()), Role::Unshared));
                        part_role.set(role);
                        result
                    };
                    let (result, role) =
                        shared_fetch::fetch_for_event(context, fetch.subgraph, body, result).await;
                    if let Some(recorder) = recorder {
                        let is_part = part_role.get() != Role::Unshared;
                        recorder
                            .record(&result, Some(if is_part { part_role.get() } else { role }));
                    }
                    (execution, (request, RequestOutcome::Response(result)))
                }));
            }
            other => parts.push(Box::pin(async move {
                (execution, send_request(request, (fetch, place, times), other, context).await)
            })),
        }
    }
    let requests = batched_fetch::combine_requests(&own, fetch.representations_max)
        .into_iter()
        .map(|combined| {
            let numbers = combined.members.iter().map(|member| member.number);
            let members = numbers.map(|number| {
                let (context, span, sender) = &mut waiting[number];
                (*context, span.take(), own[number].body.clone(), sender.take())
            });
            let members: Vec<_> = members.collect();
            async move {
                let alone = members.iter();
                let alone =
                    alone.map(|(context, span, body, _)| (*context, span.as_deref(), body.clone()));
                let results = send_combined((fetch, times), &combined, alone.collect()).await;
                for ((_, _, _, sender), result) in members.into_iter().zip(results) {
                    if let Some(sender) = sender {
                        // The receiver may have got the response of another group meanwhile.
                        let _ = sender.send(result);
                    }
                }
            }
        });
    let requests: Vec<_> = requests.collect();
    // The parts come first: they register the requests, so that other groups wait for them.
    join(join_all(parts), join_all(requests)).await.0
}

fn aborted_error() -> FetchError {
    FetchError::Closed("the request was aborted inside the router".into())
}

/// A request of one event, with the span that the subgraph gets if the request is sent alone or is the first one of a
/// combined request.
type RequestAlone<'c> = (&'c RequestContext, Option<&'c OutgoingSpan>, Bytes);

/// Sends one request for several, or, if its response cannot be split, one for each; `alone` are
/// those requests. Returns the responses in their order, and the role of each request.
async fn send_combined(
    (fetch, times): (&Fetch, &FetchTimes),
    combined: &CombinedRequest,
    alone: Vec<RequestAlone<'_>>,
) -> Vec<(FetchResult, Role)> {
    let Some((context, span, _)) = alone.first() else { return Vec::new() };
    let result = send_one((fetch, times), (context, *span, combined.body.clone())).await;
    let with_roles = |results: Vec<FetchResult>| {
        let is_shared = results.len() > 1;
        let role = |index| match (is_shared, index) {
            (false, _) => Role::Unshared,
            (true, 0) => Role::Leader,
            (true, _) => Role::Follower,
        };
        results.into_iter().enumerate().map(|(index, result)| (result, role(index))).collect()
    };
    let parts = match &result {
        Ok(result) => combined.split_response(fetch.kind.batches(), result),
        Err(_) => None,
    };
    if let Some(parts) = parts {
        return with_roles(parts.into_iter().map(Ok).collect());
    }
    let may_be_about_one = match &result {
        Ok(result) => !is_overload(result.status),
        Err(error) => may_succeed_smaller(error),
    };
    if !may_be_about_one || combined.is_one_request() {
        return with_roles(vec![result; alone.len()]);
    }
    context.generation.subgraph(fetch.subgraph).note_split();
    let each = alone.into_iter().map(|request| send_one((fetch, times), request));
    let results: Vec<_> = stream::iter(each).buffered(ASKED_ALONE_AT_A_TIME).collect().await;
    results.into_iter().map(|result| (result, Role::Unshared)).collect()
}

async fn send_one(
    (fetch, times): (&Fetch, &FetchTimes),
    (context, span, body): RequestAlone<'_>,
) -> FetchResult {
    let deadline = context.deadline;
    let headers = SubgraphHeaders { span, ..context.headers.of(fetch.subgraph) };
    let request = SubgraphRequest { body, form: None, is_mutation: false, headers, deadline };
    let running = times.begin();
    let result = context.generation.subgraph(fetch.subgraph).fetch(request).await;
    running.end_fetch(&result);
    result
}
