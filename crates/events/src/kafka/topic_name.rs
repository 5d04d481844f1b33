//! Rules for names of Kafka topics and for client values in them.

use crate::TOPIC_BYTES_MAX;

/// The maximum length of a name that brokers accept.
const NAME_BYTES_MAX: usize = 249;
const _: () = assert!(NAME_BYTES_MAX <= TOPIC_BYTES_MAX);

/// Checks the name of a topic. Kafka has no patterns, so the rule is the same for reading and writing.
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("it is empty"),
        "." | ".." => Err("`.` and `..` are not names of topics"),
        _ if name.len() > NAME_BYTES_MAX => Err("it is longer than 249 bytes"),
        _ => check_characters(name),
    }
}

/// Checks a value from a client. At the start of a name it must not reach the broker's own topics, such as
/// `__consumer_offsets`.
pub(super) fn check_value(value: &str, at_start: bool) -> Result<(), &'static str> {
    if value.is_empty() {
        return Err("it is empty");
    }
    if value.len() > NAME_BYTES_MAX {
        return Err("it is longer than 249 bytes");
    }
    if at_start && value.starts_with('_') {
        return Err("topics that begin with `_` belong to the broker");
    }
    check_characters(value)
}

fn check_characters(text: &str) -> Result<(), &'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if text.bytes().all(allowed) {
        Ok(())
    } else {
        Err("it has characters other than letters, digits, `.`, `_` and `-`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_brokers_accept() {
        let long = "a".repeat(249);
        for good in ["orders", "orders.v1", "a_b-C.9", "__consumer_offsets", "...", &*long] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        let too_long = "a".repeat(250);
        for bad in ["", ".", "..", "a b", "a/b", "orders.*", "ä", "a\n", &*too_long] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_value_reaches_no_topic_of_the_broker() {
        for (value, at_start, good) in [
            ("7", true, true),
            ("_x", false, true),
            ("_x", true, false),
            ("__consumer_offsets", true, false),
            ("", false, false),
            ("a b", false, false),
            ("*", false, false),
        ] {
            assert_eq!(check_value(value, at_start).is_ok(), good, "{value} {at_start}");
        }
    }
}
