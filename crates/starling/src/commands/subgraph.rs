//! The command `starling subgraph introspect`: asks a running subgraph for its schema.

use std::process::ExitCode;

use clap::Subcommand;
use composition_input::Secret;
use config::diagnostic::Diagnostic;

/// Commands about one subgraph.
#[derive(clap::Args)]
pub(crate) struct SubgraphArguments {
    #[command(subcommand)]
    command: SubgraphCommand,
}

#[derive(Subcommand)]
enum SubgraphCommand {
    /// Prints the schema (SDL) of a running subgraph.
    Introspect(IntrospectArguments),
}

/// Prints the schema (SDL) of a running subgraph: that of `_service { sdl }`, or without this field one made from
/// GraphQL introspection, which contains no federation directives.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:\n  \
starling subgraph introspect http://127.0.0.1:4001/graphql > products.graphql\n  \
starling subgraph introspect https://products.internal/graphql --header \"authorization: Bearer $TOKEN\"")]
struct IntrospectArguments {
    /// The URL of the subgraph's GraphQL endpoint.
    #[arg(value_name = "URL")]
    url: String,
    /// A header of the request; may be given several times.
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
}

/// The exit code of a wrong command line, as of the parser of arguments.
const USAGE: u8 = 2;

pub(crate) fn run(arguments: &SubgraphArguments) -> ExitCode {
    match &arguments.command {
        SubgraphCommand::Introspect(arguments) => introspect(arguments),
    }
}

fn introspect(arguments: &IntrospectArguments) -> ExitCode {
    let headers: Option<Vec<_>> = arguments.header.iter().map(|it| parse_header(it)).collect();
    let Some(headers) = headers else {
        // The text may be a token and is not repeated.
        let message = "a value of `--header` has no name of a header";
        let help = "write name and value: `--header 'authorization: Bearer TOKEN'`";
        super::report(&[Diagnostic::error("header", message).help(help)]);
        return ExitCode::from(USAGE);
    };
    let runtime = match super::control_runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            super::print_error(&format!("cannot start threads: {error}\n"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(composition_input::introspect(&arguments.url, &headers, false)) {
        Ok(introspected) => {
            if introspected.is_plain {
                let message =
                    "this server has no `_service { sdl }`: its schema was made from introspection";
                let help =
                    "federation directives such as `@key` are not part of it; add them by hand";
                super::report(&[Diagnostic::warning("plain-introspection", message).help(help)]);
            }
            match super::print_result(&format!("{}\n", introspected.sdl.trim_end())) {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            let message = format!("the subgraph cannot be introspected: {error}");
            super::report(&[Diagnostic::error(error.code(), message).help(error.advice())]);
            ExitCode::FAILURE
        }
    }
}

/// Parses `name: value`.
fn parse_header(text: &str) -> Option<(String, Secret)> {
    let (name, value) = text.split_once(':')?;
    let name = name.trim();
    (!name.is_empty()).then(|| (name.to_owned(), Secret::new(value.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_a_name_and_a_value() {
        let parse =
            |text: &str| parse_header(text).map(|(name, value)| (name, value.expose().to_owned()));
        let header = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
        assert_eq!(parse("authorization: Bearer a:b"), header("authorization", "Bearer a:b"));
        assert_eq!(parse("x:"), header("x", ""));
        for text in ["hunter2", ": hunter2", ""] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
