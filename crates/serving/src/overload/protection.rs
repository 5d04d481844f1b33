//! The overload protection of the process: the control of admission, the classes of requests, and the readiness.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Instant;

use admission::memory::{MemoryAccount, MemoryKind};
use admission::{
    AdmissionSettings, Class, LimitBounds, Load, ProcessorLoad, QueueSettings, Request,
};
use clients::handshake_pace::OperationLoad;
use config::Config;
use config::diagnostic::Diagnostic;
use execute::{ClaimPath, GraphqlError};
use foldhash::quality::RandomState;
use prepare::OperationRequest;

use super::arriving_request::ArrivingRequest;
use super::bulkheads::WorkCounts;
use super::readiness::{ReadinessWatch, UnreadyReason};
use super::request_classes::RequestClasses;
use super::shared_admission::SharedAdmission;
use super::stats::AdmissionStats;
use super::work_ticket::WorkTicket;
use crate::expression_stats::ExpressionStats;

/// The overload protection of the process.
#[derive(Debug)]
pub struct OverloadProtection {
    admission: Arc<SharedAdmission>,
    classes: RequestClasses,
    /// The readiness; `None` if it does not depend on refused requests.
    pub(super) readiness: Option<ReadinessWatch>,
    /// Hashes what names operations and clients. Randomly seeded: clients cannot choose the results.
    hasher: RandomState,
}

impl OverloadProtection {
    /// Creates the protection of a configuration; `None` if it is turned off.
    ///
    /// # Errors
    /// The configuration was not checked, and an expression is not valid.
    pub(crate) fn new(
        config: &Config,
        expressions: &Arc<ExpressionStats>,
    ) -> Result<Option<Arc<Self>>, Box<Diagnostic>> {
        let config::Admission { enabled, limit, queue, .. } = &config.admission;
        if !enabled {
            return Ok(None);
        }
        let settings = AdmissionSettings {
            limit: LimitBounds { initial: limit.initial, min: limit.min, max: limit.max },
            queue: QueueSettings {
                waiting_max: queue.max_waiting,
                target: queue.target,
                interval: queue.interval,
            },
            ramp: config.warming.ramp,
        };
        Ok(Some(Arc::new(Self {
            admission: Arc::new(SharedAdmission::new(settings)),
            classes: RequestClasses::new(config, expressions)?,
            readiness: ReadinessWatch::new(&config.admission.readiness),
            hasher: RandomState::default(),
        })))
    }

    /// Begins the ramp (`warming.ramp`): the router is ready, and its limit grows from now on.
    pub fn begin_ramp(&self) {
        self.admission.begin_ramp();
    }

    /// Decides about the readiness, and notes the time for the ramp and how busy the processors are. To be called once
    /// a second.
    pub fn update(&self, memory: &MemoryAccount, processors: ProcessorLoad) {
        self.admission.update(processors);
        if let Some(readiness) = &self.readiness {
            let (admitted, refused) = self.stats().totals_for_readiness();
            let refused = refused + memory.refused(MemoryKind::Operations);
            readiness.update((admitted, refused), memory.excess() > 0, self.admission.now());
        }
    }

    /// Returns the reason if the router should get no new clients, because it refuses many requests or is short of
    /// memory; `None` if it is ready.
    pub fn unready_reason(&self) -> Option<UnreadyReason> {
        self.readiness.as_ref()?.unready_reason()
    }

    /// True if work is in flight that counts in the limit.
    pub fn has_work(&self) -> bool {
        self.load().in_flight > 0
    }

    /// Returns the counts of work, for the shares of subgraphs.
    pub(crate) fn work(&self) -> &Arc<WorkCounts> {
        &self.admission.work
    }

    /// Returns the limit in units of work.
    pub(crate) fn limit(&self) -> u64 {
        self.admission.limit()
    }

    /// Returns the part of the limit that is in flight: more than 1 if work has the right to exceed it.
    pub fn utilization(&self) -> f64 {
        let load = self.load();
        load.in_flight as f64 / load.limit.max(1) as f64
    }

    /// Returns the load at present.
    pub(super) fn load(&self) -> Load {
        self.admission.load()
    }

    /// Returns the counters.
    pub(super) fn stats(&self) -> &AdmissionStats {
        &self.admission.stats
    }

    /// Returns the claims that the conditions read.
    pub(crate) fn claims(&self) -> &[ClaimPath] {
        self.classes.claims()
    }

    /// Returns the class of a request.
    pub(crate) fn class(&self, request: &ArrivingRequest<'_>) -> Class {
        self.classes.class(request)
    }

    /// Returns the client of a request, which shares of the limit and turns are given to.
    pub(crate) fn client(&self, request: &ArrivingRequest<'_>) -> u64 {
        match self.classes.client(request) {
            Some(key) => self.hasher.hash_one(&*key),
            None => {
                let key = request.identity.client_key().unwrap_or(request.address);
                self.hasher.hash_one(key)
            }
        }
    }

