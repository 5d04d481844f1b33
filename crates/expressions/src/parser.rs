//! The first step of compiling: from the text to the syntax tree, with the crate `cel`.
//!
//! The parser and the destructor of a tree recurse once per operator of a chain such as `1 + 1 + …`, so both run on a
//! thread whose stack is large enough for the longest text.

use std::ops::Range;

use cel::Env;
use cel::common::ast::{IdedExpr, SourceInfo};

use crate::error::CompileError;
use crate::functions::environment;

/// The stack of the thread that compiles: a text of 2,048 bytes has at most as many nested nodes, and one takes less
/// than 8 KiB, also in debug builds.
const STACK_BYTES: usize = 32 << 20;

/// Runs `compile` on a thread of its own. A panic is reported as an error of the whole text.
pub(crate) fn on_large_stack<T: Send>(
    text: &str,
    compile: impl FnOnce() -> Result<T, CompileError> + Send,
) -> Result<T, CompileError> {
    let failed = || CompileError::new(0..text.len(), "it cannot be compiled");
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("compile".into()).stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, compile).map_err(|_| failed())?;
        thread.join().unwrap_or_else(|_| Err(failed()))
    })
}

/// Parses a text.
pub(crate) fn parse(text: &str) -> Result<(IdedExpr, Places<'_>), CompileError> {
    let env: &Env = environment();
    match env.parser().parse_with_source_info(text) {
        Ok((tree, info)) => Ok((tree, Places { text, info })),
        Err(errors) => {
            let first = errors.errors.into_iter().next();
            let (message, position) = match first {
                Some(error) => (readable(&error.msg), error.pos),
                None => ("it is not an expression".to_owned(), (1, 0)),
            };
            Err(CompileError::new(word_at(text, position), message))
        }
    }
}

/// Shortens a message of the parser to its first statement.
fn readable(message: &str) -> String {
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    let message = message.split(" expecting ").next().unwrap_or(message);
    let message =
        message.lines().next().unwrap_or_default().replace("'<EOF>'", "the end of the expression");
    format!("syntax error: {message}")
}

/// Returns the word at a line counted from 1 and a column counted from 0, or the last character.
fn word_at(text: &str, (line, column): (isize, isize)) -> Range<usize> {
    let line = usize::try_from(line).unwrap_or(1).max(1);
    let mut start = 0;
    for _ in 1..line {
        match text[start..].find('\n') {
            Some(newline) => start += newline + 1,
            None => break,
        }
    }
    let in_line = text[start..].lines().next().unwrap_or_default();
    // The parser counts bytes.
    let column = usize::try_from(column).unwrap_or(0);
    word(text, start + column.min(in_line.len()))
}

/// Returns the range of the word or character at a byte, or of the last character.
fn word(text: &str, at: usize) -> Range<usize> {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let rest = &text[at..];
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    match rest.chars().next() {
        Some(first) => at..at + end.max(first.len_utf8()),
        None => {
            let last = text.chars().next_back().map_or(0, char::len_utf8);
            at - last..at
        }
    }
}

/// The places of the nodes of a tree.
pub(crate) struct Places<'a> {
    text: &'a str,
    info: SourceInfo,
}

impl Places<'_> {
    /// Returns the place of the node with this id: its first token, or the operator.
    pub(crate) fn of(&self, node: &IdedExpr) -> Range<usize> {
        // The parser counts bytes.
        let start = self.info.offset_for(node.id).map_or(0, |(start, _)| start as usize);
        word(self.text, start)
    }

    /// Returns the place of a member behind the variable at `variable`.
    pub(crate) fn of_member(&self, variable: &Range<usize>, member: &str) -> Range<usize> {
        let rest = self.text.get(variable.end..).unwrap_or_default();
        match rest.find(member) {
            Some(at) => variable.end + at..variable.end + at + member.len(),
            None => variable.clone(),
        }
    }

    /// Returns the range of the whole text.
    pub(crate) fn whole(&self) -> Range<usize> {
        0..self.text.len()
    }
}
