//! Live subscriptions, as a page and as JSON.

use events::SubscriptionClient as _;
use frontend::response::{self, Response};
use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};
use hub::Hub;
use serving::serving::Serving;

use super::state::{Admin, SelectedGraph};
use crate::subscriptions_page::{self, SubscriptionsView};

/// Returns a page to browsers, and JSON to all other clients. With a rendered `topic`, only its triggers are listed, so
/// that an operator can find them by values that the page does not show.
pub(super) async fn subscriptions(
    admin: &Admin,
    graph: SelectedGraph<'_>,
    headers: &HeaderMap,
    topic: Option<&str>,
) -> Response {
    let SelectedGraph { hub, serving, .. } = graph;
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepted.any(|it| it.contains("text/html")) {
        let page = view_subscriptions(admin, hub, serving, topic, subscriptions_page::page).await;
        return response::with_type(StatusCode::OK, "text/html; charset=utf-8", page.into());
    }
    let text = serde_json::to_vec(&describe_subscriptions(admin, hub, serving, topic).await);
    response::with_type(StatusCode::OK, "application/json", text.unwrap_or_default().into())
}

/// Returns the JSON of `GET /admin/subscriptions` for a graph, with the triggers of `topic` only if there is one.
pub(crate) async fn describe_subscriptions(
    admin: &Admin,
    hub: &Hub,
    serving: &Serving,
    topic: Option<&str>,
) -> serde_json::Value {
    view_subscriptions(admin, hub, serving, topic, subscriptions_page::describe).await
}

/// Calls `show` with the live subscriptions.
async fn view_subscriptions<T>(
    admin: &Admin,
    hub: &Hub,
    serving: &Serving,
    topic: Option<&str>,
    show: impl FnOnce(&SubscriptionsView<'_>) -> T,
) -> T {
    let (mut triggers, stats) = (hub.topology().await, hub.stats());
    if let Some(topic) = topic {
        triggers.retain(|it| it.source.topics().iter().any(|known| **known == *topic));
    }
    let loaded = serving.current();
    let clients = loaded.streams.iter().flatten().map(|it| &it.client);
    let subgraphs = clients.map(|it| (it.name(), &**it.stats())).collect();
    show(&SubscriptionsView {
        providers: &admin.providers,
        subgraphs,
        triggers: &triggers,
        stats,
        shows_values: admin.settings.show_values,
    })
}
