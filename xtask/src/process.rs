//! Running other programs: cargo, node, npm, apt-get.

use crate::Failure;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};

/// The cargo that runs xtask.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.stdin(Stdio::null());
    cargo
}

/// Says what runs, runs it to the end with our own output.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    announce(command);
    let status = command.stdin(Stdio::null()).status().map_err(|error| cannot(command, &error))?;
    succeeded(command, status)
}

/// Runs `command`, passes its standard output on and shows each line of it to `look`.
/// A status other than 0 is not a failure here: the caller has seen the lines and judges.
pub(crate) fn watch(
    command: &mut Command,
    mut look: impl FnMut(&str),
) -> Result<ExitStatus, Failure> {
    announce(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| cannot(command, &error))?;
    if let Some(output) = child.stdout.take() {
        let mut lines = BufReader::new(output);
        let mut line = Vec::new();
        loop {
            line.clear();
            let length =
                lines.read_until(b'\n', &mut line).map_err(|error| cannot(command, &error))?;
            if length == 0 {
                break;
            }
            // A reader that went away (`| head`) must not end the run half way.
            let _ = std::io::stdout().write_all(&line);
            look(String::from_utf8_lossy(&line).trim_end());
        }
    }
    child.wait().map_err(|error| cannot(command, &error))
}

/// Runs `command` quietly and answers with its standard output; its complaints go to ours.
pub(crate) fn read(command: &mut Command) -> Result<String, Failure> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| cannot(command, &error))?;
    let mut text = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut text).map_err(|error| cannot(command, &error))?;
    }
    let status = child.wait().map_err(|error| cannot(command, &error))?;
    succeeded(command, status)?;
    Ok(text)
}

/// The target that this machine is.
pub(crate) fn host_triple() -> Result<String, Failure> {
    let version = read(Command::new("rustc").arg("-vV"))?;
    version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| "`rustc -vV` names no host".to_owned())
}

fn announce(command: &Command) {
    println!("$ {}", line(command));
}

fn cannot(command: &Command, error: &std::io::Error) -> Failure {
    format!("cannot run `{}`: {error}", line(command))
}

fn succeeded(command: &Command, status: ExitStatus) -> Result<(), Failure> {
    if status.success() { Ok(()) } else { Err(format!("`{}` failed ({status})", line(command))) }
}

fn line(command: &Command) -> String {
    let mut words = vec![program_name(command)];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// The name without its folder: `cargo`, not the path that rustup gave it.
fn program_name(command: &Command) -> String {
    let program = OsString::from(command.get_program());
    let path = std::path::Path::new(&program);
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
