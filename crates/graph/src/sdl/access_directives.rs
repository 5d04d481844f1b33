//! Reading `@authenticated`, `@requiresScopes` and `@policy`, which composition writes on objects, interfaces, scalars,
//! enums and fields.

use apollo_compiler::{
    ast::{self, Value},
    parser::SourceSpan,
};

use super::declared_access::DeclaredAccess;
use super::links::Links;
use crate::access::{Alternatives, REQUIREMENTS_MAX, Requirement};
use crate::errors::ErrorCollector;

/// The local names of the authorization directives of one supergraph.
pub(super) struct AccessDirectives {
    authenticated: Option<DirectiveName>,
    scopes: Option<DirectiveName>,
    policy: Option<DirectiveName>,
}

/// The local name of a directive.
struct DirectiveName {
    name: String,
    /// False if the supergraph does not link the feature. A directive of that name with other arguments is then one of
    /// the user's own.
    is_linked: bool,
}

impl AccessDirectives {
    pub(super) fn of(links: &Links) -> Self {
        // Without a link the directive is enforced all the same: supergraphs are also written by hand. It belongs to
        // another feature only if that feature imports the name.
        let name_of = |feature: &str| {
            let (name, is_linked) = (links.directive(feature, feature), links.has_feature(feature));
            let is_ours = is_linked || !links.is_imported_directive(&name);
            is_ours.then_some(DirectiveName { name, is_linked })
        };
        Self {
            authenticated: name_of("authenticated"),
            scopes: name_of("requiresScopes"),
            policy: name_of("policy"),
        }
    }

    /// Reads the requirements that a directive states. `None` if it is none of these directives.
    pub(super) fn read(
        &self,
        directive: &ast::Directive,
        into: &mut DeclaredAccess,
        errors: &mut ErrorCollector<'_>,
    ) -> Option<u16> {
        let is = |it: &Option<DirectiveName>| {
            it.as_ref().is_some_and(|it| directive.name == it.name.as_str())
        };
        let has = |it: &Option<DirectiveName>, argument: &str| {
            let argument = directive.specified_argument_by_name(argument);
            is(it) && (argument.is_some() || it.as_ref().is_some_and(|it| it.is_linked))
        };
        let requirement = if is(&self.authenticated) {
            Requirement::Authenticated
        } else if has(&self.scopes, "scopes") {
            Requirement::Scopes(read_alternatives(directive, "scopes", errors)?)
        } else if has(&self.policy, "policies") {
            Requirement::Policies(read_alternatives(directive, "policies", errors)?)
        } else {
            return None;
        };
        let index = into.index_of(requirement);
        if index.is_none() {
            let message = format!("there are more than {REQUIREMENTS_MAX} different requirements");
            let help = "each is a combination of scopes or policies; use fewer combinations";
            errors.push(directive.name.location(), message, Some(help));
        }
        index
    }
}

/// Reads a list of lists of names. A single name stands for a list of one, as in all list arguments.
fn read_alternatives(
    directive: &ast::Directive,
    argument: &str,
    errors: &mut ErrorCollector<'_>,
) -> Option<Alternatives> {
    let Some(value) = directive.specified_argument_by_name(argument) else {
        malformed(directive, argument, directive.name.location(), errors);
        return None;
    };
    let mut sets = Vec::new();
    for set in items(value) {
        let mut names: Vec<Box<str>> = Vec::new();
        for name in items(set) {
            match name {
                Value::String(name) if !name.trim().is_empty() => names.push(name.trim().into()),
                _ => {
                    malformed(directive, argument, value.location(), errors);
                    return None;
                }
            }
        }
        names.sort_unstable();
        names.dedup();
        sets.push(names.into_boxed_slice());
    }
    sets.sort_unstable();
    sets.dedup();
    Some(sets.into())
}

fn items(value: &Value) -> Vec<&Value> {
    match value {
        Value::List(items) => items.iter().map(|item| &**item).collect(),
        single => vec![single],
    }
}

fn malformed(
    directive: &ast::Directive,
    argument: &str,
    place: Option<SourceSpan>,
    errors: &mut ErrorCollector<'_>,
) {
    let message = format!("`{argument}` of `@{}` is not a list of lists of names", directive.name);
    let help = "a field that is protected by a requirement that cannot be read would be exposed; write, for example, \
                [[\"read:users\", \"read:emails\"], [\"admin\"]]: all names of one of the inner lists";
    errors.push(place, message, Some(help));
}
