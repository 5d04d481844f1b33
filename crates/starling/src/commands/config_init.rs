//! The command `starling config init`: writes the annotated example of the configuration.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use config::diagnostic::Diagnostic;

/// The example, with every section of the configuration: the only one, which the repository shows too.
const EXAMPLE: &str = include_str!("../../../../examples/starling.yaml");

/// The sections that a first start needs. The others change something, or name servers of the example's company.
const FIRST_SECTIONS: [&str; 4] = ["listen", "path", "admin", "supergraph"];

/// Commands about the configuration file.
#[derive(clap::Args)]
pub(crate) struct ConfigArguments {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Writes an example of the configuration that explains every section.
    Init(InitArguments),
}

/// Writes an example of the configuration that explains every section. The sections that a first start does not need
/// are commented out: lines that begin with `#` and no space, or with more than one.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:\n  \
starling config init                      writes starling.yaml\n  \
starling config init --output -           prints it\n  \
starling check --config starling.yaml     reports mistakes")]
struct InitArguments {
    /// The file, which must not exist; `-` is standard output.
    #[arg(long, value_name = "FILE", default_value = "starling.yaml")]
    output: PathBuf,
    /// Replaces an existing file.
    #[arg(long)]
    force: bool,
    /// Comments nothing out: every section with values of an example, as in `examples/starling.yaml`.
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(arguments: &ConfigArguments) -> ExitCode {
    match &arguments.command {
        ConfigCommand::Init(arguments) => init(arguments),
    }
}

fn init(arguments: &InitArguments) -> ExitCode {
    let text = match arguments.all {
        true => EXAMPLE.to_owned(),
        false => comment_out(EXAMPLE),
    };
    let file = arguments.output.as_path();
    if file == Path::new("-") {
        return if super::print_result(&text) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let written = match arguments.force {
        true => super::output_file::replace(file, &text, None),
        false => super::output_file::create(file, &text, None),
    };
    let Err(error) = written else {
        let name = file.display();
        super::print(&format!("wrote {name}; `starling check --config {name}` reports mistakes\n"));
        return ExitCode::SUCCESS;
    };
    let message = format!("cannot write {}: {error}", file.display());
    let help = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            "name another file by `--output`, or replace it by `--force`"
        }
        _ => "name a file in a writable folder by `--output`",
    };
    super::report(&[Diagnostic::error("unwritable-output", message).help(help)]);
    ExitCode::FAILURE
}

/// Comments out the lines of all sections but [`FIRST_SECTIONS`]. Comments and empty lines stay.
fn comment_out(example: &str) -> String {
    let mut text = String::with_capacity(example.len() + example.len() / 16);
    let mut is_kept = true;
    for line in example.lines() {
        if line.starts_with(char::is_alphabetic) {
            let name = line.split(':').next().unwrap_or_default();
            is_kept = FIRST_SECTIONS.contains(&name);
        }
        let mark = if is_kept || line.is_empty() || line.starts_with('#') { "" } else { "#" };
        let _ = writeln!(text, "{mark}{line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> config::LoadedConfig {
        let env = |_: &str| None;
        let overrides = config::Overrides::default();
        config::parse(text, "starling.yaml", Path::new(""), &overrides, &env).unwrap()
    }

    #[test]
    fn the_file_is_that_of_the_default_settings_until_sections_are_uncommented() {
        let loaded = parse(&comment_out(EXAMPLE));
        assert!(loaded.warnings.is_empty());
        let supergraph = loaded.config.supergraph.clone();
        let mut expected = config::Config { supergraph, ..config::Config::default() };
        expected.admin.allowed_hosts = vec!["starling.internal".to_owned()];
        assert_eq!(loaded.config, expected);
    }

    #[test]
    fn every_line_of_the_example_is_there_as_it_is_or_commented_out() {
        let text = comment_out(EXAMPLE);
        let mut commented = 0;
        for (line, original) in text.lines().zip(EXAMPLE.lines()) {
            if line != original {
                assert_eq!(line, format!("#{original}"));
                // Such a line does not look like a sentence.
                assert!(!line.starts_with("# ") || line.starts_with("#  "), "{line}");
                commented += 1;
            }
        }
        assert_eq!(text.lines().count(), EXAMPLE.lines().count());
        assert!(commented > 100, "{commented}");
    }
}
