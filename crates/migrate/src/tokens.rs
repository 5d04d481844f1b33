//! Algorithms of tokens: those of key sets, and what becomes of a list without any that Starling has.

use super::conversion::Conversion;
use super::setting::Setting;
use super::target::Value;

/// The difference about audiences.
pub(crate) const AUDIENCES: &str = "Starling refuses tokens with an `aud` unless `audiences` has it: \
                                    list the names of this router";

/// The algorithms that keys of key sets may have.
const PUBLIC: [&str; 9] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];

/// The accepted algorithms of a provider of keys.
#[derive(Debug, Clone)]
pub(crate) enum Algorithms {
    /// All that Starling has.
    Any,
    /// These.
    Only(Value),
    /// The source accepts only algorithms that Starling does not have. Without the list, others would be accepted.
    Nothing,
}

impl Algorithms {
    /// Reads the list of a provider, and reports algorithms that are left out.
    pub(crate) fn of(conversion: &mut Conversion<'_>, setting: Option<&Setting<'_>>) -> Self {
        let Some(setting) = setting.filter(|it| !it.is_empty()) else { return Self::Any };
        let given = setting.texts();
        let known = |it: &&str| PUBLIC.iter().find(|known| known.eq_ignore_ascii_case(it)).copied();
        let kept: Vec<_> = given.iter().filter_map(known).collect();
        if kept.len() < given.len() {
            let note = "key sets have public keys of some algorithms: \
                        `authentication.jwt.issuers[].algorithms` lists them, and others are left out";
            conversion.not_converted(setting, note);
        } else {
            conversion.done(setting, "authentication.jwt.issuers[].algorithms", "");
        }
        match kept.is_empty() {
            true => Self::Nothing,
            false => Self::Only(Value::texts(kept)),
        }
    }

    /// Returns the value for an issuer.
    pub(crate) fn into_value(self) -> Option<Value> {
        match self {
            Self::Only(value) => Some(value),
            Self::Any | Self::Nothing => None,
        }
    }
}
