//! Codes about the hints of schemas about caching.

super::codes! {
    "Caching";

    CACHE_CHANGE_MISPLACED: "`@openfed__cacheInvalidate` or `@openfed__cachePopulate` is on a field that returns no \
            changed entity.",
        reason: "They say that a mutation has changed the entity that it returns. The router makes stale what it has \
            stored about the entity, which it finds by the keys in the response.",
        remedy: "Put one of them on a field of `Mutation` that returns an object type with a `@key`, or a list of it.";

    CACHE_CONTROL_INVALID_MAX_AGE: "The `maxAge` of a directive about caching is not a number of seconds.",
        reason: "`@cacheControl`, `@openfed__entityCache`, `@openfed__queryCache` and `@openfed__cachePopulate` say for \
            how many seconds a response may be stored.",
        remedy: "Write a whole number. With 0, responses that contain the element are not stored.";

    CACHE_TAG_INVALID_FORMAT: "The format of a `@cacheTag` cannot be rendered.",
        reason: "The router renders the format when it stores a response, with the members of the entity's key \
            (`{$key.id}`) or the arguments of the root field (`{$args.id}`). Without a value there is no tag, and an \
            invalidation could not reach the response.",
        remedy: "Name scalar members of a `@key` of the type, or scalar arguments of the field.";

    CACHE_TAG_MISPLACED: "A `@cacheTag` is on an element that is never stored by itself.",
        reason: "The router stores entities and root fields of queries. Other types and fields are parts of these.",
        remedy: "Put the directive on a type with a resolvable `@key` or on a field of `Query`.";
}
