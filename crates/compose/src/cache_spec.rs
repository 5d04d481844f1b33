//! The directives about caching that belong to no specification: `@cacheControl` of Apollo Server, and
//! `@openfed__entityCache`, `@openfed__queryCache`, `@openfed__cacheInvalidate` and `@openfed__cachePopulate` of Cosmo.
//! A subgraph may leave out their definitions.

use apollo_compiler::{
    Node,
    ast::{self, Definition},
};

/// Apollo Server's directive.
pub(crate) const CACHE_CONTROL: &str = "cacheControl";

/// The enum of its scopes.
const SCOPE: &str = "CacheControlScope";

/// The directive on mutation fields that make their entity stale.
pub(crate) const CACHE_INVALIDATE: &str = "openfed__cacheInvalidate";

/// The directive on mutation fields that return the new entity.
pub(crate) const CACHE_POPULATE: &str = "openfed__cachePopulate";

/// The names and definitions of the directives.
const DEFINITIONS: [(&str, &str); 5] = [
    (
        CACHE_CONTROL,
        "directive @cacheControl(maxAge: Int, scope: CacheControlScope, inheritMaxAge: Boolean) on FIELD_DEFINITION | \
         OBJECT | INTERFACE | UNION\n",
    ),
    (
        "openfed__entityCache",
        "directive @openfed__entityCache(maxAge: Int!, negativeCacheTTL: Int = 0, includeHeaders: Boolean = false, \
         partialCacheLoad: Boolean = false, shadowMode: Boolean = false) on OBJECT\n",
    ),
    (
        "openfed__queryCache",
        "directive @openfed__queryCache(maxAge: Int!, includeHeaders: Boolean = false, shadowMode: Boolean = false) on \
         FIELD_DEFINITION\n",
    ),
    (CACHE_INVALIDATE, "directive @openfed__cacheInvalidate on FIELD_DEFINITION\n"),
    (CACHE_POPULATE, "directive @openfed__cachePopulate(maxAge: Int) on FIELD_DEFINITION\n"),
];

/// True if the directive of that name is about caching.
pub(crate) fn is_cache_directive(name: &str) -> bool {
    DEFINITIONS.iter().any(|(known, _)| *known == name)
}

/// Adds the definitions that the subgraph uses without giving them.
pub(crate) fn add_definitions(document: &ast::Document, text: &mut String) {
    let is_given = |name: &str| {
        document
            .definitions
            .iter()
            .any(|it| !it.is_extension_definition() && it.name().is_some_and(|given| given == name))
    };
    for (name, definition) in DEFINITIONS {
        let is_defined = is_given(name);
        if !is_defined && !is_used(document, name) {
            continue;
        }
        if !is_defined {
            text.push_str(definition);
        }
        if name == CACHE_CONTROL && !is_given(SCOPE) {
            text.push_str("enum CacheControlScope { PUBLIC PRIVATE }\n");
        }
    }
}

/// True if a type or a field has the directive.
fn is_used(document: &ast::Document, name: &str) -> bool {
    let has = |directives: &ast::DirectiveList| directives.has(name);
    let of_fields =
        |fields: &[Node<ast::FieldDefinition>]| fields.iter().any(|it| has(&it.directives));
    document.definitions.iter().any(|definition| match definition {
        Definition::ObjectTypeDefinition(it) => has(&it.directives) || of_fields(&it.fields),
        Definition::ObjectTypeExtension(it) => has(&it.directives) || of_fields(&it.fields),
        Definition::InterfaceTypeDefinition(it) => has(&it.directives) || of_fields(&it.fields),
        Definition::InterfaceTypeExtension(it) => has(&it.directives) || of_fields(&it.fields),
        Definition::UnionTypeDefinition(it) => has(&it.directives),
        Definition::UnionTypeExtension(it) => has(&it.directives),
        _ => false,
    })
}
