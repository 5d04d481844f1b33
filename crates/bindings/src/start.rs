//! The start of a subscription's stream, and the stored stream of the broker that it reads:
//!
//! - `@events__subscribe(start: ALL, since: "2026-01-31T08:00:00Z", sequence: 7, stream: {name:, consumer:,
//!   inactiveThreshold:})`, at most one of the first three; `until: NOW` ends the stream;
//! - `@edfs__natsSubscribe(streamConfiguration: {streamName:, consumerName:, consumerInactiveThreshold:})`.

use std::sync::Arc;
use std::time::Duration;

use events::{Durable, Start};
use graph::{AppliedDirective, ConstValue};

use crate::directive::InputObject;
use crate::instant::parse_instant;

/// The default of `consumerInactiveThreshold` in the open specification, in seconds.
const EDFS_INACTIVE_SECONDS: u64 = 30;

/// The maximum time for which a broker keeps a consumer of a router that is not connected: a week.
const INACTIVE_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// Reads where the stream begins.
pub(crate) fn read_start(directive: &AppliedDirective) -> Result<Start, String> {
    let given = |name| directive.argument(name).filter(|value| **value != ConstValue::Null);
    match (given("start"), given("since"), given("sequence")) {
        (None, None, None) => Ok(Start::New),
        (Some(ConstValue::Enum(name) | ConstValue::String(name)), None, None) => match &**name {
            "NEW" => Ok(Start::New),
            "ALL" => Ok(Start::All),
            "LAST" => Ok(Start::Last),
            "LAST_PER_SUBJECT" => Ok(Start::LastPerTopic),
            _ => Err(format!("start: {name} is none of NEW, ALL, LAST and LAST_PER_SUBJECT")),
        },
        (Some(_), None, None) => {
            Err("start must be one of NEW, ALL, LAST and LAST_PER_SUBJECT".to_owned())
        }
        (None, Some(ConstValue::String(text)), None) => parse_instant(text)
            .map(Start::Since)
            .ok_or_else(|| format!("since: {text:?} is not a time such as 2026-01-31T08:00:00Z")),
        (None, Some(_), None) => Err("since must be a string".to_owned()),
        (None, None, Some(ConstValue::Int(text) | ConstValue::String(text))) => text
            .parse()
            .map(Start::At)
            .map_err(|_| "sequence must be a whole number of 0 or more".to_owned()),
        (None, None, Some(_)) => Err("sequence must be a whole number".to_owned()),
        _ => Err("only one of start, since and sequence may be given".to_owned()),
    }
}

/// Reads `until`: true if the stream ends with the last event that is stored when it is opened.
pub(crate) fn read_until(directive: &AppliedDirective) -> Result<bool, String> {
    match directive.argument("until") {
        None | Some(ConstValue::Null) => Ok(false),
        Some(ConstValue::Enum(name) | ConstValue::String(name)) if **name == *"NOW" => Ok(true),
        Some(_) => Err("until must be NOW".to_owned()),
    }
}

/// Reads which stored stream and consumer of the broker the subscription uses.
pub(crate) fn read_durable(directive: &AppliedDirective) -> Result<Option<Arc<Durable>>, String> {
    let given = |name| directive.argument(name).filter(|value| **value != ConstValue::Null);
    if let Some(value) = given("streamConfiguration") {
        let known = ["consumerName", "streamName", "consumerInactiveThreshold"];
        let object = InputObject::read("streamConfiguration", value, &known)?;
        let (stream, consumer) =
            (object.required_text("streamName")?, object.required_text("consumerName")?);
        let seconds = object.number("consumerInactiveThreshold")?.unwrap_or(EDFS_INACTIVE_SECONDS);
        return Ok(Some(Arc::new(Durable {
            stream: Some(stream.into()),
            consumer: Some(consumer.into()),
            inactive_threshold: read_threshold(
                seconds,
                "streamConfiguration.consumerInactiveThreshold",
            )?,
        })));
    }
    let Some(value) = given("stream") else { return Ok(None) };
    let object = InputObject::read("stream", value, &["name", "consumer", "inactiveThreshold"])?;
    let inactive_threshold = match object.number("inactiveThreshold")? {
        Some(seconds) => read_threshold(seconds, "stream.inactiveThreshold")?,
        None => None,
    };
    Ok(Some(Arc::new(Durable {
        stream: object.text("name")?.map(Into::into),
        consumer: object.text("consumer")?.map(Into::into),
        inactive_threshold,
    })))
}

/// Converts a threshold. 0 means the broker's default.
fn read_threshold(seconds: u64, name: &str) -> Result<Option<Duration>, String> {
    match seconds {
        0 => Ok(None),
        1..=INACTIVE_SECONDS_MAX => Ok(Some(Duration::from_secs(seconds))),
        _ => Err(format!("{name} is longer than a week")),
    }
}
