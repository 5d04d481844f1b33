//! The filter for messages of a stream. The broker applies it if it can, otherwise the reader does.

/// The prefix of subjects that hold the keys of buckets.
pub(super) const BUCKETS: &str = "$KV.";

/// The requested subjects, without those that others of them cover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SubjectFilter {
    subjects: Vec<Box<str>>,
    /// True if some of the subjects overlap.
    overlap: bool,
}

impl SubjectFilter {
    pub(super) fn new(mut topics: Vec<Box<str>>) -> Self {
        topics.sort_unstable();
        topics.dedup();
        let subjects: Vec<Box<str>> = topics
            .iter()
            .filter(|topic| !topics.iter().any(|other| other != *topic && covers(other, topic)))
            .cloned()
            .collect();
        let overlap = subjects
            .iter()
            .enumerate()
            .any(|(index, a)| subjects.iter().skip(index + 1).any(|b| overlap(a, b)));
        Self { subjects, overlap }
    }

    /// Returns the subjects that no other of them covers.
    pub(super) fn subjects(&self) -> &[Box<str>] {
        &self.subjects
    }

    /// True if the broker can apply the filter. It accepts several subjects since version 2.10, but never overlapping
    /// ones.
    pub(super) fn is_supported(&self, takes_several: bool) -> bool {
        self.subjects.len() == 1 || (takes_several && !self.overlap)
    }

    /// True if all subjects hold the keys of buckets.
    pub(super) fn is_bucket(&self) -> bool {
        self.subjects.iter().all(|subject| subject.starts_with(BUCKETS))
    }

    /// True if the filter accepts messages of that subject.
    pub(super) fn matches(&self, subject: &str) -> bool {
        self.subjects.iter().any(|pattern| covers(pattern, subject))
    }
}

/// True if `pattern` matches every subject that `other` matches.
pub(in crate::nats) fn covers(pattern: &str, other: &str) -> bool {
    let (mut pattern, mut other) = (pattern.split('.'), other.split('.'));
    loop {
        match (pattern.next(), other.next()) {
            (None, None) | (Some(">"), Some(_)) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(a), Some(b)) if a == b => {}
            _ => return false,
        }
    }
}

/// True if a subject exists that both patterns match.
fn overlap(a: &str, b: &str) -> bool {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        match (a.next(), b.next()) {
            (None, None) | (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (Some("*"), Some(_)) | (Some(_), Some("*")) => {}
            (Some(a), Some(b)) if a == b => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(topics: &[&str]) -> SubjectFilter {
        SubjectFilter::new(topics.iter().map(|&topic| topic.into()).collect())
    }

    #[test]
    fn subjects_that_others_cover_are_left_out() {
        let all = filter(&["orders.7", "orders.*", "orders.7", "refunds.>", "refunds.a.b", "x"]);
        let subjects: Vec<&str> = all.subjects().iter().map(|it| &**it).collect();
        assert_eq!(subjects, ["orders.*", "refunds.>", "x"]);
        for (subject, wanted) in [
            ("orders.7", true),
            ("orders", false),
            ("orders.7.a", false),
            ("refunds.a", true),
            ("refunds.a.b.c", true),
            ("refunds", false),
            ("x", true),
            ("y", false),
        ] {
            assert_eq!(all.matches(subject), wanted, "{subject}");
        }
    }

    #[test]
    fn the_broker_filters_several_subjects_only_if_it_can_and_they_do_not_overlap() {
        assert!(filter(&["a.*", "a.b"]).is_supported(false), "one is left");
        assert!(filter(&["a", "b"]).is_supported(true));
        assert!(!filter(&["a", "b"]).is_supported(false));
        assert!(!filter(&["a.*.c", "a.b.*"]).is_supported(true));
        assert!(!filter(&["*.b", "a.>"]).is_supported(true));
    }
}
