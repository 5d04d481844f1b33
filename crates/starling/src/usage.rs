//! Advice about wrong command lines: files given without or under the wrong option, and addresses.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use composition_input::CompositionConfig;
use config::diagnostic::Diagnostic;
use config::parse_address;

/// The extensions of configuration files. JSON is a subset of YAML.
pub(crate) const CONFIGURATION_EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Extensions of GraphQL files.
const GRAPHQL_EXTENSIONS: [&str; 4] = ["graphql", "graphqls", "gql", "sdl"];

/// Parses an address to listen on. The error contains correct examples.
///
/// # Errors
/// The text is not of the form `IP:PORT`.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    parse_address(text).map_err(|error| {
        format!(
            "{error}; write 127.0.0.1:4000 for this machine only, 0.0.0.0:4000 for all interfaces"
        )
    })
}

/// Adds a tip to an error of the command line if it recognises a common mistake.
pub(crate) fn add_advice(mut error: clap::Error) -> clap::Error {
    let advice = match error.kind() {
        ErrorKind::UnknownArgument => match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(word)) => find_file_option(Path::new(word))
                .map(|option| format!("files are given by an option, such as '{option} {word}'")),
            _ => None,
        },
        ErrorKind::MissingRequiredArgument => {
            let missing = error.get(ContextKind::InvalidArg).map(ToString::to_string);
            let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
            missing.filter(|missing| missing.contains("--config")).map(|_| {
                if usage.contains("starling compose") {
                    return "docs/composition.md describes the file that names the subgraphs".to_owned();
                }
                "'starling config-schema' and docs/configuration.md describe the configuration file; \
                 'starling demo' needs no files"
                    .to_owned()
            })
        }
        _ => None,
    };
    // Suggestions of the parser itself are better than these.
    let has_suggestion = error
        .context()
        .any(|(kind, _)| matches!(kind, ContextKind::Suggested | ContextKind::SuggestedArg));
    if let Some(advice) = advice.filter(|_| !has_suggestion) {
        let advice = ContextValue::StyledStrs(vec![StyledStr::from(advice)]);
        error.insert(ContextKind::Suggested, advice);
    }
    error
}

/// Returns the option for a file, by its extension.
fn find_file_option(file: &Path) -> Option<&'static str> {
    if has_extension(file, &CONFIGURATION_EXTENSIONS) {
        Some("--config")
    } else if has_extension(file, &GRAPHQL_EXTENSIONS) {
        Some("--supergraph")
    } else {
        None
    }
}

/// True if the name of the file ends with one of the extensions, in any case.
pub(crate) fn has_extension(file: &Path, extensions: &[&str]) -> bool {
    let extension = file.extension().and_then(OsStr::to_str).unwrap_or_default();
    extensions.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Rejects files that were given under each other's option: their syntax errors would be puzzling.
///
/// # Errors
/// The configuration has the extension of a GraphQL file, or the supergraph that of a YAML file.
pub(crate) fn check_file_kinds(
    config: Option<&Path>,
    supergraph: Option<&Path>,
) -> Result<(), Box<Diagnostic>> {
    let exchanged = |file: &Path, is: &str, takes: &str, option: &str| {
        let file = file.display();
        let message = format!("{file} is a {is} file by its name, and {takes}");
        Box::new(
            Diagnostic::error("exchanged-files", message).help(format!("write {option} {file}")),
        )
    };
    if let Some(file) = config.filter(|file| has_extension(file, &GRAPHQL_EXTENSIONS)) {
        return Err(exchanged(file, "GraphQL", "--config takes YAML", "--supergraph"));
    }
    // JSON is left to the reader of supergraphs, because other routers store their graph in it.
    if let Some(file) = supergraph.filter(|file| has_extension(file, &["yaml", "yml"])) {
        return Err(exchanged(file, "YAML", "--supergraph takes GraphQL", "--config"));
    }
    Ok(())
}

/// Returns the problems of a configuration of the router. If the file is a composition configuration, with or without
/// mistakes, one message replaces them, because messages about unknown keys would be puzzling.
pub(crate) fn recognize_composition(
    config: Option<&Path>,
    problems: Vec<Diagnostic>,
) -> Vec<Diagnostic> {
    let Some(file) = config.filter(|file| CompositionConfig::is_in_file(file)) else {
        return problems;
    };
    let file = file.display();
    let message =
        format!("{file} is a composition configuration, and --config takes that of the router");
    let help = format!(
        "write `supergraph: {{compose: {file}}}` in the configuration of the router; or `starling dev --config {file}`"
    );
    vec![Diagnostic::error("exchanged-files", message).help(help)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_address_is_refused_with_a_correct_example() {
        assert_eq!(parse_listen("localhost:7").map_err(drop), Ok(([127, 0, 0, 1], 7).into()));
        for text in ["", "4000", "localhost", "example.com:80", "http://127.0.0.1:4000"] {
            let error = parse_listen(text).expect_err(text);
            assert!(
                error.ends_with(
                    "; write 127.0.0.1:4000 for this machine only, 0.0.0.0:4000 for all interfaces"
                ),
                "{error}"
            );
        }
    }

    #[test]
    fn files_under_each_others_options_are_refused_by_name() {
        let check = |config: Option<&str>, supergraph: Option<&str>| {
            check_file_kinds(config.map(Path::new), supergraph.map(Path::new))
                .map_err(|diagnostic| diagnostic.help.unwrap_or_default())
        };
        let wrong = |help: &str| Err(help.to_owned());
        assert_eq!(check(Some("a/s.GraphQL"), None), wrong("write --supergraph a/s.GraphQL"));
        assert_eq!(check(None, Some("s.yml")), wrong("write --config s.yml"));
        // Names without a known extension, and JSON, which both readers accept.
        for (config, supergraph) in [
            (Some("starling.yaml"), Some("supergraph.graphql")),
            (Some("starling.json"), Some("router.json")),
            (Some("/dev/fd/63"), Some("supergraph")),
            (None, None),
        ] {
            assert_eq!(check(config, supergraph), Ok(()));
        }
    }
}
