//! Descriptions and deprecations, which all kinds of elements have.

use apollo_compiler::{Node, ast};

use super::change::{ChangeCode, ChangeList, Exposure, safe};

/// The reason of a deprecation that states none, by the GraphQL specification.
const DEFAULT_REASON: &str = "No longer supported";

/// Returns the reason if one of `directives` is `@deprecated`.
pub(super) fn deprecation_reason(directives: &ast::DirectiveList) -> Option<&str> {
    let directive = directives.get("deprecated")?;
    let reason = directive.specified_argument_by_name("reason").and_then(|it| it.as_str());
    Some(reason.unwrap_or(DEFAULT_REASON))
}

/// Compares the descriptions of an element.
pub(super) fn compare_descriptions(
    changes: &mut ChangeList,
    path: &str,
    old: Option<&Node<str>>,
    new: Option<&Node<str>>,
) {
    let message = match (old, new) {
        (None, Some(_)) => format!("the description of `{path}` was added"),
        (Some(_), None) => format!("the description of `{path}` was removed"),
        (Some(old), Some(new)) if **old != **new => {
            format!("the description of `{path}` was changed")
        }
        _ => return,
    };
    changes.add(
        ChangeCode::DescriptionChanged,
        path,
        message,
        safe("descriptions do not change requests or responses"),
        Exposure::Nothing,
    );
}

/// Compares the deprecations of an element.
pub(super) fn compare_deprecations(
    changes: &mut ChangeList,
    path: &str,
    old: &ast::DirectiveList,
    new: &ast::DirectiveList,
) {
    let (code, message) = match (deprecation_reason(old), deprecation_reason(new)) {
        (None, Some(reason)) => {
            (ChangeCode::DeprecationAdded, format!("`{path}` was deprecated: {reason}"))
        }
        (Some(_), None) => {
            (ChangeCode::DeprecationRemoved, format!("`{path}` is no longer deprecated"))
        }
        (Some(old), Some(new)) if old != new => (
            ChangeCode::DeprecationReasonChanged,
            format!("the deprecation of `{path}` has another reason: {new}"),
        ),
        _ => return,
    };
    changes.add(code, path, message, safe("deprecated elements keep working"), Exposure::Nothing);
}
