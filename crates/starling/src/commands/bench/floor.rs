//! `starling bench floor`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use load::floor::Floor;

/// Answers every request with the same file.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The body of every answer.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Where to listen; port 0 takes a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4991",
          value_parser = server::config::parse_address)]
    listen: SocketAddr,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let path = arguments.file.display();
    let body =
        std::fs::read(&arguments.file).map_err(|error| format!("cannot read {path}: {error}"))?;
    let bound = Floor::bind(arguments.listen, &body)
        .and_then(|floor| floor.address().map(|address| (floor, address)));
    let (floor, address) =
        bound.map_err(|error| format!("cannot listen at {}: {error}", arguments.listen))?;
    crate::commands::print(&format!("http://{address}/\n"));
    floor.serve().map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}
