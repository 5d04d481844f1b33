//! Limits on operations, checked on the syntax tree before fragments are inlined, so that a document
//! that expands exponentially costs no more than it has characters.

use std::collections::HashMap;

use apollo_compiler::ast::{Definition, Document, OperationDefinition, Selection};

use crate::PrepareError;

/// What a configuration bounds, with the defaults of the design.
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
    /// Selections after inlining all fragments.
    pub selections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tokens: 15_000, depth: 100, aliases: 100, root_fields: 100, selections: 100_000 }
    }
}

/// One of [`Limits`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Limit {
    /// [`Limits::tokens`]
    Tokens,
    /// [`Limits::depth`]
    Depth,
    /// [`Limits::aliases`]
    Aliases,
    /// [`Limits::root_fields`]
    RootFields,
    /// [`Limits::selections`]
    Selections,
}

impl Limit {
    /// Its key under `limits` in the configuration.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Depth => "depth",
            Self::Aliases => "aliases",
            Self::RootFields => "root_fields",
            Self::Selections => "selections",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Depth => "levels of nesting",
            Self::Aliases => "aliases",
            Self::RootFields => "root fields",
            Self::Selections => "selections after inlining fragments",
        }
    }
}

/// What a selection set amounts to with its fragments inlined. Sums saturate.
#[derive(Clone, Copy, Default)]
struct Extent {
    depth: usize,
    aliases: usize,
    fields: usize,
    selections: usize,
}

impl Extent {
    fn beside(self, other: Self) -> Self {
        Self {
            depth: self.depth.max(other.depth),
            aliases: self.aliases.saturating_add(other.aliases),
            fields: self.fields.saturating_add(other.fields),
            selections: self.selections.saturating_add(other.selections),
        }
    }
}

/// Checks every operation of the document: validation reads them all.
pub(crate) fn check(document: &Document, limits: &Limits) -> Result<(), PrepareError> {
    let mut measure =
        Measure { fragments: HashMap::new(), known: HashMap::new(), nesting: 0, too_deep: false };
    let mut operations: Vec<&OperationDefinition> = Vec::new();
    for definition in &document.definitions {
        match definition {
            Definition::FragmentDefinition(it) => {
                measure.fragments.insert(it.name.as_str(), &it.selection_set);
            }
            Definition::OperationDefinition(it) => operations.push(it),
            _ => {}
        }
    }
    for operation in operations {
        let extent = measure.selection_set(&operation.selection_set);
        if measure.too_deep {
            return Err(PrepareError::Limit { limit: Limit::Depth, maximum: limits.depth });
        }
        for (limit, reached, maximum) in [
            (Limit::Depth, extent.depth, limits.depth),
            (Limit::Aliases, extent.aliases, limits.aliases),
            (Limit::RootFields, extent.fields, limits.root_fields),
            (Limit::Selections, extent.selections, limits.selections),
        ] {
            if reached > maximum {
                return Err(PrepareError::Limit { limit, maximum });
            }
        }
    }
    Ok(())
}

struct Measure<'a> {
    fragments: HashMap<&'a str, &'a Vec<Selection>>,
    /// `None` while a fragment is being measured: a cycle counts as nothing, validation reports it.
    known: HashMap<&'a str, Option<Extent>>,
    nesting: usize,
    too_deep: bool,
}

/// Selection sets inside each other, fragments followed. Everything after this check recurses once or
/// twice for each level, and a thread's 2 MiB of stack hold about ten times as many levels.
pub(crate) const NESTING_MAX: usize = 500;

impl<'a> Measure<'a> {
    fn selection_set(&mut self, selections: &'a [Selection]) -> Extent {
        let mut sum = Extent::default();
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            self.too_deep = true;
        }
        for selection in selections {
            if self.too_deep {
                break;
            }
            let extent = match selection {
                Selection::Field(field) => {
                    let below = self.selection_set(&field.selection_set);
                    Extent {
                        depth: below.depth.saturating_add(1),
                        aliases: below.aliases.saturating_add(usize::from(field.alias.is_some())),
                        fields: 1,
                        selections: below.selections.saturating_add(1),
                    }
                }
                Selection::InlineFragment(fragment) => {
                    let inside = self.selection_set(&fragment.selection_set);
                    Extent { selections: inside.selections.saturating_add(1), ..inside }
                }
                Selection::FragmentSpread(spread) => {
                    let inside = self.fragment(spread.fragment_name.as_str());
                    Extent { selections: inside.selections.saturating_add(1), ..inside }
                }
            };
            sum = sum.beside(extent);
        }
        self.nesting -= 1;
        sum
    }

    fn fragment(&mut self, name: &str) -> Extent {
        let Some((&name, &selections)) = self.fragments.get_key_value(name) else {
            return Extent::default();
        };
        if let Some(known) = self.known.get(name) {
            return known.unwrap_or_default();
        }
        self.known.insert(name, None);
        let extent = self.selection_set(selections);
        self.known.insert(name, Some(extent));
        extent
    }
}
