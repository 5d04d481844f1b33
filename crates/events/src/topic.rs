//! Rules for topics that hold for every provider. Each provider adds the rules of its broker.

/// The use of a topic. Patterns are allowed for subscribing only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopicUsage {
    /// Events are read from the topic.
    Subscribe,
    /// Events are written to the topic.
    Publish,
}

/// The maximum length of a topic in bytes. NATS accepts 4 KiB for a whole control line and Kafka 249 bytes for a name;
/// 1 KiB leaves room for both and limits what a client can make the router remember.
pub const TOPIC_BYTES_MAX: usize = 1024;

/// Characters that begin something that stands for other text in the patterns of some broker.
pub const TOPIC_WILDCARDS: [char; 5] = ['*', '>', '?', '[', '\\'];

/// Checks the rule that every provider has at least: not empty, not too long, no control characters.
pub(crate) fn check_plain_topic(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        Err("it is empty")
    } else if text.len() > TOPIC_BYTES_MAX {
        Err("it is longer than 1024 bytes")
    } else if text.chars().any(char::is_control) {
        Err("it contains a control character")
    } else {
        Ok(())
    }
}
