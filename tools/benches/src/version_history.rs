//! The acknowledged versions of entities, and responses that are compared with them.
//!
//! An entity has a version, which grows. When its invalidation is acknowledged, every later request must get this
//! version or a newer one.

use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use test_kit::commands::Failure;

/// Returns the microseconds since 1970: the clock of the load generator's log.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The acknowledged versions of each entity, see the module.
#[derive(Debug, Default)]
pub(crate) struct VersionHistory {
    /// By id: the times in microseconds since 1970 and the versions, in ascending order of both.
    acknowledged: BTreeMap<String, Vec<(u64, u64)>>,
}

/// A response that is older than an acknowledgement before its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StaleEntity {
    id: String,
    version: u64,
    /// The version that was acknowledged before the request.
    acknowledged: u64,
}

impl std::fmt::Display for StaleEntity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, version, acknowledged } = self;
        write!(out, "entity {id} had version {version} after {acknowledged} was acknowledged")
    }
}

/// The number of compared responses, and the stale ones.
#[derive(Debug, Default)]
pub(crate) struct StalenessTally {
    /// The responses with an entity that was acknowledged before their requests.
    pub(crate) checked: u64,
    pub(crate) stale: u64,
    /// The first stale entity.
    pub(crate) example: Option<StaleEntity>,
}

impl VersionHistory {
    /// Adds an acknowledgement. Times and versions of an entity must ascend.
    pub(crate) fn acknowledge(&mut self, id: &str, version: u64, at_us: u64) {
        self.acknowledged.entry(id.to_owned()).or_default().push((at_us, version));
    }

    /// Returns the latest version of an entity that was acknowledged by this time.
    fn acknowledged_by(&self, id: &str, time_us: u64) -> Option<u64> {
        let versions = self.acknowledged.get(id)?;
        let count = versions.partition_point(|(at, _)| *at <= time_us);
        versions[..count].last().map(|(_, version)| *version)
    }
}

impl StalenessTally {
    /// Compares a response of the form `{"data":{"items":[{"id":"1","note":"17"}]}}` with the history. The version is
    /// the number in `note`; other texts are older than every version.
    pub(crate) fn add(
        &mut self,
        history: &VersionHistory,
        sent_us: u64,
        body: &str,
    ) -> Result<(), Failure> {
        let response: Value = serde_json::from_str(body).unwrap_or_default();
        let items = response["data"]["items"].as_array();
        let items = items.ok_or_else(|| format!("the response has no items: {body}"))?;
        let (mut is_checked, mut stale) = (false, None);
        for item in items {
            let id = item["id"].as_str().unwrap_or_default();
            let Some(acknowledged) = history.acknowledged_by(id, sent_us) else { continue };
            is_checked = true;
            let version = item["note"].as_str().and_then(|note| note.parse().ok()).unwrap_or(0);
            if version < acknowledged {
                stale.get_or_insert(StaleEntity { id: id.to_owned(), version, acknowledged });
            }
        }
        self.checked += u64::from(is_checked);
        self.stale += u64::from(stale.is_some());
        self.example = self.example.take().or(stale);
        Ok(())
    }

    /// Compares all responses of a log of `starling bench query`.
    pub(crate) fn add_log(&mut self, history: &VersionHistory, log: &str) -> Result<(), Failure> {
        log.lines().try_for_each(|line| {
            let mut parts = line.splitn(3, ' ');
            let sent = parts.next().and_then(|sent| sent.parse().ok());
            let sent = sent.ok_or_else(|| format!("a malformed line of the log: {line}"))?;
            self.add(history, sent, parts.nth(1).unwrap_or_default())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> VersionHistory {
        let mut history = VersionHistory::default();
        for (id, version, at) in [("1", 1, 100), ("2", 2, 200), ("1", 3, 300)] {
            history.acknowledge(id, version, at);
        }
        history
    }

    fn body(items: &[(&str, &str)]) -> String {
        let items: Vec<_> =
            items.iter().map(|(id, note)| serde_json::json!({ "id": id, "note": note })).collect();
        serde_json::json!({ "data": { "items": items } }).to_string()
    }

    #[test]
    fn a_response_is_stale_if_it_is_older_than_what_was_acknowledged_before_its_request() {
        for (sent, items, is_checked, is_stale) in [
            (99, &[("1", "made up"), ("2", "made up")][..], false, false),
            (100, &[("1", "1")], true, false),
            (100, &[("1", "made up")], true, true),
            (299, &[("1", "1"), ("2", "2")], true, false),
            (299, &[("1", "3")], true, false),
            (300, &[("1", "1"), ("2", "2")], true, true),
            (300, &[("2", "1"), ("1", "3")], true, true),
            (900, &[("1", "4"), ("2", "2")], true, false),
            (900, &[("3", "made up")], false, false),
            (900, &[], false, false),
        ] {
            let mut tally = StalenessTally::default();
            tally.add(&history(), sent, &body(items)).unwrap();
            assert_eq!(
                (tally.checked, tally.stale, tally.example.is_some()),
                (u64::from(is_checked), u64::from(is_stale), is_stale),
                "{sent} {items:?}"
            );
        }
    }

    #[test]
    fn the_lines_of_a_log_are_responses_with_the_times_of_their_requests() {
        let [old, new] = ["1", "3"].map(|version| body(&[("1", version)]));
        let log = format!("250 400 {old}\n300 310 {new}\n301 320 {old}\n302 330 {old}\n");
        let mut tally = StalenessTally::default();
        tally.add_log(&history(), &log).unwrap();
        assert_eq!((tally.checked, tally.stale), (4, 2));
        let stale = StaleEntity { id: "1".to_owned(), version: 1, acknowledged: 3 };
        assert_eq!(tally.example, Some(stale));
        for wrong in ["", "x 1 {}", "1 2", "1 2 {}", "1 2 {\"data\":{}}"] {
            let read = StalenessTally::default().add_log(&history(), &format!("{wrong}\n"));
            assert!(read.is_err(), "{wrong}");
        }
    }
}
