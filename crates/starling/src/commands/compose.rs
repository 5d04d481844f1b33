//! The command `starling compose`: makes one supergraph of the schemas of several subgraphs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use compose::{Coloring, Composition, ContractFilter};
use composition_input::CompositionConfig;
use config::diagnostic::{self, Diagnostic, Severity, Style};
use serde_json::{Value, json};

use super::output_file;

/// The time after which the command says that it waits for servers.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);

/// The path that names standard input and output, as in other tools.
const STANDARD_STREAM: &str = "-";

/// Composes subgraph schemas into a supergraph. Exits with status 1 if they do not fit together.
#[derive(clap::Args)]
#[command(after_help = "\
The configuration names the subgraphs, in either form that other tools use:\n\n  \
subgraphs:\n    \
products:\n      \
routing_url: http://products.internal/graphql\n      \
schema:\n        \
file: products.graphql            # or subgraph_url: URL, to ask the running subgraph\n\n\
Findings are printed to standard error, the supergraph to standard output. With --format json, standard output has \
one JSON object: outcome, errors, hints and, without --output, supergraph.\n\n\
Examples:\n  \
starling compose --config supergraph.yaml --output supergraph.graphql\n  \
starling serve --supergraph supergraph.graphql")]
pub(crate) struct ComposeArguments {
    /// The composition configuration (YAML): the names, URLs and schemas of the subgraphs. `-` reads it from standard
    /// input.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The file for the supergraph (SDL), which is replaced as a whole. It keeps its content if composition fails.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Makes a contract: clients see only fields and unions that have one of these tags (`@tag`), separated by commas,
    /// and the types that these lead to.
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    include_tags: Vec<String>,
    /// Makes a contract: clients do not see elements that have one of these tags, separated by commas.
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    exclude_tags: Vec<String>,
    /// The output format of the findings.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: ComposeFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ComposeFormat {
    /// Text, with excerpts of the schemas.
    Text,
    /// JSON for programs.
    Json,
}

/// The result of the command, before it is printed.
#[derive(Default)]
struct ComposeReport {
    /// The mistakes in the configuration and its files, and settings without effect.
    diagnostics: Vec<Diagnostic>,
    /// The result of composition; `None` if the schemas could not be loaded.
    composition: Option<Composition>,
    /// The number of subgraphs.
    subgraphs: usize,
    /// The files that were read.
    inputs: Vec<PathBuf>,
}

pub(crate) fn run(arguments: &ComposeArguments) -> ExitCode {
    let is_text = arguments.format == ComposeFormat::Text;
    let mut report = compose_files(arguments, is_text);
    let output = arguments.output.as_deref().filter(|it| *it != Path::new(STANDARD_STREAM));
    if let (Some(path), Some(sdl)) = (output, report.supergraph())
        && let Err((error, help)) = write_supergraph(path, sdl, &report.inputs)
    {
        let message = format!("cannot write the supergraph {}: {error}", path.display());
        report.diagnostics.push(Diagnostic::error("unwritable-file", message).help(help));
    }
    let is_printed = match arguments.format {
        ComposeFormat::Text => print_text(&report, output),
        ComposeFormat::Json => {
            super::print_result(&format!("{:#}\n", as_json(&report, output.is_none())))
        }
    };
    if report.has_failed() || !is_printed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Writes the supergraph, unless the path is that of an input: a slip must not cost a schema.
///
/// # Errors
/// The reason, and advice.
fn write_supergraph(
    path: &Path,
    sdl: &str,
    inputs: &[PathBuf],
) -> Result<(), (io::Error, &'static str)> {
    if let Ok(path) = path.canonicalize()
        && inputs.iter().any(|input| input.canonicalize().is_ok_and(|input| input == path))
    {
        let error = io::Error::other("it is an input of the composition");
        return Err((error, "give `--output` another path: it would be replaced"));
    }
    output_file::replace(path, sdl, None).map_err(|error| {
        let help = match error.kind() {
            io::ErrorKind::IsADirectory => "give `--output` the path of a file",
            io::ErrorKind::StorageFull => "free some space",
            _ => "give `--output` a path in a folder that exists and that this user may write to",
        };
        (error, help)
    })
}

/// Reads the configuration, loads the schemas and composes them.
fn compose_files(arguments: &ComposeArguments, shows_progress: bool) -> ComposeReport {
    let mut report = ComposeReport::default();
    let contract = match read_contract(arguments) {
        Ok(contract) => contract,
        Err(reason) => {
            report.diagnostics.push(Diagnostic::error("contract", reason));
            return report;
        }
    };
    let config = match read_config(&arguments.config) {
        Ok(config) => config,
        Err(diagnostics) => return ComposeReport { diagnostics, ..report },
    };
    report.subgraphs = config.subgraphs.len();
    report.inputs = config.schema_files().chain([&*arguments.config]).map(Path::to_owned).collect();
    report.diagnostics.clone_from(&config.warnings);
    let runtime = match super::control_runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("cannot start threads: {error}");
            report.diagnostics.push(Diagnostic::error("threads", message));
            return report;
        }
    };
    let loaded = runtime.block_on(async {
        let loading = composition_input::load(&config);
        tokio::pin!(loading);
        tokio::select! {
            biased;
            loaded = &mut loading => return loaded,
            () = tokio::time::sleep(PROGRESS_DELAY) => {}
        }
        if shows_progress {
            super::print_error("waiting for the schemas of the subgraphs…\n");
        }
        loading.await
    });
    match loaded {
        Ok(inputs) => match &contract {
            None => report.composition = Some(compose::compose(&inputs)),
            Some(filter) => {
                let (composition, unknown) = compose::compose_contract(&inputs, filter);
                report.composition = Some(composition);
                report.diagnostics.extend(unknown.iter().map(|tag| warn_of_tag(tag)));
            }
        },
        Err(errors) => report.diagnostics.extend(errors.into_iter().map(|it| *it.diagnostic)),
    }
    report
}

