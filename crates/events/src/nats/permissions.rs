//! The permissions of the user, which the server returns for `$SYS.REQ.USER.INFO` since nats-server 2.10.

use std::time::Duration;

use async_nats::Client;
use serde_json::Value;

use super::jetstream::covers;
use crate::Verdict;

/// The maximum time for the response. A server that supports the request responds at once.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(2);

/// Checks whether the user of this connection may publish to `subject`.
pub(super) async fn check_publish(client: &Client, subject: &str) -> Verdict {
    let request = async_nats::Request::new().timeout(Some(RESPONSE_TIME_MAX));
    let response = match client.send_request("$SYS.REQ.USER.INFO", request).await {
        Ok(response) => response.payload,
        Err(_) => {
            let reason = "this server does not report what the user may publish to (nats-server 2.10 does, if the user may \
                          publish to $SYS.REQ.USER.INFO)";
            return Verdict::Unknown(reason.into());
        }
    };
    parse_verdict(&response, subject)
}

fn parse_verdict(response: &[u8], subject: &str) -> Verdict {
    let Ok(response) = serde_json::from_slice::<Value>(response) else {
        return Verdict::Unknown("the server's response is not JSON".into());
    };
    let Some(data) = response.get("data") else {
        return Verdict::Unknown("the server does not report what the user may publish to".into());
    };
    let listed = |list: &str| {
        let list = data.pointer("/permissions/publish").and_then(|publish| publish.get(list));
        let list = list.and_then(Value::as_array)?;
        Some(list.iter().filter_map(Value::as_str).any(|pattern| covers(pattern, subject)))
    };
    if listed("deny") == Some(true) || listed("allow") == Some(false) {
        Verdict::Fails("the user has no permission to publish there".into())
    } else {
        Verdict::Works
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_that_are_allowed_and_not_denied_may_be_published_to() {
        let fails = Verdict::Fails("the user has no permission to publish there".into());
        for (permissions, expected) in [
            (r#"{}"#, Verdict::Works),
            (r#"{"permissions":{"publish":{"allow":["orders.>"]}}}"#, Verdict::Works),
            (r#"{"permissions":{"publish":{"allow":["planes.*"]}}}"#, fails.clone()),
            (r#"{"permissions":{"publish":{"allow":[">"],"deny":["orders.*"]}}}"#, fails.clone()),
            (r#"{"permissions":{"publish":{"deny":["orders.8"]}}}"#, Verdict::Works),
        ] {
            let response = format!(r#"{{"server":{{}},"data":{permissions}}}"#);
            assert_eq!(parse_verdict(response.as_bytes(), "orders.7"), expected, "{permissions}");
        }
        assert!(matches!(parse_verdict(b"{}", "a"), Verdict::Unknown(_)));
        assert!(matches!(parse_verdict(b"?", "a"), Verdict::Unknown(_)));
    }
}
