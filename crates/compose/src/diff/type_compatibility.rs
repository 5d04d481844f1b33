//! The rules by which one type may replace another: outputs become narrower, inputs become wider.

use apollo_compiler::ast::Type;

/// True if clients that expect `old` in responses accept `new`: the same type, or one without null.
pub(super) fn is_safe_output_change(old: &Type, new: &Type) -> bool {
    match (old, new) {
        (Type::Named(old), Type::Named(new) | Type::NonNullNamed(new))
        | (Type::NonNullNamed(old), Type::NonNullNamed(new)) => old == new,
        (Type::List(old), Type::List(new) | Type::NonNullList(new))
        | (Type::NonNullList(old), Type::NonNullList(new)) => is_safe_output_change(old, new),
        _ => false,
    }
}

/// True if `new` accepts every value and variable that `old` accepts.
pub(super) fn is_safe_input_change(old: &Type, new: &Type) -> bool {
    is_safe_output_change(new, old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_become_narrower_and_inputs_wider() {
        let parse = |text: &str| Type::parse(text, "type").unwrap();
        for (old, new, is_safe) in [
            ("Int", "Int!", true),
            ("Int!", "Int", false),
            ("[Int]", "[Int!]!", true),
            ("[Int!]", "[Int]!", false),
            ("[Int]!", "[Int]", false),
            ("Int", "[Int]", false),
            ("[[Int]]", "[[Int]!]", true),
            ("Int", "Float", false),
        ] {
            assert_eq!(is_safe_output_change(&parse(old), &parse(new)), is_safe, "{old} → {new}");
            assert_eq!(is_safe_input_change(&parse(new), &parse(old)), is_safe, "{new} → {old}");
        }
    }
}
