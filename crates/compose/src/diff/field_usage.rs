//! Changes and the use of fields that routers have counted: which clients a change affects, and changes that affect
//! none.
//!
//! Routers count fields, arguments, and types that are conditions of fragments. What they do not count follows from
//! that: a value of an input type may be sent by each request with an argument that reaches the type, and an argument
//! that is added would be missing in each request for its field. Custom directives are not counted, so that changes of
//! them keep their weight.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use apollo_compiler::{
    Name, Schema,
    ast::OperationType,
    schema::{ExtendedType, FieldDefinition},
};
use graph::ApiSchema;

use super::change::{ChangeUse, ClientUse, Criticality, Exposure, SchemaChange};

/// The counted requests by schema coordinate and client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CountedUsage {
    /// The requests by coordinate (`Type.field`, `Type.field(argument:)`, `Type`), and there by client.
    pub coordinates: BTreeMap<String, BTreeMap<String, ClientUse>>,
}

/// The effect of counted requests on changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsageRules {
    /// The number of requests from which a change is in use.
    pub threshold: u64,
    /// The number of all counted requests.
    pub total: u64,
    /// False if a change without counted requests may be in use all the same, so that it keeps its weight.
    pub is_complete: bool,
}

/// Finds the clients that each breaking or dangerous change affects, and lowers those that affect fewer requests than
/// the threshold to safe.
pub fn check_usage(
    old: &ApiSchema,
    mut changes: Vec<SchemaChange>,
    usage: &CountedUsage,
    rules: UsageRules,
) -> Vec<SchemaChange> {
    let UsageRules { threshold, total, is_complete } = rules;
    let finder = UseFinder { schema: &old.0, usage };
    for change in changes.iter_mut().filter(|it| it.criticality != Criticality::Safe) {
        let (found, requests_max) = finder.find(&change.exposure);
        match requests_max.filter(|_| is_complete) {
            Some(0) => {
                change.criticality = Criticality::Safe;
                change.reason = format!("not used by any of {total} requests").into();
            }
            Some(max) if max < threshold => {
                change.criticality = Criticality::Safe;
                let reason = format!("used by {max} of {total} requests, below the threshold");
                change.reason = reason.into();
            }
            _ => {}
        }
        change.usage = Some(found);
    }
    changes.sort_by_key(|it| it.criticality);
    changes
}

struct UseFinder<'a> {
    schema: &'a Schema,
    usage: &'a CountedUsage,
}

/// Coordinates of counted elements.
type Coordinates<'a> = BTreeSet<&'a str>;

impl<'a> UseFinder<'a> {
    /// Returns the clients that a change affects, and the maximum number of their requests, if it is known: a request
    /// may be among the counts of several elements.
    fn find(&self, exposure: &Exposure) -> (ChangeUse, Option<u64>) {
        let used = match exposure {
            Exposure::Nothing => Coordinates::new(),
            Exposure::Root(kind) => self.fields_of_root(*kind),
            Exposure::Type(ty) => {
                let mut used = self.of_type(ty);
                used.extend(self.arguments_that_reach(ty));
                used
            }
            Exposure::Selection(ty) => self.of_type(ty),
            Exposure::Returned(ty) => self.fields_that_return(ty),
            Exposure::Member { general, member } => match self.of_type(general).is_empty() {
                true => Coordinates::new(),
                false => self.of_type(member),
            },
            Exposure::Field(ty, field) => self.one(&format!("{ty}.{field}")),
            Exposure::Argument(ty, field, argument) => {
                self.one(&format!("{ty}.{field}({argument}:)"))
            }
            // Requests without the argument are not told apart from those with it.
            Exposure::AbsentArgument(ty, field, _) => self.one(&format!("{ty}.{field}")),
            Exposure::Input(ty)
            | Exposure::InputField(ty, _)
            | Exposure::AbsentInputField(ty, _)
            | Exposure::EnumValue(ty, _) => self.arguments_that_reach(ty),
            Exposure::Directive(_)
            | Exposure::DirectiveArgument(..)
            | Exposure::DirectivePlace(..) => return (ChangeUse::Unknown, None),
        };
        let mut clients = BTreeMap::<String, ClientUse>::new();
        let mut requests_max = 0;
        for (client, one) in used.iter().flat_map(|it| &self.usage.coordinates[*it]) {
            requests_max += one.requests;
            let all = clients.entry(client.clone()).or_insert(*one);
            all.requests = all.requests.max(one.requests);
            (all.first, all.last) = (all.first.min(one.first), all.last.max(one.last));
        }
        (ChangeUse::Counted(clients), Some(requests_max))
    }

    fn one(&self, coordinate: &str) -> Coordinates<'a> {
        let found = self.usage.coordinates.get_key_value(coordinate);
        found.map(|(coordinate, _)| coordinate.as_str()).into_iter().collect()
    }

    /// The fields of a type, their arguments, its use as a condition, and the fields that return it.
    fn of_type(&self, ty: &str) -> Coordinates<'a> {
        let mut used = self.fields_that_return(ty);
        used.extend(self.one(ty));
        used.extend(self.fields_of(ty));
        used
    }

    fn fields_of(&self, ty: &str) -> Coordinates<'a> {
        let prefix = format!("{ty}.");
        let from = self.usage.coordinates.range(prefix.clone()..);
        from.map(|it| it.0.as_str()).take_while(|it| it.starts_with(&prefix)).collect()
    }

    fn fields_of_root(&self, kind: OperationType) -> Coordinates<'a> {
        let root = self.schema.root_operation(kind);
        root.map(|root| self.fields_of(root)).unwrap_or_default()
    }

    fn fields_that_return(&self, ty: &str) -> Coordinates<'a> {
        self.fields()
            .filter(|(_, field)| field.ty.inner_named_type() == ty)
            .flat_map(|(owner, field)| self.one(&format!("{owner}.{}", field.name)))
            .collect()
    }

    /// The arguments by which a value of an input type may be sent.
    fn arguments_that_reach(&self, ty: &str) -> Coordinates<'a> {
        self.fields()
            .flat_map(|(owner, field)| field.arguments.iter().map(move |it| (owner, field, it)))
            .filter(|(_, _, argument)| self.reaches(argument.ty.inner_named_type(), ty))
            .flat_map(|(owner, field, argument)| {
                self.one(&format!("{owner}.{}({}:)", field.name, argument.name))
            })
            .collect()
    }

    /// True if a value of the input type `from` may contain one of type `to`.
    fn reaches(&self, from: &Name, to: &str) -> bool {
        let (mut pending, mut known) = (vec![from], HashSet::new());
        while let Some(ty) = pending.pop() {
            if *ty == to {
                return true;
            }
            if known.insert(ty)
                && let Some(ExtendedType::InputObject(input)) = self.schema.types.get(ty)
            {
                pending.extend(input.fields.values().map(|it| it.ty.inner_named_type()));
            }
        }
        false
    }

    fn fields(&self) -> impl Iterator<Item = (&'a Name, &'a FieldDefinition)> {
        self.schema.types.iter().flat_map(|(name, ty)| {
            let fields = match ty {
                ExtendedType::Object(object) => Some(&object.fields),
                ExtendedType::Interface(interface) => Some(&interface.fields),
                _ => None,
            };
            fields.into_iter().flat_map(move |it| it.values().map(move |field| (name, &***field)))
        })
    }
}
