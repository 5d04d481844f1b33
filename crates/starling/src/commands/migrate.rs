//! The command `starling migrate`: converts the configuration of another router.

use std::fs::Permissions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use config::diagnostic::Diagnostic;
use migrate::{Finding, Migration, Router, summary};
use serde_json::{Value, json};

use super::output_file;

/// The path that names standard input and output, as in other tools.
const STANDARD_STREAM: &str = "-";

/// The maximum size of a configuration, a hundred times more than any file written by hand.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Converts the configuration of another router, and reports what became of each key.
#[derive(clap::Args)]
#[command(after_help = "\
The configuration is printed to standard output, or written to the file of --output. The report goes to standard error: \
one line for each key of the source, with its line there. Comments in the configuration repeat what needs attention.\n\n\
Examples:\n  \
starling migrate --from apollo router.yaml --output starling.yaml\n  \
starling check --config starling.yaml")]
pub(crate) struct MigrateArguments {
    /// The router that the configuration is for.
    #[arg(long, value_name = "ROUTER")]
    from: Source,
    /// The configuration of that router (YAML). `-` reads it from standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The file for the configuration of Starling, which must not exist. It gets the permissions of FILE. `-` is
    /// standard output.
    #[arg(short, long, value_name = "FILE", default_value = STANDARD_STREAM)]
    output: PathBuf,
    /// Replaces an existing file.
    #[arg(long)]
    force: bool,
    /// The format of the report.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: ReportFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Source {
    /// Apollo Router or GraphOS Router: router.yaml.
    Apollo,
    /// WunderGraph Cosmo Router: config.yaml.
    Cosmo,
    /// Hive Router: router.config.yaml.
    Hive,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// Lines of text, on standard error.
    Text,
    /// One JSON object on standard output, with the configuration unless `--output` names a file.
    Json,
}

pub(crate) fn run(arguments: &MigrateArguments) -> ExitCode {
    let router = match arguments.from {
        Source::Apollo => Router::Apollo,
        Source::Cosmo => Router::Cosmo,
        Source::Hive => Router::Hive,
    };
    let name = match arguments.file == Path::new(STANDARD_STREAM) {
        true => "standard input".to_owned(),
        false => arguments.file.display().to_string(),
    };
    let migration =
        read(&arguments.file, &name).map_err(|diagnostic| vec![*diagnostic]).and_then(|source| {
            Ok((migrate::migrate(router, &source.text, &name)?, source.permissions))
        });
    let (migration, permissions) = match migration {
        Ok(migration) => migration,
        Err(diagnostics) => {
            super::report(&diagnostics);
            return ExitCode::FAILURE;
        }
    };
    let output = Some(arguments.output.as_path()).filter(|it| *it != Path::new(STANDARD_STREAM));
    if let Some(output) = output
        && let Err(diagnostic) = write(output, &migration.yaml, permissions, arguments.force)
    {
        super::report(&[*diagnostic]);
        return ExitCode::FAILURE;
    }
    let is_printed = match arguments.format {
        ReportFormat::Json => {
            super::print_result(&format!("{:#}\n", as_json(&migration, output.is_none())))
        }
        ReportFormat::Text => {
            super::print_error(&as_text(&migration.findings, &name, output));
            output.is_some() || super::print_result(&migration.yaml)
        }
    };
    if is_printed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The configuration of the other router.
struct SourceFile {
    text: String,
    /// Those of a file, which the result gets as well: both may contain secrets. `None` for standard input.
    permissions: Option<Permissions>,
}

/// Reads the configuration of the other router.
fn read(file: &Path, name: &str) -> Result<SourceFile, Box<Diagnostic>> {
    use std::io::Read as _;
    let unreadable = |error: io::Error| {
        let message = format!("cannot read {name}: {error}");
        let help = "name the configuration of the other router, or `-` for standard input";
        Box::new(Diagnostic::error("unreadable-file", message).help(help))
    };
    let mut bytes = Vec::new();
    let mut permissions = None;
    // One byte more than allowed, to notice that there is more.
    let read = match file == Path::new(STANDARD_STREAM) {
        true => io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes),
        false => std::fs::File::open(file).and_then(|it| {
            let metadata = it.metadata()?;
            // A pipe has permissions that say nothing about its content.
            permissions = metadata.is_file().then(|| metadata.permissions());
            it.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)
        }),
    };
    read.map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("{name} is larger than 4 MiB");
        let help = "check that it is the configuration of a router";
        return Err(Box::new(Diagnostic::error("too-large", message).help(help)));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        let message = format!("{name} is not UTF-8 text");
        Box::new(Diagnostic::error("unreadable-file", message).help("save it as UTF-8"))
    })?;
    Ok(SourceFile { text, permissions })
}

fn write(
    file: &Path,
    text: &str,
    permissions: Option<Permissions>,
    replaces: bool,
) -> Result<(), Box<Diagnostic>> {
    let written = match replaces {
        true => output_file::replace(file, text, permissions),
        false => output_file::create(file, text, permissions),
    };
    written.map_err(|error| {
        let message = format!("cannot write {}: {error}", file.display());
        let help = match error.kind() {
            io::ErrorKind::AlreadyExists => {
                "name another file by `--output`, or replace it by `--force`"
            }
            _ => "name a file in a writable folder by `--output`",
        };
        Box::new(Diagnostic::error("unwritable-output", message).help(help))
    })
}

/// Formats one line for each finding, and the summary.
fn as_text(findings: &[Finding], name: &str, output: Option<&Path>) -> String {
    let mut text = String::new();
    for finding in findings {
        let separator = if finding.line.is_some() { ":" } else { ": " };
        text.push_str(&format!("{name}{separator}{finding}\n"));
    }
    text.push_str(&format!("{}\n", summary(findings)));
    if findings.iter().any(|it| it.outcome.needs_attention()) {
        text.push_str("docs/migration.md describes what was changed and what was not converted.\n");
    }
    if let Some(output) = output {
        let output = output.display();
        text.push_str(&format!(
            "wrote {output}; `starling check --config {output}` reports mistakes\n"
        ));
    }
    text
}

fn as_json(migration: &Migration, with_configuration: bool) -> Value {
    let findings = migration.findings.iter().map(|it| {
        json!({
            "outcome": it.outcome.as_str(),
            "line": it.line,
            "key": it.key,
            "to": it.to,
            "note": it.note,
        })
    });
    let mut report = json!({"findings": findings.collect::<Vec<_>>()});
    if with_configuration {
        report["configuration"] = json!(migration.yaml);
    }
    report
}
