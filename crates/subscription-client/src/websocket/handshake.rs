//! The upgrade request of a connection: its headers, and the payload of `connection_init`.

use std::sync::Arc;
use std::time::Instant;

use astjson::print_string;
use aws_lc_rs::rand;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use upstream::belongs_to_connection;
use wire::upstream::{
    OVERSIZED_HEAD_BYTES, SubprotocolChoice, UpgradeRequest, UpstreamSettings, UpstreamSocket,
};
use wire::websocket::WebSocketConfig;

use crate::endpoint::SubscriptionEndpoint;
use crate::settings::SubscriptionSettings;

/// Returns the settings of the protocol's machine.
pub(super) fn machine_settings(settings: &SubscriptionSettings) -> Arc<UpstreamSettings> {
    let defaults = WebSocketConfig::default();
    let websocket = WebSocketConfig {
        ping_interval: settings.ping_interval,
        // A server that is not gone responds at once, so the interval is long enough.
        pong_timeout: settings.ping_interval.unwrap_or(defaults.pong_timeout),
        message_bytes_max: settings.message_bytes_max,
        oversized_head_bytes_max: OVERSIZED_HEAD_BYTES,
        ..defaults
    };
    Arc::new(UpstreamSettings {
        handshake_timeout: settings.connect_timeout,
        ack_timeout: settings.ack_timeout,
        operations_max: settings.operations_max,
        websocket: Arc::new(websocket),
        ..UpstreamSettings::default()
    })
}

/// Begins a connection with these forwarded headers. `Err` has the reason why that is not possible.
pub(super) fn begin(
    endpoint: &SubscriptionEndpoint,
    settings: &Arc<UpstreamSettings>,
    subprotocols: SubprotocolChoice,
    headers: &[(HeaderName, HeaderValue)],
) -> Result<UpstreamSocket, String> {
    let mut key_entropy = [0; 16];
    let mut seed = [0; 8];
    let random = rand::fill(&mut key_entropy).and_then(|()| rand::fill(&mut seed));
    random.map_err(|_| "the system has no random numbers".to_owned())?;
    let forwarded = as_texts(headers);
    let request = UpgradeRequest {
        authority: endpoint.target.authority(),
        target: endpoint.target.path_and_query(),
        subprotocols,
        headers: &forwarded,
        init_payload: endpoint.settings.init_payload.then(|| init_payload(&forwarded)).flatten(),
        key_entropy,
        mask_seed: u64::from_ne_bytes(seed),
    };
    UpstreamSocket::new(Arc::clone(settings), request, Instant::now())
        .map_err(|error| error.to_string())
}

/// Returns a JSON object with the forwarded headers as members; `None` without headers.
pub(super) fn headers_payload(headers: &[(HeaderName, HeaderValue)]) -> Option<Bytes> {
    init_payload(&as_texts(headers))
}

/// Returns the headers that a request of the router may have. Values that are not visible ASCII cannot be written as
/// text; no client library sends such.
fn as_texts(headers: &[(HeaderName, HeaderValue)]) -> Vec<(&str, &str)> {
    headers
        .iter()
        .filter(|(name, _)| !belongs_to_connection(name))
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect()
}

/// Returns a JSON object with the headers as members; `None` without headers.
fn init_payload(headers: &[(&str, &str)]) -> Option<Bytes> {
    if headers.is_empty() {
        return None;
    }
    let mut text = Vec::new();
    for (name, value) in headers {
        text.push(if text.is_empty() { b'{' } else { b',' });
        print_string(name, &mut text);
        text.push(b':');
        print_string(value, &mut text);
    }
    text.push(b'}');
    Some(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_of_connection_init_has_the_headers_as_members() {
        assert_eq!(init_payload(&[]), None);
        let payload = init_payload(&[("authorization", "Bearer \"x\""), ("x-a", "1")]).unwrap();
        assert_eq!(payload, r#"{"authorization":"Bearer \"x\"","x-a":"1"}"#);
    }
}
