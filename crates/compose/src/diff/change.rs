//! One change of the API schema: its code, its weight, and which operations it affects. Finding changes is left to the
//! other modules of this folder.

use std::borrow::Cow;
use std::collections::BTreeMap;

use apollo_compiler::{
    Name,
    ast::{DirectiveLocation, OperationType},
};

/// The effect of a change on clients.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Criticality {
    /// Requests that were correct fail, or responses have a form that was excluded before.
    Breaking,
    /// Requests stay correct, but clients may receive something that they do not expect.
    Dangerous,
    /// Clients do not notice the change.
    Safe,
}

impl Criticality {
    /// Returns the word for machines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Breaking => "breaking",
            Self::Dangerous => "dangerous",
            Self::Safe => "safe",
        }
    }
}

macro_rules! change_codes {
    ($($variant:ident $name:literal $summary:literal;)*) => {
        /// The kind of a change. The names are those of `graphql-js` where it has one, so that existing tooling and
        /// web searches keep working.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum ChangeCode {
            $(
                #[doc = $summary]
                $variant,
            )*
        }

        impl ChangeCode {
            /// Returns the stable name, such as `FIELD_REMOVED`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns one sentence that says what the code means.
            pub fn summary(self) -> &'static str {
                match self {
                    $(Self::$variant => $summary,)*
                }
            }

            /// Returns all codes.
            pub fn all() -> &'static [Self] {
                &[$(Self::$variant,)*]
            }
        }
    };
}

change_codes! {
    TypeRemoved "TYPE_REMOVED" "A type was removed.";
    TypeAdded "TYPE_ADDED" "A type was added.";
    TypeChangedKind "TYPE_CHANGED_KIND" "A type has another kind, such as an object type that became a union.";
    FieldRemoved "FIELD_REMOVED" "A field of an object or interface type was removed.";
    FieldAdded "FIELD_ADDED" "A field of an object or interface type was added.";
    FieldChangedKind "FIELD_CHANGED_KIND" "A field has another type.";
    FieldChangedKindSafe "FIELD_CHANGED_KIND_SAFE" "A field has a narrower type, which clients of the old type accept.";
    ArgRemoved "ARG_REMOVED" "An argument was removed.";
    RequiredArgAdded "REQUIRED_ARG_ADDED" "A required argument was added.";
    OptionalArgAdded "OPTIONAL_ARG_ADDED" "An optional argument was added.";
    ArgChangedKind "ARG_CHANGED_KIND" "An argument has another type.";
    ArgChangedKindSafe "ARG_CHANGED_KIND_SAFE" "An argument has a wider type, which accepts all old values.";
    ArgDefaultValueChange "ARG_DEFAULT_VALUE_CHANGE" "The default of an argument was changed or removed.";
    ArgDefaultValueAdded "ARG_DEFAULT_VALUE_ADDED" "An argument got a default.";
    InputFieldRemoved "INPUT_FIELD_REMOVED" "A field of an input type was removed.";
    RequiredInputFieldAdded "REQUIRED_INPUT_FIELD_ADDED" "A required field was added to an input type.";
    OptionalInputFieldAdded "OPTIONAL_INPUT_FIELD_ADDED" "An optional field was added to an input type.";
    InputFieldChangedKind "INPUT_FIELD_CHANGED_KIND" "A field of an input type has another type.";
    InputFieldChangedKindSafe "INPUT_FIELD_CHANGED_KIND_SAFE" "A field of an input type has a wider type, which accepts all old values.";
    InputFieldDefaultValueChange "INPUT_FIELD_DEFAULT_VALUE_CHANGE" "The default of an input field was changed or removed.";
    InputFieldDefaultValueAdded "INPUT_FIELD_DEFAULT_VALUE_ADDED" "An input field got a default.";
    OneOfAdded "ONE_OF_ADDED" "An input type became `@oneOf`.";
    OneOfRemoved "ONE_OF_REMOVED" "An input type is no longer `@oneOf`.";
    ValueRemovedFromEnum "VALUE_REMOVED_FROM_ENUM" "A value of an enum was removed.";
    ValueAddedToEnum "VALUE_ADDED_TO_ENUM" "A value of an enum was added.";
    TypeRemovedFromUnion "TYPE_REMOVED_FROM_UNION" "A member of a union was removed.";
    TypeAddedToUnion "TYPE_ADDED_TO_UNION" "A member of a union was added.";
    ImplementedInterfaceRemoved "IMPLEMENTED_INTERFACE_REMOVED" "A type no longer implements an interface.";
    ImplementedInterfaceAdded "IMPLEMENTED_INTERFACE_ADDED" "A type implements another interface.";
    SpecifiedByChanged "SPECIFIED_BY_CHANGED" "A scalar names another specification of its format.";
    SchemaQueryTypeChanged "SCHEMA_QUERY_TYPE_CHANGED" "The query root is another type.";
    SchemaMutationTypeChanged "SCHEMA_MUTATION_TYPE_CHANGED" "The mutation root is another type.";
    SchemaSubscriptionTypeChanged "SCHEMA_SUBSCRIPTION_TYPE_CHANGED" "The subscription root is another type.";
    DirectiveRemoved "DIRECTIVE_REMOVED" "A directive for operations was removed.";
    DirectiveAdded "DIRECTIVE_ADDED" "A directive for operations was added.";
    DirectiveArgRemoved "DIRECTIVE_ARG_REMOVED" "An argument of a directive was removed.";
    RequiredDirectiveArgAdded "REQUIRED_DIRECTIVE_ARG_ADDED" "A required argument of a directive was added.";
    OptionalDirectiveArgAdded "OPTIONAL_DIRECTIVE_ARG_ADDED" "An optional argument of a directive was added.";
    DirectiveRepeatableRemoved "DIRECTIVE_REPEATABLE_REMOVED" "A directive is no longer repeatable.";
    DirectiveRepeatableAdded "DIRECTIVE_REPEATABLE_ADDED" "A directive became repeatable.";
    DirectiveLocationRemoved "DIRECTIVE_LOCATION_REMOVED" "A directive is no longer allowed in a place.";
    DirectiveLocationAdded "DIRECTIVE_LOCATION_ADDED" "A directive is allowed in another place.";
    DeprecationAdded "DEPRECATION_ADDED" "An element became deprecated.";
    DeprecationRemoved "DEPRECATION_REMOVED" "An element is no longer deprecated.";
    DeprecationReasonChanged "DEPRECATION_REASON_CHANGED" "The reason of a deprecation was changed.";
    DescriptionChanged "DESCRIPTION_CHANGED" "A description was added, changed or removed.";
    OperationInvalid "OPERATION_INVALID" "An operation is no longer valid, for a reason that is no single change.";
}

