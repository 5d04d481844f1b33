//! The boolean expressions of directives: AND, OR and NOT over leaves. Filters and `authorize` share the tree, its
//! limits and its parser, and differ in their leaves.

use graph::ConstValue;

/// The maximum nesting of conditions. Other routers allow five.
pub(crate) const DEPTH_MAX: usize = 8;

/// The maximum number of conditions of one field.
pub(crate) const CONDITIONS_MAX: usize = 64;

/// A boolean expression over leaves of type `L`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Expression<L> {
    Leaf(L),
    And(Box<[Expression<L>]>),
    Or(Box<[Expression<L>]>),
    Not(Box<Expression<L>>),
}

/// A truth value of three-valued logic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Truth {
    True,
    False,
    Unknown,
}

impl Truth {
    /// Returns the negation. The negation of an unknown value is unknown.
    pub(crate) fn negated(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
        }
    }

    /// Returns the conjunction: false if one value is false, else unknown if one is unknown.
    pub(crate) fn all(values: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::True;
        for value in values {
            match value {
                Self::True => {}
                Self::Unknown => all = Self::Unknown,
                Self::False => return Self::False,
            }
        }
        all
    }

    /// Returns the disjunction: true if one value is true, else unknown if one is unknown.
    pub(crate) fn any(values: impl IntoIterator<Item = Self>) -> Self {
        Self::all(values.into_iter().map(Self::negated)).negated()
    }
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl<L> Expression<L> {
    /// Evaluates the expression with the truth values of its leaves.
    pub(crate) fn evaluate(&self, leaf: &impl Fn(&L) -> Truth) -> Truth {
        match self {
            Self::Leaf(it) => leaf(it),
            Self::And(all) => Truth::all(all.iter().map(|it| it.evaluate(leaf))),
            Self::Or(any) => Truth::any(any.iter().map(|it| it.evaluate(leaf))),
            Self::Not(it) => it.evaluate(leaf).negated(),
        }
    }

    /// Calls `visit` for each leaf.
    pub(crate) fn for_each_leaf<'a>(&'a self, visit: &mut impl FnMut(&'a L)) {
        match self {
            Self::Leaf(it) => visit(it),
            Self::And(nodes) | Self::Or(nodes) => {
                nodes.iter().for_each(|it| it.for_each_leaf(visit));
            }
            Self::Not(it) => it.for_each_leaf(visit),
        }
    }

    /// Returns the expression with each leaf replaced by the result of `replace`.
    pub(crate) fn try_map<M, E>(
        &self,
        replace: &mut impl FnMut(&L) -> Result<Expression<M>, E>,
    ) -> Result<Expression<M>, E> {
        let mut map_all = |nodes: &[Self]| -> Result<Box<[Expression<M>]>, E> {
            nodes.iter().map(|it| it.try_map(replace)).collect()
        };
        Ok(match self {
            Self::Leaf(it) => replace(it)?,
            Self::And(nodes) => Expression::And(map_all(nodes)?),
            Self::Or(nodes) => Expression::Or(map_all(nodes)?),
            Self::Not(it) => Expression::Not(Box::new(it.try_map(replace)?)),
        })
    }
}

/// The syntax of the leaves of one kind of condition. A leaf is an object with one operator, and in some kinds a
/// qualifier.
pub(crate) trait LeafSyntax {
    type Leaf;

    /// The operators of leaves.
    const OPERATORS: &'static [&'static str];

    /// The member that accompanies the operator of a leaf, such as `claim`.
    const QUALIFIER: Option<&'static str>;

    /// The error for an object without exactly one operator.
    const ONE_OPERATOR: &'static str;

    /// Reads a leaf. Adds errors to `errors`; `None` if it cannot be read at all.
    fn read_leaf(
        &self,
        operator: &str,
        value: &ConstValue,
        qualifier: Option<&ConstValue>,
        errors: &mut Vec<String>,
    ) -> Option<Self::Leaf>;
}

/// Reads a condition.
///
/// # Errors
/// All errors of the condition.
pub(crate) fn read_expression<S: LeafSyntax>(
    syntax: &S,
    condition: &ConstValue,
) -> Result<Expression<S::Leaf>, Vec<String>> {
    let mut reader = ExpressionReader { syntax, conditions: 0, errors: Vec::new() };
    match reader.read(condition, 1) {
        Some(expression) if reader.errors.is_empty() => Ok(expression),
        _ => Err(reader.errors),
    }
}

