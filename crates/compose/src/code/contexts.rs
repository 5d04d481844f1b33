//! Codes about `@context` and `@fromContext`.

super::codes! {
    "Contexts";

    CONTEXT_NAME_INVALID: "The name of a `@context` is malformed.",
        reason: "The supergraph joins the name with that of the subgraph by underscores.",
        remedy: "Begin with a letter, and use letters and digits only.";

    CONTEXT_NOT_SET: "No type sets the context that an argument reads.",
        reason: "The router takes the value from an object above the field. No such object exists. A default does not \
            help, because the router always gives the argument.",
        remedy: "Put `@context` with that name on a type above, in the same subgraph, or correct the name. Remove the \
            default of the argument if it has one.";

    CONTEXT_INVALID_SELECTION: "The selection of a `@fromContext` does not fit the types that set the context.",
        reason: "The argument has one value, so the selection has to lead to one field of each type that sets the \
            context, with a type that the argument accepts.",
        remedy: "Select one field, such as `$trip { currency }`. If the types have different fields, select by type: \
            `$trip ... on Flight { currency } ... on Train { price }`.";

    NO_CONTEXT_IN_SELECTION: "The `field` of a `@fromContext` names no context.",
        reason: "The text begins with `$` and the name of the context, followed by the selection.",
        remedy: "Write it as `@fromContext(field: \"$trip { currency }\")`.";

    CONTEXT_NO_RESOLVABLE_KEY: "A type with an argument from a context has no resolvable key.",
        reason: "The router fetches the value first, and then the field by an entity request that contains the value. \
            Without a key there is no such request.",
        remedy: "Give the type a `@key` that this subgraph resolves.";

    CONTEXTUAL_ARGUMENT_NOT_CONTEXTUAL_IN_ALL_SUBGRAPHS: "An argument is contextual in some subgraphs only.",
        reason: "Clients do not see arguments that the router fills. A subgraph in which clients have to give the same \
            argument could not be used. If the argument is optional there, this is a hint, and that subgraph gets no \
            value.",
        remedy: "Use `@fromContext` in all subgraphs that have the argument, or rename it in the others.";
}