impl std::fmt::Display for ChangeCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// One change between two API schemas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaChange {
    /// The kind of the change.
    pub code: ChangeCode,
    /// The effect on clients; after [`super::check_operations`], on the given operations.
    pub criticality: Criticality,
    /// The schema coordinate of the element, such as `Query.user(id:)`.
    pub path: String,
    /// The change in one sentence.
    pub message: String,
    /// The reason of the criticality.
    pub reason: Cow<'static, str>,
    /// The labels of the operations that the change affects; empty unless operations were given.
    pub operations: Vec<String>,
    /// The clients that the change affects, if their use was counted.
    pub usage: Option<ChangeUse>,
    pub(super) exposure: Exposure,
}

impl std::fmt::Display for SchemaChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { code, criticality, path, message, reason, operations, usage: _, exposure: _ } =
            self;
        write!(f, "{} {code} {path}\n  {message}: {reason}", criticality.as_str())?;
        for operation in operations {
            write!(f, "\n  affects {operation}")?;
        }
        Ok(())
    }
}

/// The clients that a change affects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeUse {
    /// The requests by client. Where a change affects several elements, those of the most used one, so that no request
    /// counts twice.
    Counted(BTreeMap<String, ClientUse>),
    /// Routers do not count uses of the element.
    Unknown,
}

impl ChangeUse {
    /// Returns the number of requests of all clients; `None` if it is not known.
    pub fn requests(&self) -> Option<u64> {
        match self {
            Self::Counted(clients) => Some(clients.values().map(|it| it.requests).sum()),
            Self::Unknown => None,
        }
    }
}

/// The use of one element by one client. Times are seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientUse {
    /// The number of requests.
    pub requests: u64,
    /// The time of the first request.
    pub first: u64,
    /// The time of the last request.
    pub last: u64,
}

/// The use of a schema that exposes an operation to a change.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Exposure {
    /// No operation is affected.
    Nothing,
    /// Operations of this kind.
    Root(OperationType),
    /// The type occurs in a selection, a fragment, a variable or an argument.
    Type(Name),
    /// A selection on the abstract type.
    Selection(Name),
    /// A fragment relates two types that both have the member. `general` is one of them.
    Member { general: Name, member: Name },
    /// The field is selected.
    Field(Name, Name),
    /// A selected field returns the leaf type.
    Returned(Name),
    /// The argument is given.
    Argument(Name, Name, Name),
    /// The argument is left out, null, or given by a variable that may be.
    AbsentArgument(Name, Name, Name),
    /// A value of the input type is sent.
    Input(Name),
    /// The input field is sent, or may be.
    InputField(Name, Name),
    /// A value of the input type is sent in which the field is left out or null, or may be.
    AbsentInputField(Name, Name),
    /// The enum value is sent, or may be.
    EnumValue(Name, Name),
    /// The directive is used.
    Directive(Name),
    /// The argument of the directive is given.
    DirectiveArgument(Name, Name),
    /// The directive is used in that place.
    DirectivePlace(Name, DirectiveLocation),
}

/// Collects changes.
#[derive(Debug, Default)]
pub(super) struct ChangeList(pub(super) Vec<SchemaChange>);

/// A weight with its reason.
pub(super) type Weight = (Criticality, &'static str);

/// Creates the weight of a breaking change.
pub(super) fn breaking(reason: &'static str) -> Weight {
    (Criticality::Breaking, reason)
}

/// Creates the weight of a dangerous change.
pub(super) fn dangerous(reason: &'static str) -> Weight {
    (Criticality::Dangerous, reason)
}

/// Creates the weight of a safe change.
pub(super) fn safe(reason: &'static str) -> Weight {
    (Criticality::Safe, reason)
}

impl ChangeList {
    pub(super) fn add(
        &mut self,
        code: ChangeCode,
        path: impl Into<String>,
        message: impl Into<String>,
        (criticality, reason): Weight,
        exposure: Exposure,
    ) {
        self.0.push(SchemaChange {
            code,
            criticality,
            path: path.into(),
            message: message.into(),
            reason: reason.into(),
            operations: Vec::new(),
            usage: None,
            exposure,
        });
    }

    /// Sorts by weight, then by path.
    pub(super) fn into_sorted(mut self) -> Vec<SchemaChange> {
        self.0.sort_by(|a, b| {
            (a.criticality, &a.path, a.code, &a.message).cmp(&(
                b.criticality,
                &b.path,
                b.code,
                &b.message,
            ))
        });
        self.0
    }
}
