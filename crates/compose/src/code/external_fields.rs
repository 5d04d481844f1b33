//! Codes about `@external` and the extensions of Federation 1.

super::codes! {
    "`@external` fields and extensions";

    EXTERNAL_UNUSED: "An `@external` field has no use in its subgraph.",
        reason: "An external field is one that the subgraph mentions but does not resolve. Without a `@key`, \
            `@requires` or `@provides` that selects it, or an interface that demands it, it is mostly a mistake.",
        remedy: "Remove the field from this subgraph, or select it in one of these directives. If the subgraph \
            resolves the field, remove `@external` and mark the field `@shareable`.";

    EXTERNAL_ON_INTERFACE: "A field of an interface is `@external`.",
        reason: "Interfaces resolve nothing, so their fields are never external.",
        remedy: "Mark the field of the object types that implement the interface instead.";

    TYPE_WITH_ONLY_UNUSED_EXTERNAL: "A type of a Federation 1 subgraph has only unused external fields.",
        reason: "Composition upgrades Federation 1 subgraphs and removes external fields without a use. This type \
            would be left without fields.",
        remedy: "Remove the type from this subgraph, or resolve one of its fields there.";

    EXTERNAL_MISSING_ON_BASE: "A field is `@external` in every subgraph that has it.",
        reason: "No subgraph resolves the field, so no client could get it.",
        remedy: "Remove `@external` in the subgraph that resolves the field, or declare the field there.";

    EXTERNAL_TYPE_MISMATCH: "An `@external` field has another type than where it is resolved.",
        reason: "The subgraph receives the value as the other subgraph resolves it. A value of another type breaks its \
            resolvers.",
        remedy: "Declare the field with the type that the message names.";

    EXTERNAL_ARGUMENT_MISSING: "An `@external` field lacks an argument.",
        reason: "An external field repeats the field of another subgraph, and `@requires` can give a value to each of \
            its arguments.",
        remedy: "Declare the argument that the message names.";

    EXTERNAL_ARGUMENT_TYPE_MISMATCH: "An argument of an `@external` field has another type.",
        reason: "The router sends the argument to the subgraph that resolves the field, which expects its own type.",
        remedy: "Declare the argument with the type that the message names.";

    EXTERNAL_ARGUMENT_DEFAULT_MISMATCH: "An argument of an `@external` field has another default.",
        reason: "The subgraph that resolves the field uses its own default. Another one beside `@external` misleads.",
        remedy: "Declare the argument with the same default.";

    EXTERNAL_COLLISION_WITH_ANOTHER_DIRECTIVE: "An `@external` field has a directive that needs a resolver.",
        reason: "The subgraph does not resolve the field, so what the directive says about its resolver has no effect.",
        remedy: "Remove the directive. If the subgraph resolves the field, remove `@external`.";

    MERGED_DIRECTIVE_APPLICATION_ON_EXTERNAL: "A directive that composition merges is on an `@external` field.",
        reason: "Directives such as `@tag` and `@inaccessible` are taken from the subgraphs that resolve a field. \
            Here the directive would be ignored, which is dangerous for `@inaccessible`.",
        remedy: "Move the directive to a subgraph that resolves the field.";

    EXTENSION_WITH_NO_BASE: "A Federation 1 subgraph extends a type that no subgraph defines.",
        reason: "In Federation 1, `extend type` means that another subgraph has the type itself. Mostly that subgraph \
            is missing in the configuration, or the name is misspelled.",
        remedy: "Write `type` without `extend` in the subgraph that the type belongs to, or add the missing subgraph.";
}
