//! Limits on operations, checked on the syntax tree before fragments are inlined, so that a document that expands
//! exponentially costs no more than it has characters. Tokens are counted before, in [`crate::lexical`]. The merging of
//! fields within [`Limits::selections`] is checked during validation, in [`crate::field_merging`].

use std::collections::HashMap;

use apollo_compiler::ast::{Definition, Document, OperationDefinition, Selection};
use apollo_compiler::{Name, Node};

use crate::error::{Limit, PrepareError, Problem};

/// The configured limits of operations, with their defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Lexical tokens of the document.
    pub tokens: usize,
    /// Nesting of fields.
    pub depth: usize,
    /// Aliases, counted as often as their fragments are used.
    pub aliases: usize,
    /// Fields of the root selection set.
    pub root_fields: usize,
    /// Selections after inlining all fragments, all operations of the document together. A field that
    /// is selected on an interface counts once for each object type that selects the same response key
    /// beside it, because it has to be merged with each.
    pub selections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tokens: 15_000, depth: 100, aliases: 100, root_fields: 100, selections: 100_000 }
    }
}

/// Maximum nesting of selection sets, lists and objects, with fragments. Everything after this
/// check recurses a few times for each level; a test prepares such documents on a stack of 2 MiB,
/// as threads of the blocking pool have.
pub(crate) const NESTING_MAX: usize = 250;

/// The size of a selection set with its fragments inlined. Sums saturate.
#[derive(Clone, Copy, Default)]
struct OperationSize {
    /// Nesting of fields.
    depth: usize,
    /// Nesting of selection sets.
    nesting: usize,
    aliases: usize,
    fields: usize,
    selections: usize,
}

impl OperationSize {
    fn combined_with(self, other: Self) -> Self {
        Self {
            depth: self.depth.max(other.depth),
            nesting: self.nesting.max(other.nesting),
            aliases: self.aliases.saturating_add(other.aliases),
            fields: self.fields.saturating_add(other.fields),
            selections: self.selections.saturating_add(other.selections),
        }
    }
}

/// Checks every operation of the document: validation reads them all.
///
/// # Errors
/// [`PrepareError::Limit`]; [`PrepareError::Validation`] if fragments spread each other in a cycle,
/// because such a document has no size.
pub(crate) fn check_limits(document: &Document, limits: &Limits) -> Result<(), PrepareError> {
    let mut measure =
        Measure { document, fragments: HashMap::new(), known: HashMap::new(), nesting: 0 };
    let mut operations: Vec<&OperationDefinition> = Vec::new();
    for definition in &document.definitions {
        match definition {
            Definition::FragmentDefinition(it) => {
                // Of several fragments with one name the first counts, as in validation, which then
                // reports the error.
                measure.fragments.entry(it.name.as_str()).or_insert(&it.selection_set);
            }
            Definition::OperationDefinition(it) => operations.push(it),
            _ => {}
        }
    }
    let refused = |limit, maximum| Err(PrepareError::Limit { limit, maximum });
    let mut selections = 0_usize;
    for operation in operations {
        let size = match measure.measure_selection_set(&operation.selection_set) {
            Ok(size) if size.nesting <= NESTING_MAX => size,
            Ok(_) | Err(MeasureStop::TooDeep) => {
                return refused(Limit::Depth, limits.depth.min(NESTING_MAX));
            }
            Err(MeasureStop::Cycle(problem)) => {
                return Err(PrepareError::Validation(vec![problem]));
            }
        };
        selections = selections.saturating_add(size.selections);
        for (limit, reached, maximum) in [
            (Limit::Depth, size.depth, limits.depth),
            (Limit::Aliases, size.aliases, limits.aliases),
            (Limit::RootFields, size.fields, limits.root_fields),
            (Limit::Selections, selections, limits.selections),
        ] {
            if reached > maximum {
                return refused(limit, maximum);
            }
        }
    }
    Ok(())
}

struct Measure<'a> {
    document: &'a Document,
    fragments: HashMap<&'a str, &'a Vec<Selection>>,
    /// `None` while a fragment is being measured.
    known: HashMap<&'a str, Option<OperationSize>>,
    /// The current depth of the recursion.
    nesting: usize,
}

enum MeasureStop {
    TooDeep,
    Cycle(Problem),
}

impl<'a> Measure<'a> {
    fn measure_selection_set(
        &mut self,
        selections: &'a [Selection],
    ) -> Result<OperationSize, MeasureStop> {
        if self.nesting >= NESTING_MAX {
            return Err(MeasureStop::TooDeep);
        }
        self.nesting += 1;
        let mut sum = OperationSize::default();
        for selection in selections {
            let size = match selection {
                Selection::Field(field) => {
                    let below = self.measure_selection_set(&field.selection_set)?;
                    OperationSize {
                        depth: below.depth.saturating_add(1),
                        nesting: below.nesting,
                        aliases: below.aliases.saturating_add(usize::from(field.alias.is_some())),
                        fields: 1,
                        selections: below.selections.saturating_add(1),
                    }
                }
                Selection::InlineFragment(fragment) => {
                    let inside = self.measure_selection_set(&fragment.selection_set)?;
                    OperationSize { selections: inside.selections.saturating_add(1), ..inside }
                }
                Selection::FragmentSpread(spread) => {
                    let inside = self.measure_fragment(spread)?;
                    OperationSize { selections: inside.selections.saturating_add(1), ..inside }
                }
            };
            sum = sum.combined_with(size);
        }
        self.nesting -= 1;
        sum.nesting = sum.nesting.saturating_add(1);
        Ok(sum)
    }

    fn measure_fragment(
        &mut self,
        spread: &Node<apollo_compiler::ast::FragmentSpread>,
    ) -> Result<OperationSize, MeasureStop> {
        let name: &Name = &spread.fragment_name;
        let Some((&name, &selections)) = self.fragments.get_key_value(name.as_str()) else {
            return Ok(OperationSize::default());
        };
        match self.known.get(name) {
            Some(Some(size)) => return Ok(*size),
            Some(None) => {
                return Err(MeasureStop::Cycle(Problem::at(
                    format!("fragment `{name}` spreads itself, directly or through others"),
                    spread.location(),
                    &self.document.sources,
                )));
            }
            None => {}
        }
        self.known.insert(name, None);
        let size = self.measure_selection_set(selections)?;
        self.known.insert(name, Some(size));
        Ok(size)
    }
}
