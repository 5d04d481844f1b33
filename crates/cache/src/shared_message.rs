//! A message of the log in which routers tell each other what is stale: a version, flags, and tags of eight bytes. All
//! routers of one namespace make equal tags of equal names ([`crate::KeySecret::of_namespace`]).

use crate::shared_view::StaleTags;
use crate::tags::Tag;

/// The version of the form.
const VERSION: u8 = 1;

const IS_ALL: u8 = 1;
const IS_EVENT: u8 = 2;
const WANTS_CONFIRMATION: u8 = 4;

/// The maximum number of tags in one message: 2 kB, so that the longest log stays below some hundred megabytes.
pub const MESSAGE_TAGS_MAX: usize = 256;

/// One message of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedMessage {
    /// The invalidated tags.
    pub stale: StaleTags,
    /// True if the message repeats events of a broker. Routers that follow its topics hear of them there.
    pub is_event: bool,
    /// True if a router waits until the others have applied the message.
    pub wants_confirmation: bool,
}

impl SharedMessage {
    /// Returns the bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.stale == StaleTags::All, IS_ALL)
            | flag(self.is_event, IS_EVENT)
            | flag(self.wants_confirmation, WANTS_CONFIRMATION);
        let mut out = vec![VERSION, flags];
        if let StaleTags::Tags(tags) = &self.stale {
            tags.iter().for_each(|tag| out.extend_from_slice(&tag.0.to_le_bytes()));
        }
        out
    }

    /// Reads a message. One that cannot be read makes everything stale: it may come from a newer router.
    pub fn decode(bytes: &[u8]) -> Self {
        let unreadable = Self { stale: StaleTags::All, is_event: false, wants_confirmation: true };
        let [VERSION, flags, tags @ ..] = bytes else { return unreadable };
        let (words, []) = tags.as_chunks::<{ size_of::<u64>() }>() else { return unreadable };
        let is_all = flags & IS_ALL != 0;
        Self {
            stale: match is_all {
                true => StaleTags::All,
                false => StaleTags::Tags(
                    words.iter().map(|word| Tag(u64::from_le_bytes(*word))).collect(),
                ),
            },
            is_event: flags & IS_EVENT != 0,
            wants_confirmation: flags & WANTS_CONFIRMATION != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written(
            tags in proptest::option::of(proptest::collection::vec(any::<u64>(), 0..5)),
            is_event: bool,
            wants_confirmation: bool,
        ) {
            let stale = tags.map_or(StaleTags::All, |tags| {
                StaleTags::Tags(tags.into_iter().map(Tag).collect())
            });
            let message = SharedMessage { stale, is_event, wants_confirmation };
            prop_assert_eq!(SharedMessage::decode(&message.encode()), message);
        }

        #[test]
        fn bytes_that_are_no_message_make_everything_stale(bytes: Vec<u8>) {
            let read = SharedMessage::decode(&bytes);
            let is_message = bytes.len() >= 2 && bytes[0] == VERSION && bytes.len() % 8 == 2;
            prop_assert!(is_message || read.stale == StaleTags::All);
        }
    }
}
