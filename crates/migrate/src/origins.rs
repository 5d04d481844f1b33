//! Cross-origin resource sharing: the policies of Apollo Router and Hive Router, and patterns of origins.

use super::conversion::{Conversion, Members};
use super::form::Form;
use super::router::Router;
use super::setting::Setting;
use super::target::Value;

/// The origin that Apollo Router allows by default.
const STUDIO: &str = "https://studio.apollographql.com";

/// The methods that pages may use, which are those that Starling has.
const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];

/// The settings of a policy. Those that it leaves out are those for all policies.
#[derive(Debug, Clone, Default)]
struct Policy {
    credentials: Option<Value>,
    methods: Option<Value>,
    allow_headers: Option<Value>,
    expose_headers: Option<Value>,
    max_age: Option<Value>,
}

impl Policy {
    fn take(conversion: &mut Conversion<'_>, members: &mut Members<'_>) -> Self {
        let age = match conversion.router {
            Router::Hive => Form::Seconds,
            Router::Apollo | Router::Cosmo => Form::Duration,
        };
        let methods = members.take("methods");
        Self {
            credentials: optional(conversion, members, "allow_credentials", Form::Bool),
            methods: methods.and_then(|it| methods_of(conversion, &it)),
            allow_headers: optional(conversion, members, "allow_headers", Form::Texts),
            expose_headers: optional(conversion, members, "expose_headers", Form::Texts),
            max_age: optional(conversion, members, "max_age", age),
        }
    }

    fn or(self, general: &Self) -> Self {
        Self {
            credentials: self.credentials.or_else(|| general.credentials.clone()),
            methods: self.methods.or_else(|| general.methods.clone()),
            allow_headers: self.allow_headers.or_else(|| general.allow_headers.clone()),
            expose_headers: self.expose_headers.or_else(|| general.expose_headers.clone()),
            max_age: self.max_age.or_else(|| general.max_age.clone()),
        }
    }

    fn into_value(self, origins: Vec<String>, patterns: Vec<String>) -> Value {
        let is_every = origins.iter().any(|it| it == "*");
        let list = |texts: Vec<String>| (!texts.is_empty()).then(|| Value::texts(texts));
        // Without the key, a policy of Starling allows credentials.
        let credentials = self.credentials.unwrap_or(Value::Bool(false));
        Value::map([
            ("origins", list(origins)),
            ("match_origins", list(patterns)),
            ("credentials", Some(if is_every { Value::Bool(false) } else { credentials })),
            ("methods", self.methods),
            ("allow_headers", self.allow_headers),
            ("expose_headers", self.expose_headers),
            ("max_age", self.max_age),
        ])
    }
}

/// Converts the section `cors` of Apollo Router and Hive Router.
pub(crate) fn convert(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    if let Some(enabled) = members.take("enabled") {
        if enabled.truth() == Some(false) {
            conversion.unneeded(setting, "it is turned off, as without `cors` in Starling");
            return;
        }
        conversion.done(&enabled, "cors.policies", "");
    }
    let general = Policy::take(conversion, &mut members);
    let path = ["cors".to_owned(), "policies".to_owned()];
    if let Some(any) = members.take("allow_any_origin") {
        // A variable does not open the graph to every page.
        if any.truth() == Some(true) {
            let note =
                "`\"*\"` never allows credentials in Starling: list the origins that need them";
            let value = general.clone().into_value(vec!["*".to_owned()], Vec::new());
            conversion.push(&any, &path, value, note);
            for ignored in ["origins", "match_origins", "match_origin", "policies"] {
                members.unneeded(conversion, ignored, "every origin is allowed");
            }
            members.finish(conversion);
            return;
        }
        match any.truth() {
            Some(_) => conversion.unneeded(&any, "as without it in Starling"),
            None => conversion.refuse(
                &any,
                "is neither true nor false",
                "list the origins, or write `origins: [\"*\"]`",
            ),
        }
    }
    let mut has_policy = false;
    // The form of older versions: one policy on the level of the section.
    let origins = members.take("origins");
    let patterns = members.take("match_origins").or_else(|| members.take("match_origin"));
    if let (Some(_), Some(patterns)) = (&origins, &patterns) {
        conversion.done(patterns, "cors.policies[].match_origins", "");
    }
    if let Some(first) = origins.clone().or_else(|| patterns.clone()) {
        let value = general.clone().into_value(
            texts(conversion, origins.as_ref()),
            texts(conversion, patterns.as_ref()).iter().map(|it| whole_pattern(it)).collect(),
        );
        conversion.push(&first, &path, value, "");
        has_policy = true;
    }
    let policies = members.take("policies");
    for policy in policies.iter().flat_map(Setting::items) {
        let mut own = Members::of(&policy);
        let settings = Policy::take(conversion, &mut own).or(&general);
        let mut origins = texts(conversion, own.take("origins").as_ref());
        let patterns = own.take("match_origins").or_else(|| own.take("match_origin"));
        let patterns = texts(conversion, patterns.as_ref());
        let mut private = None;
        if let Some(access) = own.take("private_network_access") {
            private = Some(Value::Bool(true));
            conversion.done(
                &access,
                "cors.policies[].private_network_access",
                "Starling sends no id and name",
            );
        }
        own.finish(conversion);
        if origins.is_empty() && patterns.is_empty() && conversion.router == Router::Apollo {
            origins.push(STUDIO.to_owned());
        }
        let patterns = patterns.iter().map(|it| whole_pattern(it)).collect();
        let mut value = settings.into_value(origins, patterns);
        if let (Value::Map(members), Some(private)) = (&mut value, private) {
            members.push(("private_network_access".to_owned(), private));
        }
        conversion.push(&policy, &path, value, "");
        has_policy = true;
    }
    members.finish(conversion);
    if !has_policy && conversion.router == Router::Apollo {
        let value = general.into_value(vec![STUDIO.to_owned()], Vec::new());
        let note = "without origins, Apollo Router allows its Studio: remove the policy if you do not use \
                    it";
        conversion.push(setting, &path, value, note);
    }
}

