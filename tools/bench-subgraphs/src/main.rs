//! Serves the four subgraphs of the federation benchmark in one process.

use std::error::Error;
use std::io::{Write as _, stdout};
use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;

/// The four subgraphs of the federation benchmark at /accounts, /inventory, /products and /reviews.
#[derive(Parser)]
struct Arguments {
    /// The address to listen on; port 0 takes a free port and prints it.
    #[arg(long, default_value = "127.0.0.1:4200")]
    listen: SocketAddr,
    /// The delay of each response, in milliseconds.
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
}

// One thread, so that the other cores are left to the measured router.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let delay = Duration::from_millis(arguments.delay_ms);
    let server = bench_subgraphs::start(arguments.listen, delay)
        .await
        .map_err(|error| format!("cannot listen at {}: {error}", arguments.listen))?;
    let mut out = stdout().lock();
    for name in bench_subgraphs::NAMES {
        writeln!(out, "{name} {}", server.url(&format!("/{name}")))?;
    }
    drop(out);
    tokio::signal::ctrl_c().await?;
    Ok(())
}
