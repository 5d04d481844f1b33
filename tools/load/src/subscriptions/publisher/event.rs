//! The text of an event, split at its placeholders once, so that an event of 64 kB is one copy and no search.

use crate::subscriptions::target::KEY;

/// The placeholder for the publishing time, in microseconds since 1970.
const TIME: &str = "$T";

/// The placeholder for the number of events published before.
const NUMBER: &str = "$N";

/// The placeholder for text that makes the event longer.
const PADDING: &str = "$P";

/// The split text of an event, see the module.
#[derive(Debug)]
pub(super) struct EventTemplate {
    pieces: Vec<EventPiece>,
    /// The length without the replaced placeholders.
    length: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum EventPiece {
    Text(String),
    Time,
    Key,
    Number,
}

impl EventTemplate {
    /// Splits the text of an event; `$P` becomes padding of this length.
    pub(super) fn new(text: &str, padding_bytes: usize) -> Self {
        // Only white space between tokens of JSON is affected: some destinations separate events by lines.
        let whole = text.replace(['\n', '\r'], " ").replace(PADDING, &"x".repeat(padding_bytes));
        let (mut pieces, mut rest) = (Vec::new(), whole.as_str());
        while let Some(place) = rest.find('$') {
            let (before, from) = rest.split_at(place);
            let found =
                [(TIME, EventPiece::Time), (KEY, EventPiece::Key), (NUMBER, EventPiece::Number)]
                    .into_iter()
                    .find(|(name, _)| from.starts_with(name));
            match found {
                Some((name, piece)) => {
                    pieces.extend([EventPiece::Text(before.to_owned()), piece]);
                    rest = &from[name.len()..];
                }
                None => {
                    pieces.push(EventPiece::Text(format!("{before}$")));
                    rest = &from[1..];
                }
            }
        }
        pieces.push(EventPiece::Text(rest.to_owned()));
        Self { pieces, length: whole.len() }
    }

    /// Returns the approximate length of an event.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Writes one event.
    // hot path: one copy of the event.
    pub(super) fn write(&self, time: u64, key: &str, number: u64, into: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                EventPiece::Text(text) => into.extend_from_slice(text.as_bytes()),
                EventPiece::Time => into.extend_from_slice(time.to_string().as_bytes()),
                EventPiece::Key => into.extend_from_slice(key.as_bytes()),
                EventPiece::Number => into.extend_from_slice(number.to_string().as_bytes()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_at_any_position() {
        for (text, expected) in [
            (r#"{"a":"$T","k":"$K","n":$N,"p":"$P"}"#, r#"{"a":"7","k":"key","n":9,"p":"xxx"}"#),
            ("$T$T", "77"),
            ("{\n\"cost\":\"5 $\",\"$x\":1}", "{ \"cost\":\"5 $\",\"$x\":1}"),
            ("", ""),
        ] {
            let mut bytes = Vec::new();
            EventTemplate::new(text, 3).write(7, "key", 9, &mut bytes);
            assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        }
    }
}
