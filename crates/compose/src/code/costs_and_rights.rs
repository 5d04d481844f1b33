//! Codes about the costs of operations and about authorization.

super::codes! {
    "Costs and authorization";

    COST_APPLIED_TO_INTERFACE_FIELD: "A `@cost` is on a field of an interface.",
        reason: "The cost of a field depends on its resolver. Interfaces have none.",
        remedy: "Put the directive on the field of the object types that implement the interface.";

    LIST_SIZE_APPLIED_TO_NON_LIST: "A `@listSize` is on a field that is not a list.",
        reason: "The directive estimates the number of objects that a field returns.",
        remedy: "Remove it. If the list is a field of the returned object, name that field in `sizedFields`.";

    LIST_SIZE_INVALID_ASSUMED_SIZE: "The assumed size of a `@listSize` is negative.",
        reason: "The costs of the fields below are multiplied by the size.",
        remedy: "Give the number of objects that the list has at most, or usually.";

    LIST_SIZE_INVALID_SLICING_ARGUMENT: "A slicing argument of a `@listSize` is not an integer argument.",
        reason: "The value of a slicing argument is the number of objects that the client asks for.",
        remedy: "Name an argument of the field that has the type `Int` or `Int!`.";

    LIST_SIZE_INVALID_SIZED_FIELD: "A sized field of a `@listSize` is not a list.",
        reason: "`sizedFields` names the lists of the returned object whose size the arguments decide.",
        remedy: "Name a field of the returned type that is a list.";

    MISSING_TRANSITIVE_AUTH_REQUIREMENTS: "A field reads a protected field but is not protected like it.",
        reason: "`@requires` and `@fromContext` give a protected value to the resolver of the field, also if the \
            client may not read that value. The field could reveal it.",
        remedy: "Put the same requirements on the field that reads the value: `@authenticated`, or scopes and policies \
            that imply those of the value.";

    AUTH_REQUIREMENTS_APPLIED_ON_INTERFACE: "An authorization directive is on an interface.",
        reason: "Interfaces take their requirements from the object types that implement them, so that no type can be \
            read with fewer rights through its interface.",
        remedy: "Put the directive on the object types and their fields.";
}
