//! Compiled expressions.

use std::fmt;

use cel::common::ast::IdedExpr;
use execute::ClaimPath;
use http::HeaderName;

use crate::checker::{self, Checked};
use crate::error::CompileError;
use crate::fact::{Fact, Slot, Type};
use crate::functions::Pattern;
use crate::parser;
use crate::scope::Scope;

/// The maximum length of an expression in bytes.
pub const TEXT_BYTES_MAX: usize = 2048;

/// The type that the place of an expression expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// A condition: `true` or `false`.
    Condition,
    /// A text; numbers and truth values are printed, and null means that there is none.
    Text,
}

/// A compiled expression. It can be evaluated by many threads at once.
pub struct Program {
    text: Box<str>,
    tree: IdedExpr,
    slots: Box<[Slot]>,
    patterns: Box<[Pattern]>,
    references: References,
}

/// The facts that a program reads, beyond those with a fixed name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// The claims, sorted.
    pub claims: Vec<ClaimPath>,
    /// The headers of the request, sorted.
    pub headers: Vec<HeaderName>,
    /// True if the program reads the name or the version of the application.
    pub client: bool,
    /// True if the program reads the address of the client, or whether it uses TLS.
    pub origin: bool,
    /// True if the program reads anything of the operation.
    pub operation: bool,
    /// True if the program reads the id of the operation, which has to be printed for it.
    pub operation_id: bool,
    /// True if the program reads the depth of the operation, which has to be computed for it.
    pub depth: bool,
    /// True if the program reads the cost of the operation.
    pub cost: bool,
}

impl Program {
    /// Compiles an expression for the place with this scope.
    ///
    /// # Errors
    /// The first mistake: wrong syntax, an unknown name, a wrong type, or a limit.
    pub fn compile(text: &str, scope: Scope, expected: Expected) -> Result<Self, CompileError> {
        if text.trim().is_empty() {
            return Err(CompileError::new(0..text.len(), "it is empty"));
        }
        if text.len() > TEXT_BYTES_MAX {
            let message = format!("it is longer than {TEXT_BYTES_MAX} bytes");
            return Err(CompileError::new(0..0, message));
        }
        parser::on_large_stack(text, || {
            let (tree, places) = parser::parse(text)?;
            let checked = checker::check(tree, &places, scope)?;
            check_result(checked.kind, expected, places.whole())?;
            Ok(Self::new(text, checked))
        })
    }

    fn new(text: &str, checked: Checked) -> Self {
        let mut references = References::default();
        for slot in &checked.slots {
            match &slot.fact {
                Fact::Claim(path) => references.claims.push(path.clone()),
                Fact::Header(name) => references.headers.push(name.clone()),
                Fact::ClientName | Fact::ClientVersion => references.client = true,
                Fact::ClientAddress | Fact::IsTls => references.origin = true,
                Fact::OperationName | Fact::OperationKind => references.operation = true,
                Fact::OperationId => {
                    references.operation = true;
                    references.operation_id = true;
                }
                Fact::OperationDepth => {
                    references.operation = true;
                    references.depth = true;
                }
                Fact::OperationCost => {
                    references.operation = true;
                    references.cost = true;
                }
                _ => {}
            }
        }
        references.claims.sort_unstable();
        references.claims.dedup();
        references.headers.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        references.headers.dedup();
        Self {
            text: text.into(),
            tree: checked.tree,
            slots: checked.slots.into(),
            patterns: checked.patterns.into(),
            references,
        }
    }

    /// True if the program reads no facts, so that its value is always the same.
    pub fn is_constant(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the facts that the program reads.
    pub fn references(&self) -> &References {
        &self.references
    }

    pub(crate) fn tree(&self) -> &IdedExpr {
        &self.tree
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(crate) fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }
}

fn check_result(
    kind: Type,
    expected: Expected,
    place: std::ops::Range<usize>,
) -> Result<(), CompileError> {
    let (fits, noun) = match expected {
        Expected::Condition => (kind.may_be(Type::Bool), "`true` or `false`"),
        Expected::Text => (!matches!(kind, Type::List | Type::Map), "a text"),
    };
    if fits {
        return Ok(());
    }
    let error =
        CompileError::new(place, format!("the result is {}, and must be {noun}", kind.noun()));
    Err(match (kind, expected) {
        (Type::List, Expected::Text) => {
            error.help("`.join(\",\")` makes a text of a list of texts")
        }
        (Type::Optional, Expected::Condition) => error.help("add `.orValue(false)`"),
        (_, Expected::Condition) => error.help("compare it: `… == \"value\"`"),
        (_, Expected::Text) => error,
    })
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Program").field(&self.text).finish()
    }
}
