//! The current state of a subscription's field: fetched when a client subscribes, with the shape of
//! the events that follow.

use std::sync::Arc;

use bytes::Bytes;
use plan::{Plan, Variables};

use crate::argument_text::print_value;
use crate::execution::Execution;
use crate::{ErrorCode, Executable, GraphqlError, Payload, RequestContext, Seed};

/// The plan that fetches the current state.
#[derive(Debug)]
pub struct StatePlan {
    source: StateSource,
}

#[derive(Debug)]
enum StateSource {
    /// A query whose response is the state.
    Query(Executable),
    /// The plan of an event of which only the keys of the entity are known.
    Entity { executable: Executable, type_name: Box<str>, keys: Vec<Box<str>> },
    /// No plan exists for the selection of the client; the reason.
    Unavailable(String),
}

impl StatePlan {
    /// A plan that executes a query with one root field.
    pub fn query(executable: Executable) -> Self {
        Self { source: StateSource::Query(executable) }
    }

    /// A plan that fetches an entity of type `type_name`. `executable` is that of an event; `keys`
    /// are the names of the arguments that it needs.
    pub fn entity(executable: Executable, type_name: Box<str>, keys: Vec<Box<str>>) -> Self {
        Self { source: StateSource::Entity { executable, type_name, keys } }
    }

    /// No plan for this operation, for this reason.
    pub fn unavailable(reason: String) -> Self {
        Self { source: StateSource::Unavailable(reason) }
    }

    /// Returns the plan that is executed; `None` if there is none for the selection of the client.
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        match &self.source {
            StateSource::Query(executable) | StateSource::Entity { executable, .. } => {
                Some(executable.plan())
            }
            StateSource::Unavailable(_) => None,
        }
    }
}

/// Fetches the current state. `arguments` are those of the subscription's root field.
///
/// An entity that does not exist is null. If the field must not be null, the result is `None`:
/// there is no state to send. Errors are in the payload, as everywhere.
pub async fn fetch_current_state(
    plan: &StatePlan,
    arguments: &[(Box<str>, plan::Value)],
    variables: &Variables,
    context: &RequestContext,
) -> Option<Payload> {
    let (executable, seed, is_entity) = match &plan.source {
        StateSource::Query(executable) => (executable, Seed::Nothing, false),
        StateSource::Entity { executable, type_name, keys } => {
            let entity = print_representation(type_name, keys, arguments, variables);
            (executable, Seed::Event(entity), true)
        }
        StateSource::Unavailable(reason) => {
            let message = format!("There is no current state for this selection: {reason}");
            return Some(crate::request_error(&[GraphqlError::new(
                ErrorCode::PlanningFailed,
                message,
            )]));
        }
    };
    let mut execution = Execution::new(executable, variables, context);
    execution.checks_existence = is_entity;
    if execution.insert_seed(None, seed) {
        execution.run().await;
    }
    execution.finish_state()
}

/// `{"__typename":"Order","id":"7"}`
fn print_representation(
    type_name: &str,
    keys: &[Box<str>],
    arguments: &[(Box<str>, plan::Value)],
    variables: &Variables,
) -> Bytes {
    let mut out = b"{\"__typename\":".to_vec();
    astjson::print_string(type_name, &mut out);
    for (name, value) in arguments.iter().filter(|(name, _)| keys.contains(name)) {
        out.push(b',');
        astjson::print_string(name, &mut out);
        out.push(b':');
        print_value(value, variables, &mut out);
    }
    out.push(b'}');
    out.into()
}
