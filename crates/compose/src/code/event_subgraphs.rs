//! Codes about event subgraphs, which have a broker instead of a server.

super::codes! {
    "Event subgraphs";

    EVENT_DIRECTIVE_MISSING: "A root field of an event subgraph does not have exactly one event directive.",
        reason: "An event subgraph has no server. The directive says which topic the field subscribes to, publishes to \
            or requests from; without it nothing resolves the field, and with two it is unclear what does.",
        remedy: "Give the field one directive, such as `@events__subscribe`. Move fields with a resolver to a subgraph \
            with a server.";

    EVENT_DIRECTIVE_MISPLACED: "An event directive is on the wrong field.",
        reason: "Subscriptions belong on `Subscription`, publishing on `Mutation`, and requests on `Query` or \
            `Mutation`. Filters belong on subscriptions.",
        remedy: "Move the directive to a field of the root type that the message names.";

    EVENT_RESULT_INVALID: "A root field of an event subgraph returns a type that events cannot have.",
        reason: "An event of a subscription names an entity by its key, and the router fetches the rest from other \
            subgraphs. A mutation that publishes returns only whether the broker accepted the event.",
        remedy: "Return an entity, an interface or a union from a subscription, and `edfs__PublishResult!` from a \
            mutation that publishes.";

    EVENT_KEY_RESOLVABLE: "A key of an event subgraph claims to be resolvable.",
        reason: "An event subgraph has no server that could resolve entities. The router would have nowhere to send \
            the request.",
        remedy: "Write `@key(fields: \"id\", resolvable: false)`.";

    EVENT_FILTER_INVALID: "The condition of a subscription filter is malformed.",
        reason: "A condition has exactly one of `IN`, `AND`, `OR` and `NOT`, at most five levels, and one to five \
            branches at each level. The bounds keep the work for each event small.",
        remedy: "Split a condition with several members by `AND`, such as \
            `{AND: [{IN: {fieldPath: \"id\", values: [\"1\"]}}, {NOT: {IN: {fieldPath: \"gate\", values: [\"A1\"]}}}]}`.";
}
