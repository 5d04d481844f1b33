//! The commands `starling completions` and `starling man`: files for shells and `man`, made of the definition of the
//! command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use config::diagnostic::Diagnostic;

/// Prints the completions of a shell: names of commands, options and values.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:\n  \
starling completions bash > /usr/share/bash-completion/completions/starling\n  \
starling completions zsh > /usr/share/zsh/site-functions/_starling\n  \
starling completions fish > ~/.config/fish/completions/starling.fish\n  \
source <(starling completions bash)     for this shell only")]
pub(crate) struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

/// Writes a man page for each command, for packages.
#[derive(clap::Args)]
pub(crate) struct ManArguments {
    /// The folder of the pages, such as `/usr/share/man/man1`.
    #[arg(long, value_name = "FOLDER")]
    output: PathBuf,
}

pub(crate) fn run(arguments: &CompletionsArguments, mut command: Command) -> ExitCode {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    match super::print_result(&String::from_utf8_lossy(&script)) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

pub(crate) fn run_man(arguments: &ManArguments, command: Command) -> ExitCode {
    // The pages of a version are equal for all of its builds.
    let command = command.long_version(None);
    match clap_mangen::generate_to(command, &arguments.output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let folder = arguments.output.display();
            let message = format!("cannot write man pages to {folder}: {error}");
            let help = "name a folder that exists and is writable by `--output`";
            super::report(&[Diagnostic::error("unwritable-output", message).help(help)]);
            ExitCode::FAILURE
        }
    }
}
