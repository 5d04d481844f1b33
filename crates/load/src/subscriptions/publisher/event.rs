//! The text of an event, cut at its placeholders once, so that an event of 64 kB is one copy and no search.

use crate::subscriptions::target::KEY;

/// In an event: when it is published, in microseconds since 1970.
const TIME: &str = "$T";

/// In an event: how many were published before it.
const NUMBER: &str = "$N";

/// In an event: text that makes it longer.
const PADDING: &str = "$P";

/// See the module.
#[derive(Debug)]
pub(super) struct Template {
    pieces: Vec<Piece>,
    /// Length without what is filled in.
    length: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Time,
    Key,
    Number,
}

impl Template {
    /// Cuts the text of an event; `$P` becomes so much padding.
    pub(super) fn new(text: &str, padding_bytes: usize) -> Self {
        // White space between tokens of JSON, if anything: some destinations tell events apart by their lines.
        let whole = text.replace(['\n', '\r'], " ").replace(PADDING, &"x".repeat(padding_bytes));
        let (mut pieces, mut rest) = (Vec::new(), whole.as_str());
        while let Some(place) = rest.find('$') {
            let (before, from) = rest.split_at(place);
            let found = [(TIME, Piece::Time), (KEY, Piece::Key), (NUMBER, Piece::Number)]
                .into_iter()
                .find(|(name, _)| from.starts_with(name));
            match found {
                Some((name, piece)) => {
                    pieces.extend([Piece::Text(before.to_owned()), piece]);
                    rest = &from[name.len()..];
                }
                None => {
                    pieces.push(Piece::Text(format!("{before}$")));
                    rest = &from[1..];
                }
            }
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Self { pieces, length: whole.len() }
    }

    /// About how many bytes an event has.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Writes one event.
    // hot path: one copy of the event.
    pub(super) fn write(&self, time: u64, key: &str, number: u64, into: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => into.extend_from_slice(text.as_bytes()),
                Piece::Time => into.extend_from_slice(time.to_string().as_bytes()),
                Piece::Key => into.extend_from_slice(key.as_bytes()),
                Piece::Number => into.extend_from_slice(number.to_string().as_bytes()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_wherever_they_stand() {
        for (text, expected) in [
            (r#"{"a":"$T","k":"$K","n":$N,"p":"$P"}"#, r#"{"a":"7","k":"key","n":9,"p":"xxx"}"#),
            ("$T$T", "77"),
            ("{\n\"cost\":\"5 $\",\"$x\":1}", "{ \"cost\":\"5 $\",\"$x\":1}"),
            ("", ""),
        ] {
            let mut bytes = Vec::new();
            Template::new(text, 3).write(7, "key", 9, &mut bytes);
            assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        }
    }
}
