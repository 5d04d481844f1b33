//! `GET /admin/usage`: the use of fields and arguments by client, as JSON for `starling diff --usage`.

use std::sync::Arc;

use frontend::response::{self, Response};
use http::StatusCode;
use serving::figures::FigureTables;
use serving::serving::Serving;

/// Responds with the use since the start.
pub(crate) async fn respond(serving: &Arc<Serving>) -> Response {
    let serving = Arc::clone(serving);
    // A hundred thousand rows take a tenth of a second, which no event waits for here.
    let read = tokio::task::spawn_blocking(move || {
        let usage = serving.figures.as_deref().and_then(FigureTables::field_usage)?;
        Some(serde_json::to_string(&usage).ok())
    });
    match read.await.unwrap_or(Some(None)) {
        None => response::text(
            StatusCode::NOT_FOUND,
            "the use of fields is not counted: `metrics.fields.max` is 0\n",
        ),
        Some(Some(text)) => response::with_type(StatusCode::OK, "application/json", text.into()),
        Some(None) => response::text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the use of fields cannot be encoded\n",
        ),
    }
}
