//! Rules for Redis channels and patterns, and for client values in them.
//!
//! A channel is any text. A subscription may use a pattern: `*` matches any text, `?` one character, `[ab]` one of
//! several characters, and `\` takes the next character literally.

use crate::TopicUsage;
use crate::topic::check_plain_topic;

/// The characters that make a channel a pattern.
const PATTERN_CHARACTERS: [char; 4] = ['*', '?', '[', '\\'];

/// True if the channel is a pattern.
pub(super) fn is_pattern(channel: &str) -> bool {
    channel.contains(PATTERN_CHARACTERS)
}

/// Checks that `channel` is valid for that use. Redis would also publish to `a*`, but no subscription could receive
/// only that.
pub(super) fn check_channel(channel: &str, usage: TopicUsage) -> Result<(), &'static str> {
    check_plain_topic(channel)?;
    match usage {
        TopicUsage::Publish if is_pattern(channel) => {
            Err("a channel to publish to has no pattern characters (* ? [ \\)")
        }
        TopicUsage::Subscribe if !is_complete_pattern(channel) => {
            Err("a pattern closes each [ by ] and does not end in a single \\")
        }
        _ => Ok(()),
    }
}

/// True if the pattern closes everything that it opens. Redis treats an open `[` as if it were closed at the end, which
/// is never intended.
fn is_complete_pattern(pattern: &str) -> bool {
    let (mut in_set, mut escaped) = (false, false);
    for character in pattern.chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_set = true,
            ']' => in_set = false,
            _ => {}
        }
    }
    !in_set && !escaped
}

/// Checks that a client's value may be part of a channel. Characters that could make a pattern are refused, because
/// with them a client could listen to all channels. At the start, values that lead to channels of Redis itself are
/// refused (`__keyspace@0__:…`, `__keyevent@0__:…`, `__sentinel__:…`), because those reveal the names of all keys.
pub(super) fn check_value(value: &str, at_start: bool) -> Result<(), &'static str> {
    check_plain_topic(value)?;
    if value.contains(PATTERN_CHARACTERS) || value.contains([']', '^']) {
        Err("it contains a pattern character (* ? [ ] ^ \\)")
    } else if at_start && value.starts_with("__") {
        Err("it leads to a channel of the broker itself")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_any_text_and_patterns_are_for_subscribing() {
        for channel in ["a", "orders.7", "orders:7", "two words", "ü", "a]", "__keyspace@0__:a"] {
            assert_eq!(check_channel(channel, TopicUsage::Publish), Ok(()), "{channel}");
            assert_eq!(check_channel(channel, TopicUsage::Subscribe), Ok(()), "{channel}");
            assert!(!is_pattern(channel), "{channel}");
        }
        for pattern in ["*", "orders.*", "a?c", "a[bc]", r"a\*", r"\\", r"[\]]"] {
            assert!(check_channel(pattern, TopicUsage::Publish).is_err(), "{pattern}");
            assert_eq!(check_channel(pattern, TopicUsage::Subscribe), Ok(()), "{pattern}");
            assert!(is_pattern(pattern), "{pattern}");
        }
        for neither in ["", "a\nb", "a\r\nFLUSHALL\r\n", "a[b", r"a\", r"[a\]"] {
            assert!(check_channel(neither, TopicUsage::Publish).is_err(), "{neither}");
            assert!(check_channel(neither, TopicUsage::Subscribe).is_err(), "{neither}");
        }
    }

    #[test]
    fn a_clients_value_never_widens_a_channel() {
        for value in ["7", "a-b", "eu.west", "eu:west", "two words", "a__b", "ü"] {
            assert_eq!(check_value(value, true), Ok(()), "{value}");
        }
        for value in ["", "*", "a*", "?", "[", "]", "^a", "\\", "a\0", "\r\nFLUSHALL\r\n"] {
            assert!(check_value(value, false).is_err(), "{value}");
        }
        assert!(check_value("__keyevent@0__:del", true).is_err());
        assert_eq!(check_value("__x", false), Ok(()));
    }
}
