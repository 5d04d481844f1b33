//! The code about queries that cannot be planned.

super::codes! {
    "Queries that cannot be planned";

    SATISFIABILITY_ERROR: "Some query against the supergraph cannot be planned.",
        reason: "A client may select each field wherever its type occurs. For some query the router has the object \
            from one subgraph, and no way to the subgraph that resolves the field. The message has the shortest such \
            query and the reason for each subgraph.",
        remedy: "Add a `@key` to the type in the subgraph that resolves the field, with fields that the subgraph of the \
            object has. Or resolve the field in that subgraph too, and mark it `@shareable` in both.";
}
