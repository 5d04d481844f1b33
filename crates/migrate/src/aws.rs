//! Signatures of AWS (Signature Version 4) of Apollo Router and Hive Router.

use super::conversion::{Conversion, Members, with_names};
use super::form::Form;
use super::setting::Setting;
use super::target::Value;

/// Converts the signature for one subgraph.
pub(crate) fn convert(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    let mut members = Members::of(setting);
    let chain = members.take("default_chain");
    let keys = members.take("hardcoded");
    members.finish(conversion);
    let Some(settings) = chain.or(keys) else { return };
    let mut own = Members::of(&settings);
    let mut value =
        |conversion: &mut Conversion<'_>, name| conversion.optional(own.take(name), Form::Text);
    let region = value(conversion, "region");
    let service = value(conversion, "service_name").or_else(|| value(conversion, "service"));
    let id = value(conversion, "access_key_id");
    let secret = value(conversion, "secret_access_key");
    let token = value(conversion, "session_token");
    own.absent(
        conversion,
        "profile_name",
        "credentials come from the variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and \
         `AWS_SESSION_TOKEN`",
    );
    own.absent(
        conversion,
        "assume_role",
        "Starling assumes no role: give it the credentials of the role",
    );
    own.finish(conversion);
    let signature = Value::map([
        ("region", region),
        ("service", service),
        ("access_key_id", id),
        ("secret_access_key", secret),
        ("session_token", token),
    ]);
    let to = with_names("subgraphs.<name>.aws_sigv4", &setting.names);
    let note = "the build needs the feature `aws`; temporary credentials are not renewed";
    conversion.write(&settings, &to, signature, note);
}
