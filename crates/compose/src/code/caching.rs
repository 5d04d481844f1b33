//! Codes about the hints of schemas about caching.

super::codes! {
    "Caching";

    CACHE_CONTROL_INVALID_MAX_AGE: "The `maxAge` of a directive about caching is not a number of seconds.",
        reason: "`@cacheControl`, `@openfed__entityCache` and `@openfed__queryCache` say for how many seconds a response \
            may be stored.",
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
