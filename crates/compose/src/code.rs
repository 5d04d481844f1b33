//! The codes of errors and hints. Tools and web searches know them, so they never change.

/// The code of an error or hint, such as `INVALID_FIELD_SHARING`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Code {
    name: &'static str,
    summary: &'static str,
}

impl Code {
    /// Returns the code's name.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Returns one sentence that says what the code means.
    pub fn summary(self) -> &'static str {
        self.summary
    }

    /// Returns all codes, errors before hints.
    pub fn all() -> &'static [Self] {
        ALL
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! codes {
    ($($name:ident: $summary:literal;)*) => {
        impl Code {
            $(
                #[doc = $summary]
                pub const $name: Self = Self { name: stringify!($name), summary: $summary };
            )*
        }
        const ALL: &[Code] = &[$(Code::$name),*];
    };
}

codes! {
    // Reading and linking.
    INVALID_GRAPHQL: "The schema of a subgraph is not valid GraphQL.";
    DIRECTIVE_DEFINITION_INVALID: "A subgraph defines a federation directive differently from the specification.";
    TYPE_DEFINITION_INVALID: "A subgraph defines a type of a linked specification differently from the specification.";
    UNKNOWN_FEDERATION_LINK_VERSION: "A subgraph links a version of the federation specification that is not known.";
    UNKNOWN_LINK_VERSION: "A subgraph links a version of the link specification that is not known.";
    INVALID_LINK_DIRECTIVE_USAGE: "A `@link` has wrong arguments or imports an unknown name.";
    INVALID_LINK_IDENTIFIER: "The URL or the namespace of a `@link` is malformed.";
    LINK_IMPORT_NAME_MISMATCH: "Subgraphs import one composed directive under several names.";
    UNSUPPORTED_LINKED_FEATURE: "A subgraph links a required specification that is not supported.";
    INVALID_SUBGRAPH_NAME: "The name of a subgraph is empty, reserved or used twice.";
    NO_QUERIES: "No subgraph has a field on the query root.";
    // Key, requires and provides.
    KEY_INVALID_FIELDS_TYPE: "The `fields` of a `@key` is not a string.";
    PROVIDES_INVALID_FIELDS_TYPE: "The `fields` of a `@provides` is not a string.";
    REQUIRES_INVALID_FIELDS_TYPE: "The `fields` of a `@requires` is not a string.";
    KEY_INVALID_FIELDS: "The `fields` of a `@key` is not a selection of existing fields.";
    PROVIDES_INVALID_FIELDS: "The `fields` of a `@provides` is not a selection of existing fields.";
    REQUIRES_INVALID_FIELDS: "The `fields` of a `@requires` is not a selection of existing fields.";
    KEY_FIELDS_SELECT_INVALID_TYPE: "A `@key` selects a list, an interface or a union.";
    KEY_FIELDS_HAS_ARGS: "A `@key` selects a field that has arguments.";
    PROVIDES_FIELDS_HAS_ARGS: "A `@provides` selects a field that has arguments.";
    KEY_DIRECTIVE_IN_FIELDS_ARG: "A `@key` selection contains a directive.";
    PROVIDES_DIRECTIVE_IN_FIELDS_ARG: "A `@provides` selection contains a directive.";
    REQUIRES_DIRECTIVE_IN_FIELDS_ARG: "A `@requires` selection contains a directive.";
    PROVIDES_FIELDS_MISSING_EXTERNAL: "A `@provides` selects a field that is not `@external`.";
    REQUIRES_FIELDS_MISSING_EXTERNAL: "A `@requires` selects a field that is not `@external`.";
    KEY_UNSUPPORTED_ON_INTERFACE: "A `@key` is on an interface although the federation version does not support it.";
    PROVIDES_UNSUPPORTED_ON_INTERFACE: "A `@provides` is on a field of an interface.";
    REQUIRES_UNSUPPORTED_ON_INTERFACE: "A `@requires` is on a field of an interface.";
    PROVIDES_ON_NON_OBJECT_FIELD: "A `@provides` is on a field that does not return an object.";
    // External.
    EXTERNAL_UNUSED: "An `@external` field has no use in its subgraph.";
    EXTERNAL_ON_INTERFACE: "A field of an interface is `@external`.";
    TYPE_WITH_ONLY_UNUSED_EXTERNAL: "A type of a Federation 1 subgraph has only unused external fields.";
    EXTERNAL_MISSING_ON_BASE: "A field is `@external` in every subgraph that has it.";
    EXTERNAL_TYPE_MISMATCH: "An `@external` field has another type than where it is resolved.";
    EXTERNAL_ARGUMENT_MISSING: "An `@external` field lacks an argument.";
    EXTERNAL_ARGUMENT_TYPE_MISMATCH: "An argument of an `@external` field has another type.";
    EXTERNAL_ARGUMENT_DEFAULT_MISMATCH: "An argument of an `@external` field has another default.";
    EXTERNAL_COLLISION_WITH_ANOTHER_DIRECTIVE: "An `@external` field has a directive that needs a resolver.";
    MERGED_DIRECTIVE_APPLICATION_ON_EXTERNAL: "A directive that composition merges is on an `@external` field.";
    EXTENSION_WITH_NO_BASE: "A Federation 1 subgraph extends a type that no subgraph defines.";
    // Roots and kinds.
    ROOT_QUERY_USED: "A type named `Query` is not the query root.";
    ROOT_MUTATION_USED: "A type named `Mutation` is not the mutation root.";
    ROOT_SUBSCRIPTION_USED: "A type named `Subscription` is not the subscription root.";
    TYPE_KIND_MISMATCH: "Subgraphs define a type with different kinds.";
    // Merging.
    FIELD_TYPE_MISMATCH: "Subgraphs give a field incompatible types.";
    FIELD_ARGUMENT_TYPE_MISMATCH: "Subgraphs give an argument incompatible types.";
    FIELD_ARGUMENT_DEFAULT_MISMATCH: "Subgraphs give an argument different defaults.";
    INPUT_FIELD_DEFAULT_MISMATCH: "Subgraphs give an input field different defaults.";
    REQUIRED_ARGUMENT_MISSING_IN_SOME_SUBGRAPH: "Some subgraphs lack an argument that others require.";
    REQUIRED_INPUT_FIELD_MISSING_IN_SOME_SUBGRAPH: "Some subgraphs lack an input field that others require.";
    EMPTY_MERGED_INPUT_TYPE: "No field of an input type is common to all subgraphs.";
    EMPTY_MERGED_ENUM_TYPE: "No value of an enum is common to all subgraphs.";
    ENUM_VALUE_MISMATCH: "Subgraphs have different values of an enum that is both input and output.";
    INTERFACE_FIELD_NO_IMPLEM: "A type lacks a field of an interface that it implements.";
    INVALID_FIELD_SHARING: "Several subgraphs resolve a field that is not `@shareable` in all of them.";
    INVALID_SHAREABLE_USAGE: "A `@shareable` is where it has no meaning.";
    SHAREABLE_HAS_MISMATCHED_RUNTIME_TYPES: "Subgraphs return no common object type for a shared field.";
    DIRECTIVE_COMPOSITION_ERROR: "A `@composeDirective` cannot be applied.";
    INVALID_TAG_NAME: "The name of a `@tag` is malformed.";
    // Override.
    OVERRIDE_COLLISION_WITH_ANOTHER_DIRECTIVE: "An overridden or overriding field has a conflicting directive.";
    OVERRIDE_FROM_SELF_ERROR: "An `@override` names its own subgraph.";
    OVERRIDE_SOURCE_HAS_OVERRIDE: "Several subgraphs override one field.";
    OVERRIDE_ON_INTERFACE: "An `@override` is on a field of an interface.";
    OVERRIDE_LABEL_INVALID: "The label of an `@override` is malformed.";
    // Interfaces that are entities.
    INTERFACE_OBJECT_USAGE_ERROR: "An `@interfaceObject` has no interface or no key.";
    INTERFACE_KEY_NOT_ON_IMPLEMENTATION: "An implementation lacks the key of its interface.";
    INTERFACE_KEY_MISSING_IMPLEMENTATION_TYPE: "A subgraph with a keyed interface lacks an implementation.";
    // Visibility.
    REFERENCED_INACCESSIBLE: "A visible element refers to a hidden one.";
    DEFAULT_VALUE_USES_INACCESSIBLE: "A visible default contains a hidden element.";
    QUERY_ROOT_TYPE_INACCESSIBLE: "The query root is hidden.";
    REQUIRED_INACCESSIBLE: "A required input is hidden.";
    IMPLEMENTED_BY_INACCESSIBLE: "A hidden element implements a visible one.";
    DISALLOWED_INACCESSIBLE: "An element that cannot be hidden is `@inaccessible`.";
    ONLY_INACCESSIBLE_CHILDREN: "A visible type has only hidden members.";
    // Contexts.
    CONTEXT_NAME_INVALID: "The name of a `@context` is malformed.";
    CONTEXT_NOT_SET: "No type sets the context that an argument reads.";
    CONTEXT_INVALID_SELECTION: "The selection of a `@fromContext` does not fit the types that set the context.";
    NO_CONTEXT_IN_SELECTION: "The `field` of a `@fromContext` names no context.";
    CONTEXT_NO_RESOLVABLE_KEY: "A type with an argument from a context has no resolvable key.";
    CONTEXTUAL_ARGUMENT_NOT_CONTEXTUAL_IN_ALL_SUBGRAPHS: "An argument is contextual in some subgraphs only.";
    // Costs.
    COST_APPLIED_TO_INTERFACE_FIELD: "A `@cost` is on a field of an interface.";
    LIST_SIZE_APPLIED_TO_NON_LIST: "A `@listSize` is on a field that is not a list.";
    LIST_SIZE_INVALID_ASSUMED_SIZE: "The assumed size of a `@listSize` is negative.";
    LIST_SIZE_INVALID_SLICING_ARGUMENT: "A slicing argument of a `@listSize` is not an integer argument.";
    LIST_SIZE_INVALID_SIZED_FIELD: "A sized field of a `@listSize` is not a list.";
    // Authorization.
    MISSING_TRANSITIVE_AUTH_REQUIREMENTS: "A field reads a protected field but is not protected like it.";
    AUTH_REQUIREMENTS_APPLIED_ON_INTERFACE: "An authorization directive is on an interface.";
    // Satisfiability.
    SATISFIABILITY_ERROR: "Some query against the supergraph cannot be planned.";
    // Event subgraphs.
    EVENT_DIRECTIVE_MISSING: "A root field of an event subgraph does not have exactly one event directive.";
    EVENT_DIRECTIVE_MISPLACED: "An event directive is on the wrong field.";
    EVENT_RESULT_INVALID: "A root field of an event subgraph returns a type that events cannot have.";
    EVENT_KEY_RESOLVABLE: "A key of an event subgraph claims to be resolvable.";
    EVENT_FILTER_INVALID: "The condition of a subscription filter is malformed.";
    // Hints.
    INCONSISTENT_BUT_COMPATIBLE_FIELD_TYPE: "Subgraphs give a field different but compatible types.";
    INCONSISTENT_BUT_COMPATIBLE_ARGUMENT_TYPE: "Subgraphs give an argument different but compatible types.";
    INCONSISTENT_DEFAULT_VALUE_PRESENCE: "Only some subgraphs give a default.";
    INCONSISTENT_ENTITY: "A type has keys in some subgraphs only.";
    INCONSISTENT_OBJECT_VALUE_TYPE_FIELD: "Some subgraphs lack a field of a value type.";
    INCONSISTENT_INTERFACE_VALUE_TYPE_FIELD: "Some subgraphs lack a field of an interface.";
    INCONSISTENT_INPUT_OBJECT_FIELD: "Some subgraphs lack a field of an input type, so it is left out.";
    INCONSISTENT_UNION_MEMBER: "Some subgraphs lack a member of a union.";
    INCONSISTENT_ENUM_VALUE_FOR_INPUT_ENUM: "Some subgraphs lack a value of an input enum, so it is left out.";
    INCONSISTENT_ENUM_VALUE_FOR_OUTPUT_ENUM: "Some subgraphs lack a value of an output enum.";
    INCONSISTENT_ARGUMENT_PRESENCE: "Some subgraphs lack an optional argument, so it is left out.";
    INCONSISTENT_DESCRIPTION: "Subgraphs describe an element differently.";
    INCONSISTENT_NON_REPEATABLE_DIRECTIVE_ARGUMENTS: "Subgraphs apply a directive with different arguments.";
    MERGED_NON_REPEATABLE_DIRECTIVE_ARGUMENTS: "The arguments of a directive are merged.";
    INCONSISTENT_EXECUTABLE_DIRECTIVE_PRESENCE: "Some subgraphs lack an executable directive, so it is left out.";
    INCONSISTENT_EXECUTABLE_DIRECTIVE_REPEATABLE: "An executable directive is repeatable in some subgraphs only.";
    INCONSISTENT_EXECUTABLE_DIRECTIVE_LOCATIONS: "Subgraphs give an executable directive different locations.";
    NO_EXECUTABLE_DIRECTIVE_INTERSECTION: "No location of an executable directive is common to all subgraphs.";
    INCONSISTENT_RUNTIME_TYPES_FOR_SHAREABLE_RETURN: "Subgraphs return different object types for a shared field.";
    UNUSED_ENUM_TYPE: "An enum is used by no field or argument.";
    FROM_SUBGRAPH_DOES_NOT_EXIST: "An `@override` names a subgraph that does not exist.";
    OVERRIDDEN_FIELD_CAN_BE_REMOVED: "An overridden field has no further use in its subgraph.";
    OVERRIDE_DIRECTIVE_CAN_BE_REMOVED: "An `@override` has nothing to override.";
    OVERRIDE_MIGRATION_IN_PROGRESS: "A field moves between subgraphs by a label.";
    IMPLICITLY_UPGRADED_FEDERATION_VERSION: "A subgraph uses directives of a later federation version.";
    DIRECTIVE_COMPOSITION_INFO: "A composed directive is noteworthy.";
    DIRECTIVE_COMPOSITION_WARN: "A composed directive is probably not what its authors intend.";
}
