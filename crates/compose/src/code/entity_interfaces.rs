//! Codes about interfaces with keys and interface objects.

super::codes! {
    "Interfaces with keys";

    INTERFACE_OBJECT_USAGE_ERROR: "An `@interfaceObject` has no interface or no key.",
        reason: "An interface object adds fields to all implementations of an interface, without knowing them. The \
            router finds the objects by a key of the interface, which another subgraph defines.",
        remedy: "Define the interface with the same `@key` in the subgraph that knows its implementations, and give \
            the interface object that key. A subgraph that has the interface object must not have its implementations.";

    INTERFACE_KEY_NOT_ON_IMPLEMENTATION: "An implementation lacks the key of its interface.",
        reason: "The router identifies the objects of the interface by its key, whatever their type is.",
        remedy: "Add the same `@key` to each type that implements the interface in this subgraph.";

    INTERFACE_KEY_MISSING_IMPLEMENTATION_TYPE: "A subgraph with a keyed interface lacks an implementation.",
        reason: "A subgraph that resolves an interface by its key says which type each object has. It cannot do so for \
            types that it does not know.",
        remedy: "Define the missing type in this subgraph, or remove the key of the interface there.";
}
