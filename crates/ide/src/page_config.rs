//! The configuration of the page.

use serde::Serialize;

/// The configuration of the page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageConfig {
    /// The name in the window's title and on the page.
    pub title: String,
    /// The address of the API: an absolute path such as `/graphql`, on the origin that serves the page. The page sends
    /// queries by POST and subscriptions over a WebSocket (`graphql-transport-ws`); the plain page uses server-sent
    /// events.
    pub endpoint: String,
    /// The initial tabs, the selected one first. A browser that was here before, with the same tabs, restores its
    /// user's edits.
    pub tabs: Vec<Tab>,
}

/// One tab of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tab {
    /// GraphQL text.
    pub query: String,
    /// A JSON object as text, as the editor shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variables: Option<String>,
}
