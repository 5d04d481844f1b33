//! The first phase: SDL text to the syntax tree of `apollo-compiler`, which keeps positions. Syntax errors become
//! findings; the schema itself is not checked here.

use std::ops::Range;

use apollo_compiler::{ast, diagnostic::ToCliReport as _, parser::Parser, validation::WithErrors};

use crate::{code::Code, finding::Findings, input::SubgraphInput};

/// The maximum size of one subgraph schema: ten times the largest public ones.
pub const SDL_BYTES_MAX: usize = 64 << 20;

/// The maximum nesting depth of values, types and selections. Schemas written by people have about five levels.
pub(crate) const DEPTH_MAX: usize = 64;

/// The number of tokens of the first part of a long text: that of a schema with 10,000 fields.
const FIRST_TOKENS_MAX: usize = 100_000;

/// The growth of the part from one attempt to the next. All attempts together cost a seventh of the last.
const TOKENS_GROWTH: usize = 8;

/// Parses the schema of one subgraph. Returns `None` if it has syntax errors, which become findings.
pub(crate) fn parse(
    subgraph: usize,
    input: &SubgraphInput,
    findings: &mut Findings<'_>,
) -> Option<ast::Document> {
    if input.sdl.len() > SDL_BYTES_MAX {
        let message = format!("the schema is larger than {} MiB", SDL_BYTES_MAX >> 20);
        findings.error(Code::INVALID_GRAPHQL, [(subgraph, None)], message, "");
        return None;
    }
    let document = match parse_text(&input.sdl, &input.file) {
        Ok(document) => document,
        Err(failed) => {
            let mut reported_line = 0..0;
            for diagnostic in failed.errors.iter() {
                let message = diagnostic.error.to_string();
                if is_token_limit(&message) {
                    continue;
                }
                // Further errors of a line are nearly always consequences of its first one.
                if let Some(location) = diagnostic.error.location() {
                    if reported_line.contains(&location.offset()) {
                        continue;
                    }
                    reported_line = line_around(&input.sdl, location.offset());
                }
                let message = message.strip_prefix("syntax error: ").unwrap_or(&message);
                let message = name_tokens(message);
                findings.error(
                    Code::INVALID_GRAPHQL,
                    [(subgraph, diagnostic.error.location())],
                    format!("the text is not GraphQL: {message}"),
                    "correct the syntax; the rest of the schema is checked afterwards",
                );
            }
            return None;
        }
    };
    let mut is_schema = true;
    for definition in document.definitions.iter().filter(|it| it.is_executable_definition()) {
        is_schema = false;
        findings.error(
            Code::INVALID_GRAPHQL,
            [(subgraph, definition.location())],
            "the schema contains an operation or a fragment",
            "a subgraph schema consists of definitions of types and directives only",
        );
    }
    is_schema.then_some(document)
}

/// Parses SDL. `file` is its name in the errors.
///
/// Every wrong token of a text costs an error of about a kilobyte, so a long text is parsed in part first: if the part
/// has errors, they are the result.
pub(crate) fn parse_text(
    sdl: &str,
    file: &str,
) -> Result<ast::Document, WithErrors<ast::Document>> {
    let mut tokens = FIRST_TOKENS_MAX;
    // A token has at least one byte.
    while tokens < sdl.len() {
        let mut parser = Parser::new().recursion_limit(DEPTH_MAX).token_limit(tokens);
        let parsed = parser.parse_ast(sdl, file);
        if parser.tokens_reached() <= tokens {
            return parsed;
        }
        if let Err(failed) = parsed
            && failed.errors.iter().any(|it| !is_token_limit(&it.error.to_string()))
        {
            return Err(failed);
        }
        tokens *= TOKENS_GROWTH;
    }
    Parser::new().recursion_limit(DEPTH_MAX).parse_ast(sdl, file)
}

/// Returns the bytes of the line that contains an offset, with its line break.
fn line_around(text: &str, offset: usize) -> Range<usize> {
    let bytes = text.as_bytes();
    let offset = offset.min(bytes.len());
    let is_break = |byte: &u8| *byte == b'\n';
    let start = bytes[..offset].iter().rposition(is_break).map_or(0, |it| it + 1);
    let end = bytes[offset..].iter().position(is_break).map_or(bytes.len(), |it| offset + it);
    // An error at the end of the text belongs to the last line.
    start..end + 1
}

/// True for the error at the end of a part of a text.
fn is_token_limit(message: &str) -> bool {
    message.contains("token limit reached")
}

/// Replaces the parser's names of tokens with the tokens.
fn name_tokens(message: &str) -> String {
    let names = [
        ("L_CURLY", "`{`"),
        ("R_CURLY", "`}`"),
        ("L_PAREN", "`(`"),
        ("R_PAREN", "`)`"),
        ("L_BRACK", "`[`"),
        ("R_BRACK", "`]`"),
        ("COLON", "`:`"),
    ];
    names.iter().fold(message.to_owned(), |text, (name, token)| text.replace(name, token))
}