    /// Admits the operations of one request of this class that arrives `now`, which are done as one piece of work:
    /// waits in the queue while the limit is reached, until `deadline` at most. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// `OVERLOADED`: the request is refused, with the time after which the client may try again.
    // hot path: one lock; a refusal takes a few microseconds
    pub(crate) async fn admit(
        &self,
        operations: &[OperationRequest],
        request: ArrivingRequest<'_>,
        class: Class,
        now: Instant,
        deadline: Instant,
    ) -> Result<WorkTicket, GraphqlError> {
        let client = self.client(&request);
        let operation = self.operation_key(operations);
        let request = Request { client, operation, class, opens_stream: request.is_handshake };
        let held = self.admission.admit(request, now, deadline).await?;
        Ok(WorkTicket::new(held))
    }

    /// Returns the hash of what names operations: their texts, or their ids or hashes.
    fn operation_key(&self, operations: &[OperationRequest]) -> u64 {
        let names = operations.iter().map(|it| {
            // Without a text and an id, the operation is named by a hash in the extensions.
            let is_named = !it.query.is_empty() || it.document_id.is_some();
            let extensions = if is_named { &[][..] } else { &*it.extensions };
            self.hasher.hash_one((&*it.query, &it.document_id, &it.operation_name, extensions))
        });
        names.fold(0, |key, name| key.rotate_left(5) ^ name)
    }
}

impl OperationLoad for OverloadProtection {
    fn is_pressed(&self) -> bool {
        self.admission.is_pressed()
    }

    fn note_storm(&self) {
        self.admission.note_storm();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clients::authentication::Identity;
    use clients::request_source::{ConnectionOrigin, RequestSource};
    use config::{AdmissionLimit, AdmissionQueue, Expression, PriorityRule, RequestClass};
    use execute::{ClientKey, ErrorCode};

    use super::*;

    /// Returns a protection with a limit that does not move, and no queue.
    fn protection(limit: u32) -> Arc<OverloadProtection> {
        let admission = config::Admission {
            enabled: true,
            limit: AdmissionLimit { initial: limit, min: limit, max: limit },
            queue: AdmissionQueue { max_waiting: 0, ..AdmissionQueue::default() },
            priority: vec![PriorityRule {
                when: Expression::new("request.headers['x-class'] == 'critical'"),
                class: RequestClass::Critical,
            }],
            fair_by: Some(Expression::new("request.headers['x-tenant']")),
            ..config::Admission::default()
        };
        let config = Config { admission, ..Config::default() };
        OverloadProtection::new(&config, &Arc::default())
            .unwrap_or_else(|error| panic!("{}", error.message))
            .expect("it is turned on")
    }

    async fn admit(
        protection: &Arc<OverloadProtection>,
        headers: &[(&'static str, &'static str)],
    ) -> Result<WorkTicket, GraphqlError> {
        let query = OperationRequest { query: "{ a }".into(), ..OperationRequest::default() };
        admit_arriving(protection, headers, &[query]).await
    }

    /// Admits operations, or a WebSocket handshake if there are none.
    async fn admit_arriving(
        protection: &Arc<OverloadProtection>,
        headers: &[(&'static str, &'static str)],
        operations: &[OperationRequest],
    ) -> Result<WorkTicket, GraphqlError> {
        let headers = headers.iter().map(|&(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
        });
        let origin = ConnectionOrigin::default();
        let request = ArrivingRequest {
            identity: &Identity::ANONYMOUS,
            headers: &headers.collect(),
            address: ClientKey::UNKNOWN,
            source: RequestSource {
                method: "POST",
                ..RequestSource::of_websocket("/graphql", origin)
            },
            is_handshake: operations.is_empty(),
        };
        let now = Instant::now();
        protection
            .admit(
                operations,
                request,
                protection.class(&request),
                now,
                now + Duration::from_secs(60),
            )
            .await
    }

    #[tokio::test]
    async fn classes_and_clients_come_from_expressions() {
        let protection = protection(2);
        let _first = admit(&protection, &[("x-tenant", "a")]).await.expect("there is room");
        let _second = admit(&protection, &[("x-tenant", "b")]).await.expect("there is room");
        assert_eq!(protection.load().clients, 2);
        assert!(admit(&protection, &[("x-tenant", "a")]).await.is_err());
        let critical = admit(&protection, &[("x-tenant", "a"), ("x-class", "critical")]).await;
        let _critical = critical.expect("it may exceed the limit");
        // Without the header that `fair_by` reads, the client counts by its address.
        let other = admit(&protection, &[("x-class", "critical")]).await;
        let _other = other.expect("critical requests fill half of their limit");
        assert_eq!(protection.load().clients, 3);
    }

    #[tokio::test]
    async fn handshakes_leave_a_part_of_the_limit_to_operations() {
        let protection = protection(10);
        let mut tickets = Vec::new();
        for _ in 0..8 {
            tickets.push(admit(&protection, &[]).await.expect("there is room"));
        }
        let refused = admit_arriving(&protection, &[], &[]).await.expect_err("it would be nine");
        assert_eq!(refused.code, ErrorCode::Overloaded);
        tickets.push(admit(&protection, &[]).await.expect("there is room for an operation"));
    }
}
