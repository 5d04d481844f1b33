//! Tokens of clients in the configuration of Cosmo Router: issuers, and the headers with tokens.

use crate::conversion::{Conversion, Members, Refused};
use crate::form::Form;
use crate::headers::lower_case;
use crate::setting::Setting;
use crate::target::Value;
use crate::tokens::{self, Algorithms, Issuer};

/// The effect of a further prefix of the same header.
const ONE_PREFIX: &str = "a header has one prefix: values without the first one are refused";

/// Converts issuers and headers with tokens.
pub(super) fn jwt(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    for provider in members.take("jwks").iter().flat_map(Setting::items) {
        issuer(conversion, &provider);
    }
    if let Some(scope) = members.take("scope_claim") {
        let to = ["authorization".to_owned(), "scope_claims".to_owned()];
        conversion.set(&scope, &to, Form::Texts, "");
    }
    let name = members.take("header_name");
    let prefix = members.take("header_value_prefix");
    let sources = members.take("header_sources");
    members.finish(conversion);
    let first_name = conversion.optional(name.clone(), Form::Text).map(lower_case);
    let first_prefix = prefix.as_ref().and_then(|it| tokens::prefix(conversion, it).ok());
    // A prefix without a counterpart has been reported.
    let prefix = prefix.filter(|_| first_prefix.is_some());
    let Some(sources) = sources.filter(|it| !it.is_empty()) else {
        for (key, setting, value) in [("name", name, first_name), ("prefix", prefix, first_prefix)]
        {
            if let (Some(setting), Some(value)) = (setting, value) {
                let to = ["authentication", "jwt", "header", key].map(str::to_owned);
                conversion.write(&setting, &to, value, "");
            }
        }
        return;
    };
    let to = ["authentication", "jwt", "sources"].map(str::to_owned);
    let place = |name: Option<Value>, prefix: Option<Value>| {
        Value::keyed("header", Value::map([("name", name), ("prefix", prefix)]))
    };
    conversion.push(&sources, &to, place(first_name, first_prefix), "");
    for setting in [name, prefix].into_iter().flatten() {
        conversion.done(&setting, "authentication.jwt.sources[0].header", "");
    }
    for source in sources.items() {
        let mut own = Members::of(&source);
        own.take("type");
        let name = conversion.optional(own.take("name"), Form::Text).map(lower_case);
        let prefixes = own.take("value_prefixes");
        own.finish(conversion);
        let Some(prefixes) = prefixes.filter(|it| !it.is_empty()) else {
            let note = "Cosmo Router does not read the header without `value_prefixes`";
            conversion.unneeded(&source, note);
            continue;
        };
        let prefix = first_prefix_of(conversion, &prefixes);
        conversion.push(&source, &to, place(name, prefix), "");
    }
}

/// Returns the first prefix of a list, and reports the others: a header has one prefix in Starling.
fn first_prefix_of(conversion: &mut Conversion<'_>, prefixes: &Setting<'_>) -> Option<Value> {
    let items = prefixes.items();
    let (first, others) = items.split_first()?;
    for other in others {
        conversion.not_converted(other, ONE_PREFIX);
    }
    tokens::prefix(conversion, first).ok()
}

/// Converts a key set or a secret.
fn issuer(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let keys = key_set(conversion, &mut members);
    let given = members.take("algorithms");
    let audiences = conversion.given(members.take("audiences"), Form::Texts);
    let secret = conversion.given(members.take("secret"), Form::Text);
    let symmetric = conversion.given(members.take("symmetric_algorithm"), Form::Text);
    members.unneeded(
        conversion,
        "header_key_id",
        "the key of a secret is not looked for by its id",
    );
    members.unneeded(conversion, "allowed_use", "keys for encryption are never used");
    members.unneeded(
        conversion,
        "refresh_unknown_kid",
        "a token with an unknown key makes the router read the set, at most every ten seconds",
    );
    members.finish(conversion);
    let algorithms = match symmetric {
        // A secret has one algorithm.
        Ok(Some(symmetric)) => Algorithms::Only(Value::List(vec![symmetric])),
        Ok(None) => Algorithms::of(conversion, given.as_ref()),
        Err(Refused) => Algorithms::Nothing,
    };
    let keys = match (keys, secret) {
        (Ok(keys), Ok(secret)) => Ok(keys.or_else(|| Some(("secret", secret?)))),
        _ => Err(Refused),
    };
    Issuer { names: Ok(Vec::new()), audiences, algorithms, keys }.write(conversion, setting);
}

/// Returns the key set of a provider.
fn key_set(
    conversion: &mut Conversion<'_>,
    members: &mut Members<'_>,
) -> Result<Option<(&'static str, Value)>, Refused> {
    let refresh = conversion.optional(members.take("refresh_interval"), Form::Duration);
    let url = conversion.given(members.take("url"), Form::Text)?;
    Ok(url.map(|url| ("jwks", Value::map([("url", Some(url)), ("refresh", refresh)]))))
}

/// Converts the providers of older versions.
pub(super) fn providers(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    for provider in setting.items() {
        let mut members = Members::of(&provider);
        members.unneeded(conversion, "name", "issuers have no names");
        if let Some(keys) = members.take("jwks") {
            let mut own = Members::of(&keys);
            let set = key_set(conversion, &mut own);
            let names = own.take("header_names").or_else(|| own.take("header_name"));
            let prefixes =
                own.take("header_value_prefixes").or_else(|| own.take("header_value_prefix"));
            own.finish(conversion);
            let issuer = Issuer {
                names: Ok(Vec::new()),
                audiences: Ok(None),
                algorithms: Algorithms::Any,
                keys: set,
            };
            issuer.write(conversion, &keys);
            token_headers(conversion, names.as_ref(), prefixes.as_ref());
        }
        members.finish(conversion);
    }
}

/// Converts the headers of a provider of older versions. By default it reads `Authorization`.
fn token_headers(
    conversion: &mut Conversion<'_>,
    names: Option<&Setting<'_>>,
    prefixes: Option<&Setting<'_>>,
) {
    let list = ["authentication", "jwt", "sources"].map(str::to_owned);
    let prefixes = prefixes.filter(|it| !it.is_empty());
    let prefix = prefixes.and_then(|it| first_prefix_of(conversion, it));
    let place = |name: Value| {
        let members = [("name", Some(lower_case(name))), ("prefix", prefix.clone())];
        Value::keyed("header", Value::map(members))
    };
    let names: Vec<_> = names.iter().flat_map(|it| it.items()).collect();
    for name in &names {
        if let Some(value) = conversion.optional(Some(name.clone()), Form::Text) {
            conversion.push(name, &list, place(value), "");
        }
    }
    let Some(prefixes) = prefixes.filter(|_| prefix.is_some()) else { return };
    match names.is_empty() {
        true => conversion.push(prefixes, &list, place(Value::text("authorization")), ""),
        false => conversion.done(prefixes, "authentication.jwt.sources[].header.prefix", ""),
    }
}
