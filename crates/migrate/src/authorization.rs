//! The switch of the directives of authorization (`authorization.directives.enabled`) of Apollo Router and Hive Router.

use super::conversion::Conversion;
use super::setting::Setting;

/// Converts the switch: in Starling the directives always apply.
pub(crate) fn convert_switch(conversion: &mut Conversion<'_>, setting: &Setting<'_>) {
    match setting.truth() {
        Some(true) => conversion.unneeded(setting, "the directives always apply"),
        _ => conversion.not_converted(
            setting,
            "the directives always apply: remove them from the schema, or set \
             `authorization.dry_run` for a while",
        ),
    }
}
