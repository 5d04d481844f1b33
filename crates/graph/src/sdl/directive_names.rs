//! The names that federation directives have in one schema. A schema may import directives under other names.

use super::links::Links;

/// The local names of the directives that assign types and fields to subgraphs.
pub(super) struct DirectiveNames {
    pub(super) ty: String,
    pub(super) field: String,
    pub(super) implements: String,
    pub(super) union_member: String,
    pub(super) owner: String,
    pub(super) directive: String,
    pub(super) context: String,
    pub(super) inaccessible: String,
    pub(super) cost: String,
    pub(super) list_size: String,
    pub(super) machinery: Vec<String>,
}

impl DirectiveNames {
    pub(super) fn of(links: &Links) -> Self {
        let join = |directive: &str| links.directive("join", directive);
        let inaccessible = links.directive("inaccessible", "inaccessible");
        let cost = links.directive("cost", "cost");
        // Supergraphs that are written by hand have the directive of the specification without a link.
        let list_size = match links.has("cost") {
            true => links.directive("cost", "listSize"),
            false => "listSize".to_owned(),
        };
        Self {
            ty: join("type"),
            field: join("field"),
            implements: join("implements"),
            union_member: join("unionMember"),
            owner: join("owner"),
            directive: join("directive"),
            context: links.directive("context", "context"),
            machinery: ["field", "directive"]
                .map(join)
                .into_iter()
                .chain([inaccessible.clone(), cost.clone(), list_size.clone()])
                .collect(),
            inaccessible,
            cost,
            list_size,
        }
    }
}
