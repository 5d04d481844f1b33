//! The message that a field sends in addition to its arguments: key and headers from templates, and how long a request
//! waits for its response.

use std::time::Duration;

use bytes::Bytes;
use events::{Headers, Message};
use execute::{ClaimPath, ErrorCode, GraphqlError};
use graph::{AppliedDirective, ConstValue, Field};

use crate::directive::InputObject;
use crate::start;
use crate::template::{ArgumentPath, Arguments, NoTextReason, Template};

/// The maximum number of headers that one field may add to its messages.
const HEADERS_MAX: usize = 16;

/// The maximum size of a key and of a header's value, in bytes: they are for routing, and brokers store them with each
/// event.
const TEXT_BYTES_MAX: usize = 1024;

/// The maximum time that a request waits for its response. Operations end earlier by default.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// The templates of the messages that a field sends.
#[derive(Debug, Default)]
pub(crate) struct MessageTemplate {
    key: Option<Template>,
    headers: Vec<(Box<str>, Template)>,
    /// True if the message is stored, for brokers that distinguish stored and other messages.
    durable: bool,
    /// The maximum time for a response. `None`: the configured time.
    pub(crate) timeout: Option<Duration>,
}

impl MessageTemplate {
    /// Reads `key`, `headers`, `stream` and `timeout` of `directive` on `field`.
    pub(crate) fn read(field: &Field, directive: &AppliedDirective) -> Result<Self, String> {
        let given = |name| directive.argument(name).filter(|value| **value != ConstValue::Null);
        let key = match given("key") {
            None => None,
            Some(ConstValue::String(text)) => Some(read_template(field, "key", text)?),
            Some(_) => return Err("key must be a string".to_owned()),
        };
        let list = match given("headers") {
            None => &[][..],
            Some(ConstValue::List(list)) => list,
            Some(one) => std::slice::from_ref(one),
        };
        if list.len() > HEADERS_MAX {
            return Err(format!("headers has more than {HEADERS_MAX} entries"));
        }
        let mut headers = Vec::with_capacity(list.len());
        for header in list {
            let header = InputObject::read("headers", header, &["name", "value"])?;
            let name = header.required_text("name")?;
            let is_name = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
            if !is_name || name.len() > TEXT_BYTES_MAX {
                return Err(format!("headers: {name:?} is no name of a header"));
            }
            let value = read_template(field, "headers", header.required_text("value")?)?;
            headers.push((name.into(), value));
        }
        let timeout = match given("timeout") {
            None => None,
            Some(ConstValue::String(text)) => Some(parse_timeout(text)?),
            Some(_) => return Err("timeout must be a string such as \"2s\"".to_owned()),
        };
        let durable = start::read_durable(directive)?.is_some();
        Ok(Self { key, headers, durable, timeout })
    }

    /// True if the message is stored, for brokers that distinguish stored and other messages.
    pub(crate) fn is_stored(&self) -> bool {
        self.durable
    }

    /// Returns the names of the headers.
    pub(crate) fn header_names(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().map(|(name, _)| &**name)
    }

    /// Returns the claims that the templates read.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &ClaimPath> {
        let headers = self.headers.iter().map(|(_, value)| value);
        self.key.iter().chain(headers).flat_map(Template::claims)
    }

    /// Renders the message to `topic`. A key or header with a null or missing argument is left out.
    pub(crate) fn render(
        &self,
        topic: Box<str>,
        arguments: &dyn Arguments,
        payload: Bytes,
    ) -> Result<Message, GraphqlError> {
        let key = match &self.key {
            Some(template) => render_text(template, arguments, "a key")?.map(Bytes::from),
            None => None,
        };
        let mut headers = Headers::with_capacity(self.headers.len());
        for (name, template) in &self.headers {
            if let Some(value) = render_text(template, arguments, "a header")? {
                headers.push((name.clone(), value.into()));
            }
        }
        Ok(Message { topic, payload, key, headers, durable: self.durable, schema_topic: None })
    }
}

fn read_template(field: &Field, name: &str, text: &str) -> Result<Template, String> {
    let template = Template::parse(text).map_err(|error| format!("{name} {text:?}: {error}"))?;
    let is_known = |path: &ArgumentPath| field.arguments.iter().any(|it| it.name == path.argument);
    if let Some(path) = template.paths().find(|path| !is_known(path)) {
        return Err(format!("{name} {text:?}: there is no argument {:?}", path.argument));
    }
    Ok(template)
}

fn render_text(
    template: &Template,
    arguments: &dyn Arguments,
    place: &str,
) -> Result<Option<String>, GraphqlError> {
    let refused = |message| Err(GraphqlError::new(ErrorCode::BadUserInput, message));
    match template.text(arguments) {
        Ok(text) if text.len() > TEXT_BYTES_MAX => {
            refused(format!("The arguments make {place} of more than {TEXT_BYTES_MAX} bytes."))
        }
        Ok(text) if text.chars().any(char::is_control) => {
            refused(format!("The arguments make {place} with a control character."))
        }
        Ok(text) => Ok(Some(text)),
        Err((_, NoTextReason::Null | NoTextReason::Missing)) => Ok(None),
        Err((path, reason)) => {
            let reason = reason.as_str();
            refused(format!("Argument \"{path}\" cannot be part of {place}: {reason}."))
        }
    }
}

/// Parses a duration such as `500ms`, `2s` or `1m`.
fn parse_timeout(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => 0,
    };
    let wanted = number.parse::<u64>().ok().and_then(|number| number.checked_mul(millis));
    match wanted.map(Duration::from_millis) {
        Some(Duration::ZERO) | None => {
            Err(format!("timeout: {text:?} is not a time such as 500ms, 2s or 1m"))
        }
        Some(timeout) if timeout > TIMEOUT_MAX => Err("timeout is longer than 10m".to_owned()),
        Some(timeout) => Ok(timeout),
    }
}
