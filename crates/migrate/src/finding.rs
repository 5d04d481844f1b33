//! Findings: what became of each key of the source.

use std::fmt;

/// The result for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The key has a counterpart with the same meaning.
    Converted,
    /// The key has a counterpart that differs in a way that the operator must know.
    Changed,
    /// The key has no counterpart, or its value cannot be expressed. The note says what to do instead.
    NotConverted,
    /// The migration does not know the key.
    Unknown,
    /// The key needs no counterpart: it is turned off, or concerns parts that Starling does not have.
    NotNeeded,
    /// The source leaves the key out, and its default there differs from that of Starling; or the source is not where
    /// the other router takes it from.
    Added,
}

impl Outcome {
    /// All outcomes, in the order of the summary.
    pub const ALL: [Self; 6] = [
        Self::Converted,
        Self::Changed,
        Self::NotConverted,
        Self::Unknown,
        Self::NotNeeded,
        Self::Added,
    ];

    /// Returns the words for the outcome.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Converted => "converted",
            Self::Changed => "changed",
            Self::NotConverted => "not converted",
            Self::Unknown => "unknown",
            Self::NotNeeded => "not needed",
            Self::Added => "added",
        }
    }

    /// True if an operator has to look at the key.
    pub fn needs_attention(self) -> bool {
        matches!(self, Self::Changed | Self::NotConverted | Self::Unknown)
    }
}

/// One finding about one key of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The result for the key.
    pub outcome: Outcome,
    /// The line of the key in the source, counted from 1. `None` for added keys.
    pub line: Option<usize>,
    /// The key, by its path in the source. For added keys, the key or variable of the other router.
    pub key: String,
    /// The keys of Starling, divided by commas; empty if there are none.
    pub to: String,
    /// The difference, or what to do instead; may be empty. Never contains a secret of the source.
    pub note: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "{line}: ")?;
        }
        write!(f, "{}: {}", self.outcome.as_str(), self.key)?;
        if !self.to.is_empty() {
            write!(f, " → {}", self.to)?;
        }
        if !self.note.is_empty() {
            write!(f, ": {}", self.note)?;
        }
        Ok(())
    }
}

/// Returns the number of findings with each outcome, as a sentence. Outcomes without findings are left out.
pub fn summary(findings: &[Finding]) -> String {
    let counts = Outcome::ALL.map(|outcome| {
        let count = findings.iter().filter(|it| it.outcome == outcome).count();
        (outcome, count)
    });
    let parts: Vec<_> = counts
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(outcome, count)| format!("{count} {}", outcome.as_str()))
        .collect();
    match parts.is_empty() {
        true => "The file has no keys.".to_owned(),
        false => format!("{}.", parts.join(", ")),
    }
}
