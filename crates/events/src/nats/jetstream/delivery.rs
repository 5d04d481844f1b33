//! The metadata of a message that the broker delivers from a stream. It is in the subject for the acknowledgement.

use std::time::{Duration, SystemTime};

/// The place of a message in its stream, and its delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Delivery {
    /// The sequence of the message in the stream.
    pub(super) stream_sequence: u64,
    /// The number of this delivery of the consumer, from 1.
    pub(super) consumer_sequence: u64,
    /// The time at which the broker received the message.
    pub(super) published: SystemTime,
    /// The number of later messages that the consumer has not delivered yet.
    pub(super) pending: u64,
}

impl Delivery {
    /// Parses `$JS.ACK.STREAM.CONSUMER.TIMES.SEQUENCE.DELIVERY.NANOSECONDS.PENDING`, or the newer form with domain and
    /// account before the stream.
    pub(super) fn parse(reply: &str) -> Option<Self> {
        let tokens: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let rest = match tokens.len() {
            7 => tokens.get(3..7)?,
            9.. => tokens.get(5..9)?,
            _ => return None,
        };
        let number = |at: usize| rest.get(at)?.parse::<u64>().ok();
        Some(Self {
            stream_sequence: number(0)?,
            consumer_sequence: number(1)?,
            published: SystemTime::UNIX_EPOCH + Duration::from_nanos(number(2)?),
            pending: number(3)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_subject_are_parsed() {
        let expected = Delivery {
            stream_sequence: 41,
            consumer_sequence: 7,
            published: SystemTime::UNIX_EPOCH + Duration::from_nanos(1_700_000_000_000_000_001),
            pending: 3,
        };
        for subject in [
            "$JS.ACK.ORDERS.c1.1.41.7.1700000000000000001.3",
            "$JS.ACK._.HASH.ORDERS.c1.1.41.7.1700000000000000001.3",
            "$JS.ACK.hub.HASH.ORDERS.c1.1.41.7.1700000000000000001.3.random",
        ] {
            assert_eq!(Delivery::parse(subject), Some(expected), "{subject}");
        }
    }

    #[test]
    fn any_other_subject_is_rejected() {
        for subject in ["", "_INBOX.a.b", "$JS.ACK.a.b.1.2", "$JS.ACK.ORDERS.c1.1.x.7.1.3"] {
            assert_eq!(Delivery::parse(subject), None, "{subject}");
        }
    }
}
