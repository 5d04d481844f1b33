//! Issuers of tokens: their keys, and which tokens they accept. An issuer of which a part has no counterpart is left out
//! as a whole, because half of it would accept other tokens than its source. And the prefixes of tokens in headers.

use super::conversion::{Conversion, Refused, source_of};
use super::form::Form;
use super::router::Router;
use super::setting::Setting;
use super::target::Value;
use super::variables;

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
    fn value(&self) -> Result<Option<Value>, Refused> {
        match self {
            Self::Only(value) => Ok(Some(value.clone())),
            Self::Any => Ok(None),
            Self::Nothing => Err(Refused),
        }
    }
}

/// An issuer after its source: each part is converted, absent, or without a counterpart.
#[derive(Debug)]
pub(crate) struct Issuer {
    /// The names in tokens. Without any, tokens may have every name.
    pub(crate) names: Result<Vec<Value>, Refused>,
    pub(crate) audiences: Result<Option<Value>, Refused>,
    pub(crate) algorithms: Algorithms,
    /// `jwks` or `secret`, with its value.
    pub(crate) keys: Result<Option<(&'static str, Value)>, Refused>,
}

impl Issuer {
    /// Adds the issuer, once for each of its names. Without keys, or if a part has no counterpart, it is left out.
    pub(crate) fn write(self, conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
        let (Ok(names), Ok(audiences), Ok(algorithms), Ok(Some((kind, keys)))) =
            (self.names, self.audiences, self.algorithms.value(), self.keys)
        else {
            let note = "the issuer is left out, because Starling needs its keys and all conditions \
                        for its tokens: add it to `authentication.jwt.issuers`. Until then its \
                        tokens are refused";
            conversion.not_converted(setting, note);
            conversion.lost_issuer.get_or_insert_with(|| source_of(setting));
            return;
        };
        let to = ["authentication", "jwt", "issuers"].map(str::to_owned);
        let note = if audiences.is_none() { AUDIENCES } else { "" };
        let mut names: Vec<_> = names.into_iter().map(Some).collect();
        if names.is_empty() {
            names.push(None);
        }
        for name in names {
            let issuer = Value::map([
                ("issuer", name),
                ("audiences", audiences.clone()),
                ("algorithms", algorithms.clone()),
                (kind, Some(keys.clone())),
            ]);
            conversion.push(setting, &to, issuer, note);
        }
    }
}

/// Returns the names of an issuer: all of them, so that none is lost.
pub(crate) fn names(
    conversion: &mut Conversion<'_>,
    settings: &[Option<Setting<'_>>],
) -> Result<Vec<Value>, Refused> {
    let settings = settings.iter().flatten().flat_map(Setting::items);
    let names: Vec<_> = settings.map(|it| conversion.given(Some(it), Form::Text)).collect();
    let names: Result<Vec<_>, _> = names.into_iter().collect();
    Ok(names?.into_iter().flatten().collect())
}

/// The effect of a prefix without a counterpart.
const BEARER: &str =
    "the header has the prefix `Bearer` in the result, and values without it are refused";

/// Returns the prefix of tokens in a header as Starling has it: a word before a space, or nothing if the whole value is
/// the token. Letter case does not matter in Starling.
///
/// # Errors
/// Starling has no such prefix, which is reported. Without one the header has the default, `Bearer`.
pub(crate) fn prefix(
    conversion: &mut Conversion<'_>,
    setting: &Setting<'_>,
) -> Result<Value, Refused> {
    let word = conversion.text(setting).and_then(|text| word(&text, conversion.router));
    word.map(Value::Text).map_err(|reason| {
        conversion.refuse(setting, &reason, BEARER);
        Refused
    })
}

/// Returns the word that a prefix consists of.
///
/// # Errors
/// The prefix is something else; the reason is for a sentence after "the value".
fn word(prefix: &str, router: Router) -> Result<String, String> {
    // The checks of the configuration refuse a variable with any other value than a word.
    if variables::has_reference(prefix) {
        return Ok(prefix.to_owned());
    }
    let word = prefix.trim_end_matches(' ');
    if word.is_empty() {
        return match prefix.is_empty() {
            true => Ok(String::new()),
            false => Err("consists of spaces".into()),
        };
    }
    if !word.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-') {
        return Err("is not one word of letters, digits and hyphens".into());
    }
    // Cosmo Router and Hive Router compare the beginning of the header's value and trim the rest, so that the space may
    // be a part of the prefix or not. A token can stand directly behind a hyphen.
    let may_lack_space = router != Router::Apollo && word.len() == prefix.len();
    match may_lack_space && word.ends_with('-') {
        true => Err("ends in a hyphen, and Starling needs a space before the token".into()),
        false => Ok(word.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_word_before_a_space_or_nothing() {
        use Router::{Apollo, Cosmo, Hive};
        for router in [Apollo, Cosmo, Hive] {
            for (prefix, expected) in [
                ("Bearer", Some("Bearer")),
                ("Bearer ", Some("Bearer")),
                ("X-Token ", Some("X-Token")),
                ("JWT- ", Some("JWT-")),
                ("", Some("")),
                ("${PREFIX}", Some("${PREFIX}")),
                (" ", None),
                (" Bearer", None),
                ("Bearer:", None),
                ("Bearer token ", None),
                ("token=", None),
            ] {
                assert_eq!(word(prefix, router).ok().as_deref(), expected, "{router:?} {prefix:?}");
            }
        }
        for (router, expected) in [(Apollo, Some("JWT-")), (Cosmo, None), (Hive, None)] {
            assert_eq!(word("JWT-", router).ok().as_deref(), expected, "{router:?}");
        }
    }
}
