//! Parsing any bytes: they are accepted exactly when serde_json accepts them (except where RFC 8259
//! leaves the choice), with the same result at every level of SIMD, and printing gives back the
//! parsed value.
#![no_main]

use astjson::Document;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let mut doc = Document::new();
    let first = doc.parse(data.to_vec());
    let mut level = 0;
    while doc.scan_with_level(level) {
        let again = doc.parse(data.to_vec());
        assert_eq!(first.map(|n| doc.to_string(n)), again.map(|n| doc.to_string(n)));
        // Text far from the end is read by other loops than text near it.
        let far = doc.parse([data, &[b' '; 200]].concat());
        assert_eq!(first.ok().map(|n| doc.to_string(n)), far.ok().map(|n| doc.to_string(n)));
        level += 1;
    }
    let theirs = serde_json::from_slice::<Value>(data);
    match (first, theirs) {
        (Ok(root), Ok(value)) => {
            let mut pretty = Vec::new();
            doc.print_pretty(root, &mut pretty);
            for printed in [doc.to_string(root).into_bytes(), pretty] {
                assert_eq!(serde_json::from_slice::<Value>(&printed).expect("printed"), value);
            }
        }
        (Ok(_), Err(error)) => {
            // serde_json has a lower depth limit, converts numbers, and requires surrogates in
            // pairs.
            let error = error.to_string();
            let allowed = ["recursion", "number out of range", "surrogate", "hex escape"];
            assert!(allowed.iter().any(|reason| error.contains(reason)), "{error}");
        }
        (Err(error), Ok(_)) => panic!("refused: {error}"),
        (Err(error), Err(_)) => assert!(error.offset <= data.len()),
    }
});
