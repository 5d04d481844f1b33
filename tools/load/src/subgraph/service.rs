//! A subgraph that executes requests, and its builder. `server.rs` puts it behind a socket.

use std::borrow::Cow;
use std::sync::Arc;

use quick_cache::sync::Cache;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::changes::EntityChanges;
use super::errors::{FieldError, SubgraphError};
use super::execution::{Execution, FieldFault};
use super::input;
use super::invention::{Invention, Inventor};
use super::model::Model;
use super::operation::{CompiledOperation, Document};
use super::resolvers::{Call, EntityResolver, FieldResolver, Resolvers};
use super::store::Store;
use super::subscriptions::SubscriptionEvent;

/// The maximum number of compiled operation texts kept. A router sends a few dozen distinct texts; a thousand of them
/// take some megabytes at most.
const DOCUMENTS_MAX: usize = 1024;

/// The maximum length of a text in the cache, which bounds the cache to `DOCUMENTS_MAX` times this. Longer texts are
/// compiled each time.
const CACHED_TEXT_BYTES_MAX: usize = 64 * 1024;

/// A subgraph's schema, data and resolvers, ready to execute requests. Cloning is cheap.
#[derive(Clone)]
pub struct Subgraph {
    inner: Arc<SubgraphParts>,
}

struct SubgraphParts {
    model: Model,
    store: Store,
    resolvers: Resolvers,
    inventor: Option<Inventor>,
    changes: EntityChanges,
    documents: Cache<Box<str>, Arc<Document>>,
}

/// Collects the parts of a [`Subgraph`]; nothing is checked before [`SubgraphBuilder::build`].
pub struct SubgraphBuilder {
    sdl: String,
    records: Vec<(String, Value)>,
    fields: Vec<(String, String, FieldResolver)>,
    entities: Vec<(String, EntityResolver)>,
    invention: Option<Invention>,
}

impl Subgraph {
    /// Returns a builder for a subgraph with this schema. Federation directives (any version, with or without `@link`)
    /// and unknown directives are tolerated; `_entities`, `_service` and their types are added.
    pub fn builder(sdl: impl Into<String>) -> SubgraphBuilder {
        SubgraphBuilder {
            sdl: sdl.into(),
            records: Vec::new(),
            fields: Vec::new(),
            entities: Vec::new(),
            invention: None,
        }
    }

    /// Returns the schema as given, which is also the value of `_service { sdl }`.
    pub fn sdl(&self) -> &str {
        &self.inner.model.sdl
    }

    /// Executes one GraphQL request, given as the JSON body of a POST.
    pub fn respond(&self, body: &[u8]) -> SubgraphResponse {
        self.respond_with_fault(body, None)
    }

    pub(super) fn respond_with_fault(
        &self,
        body: &[u8],
        fault: Option<&FieldFault>,
    ) -> SubgraphResponse {
        match self.try_respond(body, fault) {
            Ok(bytes) => SubgraphResponse { status: 200, body: bytes },
            Err(message) => SubgraphResponse { status: 400, body: errors_only(&message) },
        }
    }

    fn try_respond(&self, body: &[u8], fault: Option<&FieldFault>) -> Result<Vec<u8>, String> {
        let request = RequestedOperation::read(self, body)?;
        let operation = request.operation()?;
        if operation.subscription_field.is_some() {
            return Err("this subgraph serves subscriptions over WebSocket only".to_owned());
        }
        self.execution(operation, &request.variables, fault).run()
    }

    /// Starts an operation that came over a connection for subscriptions: executes a query or mutation, and prepares a
    /// subscription. The error is a message for the client.
    pub(super) fn start_operation(&self, body: &[u8]) -> Result<StartedOperation, String> {
        let request = RequestedOperation::read(self, body)?;
        let operation = request.operation()?;
        if operation.subscription_field.is_some() {
            return Ok(StartedOperation::Subscription(PreparedSubscription(request)));
        }
        self.execution(operation, &request.variables, None).run().map(StartedOperation::Response)
    }

