//! Hints of schemas: `@cacheControl(maxAge:, scope:, inheritMaxAge:)` with the meaning that Apollo Server gives them.
//!
//! The policy of a fetch is the strictest of its fields. The walk over the fields belongs to the caller, at the time of
//! planning; the result does not depend on data.

use std::time::Duration;

use crate::scope::Scope;

/// The arguments of one `@cacheControl`, on a field or on a type. Absent arguments are `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheHint {
    /// `maxAge`.
    pub max_age: Option<Duration>,
    /// `scope`.
    pub scope: Option<Scope>,
    /// `inheritMaxAge`: the field takes the time of the object that it is a field of.
    pub inherits_max_age: bool,
}

impl CacheHint {
    /// Replaces what `other` says.
    fn replace(&mut self, other: Self) {
        self.max_age = other.max_age.or(self.max_age);
        self.scope = other.scope.or(self.scope);
    }
}

/// The facts about one selected field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FieldHints {
    /// The hint on the field itself.
    pub field: CacheHint,
    /// The hint on the type of its value, if that is an object, an interface or a union; `None` for scalars and enums.
    pub composite: Option<CacheHint>,
    /// True for a field of the query root.
    pub is_root: bool,
    /// The time that the configuration says for the field, its type or its subgraph. It takes the place of a missing
    /// `maxAge`, as the default of Apollo Server does.
    pub configured: Option<Duration>,
}

/// The policy that schema and configuration declare for one fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeclaredPolicy {
    /// The shortest time of all fields. `None` if nothing declares a time, or if a field must not be cached.
    pub max_age: Option<Duration>,
    /// Private if a field is.
    pub scope: Scope,
}

/// Folds the hints of all fields of one fetch.
///
/// ```
/// use std::time::Duration;
///
/// use cache::{CacheHint, FieldHints, HintFold, Scope};
///
/// let minute = CacheHint { max_age: Some(Duration::from_secs(60)), ..CacheHint::default() };
/// let mut fold = HintFold::default();
/// // type Product @cacheControl(maxAge: 60): the entity itself, then its fields.
/// fold.add_entity(minute, None);
/// fold.add_field(FieldHints::default());
/// assert_eq!(fold.finish().max_age, Some(Duration::from_secs(60)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HintFold {
    max_age: Option<Duration>,
    is_private: bool,
}

impl HintFold {
    /// Adds the entity of an entity fetch, by the hint on its type. Without one, the configured time counts.
    pub fn add_entity(&mut self, of_type: CacheHint, configured: Option<Duration>) {
        self.restrict(of_type, Some(configured.unwrap_or_default()));
    }

    /// Adds a selected field, as Apollo Server does before it resolves the field.
    pub fn add_field(&mut self, hints: FieldHints) {
        let mut policy = CacheHint::default();
        let mut inherits = false;
        if let Some(of_type) = hints.composite {
            policy.replace(of_type);
            inherits = of_type.inherits_max_age;
        }
        if hints.field.inherits_max_age && policy.max_age.is_none() {
            inherits = true;
            // Apollo Server ignores a `maxAge` beside `inheritMaxAge: true`.
            policy.replace(CacheHint { max_age: None, ..hints.field });
        } else {
            policy.replace(hints.field);
        }
        let default = match hints.composite {
            _ if hints.is_root => Some(hints.configured.unwrap_or_default()),
            Some(_) if inherits => None,
            Some(_) => Some(hints.configured.unwrap_or_default()),
            // A scalar has the time of its object, unless the configuration names the field itself.
            None => hints.configured,
        };
        self.restrict(policy, default);
    }

    fn restrict(&mut self, policy: CacheHint, default: Option<Duration>) {
        if let Some(time) = policy.max_age.or(default) {
            self.max_age = Some(self.max_age.map_or(time, |known| known.min(time)));
        }
        self.is_private |= policy.scope == Some(Scope::Private);
    }

