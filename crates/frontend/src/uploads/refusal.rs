//! The reasons that a request with files is refused.

use std::sync::atomic::Ordering;

use clients::offload::INLINE_BYTES_MAX;
use http::StatusCode;

use super::form_source::FormBodyError;
use super::stats::UploadStats;

/// The maximum size of each of the parts `operations` and `map`: they are parsed at once, as small bodies are.
pub(super) const FORM_FIELD_BYTES_MAX: u64 = INLINE_BYTES_MAX as u64;

/// The reason that a request with files is refused: a status, and a message for the client.
#[derive(Debug)]
pub(crate) enum UploadRefusal {
    /// The request is not well-formed, or over a limit.
    Invalid(StatusCode, String),
    /// The request did not arrive in time.
    TooSlow(String),
    /// All requests together are over their limit.
    Overloaded,
}

impl UploadRefusal {
    pub(super) fn malformed(reason: impl Into<String>) -> Self {
        Self::Invalid(StatusCode::BAD_REQUEST, reason.into())
    }

    pub(super) fn too_large(reason: impl Into<String>) -> Self {
        Self::Invalid(StatusCode::PAYLOAD_TOO_LARGE, reason.into())
    }

    /// Counts the refusal.
    pub(super) fn count(&self, stats: &UploadStats) {
        if matches!(self, Self::Overloaded) {
            stats.overloaded.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the refusal of files that did not arrive in time.
pub(super) fn too_slow(settings: &config::Uploads) -> UploadRefusal {
    let time = settings.timeout;
    UploadRefusal::TooSlow(format!("the files did not arrive within {time:?} (`uploads.timeout`)"))
}

/// Returns the refusal of files that are too large together.
pub(super) fn larger_than_all(settings: &config::Uploads) -> UploadRefusal {
    let bytes = settings.max_bytes;
    UploadRefusal::too_large(format!(
        "the files have more than {bytes} bytes (`uploads.max_bytes`)"
    ))
}

/// Returns the refusal for an error of the form.
pub(super) fn form_error(error: &multer::Error, settings: &config::Uploads) -> UploadRefusal {
    match error {
        multer::Error::FieldSizeExceeded { field_name: Some(name), .. }
            if name == "operations" || name == "map" =>
        {
            UploadRefusal::too_large(format!(
                "the part `{name}` has more than {FORM_FIELD_BYTES_MAX} bytes"
            ))
        }
        multer::Error::FieldSizeExceeded { .. } => UploadRefusal::too_large(format!(
            "a file has more than {} bytes (`uploads.max_file_bytes`)",
            settings.max_file_bytes
        )),
        multer::Error::StreamSizeExceeded { .. } => larger_than_all(settings),
        multer::Error::StreamReadFailed(error) => match error.downcast_ref() {
            Some(FormBodyError::Overloaded) => UploadRefusal::Overloaded,
            _ => UploadRefusal::malformed(format!("the request body broke off: {error}")),
        },
        error => UploadRefusal::malformed(format!("the form cannot be read: {error}")),
    }
}
