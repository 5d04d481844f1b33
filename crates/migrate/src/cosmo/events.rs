//! Brokers of Cosmo Router (EDFS).

use crate::conversion::{Conversion, Members};
use crate::form::Form;
use crate::redis::convert_providers;
use crate::rule::{Rule, absent, same, with};
use crate::setting::Setting;
use crate::target::Value;

pub(super) const RULES: &[Rule] = &[
    with("events.providers.nats", "events.providers.nats", "", nats),
    with(
        "events.providers.kafka",
        "events.providers.kafka",
        "the build needs the feature `kafka`",
        kafka,
    ),
    with(
        "events.providers.redis",
        "events.providers.redis",
        "options in the query of a URL are left out",
        redis,
    ),
    same("events.skip_unavailable_providers", "events.require_all", Form::Not),
    absent(
        "events.handlers",
        "Starling has no modules: filters and mappings are directives (docs/events/directives.md)",
    ),
    absent("events.sources", "list the brokers in `events.providers`, by kind"),
];

fn nats(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    for provider in setting.items() {
        let mut members = Members::of(&provider);
        let id = conversion.optional(members.take("id"), Form::Text);
        let url = conversion.optional(members.take("url"), Form::Text);
        let authentication =
            members.take("authentication").and_then(|it| nats_credentials(conversion, &it));
        let tls = members.take("tls");
        members.unneeded(
            conversion,
            "delete_durable_consumers_on_shutdown",
            "durable consumers have names of the router and stay (docs/events/nats.md)",
        );
        members.finish(conversion);
        let files = tls.as_ref().and_then(|it| files_of(conversion, it));
        let value = Value::map([
            ("id", id),
            ("url", url),
            ("authentication", authentication),
            ("tls", files),
        ]);
        conversion.push(&provider, &["events", "providers", "nats"].map(str::to_owned), value, "");
    }
}

fn nats_credentials(conversion: &mut Conversion<'_>, setting: &Setting<'_>) -> Option<Value> {
    let mut members = Members::of(setting);
    let token = conversion.optional(members.take("token"), Form::Text);
    let user = members.take("user_info").and_then(|it| user_of(conversion, &it));
    members.finish(conversion);
    // There can be one of them.
    match (token, user) {
        (Some(token), _) => Some(Value::keyed("token", token)),
        (None, Some(user)) => Some(Value::keyed("user_info", user)),
        (None, None) => None,
    }
}

fn user_of(conversion: &mut Conversion<'_>, setting: &Setting<'_>) -> Option<Value> {
    let mut members = Members::of(setting);
    let username = conversion.optional(members.take("username"), Form::Text);
    let password = conversion.optional(members.take("password"), Form::Text);
    let mechanism = conversion.optional(members.take("mechanism"), Form::Text);
    members.finish(conversion);
    username.as_ref()?;
    Some(Value::map([("username", username), ("password", password), ("mechanism", mechanism)]))
}

/// Returns the files of a section `tls`. A mapping, so that the provider is written as a whole.
fn files_of(conversion: &mut Conversion<'_>, setting: &Setting<'_>) -> Option<Value> {
    let mut members = Members::of(setting);
    members.take("enabled");
    let mut file =
        |conversion: &mut Conversion<'_>, name| conversion.optional(members.take(name), Form::Text);
    let ca = file(conversion, "ca_file");
    let certificate = file(conversion, "cert_file");
    let key = file(conversion, "key_file");
    members.absent(
        conversion,
        "insecure_skip_ca_verification",
        "certificates are always verified: name the authority that has signed them (`ca`)",
    );
    members.finish(conversion);
    let has_any = ca.is_some() || certificate.is_some() || key.is_some();
    has_any.then(|| Value::map([("ca", ca), ("certificate", certificate), ("key", key)]))
}

fn kafka(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    for provider in setting.items() {
        let mut members = Members::of(&provider);
        let id = conversion.optional(members.take("id"), Form::Text);
        let brokers = conversion.optional(members.take("brokers"), Form::Texts);
        let authentication = members.take("authentication").and_then(|it| {
            let mut own = Members::of(&it);
            let plain = own.take("sasl_plain").and_then(|it| user_of(conversion, &it));
            let scram = own.take("sasl_scram").and_then(|it| user_of(conversion, &it));
            own.finish(conversion);
            match (plain, scram) {
                (Some(plain), _) => Some(Value::keyed("sasl_plain", plain)),
                (None, Some(scram)) => Some(Value::keyed("sasl_scram", scram)),
                (None, None) => None,
            }
        });
        let tls = members.take("tls").and_then(|it| {
            let enabled = it.member("enabled").and_then(|it| it.truth());
            let files = files_of(conversion, &it);
            match (enabled, files) {
                (Some(false), _) => None,
                (_, Some(files)) => Some(files),
                (_, None) => Some(Value::keyed("enabled", Value::Bool(true))),
            }
        });
        let wait = conversion.optional(members.take("fetch_max_wait"), Form::Duration);
        members.finish(conversion);
        let fetch = wait.map(|it| Value::keyed("max_wait", it));
        let value = Value::map([
            ("id", id),
            ("brokers", brokers),
            ("authentication", authentication),
            ("tls", tls),
            ("fetch", fetch),
        ]);
        let note = "the build needs the feature `kafka`";
        conversion.push(
            &provider,
            &["events", "providers", "kafka"].map(str::to_owned),
            value,
            note,
        );
    }
}

fn redis(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    convert_providers(conversion, setting, &["events", "providers", "redis"].map(str::to_owned));
}
