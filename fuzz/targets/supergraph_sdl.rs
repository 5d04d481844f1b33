//! Parses any text as a supergraph. A text that is refused has only errors that point into it, and a supergraph
//! that was read is consistent.

#![no_main]

use graph::{Jumps, Supergraph};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Supergraph::from_sdl(text, "fuzz.graphql") {
        Ok(supergraph) => {
            for ty in &supergraph.types {
                for &field in &ty.fields {
                    let named = supergraph.ty(supergraph.field(field).ty.named());
                    assert!(!named.name.is_empty());
                }
            }
            let jumps = Jumps::new(&supergraph);
            for ty in supergraph.type_names.values() {
                let targets = jumps.targets(*ty);
                assert!(jumps.reachable(*ty, targets).len() >= targets.len());
            }
            assert!(!supergraph.api_sdl().is_empty());
        }
        Err(errors) => {
            assert!(!errors.0.is_empty(), "a refusal has a reason");
            for span in errors.0.iter().filter_map(|error| error.span) {
                assert!(text.get(span.start..span.end).is_some(), "spans lie in the text");
            }
        }
    }
});
