//! The generation that served a request, for clients that ask for it in a header.

use std::sync::{Arc, OnceLock};

use http::{HeaderName, HeaderValue, Request};

/// The header of a request that asks for the generation, with any value, and that of its response.
pub const GENERATION_HEADER: HeaderName = HeaderName::from_static("starling-generation");

/// The id of the generation that serves a request, which becomes known while the request is served. A request that
/// asks for it carries this among its extensions. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct GenerationNote(Arc<OnceLock<HeaderValue>>);

impl GenerationNote {
    /// Adds a note to a request that asks for its generation.
    pub fn begin<B>(request: &mut Request<B>) -> Option<Self> {
        if !request.headers().contains_key(GENERATION_HEADER) {
            return None;
        }
        let note = Self::default();
        request.extensions_mut().insert(note.clone());
        Some(note)
    }

    /// Notes the id of the generation. Of the operations of a batch, the first one counts.
    pub fn set(&self, id: &str) {
        if let Ok(value) = HeaderValue::from_str(id) {
            let _ = self.0.set(value);
        }
    }

    /// Returns the id, if it is known.
    pub fn id(&self) -> Option<&HeaderValue> {
        self.0.get()
    }
}
