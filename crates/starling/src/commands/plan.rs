//! The command `starling plan`: prints how an operation would be executed, without executing it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::ValueEnum;
use config::Config;
use config::diagnostic::{Diagnostic, SourceText, Span};
use cost::CostSettings;
use graph::{OverrideLabels, Supergraph};
use prepare::{PrepareError, PrepareSettings, Preparer, Problem};

/// Prints the subgraph requests of an operation, in their order, without sending them.
#[derive(clap::Args)]
pub(crate) struct PlanArguments {
    /// The supergraph file (SDL).
    #[arg(long, value_name = "FILE")]
    supergraph: PathBuf,
    /// The file with the operation (GraphQL).
    #[arg(long, value_name = "FILE")]
    operation: PathBuf,
    /// The name of the operation; required if the file has several.
    #[arg(long, value_name = "NAME")]
    operation_name: Option<String>,
    /// A label of progressive overrides that is active; may be given several times. All others are inactive.
    #[arg(long, value_name = "LABEL")]
    override_label: Vec<String>,
    /// Also prints the estimated cost of the operation, with lists of 10 elements where no `@listSize` says otherwise.
    /// With the format `text` only.
    #[arg(long)]
    cost: bool,
    /// The variables of the operation for the estimated cost, as a JSON object.
    #[arg(long, value_name = "JSON", requires = "cost")]
    variables: Option<String>,
    /// The output format.
    #[arg(long, value_enum, default_value_t = PlanFormat::Text)]
    format: PlanFormat,
}

#[derive(Clone, Copy, ValueEnum)]
enum PlanFormat {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
    /// A Mermaid flowchart.
    Mermaid,
}

pub(crate) fn run(arguments: &PlanArguments) -> ExitCode {
    match print_plan(arguments) {
        Ok(text) => {
            super::print(&text);
            ExitCode::SUCCESS
        }
        Err(diagnostics) => {
            super::report(&diagnostics);
            ExitCode::FAILURE
        }
    }
}

fn print_plan(arguments: &PlanArguments) -> Result<String, Vec<Diagnostic>> {
    let source = server::read_supergraph_file(&arguments.supergraph);
    let source = Arc::new(source.map_err(|error| vec![*error])?);
    let graph = Arc::new(server::read_graph(&Config::default(), &source)?);
    let operation = read_operation(&arguments.operation)?;
    let cost = arguments.cost.then(|| CostSettings {
        list_size: config::Cost::default().list_size.into(),
        subgraph_list_sizes: Vec::new(),
        stats: Arc::default(),
    });
    let settings = PrepareSettings { cost, live_queries: true, ..PrepareSettings::default() };
    let preparer = Preparer::new(Arc::clone(&graph), 0, settings);
    let name = arguments.operation_name.as_deref();
    let labels = parse_labels(&graph, &arguments.override_label)?;
    let prepared = preparer
        .prepare_now_with(operation.text.as_bytes(), name, labels)
        .map_err(|error| to_diagnostics(&error, &operation))?;
    Ok(match arguments.format {
        PlanFormat::Text => {
            let mut text = prepared.plan.to_text(&graph);
            if let Some(cost) = &prepared.cost {
                let variables = arguments.variables.clone().unwrap_or_default();
                let variables = prepared
                    .coerce(&variables.into())
                    .map_err(|error| to_diagnostics(&error, &operation))?;
                let estimate = cost.estimate(&variables);
                text.push_str(&format!("\nEstimated cost: {}\n", estimate.total));
            }
            text
        }
        PlanFormat::Json => prepared.plan.to_json(&graph),
        PlanFormat::Mermaid => prepared.plan.to_mermaid(&graph),
    })
}

fn parse_labels(graph: &Supergraph, names: &[String]) -> Result<OverrideLabels, Vec<Diagnostic>> {
    let mut labels = OverrideLabels::NONE;
    for name in names {
        match graph.override_labels.iter().position(|known| **known == **name) {
            Some(label) => labels.insert(label),
            None => {
                let message = format!("no @override of the supergraph has the label `{name}`");
                return Err(vec![Diagnostic::error("override-label", message)]);
            }
        }
    }
    Ok(labels)
}

fn read_operation(path: &Path) -> Result<Arc<SourceText>, Vec<Diagnostic>> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Arc::new(SourceText { name, text })),
        Err(error) => Err(vec![
            Diagnostic::error("operation", format!("cannot read the operation {name}: {error}"))
                .help("check the path given by --operation"),
        ]),
    }
}

fn to_diagnostics(error: &PrepareError, source: &Arc<SourceText>) -> Vec<Diagnostic> {
    match error {
        PrepareError::Syntax(problems) => locate_problems("syntax", problems, source),
        PrepareError::Validation(problems) => locate_problems("validation", problems, source),
        other => vec![Diagnostic::error("operation", other.to_string()).in_source(source)],
    }
}

fn locate_problems(
    code: &'static str,
    problems: &[Problem],
    source: &Arc<SourceText>,
) -> Vec<Diagnostic> {
    let diagnostic = |problem: &Problem| {
        let diagnostic = Diagnostic::error(code, problem.message.clone()).in_source(source);
        match problem.locations.first() {
            Some(&(line, column)) => {
                let span = Span::of_line_column(&source.text, line as usize, column as usize);
                diagnostic.at(span, "")
            }
            None => diagnostic,
        }
    };
    problems.iter().map(diagnostic).collect()
}