    /// Returns the policy.
    pub fn finish(&self) -> DeclaredPolicy {
        let max_age = self.max_age.filter(|time| !time.is_zero());
        let scope = if self.is_private { Scope::Private } else { Scope::Public };
        DeclaredPolicy { max_age, scope }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn hint(max_age: u64) -> CacheHint {
        CacheHint { max_age: Some(seconds(max_age)), ..CacheHint::default() }
    }

    const NONE: CacheHint = CacheHint { max_age: None, scope: None, inherits_max_age: false };

    const PRIVATE: CacheHint =
        CacheHint { max_age: None, scope: Some(Scope::Private), inherits_max_age: false };
    const INHERITS: CacheHint = CacheHint { max_age: None, scope: None, inherits_max_age: true };

    fn root(field: CacheHint, composite: Option<CacheHint>) -> FieldHints {
        FieldHints { field, composite, is_root: true, configured: None }
    }

    fn below(field: CacheHint, composite: Option<CacheHint>) -> FieldHints {
        FieldHints { is_root: false, ..root(field, composite) }
    }

    fn folded(fields: &[FieldHints]) -> Option<(u64, Scope)> {
        let mut fold = HintFold::default();
        fields.iter().for_each(|field| fold.add_field(*field));
        let DeclaredPolicy { max_age, scope } = fold.finish();
        max_age.map(|it| (it.as_secs(), scope))
    }

    /// The examples of Apollo Server's documentation of `@cacheControl`.
    #[test]
    fn fields_have_the_times_that_apollo_server_gives_them() {
        // type Query {
        //   book: Book
        //   cachedBook: Book @cacheControl(maxAge: 60)
        //   reader: Reader @cacheControl(maxAge: 40)
        // }
        // type Book { title: String, cachedTitle: String @cacheControl(maxAge: 30) }
        // type Reader { book: Book @cacheControl(inheritMaxAge: true) }
        let (book, reader) = (Some(NONE), Some(NONE));
        let title = below(NONE, None);
        let cached_title = below(hint(30), None);
        assert_eq!(
            folded(&[root(NONE, book), cached_title]),
            None,
            "a root field has 0 by default"
        );
        assert_eq!(folded(&[root(hint(60), book), title]), Some((60, Scope::Public)));
        assert_eq!(folded(&[root(hint(60), book), cached_title]), Some((30, Scope::Public)));
        assert_eq!(
            folded(&[root(hint(40), reader), below(INHERITS, book), title]),
            Some((40, Scope::Public))
        );
        assert_eq!(
            folded(&[root(hint(40), reader), below(NONE, book), title]),
            None,
            "an object has 0 by default"
        );
    }

    #[test]
    fn a_field_goes_before_the_type_of_its_value() {
        assert_eq!(folded(&[root(hint(5), Some(hint(60)))]), Some((5, Scope::Public)));
        assert_eq!(folded(&[root(NONE, Some(hint(60)))]), Some((60, Scope::Public)));
        assert_eq!(
            folded(&[root(hint(90), None), below(INHERITS, Some(hint(60)))]),
            Some((60, Scope::Public)),
            "inheriting does not replace the time of the type"
        );
        let inheriting_type = Some(INHERITS);
        assert_eq!(
            folded(&[root(hint(90), None), below(NONE, inheriting_type)]),
            Some((90, Scope::Public))
        );
    }

    #[test]
    fn one_private_field_makes_the_fetch_private() {
        assert_eq!(
            folded(&[root(hint(60), None), below(PRIVATE, None)]),
            Some((60, Scope::Private))
        );
        let private_type = Some(CacheHint { scope: Some(Scope::Private), ..hint(60) });
        assert_eq!(folded(&[root(NONE, private_type)]), Some((60, Scope::Private)));
        let inherits = CacheHint { inherits_max_age: true, ..PRIVATE };
        let object = Some(CacheHint::default());
        assert_eq!(
            folded(&[root(hint(60), None), below(inherits, object)]),
            Some((60, Scope::Private))
        );
    }

    #[test]
    fn the_configuration_takes_the_place_of_missing_times() {
        let object = Some(CacheHint::default());
        let configured = |seconds_: u64, hints: FieldHints| FieldHints {
            configured: Some(seconds(seconds_)),
            ..hints
        };
        assert_eq!(folded(&[configured(20, root(NONE, object))]), Some((20, Scope::Public)));
        assert_eq!(folded(&[configured(20, root(hint(60), object))]), Some((60, Scope::Public)));
        let mut fold = HintFold::default();
        fold.add_entity(NONE, Some(seconds(20)));
        fold.add_field(configured(5, below(NONE, None)));
        assert_eq!(fold.finish().max_age, Some(seconds(5)));
        let mut fold = HintFold::default();
        fold.add_entity(NONE, None);
        fold.add_field(below(hint(60), None));
        assert_eq!(fold.finish().max_age, None, "an entity without a time is not cached");
    }
}
