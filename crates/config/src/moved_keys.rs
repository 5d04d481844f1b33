//! Keys that have moved to another section. An old key is refused with the new one in the message.

/// The old and the new path of each moved key.
const MOVED_KEYS: [(&str, &str); 2] = [
    ("subscriptions.max_connections", "http.max_connections"),
    ("subscriptions.max_connections_per_ip", "http.max_connections_per_ip"),
];

/// Returns the new path of a key, if `path` is its old one.
pub(super) fn new_path(path: &str) -> Option<&'static str> {
    MOVED_KEYS.iter().find(|(old, _)| *old == path).map(|(_, new)| *new)
}

#[cfg(test)]
mod tests {
    use super::super::schema::plain_schema;
    use super::*;

    fn exists(path: &str) -> bool {
        let pointer = format!("/properties/{}", path.replace('.', "/properties/"));
        plain_schema().pointer(&pointer).is_some()
    }

    #[test]
    fn every_new_path_exists_and_no_old_one_does() {
        for (old, new) in MOVED_KEYS {
            assert!(exists(new), "{new}");
            assert!(!exists(old), "{old}");
        }
    }
}
