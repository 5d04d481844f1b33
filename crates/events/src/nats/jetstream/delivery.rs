//! What the broker tells of a message that it delivers from a stream: in the subject to acknowledge it by.

use std::time::{Duration, SystemTime};

/// Where a message stands, and how it came to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Delivery {
    /// Its number in the stream.
    pub(super) stream_sequence: u64,
    /// Which of the consumer's deliveries this is, from 1.
    pub(super) consumer_sequence: u64,
    /// When the broker got it.
    pub(super) published: SystemTime,
    /// Messages behind it that the consumer has yet to deliver.
    pub(super) pending: u64,
}

impl Delivery {
    /// Reads `$JS.ACK.STREAM.CONSUMER.TIMES.SEQUENCE.DELIVERY.NANOSECONDS.PENDING`, or the newer form with domain
    /// and account before the stream.
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
    fn both_forms_of_the_subject_are_read() {
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
    fn any_other_subject_is_none() {
        for subject in ["", "_INBOX.a.b", "$JS.ACK.a.b.1.2", "$JS.ACK.ORDERS.c1.1.x.7.1.3"] {
            assert_eq!(Delivery::parse(subject), None, "{subject}");
        }
    }
}
