//! The current state of a subscription's field: asked for when somebody subscribes, and shaped as the events that follow.

use bytes::Bytes;
use plan::Variables;

use crate::argument_text::print_value;
use crate::execution::Execution;
use crate::{ErrorCode, Executable, GraphqlError, Payload, RequestContext, Seed};

/// How the current state is asked for.
#[derive(Debug)]
pub struct StatePlan {
    source: StateSource,
}

#[derive(Debug)]
enum StateSource {
    /// A query whose answer it is.
    Query(Executable),
    /// What joins an event of which nothing is known but the entity's keys.
    Entity { executable: Executable, type_name: Box<str>, keys: Vec<Box<str>> },
    /// Nobody can be asked for what the client selects; why.
    Nobody(String),
}

impl StatePlan {
    /// The answer to a query with one root field.
    pub fn query(executable: Executable) -> Self {
        Self { source: StateSource::Query(executable) }
    }

    /// An entity of that type; `executable` is of an event, of which it needs `keys`, the names of arguments.
    pub fn entity(executable: Executable, type_name: Box<str>, keys: Vec<Box<str>>) -> Self {
        Self { source: StateSource::Entity { executable, type_name, keys } }
    }

    /// There is none for this operation, for that reason.
    pub fn nobody(reason: String) -> Self {
        Self { source: StateSource::Nobody(reason) }
    }
}

/// Asks for the current state. `arguments` are those of the subscription's root field.
///
/// What does not exist is null, and `None` where the field must not be null: then there is nothing to tell. What goes wrong is in
/// the payload, as everywhere.
pub async fn state(
    plan: &StatePlan,
    arguments: &[(Box<str>, plan::Value)],
    variables: &Variables,
    context: &RequestContext,
) -> Option<Payload> {
    let (executable, seed, is_entity) = match &plan.source {
        StateSource::Query(executable) => (executable, Seed::Nothing, false),
        StateSource::Entity { executable, type_name, keys } => {
            let entity = representation(type_name, keys, arguments, variables);
            (executable, Seed::Event(entity), true)
        }
        StateSource::Nobody(reason) => {
            let message = format!("There is no current state of what is selected: {reason}");
            return Some(crate::request_error(&[GraphqlError::new(
                ErrorCode::PlanningFailed,
                message,
            )]));
        }
    };
    let mut execution = Execution::new(executable, variables, context);
    execution.watches_entity = is_entity;
    if execution.plant(None, seed) {
        execution.run().await;
    }
    execution.finish_state()
}

/// `{"__typename":"Order","id":"7"}`
fn representation(
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