struct ExpressionReader<'a, S> {
    syntax: &'a S,
    conditions: usize,
    errors: Vec<String>,
}

impl<S: LeafSyntax> ExpressionReader<'_, S> {
    fn fail<T>(&mut self, message: impl Into<String>) -> Option<T> {
        self.errors.push(message.into());
        None
    }

    fn read(&mut self, value: &ConstValue, depth: usize) -> Option<Expression<S::Leaf>> {
        self.conditions += 1;
        if depth > DEPTH_MAX || self.conditions > CONDITIONS_MAX {
            let limits = format!("{CONDITIONS_MAX} conditions, nested {DEPTH_MAX} deep");
            return self.fail(format!("the condition is too large; at most {limits}, are allowed"));
        }
        let ConstValue::Object(members) = value else {
            return self.fail("a condition must be an object");
        };
        let is_qualifier = |name: &str| Some(name) == S::QUALIFIER;
        let members = || members.iter().filter(|(_, value)| *value != ConstValue::Null);
        let qualifier = members().find(|(name, _)| is_qualifier(name)).map(|(_, value)| value);
        let mut operators = members().filter(|(name, _)| !is_qualifier(name));
        let (Some((operator, value)), None) = (operators.next(), operators.next()) else {
            return self.fail(S::ONE_OPERATOR);
        };
        if S::OPERATORS.contains(&&**operator) {
            let leaf = self.syntax.read_leaf(operator, value, qualifier, &mut self.errors);
            return leaf.map(Expression::Leaf);
        }
        match (&**operator, S::QUALIFIER.filter(|_| qualifier.is_some())) {
            ("AND" | "OR" | "NOT", Some(name)) => {
                self.fail(format!("{operator} cannot be combined with {name}"))
            }
            ("AND", None) => self.read_list(operator, value, depth).map(Expression::And),
            ("OR", None) => self.read_list(operator, value, depth).map(Expression::Or),
            ("NOT", None) => self.read(value, depth + 1).map(|it| Expression::Not(Box::new(it))),
            _ => {
                let known = S::OPERATORS.join(", ");
                self.fail(format!("{operator:?} is none of {known}, AND, OR and NOT"))
            }
        }
    }

    fn read_list(
        &mut self,
        operator: &str,
        value: &ConstValue,
        depth: usize,
    ) -> Option<Box<[Expression<S::Leaf>]>> {
        let items = list_items(value);
        if items.is_empty() {
            return self.fail(format!("{operator} is empty"));
        }
        let nodes: Box<[_]> = items.iter().filter_map(|it| self.read(it, depth + 1)).collect();
        (nodes.len() == items.len()).then_some(nodes)
    }
}

/// Returns the items of a list. As everywhere in GraphQL, one value is a list of one.
pub(crate) fn list_items(value: &ConstValue) -> &[ConstValue] {
    match value {
        ConstValue::List(items) => items,
        ConstValue::Null => &[],
        one => std::slice::from_ref(one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_leaf_decides_nothing_unless_the_others_do() {
        use Expression::{And, Leaf, Not, Or};
        use Truth::{False, True, Unknown};
        let evaluate = |expression: Expression<Truth>| expression.evaluate(&|leaf| *leaf);
        for (one, other, and, or) in [
            (True, True, True, True),
            (True, False, False, True),
            (False, False, False, False),
            (Unknown, True, Unknown, True),
            (Unknown, False, False, Unknown),
            (Unknown, Unknown, Unknown, Unknown),
        ] {
            let both = || Box::new([Leaf(one), Leaf(other)]);
            assert_eq!(evaluate(And(both())), and, "{one:?} and {other:?}");
            assert_eq!(evaluate(Or(both())), or, "{one:?} or {other:?}");
            let not_and = evaluate(Not(Box::new(And(both()))));
            assert_eq!(not_and, and.negated(), "not ({one:?} and {other:?})");
        }
        assert_eq!((evaluate(And(Box::new([]))), evaluate(Or(Box::new([])))), (True, False));
    }
}