    fn execution<'a>(
        &'a self,
        operation: &'a CompiledOperation,
        variables: &'a [Option<Value>],
        fault: Option<&'a FieldFault>,
    ) -> Execution<'a> {
        let SubgraphParts { model, store, resolvers, inventor, changes, .. } = &*self.inner;
        Execution::new(model, store, resolvers, inventor.as_ref(), operation, variables, fault)
            .with_changes(changes.snapshot())
    }

    /// Changes fields of a made-up entity, for every operation that begins later. `entity` has `__typename`, the fields
    /// of one of its keys, and new values, which are interpreted like those of resolvers.
    ///
    /// # Errors
    /// A message for the client: the entity is not of this subgraph or not made up, or too many entities have changes.
    pub fn change_entity(&self, entity: Map<String, Value>) -> Result<(), String> {
        let SubgraphParts { model, store, inventor, changes, .. } = &*self.inner;
        let type_name = entity.get("__typename").and_then(Value::as_str);
        let type_name = type_name.ok_or("the entity has no `__typename`")?;
        let type_id = model.type_id(type_name);
        let type_id = type_id.ok_or_else(|| format!("there is no object type `{type_name}`"))?;
        let object = model.object(type_id);
        if !object.keys.iter().any(|key| key.text_of(&entity).is_some()) {
            return Err(format!("the entity of `{type_name}` has no complete key"));
        }
        let inventor = inventor.as_ref().filter(|_| !store.has_records(type_id));
        let inventor =
            inventor.ok_or_else(|| format!("entities of `{type_name}` are not made up"))?;
        let identity = inventor.entity_by_key(model, type_id, &entity);
        let is_key = |name: &str| object.keys.iter().any(|key| key.has_member(name));
        let mut fields = entity.clone();
        fields.retain(|name, _| name != "__typename" && !is_key(name));
        if let Some(name) = fields.keys().find(|name| object.field_index(name).is_none()) {
            return Err(format!("there is no field `{type_name}.{name}`"));
        }
        changes.apply(identity, fields)
    }

    /// Returns the number of changes of entities since the start.
    pub fn change_count(&self) -> u64 {
        self.inner.changes.count()
    }

    /// Returns the compiled form of an operation text, from the cache if the text is known.
    fn document(&self, text: &str) -> Result<Arc<Document>, String> {
        if let Some(document) = self.inner.documents.get(text) {
            return Ok(document);
        }
        let document = Arc::new(Document::compile(&self.inner.model, text)?);
        if text.len() <= CACHED_TEXT_BYTES_MAX {
            self.inner.documents.insert(text.into(), Arc::clone(&document));
        }
        Ok(document)
    }

    pub(super) fn field_fault(
        &self,
        type_name: &str,
        field: &str,
        message: Option<String>,
    ) -> Option<FieldFault> {
        let type_id = self.inner.model.type_id(type_name)?;
        let field = self.inner.model.object(type_id).field_index(field)?;
        Some(FieldFault { type_id, field, message })
    }
}

impl SubgraphBuilder {
    /// Adds records: JSON objects whose members are fields of the type.
    ///
    /// A member of an object type may be given in full, or as its key alone (`{"id": "1"}`): if a record of that type
    /// has the same key, members that are not given are taken from that record, so records may refer to each other in
    /// circles. A member of an interface or union type must have a `__typename`. The values of root fields are the
    /// members of a single record of the root type (`"Query"`). A field without a member is null.
    #[must_use]
    pub fn records(mut self, type_name: &str, records: impl IntoIterator<Item = Value>) -> Self {
        self.records.extend(records.into_iter().map(|record| (type_name.to_owned(), record)));
        self
    }

