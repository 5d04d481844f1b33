//! TLS of the main listener: its certificate, its key, and the authorities of clients, which each router names by keys
//! of its own.

use super::conversion::{Conversion, Members, source_of};
use super::form::Form;
use super::setting::Setting;
use super::target::Value;

/// A file that a key of the source names. `None`: Starling cannot have the value, which is reported.
pub(crate) type NamedFile<'a> = (Setting<'a>, Option<Value>);

/// Certificates of clients, after the source.
#[derive(Debug)]
pub(crate) enum ClientCertificates<'a> {
    /// Clients need none.
    NotRequired,
    /// Clients need one that the authorities in a file have signed.
    SignedBy(Setting<'a>, Value),
    /// Clients need one, and the file of the authorities has no counterpart.
    Unknown,
}

/// Sets the certificate of the listener, if the source has both files of the pair.
pub(crate) fn convert(
    conversion: &mut Conversion<'_>,
    section: &Setting<'_>,
    certificate: Option<NamedFile<'_>>,
    key: Option<NamedFile<'_>>,
    clients: ClientCertificates<'_>,
) {
    let pair = match (&certificate, &key) {
        (Some((_, Some(certificate))), Some((_, Some(key)))) => {
            Some((certificate.clone(), key.clone()))
        }
        _ => None,
    };
    for (file, name) in [(&certificate, "cert"), (&key, "key")] {
        let Some((setting, Some(_))) = file else { continue };
        match pair {
            Some(_) => conversion.done(setting, &format!("listen[].tls.{name}"), ""),
            None => conversion.not_converted(
                setting,
                "half of a pair: the listener has no TLS until `listen[].tls` names both `cert` and \
                 `key`",
            ),
        }
    }
    let authorities = match (&pair, clients) {
        (_, ClientCertificates::NotRequired) => None,
        (Some(_), ClientCertificates::SignedBy(setting, file)) => {
            conversion.done(&setting, "listen[].tls.client_ca", "");
            Some(file)
        }
        _ => {
            let advice = "clients need certificates, which cannot be verified without `listen[].tls`: \
                          until then, the result refuses every operation";
            conversion.not_converted(section, advice);
            let message = "certificates of clients cannot be verified yet";
            conversion.refuse_operations(section, message);
            None
        }
    };
    let Some((certificate, key)) = pair else { return };
    let tls =
        Value::map([("cert", Some(certificate)), ("key", Some(key)), ("client_ca", authorities)]);
    conversion.listener.tls = Some((tls, source_of(section)));
}

/// Converts the section `client_auth` of Cosmo Router and Hive Router. `required_default` is the switch there if the
/// section leaves it out.
pub(crate) fn client_certificates<'a>(
    conversion: &mut Conversion<'_>,
    section: Option<&Setting<'a>>,
    required_default: bool,
) -> ClientCertificates<'a> {
    let Some(section) = section else { return ClientCertificates::NotRequired };
    let mut members = Members::of(section);
    let file = members.take("cert_file").filter(|it| !it.is_empty());
    let required = members.take("required");
    members.finish(conversion);
    let is_required = required.as_ref().map_or(required_default, Setting::may_be_on);
    if let Some(required) = required {
        conversion.unneeded(&required, "`listen[].tls.client_ca` requires certificates");
    }
    let Some(file) = file else { return ClientCertificates::NotRequired };
    if !is_required {
        let advice = "certificates of clients are always required if `listen[].tls.client_ca` is set: \
                      list a second listener without it";
        conversion.not_converted(&file, advice);
        return ClientCertificates::NotRequired;
    }
    match one_file(conversion, &file) {
        Some(authorities) => ClientCertificates::SignedBy(file, authorities),
        None => ClientCertificates::Unknown,
    }
}

/// Returns a member that names a file.
pub(crate) fn named_file<'a>(
    conversion: &mut Conversion<'_>,
    member: Option<Setting<'a>>,
) -> Option<NamedFile<'a>> {
    let member = member.filter(|it| !it.is_empty())?;
    let file = one_file(conversion, &member);
    Some((member, file))
}

/// Returns the only file of a certificate, which may be a list.
pub(crate) fn one_file(conversion: &mut Conversion<'_>, setting: &Setting<'_>) -> Option<Value> {
    let files = setting.items();
    for further in files.iter().skip(1) {
        let advice = "Starling reads one file: append this one to the first";
        conversion.not_converted(further, advice);
    }
    files.first().and_then(|first| conversion.optional(Some(first.clone()), Form::Text))
}
