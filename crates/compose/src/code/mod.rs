//! The codes of errors and hints, and the text of their reference pages. Tools and web searches know the codes, so they
//! never change.
//!
//! Each module holds one group of codes. `pages` makes the pages in `docs/composition` from them.

mod caching;
mod contexts;
mod costs_and_rights;
mod entity_interfaces;
mod event_subgraphs;
mod external_fields;
mod field_sets;
mod hints;
mod linking;
mod merging;
mod overrides;
#[cfg(test)]
mod pages;
mod satisfiability;
mod visibility;

use std::sync::LazyLock;

/// The code of an error or hint, such as `INVALID_FIELD_SHARING`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Code {
    name: &'static str,
    summary: &'static str,
    reason: &'static str,
    remedy: &'static str,
}

impl Code {
    /// Returns the code's name.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Returns one sentence that says what the code means.
    pub fn summary(self) -> &'static str {
        self.summary
    }

    /// Returns some sentences that say why it matters.
    pub fn reason(self) -> &'static str {
        self.reason
    }

    /// Returns some sentences that say what to do.
    pub fn remedy(self) -> &'static str {
        self.remedy
    }

    /// Returns all codes, errors before hints.
    pub fn all() -> &'static [Self] {
        static ALL: LazyLock<Vec<Code>> = LazyLock::new(|| {
            CodeGroup::all().iter().flat_map(|group| group.codes).copied().collect()
        });
        &ALL
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Codes about one subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeGroup {
    /// The subject, as a heading.
    pub title: &'static str,
    /// The codes.
    pub codes: &'static [Code],
}

impl CodeGroup {
    /// Returns all groups: those of errors, then that of hints.
    pub fn all() -> &'static [Self] {
        &[
            linking::GROUP,
            field_sets::GROUP,
            external_fields::GROUP,
            merging::GROUP,
            overrides::GROUP,
            entity_interfaces::GROUP,
            visibility::GROUP,
            contexts::GROUP,
            costs_and_rights::GROUP,
            caching::GROUP,
            event_subgraphs::GROUP,
            satisfiability::GROUP,
            hints::GROUP,
        ]
    }
}

/// Defines the codes of one group as constants of [`Code`].
macro_rules! codes {
    ($title:literal; $($name:ident: $summary:literal, reason: $reason:literal, remedy: $remedy:literal;)*) => {
        impl $crate::code::Code {
            $(
                #[doc = $summary]
                pub const $name: Self = Self {
                    name: stringify!($name),
                    summary: $summary,
                    reason: $reason,
                    remedy: $remedy,
                };
            )*
        }

        pub(super) const GROUP: $crate::code::CodeGroup =
            $crate::code::CodeGroup { title: $title, codes: &[$($crate::code::Code::$name),*] };
    };
}
use codes;
