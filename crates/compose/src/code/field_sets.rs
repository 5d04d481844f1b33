//! Codes about `@key`, `@requires` and `@provides`.

super::codes! {
    "`@key`, `@requires` and `@provides`";

    KEY_INVALID_FIELDS_TYPE: "The `fields` of a `@key` is not a string.",
        reason: "The selection of a key is written as a string, without the outer braces.",
        remedy: "Put the selection into quotation marks: `@key(fields: \"id\")`. Several fields are one string: \
            `@key(fields: \"id sku\")`.";

    PROVIDES_INVALID_FIELDS_TYPE: "The `fields` of a `@provides` is not a string.",
        reason: "The selection of `@provides` is written as a string, without the outer braces.",
        remedy: "Put the selection into quotation marks: `@provides(fields: \"name\")`.";

    REQUIRES_INVALID_FIELDS_TYPE: "The `fields` of a `@requires` is not a string.",
        reason: "The selection of `@requires` is written as a string, without the outer braces.",
        remedy: "Put the selection into quotation marks: `@requires(fields: \"weight\")`.";

    KEY_INVALID_FIELDS: "The `fields` of a `@key` is not a selection of existing fields.",
        reason: "The router selects the fields of the key to identify an object, and sends them to the subgraph. The \
            subgraph has to define each of them.",
        remedy: "Correct the selection, or declare the field in this subgraph. Objects need a selection of their own, \
            such as `@key(fields: \"organization { id }\")`.";

    PROVIDES_INVALID_FIELDS: "The `fields` of a `@provides` is not a selection of existing fields.",
        reason: "The selection begins at the type that the field returns. The subgraph has to define each selected \
            field.",
        remedy: "Correct the selection, or declare the field with `@external` in this subgraph, with the type that it \
            has where it is resolved.";

    REQUIRES_INVALID_FIELDS: "The `fields` of a `@requires` is not a selection of existing fields.",
        reason: "The selection begins at the type that has the field. The router fetches the selected fields from \
            other subgraphs first, so this subgraph has to declare them.",
        remedy: "Correct the selection, or declare the field with `@external` in this subgraph, with the type that it \
            has where it is resolved.";

    KEY_FIELDS_SELECT_INVALID_TYPE: "A `@key` selects a list, an interface or a union.",
        reason: "Two subgraphs identify the same object by equal key values. The values of interfaces, unions and \
            lists of objects do not compare reliably.",
        remedy: "Select scalars, enums and fields of object types. A scalar that identifies the object is best.";

    KEY_FIELDS_HAS_ARGS: "A `@key` selects a field that has arguments.",
        reason: "The value of such a field depends on its arguments, so it does not identify the object.",
        remedy: "Select a field without arguments, or add one to the type.";

    PROVIDES_FIELDS_HAS_ARGS: "A `@provides` selects a field that has arguments.",
        reason: "The subgraph would have to provide the value for all arguments that clients may give.",
        remedy: "Remove the field from the selection, or let the subgraph resolve it: mark it `@shareable` and remove \
            `@external`.";

    KEY_DIRECTIVE_IN_FIELDS_ARG: "A `@key` selection contains a directive.",
        reason: "A key is the same for each request, so a directive such as `@include` has no meaning in it.",
        remedy: "Remove the directive from the selection.";

    PROVIDES_DIRECTIVE_IN_FIELDS_ARG: "A `@provides` selection contains a directive.",
        reason: "The subgraph provides the fields for each request, so a directive such as `@include` has no meaning \
            in the selection.",
        remedy: "Remove the directive from the selection.";

    REQUIRES_DIRECTIVE_IN_FIELDS_ARG: "A `@requires` selection contains a directive.",
        reason: "The fields are required for each request, so a directive such as `@include` has no meaning in the \
            selection.",
        remedy: "Remove the directive from the selection.";

    PROVIDES_FIELDS_MISSING_EXTERNAL: "A `@provides` selects a field that is not `@external`.",
        reason: "`@provides` says that the subgraph resolves a field on this path only. A field without `@external` is \
            resolved by the subgraph on all paths, so providing it has no effect.",
        remedy: "Mark the field `@external` if the subgraph resolves it on some paths only. Otherwise remove it from \
            the selection.";

    REQUIRES_FIELDS_MISSING_EXTERNAL: "A `@requires` selects a field that is not `@external`.",
        reason: "Required fields come from other subgraphs. A field without `@external` is resolved by this subgraph, \
            whose resolver can read it without the router.",
        remedy: "Mark the field `@external`. If the subgraph resolves it, remove it from the selection.";

    KEY_UNSUPPORTED_ON_INTERFACE: "A `@key` is on an interface although the federation version does not support it.",
        reason: "Interfaces have keys since federation v2.3.",
        remedy: "Link `https://specs.apollo.dev/federation/v2.3` or later, or remove the key from the interface.";

    PROVIDES_UNSUPPORTED_ON_INTERFACE: "A `@provides` is on a field of an interface.",
        reason: "Fields of interfaces are resolved by the object types that implement them. Each can provide different \
            fields.",
        remedy: "Put the directive on the field of each object type that implements the interface.";

    REQUIRES_UNSUPPORTED_ON_INTERFACE: "A `@requires` is on a field of an interface.",
        reason: "Fields of interfaces are resolved by the object types that implement them. Each can require different \
            fields.",
        remedy: "Put the directive on the field of each object type that implements the interface.";

    PROVIDES_ON_NON_OBJECT_FIELD: "A `@provides` is on a field that does not return an object.",
        reason: "The selection begins at the type that the field returns, and scalars and enums have no fields.",
        remedy: "Remove the directive, or put it on the field that returns the object.";
}
