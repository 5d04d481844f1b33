//! The command `starling bench floor`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use load::floor::Floor;
use load::floor::broadcast::BroadcastFloor;
use load::subscriptions::Destination;

/// Sends the same file as the response to every request, or sends every event to all subscribed clients.
#[derive(clap::Args)]
pub(crate) struct FloorArguments {
    /// The file with the body of every response.
    #[arg(long, value_name = "FILE", required_unless_present = "subscriptions")]
    file: Option<PathBuf>,
    /// Speaks graphql-transport-ws instead, just enough for `bench subscriptions`: each event is framed once and sent
    /// once to every client.
    #[arg(long, conflicts_with = "file")]
    subscriptions: bool,
    /// With --subscriptions: the source of events, as nats://HOST:PORT/SUBJECT. Without it, events are POSTed to this
    /// server.
    #[arg(long, value_name = "URL", requires = "subscriptions")]
    events: Option<Destination>,
    /// With --subscriptions: the message of an event. $T, or an example of a time, is replaced by the time at which
    /// the event was published.
    #[arg(
        long,
        value_name = "TEXT",
        requires = "subscriptions",
        default_value = r#"{"id":"1","type":"next","payload":{"data":{"tick":{"id":"$T"}}}}"#
    )]
    message: String,
    /// The address to listen on; port 0 takes a free port.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:4991",
          value_parser = crate::usage::parse_listen)]
    listen: SocketAddr,
}

pub(crate) fn run(arguments: &FloorArguments) -> Result<ExitCode, String> {
    let cannot = |error: std::io::Error| format!("cannot serve at {}: {error}", arguments.listen);
    let served = match &arguments.file {
        Some(file) => {
            let body = std::fs::read(file)
                .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            let floor = Floor::bind(arguments.listen, &body).map_err(cannot)?;
            crate::commands::print(&format!("http://{}/\n", floor.address().map_err(cannot)?));
            floor.serve()
        }
        None => {
            let nats = match &arguments.events {
                Some(events) => {
                    Some(events.nats().ok_or("--events takes nats://HOST:PORT/SUBJECT")?)
                }
                None => None,
            };
            let floor =
                BroadcastFloor::bind(arguments.listen, &arguments.message, nats).map_err(cannot)?;
            crate::commands::print(&format!("ws://{}/\n", floor.address().map_err(cannot)?));
            floor.serve()
        }
    };
    served.map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}
