//! Codes about `@override`.

super::codes! {
    "`@override`";

    OVERRIDE_COLLISION_WITH_ANOTHER_DIRECTIVE: "An overridden or overriding field has a conflicting directive.",
        reason: "Once a field is overridden, its former subgraph no longer resolves it. A directive that needs the \
            resolver there, such as `@requires` or `@provides`, would be lost. An `@external` field is not resolved by \
            its subgraph at all, so nothing moves.",
        remedy: "Remove one of the directives. To move a field together with its requirements, repeat `@requires` in \
            the new subgraph after it was removed in the former one.";

    OVERRIDE_FROM_SELF_ERROR: "An `@override` names its own subgraph.",
        reason: "`from` names the subgraph that the field is taken from.",
        remedy: "Name the subgraph that resolves the field now, or remove the directive.";

    OVERRIDE_SOURCE_HAS_OVERRIDE: "Several subgraphs override one field.",
        reason: "If a subgraph takes the field from one that takes it from a third, it is unclear which subgraph \
            resolves it.",
        remedy: "Keep one of the directives. Let each other subgraph resolve the field without `@override`, or remove \
            the field there.";

    OVERRIDE_ON_INTERFACE: "An `@override` is on a field of an interface.",
        reason: "Interfaces resolve nothing, so nothing can move.",
        remedy: "Override the field of the object types that implement the interface.";

    OVERRIDE_LABEL_INVALID: "The label of an `@override` is malformed.",
        reason: "The router decides about a label by its form: `percent(25)` by chance, a name by its configuration or \
            the request.",
        remedy: "Use `percent(0)` to `percent(100)`, or a name that begins with a letter and has letters, digits, `_`, \
            `-`, `:`, `.` and `/`.";
}
