//! What the user may publish to, as the server tells: `$SYS.REQ.USER.INFO`, since nats-server 2.10.

use std::time::Duration;

use async_nats::Client;
use serde_json::Value;

use super::jetstream::covers;
use crate::Verdict;

/// A server that knows the question answers it at once.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// May the user of this connection publish to `subject`?
pub(super) async fn may_publish(client: &Client, subject: &str) -> Verdict {
    let request = async_nats::Request::new().timeout(Some(ANSWER_TIME_MAX));
    let answer = match client.send_request("$SYS.REQ.USER.INFO", request).await {
        Ok(answer) => answer.payload,
        Err(_) => {
            let reason = "this server does not tell what the user may publish to (nats-server 2.10 does, if the user may \
                          publish to $SYS.REQ.USER.INFO)";
            return Verdict::Unknown(reason.into());
        }
    };
    verdict(&answer, subject)
}

fn verdict(answer: &[u8], subject: &str) -> Verdict {
    let Ok(answer) = serde_json::from_slice::<Value>(answer) else {
        return Verdict::Unknown("the server's answer is no JSON".into());
    };
    let Some(data) = answer.get("data") else {
        return Verdict::Unknown("the server does not tell what the user may publish to".into());
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
    fn what_is_allowed_and_not_denied_may_be_published_to() {
        let fails = Verdict::Fails("the user has no permission to publish there".into());
        for (permissions, expected) in [
            (r#"{}"#, Verdict::Works),
            (r#"{"permissions":{"publish":{"allow":["orders.>"]}}}"#, Verdict::Works),
            (r#"{"permissions":{"publish":{"allow":["planes.*"]}}}"#, fails.clone()),
            (r#"{"permissions":{"publish":{"allow":[">"],"deny":["orders.*"]}}}"#, fails.clone()),
            (r#"{"permissions":{"publish":{"deny":["orders.8"]}}}"#, Verdict::Works),
        ] {
            let answer = format!(r#"{{"server":{{}},"data":{permissions}}}"#);
            assert_eq!(verdict(answer.as_bytes(), "orders.7"), expected, "{permissions}");
        }
        assert!(matches!(verdict(b"{}", "a"), Verdict::Unknown(_)));
        assert!(matches!(verdict(b"?", "a"), Verdict::Unknown(_)));
    }
}
