//! Entries of a stream, and their conversion to events and from messages.
//!
//! An entry is a list of fields. The field `data` is the payload and `key` is the key; all others are headers. An entry
//! without `data` was not written by a router: its payload is a JSON object of all fields as strings.

use std::sync::Arc;

use bytes::Bytes;
use redis::{Cmd, Value};

use super::entry_id::EntryId;
use crate::{Event, Headers, Message};

/// The field that contains the payload.
const DATA: &str = "data";

/// The field that contains the key.
const KEY: &str = "key";

/// An entry as read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StreamEntry {
    pub(super) id: EntryId,
    /// The names and values in the order in which they were written.
    fields: Vec<(Vec<u8>, Bytes)>,
}

impl StreamEntry {
    /// Reads `[id, [name, value, …]]`.
    pub(super) fn read(value: Value) -> Option<Self> {
        let Value::Array(parts) = value else { return None };
        let [id, fields] = <[Value; 2]>::try_from(parts).ok()?;
        let id = EntryId::parse(&text(id)?)?;
        let Value::Array(fields) = fields else { return None };
        let mut fields = fields.into_iter();
        let mut read = Vec::with_capacity(fields.len() / 2);
        while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
            read.push((text(name)?, text(value)?.into()));
        }
        Some(Self { id, fields: read })
    }

    /// Reads a list of entries. Invalid ones are left out.
    pub(super) fn read_all(value: Value) -> Vec<Self> {
        match value {
            Value::Array(entries) => entries.into_iter().filter_map(Self::read).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the approximate size of the entry in bytes.
    pub(super) fn byte_size(&self) -> usize {
        self.fields.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Converts the entry to an event without an offset. The caller adds the offset, because it knows the partition.
    pub(super) fn into_event(self, topic: &Arc<str>) -> Event {
        let published = self.id.time();
        let (mut data, mut key, mut headers) = (None, None, Headers::new());
        if self.fields.iter().any(|(name, _)| name == DATA.as_bytes()) {
            for (name, value) in self.fields {
                match &*name {
                    name if name == DATA.as_bytes() => data = Some(value),
                    name if name == KEY.as_bytes() => key = Some(value),
                    name => headers.push((String::from_utf8_lossy(name).into(), value)),
                }
            }
        } else {
            data = Some(as_object(&self.fields));
        }
        Event {
            key,
            headers: (!headers.is_empty()).then(|| Arc::new(headers)),
            published,
            ..Event::new(Arc::clone(topic), data.unwrap_or_default())
        }
    }
}

/// Returns the bytes of a text in any of its forms.
pub(super) fn text(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        Value::VerbatimString { text, .. } => Some(text.into_bytes()),
        Value::Int(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

/// Returns `{"name": "value", …}`. If a name occurs twice, the last value counts.
fn as_object(fields: &[(Vec<u8>, Bytes)]) -> Bytes {
    let last = |at: usize| fields[at + 1..].iter().all(|(name, _)| *name != fields[at].0);
    let object: serde_json::Map<_, _> = fields
        .iter()
        .enumerate()
        .filter(|(at, _)| last(*at))
        .map(|(_, (name, value))| {
            let lossy = |bytes| String::from_utf8_lossy(bytes).into_owned();
            (lossy(name), lossy(value).into())
        })
        .collect();
    serde_json::Value::Object(object).to_string().into()
}

/// Returns `XADD`, which adds the message to the end of its stream and keeps about `max_len` entries.
pub(in crate::redis) fn add_command(message: &Message, max_len: u64) -> Cmd {
    let mut command = redis::cmd("XADD");
    command.arg(&*message.topic);
    if max_len > 0 {
        command.arg("MAXLEN").arg("~").arg(max_len);
    }
    command.arg("*").arg(DATA).arg(&*message.payload);
    if let Some(key) = &message.key {
        command.arg(KEY).arg(&**key);
    }
    for (name, value) in &message.headers {
        // A header of that name would be mistaken for the payload or the key.
        if ![DATA, KEY].contains(&&**name) {
            command.arg(&**name).arg(&**value);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(fields: &[&str]) -> Event {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let fields = fields.iter().copied().map(bulk).collect();
        let value = Value::Array(vec![bulk("7000-1"), Value::Array(fields)]);
        StreamEntry::read(value).unwrap().into_event(&"a".into())
    }

    #[test]
    fn one_field_is_the_payload_one_the_key_and_the_rest_are_headers() {
        let event = entry(&["trace", "t", "data", "{}", "key", "k"]);
        assert_eq!((&*event.payload, event.key.as_deref()), (&b"{}"[..], Some(&b"k"[..])));
        assert_eq!(*event.headers.unwrap(), [("trace".into(), "t".into())]);
        assert_eq!(event.published, EntryId::of_ms(7000).time());
    }

    #[test]
    fn an_entry_without_a_payload_is_an_object_of_its_fields() {
        let event = entry(&["__typename", "A", "id", "1", "say", "\"\n", "id", "2"]);
        let payload = String::from_utf8(event.payload.to_vec()).unwrap();
        assert_eq!(payload, r#"{"__typename":"A","say":"\"\n","id":"2"}"#);
        assert_eq!((event.key, event.headers), (None, None));
    }

    #[test]
    fn invalid_entries_are_left_out() {
        for value in [Value::Nil, Value::Array(vec![Value::Int(1)]), Value::Int(7)] {
            assert_eq!(StreamEntry::read(value), None);
        }
        assert_eq!(StreamEntry::read_all(Value::Array(vec![Value::Nil])), []);
    }
}
