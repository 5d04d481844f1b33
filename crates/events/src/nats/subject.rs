//! Rules for NATS subjects and for client values in them.
//!
//! A subject is a sequence of tokens separated by dots. The wildcard `*` matches one token and `>` all that follow.
//! Both are allowed only as whole tokens and only for subscribing.

use crate::TopicUsage;
use crate::topic::check_plain_topic;

/// Checks that `subject` is valid for that use.
pub(super) fn check_subject(subject: &str, usage: TopicUsage) -> Result<(), &'static str> {
    check_plain_topic(subject)?;
    if subject.chars().any(char::is_whitespace) {
        return Err("a subject contains no spaces");
    }
    let mut tokens = subject.split('.').peekable();
    while let Some(token) = tokens.next() {
        match token {
            "" => {
                return Err(
                    "a subject has no empty token: no dot at the start or end, no two in a row",
                );
            }
            "*" | ">" if usage == TopicUsage::Publish => {
                return Err("a subject to publish to has no wildcards");
            }
            ">" if tokens.peek().is_some() => return Err("the wildcard > stands only at the end"),
            "*" | ">" => {}
            _ if token.contains(['*', '>']) => {
                return Err("a wildcard (* or >) must be a whole token");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a client's value can be part of a subject. Wildcards are refused, because with them a client could
/// listen to all topics. Values that lead to the broker's own subjects (`$…`, `_INBOX`) are refused too. The template
/// decides about dots: a value has several tokens only if the template allows it. Empty tokens are found when the whole
/// subject is checked.
pub(super) fn check_value(value: &str, at_start: bool) -> Result<(), &'static str> {
    check_plain_topic(value)?;
    if value.chars().any(char::is_whitespace) {
        Err("it contains a space")
    } else if value.contains(['*', '>']) {
        Err("it contains a wildcard (* or >)")
    } else if at_start && (value.starts_with('$') || value.starts_with("_INBOX")) {
        Err("it leads to a subject of the broker itself")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_whole_tokens_and_wildcards_are_only_for_subscribing() {
        let both = ["a", "orders.7", "orders.seven-7_x", "ü.b", "$JS.x"];
        let subscribe = ["*", ">", "orders.*", "orders.*.moved", "orders.>"];
        let neither =
            ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\r\nPUB x 1", "a*", "a.>.b", "x.b>"];
        for subject in both {
            assert_eq!(check_subject(subject, TopicUsage::Publish), Ok(()), "{subject}");
        }
        for subject in both.into_iter().chain(subscribe) {
            assert_eq!(check_subject(subject, TopicUsage::Subscribe), Ok(()), "{subject}");
        }
        for subject in neither {
            assert!(check_subject(subject, TopicUsage::Subscribe).is_err(), "{subject}");
        }
        for subject in neither.into_iter().chain(subscribe) {
            assert!(check_subject(subject, TopicUsage::Publish).is_err(), "{subject}");
        }
    }

    #[test]
    fn a_clients_value_never_widens_a_subject() {
        for value in ["7", "a-b", "eu.west", "ü", "a$b"] {
            assert_eq!(check_value(value, true), Ok(()), "{value}");
        }
        for value in ["", "*", ">", "a.*", "a>", "a b", "a\u{a0}b", "a\0", "\r\nPUB x 0\r\n"] {
            assert!(check_value(value, false).is_err(), "{value}");
        }
        assert!(check_value("$SYS.ACCOUNT", true).is_err());
        assert!(check_value("_INBOX.x", true).is_err());
        assert_eq!(check_value("$5", false), Ok(()));
    }
}
