//! Any text as a cursor: reading it never panics, and unsigned cursors are refused. Every position
//! that is written can be read again.
//!
//! The input is the text of the cursor, and its bytes are also positions.

#![no_main]

use std::sync::LazyLock;

use events::PartitionOffset;
use hub::Cursors;
use libfuzzer_sys::fuzz_target;

static CURSORS: LazyLock<Cursors> = LazyLock::new(|| {
    let keys = [&b"a key of some length"[..], b"another one, as long"];
    Cursors::new(keys).expect("keys are given")
});

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let partition_offsets = data.chunks_exact(20).map(|bytes| {
        let number = |from: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[from..from + 8]);
            u64::from_le_bytes(number)
        };
        // Large partitions are rare; most are neighbours.
        let partition = u32::from(bytes[16]) << (u32::from(bytes[17]) & 24);
        PartitionOffset { partition, offset: number(0), part: number(8) }
    });
    hub::fuzz_cursors(&CURSORS, &text, partition_offsets);
});