/// Reads the configuration from a file, or from standard input. Schema files are then relative to the working
/// directory.
fn read_config(path: &Path) -> Result<CompositionConfig, Vec<Diagnostic>> {
    if path != Path::new(STANDARD_STREAM) {
        return CompositionConfig::read(path);
    }
    let text = io::read_to_string(io::stdin()).map_err(|error| {
        let message = format!("cannot read the composition configuration: {error}");
        vec![Diagnostic::error("unreadable-file", message).help("give it by `--config FILE`")]
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    CompositionConfig::parse(text, Path::new("standard input"))
}

/// Returns the tags of the contract, if there are any.
fn read_contract(arguments: &ComposeArguments) -> Result<Option<ContractFilter>, String> {
    let (include, exclude) = (&arguments.include_tags, &arguments.exclude_tags);
    if include.is_empty() && exclude.is_empty() {
        return Ok(None);
    }
    ContractFilter::new(include.iter().cloned(), exclude.iter().cloned()).map(Some)
}

fn warn_of_tag(tag: &str) -> Diagnostic {
    let message = format!("no element of the graph has the tag `{tag}` of the contract");
    Diagnostic::warning("unknown-tag", message)
        .help("check the spelling: an excluded tag without elements hides nothing")
}

impl ComposeReport {
    fn supergraph(&self) -> Option<&str> {
        match &self.composition {
            Some(Composition::Success { supergraph_sdl, .. }) => Some(supergraph_sdl),
            _ => None,
        }
    }

    fn has_failed(&self) -> bool {
        self.supergraph().is_none()
            || self.diagnostics.iter().any(|it| it.severity == Severity::Error)
    }
}

/// Prints the findings, and the supergraph if there is no `output`. False if the supergraph cannot be written.
fn print_text(report: &ComposeReport, output: Option<&Path>) -> bool {
    let style = Style::for_stream(&io::stderr());
    let coloring = match style {
        Style::Plain => Coloring::Plain,
        Style::Colored => Coloring::Ansi,
    };
    let subgraphs = super::count_of(report.subgraphs, "subgraph");
    let mut blocks = vec![diagnostic::render(&report.diagnostics, style)];
    match &report.composition {
        None => {}
        Some(Composition::Failure { errors, hints }) => {
            blocks.push(compose::render(hints, coloring));
            blocks.push(compose::render(errors, coloring));
            blocks.push(format!(
                "{subgraphs} cannot be composed: {}\n",
                super::count_of(errors.len(), "error")
            ));
        }
        Some(Composition::Success { hints, .. }) => {
            blocks.push(compose::render(hints, coloring));
            if let Some(path) = output.filter(|_| !report.has_failed()) {
                let with_hints = match hints.len() {
                    0 => String::new(),
                    hints => format!(" with {}", super::count_of(hints, "hint")),
                };
                blocks.push(format!("composed {subgraphs} into {}{with_hints}\n", path.display()));
            }
        }
    }
    blocks.retain(|block| !block.is_empty());
    super::print_error(&blocks.join("\n"));
    output.is_some() || super::print_result(report.supergraph().unwrap_or_default())
}

fn as_json(report: &ComposeReport, with_supergraph: bool) -> Value {
    let mut result = match &report.composition {
        Some(Composition::Success { hints, .. }) => compose::json(&[], hints),
        Some(Composition::Failure { errors, hints }) => compose::json(errors, hints),
        None => compose::json(&[], &[]),
    };
    for diagnostic in &report.diagnostics {
        let list = if diagnostic.severity == Severity::Error { "errors" } else { "hints" };
        if let Some(list) = result[list].as_array_mut() {
            list.push(diagnostic_json(diagnostic));
        }
    }
    if report.has_failed() {
        result["outcome"] = json!("failure");
    } else if with_supergraph {
        result["supergraph"] = json!(report.supergraph());
    }
    result
}

/// Returns a message about a file in the form of [`compose::finding_json`]. It belongs to no subgraph.
fn diagnostic_json(diagnostic: &Diagnostic) -> Value {
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let place = diagnostic.source.as_ref().map(|source| {
        let position = diagnostic.span.as_ref();
        json!({
            "subgraph": null,
            "file": source.name,
            "line": position.map(|it| it.line),
            "column": position.map(|it| it.column),
        })
    });
    json!({
        "code": diagnostic.code,
        "severity": severity,
        "message": diagnostic.message,
        "advice": diagnostic.help.as_deref().unwrap_or_default(),
        "places": place.into_iter().collect::<Vec<_>>(),
    })
}
