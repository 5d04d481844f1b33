//! Resolves several events of one operation together. Each event has an execution of its own, so
//! that no payload contains values of another event. The executions go through the plan side by
//! side, and their requests for one fetch become one request. A fetch is sent when all executions
//! have reached it: its dependencies are the same for all of them, so no execution waits for one
//! that waits for it.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::pin;

use bytes::Bytes;
use futures_util::future::{join, join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, stream};
use plan::{Fetch, Variables};
use tokio::sync::oneshot;

use super::batching::{is_about_the_request, is_overload};
use super::joint::{self, Joint, Own};
use super::{Call, Execution, Outcome, call};
use crate::bounds::ASKED_ALONE_AT_A_TIME;
use crate::{
    Executable, FetchError, LocalFuture, Payload, RequestContext, Seed, SubgraphAnswer,
    SubgraphRequest, sharing,
};

/// Executes an operation for several events at once. The payloads are those that [`crate::execute`]
/// would return for each event, in their order, if the response about an entity does not depend on
/// the other entities of the request. Failures of a whole request, such as a subgraph that does not
/// respond, become an error of each event.
///
/// The contexts may differ in sharing and in headers; a combined request has the headers of the
/// first event in it.
pub async fn execute_together(
    executable: &Executable,
    variables: &Variables,
    events: Vec<(Seed, RequestContext)>,
) -> Vec<Payload> {
    let (seeds, contexts): (Vec<Seed>, Vec<RequestContext>) = events.into_iter().unzip();
    let mut together = Together::new(executable, variables, &contexts);
    together.plant(seeds);
    together.run().await;
    together.all.into_iter().map(|one| one.execution.finish()).collect()
}

struct Together<'a> {
    executable: &'a Executable,
    contexts: &'a [RequestContext],
    all: Vec<One<'a>>,
    /// The number of executions that have not reached a fetch yet, by fetch.
    missing: Vec<usize>,
    /// The requests of the executions that have reached a fetch, by fetch.
    gathered: Vec<Vec<Asked<'a>>>,
}

/// The execution of one event.
struct One<'a> {
    execution: Execution<'a>,
    /// True if there is something to fetch for the event.
    is_running: bool,
    ready: VecDeque<usize>,
}

/// A request of one execution.
struct Asked<'a> {
    execution: usize,
    request: usize,
    call: Call<'a>,
    /// The positions of its lists of representations: see [`SingleRequest::lists`].
    lists: Vec<Range<usize>>,
}

type Answer = Result<SubgraphAnswer, FetchError>;

/// The outcome of a request, with the numbers of its execution and of the request.
type Answered = (usize, (usize, Outcome));

impl<'a> Together<'a> {
    fn new(
        executable: &'a Executable,
        variables: &'a Variables,
        contexts: &'a [RequestContext],
    ) -> Self {
        let one = |context| {
            let execution = Execution::new(executable, variables, context);
            One { execution, is_running: false, ready: VecDeque::new() }
        };
        let fetches = executable.fetches.len();
        Self {
            executable,
            contexts,
            all: contexts.iter().map(one).collect(),
            missing: vec![0; fetches],
            gathered: (0..fetches).map(|_| Vec::new()).collect(),
        }
    }

    fn plant(&mut self, seeds: Vec<Seed>) {
        for (one, seed) in self.all.iter_mut().zip(seeds) {
            one.is_running = one.execution.plant(None, seed);
            if one.is_running {
                one.ready = one.execution.ready_at_first();
                self.missing.iter_mut().for_each(|missing| *missing += 1);
            }
        }
    }

    async fn run(&mut self) {
        let (executable, contexts) = (self.executable, self.contexts);
        let plan = &**executable.plan();
        let Some(deadline) = contexts.iter().map(|context| context.deadline).min() else { return };
        let mut deadline = pin!(tokio::time::sleep_until(deadline.into()));
        let mut in_flight = FuturesUnordered::new();
        loop {
            self.begin_ready();
            for (fetch, asked) in self.complete_ones() {
                in_flight.push(ask(&plan.fetches[fetch], asked, contexts));
            }
            tokio::select! {
                biased;
                answered = in_flight.next() => {
                    let Some(answered) = answered else { return };
                    for (execution, (request, outcome)) in answered {
                        let (fetch, again) = self.answered(execution, request, outcome);
                        if !again.is_empty() {
                            in_flight.push(ask(&plan.fetches[fetch], again, contexts));
                        }
                    }
                }
                () = &mut deadline => {
                    let running = self.all.iter_mut().filter(|one| one.is_running);
                    running.for_each(|one| one.execution.cut_off());
                    return;
                }
            }
        }
    }

    fn begin_ready(&mut self) {
        let plan = &**self.executable.plan();
        let mut calls = Vec::new();
        for (number, one) in self.all.iter_mut().enumerate() {
            while let Some(index) = one.ready.pop_front() {
                one.execution.begin(index, &plan.fetches[index], &mut one.ready, &mut calls);
                self.missing[index] -= 1;
                let asked = calls.drain(..).map(|(request, call)| {
                    let batches = &one.execution.sent[request].collected;
                    let lists = batches.iter().map(|batch| batch.list.clone());
                    // Requests for root fields below others have no list.
                    let lists = lists.filter(|list| !list.is_empty()).collect();
                    Asked { execution: number, request, call, lists }
                });
                self.gathered[index].extend(asked);
            }
        }
    }

