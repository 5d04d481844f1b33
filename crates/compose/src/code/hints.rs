//! Codes of hints: the subgraphs compose, and differ in a way that their authors should know.

super::codes! {
    "Hints";

    INVALID_TAG_NAME: "The name of a `@tag` is malformed.",
        reason: "The tag specification restricts the names of tags, because contracts list them in files and command \
            lines.",
        remedy: "Begin with a letter or an underscore, continue with letters, digits, `_`, `-` and `/`, and use at most \
            128 characters.";

    INCONSISTENT_BUT_COMPATIBLE_FIELD_TYPE: "Subgraphs give a field different but compatible types.",
        reason: "The supergraph has the type that contains the others: the nullable one, or the interface instead of \
            its implementation. Clients cannot rely on the narrower type.",
        remedy: "Use the same type in all subgraphs, unless the difference is intended.";

    INCONSISTENT_BUT_COMPATIBLE_ARGUMENT_TYPE: "Subgraphs give an argument different but compatible types.",
        reason: "The supergraph has the type that all subgraphs accept: if one of them requires the value, clients \
            have to give it.",
        remedy: "Use the same type in all subgraphs, unless the difference is intended.";

    INCONSISTENT_DEFAULT_VALUE_PRESENCE: "Only some subgraphs give a default.",
        reason: "The supergraph has no default then, and each subgraph applies its own.",
        remedy: "Give the same default in all subgraphs, or in none.";

    INCONSISTENT_ENTITY: "A type has keys in some subgraphs only.",
        reason: "The router cannot fetch further fields from a subgraph that has the type without a key. This is \
            correct for a subgraph that only returns the object with all fields that it knows.",
        remedy: "Add a `@key` where the type lacks one, unless the difference is intended.";

    INCONSISTENT_OBJECT_VALUE_TYPE_FIELD: "Some subgraphs lack a field of a value type.",
        reason: "A type without keys is complete where it is returned. Clients can select the field only where the \
            value comes from a subgraph that has it.",
        remedy: "Add the field in the other subgraphs, or give the type a `@key`.";

    INCONSISTENT_INTERFACE_VALUE_TYPE_FIELD: "Some subgraphs lack a field of an interface.",
        reason: "The supergraph has the fields of all subgraphs, and the implementations need all of them.",
        remedy: "Add the field in the other subgraphs, unless the difference is intended.";

    INCONSISTENT_INPUT_OBJECT_FIELD: "Some subgraphs lack a field of an input type, so it is left out.",
        reason: "The router sends the value to any of the subgraphs, so clients may give only fields that all of them \
            know.",
        remedy: "Add the field in the other subgraphs. Until then clients cannot use it.";

    INCONSISTENT_UNION_MEMBER: "Some subgraphs lack a member of a union.",
        reason: "The supergraph has the members of all subgraphs. A subgraph returns only those that it knows.",
        remedy: "Add the member in the other subgraphs, unless they never return it.";

    INCONSISTENT_ENUM_VALUE_FOR_INPUT_ENUM: "Some subgraphs lack a value of an input enum, so it is left out.",
        reason: "The router sends the value to any of the subgraphs, so clients may give only values that all of them \
            know.",
        remedy: "Add the value in the other subgraphs. Until then clients cannot use it.";

    INCONSISTENT_ENUM_VALUE_FOR_OUTPUT_ENUM: "Some subgraphs lack a value of an output enum.",
        reason: "The supergraph has the values of all subgraphs. A subgraph returns only those that it knows.",
        remedy: "Add the value in the other subgraphs, unless they never return it.";

    INCONSISTENT_ARGUMENT_PRESENCE: "Some subgraphs lack an optional argument, so it is left out.",
        reason: "The router may send the field to any of the subgraphs, so clients may give only arguments that all of \
            them know.",
        remedy: "Add the argument in the other subgraphs. Until then clients cannot use it.";

    INCONSISTENT_DESCRIPTION: "Subgraphs describe an element differently.",
        reason: "Clients see one description: the most frequent one, or else the first.",
        remedy: "Use the same description everywhere, or describe the element in one subgraph only.";

    INCONSISTENT_NON_REPEATABLE_DIRECTIVE_ARGUMENTS: "Subgraphs apply a directive with different arguments.",
        reason: "The directive can occur once, so the supergraph has the most frequent arguments.",
        remedy: "Use the same arguments everywhere.";

    MERGED_NON_REPEATABLE_DIRECTIVE_ARGUMENTS: "The arguments of a directive are merged.",
        reason: "The directive can occur once, and its specification says how different arguments are joined: scopes \
            of all subgraphs are required, and the highest cost counts.",
        remedy: "Use the same arguments everywhere, unless the difference is intended.";

    INCONSISTENT_EXECUTABLE_DIRECTIVE_PRESENCE: "Some subgraphs lack an executable directive, so it is left out.",
        reason: "Clients write executable directives into operations, and the router may send the operation to any \
            subgraph. All of them have to know the directive.",
        remedy: "Define the directive in all subgraphs. Until then clients cannot use it.";

    INCONSISTENT_EXECUTABLE_DIRECTIVE_REPEATABLE: "An executable directive is repeatable in some subgraphs only.",
        reason: "All subgraphs have to accept what clients write, so the directive is not repeatable in the \
            supergraph.",
        remedy: "Make it repeatable in all subgraphs, or in none.";

    INCONSISTENT_EXECUTABLE_DIRECTIVE_LOCATIONS: "Subgraphs give an executable directive different locations.",
        reason: "All subgraphs have to accept what clients write, so the supergraph has the common locations only.",
        remedy: "Use the same locations everywhere.";

    NO_EXECUTABLE_DIRECTIVE_INTERSECTION: "No location of an executable directive is common to all subgraphs.",
        reason: "All subgraphs have to accept what clients write. Nothing is left of this directive, so the supergraph \
            does not have it.",
        remedy: "Add a common location. If the directives have different meanings, rename one of them.";

    INCONSISTENT_RUNTIME_TYPES_FOR_SHAREABLE_RETURN: "Subgraphs return different object types for a shared field.",
        reason: "A shared field gives the same value everywhere, but some of its object types are known to some \
            subgraphs only.",
        remedy: "Check that the subgraphs return the same objects. If they do, define the missing types everywhere.";

    UNUSED_ENUM_TYPE: "An enum is used by no field or argument.",
        reason: "The values of an enum merge by its use. Without any use, the supergraph has the values of all \
            subgraphs.",
        remedy: "Remove the enum, or use it.";

    FROM_SUBGRAPH_DOES_NOT_EXIST: "An `@override` names a subgraph that does not exist.",
        reason: "Nothing is overridden: the name is misspelled, or the other subgraph was removed.",
        remedy: "Correct the name, or remove the directive.";

    OVERRIDDEN_FIELD_CAN_BE_REMOVED: "An overridden field has no further use in its subgraph.",
        reason: "The router no longer sends the field to that subgraph.",
        remedy: "Remove the field there, then the `@override`.";

    OVERRIDE_DIRECTIVE_CAN_BE_REMOVED: "An `@override` has nothing to override.",
        reason: "The other subgraph does not have the field any more, so the move is complete.",
        remedy: "Remove the directive.";

    OVERRIDE_MIGRATION_IN_PROGRESS: "A field moves between subgraphs by a label.",
        reason: "Both subgraphs resolve the field, each for a part of the requests. The hint is a reminder to complete \
            the move.",
        remedy: "Remove the label when all requests may use the new subgraph, then the field in the former one.";

    IMPLICITLY_UPGRADED_FEDERATION_VERSION: "A subgraph links directives of a later federation version.",
        reason: "The subgraph links a specification, such as that of `@cost`, which belongs to a later version of \
            federation than the one it links. Composition uses the rules of the later version for it.",
        remedy: "Link the later version of federation in this subgraph.";

    DIRECTIVE_COMPOSITION_INFO: "A `@composeDirective` is not necessary.",
        reason: "`@composeDirective` names a directive that composition carries into the supergraph by itself, such as \
            `@tag`. It has no effect there.",
        remedy: "Remove this `@composeDirective`.";

    DIRECTIVE_COMPOSITION_WARN: "A composed directive is probably not what its authors intend.",
        reason: "A subgraph imports the directive under another name than the subgraphs that compose it. Its \
            applications are not recognised and do not reach the supergraph.",
        remedy: "Import the directive under the same name everywhere, and compose it in each subgraph that applies it.";

    CACHE_TAG_NOT_IN_EVERY_KEY: "A `@cacheTag` names a field that only some keys of the type have.",
        reason: "The router requests an entity by one of its keys, and renders the tag with the members of that key. \
            An entity without the tag is not stored, because an invalidation could not reach it.",
        remedy: "Name members that all keys of the type have, or add the member to the other keys.";
}
