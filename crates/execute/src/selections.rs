//! Parses the selections of a subgraph operation: execution compares the selections of two fetches
//! of one plan on the same entity.

use crate::tokens::{Token, Tokens};

/// A selection set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Selections<'a> {
    pub(crate) fields: Vec<SelectedField<'a>>,
    pub(crate) fragments: Vec<SelectedFragment<'a>>,
}

/// A field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SelectedField<'a> {
    /// Its alias, or its name.
    pub(crate) key: &'a str,
    pub(crate) name: &'a str,
    /// The arguments as written, with the parentheses; empty if there are none.
    pub(crate) arguments: &'a str,
    /// True if it has directives.
    pub(crate) is_conditional: bool,
    /// The selections below; empty for a leaf.
    pub(crate) below: Selections<'a>,
}

/// An inline fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SelectedFragment<'a> {
    /// The type; empty if there is none.
    pub(crate) on: &'a str,
    /// True if it has directives.
    pub(crate) is_conditional: bool,
    pub(crate) below: Selections<'a>,
}

impl Selections<'_> {
    /// True if it selects nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.fragments.is_empty()
    }
}

/// Maximum nesting of selection sets. Operations, which preparing bounds, nest less; deeper ones
/// are not compared.
const DEPTH_MAX: u32 = 600;

/// Returns the root selection set of `text`. `None` if it is not in the form that the planner
/// writes.
pub(crate) fn parse_selections(text: &str) -> Option<Selections<'_>> {
    let mut reader = SelectionReader { text, tokens: Tokens::new(text), peeked: None };
    // Skips to the root selection set; variable definitions have braces only inside parentheses.
    loop {
        match reader.next()? {
            Token::Mark(b'(') => reader.skip_arguments(),
            Token::Mark(b'{') => return reader.read_selections(0),
            _ => {}
        }
    }
}

struct SelectionReader<'a> {
    text: &'a str,
    tokens: Tokens<'a>,
    /// The next token, and the position at which it, or ignored text before it, begins.
    peeked: Option<(Token<'a>, usize)>,
}

impl<'a> SelectionReader<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        match self.peeked.take() {
            Some((token, _)) => Some(token),
            None => self.tokens.next(),
        }
    }

    fn peek(&mut self) -> Option<&Token<'a>> {
        if self.peeked.is_none() {
            let start = self.tokens.position();
            self.peeked = Some((self.tokens.next()?, start));
        }
        self.peeked.as_ref().map(|(token, _)| token)
    }

    fn read_name(&mut self) -> Option<&'a str> {
        match self.next()? {
            Token::Name(name) => Some(name),
            Token::Mark(_) => None,
        }
    }

    fn skip_mark(&mut self, mark: u8) -> bool {
        let found = matches!(self.peek(), Some(Token::Mark(it)) if *it == mark);
        if found {
            self.peeked = None;
        }
        found
    }

    fn skip_arguments(&mut self) {
        self.tokens.skip_to_close(b'(', b')');
    }

    /// Reads a selection set after its opening brace.
    fn read_selections(&mut self, depth: u32) -> Option<Selections<'a>> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut set = Selections::default();
        while !self.skip_mark(b'}') {
            if self.skip_mark(b'.') {
                set.fragments.push(self.read_fragment(depth)?);
            } else {
                set.fields.push(self.read_field(depth)?);
            }
        }
        Some(set)
    }

    fn read_field(&mut self, depth: u32) -> Option<SelectedField<'a>> {
        let key = self.read_name()?;
        let name = if self.skip_mark(b':') { self.read_name()? } else { key };
        self.peek()?;
        let start = self.peeked.as_ref().map_or(0, |(_, start)| *start);
        let mut arguments = "";
        if self.skip_mark(b'(') {
            self.skip_arguments();
            arguments = self.text.get(start..self.tokens.position())?.trim();
        }
        let is_conditional = self.skip_directives()?;
        let below = if self.skip_mark(b'{') {
            self.read_selections(depth + 1)?
        } else {
            Selections::default()
        };
        Some(SelectedField { key, name, arguments, is_conditional, below })
    }

    fn read_fragment(&mut self, depth: u32) -> Option<SelectedFragment<'a>> {
        let mut on = "";
        if matches!(self.peek(), Some(Token::Name("on"))) {
            self.next();
            on = self.read_name()?;
        }
        let is_conditional = self.skip_directives()?;
        self.skip_mark(b'{').then_some(())?;
        Some(SelectedFragment { on, is_conditional, below: self.read_selections(depth + 1)? })
    }

    fn skip_directives(&mut self) -> Option<bool> {
        let mut any = false;
        while self.skip_mark(b'@') {
            any = true;
            self.read_name()?;
            if self.skip_mark(b'(') {
                self.skip_arguments();
            }
        }
        Some(any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints selections, with `@` for directives.
    fn show(set: &Selections<'_>) -> String {
        let mut out = String::from("{");
        for field in &set.fields {
            let mark = if field.is_conditional { "@" } else { "" };
            out += &format!(" {}:{}{}{mark}", field.key, field.name, field.arguments);
            if !field.below.is_empty() {
                out += &show(&field.below);
            }
        }
        for fragment in &set.fragments {
            let mark = if fragment.is_conditional { "@" } else { "" };
            out += &format!(" ...{}{mark}{}", fragment.on, show(&fragment.below));
        }
        out + "}"
    }

    #[test]
    fn selections_are_parsed() {
        for (text, expected) in [
            ("{a b}", "{ a:a b:b}"),
            (
                "query Q($x:[Int!]={a:1}){k:a(x:$x y:\"}{)\"){b}c}",
                "{ k:a(x:$x y:\"}{)\"){ b:b} c:c}",
            ),
            (
                "{a@include(if:$x){b}...on T@skip(if:$y){c ...{d}}}",
                "{ a:a@{ b:b} ...T@{ c:c ...{ d:d}}}",
            ),
            (
                "query($r:[_Any!]!){_e0:_entities(representations:$r){...on P{n}}}",
                "{ _e0:_entities(representations:$r){ ...P{ n:n}}}",
            ),
        ] {
            assert_eq!(
                parse_selections(text).map(|set| show(&set)).as_deref(),
                Some(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn text_that_is_no_operation_is_none() {
        for text in
            ["", "{", "{a", "{a(", "{a{", "{...", "{a:", "{a@", "{...on", "{é}", "\"", "{{}}"]
        {
            assert_eq!(parse_selections(text), None, "{text}");
        }
        assert_eq!(parse_selections(&"{a".repeat(10_000)), None);
    }
}
