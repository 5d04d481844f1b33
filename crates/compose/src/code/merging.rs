//! Codes about elements that several subgraphs define.

super::codes! {
    "Merging";

    ROOT_QUERY_USED: "A type named `Query` is not the query root.",
        reason: "In the supergraph the query root of all subgraphs is named `Query`. Another type of that name would be \
            merged with it.",
        remedy: "Rename the other type, or make it the root in `schema { query: Query }`.";

    ROOT_MUTATION_USED: "A type named `Mutation` is not the mutation root.",
        reason: "In the supergraph the mutation root of all subgraphs is named `Mutation`. Another type of that name \
            would be merged with it.",
        remedy: "Rename the other type, or make it the root in `schema { mutation: Mutation }`.";

    ROOT_SUBSCRIPTION_USED: "A type named `Subscription` is not the subscription root.",
        reason: "In the supergraph the subscription root of all subgraphs is named `Subscription`. Another type of \
            that name would be merged with it.",
        remedy: "Rename the other type, or make it the root in `schema { subscription: Subscription }`.";

    TYPE_KIND_MISMATCH: "Subgraphs define a type with different kinds.",
        reason: "A type of the supergraph is an object, an interface, a union, an enum, an input or a scalar, and the \
            same for all subgraphs.",
        remedy: "Rename one of the types, or define it with the same kind everywhere. A subgraph that does not know \
            the implementations of an interface can use `@interfaceObject`.";

    FIELD_TYPE_MISMATCH: "Subgraphs give a field incompatible types.",
        reason: "Clients see one type. It can be merged if the types differ in nullability, or if one of them contains \
            the others, as an interface contains its implementations.",
        remedy: "Use the same type in all subgraphs. While a type changes, add a new field and deprecate the old one.";

    FIELD_ARGUMENT_TYPE_MISMATCH: "Subgraphs give an argument incompatible types.",
        reason: "The router sends the value to any of the subgraphs, so each has to accept it. Types can be merged if \
            they differ in nullability only.",
        remedy: "Use the same type in all subgraphs.";

    FIELD_ARGUMENT_DEFAULT_MISMATCH: "Subgraphs give an argument different defaults.",
        reason: "Which default applies would depend on the subgraph that the router chooses.",
        remedy: "Use the same default everywhere.";

    INPUT_FIELD_DEFAULT_MISMATCH: "Subgraphs give an input field different defaults.",
        reason: "Which default applies would depend on the subgraph that the router chooses.",
        remedy: "Use the same default everywhere.";

    REQUIRED_ARGUMENT_MISSING_IN_SOME_SUBGRAPH: "Some subgraphs lack an argument that others require.",
        reason: "The supergraph has only arguments that all subgraphs know. Without this one, the subgraphs that \
            require it would reject each request.",
        remedy: "Add the argument in all subgraphs, or make it optional.";

    REQUIRED_INPUT_FIELD_MISSING_IN_SOME_SUBGRAPH: "Some subgraphs lack an input field that others require.",
        reason: "The supergraph has only input fields that all subgraphs know. Without this one, the subgraphs that \
            require it would reject each request.",
        remedy: "Add the field in all subgraphs, or make it optional.";

    EMPTY_MERGED_INPUT_TYPE: "No field of an input type is common to all subgraphs.",
        reason: "The supergraph has only input fields that all subgraphs know, because the router sends the value to \
            any of them. This type would be left without fields.",
        remedy: "Add common fields. If the types have different meanings, rename one of them.";

    EMPTY_MERGED_ENUM_TYPE: "No value of an enum is common to all subgraphs.",
        reason: "The supergraph has only values of an input enum that all subgraphs know, because the router sends the \
            value to any of them. This enum would be left without values.",
        remedy: "Add common values. If the enums have different meanings, rename one of them.";

    ENUM_VALUE_MISMATCH: "Subgraphs have different values of an enum that is both input and output.",
        reason: "Clients may get all values of an output enum, but may send only those that all subgraphs know. An \
            enum that is both has to have the same values everywhere.",
        remedy: "Add the value in all subgraphs. Until then, hide it with `@inaccessible` where it exists. Two enums, \
            one for inputs and one for outputs, solve it as well.";

    INTERFACE_FIELD_NO_IMPLEM: "A type lacks a field of an interface that it implements.",
        reason: "In the supergraph an interface has the fields of all subgraphs. Each type that implements it needs \
            all of them, from any subgraph.",
        remedy: "Add the field to the type in a subgraph that can resolve it, or remove it from the interface.";

    INVALID_FIELD_SHARING: "Several subgraphs resolve a field that is not `@shareable` in all of them.",
        reason: "The router takes the value from any of them, so all have to give the same value. `@shareable` in each \
            subgraph says that its authors know that.",
        remedy: "Mark the field `@shareable` in each subgraph if all give the same value. Otherwise keep it in one \
            subgraph: rename the others, or mark them `@external` where they are only referenced. Use `@override` \
            to move a field from one subgraph to another.";

    INVALID_SHAREABLE_USAGE: "A `@shareable` is where it has no meaning.",
        reason: "Only fields of object types are resolved, and a subscription runs in one subgraph only.",
        remedy: "Remove the directive. For an interface, mark the fields of the object types that implement it.";

    SHAREABLE_HAS_MISMATCHED_RUNTIME_TYPES: "Subgraphs return no common object type for a shared field.",
        reason: "A shared field gives the same value everywhere. If the subgraphs have no object type in common for \
            it, they cannot.",
        remedy: "Let the subgraphs return common object types, or keep the field in one subgraph.";

    DIRECTIVE_COMPOSITION_ERROR: "A `@composeDirective` cannot be applied.",
        reason: "A composed directive is identified among the subgraphs by the URL of the specification that brings \
            it, and reaches the supergraph with the definition of the highest version.",
        remedy: "Link a specification of your own that imports the directive, such as \
            `@link(url: \"https://example.com/mask/v1.0\", import: [\"@mask\"])`, define the directive, and use the same \
            major version in all subgraphs.";

}
