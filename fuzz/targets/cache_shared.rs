//! Reads any bytes as an entry and as a message of the store that several routers share: reading never panics, an entry
//! that can be read is written and read again as it is, and a message that cannot be read makes everything stale.
//!
//! Entries get the right checksum, which the fuzzer could not guess.

#![no_main]

use cache::{SharedEntry, SharedKey, SharedMessage, StaleTags};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let key = SharedKey([7; 32]);
    let mut with_checksum = data.to_vec();
    SharedEntry::set_checksum(&key, &mut with_checksum);
    if let Ok(entry) = SharedEntry::decode(&key, with_checksum.into()) {
        let bytes = entry.encode(&key).expect("it was as short before");
        assert_eq!(SharedEntry::decode(&key, bytes.into()), Ok(entry));
    }
    let message = SharedMessage::decode(data);
    if message.stale != StaleTags::All {
        assert_eq!(message.encode().len(), data.len());
    }
    assert_eq!(SharedMessage::decode(&message.encode()), message);
});
