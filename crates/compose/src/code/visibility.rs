//! Codes about `@inaccessible`.

super::codes! {
    "`@inaccessible`";

    REFERENCED_INACCESSIBLE: "A visible element refers to a hidden one.",
        reason: "Clients see a schema without hidden elements. It would name a type that does not exist for them.",
        remedy: "Hide the element that refers to it too, or show the type.";

    DEFAULT_VALUE_USES_INACCESSIBLE: "A visible default contains a hidden element.",
        reason: "Clients see a schema without hidden elements. The default would contain a value that does not exist \
            for them.",
        remedy: "Use another default, or show the element.";

    QUERY_ROOT_TYPE_INACCESSIBLE: "The query root is hidden.",
        reason: "Clients could send nothing.",
        remedy: "Hide single fields of `Query` instead.";

    REQUIRED_INACCESSIBLE: "A required input is hidden.",
        reason: "Clients cannot give a value that they do not see, and the subgraph rejects requests without it.",
        remedy: "Make the argument or input field optional, give it a default, or show it.";

    IMPLEMENTED_BY_INACCESSIBLE: "A hidden element implements a visible one.",
        reason: "Clients see an interface with fields and arguments that its implementation does not have for them. \
            That is not a valid schema.",
        remedy: "Hide the element of the interface too, or show the one that implements it.";

    DISALLOWED_INACCESSIBLE: "An element that cannot be hidden is `@inaccessible`.",
        reason: "Built-in types and the parts of federation directives are not shown to clients, or are needed by \
            every schema.",
        remedy: "Remove `@inaccessible`.";

    ONLY_INACCESSIBLE_CHILDREN: "A visible type has only hidden members.",
        reason: "Clients would see a type without fields or values, which GraphQL does not allow.",
        remedy: "Hide the type too, or show one of its members.";
}
