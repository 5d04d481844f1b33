//! The first phase: SDL text to the syntax tree of `apollo-compiler`, which keeps positions. Syntax errors become
//! findings; the schema itself is not checked here.

use apollo_compiler::{ast, diagnostic::ToCliReport as _, parser::Parser, validation::WithErrors};

use crate::{code::Code, finding::Findings, input::SubgraphInput};

/// The maximum size of one subgraph schema: ten times the largest public ones.
pub const SDL_BYTES_MAX: usize = 64 << 20;

/// The maximum nesting depth of values, types and selections. Schemas written by people have about five levels.
pub(crate) const DEPTH_MAX: usize = 64;

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
            for diagnostic in failed.errors.iter() {
                let message = diagnostic.error.to_string();
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
pub(crate) fn parse_text(
    sdl: &str,
    file: &str,
) -> Result<ast::Document, WithErrors<ast::Document>> {
    Parser::new().recursion_limit(DEPTH_MAX).parse_ast(sdl, file)
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