    /// Computes a field at each request, instead of reading it from the record. The result is interpreted like a
    /// member of a record: objects may be given as their key alone, which is null if no record of the type has that
    /// key.
    #[must_use]
    pub fn resolver(
        mut self,
        type_name: &str,
        field: &str,
        resolve: impl Fn(&Call<'_>) -> Result<Value, FieldError> + Send + Sync + 'static,
    ) -> Self {
        self.fields.push((type_name.to_owned(), field.to_owned(), Box::new(resolve)));
        self
    }

    /// Resolves the entity of a representation of this type for `_entities`: an object (possibly its key alone), null,
    /// or an error at that entity.
    ///
    /// By default, an entity is the record with the same key, or null if there is none; a type without any records
    /// uses the representation itself.
    #[must_use]
    pub fn entity(
        mut self,
        type_name: &str,
        resolve: impl Fn(&Map<String, Value>) -> Result<Value, FieldError> + Send + Sync + 'static,
    ) -> Self {
        self.entities.push((type_name.to_owned(), Box::new(resolve)));
        self
    }

    /// Makes up all data that records and resolvers do not provide: the same data for the same settings, and the same
    /// data of an entity in every subgraph. Types with records have no other entities than those.
    #[must_use]
    pub fn invent(mut self, invention: Invention) -> Self {
        self.invention = Some(invention);
        self
    }

    /// Checks schema and data against each other and links the records.
    ///
    /// # Errors
    /// [`SubgraphError`] if the schema is not valid or does not have the types or fields of the data.
    pub fn build(self) -> Result<Subgraph, SubgraphError> {
        let mut model = Model::read(&self.sdl)?;
        let resolvers = Resolvers::attach(&mut model, self.fields, self.entities)?;
        let store = Store::link(&model, self.records)?;
        let inventor = self.invention.map(|invention| Inventor::new(&model, invention));
        let documents = Cache::new(DOCUMENTS_MAX);
        Ok(Subgraph {
            inner: Arc::new(SubgraphParts {
                model,
                store,
                resolvers,
                inventor,
                changes: EntityChanges::default(),
                documents,
            }),
        })
    }
}

/// The response of a subgraph to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubgraphResponse {
    /// 200 if the operation was executed, 400 if the request was refused.
    pub status: u16,
    /// The GraphQL response as JSON text.
    pub body: Vec<u8>,
}

/// The first result of an operation over a connection for subscriptions.
pub(super) enum StartedOperation {
    /// The response to a query or mutation.
    Response(Vec<u8>),
    Subscription(PreparedSubscription),
}

/// A subscription in progress, ready to resolve events.
pub(super) struct PreparedSubscription(RequestedOperation);

impl PreparedSubscription {
    /// Returns the GraphQL response for one event.
    pub(super) fn resolve(&self, subgraph: &Subgraph, event: &SubscriptionEvent) -> Vec<u8> {
        let resolved = self.0.operation().and_then(|operation| {
            subgraph.execution(operation, &self.0.variables, None).with_event(event).run()
        });
        resolved.unwrap_or_else(|message| errors_only(&message))
    }
}

/// A request with its document and the values of its variables.
struct RequestedOperation {
    document: Arc<Document>,
    name: Option<Box<str>>,
    variables: Vec<Option<Value>>,
}

impl RequestedOperation {
    /// Reads the JSON body of a POST. The error is a message for the client.
    fn read(subgraph: &Subgraph, body: &[u8]) -> Result<Self, String> {
        let request: GraphqlRequest<'_> = serde_json::from_slice(body)
            .map_err(|error| format!("the request body is not a GraphQL request: {error}"))?;
        let document = subgraph.document(&request.query)?;
        let name = request.operation_name.map(|name| name.as_ref().into());
        let operation = document.operation(name.as_deref())?;
        let variables = input::variables(
            &subgraph.inner.model,
            &operation.variables,
            request.variables.unwrap_or_default(),
        )?;
        Ok(Self { document, name, variables })
    }

    fn operation(&self) -> Result<&CompiledOperation, String> {
        self.document.operation(self.name.as_deref())
    }
}

#[derive(Deserialize)]
struct GraphqlRequest<'a> {
    #[serde(borrow)]
    query: Cow<'a, str>,
    #[serde(borrow, default, rename = "operationName")]
    operation_name: Option<Cow<'a, str>>,
    #[serde(default)]
    variables: Option<Map<String, Value>>,
}

/// Formats a GraphQL response for a request that was not executed (specification, section 7.1.2, request errors).
pub(super) fn errors_only(message: &str) -> Vec<u8> {
    serde_json::json!({ "errors": [{ "message": message }] }).to_string().into_bytes()
}
