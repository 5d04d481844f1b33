//! Runs other programs to their end and shows their output: cargo, node, npm, apt-get. A program that must run beside a
//! test is a [`ChildProcess`](crate::ChildProcess).
#![allow(clippy::print_stdout, reason = "developers follow the progress of their command")]

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};

/// The reason for which a command failed, as a message for its user.
pub type Failure = String;

/// Returns a command for the cargo that runs this program.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.stdin(Stdio::null());
    cargo
}

/// Prints the command, then runs it to its end with the standard streams of this process.
///
/// # Errors
/// The command cannot be started or fails.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    print_command(command);
    let status =
        command.stdin(Stdio::null()).status().map_err(|error| start_error(command, &error))?;
    check_status(command, status)
}

/// Runs `command`, copies its standard output to that of this process and passes each line to `on_line`. A status
/// other than 0 is not a failure here: the caller has seen the lines and decides.
///
/// # Errors
/// The command cannot be started or read.
pub fn run_with_lines(
    command: &mut Command,
    mut on_line: impl FnMut(&str),
) -> Result<ExitStatus, Failure> {
    print_command(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| start_error(command, &error))?;
    if let Some(output) = child.stdout.take() {
        let mut lines = BufReader::new(output);
        let mut line = Vec::new();
        loop {
            line.clear();
            let length =
                lines.read_until(b'\n', &mut line).map_err(|error| start_error(command, &error))?;
            if length == 0 {
                break;
            }
            // A closed standard output (`| head`) must not end the run halfway.
            let _ = std::io::stdout().write_all(&line);
            on_line(String::from_utf8_lossy(&line).trim_end());
        }
    }
    child.wait().map_err(|error| start_error(command, &error))
}

/// Runs `command` without printing it and returns its standard output; its standard error is that of this process.
///
/// # Errors
/// The command cannot be started or fails.
pub fn read_output(command: &mut Command) -> Result<String, Failure> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| start_error(command, &error))?;
    let mut text = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut text).map_err(|error| start_error(command, &error))?;
    }
    let status = child.wait().map_err(|error| start_error(command, &error))?;
    check_status(command, status)?;
    Ok(text)
}

/// Returns the target triple of this machine.
///
/// # Errors
/// `rustc` cannot be run.
pub fn host_triple() -> Result<String, Failure> {
    let version = read_output(Command::new("rustc").arg("-vV"))?;
    version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| "`rustc -vV` names no host".to_owned())
}

fn print_command(command: &Command) {
    println!("$ {}", command_line(command));
}

fn start_error(command: &Command, error: &std::io::Error) -> Failure {
    format!("cannot run `{}`: {error}", command_line(command))
}

fn check_status(command: &Command, status: ExitStatus) -> Result<(), Failure> {
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` failed ({status})", command_line(command)))
    }
}

fn command_line(command: &Command) -> String {
    let mut words = vec![program_name(command)];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Returns the file name of the program: `cargo` instead of the path that rustup set.
fn program_name(command: &Command) -> String {
    let program = OsString::from(command.get_program());
    let path = std::path::Path::new(&program);
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
