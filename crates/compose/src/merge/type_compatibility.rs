//! Types of one field or argument in several subgraphs: output types may differ if one is a supertype of all, input
//! types if one is a subtype of all.

use apollo_compiler::ast::Type;

use super::context::MergeContext;

/// The direction in which types may differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Variance {
    /// The supergraph has the most general type.
    Output,
    /// The supergraph has the most restricted type.
    Input,
}

/// The result of merging types.
pub(super) enum MergedTypes {
    /// All types are equal.
    Equal(Type),
    /// The types differ and fit together.
    Compatible(Type),
    /// No type fits all subgraphs.
    Incompatible,
}

/// Merges the types that subgraphs give one element. Returns `None` if there are none.
pub(super) fn merge<'t>(
    context: &MergeContext<'_>,
    types: impl IntoIterator<Item = &'t Type>,
    variance: Variance,
) -> Option<MergedTypes> {
    let mut types = types.into_iter();
    let mut merged = types.next()?;
    let mut is_equal = true;
    for ty in types {
        if ty == merged {
            continue;
        }
        is_equal = false;
        let (ty_fits, merged_fits) =
            (is_subtype(context, ty, merged), is_subtype(context, merged, ty));
        let replaces = match variance {
            Variance::Output => merged_fits,
            Variance::Input => ty_fits,
        };
        if !ty_fits && !merged_fits {
            return Some(MergedTypes::Incompatible);
        }
        if replaces {
            merged = ty;
        }
    }
    Some(match is_equal {
        true => MergedTypes::Equal(merged.clone()),
        false => MergedTypes::Compatible(merged.clone()),
    })
}

/// True if every value of type `sub` is a value of type `sup`.
pub(super) fn is_subtype(context: &MergeContext<'_>, sub: &Type, sup: &Type) -> bool {
    if sup.is_non_null() && !sub.is_non_null() {
        return false;
    }
    match (sub, sup) {
        (
            Type::Named(sub) | Type::NonNullNamed(sub),
            Type::Named(sup) | Type::NonNullNamed(sup),
        ) => sub == sup || context.is_subtype(sub, sup),
        (Type::List(sub) | Type::NonNullList(sub), Type::List(sup) | Type::NonNullList(sup)) => {
            is_subtype(context, sub, sup)
        }
        _ => false,
    }
}
