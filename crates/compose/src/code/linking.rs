//! Codes about the text of a schema and its links.

super::codes! {
    "Schemas and links";

    INVALID_GRAPHQL: "The schema of a subgraph is not valid GraphQL.",
        reason: "Composition reads each schema as a document of its own. A syntax error, a type that is not defined, or \
            a directive that is neither defined nor imported leaves it without a meaning.",
        remedy: "Correct the schema at the place that the message names. If a directive of federation is not found, \
            import it in `@link`.";

    DIRECTIVE_DEFINITION_INVALID: "A subgraph defines a federation directive differently from the specification.",
        reason: "Many libraries print the definitions of the federation directives into the schema, which is allowed. \
            Arguments, types and locations have to be those of the linked version, because composition applies the \
            rules of that version.",
        remedy: "Remove the definition; composition knows the directive. If the definition is that of another \
            version, change the version in `@link`.";

    TYPE_DEFINITION_INVALID: "A subgraph defines a type of a linked specification differently from the specification.",
        reason: "A linked specification brings its own scalars and enums, such as `FieldSet`. Another type of the same \
            name would take their place.",
        remedy: "Remove the definition. If the type is one of yours, rename it, or import the type of the \
            specification under another name: `import: [{name: \"FieldSet\", as: \"Selection\"}]`.";

    UNKNOWN_FEDERATION_LINK_VERSION: "A subgraph links a version of the federation specification that is not known.",
        reason: "The version decides which directives exist and where they are allowed.",
        remedy: "Link one of the versions that the message names.";

    UNKNOWN_LINK_VERSION: "A subgraph links a version of the link specification that is not known.",
        reason: "The link specification defines `@link` itself. Without its rules the other links cannot be read.",
        remedy: "Link `https://specs.apollo.dev/link/v1.0`, or remove the link: it is optional.";

    INVALID_LINK_DIRECTIVE_USAGE: "A `@link` has wrong arguments or imports an unknown name.",
        reason: "A name that the linked specification does not have is mostly a misspelling, or a directive of a later \
            version. Without this error the directive would have no effect.",
        remedy: "Correct the name, or link the version that has the directive. Names of directives begin with `@`, \
            also after `as`.";

    INVALID_LINK_IDENTIFIER: "The URL or the namespace of a `@link` is malformed.",
        reason: "The URL identifies a specification among all subgraphs, and its version is compared. The namespace \
            is the beginning of the names that are not imported.",
        remedy: "End the URL with a version, such as `https://example.com/mask/v1.0`. Choose a namespace that is a \
            GraphQL name without `__`.";

    LINK_IMPORT_NAME_MISMATCH: "Subgraphs import one composed directive under several names.",
        reason: "A directive that reaches the supergraph has one name there. With several names it is unclear which \
            one is meant.",
        remedy: "Import the directive under the same name in all subgraphs.";

    UNSUPPORTED_LINKED_FEATURE: "A subgraph links a required specification that is not supported.",
        reason: "With `for: SECURITY` or `for: EXECUTION` the subgraph says that its schema must not be used by \
            software that does not know the specification.",
        remedy: "Remove the link. If the schema is also correct without the specification, remove the argument `for`.";

    INVALID_SUBGRAPH_NAME: "The name of a subgraph is empty, reserved or used twice.",
        reason: "The name identifies the subgraph in the supergraph, in messages and in `@override(from:)`.",
        remedy: "Choose a name that no other subgraph has and that is not `_`.";

    NO_QUERIES: "No subgraph has a field on the query root.",
        reason: "GraphQL does not allow a schema without queries.",
        remedy: "Add a field to `type Query` in one of the subgraphs. If a subgraph has one, check that its schema was \
            read completely.";
}