    /// Takes the requests of the fetches that all executions have reached.
    fn complete_ones(&mut self) -> Vec<(usize, Vec<Asked<'a>>)> {
        let fetches = self.gathered.iter_mut().enumerate();
        let complete = fetches.filter(|(fetch, _)| self.missing[*fetch] == 0);
        let complete = complete.map(|(fetch, asked)| (fetch, std::mem::take(asked)));
        complete.filter(|(_, asked)| !asked.is_empty()).collect()
    }

    /// Handles an outcome. Returns the index of its fetch, and the requests to repeat.
    fn answered(
        &mut self,
        number: usize,
        request: usize,
        outcome: Outcome,
    ) -> (usize, Vec<Asked<'a>>) {
        let One { execution, ready, .. } = &mut self.all[number];
        let mut calls = Vec::new();
        execution.answered(request, outcome, ready, &mut calls);
        // These requests concern a failure of this execution only.
        let again = |(request, call)| Asked { execution: number, request, call, lists: Vec::new() };
        (execution.sent[request].fetch, calls.into_iter().map(again).collect())
    }
}

/// Sends the requests of several executions for one fetch.
async fn ask<'a>(
    fetch: &'a Fetch,
    asked: Vec<Asked<'a>>,
    contexts: &'a [RequestContext],
) -> Vec<Answered> {
    let mut own = Vec::new();
    let mut waiting = Vec::new();
    let mut parts: Vec<LocalFuture<'a, Answered>> = Vec::with_capacity(asked.len());
    for Asked { execution, request, call: asked, lists } in asked {
        let context = &contexts[execution];
        match asked {
            Call::Subgraph { body, is_mutation: false }
                if sharing::is_first_for_event(context, fetch.subgraph, &body) =>
            {
                let (sender, part) = oneshot::channel();
                waiting.push((context, Some(sender)));
                own.push(Own { body: body.clone(), lists });
                parts.push(Box::pin(async move {
                    let answer = || async { part.await.unwrap_or_else(|_| Err(broken())) };
                    let answer = sharing::for_event(context, fetch.subgraph, body, answer).await;
                    (execution, (request, Outcome::Answer(answer)))
                }));
            }
            other => parts.push(Box::pin(async move {
                (execution, call(request, fetch, other, context).await)
            })),
        }
    }
    let requests = joint::join(&own, fetch.representations_max).into_iter().map(|joint| {
        let numbers = joint.members.iter().map(|member| member.number);
        let members = numbers.map(|number| {
            let (context, sender) = &mut waiting[number];
            (*context, own[number].body.clone(), sender.take())
        });
        let members: Vec<_> = members.collect();
        async move {
            let alone = members.iter().map(|(context, body, _)| (*context, body.clone()));
            let answers = send(fetch, &joint, alone.collect()).await;
            for ((_, _, sender), answer) in members.into_iter().zip(answers) {
                if let Some(sender) = sender {
                    // The receiver may have got the response of another group meanwhile.
                    let _ = sender.send(answer);
                }
            }
        }
    });
    let requests: Vec<_> = requests.collect();
    // The parts come first: they register the requests, so that other groups wait for them.
    join(join_all(parts), join_all(requests)).await.0
}

fn broken() -> FetchError {
    FetchError::Closed("the request broke off inside the router".into())
}

/// Sends one request for several, or, if its response cannot be split, one for each; `alone` are
/// those requests. Returns the responses in their order.
async fn send(fetch: &Fetch, joint: &Joint, alone: Vec<(&RequestContext, Bytes)>) -> Vec<Answer> {
    let Some((first, _)) = alone.first() else { return Vec::new() };
    let answer = send_one(fetch, first, joint.body.clone()).await;
    let parts = match &answer {
        Ok(answer) => joint.part(fetch.kind.batches(), answer),
        Err(_) => None,
    };
    if let Some(parts) = parts {
        return parts.into_iter().map(Ok).collect();
    }
    let may_be_about_one = match &answer {
        Ok(answer) => !is_overload(answer.status),
        Err(error) => is_about_the_request(error),
    };
    if !may_be_about_one || joint.is_one_request() {
        return vec![answer; alone.len()];
    }
    first.generation.subgraph(fetch.subgraph).note_taken_apart();
    let each = alone.into_iter().map(|(context, body)| send_one(fetch, context, body));
    stream::iter(each).buffered(ASKED_ALONE_AT_A_TIME).collect().await
}

fn send_one<'c>(
    fetch: &Fetch,
    context: &'c RequestContext,
    body: Bytes,
) -> LocalFuture<'c, Answer> {
    let (headers, deadline) = (context.headers.of(fetch.subgraph), context.deadline);
    let request = SubgraphRequest { body, is_mutation: false, headers, deadline };
    context.generation.subgraph(fetch.subgraph).fetch(request)
}