/// Returns a member in a form, and reports it.
fn optional(
    conversion: &mut Conversion<'_>,
    members: &mut Members<'_>,
    name: &str,
    form: Form,
) -> Option<Value> {
    let setting = members.take(name)?;
    let value = conversion.optional(Some(setting.clone()), form);
    let there = match name {
        "allow_credentials" => "credentials",
        name => name,
    };
    match &value {
        Some(_) => conversion.done(&setting, &format!("cors.policies[].{there}"), ""),
        None if setting.is_empty() => conversion.unneeded(&setting, "it is empty"),
        None => {}
    }
    value
}

/// Returns the methods of a policy that concern Starling.
pub(crate) fn methods_of(conversion: &mut Conversion<'_>, setting: &Setting<'_>) -> Option<Value> {
    let given = setting.texts();
    let upper: Vec<_> = given.iter().map(|it| it.to_uppercase()).collect();
    let methods: Vec<_> = METHODS.into_iter().filter(|it| upper.iter().any(|m| m == it)).collect();
    if methods.is_empty() {
        let advice = "a policy of Starling allows at least one method: remove the policy to refuse its pages";
        conversion.not_converted(setting, advice);
        return None;
    }
    let note = match upper.iter().any(|it| !METHODS.contains(&&**it)) {
        true => {
            "Starling responds to OPTIONS and HEAD itself: only GET, POST, PUT and DELETE are \
             listed"
        }
        false => "",
    };
    conversion.done(setting, "cors.policies[].methods", note);
    Some(Value::texts(methods))
}

fn texts(conversion: &mut Conversion<'_>, setting: Option<&Setting<'_>>) -> Vec<String> {
    let items: Vec<_> = setting.into_iter().flat_map(Setting::items).collect();
    items
        .iter()
        .filter_map(|item| match conversion.text(item) {
            Ok(text) => Some(text),
            Err(reason) => {
                conversion.refuse(item, &reason, "");
                None
            }
        })
        .collect()
}

/// Returns a pattern for a whole origin that matches as one does which may match anywhere.
pub(crate) fn whole_pattern(pattern: &str) -> String {
    if pattern.contains('|') {
        return format!(".*(?:{pattern}).*");
    }
    let start = if pattern.starts_with('^') || pattern.starts_with(".*") { "" } else { ".*" };
    let is_closed = pattern.ends_with('$') && !pattern.ends_with("\\$") || pattern.ends_with(".*");
    let end = if is_closed { "" } else { ".*" };
    format!("{start}{pattern}{end}")
}

/// Returns a pattern for the origins that match an origin with asterisks.
pub(crate) fn pattern_of_wildcards(origin: &str) -> String {
    let parts: Vec<_> = origin.split('*').map(regex::escape).collect();
    format!("^{}$", parts.join(".*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_the_same_origins_when_the_whole_origin_must_match() {
        let cases = [
            ("^https://a$", "^https://a$"),
            ("example", ".*example.*"),
            ("^https://a", "^https://a.*"),
            ("a\\$", ".*a\\$.*"),
            ("^https://a$|^https://b$", ".*(?:^https://a$|^https://b$).*"),
        ];
        for (pattern, whole) in cases {
            assert_eq!(whole_pattern(pattern), whole);
        }
        assert_eq!(pattern_of_wildcards("http://localhost:*"), "^http://localhost:.*$");
    }
}
